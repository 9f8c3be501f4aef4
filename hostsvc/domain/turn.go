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

// Authoritative tells whether the turn counts: a prompt whose dispatch is still
// pending makes none unless it was attempted or a message came of it (domain
// facts, section 2).
func (t Turn) Authoritative() bool {
	return !t.Metadata.Flag("prompt_dispatch_pending") || t.Metadata.Flag("prompt_dispatch_attempted") || t.Referenced
}

// After tells whether the turn is newer than other: by start, creation and ID.
func (t Turn) After(other Turn) bool {
	switch {
	case !t.StartedAt.Equal(other.StartedAt):
		return t.StartedAt.After(other.StartedAt)
	case !t.CreatedAt.Equal(other.CreatedAt):
		return t.CreatedAt.After(other.CreatedAt)
	default:
		return t.ID > other.ID
	}
}

// CurrentTurn returns the newest authoritative turn of the session among turns,
// which may hold other sessions' too. ok is false where there is none; a
// terminal session has none.
func CurrentTurn(s Session, turns []Turn) (current Turn, ok bool) {
	if s.State.Terminal() {
		return Turn{}, false
	}
	for _, t := range turns {
		if t.SessionID == s.ID && t.Authoritative() && (!ok || t.After(current)) {
			current, ok = t, true
		}
	}
	return current, ok
}
