package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/store"
)

// talkTx is what writes conversations, as imports and runtimes do.
type talkTx interface {
	command.Tx
	Session(id string) (session domain.Session, found bool, err error)
	InsertSession(session domain.Session) error
	UpdateSession(session domain.Session) error
	InsertTurn(turn domain.Turn) error
	UpdateTurn(turn domain.Turn) error
	InsertMessage(message domain.Message) error
	UpdateMessage(message domain.Message) error
	SetCodeStats(stats domain.CodeStats) error
	DeleteSessions(taskID string) error
	Interaction(id string) (interaction domain.Interaction, found bool, err error)
}

// talk runs one command that writes conversations, and returns its version.
func (w *world) talk(workspace string, fn func(talkTx) error) (version domain.Version, err error) {
	err = w.Write(context.Background(), workspace, func(tx command.Tx) error {
		version = tx.Version()
		talking, ok := tx.(talkTx)
		if !ok {
			return errors.New("the transaction writes no conversations")
		}
		return errors.Join(fn(talking), tx.Append(entry(workspace, "talk "+fmt.Sprint(version), "x")))
	})
	return version, err
}

// conversation is one version of what was said in a workspace, as it should be.
type conversation struct {
	sessions map[string]domain.Session
	turns    map[string]domain.Turn
	// messages are in the order of their insertion.
	messages []domain.Message
}

func (c conversation) clone() conversation {
	return conversation{maps.Clone(c.sessions), maps.Clone(c.turns), slices.Clone(c.messages)}
}

// settle gives every row the markup before it and every turn its reference, as of
// the version that is being written.
func (c conversation) settle(version domain.Version) {
	type stream struct {
		session string
		author  domain.AuthorType
	}
	open := map[stream]domain.MarkupState{}
	sequence := map[string]int64{}
	for i := range c.messages {
		m := &c.messages[i]
		sequence[m.SessionID]++
		m.Sequence = sequence[m.SessionID]
		at := stream{m.SessionID, m.AuthorType}
		if m.MarkupBefore != open[at] {
			m.MarkupBefore, m.Version = open[at], version
		}
		open[at] = m.MarkupAfter()
		if turn, ok := c.turns[m.TurnID]; ok && !turn.Referenced {
			turn.Referenced, turn.Version = true, version
			c.turns[m.TurnID] = turn
		}
	}
}

func (c conversation) pending() []domain.Interaction {
	var all []domain.Interaction
	for _, s := range c.sessions {
		all = append(all, domain.PendingInteractions(s, slices.Collect(maps.Values(c.turns)), c.messages)...)
	}
	slices.SortFunc(all, func(a, b domain.Interaction) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return all
}

// page is a list as a keyset read of it.
func page[T any](items []T, key func(T) string, after string, limit int, keep func(T) bool) []T {
	var out []T
	for _, item := range items {
		if key(item) > after && keep(item) && len(out) < limit {
			out = append(out, item)
		}
	}
	return out
}

// among tells whether a filter's values hold one.
func among[T ~string](values []string, value T) bool {
	return len(values) == 0 || slices.Contains(values, string(value))
}

var (
	talkTasks    = []string{"task-00000", "task-00001"}
	talkSessions = []string{"s-1", "s-2", "s-3"}
	talkTexts    = []string{
		"hello", "", " a < b ", "x<kandev-system>hidden</kandev-system> y", "open <kandev-system> hidden",
		"hidden </kandev-system> seen", "split <kandev-", "system> hidden", "<kandev-system>a<kandev-system>b</kandev-system>c</kandev-system>d",
	}
	talkStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// drawMessage draws a row of a session: any text, or a request.
func drawMessage(rt *rapid.T, c conversation, session domain.Session, id string) domain.Message {
	m := domain.Message{
		ID: id, WorkspaceID: session.WorkspaceID, SessionID: session.ID, TaskID: session.TaskID,
		AuthorType: rapid.SampledFrom([]domain.AuthorType{domain.AuthorUser, domain.AuthorAgent}).Draw(rt, "author"),
		AuthorID:   "someone", Content: rapid.SampledFrom(talkTexts).Draw(rt, "text"), RequestsInput: rapid.Bool().Draw(rt, "input"),
		Type:      rapid.SampledFrom([]domain.MessageType{domain.MessagePlain, domain.MessageToolCall, domain.MessagePermissionRequest, domain.MessageClarificationRequest}).Draw(rt, "type"),
		CreatedAt: talkStart.Add(time.Duration(rapid.IntRange(0, 5).Draw(rt, "created")) * time.Second),
	}
	m.UpdatedAt = m.CreatedAt
	turns := []string{""}
	for _, turn := range c.turns {
		if turn.SessionID == session.ID {
			turns = append(turns, turn.ID)
		}
	}
	slices.Sort(turns)
	m.TurnID = rapid.SampledFrom(turns).Draw(rt, "turn")
	if kind, ok := m.RequestKind(); ok {
		m.Metadata = drawRequest(rt, session.ID, kind)
	}
	return m
}

func drawRequest(rt *rapid.T, session string, kind domain.InteractionKind) domain.Object {
	o := domain.Object{"question_index": float64(rapid.IntRange(0, 2).Draw(rt, "index")), "context": "why <kandev-system>hidden</kandev-system>"}
	if n := rapid.IntRange(0, 3).Draw(rt, "pending ID"); n > 0 {
		o["pending_id"] = fmt.Sprintf("%s-%s-%d", kind, session, n)
	}
	if status := rapid.SampledFrom([]string{"", "pending", "answered", "approved", "whatever"}).Draw(rt, "status"); status != "" {
		o["status"] = status
	}
	o["options"] = []any{map[string]any{"option_id": "o", "name": "yes<kandev-system>hidden</kandev-system>", "kind": "allow_once"}}
	o["question"] = map[string]any{"id": "q", "title": "t", "prompt": "p<kandev-system>hidden", "options": []any{
		map[string]any{"option_id": "a", "label": "A", "description": "d"},
	}}
	return o
}

// Every list as of every version is the world as it was, whatever is written, in any
// order, and what is pending is what the predicate says of the whole world.
func testConversations(t *testing.T, d Database) {
	w := open(t, d)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		workspace := fmt.Sprintf("w%d", round)
		w.seed(workspace, len(talkTasks))
		newest := domain.Version(1)
		worlds := map[domain.Version]conversation{newest: {map[string]domain.Session{}, map[string]domain.Turn{}, nil}}
		for range rapid.IntRange(1, 8).Draw(rt, "commits") {
			writer := &talker{workspace: workspace, version: newest + 1, conversation: worlds[newest].clone(), ids: int(newest) * 100}
			var writes []func(talkTx) error
			for range rapid.IntRange(1, 6).Draw(rt, "writes") {
				action := rapid.SampledFrom([]func(*rapid.T) func(talkTx) error{
					writer.session, writer.turn, writer.message, writer.message, writer.edit, writer.edit, writer.remove,
				}).Draw(rt, "write")
				if write := action(rt); write != nil {
					writes = append(writes, write)
				}
			}
			version, err := w.talk(workspace, func(tx talkTx) error {
				for _, write := range writes {
					if err := write(tx); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil || version != writer.version {
				rt.Fatalf("version %d, %v", version, err)
			}
			writer.settle(version)
			newest = version
			worlds[newest] = writer.conversation
			for range 4 {
				w.compareTalk(rt, workspace, worlds, newest)
			}
			w.compareInteractions(rt, workspace, worlds[newest])
		}
	})
}

// talker draws writes and does each to its world at once.
type talker struct {
	conversation
	workspace string
	version   domain.Version
	ids       int
}

func (c *talker) session(rt *rapid.T) func(talkTx) error {
	id := rapid.SampledFrom(talkSessions).Draw(rt, "session")
	s, exists := c.sessions[id]
	if !exists {
		s = domain.Session{ID: id, WorkspaceID: c.workspace, TaskID: rapid.SampledFrom(talkTasks).Draw(rt, "task")}
	}
	s.State = rapid.SampledFrom([]domain.SessionState{
		domain.SessionRunning, domain.SessionWaitingForInput, domain.SessionCompleted, domain.SessionCreated,
	}).Draw(rt, "state")
	s.Primary = rapid.Bool().Draw(rt, "primary")
	s.ProfileSnapshot = domain.Object{"model": "m"}
	s.StartedAt = time.Time{}
	if n := rapid.IntRange(0, 3).Draw(rt, "started"); n > 0 {
		s.StartedAt = talkStart.Add(time.Duration(n) * time.Second)
	}
	s.Version = c.version
	c.sessions[id] = s
	return func(tx talkTx) error {
		if exists {
			return tx.UpdateSession(s)
		}
		return tx.InsertSession(s)
	}
}

func (c *talker) turn(rt *rapid.T) func(talkTx) error {
	s, ok := c.sessions[rapid.SampledFrom(talkSessions).Draw(rt, "session")]
	if !ok {
		return nil
	}
	id := fmt.Sprintf("turn-%s-%d", s.ID, rapid.IntRange(1, 3).Draw(rt, "turn"))
	turn, exists := c.turns[id]
	if !exists {
		turn = domain.Turn{ID: id, WorkspaceID: c.workspace, SessionID: s.ID, TaskID: s.TaskID, CreatedAt: talkStart}
	}
	turn.StartedAt = talkStart.Add(time.Duration(rapid.IntRange(0, 3).Draw(rt, "started")) * time.Second)
	turn.Metadata = nil
	if rapid.Bool().Draw(rt, "dispatch pending") {
		turn.Metadata = domain.Object{"prompt_dispatch_pending": "1"}
	}
	turn.Version = c.version
	c.turns[id] = turn
	return func(tx talkTx) error {
		if exists {
			return tx.UpdateTurn(turn)
		}
		return tx.InsertTurn(turn)
	}
}

func (c *talker) message(rt *rapid.T) func(talkTx) error {
	s, ok := c.sessions[rapid.SampledFrom(talkSessions).Draw(rt, "session")]
	if !ok {
		return nil
	}
	c.ids++
	m := drawMessage(rt, c.conversation, s, fmt.Sprintf("m-%d-%d", c.ids%7, c.ids))
	m.Version = c.version
	c.messages = append(c.messages, m)
	c.settle(c.version)
	return func(tx talkTx) error { return tx.InsertMessage(m) }
}

func (c *talker) edit(rt *rapid.T) func(talkTx) error {
	if len(c.messages) == 0 {
		return nil
	}
	at := rapid.IntRange(0, len(c.messages)-1).Draw(rt, "row")
	m := c.messages[at]
	drawn := drawMessage(rt, c.conversation, c.sessions[m.SessionID], m.ID)
	m.Content, m.Metadata, m.Type, m.TurnID = drawn.Content, drawn.Metadata, drawn.Type, drawn.TurnID
	m.Version = c.version
	c.messages[at] = m
	c.settle(c.version)
	return func(tx talkTx) error { return tx.UpdateMessage(m) }
}

func (c *talker) remove(rt *rapid.T) func(talkTx) error {
	if rapid.IntRange(0, 3).Draw(rt, "really") > 0 {
		return nil
	}
	task := rapid.SampledFrom(talkTasks).Draw(rt, "task")
	maps.DeleteFunc(c.sessions, func(_ string, s domain.Session) bool { return s.TaskID == task })
	maps.DeleteFunc(c.turns, func(_ string, t domain.Turn) bool { return t.TaskID == task })
	c.messages = slices.DeleteFunc(c.messages, func(m domain.Message) bool { return m.TaskID == task })
	return func(tx talkTx) error { return tx.DeleteSessions(task) }
}

// compareTalk compares one page of each list with the world it is of.
func (w *world) compareTalk(rt *rapid.T, workspace string, worlds map[domain.Version]conversation, newest domain.Version) {
	asOf := domain.Version(rapid.Uint64Range(1, uint64(newest)).Draw(rt, "as of"))
	then := worlds[asOf]
	limit := rapid.IntRange(1, 6).Draw(rt, "limit")
	some := func(name string, of []string) (drawn []string) {
		for range rapid.IntRange(0, 2).Draw(rt, name) {
			drawn = append(drawn, rapid.SampledFrom(of).Draw(rt, name))
		}
		return drawn
	}
	sessionIDs, taskIDs := some("sessions", append(talkSessions, "elsewhere")), some("tasks", talkTasks)
	states, types := some("states", []string{"RUNNING", "COMPLETED"}), some("types", []string{"message", "permission_request"})
	kinds := some("kinds", []string{"permission", "clarification"})
	after := ""
	if rapid.Bool().Draw(rt, "from") {
		after = query.InstantKey(talkStart.Add(time.Duration(rapid.IntRange(0, 5).Draw(rt, "from")) * time.Second))
	}
	filter := query.MessageFilter{SessionIDs: sessionIDs, TaskIDs: taskIDs, Types: types}
	bound := func(name string) *time.Time {
		if !rapid.Bool().Draw(rt, name) {
			return nil
		}
		at := talkStart.Add(time.Duration(rapid.IntRange(0, 5).Draw(rt, name)) * time.Second)
		return &at
	}
	filter.Since, filter.Until = bound("since"), bound("until")
	inbox := query.InboxFilter{}
	if len(sessionIDs) > 0 {
		inbox.SessionID = sessionIDs[0]
	}
	if len(taskIDs) > 0 {
		inbox.TaskID = taskIDs[0]
	}

	wantSessions := slices.SortedFunc(maps.Values(then.sessions), func(a, b domain.Session) int {
		return cmp.Or(b.StartedAt.Compare(a.StartedAt), strings.Compare(a.ID, b.ID))
	})
	wantMessages := slices.Clone(then.messages)
	slices.SortFunc(wantMessages, func(a, b domain.Message) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	pending := then.pending()
	wantInbox, err := domain.InboxOf(pending, nil)
	if err != nil {
		rt.Fatal(err)
	}
	one := func(values string, value string) bool { return values == "" || values == value }
	var sessions []domain.Session
	var messages []domain.Message
	var interactions []domain.Interaction
	var items []domain.InboxItem
	err = w.Read(context.Background(), func(s query.Snapshot) error {
		var errs [4]error
		sessions, errs[0] = s.Sessions(workspace, query.SessionFilter{TaskIDs: taskIDs, States: states}, asOf, after, limit)
		messages, errs[1] = s.Messages(workspace, filter, asOf, after, limit)
		interactions, errs[2] = s.PendingInteractions(workspace, query.InteractionFilter{SessionIDs: sessionIDs, TaskIDs: taskIDs, Kinds: kinds}, asOf, after, limit)
		items, errs[3] = s.Inbox(workspace, inbox, asOf, after, limit)
		return errors.Join(errs[:]...)
	})
	if err != nil {
		rt.Fatal(err)
	}
	same(rt, "sessions", sessions, page(wantSessions, query.SessionKey, after, limit, func(s domain.Session) bool {
		return among(taskIDs, s.TaskID) && among(states, s.State)
	}))
	same(rt, "messages", messages, page(wantMessages, query.MessageKey, after, limit, func(m domain.Message) bool {
		return among(sessionIDs, m.SessionID) && among(taskIDs, m.TaskID) && among(types, m.Type) &&
			(filter.Since == nil || !m.CreatedAt.Before(*filter.Since)) && (filter.Until == nil || m.CreatedAt.Before(*filter.Until))
	}))
	same(rt, "interactions", interactions, page(pending, query.InteractionKey, after, limit, func(i domain.Interaction) bool {
		return among(sessionIDs, i.SessionID) && among(taskIDs, i.TaskID) && among(kinds, i.Kind)
	}))
	same(rt, "inbox", items, page(wantInbox, query.InboxKey, after, limit, func(i domain.InboxItem) bool {
		return one(inbox.SessionID, i.SessionID) && one(inbox.TaskID, i.TaskID)
	}))
}

// compareInteractions reads every interaction by its ID, terminal ones included.
func (w *world) compareInteractions(rt *rapid.T, workspace string, now conversation) {
	owed := map[string]domain.Interaction{}
	for _, i := range now.pending() {
		owed[i.ID] = i
	}
	for _, m := range now.messages {
		if _, asks := m.RequestKind(); !asks || m.PendingID() == "" {
			continue
		}
		want, ok := owed[m.PendingID()]
		if !ok {
			want, _ = domain.InteractionOf(m.PendingID(), now.messages)
		}
		var got domain.Interaction
		err := w.Read(context.Background(), func(s query.Snapshot) (err error) {
			got, _, err = s.Interaction(workspace, m.PendingID())
			return err
		})
		if err != nil {
			rt.Fatal(err)
		}
		same(rt, "interaction "+m.PendingID(), got, want)
	}
}

func same(rt *rapid.T, what string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		rt.Fatalf("%s: got\n%+v, want\n%+v", what, got, want)
	}
}

// A row that can't belong where it says is refused, and so is what another workspace
// has, in the same words.
func testMisplaced(t *testing.T, d Database) {
	w := open(t, d)
	w.seed("w", 2)
	w.seed("elsewhere", 1)
	talk := func(workspace string, fn func(tx talkTx) error) error {
		_, err := w.talk(workspace, fn)
		return err
	}
	session := func(workspace, id, task string) func(tx talkTx) error {
		return func(tx talkTx) error {
			return tx.InsertSession(domain.Session{ID: id, WorkspaceID: workspace, TaskID: task, State: domain.SessionRunning, Version: tx.Version()})
		}
	}
	w.must(talk("w", session("w", "s", taskID(0))))
	w.must(talk("w", session("w", "other", taskID(1))))
	w.must(talk("elsewhere", session("elsewhere", "theirs", taskID(0))))
	turn := domain.Turn{ID: "turn", WorkspaceID: "w", SessionID: "s", TaskID: taskID(0)}
	request := domain.Message{
		ID: "m", WorkspaceID: "w", SessionID: "s", TaskID: taskID(0), AuthorType: domain.AuthorAgent,
		Type: domain.MessagePermissionRequest, Metadata: domain.Object{"pending_id": "p"},
	}
	w.must(talk("w", func(tx talkTx) error {
		turn.Version, request.Version = tx.Version(), tx.Version()
		return errors.Join(tx.InsertTurn(turn), tx.InsertMessage(request))
	}))
	message := func(change func(*domain.Message)) func(tx talkTx) error {
		return func(tx talkTx) error {
			m := domain.Message{ID: "n", WorkspaceID: "w", SessionID: "s", TaskID: taskID(0), AuthorType: domain.AuthorUser, Version: tx.Version()}
			change(&m)
			return tx.InsertMessage(m)
		}
	}
	for name, write := range map[string]func(tx talkTx) error{
		"a session of a task that isn't there": session("w", "x", "nobody's"),
		"a session moved to another task": func(tx talkTx) error {
			return tx.UpdateSession(domain.Session{ID: "s", WorkspaceID: "w", TaskID: taskID(1), Version: tx.Version()})
		},
		"a turn of another workspace's session": func(tx talkTx) error {
			return tx.InsertTurn(domain.Turn{ID: "x", WorkspaceID: "w", SessionID: "theirs", Version: tx.Version()})
		},
		"a message in another workspace's session": message(func(m *domain.Message) { m.SessionID = "theirs" }),
		"a message in no session":                  message(func(m *domain.Message) { m.SessionID = "" }),
		"a message of another task":                message(func(m *domain.Message) { m.TaskID = taskID(1) }),
		"a message of a turn that isn't there":     message(func(m *domain.Message) { m.TurnID = "nobody's" }),
		"a message of another session's turn": message(func(m *domain.Message) {
			m.SessionID, m.TaskID, m.TurnID = "other", taskID(1), "turn"
		}),
		"another session's pending ID": message(func(m *domain.Message) {
			m.SessionID, m.TaskID, m.Type, m.Metadata = "other", taskID(1), request.Type, request.Metadata
		}),
		"another kind's pending ID": message(func(m *domain.Message) {
			m.Type, m.Metadata = domain.MessageClarificationRequest, request.Metadata
		}),
		"a pending ID that is none": message(func(m *domain.Message) {
			m.Type, m.Metadata = request.Type, domain.Object{"pending_id": strings.Repeat("p", 2000)}
		}),
		"counts of another workspace's session": func(tx talkTx) error {
			return tx.SetCodeStats(domain.CodeStats{SessionID: "theirs", WorkspaceID: "w", Version: tx.Version()})
		},
	} {
		if err := talk("w", write); !errors.Is(err, store.ErrMisplaced) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := talk("w", func(tx talkTx) error {
		return tx.InsertMessage(domain.Message{ID: "n", WorkspaceID: "elsewhere", SessionID: "s", Version: tx.Version()})
	}); !errors.Is(err, store.ErrWorkspaceBound) {
		t.Errorf("a message into another workspace: %v", err)
	}
	// A command sees the interaction that it has just written.
	w.must(talk("w", func(tx talkTx) error {
		answered := request
		answered.Version, answered.TurnID, answered.Metadata = tx.Version(), "turn", request.Metadata.With("status", "approved")
		if err := tx.UpdateMessage(answered); err != nil {
			return err
		}
		i, found, err := tx.Interaction("p")
		if err == nil && (!found || i.Status != domain.InteractionApproved || i.Version != tx.Version() || i.TurnID != "turn") {
			t.Errorf("in the command that answers it, the interaction is %+v, found %t", i, found)
		}
		return err
	}))
}

// Pages of one list show one version while others write, answer and delete.
func testConversationsConcurrently(t *testing.T, d Database) {
	w := open(t, d)
	const tasks = 12
	w.seed("w", tasks)
	say := func(tx talkTx, task int, n int) error {
		session := fmt.Sprintf("s-%d", task)
		return tx.InsertMessage(domain.Message{
			ID: fmt.Sprintf("%s-%d-%d", session, n, tx.Version()), WorkspaceID: "w", SessionID: session, TaskID: taskID(task),
			AuthorType: domain.AuthorAgent, Type: domain.MessagePermissionRequest, TurnID: "turn-" + session,
			Metadata:  domain.Object{"pending_id": fmt.Sprintf("%s-%d-%d", session, n, tx.Version())},
			CreatedAt: talkStart.Add(time.Duration(tx.Version()) * time.Second), Version: tx.Version(),
		})
	}
	begin := func(tx talkTx, task int) error {
		session := fmt.Sprintf("s-%d", task)
		return errors.Join(
			tx.InsertSession(domain.Session{ID: session, WorkspaceID: "w", TaskID: taskID(task), State: domain.SessionRunning, Version: tx.Version()}),
			tx.InsertTurn(domain.Turn{ID: "turn-" + session, WorkspaceID: "w", SessionID: session, TaskID: taskID(task), Version: tx.Version()}),
			say(tx, task, 0),
		)
	}
	for task := range tasks {
		_, err := w.talk("w", func(tx talkTx) error { return begin(tx, task) })
		w.must(err)
	}
	stop := make(chan struct{})
	var wait sync.WaitGroup
	for i := range 3 {
		wait.Go(func() {
			for n := 1; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				// At every version, each session asks for exactly one thing.
				_, err := w.talk("w", func(tx talkTx) error {
					task := (n*5 + i) % tasks
					if n%4 == 0 {
						return errors.Join(tx.DeleteSessions(taskID(task)), begin(tx, task))
					}
					return say(tx, task, n)
				})
				if err != nil {
					t.Errorf("write: %v", err)
					return
				}
			}
		})
	}
	for range 20 {
		var asOf domain.Version
		sessions, items := map[string]int{}, map[string]int{}
		var last domain.Message
		rows := 0
		read := func(fn func(s query.Snapshot) (more bool, err error)) {
			for more := true; more; {
				w.must(w.Read(t.Context(), func(s query.Snapshot) (err error) {
					if asOf == 0 {
						if asOf, _, err = s.Head("w"); err != nil {
							return err
						}
					}
					more, err = fn(s)
					return err
				}))
			}
		}
		after := ""
		read(func(s query.Snapshot) (bool, error) {
			page, err := s.PendingInteractions("w", query.InteractionFilter{}, asOf, after, 5)
			for _, i := range page {
				sessions[i.SessionID]++
				after = query.InteractionKey(i)
			}
			return len(page) == 5, err
		})
		after = ""
		read(func(s query.Snapshot) (bool, error) {
			page, err := s.Inbox("w", query.InboxFilter{}, asOf, after, 5)
			for _, i := range page {
				items[i.SessionID]++
				after = query.InboxKey(i)
			}
			return len(page) == 5, err
		})
		after = ""
		read(func(s query.Snapshot) (bool, error) {
			page, err := s.Messages("w", query.MessageFilter{SessionIDs: []string{"s-1", "s-2", "s-3"}}, asOf, after, 7)
			for _, m := range page {
				rows++
				after, last = query.MessageKey(m), m
			}
			return len(page) == 7, err
		})
		if rows == 0 || last.Version > asOf {
			t.Fatalf("as of %d, %d messages, the last of %d", asOf, rows, last.Version)
		}
		for task := range tasks {
			if session := fmt.Sprintf("s-%d", task); sessions[session] != 1 || items[session] != 1 {
				t.Fatalf("as of %d, %s is owed %d answers and has %d items", asOf, session, sessions[session], items[session])
			}
		}
	}
	close(stop)
	wait.Wait()
}

// Of a conversation, too, no version is kept that no list can show any more.
func testConversationsPrune(t *testing.T, d Database) {
	engine := d.Open(t)
	w := openOn(t, engine)
	w.seed("w", 1)
	closed := func(table string) (n int64) {
		t.Helper()
		w.must(engine.Read(t.Context(), func(c store.Conn) error {
			return c.Query(`SELECT count(*) FROM `+table+`_closed`, func(r store.Row) error { n = r.Int(0); return nil })
		}))
		return n
	}
	ask := func(status string, first bool) {
		t.Helper()
		_, err := w.talk("w", func(tx talkTx) error {
			v := tx.Version()
			s := domain.Session{ID: "s", WorkspaceID: "w", TaskID: taskID(0), State: domain.SessionRunning, Name: status, Version: v}
			m := domain.Message{
				ID: "m", WorkspaceID: "w", SessionID: "s", TaskID: taskID(0), TurnID: "turn", AuthorType: domain.AuthorAgent,
				Type: domain.MessagePermissionRequest, Metadata: domain.Object{"pending_id": "p", "status": status}, Version: v,
			}
			if !first {
				return errors.Join(tx.UpdateSession(s), tx.UpdateMessage(m))
			}
			return errors.Join(
				tx.InsertSession(s), tx.InsertTurn(domain.Turn{ID: "turn", WorkspaceID: "w", SessionID: "s", TaskID: taskID(0), Version: v}),
				tx.InsertMessage(m),
			)
		})
		w.must(err)
	}
	ask("pending", true)
	ask("approved", false)
	tables := []string{"sessions", "messages", "interactions", "inbox"}
	for _, table := range tables {
		if n := closed(table); n != 1 {
			t.Errorf("%d closed versions of %s, want 1", n, table)
		}
	}
	w.clock.advance(store.SnapshotLife + time.Hour)
	w.must(w.Prune(t.Context(), w.clock.Now()))
	for _, table := range tables {
		if n := closed(table); n != 0 {
			t.Errorf("%d closed versions of %s are left", n, table)
		}
	}
}
