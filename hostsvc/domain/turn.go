package domain

import "time"

// Turn is one exchange of a session: a prompt and what the agent makes of it.
type Turn struct {
	ID                 string
	WorkspaceID        string
	SessionID          string
	TaskID             string
	ExecutionProfileID string
	RouteGeneration    int64
	Metadata           Object
	// Referenced tells whether at least one message names the turn. The store
	// sets it with the first such message; it isn't taken back.
	Referenced  bool
	StartedAt   time.Time
	CompletedAt time.Time
	CreatedAt   time.Time
	UpdatedAt   time.Time
	Version     Version
}
