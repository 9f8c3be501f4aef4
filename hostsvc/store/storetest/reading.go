package storetest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/store"
)

// uncompared asks a transaction and two snapshots whether the lease leaves the
// row out, in which they must agree.
func (w *world) uncompared(workspace string) bool {
	w.t.Helper()
	var locked, read *authority.Row
	var listed []authority.Row
	w.must(w.Write(w.t.Context(), workspace, func(tx command.Tx) (err error) {
		locked, err = tx.AuthorityRow(key(workspace))
		return err
	}))
	w.must(w.Read(w.t.Context(), func(s query.Snapshot) (err error) {
		read, err = s.AuthorityRow(key(workspace))
		return err
	}))
	w.must(w.Read(w.t.Context(), func(s query.Snapshot) (err error) {
		listed, err = s.AuthorityRows(installation)
		return err
	}))
	for _, row := range listed {
		if row.Key != key(workspace) {
			continue
		}
		if locked.Uncompared != read.Uncompared || read.Uncompared != row.Uncompared {
			w.t.Fatalf("the lease leaves out the row of %s: under the lock %t, in a snapshot %t, listed %t",
				workspace, locked.Uncompared, read.Uncompared, row.Uncompared)
		}
		return row.Uncompared
	}
	w.t.Fatalf("the row of %s is not listed", workspace)
	return false
}

// fenceRead fences the workspace's row to the next revision, as a pass does that
// read it age ago.
func (w *world) fenceRead(workspace string, age time.Duration) {
	w.t.Helper()
	from, err := w.Row(w.t.Context(), key(workspace))
	w.must(err)
	from.ReadAt = from.ReadAt.Add(-age)
	w.must(w.Fence(w.t.Context(), w.term, from, activeRow(key(workspace), from.Revision+1)))
}

// A lease vouches for the rows that its round has compared. One that was fenced
// since, and was computed from what was read longer ago than a lease lasts, waits
// for the next: whoever stands still for long between a live read and a fence must
// not bring back what was revoked meanwhile.
func testUncompared(t *testing.T, d Database) {
	w := open(t, d)
	want := func(when string, want bool) {
		t.Helper()
		if got := w.uncompared("w"); got != want {
			t.Fatalf("%s: the lease leaves the row out: %t", when, got)
		}
	}
	life := leaseLife // of the lease in force
	// renew makes a lease that ends after all before it.
	renew := func(round store.Round) {
		t.Helper()
		life += time.Hour
		_, err := w.RenewLease(t.Context(), round, life)
		w.must(err)
	}
	w.fenceRead("w", 0)
	want("a row that was read just now", false)
	w.fenceRead("w", life-time.Hour)
	want("a row that was read within the life of a lease", false)
	before := w.round()
	w.fenceRead("w", 2*life)
	want("a row that was read too long ago", true)
	row := w.row("w")
	w.must(w.MarkSeen(t.Context(), w.term, row, authority.Seen{UID: "approval-1", Generation: row.Seen.Generation + 1}))
	want("the same with a later mark", true)
	renew(before)
	want("renewed by a round of before the fence", true)
	renew(w.round())
	want("renewed by a round that began after the fence", false)

	row = w.row("w")
	w.must(w.MarkSeen(t.Context(), w.term, row, authority.Seen{UID: "approval-1", Generation: row.Seen.Generation + 1}))
	row = w.row("w")
	_, err := w.Hold(t.Context(), row, revoked("approval-1", row.Seen.Generation+1))
	w.must(err)
	want("compared, marked and held", false)

	w.fenceRead("w", -time.Hour)
	want("a row that was read in the future: the clock was set back", true)
	from, err := w.Row(t.Context(), key("w"))
	w.must(err)
	from.ReadAt = time.Time{}
	w.must(w.Fence(t.Context(), w.term, from, activeRow(key("w"), from.Revision+1)))
	want("a row that was read nobody knows when", true)
	w.close()

	w = open(t, d)
	want("the same after a restart", true)
	renew(w.round())
	want("the same once a round has compared it", false)
}

// A command that a row of its own reading let through must not commit when that
// is over, though the lease runs on.
func testLateCommitOfReading(t *testing.T, d Database) {
	w := open(t, d)
	w.seed("w", 0)
	w.fenceRead("w", leaseLife-time.Hour)
	write := func(id string, meanwhile time.Duration) error {
		return w.Write(t.Context(), "w", leased(func(tx command.Tx) error {
			row, err := tx.AuthorityRow(key("w"))
			if err != nil || row.Uncompared || !tx.Current() {
				return errors.Join(err, errNotCurrent)
			}
			w.clock.advance(meanwhile)
			return insertTask("w", id)(tx)
		}))
	}
	w.must(write("in time", time.Minute))
	err := write("late", 2*time.Hour)
	w.wantErr("a command that took longer than its row is vouched for", err, store.ErrLeaseRanOut)
	w.checkWhole("w", []string{"late"}, []error{err})
}

// RunRenewalWaitsForFences shows that a fence and a renewal of the lease wait for
// each other: a round that begins after a renewal would else not see a row that
// says it was fenced before. waits asks, in the transaction of the renewal, whether
// another one waits for a lock.
func RunRenewalWaitsForFences(t *testing.T, d Database, waits func(store.Transaction) (bool, error)) {
	engine := d.Open(t)
	w := openOn(t, engine)
	row := w.grant("w")
	renewal, err := engine.Begin(t.Context(), "lease")
	w.must(err)
	end := sync.OnceFunc(renewal.Rollback)
	defer end()
	fenced := make(chan error, 1)
	go func() { fenced <- w.Fence(t.Context(), w.term, row, activeRow(key("w"), row.Revision+1)) }()
	await(t, "the fence to wait for the renewal", func() bool {
		waiting, err := waits(renewal)
		if err != nil {
			t.Error(err)
		}
		return waiting || t.Failed()
	})
	select {
	case err := <-fenced:
		t.Errorf("a fence ended during a renewal: %v", err)
	default:
		end()
		w.must(<-fenced)
	}
}
