package store

import (
	"errors"
	"fmt"
)

// Errors of the store. Causes of the database are wrapped for logs; no text of
// theirs is meant for a caller of the Host (I14).
var (
	// ErrUnavailable: the database did not do what was asked, and nothing
	// happened.
	ErrUnavailable = errors.New("the store can't answer now")
	// ErrOutcomeUnknown: the connection or the disk failed during COMMIT;
	// nobody knows whether the transaction happened. The same command with the
	// same idempotency key finds out.
	ErrOutcomeUnknown = errors.New("the outcome of the commit is unknown")
	// ErrLeaseRanOut: what a command was authorised by ended before its COMMIT,
	// and nothing of its transaction happened.
	ErrLeaseRanOut = fmt.Errorf("%w: the lease ran out before the commit", ErrUnavailable)
	// ErrClockSetBack: the store's clock stands before the beginning of the
	// round that is to renew the lease.
	ErrClockSetBack = errors.New("the store's clock was set back")
	// ErrOtherCluster: the store belongs to another cluster.
	ErrOtherCluster = errors.New("the store belongs to another cluster")
	// ErrArchivedOtherwise: another event of this revision is archived.
	ErrArchivedOtherwise = errors.New("the revision is archived with another event")
	// ErrClosed: the store was closed, or has lost its database.
	ErrClosed = errors.New("the store is closed")
	// ErrSchemaNewer: the database was written by a newer build.
	ErrSchemaNewer = errors.New("the database has a newer schema than this build")
	// ErrTombstoned: the installation was uninstalled; its authority never
	// comes back.
	ErrTombstoned = errors.New("the installation was uninstalled")
	// ErrInstallationKnown: another object has this installation ID, or this
	// object another one.
	ErrInstallationKnown = errors.New("the installation is recorded otherwise")
	// ErrRevisionSkipped: a fence must go to the revision after the one it was
	// computed from (I3).
	ErrRevisionSkipped = errors.New("a fence moves a row by exactly one revision")
	// ErrWorkspaceBound: the commit names another workspace than the
	// transaction is in.
	ErrWorkspaceBound = errors.New("the write is outside the transaction's workspace or version")
	// ErrNotQueued: a move waits for a slot that its task isn't queued for.
	ErrNotQueued = errors.New("the task is not queued for the slot of the move")
	// ErrNoEntry: a command wrote and appended no entry.
	ErrNoEntry = errors.New("a write without its journal entry")
)

// statementError is a failed statement. Its text names what was being done;
// the cause is for logs.
type statementError struct {
	doing string
	cause error
}

func (e *statementError) Error() string { return e.doing + ": " + ErrUnavailable.Error() }

func (e *statementError) Unwrap() []error { return []error{ErrUnavailable, e.cause} }

func failed(doing string, cause error) error {
	if cause == nil {
		return nil
	}
	return &statementError{doing: doing, cause: cause}
}

// panicError is a panic of a command, turned into its error: it must end
// neither the queue nor its neighbours.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("a command panicked: %v", e.value) }
