package store

import (
	"fmt"
	"strings"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/query"
)

var (
	turnNames = []string{
		"workspace_id", "id", "sort_key", "authoritative", "session_id", "task_id", "execution_profile_id", "route_generation",
		"metadata", "referenced", "started_at", "completed_at", "created_at", "updated_at", "version",
	}
	turnColumns   = strings.Join(turnNames, ", ")
	insertTurnRow = insert("turns", turnNames)
	updateTurnRow = update("turns", turnNames, 2)

	selectTurn = `SELECT ` + turnColumns + ` FROM turns WHERE workspace_id = $1 AND id = $2`
	// The newest turn that counts: what domain.CurrentTurn finds among all turns.
	selectNewestTurn = `SELECT ` + turnColumns + ` FROM turns WHERE workspace_id = $1 AND session_id = $2 AND authoritative = 1
		ORDER BY sort_key DESC LIMIT 1`
)

func scanTurn(r Row) (domain.Turn, error) {
	turn := domain.Turn{
		WorkspaceID: r.Text(0), ID: r.Text(1), SessionID: r.Text(4), TaskID: r.Text(5), ExecutionProfileID: r.Text(6),
		RouteGeneration: r.Int(7), Referenced: r.Int(9) != 0, StartedAt: nanoTime(r, 10), CompletedAt: nanoTime(r, 11),
		CreatedAt: nanoTime(r, 12), UpdatedAt: nanoTime(r, 13), Version: domain.Version(r.Int(14)),
	}
	var err error
	if turn.Metadata, err = scanObject(r, 8); err != nil {
		return domain.Turn{}, fmt.Errorf("read turn %s: %w", turn.ID, err)
	}
	return turn, nil
}

// turnKey orders turns as domain.Turn.After does.
func turnKey(turn domain.Turn) string {
	return query.InstantKey(turn.StartedAt) + query.InstantKey(turn.CreatedAt) + turn.ID
}

func turnArgs(turn domain.Turn) ([]any, error) {
	metadata, err := objectText(turn.Metadata)
	if err != nil {
		return nil, fmt.Errorf("write turn %s: %w", turn.ID, err)
	}
	return []any{
		turn.WorkspaceID, turn.ID, turnKey(turn), flag(turn.Authoritative()), turn.SessionID, turn.TaskID, turn.ExecutionProfileID,
		turn.RouteGeneration, metadata, flag(turn.Referenced), nanos(turn.StartedAt), nanos(turn.CompletedAt),
		nanos(turn.CreatedAt), nanos(turn.UpdatedAt), int64(turn.Version),
	}, nil
}

// Turn reads a turn.
func (t *tx) Turn(id string) (turn domain.Turn, found bool, err error) {
	err = t.query("read a turn", selectTurn, func(r Row) (err error) {
		turn, err = scanTurn(r)
		found = true
		return err
	}, t.workspace, id)
	return turn, found, err
}

// InsertTurn adds a turn to a session of the workspace, at the transaction's
// version. Nothing refers to it yet, whatever it says. An error that wraps
// ErrMisplaced is for a session that isn't there or has another task.
func (t *tx) InsertTurn(turn domain.Turn) error {
	if err := t.own("turn", turn.ID, turn.WorkspaceID, turn.Version); err != nil {
		return err
	}
	if err := t.enter(turn.SessionID, turn.TaskID); err != nil {
		return fmt.Errorf("insert turn %s: %w", turn.ID, err)
	}
	turn.Referenced = false
	args, err := turnArgs(turn)
	if err != nil {
		return err
	}
	t.project(turn.SessionID)
	return t.later(nil, "insert a turn", insertTurnRow, args...)
}

// UpdateTurn replaces a turn. It stays in its session, and referred to once it is.
func (t *tx) UpdateTurn(turn domain.Turn) error {
	if err := t.own("turn", turn.ID, turn.WorkspaceID, turn.Version); err != nil {
		return err
	}
	old, found, err := t.Turn(turn.ID)
	if err != nil {
		return err
	}
	if !found || old.SessionID != turn.SessionID || old.TaskID != turn.TaskID {
		return fmt.Errorf("update turn %s of session %s: %w", turn.ID, turn.SessionID, ErrMisplaced)
	}
	turn.Referenced = old.Referenced
	return t.writeTurn(turn)
}

func (t *tx) writeTurn(turn domain.Turn) error {
	args, err := turnArgs(turn)
	if err != nil {
		return err
	}
	t.project(turn.SessionID)
	return t.later(t.one("a turn"), "update a turn", updateTurnRow, args...)
}

// refer records that a message names the turn.
func (t *tx) refer(sessionID, turnID string) error {
	if turnID == "" || t.talk.turn == turnID {
		return nil
	}
	turn, found, err := t.Turn(turnID)
	if err != nil {
		return err
	}
	if !found || turn.SessionID != sessionID {
		return fmt.Errorf("turn %q is not in session %q: %w", turnID, sessionID, ErrMisplaced)
	}
	if !turn.Referenced {
		turn.Referenced, turn.Version = true, t.writing()
		if err := t.writeTurn(turn); err != nil {
			return err
		}
	}
	t.talk.turn = turnID
	return nil
}
