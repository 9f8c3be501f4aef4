package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/board"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/store"
)

// Who waits for a task is told in its own transaction what became of it: by whichever
// contract, once, and only where something changed for the one that waits.
func testDependencyEvents(t *testing.T, d Database) {
	for _, by := range []string{"exact", "v1"} {
		t.Run(by, func(t *testing.T) {
			// v1 knows tasks by their ID alone: of those that have it, the first workspace's.
			w, ws := open(t, d), map[string]string{"v1": "a", "exact": "b"}[by]
			w.seed(ws, 5)
			w.grant(ws)
			secret := "<kandev-system>hush</kandev-system>"
			w.must(w.Seed(t.Context(), ws, func(tx store.SeedTx) error {
				edge := func(source, target string) error {
					return tx.Relation(domain.TaskRelation{Kind: domain.RelationDependency, SourceTaskID: source, TargetTaskID: target})
				}
				quiet := task(ws, "quiet", 9)
				quiet.Title, quiet.Description, quiet.Labels = secret, secret, []string{secret}
				// 1 waits for 0 alone, 2 and "quiet" for 0 and 3, 4 for nothing.
				return errors.Join(tx.Task(quiet), edge(taskID(0), taskID(1)), edge(taskID(0), taskID(2)), edge(taskID(3), taskID(2)),
					edge(taskID(0), "quiet"), edge(taskID(3), "quiet"), edge(taskID(0), "gone"), edge("gone", taskID(4)))
			}))
			recorder := journal.NewRecorder(w, "process-1", w.clock.Now)
			x, host, n := w.executor(ws, recorder), w.v1(), 0
			update := func(id string, patch domain.TaskPatch) {
				t.Helper()
				n++
				if by == "v1" {
					_, err := host.UpdateTask(t.Context(), plugin, legacy.TaskUpdate{ID: id, State: patch.State, Title: patch.Title})
					w.must(err)
					return
				}
				current, _ := w.readTask(ws, id)
				_, refusal := x.Run(t.Context(), installation, updateMethod, envelope(ws, 1, fmt.Sprint("key ", n)), command.UpdateTask{
					TaskID: id, ExpectedVersion: domain.ResourceVersion(1, current.Version), Patch: patch,
				})
				if refusal != nil {
					t.Fatal(refusal)
				}
			}
			become := func(i int, state domain.TaskState, want ...string) {
				t.Helper()
				before := len(w.entries(ws))
				text := string(state)
				update(taskID(i), domain.TaskPatch{State: &text})
				added := w.entries(ws)[before:]
				var told []string
				for _, e := range added[min(1, len(added)):] {
					_, data := journal.DecodeEvent(e.Event)
					told = append(told, e.EventType+" "+e.TargetID)
					current, _ := w.readTask(ws, e.TargetID)
					if !maps.Equal(data, map[string]any{"task_id": e.TargetID, "workspace_id": ws, "depends_on_task_id": taskID(i)}) {
						t.Errorf("%s says %v", e.EventType, data)
					}
					if e.Kind != journal.KindSystem || e.AuditID == "" || e.AuditID == added[0].AuditID || e.Before != "" ||
						e.After != domain.ResourceVersion(1, current.Version) || e.Result != contract.StateApplied {
						t.Errorf("the entry is %+v", e)
					}
				}
				if len(added) == 0 || added[0].EventType != "task.updated" || added[0].TargetID != taskID(i) || !slices.Equal(told, want) {
					t.Errorf("task %d becomes %s: told are %q, want %q", i, state, told, want)
				}
			}
			resolved := func(id string) string { return board.EventDependenciesResolved + " " + id }
			failed := func(id string) string { return board.EventDependencyFailed + " " + id }
			become(0, domain.TaskInProgress)
			become(0, domain.TaskCompleted, resolved(taskID(1)))
			become(4, domain.TaskCompleted)
			become(3, domain.TaskFailed, failed("quiet"), failed(taskID(2)))
			become(3, domain.TaskCancelled)
			become(3, domain.TaskCompleted, resolved("quiet"), resolved(taskID(2)))
			title := "another"
			before := len(w.entries(ws))
			update(taskID(3), domain.TaskPatch{Title: &title})
			if added := w.entries(ws)[before:]; len(added) != 1 {
				t.Errorf("a new title is told by %+v", added)
			}
			become(3, domain.TaskTodo)
			become(0, domain.TaskCancelled, failed("quiet"), failed(taskID(1)), failed(taskID(2)))
			if by == "exact" {
				replayEvents(t, w, ws, x)
			}
			w.must(recorder.Close(t.Context()))
		})
	}
}

// replayEvents shows that a command that is sent again tells nobody again.
func replayEvents(t *testing.T, w *world, ws string, x *command.Executor) {
	t.Helper()
	current, _ := w.readTask(ws, taskID(0))
	state := string(domain.TaskCompleted)
	for i, want := range []contract.State{contract.StateApplied, contract.StateAlreadyApplied} {
		before := len(w.entries(ws))
		result, refusal := x.Run(t.Context(), installation, updateMethod, envelope(ws, 1, "sent twice"), command.UpdateTask{
			TaskID: taskID(0), ExpectedVersion: domain.ResourceVersion(1, current.Version), Patch: domain.TaskPatch{State: &state},
		})
		if refusal != nil {
			t.Fatal(refusal)
		}
		if added := len(w.entries(ws)) - before; result.State != want || added != []int{2, 0}[i] {
			t.Errorf("sent for the %d. time: %s, and %d entries", i+1, result.State, added)
		}
		if result.ReadBack.(domain.Task).State != domain.TaskCompleted || result.Entry.TargetID != taskID(0) {
			t.Errorf("the result is %+v", result)
		}
	}
}

// A page of tasks costs the same number of statements, whatever they wait for and as of
// whichever version.
func testPagesCostTheSame(t *testing.T, d Database) {
	engine := &reading{Engine: d.Open(t)}
	w := openOn(t, engine)
	const n = contract.MaxPageSize + 1
	w.seed("w", n)
	w.grant("w")
	cursorKey, err := query.NewCursorKey()
	w.must(err)
	cursors, err := query.NewCursors(cursorKey)
	w.must(err)
	reader := &query.Reader{
		Store: w, View: w.executor("w", nil).View, Receipts: discard{}, Cursors: cursors, Now: w.clock.Now,
		NewAuditID: func() string { return "audit" },
	}
	list := func(page query.Page) query.List[query.Task] {
		t.Helper()
		engine.statements = nil
		got, _, refusal := reader.Tasks(t.Context(), installation, admission.Method{Name: "ListTasksExact", Capability: contract.ReadTasks}, loadEnvelope, query.TaskFilter{}, page)
		if refusal != nil {
			t.Fatal(refusal)
		}
		return got
	}
	blocked := func(page query.List[query.Task]) (n int) {
		for _, item := range page.Items {
			if item.Blocked == domain.BlockedPending {
				n++
			}
		}
		return n
	}
	if got := list(query.Page{Limit: contract.MaxPageSize}); blocked(got) != 0 {
		t.Errorf("%d are blocked by nothing", blocked(got))
	}
	alone := len(engine.statements)
	w.must(w.Seed(t.Context(), "w", func(tx store.SeedTx) (err error) {
		for i := 1; i < n; i++ {
			for _, source := range slices.Compact([]int{0, i - 1}) {
				err = errors.Join(err, tx.Relation(domain.TaskRelation{
					Kind: domain.RelationDependency, SourceTaskID: taskID(source), TargetTaskID: taskID(i),
				}))
			}
		}
		return err
	}))
	first := list(query.Page{Limit: contract.MaxPageSize})
	if got := len(engine.statements); got != alone || blocked(first) != contract.MaxPageSize-1 {
		t.Errorf("%d of %d tasks are blocked, by %d statements, and by %d without dependencies", blocked(first), len(first.Items), got, alone)
	}
	w.must(w.Write(t.Context(), "w", func(tx command.Tx) error {
		var failures []error
		for _, i := range []int{0, n - 2} {
			of, _, err := tx.Task(taskID(i))
			of.State, of.Version = domain.TaskCompleted, tx.Version()
			failures = append(failures, err, tx.UpdateTask(of))
		}
		return errors.Join(append(failures, tx.Append(entry("w", "", taskID(0))))...)
	}))
	second := list(query.Page{Limit: contract.MaxPageSize, Cursor: first.NextCursor, SnapshotVersion: first.SnapshotVersion})
	if blocked(second) != 1 || len(engine.statements) > alone {
		t.Errorf("behind the snapshot %d are blocked, by %d statements", blocked(second), len(engine.statements))
	}
}
