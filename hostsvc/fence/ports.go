package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/kandev/plugin-host/hostsvc/authority"
)

// Errors that ports return and the pass acts on.
var (
	// ErrEventExists: an event of this name exists already. It is obeyed.
	ErrEventExists = errors.New("an event of this revision exists already")
	// ErrOvertaken: the row moved between reading it and writing it. The pass
	// starts over.
	ErrOvertaken = errors.New("the authority row has moved")
	// ErrDeposed: this process is no longer the leader of this store epoch.
	// The pass ends; another process has taken over.
	ErrDeposed = errors.New("this process no longer leads")
	// ErrOlderStore: the store is an older copy of itself: this process has seen it
	// further on. What was held since the copy was taken is lost, so that no term is
	// in force there until another store epoch begins. It is an ErrDeposed.
	ErrOlderStore = fmt.Errorf("the store is an older copy: %w", ErrDeposed)
	// ErrHistoryLost: a status, or an event that can't be read, knows a revision
	// that the store doesn't have. Going on would use revisions again (I3).
	ErrHistoryLost = errors.New("the store is behind a revision that was published")
	// ErrConflict: the object whose status was computed has changed since.
	ErrConflict = errors.New("the object has changed since it was read")
)

// Term identifies one leader's time in office over one store epoch. Fences and
// marks are refused to every other. A copy of the store that was taken in a term
// has the same one; how far the store was is what the ledger remembers of it.
type Term struct {
	StoreEpoch  uint64
	LeaderEpoch uint64
}

// Intent reads what humans ask for, live and uncached.
type Intent interface {
	// Read returns the intent for key and a handle on the very objects it was
	// read from, for the status step.
	Read(ctx context.Context, key authority.Key) (Reading, error)
}

// Reading is one live read of a key's objects.
type Reading struct {
	Intent authority.Intent
	// InstallationName is the installation object's name, "" when absent.
	InstallationName string
	// Object identifies the approval object whose status is to be written; nil
	// when there is none.
	Object *Object
	// Published is the revision of this key that the object's status says is in
	// force, 0 for none.
	Published uint64
}

// Object is a version of an approval object.
type Object struct {
	Namespace       string
	Name            string
	UID             string
	ResourceVersion string
	// Read is what Intent read of it, for Status; the pass hands it on unseen.
	Read any
}

// History tells how much of an approval object's life this process has
// watched.
type History interface {
	// WatchedFrom waits, for a bounded time, until this process's own watch
	// handler has handled version generation of the object, and returns the
	// earliest generation from which on it has compared every later version with
	// the one before it: the first that it has handled, or the one before that
	// where the row had processed it by then (authority.Intent.Unwatched); 0 when
	// it has not handled that version in time.
	WatchedFrom(ctx context.Context, object Object, generation int64) (int64, error)
}

// Events keeps the immutable events.
type Events interface {
	// Create stores the event, or returns ErrEventExists.
	Create(ctx context.Context, event authority.Event) error
	// Get returns the event of a revision, uncached.
	Get(ctx context.Context, key authority.Key, revision uint64) (authority.Event, error)
}

// Ledger is the store's side of authority: rows, under the workspace's lock.
type Ledger interface {
	// Row returns the row of key; a row that does not exist is the zero row
	// with its Key set.
	Row(ctx context.Context, key authority.Key) (authority.Row, error)
	// Hold merges a narrowing that was computed from the row read as from into
	// the row, creating a row of revision 0 when there is none, with its audit
	// entry, and returns the row. It needs no leader. It does nothing when the
	// row has meanwhile processed that version, and is ErrOvertaken when the row
	// otherwise has another revision, or has processed another version, than
	// from: it would cost a grant that is newer than it.
	Hold(ctx context.Context, from authority.Row, hold authority.Hold) (authority.Row, error)
	// Check returns the error with which Fence would refuse to go on from the row
	// read as from, as of now. It writes nothing.
	Check(ctx context.Context, term Term, from authority.Row) error
	// Fence replaces the row read as from by to, in one transaction with its
	// audit entry and outbox event: ErrDeposed unless term is current,
	// ErrOlderStore where this process has seen the store further on, and
	// ErrOvertaken unless the row still has from's revision and hold.
	Fence(ctx context.Context, term Term, from, to authority.Row) error
	// MarkSeen records the processed version without a revision, under the
	// same checks as Fence. It never goes back.
	MarkSeen(ctx context.Context, term Term, from authority.Row, seen authority.Seen) error
	// Distrust records that a version of an approval object came while the
	// admission policies were not proven in force: up to this generation, the
	// object widens nothing. It never goes back.
	Distrust(ctx context.Context, uid string, generation int64) error
}

// Status writes what is in force onto the approval object.
type Status interface {
	// Apply writes the report, bound to the version of the object that was
	// read; ErrConflict when it has changed, nil when there is nothing to
	// write.
	Apply(ctx context.Context, object Object, report authority.Report) error
}
