package domain

import (
	"testing"
	"time"
)

func TestWireTurns_authoritative(t *testing.T) {
	for _, c := range []struct {
		name string
		turn Turn
		want bool
	}{
		{"no metadata", Turn{}, true},
		{"pending", Turn{Metadata: Object{"prompt_dispatch_pending": true}}, false},
		{"pending as text", Turn{Metadata: Object{"prompt_dispatch_pending": "true"}}, false},
		{"pending as digit", Turn{Metadata: Object{"prompt_dispatch_pending": "1"}}, false},
		{"not pending", Turn{Metadata: Object{"prompt_dispatch_pending": false}}, true},
		{"another text", Turn{Metadata: Object{"prompt_dispatch_pending": "yes"}}, true},
		{"null", Turn{Metadata: Object{"prompt_dispatch_pending": nil}}, true},
		{"attempted", Turn{Metadata: Object{"prompt_dispatch_pending": true, "prompt_dispatch_attempted": "1"}}, true},
		{"referenced", Turn{Metadata: Object{"prompt_dispatch_pending": true}, Referenced: true}, true},
		{"not attempted", Turn{Metadata: Object{"prompt_dispatch_pending": true, "prompt_dispatch_attempted": "0"}}, false},
	} {
		if got := c.turn.Authoritative(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestWireTurns_current(t *testing.T) {
	at := func(n int) time.Time { return created.Add(time.Duration(n) * time.Second) }
	pending := Object{"prompt_dispatch_pending": true}
	for _, c := range []struct {
		name  string
		state SessionState
		turns []Turn
		want  string
	}{
		{"none", SessionRunning, nil, ""},
		{"newest start", SessionRunning, []Turn{{ID: "a", StartedAt: at(2)}, {ID: "b", StartedAt: at(1), CreatedAt: at(9)}}, "a"},
		{"then newest creation", SessionRunning, []Turn{{ID: "b", CreatedAt: at(1)}, {ID: "a", CreatedAt: at(2)}}, "a"},
		{"then highest ID", SessionRunning, []Turn{{ID: "b"}, {ID: "c"}, {ID: "a"}}, "c"},
		{"pending dispatch", SessionRunning, []Turn{{ID: "a", StartedAt: at(1)}, {ID: "b", StartedAt: at(2), Metadata: pending}}, "a"},
		{"pending dispatch with a message", SessionRunning, []Turn{{ID: "a", StartedAt: at(1)}, {ID: "b", StartedAt: at(2), Metadata: pending, Referenced: true}}, "b"},
		{"another session's", SessionRunning, []Turn{{ID: "a"}, {ID: "b", SessionID: "other"}}, "a"},
		{"a completed turn", SessionWaitingForInput, []Turn{{ID: "a", CompletedAt: at(1)}}, "a"},
		{"created", SessionCreated, []Turn{{ID: "a"}}, "a"},
		{"completed", SessionCompleted, []Turn{{ID: "a"}}, ""},
		{"failed", SessionFailed, []Turn{{ID: "a"}}, ""},
		{"cancelled", SessionCancelled, []Turn{{ID: "a"}}, ""},
	} {
		for i := range c.turns {
			if c.turns[i].SessionID == "" {
				c.turns[i].SessionID = "s"
			}
		}
		got, ok := CurrentTurn(Session{ID: "s", State: c.state}, c.turns)
		if got.ID != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q, %v", c.name, got.ID, ok)
		}
	}
}
