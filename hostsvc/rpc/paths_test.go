package rpc_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	"github.com/kandev/plugin-host/hostsvc/rpc"
	"github.com/kandev/plugin-host/hostsvc/store"
	"github.com/kandev/plugin-host/hostsvc/store/postgres"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
	server "github.com/kandev/plugin-host/test/postgres"
)

// traced is a database that writes down what is asked of it, and how many rows each
// answer had: what a caller could tell two questions apart by, beside their bytes, is
// how long the Host works on each.
type traced struct {
	store.Engine

	mu    sync.Mutex
	steps []string
}

func (e *traced) note(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.steps = append(e.steps, fmt.Sprintf(format, args...))
}

// take returns the steps since it was called last.
func (e *traced) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	steps := e.steps
	e.steps = nil
	return steps
}

// Read implements store.Engine.
func (e *traced) Read(ctx context.Context, fn func(store.Conn) error) error {
	e.note("begin to read")
	defer e.note("end of the read")
	return e.Engine.Read(ctx, func(c store.Conn) error { return fn(tracedConn{c, e}) })
}

// Query implements store.Engine.
func (e *traced) Query(ctx context.Context, statement string, row func(store.Row) error, args ...any) error {
	return e.counted(statement, row, func(row func(store.Row) error) error { return e.Engine.Query(ctx, statement, row, args...) })
}

// Begin implements store.Engine.
func (e *traced) Begin(ctx context.Context, name string) (store.Transaction, error) {
	e.note("lock %s", name)
	t, err := e.Engine.Begin(ctx, name)
	if err != nil {
		return nil, err
	}
	return tracedTx{t, tracedConn{t, e}}, nil
}

func (e *traced) counted(statement string, row func(store.Row) error, query func(func(store.Row) error) error) error {
	rows := 0
	err := query(func(r store.Row) error {
		rows++
		return row(r)
	})
	e.note("%d rows of %s", rows, statement)
	return err
}

// tracedConn is a connection of it.
type tracedConn struct {
	store.Conn
	engine *traced
}

// Exec implements store.Conn.
func (c tracedConn) Exec(statement string, args ...any) (int64, error) {
	n, err := c.Conn.Exec(statement, args...)
	c.engine.note("%d rows by %s", n, statement)
	return n, err
}

// Query implements store.Conn.
func (c tracedConn) Query(statement string, row func(store.Row) error, args ...any) error {
	return c.engine.counted(statement, row, func(row func(store.Row) error) error { return c.Conn.Query(statement, row, args...) })
}

// tracedTx is a transaction of it.
type tracedTx struct {
	store.Transaction
	conn tracedConn
}

// Exec implements store.Conn.
func (t tracedTx) Exec(statement string, args ...any) (int64, error) {
	return t.conn.Exec(statement, args...)
}

// Query implements store.Conn.
func (t tracedTx) Query(statement string, row func(store.Row) error, args ...any) error {
	return t.conn.Query(statement, row, args...)
}

// ExecAll implements store.Transaction.
func (t tracedTx) ExecAll(statements []store.Statement) ([]int64, error) {
	counts, err := t.Transaction.ExecAll(statements)
	for i, n := range counts {
		t.conn.engine.note("%d rows together by %s", n, statements[i].Text)
	}
	return counts, err
}

// LockShared implements store.Transaction.
func (t tracedTx) LockShared(name string) error {
	t.conn.engine.note("lock %s, shared", name)
	return t.Transaction.LockShared(name)
}

// Savepoint implements store.Transaction.
func (t tracedTx) Savepoint() error {
	t.conn.engine.note("savepoint")
	return t.Transaction.Savepoint()
}

// Undo implements store.Transaction.
func (t tracedTx) Undo() error {
	t.conn.engine.note("undo")
	return t.Transaction.Undo()
}

// Release implements store.Transaction.
func (t tracedTx) Release() error {
	t.conn.engine.note("release")
	return t.Transaction.Release()
}

// Commit implements store.Transaction.
func (t tracedTx) Commit() error {
	t.conn.engine.note("commit")
	return t.Transaction.Commit()
}

// Rollback implements store.Transaction.
func (t tracedTx) Rollback() {
	t.conn.engine.note("rollback")
	t.Transaction.Rollback()
}

// databases are what the tests of paths run on.
func databases(t *testing.T) map[string]func(t *testing.T) store.Engine {
	t.Helper()
	s, err := server.Start(t.Context())
	if err != nil {
		t.Fatal(err) // an engine is never skipped
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return map[string]func(t *testing.T) store.Engine{
		"SQLite": func(*testing.T) store.Engine { return nil },
		"PostgreSQL": func(t *testing.T) store.Engine {
			t.Helper()
			dsn, err := s.NewDatabase(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			engine, err := postgres.Open(t.Context(), dsn)
			if err != nil {
				t.Fatal(err)
			}
			return engine
		},
	}
}

// trail is all that two calls could be told apart by.
type trail struct {
	// answer is the bytes, without the audit ID and with the name in question as "*".
	answer string
	steps  []string
	// audits are the receipts, without what belongs to one call alone, and reasons
	// theirs.
	audits  []string
	reasons []contract.Reason
	// moved are the chains of receipts that the call moved.
	moved []string
}

// follow makes a call that has a name in it and returns its trail.
func (w *world) follow(engine *traced, name string, call func() (proto.Message, error)) trail {
	w.Helper()
	before := w.chainEnds()
	engine.take()
	response, err := call()
	got := trail{steps: engine.take()}
	for chain, end := range w.chainEnds() {
		if before[chain] != end {
			got.moved = append(got.moved, chain)
		}
	}
	slices.Sort(got.moved)
	var ids []string
	if err == nil {
		ids = takeAuditIDs(response.ProtoReflect())
		got.answer = "OK " + w.wireBytes(response)
	} else {
		got.answer = fmt.Sprint(status.Code(err), " ", status.Convert(err).Message())
		for _, detail := range status.Convert(err).Details() {
			message, ok := detail.(proto.Message)
			if !ok {
				w.Fatalf("%v has the detail %v", err, detail)
			}
			ids = append(ids, takeAuditIDs(message.ProtoReflect())...)
			got.answer += "\n" + w.wireBytes(message)
		}
	}
	got.answer = strings.ReplaceAll(got.answer, name, "*")
	for _, id := range ids {
		receipt := w.receipt(id)
		receipt.AuditID = ""
		if receipt.RequestDigest != "" {
			receipt.RequestDigest = "some" // it names the target
		}
		got.audits = append(got.audits, strings.ReplaceAll(string(receipt.AppendJSON(nil)), name, "*"))
		got.reasons = append(got.reasons, receipt.Reason)
	}
	return got
}

func (w *world) wireBytes(message proto.Message) string {
	w.Helper()
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	w.must(err)
	return string(text)
}

// takeAuditIDs takes the audit IDs out of a message, at any depth.
func takeAuditIDs(message protoreflect.Message) (ids []string) {
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Name() == "audit_id":
			ids = append(ids, value.String())
			message.Clear(field)
		case field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := range value.List().Len() {
				ids = append(ids, takeAuditIDs(value.List().Get(i).Message())...)
			}
		default:
			ids = append(ids, takeAuditIDs(value.Message())...)
		}
		return true
	})
	return ids
}

// sameTrail compares what is asked about a name of another workspace with what is
// asked about nothing, of the same length.
func (w *world) sameTrail(engine *traced, what, foreign string, ask func(name string) (proto.Message, error)) trail {
	w.Helper()
	nothing := strings.Repeat("z", len(foreign))
	var there, nowhere trail
	_, _ = ask(nothing) // so that what is remembered of the caller's own workspace is the same
	for range 2 {       // what is remembered of the first call must not tell either
		there = w.follow(engine, foreign, func() (proto.Message, error) { return ask(foreign) })
		nowhere = w.follow(engine, nothing, func() (proto.Message, error) { return ask(nothing) })
		if there.answer != nowhere.answer {
			w.Errorf("%s: %q is answered %q, and nothing %q", what, foreign, there.answer, nowhere.answer)
		}
		for i := range max(len(there.steps), len(nowhere.steps)) {
			var a, b string
			if i < len(there.steps) {
				a = strings.ReplaceAll(there.steps[i], foreign, "*")
			}
			if i < len(nowhere.steps) {
				b = strings.ReplaceAll(nowhere.steps[i], nothing, "*")
			}
			if a != b {
				w.Errorf("%s: step %d of %d for %q is %q, and of %d for nothing %q", what, i, len(there.steps), foreign, a, len(nowhere.steps), b)
				break
			}
		}
		if !slices.Equal(there.audits, nowhere.audits) || !slices.Equal(there.moved, nowhere.moved) {
			w.Errorf("%s: %q leaves %q in %v, and nothing %q in %v", what, foreign, there.audits, there.moved, nowhere.audits, nowhere.moved)
		}
	}
	return there
}

// foreignNames are names of another workspace by the last part of a field that takes
// such a name. Another one that ends like a name has to be added here.
var foreignNames = map[string][]string{
	// Of the first another installation was approved, in the second a human asked and
	// nobody has decided yet.
	"workspace_id": {"elsewhere", "undecided"}, "workspace_ids": {"elsewhere", "undecided"},
	"task_id": {taskID("elsewhere", 0)}, "task_ids": {taskID("elsewhere", 0)}, "parent_id": {taskID("elsewhere", 0)},
	"root_task_id": {taskID("elsewhere", 0)},
	"session_id":   {"elsewhere-session"}, "session_ids": {"elsewhere-session"}, "interaction_id": {"elsewhere-permission"},
	"workflow_id": {"elsewhere-flow"}, "workflow_ids": {"elsewhere-flow"}, "workflow_step_id": {"elsewhere-todo"},
	"pending_transition_id": {"elsewhere-move"}, "repository_id": {"elsewhere-repository"},
	// Of features that aren't served here, of what belongs to no workspace, and the
	// caller's own names for what it does.
	"conversation_id": nil, "agent_profile_id": nil, "executor_profile_id": nil, "provider_id": nil, "provider_repository_id": nil,
	"request_id": nil, "external_id": nil, "scope_id": nil,
}

// alongside are fields that a name alone is incomplete without, and twins those that
// have to be the same.
var (
	alongside = map[string][]string{
		"guard.pending_transition.pending_transition_id": {"guard.pending_transition.resource_version"},
		"task.parent_id":        {"expected_parent_resource_version"},
		"provenance.session_id": {"provenance.conversation_id", "provenance.execution_generation_token"},
	}
	twins = map[string]string{"workspace_id": "task.workspace_id"}
)

// namesIn are the fields of a request that take names of what a workspace has.
func namesIn(t *testing.T, of protoreflect.MessageDescriptor) (fields, all []leaf) {
	t.Helper()
	all = leaves(of, "", func(root protoreflect.Message) protoreflect.Message { return root })
	for _, field := range all {
		last := strings.TrimSuffix(field.path[strings.LastIndexByte(field.path, '.')+1:], "[0]")
		if !strings.HasSuffix(last, "_id") && !strings.HasSuffix(last, "_ids") {
			continue
		}
		foreign, known := foreignNames[last]
		if !known {
			t.Errorf("%s takes names, and no foreign one is known here: %s", of.Name(), field.path)
		}
		if len(foreign) > 0 {
			fields = append(fields, field)
		}
	}
	return fields, all
}

// elsewhere makes the workspaces that have what "ws" hasn't.
func (w *world) elsewhere() {
	w.Helper()
	w.seed("elsewhere", 1)
	w.converse("elsewhere")
	w.approve(beta, "elsewhere")
	w.must(w.store.Seed(w.Context(), "elsewhere", func(tx store.SeedTx) error {
		return tx.PendingTransition(domain.PendingTransition{
			ID: "elsewhere-move", TaskID: taskID("elsewhere", 0), SessionID: "elsewhere-session", FromStepID: "elsewhere-todo",
			ToStepID: "elsewhere-doing", Predicate: domain.PredicateTurnEnd, QueuedAt: w.clock.Now(),
		})
	}))
	w.seed("undecided", 1)
	_, err := w.store.Hold(w.Context(), authority.Row{Key: authority.Key{InstallationID: alpha, WorkspaceID: "undecided"}}, authority.Hold{
		State: authority.StateRevoked, Cause: authority.CauseHuman, UID: "u", Generation: 1,
	})
	w.must(err)
}

// TestI14_ForeignNamesTakeTheWayOfNothing puts a name of another workspace into every
// field of every exact request that takes one, and a name that nothing has: the Host
// asks its database the same and gets as many rows, records the same, and answers the
// same bytes. How long it works tells nothing either, then, whatever the machine.
func TestI14_ForeignNamesTakeTheWayOfNothing(t *testing.T) {
	for name, open := range databases(t) {
		t.Run(name, func(t *testing.T) {
			engine := &traced{}
			w := newWorld(t, func(o *options) { o.engine, o.traced = open(t), engine })
			s := w.play("ws")
			w.converse("ws")
			w.elsewhere()
			good := w.goodRequests(s)
			head := w.head("ws")
			compared := 0
			for _, method := range rpc.Exact() {
				fields, all := namesIn(t, method.Input())
				for _, field := range fields {
					last := strings.TrimSuffix(field.path[strings.LastIndexByte(field.path, '.')+1:], "[0]")
					for _, foreign := range foreignNames[last] {
						compared++
						what := fmt.Sprintf("%s of %s", field.path, method.Name())
						got := w.sameTrail(engine, what, foreign, func(name string) (proto.Message, error) {
							request := proto.Clone(good[string(method.Name())])
							for _, sibling := range all {
								if slices.Contains(alongside[field.path], sibling.path) {
									sibling.set(request.ProtoReflect(), "1.1")
								}
								if sibling.path == twins[field.path] {
									sibling.set(request.ProtoReflect(), name)
								}
							}
							field.set(request.ProtoReflect(), name)
							return w.send(w.as(alpha), method, request)
						})
						if len(got.audits) != 1 || len(got.moved) != 1 {
							t.Errorf("%s leaves %q in %v", what, got.audits, got.moved)
							continue
						}
						if got.reasons[0] == contract.ReasonMissingExactField {
							t.Errorf("%s never gets to the name: %q", what, got.audits)
						}
					}
				}
			}
			if compared < 40 {
				t.Errorf("only %d names were compared", compared)
			}
			if w.head("ws") != head {
				t.Error("a call with a foreign name committed")
			}
		})
	}
}

// v1Apart are the fields of v1 requests whose foreign names are no secret. v1 knows no
// workspaces that a plugin is kept from: whoever declares a resource has it of the
// whole instance, and a name of another workspace is answered with what it names (host
// contract; docs/reference/deviations.md).
var v1Apart = map[protoreflect.Name][]string{
	"ListTasks":                    {"filter.workspace_ids[0]", "filter.workflow_ids[0]", "filter.parent_id"},
	"ListTaskStepTransitions":      {"task_id"},
	"ListWorkflows":                {"workspace_id"},
	"ListWorkflowSteps":            {"workflow_id"},
	"ListWorkflowTransitionGroups": {"workflow_id"},
	"ListRepositories":             {"workspace_id"},
	"ListSessions":                 {"filter.task_ids[0]", "filter.workspace_ids[0]"},
	"ListSessionCodeStats":         {"filter.task_ids[0]", "filter.workspace_ids[0]"},
	"ListMessages":                 {"filter.session_ids[0]", "filter.task_ids[0]"},
	"ListPendingInteractions":      {"filter.session_ids[0]", "filter.task_ids[0]"},
	"CreateTask":                   {"workspace_id"},
	"MoveTask":                     {"task_id"},
	"SendMessage":                  {"task_id", "session_id"},
	"PreviewPluginOwnedTaskTree":   {"root_task_id"},
	"DeletePluginOwnedTaskTree":    {"root_task_id"},
}

// TestI14_V1NamesTakeTheWayOfNothing: what v1 keeps apart, it keeps apart by the way
// that it takes too. In a workspace, what a write names must be of that workspace; and
// what a plugin keeps is nobody else's.
func TestI14_V1NamesTakeTheWayOfNothing(t *testing.T) {
	for name, open := range databases(t) {
		t.Run(name, func(t *testing.T) {
			engine := &traced{}
			w := newV1World(t, func(o *options) { o.identity, o.engine, o.traced = plugins{}, open(t), engine })
			w.seed("ws", 1)
			w.elsewhere()
			good := map[protoreflect.Name]proto.Message{
				"CreateTask": &pluginv1.CreateTaskRequest{WorkspaceId: "ws", WorkflowId: "ws-flow", Title: "New"},
				"MoveTask":   &pluginv1.MoveTaskRequest{TaskId: taskID("ws", 0), WorkflowStepId: "ws-doing"},
				"UpdateTask": &pluginv1.UpdateTaskRequest{Id: taskID("ws", 0), Title: ptr("New")},
			}
			head, compared := w.head("ws"), 0
			for _, method := range v1Methods(t) {
				if slices.Contains(later, method.Name()) {
					continue
				}
				fields, _ := namesIn(t, method.Input())
				for _, field := range fields {
					if slices.Contains(v1Apart[method.Name()], field.path) {
						continue
					}
					if good[method.Name()] == nil {
						t.Errorf("%s takes a name in %s and has no request here", method.Name(), field.path)
						continue
					}
					last := strings.TrimSuffix(field.path[strings.LastIndexByte(field.path, '.')+1:], "[0]")
					for _, foreign := range foreignNames[last] {
						compared++
						got := w.sameTrail(engine, fmt.Sprintf("%s of %s", field.path, method.Name()), foreign, func(name string) (proto.Message, error) {
							request := proto.Clone(good[method.Name()])
							field.set(request.ProtoReflect(), name)
							return w.send(w.as(alpha), method, request)
						})
						if strings.HasPrefix(got.answer, "OK") {
							t.Errorf("%s of %s takes %s", field.path, method.Name(), foreign)
						}
					}
				}
			}
			if compared == 0 || w.head("ws") != head {
				t.Errorf("%d names were compared, and version %d became %d", compared, head, w.head("ws"))
			}
			w.keepsApart(engine)
		})
	}
}

// keepsApart asks for what another plugin keeps.
func (w *v1World) keepsApart(engine *traced) {
	w.Helper()
	object, err := structpb.NewStruct(map[string]any{"k": "v"})
	w.must(err)
	_, err = w.host.SetState(w.as(beta), &pluginv1.SetStateRequest{Scope: "task", ScopeId: "betas-scope", Key: "betas-key", Value: object})
	w.must(err)
	_, err = w.host.SetSecret(w.as(beta), &pluginv1.SetSecretRequest{Key: "betas-secret", Value: "private"})
	w.must(err)
	w.config.set(alpha, legacy.Config{Standing: legacy.ConfigAccepted})
	w.config.set(beta, legacy.Config{
		Standing: legacy.ConfigAccepted, Secrets: map[string]legacy.ConfigSecret{"betas-ref": {Value: "private"}},
	})
	asks := map[string]struct {
		foreign string
		ask     func(name string) (proto.Message, error)
	}{
		"GetState, key": {"betas-key", func(name string) (proto.Message, error) {
			return w.host.GetState(w.as(alpha), &pluginv1.GetStateRequest{Scope: "task", ScopeId: "betas-scope", Key: name})
		}},
		"GetState, scope": {"betas-scope", func(name string) (proto.Message, error) {
			return w.host.GetState(w.as(alpha), &pluginv1.GetStateRequest{Scope: "task", ScopeId: name, Key: "betas-key"})
		}},
		"ListState": {"betas-scope", func(name string) (proto.Message, error) {
			return w.host.ListState(w.as(alpha), &pluginv1.ListStateRequest{Scope: "task", ScopeId: name})
		}},
		"DeleteState": {"betas-key", func(name string) (proto.Message, error) {
			return w.host.DeleteState(w.as(alpha), &pluginv1.DeleteStateRequest{Scope: "task", ScopeId: "betas-scope", Key: name})
		}},
		"GetSecret": {"betas-secret", func(name string) (proto.Message, error) {
			return w.host.GetSecret(w.as(alpha), &pluginv1.GetSecretRequest{Key: name})
		}},
		"DeleteSecret": {"betas-secret", func(name string) (proto.Message, error) {
			return w.host.DeleteSecret(w.as(alpha), &pluginv1.DeleteSecretRequest{Key: name})
		}},
		"RevealSecret": {"secretRefs/betas-ref", func(name string) (proto.Message, error) {
			return w.host.RevealSecret(w.as(alpha), &pluginv1.RevealSecretRequest{Ref: name})
		}},
		"RevealSecret, of the plugin": {"plugin:plugin-of-" + beta + ":config:betas-ref", func(name string) (proto.Message, error) {
			return w.host.RevealSecret(w.as(alpha), &pluginv1.RevealSecretRequest{Ref: name})
		}},
	}
	for _, what := range slices.Sorted(maps.Keys(asks)) {
		w.sameTrail(engine, what, asks[what].foreign, asks[what].ask)
	}
	kept, err := w.host.GetState(w.as(beta), &pluginv1.GetStateRequest{Scope: "task", ScopeId: "betas-scope", Key: "betas-key"})
	w.must(err)
	secret, err := w.host.GetSecret(w.as(beta), &pluginv1.GetSecretRequest{Key: "betas-secret"})
	w.must(err)
	if !kept.GetFound() || secret.GetValue() != "private" {
		w.Errorf("what beta keeps is %v and %v", kept, secret)
	}
}
