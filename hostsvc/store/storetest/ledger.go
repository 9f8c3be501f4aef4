package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
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

func testRevisions(t *testing.T, d Database) {
	w := open(t, d)
	zero := w.row("w")
	if zero.Revision != 0 || zero.Key != key("w") {
		t.Fatalf("a row that does not exist reads as %+v", zero)
	}
	first := w.grant("w")
	second := w.grant("w")
	if first.Revision != 1 || second.Revision != 2 {
		t.Fatalf("two fences led to revisions %d and %d", first.Revision, second.Revision)
	}
	w.wantErr("fence computed on an old row", w.Fence(t.Context(), w.term, first, activeRow(key("w"), 2)), fence.ErrOvertaken)
	w.wantErr("fence computed on no row", w.Fence(t.Context(), w.term, zero, activeRow(key("w"), 1)), fence.ErrOvertaken)
	w.wantErr("fence that skips", w.Fence(t.Context(), w.term, second, activeRow(key("w"), 4)), store.ErrRevisionSkipped)
	w.wantErr("fence that repeats", w.Fence(t.Context(), w.term, second, activeRow(key("w"), 2)), store.ErrRevisionSkipped)
	w.wantErr("fence of another row", w.Fence(t.Context(), w.term, second, activeRow(key("x"), 3)), store.ErrRevisionSkipped)
	w.close()

	w = open(t, d)
	if third := w.grant("w"); third.Revision != 3 {
		t.Errorf("after a restart the next revision is %d, want 3", third.Revision)
	}
	fences := w.entries("w")
	for i, e := range fences {
		if e.Kind != journal.KindFence || e.Revision != uint64(i+1) || e.EventType != store.EventContextChanged ||
			e.AuditID != authority.AuditID(key("w"), e.Revision) {
			t.Errorf("entry %d is %+v", i+1, e)
		}
	}
	if len(fences) != 3 {
		t.Errorf("the journal has %d entries, want 3", len(fences))
	}
}

func testFenceRace(t *testing.T, d Database) {
	w := open(t, d)
	from := w.grant("w")
	var won, overtaken atomic.Int32
	var wait sync.WaitGroup
	for range 16 {
		wait.Go(func() {
			switch err := w.Fence(t.Context(), w.term, from, activeRow(key("w"), 2)); {
			case err == nil:
				won.Add(1)
			case errors.Is(err, fence.ErrOvertaken):
				overtaken.Add(1)
			default:
				t.Errorf("fence: %v", err)
			}
		})
	}
	wait.Wait()
	if won.Load() != 1 || overtaken.Load() != 15 {
		t.Errorf("%d fences won and %d were overtaken, want 1 and 15", won.Load(), overtaken.Load())
	}
}

// maxFenceWait bounds a fence under load. It takes a few milliseconds; a
// starved one takes as long as the load lasts.
const maxFenceWait = 2 * time.Second

func testFenceUnderLoad(t *testing.T, d Database, writers int) {
	w := open(t, d)
	w.seed("w", writers)
	from := w.grant("w")
	errFenced := errors.New("another revision is in force")
	var commits atomic.Int64
	var wait sync.WaitGroup
	stop := make(chan struct{})
	for i := range writers {
		wait.Go(func() {
			for n := 0; ; n++ {
				id := taskID(i)
				err := w.Write(t.Context(), "w", func(tx command.Tx) error {
					row, err := tx.AuthorityRow(key("w"))
					if err != nil {
						return err
					}
					if row.Revision != from.Revision {
						return errFenced
					}
					return touch("w", id, fmt.Sprint(n), fmt.Sprintf("%s-%d", id, n))(tx)
				})
				switch {
				case errors.Is(err, errFenced):
					return
				case err != nil:
					t.Errorf("writer %d: %v", i, err)
					return
				}
				commits.Add(1)
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	await(t, "writers to commit", func() bool { return commits.Load() >= int64(4*writers) || t.Failed() })
	begun := time.Now()
	err := w.Fence(t.Context(), w.term, from, activeRow(key("w"), from.Revision+1))
	took := time.Since(begun)
	if err != nil {
		t.Errorf("fence under load: %v", err)
		close(stop)
	}
	wait.Wait()
	w.must(err)
	if took > maxFenceWait {
		t.Errorf("the fence waited %s with %d writers", took, writers)
	}
	t.Logf("the fence took %s after %d commits of %d writers", took, commits.Load(), writers)

	fenced := false
	for _, e := range w.entries("w") {
		switch {
		case e.Kind == journal.KindFence && e.Revision == from.Revision+1:
			fenced = true
		case fenced:
			t.Fatalf("version %d committed under revision %d after the fence", e.Version, e.Revision)
		}
	}
	if !fenced {
		t.Error("the journal has no entry of the fence")
	}
}

func testDeposed(t *testing.T, d Database) {
	w := open(t, d)
	row := w.grant("w")
	old := w.term
	term, err := w.Lead(t.Context())
	w.must(err)
	if term.LeaderEpoch != old.LeaderEpoch+1 || term.StoreEpoch != old.StoreEpoch {
		t.Errorf("leading again went from %+v to %+v", old, term)
	}
	epochs, err := w.Epochs(t.Context())
	w.must(err)
	if epochs.Term != term || epochs.StoreID == "" {
		t.Errorf("the epochs read as %+v", epochs)
	}
	to := activeRow(key("w"), 2)
	w.wantErr("fence", w.Fence(t.Context(), old, row, to), fence.ErrDeposed)
	w.wantErr("mark", w.MarkSeen(t.Context(), old, row, authority.Seen{UID: "approval-1", Generation: 9}), fence.ErrDeposed)
	w.wantErr("start", w.FenceStart(t.Context(), old, authority.Event{Row: to}), fence.ErrDeposed)
	w.wantErr("another store epoch", w.Fence(t.Context(), fence.Term{StoreEpoch: 9, LeaderEpoch: term.LeaderEpoch}, row, to), fence.ErrDeposed)
	if now := w.row("w"); !reflect.DeepEqual(now, row) {
		t.Errorf("a deposed leader changed the row to %+v", now)
	}
	if _, err := w.Hold(t.Context(), w.row("w"), revoked("approval-1", 7)); err != nil {
		t.Errorf("a hold needs no leader: %v", err)
	}
}

func revoked(uid string, generation int64) authority.Hold {
	return authority.Hold{
		State: authority.StateRevoked, Cause: authority.CauseHuman, Actor: authority.Actor{Name: "ann", Assurance: authority.ActorClaimed},
		Reason: "leak \x00", UID: uid, Generation: generation,
	}
}

func testHold(t testing.TB, d Database) {
	w := open(t, d)
	held, err := w.Hold(t.Context(), w.row("new"), revoked("a", 1))
	w.must(err)
	if held.Revision != 0 || held.State != authority.StateNone || held.Hold == nil || !reflect.DeepEqual(held, w.row("new")) {
		t.Errorf("a hold on no row left %+v", held)
	}

	before := w.grant("w")
	narrow := authority.Hold{
		State: authority.StateActive, Granted: contract.SetOf(contract.ReadTasks, contract.WriteTasks),
		ExpiresAt: time.Date(9999, 1, 1, 0, 0, 0, 1000, time.UTC), Cause: authority.CauseHuman, UID: "approval-1", Generation: 2,
	}
	first, err := w.Hold(t.Context(), w.row("w"), narrow)
	w.must(err)
	if !first.Hold.Equal(&narrow) || first.Revision != before.Revision {
		t.Errorf("the hold reads as %+v", first.Hold)
	}
	further := narrow
	further.Granted, further.Generation = contract.SetOf(contract.ReadTasks), 3
	second, err := w.Hold(t.Context(), w.row("w"), further)
	w.must(err)
	if h := second.Hold; h.Granted != further.Granted || h.Generation != 2 || !h.Spent {
		t.Errorf("two holds merged into %+v", h)
	}
	if !reflect.DeepEqual(second, w.row("w")) {
		t.Errorf("the stored row is %+v, returned was %+v", w.row("w"), second)
	}
	// The same narrowing again changes nothing and writes nothing.
	n := len(w.entries("w"))
	if _, err := w.Hold(t.Context(), w.row("w"), further); err != nil {
		t.Fatal(err)
	}
	entries := w.entries("w")
	if len(entries) != n || entries[n-1].Kind != journal.KindHold || entries[n-1].EventType != store.EventContextChanged {
		t.Errorf("the journal ends with %+v, %d entries more", entries[len(entries)-1], len(entries)-n)
	}
	// A fence computed before the hold is overtaken; one that saw it clears it.
	w.wantErr("fence that did not see the hold", w.Fence(t.Context(), w.term, first, activeRow(key("w"), 2)), fence.ErrOvertaken)
	w.must(w.Fence(t.Context(), w.term, second, activeRow(key("w"), 2)))
	if now := w.row("w"); now.Hold != nil || now.Revision != 2 {
		t.Errorf("after the fence the row is %+v", now)
	}
}

func testHoldProcessed(t *testing.T, d Database) {
	w := open(t, d)
	row := w.grant("w")
	ignored := func(what string, hold authority.Hold, want bool) {
		t.Helper()
		held, err := w.Hold(t.Context(), w.row("w"), hold)
		w.must(err)
		if (held.Hold == nil) != want {
			t.Errorf("%s: ignored %t, want %t", what, held.Hold == nil, want)
		}
	}
	w.must(w.MarkSeen(t.Context(), w.term, row, authority.Seen{UID: "approval-1", Generation: 5}))
	ignored("the processed version", revoked("approval-1", 5), true)
	ignored("an older version", revoked("approval-1", 4), true)
	row = w.row("w")
	w.must(w.MarkSeen(t.Context(), w.term, row, authority.Seen{UID: "approval-1", Generation: 5, Gone: true}))
	deletion := revoked("approval-1", 6)
	deletion.Cause = authority.CauseApprovalDeleted
	ignored("a processed deletion", deletion, true)
	ignored("a version that speaks again", revoked("approval-1", 6), false)

	w.grant("v")
	held, err := w.Hold(t.Context(), w.row("v"), func() authority.Hold {
		deletion := revoked("approval-1", 2)
		deletion.Cause = authority.CauseApprovalDeleted
		return deletion
	}())
	w.must(err)
	if held.Hold == nil {
		t.Error("a deletion of the processed version was ignored")
	}
	held, err = w.Hold(t.Context(), w.row("u"), authority.Hold{State: authority.StateRevoked, Cause: authority.CauseUninstalled})
	w.must(err)
	if held.Hold == nil {
		t.Error("a hold of the system was ignored")
	}
}

// A hold says what is left of the row that it was computed from: of another one,
// it would take away what has been granted since.
func testHoldOvertaken(t *testing.T, d Database) {
	w := open(t, d)
	none := w.row("w")
	from := w.grant("w")
	granted := w.grant("w")
	deleted := func(uid string) authority.Hold {
		return authority.Hold{State: authority.StateRevoked, Cause: authority.CauseApprovalDeleted, UID: uid, Generation: 3}
	}
	for _, outdated := range []struct {
		what string
		from authority.Row
		hold authority.Hold
	}{
		{"for an uninstallation", from, authority.Hold{State: authority.StateRevoked, Cause: authority.CauseUninstalled}},
		{"for a manifest", from, authority.Hold{State: authority.StateActive, Cause: authority.CauseManifestChanged}},
		{"for the deletion of another object", from, deleted("a former approval")},
		{"of a later version of the object", from, revoked("approval-1", 7)},
		{"of a later version that keeps what no row had granted yet", none, authority.Hold{
			State: authority.StateActive, Cause: authority.CauseHuman, UID: "approval-1", Generation: 3,
		}},
	} {
		_, err := w.Hold(t.Context(), outdated.from, outdated.hold)
		w.wantErr("an outdated hold "+outdated.what, err, fence.ErrOvertaken)
	}
	if now := w.row("w"); !reflect.DeepEqual(now, granted) {
		t.Errorf("outdated holds changed the row to %+v", now)
	}
	// The mark moves without a revision: the object of the hold may be the older
	// one.
	w.must(w.MarkSeen(t.Context(), w.term, granted, authority.Seen{UID: "approval-2", Generation: 1}))
	marked := w.row("w")
	_, err := w.Hold(t.Context(), granted, deleted("approval-1"))
	w.wantErr("a hold of before another object was processed", err, fence.ErrOvertaken)
	_, err = w.Hold(t.Context(), granted, revoked("approval-2", 2))
	w.wantErr("a hold of before its object was processed", err, fence.ErrOvertaken)
	if now := w.row("w"); !reflect.DeepEqual(now, marked) {
		t.Errorf("outdated holds changed the row to %+v", now)
	}
	held, err := w.Hold(t.Context(), granted, revoked("approval-2", 1))
	w.must(err)
	if !reflect.DeepEqual(held, marked) {
		t.Errorf("a hold of a processed version left %+v", held)
	}
	held, err = w.Hold(t.Context(), marked, authority.Hold{State: authority.StateRevoked, Cause: authority.CauseUninstalled})
	w.must(err)
	if held.Hold == nil {
		t.Error("a hold computed from the present row was ignored")
	}
}

// An event that was made and not fenced has applied the hold that the row still
// has; applied again, it would take away what the same act granted.
func testStartingAppliedHold(t *testing.T, d Database) {
	w := open(t, d)
	hold := revoked("approval-1", 9)
	_, err := w.Hold(t.Context(), w.row("w"), hold)
	w.must(err)
	w.must(w.FenceStart(t.Context(), w.term, authority.Event{Row: activeRow(key("w"), 1), Applied: &hold}))
	if row := w.row("w"); row.Revision != 1 || !row.Starting || row.Hold != nil {
		t.Errorf("the row started as %+v", row)
	}
}

func testStarting(t *testing.T, d Database) {
	w := open(t, d)
	_, err := w.Hold(t.Context(), w.row("w"), revoked("approval-1", 9))
	w.must(err)
	w.must(w.FenceStart(t.Context(), w.term, authority.Event{Row: activeRow(key("w"), 7)}))
	row := w.row("w")
	want := revoked("approval-1", 9)
	if row.Revision != 7 || !row.Starting || !row.Hold.Equal(&want) || row.Effective(w.clock.Now()) != 0 {
		t.Fatalf("the row started as %+v", row)
	}
	n := len(w.entries("w"))
	w.must(w.FenceStart(t.Context(), w.term, authority.Event{Row: activeRow(key("w"), 7)}))
	w.must(w.FenceStart(t.Context(), w.term, authority.Event{Row: activeRow(key("w"), 6)}))
	if again := w.row("w"); !reflect.DeepEqual(again, row) || len(w.entries("w")) != n {
		t.Errorf("starting again changed the row to %+v", again)
	}
	w.must(w.Fence(t.Context(), w.term, row, activeRow(key("w"), 8)))
	if lifted := w.row("w"); lifted.Starting || lifted.Hold != nil || lifted.Revision != 8 {
		t.Errorf("the fence left %+v", lifted)
	}
}

func testTombstone(t *testing.T, d Database) {
	w := open(t, d)
	row := w.grant("w")
	for range 2 {
		w.must(w.Tombstone(t.Context(), installation))
	}
	dead, err := w.Tombstoned(t.Context(), installation)
	w.must(err)
	alive, err := w.Tombstoned(t.Context(), "another")
	w.must(err)
	if !dead || alive {
		t.Errorf("tombstoned: %t, another: %t", dead, alive)
	}
	w.wantErr("fence to Active", w.Fence(t.Context(), w.term, row, activeRow(key("w"), 2)), store.ErrTombstoned)
	gated := activeRow(key("w"), 2)
	gated.Gates = authority.GateSuspended
	w.wantErr("fence to Active behind a gate", w.Fence(t.Context(), w.term, row, gated), store.ErrTombstoned)
	// An event of before is obeyed where it gives no authority.
	obeyed := activeRow(key("w"), 2)
	obeyed.Hold = &authority.Hold{State: authority.StateRevoked, Cause: authority.CauseUninstalled}
	w.must(w.Fence(t.Context(), w.term, row, obeyed))
	over := activeRow(key("w"), 3)
	over.State, over.Granted = authority.StateRevoked, 0
	w.must(w.Fence(t.Context(), w.term, w.row("w"), over))
	w.close()
	w = open(t, d)
	w.wantErr("fence to Active after a restart", w.Fence(t.Context(), w.term, w.row("w"), activeRow(key("w"), 4)), store.ErrTombstoned)
}

func testSeen(t *testing.T, d Database) {
	w := open(t, d)
	row := w.grant("w")
	w.must(w.MarkSeen(t.Context(), w.term, row, authority.Seen{UID: "approval-1", Generation: 5, Revoked: true}))
	n := len(w.entries("w"))
	w.must(w.MarkSeen(t.Context(), w.term, row, authority.Seen{UID: "approval-1", Generation: 3}))
	w.must(w.MarkSeen(t.Context(), w.term, row, authority.Seen{}))
	seen := authority.Seen{UID: "approval-1", Generation: 5, Revoked: true}
	if now := w.row("w"); now.Seen != seen || now.Revision != row.Revision {
		t.Errorf("the mark is %+v at revision %d", now.Seen, now.Revision)
	}
	if len(w.entries("w")) != n {
		t.Error("a mark took a place in the commit order")
	}
	to := activeRow(key("w"), 2) // an event of generation 2, obeyed
	w.must(w.Fence(t.Context(), w.term, row, to))
	if now := w.row("w"); now.Seen != seen {
		t.Errorf("a fence lowered the mark to %+v", now.Seen)
	}
	w.wantErr("mark on an old row", w.MarkSeen(t.Context(), w.term, row, seen), fence.ErrOvertaken)
	w.must(w.MarkSeen(t.Context(), w.term, authority.Row{Key: key("new")}, authority.Seen{UID: "b", Generation: 1}))
	if now := w.row("new"); now.Revision != 0 || now.Seen.UID != "b" {
		t.Errorf("a mark on no row left %+v", now)
	}
}

func testRowRoundTrip(t *testing.T, d Database) {
	w := open(t, d)
	at := time.Date(2026, 5, 6, 7, 8, 9, 123456000, time.UTC)
	row := authority.Row{
		Key: key("w"), Revision: 1, Act: "1-abcdef", State: authority.StateExpired, Granted: 1, Declared: 3, Required: 2,
		Allowed: contract.AllCapabilities, ExpiresAt: time.Unix(0, 0).UTC(), Gates: authority.GateSuspended | authority.GatePrincipalChanged,
		Hold: &authority.Hold{
			State: authority.StateActive, Granted: contract.AllCapabilities, ExpiresAt: at, Cause: authority.CauseHuman,
			Actor: authority.Actor{Name: "bo", Assurance: authority.ActorVerified}, Reason: "r", UID: "u", Generation: 1 << 60, Spent: true,
		},
		Starting: true,
		Vector: authority.Vector{
			ApprovalUID: "a", InstallationUID: "b", Version: "1.2.3", ManifestDigest: testDigest, Suspended: true,
			ServiceAccountNamespace: "c", ServiceAccountName: "d", ServiceAccountUID: "e", ServiceAccountNamespaceUID: "f",
			WorkspaceNamespace: "g", WorkspaceNamespaceUID: "h", WorkspaceID: "w", PolicyVersion: "p",
		},
		Seen: authority.Seen{
			UID: "a", Generation: 4, Gone: true, Revoked: true, Asked: 5, Until: time.Date(2400, 1, 2, 3, 4, 5, 0, time.UTC),
		},
		Actor: authority.Actor{Name: "cy", Assurance: authority.ActorClaimed}, Cause: authority.CauseExpired, Reason: "why ü",
		ApprovedBy: "di", ApprovedVia: "system:serviceaccount:flux:applier", ConfirmedBy: "ed", IssuedAt: at, UpdatedAt: at.Add(time.Second), AuditID: "ae-1", EventHash: "hash", Unproven: true,
	}
	row.Sum = row.Vector.Sum()
	from, err := w.Row(t.Context(), key("w"))
	w.must(err)
	w.must(w.Fence(t.Context(), w.term, from, row))
	if got := w.row("w"); !reflect.DeepEqual(got, row) {
		t.Errorf("stored\n%+v\nread\n%+v", row, got)
	}
	all, err := w.Rows(t.Context())
	w.must(err)
	mine, err := w.RowsOfInstallation(t.Context(), installation)
	w.must(err)
	none, err := w.RowsOfInstallation(t.Context(), "another")
	w.must(err)
	if len(all) != 1 || !reflect.DeepEqual(all[0], row) || !reflect.DeepEqual(all, mine) || len(none) != 0 {
		t.Errorf("listed %+v, of the installation %+v, of another %+v", all, mine, none)
	}
	// What decides reads the same, whichever way.
	plain, err := w.AuthorityRow(t.Context(), key("w"))
	w.must(err)
	var snap *authority.Row
	w.must(w.Read(t.Context(), func(s query.Snapshot) (err error) { snap, err = s.AuthorityRow(key("w")); return err }))
	var locked *authority.Row
	w.must(w.Write(t.Context(), "w", func(tx command.Tx) (err error) { locked, err = tx.AuthorityRow(key("w")); return err }))
	want := authority.Row{
		Key: row.Key, Revision: row.Revision, State: row.State, Granted: row.Granted, Declared: row.Declared, Required: row.Required,
		Allowed: row.Allowed, ExpiresAt: row.ExpiresAt, Gates: row.Gates, Hold: row.Hold, Starting: row.Starting, Sum: row.Sum,
		Seen: row.Seen.Unrecorded(), Vector: authority.Vector{ManifestDigest: testDigest},
	}
	for _, got := range []*authority.Row{plain, snap, locked} {
		if !reflect.DeepEqual(*got, want) {
			t.Errorf("the deciding row is %+v, want %+v", *got, want)
		}
	}
	if missing, err := w.AuthorityRow(t.Context(), key("nowhere")); missing != nil || err != nil {
		t.Errorf("no row reads as %+v, %v", missing, err)
	}
	// A Host of a release that doesn't keep what a version asked for moves the mark.
	w.close()
	engine := d.Open(t)
	tx, err := engine.Begin(t.Context(), "")
	w.must(err)
	_, err = tx.Exec(`UPDATE authority SET seen_generation = 5`)
	w.must(errors.Join(err, tx.Commit(), engine.Close()))
	moved := row.Seen.Unrecorded()
	moved.Generation = 5
	w = openFresh(t, d.Open(t))
	if got := w.row("w").Seen; got != moved || got.Recorded() {
		t.Errorf("of a version that was marked without it, the row says what it asked for: %+v", got)
	}
}

func testContextRevision(t *testing.T, d Database) {
	w := open(t, d)
	revision := func() (n uint64) {
		t.Helper()
		w.must(w.Read(t.Context(), func(s query.Snapshot) (err error) { n, err = s.ContextRevision(installation); return err }))
		return n
	}
	last := revision()
	if last != 0 {
		t.Errorf("it begins at %d", last)
	}
	for _, change := range []func(){
		func() { w.grant("b") }, func() { w.grant("a") }, func() { w.grant("b") },
		func() { _, err := w.Hold(t.Context(), w.row("a"), revoked("approval-1", 8)); w.must(err) },
	} {
		change()
		if now := revision(); now <= last {
			t.Errorf("a change took it from %d to %d", last, now)
		}
		last = revision()
	}
	var rows []authority.Row
	w.must(w.Read(t.Context(), func(s query.Snapshot) (err error) { rows, err = s.AuthorityRows(installation); return err }))
	if len(rows) != 2 || rows[0].Key != key("a") || rows[1].Key != key("b") || rows[0].Hold == nil || rows[1].Revision != 2 {
		t.Errorf("the installation's rows are %+v", rows)
	}
}

// await polls a condition with a bound.
func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		case <-ticker.C:
		}
	}
}
