package domain

import (
	"time"

	"github.com/kandev/plugin-host/contract"
)

// InboxKind is what waits in a task's inbox.
type InboxKind string

// The inbox kinds.
const (
	InboxPermission    InboxKind = "permission"
	InboxClarification InboxKind = "clarification"
	InboxTransition    InboxKind = "workflow_transition"
)

// InboxPending is the only state of an inbox item: what is settled is no item.
const InboxPending = "pending"

// InboxItem is one thing that a task waits for, projected from its pending
// interactions and transitions.
type InboxItem struct {
	// ID is the interaction's or the transition's.
	ID          string
	WorkspaceID string
	TaskID      string
	SessionID   string
	Kind        InboxKind
	State       string
	CreatedAt   time.Time
	Digest      contract.Digest
	Version     Version
}
