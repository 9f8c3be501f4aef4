package domain

import "time"

// AuthorType is who wrote a message. There is no system author: system text is
// markup inside the others' messages, see MarkupState.
type AuthorType string

// The author types.
const (
	AuthorUser  AuthorType = "user"
	AuthorAgent AuthorType = "agent"
)

// MessageType is what a message is.
type MessageType string

// The message types (domain facts, section 3).
const (
	MessagePlain                MessageType = "message"
	MessageContent              MessageType = "content"
	MessageToolCall             MessageType = "tool_call"
	MessageToolEdit             MessageType = "tool_edit"
	MessageToolRead             MessageType = "tool_read"
	MessageToolExecute          MessageType = "tool_execute"
	MessageProgress             MessageType = "progress"
	MessageLog                  MessageType = "log"
	MessageError                MessageType = "error"
	MessageStatus               MessageType = "status"
	MessagePermissionRequest    MessageType = "permission_request"
	MessageClarificationRequest MessageType = "clarification_request"
	MessageScriptExecution      MessageType = "script_execution"
	MessageThinking             MessageType = "thinking"
	MessageAgentPlan            MessageType = "agent_plan"
	MessageTodo                 MessageType = "todo"
)

// Message is one row of a session's conversation.
type Message struct {
	ID          string
	WorkspaceID string
	SessionID   string
	TaskID      string
	TurnID      string
	AuthorType  AuthorType
	AuthorID    string
	// Type is MessagePlain where the row names none.
	Type MessageType
	// Content is the text as written, system markup included. Only Visible may
	// leave the Host (I14).
	Content string
	// MarkupBefore is the system markup that is still open where Content
	// begins. The store sets it when it writes the row, so that no reader needs
	// the rows before.
	MarkupBefore  MarkupState
	RequestsInput bool
	Metadata      Object
	// Sequence orders the rows of a session by insertion; a row keeps its own.
	Sequence  int64
	CreatedAt time.Time
	UpdatedAt time.Time
	Version   Version
}
