package storetest

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/fence"
	"github.com/kandev/plugin-host/hostsvc/store"
)

// copied are the tables that an older copy of the database is made of here: what
// the store is, and what is held and granted in it.
var copied = []string{"store", "heads", "authority", "journal", "distrusted"}

// statements runs statements past the store, as whoever runs the database does.
func statements(t testing.TB, engine store.Engine, texts ...string) {
	t.Helper()
	tx, err := engine.Begin(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		if _, err := tx.Exec(text); err != nil {
			tx.Rollback()
			t.Fatalf("%s: %v", text, err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// keep copies the database as it is, and returns what puts the copy back under the
// stores that have it open.
func keep(t testing.TB, engine store.Engine) (putBack func()) {
	t.Helper()
	var save, replace []string
	for _, table := range copied {
		save = append(save, "CREATE TABLE kept_"+table+" AS SELECT * FROM "+table)
		replace = append(replace, "DELETE FROM "+table, "INSERT INTO "+table+" SELECT * FROM kept_"+table)
	}
	statements(t, engine, save...)
	return func() {
		t.Helper()
		statements(t, engine, replace...)
	}
}

// A copy has the store's ID and the leader's term, and lacks what was held since it
// was taken: with the watch's history of that, a fence would bring back what was
// revoked. Whatever only the leader may do is refused until another epoch begins.
func testOlderCopy(t testing.TB, d Database) {
	engine := d.Open(t)
	w := openOn(t, engine)
	granted := w.grant("w")
	w.must(w.Check(t.Context(), w.term, granted))
	putBack := keep(t, engine)
	_, err := w.Hold(t.Context(), granted, revoked("approval-1", 2))
	w.must(err)
	early := w.round()
	w.renew(leaseLife)
	last := w.round()
	if last.Older {
		t.Errorf("a store that nobody touched is older: %+v", last)
	}
	putBack()

	if row := w.row("w"); !reflect.DeepEqual(row, granted) {
		t.Fatalf("the copy has the row %+v", row)
	}
	regrant := activeRow(key("w"), 2)
	refused := func(when string) {
		t.Helper()
		for what, err := range map[string]error{
			"a check":                   w.Check(t.Context(), w.term, granted),
			"a fence":                   w.Fence(t.Context(), w.term, granted, regrant),
			"a mark":                    w.MarkSeen(t.Context(), w.term, granted, authority.Seen{UID: "approval-1", Generation: 3}),
			"a start":                   w.FenceStart(t.Context(), w.term, authority.Event{Row: regrant}),
			"the end of the comparison": w.Complete(t.Context(), w.term),
			"a proof":                   w.Prove(t.Context(), w.term, "pins", map[string]int64{"approval-1": 7}),
		} {
			w.wantErr(what+" "+when, err, fence.ErrOlderStore)
			w.wantErr(what+" "+when, err, fence.ErrDeposed)
		}
		if row := w.row("w"); !reflect.DeepEqual(row, granted) {
			t.Fatalf("%s, the row goes to %+v", when, row)
		}
		if pins, distrusted, err := w.Proof(t.Context()); err != nil || pins != "" || len(distrusted) > 0 {
			t.Fatalf("%s, %q is proven and %v distrusted: %v", when, pins, distrusted, err)
		}
		if round := w.round(); !round.Older || round.Beat >= last.Beat || round.StoreID != last.StoreID {
			t.Errorf("%s, a round begins with %+v after %+v", when, round, last)
		}
	}
	refused("in an older copy")
	for what, round := range map[string]store.Round{"the last round": last, "one that began at the copy's beat": early} {
		_, err = w.RenewLease(t.Context(), round, leaseLife)
		w.wantErr("the end of "+what, err, fence.ErrOlderStore)
	}
	// Another term is of the same epoch, whoever began it.
	w.term, err = w.Lead(t.Context())
	w.must(err)
	refused("in another term in an older copy")
	granted, err = w.Hold(t.Context(), granted, revoked("approval-1", 9))
	w.must(err) // a hold needs no leader

	w.must(w.BeginEpoch(t.Context()))
	w.wantErr("a fence of the old epoch", w.Fence(t.Context(), w.term, granted, regrant), fence.ErrDeposed)
	w.term, err = Vouch(t.Context(), w.Store)
	w.must(err)
	w.must(w.FenceStart(t.Context(), w.term, authority.Event{Row: regrant}))
	if round := w.round(); round.Older || round.Beat > last.Beat {
		t.Errorf("in another epoch, a round begins with %+v after %+v", round, last)
	}
}

// Whoever serves calls from an older copy serves them for no longer than it was
// leased when it was taken, which is before whatever it lacks.
func testOlderLease(t *testing.T, d Database) {
	const life = 500 * time.Millisecond
	engine := d.Open(t)
	w := openFresh(t, engine)
	var err error
	w.term, err = w.Lead(t.Context())
	w.must(err)
	w.must(w.Complete(t.Context(), w.term))
	w.renew(life)
	leased := w.round().LeasedUntil
	putBack := keep(t, engine)
	w.renew(time.Hour)
	if !w.current() {
		t.Fatal("the store vouches for nothing")
	}
	putBack()
	round := w.round()
	if !round.Older || !round.LeasedUntil.Equal(leased) {
		t.Errorf("in a copy that was leased until %s, a round begins with %+v", leased, round)
	}
	_, err = w.RenewLease(t.Context(), round, time.Hour)
	w.wantErr("a round in an older copy", err, fence.ErrOlderStore)
	w.lapse(life)
	if w.current() {
		t.Error("an older copy vouches for its rows after its lease")
	}
}

// A copy of an earlier epoch begins one that this process has never seen: the number
// of one that is lost stands for other rows. What a round compared in one store
// vouches for no other.
func testOlderEpoch(t testing.TB, d Database) {
	engine := d.Open(t)
	w := openOn(t, engine)
	putBack := keep(t, engine)
	w.must(w.BeginEpoch(t.Context()))
	later, err := Vouch(t.Context(), w.Store)
	w.must(err)
	last := w.round()
	putBack()

	if round := w.round(); !round.Older || round.StoreEpoch >= last.StoreEpoch {
		t.Errorf("a copy of an earlier epoch begins a round with %+v after %+v", round, last)
	}
	w.must(w.BeginEpoch(t.Context()))
	term, err := Vouch(t.Context(), w.Store)
	w.must(err)
	if term.StoreEpoch <= later.StoreEpoch {
		t.Errorf("after epoch %d and its loss comes %d", later.StoreEpoch, term.StoreEpoch)
	}
	round := w.round()
	if round.Older {
		t.Errorf("in another epoch, a round begins with %+v", round)
	}
	w.must(w.Write(t.Context(), "w", func(tx command.Tx) error {
		if !tx.Current() {
			return errors.New("nothing commits")
		}
		return nil
	}))

	statements(t, engine, "UPDATE store SET store_id = 'another'")
	_, err = w.RenewLease(t.Context(), round, leaseLife)
	w.wantErr("the end of a round of another store", err, fence.ErrDeposed)
	if now := w.round(); now.Older || now.Beat != round.Beat {
		t.Errorf("another store begins a round with %+v", now)
	}
}
