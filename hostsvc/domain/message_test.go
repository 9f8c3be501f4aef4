package domain

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
)

func TestI14_Message_digest(t *testing.T) {
	m := Message{
		ID: "m", SessionID: "s", TaskID: "t", TurnID: "u", AuthorType: AuthorUser, Type: MessagePlain,
		Content: " é<kandev-system>one</kandev-system> ", CreatedAt: created.Add(time.Nanosecond).In(time.FixedZone("", 3600)),
	}
	digest, err := m.Digest()
	if err != nil {
		t.Fatal(err)
	}
	// A client computes it from what it received.
	var received any
	if err := json.Unmarshal([]byte(`{"id":"m","session_id":"s","task_id":"t","turn_id":"u","author_type":"user",
		"content":"é","type":"message","created_at":"2030-01-02T03:04:05Z"}`), &received); err != nil {
		t.Fatal(err)
	}
	if want, err := contract.CanonicalDigest(received); err != nil || digest != want {
		t.Errorf("%s, want %s: %v", digest, want, err)
	}
	hidden := m
	hidden.Content = "é<kandev-system>two</kandev-system>"
	hidden.Version, hidden.UpdatedAt = 9, later
	if again, err := hidden.Digest(); err != nil || again != digest {
		t.Errorf("what is hidden changes the digest: %v", err)
	}
	for name, change := range map[string]func(*Message){
		"id": func(m *Message) { m.ID = "x" }, "session": func(m *Message) { m.SessionID = "x" }, "task": func(m *Message) { m.TaskID = "x" },
		"turn": func(m *Message) { m.TurnID = "x" }, "author": func(m *Message) { m.AuthorType = AuthorAgent }, "type": func(m *Message) { m.Type = MessageLog },
		"content": func(m *Message) { m.Content = "x" }, "time": func(m *Message) { m.CreatedAt = later },
		"markup before": func(m *Message) { m.MarkupBefore = "1" },
	} {
		other := m
		change(&other)
		if got, err := other.Digest(); err != nil || got == digest {
			t.Errorf("another %s has the same digest: %v", name, err)
		}
	}
}

func TestMessage_known(t *testing.T) {
	if n := len(messageTypes); n != 16 {
		t.Errorf("%d types", n)
	}
	for _, m := range messageTypes {
		if !m.Known() {
			t.Errorf("%q is unknown", m)
		}
	}
	if MessageType("").Known() || MessageType("reply").Known() || AuthorType("system").Known() || !AuthorUser.Known() || !AuthorAgent.Known() {
		t.Error("an unknown text is known, or the other way round")
	}
}

func TestI14_Message_markupRuns(t *testing.T) {
	m := Message{Content: "a<kandev-system>h"}
	next := Message{Content: "h</kandev-system>b", MarkupBefore: m.MarkupAfter()}
	if m.Visible() != "a" || next.Visible() != "b" || next.MarkupAfter() != "" {
		t.Errorf("%q, %q, %q", m.Visible(), next.Visible(), next.MarkupAfter())
	}
}
