// Package postgres is the shared database, for several replicas. A lock is a
// transaction-scoped advisory lock, taken by the first statement of a READ
// COMMITTED transaction; whatever the lock protects is read by later ones, each
// with a snapshot of its own, also where they share a round trip.
//
// It imports store and the PostgreSQL driver.
package postgres

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kandev/plugin-host/hostsvc/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	// writers is how many workspaces commit at once, readers how many reads
	// run at once, for each replica.
	writers = 8
	readers = 16
	// serverTimeout is in milliseconds: what waits longer for a lock, runs
	// longer or idles longer inside a transaction is ended by the server.
	serverTimeout = "2000"
	// transactionTime bounds a transaction, connection failures included; no
	// server answers for those.
	transactionTime = 10 * time.Second
)

// Engine is a PostgreSQL database. It implements store.Engine.
type Engine struct {
	write, read *pgxpool.Pool
}

var _ store.Engine = (*Engine)(nil)

// Open connects to the database that dsn describes, a connection string as
// libpq knows it. No error holds any part of it.
func Open(ctx context.Context, dsn string) (*Engine, error) {
	write, err := pool(ctx, dsn, writers+1) // one for what is urgent
	if err != nil {
		return nil, err
	}
	read, err := pool(ctx, dsn, readers)
	if err != nil {
		write.Close()
		return nil, err
	}
	return &Engine{write: write, read: read}, nil
}

// ErrDSN is returned when the connection string can't be read. The driver's error would quote
// it, password included.
var ErrDSN = errors.New("the PostgreSQL connection string is malformed")

func pool(ctx context.Context, dsn string, size int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, ErrDSN
	}
	config.MaxConns = size
	for _, name := range []string{"lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"} {
		config.ConnConfig.RuntimeParams[name] = serverTimeout
	}
	config.ConnConfig.RuntimeParams["default_transaction_isolation"] = "read committed"
	p, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	if err := p.Ping(ctx); err != nil {
		p.Close()
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	return p, nil
}

// Migrations implements store.Engine.
func (e *Engine) Migrations() fs.FS {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil { // the folder is embedded
		panic(fmt.Sprintf("open the embedded migrations: %v", err))
	}
	return sub
}

// Writers implements store.Engine.
func (e *Engine) Writers() int { return writers }

// Sole implements store.Engine: replicas write too.
func (e *Engine) Sole() bool { return false }

// Clock implements store.Engine: the server's, which all replicas share.
func (e *Engine) Clock() string {
	return "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
}

// Close implements store.Engine.
func (e *Engine) Close() error {
	e.write.Close()
	e.read.Close()
	return nil
}

// Read implements store.Engine. REPEATABLE READ takes its snapshot at the
// first query.
func (e *Engine) Read(ctx context.Context, fn func(store.Conn) error) (err error) {
	pooled, err := e.read.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("wait for a connection: %w", err)
	}
	// A caller that goes away must not cost the connection.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), transactionTime)
	defer cancel()
	c := &conn{ctx: ctx, db: pooled.Conn(), opening: []store.Statement{{Text: "BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ"}}}
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("a read panicked: %v", value)
		}
		if len(c.opening) == 0 {
			if _, ended := c.db.Exec(ctx, "COMMIT"); ended != nil && err == nil {
				err = ended
			}
		}
		pooled.Release() // a connection that is still in a transaction is closed
	}()
	return fn(c)
}

// Query implements store.Engine.
func (e *Engine) Query(ctx context.Context, statement string, each func(store.Row) error, args ...any) (err error) {
	pooled, err := e.read.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("wait for a connection: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), transactionTime)
	defer cancel()
	defer pooled.Release()
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("a read panicked: %v", value)
		}
	}()
	return (&conn{ctx: ctx, db: pooled.Conn()}).Query(statement, each, args...)
}

// conn is a connection in a transaction.
type conn struct {
	// ctx bounds the transaction.
	ctx context.Context //nolint:containedctx // a conn lives as long as its transaction
	db  *pgx.Conn
	// opening are the statements that still have to open the transaction; they
	// are sent together with the first one.
	opening []store.Statement
}

// open queues what opens the transaction and returns how much that is.
func (c *conn) open(batch *pgx.Batch) int {
	for _, statement := range c.opening {
		batch.Queue(statement.Text, statement.Args...)
	}
	c.opening = nil
	return batch.Len()
}

// Exec implements store.Conn.
func (c *conn) Exec(text string, args ...any) (int64, error) {
	tag, err := c.db.Exec(c.ctx, text, args...)
	return tag.RowsAffected(), err
}

// Query implements store.Conn.
func (c *conn) Query(text string, each func(store.Row) error, args ...any) error {
	if len(c.opening) == 0 {
		rows, err := c.db.Query(c.ctx, text, args...)
		if err != nil {
			return fmt.Errorf("query: %w", err)
		}
		return scan(rows, each)
	}
	batch := &pgx.Batch{}
	before := c.open(batch)
	batch.Queue(text, args...)
	results := c.db.SendBatch(c.ctx, batch)
	for range before {
		if _, err := results.Exec(); err != nil {
			return errors.Join(err, results.Close())
		}
	}
	rows, err := results.Query()
	if err != nil {
		return errors.Join(err, results.Close())
	}
	return errors.Join(scan(rows, each), results.Close())
}

func scan(rows pgx.Rows, each func(store.Row) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := each(row{values: rows.RawValues(), fields: rows.FieldDescriptions()}); err != nil {
			return err
		}
	}
	return rows.Err()
}

// row implements store.Row on the wire form of the values: integers in binary,
// texts as they are.
type row struct {
	values [][]byte
	fields []pgconn.FieldDescription
}

// Null implements store.Row.
func (r row) Null(column int) bool { return r.values[column] == nil }

// Int implements store.Row.
func (r row) Int(column int) int64 {
	value := r.values[column]
	if len(value) != 8 || r.fields[column].Format != pgx.BinaryFormatCode {
		if value == nil {
			return 0
		}
		panic(fmt.Sprintf("column %s is no bigint in binary", r.fields[column].Name))
	}
	return int64(binary.BigEndian.Uint64(value))
}

// Text implements store.Row.
func (r row) Text(column int) string { return string(r.values[column]) }

// Bytes implements store.Row.
func (r row) Bytes(column int) []byte { return append([]byte(nil), r.values[column]...) }

// transaction implements store.Transaction.
type transaction struct {
	conn
	pooled *pgxpool.Conn
	cancel context.CancelFunc
	// release and savepoint wait for the next writing statement, which they
	// share a round trip with. COMMIT needs no release.
	release, savepoint bool
}

// Begin implements store.Engine.
func (e *Engine) Begin(ctx context.Context, name string) (store.Transaction, error) {
	ctx, cancel := context.WithTimeout(ctx, transactionTime)
	pooled, err := e.write.Acquire(ctx)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("wait for a connection: %w", err)
	}
	opening := []store.Statement{{Text: "BEGIN ISOLATION LEVEL READ COMMITTED"}}
	if name != "" {
		opening = append(opening, store.Statement{Text: "SELECT pg_advisory_xact_lock($1)", Args: []any{lockKey(name)}})
	}
	return &transaction{conn: conn{ctx: ctx, db: pooled.Conn(), opening: opening}, pooled: pooled, cancel: cancel}, nil
}

// send runs statements in one round trip and returns the numbers of rows that
// those before the first error wrote. The result of each is read: closing the
// batch alone would lose their errors.
func (c *conn) send(batch *pgx.Batch) (counts []int64, err error) {
	results := c.db.SendBatch(c.ctx, batch)
	counts = make([]int64, 0, batch.Len())
	for range batch.Len() {
		tag, failed := results.Exec()
		if failed != nil {
			err = failed
			break
		}
		counts = append(counts, tag.RowsAffected())
	}
	return counts, errors.Join(err, results.Close())
}

// lockKey is the number of a lock. Two names with one number only wait for
// each other.
func lockKey(name string) int64 {
	sum := sha256.Sum256([]byte("plugin-host/" + name))
	return int64(binary.BigEndian.Uint64(sum[:]))
}

// Script implements store.Transaction.
func (t *transaction) Script(text string) error {
	if _, err := t.ExecAll(nil); err != nil {
		return fmt.Errorf("begin a script: %w", err)
	}
	_, err := t.db.PgConn().Exec(t.ctx, text).ReadAll()
	if err != nil {
		return fmt.Errorf("run a script: %w", err)
	}
	return nil
}

// LockShared implements store.Transaction.
func (t *transaction) LockShared(name string) error {
	_, err := t.Exec("SELECT pg_advisory_xact_lock_shared($1)", lockKey(name))
	return err
}

// Savepoint implements store.Transaction.
func (t *transaction) Savepoint() error {
	t.savepoint = true
	return nil
}

// Release implements store.Transaction.
func (t *transaction) Release() error {
	t.release = true
	return nil
}

// Exec implements store.Conn.
func (t *transaction) Exec(text string, args ...any) (int64, error) {
	if len(t.opening) == 0 && !t.release && !t.savepoint {
		return t.conn.Exec(text, args...)
	}
	counts, err := t.ExecAll([]store.Statement{{Text: text, Args: args}})
	if err != nil {
		return 0, err
	}
	return counts[0], nil
}

// ExecAll implements store.Transaction.
func (t *transaction) ExecAll(statements []store.Statement) ([]int64, error) {
	batch := &pgx.Batch{}
	t.open(batch)
	if t.release {
		batch.Queue("RELEASE SAVEPOINT command")
	}
	if t.savepoint {
		batch.Queue("SAVEPOINT command")
	}
	t.release, t.savepoint = false, false
	before := batch.Len()
	for _, statement := range statements {
		batch.Queue(statement.Text, statement.Args...)
	}
	counts, err := t.send(batch)
	return counts[min(before, len(counts)):], err
}

// Undo implements store.Transaction.
func (t *transaction) Undo() error {
	if t.savepoint { // nothing was sent since
		t.savepoint = false
		return nil
	}
	if err := t.run("ROLLBACK TO SAVEPOINT command"); err != nil {
		return err
	}
	return t.run("RELEASE SAVEPOINT command")
}

// Alive implements store.Transaction. An error makes the transaction unusable until it is rolled back to a
// savepoint; a lost connection ends it.
func (t *transaction) Alive() bool {
	return !t.db.IsClosed() && (len(t.opening) > 0 || t.db.PgConn().TxStatus() == 'T')
}

// Commit implements store.Transaction. An answer of the server that is no success means that nothing was
// committed; without an answer, nobody knows.
func (t *transaction) Commit() error {
	defer t.end()
	if len(t.opening) > 0 {
		return nil // there was none
	}
	tag, err := t.db.Exec(t.ctx, "COMMIT")
	var answer *pgconn.PgError
	switch {
	case errors.As(err, &answer) && !t.db.IsClosed():
		return fmt.Errorf("%w: %w", store.ErrNotCommitted, err)
	case err != nil:
		return fmt.Errorf("commit: %w", err)
	case tag.String() != "COMMIT":
		return fmt.Errorf("%w: the server answered %s", store.ErrNotCommitted, tag)
	}
	return nil
}

// Rollback implements store.Transaction.
func (t *transaction) Rollback() {
	if !t.db.IsClosed() && t.db.PgConn().TxStatus() != 'I' {
		_ = t.run("ROLLBACK") // where it fails, end closes the connection
	}
	t.end()
}

// end gives the connection back; the pool closes one that is still in a
// transaction, or busy.
func (t *transaction) end() {
	t.pooled.Release()
	t.cancel()
}

func (t *transaction) run(text string) error {
	_, err := t.conn.Exec(text)
	return err
}
