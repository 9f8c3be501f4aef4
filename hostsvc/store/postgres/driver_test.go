package postgres_test

import (
	"database/sql"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the same driver behind database/sql

	"github.com/kandev/plugin-host/hostsvc/store"
)

// BenchmarkDriver compares this package with database/sql over the same driver
// (docs/decisions/0003-postgres-driver.md): a locked transaction of an insert
// and an update, and a read by key on a snapshot.
func BenchmarkDriver(b *testing.B) {
	dsn, err := start(b).NewDatabase(b.Context())
	check(b, err)
	engine := open(b, dsn)
	b.Cleanup(func() { check(b, engine.Close()) })
	setUp, err := engine.Begin(b.Context(), "")
	check(b, err)
	check(b, setUp.Script(`CREATE TABLE log (n bigint PRIMARY KEY, body text); CREATE TABLE line (n bigint PRIMARY KEY, body text);
		INSERT INTO line (n, body) VALUES (1, 'x');`))
	check(b, setUp.Commit())
	db, err := sql.Open("pgx", dsn)
	check(b, err)
	b.Cleanup(func() { check(b, db.Close()) })

	const (
		insert, update = `INSERT INTO log (n, body) VALUES ($1, $2)`, `UPDATE line SET body = $2 WHERE n = $1`
		read           = `SELECT body FROM line WHERE n = $1`
	)
	body := strings.Repeat("x", 300)
	n := int64(0)
	b.Run("write/this", func(b *testing.B) {
		for b.Loop() {
			n++
			tx, err := engine.Begin(b.Context(), "lock")
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
			_, err = tx.ExecContext(b.Context(), `SELECT pg_advisory_xact_lock(1)`)
			check(b, err)
			_, err = tx.ExecContext(b.Context(), insert, n, body)
			check(b, err)
			_, err = tx.ExecContext(b.Context(), update, 1, body)
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
			tx, err := db.BeginTx(b.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
			check(b, err)
			check(b, tx.QueryRowContext(b.Context(), read, 1).Scan(&got))
			check(b, tx.Commit())
		}
	})
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
