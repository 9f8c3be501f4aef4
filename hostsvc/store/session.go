package store

import (
	"errors"
	"fmt"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	"github.com/kandev/plugin-host/hostsvc/query"
)

// ErrMisplaced says that a row of a conversation names what it can't belong to: a task,
// session or turn that the workspace doesn't have, or another one's pending ID.
var ErrMisplaced = errors.New("the row doesn't belong where it says")

var (
	sessionTable = newVersioned("a session", "sessions", []string{
		"id", "workspace_id", "sort_key", "task_id", "name", "state", "is_primary", "agent_profile_id", "profile_snapshot",
		"executor_id", "executor_profile_id", "resume_token", "execution_id", "route_generation", "review_status",
		"error_message", "metadata", "started_at", "completed_at", "updated_at", "version",
	}, 2)
	selectSession = `SELECT ` + sessionTable.columns + ` FROM sessions WHERE id = $1 AND workspace_id = $2`
)

func scanSession(r Row) (domain.Session, error) {
	s := domain.Session{
		ID: r.Text(0), WorkspaceID: r.Text(1), TaskID: r.Text(3), Name: r.Text(4), State: domain.SessionState(r.Text(5)),
		Primary: r.Int(6) != 0, AgentProfileID: r.Text(7), ExecutorID: r.Text(9), ExecutorProfileID: r.Text(10),
		ResumeToken: r.Text(11), ExecutionID: r.Text(12), RouteGeneration: r.Int(13), ReviewStatus: domain.ReviewStatus(r.Text(14)),
		ErrorMessage: r.Text(15), StartedAt: nanoTime(r, 17), CompletedAt: nanoTime(r, 18), UpdatedAt: nanoTime(r, 19),
		Version: domain.Version(r.Int(20)),
	}
	var err error
	if s.ProfileSnapshot, err = scanObject(r, 8); err == nil {
		s.Metadata, err = scanObject(r, 16)
	}
	if err != nil {
		return domain.Session{}, fmt.Errorf("read session %s: %w", s.ID, err)
	}
	return s, nil
}

func sessionArgs(s domain.Session) ([]any, error) {
	profile, err := objectText(s.ProfileSnapshot)
	if err != nil {
		return nil, fmt.Errorf("write session %s: %w", s.ID, err)
	}
	metadata, err := objectText(s.Metadata)
	if err != nil {
		return nil, fmt.Errorf("write session %s: %w", s.ID, err)
	}
	return []any{
		s.ID, s.WorkspaceID, query.SessionKey(s), s.TaskID, clean(s.Name), string(s.State), flag(s.Primary), s.AgentProfileID,
		profile, s.ExecutorID, s.ExecutorProfileID, s.ResumeToken, s.ExecutionID, s.RouteGeneration, string(s.ReviewStatus),
		clean(s.ErrorMessage), metadata, nanos(s.StartedAt), nanos(s.CompletedAt), nanos(s.UpdatedAt), int64(s.Version),
	}, nil
}

// Session reads a session.
func (t *tx) Session(id string) (session domain.Session, found bool, err error) {
	err = t.query("read a session", selectSession, func(r Row) (err error) {
		session, err = scanSession(r)
		found = true
		return err
	}, id, t.workspace)
	return session, found, err
}

// SessionsOf reads all sessions of a task, the newest start first and then by ID.
func (t *tx) SessionsOf(taskID string) (sessions []domain.Session, err error) {
	err = t.query("read the sessions of a task",
		`SELECT `+sessionTable.columns+` FROM sessions WHERE task_id = $1 AND `+withinWorkspace+`$2 ORDER BY sort_key`,
		func(r Row) error {
			session, err := scanSession(r)
			sessions = append(sessions, session)
			return err
		}, taskID, t.workspace)
	return sessions, err
}

// InsertSession adds a session to a task of the workspace, at the transaction's
// version. An error that wraps ErrMisplaced is for a task that isn't there.
func (t *tx) InsertSession(s domain.Session) error {
	if err := t.own("session", s.ID, s.WorkspaceID, s.Version); err != nil {
		return err
	}
	if err := t.requireTask(s.TaskID); err != nil {
		return fmt.Errorf("insert session %s: %w", s.ID, err)
	}
	args, err := sessionArgs(s)
	if err != nil {
		return err
	}
	return t.insertRow(sessionTable, args)
}

// UpdateSession replaces a session's current row and closes the version before it.
// A session stays with its task.
func (t *tx) UpdateSession(s domain.Session) error {
	if err := t.own("session", s.ID, s.WorkspaceID, s.Version); err != nil {
		return err
	}
	old, found, err := t.Session(s.ID)
	if err != nil {
		return err
	}
	if !found || old.TaskID != s.TaskID {
		return fmt.Errorf("update session %s of task %s: %w", s.ID, s.TaskID, ErrMisplaced)
	}
	args, err := sessionArgs(s)
	if err != nil {
		return err
	}
	if old.State.Terminal() != s.State.Terminal() {
		t.project(s.ID)
	}
	return t.replaceRow(sessionTable, sessionTable.update, args)
}

func (t *tx) requireTask(id string) error {
	if id != "" && t.talk.task == id {
		return nil
	}
	found := false
	err := t.query("look for a task", `SELECT 1 FROM tasks WHERE workspace_id = $1 AND id = $2`,
		func(Row) error { found = true; return nil }, t.workspace, id)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("task %q is not in the workspace: %w", id, ErrMisplaced)
	}
	t.talk.task = id
	return nil
}

// DeleteSessions removes all sessions of a task with everything that was said, asked
// and counted in them. Lists as of an earlier version go on showing them.
func (t *tx) DeleteSessions(taskID string) error {
	const (
		ofTask = `task_id = $1 AND ` + withinWorkspace + `$2`
		within = `session_id IN (SELECT id FROM sessions WHERE ` + ofTask + `)`
	)
	t.domain = true
	for _, rows := range []struct {
		table     *versioned
		condition string
	}{
		{messageTable, ofTask},
		{interactionTable, ofTask},
		{inboxTable, `task_id = $1 AND workspace_id = $2 AND ` + within},
	} {
		if err := t.removeRows(rows.table, rows.condition, taskID, t.workspace); err != nil {
			return err
		}
	}
	for _, table := range []string{"turns", "session_ends", "code_stats"} {
		err := t.later(nil, "remove rows of "+table, `DELETE FROM `+table+` WHERE workspace_id = $2 AND `+within, taskID, t.workspace)
		if err != nil {
			return err
		}
	}
	t.talk = talk{changed: t.talk.changed}
	return t.removeRows(sessionTable, ofTask, taskID, t.workspace)
}

// Sessions implements query.SessionSnapshot.
func (s *snapshot) Sessions(workspaceID string, filter query.SessionFilter, asOf domain.Version, after string, limit int) ([]domain.Session, error) {
	q := &streams{columns: sessionTable.columns, order: "sort_key"}
	q.and("sort_key > ?", after)
	q.by("task_id", filter.TaskIDs)
	q.by("state", filter.States)
	return listStreams(s, q, "sessions", workspaceID, asOf, limit, scanSession, query.SessionKey)
}

// MissingSession implements query.SessionSnapshot.
func (s *snapshot) MissingSession(workspaceID string, ids []string) (int, error) {
	return s.missing("sessions", workspaceID, ids)
}

// MissingTask implements query.SessionSnapshot.
func (s *snapshot) MissingTask(workspaceID string, ids []string) (int, error) {
	return s.missing("tasks", workspaceID, ids)
}

// AllSessions implements legacy.SessionSnapshot.
func (s *snapshot) AllSessions(filter legacy.SessionFilter, offset, limit int) ([]domain.Session, error) {
	q := &streams{columns: sessionTable.columns, order: "sort_key"}
	q.by("task_id", filter.TaskIDs)
	q.by("workspace_id", filter.WorkspaceIDs)
	q.in("state", filter.States)
	return listAll(s, q, "sessions", offset, limit, scanSession)
}

// SessionsByID implements legacy.SessionSnapshot.
func (s *snapshot) SessionsByID(id string) ([]domain.Session, error) { return s.sessions("id", id) }

// SessionsOfTask implements legacy.SessionSnapshot.
func (s *snapshot) SessionsOfTask(taskID string) ([]domain.Session, error) {
	return s.sessions("task_id", taskID)
}

func (s *snapshot) sessions(column, value string) (sessions []domain.Session, err error) {
	err = s.query("find sessions", `SELECT `+sessionTable.columns+` FROM sessions WHERE `+column+` = $1 ORDER BY sort_key, workspace_id`,
		func(r Row) error {
			session, err := scanSession(r)
			sessions = append(sessions, session)
			return err
		}, clean(value))
	return sessions, err
}
