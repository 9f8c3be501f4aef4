package board

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// Tx is what moves need of a write transaction, under the workspace's lock and bound
// to the workspace.
type Tx interface {
	// Version is the version that the running command, or what follows it, commits.
	Version() domain.Version
	// StoreEpoch is part of every resource version.
	StoreEpoch() uint64
	// Append adds an entry to the workspace's chain. The store assigns Version and
	// the hashes.
	Append(entry journal.Entry) error
	// FollowUp begins what the command that has appended its entry brings about: it
	// commits with the command, at the next version and with an entry of its own.
	FollowUp() error

	UpdateTask(task domain.Task) error
	WorkflowStep(id string) (step domain.WorkflowStep, found bool, err error)
	// SlotHolders counts the tasks that hold a slot of a step.
	SlotHolders(stepID string) (int, error)
	// LastPosition is the highest position among a step's tasks, -1 for none.
	LastPosition(stepID string) (int32, error)
	// QueuedTasks lists the tasks that wait for a slot of a step, those that wait
	// longest first, at most limit.
	QueuedTasks(stepID string, limit int) ([]domain.Task, error)
	// Dependents lists the tasks that wait for a task, by ID.
	Dependents(taskID string) ([]domain.Task, error)
	// Predecessors returns what each of the tasks waits for, by the task's ID: of each
	// predecessor that is there, State and whether ArchivedAt is zero, alike ones once.
	Predecessors(taskIDs []string) (map[string][]domain.Task, error)

	PendingTransitions(taskID string) ([]domain.PendingTransition, error)
	InsertPendingTransition(pending domain.PendingTransition) error
	DeletePendingTransition(pending domain.PendingTransition) error
	AppendStepTransition(transition domain.StepTransition) error
}

// The outbox events of what the board does by itself.
const (
	// EventQueuePromoted: a task got the slot that it waited for.
	EventQueuePromoted = "task.queue_promoted"
	// EventTransitionEnded: a move will not be applied any more.
	EventTransitionEnded = "task_transition.cancelled"

	eventTaskUpdated = "task.updated"
)

// ErrStepFull says that the step has a task at the last position there is.
var ErrStepFull = errors.New("the step has a task at the last position there is")

// Mover is who moves, and when.
type Mover struct {
	Trigger domain.TransitionTrigger
	Actor   domain.Actor
	// Requester is the mover's name, for moves that wait.
	Requester string
	Now       time.Time
	NewID     func() string
	// NewAuditID returns a random audit ID.
	NewAuditID func() string
}

// Load is a step with the number of tasks that hold its slots.
func Load(tx Tx, step domain.WorkflowStep) (domain.StepLoad, error) {
	if step.WIPLimit == 0 {
		return domain.StepLoad{Step: step}, nil // counting takes longer the more tasks the step has
	}
	holders, err := tx.SlotHolders(step.ID)
	if err != nil {
		return domain.StepLoad{}, fmt.Errorf("count the slots of step %s: %w", step.ID, err)
	}
	return domain.StepLoad{Step: step, Holders: holders}, nil
}

// Next is the position of an arrival at a step: the last.
func Next(tx Tx, stepID string) (int32, error) {
	last, err := tx.LastPosition(stepID)
	switch {
	case err != nil:
		return 0, fmt.Errorf("find the last position of step %s: %w", stepID, err)
	case last == math.MaxInt32:
		return 0, ErrStepFull
	default:
		return last + 1, nil
	}
}

// Created records where a task that was just inserted stands.
func Created(tx Tx, task domain.Task, by Mover) error {
	if task.WorkflowStepID == "" {
		return nil
	}
	if err := record(tx, domain.Task{}, task, by); err != nil {
		return err
	}
	return wait(tx, task, by)
}

// Move puts a task into a step, behind all that stand there. arrived is false for
// the step where it stands already, which changes nothing. The slots that it frees
// are given on by Promote, once the command has appended its entry.
func Move(tx Tx, task domain.Task, target domain.WorkflowStep, by Mover) (moved domain.Task, arrived bool, err error) {
	load, err := Load(tx, target)
	if err != nil {
		return task, false, err
	}
	placement, arrives := domain.PlaceMove(task, load)
	if !arrives {
		return task, false, nil
	}
	position, err := Next(tx, target.ID)
	if err != nil {
		return task, false, err
	}
	moved = task.Moved(target, placement, position, by.Now)
	moved.Version = tx.Version()
	if err := settle(tx, task, moved, by); err != nil {
		return task, false, err
	}
	return moved, true, nil
}

// MoveLater makes a move wait for the end of the turn that runs in its session, in
// the place of the one that waits there already: a session has one. The command
// appends the entry.
func MoveLater(tx Tx, pending domain.PendingTransition) error {
	waiting, err := tx.PendingTransitions(pending.TaskID)
	if err != nil {
		return fmt.Errorf("list the pending transitions of task %s: %w", pending.TaskID, err)
	}
	for _, p := range waiting {
		if p.SessionID != pending.SessionID {
			continue
		}
		if err := tx.DeletePendingTransition(p); err != nil {
			return fmt.Errorf("end pending transition %s: %w", p.ID, err)
		}
	}
	if err := tx.InsertPendingTransition(pending); err != nil {
		return fmt.Errorf("make the move of task %s pending: %w", pending.TaskID, err)
	}
	return nil
}

// Gone ends what waits of a task that is about to be deleted, and records that it
// left the board.
func Gone(tx Tx, task domain.Task, by Mover) error {
	if err := endWaits(tx, task.ID); err != nil {
		return err
	}
	if task.WorkflowStepID == "" {
		return nil
	}
	return record(tx, task, domain.Task{ID: task.ID, WorkspaceID: task.WorkspaceID}, by)
}

// Freed are the steps that may have a slot to give since the task was as before.
func Freed(before, after domain.Task) []string {
	if !before.HoldsSlot() || before.WorkflowStepID == "" || after.HoldsSlot() && after.WorkflowStepID == before.WorkflowStepID {
		return nil
	}
	return []string{before.WorkflowStepID}
}

// settle writes a task that has moved, ends the moves of it that wait, which began
// where it no longer stands, and adds to the ledger. One that got the slot of the
// step where it stands has moved nowhere, and its moves wait on.
func settle(tx Tx, before, after domain.Task, by Mover) error {
	if err := tx.UpdateTask(after); err != nil {
		return fmt.Errorf("update task %s: %w", after.ID, err)
	}
	if before.WorkflowStepID == after.WorkflowStepID {
		return nil
	}
	if err := endWaits(tx, after.ID); err != nil {
		return err
	}
	if err := record(tx, before, after, by); err != nil {
		return err
	}
	return wait(tx, after, by)
}

// endWaits ends the moves of a task that wait.
func endWaits(tx Tx, taskID string) error {
	pending, err := tx.PendingTransitions(taskID)
	if err != nil {
		return fmt.Errorf("list the pending transitions of task %s: %w", taskID, err)
	}
	for _, p := range pending {
		if err := tx.DeletePendingTransition(p); err != nil {
			return fmt.Errorf("end pending transition %s: %w", p.ID, err)
		}
	}
	return nil
}

func record(tx Tx, before, after domain.Task, by Mover) error {
	err := tx.AppendStepTransition(domain.StepTransition{
		WorkspaceID: after.WorkspaceID, TaskID: after.ID, FromWorkflowID: before.WorkflowID, FromStepID: before.WorkflowStepID,
		ToWorkflowID: after.WorkflowID, ToStepID: after.WorkflowStepID, Trigger: by.Trigger, Actor: by.Actor,
		OccurredAt: by.Now, Version: tx.Version(),
	})
	if err != nil {
		return fmt.Errorf("record the move of task %s: %w", after.ID, err)
	}
	return nil
}

// wait makes the move pending that a task in a feeder is queued for.
func wait(tx Tx, task domain.Task, by Mover) error {
	move, queued := task.SlotMove()
	if !queued {
		return nil
	}
	move.ID, move.Actor, move.Requester, move.Version = by.NewID(), by.Actor, by.Requester, tx.Version()
	if err := tx.InsertPendingTransition(move); err != nil {
		return fmt.Errorf("make the move of task %s pending: %w", task.ID, err)
	}
	return nil
}

// Promote gives the free slots of steps to the tasks that wait longest for them, in
// the transaction that freed them, so that nobody comes between. Each promotion is a
// commit of the Host's own behind the command's. A task that leaves a feeder frees a
// slot there. One whose move has expired leaves the queue instead.
func Promote(tx Tx, stepIDs []string, by Mover) error {
	by.Trigger, by.Actor, by.Requester = domain.TriggerQueuePromotion, domain.ActorSystem, ""
	for len(stepIDs) > 0 {
		step, found, err := tx.WorkflowStep(stepIDs[0])
		if err != nil {
			return fmt.Errorf("read step %s: %w", stepIDs[0], err)
		}
		if !found {
			stepIDs = stepIDs[1:]
			continue
		}
		freed, again, err := promote(tx, step, by)
		if err != nil {
			return fmt.Errorf("promote into step %s: %w", step.ID, err)
		}
		if !again {
			stepIDs = stepIDs[1:]
		}
		stepIDs = append(stepIDs, freed...)
	}
	return nil
}

// promote gives one slot of a step, or takes one task out of its queue. again: there
// may be more to do.
func promote(tx Tx, step domain.WorkflowStep, by Mover) (freed []string, again bool, err error) {
	queued, err := tx.QueuedTasks(step.ID, 1)
	if err != nil || len(queued) == 0 {
		return nil, false, err
	}
	load, err := Load(tx, step)
	if err != nil {
		return nil, false, err
	}
	next, ok := domain.NextPromotion(load, queued)
	if !ok {
		return nil, false, nil
	}
	if stands, over, err := moveOf(tx, next, by.Now); err != nil || !stands {
		if err != nil {
			return nil, false, err
		}
		if err := tx.FollowUp(); err != nil {
			return nil, false, err
		}
		return nil, true, leave(tx, next, over, causeExpired, by)
	}
	position := next.Position
	if next.WorkflowStepID != step.ID {
		if position, err = Next(tx, step.ID); err != nil {
			return nil, false, err
		}
	}
	if err := tx.FollowUp(); err != nil {
		return nil, false, err
	}
	after := next.Promoted(step, position, by.Now)
	after.Version = tx.Version()
	if err := settle(tx, next, after, by); err != nil {
		return nil, false, err
	}
	err = tell(tx, by, journal.Entry{
		WorkspaceID: after.WorkspaceID, TargetID: after.ID, Before: domain.ResourceVersion(tx.StoreEpoch(), next.Version),
		After: domain.ResourceVersion(tx.StoreEpoch(), after.Version), EventType: EventQueuePromoted,
	}, domain.NewTaskMovedPayload(&next, &after, true))
	return Freed(next, after), true, err
}

// moveOf tells whether the move that a task is queued for may be applied: it is
// pending, and has not expired. over is the one that has, nil for none. A task that
// waits in the step itself moves nowhere.
func moveOf(tx Tx, task domain.Task, now time.Time) (stands bool, over *domain.PendingTransition, err error) {
	if _, queued := task.SlotMove(); !queued {
		return true, nil, nil
	}
	pending, err := tx.PendingTransitions(task.ID)
	if err != nil {
		return false, nil, fmt.Errorf("list the pending transitions of task %s: %w", task.ID, err)
	}
	for i, p := range pending {
		switch {
		case !p.Takes(task):
		case p.Expired(now):
			over = &pending[i]
		default:
			return true, nil, nil
		}
	}
	return false, over, nil
}

// The causes of a move's end without being applied.
const (
	causeExpired  = "expired"
	causeOrphaned = "orphaned"
)

// leave takes a task out of the queue that it waits in, together with the move that
// it waited to make; nil where that is gone already.
func leave(tx Tx, task domain.Task, move *domain.PendingTransition, cause string, by Mover) error {
	after := task.Unqueued(by.Now)
	after.Version = tx.Version()
	if err := tx.UpdateTask(after); err != nil {
		return fmt.Errorf("take task %s out of its queue: %w", task.ID, err)
	}
	if move != nil {
		if err := end(tx, *move, cause, by); err != nil {
			return err
		}
		// The commit has told of the move's end. Of the task it tells behind that.
		if err := tx.FollowUp(); err != nil {
			return err
		}
	}
	return tell(tx, by, journal.Entry{
		WorkspaceID: task.WorkspaceID, TargetID: task.ID, Before: domain.ResourceVersion(tx.StoreEpoch(), task.Version),
		After: domain.ResourceVersion(tx.StoreEpoch(), after.Version), EventType: eventTaskUpdated,
	}, domain.ChangedTaskPayload(&task, &after))
}

// end removes a move that will not be applied any more.
func end(tx Tx, p domain.PendingTransition, cause string, by Mover) error {
	if err := tx.DeletePendingTransition(p); err != nil {
		return fmt.Errorf("end pending transition %s: %w", p.ID, err)
	}
	return tell(tx, by, journal.Entry{
		WorkspaceID: p.WorkspaceID, TargetID: p.ID, Before: domain.ResourceVersion(tx.StoreEpoch(), p.Version),
		EventType: EventTransitionEnded,
	}, map[string]string{"transition_id": p.ID, "task_id": p.TaskID, "cause": cause})
}

// tell appends an entry of what the Host did by itself.
func tell(tx Tx, by Mover, entry journal.Entry, payload any) error {
	event, err := journal.EncodeEvent(payload)
	if err != nil {
		return fmt.Errorf("%s: %w", entry.EventType, err)
	}
	entry.Kind, entry.AuditID, entry.Result, entry.Event, entry.At = journal.KindSystem, by.NewAuditID(), contract.StateApplied, event, by.Now
	if err := tx.Append(entry); err != nil {
		return fmt.Errorf("append the entry of %s: %w", entry.EventType, err)
	}
	return nil
}
