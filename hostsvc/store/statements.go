package store

import (
	"strconv"
	"strings"
)

// The statements that are made of lists of columns are built once.

// insert returns the statement that inserts all columns.
func insert(table string, columns []string) string {
	var b strings.Builder
	b.WriteString("INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES (")
	writeParameters(&b, 1, len(columns))
	b.WriteString(")")
	return b.String()
}

// upsert inserts all columns, the first keys of which identify the row, or
// replaces the others. The column computed is set to expression instead.
func upsert(table string, columns []string, keys int, computed, expression string) string {
	var b strings.Builder
	b.WriteString(insert(table, columns))
	b.WriteString(" ON CONFLICT (" + strings.Join(columns[:keys], ", ") + ") DO UPDATE SET ")
	for i, column := range columns[keys:] {
		if i > 0 {
			b.WriteString(", ")
		}
		if column == computed {
			b.WriteString(column + " = " + expression)
			continue
		}
		b.WriteString(column + " = excluded." + column)
	}
	return b.String()
}

// update sets all columns after the keys.
func update(table string, columns []string, keys int) string {
	var b strings.Builder
	b.WriteString("UPDATE " + table + " SET ")
	for i, column := range columns[keys:] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(column + " = $" + strconv.Itoa(keys+i+1))
	}
	b.WriteString(" WHERE ")
	for i, column := range columns[:keys] {
		if i > 0 {
			b.WriteString(" AND ")
		}
		b.WriteString(column + " = $" + strconv.Itoa(i+1))
	}
	return b.String()
}

// closeVersion copies the current row to the closed versions. Its parameters
// are the keys and then the version that ends it; a row that this very version
// wrote was never visible.
func closeVersion(table string, columns []string, keys int) string {
	list := strings.Join(columns, ", ")
	end := "CAST($" + strconv.Itoa(keys+1) + " AS bigint)" // both uses of the parameter have one type
	var b strings.Builder
	b.WriteString("INSERT INTO " + table + "_closed (" + list + ", valid_to) SELECT " + list + ", " + end +
		" FROM " + table + " WHERE version < " + end)
	for i, column := range columns[:keys] {
		b.WriteString(" AND " + column + " = $" + strconv.Itoa(i+1))
	}
	return b.String()
}

// writeParameters writes n parameters, numbered from first.
func writeParameters(b *strings.Builder, first, n int) {
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("$" + strconv.Itoa(first+i))
	}
}

// writeIn writes the condition that a column has one of the values, whose
// arguments it appends. A list of values is padded to a power of two by repeating
// its last one, so that few different statements are ever prepared. No values is
// no condition.
func writeIn(b *strings.Builder, args []any, column string, values []string) []any {
	if len(values) == 0 {
		return args
	}
	size := padded(len(values))
	b.WriteString(" AND " + column + " IN (")
	writeParameters(b, len(args)+1, size)
	b.WriteString(")")
	for i := range size {
		args = append(args, clean(values[min(i, len(values)-1)])) // what can't be stored is nowhere
	}
	return args
}
