package storetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/store"
)

// readTask reads a task as of now.
func (w *world) readTask(workspace, id string) (task domain.Task, found bool) {
	w.t.Helper()
	w.must(w.Read(w.t.Context(), func(s query.Snapshot) (err error) {
		task, _, found, err = s.Task(workspace, id)
		return err
	}))
	return task, found
}

// checkWhole checks that the commands of ids that answered nil, and no other,
// left their task and their entry.
func (w *world) checkWhole(workspace string, ids []string, errs []error) {
	w.t.Helper()
	recorded := map[string]bool{}
	for _, e := range w.entries(workspace) {
		recorded[e.IdempotencyKey] = true
	}
	for i, id := range ids {
		_, found := w.readTask(workspace, id)
		if want := errs[i] == nil; found != want || recorded[id] != want {
			w.t.Fatalf("command %s answered %v; its task exists: %t, its entry exists: %t", id, errs[i], found, recorded[id])
		}
	}
}

func testFaults(t *testing.T, d Database) {
	engine := &faulty{Engine: d.Open(t)}
	w := openOn(t, engine)
	w.seed("w", 0)
	round := 0
	for _, kind := range []fault{fails, ends} {
		for _, size := range []int{1, 3} {
			for at, fired := 1, true; fired; at++ {
				fired = false
				round++
				ids := make([]string, size)
				fns := make([]func(command.Tx) error, size)
				for i := range ids {
					ids[i] = fmt.Sprintf("%d-%d", round, i)
					fns[i] = func(tx command.Tx) error {
						_, _, err := tx.Recorded(installation, ids[i])
						return errors.Join(err, insertTask("w", ids[i])(tx))
					}
				}
				w.beforeBatch = func() {
					engine.arm(func(n int) fault {
						if n == at {
							fired = true
							return kind
						}
						return works
					}, nil)
				}
				errs := w.together("w", fns...)
				engine.arm(nil, nil)
				w.checkWhole("w", ids, errs)
				failed := 0
				for _, err := range errs {
					if err != nil {
						failed++
						w.wantErr("a failed command", err, store.ErrUnavailable)
					}
				}
				// The first statement is the batch's own: nothing ran yet, and all
				// are told. Another fault costs one command at most, and none
				// where the commands could run again one by one.
				if (at > 1 && failed > 1) || (at == 1 && failed != size) || (size == 1 && fired && failed != 1) {
					t.Fatalf("fault %d at statement %d of %d commands: errors %v", kind, at, size, errs)
				}
			}
		}
	}
	if round < 24 {
		t.Errorf("only %d faults were tried", round)
	}
	w.beforeBatch = nil
	// A COMMIT that certainly failed: alone it is the command's error, in
	// company all run again.
	for _, size := range []int{1, 3} {
		tries := 0
		engine.arm(nil, func() fault {
			tries++
			if tries == 1 {
				return undone
			}
			return works
		})
		ids := make([]string, size)
		fns := make([]func(command.Tx) error, size)
		for i := range ids {
			ids[i] = fmt.Sprintf("commit-%d-%d", size, i)
			fns[i] = insertTask("w", ids[i])
		}
		errs := w.together("w", fns...)
		engine.arm(nil, nil)
		w.checkWhole("w", ids, errs)
		if (errs[0] != nil) != (size == 1) {
			t.Errorf("a failed COMMIT of %d commands: %v", size, errs)
		}
	}
}

// All of a batch learn that nobody knows, refusals included: they may rest on
// what a neighbour did. A retry under the same key finds out.
func testUnknownOutcome(t *testing.T, d Database) {
	engine := &faulty{Engine: d.Open(t)}
	w := openOn(t, engine)
	w.seed("w", 0)
	refusal := errors.New("refused")
	engine.arm(nil, func() fault { return uncertain })
	errs := w.together("w", insertTask("w", "a"), func(tx command.Tx) error {
		if _, found, err := tx.Recorded(installation, "a"); err != nil || !found {
			return errors.Join(err, errors.New("the neighbour's entry is not there"))
		}
		return refusal
	}, insertTask("w", "c"))
	engine.arm(nil, nil)
	for i, err := range errs {
		if !errors.Is(err, store.ErrOutcomeUnknown) || errors.Is(err, refusal) {
			t.Errorf("command %d: %v, want ErrOutcomeUnknown", i, err)
		}
	}
	var found bool
	w.must(w.Write(t.Context(), "w", func(tx command.Tx) (err error) {
		_, found, err = tx.Recorded(installation, "a")
		return err
	}))
	if !found {
		t.Error("the committed entry can't be found by its key")
	}
	w.entries("w")
}

func testDatabaseLost(t *testing.T, d Database) {
	for _, at := range []string{"statement", "commit"} {
		t.Run(at, func(t *testing.T) {
			engine := &faulty{Engine: d.Open(t)}
			var fatal atomic.Int32
			s, err := store.Open(t.Context(), engine, store.Options{
				Now: time.Now, Log: slog.New(slog.DiscardHandler), Fatal: func(error) { fatal.Add(1) },
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			w := &world{Store: s, t: t, clock: newClock()}
			w.beforeBatch = func() {
				if at == "commit" {
					engine.arm(nil, func() fault { return lost })
				} else {
					engine.arm(func(int) fault { return lost }, nil)
				}
			}
			for i, err := range w.together("w", insertTask("w", at+"a"), insertTask("w", at+"b")) {
				if !errors.Is(err, store.ErrDatabaseLost) {
					t.Errorf("command %d: %v", i, err)
				}
			}
			if err := s.Write(t.Context(), "w", insertTask("w", at+"c")); !errors.Is(err, store.ErrClosed) {
				t.Errorf("a command after the loss: %v, want ErrClosed", err)
			}
			if fatal.Load() != 1 {
				t.Errorf("the process was to end %d times, want once", fatal.Load())
			}
		})
	}
}

func testCancelledCaller(t *testing.T, d Database) {
	ctx, cancel := context.WithCancel(t.Context())
	cancelledCaller(t, d.Open(t), ctx, cancel)
}

// cancelledCaller cancels ctx, which one of the callers has, in the middle of a
// shared commit.
func cancelledCaller(t testing.TB, engine store.Engine, ctx context.Context, cancel context.CancelFunc) { //nolint:revive // ctx is what is tested
	t.Helper()
	w := openOn(t, engine)
	w.seed("w", 0)
	release := w.hold("w")
	inside, proceed := make(chan struct{}), make(chan struct{})
	ids := []string{"before", "cancelled", "after"}
	errs := make([]error, 3)
	var runs [3]atomic.Int32
	counted := func(i int) func(command.Tx) error {
		return func(tx command.Tx) error {
			runs[i].Add(1)
			return insertTask("w", ids[i])(tx)
		}
	}
	var wait sync.WaitGroup
	wait.Go(func() { errs[0] = w.Write(t.Context(), "w", counted(0)) })
	w.awaitQueued(1)
	wait.Go(func() {
		errs[1] = w.Write(ctx, "w", func(tx command.Tx) error {
			if runs[1].Load() == 0 {
				close(inside)
				<-proceed
			}
			return counted(1)(tx)
		})
	})
	w.awaitQueued(2)
	wait.Go(func() { errs[2] = w.Write(t.Context(), "w", counted(2)) })
	w.awaitQueued(3)
	// A fourth goes away before its turn: it is withdrawn.
	early, cancelEarly := context.WithCancel(t.Context())
	withdrawn := make(chan error, 1)
	go func() { withdrawn <- w.Write(early, "w", insertTask("w", "withdrawn")) }()
	w.awaitQueued(4)
	cancelEarly()
	w.wantErr("the withdrawn caller", <-withdrawn, context.Canceled)

	release()
	<-inside // in the middle of the shared commit
	cancel()
	close(proceed)
	wait.Wait()
	if errs[0] != nil || errs[2] != nil {
		t.Errorf("the neighbours got %v and %v", errs[0], errs[2])
	}
	for i := range runs {
		if n := runs[i].Load(); n != 1 {
			t.Errorf("the command %s ran %d times", ids[i], n)
		}
	}
	// The cancelled caller may have got the answer just before.
	if errs[1] != nil {
		w.wantErr("the cancelled caller", errs[1], context.Canceled)
	}
	var keys []string
	for _, e := range w.entries("w") {
		keys = append(keys, e.IdempotencyKey)
	}
	if got, want := fmt.Sprint(keys), fmt.Sprint(append([]string{""}, ids...)); got != want {
		t.Errorf("the journal holds %s, want %s: the begun command runs to its end, the withdrawn one never", got, want)
	}
	for _, id := range ids {
		if _, found := w.readTask("w", id); !found {
			t.Errorf("task %s is missing", id)
		}
	}
}

func testPanic(t *testing.T, d Database) {
	w := open(t, d)
	w.seed("w", 0)
	ids := []string{"a", "panics", "c"}
	errs := w.together("w", insertTask("w", "a"), func(tx command.Tx) error {
		_ = insertTask("w", "panics")(tx)
		panic("a bug")
	}, insertTask("w", "c"))
	w.checkWhole("w", ids, errs)
	if errs[0] != nil || errs[1] == nil || errs[2] != nil {
		t.Errorf("answers: %v", errs)
	}
	if err := w.Read(t.Context(), func(query.Snapshot) error { panic("a bug") }); err == nil {
		t.Error("a read that panicked answered nil")
	}
	w.must(w.Write(t.Context(), "w", insertTask("w", "later")))
}

func testRefused(t *testing.T, d Database) {
	w := open(t, d)
	w.seed("w", 1)
	refusal := errors.New("refused")
	late := func(id string) func(command.Tx) error {
		return func(tx command.Tx) error {
			if err := errors.Join(insertTask("w", id)(tx)); err != nil {
				return err
			}
			return refusal
		}
	}
	swallowed := func(tx command.Tx) error {
		_ = insertTask("w", taskID(0))(tx) // taken: the statement fails, and the command hides it
		return nil
	}
	ids := []string{"a", "refused", "swallowed", "d"}
	errs := w.together("w", insertTask("w", "a"), late("refused"), swallowed, insertTask("w", "d"))
	if !errors.Is(errs[1], refusal) || errs[2] == nil {
		t.Errorf("answers: %v", errs)
	}
	w.checkWhole("w", ids, errs)
	w.wantErr("alone", w.Write(t.Context(), "w", late("alone")), refusal)
	w.checkWhole("w", []string{"alone"}, []error{refusal})
}

func testNoEntry(t *testing.T, d Database) {
	w := open(t, d)
	w.seed("w", 0)
	silent := func(tx command.Tx) error {
		created := task("w", "silent", 0)
		created.Version = tx.Version()
		return tx.InsertTask(created)
	}
	w.wantErr("a write without an entry", w.Write(t.Context(), "w", silent), store.ErrNoEntry)
	twice := func(tx command.Tx) error {
		return errors.Join(insertTask("w", "twice")(tx), tx.Append(entry("w", "second", "x")))
	}
	w.wantErr("two entries", w.Write(t.Context(), "w", twice), store.ErrWorkspaceBound)
	foreign := func(tx command.Tx) error { return insertTask("v", "foreign")(tx) }
	w.wantErr("a task of another workspace", w.Write(t.Context(), "w", foreign), store.ErrWorkspaceBound)
	w.wantErr("an entry of another workspace", w.Write(t.Context(), "w", func(tx command.Tx) error {
		return tx.Append(entry("v", "foreign", "x"))
	}), store.ErrWorkspaceBound)
	w.wantErr("the row of another workspace", w.Write(t.Context(), "w", func(tx command.Tx) error {
		_, err := tx.AuthorityRow(key("v"))
		return err
	}), store.ErrWorkspaceBound)
	w.wantErr("an update of a task that is not there", w.Write(t.Context(), "w", func(tx command.Tx) error {
		missing := task("w", "missing", 0)
		missing.Version = tx.Version()
		return errors.Join(tx.UpdateTask(missing), tx.Append(entry("w", "m", "m")))
	}), store.ErrWorkspaceBound)
	if n := len(w.entries("w")); n != 1 {
		t.Errorf("the journal has %d entries, want the seed's alone", n)
	}
}

func testOrder(t *testing.T, d Database) {
	w := open(t, d)
	const workspaces, writers, each = 4, 8, 12
	versions := make([][]domain.Version, workspaces)
	var mu sync.Mutex
	var wait sync.WaitGroup
	for i := range workspaces * writers {
		workspace := i % workspaces
		name := fmt.Sprintf("w%d", workspace)
		wait.Go(func() {
			for n := range each {
				var version domain.Version
				err := w.Write(t.Context(), name, func(tx command.Tx) error {
					version = tx.Version()
					return insertTask(name, fmt.Sprintf("%d-%d", i, n))(tx)
				})
				if err != nil {
					t.Errorf("write: %v", err)
					return
				}
				mu.Lock()
				versions[workspace] = append(versions[workspace], version)
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	for i, got := range versions {
		seen := map[domain.Version]bool{}
		for _, v := range got {
			seen[v] = true
		}
		n := len(w.entries(fmt.Sprintf("w%d", i)))
		if n != writers*each || len(seen) != n {
			t.Errorf("workspace %d: %d entries, %d different versions answered, want %d", i, n, len(seen), writers*each)
		}
	}
}

func testReplay(t *testing.T, d Database) {
	w := open(t, d)
	w.seed("w", 2)
	w.grant("w")
	recorder := journal.NewRecorder(w, "process-1", w.clock.Now)
	x := w.executor("w", recorder)
	title := "New title"
	update := command.UpdateTask{TaskID: taskID(0), ExpectedVersion: "1.1", Patch: domain.TaskPatch{Title: &title}}
	first, refusal := x.Run(t.Context(), installation, updateMethod, envelope("w", 1, "key-1"), update)
	if refusal != nil {
		t.Fatal(refusal)
	}
	again, refusal := x.Run(t.Context(), installation, updateMethod, envelope("w", 1, "key-1"), update)
	if refusal != nil {
		t.Fatal(refusal)
	}
	if first.State != contract.StateApplied || again.State != contract.StateAlreadyApplied || again.AuditID == first.AuditID ||
		again.Entry.AuditID != first.AuditID || again.Entry.After != "1.3" || again.Entry.CommandDigest != first.Entry.CommandDigest {
		t.Errorf("first %+v\nagain %+v", first, again)
	}
	if task, ok := again.ReadBack.(command.TaskReadBack); !ok || task.Title != title {
		t.Errorf("the replay reads back %+v", again.ReadBack)
	}
	other := update
	other.TaskID = taskID(1)
	if _, refusal := x.Run(t.Context(), installation, updateMethod, envelope("w", 1, "key-1"), other); refusal == nil || refusal.Reason != contract.ReasonIdempotencyMismatch {
		t.Errorf("another command under the key: %v", refusal)
	}
	// 16 callers with one key: one effect.
	var applied, already atomic.Int32
	var wait sync.WaitGroup
	update.TaskID = taskID(1)
	for range 16 {
		wait.Go(func() {
			result, refusal := x.Run(t.Context(), installation, updateMethod, envelope("w", 1, "key-2"), update)
			switch {
			case refusal != nil:
				t.Error(refusal)
			case result.State == contract.StateApplied:
				applied.Add(1)
			case result.State == contract.StateAlreadyApplied:
				already.Add(1)
			}
		})
	}
	wait.Wait()
	if applied.Load() != 1 || already.Load() != 15 {
		t.Errorf("%d applied, %d replayed, want 1 and 15", applied.Load(), already.Load())
	}
	w.must(recorder.Close(t.Context()))
	if n := len(w.entries("w")); n != 4 { // seed, fence, two updates
		t.Errorf("the journal has %d entries", n)
	}
	chains, err := w.Chains(t.Context())
	w.must(err)
	total := 0
	for _, chain := range chains {
		n, err := journal.VerifyReceipts(t.Context(), w, chain)
		w.must(err)
		total += n
	}
	if total != 17 { // 1 + 15 replays and 1 refusal
		t.Errorf("the receipts' chains %+v hold %d receipts, want 17", chains, total)
	}
	// The restarted store still knows the key, under a new revision.
	w.close()
	w = open(t, d)
	w.grant("w")
	recorder = journal.NewRecorder(w, "process-2", w.clock.Now)
	update.TaskID = taskID(0)
	late, refusal := w.executor("w", recorder).Run(t.Context(), installation, updateMethod, envelope("w", 2, "key-1"), update)
	if refusal != nil || late.State != contract.StateAlreadyApplied || late.Entry.AuditID != first.AuditID || late.Entry.Revision != 1 {
		t.Errorf("after a restart: %+v, %v", late, refusal)
	}
	w.must(recorder.Close(t.Context()))
}

func testSlots(t *testing.T, d Database) {
	w := open(t, d)
	w.seed("w", 3)
	w.must(w.Write(t.Context(), "w", func(tx command.Tx) error {
		holders, err := tx.SlotHolders(step)
		last, err2 := tx.LastPosition(step)
		none, err3 := tx.LastPosition("empty")
		if holders != 3 || last != 2 || none != -1 {
			t.Errorf("%d slot holders, last position %d, of an empty step %d", holders, last, none)
		}
		archived, found, err4 := tx.Task(taskID(2))
		if !found {
			t.Error("the task is not found")
		}
		archived.ArchivedAt, archived.Version = w.clock.Now(), tx.Version()
		if err := errors.Join(err, err2, err3, err4, tx.UpdateTask(archived)); err != nil {
			return err
		}
		if holders, err = tx.SlotHolders(step); holders != 2 {
			t.Errorf("%d slot holders after one was archived", holders)
		}
		created := task("w", "external", 9)
		created.Source, created.ExternalID, created.Version = "plugin:x", "mine", tx.Version()
		return errors.Join(err, tx.InsertTask(created), tx.Append(entry("w", "k", "external")))
	}))
	w.must(w.Write(t.Context(), "w", func(tx command.Tx) error {
		got, found, err := tx.TaskByExternalID("plugin:x", "mine")
		if err != nil || !found || got.ID != "external" {
			t.Errorf("by external ID: %+v, %t, %v", got, found, err)
		}
		_, foreign, err := tx.TaskByExternalID("plugin:y", "mine")
		_, empty, err2 := tx.TaskByExternalID("", "")
		if foreign || empty {
			t.Error("found a task by another's name, or by none")
		}
		flow, found, err3 := tx.Workflow("flow-1")
		if !found || flow.WorkspaceID != "w" || flow.Version != 1 {
			t.Errorf("the workflow is %+v", flow)
		}
		column, found, err4 := tx.WorkflowStep(step)
		if !found || column.WorkflowID != "flow-1" || !column.Start || column.Version != 1 {
			t.Errorf("the step is %+v", column)
		}
		return errors.Join(err, err2, err3, err4)
	}))
}
