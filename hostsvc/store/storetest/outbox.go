package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/events"
	"github.com/kandev/plugin-host/hostsvc/store"
)

// follow reads events from a place to the end, in pages.
func (w *world) follow(from events.Position, limit int) (records []events.Record, end events.Position) {
	w.t.Helper()
	for {
		page, err := w.Events(w.t.Context(), from, limit)
		w.must(err)
		if len(page.Records) > limit || page.End.Compare(from) < 0 || page.End.Compare(page.Settled) > 0 {
			w.t.Fatalf("behind %v a page of %d ends at %v of %v", from, len(page.Records), page.End, page.Settled)
		}
		records = append(records, page.Records...)
		if len(page.Records) < limit {
			return records, page.End
		}
		from = page.End
	}
}

func (w *world) emit(name string) {
	w.t.Helper()
	w.must(w.Emit(w.t.Context(), command.Emitted{
		ID: uuid.NewString(), InstallationID: installation, Source: "plugin:p", Type: "plugin.p." + name, Event: `{}`, At: w.now(),
	}, allowed))
}

func typesOf(records []events.Record) []string {
	types := make([]string, len(records))
	for i, r := range records {
		types[i] = r.Type
		if r.WorkspaceID != "" {
			types[i] += " " + r.WorkspaceID
		}
	}
	return types
}

// Every event has one place in one order, across workspaces, restarts and what
// plugins publish; entries without an event have none.
func testOutbox(t testing.TB, d Database) {
	w := open(t, d)
	_, start := w.follow(events.Position{}, 10)
	w.seed("a", 1)
	w.emit("before")
	w.must(w.Write(t.Context(), "a", touch("a", taskID(0), "one", "k1")))
	w.grant("b")
	w.emit("between")
	no := errors.New("no")
	w.wantErr("what isn't allowed", w.Emit(t.Context(), command.Emitted{ID: "no", Type: "plugin.p.no", Event: `{}`, At: w.now()},
		func() error { return no }), no)
	w.emit("between")
	w.must(w.Write(t.Context(), "a", insertTask("a", "t")))
	want := []string{
		"plugin.p.before", "task.updated a", store.EventContextChanged + " b", "plugin.p.between", "plugin.p.between", "task.updated a",
	}
	all, end := w.follow(start, 100)
	if got := typesOf(all); !slices.Equal(got, want) {
		t.Fatalf("the outbox has %q, want %q", got, want)
	}
	first := all[1]
	if first.ID == "" || first.AuditID != first.ID || first.InstallationID != installation || first.Revision != 1 ||
		first.ResourceID != taskID(0) || first.PluginID != "" || all[0].PluginID != "p" || first.Event != `{"a":"ä"}` || !first.At.Equal(time.Date(2026, 1, 1, 0, 0, 0, 1, time.UTC)) {
		t.Errorf("an event reads as %+v", first)
	}
	for limit := range 4 {
		if got, _ := w.follow(start, limit+1); !slices.Equal(got, all) {
			t.Errorf("pages of %d give %q", limit+1, typesOf(got))
		}
	}
	for i, r := range all {
		if got, _ := w.follow(r.Position, 2); !slices.Equal(got, all[i+1:]) {
			t.Errorf("behind event %d: %q", i, typesOf(got))
		}
	}
	w.close()

	w = open(t, d)
	page, err := w.Events(t.Context(), start, 100)
	w.must(err)
	if !slices.Equal(page.Records, all) {
		t.Errorf("after a restart, the outbox has %q", typesOf(page.Records))
	}
	epochs, err := w.Epochs(t.Context())
	w.must(err)
	if want := (events.Origin{StoreID: epochs.StoreID, Epoch: epochs.StoreEpoch}); page.Origin != want {
		t.Errorf("the order is of %+v, want %+v", page.Origin, want)
	}
	if got, again := w.follow(end, 10); len(got) != 0 || again.Compare(end) < 0 {
		t.Errorf("behind the end %v: %q up to %v", end, typesOf(got), again)
	}

	// What is old goes, and no place is given twice.
	w.must(w.PruneEmitted(t.Context(), w.now().Add(time.Second)))
	rest, _ := w.follow(start, 10)
	if got := typesOf(rest); !slices.Equal(got, []string{want[1], want[2], want[5]}) {
		t.Errorf("once pruned, the outbox has %q", got)
	}
	w.emit("after")
	if got, _ := w.follow(end, 10); len(got) != 1 || got[0].Type != "plugin.p.after" {
		t.Errorf("behind the end, pruned: %q", typesOf(got))
	}
}

// A search by time finds a place that everything since is behind, and not much else.
func testOutboxSince(t *testing.T, d Database) {
	w := open(t, d)
	w.seed("w", 0)
	_, begin := w.follow(events.Position{}, 100)
	at := make([]time.Time, 30)
	for i := range at {
		w.clock.advance(time.Second)
		at[i] = w.now()
		w.must(w.Write(t.Context(), "w", func(tx command.Tx) error {
			e := entry("w", fmt.Sprint(i), "t")
			e.At = at[i]
			return tx.Append(e)
		}))
	}
	for i := range at {
		from, err := w.EventsSince(t.Context(), at[i])
		w.must(err)
		records, _ := w.follow(from, 100)
		before := 0
		for _, r := range records {
			if r.At.Before(at[i]) {
				before++
			}
		}
		if len(records)-before != len(at)-i || before > 1 {
			t.Errorf("since event %d there are %d, %d of them before", i, len(records), before)
		}
	}
	from, err := w.EventsSince(t.Context(), w.now().Add(time.Hour))
	w.must(err)
	if records, _ := w.follow(from, 100); len(records) > 1 {
		t.Errorf("since later there are %d", len(records))
	}
	if from, err = w.EventsSince(t.Context(), at[0].Add(-time.Hour)); err != nil || from.Compare(begin) > 0 {
		t.Errorf("since before everything: %v, %v", from, err)
	}
}

// A reader that follows the tail while workspaces commit at once, in transactions
// that overlap, gets each event once and those of a workspace in the order of its
// commits: nothing comes to be behind it.
func testOutboxTail(t *testing.T, replicas ...*world) {
	const workspaces, commands = 12, 40
	w := replicas[0]
	for i := range workspaces {
		w.seed(fmt.Sprintf("w%d", i), 0)
	}
	_, start := w.follow(events.Position{}, 100)
	done := make(chan struct{})
	var writers sync.WaitGroup
	for i := range workspaces {
		writers.Go(func() {
			workspace := fmt.Sprintf("w%d", i)
			writer := replicas[i%len(replicas)]
			for n := range commands {
				err := writer.Write(t.Context(), workspace, func(tx command.Tx) error {
					e := entry(workspace, fmt.Sprint(n), fmt.Sprint(n))
					if err := tx.Append(e); err != nil {
						return err
					}
					// The transaction stays open while others come and go.
					for range rand.N(4) {
						if _, _, err := tx.Recorded(installation, "none"); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Errorf("write: %v", err)
					return
				}
				if n%8 == 0 {
					writer.emit(workspace)
				}
			}
		})
	}
	go func() {
		writers.Wait()
		close(done)
	}()
	seen := map[string]int{}
	emitted := map[string]bool{}
	at := start
	for last := false; ; {
		page, err := w.Events(t.Context(), at, 7)
		w.must(err)
		for _, r := range page.Records {
			if r.Position.Compare(at) <= 0 {
				t.Fatalf("an event at %v comes behind %v", r.Position, at)
			}
			at = r.Position
			if r.WorkspaceID == "" {
				if emitted[r.ID] {
					t.Errorf("event %s comes twice", r.ID)
				}
				emitted[r.ID] = true
				continue
			}
			if r.ResourceID != fmt.Sprint(seen[r.WorkspaceID]) {
				t.Fatalf("of workspace %s, event %s comes in place of %d", r.WorkspaceID, r.ResourceID, seen[r.WorkspaceID])
			}
			seen[r.WorkspaceID]++
		}
		at = page.End
		if last && len(page.Records) == 0 {
			break
		}
		select {
		case <-done:
			last = true
		default:
		}
	}
	// A transaction of the database itself may still be open; then it comes later.
	await(t, "every event", func() bool {
		records, end := w.follow(at, 100)
		for _, r := range records {
			if r.WorkspaceID != "" {
				seen[r.WorkspaceID]++
			} else {
				emitted[r.ID] = true
			}
		}
		at = end
		total := 0
		for _, n := range seen {
			total += n
		}
		return total == workspaces*commands && len(emitted) == workspaces*commands/8
	})
}

// Events of a workspace come in the order of its commits, whatever their clocks said
// and however many commits a transaction of the database holds; a page may end
// between any two of them.
func testOutboxCommits(t testing.TB, d Database) {
	w := open(t, d)
	w.seed("w", 0)
	_, start := w.follow(events.Position{}, 10)
	const commits = 5
	var commands []func(command.Tx) error
	var want []string
	for i := range commits {
		e := entry("w", fmt.Sprint(i), fmt.Sprint(i))
		e.At = w.now().Add(-time.Duration(i) * time.Minute)
		commands, want = append(commands, func(tx command.Tx) error { return tx.Append(e) }), append(want, e.TargetID)
	}
	for _, err := range w.together("w", commands...) {
		w.must(err)
	}
	for limit := 1; limit <= commits+1; limit++ {
		records, _ := w.follow(start, limit)
		var got []string
		for _, r := range records {
			got = append(got, r.ResourceID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d, the commits %q come", limit, got)
		}
	}
}

// What is committed wakes the reader; what is refused does not.
func testOutboxWakes(t *testing.T, d Database) {
	w := open(t, d)
	w.seed("w", 1)
	drained := func() bool {
		select {
		case <-w.Committed():
			return true
		default:
			return false
		}
	}
	drained()
	w.wantErr("a refusal", w.Write(t.Context(), "w", func(command.Tx) error { return errInjected }), errInjected)
	if drained() {
		t.Error("a refused command wakes the reader")
	}
	w.must(w.Write(t.Context(), "w", touch("w", taskID(0), "x", "k")))
	if !drained() {
		t.Error("a commit does not wake the reader")
	}
}

// An event of a transaction that began earlier and is still open may come before
// those that are committed: they wait for it, and none is lost.
func testOutboxWaits(t testing.TB, d Database) {
	replicas := []*world{open(t, d), open(t, d)}
	w := replicas[0]
	w.seed("slow", 0)
	w.seed("fast", 0)
	_, start := w.follow(events.Position{}, 10)
	begun, proceed, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		once := sync.OnceFunc(func() { close(begun) })
		done <- replicas[1].Write(t.Context(), "slow", func(tx command.Tx) error {
			if err := tx.Append(entry("slow", "k", "t")); err != nil {
				return err
			}
			if _, _, err := tx.Recorded(installation, "none"); err != nil { // sends what waits
				return err
			}
			once()
			<-proceed
			return nil
		})
	}()
	<-begun
	w.must(w.Write(t.Context(), "fast", func(tx command.Tx) error { return tx.Append(entry("fast", "k", "t")) }))
	w.emit("fast")
	records, end := w.follow(start, 10)
	if len(records) != 0 {
		t.Errorf("before the open transaction has ended, the outbox has %q", typesOf(records))
	}
	close(proceed)
	w.must(<-done)
	if records, _ = w.follow(end, 10); !slices.Equal(typesOf(records), []string{"task.updated slow", "task.updated fast", "plugin.p.fast"}) {
		t.Errorf("afterwards, the outbox has %q", typesOf(records))
	}
}

// Places that another cluster of databases has counted are forgotten when a dump of
// it is opened, and those of before the outbox had an order are none.
func testOutboxForeign(t *testing.T, d Database) {
	w := open(t, d)
	w.seed("w", 0)
	for _, id := range []string{"of before", "foreign"} {
		w.must(w.Write(t.Context(), "w", func(tx command.Tx) error { return tx.Append(entry("w", id, id)) }))
	}
	w.emit("foreign")
	_, start := w.follow(events.Position{}, 10)
	w.close()
	tamper(t, d, `UPDATE journal SET xid = NULL WHERE target_id = $1`, "of before")
	tamper(t, d, `UPDATE journal SET xid = CAST('4611686018427387904' AS xid8) WHERE target_id = $1`, "foreign")
	tamper(t, d, `UPDATE emitted SET xid = CAST('4611686018427387904' AS xid8)`)
	w = open(t, d)
	w.must(w.Write(t.Context(), "w", func(tx command.Tx) error { return tx.Append(entry("w", "ours", "ours")) }))
	if records, _ := w.follow(start, 10); len(records) != 1 || records[0].ResourceID != "ours" {
		t.Errorf("the outbox has %q", typesOf(records))
	}
	tx, err := d.Open(t).Begin(t.Context(), "")
	w.must(err)
	defer tx.Rollback()
	w.must(tx.Query(`SELECT count(*) FROM journal WHERE xid > CAST('4611686018427387903' AS xid8)`, func(r store.Row) error {
		if r.Int(0) != 0 {
			t.Errorf("%d entries keep a foreign place", r.Int(0))
		}
		return nil
	}))
	w.entries("w")
}
