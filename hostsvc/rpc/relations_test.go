package rpc_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/store"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// related makes a workspace where task 0 has child 1, which has child 2, which waits
// for 3, which waits for 4; 5 waits for 0, and 6 for 5. An edge leads to nowhere.
func related(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.seed("ws", 7)
	w.seed("other", 1)
	w.approve(alpha, "ws")
	edge := func(source, target int) domain.TaskRelation {
		return domain.TaskRelation{Kind: domain.RelationDependency, SourceTaskID: taskID("ws", source), TargetTaskID: taskID("ws", target)}
	}
	w.must(w.store.Seed(t.Context(), "ws", func(tx store.SeedTx) error {
		return errors.Join(tx.Relation(edge(3, 2)), tx.Relation(edge(4, 3)), tx.Relation(edge(0, 5)), tx.Relation(edge(5, 6)), tx.Relation(edge(0, 9)))
	}))
	w.setParent(1, 0)
	w.setParent(2, 1)
	return w
}

func (w *world) setParent(child, parent int) {
	w.Helper()
	w.must(w.store.Write(w.Context(), "ws", func(tx command.Tx) error {
		task, _, err := tx.Task(taskID("ws", child))
		task.ParentID, task.Version = taskID("ws", parent), tx.Version()
		return errors.Join(err, tx.UpdateTask(task), tx.Append(touched(task)))
	}))
}

func touched(task domain.Task) journal.Entry {
	return journal.Entry{
		WorkspaceID: task.WorkspaceID, Kind: journal.KindImport, AuditID: uuid.NewString(), Result: contract.StateApplied, TargetID: task.ID,
	}
}

// edges are a list's edges in short: kind, source and target.
func edges(items []*pluginv1.TaskRelation) (short []string) {
	for _, r := range items {
		short = append(short, fmt.Sprintf("%s %s>%s", r.GetKind()[:1], strings.TrimPrefix(r.GetSourceTaskId(), "ws-task-000"), strings.TrimPrefix(r.GetTargetTaskId(), "ws-task-000")))
	}
	return short
}

func TestI10_RelationGraphs(t *testing.T) {
	w := related(t)
	page := func(list func(*pluginv1.ExactReadPage) ([]*pluginv1.TaskRelation, *pluginv1.ExactReadPageInfo, error), between func()) []string {
		t.Helper()
		var all []*pluginv1.TaskRelation
		next := &pluginv1.ExactReadPage{Limit: 2}
		for more := true; more; {
			items, info, err := list(next)
			w.must(err)
			all = append(all, items...)
			w.receipt(info.GetReceipt().GetAuditId())
			if info.GetReceipt().GetSnapshotVersion() != info.GetSnapshotVersion() {
				t.Errorf("the receipt is %v", info)
			}
			next = &pluginv1.ExactReadPage{Limit: 2, Cursor: info.GetNextCursor(), SnapshotVersion: info.GetSnapshotVersion()}
			more = info.GetHasMore()
			if between != nil {
				between()
			}
		}
		return edges(all)
	}
	around := func(i int) func(*pluginv1.ExactReadPage) ([]*pluginv1.TaskRelation, *pluginv1.ExactReadPageInfo, error) {
		return func(p *pluginv1.ExactReadPage) ([]*pluginv1.TaskRelation, *pluginv1.ExactReadPageInfo, error) {
			response, err := w.host.GetTaskRelationsExact(w.as(alpha), &pluginv1.GetTaskRelationsExactRequest{RequestId: "r", WorkspaceId: "ws", TaskId: taskID("ws", i), Page: p})
			return response.GetItems(), response.GetPageInfo(), err
		}
	}
	listed := func(task string) func(*pluginv1.ExactReadPage) ([]*pluginv1.TaskRelation, *pluginv1.ExactReadPageInfo, error) {
		return func(p *pluginv1.ExactReadPage) ([]*pluginv1.TaskRelation, *pluginv1.ExactReadPageInfo, error) {
			response, err := w.host.ListTaskRelationsExact(w.as(alpha), &pluginv1.ListTaskRelationsExactRequest{RequestId: "r", WorkspaceId: "ws", TaskId: task, Page: p})
			return response.GetItems(), response.GetPageInfo(), err
		}
	}
	all := []string{"d 0>5", "d 3>2", "d 4>3", "d 5>6", "p 0>1", "p 1>2"}
	for _, test := range []struct {
		what string
		got  []string
		want []string
	}{
		{"around the root", page(around(0), nil), []string{"d 0>5", "d 3>2", "d 4>3", "p 0>1", "p 1>2"}},
		{"around a leaf", page(around(2), nil), []string{"d 3>2", "d 4>3", "p 1>2"}},
		{"around the last", page(around(6), nil), []string{"d 0>5", "d 3>2", "d 4>3", "d 5>6", "p 0>1", "p 1>2"}},
		{"of the workspace", page(listed(""), nil), all},
		{"that touch a task", page(listed(taskID("ws", 0)), nil), []string{"d 0>5", "p 0>1"}},
		{"while edges come and go", page(listed(""), func() {
			w.must(w.store.Write(t.Context(), "ws", func(tx command.Tx) error {
				have, err := tx.Relations([]string{taskID("ws", 3), taskID("ws", 5)})
				task, _, err2 := tx.Task(taskID("ws", 1))
				if err := errors.Join(err, err2); err != nil {
					return err
				}
				if len(have) > 1 {
					if err := tx.DeleteRelation(have[1]); err != nil {
						return err
					}
				}
				task.ParentID, task.Version = "", tx.Version()
				return errors.Join(tx.UpdateTask(task), tx.Append(touched(task)))
			}))
		}), all},
	} {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("%s: %q, want %q", test.what, test.got, test.want)
		}
	}
}

func TestRelationsCarryVersions(t *testing.T) {
	w := related(t)
	response, err := w.host.ListTaskRelationsExact(w.as(alpha), &pluginv1.ListTaskRelationsExactRequest{RequestId: "r", WorkspaceId: "ws"})
	w.must(err)
	for _, r := range response.GetItems() {
		for _, end := range []struct{ id, version string }{{r.GetSourceTaskId(), r.GetSourceResourceVersion()}, {r.GetTargetTaskId(), r.GetTargetResourceVersion()}} {
			task, err := w.host.GetTaskExact(w.as(alpha), &pluginv1.GetTaskExactRequest{RequestId: "r", WorkspaceId: "ws", TaskId: end.id})
			w.must(err)
			if task.GetItem().GetResourceVersion() != end.version {
				t.Errorf("%v: task %s is at %s", r, end.id, task.GetItem().GetResourceVersion())
			}
		}
		if parent := r.GetKind() == "parent"; r.GetResourceVersion() == "" || parent && r.GetResourceVersion() != r.GetTargetResourceVersion() || r.GetWorkspaceId() != "ws" {
			t.Errorf("the edge is %v", r)
		}
	}
}

// TestRelationGraphIsBounded: a graph that is too large is refused, not cut.
func TestRelationGraphIsBounded(t *testing.T) {
	w := newWorld(t)
	w.seed("ws", 1_001)
	w.approve(alpha, "ws")
	w.must(w.store.Seed(t.Context(), "ws", func(tx store.SeedTx) (err error) {
		for i := range 1_000 {
			err = errors.Join(err, tx.Relation(domain.TaskRelation{
				Kind: domain.RelationDependency, SourceTaskID: taskID("ws", i+1), TargetTaskID: taskID("ws", i),
			}))
		}
		return err
	}))
	ask := func(i int) error {
		_, err := w.host.GetTaskRelationsExact(w.as(alpha), &pluginv1.GetTaskRelationsExactRequest{RequestId: "r", WorkspaceId: "ws", TaskId: taskID("ws", i)})
		return err
	}
	w.must(ask(1))
	err := ask(0)
	if status.Code(err) != codes.ResourceExhausted || detail(t, err).GetReason() != string(contract.ReasonProviderRateLimited) ||
		status.Convert(err).Message() != "task_id names a task with more than 1000 related tasks" {
		t.Errorf("the graph of 1,001 tasks: %v", err)
	}
}

func TestPendingTransitionsExact(t *testing.T) {
	w := newWorld(t)
	w.seed("ws", 3)
	w.approve(alpha, "ws")
	at := w.clock.Now()
	w.must(w.store.Seed(t.Context(), "ws", func(tx store.SeedTx) error {
		return errors.Join(
			tx.PendingTransition(domain.PendingTransition{
				ID: "late", TaskID: taskID("ws", 0), SessionID: "s", FromWorkflowID: "ws-flow", FromStepID: "ws-todo", ToWorkflowID: "ws-flow",
				ToStepID: "ws-doing", Predicate: domain.PredicateTurnEnd, Actor: domain.ActorAgent, Requester: "plugin:p", QueuedAt: at.Add(1), ExpiresAt: at.Add(9),
			}),
			tx.Task(domain.Task{
				ID: taskID("ws", 9), WorkflowID: "ws-flow", WorkflowStepID: "ws-todo", WIPAdmitted: true, QueuedForStepID: "ws-doing", QueuedAt: at,
			}),
			tx.PendingTransition(domain.PendingTransition{
				ID: "early", TaskID: taskID("ws", 9), FromStepID: "ws-todo", ToStepID: "ws-doing", Predicate: domain.PredicateSlot,
			}),
		)
	}))
	list := func(task string, page *pluginv1.ExactReadPage) *pluginv1.ListPendingTaskTransitionsExactResponse {
		t.Helper()
		response, err := w.host.ListPendingTaskTransitionsExact(w.as(alpha), &pluginv1.ListPendingTaskTransitionsExactRequest{
			RequestId: "r", WorkspaceId: "ws", TaskId: task, Page: page,
		})
		w.must(err)
		return response
	}
	first := list("", &pluginv1.ExactReadPage{Limit: 1})
	second := list("", &pluginv1.ExactReadPage{Limit: 1, Cursor: first.GetPageInfo().GetNextCursor(), SnapshotVersion: first.GetPageInfo().GetSnapshotVersion()})
	if got := first.GetItems(); len(got) != 1 || got[0].GetId() != "early" || got[0].GetPredicate() != "wip_slot" || got[0].ExpiresAt != nil || !first.GetPageInfo().GetHasMore() {
		t.Errorf("the first page is %v", first)
	}
	got := second.GetItems()
	if len(got) != 1 || second.GetPageInfo().GetHasMore() {
		t.Fatalf("the second page is %v", second)
	}
	if m := got[0]; m.GetId() != "late" || m.GetPredicate() != "turn_end" || m.GetSessionId() != "s" || m.GetActor() != "agent" || m.GetRequester() != "plugin:p" ||
		m.GetState() != "pending" || m.GetToStepId() != "ws-doing" || m.GetFromStepId() != "ws-todo" || m.ExpiresAt == nil || m.GetResourceVersion() == "" {
		t.Errorf("the move is %v", m)
	}
	if one := list(taskID("ws", 9), nil).GetItems(); len(one) != 1 || one[0].GetId() != "early" {
		t.Errorf("of one task: %v", one)
	}
	if none := list(taskID("ws", 2), nil).GetItems(); len(none) != 0 {
		t.Errorf("of a task without one: %v", none)
	}
	// The listed version is what a guard names, and nothing else will do.
	update := func(n int, guard *pluginv1.PendingTransitionGuard) string {
		t.Helper()
		task, err := w.host.GetTaskExact(w.as(alpha), &pluginv1.GetTaskExactRequest{RequestId: "r", WorkspaceId: "ws", TaskId: taskID("ws", 0)})
		w.must(err)
		response, err := w.host.UpdateTaskExact(w.as(alpha), &pluginv1.UpdateTaskExactRequest{
			RequestId: "r", WorkspaceId: "ws", TaskId: taskID("ws", 0), IdempotencyKey: fmt.Sprint(n), Guard: guard, CapabilityRevision: 1,
			ExpectedResourceVersion: task.GetItem().GetResourceVersion(), Title: ptr(fmt.Sprint("title ", n)),
		})
		w.must(err)
		return response.GetResult().GetStatus().String() + " " + response.GetResult().GetReason()
	}
	const conflict = "HOST_COMMAND_STATUS_CONFLICT PENDING_TRANSITION_CONFLICT"
	for n, test := range []struct {
		guard *pluginv1.PendingTransitionGuard
		want  string
	}{
		{noGuard(), conflict}, {namedGuard("early", got[0].GetResourceVersion()), conflict}, {namedGuard("late", "1.1"), conflict},
		{namedGuard("late", got[0].GetResourceVersion()), "HOST_COMMAND_STATUS_APPLIED "},
	} {
		if got := update(n, test.guard); got != test.want {
			t.Errorf("guard %v: %q, want %q", test.guard, got, test.want)
		}
	}
}

// TestI14_ForeignTasksAreNotThere: a task of another workspace and one that doesn't
// exist are the same.
func TestI14_ForeignTasksAreNotThere(t *testing.T) {
	w := related(t)
	for name, ask := range map[string]func(id string) error{
		"GetTaskRelationsExact": func(id string) error {
			_, err := w.host.GetTaskRelationsExact(w.as(alpha), &pluginv1.GetTaskRelationsExactRequest{RequestId: "r", WorkspaceId: "ws", TaskId: id})
			return err
		},
		"ListTaskRelationsExact": func(id string) error {
			_, err := w.host.ListTaskRelationsExact(w.as(alpha), &pluginv1.ListTaskRelationsExactRequest{RequestId: "r", WorkspaceId: "ws", TaskId: id})
			return err
		},
		"ListPendingTaskTransitionsExact": func(id string) error {
			_, err := w.host.ListPendingTaskTransitionsExact(w.as(alpha), &pluginv1.ListPendingTaskTransitionsExactRequest{RequestId: "r", WorkspaceId: "ws", TaskId: id})
			return err
		},
	} {
		foreign, nowhere := ask(taskID("other", 0)), ask("nowhere")
		a, b := detail(t, foreign), detail(t, nowhere)
		a.AuditId, b.AuditId = "", ""
		sameBytes(t, a, b)
		if a.GetReason() != string(contract.ReasonWorkspaceTargetNotFound) || status.Code(foreign) != codes.NotFound ||
			status.Convert(foreign).Message() != status.Convert(nowhere).Message() {
			t.Errorf("%s: %v and %v", name, foreign, nowhere)
		}
	}
}

// TestExactWritersAnswerAsAReadDoes: whatever a task waits for, whatever is written
// and however it ends, the answer shows the task byte by byte as a read right behind it.
func TestExactWritersAnswerAsAReadDoes(t *testing.T) {
	w := newWorld(t)
	const n = 6
	w.seed("ws", n)
	w.approve(alpha, "ws")
	w.must(w.store.Seed(t.Context(), "ws", func(tx store.SeedTx) (err error) {
		for _, e := range [][2]int{{0, 1}, {0, 2}, {1, 2}, {2, 3}, {0, 4}, {3, 4}} {
			err = errors.Join(err, tx.Relation(domain.TaskRelation{
				Kind: domain.RelationDependency, SourceTaskID: taskID("ws", e[0]), TargetTaskID: taskID("ws", e[1]),
			}))
		}
		return errors.Join(err, tx.Relation(domain.TaskRelation{
			Kind: domain.RelationDependency, SourceTaskID: "gone", TargetTaskID: taskID("ws", 5),
		}))
	}))
	seen := map[string]int{}
	read := func(id string) *pluginv1.Task {
		response, err := w.host.GetTaskExact(w.as(alpha), &pluginv1.GetTaskExactRequest{RequestId: "r", WorkspaceId: "ws", TaskId: id})
		w.must(err)
		return response.GetItem().GetTask()
	}
	same := func(result *pluginv1.HostCommandResult, task *pluginv1.Task) {
		t.Helper()
		answered, err := proto.MarshalOptions{Deterministic: true}.Marshal(task)
		w.must(err)
		now := read(task.GetId())
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(now)
		w.must(err)
		if !bytes.Equal(answered, want) {
			t.Fatalf("%v: answered is\n%v\nand read\n%v", result.GetStatus(), task, now)
		}
		seen[result.GetStatus().String()+" "+task.GetBlockedReason()]++
	}
	random := rand.New(rand.NewPCG(1, 2)) // the same each time
	either := func(of ...string) *string { return &of[random.IntN(len(of))] }
	var sent *pluginv1.UpdateTaskExactRequest
	for i := range 200 {
		switch kind := random.IntN(8); {
		case kind == 0:
			response, err := w.host.CreateTaskExact(w.as(alpha), w.createRequest("ws", fmt.Sprint("x", i)))
			w.must(err)
			same(response.GetResult(), response.GetTask())
			continue
		case kind > 2 || sent == nil: // otherwise the last one comes again
			id := taskID("ws", random.IntN(n))
			sent = &pluginv1.UpdateTaskExactRequest{
				RequestId: "r", WorkspaceId: "ws", TaskId: id, IdempotencyKey: fmt.Sprint("u", i), CapabilityRevision: 1, Guard: noGuard(),
				ExpectedResourceVersion: read(id).GetResourceVersion(),
			}
			if kind%2 == 0 {
				sent.State = either("TODO", "COMPLETED", "FAILED")
			} else {
				sent.Title = either("One", "Another")
			}
		}
		response, err := w.host.UpdateTaskExact(w.as(alpha), sent)
		w.must(err)
		same(response.GetResult(), response.GetTask())
	}
	for _, status := range []string{"APPLIED", "NO_CHANGE", "ALREADY_APPLIED"} {
		for _, reason := range []string{"", "pending", "failed"} {
			if seen["HOST_COMMAND_STATUS_"+status+" "+reason] < 3 {
				t.Errorf("of %s, blocked %q, there are too few: %v", status, reason, seen)
			}
		}
	}
}

// I10: whether a task is blocked is derived as of the list's snapshot, from what its own
// workspace has; an edge to a task that isn't there is none.
func TestI10_ExactTasksAreBlocked(t *testing.T) {
	w := newWorld(t)
	w.seed("ws", 4)
	w.seed("other", 1)
	w.approve(alpha, "ws")
	w.must(w.store.Seed(t.Context(), "ws", func(tx store.SeedTx) error {
		edge := func(source string, target int) error {
			return tx.Relation(domain.TaskRelation{Kind: domain.RelationDependency, SourceTaskID: source, TargetTaskID: taskID("ws", target)})
		}
		return errors.Join(edge(taskID("ws", 3), 0), edge(taskID("ws", 3), 1), edge(taskID("other", 0), 2))
	}))
	become := func(state domain.TaskState) {
		t.Helper()
		w.must(w.store.Write(t.Context(), "ws", func(tx command.Tx) error {
			task, _, err := tx.Task(taskID("ws", 3))
			task.State, task.Version = state, tx.Version()
			return errors.Join(err, tx.UpdateTask(task), tx.Append(touched(task)))
		}))
	}
	is := func(what string, task *pluginv1.Task, reason string) {
		t.Helper()
		if task.GetBlocked() != (reason != "") || task.GetBlockedReason() != reason {
			t.Errorf("%s: blocked %t, %q, want %q", what, task.GetBlocked(), task.GetBlockedReason(), reason)
		}
	}
	list := func(page *pluginv1.ExactReadPage) ([]*pluginv1.ExactTaskObservation, *pluginv1.ExactReadPageInfo) {
		t.Helper()
		response, err := w.host.ListTasksExact(w.as(alpha), &pluginv1.ListTasksExactRequest{RequestId: "r", WorkspaceId: "ws", Page: page})
		w.must(err)
		return response.GetItems(), response.GetPageInfo()
	}
	for _, c := range []struct {
		state  domain.TaskState
		reason string
	}{{domain.TaskInProgress, "pending"}, {domain.TaskFailed, "failed"}, {domain.TaskCompleted, ""}, {domain.TaskReview, "pending"}} {
		become(c.state)
		first, info := list(&pluginv1.ExactReadPage{Limit: 1})
		is(string(c.state)+", on the first page", first[0].GetTask(), c.reason)
		become(domain.TaskCancelled)
		second, _ := list(&pluginv1.ExactReadPage{Limit: 3, Cursor: info.GetNextCursor(), SnapshotVersion: info.GetSnapshotVersion()})
		is(string(c.state)+", on the second page", second[0].GetTask(), c.reason)
		is("who waits for what another workspace has", second[1].GetTask(), "")
		is("who waits for nothing", second[2].GetTask(), "")
		now, err := w.host.GetTaskExact(w.as(alpha), &pluginv1.GetTaskExactRequest{RequestId: "r", WorkspaceId: "ws", TaskId: taskID("ws", 1)})
		w.must(err)
		is(string(c.state)+", read alone afterwards", now.GetItem().GetTask(), "failed")
	}
}
