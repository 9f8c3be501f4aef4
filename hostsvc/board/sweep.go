package board

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kandev/plugin-host/hostsvc/domain"
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

// Sweeper removes the moves that wait for what can't come: those that have expired,
// and those whose task, session or target is gone. A task that was queued for one
// leaves the queue with it. Every replica may sweep.
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
	task, there, err := tx.Task(p.TaskID)
	if err != nil {
		return false, fmt.Errorf("read its task: %w", err)
	}
	by := Mover{Now: s.Now(), NewAuditID: s.NewAuditID}
	cause := causeExpired
	if !p.Expired(by.Now) {
		of := &task
		if !there {
			of = nil
		}
		if orphaned, err := orphaned(tx, p, of); err != nil || !orphaned {
			return false, err
		}
		cause = causeOrphaned
	}
	if p.Takes(task) {
		return true, leave(tx, task, &p, cause, by)
	}
	return true, end(tx, p, cause, by)
}

// orphaned reads what else a move of a task depends on.
func orphaned(tx SweepTx, p domain.PendingTransition, task *domain.Task) (bool, error) {
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
