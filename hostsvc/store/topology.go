package store

import (
	"fmt"
	"strings"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/query"
)

var (
	workspaceNames = []string{
		"workspace_id", "name", "description", "created_at", "updated_at", "version", "sort_order", "details",
	}
	workspaceColumns = strings.Join(workspaceNames, ", ")
	workspaceTable   = newVersioned("workspace", "workspaces", workspaceNames, 1)

	workflowNames = []string{
		"workspace_id", "id", "name", "description", "sort_order", "created_at", "updated_at", "version", "hidden", "details",
	}
	workflowColumns = strings.Join(workflowNames[1:], ", ")
	workflowTable   = newVersioned("workflow", "workflows", workflowNames, 2)

	stepNames = []string{
		"workspace_id", "id", "workflow_id", "name", "position", "stage_type", "color", "start", "wip_limit",
		"pull_from_step_id", "version", "details", "sort_key",
	}
	stepColumns = strings.Join(stepNames[1:len(stepNames)-1], ", ")
	stepTable   = newVersioned("workflow step", "workflow_steps", stepNames, 2)
)

// workspaceDetails, workflowDetails and stepDetails are the fields that nothing is
// selected by.
type workspaceDetails struct {
	OwnerID               string `json:"owner_id,omitempty"`
	DefaultExecutorID     string `json:"default_executor_id,omitempty"`
	DefaultAgentProfileID string `json:"default_agent_profile_id,omitempty"`
}

type workflowDetails struct {
	Prompt         string `json:"prompt,omitempty"`
	AgentProfileID string `json:"agent_profile_id,omitempty"`
}

type stepDetails struct {
	Prompt                     string   `json:"prompt,omitempty"`
	AgentProfileID             string   `json:"agent_profile_id,omitempty"`
	OnEnterActionTypes         []string `json:"on_enter_action_types,omitempty"`
	AllowManualMove            bool     `json:"allow_manual_move,omitempty"`
	ShowInCommandPanel         bool     `json:"show_in_command_panel,omitempty"`
	AutoArchiveAfterHours      int32    `json:"auto_archive_after_hours,omitempty"`
	AutoAdvanceRequiresSignal  bool     `json:"auto_advance_requires_signal,omitempty"`
	CancelTriggersTurnComplete bool     `json:"cancel_triggers_turn_complete,omitempty"`
}

func scanWorkspace(r Row) (domain.Workspace, error) {
	var d workspaceDetails
	if err := decodeDetails(r, 7, &d); err != nil {
		return domain.Workspace{}, fmt.Errorf("decode the details of workspace %s: %w", r.Text(0), err)
	}
	return domain.Workspace{
		ID: r.Text(0), Name: r.Text(1), Description: r.Text(2), OwnerID: d.OwnerID, DefaultExecutorID: d.DefaultExecutorID,
		DefaultAgentProfileID: d.DefaultAgentProfileID, SortOrder: int32(r.Int(6)), CreatedAt: nanoTime(r, 3),
		UpdatedAt: nanoTime(r, 4), Version: domain.Version(r.Int(5)),
	}, nil
}

func scanWorkflow(r Row, workspaceID string) (domain.Workflow, error) {
	var d workflowDetails
	if err := decodeDetails(r, 8, &d); err != nil {
		return domain.Workflow{}, fmt.Errorf("decode the details of workflow %s: %w", r.Text(0), err)
	}
	return domain.Workflow{
		ID: r.Text(0), WorkspaceID: workspaceID, Name: r.Text(1), Description: r.Text(2), SortOrder: int32(r.Int(3)),
		Hidden: r.Int(7) != 0, Prompt: d.Prompt, AgentProfileID: d.AgentProfileID, CreatedAt: nanoTime(r, 4),
		UpdatedAt: nanoTime(r, 5), Version: domain.Version(r.Int(6)),
	}, nil
}

func scanStep(r Row, workspaceID string) (domain.WorkflowStep, error) {
	var d stepDetails
	if err := decodeDetails(r, 10, &d); err != nil {
		return domain.WorkflowStep{}, fmt.Errorf("decode the details of step %s: %w", r.Text(0), err)
	}
	return domain.WorkflowStep{
		ID: r.Text(0), WorkspaceID: workspaceID, WorkflowID: r.Text(1), Name: r.Text(2), Position: int32(r.Int(3)),
		StageType: r.Text(4), Color: r.Text(5), Start: r.Int(6) != 0, WIPLimit: int32(r.Int(7)),
		PullFromStepID: r.Text(8), Version: domain.Version(r.Int(9)), Prompt: d.Prompt, AgentProfileID: d.AgentProfileID,
		OnEnterActionTypes: d.OnEnterActionTypes, AllowManualMove: d.AllowManualMove, ShowInCommandPanel: d.ShowInCommandPanel,
		AutoArchiveAfterHours: d.AutoArchiveAfterHours, AutoAdvanceRequiresSignal: d.AutoAdvanceRequiresSignal,
		CancelTriggersTurnComplete: d.CancelTriggersTurnComplete,
	}, nil
}

func workspaceArgs(w domain.Workspace) ([]any, error) {
	details, err := encodeDetails(workspaceDetails{
		OwnerID: w.OwnerID, DefaultExecutorID: w.DefaultExecutorID, DefaultAgentProfileID: w.DefaultAgentProfileID,
	})
	if err != nil {
		return nil, fmt.Errorf("encode the details of workspace %s: %w", w.ID, err)
	}
	return []any{
		w.ID, w.Name, w.Description, nanos(w.CreatedAt), nanos(w.UpdatedAt), int64(w.Version), int64(w.SortOrder), details,
	}, nil
}

func workflowArgs(w domain.Workflow) ([]any, error) {
	details, err := encodeDetails(workflowDetails{Prompt: w.Prompt, AgentProfileID: w.AgentProfileID})
	if err != nil {
		return nil, fmt.Errorf("encode the details of workflow %s: %w", w.ID, err)
	}
	return []any{
		w.WorkspaceID, w.ID, w.Name, w.Description, int64(w.SortOrder), nanos(w.CreatedAt), nanos(w.UpdatedAt),
		int64(w.Version), flag(w.Hidden), details,
	}, nil
}

func stepArgs(s domain.WorkflowStep) ([]any, error) {
	details, err := encodeDetails(stepDetails{
		Prompt: s.Prompt, AgentProfileID: s.AgentProfileID, OnEnterActionTypes: s.OnEnterActionTypes,
		AllowManualMove: s.AllowManualMove, ShowInCommandPanel: s.ShowInCommandPanel,
		AutoArchiveAfterHours: s.AutoArchiveAfterHours, AutoAdvanceRequiresSignal: s.AutoAdvanceRequiresSignal,
		CancelTriggersTurnComplete: s.CancelTriggersTurnComplete,
	})
	if err != nil {
		return nil, fmt.Errorf("encode the details of step %s: %w", s.ID, err)
	}
	return []any{
		s.WorkspaceID, s.ID, s.WorkflowID, s.Name, int64(s.Position), s.StageType, s.Color, flag(s.Start), int64(s.WIPLimit),
		s.PullFromStepID, int64(s.Version), details, query.StepKey(s),
	}, nil
}

// Workflow implements command.TaskTx.
func (t *tx) Workflow(id string) (workflow domain.Workflow, found bool, err error) {
	err = t.query("read a workflow", `SELECT `+workflowColumns+` FROM workflows WHERE workspace_id = $1 AND id = $2`,
		func(r Row) (err error) { workflow, err = scanWorkflow(r, t.workspace); found = true; return err }, t.workspace, id)
	return workflow, found, err
}

// WorkflowStep implements command.TaskTx.
func (t *tx) WorkflowStep(id string) (step domain.WorkflowStep, found bool, err error) {
	err = t.query("read a workflow step", `SELECT `+stepColumns+` FROM workflow_steps WHERE workspace_id = $1 AND id = $2`,
		func(r Row) (err error) { step, err = scanStep(r, t.workspace); found = true; return err }, t.workspace, id)
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

func (t *tx) insertWorkspace(w domain.Workspace) error { return t.writeWorkspace(w, false) }

// writeWorkspace adds the workspace's row, or replaces the one that there is.
func (t *tx) writeWorkspace(w domain.Workspace, replace bool) error {
	if err := t.own("workspace", w.ID, w.ID, w.Version); err != nil {
		return err
	}
	args, err := workspaceArgs(w)
	if err != nil {
		return err
	}
	if replace {
		return t.replaceRow(workspaceTable, workspaceTable.update, args)
	}
	return t.insertRow(workspaceTable, args)
}

func (t *tx) insertWorkflow(w domain.Workflow) error {
	if err := t.own("workflow", w.ID, w.WorkspaceID, w.Version); err != nil {
		return err
	}
	args, err := workflowArgs(w)
	if err != nil {
		return err
	}
	return t.insertRow(workflowTable, args)
}

func (t *tx) insertStep(s domain.WorkflowStep) error {
	if err := t.own("workflow step", s.ID, s.WorkspaceID, s.Version); err != nil {
		return err
	}
	args, err := stepArgs(s)
	if err != nil {
		return err
	}
	return t.insertRow(stepTable, args)
}

// Workspace implements query.TopologySnapshot.
func (s *snapshot) Workspace(workspaceID string, asOf domain.Version) (workspace domain.Workspace, found bool, err error) {
	row := func(r Row) (err error) { workspace, err = scanWorkspace(r); found = true; return err }
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
		func(r Row) (domain.Workflow, error) { return scanWorkflow(r, workspaceID) },
		func(w domain.Workflow) string { return w.ID },
		workspaceID, int64(asOf), after, int64(limit))
}

// WorkflowSteps implements query.TopologySnapshot.
func (s *snapshot) WorkflowSteps(workspaceID, workflowID string, asOf domain.Version, after string, limit int) ([]domain.WorkflowStep, error) {
	const where = ` WHERE workspace_id = $1 AND workflow_id = $2 AND version <= $3 AND sort_key > $4`
	return listAsOf(s, workspaceID, asOf, limit,
		`SELECT `+stepColumns+` FROM workflow_steps`+where+` ORDER BY sort_key LIMIT $5`,
		`SELECT `+stepColumns+` FROM workflow_steps_closed`+where+` AND valid_to > $3 ORDER BY sort_key LIMIT $5`,
		func(r Row) (domain.WorkflowStep, error) { return scanStep(r, workspaceID) },
		query.StepKey,
		workspaceID, workflowID, int64(asOf), after, int64(limit))
}

// AllWorkspaces implements legacy.TopologySnapshot.
func (s *snapshot) AllWorkspaces(offset, limit int) (workspaces []domain.Workspace, err error) {
	err = s.query("list the workspaces", `SELECT `+workspaceColumns+` FROM workspaces ORDER BY sort_order, workspace_id LIMIT $1 OFFSET $2`,
		func(r Row) error {
			workspace, err := scanWorkspace(r)
			workspaces = append(workspaces, workspace)
			return err
		}, int64(limit), int64(offset))
	return workspaces, err
}

// VisibleWorkflows implements legacy.TopologySnapshot.
func (s *snapshot) VisibleWorkflows(workspaceID string, offset, limit int) (workflows []domain.Workflow, err error) {
	err = s.query("list the workflows", `SELECT `+workflowColumns+` FROM workflows WHERE workspace_id = $1 AND hidden = 0
		ORDER BY sort_order, id LIMIT $2 OFFSET $3`, func(r Row) error {
		workflow, err := scanWorkflow(r, workspaceID)
		workflows = append(workflows, workflow)
		return err
	}, clean(workspaceID), int64(limit), int64(offset))
	return workflows, err
}

// StepsOf implements legacy.TopologySnapshot.
func (s *snapshot) StepsOf(workflowID string) (steps []domain.WorkflowStep, err error) {
	err = s.query("list the steps of a workflow", `SELECT `+stepColumns+`, workspace_id FROM workflow_steps WHERE workflow_id = $1
		ORDER BY sort_key, workspace_id`, func(r Row) error {
		step, err := scanStep(r, r.Text(11))
		steps = append(steps, step)
		return err
	}, clean(workflowID))
	return steps, err
}

// StepsOf implements legacy.TaskTx.
func (t *tx) StepsOf(workflowID string) (steps []domain.WorkflowStep, err error) {
	err = t.query("list the steps of a workflow", `SELECT `+stepColumns+` FROM workflow_steps WHERE workspace_id = $1 AND workflow_id = $2
		ORDER BY sort_key`, func(r Row) error {
		step, err := scanStep(r, t.workspace)
		steps = append(steps, step)
		return err
	}, t.workspace, workflowID)
	return steps, err
}
