package domain

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// TransitionPredicate is what a pending transition waits for.
type TransitionPredicate string

// The transition predicates.
const (
	// PredicateTurnEnd: the end of the turn that runs in the transition's
	// session.
	PredicateTurnEnd TransitionPredicate = "turn_end"
	// PredicateSlot: a free slot of the target step.
	PredicateSlot TransitionPredicate = "wip_slot"
)

// TransitionPending is the only state of a pending transition: one that was
// applied, cancelled or swept is gone.
const TransitionPending = "pending"

// PendingTransition is a move of a task that was asked for and waits for its
// predicate. A session has at most one.
type PendingTransition struct {
	ID          string
	WorkspaceID string
	TaskID      string
	// SessionID is the session whose turn's end is waited for, "" with another
	// predicate.
	SessionID      string
	FromWorkflowID string
	FromStepID     string
	ToWorkflowID   string
	ToStepID       string
	Position       int32
	Predicate      TransitionPredicate
	// Requester asked for the move, Actor says what kind of requester it is.
	Actor           Actor
	Requester       string
	SenderSessionID string
	QueuedAt        time.Time
	// ExpiresAt is when it is swept unapplied; zero is never.
	ExpiresAt time.Time
	Version   Version
}

// TransitionTrigger is what moved a task.
type TransitionTrigger string

// The transition triggers (domain facts, section 7).
const (
	TriggerManual              TransitionTrigger = "manual"
	TriggerAutoComplete        TransitionTrigger = "auto_complete"
	TriggerApproval            TransitionTrigger = "approval"
	TriggerOnTurnStart         TransitionTrigger = "on_turn_start"
	TriggerOnChildrenCompleted TransitionTrigger = "on_children_completed"
	TriggerTaskUpdate          TransitionTrigger = "task_update"
	TriggerQueuePromotion      TransitionTrigger = "queue_promotion"
)

// Actor is the kind of who moved a task.
type Actor string

// The actors.
const (
	ActorHuman  Actor = "human"
	ActorAgent  Actor = "agent"
	ActorSystem Actor = "system"
)

// StepTransition is one row of the ledger of moves. The row of a task's
// creation has no "from", that of its deletion no "to".
type StepTransition struct {
	// ID is the row's number in the ledger, rising in the order of the moves.
	ID             int64
	WorkspaceID    string
	TaskID         string
	FromWorkflowID string
	FromStepID     string
	ToWorkflowID   string
	ToStepID       string
	Trigger        TransitionTrigger
	Actor          Actor
	OccurredAt     time.Time
	Version        Version
}

var triggers = []TransitionTrigger{
	TriggerManual, TriggerAutoComplete, TriggerApproval, TriggerOnTurnStart, TriggerOnChildrenCompleted,
	TriggerTaskUpdate, TriggerQueuePromotion,
}

// Known tells whether it is a trigger at all.
func (t TransitionTrigger) Known() bool { return slices.Contains(triggers, t) }

// Known tells whether it is a kind of actor at all.
func (a Actor) Known() bool { return a == ActorHuman || a == ActorAgent || a == ActorSystem }

// Known tells whether it is a predicate at all.
func (p TransitionPredicate) Known() bool { return p == PredicateTurnEnd || p == PredicateSlot }

// Expired tells whether the transition may not be applied any more.
func (p PendingTransition) Expired(now time.Time) bool {
	return !p.ExpiresAt.IsZero() && !now.Before(p.ExpiresAt)
}

// Orphaned tells whether the transition can't be applied any more: its task is
// gone, archived or no longer where the move begins, its target step is gone, the
// session whose turn's end it waits for is gone or over, or the task is not queued
// for the slot that it waits for. nil is what is gone.
func (p PendingTransition) Orphaned(task *Task, session *Session, target *WorkflowStep) bool {
	if task == nil || target == nil || !task.ArchivedAt.IsZero() || task.WorkflowStepID != p.FromStepID {
		return true
	}
	if p.Predicate == PredicateSlot {
		return !p.Takes(*task)
	}
	return session == nil || session.State.Terminal()
}

// SlotMove is the move that the task is queued for: into the step whose slot it waits
// for, out of another one. Its ID, its requester and its version are the caller's.
// queued is false where there is none: a task that waits in the step itself has
// moved already, and one that is archived or ephemeral waits for nothing.
//
// That a task is queued for another step, and that its slot move is pending, is one
// fact: both are written, and both end, in one commit.
func (t Task) SlotMove() (move PendingTransition, queued bool) {
	if t.QueuedForStepID == "" || t.QueuedForStepID == t.WorkflowStepID || t.Ephemeral || !t.ArchivedAt.IsZero() {
		return PendingTransition{}, false
	}
	return PendingTransition{
		WorkspaceID: t.WorkspaceID, TaskID: t.ID, FromWorkflowID: t.WorkflowID, FromStepID: t.WorkflowStepID,
		ToWorkflowID: t.WorkflowID, ToStepID: t.QueuedForStepID, Predicate: PredicateSlot, QueuedAt: t.QueuedAt,
	}, true
}

// Takes tells whether the transition is the slot move that the task is queued for.
func (p PendingTransition) Takes(t Task) bool {
	move, queued := t.SlotMove()
	return queued && p.Predicate == PredicateSlot && p.TaskID == move.TaskID && p.FromStepID == move.FromStepID && p.ToStepID == move.ToStepID
}

// Unqueued returns the task as it waits for no slot any more. It stays where it stands.
func (t Task) Unqueued(now time.Time) Task {
	t.QueuedForStepID, t.QueuedAt, t.UpdatedAt = "", time.Time{}, now
	return t
}

// originAutomation is the origin of tasks that automations create.
const originAutomation = "automation"

// HoldsSlot tells whether the task takes one of the slots of its step (domain
// facts, section 8).
func (t Task) HoldsSlot() bool {
	return t.WIPAdmitted && t.ArchivedAt.IsZero() && !t.Ephemeral && t.Origin != originAutomation
}

// PlaceMove decides how a task stands in the step that it is moved to: it is
// placed there in any case, and where the step is full it waits there for a
// slot. arrives is false for the step where it stands already, which changes
// nothing.
func PlaceMove(t Task, target StepLoad) (p Placement, arrives bool) {
	switch {
	case t.WorkflowStepID == target.Step.ID:
		return Placement{StepID: t.WorkflowStepID, Admitted: t.WIPAdmitted, QueuedForStepID: t.QueuedForStepID}, false
	case t.Ephemeral:
		return Placement{StepID: target.Step.ID}, true
	case target.full():
		return Placement{StepID: target.Step.ID, QueuedForStepID: target.Step.ID}, true
	default:
		return Placement{StepID: target.Step.ID, Admitted: true}, true
	}
}

// Moved returns the task as it arrives at a step, last at position.
func (t Task) Moved(step WorkflowStep, p Placement, position int32, now time.Time) Task {
	t.WorkflowID, t.WorkflowStepID, t.Position = step.WorkflowID, p.StepID, position
	t.WIPAdmitted, t.QueuedForStepID, t.QueuedAt = p.Admitted, p.QueuedForStepID, time.Time{}
	if p.QueuedForStepID != "" {
		t.QueuedAt = now
	}
	t.UpdatedAt = now
	return t
}

// NextPromotion returns the task that gets a slot of the step: of those in tasks
// that are queued for it the one that waits longest. ok is false where none
// waits or the step is full.
func NextPromotion(step StepLoad, tasks []Task) (next Task, ok bool) {
	if step.full() {
		return Task{}, false
	}
	waits := func(t Task) bool {
		return t.QueuedForStepID == step.Step.ID && t.ArchivedAt.IsZero() && !t.Ephemeral
	}
	for _, t := range tasks {
		if waits(t) && (!ok || cmp.Or(t.QueuedAt.Compare(next.QueuedAt), strings.Compare(t.ID, next.ID)) < 0) {
			next, ok = t, true
		}
	}
	return next, ok
}

// Promoted returns the task with a slot of the step that it was queued for. One
// that waited elsewhere arrives there, last at position; one that waited in the
// step keeps its place.
func (t Task) Promoted(step WorkflowStep, position int32, now time.Time) Task {
	if t.WorkflowStepID == step.ID {
		position = t.Position
	}
	return t.Moved(step, Placement{StepID: step.ID, Admitted: true}, position, now)
}
