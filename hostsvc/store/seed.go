package store

import (
	"context"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// SeedTx inserts what a workspace starts with. It sets the workspace ID and
// the version of everything itself.
type SeedTx interface {
	// Workspace describes the workspace, whose row may be there already from its
	// binding.
	Workspace(workspace domain.Workspace) error
	Workflow(workflow domain.Workflow) error
	WorkflowStep(step domain.WorkflowStep) error
	// Task inserts a task. One that is queued for another step gets the slot move
	// that it waits to make too, with the task's ID.
	Task(task domain.Task) error
	Relation(relation domain.TaskRelation) error
	// PendingTransition inserts a move that waits. A slot move replaces the one that
	// its task has: without a task that is queued for it, it is ErrNotQueued. The
	// zero QueuedAt is the task's.
	PendingTransition(pending domain.PendingTransition) error
	// StepTransition appends to the ledger, whose number of the row is the store's.
	StepTransition(transition domain.StepTransition) error
	Repository(repository domain.Repository) error
}

// Seed inserts into a workspace what fn says, as one commit in the workspace's
// order. A workspace that fn does not insert and that does not exist is
// created with its ID as its name. fn may run more than once.
func (s *Store) Seed(ctx context.Context, workspaceID string, fn func(SeedTx) error) error {
	return s.run(ctx, workspaceLock(workspaceID), false, func(t *tx) error {
		if err := fn(seedTx{t}); err != nil {
			return err
		}
		now := t.store.now()
		exists, err := t.workspaceExists()
		if err != nil {
			return err
		}
		if !exists {
			err = seedTx{t}.Workspace(domain.Workspace{Name: workspaceID, CreatedAt: now, UpdatedAt: now})
			if err != nil {
				return err
			}
		}
		return t.Append(journal.Entry{
			WorkspaceID: workspaceID, Kind: journal.KindImport, AuditID: t.store.newAuditID(),
			Result: contract.StateApplied, At: now,
		})
	})
}

type seedTx struct{ tx *tx }

// Workspace implements SeedTx.
func (s seedTx) Workspace(w domain.Workspace) error {
	w.ID, w.Version = s.tx.workspace, s.tx.Version()
	exists, err := s.tx.workspaceExists()
	if err != nil {
		return err
	}
	return s.tx.writeWorkspace(w, exists)
}

// Workflow implements SeedTx.
func (s seedTx) Workflow(w domain.Workflow) error {
	w.WorkspaceID, w.Version = s.tx.workspace, s.tx.Version()
	return s.tx.insertWorkflow(w)
}

// WorkflowStep implements SeedTx.
func (s seedTx) WorkflowStep(step domain.WorkflowStep) error {
	step.WorkspaceID, step.Version = s.tx.workspace, s.tx.Version()
	return s.tx.insertStep(step)
}

// Task implements SeedTx.
func (s seedTx) Task(task domain.Task) error {
	task.WorkspaceID, task.Version = s.tx.workspace, s.tx.Version()
	if err := s.tx.InsertTask(task); err != nil {
		return err
	}
	move, queued := task.SlotMove()
	if !queued {
		return nil
	}
	move.ID, move.Actor, move.Version = task.ID, domain.ActorSystem, task.Version
	return s.tx.InsertPendingTransition(move)
}
