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
	// Workspaces are the workspaces with a row of revision 1 or more.
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
// (GetCapabilityContext). workspaceID narrows it to one workspace; an unknown
// workspace and an unapproved one give the same answer.
func (r *Reader) Context(ctx context.Context, installationID string, requestID, workspaceID string) (CapabilityContext, Receipt, *admission.Refusal) {
	var out CapabilityContext
	record := journal.Receipt{
		AuditID: r.NewAuditID(), InstallationID: installationID, WorkspaceID: workspaceID,
		Method: "GetCapabilityContext", RequestID: requestID, Result: contract.StateApplied, At: r.Now(),
	}
	refusal := checkContext(requestID, workspaceID)
	if refusal == nil {
		err := r.Store.Read(ctx, func(s Snapshot) error {
			out = CapabilityContext{}
			rows, err := s.AuthorityRows(installationID)
			if err != nil {
				return fmt.Errorf("read the authority rows: %w", err)
			}
			if out.Revision, err = s.ContextRevision(installationID); err != nil {
				return fmt.Errorf("read the context revision: %w", err)
			}
			for _, row := range rows {
				if row.Revision > 0 && (workspaceID == "" || row.Key.WorkspaceID == workspaceID) {
					out.Workspaces = append(out.Workspaces, r.workspaceContext(row))
				}
			}
			return nil
		})
		if err != nil {
			refusal = admission.AsRefusal(err)
		}
	}
	if refusal != nil {
		record.Result, record.Reason = refusal.State, refusal.Reason
	}
	if err := r.Receipts.Append(ctx, record); err != nil {
		return CapabilityContext{}, Receipt{}, admission.Unavailable()
	}
	if refusal != nil {
		recorded := *refusal
		recorded.AuditID = record.AuditID
		return CapabilityContext{}, Receipt{}, &recorded
	}
	return out, Receipt{AuditID: record.AuditID, WorkspaceID: workspaceID, RequestID: requestID, ObservedAt: record.At}, nil
}

func checkContext(requestID, workspaceID string) *admission.Refusal {
	if fault := contract.CheckIdentifier("request_id", requestID); fault != nil {
		return admission.RefuseField(fault)
	}
	if workspaceID == "" {
		return nil
	}
	if fault := contract.CheckIdentifier("workspace_id", workspaceID); fault != nil {
		return admission.RefuseField(fault)
	}
	return nil
}

func (r *Reader) workspaceContext(row authority.Row) WorkspaceContext {
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
		verdict := authority.Decide(&row, seen, authority.Call{Capability: c}, now)
		w.Verdicts[c] = verdict
		if verdict.Allowed() {
			w.Capabilities |= contract.SetOf(c)
		}
	}
	return w
}
