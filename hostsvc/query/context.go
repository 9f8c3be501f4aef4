package query

import (
	"context"
	"fmt"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// ContextSnapshot is what the capability context needs of a snapshot.
type ContextSnapshot interface {
	// AuthorityRows lists the rows of an installation in the order of their
	// workspaces' IDs.
	AuthorityRows(installationID string) ([]authority.Row, error)
	// ContextRevision counts the authority changes of an installation, in all
	// workspaces; it only grows.
	ContextRevision(installationID string) (uint64, error)
}

// CapabilityContext is what an installation may know about its own authority.
// It authorises nothing.
type CapabilityContext struct {
	// Revision grows with every change in any workspace.
	Revision uint64
	// Workspaces are the workspaces with a row of revision 1 or more, or the
	// one that was asked for.
	Workspaces []WorkspaceContext
}

// WorkspaceContext is the authority in one workspace.
type WorkspaceContext struct {
	WorkspaceID    string
	Revision       uint64
	ManifestDigest string
	State          authority.State
	Capabilities   contract.CapabilitySet
	// Verdicts holds what a call for each capability would be answered now.
	Verdicts map[contract.Capability]authority.Verdict
}

// Context reads the capability context of an installation
// (GetCapabilityContext). env names the request and, optionally, one workspace,
// which is then in the answer whether or not it is approved: an unknown
// workspace and an unapproved one give the same answer.
func (r *Reader) Context(ctx context.Context, installationID string, env admission.Envelope) (CapabilityContext, Receipt, *admission.Refusal) {
	var out CapabilityContext
	record := journal.Receipt{
		AuditID: r.NewAuditID(), InstallationID: installationID, WorkspaceID: env.WorkspaceID,
		Method: "GetCapabilityContext", RequestID: env.RequestID, Result: contract.StateApplied, Implicit: env.Implicit(), At: r.Now(),
	}
	refusal := checkContext(env)
	if refusal == nil {
		err := r.Store.Read(ctx, func(s Snapshot) error {
			var err error
			out, err = r.readContext(s, installationID, env.WorkspaceID)
			return err
		})
		if err != nil {
			refusal = admission.AsRefusal(err)
		}
	}
	if refusal != nil {
		return CapabilityContext{}, Receipt{}, admission.RecordRefusal(ctx, r.Receipts, record, env, refusal)
	}
	if err := r.Receipts.Append(ctx, record); err != nil {
		return CapabilityContext{}, Receipt{}, admission.Unavailable()
	}
	return out, Receipt{
		AuditID: record.AuditID, WorkspaceID: env.WorkspaceID, RequestID: env.RequestID, ObservedAt: record.At,
	}, nil
}

func (r *Reader) readContext(s Snapshot, installationID, workspaceID string) (CapabilityContext, error) {
	if !r.View.Observe(authority.Key{InstallationID: installationID, WorkspaceID: workspaceID}).Synced {
		// No row means "never approved" only once everything has been seen.
		return CapabilityContext{}, admission.Unavailable()
	}
	revision, err := s.ContextRevision(installationID)
	if err != nil {
		return CapabilityContext{}, fmt.Errorf("read the context revision: %w", err)
	}
	out := CapabilityContext{Revision: revision}
	if workspaceID != "" {
		key := authority.Key{InstallationID: installationID, WorkspaceID: workspaceID}
		row, err := s.AuthorityRow(key)
		if err != nil {
			return CapabilityContext{}, fmt.Errorf("read the authority row: %w", err)
		}
		if row == nil || row.Revision == 0 {
			row = &authority.Row{Key: key}
		}
		out.Workspaces = []WorkspaceContext{r.workspaceContext(*row, s.Current())}
		return out, nil
	}
	rows, err := s.AuthorityRows(installationID)
	if err != nil {
		return CapabilityContext{}, fmt.Errorf("read the authority rows: %w", err)
	}
	for _, row := range rows {
		if row.Revision > 0 {
			out.Workspaces = append(out.Workspaces, r.workspaceContext(row, s.Current()))
		}
	}
	return out, nil
}

func checkContext(env admission.Envelope) *admission.Refusal {
	if fault := contract.CheckIdentifier("request_id", env.RequestID); fault != nil {
		return admission.RefuseField(fault)
	}
	if env.WorkspaceID != "" {
		if fault := contract.CheckIdentifier("workspace_id", env.WorkspaceID); fault != nil {
			return admission.RefuseField(fault)
		}
	}
	return env.Fault
}

func (r *Reader) workspaceContext(row authority.Row, current bool) WorkspaceContext {
	now := r.Now()
	w := WorkspaceContext{
		WorkspaceID: row.Key.WorkspaceID, Revision: row.Revision, ManifestDigest: row.Vector.ManifestDigest,
		State: row.State, Verdicts: map[contract.Capability]authority.Verdict{},
	}
	if w.State == authority.StateActive && row.Expired(now) {
		w.State = authority.StateExpired
	}
	seen := r.View.Observe(row.Key)
	for _, c := range contract.Capabilities() {
		verdict := authority.Decide(&row, seen, current, authority.Call{Capability: c}, now)
		w.Verdicts[c] = verdict
		if verdict.Allowed() {
			w.Capabilities |= contract.SetOf(c)
		}
	}
	return w
}
