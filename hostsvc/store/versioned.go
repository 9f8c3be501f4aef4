package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kandev/plugin-host/hostsvc/domain"
)

// versioned is a table of current rows beside its table of closed versions. The
// first columns are its key.
type versioned struct {
	what, table string
	keys        int
	columns     string
	insert      string
	update      string
	close       string
	remove      string
}

func newVersioned(what, table string, names []string, keys int) *versioned {
	var where strings.Builder
	for i, name := range names[:keys] {
		if i > 0 {
			where.WriteString(" AND ")
		}
		fmt.Fprintf(&where, "%s = $%d", name, i+1)
	}
	return &versioned{
		what: what, table: table, keys: keys, columns: strings.Join(names, ", "),
		insert: insert(table, names), update: update(table, names, keys), close: closeVersion(table, names, keys),
		remove: "DELETE FROM " + table + " WHERE " + where.String(),
	}
}

// writing is the version that the running command commits, also behind its entry.
func (t *tx) writing() domain.Version {
	if t.appended {
		return t.head.version
	}
	return t.Version()
}

// insertRow adds a row.
func (t *tx) insertRow(v *versioned, args []any) error {
	return t.later(nil, "insert "+v.what, v.insert, args...)
}

// replaceRow replaces the current row by statement, which begins with the key's
// parameters, and closes the version before it.
func (t *tx) replaceRow(v *versioned, statement string, args []any) error {
	if err := t.closeRow(v, args[:v.keys]); err != nil {
		return err
	}
	return t.later(t.one(v.what), "update "+v.what, statement, args...)
}

// removeRow closes the current row.
func (t *tx) removeRow(v *versioned, key ...any) error {
	if err := t.closeRow(v, key); err != nil {
		return err
	}
	return t.later(nil, "remove "+v.what, v.remove, key...)
}

// removeOne closes the current row, which must be there.
func (t *tx) removeOne(v *versioned, key ...any) error {
	if err := t.closeRow(v, key); err != nil {
		return err
	}
	return t.later(t.one(v.what), "remove "+v.what, v.remove, key...)
}

func (t *tx) closeRow(v *versioned, key []any) error {
	return t.later(nil, "close a version of "+v.what, v.close, append(slices.Clone(key), int64(t.writing()))...)
}

// removeRows closes all current rows that condition selects: its parameters are
// args, from $1 on.
func (t *tx) removeRows(v *versioned, condition string, args ...any) error {
	end := fmt.Sprintf("CAST($%d AS bigint)", len(args)+1)
	err := t.later(nil, "close versions of "+v.table, "INSERT INTO "+v.table+"_closed ("+v.columns+", valid_to) SELECT "+v.columns+", "+end+
		" FROM "+v.table+" WHERE version < "+end+" AND "+condition, append(slices.Clone(args), int64(t.writing()))...)
	if err != nil {
		return err
	}
	return t.later(nil, "remove rows of "+v.table, "DELETE FROM "+v.table+" WHERE "+condition, args...)
}

// one is the check of a write that must find its row.
func (t *tx) one(what string) func(rows int64) error {
	return func(rows int64) error {
		if rows != 1 {
			return fmt.Errorf("write %s: it has %d current rows: %w", what, rows, ErrWorkspaceBound)
		}
		return nil
	}
}

// streams is a list by key: each stream is a range of one index, in the order of
// the key, and the database merges them, so that the cost follows the page and the
// number of streams, whatever else the table holds.
type streams struct {
	columns string
	// order is the column that the list is ordered by.
	order string
	// column tells the streams apart by values; "" is a list of one stream.
	column string
	values []string
	// where holds the conditions of every stream, and args their parameters from
	// $1 on.
	where strings.Builder
	args  []any
}

// and adds a condition. In it, each ? is a parameter of values in turn.
func (q *streams) and(condition string, values ...any) {
	if q.where.Len() > 0 {
		q.where.WriteString(" AND ")
	}
	for _, value := range values {
		before, after, _ := strings.Cut(condition, "?")
		q.args = append(q.args, value)
		fmt.Fprintf(&q.where, "%s$%d", before, len(q.args))
		condition = after
	}
	q.where.WriteString(condition)
}

// in adds the condition that a column has one of the values, any where there are
// none. A list of values is padded to a power of two by repeating its last one, so
// that few different statements are ever prepared.
func (q *streams) in(column string, values []string) {
	if len(values) == 0 {
		return
	}
	if q.where.Len() > 0 {
		q.where.WriteString(" AND ")
	}
	size := padded(len(values))
	q.where.WriteString(column + " IN (")
	writeParameters(&q.where, len(q.args)+1, size)
	q.where.WriteString(")")
	for i := range size {
		q.args = append(q.args, clean(values[min(i, len(values)-1)])) // nothing stored has a NUL
	}
}

// by splits the list by the values of a column, unless it is split already or there
// are none; then it is a condition like any other.
func (q *streams) by(column string, values []string) {
	if len(values) == 0 {
		return
	}
	values = slices.Clone(values)
	slices.Sort(values)
	values = slices.Compact(values)
	if q.column != "" {
		q.in(column, values)
		return
	}
	q.column, q.values = column, values
}

// maxStreams bounds the streams of one statement: databases bound the terms of a
// compound select.
const maxStreams = 64

// statements returns the list's statements over a table: more than one for more
// streams than fit into one.
func (q *streams) statements(table string, limit int) []Statement {
	where := " WHERE " + q.where.String()
	args := append(slices.Clone(q.args), int64(limit))
	end := fmt.Sprintf(" ORDER BY %s LIMIT $%d", q.order, len(args))
	if q.column == "" {
		return []Statement{{"SELECT " + q.columns + " FROM " + table + where + end, args}}
	}
	var all []Statement
	for values := range slices.Chunk(q.values, maxStreams) {
		var text strings.Builder
		own := slices.Clone(args)
		for i := range padded(len(values)) {
			if i > 0 {
				text.WriteString(" UNION ALL ")
			}
			// A stream too many is one of a value that nothing has.
			value := ""
			if i < len(values) {
				value = clean(values[i])
			}
			own = append(own, value)
			fmt.Fprintf(&text, "SELECT %s FROM %s%s AND %s = $%d", q.columns, table, where, q.column, len(own))
		}
		all = append(all, Statement{text.String() + end, own})
	}
	return all
}

func padded(n int) int {
	size := 1
	for size < n {
		size *= 2
	}
	return size
}

// listAll lists current rows of all workspaces, behind the first offset ones.
func listAll[T any](s *snapshot, q *streams, table string, offset, limit int, scan func(Row) (T, error)) (items []T, err error) {
	if len(q.values) > maxStreams {
		// One statement must know them all, and then has to sort what they give.
		column := q.column
		q.column = ""
		q.in(column, q.values)
	}
	if q.where.Len() == 0 {
		q.where.WriteString("1 = 1")
	}
	statement := q.statements(table, limit)[0]
	statement.Args = append(statement.Args, int64(offset))
	err = s.query("list", fmt.Sprintf("%s OFFSET $%d", statement.Text, len(statement.Args)), func(r Row) error {
		item, err := scan(r)
		items = append(items, item)
		return err
	}, statement.Args...)
	return items, err
}

// withinWorkspace is the condition on the workspace beside one on a session or a task,
// whose indexes cross workspaces. It is of a form that no index serves: a planner without
// statistics would as well take the whole workspace's index, and read all of it.
const withinWorkspace = "workspace_id || '' = "

// listStreams lists a workspace's rows as of a version, of table and its closed
// versions. Conditions on the workspace and the version are added here.
func listStreams[T any](s *snapshot, q *streams, table, workspaceID string, asOf domain.Version, limit int, scan func(Row) (T, error), key func(T) string) ([]T, error) {
	within := "workspace_id = ?"
	if q.column == "session_id" || q.column == "task_id" {
		within = withinWorkspace + "?"
	}
	q.and(within+" AND version <= ?", workspaceID, int64(asOf))
	newest, _, err := s.Head(workspaceID)
	if err != nil {
		return nil, err
	}
	statements := q.statements(table, limit)
	if asOf < newest {
		q.and("valid_to > ?", int64(asOf))
		statements = append(statements, q.statements(table+"_closed", limit)...)
	}
	return mergeStatements(s, statements, limit, scan, key)
}

func mergeStatements[T any](s *snapshot, statements []Statement, limit int, scan func(Row) (T, error), key func(T) string) ([]T, error) {
	var all []T
	for _, statement := range statements {
		err := s.query("list", statement.Text, func(r Row) error {
			item, err := scan(r)
			all = append(all, item)
			return err
		}, statement.Args...)
		if err != nil {
			return nil, err
		}
	}
	if len(statements) > 1 {
		slices.SortFunc(all, func(a, b T) int { return strings.Compare(key(a), key(b)) })
	}
	return all[:min(limit, len(all))], nil
}

// missing returns the index of the first ID that a table has no current row of in a
// workspace, -1 for none.
func (s *snapshot) missing(table, workspaceID string, ids []string) (int, error) {
	q := streams{}
	q.and("workspace_id = ?", workspaceID)
	q.in("id", ids)
	found := map[string]bool{}
	err := s.query("look for rows of "+table, "SELECT id FROM "+table+" WHERE "+q.where.String(), func(r Row) error {
		found[r.Text(0)] = true
		return nil
	}, q.args...)
	if err != nil {
		return 0, err
	}
	return slices.IndexFunc(ids, func(id string) bool { return !found[id] }), nil
}

// objectText is an object as it is stored: "" for an empty one.
func objectText(o domain.Object) (string, error) {
	if len(o) == 0 {
		return "", nil
	}
	text, err := json.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("encode an object: %w", err)
	}
	return string(text), nil
}

func scanObject(r Row, column int) (domain.Object, error) {
	text := r.Text(column)
	if text == "" {
		return nil, nil //nolint:nilnil // a nil Object is an empty one
	}
	var o domain.Object
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return nil, fmt.Errorf("decode an object: %w", err)
	}
	return o, nil
}
