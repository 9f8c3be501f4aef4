package sqlite

import (
	"context"
	"fmt"

	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/kandev/plugin-host/hostsvc/store"
)

// transaction implements store.Transaction on the one writing connection.
// Every lock is that connection, which the store's one worker holds.
type transaction struct {
	*conn
}

// Begin implements store.Engine.
func (e *Engine) Begin(_ context.Context, _ string) (store.Transaction, error) {
	if _, err := e.writer.Exec("BEGIN IMMEDIATE"); err != nil {
		return nil, err
	}
	return transaction{e.writer}, nil
}

// Script implements store.Transaction.
func (t transaction) Script(text string) error {
	if err := sqlitex.ExecuteScript(t.db, text, nil); err != nil {
		return fmt.Errorf("run a script: %w", err)
	}
	return nil
}

// ExecAll implements store.Transaction.
func (t transaction) ExecAll(statements []store.Statement) ([]int64, error) {
	counts := make([]int64, 0, len(statements))
	for _, statement := range statements {
		n, err := t.Exec(statement.Text, statement.Args...)
		if err != nil {
			return counts, err
		}
		counts = append(counts, n)
	}
	return counts, nil
}

// LockShared implements store.Transaction.
func (t transaction) LockShared(string) error { return nil }

// Savepoint implements store.Transaction.
func (t transaction) Savepoint() error { return t.run("SAVEPOINT command") }

// Release implements store.Transaction.
func (t transaction) Release() error { return t.run("RELEASE command") }

// Undo implements store.Transaction.
func (t transaction) Undo() error {
	if err := t.run("ROLLBACK TO command"); err != nil {
		return err
	}
	return t.run("RELEASE command")
}

// Alive implements store.Transaction. SQLite ends a transaction by itself after some errors, and is then
// back in autocommit mode, where the next statement would commit alone.
func (t transaction) Alive() bool { return !t.db.AutocommitEnabled() }

// Commit implements store.Transaction.
func (t transaction) Commit() error {
	err := t.run("COMMIT")
	if err == nil {
		return nil
	}
	if t.Alive() {
		// It is still open, so it was not committed.
		t.Rollback()
		if !t.Alive() {
			return fmt.Errorf("%w: %w", store.ErrNotCommitted, err)
		}
	}
	return fmt.Errorf("%w: %w", store.ErrDatabaseLost, err)
}

// Rollback implements store.Transaction.
func (t transaction) Rollback() {
	if t.Alive() {
		_ = t.run("ROLLBACK") // it fails only where the transaction has ended
	}
}

func (t transaction) run(text string) error {
	_, err := t.Exec(text)
	return err
}
