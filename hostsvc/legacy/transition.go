package legacy

import (
	"context"

	"github.com/kandev/plugin-host/hostsvc/domain"
)

// TransitionSnapshot is what v1 reads of the ledger of moves.
type TransitionSnapshot interface {
	// StepTransitions lists the moves of a task in their order, also of one that was
	// deleted.
	StepTransitions(taskID string, offset, limit int) ([]domain.StepTransition, error)
	// TransitionGroups counts the moves of a workflow, by kind and steps.
	TransitionGroups(workflowID string, offset, limit int) ([]TransitionGroup, error)
}

// TransitionGroup counts the moves between two places of a workflow.
type TransitionGroup struct {
	// Kind is "within" the workflow, "entry" into it, then without FromStepID, or
	// "exit" out of it, then without ToStepID.
	Kind                 string
	FromStepID, ToStepID string
	Count                int64
}

// ListTaskStepTransitions lists the moves of a task.
func (h *Host) ListTaskStepTransitions(ctx context.Context, _ Caller, taskID string, page Page) ([]domain.StepTransition, PageInfo, error) {
	w, failure := page.strict()
	if failure != nil {
		return nil, PageInfo{}, failure
	}
	return listed(ctx, h, "list step transitions", w, small[domain.StepTransition], func(s Snapshot, offset, limit int) ([]domain.StepTransition, error) {
		return s.StepTransitions(taskID, offset, limit)
	})
}

// ListWorkflowTransitionGroups counts the moves of a workflow.
func (h *Host) ListWorkflowTransitionGroups(ctx context.Context, _ Caller, workflowID string, page Page) ([]TransitionGroup, PageInfo, error) {
	w, failure := page.strict()
	if failure != nil {
		return nil, PageInfo{}, failure
	}
	return listed(ctx, h, "count workflow transitions", w, small[TransitionGroup], func(s Snapshot, offset, limit int) ([]TransitionGroup, error) {
		return s.TransitionGroups(workflowID, offset, limit)
	})
}
