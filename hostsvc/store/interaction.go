package store

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	"github.com/kandev/plugin-host/hostsvc/query"
)

var interactionTable = newVersioned("an interaction", "interactions", []string{
	"id", "workspace_id", "sort_key", "owed", "kind", "session_id", "task_id", "turn_id", "status", "body", "created_at",
	"updated_at", "row_version", "version",
}, 2)

// interactionBody is what only a reader of an interaction needs, and its parts, as they
// are stored.
type (
	interactionBody struct {
		Title             string           `json:"title,omitempty"`
		Context           string           `json:"context,omitempty"`
		ToolCallID        string           `json:"tool_call_id,omitempty"`
		ActionType        string           `json:"action_type,omitempty"`
		Options           []storedOption   `json:"options,omitempty"`
		Questions         []storedQuestion `json:"questions,omitempty"`
		AgentDisconnected bool             `json:"agent_disconnected,omitempty"`
	}
	storedQuestion struct {
		ID      string         `json:"id,omitempty"`
		Title   string         `json:"title,omitempty"`
		Prompt  string         `json:"prompt,omitempty"`
		Options []storedOption `json:"options,omitempty"`
	}
	storedOption struct {
		ID          string `json:"id,omitempty"`
		Label       string `json:"label,omitempty"`
		Kind        string `json:"kind,omitempty"`
		Description string `json:"description,omitempty"`
	}
)

func storeOptions(options []domain.InteractionOption) (stored []storedOption) {
	for _, o := range options {
		stored = append(stored, storedOption(o))
	}
	return stored
}

func readOptions(stored []storedOption) (options []domain.InteractionOption) {
	for _, o := range stored {
		options = append(options, domain.InteractionOption(o))
	}
	return options
}

func scanInteraction(r Row) (domain.Interaction, error) {
	i := domain.Interaction{
		ID: r.Text(0), WorkspaceID: r.Text(1), Kind: domain.InteractionKind(r.Text(4)), SessionID: r.Text(5), TaskID: r.Text(6),
		TurnID: r.Text(7), Status: domain.InteractionStatus(r.Text(8)), CreatedAt: nanoTime(r, 10), UpdatedAt: nanoTime(r, 11),
		Version: domain.Version(r.Int(12)),
	}
	var body interactionBody
	if err := json.Unmarshal(r.Bytes(9), &body); err != nil {
		return domain.Interaction{}, fmt.Errorf("decode interaction %s: %w", i.ID, err)
	}
	i.Title, i.Context, i.ToolCallID, i.ActionType = body.Title, body.Context, body.ToolCallID, body.ActionType
	i.Options, i.AgentDisconnected = readOptions(body.Options), body.AgentDisconnected
	for _, q := range body.Questions {
		i.Questions = append(i.Questions, domain.InteractionQuestion{ID: q.ID, Title: q.Title, Prompt: q.Prompt, Options: readOptions(q.Options)})
	}
	return i, nil
}

func (t *tx) interactionArgs(i domain.Interaction, owed bool) ([]any, error) {
	stored := interactionBody{
		Title: i.Title, Context: i.Context, ToolCallID: i.ToolCallID, ActionType: i.ActionType, Options: storeOptions(i.Options),
		AgentDisconnected: i.AgentDisconnected,
	}
	for _, q := range i.Questions {
		stored.Questions = append(stored.Questions, storedQuestion{ID: q.ID, Title: q.Title, Prompt: q.Prompt, Options: storeOptions(q.Options)})
	}
	body, err := json.Marshal(stored)
	if err != nil {
		return nil, fmt.Errorf("encode interaction %s: %w", i.ID, err)
	}
	return []any{
		i.ID, t.workspace, query.InteractionKey(i), flag(owed), string(i.Kind), i.SessionID, i.TaskID, i.TurnID, clean(string(i.Status)),
		string(body), nanos(i.CreatedAt), nanos(i.UpdatedAt), int64(i.Version), int64(t.writing()),
	}, nil
}

// talk is what the running command has said and asked so far.
type talk struct {
	// session is the one that end is of, turn one that is referred to, task one that
	// is in the workspace.
	session, turn, task string
	end                 sessionEnd
	// changed are the sessions whose projections don't hold any more, with the
	// pending IDs of the rows that changed.
	changed map[string]map[string]bool
}

// project takes down that what a session is owed has to be looked at again, and the
// interactions whose rows changed; "" is none.
func (t *tx) project(sessionID string, pendingIDs ...string) {
	if t.talk.changed == nil {
		t.talk.changed = map[string]map[string]bool{}
	}
	ids := t.talk.changed[sessionID]
	if ids == nil {
		ids = map[string]bool{}
		t.talk.changed[sessionID] = ids
	}
	for _, id := range pendingIDs {
		if id != "" {
			ids[id] = true
		}
	}
}

// projectAll brings the projections of all sessions that the command changed up to
// date, before it is done.
func (t *tx) projectAll() error {
	for _, id := range slices.Sorted(maps.Keys(t.talk.changed)) {
		if err := t.projectSession(id, t.talk.changed[id]); err != nil {
			return fmt.Errorf("project session %s: %w", id, err)
		}
	}
	t.talk.changed = nil
	return nil
}

// projected is an interaction as it is stored.
type projected struct {
	domain.Interaction
	owed bool
}

// projectSession is the one place where interactions and what of them waits in the
// inbox are written. It reads what the predicate asks for and not the whole session:
// the current turn's open requests and its newest permission, and the bundles that
// changed or were owed before.
func (t *tx) projectSession(id string, changed map[string]bool) error {
	session, found, err := t.Session(id)
	if err != nil || !found {
		return err
	}
	turns, err := t.newestTurn(id)
	if err != nil {
		return err
	}
	ids := maps.Clone(changed)
	if err := t.addOwed(id, ids); err != nil {
		return err
	}
	var newest []domain.Message
	if turn, ok := domain.CurrentTurn(session, turns); ok {
		if newest, err = t.newestPermission(turn); err != nil {
			return err
		}
		if err := t.addOpen(turn, ids); err != nil {
			return err
		}
	}
	for _, m := range newest {
		if pending := pendingOf(m); pending != "" {
			ids[pending] = true
		}
	}
	before, err := t.projected(ids)
	if err != nil {
		return err
	}
	rows, err := t.requestRows(id, slices.Sorted(maps.Keys(ids)))
	if err != nil {
		return err
	}
	for _, m := range newest {
		if pendingOf(m) == "" {
			rows = append(rows, m) // it keeps the ones before from being the newest
		}
	}
	owed := domain.PendingInteractions(session, turns, rows)
	items, err := domain.InboxOf(owed, nil)
	if err != nil {
		return err
	}
	now := map[string]projected{}
	for id := range ids { // each is another interaction
		if i, ok := domain.InteractionOf(id, rows); ok {
			now[id] = projected{Interaction: i}
		}
	}
	for _, i := range owed {
		now[i.ID] = projected{i, true}
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if err := t.writeProjected(id, before, now); err != nil {
			return err
		}
	}
	for _, item := range items {
		if err := t.setInbox(item); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) writeProjected(id string, before, now map[string]projected) error {
	was, stored := before[id]
	is, exists := now[id]
	if was.owed && !is.owed {
		if err := t.dropInbox(domain.InboxKind(was.Kind), id); err != nil {
			return err
		}
	}
	switch {
	case !exists && !stored, exists && stored && reflect.DeepEqual(was, is):
		return nil
	case !exists:
		return t.removeRow(interactionTable, id, t.workspace)
	}
	args, err := t.interactionArgs(is.Interaction, is.owed)
	if err != nil {
		return err
	}
	if stored {
		return t.replaceRow(interactionTable, interactionTable.update, args)
	}
	return t.insertRow(interactionTable, args)
}

func (t *tx) newestTurn(sessionID string) (turns []domain.Turn, err error) {
	err = t.query("read the newest turn", selectNewestTurn, func(r Row) error {
		turn, err := scanTurn(r)
		turns = append(turns, turn)
		return err
	}, t.workspace, sessionID)
	return turns, err
}

// addOwed adds the interactions that a session was owed an answer to before.
func (t *tx) addOwed(sessionID string, ids map[string]bool) error {
	return t.query("read what is owed", `SELECT id FROM interactions WHERE session_id = $1 AND owed = 1 AND `+withinWorkspace+`$2`,
		func(r Row) error { ids[r.Text(0)] = true; return nil }, sessionID, t.workspace)
}

// projected reads the stored interactions of ids.
func (t *tx) projected(ids map[string]bool) (map[string]projected, error) {
	all := map[string]projected{}
	for chunk := range slices.Chunk(slices.Sorted(maps.Keys(ids)), maxStreams) {
		q := streams{}
		q.and("workspace_id = ?", t.workspace)
		q.in("id", chunk)
		err := t.query("read interactions", `SELECT `+interactionTable.columns+` FROM interactions WHERE `+q.where.String(), func(r Row) error {
			i, err := scanInteraction(r)
			all[i.ID] = projected{i, r.Int(3) != 0}
			return err
		}, q.args...)
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// addOpen adds the pending IDs of a turn's open questions.
func (t *tx) addOpen(turn domain.Turn, ids map[string]bool) error {
	return t.query("read the open questions of a turn", `SELECT pending_id FROM messages WHERE workspace_id = $1 AND session_id = $2
		AND turn_id = $3 AND type = $4 AND request = $5 AND request > 0`, func(r Row) error {
		if id := r.Text(0); id != "" {
			ids[id] = true
		}
		return nil
	}, t.workspace, turn.SessionID, turn.ID, string(domain.MessageClarificationRequest), openRequest)
}

// newestPermission reads the row of a turn's newest permission, open or not.
func (t *tx) newestPermission(turn domain.Turn) ([]domain.Message, error) {
	return t.messages("read the newest permission of a turn", `workspace_id = $1 AND session_id = $2 AND turn_id = $3 AND type = $4
		AND request > 0 ORDER BY created_at DESC, sequence DESC LIMIT 1`,
		t.workspace, turn.SessionID, turn.ID, string(domain.MessagePermissionRequest))
}

// requestRows reads the rows of interactions.
func (t *tx) requestRows(sessionID string, ids []string) (rows []domain.Message, err error) {
	for chunk := range slices.Chunk(ids, maxStreams) {
		q := streams{}
		q.and("workspace_id = ? AND session_id = ? AND pending_id <> ''", t.workspace, sessionID)
		q.in("pending_id", chunk)
		some, err := t.messages("read the rows of interactions", q.where.String()+` ORDER BY sequence`, q.args...)
		if err != nil {
			return nil, err
		}
		rows = append(rows, some...)
	}
	return rows, nil
}

// Interaction reads an interaction, as the rows that the command has written make it.
func (t *tx) Interaction(id string) (interaction domain.Interaction, found bool, err error) {
	if err := t.projectAll(); err != nil {
		return domain.Interaction{}, false, err
	}
	err = t.query("read an interaction", selectInteraction, func(r Row) (err error) {
		interaction, err = scanInteraction(r)
		found = true
		return err
	}, id, t.workspace)
	return interaction, found, err
}

var selectInteraction = `SELECT ` + interactionTable.columns + ` FROM interactions WHERE id = $1 AND workspace_id = $2`

// Interaction implements query.InteractionSnapshot.
func (s *snapshot) Interaction(workspaceID, id string) (interaction domain.Interaction, found bool, err error) {
	err = s.query("read an interaction", selectInteraction, func(r Row) (err error) {
		interaction, err = scanInteraction(r)
		found = true
		return err
	}, id, workspaceID)
	return interaction, found, err
}

// PendingInteractions implements query.InteractionSnapshot.
func (s *snapshot) PendingInteractions(workspaceID string, filter query.InteractionFilter, asOf domain.Version, after string, limit int) ([]domain.Interaction, error) {
	return listStreams(s, pendingStreams(filter, after), "interactions", workspaceID, asOf, limit, scanInteraction, query.InteractionKey)
}

func pendingStreams(filter query.InteractionFilter, after string) *streams {
	q := &streams{columns: interactionTable.columns, order: "sort_key"}
	q.and("owed = 1 AND sort_key > ?", after)
	q.by("session_id", filter.SessionIDs)
	q.by("task_id", filter.TaskIDs)
	if kinds := filter.Kinds; len(kinds) > 0 || q.column != "" {
		q.by("kind", kinds)
	} else {
		// The index begins with the kind.
		q.by("kind", []string{string(domain.InteractionPermission), string(domain.InteractionClarification)})
	}
	return q
}

// AllPending implements legacy.InteractionSnapshot.
func (s *snapshot) AllPending(filter legacy.InteractionFilter, offset, limit int) ([]domain.Interaction, error) {
	return listAll(s, pendingStreams(query.InteractionFilter(filter), ""), "interactions", offset, limit, scanInteraction)
}

// AnyInteraction implements legacy.InteractionSnapshot. Of several workspaces that have
// the ID, it is the one that is owed, or the newest.
func (s *snapshot) AnyInteraction(id string) (interaction domain.Interaction, found bool, err error) {
	err = s.query("find an interaction", `SELECT `+interactionTable.columns+` FROM interactions WHERE id = $1
		ORDER BY owed DESC, sort_key DESC, workspace_id LIMIT 1`, func(r Row) (err error) {
		interaction, err = scanInteraction(r)
		found = true
		return err
	}, clean(id))
	return interaction, found, err
}
