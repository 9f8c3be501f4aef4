package domain

import (
	"errors"
	"testing"
	"time"
)

func TestSessionState_sets(t *testing.T) {
	for state, want := range map[SessionState][3]bool{ // known, terminal, resumable
		SessionCreated: {true, false, false}, SessionStarting: {true, false, true}, SessionRunning: {true, false, true},
		SessionIdle: {true, false, true}, SessionWaitingForInput: {true, false, true}, SessionCompleted: {true, true, false},
		SessionFailed: {true, true, false}, SessionCancelled: {true, true, false}, "": {}, "running": {},
	} {
		if got := [3]bool{state.Known(), state.Terminal(), state.Resumable()}; got != want {
			t.Errorf("%q: %v, want %v", state, got, want)
		}
	}
	for _, r := range []ReviewStatus{ReviewNone, ReviewPending, ReviewChangesRequested, ReviewApproved} {
		if !r.Known() {
			t.Errorf("review status %q is unknown", r)
		}
	}
	if ReviewStatus("done").Known() {
		t.Error("done is no review status")
	}
}

func TestSession_projection(t *testing.T) {
	s := Session{
		ProfileSnapshot: Object{"llm": "c", "model_name": "b", "model": "a", "name": "n", "agent_display_name": "d"},
		Metadata:        Object{"acp": map[string]any{"session_id": "acp-1"}}, ResumeToken: "token",
	}
	if s.Model() != "a" || s.AgentProfileName() != "n" || s.AgentDisplayName() != "d" || s.ACPSessionID() != "acp-1" {
		t.Errorf("%q %q %q %q", s.Model(), s.AgentProfileName(), s.AgentDisplayName(), s.ACPSessionID())
	}
	s.Metadata, s.ProfileSnapshot = nil, Object{"model": "", "model_name": "b", "llm": "c"}
	if s.Model() != "b" || s.ACPSessionID() != "token" {
		t.Errorf("fallbacks: %q %q", s.Model(), s.ACPSessionID())
	}
	s.ProfileSnapshot = Object{"llm": "c"}
	if s.Model() != "c" || (Session{}).Model() != "" {
		t.Errorf("last: %q", s.Model())
	}
}

func TestWireSendMessage_status(t *testing.T) {
	for _, c := range []struct {
		state     SessionState
		execution string
		want      SendStatus
		text      string
	}{
		{SessionRunning, "x", SendQueued, ""},
		{SessionStarting, "", SendQueued, ""},
		{SessionCreated, "", SendStarted, ""},
		{SessionWaitingForInput, "", SendStarted, ""},
		{SessionWaitingForInput, "x", SendSent, ""},
		{SessionIdle, "", SendSent, ""},
		{SessionCompleted, "", SendSent, ""},
		{SessionFailed, "x", "", "session is FAILED — cannot send message"},
		{SessionCancelled, "", "", "session is CANCELLED — cannot send message"},
		{"NEW", "", "", "session is NEW — cannot send message"},
	} {
		got, err := Session{State: c.state, ExecutionID: c.execution}.Send()
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.state, got, c.want)
		}
		checkRule(t, string(c.state), err, FaultPrecondition, c.text)
	}
}

func TestWireSendMessage_session(t *testing.T) {
	sessions := []Session{
		{ID: "done", TaskID: "t", State: SessionCompleted, Primary: true, StartedAt: created.Add(time.Hour)},
		{ID: "old", TaskID: "t", State: SessionRunning, StartedAt: created},
		{ID: "b", TaskID: "t", State: SessionCreated, StartedAt: created.Add(time.Minute)},
		{ID: "a", TaskID: "t", State: SessionIdle, StartedAt: created.Add(time.Minute)},
		{ID: "other", TaskID: "u", State: SessionRunning, Primary: true},
	}
	for _, c := range []struct{ name, task, session, want, text string }{
		{"named", "t", "old", "old", ""},
		{"named and terminal", "t", "done", "done", ""},
		{"unknown", "t", "gone", "", `session "gone" not found`},
		{"of another task", "t", "other", "", `session "other" does not belong to task "t"`},
		{"newest, then by ID", "t", "", "a", ""},
		{"primary", "u", "", "other", ""},
		{"none", "v", "", "", `task "v" has no active session to message`},
	} {
		got, err := SessionToMessage(c.task, c.session, sessions)
		if got.ID != c.want {
			t.Errorf("%s: %q, want %q", c.name, got.ID, c.want)
		}
		checkRule(t, c.name, err, FaultNotFound, c.text)
	}
	sessions[1].Primary = true
	if got, _ := SessionToMessage("t", "", sessions); got.ID != "old" {
		t.Errorf("an open primary session before newer ones: %q", got.ID)
	}
	if _, err := SessionToMessage("t", "", sessions[:1]); err == nil {
		t.Error("a terminal session is chosen")
	}
}

// checkRule checks that err is a *RuleError with a fault and a text, or nil for
// the text "".
func checkRule(t *testing.T, name string, err error, fault Fault, text string) {
	t.Helper()
	if text == "" {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return
	}
	var rule *RuleError
	if !errors.As(err, &rule) {
		t.Errorf("%s: %v is no *RuleError", name, err)
	} else if rule.Fault != fault || rule.Text != text {
		t.Errorf("%s: %d %q, want %d %q", name, rule.Fault, rule.Text, fault, text)
	}
}
