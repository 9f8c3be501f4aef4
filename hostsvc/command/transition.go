package command

import "github.com/kandev/plugin-host/hostsvc/domain"

// TransitionTx is what a transaction offers of moves that wait and of those that
// happened.
type TransitionTx interface {
	// PendingTransitions lists the moves of a task that wait, oldest first.
	PendingTransitions(taskID string) ([]domain.PendingTransition, error)
	PendingTransition(id string) (pending domain.PendingTransition, found bool, err error)
	// InsertPendingTransition adds a move at the transaction's version. A session
	// that has one already is an error.
	InsertPendingTransition(pending domain.PendingTransition) error
	// DeletePendingTransition ends a move that waits, applied or not.
	DeletePendingTransition(pending domain.PendingTransition) error
	// AppendStepTransition adds a move that happened to the ledger, which numbers it.
	AppendStepTransition(transition domain.StepTransition) error
}
