package domain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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

// InboxOf projects an inbox from what is owed, see PendingInteractions, and the
// pending transitions: oldest first, then by ID and kind.
func InboxOf(pending []Interaction, transitions []PendingTransition) ([]InboxItem, error) {
	items := make([]InboxItem, 0, len(pending)+len(transitions))
	for _, i := range pending {
		items = append(items, InboxItem{
			ID: i.ID, WorkspaceID: i.WorkspaceID, TaskID: i.TaskID, SessionID: i.SessionID, Kind: InboxKind(i.Kind),
			State: InboxPending, CreatedAt: i.CreatedAt, Version: i.Version,
		})
	}
	for _, p := range transitions {
		items = append(items, InboxItem{
			ID: p.ID, WorkspaceID: p.WorkspaceID, TaskID: p.TaskID, SessionID: p.SessionID, Kind: InboxTransition,
			State: InboxPending, CreatedAt: p.QueuedAt, Version: p.Version,
		})
	}
	for n := range items {
		digest, err := items[n].digest()
		if err != nil {
			return nil, err
		}
		items[n].Digest = digest
	}
	slices.SortFunc(items, func(a, b InboxItem) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID), strings.Compare(string(a.Kind), string(b.Kind)))
	})
	return items, nil
}

// digest is over what the wire shows of the item, without its version.
func (i InboxItem) digest() (contract.Digest, error) {
	digest, err := contract.CanonicalDigest(struct {
		CreatedAt   string    `json:"created_at"`
		ID          string    `json:"id"`
		Kind        InboxKind `json:"kind"`
		SessionID   string    `json:"session_id"`
		State       string    `json:"state"`
		TaskID      string    `json:"task_id"`
		WorkspaceID string    `json:"workspace_id"`
	}{wireTime(i.CreatedAt), i.ID, i.Kind, i.SessionID, i.State, i.TaskID, i.WorkspaceID})
	if err != nil {
		return contract.Digest{}, fmt.Errorf("digest inbox item %s: %w", i.ID, err)
	}
	return digest, nil
}
