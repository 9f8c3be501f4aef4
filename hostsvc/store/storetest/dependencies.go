package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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
				result, refusal := x.Run(t.Context(), installation, updateMethod, envelope(ws, 1, fmt.Sprint("key ", n)), command.UpdateTask{
					TaskID: id, ExpectedVersion: domain.ResourceVersion(1, current.Version), Patch: patch,
				})
				if refusal != nil {
					t.Fatal(refusal)
				}
				w.sameAsRead(ws, result)
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
			for _, state := range []domain.TaskState{domain.TaskInProgress, domain.TaskInProgress, domain.TaskTodo} { // of one that waits
				text := string(state)
				update(taskID(2), domain.TaskPatch{State: &text})
			}
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

// sameAsRead checks that a readback says of the task what a read says right behind it.
func (w *world) sameAsRead(ws string, result command.Result) {
	w.t.Helper()
	back := result.ReadBack.(command.TaskReadBack)
	w.must(w.Read(w.t.Context(), func(s query.Snapshot) error {
		task, _, _, err := s.Task(ws, back.ID)
		waits, failure := s.Predecessors(ws, []string{back.ID}, query.Latest)
		if want := domain.BlockedBy(waits[back.ID]); task.Version != back.Version || task.State != back.State || back.Blocked != want {
			w.t.Errorf("read back is %+v, read is %+v, blocked %q", back, task, want)
		}
		return errors.Join(err, failure)
	}))
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
		w.sameAsRead(ws, result)
		if result.ReadBack.(command.TaskReadBack).State != domain.TaskCompleted || result.Entry.TargetID != taskID(0) {
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

// testDependencyCommands walks the commands that write a task, its place or its edges:
// what a task becomes free by is told in the transaction that frees it, once for each
// task, and nothing else is.
func testDependencyCommands(t *testing.T, d Database) {
	w, ws := open(t, d), "w"
	w.seed(ws, 0)
	w.grant(ws)
	w.must(w.Seed(t.Context(), ws, func(tx store.SeedTx) error {
		return tx.WorkflowStep(domain.WorkflowStep{ID: "other", WorkflowID: "flow-1", Name: "Other", Position: 2})
	}))
	recorder := journal.NewRecorder(w, "process-1", w.clock.Now)
	x, host := w.executor(ws, recorder), w.v1()
	owned := func(id, parent string, state domain.TaskState) domain.Task {
		of := task(ws, id, 0)
		of.State, of.ParentID, of.CreatorInstallationID, of.Source = state, parent, installation, domain.PluginSource(plugin.PluginID)
		return of
	}
	version := func(id string) string {
		current, found := w.readTask(ws, id)
		if !found {
			t.Fatalf("there is no task %s", id)
		}
		return domain.ResourceVersion(1, current.Version)
	}
	update := func(id string, state domain.TaskState) func() error {
		return func() error {
			text := string(state)
			_, err := host.UpdateTask(t.Context(), plugin, legacy.TaskUpdate{ID: id, State: &text})
			return err
		}
	}
	updateExact := func(id string, state domain.TaskState) func() error {
		return func() error {
			text := string(state)
			_, refusal := x.Run(t.Context(), installation, updateMethod, envelope(ws, 1, "of "+id+text), command.UpdateTask{
				TaskID: id, ExpectedVersion: version(id), Patch: domain.TaskPatch{State: &text},
			})
			return asError(refusal)
		}
	}
	remove := func(id string) func() error {
		return func() error {
			_, err := host.DeletePluginOwnedTaskTree(t.Context(), plugin, id)
			return err
		}
	}
	// Each case has tasks of its own; "a/b" is a child of "a".
	type edge struct{ waits, on string }
	todo, done, failed := domain.TaskTodo, domain.TaskCompleted, domain.TaskFailed
	for _, c := range []struct {
		name  string
		tasks map[string]domain.TaskState
		edges []edge
		do    func() error
		want  []string
	}{
		{
			"an exact writer completes", map[string]domain.TaskState{"e1": todo, "e2": todo}, []edge{{"e2", "e1"}},
			updateExact("e1", done), []string{"resolved e2 e1"},
		},
		{
			"an exact writer fails", map[string]domain.TaskState{"e3": todo, "e4": todo}, []edge{{"e4", "e3"}},
			updateExact("e3", failed), []string{"failed e4 e3"},
		},
		{
			"an exact writer begins again", map[string]domain.TaskState{"e5": done, "e6": todo}, []edge{{"e6", "e5"}},
			updateExact("e5", todo), nil,
		},
		{
			"an exact writer creates", map[string]domain.TaskState{"e7": todo}, []edge{{"e7", "missing"}},
			func() error {
				method := admission.Method{Name: "CreateTaskExact", Capability: contract.WriteTasks, Writer: true}
				topology := func(read func(query.Snapshot) (domain.Version, error)) (resource string) {
					w.must(w.Read(t.Context(), func(s query.Snapshot) error {
						of, err := read(s)
						resource = domain.ResourceVersion(1, of)
						return err
					}))
					return resource
				}
				_, refusal := x.Run(t.Context(), installation, method, envelope(ws, 1, "create"), command.CreateTask{
					Draft: domain.TaskDraft{ExternalID: "x", Title: "New", WorkflowID: "flow-1", WorkflowStepID: step},
					ExpectedWorkflowVersion: topology(func(s query.Snapshot) (domain.Version, error) {
						of, err := s.Workflows(ws, query.Latest, "", 1)
						return of[0].Version, err
					}),
					ExpectedStepVersion: topology(func(s query.Snapshot) (domain.Version, error) {
						of, err := s.WorkflowSteps(ws, "flow-1", query.Latest, "", 1)
						return of[0].Version, err
					}),
				})
				return asError(refusal)
			}, nil,
		},
		{
			"v1 creates", map[string]domain.TaskState{"c1": todo}, []edge{{"c1", "missing"}},
			func() error {
				_, err := host.CreateTask(t.Context(), plugin, legacy.NewTask{Title: "t", WorkspaceID: ws, WorkflowID: "flow-1"})
				return err
			}, nil,
		},
		{
			"v1 completes one of two", map[string]domain.TaskState{"u1": todo, "u2": todo, "u3": todo}, []edge{{"u3", "u1"}, {"u3", "u2"}},
			update("u1", done), nil,
		},
		{
			"v1 completes", map[string]domain.TaskState{"u4": failed, "u5": todo}, []edge{{"u5", "u4"}},
			update("u4", done), []string{"resolved u5 u4"},
		},
		{
			"v1 moves", map[string]domain.TaskState{"m1": todo, "m2": todo}, []edge{{"m2", "m1"}},
			func() error {
				_, err := host.MoveTask(t.Context(), plugin, legacy.TaskMove{TaskID: "m1", WorkflowStepID: "other"})
				return err
			}, nil,
		},
		{
			"v1 deletes what holds up", map[string]domain.TaskState{"d1": todo, "d2": todo, "d3": failed, "d4": todo},
			[]edge{{"d2", "d1"}, {"d4", "d1"}, {"d4", "d3"}}, // d4 still waits
			remove("d1"), []string{"resolved d2 d1"},
		},
		{
			"v1 deletes what has failed", map[string]domain.TaskState{"f1": failed, "f2": todo, "f3": done},
			[]edge{{"f2", "f1"}, {"f2", "f3"}},
			remove("f1"), []string{"resolved f2 f1"},
		},
		{
			"v1 deletes what has resolved", map[string]domain.TaskState{"r1": done, "r2": todo, "r3": todo},
			[]edge{{"r2", "r1"}, {"r3", "r1"}},
			remove("r1"), nil,
		},
		{
			"v1 deletes who waits", map[string]domain.TaskState{"w1": todo, "w2": todo}, []edge{{"w2", "w1"}},
			remove("w2"), nil,
		},
		{
			// What waits for another one of the tree goes with it. t2 waits for all of the tree and is told
			// once, t3 for another besides, t4 for what has resolved in it.
			"v1 deletes a tree", map[string]domain.TaskState{
				"t": todo, "t/a": todo, "t/b": failed, "t/c": done, "t/d": todo, "t2": todo, "t3": todo, "t4": todo, "t5": todo, "t6": todo,
			},
			[]edge{
				{"t", "t/a"}, {"t/b", "t/a"}, {"t/a", "t/d"}, {"t2", "t"}, {"t2", "t/a"}, {"t2", "t/b"}, {"t2", "t/c"}, {"t3", "t/a"}, {"t3", "t5"}, {"t4", "t/c"},
				{"t6", "t/b"}, {"missing", "t/a"},
			},
			remove("t"), []string{"resolved t2 t", "resolved t6 t/b"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.must(w.Seed(t.Context(), ws, func(tx store.SeedTx) (err error) {
				for id, state := range c.tasks {
					parent, _, _ := strings.Cut(id, "/")
					if parent == id {
						parent = ""
					}
					err = errors.Join(err, tx.Task(owned(id, parent, state)))
				}
				for _, e := range c.edges {
					err = errors.Join(err, tx.Relation(domain.TaskRelation{
						Kind: domain.RelationDependency, SourceTaskID: e.on, TargetTaskID: e.waits,
					}))
				}
				return err
			}))
			blocked := func() map[string]domain.BlockedReason {
				reasons := map[string]domain.BlockedReason{}
				w.must(w.Read(t.Context(), func(s query.Snapshot) error {
					waits, err := s.Predecessors(ws, slices.Collect(maps.Keys(c.tasks)), query.Latest)
					for id := range c.tasks {
						if _, _, found, failure := s.Task(ws, id); found && failure == nil {
							reasons[id] = domain.BlockedBy(waits[id])
						}
					}
					return err
				}))
				return reasons
			}
			was, entries := blocked(), len(w.entries(ws))
			if err := c.do(); err != nil {
				t.Fatal(err)
			}
			var told, free []string
			added := w.entries(ws)[entries:]
			for i, e := range added {
				short, of := strings.CutPrefix(e.EventType, "task.dependenc")
				if !of {
					continue
				}
				current, found := w.readTask(ws, e.TargetID)
				if i == 0 || !found || e.Kind != journal.KindSystem || e.AuditID == "" || e.Before != "" || e.After != domain.ResourceVersion(1, current.Version) {
					t.Errorf("the entry is %+v", e)
				}
				_, data := journal.DecodeEvent(e.Event)
				told = append(told, fmt.Sprint(short[strings.IndexByte(short, '_')+1:], " ", e.TargetID, " ", data["depends_on_task_id"]))
			}
			for id, reason := range blocked() {
				if was[id] != domain.BlockedNot && reason == domain.BlockedNot {
					free = append(free, id)
				}
			}
			slices.Sort(free)
			var resolved []string
			for _, text := range told {
				if id, of := strings.CutPrefix(text, "resolved "); of {
					resolved = append(resolved, id[:strings.IndexByte(id, ' ')])
				}
			}
			if !slices.Equal(told, c.want) || !slices.Equal(free, resolved) {
				t.Errorf("told is %q, want %q; free are %q", told, c.want, free)
			}
		})
	}
	w.must(recorder.Close(t.Context()))
}

func asError(refusal *admission.Refusal) error {
	if refusal == nil {
		return nil
	}
	return refusal
}
