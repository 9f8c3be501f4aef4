package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/fence"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/store"
)

// current asks a transaction and a snapshot, which must agree.
func (w *world) current() bool {
	w.t.Helper()
	var locked, read, beside bool
	w.must(w.Write(w.t.Context(), "w", func(tx command.Tx) error { locked = tx.Current(); return nil }))
	w.must(w.Read(w.t.Context(), func(s query.Snapshot) error { read = s.Current(); return nil }))
	w.must(w.Read(w.t.Context(), func(s query.Snapshot) error {
		_, err := s.AuthorityRow(key("w"))
		beside = s.Current()
		return err
	}))
	if locked != read || read != beside {
		w.t.Fatalf("the store vouches for its rows: under the lock %t, in a snapshot %t, beside a row %t", locked, read, beside)
	}
	return locked
}

// round begins a round now.
func (w *world) round() store.Round {
	w.t.Helper()
	round, err := w.BeginRound(w.t.Context())
	w.must(err)
	return round
}

// renew makes a round that lets commands commit until life from now, and returns
// the beat.
func (w *world) renew(life time.Duration) uint64 {
	w.t.Helper()
	beat, err := w.RenewLease(w.t.Context(), w.round(), life)
	w.must(err)
	return beat
}

// lapse lets life pass by the store's clock, whichever that is.
func (w *world) lapse(life time.Duration) {
	w.t.Helper()
	if w.clock != nil {
		w.clock.advance(life)
	}
	await(w.t, "the lease to run out", func() bool {
		round := w.round()
		return !round.Begun.Before(round.LeasedUntil)
	})
}

func testLease(t *testing.T, d Database) {
	w := openFresh(t, d.Open(t))
	want := func(when string, want bool) {
		t.Helper()
		if got := w.current(); got != want {
			t.Fatalf("%s: the store vouches for its rows: %t", when, got)
		}
	}
	want("a new store", false)
	w.renew(time.Minute)
	want("leased, not compared with the history", false)
	if round := w.round(); round.Complete || round.Beat != 1 || round.StoreEpoch != 1 || round.StoreID == "" {
		t.Errorf("the round begins with %+v", round)
	}
	var err error
	w.term, err = w.Lead(t.Context())
	w.must(err)
	w.must(w.Complete(t.Context(), w.term))
	w.must(w.Complete(t.Context(), w.term))
	want("leased and complete", true)
	stale := w.term
	w.term, err = w.Lead(t.Context())
	w.must(err)
	want("under a new leader", true)
	w.wantErr("a deposed leader's word", w.Complete(t.Context(), stale), fence.ErrDeposed)
	w.close()

	engine := d.Open(t)
	w = openFresh(t, engine)
	// Where the process's clock is the store's, no lease outlives the process.
	want("opened again", engine.Clock() != "")
	w.renew(time.Minute)
	want("opened again and leased", true)
	w.close()

	w = open(t, d)
	w.must(w.BeginEpoch(t.Context()))
	want("in a new epoch", false)
	w.renew(50 * time.Millisecond)
	w.term, err = w.Lead(t.Context())
	w.must(err)
	w.must(w.Complete(t.Context(), w.term))
	w.lapse(50 * time.Millisecond)
	want("after the lease", false)
	w.renew(time.Minute)
	want("renewed", true)
}

func testRenewal(t *testing.T, d Database) {
	w := open(t, d)
	began := w.round()
	if !began.Complete || began.LeasedUntil.Sub(began.Begun) < leaseLife/2 {
		t.Fatalf("the round begins with %+v", began)
	}
	// A shorter one changes nothing but the beat.
	for n := range uint64(3) {
		if beat := w.renew(time.Second); beat != began.Beat+n+1 {
			t.Errorf("beat %d after %d and %d renewals", beat, began.Beat, n+1)
		}
	}
	if now := w.round(); !now.LeasedUntil.Equal(began.LeasedUntil) || now.Beat != began.Beat+3 || now.StoreID != began.StoreID {
		t.Errorf("after shorter leases the round begins with %+v, before with %+v", now, began)
	}
	// A longer one moves the end to life after its round began, not after now.
	older := w.round()
	w.clock.advance(time.Minute)
	_, err := w.RenewLease(t.Context(), older, 2*leaseLife)
	w.must(err)
	if now := w.round(); !now.LeasedUntil.Equal(older.Begun.Add(2 * leaseLife)) {
		t.Errorf("leased until %s by a round that began at %s", now.LeasedUntil, older.Begun)
	}
	// A round that begins after now is of a clock that was set back since.
	ahead := w.round()
	ahead.Begun = ahead.Begun.Add(time.Hour)
	_, err = w.RenewLease(t.Context(), ahead, time.Minute)
	w.wantErr("a round from the future", err, store.ErrClockSetBack)
	// A round of an epoch that has ended renews nothing in the next.
	w.must(w.BeginEpoch(t.Context()))
	_, err = w.RenewLease(t.Context(), older, leaseLife)
	w.wantErr("a round of an epoch that has ended", err, fence.ErrDeposed)
	now := w.round()
	if !now.LeasedUntil.IsZero() || now.Complete || now.StoreEpoch != began.StoreEpoch+1 || now.Beat != began.Beat+4 {
		t.Errorf("the first round of an epoch begins with %+v", now)
	}
	w.close()
	w = openFresh(t, d.Open(t))
	if again := w.round(); again.Beat != now.Beat || again.StoreID != now.StoreID {
		t.Errorf("opened again, the round begins with %+v, before with %+v", again, now)
	}
}

// A lease whose end lies far off because the clock was set back shows nothing
// and is replaced.
func testClockSetBack(t *testing.T, w *world) {
	w.clock.advance(-time.Hour - time.Second)
	if w.current() {
		t.Error("a lease that has not begun is in force")
	}
	w.renew(time.Minute)
	if !w.current() {
		t.Error("a lease of before the clock was set back can't be replaced")
	}
	if round := w.round(); round.LeasedUntil.Sub(round.Begun) > time.Minute {
		t.Errorf("leased for %s", round.LeasedUntil.Sub(round.Begun))
	}
}

var errNotCurrent = errors.New("the store does not vouch for its rows")

// leased is a command that commits only under a lease.
func leased(fn func(command.Tx) error) func(command.Tx) error {
	return func(tx command.Tx) error {
		if !tx.Current() {
			return errNotCurrent
		}
		return fn(tx)
	}
}

// The lease ends at one statement after the other: at whichever it is, nothing
// of the transaction happens, and every one of its commands is told.
func testLateCommit(t *testing.T, d Database) {
	engine := &faulty{Engine: d.Open(t)}
	w := openFresh(t, engine)
	term, err := w.Lead(t.Context())
	w.must(err)
	w.must(w.Complete(t.Context(), term))
	w.seed("w", 0)
	lease := time.Duration(0)
	for _, size := range []int{1, 3} {
		ranOut := 0
		for at, fired := 1, true; fired; at++ {
			fired = false
			lease += time.Hour // longer than the one of the turn before
			w.renew(lease)
			ids := make([]string, size)
			fns := make([]func(command.Tx) error, size)
			for i := range ids {
				ids[i] = fmt.Sprintf("%d-%d-%d", size, at, i)
				fns[i] = leased(insertTask("w", ids[i]))
			}
			w.beforeBatch = func() {
				engine.arm(func(n int) fault {
					if n == at {
						fired = true
						w.clock.advance(2 * lease)
					}
					return works
				}, nil)
			}
			errs := w.together("w", fns...)
			engine.arm(nil, nil)
			w.checkWhole("w", ids, errs)
			for i, err := range errs {
				switch {
				case !fired:
					w.must(err)
				case errors.Is(err, store.ErrLeaseRanOut):
					w.wantErr("a commit after the lease", err, store.ErrUnavailable)
					ranOut++
				case !errors.Is(err, errNotCurrent) || at > 1:
					t.Errorf("the lease ends at statement %d of %d commands; the %d. got %v", at, size, i+1, err)
				}
			}
		}
		if ranOut < 3*size {
			t.Errorf("%d commands lost their lease before the commit", ranOut)
		}
	}
	w.beforeBatch = nil
	// What asked for no lease needs none.
	w.must(w.Write(t.Context(), "w", func(tx command.Tx) error {
		w.clock.advance(leaseLife)
		return insertTask("w", "unasked")(tx)
	}))
	if engine.Clock() == "" {
		w.renew(time.Hour)
		testClockSetBack(t, w)
	}
}

// As before, and no clock but real ones.
func testLateCommitRealTime(t *testing.T, d Database) {
	w := openAt(t, d.Open(t), time.Now)
	_, err := Vouch(t.Context(), w.Store)
	w.must(err)
	w.must(w.Seed(t.Context(), "w", func(store.SeedTx) error { return nil }))
	w.must(w.BeginEpoch(t.Context())) // ends the long lease
	term, err := w.Lead(t.Context())
	w.must(err)
	w.must(w.Complete(t.Context(), term))
	const life = 300 * time.Millisecond
	w.renew(life)
	authorised := false
	err = w.Write(t.Context(), "w", leased(func(tx command.Tx) error {
		authorised = true
		w.lapse(life)
		return insertTask("w", "late")(tx)
	}))
	if !authorised {
		t.Fatal("the machine was too slow: the lease ended before the command began")
	}
	w.wantErr("a command that took longer than its lease", err, store.ErrLeaseRanOut)
	w.checkWhole("w", []string{"late"}, []error{err})
	w.wantErr("the next one", w.Write(t.Context(), "w", leased(insertTask("w", "next"))), errNotCurrent)
	w.renew(time.Minute)
	w.must(w.Write(t.Context(), "w", leased(insertTask("w", "renewed"))))
}

// Commands that keep every worker waiting delay no renewal, and a renewal that
// is slow delays no command.
func testRenewalBesideCommands(t *testing.T, d Database) {
	engine := d.Open(t)
	w := openOn(t, engine)
	if engine.Writers() == 1 {
		// One writer does everything: a renewal goes before the commands that wait.
		release := w.hold("w")
		before := w.round()
		var wait sync.WaitGroup
		wait.Go(func() {
			err := w.Write(t.Context(), "w", func(tx command.Tx) error {
				if now, err := w.BeginRound(t.Context()); err != nil || now.Beat != before.Beat+1 {
					return fmt.Errorf("the command began at beat %d, want %d: %w", now.Beat, before.Beat+1, err)
				}
				return insertTask("w", "a")(tx)
			})
			if err != nil {
				t.Error(err)
			}
		})
		w.awaitQueued(1)
		wait.Go(func() {
			if _, err := w.RenewLease(t.Context(), before, leaseLife); err != nil {
				t.Error(err)
			}
		})
		w.awaitQueued(2)
		release()
		wait.Wait()
		return
	}
	var releases []func()
	for i := range engine.Writers() {
		releases = append(releases, w.hold(fmt.Sprintf("busy-%d", i)))
	}
	w.renew(leaseLife)
	row := w.row("w")
	w.must(w.Fence(t.Context(), w.term, row, activeRow(key("w"), row.Revision+1)))
	for _, release := range releases {
		release()
	}
}
