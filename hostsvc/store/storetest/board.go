package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

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

// v1 is the v1 Host on the world's store.
func (w *world) v1() *legacy.Host {
	return &legacy.Host{
		Store: w.Legacy(), Now: w.clock.Now, NewID: func() string { return uuid.Must(uuid.NewV7()).String() }, NewAuditID: uuid.NewString,
	}
}

// createIn creates a task in a step of workspace w by v1, a second after the last one.
func (w *world) createIn(host *legacy.Host, step string) (id string) {
	w.t.Helper()
	w.clock.advance(time.Second)
	task, err := host.CreateTask(w.t.Context(), plugin, legacy.NewTask{Title: "t", WorkspaceID: "w", WorkflowID: "w-flow", WorkflowStepID: step})
	w.must(err)
	return task.ID
}

var plugin = legacy.Caller{InstallationID: installation, PluginID: "p", Declared: contract.LegacyDeclarable}

// seedBoard makes a workflow whose step "work" has a limit and a feeder, and a step
// without either.
func (w *world) seedBoard(workspace string, limit, feederLimit int32) {
	w.t.Helper()
	w.must(w.Seed(w.t.Context(), workspace, func(tx store.SeedTx) error {
		now := w.now()
		return errors.Join(
			tx.Workspace(domain.Workspace{Name: workspace, CreatedAt: now, UpdatedAt: now}),
			tx.Workflow(domain.Workflow{ID: workspace + "-flow", Name: "Flow", CreatedAt: now, UpdatedAt: now}),
			tx.WorkflowStep(domain.WorkflowStep{ID: workspace + "-ready", WorkflowID: workspace + "-flow", Position: 1, WIPLimit: feederLimit}),
			tx.WorkflowStep(domain.WorkflowStep{
				ID: workspace + "-work", WorkflowID: workspace + "-flow", Position: 2, WIPLimit: limit, PullFromStepID: workspace + "-ready",
			}),
			tx.WorkflowStep(domain.WorkflowStep{ID: workspace + "-done", WorkflowID: workspace + "-flow", Position: 3}),
			tx.WorkflowStep(domain.WorkflowStep{ID: workspace + "-review", WorkflowID: workspace + "-flow", Position: 4, WIPLimit: 1}),
		)
	}))
}

// allTasks reads the tasks of a workspace as of now.
func (w *world) allTasks(workspace string) (tasks []domain.Task) {
	w.t.Helper()
	w.must(w.Read(w.t.Context(), func(s query.Snapshot) error {
		newest, _, err := s.Head(workspace)
		if err != nil {
			return err
		}
		tasks, err = s.Tasks(workspace, query.TaskFilter{IncludeEphemeral: true}, newest, "", 10_000)
		return err
	}))
	return tasks
}

// checkBoard checks what holds of a board whatever happened: no step admits more than
// its limit, no slot stays free while a task waits for it, and a move is pending for
// exactly those that wait elsewhere.
func (w *world) checkBoard(fail func(string, ...any), workspace string, limits map[string]int) {
	w.t.Helper()
	holders, waiting := map[string]int{}, map[string]int{}
	waitsElsewhere := 0
	for _, task := range w.allTasks(workspace) {
		if task.HoldsSlot() {
			holders[task.WorkflowStepID]++
		}
		if task.QueuedForStepID != "" {
			waiting[task.QueuedForStepID]++
			if task.QueuedForStepID != task.WorkflowStepID {
				waitsElsewhere++
			}
		}
		if task.WIPAdmitted == (task.QueuedForStepID == task.WorkflowStepID) {
			fail("task %s stands in %s, admitted %t, and waits for %q", task.ID, task.WorkflowStepID, task.WIPAdmitted, task.QueuedForStepID)
		}
	}
	for step, limit := range limits {
		if holders[step] > limit {
			fail("step %s admits %d tasks, its limit is %d", step, holders[step], limit)
		}
		if holders[step] < limit && waiting[step] > 0 {
			fail("step %s admits %d of %d tasks, and %d wait for it", step, holders[step], limit, waiting[step])
		}
	}
	var pending []domain.PendingTransition
	w.must(w.Read(w.t.Context(), func(s query.Snapshot) error {
		newest, _, err := s.Head(workspace)
		if err != nil {
			return err
		}
		pending, err = s.PendingTransitions(workspace, "", newest, "", 10_000)
		return err
	}))
	if len(pending) != waitsElsewhere {
		fail("%d tasks wait elsewhere, %d moves are pending: %+v", waitsElsewhere, len(pending), pending)
	}
}

// Whatever v1 plugins do at once, a step never admits more than its limit, and who
// waits longest gets the next slot.
func testWIP(t *testing.T, d Database) {
	w := open(t, d)
	host := w.v1()
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		workspace := fmt.Sprintf("w%d", round)
		limits := map[string]int{
			workspace + "-work": rapid.IntRange(1, 2).Draw(rt, "limit"), workspace + "-ready": rapid.IntRange(1, 2).Draw(rt, "feeder limit"),
			workspace + "-review": 1,
		}
		w.seedBoard(workspace, int32(limits[workspace+"-work"]), int32(limits[workspace+"-ready"]))
		steps := []string{workspace + "-ready", workspace + "-work", workspace + "-review", workspace + "-done"}
		// queue is who waits for a step, the longest first.
		queue := map[string][]domain.Task{}
		var ids []string
		// settle checks the board after what was done to one task, "" for none that
		// was there before.
		settle := func(what, done string) {
			now := w.allTasks(workspace)
			tasks := map[string]domain.Task{}
			for _, task := range now {
				tasks[task.ID] = task
			}
			for step, waited := range queue {
				// Slots go to the front of the queue: who still waits is behind whoever
				// got one.
				still := false
				for _, before := range waited {
					task := tasks[before.ID]
					if before.ID == done || task.ID == "" {
						continue
					}
					if still && task.QueuedForStepID != step {
						rt.Fatalf("%s: %s got a slot of %s before who waits longer: %+v", what, task.ID, step, waited)
					}
					still = still || task.QueuedForStepID == step
				}
			}
			clear(queue)
			for _, task := range now {
				if task.QueuedForStepID != "" {
					queue[task.QueuedForStepID] = append(queue[task.QueuedForStepID], task)
				}
			}
			for _, waiting := range queue {
				slices.SortFunc(waiting, func(a, b domain.Task) int {
					return cmp.Or(a.QueuedAt.Compare(b.QueuedAt), strings.Compare(a.ID, b.ID))
				})
			}
			w.checkBoard(func(format string, args ...any) { rt.Fatalf(what+": "+format, args...) }, workspace, limits)
		}
		create := func(rt *rapid.T) {
			w.clock.advance(time.Second)
			step := rapid.SampledFrom(steps).Draw(rt, "step")
			task, err := host.CreateTask(context.Background(), plugin, legacy.NewTask{
				Title: "t", WorkspaceID: workspace, WorkflowID: workspace + "-flow", WorkflowStepID: step,
			})
			var failure *legacy.Failure
			switch {
			case errors.As(err, &failure) && failure.Text == "workflow step WIP limit exceeded":
			case err != nil:
				rt.Fatal(err)
			default:
				ids = append(ids, task.ID)
			}
			settle("create in "+step, "")
		}
		move := func(rt *rapid.T) {
			if len(ids) == 0 {
				return
			}
			w.clock.advance(time.Second)
			id, step := rapid.SampledFrom(ids).Draw(rt, "task"), rapid.SampledFrom(steps).Draw(rt, "to")
			moved, err := host.MoveTask(context.Background(), plugin, legacy.TaskMove{TaskID: id, WorkflowStepID: step})
			if err != nil {
				rt.Fatal(err)
			}
			if moved.Transitioned != (moved.FromStepID != step) || moved.Task.WorkflowStepID != step {
				rt.Fatalf("moved to %s: %+v", step, moved)
			}
			settle("move to "+step, id)
		}
		remove := func(rt *rapid.T) {
			if len(ids) == 0 {
				return
			}
			w.clock.advance(time.Second)
			id := rapid.SampledFrom(ids).Draw(rt, "task")
			deleted, err := host.DeletePluginOwnedTaskTree(context.Background(), plugin, id)
			if err != nil || !slices.Equal(deleted, []string{id}) {
				rt.Fatalf("deleted %v, %v", deleted, err)
			}
			ids = slices.DeleteFunc(ids, func(other string) bool { return other == id })
			settle("delete", id)
		}
		rt.Repeat(map[string]func(*rapid.T){"create": create, "move": move, "move too": move, "remove": remove})
	})
}

func testWIPConcurrently(t *testing.T, d Database) {
	w := open(t, d)
	w.seedBoard("w", 2, 3)
	host := w.v1()
	var wait sync.WaitGroup
	for i := range 6 {
		wait.Go(func() {
			for n := range 6 {
				task, err := host.CreateTask(t.Context(), plugin, legacy.NewTask{
					Title: "t", WorkspaceID: "w", WorkflowID: "w-flow", WorkflowStepID: []string{"w-work", "w-review", "w-done"}[n%3],
				})
				var failure *legacy.Failure
				if errors.As(err, &failure) && failure.Kind == legacy.Unknown {
					continue
				}
				for _, step := range []string{"w-review", "w-work", "w-done"}[:1+(i+n)%3] {
					if _, moved := host.MoveTask(t.Context(), plugin, legacy.TaskMove{TaskID: task.ID, WorkflowStepID: step}); err != nil || moved != nil {
						t.Errorf("create and move: %v, %v", err, moved)
						return
					}
				}
			}
		})
	}
	wait.Wait()
	w.checkBoard(t.Errorf, "w", map[string]int{"w-work": 2, "w-ready": 3, "w-review": 1})
	w.entries("w")
}

// What frees a slot gives it on in its own transaction: one commit for the move, one
// of the Host for the promotion, and nothing between.
func testPromotion(t *testing.T, d Database) {
	w := open(t, d)
	w.seedBoard("w", 1, 1)
	host := w.v1()
	create := func(step string) string { return w.createIn(host, step) }
	first, fed := create("w-work"), create("w-work")
	waitsForFeeder := create("w-ready")
	before, _ := w.readTask("w", fed)
	if before.WorkflowStepID != "w-ready" || before.QueuedForStepID != "w-work" || !before.WIPAdmitted {
		t.Fatalf("the second task is %+v", before)
	}
	entries := len(w.entries("w"))
	_, err := host.MoveTask(t.Context(), plugin, legacy.TaskMove{TaskID: first, WorkflowStepID: "w-done"})
	w.must(err)
	added := w.entries("w")[entries:]
	var told []string
	for _, e := range added {
		told = append(told, fmt.Sprintf("%s %s %s %s", e.Kind, e.Method, e.EventType, e.TargetID))
	}
	want := []string{
		"command MoveTask task.moved " + first, "system  task.queue_promoted " + fed, "system  task.queue_promoted " + waitsForFeeder,
	}
	if !slices.Equal(told, want) {
		t.Errorf("the journal tells\n%q, want\n%q", told, want)
	}
	if got, _ := w.readTask("w", fed); got.WorkflowStepID != "w-work" || got.QueuedForStepID != "" || !got.WIPAdmitted || !got.QueuedAt.IsZero() {
		t.Errorf("the promoted task is %+v", got)
	}
	if got, _ := w.readTask("w", waitsForFeeder); got.WorkflowStepID != "w-ready" || !got.WIPAdmitted || got.Position != 1 {
		t.Errorf("who waited in the feeder is %+v", got)
	}
	var moves []domain.StepTransition
	w.must(w.Legacy().Read(t.Context(), func(s legacy.Snapshot) (err error) {
		moves, err = s.StepTransitions(fed, 0, 10)
		return err
	}))
	if len(moves) != 2 || moves[0].FromStepID != "" || moves[0].ToStepID != "w-ready" || moves[1].Trigger != domain.TriggerQueuePromotion ||
		moves[1].FromStepID != "w-ready" || moves[1].ToStepID != "w-work" || moves[0].ID >= moves[1].ID {
		t.Errorf("the ledger of the promoted task is %+v", moves)
	}
	w.checkBoard(t.Errorf, "w", map[string]int{"w-work": 1, "w-ready": 1})
}

// C2: the guard of a writer is checked under the lock.
func testGuard(t *testing.T, d Database) {
	w := open(t, d)
	w.seed("w", 2)
	w.grant("w")
	recorder := journal.NewRecorder(w, "process-1", w.clock.Now)
	x := w.executor("w", recorder)
	pending := func(id, task, session string) domain.PendingTransition {
		return domain.PendingTransition{
			ID: id, WorkspaceID: "w", TaskID: task, SessionID: session, FromStepID: step, ToStepID: "to",
			Predicate: domain.PredicateTurnEnd, QueuedAt: at(1),
		}
	}
	put := func(p domain.PendingTransition) string {
		t.Helper()
		w.must(w.Write(t.Context(), "w", func(tx command.Tx) error {
			p.Version = tx.Version()
			return errors.Join(tx.InsertPendingTransition(p), tx.Append(entry("w", "", p.ID)))
		}))
		return domain.ResourceVersion(1, w.entries("w")[len(w.entries("w"))-1].Version)
	}
	title, n := "", 0
	try := func(guard admission.Guard) (refused contract.Reason) {
		t.Helper()
		n++
		title = fmt.Sprint("title ", n)
		current, _ := w.readTask("w", taskID(0))
		env := envelope("w", 1, fmt.Sprint("key ", n))
		env.Guard = &guard
		_, refusal := x.Run(t.Context(), installation, updateMethod, env, command.UpdateTask{
			TaskID: taskID(0), ExpectedVersion: domain.ResourceVersion(1, current.Version), Patch: domain.TaskPatch{Title: &title},
		})
		changed, _ := w.readTask("w", taskID(0))
		if (changed.Title == title) != (refusal == nil) {
			t.Errorf("guard %+v: refused %v, and the title is %q", guard, refusal, changed.Title)
		}
		if refusal == nil {
			return ""
		}
		return refusal.Reason
	}
	none := admission.Guard{ExpectNone: true}
	named := func(id, version string) admission.Guard {
		return admission.Guard{Named: &admission.NamedTransition{ID: id, ResourceVersion: version}}
	}
	check := func(what string, guard admission.Guard, allowed bool) {
		t.Helper()
		want := contract.ReasonPendingTransitionConflict
		if allowed {
			want = ""
		}
		if got := try(guard); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	check("none, and none is pending", none, true)
	check("one that there isn't", named("move", "1.1"), false)
	put(pending("others", taskID(1), "s-other"))
	check("none, and another task's is pending", none, true)
	version := put(pending("move", taskID(0), "s"))
	check("none, and one is pending", none, false)
	check("another one", named("others", version), false)
	check("the one at another version", named("move", "1.1"), false)
	check("the one", named("move", version), true)
	put(pending("second", taskID(0), "s-2"))
	check("one of two", named("move", version), false)
	w.must(recorder.Close(t.Context()))
}

// I11: a move that waits ends once, whoever races: it is applied, replaced or swept.
func testSweep(t *testing.T, d Database) {
	w := open(t, d)
	w.seed("w", 6)
	sweeper := &board.Sweeper{Store: w, Now: w.clock.Now, NewAuditID: uuid.NewString}
	session := func(id, task string, state domain.SessionState) {
		w.must(w.Legacy().Write(t.Context(), "w", func(tx legacy.Tx) error {
			into, ok := tx.(interface{ InsertSession(domain.Session) error })
			if !ok {
				return errors.New("the store inserts no sessions")
			}
			return errors.Join(
				into.InsertSession(domain.Session{ID: id, WorkspaceID: "w", TaskID: task, State: state, StartedAt: at(1), Version: tx.Version()}),
				tx.Append(entry("w", "", id)))
		}))
	}
	session("running", taskID(0), domain.SessionRunning)
	session("over", taskID(1), domain.SessionCompleted)
	// queued are those for a slot whose task is queued for it, and who that is.
	queued := map[string]string{"expired": taskID(3), "expires yet": taskID(4), "no slot": taskID(5)}
	moves := map[string]func(*domain.PendingTransition){
		"stays":       func(*domain.PendingTransition) {},
		"expired":     func(p *domain.PendingTransition) { p.ExpiresAt, p.SessionID = w.clock.Now(), "" },
		"expires yet": func(p *domain.PendingTransition) { p.ExpiresAt, p.SessionID = w.clock.Now().Add(time.Second), "" },
		"no task":     func(p *domain.PendingTransition) { p.TaskID, p.SessionID = "nothing", "" },
		"no target":   func(p *domain.PendingTransition) { p.ToStepID, p.SessionID = "nothing", "" },
		"moved away":  func(p *domain.PendingTransition) { p.FromStepID, p.SessionID = "elsewhere", "" },
		"session over": func(p *domain.PendingTransition) {
			p.TaskID, p.SessionID = taskID(1), "over"
		},
		"no session": func(p *domain.PendingTransition) { p.SessionID = "nothing" },
		"no slot":    func(p *domain.PendingTransition) { p.SessionID = "" },
		"not queued": func(p *domain.PendingTransition) { p.SessionID = "" },
	}
	w.must(w.Seed(t.Context(), "w", func(tx store.SeedTx) error {
		return tx.WorkflowStep(domain.WorkflowStep{ID: "to", WorkflowID: "flow-1", Name: "To", Position: 9})
	}))
	w.must(w.Board(t.Context(), "w", func(tx board.SweepTx) (err error) {
		for id, change := range moves {
			p := domain.PendingTransition{
				ID: id, WorkspaceID: "w", TaskID: taskID(0), SessionID: "running", FromStepID: step, ToStepID: "to",
				Predicate: domain.PredicateTurnEnd, QueuedAt: at(1), Version: tx.Version(),
			}
			change(&p)
			if p.SessionID == "" {
				p.Predicate = domain.PredicateSlot
			}
			if of := queued[id]; of != "" {
				p.TaskID = of
				task, _, read := tx.Task(of)
				task.QueuedForStepID, task.QueuedAt, task.Version = "to", at(1), tx.Version()
				err = errors.Join(err, read, tx.UpdateTask(task))
			}
			err = errors.Join(err, tx.InsertPendingTransition(p))
		}
		return errors.Join(err, tx.Append(entry("w", "", "moves")))
	}))
	// leave are the tasks that the sweep takes out of their queue.
	leave := func(of string) {
		t.Helper()
		for id, task := range queued {
			got, _ := w.readTask("w", task)
			if left := got.QueuedForStepID == "" && got.QueuedAt.IsZero(); left != strings.Contains(of, id) || got.WorkflowStepID != step {
				t.Errorf("the task of %q is queued for %q and stands in %s", id, got.QueuedForStepID, got.WorkflowStepID)
			}
		}
	}
	left := func() (ids []string) {
		t.Helper()
		w.must(w.AllPendingTransitions(t.Context(), func(p domain.PendingTransition) error {
			ids = append(ids, p.ID)
			return nil
		}))
		slices.Sort(ids)
		return ids
	}
	entries := len(w.entries("w"))
	removed, err := sweeper.Sweep(t.Context())
	w.must(err)
	if want := []string{"expires yet", "no slot", "stays"}; removed != 7 || !slices.Equal(left(), want) {
		t.Errorf("%d removed, left are %q", removed, left())
	}
	ended := 0
	for _, e := range w.entries("w")[entries:] {
		if e.EventType == board.EventTransitionEnded && e.After == "" {
			ended++
		} else if e.EventType != "task.updated" || e.TargetID != queued["expired"] || e.After == "" {
			t.Errorf("the sweep's entry is %+v", e)
		}
		if e.Kind != journal.KindSystem || e.Before == "" || e.InstallationID != "" {
			t.Errorf("the sweep's entry is %+v", e)
		}
	}
	if n := len(w.entries("w")) - entries; ended != 7 || n != 8 {
		t.Errorf("the sweep has %d entries, %d of moves", n, ended)
	}
	leave("expired")
	// Replicas that sweep at once, and a mover: each ends once.
	w.clock.advance(time.Minute)
	entries = len(w.entries("w"))
	var wait sync.WaitGroup
	counts := make([]int, 4)
	for i := range counts {
		wait.Go(func() {
			n, err := sweeper.Sweep(t.Context())
			counts[i] = n
			if err != nil {
				t.Error(err)
			}
		})
	}
	wait.Go(func() {
		if _, err := w.v1().MoveTask(t.Context(), plugin, legacy.TaskMove{TaskID: taskID(2), WorkflowStepID: "to"}); err != nil {
			t.Error(err)
		}
	})
	wait.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	if want := []string{"no slot", "stays"}; total != 1 || !slices.Equal(left(), want) || len(w.entries("w")) != entries+3 {
		t.Errorf("%d were removed by %v, left are %q", total, counts, left())
	}
	leave("expired, expires yet")
}

// A move during a turn waits for its end, one for each session, and moves nothing.
func testMoveDuringTurn(t *testing.T, d Database) {
	w := open(t, d)
	w.seedBoard("w", 1, 1)
	host := w.v1()
	task, err := host.CreateTask(t.Context(), plugin, legacy.NewTask{Title: "t", WorkspaceID: "w", WorkflowID: "w-flow", WorkflowStepID: "w-done"})
	w.must(err)
	w.must(w.Legacy().Write(t.Context(), "w", func(tx legacy.Tx) error {
		into, ok := tx.(interface{ InsertSession(domain.Session) error })
		if !ok {
			return errors.New("the store inserts no sessions")
		}
		return errors.Join(into.InsertSession(domain.Session{
			ID: "s", WorkspaceID: "w", TaskID: task.ID, State: domain.SessionRunning, StartedAt: at(1), Version: tx.Version(),
		}), tx.Append(entry("w", "", "s")))
	}))
	for _, to := range []string{"w-work", "w-review"} {
		moved, err := host.MoveTask(t.Context(), plugin, legacy.TaskMove{TaskID: task.ID, WorkflowStepID: to, Position: 3})
		w.must(err)
		if moved.Transitioned || moved.Task.WorkflowStepID != "w-done" || moved.FromStepID != "w-done" {
			t.Errorf("the move during a turn is %+v", moved)
		}
	}
	var pending []domain.PendingTransition
	w.must(w.AllPendingTransitions(t.Context(), func(p domain.PendingTransition) error {
		pending = append(pending, p)
		return nil
	}))
	if len(pending) != 1 || pending[0].ToStepID != "w-review" || pending[0].SessionID != "s" || pending[0].Predicate != domain.PredicateTurnEnd ||
		pending[0].Position != 3 || pending[0].Requester != "plugin:p" || pending[0].Actor != domain.ActorSystem {
		t.Errorf("pending are %+v", pending)
	}
	// Staying needs no turn's end.
	moved, err := host.MoveTask(t.Context(), plugin, legacy.TaskMove{TaskID: task.ID, WorkflowStepID: "w-done"})
	w.must(err)
	if moved.Transitioned {
		t.Errorf("staying is %+v", moved)
	}
}
