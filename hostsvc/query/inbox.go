package query

import (
	"context"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

// InboxSnapshot is what inbox queries need of a snapshot.
type InboxSnapshot interface {
	// Inbox lists at most limit items of a workspace with a key above after, in the
	// order of InboxKey, as they were at version asOf.
	Inbox(workspaceID string, filter InboxFilter, asOf domain.Version, after string, limit int) ([]domain.InboxItem, error)
}

// InboxFilter narrows an inbox to a task or a session; "" is any.
type InboxFilter struct {
	SessionID string
	TaskID    string
}

// Check returns the first fault of the filter.
func (f InboxFilter) Check() *admission.Refusal {
	for _, id := range []struct{ field, value string }{{"task_id", f.TaskID}, {"session_id", f.SessionID}} {
		if id.value == "" {
			continue
		}
		if fault := contract.CheckIdentifier(id.field, id.value); fault != nil {
			return admission.RefuseField(fault)
		}
	}
	return nil
}

// Inbox lists what waits for somebody in a workspace, snapshot-bound, oldest first
// (ListTaskInboxExact).
func (r *Reader) Inbox(ctx context.Context, installationID string, m admission.Method, env admission.Envelope, filter InboxFilter, page Page) (List[domain.InboxItem], Receipt, *admission.Refusal) {
	return list(ctx, r, installationID, m, env, page, filter, filter.Check(), inboxItems,
		func(s Snapshot, asOf domain.Version, after string, limit int) ([]domain.InboxItem, error) {
			if after == "" { // a cursor proves that it was asked
				if err := requireTarget("task_id", env.WorkspaceID, filter.TaskID, s.MissingTask); err != nil {
					return nil, err
				}
				if err := requireTarget("session_id", env.WorkspaceID, filter.SessionID, s.MissingSession); err != nil {
					return nil, err
				}
			}
			return s.Inbox(env.WorkspaceID, filter, asOf, after, limit)
		})
}

var inboxItems = kind[domain.InboxItem]{
	key: InboxKey,
	size: func(i domain.InboxItem) int {
		return len(i.ID) + len(i.WorkspaceID) + len(i.TaskID) + len(i.SessionID)
	},
}

// InboxKey orders items from the oldest to the newest and then by ID and kind, as
// a text that sorts the same: nothing that an ID may go on with comes before the
// mark at its end.
func InboxKey(i domain.InboxItem) string {
	return InstantKey(i.CreatedAt) + "/" + i.ID + "\x01" + string(i.Kind)
}
