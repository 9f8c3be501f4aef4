package command

import (
	"fmt"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

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

// checkGuard refuses a command whose caller believes something else of the moves
// that wait (ADR, C2): it runs under the lock that they are written under. A named
// one must be the only one. One that has expired waits until the Host has swept it.
func checkGuard(tx Tx, guard *admission.Guard, targets []string) error {
	var pending []domain.PendingTransition
	for _, id := range targets {
		of, err := tx.PendingTransitions(id)
		if err != nil {
			return fmt.Errorf("read the pending transitions of the target: %w", err)
		}
		pending = append(pending, of...)
	}
	named := guard.Named
	switch {
	case named == nil && len(pending) == 0:
		return nil
	case named == nil:
		return admission.Refuse(contract.ReasonPendingTransitionConflict, "a transition of the target is pending; read it and name it")
	case len(pending) == 0:
		return admission.Refuse(contract.ReasonPendingTransitionConflict, "no such pending transition exists")
	case len(pending) > 1 || pending[0].ID != named.ID:
		return admission.Refuse(contract.ReasonPendingTransitionConflict, "another transition of the target is pending")
	case domain.ResourceVersion(tx.StoreEpoch(), pending[0].Version) != named.ResourceVersion:
		return admission.Refuse(contract.ReasonPendingTransitionConflict, "the pending transition has another resource version")
	default:
		return nil
	}
}
