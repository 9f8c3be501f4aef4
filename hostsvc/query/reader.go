package query

import (
	"context"
	"fmt"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// Store is the part of the store that queries run on.
type Store interface {
	// Read runs fn on one consistent snapshot of the whole store. It begins
	// after every commit that was durable before the call.
	Read(ctx context.Context, fn func(Snapshot) error) error
}

// Snapshot is one consistent state of the store. It is valid inside the
// function it was passed to only.
type Snapshot interface {
	AuthorityRow(key authority.Key) (*authority.Row, error)
	// Current tells whether the store vouches for its rows in this snapshot: its
	// lease has not run out by its own clock, and its epoch's comparison with
	// the history is complete.
	Current() bool
	StoreEpoch() uint64
	// Head is a workspace's newest version, and the oldest version that lists
	// can still be read as of. Both are zero for an unknown workspace.
	Head(workspaceID string) (newest, oldest domain.Version, err error)
	TopologySnapshot
	TaskSnapshot
	RelationSnapshot
	TransitionSnapshot
	SessionSnapshot
	MessageSnapshot
	InteractionSnapshot
	InboxSnapshot
	ContextSnapshot
}

// Reader runs exact reads.
type Reader struct {
	Store    Store
	View     admission.View
	Receipts admission.Receipts
	Cursors  *Cursors
	Now      func() time.Time
	// NewAuditID returns a random audit ID.
	NewAuditID func() string
}

// Receipt is what a successful read carries: which authority saw which world.
type Receipt struct {
	AuditID     string
	WorkspaceID string
	Revision    uint64
	RequestID   string
	// Snapshot is the version of the world that was read.
	Snapshot string
	// StoreEpoch is part of every resource version in the answer.
	StoreEpoch uint64
	ObservedAt time.Time
}

// read takes one exact read through its steps. It returns data only together
// with a durable receipt: no receipt, no data. fn reads the data in the
// snapshot that authorised it and returns the version of the world it read.
func read[T any](ctx context.Context, r *Reader, installationID string, m admission.Method, env admission.Envelope, check *admission.Refusal, digest string, fn func(Snapshot, *authority.Row) (T, domain.Version, error)) (T, Receipt, *admission.Refusal) {
	var data T
	var storeEpoch uint64
	record := journal.Receipt{
		AuditID: r.NewAuditID(), InstallationID: installationID, WorkspaceID: env.WorkspaceID, Method: m.Name,
		Capability: m.Capability.String(), RequestID: env.RequestID, RequestDigest: digest,
		Result: contract.StateApplied, Implicit: env.Implicit(), At: r.Now(),
	}
	refusal := env.CheckShape(m)
	if refusal == nil {
		refusal = check
	}
	if refusal == nil {
		err := r.Store.Read(ctx, func(snapshot Snapshot) error {
			key := authority.Key{InstallationID: installationID, WorkspaceID: env.WorkspaceID}
			row, err := snapshot.AuthorityRow(key)
			if err != nil {
				return fmt.Errorf("read authority: %w", err)
			}
			if refusal := admission.Authorise(row, snapshot.Current(), r.View, key, env.Call(m), r.Now()); refusal != nil {
				return refusal
			}
			record.Revision = row.Revision
			var version domain.Version
			if data, version, err = fn(snapshot, row); err != nil {
				return err
			}
			storeEpoch = snapshot.StoreEpoch()
			record.Snapshot = domain.ResourceVersion(storeEpoch, version)
			return nil
		})
		if err != nil {
			refusal = admission.AsRefusal(err)
		}
	}
	var none T
	if refusal != nil {
		return none, Receipt{}, admission.RecordRefusal(ctx, r.Receipts, record, env, refusal)
	}
	if err := r.Receipts.Append(ctx, record); err != nil {
		return none, Receipt{}, admission.Unavailable()
	}
	return data, Receipt{
		AuditID: record.AuditID, WorkspaceID: env.WorkspaceID, Revision: record.Revision, RequestID: env.RequestID,
		Snapshot: record.Snapshot, StoreEpoch: storeEpoch, ObservedAt: record.At,
	}, nil
}

// notHere refuses a target that isn't in the workspace, whether or not it is in
// another one (I14).
func notHere(field string) *admission.Refusal {
	refusal := admission.Refuse(contract.ReasonWorkspaceTargetNotFound, "no such target in this workspace")
	refusal.Field = field
	return refusal
}
