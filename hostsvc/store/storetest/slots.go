package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/kandev/plugin-host/hostsvc/board"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/store"
)

// boardAt is the tasks of a workspace, archived ones too, and the moves that wait.
type boardAt struct {
	tasks []domain.Task
	moves []domain.PendingTransition
}

// board is a workspace's as it is.
func (w *world) board(workspace string) boardAt {
	w.t.Helper()
	return w.boards(workspace, query.Latest)[0]
}

// boards are a workspace's from a version on, up to the newest.
func (w *world) boards(workspace string, from domain.Version) (all []boardAt) {
	w.t.Helper()
	w.must(w.Read(w.t.Context(), func(s query.Snapshot) error {
		all = nil
		newest, _, err := s.Head(workspace)
		if err != nil {
			return err
		}
		for asOf := min(from, newest); asOf <= newest; asOf++ {
			tasks, err := s.Tasks(workspace, query.TaskFilter{IncludeEphemeral: true, IncludeArchived: true}, asOf, "", 10_000)
			if err != nil {
				return err
			}
			moves, err := s.PendingTransitions(workspace, "", asOf, "", 10_000)
			if err != nil {
				return err
			}
			all = append(all, boardAt{tasks, moves})
		}
		return nil
	}))
	return all
}

// slotMoveOf is the move that a task is queued for; none where it isn't queued, nil
// where the move isn't pending.
func slotMoveOf(task domain.Task, moves []domain.PendingTransition) (move *domain.PendingTransition, queued bool) {
	if _, queued = task.SlotMove(); !queued {
		return nil, false
	}
	for i := range moves {
		if moves[i].Takes(task) {
			return &moves[i], true
		}
	}
	return nil, true
}

// checkSlotMoves checks every version behind one: a task is queued for another step if
// and only if exactly one slot move of it is pending, and whoever was promoted had one
// that had not expired.
func (w *world) checkSlotMoves(fail func(string, ...any), workspace string, behind domain.Version) (checked domain.Version) {
	w.t.Helper()
	entries, err := w.Entries(w.t.Context(), workspace, behind, 10_000)
	w.must(err)
	if len(entries) == 0 {
		return behind
	}
	boards := w.boards(workspace, behind)
	for i, e := range entries {
		before, now := boards[i], boards[i+1]
		slots, queued := 0, 0
		for _, move := range now.moves {
			if move.Predicate == domain.PredicateSlot {
				slots++
			}
		}
		for _, task := range now.tasks {
			move, waits := slotMoveOf(task, now.moves)
			switch {
			case !waits:
			case move == nil:
				fail("as of %d, task %s stands in %s and is queued for %s, and no move is pending", e.Version, task.ID, task.WorkflowStepID, task.QueuedForStepID)
			case !move.QueuedAt.Equal(task.QueuedAt):
				fail("as of %d, task %s is queued since %s, its move since %s", e.Version, task.ID, task.QueuedAt, move.QueuedAt)
			default:
				queued++
			}
		}
		if slots != queued {
			fail("as of %d, %d slot moves are pending for %d queued tasks: %+v", e.Version, slots, queued, now.moves)
		}
		if e.EventType == board.EventQueuePromoted {
			of := slices.IndexFunc(before.tasks, func(t domain.Task) bool { return t.ID == e.TargetID })
			if move, waited := slotMoveOf(before.tasks[of], before.moves); waited && (move == nil || move.Expired(e.At)) {
				fail("as of %d, task %s is promoted by the move %+v", e.Version, e.TargetID, move)
			}
		}
	}
	return entries[len(entries)-1].Version
}

// expire gives a move that waits an end.
func (w *world) expire(workspace string, move domain.PendingTransition, at time.Time) error {
	return w.Board(context.Background(), workspace, func(tx board.SweepTx) error {
		p, found, err := tx.PendingTransition(move.ID)
		if err != nil || !found {
			return errors.Join(err, fmt.Errorf("move %s is there: %t", move.ID, found))
		}
		err = tx.DeletePendingTransition(p)
		p.ExpiresAt, p.Version = at, tx.Version()
		return errors.Join(err, tx.InsertPendingTransition(p), tx.Append(entry(workspace, uuid.NewString(), p.ID)))
	})
}

// within is a store with the pending moves of one workspace: those of the others would
// be looked at again and again.
type within struct {
	*store.Store

	workspace string
}

// AllPendingTransitions implements board.Store.
func (s within) AllPendingTransitions(ctx context.Context, fn func(domain.PendingTransition) error) error {
	return s.Store.AllPendingTransitions(ctx, func(p domain.PendingTransition) error {
		if p.WorkspaceID != s.workspace {
			return nil
		}
		return fn(p)
	})
}

// C2: that a task is queued and that its move is pending is one fact, at every version,
// after any sequence of moves, expiries, sweeps, promotions, imports and deletions.
func testSlotMoves(t *testing.T, d Database) {
	w := open(t, d)
	host := w.v1()
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		workspace := fmt.Sprintf("w%d", round)
		w.seedBoard(workspace, 1, int32(rapid.IntRange(2, 3).Draw(rt, "feeder limit")))
		steps := []string{workspace + "-ready", workspace + "-work", workspace + "-review", workspace + "-done"}
		sweeper := &board.Sweeper{Store: within{w.Store, workspace}, Now: w.clock.Now, NewAuditID: uuid.NewString}
		checked, made := domain.Version(0), 0
		step := func(what string, do func() error) {
			w.clock.advance(time.Second)
			if err := do(); err != nil {
				rt.Fatalf("%s: %v", what, err)
			}
			checked = w.checkSlotMoves(func(format string, args ...any) { rt.Fatalf(what+": "+format, args...) }, workspace, checked)
		}
		pick := func(rt *rapid.T) (task domain.Task, ok bool) {
			tasks := w.board(workspace).tasks
			if len(tasks) == 0 {
				return task, false
			}
			return rapid.SampledFrom(tasks).Draw(rt, "task"), true
		}
		create := func(rt *rapid.T) {
			to := rapid.SampledFrom(steps).Draw(rt, "step")
			step("create in "+to, func() error {
				_, err := host.CreateTask(context.Background(), plugin, legacy.NewTask{
					Title: "t", WorkspaceID: workspace, WorkflowID: workspace + "-flow", WorkflowStepID: to,
				})
				if failure := (*legacy.Failure)(nil); errors.As(err, &failure) && failure.Text == "workflow step WIP limit exceeded" {
					return nil
				}
				return err
			})
		}
		rt.Repeat(map[string]func(*rapid.T){
			"create": create, "create too": create,
			"move": func(rt *rapid.T) {
				if task, ok := pick(rt); ok {
					to := rapid.SampledFrom(steps).Draw(rt, "to")
					step("move to "+to, func() error {
						_, err := host.MoveTask(context.Background(), plugin, legacy.TaskMove{TaskID: task.ID, WorkflowStepID: to})
						return err
					})
				}
			},
			"remove": func(rt *rapid.T) {
				if task, ok := pick(rt); ok && task.Source == domain.PluginSource(plugin.PluginID) {
					step("remove", func() error {
						_, err := host.DeletePluginOwnedTaskTree(context.Background(), plugin, task.ID)
						return err
					})
				}
			},
			"expire": func(rt *rapid.T) {
				moves := w.board(workspace).moves
				if len(moves) > 0 {
					move := rapid.SampledFrom(moves).Draw(rt, "move")
					after := time.Duration(rapid.IntRange(0, 5).Draw(rt, "after")) * time.Second
					step("expire", func() error { return w.expire(workspace, move, w.clock.Now().Add(after)) })
				}
			},
			"sweep": func(*rapid.T) {
				step("sweep", func() error {
					_, err := sweeper.Sweep(context.Background())
					return err
				})
				moves := w.board(workspace).moves
				if i := slices.IndexFunc(moves, func(p domain.PendingTransition) bool { return p.Expired(w.clock.Now()) }); i >= 0 {
					rt.Fatalf("the sweep leaves %+v", moves[i])
				}
			},
			"promote": func(*rapid.T) {
				step("promote", func() error {
					return w.Board(context.Background(), workspace, func(tx board.SweepTx) error {
						return errors.Join(tx.Append(entry(workspace, uuid.NewString(), "nothing")), board.Promote(tx, steps, board.Mover{
							Now: w.clock.Now(), NewID: uuid.NewString, NewAuditID: uuid.NewString,
						}))
					})
				})
			},
			"import": func(rt *rapid.T) {
				made++
				id, own := fmt.Sprintf("%s-imported-%d", workspace, made), rapid.Bool().Draw(rt, "own move")
				step("import", func() error {
					return w.Seed(context.Background(), workspace, func(tx store.SeedTx) error {
						err := tx.Task(domain.Task{
							ID: id, WorkflowID: workspace + "-flow", WorkflowStepID: steps[0], WIPAdmitted: true,
							QueuedForStepID: steps[1], QueuedAt: w.clock.Now(), CreatedAt: w.clock.Now(), UpdatedAt: w.clock.Now(),
						})
						if own {
							err = errors.Join(err, tx.PendingTransition(domain.PendingTransition{
								ID: "move-of-" + id, TaskID: id, FromStepID: steps[0], ToStepID: steps[1], Predicate: domain.PredicateSlot,
								ExpiresAt: w.clock.Now().Add(2 * time.Second),
							}))
						}
						return err
					})
				})
			},
		})
	})
}

// A move for a slot that has expired is applied by nobody: not by the promotion that
// comes before the sweep, and not by one behind it.
func testExpiredSlotMove(t *testing.T, d Database) {
	for _, swept := range []bool{true, false} {
		t.Run(fmt.Sprintf("swept %t", swept), func(t *testing.T) {
			w := open(t, d)
			ws := fmt.Sprintf("expired-%t", swept)
			w.seedBoard(ws, 1, 3)
			host := w.v1()
			create := func() string {
				t.Helper()
				w.clock.advance(time.Second)
				task, err := host.CreateTask(t.Context(), plugin, legacy.NewTask{Title: "t", WorkspaceID: ws, WorkflowID: ws + "-flow", WorkflowStepID: ws + "-work"})
				w.must(err)
				return task.ID
			}
			holder, expires, next := create(), create(), create()
			moves := w.board(ws).moves
			if len(moves) != 2 || moves[0].TaskID != expires {
				t.Fatalf("pending are %+v", moves)
			}
			w.must(w.expire(ws, moves[0], w.clock.Now().Add(time.Second)))
			w.clock.advance(time.Second)
			waiting, _ := w.readTask(ws, expires)
			before := len(w.entries(ws))
			if swept {
				removed, err := (&board.Sweeper{Store: w, Now: w.clock.Now, NewAuditID: uuid.NewString}).Sweep(t.Context())
				if err != nil || removed != 1 {
					t.Errorf("swept %d, %v", removed, err)
				}
			}
			if _, err := host.MoveTask(t.Context(), plugin, legacy.TaskMove{TaskID: holder, WorkflowStepID: ws + "-done"}); err != nil {
				t.Fatal(err)
			}
			stays, _ := w.readTask(ws, expires)
			if stays.WorkflowStepID != ws+"-ready" || !stays.WIPAdmitted || stays.QueuedForStepID != "" || !stays.QueuedAt.IsZero() || stays.Position != waiting.Position {
				t.Errorf("whose move has expired is %+v", stays)
			}
			if got, _ := w.readTask(ws, next); got.WorkflowStepID != ws+"-work" || !got.WIPAdmitted || got.QueuedForStepID != "" {
				t.Errorf("who waits behind it is %+v", got)
			}
			ended := []string{
				"system " + board.EventTransitionEnded + " " + moves[0].ID, "system task.updated " + expires,
			}
			want := append([]string{"command task.moved " + holder}, ended...)
			if swept {
				want = append(slices.Clone(ended), "command task.moved "+holder)
			}
			want = append(want, "system "+board.EventQueuePromoted+" "+next)
			var told []string
			for _, e := range w.entries(ws)[before:] {
				told = append(told, fmt.Sprintf("%s %s %s", e.Kind, e.EventType, e.TargetID))
				if e.Kind == journal.KindSystem && (e.AuditID == "" || e.Before == "" || e.InstallationID != "") {
					t.Errorf("the entry is %+v", e)
				}
				if e.EventType == "task.updated" && (e.Before != domain.ResourceVersion(1, waiting.Version) || e.After != domain.ResourceVersion(1, stays.Version)) {
					t.Errorf("the task went from %s to %s, says %+v", domain.ResourceVersion(1, waiting.Version), domain.ResourceVersion(1, stays.Version), e)
				}
			}
			if !slices.Equal(told, want) {
				t.Errorf("the journal tells\n%q, want\n%q", told, want)
			}
			w.checkSlotMoves(t.Errorf, ws, 0)
		})
	}
}

// A task that gets the slot of the step where it stands has moved nowhere: the move
// that waits for the end of its agent's turn still does.
func testPromotionInPlaceKeepsMoves(t *testing.T, d Database) {
	w := open(t, d)
	w.seedBoard("w", 1, 1)
	host := w.v1()
	holder, waits := w.createIn(host, "w-review"), w.createIn(host, "w-review")
	w.must(w.Board(t.Context(), "w", func(tx board.SweepTx) error {
		return errors.Join(tx.InsertPendingTransition(domain.PendingTransition{
			ID: "at-turn-end", WorkspaceID: "w", TaskID: waits, SessionID: "s", FromStepID: "w-review", ToStepID: "w-done",
			Predicate: domain.PredicateTurnEnd, QueuedAt: w.clock.Now(), Version: tx.Version(),
		}), tx.Append(entry("w", "", waits)))
	}))
	_, err := host.MoveTask(t.Context(), plugin, legacy.TaskMove{TaskID: holder, WorkflowStepID: "w-done"})
	w.must(err)
	now := w.board("w")
	tasks, moves := now.tasks, now.moves
	at := slices.IndexFunc(tasks, func(task domain.Task) bool { return task.ID == waits })
	if !tasks[at].WIPAdmitted || tasks[at].QueuedForStepID != "" || len(moves) != 1 || moves[0].ID != "at-turn-end" {
		t.Errorf("the promoted task is %+v, and pending are %+v", tasks[at], moves)
	}
}

// What an import says of a queue is one fact too: a queued task has its move, and no
// move waits for a slot without a queued task.
func testSeedSlotMoves(t *testing.T, d Database) {
	w := open(t, d)
	w.seedBoard("w", 1, 3)
	queued := domain.Task{
		ID: "queued", WorkflowID: "w-flow", WorkflowStepID: "w-ready", WIPAdmitted: true, QueuedForStepID: "w-work", QueuedAt: at(5),
		CreatedAt: at(1), UpdatedAt: at(1),
	}
	here, archived := queued, queued
	here.ID, here.WorkflowStepID, here.WIPAdmitted = "here", "w-work", false
	archived.ID, archived.ArchivedAt = "archived", at(6)
	w.must(w.Seed(t.Context(), "w", func(tx store.SeedTx) error {
		return errors.Join(tx.Task(queued), tx.Task(here), tx.Task(archived))
	}))
	moves := w.board("w").moves
	if len(moves) != 1 || !moves[0].Takes(queued) || moves[0].ID != "queued" || moves[0].ToWorkflowID != "w-flow" || !moves[0].QueuedAt.Equal(at(5)) ||
		moves[0].Actor != domain.ActorSystem || !moves[0].ExpiresAt.IsZero() {
		t.Errorf("pending are %+v", moves)
	}
	move := domain.PendingTransition{
		ID: "its-own", TaskID: "queued", FromStepID: "w-ready", ToStepID: "w-work", Predicate: domain.PredicateSlot, Requester: "ada", ExpiresAt: at(99),
	}
	for name, change := range map[string]func(*domain.PendingTransition){
		"of no task":                func(p *domain.PendingTransition) { p.TaskID = "nothing" },
		"of a task that isn't":      func(p *domain.PendingTransition) { p.TaskID = "archived" },
		"of one that waits in it":   func(p *domain.PendingTransition) { p.TaskID, p.FromStepID = "here", "w-work" },
		"to another step":           func(p *domain.PendingTransition) { p.ToStepID = "w-done" },
		"from another step":         func(p *domain.PendingTransition) { p.FromStepID = "w-done" },
		"of a task of another name": func(p *domain.PendingTransition) { p.TaskID = "" },
	} {
		wrong := move
		change(&wrong)
		if err := w.Seed(t.Context(), "w", func(tx store.SeedTx) error { return tx.PendingTransition(wrong) }); !errors.Is(err, store.ErrNotQueued) {
			t.Errorf("a slot move %s: %v", name, err)
		}
	}
	w.must(w.Seed(t.Context(), "w", func(tx store.SeedTx) error { return tx.PendingTransition(move) }))
	if moves := w.board("w").moves; len(moves) != 1 || moves[0].ID != "its-own" || moves[0].Requester != "ada" || !moves[0].QueuedAt.Equal(at(5)) {
		t.Errorf("pending are %+v", moves)
	}
	w.checkSlotMoves(t.Errorf, "w", 0)
}
