// Package sqlite is the embedded database: one file, one process, one writer.
//
// A lock file beside the database is held exclusively for life, so that a
// second process gets a clear error instead of another view of the world.
// Transactions are written on one connection; reads run on a few others, each
// with a goroutine of its own that lives as long as the engine (a fresh
// goroutine would grow its stack for every read).
//
// It imports store and the SQLite driver.
package sqlite

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/kandev/plugin-host/hostsvc/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

// ErrLocked is returned when another process has the database open.
var ErrLocked = errors.New("the database is in use by another process")

// busyTimeout bounds the wait for a lock of the database itself, which only a
// foreign process can hold.
const busyTimeout = 2 * time.Second

// Engine is a SQLite database. It implements store.Engine.
type Engine struct {
	lock   *os.File
	writer *conn

	requests chan *request
	closed   chan struct{}
	readers  sync.WaitGroup
	conns    []*conn
	close    func() error
}

var _ store.Engine = (*Engine)(nil)

// Open opens the database file at path, and makes it if it does not exist. The
// error wraps ErrLocked when another process has it.
func Open(path string) (*Engine, error) {
	e := &Engine{requests: make(chan *request), closed: make(chan struct{})}
	e.close = sync.OnceValue(e.shutDown)
	if err := e.open(path); err != nil {
		return nil, errors.Join(fmt.Errorf("open SQLite database %s: %w", path, err), e.Close())
	}
	return e, nil
}

func (e *Engine) open(path string) (err error) {
	if e.lock, err = lockFile(path + ".lock"); err != nil {
		return err
	}
	// Tasks and authority are nobody else's to read. SQLite gives its other files
	// the mode of this one.
	if err := private(path); err != nil {
		return err
	}
	// The file is opened by its plain path, whatever characters that has.
	if e.writer, err = connect(path, sqlite.OpenReadWrite|sqlite.OpenCreate); err != nil {
		return err
	}
	for _, pragma := range []string{
		"PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "PRAGMA wal_autocheckpoint = 4000",
		"PRAGMA journal_size_limit = 67108864",
	} {
		if err := e.writer.pragma(pragma); err != nil {
			return err
		}
	}
	for range readers() {
		c, err := connect(path, sqlite.OpenReadWrite)
		if err != nil {
			return err
		}
		if err := c.pragma("PRAGMA query_only = 1"); err != nil {
			return errors.Join(err, c.db.Close())
		}
		e.conns = append(e.conns, c)
		e.readers.Go(func() { e.serve(c) })
	}
	return nil
}

// readers is how many reads run at once: they are bound by the CPU.
func readers() int { return 2 * max(2, runtime.GOMAXPROCS(0)) }

// private makes the database file, if it isn't there, readable by its owner
// alone.
func private(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the operator names the file
	if err != nil {
		return fmt.Errorf("make the file: %w", err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("make the file: %w", err)
	}
	return nil
}

func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fmt.Errorf("open its lock file: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(ErrLocked, file.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock its lock file: %w", err), file.Close())
	}
	return file, nil
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
func (e *Engine) Writers() int { return 1 }

// Sole implements store.Engine: the lock file is this process's for life.
func (e *Engine) Sole() bool { return true }

// Clock implements store.Engine: the process's own.
func (e *Engine) Clock() string { return "" }

// Close implements store.Engine.
func (e *Engine) Close() error { return e.close() }

func (e *Engine) shutDown() error {
	close(e.closed)
	e.readers.Wait()
	var errs []error
	for _, c := range e.conns {
		errs = append(errs, c.db.Close())
	}
	if e.writer != nil {
		errs = append(errs, e.writer.db.Close())
	}
	if e.lock != nil {
		errs = append(errs, e.lock.Close())
	}
	return errors.Join(errs...)
}

// request is one read on its way to a reader.
type request struct {
	run  func(*conn) error
	done chan error
}

// Read implements store.Engine.
func (e *Engine) Read(ctx context.Context, fn func(store.Conn) error) error {
	return e.request(ctx, func(c *conn) error { return c.read(fn) })
}

// Query implements store.Engine.
func (e *Engine) Query(ctx context.Context, statement string, each func(store.Row) error, args ...any) error {
	return e.request(ctx, func(c *conn) (err error) {
		defer recovered(&err)
		return c.Query(statement, each, args...)
	})
}

func (e *Engine) request(ctx context.Context, run func(*conn) error) error {
	r := &request{run: run, done: make(chan error, 1)}
	select {
	case e.requests <- r:
		return <-r.done
	case <-e.closed:
		return store.ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("wait for a connection: %w", ctx.Err())
	}
}

func (e *Engine) serve(c *conn) {
	for {
		select {
		case r := <-e.requests:
			r.done <- r.run(c)
		case <-e.closed:
			return
		}
	}
}

// conn is one connection with its prepared statements, by their text.
type conn struct {
	db         *sqlite.Conn
	statements map[string]*sqlite.Stmt
}

// read runs fn in a read transaction.
func (c *conn) read(fn func(store.Conn) error) (err error) {
	if _, err := c.Exec("BEGIN"); err != nil {
		return err
	}
	defer func() {
		if _, ended := c.Exec("COMMIT"); ended != nil && err == nil {
			err = ended
		}
	}()
	defer recovered(&err)
	return fn(c)
}

// recovered, deferred, makes a panic the error of its read: it ends neither the
// reader nor the process before its caller knows.
func recovered(err *error) { //nolint:gocritic // it sets its caller's result
	if value := recover(); value != nil {
		*err = fmt.Errorf("a read panicked: %v", value)
	}
}

func connect(path string, flags sqlite.OpenFlags) (*conn, error) {
	db, err := sqlite.OpenConn(path, flags)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	db.SetBusyTimeout(busyTimeout)
	c := &conn{db: db, statements: map[string]*sqlite.Stmt{}}
	for _, pragma := range []string{"PRAGMA cache_size = -32768", "PRAGMA temp_store = MEMORY", "PRAGMA trusted_schema = 0"} {
		if err := c.pragma(pragma); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return c, nil
}

func (c *conn) pragma(text string) error {
	if err := sqlitex.ExecuteTransient(c.db, text, nil); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	return nil
}

// prepare returns the statement with its arguments bound. SQLite numbers ?n as
// the store does $n.
func (c *conn) prepare(text string, args []any) (*sqlite.Stmt, error) {
	statement := c.statements[text]
	if statement == nil {
		prepared, err := c.db.Prepare(strings.ReplaceAll(text, "$", "?"))
		if err != nil {
			return nil, fmt.Errorf("prepare: %w", err)
		}
		c.statements[text] = prepared
		statement = prepared
	}
	for i, arg := range args {
		switch value := arg.(type) {
		case string:
			statement.BindText(i+1, value)
		case int64:
			statement.BindInt64(i+1, value)
		case []byte:
			statement.BindBytes(i+1, value)
		case nil:
			statement.BindNull(i + 1)
		default:
			return nil, fmt.Errorf("argument %d is a %T", i+1, arg)
		}
	}
	return statement, nil
}

// Exec implements store.Conn.
func (c *conn) Exec(text string, args ...any) (int64, error) {
	statement, err := c.prepare(text, args)
	if err != nil {
		return 0, err
	}
	_, err = statement.Step()
	if reset := statement.Reset(); err == nil {
		err = reset
	}
	if err != nil {
		return 0, lost(err)
	}
	return int64(c.db.Changes()), nil
}

// Query implements store.Conn.
func (c *conn) Query(text string, each func(store.Row) error, args ...any) error {
	statement, err := c.prepare(text, args)
	if err != nil {
		return err
	}
	defer func() { _ = statement.Reset() }() // repeats the error of Step
	for {
		more, err := statement.Step()
		if err != nil {
			return lost(err)
		}
		if !more {
			return nil
		}
		if err := each(row{statement}); err != nil {
			return err
		}
	}
}

// lost marks the errors after which nobody knows what the file holds.
func lost(err error) error {
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultIOErr, sqlite.ResultCorrupt, sqlite.ResultNotADB:
		return fmt.Errorf("%w: %w", store.ErrDatabaseLost, err)
	default:
		return err
	}
}

// row implements store.Row.
type row struct{ statement *sqlite.Stmt }

// Null implements store.Row.
func (r row) Null(column int) bool { return r.statement.ColumnIsNull(column) }

// Int implements store.Row.
func (r row) Int(column int) int64 { return r.statement.ColumnInt64(column) }

// Text implements store.Row.
func (r row) Text(column int) string { return r.statement.ColumnText(column) }

// Bytes implements store.Row.
func (r row) Bytes(column int) []byte {
	buffer := make([]byte, r.statement.ColumnLen(column))
	return buffer[:r.statement.ColumnBytes(column, buffer)]
}
