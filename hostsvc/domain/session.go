package domain

import (
	"fmt"
	"slices"
	"time"
)

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

var sessionStates = []SessionState{
	SessionCreated, SessionStarting, SessionRunning, SessionIdle, SessionWaitingForInput,
	SessionCompleted, SessionFailed, SessionCancelled,
}

// Known tells whether it is a state of a session at all.
func (s SessionState) Known() bool { return slices.Contains(sessionStates, s) }

// Terminal tells whether the state ends a session. A terminal session has no
// current turn and owes nobody an answer, whatever its rows say.
func (s SessionState) Terminal() bool {
	return s == SessionCompleted || s == SessionFailed || s == SessionCancelled
}

// Resumable tells whether an agent works in the session or can go on in it.
func (s SessionState) Resumable() bool {
	return s == SessionStarting || s == SessionRunning || s == SessionWaitingForInput || s == SessionIdle
}

// ReviewStatus is how far the review of a session's work is.
type ReviewStatus string

// The review statuses.
const (
	ReviewNone             ReviewStatus = ""
	ReviewPending          ReviewStatus = "pending"
	ReviewChangesRequested ReviewStatus = "changes_requested"
	ReviewApproved         ReviewStatus = "approved"
)

// Known tells whether it is a review status at all.
func (r ReviewStatus) Known() bool {
	return r == ReviewNone || r == ReviewPending || r == ReviewChangesRequested || r == ReviewApproved
}

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

// Model is the agent's model as it was when the session was created.
func (s Session) Model() string {
	for _, key := range []string{"model", "model_name", "llm"} {
		if model := s.ProfileSnapshot.Text(key); model != "" {
			return model
		}
	}
	return ""
}

// AgentDisplayName is the agent's name for humans as it was when the session was
// created.
func (s Session) AgentDisplayName() string { return s.ProfileSnapshot.Text("agent_display_name") }

// AgentProfileName is the profile's name as it was when the session was created.
func (s Session) AgentProfileName() string { return s.ProfileSnapshot.Text("name") }

// ACPSessionID is the agent's own name of the conversation.
func (s Session) ACPSessionID() string {
	if id := s.Metadata.Object("acp").Text("session_id"); id != "" {
		return id
	}
	return s.ResumeToken
}

// SendStatus is what became of a text that was sent to a session.
type SendStatus string

// The send statuses.
const (
	// SendQueued: the agent works; it reads the text afterwards.
	SendQueued SendStatus = "queued"
	// SendStarted: the session had never been launched and now is.
	SendStarted SendStatus = "started"
	// SendSent: the text goes to the agent, which is resumed if need be.
	SendSent SendStatus = "sent"
)

// Send returns what becomes of a text that is sent to the session now, or a
// *RuleError where it takes none.
func (s Session) Send() (SendStatus, error) {
	switch s.State {
	case SessionRunning, SessionStarting:
		return SendQueued, nil
	case SessionCreated:
		return SendStarted, nil
	case SessionWaitingForInput:
		if s.ExecutionID == "" {
			return SendStarted, nil
		}
		return SendSent, nil
	case SessionIdle, SessionCompleted:
		return SendSent, nil
	case SessionFailed, SessionCancelled:
		return "", s.refuseText()
	default:
		return "", s.refuseText()
	}
}

func (s Session) refuseText() error {
	return &RuleError{FaultPrecondition, fmt.Sprintf("session is %s — cannot send message", s.State)}
}

// SessionToMessage picks the session of a task that a text goes to, out of the
// sessions that the caller found: the one it named, or, when it named none, the
// primary one of those that aren't terminal, or else the newest. An error is a
// *RuleError.
func SessionToMessage(taskID, sessionID string, sessions []Session) (Session, error) {
	if sessionID != "" {
		at := slices.IndexFunc(sessions, func(s Session) bool { return s.ID == sessionID })
		if at < 0 {
			return Session{}, &RuleError{FaultNotFound, fmt.Sprintf("session %q not found", sessionID)}
		}
		if sessions[at].TaskID != taskID {
			return Session{}, &RuleError{FaultNotFound, fmt.Sprintf("session %q does not belong to task %q", sessionID, taskID)}
		}
		return sessions[at], nil
	}
	var best Session
	for _, s := range sessions {
		if s.TaskID == taskID && !s.State.Terminal() && (best.ID == "" || s.before(best)) {
			best = s
		}
	}
	if best.ID == "" {
		return Session{}, &RuleError{FaultNotFound, fmt.Sprintf("task %q has no active session to message", taskID)}
	}
	return best, nil
}

// before tells whether s rather than other stands for their task.
func (s Session) before(other Session) bool {
	switch {
	case s.Primary != other.Primary:
		return s.Primary
	case !s.StartedAt.Equal(other.StartedAt):
		return s.StartedAt.After(other.StartedAt)
	default:
		return s.ID < other.ID
	}
}
