package domain

import (
	"encoding/json"
	"testing"

	"github.com/kandev/plugin-host/contract"
)

func TestWireTaskInbox(t *testing.T) {
	items, err := InboxOf(
		[]Interaction{
			{ID: "c", WorkspaceID: "w", TaskID: "t", SessionID: "s", Kind: InteractionClarification, CreatedAt: later, Version: 4},
			{ID: "p", WorkspaceID: "w", TaskID: "t", SessionID: "s", Kind: InteractionPermission, CreatedAt: created, Version: 5},
		},
		[]PendingTransition{{ID: "m", WorkspaceID: "w", TaskID: "t", SessionID: "s", QueuedAt: created, Version: 6}},
	)
	if err != nil || len(items) != 3 {
		t.Fatalf("%v, %v", items, err)
	}
	for n, want := range []InboxItem{
		{ID: "m", WorkspaceID: "w", TaskID: "t", SessionID: "s", Kind: InboxTransition, State: "pending", CreatedAt: created, Version: 6},
		{ID: "p", WorkspaceID: "w", TaskID: "t", SessionID: "s", Kind: InboxPermission, State: "pending", CreatedAt: created, Version: 5},
		{ID: "c", WorkspaceID: "w", TaskID: "t", SessionID: "s", Kind: InboxClarification, State: "pending", CreatedAt: later, Version: 4},
	} {
		want.Digest = items[n].Digest
		if items[n] != want {
			t.Errorf("item %d: %+v, want %+v", n, items[n], want)
		}
	}
	var received any
	if err := json.Unmarshal([]byte(`{"id":"m","workspace_id":"w","task_id":"t","session_id":"s","kind":"workflow_transition",
		"state":"pending","created_at":"2030-01-02T03:04:05Z"}`), &received); err != nil {
		t.Fatal(err)
	}
	if want, err := contract.CanonicalDigest(received); err != nil || items[0].Digest != want {
		t.Errorf("digest %s, want %s: %v", items[0].Digest, want, err)
	}
	if items, err := InboxOf(nil, nil); err != nil || len(items) != 0 {
		t.Errorf("empty: %v, %v", items, err)
	}
}
