package store

import (
	"fmt"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	"github.com/kandev/plugin-host/hostsvc/query"
)

var (
	messageTable = newVersioned("a message", "messages", []string{
		"workspace_id", "id", "sort_key", "session_id", "task_id", "type", "turn_id", "request", "pending_id", "author_type",
		"author_id", "content", "markup_before", "requests_input", "metadata", "sequence", "created_at", "updated_at", "version",
	}, 2)
	// updateMessageText writes the columns that no index covers: writing another one
	// rewrites its index, changed or not, and an agent's text grows by many updates.
	updateMessageText = update("messages", []string{
		"workspace_id", "id", "author_id", "content", "markup_before", "requests_input", "metadata", "updated_at", "version",
	}, 2)
	selectMessage = `SELECT ` + messageTable.columns + ` FROM messages WHERE workspace_id = $1 AND id = $2`
)

// What a row asks, as the request column says it.
const (
	noRequest int64 = iota
	settledRequest
	openRequest
)

func requestOf(m domain.Message) int64 {
	switch _, ok := m.RequestKind(); {
	case !ok:
		return noRequest
	case m.RequestStatus().Terminal():
		return settledRequest
	default:
		return openRequest
	}
}

// pendingOf is the interaction that a row is part of, "" for none.
func pendingOf(m domain.Message) string {
	if requestOf(m) == noRequest {
		return ""
	}
	return m.PendingID()
}

func scanMessage(r Row) (domain.Message, error) {
	m := domain.Message{
		WorkspaceID: r.Text(0), ID: r.Text(1), SessionID: r.Text(3), TaskID: r.Text(4), Type: domain.MessageType(r.Text(5)),
		TurnID: r.Text(6), AuthorType: domain.AuthorType(r.Text(9)), AuthorID: r.Text(10), Content: r.Text(11),
		MarkupBefore: domain.MarkupState(r.Text(12)), RequestsInput: r.Int(13) != 0, Sequence: r.Int(15),
		CreatedAt: nanoTime(r, 16), UpdatedAt: nanoTime(r, 17), Version: domain.Version(r.Int(18)),
	}
	var err error
	if m.Metadata, err = scanObject(r, 14); err != nil {
		return domain.Message{}, fmt.Errorf("read message %s: %w", m.ID, err)
	}
	return m, nil
}

func messageArgs(m domain.Message) ([]any, error) {
	metadata, err := objectText(m.Metadata)
	if err != nil {
		return nil, fmt.Errorf("write message %s: %w", m.ID, err)
	}
	return []any{
		m.WorkspaceID, m.ID, query.MessageKey(m), m.SessionID, m.TaskID, string(m.Type), m.TurnID, requestOf(m), pendingOf(m),
		string(m.AuthorType), m.AuthorID, m.Content, string(m.MarkupBefore), flag(m.RequestsInput), metadata, m.Sequence,
		nanos(m.CreatedAt), nanos(m.UpdatedAt), int64(m.Version),
	}, nil
}

// Message reads a message.
func (t *tx) Message(id string) (message domain.Message, found bool, err error) {
	err = t.query("read a message", selectMessage, func(r Row) (err error) {
		message, err = scanMessage(r)
		found = true
		return err
	}, t.workspace, id)
	return message, found, err
}

// messages reads the messages that a condition, with what follows it, selects.
func (t *tx) messages(doing, condition string, args ...any) (messages []domain.Message, err error) {
	err = t.query(doing, `SELECT `+messageTable.columns+` FROM messages WHERE `+condition, func(r Row) error {
		m, err := scanMessage(r)
		messages = append(messages, m)
		return err
	}, args...)
	return messages, err
}

// InsertMessage adds a message to the end of its session, at the transaction's
// version. Its sequence and the markup before it are set here, and its turn counts
// as referred to from now on. An error that wraps ErrMisplaced is for a session,
// task, turn or pending ID that it can't have.
func (t *tx) InsertMessage(m domain.Message) error {
	if err := t.own("message", m.ID, m.WorkspaceID, m.Version); err != nil {
		return err
	}
	if err := t.enter(m.SessionID, m.TaskID); err != nil {
		return fmt.Errorf("insert message %s: %w", m.ID, err)
	}
	if m.Type == "" {
		m.Type = domain.MessagePlain
	}
	m.Content = clean(m.Content)
	if err := t.refer(m.SessionID, m.TurnID); err != nil {
		return fmt.Errorf("insert message %s: %w", m.ID, err)
	}
	if err := t.asks(m); err != nil {
		return err
	}
	end := &t.talk.end
	end.sequence++
	stream := end.stream(m.AuthorType)
	m.Sequence, m.MarkupBefore = end.sequence, stream.markup
	*stream = streamEnd{last: m.Sequence, markup: m.MarkupAfter()}
	args, err := messageArgs(m)
	if err != nil {
		return err
	}
	if err := t.insertRow(messageTable, args); err != nil {
		return err
	}
	return t.writeEnd()
}

// UpdateMessage replaces a message's current row and closes the version before it. A
// message keeps its session, author type, sequence and creation, whatever m says.
// Where other system markup than before is open behind it, the rows behind it are
// written again.
func (t *tx) UpdateMessage(m domain.Message) error {
	if err := t.own("message", m.ID, m.WorkspaceID, m.Version); err != nil {
		return err
	}
	old, found, err := t.Message(m.ID)
	if err != nil {
		return err
	}
	if !found || old.SessionID != m.SessionID || old.TaskID != m.TaskID {
		return fmt.Errorf("update message %s of session %s: %w", m.ID, m.SessionID, ErrMisplaced)
	}
	m.AuthorType, m.Sequence, m.CreatedAt, m.MarkupBefore = old.AuthorType, old.Sequence, old.CreatedAt, old.MarkupBefore
	if m.Type == "" {
		m.Type = domain.MessagePlain
	}
	m.Content = clean(m.Content)
	if err := t.refer(m.SessionID, m.TurnID); err != nil {
		return fmt.Errorf("update message %s: %w", m.ID, err)
	}
	if err := t.asks(m); err != nil {
		return err
	}
	if pending := pendingOf(old); pending != "" || requestOf(old) != requestOf(m) {
		t.project(old.SessionID, pending)
	}
	if err := t.writeMessage(old, m); err != nil {
		return err
	}
	if after := m.MarkupAfter(); after != old.MarkupAfter() {
		return t.restate(m, after)
	}
	return nil
}

func (t *tx) writeMessage(old, m domain.Message) error {
	args, err := messageArgs(m)
	if err != nil {
		return err
	}
	if old.Type != m.Type || old.TurnID != m.TurnID || requestOf(old) != requestOf(m) || pendingOf(old) != pendingOf(m) {
		return t.replaceRow(messageTable, messageTable.update, args)
	}
	metadata := args[14]
	return t.replaceRow(messageTable, updateMessageText, []any{
		m.WorkspaceID, m.ID, m.AuthorID, m.Content, string(m.MarkupBefore), flag(m.RequestsInput), metadata,
		nanos(m.UpdatedAt), int64(m.Version),
	})
}

// restateStep is how many rows restate holds at a time.
const restateStep = 64

// restate tells the rows of m's author behind m which markup is open before them,
// until one has known it.
func (t *tx) restate(m domain.Message, after domain.MarkupState) error {
	if err := t.enter(m.SessionID, m.TaskID); err != nil {
		return err
	}
	stream := t.talk.end.stream(m.AuthorType)
	for last := m.Sequence; last < stream.last; {
		rows, err := t.messages("read the rows behind a message",
			`session_id = $1 AND `+withinWorkspace+`$2 AND author_type = $3 AND sequence > $4 ORDER BY sequence LIMIT $5`,
			m.SessionID, t.workspace, string(m.AuthorType), last, int64(restateStep))
		if err != nil {
			return err
		}
		for _, row := range rows {
			if row.MarkupBefore == after {
				return nil
			}
			old := row
			row.MarkupBefore, row.Version = after, t.writing()
			if err := t.writeMessage(old, row); err != nil {
				return err
			}
			if pending := pendingOf(row); pending != "" {
				t.project(row.SessionID, pending)
			}
			after, last = row.MarkupAfter(), row.Sequence
		}
		if len(rows) < restateStep {
			break
		}
	}
	stream.markup = after
	return t.writeEnd()
}

// asks takes down that a row asks something, and refuses a pending ID that belongs
// to another session or kind of request.
func (t *tx) asks(m domain.Message) error {
	if requestOf(m) == noRequest {
		return nil
	}
	pending := pendingOf(m)
	t.project(m.SessionID, pending)
	if pending == "" {
		return nil
	}
	if fault := contract.CheckIdentifier("pending_id", pending); fault != nil {
		return fmt.Errorf("message %s: %w: %w", m.ID, fault, ErrMisplaced)
	}
	taken := false
	err := t.query("look for a pending ID", `SELECT session_id, type FROM messages WHERE workspace_id = $1 AND pending_id = $2
		AND pending_id <> '' AND id <> $3 LIMIT 1`, func(r Row) error {
		taken = r.Text(0) != m.SessionID || r.Text(1) != string(m.Type)
		return nil
	}, t.workspace, pending, m.ID)
	if err == nil && taken {
		err = fmt.Errorf("message %s: pending ID %q belongs to another session or kind of request: %w", m.ID, pending, ErrMisplaced)
	}
	return err
}

// sessionEnd is where a session's conversation ends.
type sessionEnd struct {
	task        string
	sequence    int64
	user, agent streamEnd
}

// streamEnd is the last row of a kind of author and the markup open behind it.
type streamEnd struct {
	last   int64
	markup domain.MarkupState
}

func (e *sessionEnd) stream(author domain.AuthorType) *streamEnd {
	if author == domain.AuthorUser {
		return &e.user
	}
	return &e.agent
}

// enter reads where the session ends, which then is t.talk.end, and checks that it is
// the task's, or any task's for "".
func (t *tx) enter(sessionID, taskID string) error {
	if t.talk.session != sessionID || sessionID == "" {
		end, found := sessionEnd{}, false
		err := t.query("read the end of a session", `SELECT s.task_id, e.sequence, e.user_last, e.user_markup, e.agent_last, e.agent_markup
			FROM sessions s LEFT JOIN session_ends e ON e.workspace_id = s.workspace_id AND e.session_id = s.id
			WHERE s.id = $1 AND s.workspace_id = $2`, func(r Row) error {
			end.task, found = r.Text(0), true
			if !r.Null(1) {
				end.sequence = r.Int(1)
				end.user = streamEnd{r.Int(2), domain.MarkupState(r.Text(3))}
				end.agent = streamEnd{r.Int(4), domain.MarkupState(r.Text(5))}
			}
			return nil
		}, sessionID, t.workspace)
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("session %q is not in the workspace: %w", sessionID, ErrMisplaced)
		}
		t.talk.session, t.talk.end = sessionID, end
	}
	if taskID != "" && t.talk.end.task != taskID {
		return fmt.Errorf("session %q is not task %q's: %w", sessionID, taskID, ErrMisplaced)
	}
	return nil
}

var upsertEnd = upsert("session_ends", []string{
	"workspace_id", "session_id", "sequence", "user_last", "user_markup", "agent_last", "agent_markup",
}, 2, "", "")

func (t *tx) writeEnd() error {
	end := t.talk.end
	return t.later(nil, "write the end of a session", upsertEnd, t.workspace, t.talk.session, end.sequence,
		end.user.last, string(end.user.markup), end.agent.last, string(end.agent.markup))
}

// Messages implements query.MessageSnapshot.
func (s *snapshot) Messages(workspaceID string, filter query.MessageFilter, asOf domain.Version, after string, limit int) ([]domain.Message, error) {
	return listStreams(s, messageStreams(filter, after), "messages", workspaceID, asOf, limit, scanMessage, query.MessageKey)
}

func messageStreams(filter query.MessageFilter, after string) *streams {
	q := &streams{columns: messageTable.columns, order: "sort_key"}
	if filter.Since != nil {
		after = max(after, query.InstantKey(*filter.Since)) // no key is that short
	}
	q.and("sort_key > ?", after)
	if filter.Until != nil {
		q.and("sort_key < ?", query.InstantKey(*filter.Until))
	}
	q.by("session_id", filter.SessionIDs)
	q.by("task_id", filter.TaskIDs)
	q.by("type", filter.Types)
	return q
}

// AllMessages implements legacy.MessageSnapshot.
func (s *snapshot) AllMessages(filter legacy.MessageRange, offset, limit int) ([]domain.Message, error) {
	q := &streams{columns: messageTable.columns, order: "sort_key"}
	if filter.Since != nil {
		q.and("sort_key > ?", query.InstantKey(*filter.Since))
	}
	if filter.Until != nil {
		q.and("sort_key < ?", query.InstantKey(*filter.Until))
	}
	q.by("session_id", filter.SessionIDs)
	q.by("task_id", filter.TaskIDs)
	q.in("type", filter.Types)
	return listAll(s, q, "messages", offset, limit, scanMessage)
}
