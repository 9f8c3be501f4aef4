package domain

import "time"

// InteractionKind is what a human is asked for.
type InteractionKind string

// The interaction kinds.
const (
	InteractionPermission    InteractionKind = "permission"
	InteractionClarification InteractionKind = "clarification"
)

// InteractionStatus is how an interaction stands. A text that isn't among the
// constants is kept as it is and counts as terminal.
type InteractionStatus string

// The interaction statuses; all but the first are terminal.
const (
	InteractionPending   InteractionStatus = "pending"
	InteractionApproved  InteractionStatus = "approved"
	InteractionRejected  InteractionStatus = "rejected"
	InteractionAnswered  InteractionStatus = "answered"
	InteractionCancelled InteractionStatus = "cancelled"
	InteractionExpired   InteractionStatus = "expired"
)

// Interaction is a permission request or a clarification bundle, projected from
// its message rows (domain facts, section 5). Its texts are free of system
// markup.
type Interaction struct {
	// ID is the pending ID that the rows share.
	ID          string
	WorkspaceID string
	Kind        InteractionKind
	TaskID      string
	SessionID   string
	TurnID      string
	Status      InteractionStatus
	Title       string
	// Context belongs to a clarification; ToolCallID, ActionType and Options to
	// a permission.
	Context    string
	ToolCallID string
	ActionType string
	Options    []InteractionOption
	Questions  []InteractionQuestion
	// AgentDisconnected tells that no agent waits any more: an answer starts a
	// new turn.
	AgentDisconnected bool
	CreatedAt         time.Time
	UpdatedAt         time.Time
	// Version is the newest version of the rows.
	Version Version
}

// InteractionOption is one choice. Kind is set on permissions (allow_once,
// allow_always, reject_once, reject_always), Description on clarifications.
type InteractionOption struct {
	ID          string
	Label       string
	Kind        string
	Description string
}

// InteractionQuestion is one question of a clarification bundle.
type InteractionQuestion struct {
	ID      string
	Title   string
	Prompt  string
	Options []InteractionOption
}

// ClarificationAnswer answers one question: by options, by a text, or both.
type ClarificationAnswer struct {
	QuestionID      string
	SelectedOptions []string
	CustomText      string
}
