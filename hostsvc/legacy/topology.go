package legacy

import (
	"context"
	"fmt"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

// TopologySnapshot is what v1 reads of workspaces and workflows.
type TopologySnapshot interface {
	// AllWorkspaces lists at most limit workspaces behind the first offset ones, in
	// the order that humans gave them.
	AllWorkspaces(offset, limit int) ([]domain.Workspace, error)
	// VisibleWorkflows lists a workspace's workflows but the hidden ones, in the
	// workspace's own order.
	VisibleWorkflows(workspaceID string, offset, limit int) ([]domain.Workflow, error)
	// StepsOf lists the steps of a workflow by position.
	StepsOf(workflowID string) ([]domain.WorkflowStep, error)
}

// ListWorkspaces lists the workspaces of the instance.
func (h *Host) ListWorkspaces(ctx context.Context, _ Caller, page Page) ([]domain.Workspace, PageInfo, error) {
	return listed(ctx, h, "list workspaces", page.window(), sizeOfWorkspace, func(s Snapshot, offset, limit int) ([]domain.Workspace, error) {
		return s.AllWorkspaces(offset, limit)
	})
}

// ListWorkflows lists the workflows of a workspace that aren't hidden.
func (h *Host) ListWorkflows(ctx context.Context, _ Caller, workspaceID string, page Page) ([]domain.Workflow, PageInfo, error) {
	return listed(ctx, h, "list workflows", page.window(), sizeOfWorkflow, func(s Snapshot, offset, limit int) ([]domain.Workflow, error) {
		return s.VisibleWorkflows(workspaceID, offset, limit)
	})
}

// ListWorkflowSteps lists all steps of a workflow by position.
func (h *Host) ListWorkflowSteps(ctx context.Context, _ Caller, workflowID string) (steps []domain.WorkflowStep, err error) {
	err = h.Store.Read(ctx, func(s Snapshot) error {
		steps, err = s.StepsOf(workflowID)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list workflow steps: %w", err)
	}
	return steps, nil
}

// listed reads one page of a list.
func listed[T any](ctx context.Context, h *Host, doing string, w window, size func(*T) int, list func(s Snapshot, offset, limit int) ([]T, error)) (items []T, info PageInfo, err error) {
	err = h.Store.Read(ctx, func(s Snapshot) error {
		items, info, err = paged(w, size, func(offset, limit int) ([]T, error) { return list(s, offset, limit) })
		return err
	})
	if err != nil {
		return nil, PageInfo{}, fmt.Errorf("%s: %w", doing, err)
	}
	return items, info, nil
}

func sizeOfWorkspace(w *domain.Workspace) int { return len(w.Name) + len(w.Description) }

func sizeOfWorkflow(w *domain.Workflow) int { return len(w.Name) + len(w.Description) }

// small is the size of items whose texts are names and IDs alone.
func small[T any](*T) int { return contract.MaxIdentifierBytes }
