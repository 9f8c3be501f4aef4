package rpc_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// talkTx is what writes conversations, as imports and runtimes do.
type talkTx interface {
	command.Tx
	InsertSession(session domain.Session) error
	UpdateSession(session domain.Session) error
	InsertTurn(turn domain.Turn) error
	InsertMessage(message domain.Message) error
	UpdateMessage(message domain.Message) error
	SetCodeStats(stats domain.CodeStats) error
	DeleteSessions(taskID string) error
}

// talk runs one command that writes conversations.
func (w *world) talk(workspace string, fn func(talkTx) error) error {
	w.Helper()
	return w.store.Write(context.Background(), workspace, func(tx command.Tx) error {
		talking, ok := tx.(talkTx)
		if !ok {
			return errors.New("the transaction writes no conversations")
		}
		if err := fn(talking); err != nil {
			return err
		}
		return tx.Append(journal.Entry{
			WorkspaceID: workspace, Kind: journal.KindImport, AuditID: fmt.Sprint(workspace, tx.Version()), Result: contract.StateApplied,
			At: w.clock.Now(),
		})
	})
}

// talkStart is when the conversations of these tests begin.
var talkStart = time.Date(2026, 5, 1, 12, 0, 0, 500, time.UTC)

// converse gives the first task of a workspace a session with a turn, three messages
// and a permission request. All are named after the workspace.
func (w *world) converse(workspace string) {
	w.Helper()
	task, session, turn := taskID(workspace, 0), workspace+"-session", workspace+"-turn"
	w.must(w.talk(workspace, func(tx talkTx) error {
		v := tx.Version()
		err := errors.Join(
			tx.InsertSession(domain.Session{
				ID: session, WorkspaceID: workspace, TaskID: task, State: domain.SessionRunning, Primary: true, AgentProfileID: "profile",
				ProfileSnapshot: domain.Object{"name": "Profile", "agent_display_name": "Agent", "llm": "large"}, ExecutionID: "execution",
				ResumeToken: "resume", StartedAt: talkStart, Version: v,
			}),
			tx.InsertTurn(domain.Turn{ID: turn, WorkspaceID: workspace, SessionID: session, TaskID: task, StartedAt: talkStart, Version: v}),
		)
		for i, text := range []string{"first", "second <kandev-system>hidden</kandev-system> seen", "third"} {
			err = errors.Join(err, tx.InsertMessage(domain.Message{
				ID: fmt.Sprintf("%s-message-%d", workspace, i), WorkspaceID: workspace, SessionID: session, TaskID: task, TurnID: turn,
				AuthorType: domain.AuthorAgent, Content: text, CreatedAt: talkStart.Add(time.Duration(i) * time.Second), Version: v,
			}))
		}
		return errors.Join(err, tx.InsertMessage(domain.Message{
			ID: workspace + "-request", WorkspaceID: workspace, SessionID: session, TaskID: task, TurnID: turn,
			AuthorType: domain.AuthorAgent, Type: domain.MessagePermissionRequest, Content: "May I?",
			Metadata: domain.Object{
				"pending_id": workspace + "-permission", "tool_call_id": "call", "action_type": "write",
				"options": []any{map[string]any{"option_id": "yes", "name": "Yes", "kind": "allow_once"}, map[string]any{"name": "no ID"}},
			},
			CreatedAt: talkStart.Add(time.Minute), UpdatedAt: talkStart.Add(time.Hour), Version: v,
		}))
	}))
}

// What the exact reads show of a conversation, field by field.
func TestExactConversations(t *testing.T) {
	w := newWorld(t)
	w.seed("ws", 1)
	w.converse("ws")
	version := domain.ResourceVersion(w.term.StoreEpoch, w.head("ws"))
	w.approve(alpha, "ws")

	sessions, err := w.host.ListSessionsExact(w.as(alpha), &pluginv1.ListSessionsExactRequest{RequestId: "r", WorkspaceId: "ws"})
	w.must(err)
	observed := sessions.GetPageInfo().GetObservedAt()
	session := &pluginv1.Session{
		Id: "ws-session", TaskId: taskID("ws", 0), AgentProfileId: "profile", AgentDisplayName: "Agent", AgentProfileName: "Profile",
		Model: "large", AcpSessionId: "resume", State: "RUNNING", StartedAt: "2026-05-01T12:00:00Z",
	}
	sameBytes(t, &pluginv1.ListSessionsExactResponse{Items: sessions.GetItems()}, &pluginv1.ListSessionsExactResponse{
		Items: []*pluginv1.ExactSessionObservation{{
			Session: session, ExecutionState: "RUNNING", ExecutionId: "execution", IsPrimary: true, ResourceVersion: version, ObservedAt: observed,
		}},
	})

	interaction := &pluginv1.Interaction{
		Id: "ws-permission", Kind: "permission", TaskId: taskID("ws", 0), SessionId: "ws-session", TurnId: "ws-turn", Status: "pending",
		Title: "May I?", ToolCallId: "call", ActionType: "write",
		Options:   []*pluginv1.InteractionOption{{OptionId: "yes", Label: "Yes", Kind: "allow_once"}},
		CreatedAt: "2026-05-01T12:01:00Z", UpdatedAt: "2026-05-01T13:00:00Z",
	}
	pending, err := w.host.ListPendingInteractionsExact(w.as(alpha), &pluginv1.ListPendingInteractionsExactRequest{
		RequestId: "r", WorkspaceId: "ws", Filter: &pluginv1.InteractionFilter{
			SessionIds: []string{"ws-session"}, TaskIds: []string{taskID("ws", 0)}, Kinds: []string{"permission"},
		},
	})
	w.must(err)
	want := &pluginv1.ExactInteractionObservation{Interaction: interaction, ResourceVersion: version, ObservedAt: observed}
	sameBytes(t, &pluginv1.ListPendingInteractionsExactResponse{Items: pending.GetItems()}, &pluginv1.ListPendingInteractionsExactResponse{
		Items: []*pluginv1.ExactInteractionObservation{want},
	})
	got, err := w.host.GetInteractionExact(w.as(alpha), &pluginv1.GetInteractionExactRequest{RequestId: "r", WorkspaceId: "ws", InteractionId: "ws-permission"})
	w.must(err)
	sameBytes(t, got.GetItem(), want)
	if record := w.receipt(got.GetReceipt().GetAuditId()); record.Method != "GetInteractionExact" || record.Snapshot != version || record.RequestDigest == "" {
		t.Errorf("the audit says %+v", record)
	}

	inbox, err := w.host.ListTaskInboxExact(w.as(alpha), &pluginv1.ListTaskInboxExactRequest{
		RequestId: "r", WorkspaceId: "ws", TaskId: taskID("ws", 0), SessionId: "ws-session",
	})
	w.must(err)
	item := &pluginv1.TaskInboxItem{
		Id: "ws-permission", WorkspaceId: "ws", TaskId: taskID("ws", 0), SessionId: "ws-session", Kind: "permission", State: "pending",
		CreatedAt: "2026-05-01T12:01:00Z", ResourceVersion: version,
	}
	item.CanonicalDigest = shownDigest(t, item, "resource_version", "canonical_digest")
	sameBytes(t, &pluginv1.ListTaskInboxExactResponse{Items: inbox.GetItems()}, &pluginv1.ListTaskInboxExactResponse{Items: []*pluginv1.TaskInboxItem{item}})

	for level, contents := range map[string][]string{
		"": {"first", "second seen", "third", "May I?"}, "system_context_removed": {"first", "second seen", "third", "May I?"},
		"content_removed": {"", "", "", ""},
	} {
		messages, err := w.host.ListSanitizedMessagesExact(w.as(alpha), &pluginv1.ListSanitizedMessagesExactRequest{
			RequestId: "r", WorkspaceId: "ws", Sanitization: level, Filter: &pluginv1.MessageFilter{
				SessionIds: []string{"ws-session"}, TaskIds: []string{taskID("ws", 0)}, Types: []string{"message", "permission_request"},
				Since: ptr("2026-05-01T12:00:00.0000005Z"), Until: ptr("2026-05-01T14:02:00+02:00"),
			},
		})
		w.must(err)
		if len(messages.GetItems()) != len(contents) {
			t.Fatalf("%s: %d messages: %v", level, len(messages.GetItems()), messages)
		}
		for i, m := range messages.GetItems() {
			shown := m.GetMessage()
			if shown.GetContent() != contents[i] || m.GetSanitization() != cmp.Or(level, "system_context_removed") ||
				m.GetResourceVersion() != version || m.GetCanonicalDigest() != shownDigest(t, shown) {
				t.Errorf("%s: %v", level, m)
			}
		}
		first := messages.GetItems()[0].GetMessage()
		sameBytes(t, first, &pluginv1.Message{
			Id: "ws-message-0", SessionId: "ws-session", TaskId: taskID("ws", 0), TurnId: "ws-turn", AuthorType: "agent", Content: contents[0],
			Type: "message", CreatedAt: "2026-05-01T12:00:00Z",
		})
	}
	// Since is inclusive and until exclusive, to the nanosecond.
	for bounds, n := range map[[2]string]int{
		{"2026-05-01T12:00:00.0000005Z", "2026-05-01T12:00:01.0000005Z"}: 1,
		{"2026-05-01T12:00:00.000000501Z", "2026-05-01T12:00:02Z"}:       1,
		{"0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"}:                 4,
		{"2200-01-01T00:00:00Z", "2100-01-01T00:00:00Z"}:                 0,
	} {
		messages, err := w.host.ListSanitizedMessagesExact(w.as(alpha), &pluginv1.ListSanitizedMessagesExactRequest{
			RequestId: "r", WorkspaceId: "ws", Filter: &pluginv1.MessageFilter{Since: &bounds[0], Until: &bounds[1]},
		})
		w.must(err)
		if len(messages.GetItems()) != n {
			t.Errorf("from %s to %s: %d messages, want %d", bounds[0], bounds[1], len(messages.GetItems()), n)
		}
	}
}

// shownDigest computes a canonical digest as a client does, from an answer.
func shownDigest(t *testing.T, message proto.Message, without ...string) string {
	t.Helper()
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]any
	if err := json.Unmarshal(text, &members); err != nil {
		t.Fatal(err)
	}
	for _, name := range without {
		delete(members, name)
	}
	digest, err := contract.CanonicalDigest(members)
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

// TestI14_ConversationFilters: each fault names its field, and what another workspace has is
// answered like what nobody has, to the byte.
func TestI14_ConversationFilters(t *testing.T) {
	w := newWorld(t)
	for _, workspace := range []string{"ws", "elsewhere"} {
		w.seed(workspace, 1)
		w.converse(workspace)
	}
	w.approve(alpha, "ws")
	many := make([]string, contract.MaxFilterValues+1)
	for i := range many {
		many[i] = "x"
	}
	type filter struct{ sessions, tasks, words []string }
	lists := map[string]func(f filter) error{
		"ListSessionsExact": func(f filter) error {
			_, err := w.host.ListSessionsExact(w.as(alpha), &pluginv1.ListSessionsExactRequest{
				RequestId: "r", WorkspaceId: "ws", Filter: &pluginv1.SessionFilter{TaskIds: f.tasks, States: f.words},
			})
			return err
		},
		"ListPendingInteractionsExact": func(f filter) error {
			_, err := w.host.ListPendingInteractionsExact(w.as(alpha), &pluginv1.ListPendingInteractionsExactRequest{
				RequestId: "r", WorkspaceId: "ws", Filter: &pluginv1.InteractionFilter{SessionIds: f.sessions, TaskIds: f.tasks, Kinds: f.words},
			})
			return err
		},
		"ListSanitizedMessagesExact": func(f filter) error {
			_, err := w.host.ListSanitizedMessagesExact(w.as(alpha), &pluginv1.ListSanitizedMessagesExactRequest{
				RequestId: "r", WorkspaceId: "ws", Filter: &pluginv1.MessageFilter{SessionIds: f.sessions, TaskIds: f.tasks, Types: f.words},
			})
			return err
		},
	}
	words := map[string]string{
		"ListSessionsExact": "filter.states[0]", "ListPendingInteractionsExact": "filter.kinds[0]", "ListSanitizedMessagesExact": "filter.types[0]",
	}
	refused := func(err error, field string) *pluginv1.HostCommandResult {
		t.Helper()
		if status.Code(err) != codes.InvalidArgument {
			t.Fatalf("got %v, want InvalidArgument of %s", err, field)
		}
		result := detail(t, err)
		if result.GetReason() != string(contract.ReasonMalformedPrecondition) || result.GetField() != field {
			t.Errorf("got %v, want %s", result, field)
		}
		return anonymous(result)
	}
	for name, list := range lists {
		refused(list(filter{words: []string{"nonsense"}}), words[name])
		refused(list(filter{tasks: many}), "filter")
		unknown := list(filter{tasks: []string{taskID("ws", 0), "nobody's"}})
		foreign := list(filter{tasks: []string{taskID("ws", 0), taskID("elsewhere", 0)}})
		sameBytes(t, refused(foreign, "filter.task_ids[1]"), refused(unknown, "filter.task_ids[1]"))
		if a, b := status.Convert(foreign).Message(), status.Convert(unknown).Message(); a != b {
			t.Errorf("%s tells %q from %q", name, a, b)
		}
		if name == "ListSessionsExact" {
			continue
		}
		unknown, foreign = list(filter{sessions: []string{"nobody's"}}), list(filter{sessions: []string{"elsewhere-session"}})
		sameBytes(t, refused(foreign, "filter.session_ids[0]"), refused(unknown, "filter.session_ids[0]"))
	}
	_, err := w.host.ListSessionsExact(w.as(alpha), &pluginv1.ListSessionsExactRequest{
		RequestId: "r", WorkspaceId: "ws", Filter: &pluginv1.SessionFilter{WorkspaceIds: []string{"ws", "elsewhere"}},
	})
	refused(err, "filter.workspace_ids")
	for field, change := range map[string]func(*pluginv1.ListSanitizedMessagesExactRequest){
		"filter.since": func(r *pluginv1.ListSanitizedMessagesExactRequest) { r.Filter.Since = ptr("yesterday") },
		"filter.until": func(r *pluginv1.ListSanitizedMessagesExactRequest) { r.Filter.Until = ptr("") },
		"sanitization": func(r *pluginv1.ListSanitizedMessagesExactRequest) { r.Sanitization = "none" },
	} {
		r := &pluginv1.ListSanitizedMessagesExactRequest{RequestId: "r", WorkspaceId: "ws", Filter: &pluginv1.MessageFilter{}}
		change(r)
		_, err := w.host.ListSanitizedMessagesExact(w.as(alpha), r)
		refused(err, field)
	}
	inbox := func(task, session string) error {
		_, err := w.host.ListTaskInboxExact(w.as(alpha), &pluginv1.ListTaskInboxExactRequest{RequestId: "r", WorkspaceId: "ws", TaskId: task, SessionId: session})
		return err
	}
	get := func(id string) error {
		_, err := w.host.GetInteractionExact(w.as(alpha), &pluginv1.GetInteractionExactRequest{RequestId: "r", WorkspaceId: "ws", InteractionId: id})
		return err
	}
	for field, pair := range map[string][2]error{
		"task_id":        {inbox(taskID("elsewhere", 0), ""), inbox("nobody's", "")},
		"session_id":     {inbox("", "elsewhere-session"), inbox("", "nobody's")},
		"interaction_id": {get("elsewhere-permission"), get("nobody's")},
	} {
		var answers [2]proto.Message
		for i, err := range pair {
			if status.Code(err) != codes.NotFound || detail(t, err).GetField() != field || detail(t, err).GetReason() != string(contract.ReasonWorkspaceTargetNotFound) {
				t.Errorf("%s: %v", field, err)
			}
			answers[i] = w.failure(err)
		}
		sameBytes(t, answers[0], answers[1])
	}
}

// Pages of a list of messages show one world, whatever is said, changed and deleted
// meanwhile, and a page's cursor goes on after what its filter names is gone.
func TestI10_MessagesAreOneSnapshot(t *testing.T) {
	w := newWorld(t)
	w.seed("ws", 1)
	w.converse("ws")
	w.approve(alpha, "ws")
	request := func(limit int32) *pluginv1.ListSanitizedMessagesExactRequest {
		return &pluginv1.ListSanitizedMessagesExactRequest{
			RequestId: "r", WorkspaceId: "ws", Filter: &pluginv1.MessageFilter{SessionIds: []string{"ws-session"}},
			Page: &pluginv1.ExactReadPage{Limit: limit},
		}
	}
	whole, err := w.host.ListSanitizedMessagesExact(w.as(alpha), request(0))
	w.must(err)
	changes := []func(tx talkTx) error{
		func(tx talkTx) error {
			// It hides what comes behind it, from now on.
			return tx.UpdateMessage(domain.Message{
				ID: "ws-message-0", WorkspaceID: "ws", SessionID: "ws-session", TaskID: taskID("ws", 0), Content: "<kandev-system>", Version: tx.Version(),
			})
		},
		func(tx talkTx) error { return tx.DeleteSessions(taskID("ws", 0)) },
	}
	var paged []*pluginv1.ExactMessageObservation
	r := request(1)
	for i := 0; ; i++ {
		page, err := w.host.ListSanitizedMessagesExact(w.as(alpha), r)
		w.must(err)
		paged = append(paged, page.GetItems()...)
		if !page.GetPageInfo().GetHasMore() {
			break
		}
		if i < len(changes) {
			w.must(w.talk("ws", changes[i]))
		}
		r.Page.Cursor, r.Page.SnapshotVersion = page.GetPageInfo().GetNextCursor(), page.GetPageInfo().GetSnapshotVersion()
		other := proto.CloneOf(r)
		other.Sanitization = "content_removed"
		if _, err := w.host.ListSanitizedMessagesExact(w.as(alpha), other); err == nil || detail(t, err).GetField() != "page.cursor" {
			t.Errorf("the cursor at another level: %v", err)
		}
	}
	if len(paged) != len(whole.GetItems()) {
		t.Fatalf("%d messages in pages, %d at once", len(paged), len(whole.GetItems()))
	}
	for i := range paged {
		sameBytes(t, paged[i], whole.GetItems()[i])
	}
	if _, err := w.host.ListSanitizedMessagesExact(w.as(alpha), request(0)); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a session that is gone, asked anew: %v", err)
	}
}
