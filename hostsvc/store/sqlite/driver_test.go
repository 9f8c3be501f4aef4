package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the same engine behind database/sql

	"github.com/kandev/plugin-host/hostsvc/store"
)

// BenchmarkDriver compares this package with database/sql over the same engine
// (docs/decisions/0002-sqlite-driver.md): a transaction of an insert and an
// update, and a read by key.
func BenchmarkDriver(b *testing.B) {
	const (
		schema = `CREATE TABLE log (n INTEGER PRIMARY KEY, body TEXT) STRICT; CREATE TABLE row (n INTEGER PRIMARY KEY, body TEXT) STRICT;
			INSERT INTO row (n, body) VALUES (1, 'x');`
		insert, update = `INSERT INTO log (n, body) VALUES ($1, $2)`, `UPDATE row SET body = $2 WHERE n = $1`
		read           = `SELECT body FROM row WHERE n = $1`
	)
	body := strings.Repeat("x", 300)
	engine := open(b, filepath.Join(b.TempDir(), "engine.db"))
	b.Cleanup(func() { check(b, engine.Close()) })
	setUp, err := engine.Begin(b.Context(), "")
	check(b, err)
	check(b, setUp.Script(schema))
	check(b, setUp.Commit())
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "sql.db")+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=wal_autocheckpoint(4000)")
	check(b, err)
	b.Cleanup(func() { check(b, db.Close()) })
	db.SetMaxOpenConns(1)
	_, err = db.ExecContext(b.Context(), schema)
	check(b, err)
	var statements [3]*sql.Stmt
	for i, text := range []string{insert, update, read} {
		statements[i], err = db.PrepareContext(b.Context(), text) //nolint:sqlclosecheck // closed with db
		check(b, err)
	}

	n := int64(0)
	b.Run("write/this", func(b *testing.B) {
		for b.Loop() {
			n++
			tx, err := engine.Begin(b.Context(), "")
			check(b, err)
			_, err = tx.Exec(insert, n, body)
			check(b, err)
			_, err = tx.Exec(update, int64(1), body)
			check(b, err)
			check(b, tx.Commit())
		}
	})
	b.Run("write/sql", func(b *testing.B) {
		for b.Loop() {
			n++
			tx, err := db.BeginTx(b.Context(), nil)
			check(b, err)
			_, err = tx.StmtContext(b.Context(), statements[0]).ExecContext(b.Context(), n, body) //nolint:sqlclosecheck // closed with its transaction
			check(b, err)
			_, err = tx.StmtContext(b.Context(), statements[1]).ExecContext(b.Context(), 1, body) //nolint:sqlclosecheck // closed with its transaction
			check(b, err)
			check(b, tx.Commit())
		}
	})
	b.Run("read/this", func(b *testing.B) {
		var got string
		for b.Loop() {
			check(b, engine.Read(b.Context(), func(c store.Conn) error {
				return c.Query(read, func(r store.Row) error { got = r.Text(0); return nil }, int64(1))
			}))
		}
		_ = got
	})
	b.Run("read/sql", func(b *testing.B) {
		var got string
		for b.Loop() {
			check(b, statements[2].QueryRowContext(b.Context(), 1).Scan(&got))
		}
	})
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
