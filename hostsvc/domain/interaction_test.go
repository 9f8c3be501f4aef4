package domain

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func permissionRow(id, pendingID string, at time.Time, status any) Message {
	m := Message{
		ID: id, WorkspaceID: "w", SessionID: "s", TaskID: "t", TurnID: "u", AuthorType: AuthorAgent, Type: MessagePermissionRequest,
		Content: "Run it?", CreatedAt: at, UpdatedAt: at.Add(time.Second), Version: 7,
		Metadata: Object{
			"pending_id": pendingID, "tool_call_id": "call", "action_type": "execute",
			"options": []any{
				map[string]any{"option_id": "yes", "name": "Allow<kandev-system>h</kandev-system>", "kind": "allow_once"},
				map[string]any{"name": "no id", "kind": "allow_always"},
				"no object",
				map[string]any{"option_id": "no", "name": "Reject", "kind": "reject_once"},
			},
		},
	}
	if status != nil {
		m.Metadata["status"] = status
	}
	return m
}

func questionRow(id, pendingID string, index int, at time.Time, status string) Message {
	return Message{
		ID: id, WorkspaceID: "w", SessionID: "s", TaskID: "t", TurnID: "u", AuthorType: AuthorAgent, Type: MessageClarificationRequest,
		Content: "Which " + id + "?", CreatedAt: at, UpdatedAt: at.Add(time.Second), Version: Version(10 + index),
		Metadata: Object{
			"pending_id": pendingID, "question_id": fmt.Sprintf("q%d", index+1), "question_index": float64(index), "question_total": float64(2),
			"context": "why<kandev-system>h", "status": status,
			"question": map[string]any{
				"id": "inner", "title": "T", "prompt": "Which " + id + "?",
				"options": []any{map[string]any{"option_id": "o1", "label": "L", "description": "D"}, map[string]any{"option_id": "o2", "label": "M"}},
			},
		},
	}
}

func TestWireInteraction_permission(t *testing.T) {
	row := permissionRow("m", "p", created, nil)
	row.MarkupBefore, row.Content = "1", "h</kandev-system> Run it?"
	want := Interaction{
		ID: "p", WorkspaceID: "w", Kind: InteractionPermission, TaskID: "t", SessionID: "s", TurnID: "u", Status: InteractionPending,
		Title: "Run it?", ToolCallID: "call", ActionType: "execute", CreatedAt: created, UpdatedAt: created.Add(time.Second), Version: 7,
		Options: []InteractionOption{{ID: "yes", Label: "Allow", Kind: "allow_once"}, {ID: "no", Label: "Reject", Kind: "reject_once"}},
	}
	if got, ok := InteractionOf("p", []Message{row}); !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for status, want := range map[any]InteractionStatus{
		"": InteractionPending, "pending": InteractionPending, "approved": InteractionApproved, "rejected": InteractionRejected,
		"expired": InteractionExpired, "postponed": "postponed", false: InteractionPending,
	} {
		got, ok := InteractionOf("p", []Message{permissionRow("m", "p", created, status)})
		if !ok || got.Status != want || got.Status.Terminal() != (want != InteractionPending) {
			t.Errorf("%v: %q", status, got.Status)
		}
	}
	if !InteractionPermission.Known() || !InteractionClarification.Known() || InteractionKind("workflow_transition").Known() {
		t.Error("interaction kinds")
	}
	if _, ok := InteractionOf("other", []Message{row}); ok {
		t.Error("another pending ID finds it")
	}
	row.Metadata = row.Metadata.With("pending_id", "")
	if _, ok := InteractionOf("", []Message{row}); ok {
		t.Error("a row without pending ID is an interaction")
	}
	row.Type, row.Metadata = MessagePlain, row.Metadata.With("pending_id", "p")
	if _, ok := InteractionOf("p", []Message{row}); ok {
		t.Error("a row that is no request is an interaction")
	}
}

func TestWireInteraction_clarification(t *testing.T) {
	first, second := questionRow("one", "c", 0, later, "answered"), questionRow("two", "c", 1, created, "")
	second.Metadata["agent_disconnected"] = true
	second.Metadata["question"] = map[string]any{"id": "inner"}
	delete(second.Metadata, "question_id")
	want := Interaction{
		ID: "c", WorkspaceID: "w", Kind: InteractionClarification, TaskID: "t", SessionID: "s", TurnID: "u", Status: InteractionPending,
		Title: "Which one?", Context: "why", AgentDisconnected: true, CreatedAt: created, UpdatedAt: later.Add(time.Second), Version: 11,
		Questions: []InteractionQuestion{
			{ID: "q1", Title: "T", Prompt: "Which one?", Options: []InteractionOption{{ID: "o1", Label: "L", Description: "D"}, {ID: "o2", Label: "M"}}},
			{ID: "inner", Prompt: "Which two?"},
		},
	}
	for range 4 {
		rows := []Message{second, first, questionRow("three", "other", 0, created, "")}
		rand.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		if got, ok := InteractionOf("c", rows); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	second.Metadata["status"] = "answered"
	if got, _ := InteractionOf("c", []Message{second, first}); got.Status != InteractionAnswered {
		t.Errorf("all answered: %q", got.Status)
	}
}

func TestWirePending_predicate(t *testing.T) {
	session := Session{ID: "s", State: SessionWaitingForInput}
	turns := []Turn{{ID: "u", SessionID: "s", StartedAt: created}}
	newer := append(slices.Clone(turns), Turn{ID: "v", SessionID: "s", StartedAt: later})
	elsewhere := permissionRow("m", "p", created, nil)
	elsewhere.SessionID = "other"
	nameless := permissionRow("m2", "", later, nil)
	tied := func(sequence int64, id string, status any) Message {
		m := permissionRow(id, id, created, status)
		m.Sequence = sequence
		return m
	}
	for _, c := range []struct {
		name  string
		state SessionState
		turns []Turn
		rows  []Message
		want  []string
	}{
		{"a permission", "", turns, []Message{permissionRow("m", "p", created, nil)}, []string{"p"}},
		{"an approved one", "", turns, []Message{permissionRow("m", "p", created, "approved")}, nil},
		{"only the newest permission", "", turns, []Message{permissionRow("m2", "p2", later, nil), permissionRow("m", "p", created, nil)}, []string{"p2"}},
		{"a newer settled one hides it", "", turns, []Message{permissionRow("m", "p", created, nil), permissionRow("m2", "p2", later, "expired")}, nil},
		{"newest by insertion", "", turns, []Message{tied(2, "b", nil), tied(1, "a", nil)}, []string{"b"}},
		{"newest by insertion, settled", "", turns, []Message{tied(1, "a", nil), tied(2, "b", "approved")}, nil},
		{"a newer one that nobody can answer", "", turns, []Message{permissionRow("m", "p", created, nil), nameless}, nil},
		{"of an older turn", "", newer, []Message{permissionRow("m", "p", created, nil), questionRow("one", "c", 0, created, "")}, nil},
		{"of another session", "", turns, []Message{elsewhere}, nil},
		{"no turn", "", nil, []Message{permissionRow("m", "p", created, nil)}, nil},
		{"terminal", SessionFailed, turns, []Message{permissionRow("m", "p", created, nil), questionRow("one", "c", 0, created, "")}, nil},
		{"a bundle", "", turns, []Message{questionRow("one", "c", 0, created, "answered"), questionRow("two", "c", 1, created, "pending")}, []string{"c"}},
		{"an answered bundle", "", turns, []Message{questionRow("one", "c", 0, created, "answered"), questionRow("two", "c", 1, created, "rejected")}, nil},
		{"bundles and a permission, oldest first", "", turns, []Message{
			permissionRow("m", "p", later, nil), questionRow("one", "d", 0, created, ""), questionRow("two", "c", 0, created, ""),
		}, []string{"c", "d", "p"}},
	} {
		s := session
		if c.state != "" {
			s.State = c.state
		}
		if got := idsOf(PendingInteractions(s, c.turns, c.rows)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	whole := PendingInteractions(session, turns, []Message{questionRow("two", "c", 1, created, ""), questionRow("one", "c", 0, created, "answered")})
	if len(whole) != 1 || len(whole[0].Questions) != 2 || whole[0].Questions[0].ID != "q1" {
		t.Errorf("the bundle isn't whole: %+v", whole)
	}
}

func idsOf(interactions []Interaction) []string {
	var ids []string
	for _, i := range interactions {
		ids = append(ids, i.ID)
	}
	return ids
}

// The model says it row by row: a row counts unless something stands against it.
func modelPending(s Session, turns []Turn, rows []Message) map[string]bool {
	authoritative := func(id string) (Turn, bool) {
		for _, turn := range turns {
			pending, attempted := turn.Metadata["prompt_dispatch_pending"], turn.Metadata["prompt_dispatch_attempted"]
			if turn.ID == id && turn.SessionID == s.ID && (pending != any(true) || attempted == any(true) || turn.Referenced) {
				return turn, true
			}
		}
		return Turn{}, false
	}
	owed := map[string]bool{}
	for _, m := range rows {
		own, ok := authoritative(m.TurnID)
		status := m.Metadata["status"]
		if !ok || m.SessionID != s.ID || s.State == SessionCompleted || s.State == SessionFailed || s.State == SessionCancelled ||
			status != nil && status != "" && status != "pending" || m.Metadata["pending_id"] == "" {
			continue
		}
		against := false
		for _, other := range turns {
			newer, ok := authoritative(other.ID)
			against = against || ok && (newer.StartedAt.After(own.StartedAt) || newer.StartedAt.Equal(own.StartedAt) &&
				(newer.CreatedAt.After(own.CreatedAt) || newer.CreatedAt.Equal(own.CreatedAt) && newer.ID > own.ID))
		}
		for _, other := range rows {
			against = against || m.Type == MessagePermissionRequest && other.Type == m.Type && other.SessionID == m.SessionID && other.TurnID == m.TurnID &&
				(other.CreatedAt.After(m.CreatedAt) || other.CreatedAt.Equal(m.CreatedAt) && other.Sequence > m.Sequence)
		}
		if !against && (m.Type == MessagePermissionRequest || m.Type == MessageClarificationRequest) {
			owed[m.PendingID()] = true
		}
	}
	return owed
}

// ADR 0052, point 3: list, pending action and inbox reach the same verdict.
func TestADR0052_PendingInteractions_model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := func(label string) time.Time {
			return created.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, label)) * time.Second)
		}
		var turns []Turn
		for n := range rapid.IntRange(0, 4).Draw(t, "turns") {
			turn := Turn{
				ID: fmt.Sprintf("u%d", n), SessionID: rapid.SampledFrom([]string{"s", "s", "s", "other"}).Draw(t, "session"),
				StartedAt: at("started"), CreatedAt: at("created"), Referenced: rapid.Bool().Draw(t, "referenced"),
			}
			if rapid.Bool().Draw(t, "pending") {
				turn.Metadata = Object{"prompt_dispatch_pending": true, "prompt_dispatch_attempted": rapid.Bool().Draw(t, "attempted")}
			}
			turns = append(turns, turn)
		}
		var rows []Message
		for n := range rapid.IntRange(0, 8).Draw(t, "rows") {
			rows = append(rows, Message{
				ID: fmt.Sprintf("m%d", n), SessionID: rapid.SampledFrom([]string{"s", "s", "s", "other"}).Draw(t, "session"),
				TurnID: fmt.Sprintf("u%d", rapid.IntRange(0, 3).Draw(t, "turn")), Sequence: int64(n), CreatedAt: at("created"),
				Type: rapid.SampledFrom([]MessageType{MessagePermissionRequest, MessageClarificationRequest, MessageToolCall}).Draw(t, "type"),
			})
			m := &rows[n]
			m.Metadata = Object{
				"pending_id": string(m.Type) + rapid.SampledFrom([]string{"1", "2"}).Draw(t, "pending"), "question_index": float64(n),
				"status": rapid.SampledFrom([]any{nil, "", "pending", "answered", "approved", "odd"}).Draw(t, "status"),
			}
			if rapid.IntRange(0, 9).Draw(t, "nameless") == 0 {
				m.Metadata["pending_id"] = ""
			}
		}
		session := Session{ID: "s", TaskID: "t", State: rapid.SampledFrom(sessionStates).Draw(t, "state")}
		want := modelPending(session, turns, rows)
		got := PendingInteractions(session, turns, rows)
		if len(got) != len(want) {
			t.Fatalf("%v, want %v", idsOf(got), want)
		}
		permission, clarification := false, false
		for _, i := range got {
			if !want[i.ID] || i.Status != InteractionPending {
				t.Fatalf("%v, want %v", idsOf(got), want)
			}
			permission = permission || i.Kind == InteractionPermission
			clarification = clarification || i.Kind == InteractionClarification
		}
		reversed := slices.Clone(rows)
		slices.Reverse(reversed)
		if again := PendingInteractions(session, turns, reversed); !reflect.DeepEqual(again, got) {
			t.Fatalf("the order of the rows matters: %v, %v", idsOf(got), idsOf(again))
		}
		action := SessionPendingAction(got)
		if (action == ActionNone) != (len(got) == 0) || (action == ActionClarification) != clarification {
			t.Fatalf("session action %q of %v", action, idsOf(got))
		}
		counts := session.State == SessionRunning || session.State == SessionWaitingForInput
		task := TaskPendingAction([]Session{session}, func(Session) []Interaction { return got })
		if (task == ActionPermission) != (counts && permission) || (task == ActionNone) != !(counts && len(got) > 0) {
			t.Fatalf("task action %q of %v in %s", task, idsOf(got), session.State)
		}
		inbox, err := InboxOf(got, nil)
		if err != nil || len(inbox) != len(got) {
			t.Fatalf("inbox: %v, %v", inbox, err)
		}
		for n, item := range inbox {
			if item.ID != got[n].ID {
				t.Fatalf("inbox item %d is %q", n, item.ID)
			}
		}
	})
}

func TestWirePendingAction_oppositePriorities(t *testing.T) {
	owed := map[string][]Interaction{
		"both":  {{Kind: InteractionPermission}, {Kind: InteractionClarification}},
		"asks":  {{Kind: InteractionClarification}},
		"needs": {{Kind: InteractionPermission}},
	}
	if got := SessionPendingAction(owed["both"]); got != ActionClarification {
		t.Errorf("session: %q", got)
	}
	for _, c := range []struct {
		name     string
		sessions []Session
		want     PendingAction
	}{
		{"none", nil, ActionNone},
		{"both", []Session{{ID: "both", State: SessionRunning}}, ActionPermission},
		{"over sessions", []Session{{ID: "asks", State: SessionWaitingForInput}, {ID: "needs", State: SessionRunning}}, ActionPermission},
		{"idle doesn't count", []Session{{ID: "needs", State: SessionIdle}, {ID: "asks", State: SessionRunning}}, ActionClarification},
		{"starting doesn't count", []Session{{ID: "needs", State: SessionStarting}}, ActionNone},
	} {
		if got := TaskPendingAction(c.sessions, func(s Session) []Interaction { return owed[s.ID] }); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestWireRespondToPermission_choice(t *testing.T) {
	i := Interaction{ID: "p", Kind: InteractionPermission, Status: InteractionPending}
	for _, kind := range []string{"allow_once", "allow_always", "", "reject_once", "reject_always", "reject_forever"} {
		i.Options = append(i.Options, InteractionOption{ID: "o" + kind, Kind: kind})
	}
	for _, c := range []struct {
		option    string
		cancelled bool
		want      InteractionStatus
		text      string
	}{
		{"oallow_once", false, InteractionApproved, ""},
		{"oallow_always", false, InteractionApproved, ""},
		{"o", false, InteractionApproved, ""},
		{"oreject_once", false, InteractionRejected, ""},
		{"oreject_always", false, InteractionRejected, ""},
		{"oreject_forever", false, InteractionRejected, ""},
		{"", true, InteractionRejected, ""},
		{"o", true, "", "option_id must be empty when cancelled is set"},
		{"", false, "", "option_id is required when cancelled is not set"},
		{"x", false, "", `option_id "x" is not one of interaction "p"'s options`},
	} {
		got, err := i.Choose(c.option, c.cancelled)
		if got != c.want {
			t.Errorf("%q: %q, want %q", c.option, got, c.want)
		}
		checkRule(t, c.option, err, FaultInvalid, c.text)
	}
	checkRule(t, "open", i.CheckOpen(InteractionPermission), FaultPrecondition, "")
	checkRule(t, "kind", i.CheckOpen(InteractionClarification), FaultPrecondition, `interaction "p" is a permission request, not a clarification request`)
	i.Status = InteractionApproved
	checkRule(t, "same outcome too", i.CheckOpen(InteractionPermission), FaultPrecondition, `interaction "p" is already approved`)
}

func TestWireClarification_questions(t *testing.T) {
	options := func(n int) []InteractionOption { return make([]InteractionOption, n) }
	question := func(id, prompt string, n int) InteractionQuestion {
		return InteractionQuestion{ID: id, Prompt: prompt, Options: options(n)}
	}
	five := make([]InteractionQuestion, 5)
	for _, c := range []struct {
		text  string
		asked []InteractionQuestion
	}{
		{"questions must contain at least 1 question", nil},
		{"questions must contain at most 4 questions", five},
		{`duplicate question id "a"`, []InteractionQuestion{question("a", "p", 2), question("a", "p", 2)}},
		{`duplicate question id "q2"`, []InteractionQuestion{question("q2", "p", 2), question("", "p", 2)}},
		{"question 1 is missing required 'prompt'", []InteractionQuestion{question("", " ", 2)}},
		{"question 2 must have at least 2 options", []InteractionQuestion{question("", "p", 6), question("", "p", 1)}},
		{"question 1 must have at most 6 options", []InteractionQuestion{question("", "p", 7)}},
		{"", []InteractionQuestion{question("", "p", 2), question("", "p", 6), question("", "p", 2), question("", "p", 2)}},
	} {
		_, err := NewQuestions(c.asked)
		checkRule(t, c.text, err, FaultInvalid, c.text)
	}
	asked := []InteractionQuestion{{Prompt: "p", Options: []InteractionOption{{Label: "x"}, {ID: "own"}}}, question("mine", "p", 2)}
	got, err := NewQuestions(asked)
	if err != nil || got[0].ID != "q1" || got[0].Options[0].ID != "q1_opt1" || got[0].Options[1].ID != "own" || got[1].ID != "mine" || got[1].Options[1].ID != "q2_opt2" {
		t.Errorf("%+v, %v", got, err)
	}
	if asked[0].ID != "" || asked[0].Options[0].ID != "" {
		t.Error("the caller's questions are changed")
	}
}

func TestWireClarification_answers(t *testing.T) {
	i := Interaction{Questions: []InteractionQuestion{{ID: "a"}, {ID: "b"}}}
	answer := func(ids ...string) (answers []ClarificationAnswer) {
		for _, id := range ids {
			answers = append(answers, ClarificationAnswer{QuestionID: id, SelectedOptions: []string{"any"}})
		}
		return answers
	}
	for _, c := range []struct {
		text    string
		answers []ClarificationAnswer
	}{
		{"", answer("b", "a")},
		{"answers is required", nil},
		{"answer 2 is missing question_id", answer("a", "")},
		{"expected 2 answers, got 1", answer("a")},
		{"expected 2 answers, got 3", answer("a", "b", "c")},
		{`answer 1 references unknown question id "c"`, answer("a", "c")},
		{`answer 1 duplicates question id "a"`, answer("a", "a")},
	} {
		checkRule(t, c.text, i.CheckAnswers(c.answers), FaultInvalid, c.text)
	}
}
