package domain

import "time"

// SessionState is the state of a session.
type SessionState string

// The session states (domain facts, section 1). SessionIdle is used by office
// sessions only.
const (
	SessionCreated         SessionState = "CREATED"
	SessionStarting        SessionState = "STARTING"
	SessionRunning         SessionState = "RUNNING"
	SessionIdle            SessionState = "IDLE"
	SessionWaitingForInput SessionState = "WAITING_FOR_INPUT"
	SessionCompleted       SessionState = "COMPLETED"
	SessionFailed          SessionState = "FAILED"
	SessionCancelled       SessionState = "CANCELLED"
)

// ReviewStatus is how far the review of a session's work is.
type ReviewStatus string

// The review statuses.
const (
	ReviewNone             ReviewStatus = ""
	ReviewPending          ReviewStatus = "pending"
	ReviewChangesRequested ReviewStatus = "changes_requested"
	ReviewApproved         ReviewStatus = "approved"
)

// Session is one conversation of a task with an agent.
type Session struct {
	ID          string
	WorkspaceID string
	TaskID      string
	Name        string
	State       SessionState
	// Primary marks the one session that stands for its task.
	Primary bool
	// AgentProfileID names the profile as it is now; ProfileSnapshot holds its
	// fields as they were when the session was created.
	AgentProfileID    string
	ProfileSnapshot   Object
	ExecutorID        string
	ExecutorProfileID string
	// ResumeToken is the executor's own name of the agent's conversation.
	ResumeToken string
	// ExecutionID names the execution that runs the session, "" where it was
	// never launched or the execution is over and forgotten.
	ExecutionID     string
	RouteGeneration int64
	ReviewStatus    ReviewStatus
	ErrorMessage    string
	Metadata        Object
	StartedAt       time.Time
	CompletedAt     time.Time
	UpdatedAt       time.Time
	Version         Version
}
