package store

import (
	"slices"
	"strings"
	"time"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/query"
)

var relationTable = newVersioned("relation", "task_relations", []string{
	"workspace_id", "name", "source_task_id", "target_task_id", "created_at", "version",
}, 2)

// The two kinds of edges, each as columns of scanDependency or scanParent and the
// tables that hold them.
const (
	dependencyColumns = `source_task_id, target_task_id, created_at, version`
	parentColumns     = `parent_id, id, created_at, version`
)

func scanDependency(r Row, workspaceID string) domain.TaskRelation {
	return domain.TaskRelation{
		WorkspaceID: workspaceID, Kind: domain.RelationDependency, SourceTaskID: r.Text(0), TargetTaskID: r.Text(1),
		CreatedAt: nanoTime(r, 2), Version: domain.Version(r.Int(3)),
	}
}

// scanParent makes an edge of a child: it began with the child, and its version is
// the child's, which names the parent.
func scanParent(r Row, workspaceID string) domain.TaskRelation {
	return domain.TaskRelation{
		WorkspaceID: workspaceID, Kind: domain.RelationParent, SourceTaskID: r.Text(0), TargetTaskID: r.Text(1),
		CreatedAt: nanoTime(r, 2), Version: domain.Version(r.Int(3)),
	}
}

// InsertRelation implements command.RelationTx.
func (t *tx) InsertRelation(r domain.TaskRelation) error {
	if err := t.own("relation to task", r.TargetTaskID, r.WorkspaceID, r.Version); err != nil {
		return err
	}
	return t.insertRow(relationTable, []any{
		r.WorkspaceID, query.RelationKey(r), r.SourceTaskID, r.TargetTaskID, nanos(r.CreatedAt), int64(r.Version),
	})
}

// DeleteRelation implements command.RelationTx.
func (t *tx) DeleteRelation(r domain.TaskRelation) error {
	if err := t.own("relation to task", r.TargetTaskID, r.WorkspaceID, t.Version()); err != nil {
		return err
	}
	return t.removeOne(relationTable, r.WorkspaceID, query.RelationKey(r))
}

// Relations implements command.RelationTx.
func (t *tx) Relations(taskIDs []string) ([]domain.TaskRelation, error) {
	return relationsOf(taskIDs, func(from relationsFrom, ids []string) (edges []domain.TaskRelation, err error) {
		var b strings.Builder
		args := writeIn(&b, []any{t.workspace}, from.column, ids)
		err = t.query("list the relations of tasks",
			`SELECT `+from.columns+` FROM `+from.table+` WHERE workspace_id = $1`+from.where+b.String(),
			func(r Row) error { edges = append(edges, from.scan(r, t.workspace)); return nil }, args...)
		return edges, err
	})
}

// relationsFrom is one of the places where the edges of a task are found.
type relationsFrom struct {
	table, columns, where, column string
	scan                          func(Row, string) domain.TaskRelation
}

var relationPlaces = []relationsFrom{
	{"task_relations", dependencyColumns, "", "source_task_id", scanDependency},
	{"task_relations", dependencyColumns, "", "target_task_id", scanDependency},
	{"tasks", parentColumns, " AND parent_id <> ''", "parent_id", scanParent},
	{"tasks", parentColumns, " AND parent_id <> ''", "id", scanParent},
}

// relationsOf gathers the edges of tasks, each once, in query.RelationOrder.
func relationsOf(taskIDs []string, find func(relationsFrom, []string) ([]domain.TaskRelation, error)) ([]domain.TaskRelation, error) {
	var all []domain.TaskRelation
	for ids := range slices.Chunk(taskIDs, idsAtOnce) {
		for _, place := range relationPlaces {
			edges, err := find(place, ids)
			if err != nil {
				return nil, err
			}
			all = append(all, edges...)
		}
	}
	slices.SortFunc(all, func(a, b domain.TaskRelation) int {
		return strings.Compare(query.RelationOrder(a), query.RelationOrder(b))
	})
	return slices.Compact(all), nil
}

// RelationsOf implements query.RelationSnapshot.
func (s *snapshot) RelationsOf(workspaceID string, taskIDs []string, asOf domain.Version) ([]domain.TaskRelation, error) {
	newest, _, err := s.Head(workspaceID)
	if err != nil {
		return nil, err
	}
	return relationsOf(taskIDs, func(from relationsFrom, ids []string) (edges []domain.TaskRelation, err error) {
		var b strings.Builder
		args := writeIn(&b, []any{workspaceID, int64(asOf)}, from.column, ids)
		where := ` WHERE workspace_id = $1 AND version <= $2` + from.where + b.String()
		row := func(r Row) error { edges = append(edges, from.scan(r, workspaceID)); return nil }
		err = s.query("list the relations of tasks", `SELECT `+from.columns+` FROM `+from.table+where, row, args...)
		if err != nil || asOf >= newest {
			return edges, err
		}
		err = s.query("list the closed relations of tasks",
			`SELECT `+from.columns+` FROM `+from.table+`_closed`+where+` AND valid_to > $2`, row, args...)
		return edges, err
	})
}

// predecessorsAsOf returns the statement that finds what tasks, which in selects, wait
// for as of $2 in workspace $1: of the edges and the tasks as they are, and of those as
// they were too where closed versions may be meant. A planner without statistics takes
// the order of CROSS JOIN as it is written.
func predecessorsAsOf(closed bool, in string) string {
	suffixes := []string{""}
	if closed {
		suffixes = append(suffixes, "_closed")
	}
	var b strings.Builder
	for _, edges := range suffixes {
		for _, tasks := range suffixes {
			if b.Len() > 0 {
				b.WriteString(" UNION ")
			}
			b.WriteString(`SELECT DISTINCT r.target_task_id, p.state,
				CAST(CASE WHEN p.archived_at IS NULL THEN 0 ELSE 1 END AS bigint) AS archived
				FROM task_relations` + edges + ` r CROSS JOIN tasks` + tasks + ` p
				WHERE r.workspace_id = $1 AND r.version <= $2` + in + `
				AND p.workspace_id = $1 AND p.id = r.source_task_id AND p.version <= $2`)
			if edges != "" {
				b.WriteString(" AND r.valid_to > $2")
			}
			if tasks != "" {
				b.WriteString(" AND p.valid_to > $2")
			}
		}
	}
	return b.String()
}

// predecessors finds what tasks wait for, by the task's ID.
func predecessors(workspaceID string, taskIDs []string, asOf domain.Version, closed bool, find func(statement string, row func(Row) error, args ...any) error) (map[string][]domain.Task, error) {
	found := map[string][]domain.Task{}
	for ids := range slices.Chunk(taskIDs, idsAtOnce) {
		var in strings.Builder
		args := writeIn(&in, []any{workspaceID, int64(asOf)}, "r.target_task_id", ids)
		err := find(predecessorsAsOf(closed, in.String()), func(r Row) error {
			p := domain.Task{State: domain.TaskState(r.Text(1))}
			if r.Int(2) != 0 {
				p.ArchivedAt = archivedOnce
			}
			found[r.Text(0)] = append(found[r.Text(0)], p)
			return nil
		}, args...)
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Predecessors implements query.TaskSnapshot.
func (s *snapshot) Predecessors(workspaceID string, taskIDs []string, asOf domain.Version) (map[string][]domain.Task, error) {
	closed := false
	if asOf != query.Latest {
		newest, _, err := s.Head(workspaceID)
		if err != nil {
			return nil, err
		}
		closed = asOf < newest
	}
	return predecessors(workspaceID, taskIDs, asOf, closed, func(statement string, row func(Row) error, args ...any) error {
		return s.query("list what tasks wait for", statement, row, args...)
	})
}

// Predecessors implements board.Tx.
func (t *tx) Predecessors(taskIDs []string) (map[string][]domain.Task, error) {
	return predecessors(t.workspace, taskIDs, query.Latest, false, func(statement string, row func(Row) error, args ...any) error {
		return t.query("list what tasks wait for", statement, row, args...)
	})
}

// Dependents implements board.Tx.
func (t *tx) Dependents(taskID string) (tasks []domain.Task, err error) {
	err = t.query("list the tasks that wait for a task", `SELECT `+taskColumns+` FROM tasks WHERE workspace_id = $1 AND id IN
		(SELECT target_task_id FROM task_relations WHERE workspace_id = $1 AND source_task_id = $2) ORDER BY id`,
		t.taskRows(&tasks), t.workspace, taskID)
	return tasks, err
}

// archivedOnce is when something was archived of which only that it was is known.
var archivedOnce = time.Unix(0, 0).UTC()

// Relations implements query.RelationSnapshot.
func (s *snapshot) Relations(workspaceID string, asOf domain.Version, after string, limit int) ([]domain.TaskRelation, error) {
	last, err := s.relationAt(workspaceID, asOf, after)
	if err != nil {
		return nil, err
	}
	var edges []domain.TaskRelation
	if last.Kind != domain.RelationParent {
		const where = ` WHERE workspace_id = $1 AND version <= $2 AND (source_task_id, target_task_id) > ($3, $4)`
		const order = ` ORDER BY source_task_id, target_task_id LIMIT $5`
		edges, err = listAsOf(s, workspaceID, asOf, limit,
			`SELECT `+dependencyColumns+` FROM task_relations`+where+order,
			`SELECT `+dependencyColumns+` FROM task_relations_closed`+where+` AND valid_to > $2`+order,
			func(r Row) (domain.TaskRelation, error) { return scanDependency(r, workspaceID), nil }, query.RelationOrder,
			workspaceID, int64(asOf), last.SourceTaskID, last.TargetTaskID, int64(limit))
		if err != nil || len(edges) == limit {
			return edges, err
		}
		last = domain.TaskRelation{}
	}
	left := limit - len(edges)
	const where = ` WHERE workspace_id = $1 AND version <= $2 AND parent_id <> '' AND (parent_id, id) > ($3, $4)`
	const order = ` ORDER BY parent_id, id LIMIT $5`
	parents, err := listAsOf(s, workspaceID, asOf, left,
		`SELECT `+parentColumns+` FROM tasks`+where+order,
		`SELECT `+parentColumns+` FROM tasks_closed`+where+` AND valid_to > $2`+order,
		func(r Row) (domain.TaskRelation, error) { return scanParent(r, workspaceID), nil }, query.RelationOrder,
		workspaceID, int64(asOf), last.SourceTaskID, last.TargetTaskID, int64(left))
	return append(edges, parents...), err
}

// relationAt returns the edge with a key, as of a version that had it; "" is none.
func (s *snapshot) relationAt(workspaceID string, asOf domain.Version, key string) (edge domain.TaskRelation, err error) {
	if key == "" {
		return edge, nil
	}
	columns, table, column, scan := dependencyColumns, "task_relations", "name", scanDependency
	if child, ok := query.ChildOfKey(key); ok {
		columns, table, column, scan, key = parentColumns, "tasks", "id", scanParent, child
	}
	where := ` WHERE workspace_id = $1 AND version <= $2 AND ` + column + ` = $3`
	row := func(r Row) error { edge = scan(r, workspaceID); return nil }
	for _, statement := range []string{
		`SELECT ` + columns + ` FROM ` + table + where, `SELECT ` + columns + ` FROM ` + table + `_closed` + where + ` AND valid_to > $2`,
	} {
		if err := s.query("read a relation", statement, row, workspaceID, int64(asOf), key); err != nil {
			return edge, err
		}
	}
	return edge, nil
}

// TaskVersions implements query.RelationSnapshot.
func (s *snapshot) TaskVersions(workspaceID string, ids []string, asOf domain.Version) (map[string]domain.Version, error) {
	newest, _, err := s.Head(workspaceID)
	if err != nil {
		return nil, err
	}
	versions := make(map[string]domain.Version, len(ids))
	row := func(r Row) error { //nolint:unparam // a Row's reader may fail
		versions[r.Text(0)] = domain.Version(r.Int(1))
		return nil
	}
	for part := range slices.Chunk(ids, idsAtOnce) {
		var b strings.Builder
		args := writeIn(&b, []any{workspaceID, int64(asOf)}, "id", part)
		where := ` WHERE workspace_id = $1 AND version <= $2` + b.String()
		if err := s.query("read the versions of tasks", `SELECT id, version FROM tasks`+where, row, args...); err != nil {
			return nil, err
		}
		if asOf >= newest {
			continue
		}
		err := s.query("read the closed versions of tasks", `SELECT id, version FROM tasks_closed`+where+` AND valid_to > $2`, row, args...)
		if err != nil {
			return nil, err
		}
	}
	return versions, nil
}

// Relation implements SeedTx.
func (s seedTx) Relation(r domain.TaskRelation) error {
	r.WorkspaceID, r.Version = s.tx.workspace, s.tx.Version()
	return s.tx.InsertRelation(r)
}
