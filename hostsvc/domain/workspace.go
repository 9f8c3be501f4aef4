package domain

import "time"

// Workspace is the unit of approval, of serial commits and of visibility.
type Workspace struct {
	ID          string
	Name        string
	Description string
	OwnerID     string
	// DefaultExecutorID and DefaultAgentProfileID are what a task gets that
	// names none, "" for nothing.
	DefaultExecutorID     string
	DefaultAgentProfileID string
	// SortOrder orders the workspaces for humans.
	SortOrder int32
	CreatedAt time.Time
	UpdatedAt time.Time
	Version   Version
}

// Workflow is an ordered set of steps that tasks move through.
type Workflow struct {
	ID          string
	WorkspaceID string
	Name        string
	Description string
	SortOrder   int32
	// Hidden workflows are in no v1 list.
	Hidden bool
	Prompt string
	// AgentProfileID is the profile of tasks in this workflow, "" to inherit.
	AgentProfileID string
	CreatedAt      time.Time
	UpdatedAt      time.Time
	Version        Version
}

// WorkflowStep is one column of a workflow.
type WorkflowStep struct {
	ID          string
	WorkspaceID string
	WorkflowID  string
	Name        string
	Position    int32
	// StageType is a presentation hint: "work", "review", "approval" or
	// "custom".
	StageType string
	Color     string
	// Start marks the step that a new task enters when it names none.
	Start bool
	// WIPLimit is the most tasks the step admits at once; 0 is no limit.
	WIPLimit int32
	// PullFromStepID names the feeder step of the same workflow, if any.
	PullFromStepID string
	Prompt         string
	// AgentProfileID is the profile of tasks in this step, "" to inherit.
	AgentProfileID string
	// OnEnterActionTypes lists what happens to a task that enters the step, in
	// order, for example "auto_start_agent".
	OnEnterActionTypes []string
	AllowManualMove    bool
	ShowInCommandPanel bool
	// AutoArchiveAfterHours is when a task that stands in the step is archived;
	// 0 is never.
	AutoArchiveAfterHours int32
	// AutoAdvanceRequiresSignal and CancelTriggersTurnComplete say when the end
	// of a turn moves a task on.
	AutoAdvanceRequiresSignal  bool
	CancelTriggersTurnComplete bool
	Version                    Version
}
