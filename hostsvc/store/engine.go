package store

import (
	"context"
	"errors"
	"io/fs"
)

// Engine is a database. The store calls Begin from as many goroutines as
// Writers says, and from one more where it says more than one, and Read from any
// number.
type Engine interface {
	// Migrations holds the schema's numbered scripts, "0001_name.sql" first.
	Migrations() fs.FS
	// Writers is how many write transactions may be open at once. Each of them
	// is run by a goroutine that lives as long as the store.
	Writers() int
	// Sole tells that no other process can write while this one has the database
	// open.
	Sole() bool
	// Clock is an expression for the database's own clock, as it goes on during
	// a statement, in microseconds since 1970; "" where the clock of the one
	// process that has the database open is the store's.
	Clock() string
	// Outbox is how the database orders events.
	Outbox() Outbox
	// Begin opens a write transaction and takes the exclusive lock called name
	// as its first statement; "" takes none. The lock ends with the
	// transaction. Where the database is a round trip away, both may come with
	// the first statement that the store runs, which then fails in their place.
	// An error means that nothing happened.
	Begin(ctx context.Context, name string) (Transaction, error)
	// Read runs fn on one consistent snapshot that holds every commit that was
	// durable before the call. It returns after fn has returned.
	Read(ctx context.Context, fn func(Conn) error) error
	// Query runs one statement on a snapshot as Read's, and costs less: one
	// statement needs no transaction around it.
	Query(ctx context.Context, statement string, row func(Row) error, args ...any) error
	// Close ends every connection.
	Close() error
}

// Conn runs statements. Parameters are written $1, $2, ...; arguments are
// string, int64, []byte and nil.
type Conn interface {
	// Exec returns the number of rows that the statement wrote.
	Exec(statement string, args ...any) (int64, error)
	// Query calls row for each row of the result, and stops at its error.
	Query(statement string, row func(Row) error, args ...any) error
}

// Row is one row of a result, valid during the call that it was passed to.
// Columns are numbered from 0.
type Row interface {
	Null(column int) bool
	Int(column int) int64
	Text(column int) string
	Bytes(column int) []byte
}

// Statement is a statement that writes, with its arguments.
type Statement struct {
	Text string
	Args []any
}

// Transaction is an open write transaction, used by one goroutine.
type Transaction interface {
	Conn
	// ExecAll runs statements in order until one fails, in one round trip where
	// the database is one away, and returns the numbers of rows that those that
	// succeeded wrote.
	ExecAll(statements []Statement) ([]int64, error)
	// Script runs the statements of a migration.
	Script(text string) error
	// LockShared takes the named lock as a reader, until the transaction ends.
	LockShared(name string) error
	// Savepoint marks the point that Undo goes back to; there is one at a
	// time, and Release forgets it. Both may wait for the next statement that
	// writes.
	Savepoint() error
	Undo() error
	Release() error
	// Alive tells whether the transaction still exists and can go on. A
	// database may have ended it by itself after an error of a statement.
	Alive() bool
	// Commit returns nil once the transaction is durable, ErrNotCommitted when
	// it certainly was not committed, and any other error when nobody knows.
	// It ends the transaction in every case.
	Commit() error
	// Rollback ends the transaction; after an error the database has ended it.
	Rollback()
}

// Errors that an engine returns, wrapped.
var (
	// ErrNotCommitted: COMMIT failed and nothing of the transaction happened.
	ErrNotCommitted = errors.New("the transaction was not committed")
	// ErrDatabaseLost: the database can't be trusted any more, for example
	// after a failed fsync. The process must exit.
	ErrDatabaseLost = errors.New("the database is in an unknown state")
)
