package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/fence"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/store"
)

func testStoreEpoch(t *testing.T, d Database) {
	w := open(t, d)
	w.seed("w", 1)
	granted := w.grant("w")
	w.grant("held")
	seen := w.grant("seen")
	if row, err := w.AuthorityRow(t.Context(), key("w")); err != nil || row.Starting {
		t.Fatalf("the row reads as %+v, %v", row, err) // and is known from here on
	}
	old := w.term
	before := w.round()
	w.must(w.BeginEpoch(t.Context()))
	if w.current() {
		t.Error("a new epoch vouches for its rows before it is complete")
	}
	w.wantErr("a fence of the old term", w.Fence(t.Context(), old, granted, activeRow(key("w"), 2)), fence.ErrDeposed)
	var err error
	w.term, err = w.Lead(t.Context())
	w.must(err)
	if w.term.StoreEpoch != old.StoreEpoch+1 || w.term.LeaderEpoch <= old.LeaderEpoch {
		t.Errorf("the term went from %+v to %+v", old, w.term)
	}
	w.must(w.Complete(t.Context(), w.term))
	if w.current() {
		t.Error("a new epoch vouches for its rows under the lease of the old one")
	}
	if round := w.round(); round.Beat != before.Beat || round.StoreID != before.StoreID {
		t.Errorf("the round begins with %+v, before with %+v", round, before)
	}
	w.renew(leaseLife)
	if !w.current() {
		t.Error("a complete epoch with a lease does not vouch for its rows")
	}

	// Every row starts, whichever way it is read, and nothing but a fence ends it.
	held, err := w.Hold(t.Context(), w.row("held"), revoked("approval-1", 9))
	w.must(err)
	w.must(w.MarkSeen(t.Context(), w.term, w.row("seen"), authority.Seen{UID: "approval-1", Generation: seen.Seen.Generation + 1}))
	if !held.Starting {
		t.Error("a hold ended the start of its row")
	}
	for _, workspace := range []string{"w", "held", "seen"} {
		if row := w.row(workspace); !row.Starting || row.Effective(w.clock.Now()) != 0 || row.Revision != 1 {
			t.Errorf("in a new epoch the row of %s is %+v", workspace, row)
		}
		var snap, locked *authority.Row
		var listed []authority.Row
		w.must(w.Read(t.Context(), func(s query.Snapshot) (err error) {
			snap, err = s.AuthorityRow(key(workspace))
			return err
		}))
		w.must(w.Read(t.Context(), func(s query.Snapshot) (err error) {
			listed, err = s.AuthorityRows(installation)
			return err
		}))
		w.must(w.Write(t.Context(), workspace, func(tx command.Tx) (err error) {
			locked, err = tx.AuthorityRow(key(workspace))
			return err
		}))
		plain, err := w.AuthorityRow(t.Context(), key(workspace))
		w.must(err)
		if !snap.Starting || !locked.Starting || !plain.Starting || len(listed) != 3 || !listed[0].Starting || !listed[1].Starting || !listed[2].Starting {
			t.Errorf("the row of %s starts: in a snapshot %t, under the lock %t, before it %t, listed %+v",
				workspace, snap.Starting, locked.Starting, plain.Starting, listed)
		}
	}
	w.close()
	w = open(t, d)
	if row := w.row("w"); !row.Starting {
		t.Error("a restart ended the start of a row")
	}
	if row := w.grant("w"); row.Starting || row.Revision != 2 || row.Effective(w.clock.Now()) == 0 {
		t.Errorf("the fence left %+v", row)
	}
	if row := w.row("held"); !row.Starting || row.Hold == nil {
		t.Errorf("another row is %+v", row)
	}
	// A row that is behind its history starts as one of a rebuilt store does.
	w.must(w.FenceStart(t.Context(), w.term, authority.Event{Row: activeRow(key("seen"), 4)}))
	if row := w.row("seen"); !row.Starting || row.Revision != 4 {
		t.Errorf("the row that was behind is %+v", row)
	}
	var epoch uint64
	w.must(w.Write(t.Context(), "w", func(tx command.Tx) error { epoch = tx.StoreEpoch(); return nil }))
	if epoch != w.term.StoreEpoch {
		t.Errorf("commands commit in store epoch %d, it is %d", epoch, w.term.StoreEpoch)
	}
}

// Once BeginEpoch has returned, no command that was authorised in the old epoch
// commits any more.
func testStoreEpochWaits(t *testing.T, d Database) {
	w := open(t, d)
	w.seed("w", 0)
	w.grant("w")
	begun, proceed := make(chan struct{}), make(chan struct{})
	written, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		written <- w.Write(t.Context(), "w", func(tx command.Tx) error {
			row, err := tx.AuthorityRow(key("w"))
			if err != nil || row.Starting || !tx.Current() {
				return errors.Join(err, errors.New("the epoch has begun already"))
			}
			close(begun)
			<-proceed
			return insertTask("w", "old")(tx)
		})
	}()
	<-begun
	go func() { ended <- w.BeginEpoch(t.Context()) }()
	w.awaitQueued(1)
	select {
	case err := <-ended:
		t.Errorf("the epoch began with %v under an open transaction", err)
	default:
	}
	close(proceed)
	w.must(<-ended)
	n := len(w.entries("w"))
	w.must(<-written)
	if now := len(w.entries("w")); now != n {
		t.Errorf("%d entries, and %d when the epoch had begun", now, n)
	}
}

func testClaim(t *testing.T, d Database) {
	w := open(t, d)
	row := w.grant("w")
	w.wantErr("a cluster without a uid", w.Claim(t.Context(), "", ""), store.ErrOtherCluster)
	for range 2 {
		w.must(w.Claim(t.Context(), "cluster-1", ""))
	}
	w.must(w.Claim(t.Context(), "cluster-1", "cluster-0")) // named for good in a chart, it does nothing
	for _, adoptFrom := range []string{"", "cluster-0", "cluster-2"} {
		w.wantErr("another cluster's claim", w.Claim(t.Context(), "cluster-2", adoptFrom), store.ErrOtherCluster)
	}
	if now := w.row("w"); !reflect.DeepEqual(now, row) || w.round().StoreEpoch != w.term.StoreEpoch || !w.current() {
		t.Errorf("claims changed the row to %+v", now)
	}
	w.close()
	w = open(t, d)
	w.wantErr("another cluster's claim after a restart", w.Claim(t.Context(), "cluster-2", ""), store.ErrOtherCluster)
	w.must(w.Claim(t.Context(), "cluster-1", ""))
}

// adoptable is a store of cluster-1 with three rows: granted, held, and never
// approved.
func adoptable(t *testing.T, engine store.Engine) *world {
	w := openOn(t, engine)
	w.must(w.Claim(t.Context(), "cluster-1", ""))
	_, err := w.RecordInstallation(t.Context(), "uid-1", "plugin")
	w.must(err)
	_, err = w.Bind(t.Context(), "w", "namespace-1", "uid-1")
	w.must(err)
	w.seed("v", 1)
	w.grant("w")
	w.grant("v")
	_, err = w.Hold(t.Context(), w.row("v"), revoked("approval-1", 9))
	w.must(err)
	w.must(w.MarkSeen(t.Context(), w.term, authority.Row{Key: key("u")}, authority.Seen{UID: "b", Generation: 1}))
	return w
}

// checkAdopted checks that nothing of cluster-1 authorises anything, and that
// what is no authority is as it was.
func (w *world) checkAdopted(t *testing.T, epoch uint64) {
	t.Helper()
	rows, err := w.Rows(t.Context())
	w.must(err)
	if len(rows) != 3 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		if row.Hold == nil || row.Hold.State != authority.StateRevoked || row.Effective(w.clock.Now()) != 0 {
			t.Errorf("the row of %s is %+v", row.Key.WorkspaceID, row)
		}
		entries := w.entries(row.Key.WorkspaceID)
		held := 0
		for _, e := range entries {
			if e.Kind == journal.KindHold {
				held++
			}
		}
		if held != 1 { // the one of v was there, and takes everything
			t.Errorf("%d holds are in the journal of %s", held, row.Key.WorkspaceID)
		}
		if row.Key.WorkspaceID != "v" && row.Hold.Cause != authority.CauseStoreEpoch {
			t.Errorf("the row of %s is held for %s", row.Key.WorkspaceID, row.Hold.Cause)
		}
	}
	recorded, err := w.RecordInstallation(t.Context(), "uid-1", "plugin")
	w.must(err)
	for _, id := range []string{installation, recorded} {
		if dead, err := w.Tombstoned(t.Context(), id); err != nil || !dead {
			t.Errorf("installation %s is tombstoned: %t, %v", id, dead, err)
		}
	}
	term, err := Vouch(t.Context(), w.Store)
	w.must(err)
	w.term = term
	if term.StoreEpoch != epoch+1 {
		t.Errorf("the store epoch went from %d to %d", epoch, term.StoreEpoch)
	}
	row := w.row("w")
	w.wantErr("a fence to Active", w.Fence(t.Context(), term, row, activeRow(key("w"), row.Revision+1)), store.ErrTombstoned)
	bindings, err := w.Bindings(t.Context())
	w.must(err)
	if _, found := w.readTask("v", taskID(0)); !found || len(bindings) != 1 {
		t.Errorf("after the adoption the task is there: %t, and %d bindings", found, len(bindings))
	}
}

func testAdopt(t *testing.T, d Database) {
	w := adoptable(t, d.Open(t))
	old := w.term
	w.must(w.Claim(t.Context(), "cluster-2", "cluster-1"))
	if w.current() {
		t.Error("an adopted store vouches for its rows")
	}
	w.wantErr("a fence of the old cluster", w.Fence(t.Context(), old, w.row("w"), activeRow(key("w"), 2)), fence.ErrDeposed)
	w.checkAdopted(t, old.StoreEpoch)
	epoch := w.round().StoreEpoch
	w.must(w.Claim(t.Context(), "cluster-2", "cluster-1"))
	if now := w.round().StoreEpoch; now != epoch {
		t.Errorf("claimed again, the store epoch went from %d to %d", epoch, now)
	}
	w.wantErr("the old cluster", w.Claim(t.Context(), "cluster-1", ""), store.ErrOtherCluster)
}

// An adoption that a fault or a crash interrupts is ended by the next claim,
// which need not name the former cluster any more.
func testAdoptFaults(t *testing.T, d Database) {
	w := adoptable(t, d.Open(t))
	epoch := w.term.StoreEpoch
	w.close()
	engine := &faulty{Engine: d.Open(t)}
	w = openFresh(t, engine)
	faults := 0
	for at := 1; ; at++ {
		engine.arm(func(n int) fault {
			if n == at {
				return ends
			}
			return works
		}, nil)
		from := ""
		if w.round().StoreEpoch == epoch {
			from = "cluster-1"
		}
		err := w.Claim(t.Context(), "cluster-2", from)
		engine.arm(nil, nil)
		if err == nil {
			break
		}
		w.wantErr("a claim with a fault", err, store.ErrUnavailable)
		faults++
	}
	if faults < 3 {
		t.Errorf("only %d faults were tried", faults)
	}
	w.checkAdopted(t, epoch)
}

func testProof(t *testing.T, d Database) {
	w := open(t, d)
	want := func(wantPins string, want map[string]int64) {
		t.Helper()
		pins, distrusted, err := w.Proof(t.Context())
		w.must(err)
		if pins != wantPins || !reflect.DeepEqual(distrusted, want) {
			t.Errorf("the proof is %q with %v, want %q with %v", pins, distrusted, wantPins, want)
		}
	}
	want("", map[string]int64{})
	w.must(w.Distrust(t.Context(), "a", 3))
	w.must(w.Distrust(t.Context(), "a", 2))
	w.must(w.Prove(t.Context(), w.term, "pins-1", map[string]int64{"a": 1, "b": 7}))
	want("pins-1", map[string]int64{"a": 3, "b": 7})
	w.must(w.Prove(t.Context(), w.term, "pins-1", nil))
	many := map[string]int64{"a": 4, "b": 7}
	for i := range 150 {
		many[fmt.Sprintf("uid-%03d", i)] = int64(i)
	}
	stale := w.term
	var err error
	w.term, err = w.Lead(t.Context())
	w.must(err)
	w.wantErr("a deposed leader's proof", w.Prove(t.Context(), stale, "pins-2", many), fence.ErrDeposed)
	want("pins-1", map[string]int64{"a": 3, "b": 7})
	w.must(w.Prove(t.Context(), w.term, "pins-2", many))
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			if err := w.Distrust(t.Context(), "b", int64(20-i)); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	many["b"] = 20
	want("pins-2", many)
	w.close()
	w = open(t, d)
	want("pins-2", many)
}

// history is n events of one key, each chained to the one before.
func history(t *testing.T, workspace string, n int) (events []authority.Event) {
	t.Helper()
	row := authority.Row{Key: key(workspace)}
	at := time.Date(2026, 5, 6, 7, 8, 9, 123456000, time.UTC)
	for i := range n {
		next := activeRow(row.Key, row.Revision+1)
		next.UpdatedAt, next.IssuedAt, next.ExpiresAt = at.Add(time.Duration(i)*time.Second), at, at.Add(1000*time.Hour)
		next.Reason, next.ApprovedBy, next.ApprovedVia, next.ConfirmedBy = "why \x00ü", "ann", "flux", "bo"
		if i%2 == 1 {
			hold := revoked("approval-1", int64(i))
			row.Hold = &hold
			next.State, next.Granted = authority.StateRevoked, 0
		}
		event, err := authority.NewEvent(row, authority.Outcome{Next: next, Type: authority.EventGrant}, "plugin")
		if err != nil {
			t.Fatal(err)
		}
		events, row = append(events, event), event.Rebuilt()
	}
	return events
}

func testArchive(t *testing.T, d Database) {
	w := open(t, d)
	events := history(t, "w", 150)
	others := history(t, "v", 2)
	w.must(w.Archive(t.Context(), slices.Concat(others, events[:100])))
	w.must(w.Archive(t.Context(), events[50:]))
	w.must(w.Archive(t.Context(), nil))

	forged := events[3]
	forged.Row.Granted = contract.SetOf(contract.ReadTasks)
	if err := w.Archive(t.Context(), []authority.Event{forged}); err == nil {
		t.Error("archived an event that does not match its digest")
	}
	second, err := authority.NewEvent(authority.Row{Key: key("w")}, authority.Outcome{Next: activeRow(key("w"), 1), Type: authority.EventRevoke}, "plugin")
	w.must(err)
	w.wantErr("another event of a revision", w.Archive(t.Context(), []authority.Event{second}), store.ErrArchivedOtherwise)
	w.close()

	w = open(t, d)
	var all []authority.Event
	for {
		page, err := w.ArchivedEvents(t.Context(), key("w"), uint64(len(all)), 40)
		w.must(err)
		if len(page) == 0 {
			break
		}
		all = append(all, page...)
	}
	if !reflect.DeepEqual(all, events) {
		t.Errorf("archived %d events, read %d that are not the same", len(events), len(all))
	}
	hash := ""
	for _, event := range all {
		if event.PreviousHash != hash {
			t.Fatalf("event %s does not follow the one before it", event.Name())
		}
		hash = event.Row.EventHash
	}
	if few, err := w.ArchivedEvents(t.Context(), key("v"), 0, 10); err != nil || !reflect.DeepEqual(few, others) {
		t.Errorf("of the other key, read %d events, %v", len(few), err)
	}
	if none, err := w.ArchivedEvents(t.Context(), key("u"), 0, 10); err != nil || len(none) != 0 {
		t.Errorf("of a key without events, read %v, %v", none, err)
	}
	w.close()
	tamper(t, d, `UPDATE approval_events SET document = replace(document, 'ann', 'eve') WHERE workspace_id = $1 AND revision = 2`, "v")
	w = open(t, d)
	if got, err := w.ArchivedEvents(t.Context(), key("v"), 0, 10); err == nil {
		t.Errorf("a changed document reads as %+v", got)
	}
}

func testRebind(t *testing.T, d Database) {
	w := open(t, d)
	none, err := w.Rebind(t.Context(), "w", "uid-1", "namespace-2", "uid-2")
	w.must(err)
	if none != (store.Binding{}) {
		t.Errorf("a workspace that was never bound passed on to %+v", none)
	}
	first, err := w.Bind(t.Context(), "w", "namespace-1", "uid-1")
	w.must(err)
	for _, from := range []string{"", "uid-2", "uid-3"} {
		stays, err := w.Rebind(t.Context(), "w", from, "namespace-2", "uid-2")
		w.must(err)
		if !reflect.DeepEqual(stays, first) {
			t.Errorf("bound to uid-1 and re-bound from %q: %+v", from, stays)
		}
	}
	n := len(w.entries("w"))
	w.clock.advance(time.Minute)
	for range 2 { // whoever tries again finds it done
		moved, err := w.Rebind(t.Context(), "w", "uid-1", "namespace-2", "uid-2")
		w.must(err)
		if moved.NamespaceUID != "uid-2" || moved.Namespace != "namespace-2" || moved.WorkspaceID != "w" || !moved.BoundAt.After(first.BoundAt) {
			t.Errorf("re-bound to %+v", moved)
		}
	}
	entries := w.entries("w")
	if last := entries[len(entries)-1]; len(entries) != n+1 || last.Kind != journal.KindBinding || last.Before != "uid-1" || last.TargetID != "uid-2" {
		t.Errorf("the journal ends with %+v, %d entries more", last, len(entries)-n)
	}
	w.close()
	w = open(t, d)
	all, err := w.Bindings(t.Context())
	w.must(err)
	if len(all) != 1 || all[0].NamespaceUID != "uid-2" {
		t.Errorf("the bindings are %+v", all)
	}
	if again, err := w.Bind(t.Context(), "w", "namespace-1", "uid-1"); err != nil || again.NamespaceUID != "uid-2" {
		t.Errorf("bound anew to the former namespace: %+v, %v", again, err)
	}
}

// RunOlderCopy shows what a store that was put back from an older copy tells of
// itself. save copies the database of a running store, restore puts the copy in
// its place.
func RunOlderCopy(t *testing.T, d Database, save, restore func()) {
	w := open(t, d)
	w.must(w.Claim(t.Context(), "cluster-1", ""))
	w.seed("w", 1)
	w.grant("w")
	w.renew(leaseLife)
	save()
	granted := w.row("w")
	_, err := w.Hold(t.Context(), granted, revoked("approval-1", 9))
	w.must(err)
	held := w.row("w")
	over := activeRow(key("w"), 2)
	over.State, over.Granted = authority.StateRevoked, 0
	w.must(w.Fence(t.Context(), w.term, held, over))
	published := w.renew(leaseLife)
	last := w.round()
	w.close()
	restore()

	w = openFresh(t, d.Open(t))
	if row := w.row("w"); !reflect.DeepEqual(row, granted) {
		t.Fatalf("the copy has the row %+v", row)
	}
	if w.current() {
		t.Error("the copy vouches for its rows before any round")
	}
	round := w.round()
	if round.Beat >= published || round.StoreID != last.StoreID {
		t.Fatalf("the copy is at beat %d of store %s; published was %d of %s", round.Beat, round.StoreID, published, last.StoreID)
	}
	// Which is why a new epoch begins, and the history takes the row to where it
	// was, with nothing in force on the way.
	w.must(w.BeginEpoch(t.Context()))
	w.term, err = w.Lead(t.Context())
	w.must(err)
	w.must(w.FenceStart(t.Context(), w.term, authority.Event{Row: over}))
	w.must(w.Complete(t.Context(), w.term))
	w.renew(leaseLife)
	if row := w.row("w"); !row.Starting || row.Revision != 2 || row.State != authority.StateRevoked {
		t.Errorf("the row is %+v", row)
	}
	_, err = w.RenewLease(t.Context(), last, leaseLife)
	w.wantErr("a round of before the copy was put back", err, fence.ErrDeposed)
	w.must(w.Write(t.Context(), "w", func(tx command.Tx) error {
		if !tx.Current() || tx.StoreEpoch() != last.StoreEpoch+1 {
			t.Errorf("commands commit in epoch %d, before it was %d", tx.StoreEpoch(), last.StoreEpoch)
		}
		return nil
	}))
}
