package store

import (
	"fmt"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/query"
)

const (
	workspaceColumns = `workspace_id, name, description, created_at, updated_at, version`
	workflowColumns  = `id, name, description, sort_order, created_at, updated_at, version`
	stepColumns      = `id, workflow_id, name, position, stage_type, color, start, wip_limit, pull_from_step_id, version`
)

var (
	insertWorkspaceRow = insert("workspaces", []string{
		"workspace_id", "name", "description", "created_at", "updated_at", "version",
	})
	insertWorkflowRow = insert("workflows", []string{
		"workspace_id", "id", "name", "description", "sort_order", "created_at", "updated_at", "version",
	})
	insertStepRow = insert("workflow_steps", []string{
		"workspace_id", "id", "workflow_id", "sort_key", "name", "position", "stage_type", "color", "start",
		"wip_limit", "pull_from_step_id", "version",
	})
)

func scanWorkspace(r Row) domain.Workspace {
	return domain.Workspace{
		ID: r.Text(0), Name: r.Text(1), Description: r.Text(2), CreatedAt: nanoTime(r, 3), UpdatedAt: nanoTime(r, 4),
		Version: domain.Version(r.Int(5)),
	}
}

func scanWorkflow(r Row, workspaceID string) domain.Workflow {
	return domain.Workflow{
		ID: r.Text(0), WorkspaceID: workspaceID, Name: r.Text(1), Description: r.Text(2), SortOrder: int32(r.Int(3)),
		CreatedAt: nanoTime(r, 4), UpdatedAt: nanoTime(r, 5), Version: domain.Version(r.Int(6)),
	}
}

func scanStep(r Row, workspaceID string) domain.WorkflowStep {
	return domain.WorkflowStep{
		ID: r.Text(0), WorkspaceID: workspaceID, WorkflowID: r.Text(1), Name: r.Text(2), Position: int32(r.Int(3)),
		StageType: r.Text(4), Color: r.Text(5), Start: r.Int(6) != 0, WIPLimit: int32(r.Int(7)),
		PullFromStepID: r.Text(8), Version: domain.Version(r.Int(9)),
	}
}

// Workflow implements command.TaskTx.
func (t *tx) Workflow(id string) (workflow domain.Workflow, found bool, err error) {
	err = t.query("read a workflow", `SELECT `+workflowColumns+` FROM workflows WHERE workspace_id = $1 AND id = $2`,
		func(r Row) error { workflow, found = scanWorkflow(r, t.workspace), true; return nil }, t.workspace, id)
	return workflow, found, err
}

// WorkflowStep implements command.TaskTx.
func (t *tx) WorkflowStep(id string) (step domain.WorkflowStep, found bool, err error) {
	err = t.query("read a workflow step", `SELECT `+stepColumns+` FROM workflow_steps WHERE workspace_id = $1 AND id = $2`,
		func(r Row) error { step, found = scanStep(r, t.workspace), true; return nil }, t.workspace, id)
	return step, found, err
}

func (t *tx) workspaceExists() (exists bool, err error) {
	err = t.query("look for the workspace", `SELECT 1 FROM workspaces WHERE workspace_id = $1`,
		func(Row) error { exists = true; return nil }, t.workspace)
	return exists, err
}

// own checks that a row is written where and when the transaction writes.
func (t *tx) own(what, id, workspaceID string, version domain.Version) error {
	if workspaceID != t.workspace || version != t.Version() {
		return fmt.Errorf("write %s %s of workspace %s at version %d: %w", what, id, workspaceID, version, ErrWorkspaceBound)
	}
	t.domain = true
	return nil
}

func (t *tx) insertWorkspace(w domain.Workspace) error {
	if err := t.own("workspace", w.ID, w.ID, w.Version); err != nil {
		return err
	}
	_, err := t.exec("insert the workspace", insertWorkspaceRow,
		w.ID, w.Name, w.Description, nanos(w.CreatedAt), nanos(w.UpdatedAt), int64(w.Version))
	return err
}

func (t *tx) insertWorkflow(w domain.Workflow) error {
	if err := t.own("workflow", w.ID, w.WorkspaceID, w.Version); err != nil {
		return err
	}
	_, err := t.exec("insert a workflow", insertWorkflowRow, w.WorkspaceID, w.ID, w.Name, w.Description,
		int64(w.SortOrder), nanos(w.CreatedAt), nanos(w.UpdatedAt), int64(w.Version))
	return err
}

func (t *tx) insertStep(s domain.WorkflowStep) error {
	if err := t.own("workflow step", s.ID, s.WorkspaceID, s.Version); err != nil {
		return err
	}
	_, err := t.exec("insert a workflow step", insertStepRow, s.WorkspaceID, s.ID, s.WorkflowID, query.StepKey(s),
		s.Name, int64(s.Position), s.StageType, s.Color, flag(s.Start), int64(s.WIPLimit), s.PullFromStepID,
		int64(s.Version))
	return err
}

// Workspace implements query.TopologySnapshot.
func (s *snapshot) Workspace(workspaceID string, asOf domain.Version) (workspace domain.Workspace, found bool, err error) {
	row := func(r Row) error { workspace, found = scanWorkspace(r), true; return nil }
	err = s.query("read the workspace",
		`SELECT `+workspaceColumns+` FROM workspaces WHERE workspace_id = $1 AND version <= $2`,
		row, workspaceID, int64(asOf))
	if err != nil || found {
		return workspace, found, err
	}
	err = s.query("read the workspace",
		`SELECT `+workspaceColumns+` FROM workspaces_closed WHERE workspace_id = $1 AND version <= $2 AND valid_to > $2`,
		row, workspaceID, int64(asOf))
	return workspace, found, err
}

// Workflows implements query.TopologySnapshot.
func (s *snapshot) Workflows(workspaceID string, asOf domain.Version, after string, limit int) ([]domain.Workflow, error) {
	const where = ` WHERE workspace_id = $1 AND version <= $2 AND id > $3`
	return listAsOf(s, workspaceID, asOf, limit,
		`SELECT `+workflowColumns+` FROM workflows`+where+` ORDER BY id LIMIT $4`,
		`SELECT `+workflowColumns+` FROM workflows_closed`+where+` AND valid_to > $2 ORDER BY id LIMIT $4`,
		func(r Row) (domain.Workflow, error) { return scanWorkflow(r, workspaceID), nil },
		func(w domain.Workflow) string { return w.ID },
		workspaceID, int64(asOf), after, int64(limit))
}

// WorkflowSteps implements query.TopologySnapshot.
func (s *snapshot) WorkflowSteps(workspaceID, workflowID string, asOf domain.Version, after string, limit int) ([]domain.WorkflowStep, error) {
	const where = ` WHERE workspace_id = $1 AND workflow_id = $2 AND version <= $3 AND sort_key > $4`
	return listAsOf(s, workspaceID, asOf, limit,
		`SELECT `+stepColumns+` FROM workflow_steps`+where+` ORDER BY sort_key LIMIT $5`,
		`SELECT `+stepColumns+` FROM workflow_steps_closed`+where+` AND valid_to > $3 ORDER BY sort_key LIMIT $5`,
		func(r Row) (domain.WorkflowStep, error) { return scanStep(r, workspaceID), nil },
		query.StepKey,
		workspaceID, workflowID, int64(asOf), after, int64(limit))
}
