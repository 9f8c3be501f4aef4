package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/kandev/plugin-host/hostsvc/board"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	"github.com/kandev/plugin-host/hostsvc/query"
)

var _ board.Store = (*Store)(nil)

var (
	pendingNames = []string{
		"workspace_id", "id", "sort_key", "task_id", "session_id", "from_workflow_id", "from_step_id", "to_workflow_id",
		"to_step_id", "position", "predicate", "actor", "requester", "sender_session_id", "queued_at", "expires_at", "version",
	}
	pendingColumns = `id, ` + strings.Join(pendingNames[3:], ", ")
	pendingTable   = newVersioned("pending transition", "pending_transitions", pendingNames, 2)

	appendTransition = insert("step_transitions", []string{
		"workspace_id", "task_id", "from_workflow_id", "from_step_id", "to_workflow_id", "to_step_id", "cause", "actor",
		"occurred_at", "version",
	})
)

func scanPending(r Row, workspaceID string) domain.PendingTransition {
	return domain.PendingTransition{
		ID: r.Text(0), WorkspaceID: workspaceID, TaskID: r.Text(1), SessionID: r.Text(2), FromWorkflowID: r.Text(3),
		FromStepID: r.Text(4), ToWorkflowID: r.Text(5), ToStepID: r.Text(6), Position: int32(r.Int(7)),
		Predicate: domain.TransitionPredicate(r.Text(8)), Actor: domain.Actor(r.Text(9)), Requester: r.Text(10),
		SenderSessionID: r.Text(11), QueuedAt: nanoTime(r, 12), ExpiresAt: nanoTime(r, 13), Version: domain.Version(r.Int(14)),
	}
}

// PendingTransitions implements command.TransitionTx.
func (t *tx) PendingTransitions(taskID string) (pending []domain.PendingTransition, err error) {
	err = t.query("list the pending transitions of a task",
		`SELECT `+pendingColumns+` FROM pending_transitions WHERE workspace_id = $1 AND task_id = $2 ORDER BY sort_key`,
		func(r Row) error { pending = append(pending, scanPending(r, t.workspace)); return nil }, t.workspace, taskID)
	return pending, err
}

// PendingTransition implements command.TransitionTx.
func (t *tx) PendingTransition(id string) (pending domain.PendingTransition, found bool, err error) {
	err = t.query("read a pending transition",
		`SELECT `+pendingColumns+` FROM pending_transitions WHERE workspace_id = $1 AND id = $2`,
		func(r Row) error { pending, found = scanPending(r, t.workspace), true; return nil }, t.workspace, id)
	return pending, found, err
}

// InsertPendingTransition implements command.TransitionTx.
func (t *tx) InsertPendingTransition(p domain.PendingTransition) error {
	if err := t.own("pending transition", p.ID, p.WorkspaceID, p.Version); err != nil {
		return err
	}
	items, err := domain.InboxOf(nil, []domain.PendingTransition{p})
	if err != nil {
		return fmt.Errorf("make the inbox item of pending transition %s: %w", p.ID, err)
	}
	for _, item := range items {
		if err := t.setInbox(item); err != nil {
			return err
		}
	}
	return t.insertRow(pendingTable, []any{
		p.WorkspaceID, p.ID, query.TransitionKey(p), p.TaskID, p.SessionID, p.FromWorkflowID, p.FromStepID, p.ToWorkflowID,
		p.ToStepID, int64(p.Position), string(p.Predicate), string(p.Actor), clean(p.Requester), p.SenderSessionID,
		nanos(p.QueuedAt), nanos(p.ExpiresAt), int64(p.Version),
	})
}

// DeletePendingTransition implements command.TransitionTx.
func (t *tx) DeletePendingTransition(p domain.PendingTransition) error {
	if err := t.own("pending transition", p.ID, p.WorkspaceID, t.Version()); err != nil {
		return err
	}
	if err := t.dropInbox(domain.InboxTransition, p.ID); err != nil {
		return err
	}
	return t.removeOne(pendingTable, p.WorkspaceID, p.ID)
}

// AppendStepTransition implements command.TransitionTx.
func (t *tx) AppendStepTransition(s domain.StepTransition) error {
	if err := t.own("transition of task", s.TaskID, s.WorkspaceID, s.Version); err != nil {
		return err
	}
	return t.later(nil, "append to the ledger of transitions", appendTransition, s.WorkspaceID, s.TaskID, s.FromWorkflowID,
		s.FromStepID, s.ToWorkflowID, s.ToStepID, string(s.Trigger), string(s.Actor), s.OccurredAt.UnixNano(), int64(s.Version))
}

// PendingTransitions implements query.TransitionSnapshot.
func (s *snapshot) PendingTransitions(workspaceID, taskID string, asOf domain.Version, after string, limit int) ([]domain.PendingTransition, error) {
	where, args := ` WHERE workspace_id = $1 AND version <= $2 AND sort_key > $3`, []any{workspaceID, int64(asOf), after, int64(limit)}
	if taskID != "" {
		where += ` AND task_id = $5`
		args = append(args, taskID)
	}
	return listAsOf(s, workspaceID, asOf, limit,
		`SELECT `+pendingColumns+` FROM pending_transitions`+where+` ORDER BY sort_key LIMIT $4`,
		`SELECT `+pendingColumns+` FROM pending_transitions_closed`+where+` AND valid_to > $2 ORDER BY sort_key LIMIT $4`,
		func(r Row) (domain.PendingTransition, error) { return scanPending(r, workspaceID), nil }, query.TransitionKey, args...)
}

// Board implements board.Store.
func (s *Store) Board(ctx context.Context, workspaceID string, fn func(board.SweepTx) error) error {
	return s.run(ctx, workspaceLock(workspaceID), false, func(t *tx) error { return fn(t) })
}

// AllPendingTransitions implements board.Store.
func (s *Store) AllPendingTransitions(ctx context.Context, fn func(domain.PendingTransition) error) error {
	err := s.engine.Query(ctx, `SELECT `+pendingColumns+`, workspace_id FROM pending_transitions ORDER BY workspace_id, sort_key`,
		func(r Row) error { return fn(scanPending(r, r.Text(15))) })
	return failed("list the pending transitions", err)
}

// PendingTransition implements SeedTx.
func (s seedTx) PendingTransition(p domain.PendingTransition) error {
	p.WorkspaceID, p.Version = s.tx.workspace, s.tx.Version()
	if p.Predicate != domain.PredicateSlot {
		return s.tx.InsertPendingTransition(p)
	}
	task, _, err := s.tx.Task(p.TaskID)
	if err != nil {
		return err
	}
	if !p.Takes(task) {
		return fmt.Errorf("insert pending transition %s of task %s: %w", p.ID, p.TaskID, ErrNotQueued)
	}
	have, err := s.tx.PendingTransitions(p.TaskID)
	if err != nil {
		return err
	}
	for _, other := range have {
		if !other.Takes(task) {
			continue
		}
		if err := s.tx.DeletePendingTransition(other); err != nil {
			return err
		}
	}
	if p.QueuedAt.IsZero() {
		p.QueuedAt = task.QueuedAt
	}
	return s.tx.InsertPendingTransition(p)
}

// StepTransition implements SeedTx.
func (s seedTx) StepTransition(transition domain.StepTransition) error {
	transition.WorkspaceID, transition.Version = s.tx.workspace, s.tx.Version()
	return s.tx.AppendStepTransition(transition)
}

// StepTransitions implements legacy.TransitionSnapshot.
func (s *snapshot) StepTransitions(taskID string, offset, limit int) (moves []domain.StepTransition, err error) {
	err = s.query("list the moves of a task", `SELECT id, workspace_id, from_workflow_id, from_step_id, to_workflow_id, to_step_id,
		cause, actor, occurred_at, version FROM step_transitions WHERE task_id = $1 ORDER BY id LIMIT $2 OFFSET $3`,
		func(r Row) error {
			moves = append(moves, domain.StepTransition{
				ID: r.Int(0), WorkspaceID: r.Text(1), TaskID: taskID, FromWorkflowID: r.Text(2), FromStepID: r.Text(3),
				ToWorkflowID: r.Text(4), ToStepID: r.Text(5), Trigger: domain.TransitionTrigger(r.Text(6)),
				Actor: domain.Actor(r.Text(7)), OccurredAt: nanoTime(r, 8), Version: domain.Version(r.Int(9)),
			})
			return nil
		}, clean(taskID), int64(limit), int64(offset))
	return moves, err
}

// selectGroups counts the moves of a workflow: those that begin or end elsewhere by
// the step in it alone.
const selectGroups = `SELECT kind, from_step_id, to_step_id, count(*) FROM (
		SELECT CASE WHEN from_workflow_id = $1 AND to_workflow_id = $1 THEN 'within' WHEN to_workflow_id = $1 THEN 'entry' ELSE 'exit' END AS kind,
			CASE WHEN from_workflow_id = $1 THEN from_step_id ELSE '' END AS from_step_id,
			CASE WHEN to_workflow_id = $1 THEN to_step_id ELSE '' END AS to_step_id
		FROM step_transitions WHERE from_workflow_id = $1 OR to_workflow_id = $1) AS moves
	GROUP BY kind, from_step_id, to_step_id ORDER BY kind, from_step_id, to_step_id LIMIT $2 OFFSET $3`

// TransitionGroups implements legacy.TransitionSnapshot.
func (s *snapshot) TransitionGroups(workflowID string, offset, limit int) (groups []legacy.TransitionGroup, err error) {
	if workflowID == "" {
		return nil, nil
	}
	err = s.query("count the moves of a workflow", selectGroups, func(r Row) error {
		groups = append(groups, legacy.TransitionGroup{Kind: r.Text(0), FromStepID: r.Text(1), ToStepID: r.Text(2), Count: r.Int(3)})
		return nil
	}, clean(workflowID), int64(limit), int64(offset))
	return groups, err
}
