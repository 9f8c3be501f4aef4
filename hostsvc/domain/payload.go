package domain

import "time"

// This file says what events tell of entities, under the keys that v1 plugins know
// (plugin runtime facts, section 7). What the Host doesn't keep is left out. No
// payload holds what is private (I14): message content is what may be seen of it,
// raw content is never there.

// TaskPayload is what task.created, task.updated, task.state_changed and
// task.deleted say.
type TaskPayload struct {
	TaskID          string                  `json:"task_id"`
	WorkspaceID     string                  `json:"workspace_id"`
	WorkflowID      string                  `json:"workflow_id"`
	WorkflowStepID  string                  `json:"workflow_step_id"`
	Title           string                  `json:"title"`
	Description     string                  `json:"description"`
	State           TaskState               `json:"state"`
	Priority        TaskPriority            `json:"priority"`
	Position        int32                   `json:"position"`
	WIPAdmitted     bool                    `json:"wip_admitted"`
	QueuedForStepID string                  `json:"queued_for_step_id,omitempty"`
	QueuedAt        string                  `json:"queued_at,omitempty"`
	CreatedAt       string                  `json:"created_at"`
	UpdatedAt       string                  `json:"updated_at"`
	Ephemeral       bool                    `json:"is_ephemeral"`
	Autopilot       bool                    `json:"autopilot"`
	Origin          string                  `json:"origin,omitempty"`
	ParentID        string                  `json:"parent_id,omitempty"`
	ExternalID      string                  `json:"external_id,omitempty"`
	ArchivedAt      string                  `json:"archived_at,omitempty"`
	RepositoryID    string                  `json:"repository_id,omitempty"`
	Repositories    []taskRepositoryPayload `json:"repositories,omitempty"`
	Metadata        Object                  `json:"metadata,omitempty"`
	// OldState and NewState are set where the state has changed.
	OldState TaskState `json:"old_state,omitempty"`
	NewState TaskState `json:"new_state,omitempty"`
	// OldWorkflowID is set where the workflow has.
	OldWorkflowID string `json:"old_workflow_id,omitempty"`
}

type taskRepositoryPayload struct {
	ID             string `json:"id"`
	TaskID         string `json:"task_id"`
	RepositoryID   string `json:"repository_id"`
	BaseBranch     string `json:"base_branch"`
	CheckoutBranch string `json:"checkout_branch"`
	Position       int32  `json:"position"`
}

// NewTaskPayload says how a task is now.
func NewTaskPayload(t *Task) *TaskPayload {
	p := &TaskPayload{
		TaskID: t.ID, WorkspaceID: t.WorkspaceID, WorkflowID: t.WorkflowID, WorkflowStepID: t.WorkflowStepID,
		Title: StripMarkup(t.Title), Description: StripMarkup(t.Description), State: t.State, Priority: t.Priority,
		Position: t.Position, WIPAdmitted: t.WIPAdmitted, QueuedForStepID: t.QueuedForStepID, QueuedAt: instant(t.QueuedAt),
		CreatedAt: instant(t.CreatedAt), UpdatedAt: instant(t.UpdatedAt), Ephemeral: t.Ephemeral, Autopilot: t.Autopilot,
		Origin: t.Origin, ParentID: t.ParentID, ExternalID: t.ExternalID, ArchivedAt: instant(t.ArchivedAt),
		Metadata: Redact(t.Metadata),
	}
	for _, r := range t.Repositories {
		p.Repositories = append(p.Repositories, taskRepositoryPayload{
			ID: r.ID, TaskID: t.ID, RepositoryID: r.RepositoryID, BaseBranch: r.BaseBranch, CheckoutBranch: r.CheckoutBranch,
			Position: r.Position,
		})
	}
	if len(t.Repositories) > 0 {
		p.RepositoryID = t.Repositories[0].RepositoryID
	}
	return p
}

// ChangedTaskPayload says how a task is now, and what it was before where plugins
// are told.
func ChangedTaskPayload(before, after *Task) *TaskPayload {
	p := NewTaskPayload(after)
	if before.State != after.State {
		p.OldState, p.NewState = before.State, after.State
	}
	if before.WorkflowID != after.WorkflowID {
		p.OldWorkflowID = before.WorkflowID
	}
	return p
}

// TaskMovedPayload is what task.moved says.
type TaskMovedPayload struct {
	TaskID          string `json:"task_id"`
	WorkspaceID     string `json:"workspace_id"`
	FromWorkflowID  string `json:"from_workflow_id"`
	ToWorkflowID    string `json:"to_workflow_id"`
	FromStepID      string `json:"from_step_id"`
	ToStepID        string `json:"to_step_id"`
	WorkflowID      string `json:"workflow_id"`
	Description     string `json:"task_description"`
	ParentID        string `json:"parent_id,omitempty"`
	AssigneeID      string `json:"assignee_agent_profile_id,omitempty"`
	WIPAdmitted     bool   `json:"wip_admitted"`
	QueuedForStepID string `json:"queued_for_step_id,omitempty"`
	QueuedAt        string `json:"queued_at,omitempty"`
	// QueuePromotion: a slot came free, and nobody moved it.
	QueuePromotion bool `json:"queue_promotion"`
}

// NewTaskMovedPayload says where a task stood and where it stands.
func NewTaskMovedPayload(before, after *Task, promotion bool) *TaskMovedPayload {
	return &TaskMovedPayload{
		TaskID: after.ID, WorkspaceID: after.WorkspaceID, FromWorkflowID: before.WorkflowID, ToWorkflowID: after.WorkflowID,
		FromStepID: before.WorkflowStepID, ToStepID: after.WorkflowStepID, WorkflowID: after.WorkflowID,
		Description: StripMarkup(after.Description), ParentID: after.ParentID, AssigneeID: after.AssigneeAgentProfileID,
		WIPAdmitted: after.WIPAdmitted, QueuedForStepID: after.QueuedForStepID, QueuedAt: instant(after.QueuedAt),
		QueuePromotion: promotion,
	}
}

// DependencyPayload is what task.dependencies_resolved and task.dependency_failed say.
// The facts name no keys of theirs; these are IDs alone.
type DependencyPayload struct {
	TaskID      string `json:"task_id"`
	WorkspaceID string `json:"workspace_id"`
	// DependsOnID is the task that resolved last, or failed.
	DependsOnID string `json:"depends_on_task_id"`
}

// NewDependencyPayload says which task a task waited for.
func NewDependencyPayload(waiting, predecessor *Task) *DependencyPayload {
	return &DependencyPayload{TaskID: waiting.ID, WorkspaceID: waiting.WorkspaceID, DependsOnID: predecessor.ID}
}

// MessagePayload is what message.added, message.updated and message.deleted say.
type MessagePayload struct {
	MessageID     string      `json:"message_id"`
	WorkspaceID   string      `json:"workspace_id"`
	SessionID     string      `json:"session_id"`
	TaskID        string      `json:"task_id"`
	TurnID        string      `json:"turn_id"`
	AuthorType    AuthorType  `json:"author_type"`
	AuthorID      string      `json:"author_id"`
	Content       string      `json:"content"`
	Type          MessageType `json:"type"`
	RequestsInput bool        `json:"requests_input"`
	CreatedAt     string      `json:"created_at"`
	UpdatedAt     string      `json:"updated_at"`
	Metadata      Object      `json:"metadata,omitempty"`
}

// NewMessagePayload says how a message is now, as far as it may be seen.
func NewMessagePayload(m *Message) *MessagePayload {
	return &MessagePayload{
		MessageID: m.ID, WorkspaceID: m.WorkspaceID, SessionID: m.SessionID, TaskID: m.TaskID, TurnID: m.TurnID,
		AuthorType: m.AuthorType, AuthorID: m.AuthorID, Content: m.Visible(), Type: m.Type, RequestsInput: m.RequestsInput,
		CreatedAt: instant(m.CreatedAt), UpdatedAt: instant(m.UpdatedAt), Metadata: Redact(m.Metadata),
	}
}

// TurnPayload is what turn.started and turn.completed say.
type TurnPayload struct {
	ID                 string `json:"id"`
	WorkspaceID        string `json:"workspace_id"`
	SessionID          string `json:"session_id"`
	TaskID             string `json:"task_id"`
	ExecutionProfileID string `json:"execution_profile_id"`
	RouteGeneration    int64  `json:"route_generation"`
	StartedAt          string `json:"started_at"`
	CompletedAt        string `json:"completed_at,omitempty"`
	CreatedAt          string `json:"created_at"`
	UpdatedAt          string `json:"updated_at"`
	Metadata           Object `json:"metadata,omitempty"`
	// HadOutput is for a completed turn only; nil otherwise.
	HadOutput *bool `json:"had_output,omitempty"`
}

// NewTurnPayload says how a turn is now. Where it is unknown whether a completed
// turn had output, it had.
func NewTurnPayload(t *Turn, hadOutput bool) *TurnPayload {
	p := &TurnPayload{
		ID: t.ID, WorkspaceID: t.WorkspaceID, SessionID: t.SessionID, TaskID: t.TaskID,
		ExecutionProfileID: t.ExecutionProfileID, RouteGeneration: t.RouteGeneration, StartedAt: instant(t.StartedAt),
		CompletedAt: instant(t.CompletedAt), CreatedAt: instant(t.CreatedAt), UpdatedAt: instant(t.UpdatedAt),
		Metadata: Redact(t.Metadata),
	}
	if !t.CompletedAt.IsZero() {
		p.HadOutput = &hadOutput
	}
	return p
}

// instant is an instant as payloads have it, "" for none.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
