package domain

import (
	"fmt"
	"slices"
	"time"

	"github.com/kandev/plugin-host/contract"
)

// AuthorType is who wrote a message. There is no system author: system text is
// markup inside the others' messages, see MarkupState.
type AuthorType string

// The author types.
const (
	AuthorUser  AuthorType = "user"
	AuthorAgent AuthorType = "agent"
)

// Known tells whether it is an author type at all.
func (a AuthorType) Known() bool { return a == AuthorUser || a == AuthorAgent }

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

var messageTypes = []MessageType{
	MessagePlain, MessageContent, MessageToolCall, MessageToolEdit, MessageToolRead, MessageToolExecute,
	MessageProgress, MessageLog, MessageError, MessageStatus, MessagePermissionRequest,
	MessageClarificationRequest, MessageScriptExecution, MessageThinking, MessageAgentPlan, MessageTodo,
}

// Known tells whether it is a type of a message at all.
func (t MessageType) Known() bool { return slices.Contains(messageTypes, t) }

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

// Visible is the content without system markup, the only form that may leave the
// Host (I14).
func (m Message) Visible() string {
	visible, _ := m.MarkupBefore.Strip(m.Content)
	return visible
}

// MarkupAfter is the MarkupBefore of the next row by the same author in the
// session. Who changes a row's content and with it this, restates the rows
// behind it.
func (m Message) MarkupAfter() MarkupState {
	_, after := m.MarkupBefore.Strip(m.Content)
	return after
}

// Digest is the canonical digest of what a reader sees of the message, under the
// names and in the forms of the wire, so that it can be computed from an answer.
// What was hidden has no part in it.
func (m Message) Digest() (contract.Digest, error) {
	digest, err := contract.CanonicalDigest(struct {
		AuthorType AuthorType  `json:"author_type"`
		Content    string      `json:"content"`
		CreatedAt  string      `json:"created_at"`
		ID         string      `json:"id"`
		SessionID  string      `json:"session_id"`
		TaskID     string      `json:"task_id"`
		TurnID     string      `json:"turn_id"`
		Type       MessageType `json:"type"`
	}{m.AuthorType, m.Visible(), wireTime(m.CreatedAt), m.ID, m.SessionID, m.TaskID, m.TurnID, m.Type})
	if err != nil {
		return contract.Digest{}, fmt.Errorf("digest message %s: %w", m.ID, err)
	}
	return digest, nil
}

// wireTime is an instant as the wire shows it.
func wireTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
