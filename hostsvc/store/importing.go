package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/importer"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/query"
)

var _ importer.Store = (*Store)(nil)

var insertProgress = insert("imports", []string{
	"id", "source", "byte_offset", "line", "documents", "complete", "updated_at",
}) + ` ON CONFLICT (id) DO NOTHING`

const updateProgress = `UPDATE imports SET byte_offset = $3, line = $4, documents = $5, complete = $6, updated_at = $7
	WHERE id = $1 AND source = $2 AND byte_offset = $8 AND complete = 0`

// ImportProgress implements importer.Store.
func (s *Store) ImportProgress(ctx context.Context, id string) (p importer.Progress, err error) {
	err = s.read(ctx, "read how far an import is", func(c Conn) error {
		return c.Query(`SELECT id, source, byte_offset, line, documents, complete FROM imports WHERE id = $1`, func(r Row) error {
			p = importer.Progress{
				ID: r.Text(0), Source: r.Text(1), Offset: r.Int(2), Line: r.Int(3), Documents: r.Int(4), Complete: r.Int(5) != 0,
			}
			return nil
		}, id)
	})
	return p, err
}

// Import implements importer.Store.
func (s *Store) Import(ctx context.Context, workspaceID string, before, after importer.Progress, digest contract.Digest, fn func(importer.Tx) error) error {
	lock := lockName{name: profilesLock}
	if workspaceID != "" {
		lock = workspaceLock(workspaceID)
	}
	return s.run(ctx, lock, false, func(t *tx) error {
		// First of all: where another process has gone on, nothing that is read here
		// holds any more.
		if err := t.moveProgress(before, after); err != nil {
			return err
		}
		if err := fn(importTx{seedTx{t}}); err != nil || !t.domain {
			return err
		}
		return t.Append(journal.Entry{
			WorkspaceID: workspaceID, Kind: journal.KindImport, AuditID: t.store.newAuditID(), RequestID: after.ID,
			CommandDigest: digest, Result: contract.StateApplied, At: t.store.now(),
		})
	})
}

// moveProgress moves an import from before to after, or fails with ErrMoved.
func (t *tx) moveProgress(before, after importer.Progress) error {
	args := []any{
		after.ID, after.Source, after.Offset, after.Line, after.Documents, flag(after.Complete), t.store.now().UnixNano(),
	}
	statement := insertProgress
	if before.Documents > 0 {
		statement = updateProgress
		args = append(args, before.Offset)
	}
	n, err := t.exec("move an import", statement, args...)
	if err == nil && n != 1 {
		err = fmt.Errorf("move import %s behind line %d: %w", after.ID, before.Line, importer.ErrMoved)
	}
	return err
}

// Look implements importer.Store.
func (s *Store) Look(ctx context.Context, workspaceID string, fn func(importer.Lookup) error) error {
	var failure error
	err := s.engine.Read(ctx, func(c Conn) error {
		failure = fn(importLookup{workspaceID, func(doing, statement string, row func(Row) error, args ...any) error {
			return failed(doing, c.Query(statement, row, args...))
		}})
		return nil
	})
	if failure != nil {
		return failure
	}
	return failed("look at a workspace", err)
}

// importTx is the transaction of one batch.
type importTx struct{ seedTx }

func (i importTx) lookup() importLookup { return importLookup{i.tx.workspace, i.tx.query} }

// Find implements importer.Lookup.
func (i importTx) Find(space importer.Space, ids []string) (map[string]importer.Known, error) {
	return i.lookup().Find(space, ids)
}

// Predecessors implements importer.Lookup.
func (i importTx) Predecessors(taskIDs []string) ([]domain.TaskRelation, error) {
	return i.lookup().Predecessors(taskIDs)
}

// LastPosition implements importer.Tx.
func (i importTx) LastPosition(stepID string) (int32, error) { return i.tx.LastPosition(stepID) }

// AgentProfile implements importer.Tx.
func (i importTx) AgentProfile(p domain.AgentProfile) error { return i.tx.saveAgentProfile(p) }

// ExecutorProfile implements importer.Tx.
func (i importTx) ExecutorProfile(p domain.ExecutorProfile) error {
	return i.tx.saveExecutorProfile(p)
}

// Session inserts a session.
func (s seedTx) Session(session domain.Session) error {
	session.WorkspaceID, session.Version = s.tx.workspace, s.tx.Version()
	return s.tx.InsertSession(session)
}

// Turn inserts a turn.
func (s seedTx) Turn(turn domain.Turn) error {
	turn.WorkspaceID, turn.Version = s.tx.workspace, s.tx.Version()
	return s.tx.InsertTurn(turn)
}

// Message inserts a message at the end of its session.
func (s seedTx) Message(m domain.Message) error {
	m.WorkspaceID, m.Version = s.tx.workspace, s.tx.Version()
	return s.tx.InsertMessage(m)
}

// CodeStats writes the counts of a session.
func (s seedTx) CodeStats(stats domain.CodeStats) error {
	stats.WorkspaceID, stats.Version = s.tx.workspace, s.tx.Version()
	return s.tx.SetCodeStats(stats)
}

// importLookup looks into a transaction or a snapshot.
type importLookup struct {
	workspace string
	query     func(doing, statement string, row func(Row) error, args ...any) error
}

// importPlace is where a space is found: id, in and as are the columns of the ID and
// of importer.Known.
type importPlace struct {
	table, id, in, as, where string
	// shared tables have no workspace.
	shared bool
}

var importPlaces = map[importer.Space]importPlace{
	// What Bind makes is bound and not described yet.
	importer.SpaceWorkspace: {table: "workspaces", id: "workspace_id", in: "''", as: `CASE WHEN name = workspace_id
		AND description = '' AND details = '' AND sort_order = 0 THEN '' ELSE '` + importer.Described + `' END`},
	importer.SpaceWorkflow:   {table: "workflows", id: "id", in: "''", as: "''"},
	importer.SpaceStep:       {table: "workflow_steps", id: "id", in: "workflow_id", as: "''"},
	importer.SpaceTask:       {table: "tasks", id: "id", in: "workflow_step_id", as: "workflow_id"},
	importer.SpaceRelation:   {table: "task_relations", id: "name", in: "''", as: "''"},
	importer.SpaceTransition: {table: "pending_transitions", id: "id", in: "''", as: "''"},
	importer.SpaceWaiting:    {table: "pending_transitions", id: "session_id", in: "''", as: "''", where: " AND session_id <> ''"},
	importer.SpaceSlot: {
		table: "pending_transitions", id: "task_id", in: "to_step_id", as: "id", where: " AND predicate = '" + string(domain.PredicateSlot) + "'",
	},
	importer.SpaceRepository:      {table: "repositories", id: "id", in: "''", as: "''"},
	importer.SpaceSession:         {table: "sessions", id: "id", in: "task_id", as: "state"},
	importer.SpacePrimary:         {table: "sessions", id: "task_id", in: "''", as: "''", where: " AND is_primary = 1"},
	importer.SpaceTurn:            {table: "turns", id: "id", in: "session_id", as: "''"},
	importer.SpaceMessage:         {table: "messages", id: "id", in: "''", as: "''"},
	importer.SpacePending:         {table: "messages", id: "pending_id", in: "session_id", as: "type", where: " AND pending_id <> ''"},
	importer.SpaceStats:           {table: "code_stats", id: "session_id", in: "''", as: "''"},
	importer.SpaceAgentProfile:    {table: "agent_profiles", id: "id", in: "''", as: "''", shared: true},
	importer.SpaceExecutorProfile: {table: "executor_profiles", id: "id", in: "''", as: "''", shared: true},
}

// Find implements importer.Lookup.
func (l importLookup) Find(space importer.Space, ids []string) (map[string]importer.Known, error) {
	if space == importer.SpaceExternal {
		return l.findExternal(ids)
	}
	place, ok := importPlaces[space]
	if !ok {
		return nil, fmt.Errorf("look into space %q of imports: it is not known", space)
	}
	names, stored := ids, map[string]string{}
	if space == importer.SpaceRelation {
		names = make([]string, len(ids))
		for i, id := range ids {
			source, target, _ := strings.Cut(id, "\x00")
			names[i] = query.RelationKey(domain.TaskRelation{Kind: domain.RelationDependency, SourceTaskID: source, TargetTaskID: target})
			stored[names[i]] = id
		}
	}
	found := make(map[string]importer.Known, len(ids))
	for part := range slices.Chunk(names, idsAtOnce) {
		var b strings.Builder
		b.WriteString("SELECT " + place.id + ", " + place.in + ", " + place.as + " FROM " + place.table + " WHERE ")
		var args []any
		if place.shared {
			b.WriteString("1 = 1")
		} else {
			b.WriteString("workspace_id = $1")
			args = append(args, l.workspace)
		}
		b.WriteString(place.where)
		args = writeIn(&b, args, place.id, part)
		err := l.query("look for what is there", b.String(), func(r Row) error {
			id := r.Text(0)
			if as, ok := stored[id]; ok {
				id = as
			}
			found[id] = importer.Known{In: r.Text(1), As: r.Text(2)}
			return nil
		}, args...)
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// findExternal looks one by one: the index begins with the source.
func (l importLookup) findExternal(ids []string) (map[string]importer.Known, error) {
	found := map[string]importer.Known{}
	for _, id := range ids {
		source, external, _ := strings.Cut(id, "\x00")
		err := l.query("look for an external ID", `SELECT 1 FROM tasks
			WHERE workspace_id = $1 AND source = $2 AND external_id = $3 AND external_id <> ''`,
			func(Row) error { found[id] = importer.Known{}; return nil }, l.workspace, source, external)
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Predecessors implements importer.Lookup.
func (l importLookup) Predecessors(taskIDs []string) (edges []domain.TaskRelation, err error) {
	for part := range slices.Chunk(taskIDs, idsAtOnce) {
		var b strings.Builder
		args := writeIn(&b, []any{l.workspace}, "target_task_id", part)
		err := l.query("list the predecessors of tasks",
			`SELECT `+dependencyColumns+` FROM task_relations WHERE workspace_id = $1`+b.String(),
			func(r Row) error { edges = append(edges, scanDependency(r, l.workspace)); return nil }, args...)
		if err != nil {
			return nil, err
		}
	}
	return edges, nil
}
