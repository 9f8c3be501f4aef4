package storetest

import (
	"context"
	"errors"
	"sync"

	"github.com/kandev/plugin-host/hostsvc/store"
)

var errInjected = errors.New("an injected fault")

// faulty is a real engine whose transactions fail where a test says so.
type faulty struct {
	store.Engine

	mu sync.Mutex
	// exec, when set, is asked before each statement of a write transaction,
	// with its number since arm.
	exec func(n int) fault
	// commit, when set, is asked before each COMMIT.
	commit func() fault
	count  int
}

type fault int

const (
	works fault = iota
	// fails: the statement fails and the transaction goes on.
	fails
	// ends: the statement fails and the database has ended the transaction.
	ends
	// uncertain: COMMIT happens and its answer is lost.
	uncertain
	// undone: COMMIT fails and nothing happened.
	undone
	// lost: as fails, and the database can't be trusted any more.
	lost
)

func (e *faulty) arm(exec func(n int) fault, commit func() fault) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.exec, e.commit, e.count = exec, commit, 0
}

func (e *faulty) nextExec() fault {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.exec == nil {
		return works
	}
	e.count++
	return e.exec(e.count)
}

func (e *faulty) nextCommit() fault {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.commit == nil {
		return works
	}
	return e.commit()
}

// Begin implements store.Engine.
func (e *faulty) Begin(ctx context.Context, name string) (store.Transaction, error) {
	t, err := e.Engine.Begin(ctx, name)
	if err != nil {
		return nil, err
	}
	return &faultyTransaction{Transaction: t, engine: e}, nil
}

type faultyTransaction struct {
	store.Transaction
	engine *faulty
	ended  bool
}

// next is the fault of the next statement.
func (t *faultyTransaction) next() error {
	switch t.engine.nextExec() {
	case fails:
		return errInjected
	case lost:
		return errors.Join(store.ErrDatabaseLost, errInjected)
	case ends:
		t.ended = true
		t.Transaction.Rollback()
		return errInjected
	}
	if t.ended {
		return errors.New("a statement after the end of the transaction")
	}
	return nil
}

// Exec implements store.Transaction.
func (t *faultyTransaction) Exec(statement string, args ...any) (int64, error) {
	if err := t.next(); err != nil {
		return 0, err
	}
	return t.Transaction.Exec(statement, args...)
}

// ExecAll implements store.Transaction.
func (t *faultyTransaction) ExecAll(statements []store.Statement) (counts []int64, err error) {
	for _, statement := range statements {
		n, err := t.Exec(statement.Text, statement.Args...)
		if err != nil {
			return counts, err
		}
		counts = append(counts, n)
	}
	return counts, nil
}

// Query implements store.Transaction.
func (t *faultyTransaction) Query(statement string, row func(store.Row) error, args ...any) error {
	if err := t.next(); err != nil {
		return err
	}
	return t.Transaction.Query(statement, row, args...)
}

// Undo implements store.Transaction.
func (t *faultyTransaction) Undo() error {
	if t.ended {
		return errInjected
	}
	return t.Transaction.Undo()
}

// Alive implements store.Transaction.
func (t *faultyTransaction) Alive() bool { return !t.ended && t.Transaction.Alive() }

// Commit implements store.Transaction.
func (t *faultyTransaction) Commit() error {
	switch t.engine.nextCommit() {
	case uncertain:
		return errors.Join(errInjected, t.Transaction.Commit())
	case undone:
		t.Transaction.Rollback()
		return errors.Join(store.ErrNotCommitted, errInjected)
	case lost:
		return errors.Join(store.ErrDatabaseLost, errInjected, t.Transaction.Commit())
	}
	return t.Transaction.Commit()
}

// Rollback implements store.Transaction.
func (t *faultyTransaction) Rollback() {
	if !t.ended {
		t.Transaction.Rollback()
	}
}
