package query

import (
	"context"
	"fmt"

	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

// TransitionSnapshot is what transition queries need of a snapshot.
type TransitionSnapshot interface {
	// PendingTransitions lists at most limit pending transitions of a workspace, or
	// of one task of it, with a key above after, in the order of TransitionKey, as
	// they were at version asOf.
	PendingTransitions(workspaceID, taskID string, asOf domain.Version, after string, limit int) ([]domain.PendingTransition, error)
}

// TransitionKey orders pending transitions by when they were queued and then by ID,
// as a text that sorts the same.
func TransitionKey(p domain.PendingTransition) string {
	queued := int64(0)
	if !p.QueuedAt.IsZero() {
		queued = p.QueuedAt.UnixNano()
	}
	return fmt.Sprintf("%020d/%s", uint64(queued)^1<<63, p.ID) // an order-preserving bias
}

// PendingTransitions lists the moves that wait in a workspace, or those of one task,
// oldest first (ListPendingTaskTransitionsExact).
func (r *Reader) PendingTransitions(ctx context.Context, installationID string, m admission.Method, env admission.Envelope, taskID string, page Page) (List[domain.PendingTransition], Receipt, *admission.Refusal) {
	var check *admission.Refusal
	if taskID != "" {
		check = checkTaskID(taskID)
	}
	return list(ctx, r, installationID, m, env, page, relationFilter{taskID}, check, pendingTransitions,
		func(s Snapshot, asOf domain.Version, after string, limit int) ([]domain.PendingTransition, error) {
			if taskID != "" && after == "" {
				if err := requireTask(s, env.WorkspaceID, taskID, asOf); err != nil {
					return nil, err
				}
			}
			return s.PendingTransitions(env.WorkspaceID, taskID, asOf, after, limit)
		})
}

var pendingTransitions = kind[domain.PendingTransition]{
	key: TransitionKey,
	size: func(p domain.PendingTransition) int {
		return len(p.ID) + len(p.WorkspaceID) + len(p.TaskID) + len(p.SessionID) + len(p.FromWorkflowID) + len(p.FromStepID) +
			len(p.ToWorkflowID) + len(p.ToStepID)
	},
}
