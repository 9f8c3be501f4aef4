package board

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// Store is the part of the store that sweeping runs on.
type Store interface {
	// AllPendingTransitions lists the moves that wait in all workspaces, without a
	// lock.
	AllPendingTransitions(ctx context.Context, fn func(domain.PendingTransition) error) error
	// Board runs fn under the exclusive lock of a workspace, as command.Store's Write
	// does.
	Board(ctx context.Context, workspaceID string, fn func(SweepTx) error) error
}

// SweepTx is what sweeping needs of a transaction.
type SweepTx interface {
	Tx
	PendingTransition(id string) (pending domain.PendingTransition, found bool, err error)
	Task(id string) (task domain.Task, found bool, err error)
	Session(id string) (session domain.Session, found bool, err error)
}

// EventTransitionEnded is the outbox event of a move that will not be applied any
// more.
const EventTransitionEnded = "task_transition.cancelled"

// Sweeper removes the moves that wait for what can't come: those that have expired,
// and those whose task, session or target is gone. Every replica may sweep.
type Sweeper struct {
	Store      Store
	Now        func() time.Time
	NewAuditID func() string
}

// Sweep looks at all moves that wait, and returns how many it removed. Each is
// looked at again under the lock that movers take, in a transaction of its own: one
// that was applied, replaced or cancelled meanwhile stays what it is.
func (s *Sweeper) Sweep(ctx context.Context) (removed int, err error) {
	var waiting []domain.PendingTransition
	err = s.Store.AllPendingTransitions(ctx, func(p domain.PendingTransition) error {
		waiting = append(waiting, p)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("sweep pending transitions: %w", err)
	}
	var failures []error
	for _, p := range waiting {
		swept := false
		err := s.Store.Board(ctx, p.WorkspaceID, func(tx SweepTx) error {
			done, err := s.sweep(tx, p.ID)
			swept = done
			return err
		})
		switch {
		case ctx.Err() != nil:
			return removed, fmt.Errorf("sweep pending transitions: %w", context.Cause(ctx))
		case err != nil:
			failures = append(failures, fmt.Errorf("sweep pending transition %s of workspace %s: %w", p.ID, p.WorkspaceID, err))
		case swept:
			removed++
		}
	}
	return removed, errors.Join(failures...)
}

func (s *Sweeper) sweep(tx SweepTx, id string) (swept bool, err error) {
	p, found, err := tx.PendingTransition(id)
	if err != nil || !found {
		return false, err
	}
	now := s.Now()
	cause := ""
	if p.Expired(now) {
		cause = "expired"
	} else if orphaned, err := orphaned(tx, p); err != nil {
		return false, err
	} else if orphaned {
		cause = "orphaned"
	}
	if cause == "" {
		return false, nil
	}
	if err := tx.DeletePendingTransition(p); err != nil {
		return false, err
	}
	event, err := journal.EncodeEvent(map[string]string{"transition_id": p.ID, "task_id": p.TaskID, "cause": cause})
	if err != nil {
		return false, err
	}
	return true, tx.Append(journal.Entry{
		WorkspaceID: p.WorkspaceID, Kind: journal.KindSystem, AuditID: s.NewAuditID(), Result: contract.StateApplied, TargetID: p.ID,
		Before: domain.ResourceVersion(tx.StoreEpoch(), p.Version), EventType: EventTransitionEnded, Event: event, At: now,
	})
}

// orphaned reads what a move depends on.
func orphaned(tx SweepTx, p domain.PendingTransition) (bool, error) {
	var task *domain.Task
	if t, found, err := tx.Task(p.TaskID); err != nil {
		return false, fmt.Errorf("read its task: %w", err)
	} else if found {
		task = &t
	}
	var target *domain.WorkflowStep
	if step, found, err := tx.WorkflowStep(p.ToStepID); err != nil {
		return false, fmt.Errorf("read its target: %w", err)
	} else if found {
		target = &step
	}
	var session *domain.Session
	if p.SessionID != "" {
		if found, there, err := tx.Session(p.SessionID); err != nil {
			return false, fmt.Errorf("read its session: %w", err)
		} else if there {
			session = &found
		}
	}
	return p.Orphaned(task, session, target), nil
}
