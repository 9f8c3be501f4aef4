package query

import (
	"context"
	"fmt"
	"strconv"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

// TopologySnapshot is what topology queries need of a snapshot. Lists are as
// of a version, above a key, in key order, of at most limit items.
type TopologySnapshot interface {
	Workspace(workspaceID string, asOf domain.Version) (workspace domain.Workspace, found bool, err error)
	Workflows(workspaceID string, asOf domain.Version, after string, limit int) ([]domain.Workflow, error)
	// WorkflowSteps lists the steps of a workflow in the order of StepKey.
	WorkflowSteps(workspaceID, workflowID string, asOf domain.Version, after string, limit int) ([]domain.WorkflowStep, error)
}

// StepKey orders the steps of a workflow by position and then by ID, as a text
// that sorts the same.
func StepKey(s domain.WorkflowStep) string {
	position := strconv.FormatUint(uint64(uint32(s.Position)^1<<31), 10) // an order-preserving bias
	const width = 10
	for len(position) < width {
		position = "0" + position
	}
	return position + "/" + s.ID
}

// noFilter and stepFilter are what the cursors of topology lists are bound to:
// objects, because a bare value has no canonical form.
type (
	noFilter   struct{}
	stepFilter struct{ WorkflowID string }
)

// Workspaces lists the one workspace that the request names
// (ListWorkspacesExact).
func (r *Reader) Workspaces(ctx context.Context, installationID string, m admission.Method, env admission.Envelope, page Page) (List[domain.Workspace], Receipt, *admission.Refusal) {
	return list(ctx, r, installationID, m, env, page, noFilter{}, nil, workspaces,
		func(s Snapshot, asOf domain.Version, after string, _ int) ([]domain.Workspace, error) {
			workspace, found, err := s.Workspace(env.WorkspaceID, asOf)
			if err != nil || !found || after >= workspace.ID {
				return nil, err
			}
			return []domain.Workspace{workspace}, nil
		})
}

var workspaces = kind[domain.Workspace]{
	key:  func(w domain.Workspace) string { return w.ID },
	size: func(w domain.Workspace) int { return len(w.Name) + len(w.Description) + len(w.ID) },
}

// Workflows lists the workflows of a workspace (ListWorkflowsExact).
func (r *Reader) Workflows(ctx context.Context, installationID string, m admission.Method, env admission.Envelope, page Page) (List[domain.Workflow], Receipt, *admission.Refusal) {
	return list(ctx, r, installationID, m, env, page, noFilter{}, nil, workflows,
		func(s Snapshot, asOf domain.Version, after string, limit int) ([]domain.Workflow, error) {
			return s.Workflows(env.WorkspaceID, asOf, after, limit)
		})
}

var workflows = kind[domain.Workflow]{
	key:  func(w domain.Workflow) string { return w.ID },
	size: func(w domain.Workflow) int { return len(w.Name) + len(w.Description) + len(w.ID) + len(w.WorkspaceID) },
}

// WorkflowSteps lists the steps of a workflow (ListWorkflowStepsExact).
func (r *Reader) WorkflowSteps(ctx context.Context, installationID string, m admission.Method, env admission.Envelope, workflowID string, page Page) (List[domain.WorkflowStep], Receipt, *admission.Refusal) {
	var check *admission.Refusal
	if fault := contract.CheckIdentifier("workflow_id", workflowID); fault != nil {
		check = admission.RefuseField(fault)
	}
	return list(ctx, r, installationID, m, env, page, stepFilter{workflowID}, check, workflowSteps,
		func(s Snapshot, asOf domain.Version, after string, limit int) ([]domain.WorkflowStep, error) {
			steps, err := s.WorkflowSteps(env.WorkspaceID, workflowID, asOf, after, limit)
			if err != nil || len(steps) > 0 || after != "" {
				return steps, err
			}
			return nil, requireWorkflow(s, env.WorkspaceID, workflowID, asOf)
		})
}

var workflowSteps = kind[domain.WorkflowStep]{
	key: StepKey,
	size: func(s domain.WorkflowStep) int {
		return len(s.Name) + len(s.StageType) + len(s.Color) + len(s.ID) + len(s.WorkflowID)
	},
}

// requireWorkflow tells a workflow without steps from one that is not in this
// workspace. It looks through the workspace's workflows, which are few, and
// only where there were no steps to show.
func requireWorkflow(s Snapshot, workspaceID, workflowID string, asOf domain.Version) error {
	for after := ""; ; {
		workflows, err := s.Workflows(workspaceID, asOf, after, contract.MaxPageSize)
		if err != nil {
			return fmt.Errorf("look for the workflow: %w", err)
		}
		for _, w := range workflows {
			if w.ID == workflowID {
				return nil
			}
			after = w.ID
		}
		if len(workflows) < contract.MaxPageSize {
			return notHere("workflow_id")
		}
	}
}
