package domain

import "time"

// Workspace is the unit of approval, of serial commits and of visibility.
type Workspace struct {
	ID          string
	Name        string
	Description string
	CreatedAt   time.Time
	UpdatedAt   time.Time
	Version     Version
}

// Workflow is an ordered set of steps that tasks move through.
type Workflow struct {
	ID          string
	WorkspaceID string
	Name        string
	Description string
	SortOrder   int32
	CreatedAt   time.Time
	UpdatedAt   time.Time
	Version     Version
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
	Version        Version
}
