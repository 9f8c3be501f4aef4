package store

import (
	"fmt"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/fence"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// head is the end of a workspace's commit order.
type head struct {
	version domain.Version
	hash    string
}

// tx is the transaction of a batch, as each of its commands sees it in turn.
type tx struct {
	store     *Store
	db        Transaction
	workspace string
	// solo: the batch is one command, so undoing it is rolling back.
	solo bool

	// Of the batch. ended: commit or rollback has been called. gone: the
	// database has ended the transaction by itself, or it can't be undone to a
	// known point.
	epochs fence.Term
	vouch  vouch
	// relied: a command was told that the vouch holds.
	relied    bool
	committed head
	wrote     bool
	gone      bool
	ended     bool
	// moved are the authority rows that any command wrote, kept or not.
	moved []authority.Key
	// movedAll: what every row means has changed.
	movedAll bool

	// Of the command that runs.
	head     head
	saved    bool
	dirty    bool
	domain   bool
	appended bool
	failure  error
	// pending are writes that wait to be sent together.
	pending []write
	// read is the task that the command read last.
	read domain.Task
	// talk is what it has written of conversations.
	talk talk
}

// finish ends the transaction unless Commit has.
func (t *tx) finish() {
	defer func() {
		t.store.known.forget(t.moved)
		if t.movedAll {
			t.store.known.clear()
		}
	}()
	if !t.ended {
		t.ended = true
		t.db.Rollback()
	}
}

// selectBeginning returns the statement that begin reads with.
func selectBeginning(clock string) string {
	return `SELECT s.store_epoch, s.leader_epoch, ` + vouchColumns(clock) + `, h.version, h.hash
		FROM store s LEFT JOIN heads h ON h.workspace_id = $1`
}

// begin reads what every command of the batch builds on, by the first
// statement after the lock.
func (t *tx) begin() error {
	if t.workspace == "" {
		return nil
	}
	asked := t.store.asked()
	err := t.db.Query(t.store.beginning, func(r Row) error {
		t.epochs = fence.Term{StoreEpoch: uint64(r.Int(0)), LeaderEpoch: uint64(r.Int(1))}
		t.vouch = scanVouch(r, 2, asked)
		const at = 2 + vouchWidth
		if !r.Null(at) {
			t.committed = head{version: domain.Version(r.Int(at)), hash: r.Text(at + 1)}
		}
		return nil
	}, t.workspace)
	if err != nil {
		return failed("read the head of the workspace", err)
	}
	if t.epochs.StoreEpoch == 0 {
		return failed("read the head of the workspace", errNoStoreRow)
	}
	return nil
}

// do runs one command and undoes it unless it succeeded.
func (t *tx) do(fn func(*tx) error) error {
	t.head, t.saved, t.dirty, t.domain, t.appended, t.failure = t.committed, false, false, false, false, nil
	t.read, t.talk, t.pending = domain.Task{}, talk{}, t.pending[:0]
	err := t.call(fn)
	if err == nil && t.failure == nil {
		err = t.projectAll()
	}
	if err == nil && !t.solo {
		_ = t.flush() // remembered
	}
	switch {
	case t.failure != nil:
		err = t.failure
	case err == nil && t.domain && !t.appended:
		err = ErrNoEntry
	}
	if err == nil {
		if t.saved {
			if released := t.db.Release(); released != nil {
				t.gone = true
				return failed("keep a command's writes", released)
			}
		}
		t.committed = t.head
		t.wrote = t.wrote || t.dirty
		return nil
	}
	t.pending = t.pending[:0]
	t.undo()
	return err
}

// undo takes a command back. A failed statement may have ended the
// transaction, or, on some databases, made it unusable.
func (t *tx) undo() {
	switch {
	case t.failure == nil && !t.dirty:
	case t.solo:
		t.gone = t.failure != nil
		t.wrote = false
	case t.saved && t.db.Undo() == nil && t.db.Alive():
	case !t.saved && t.db.Alive():
	default:
		t.gone = true
	}
}

// query reads; a failure is remembered whatever the command makes of it.
func (t *tx) query(doing, statement string, row func(Row) error, args ...any) error {
	if err := t.flush(); err != nil {
		return err
	}
	if err := t.db.Query(statement, row, args...); err != nil {
		t.failure = failed(doing, err)
		return t.failure
	}
	return nil
}

// exec writes.
func (t *tx) exec(doing, statement string, args ...any) (int64, error) {
	if err := t.writes(); err != nil {
		return 0, err
	}
	if err := t.flush(); err != nil {
		return 0, err
	}
	n, err := t.db.Exec(statement, args...)
	if err != nil {
		t.failure = failed(doing, err)
		return 0, t.failure
	}
	return n, nil
}

// writes prepares a write. The savepoint comes with the command's first: what
// only reads and is refused needs none.
func (t *tx) writes() error {
	if t.failure != nil {
		return t.failure
	}
	if !t.solo && !t.saved {
		if err := t.db.Savepoint(); err != nil {
			t.failure = failed("mark the start of a command", err)
			return t.failure
		}
		t.saved = true
	}
	t.dirty = true
	return nil
}

// write is a write that waits. check, when set, judges the number of rows that
// it wrote.
type write struct {
	doing     string
	statement Statement
	check     func(rows int64) error
}

// together is how many writes wait at most. The database ends a transaction that is
// idle while very many are made ready.
const together = 1000

// later writes, at the latest before the next statement of another kind, before the
// command is done and when many wait: where the database is a round trip away, writes in
// a row take one together. An error of check fails the command like one of the
// statement.
func (t *tx) later(check func(rows int64) error, doing, statement string, args ...any) error {
	if t.store.engine.Sole() {
		n, err := t.exec(doing, statement, args...)
		if err == nil && check != nil {
			err = check(n)
		}
		return err
	}
	if err := t.writes(); err != nil {
		return err
	}
	t.pending = append(t.pending, write{doing, Statement{statement, args}, check})
	if len(t.pending) < together {
		return nil
	}
	return t.flush()
}

// flush sends the writes that wait.
func (t *tx) flush() error {
	if t.failure != nil || len(t.pending) == 0 {
		return t.failure
	}
	statements := make([]Statement, len(t.pending))
	for i, w := range t.pending {
		statements[i] = w.statement
	}
	pending := t.pending
	t.pending = t.pending[:0]
	counts, err := t.db.ExecAll(statements)
	if err != nil {
		t.failure = failed(pending[min(len(counts), len(pending)-1)].doing, err)
		return t.failure
	}
	for i, n := range counts {
		if check := pending[i].check; check != nil {
			if t.failure = check(n); t.failure != nil {
				return t.failure
			}
		}
	}
	return nil
}

func (t *tx) lockShared(name string) error {
	if err := t.flush(); err != nil {
		return err
	}
	if err := t.db.LockShared(name); err != nil {
		t.failure = failed("take a lock", err)
		return t.failure
	}
	return nil
}

// Version implements command.Tx.
func (t *tx) Version() domain.Version { return t.head.version + 1 }

// Current implements command.Tx.
func (t *tx) Current() bool {
	if !t.vouch.at(t.store.clock()) {
		return false
	}
	t.relied = true
	return true
}

// late tells that a command was let through by a lease that has run out since.
func (t *tx) late() bool { return t.relied && !t.vouch.at(t.store.clock()) }

// StoreEpoch implements command.Tx.
func (t *tx) StoreEpoch() uint64 { return t.epochs.StoreEpoch }

// Append implements command.Tx. A command has one entry: its version is the
// command's place in the workspace's order. What follows of it by itself has an
// entry each behind it, see FollowUp.
func (t *tx) Append(entry journal.Entry) error {
	if t.appended || entry.WorkspaceID != t.workspace || t.workspace == "" {
		return fmt.Errorf("append an entry of workspace %s: %w", entry.WorkspaceID, ErrWorkspaceBound)
	}
	entry.Version = t.Version()
	entry = entry.Link(t.head.hash)
	if err := t.insertEntry(entry); err != nil {
		return err
	}
	t.appended = true
	t.head = head{version: entry.Version, hash: entry.Hash}
	return nil
}

// FollowUp implements board.Tx.
func (t *tx) FollowUp() error {
	if !t.appended {
		return fmt.Errorf("go on behind an entry that isn't there: %w", ErrNoEntry)
	}
	if err := t.projectAll(); err != nil { // of the version that ends here
		return err
	}
	t.appended = false
	return nil
}

// writeHead records the end of the batch, with what a single command left to be
// sent.
func (t *tx) writeHead() error {
	if t.workspace != "" && t.committed.version > 0 {
		t.pending = append(t.pending, write{"write the head of the workspace", Statement{
			`INSERT INTO heads (workspace_id, version, hash, oldest) VALUES ($1, $2, $3, 0)
				ON CONFLICT (workspace_id) DO UPDATE SET version = excluded.version, hash = excluded.hash`,
			[]any{t.workspace, int64(t.committed.version), t.committed.hash},
		}, nil})
	}
	return t.flush()
}
