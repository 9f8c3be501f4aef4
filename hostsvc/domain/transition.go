package domain

import "time"

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
