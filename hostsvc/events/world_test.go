package events_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	server "github.com/kandev/plugin-host/test/postgres"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/events"
	"github.com/kandev/plugin-host/hostsvc/fence"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/store"
	"github.com/kandev/plugin-host/hostsvc/store/postgres"
	"github.com/kandev/plugin-host/hostsvc/store/sqlite"
	"github.com/kandev/plugin-host/hostsvc/store/storetest"
)

const (
	alpha = "installation-alpha"
	beta  = "installation-beta"
)

// database is the one of a test. open opens it; every call the same one.
type database struct {
	*testing.T

	open func() store.Engine
}

// onBoth runs a test on both databases.
func onBoth(t *testing.T, test func(database)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "host.db")
		test(database{t, func() store.Engine {
			engine, err := sqlite.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			return engine
		}})
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		s := databases(t)
		dsn, err := s.NewDatabase(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		test(database{t, func() store.Engine {
			engine, err := postgres.Open(t.Context(), dsn)
			if err != nil {
				t.Fatal(err)
			}
			return engine
		}})
	})
}

// shared is the one server of the package's tests.
var shared struct {
	once sync.Once
	s    *server.Server
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.s != nil {
		if err := shared.s.Stop(); err != nil && code == 0 {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

func databases(t *testing.T) *server.Server {
	t.Helper()
	shared.once.Do(func() { shared.s, shared.err = server.Start(context.Background()) })
	if shared.err != nil {
		t.Fatal(shared.err) // an engine is never skipped
	}
	return shared.s
}

// clock is the real one and what a test added.
type clock struct {
	mu    sync.Mutex
	added time.Duration
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.added)
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.added += d
}

// seen is what a process sees of installations: nothing of keys but what their rows
// say, and of installations what a test sets.
type seen struct {
	mu     sync.Mutex
	legacy map[string]authority.Legacy
}

func (s *seen) Observe(authority.Key) *authority.Observed {
	return &authority.Observed{Synced: true, Vector: authority.Vector{}.Sum()}
}

func (s *seen) Legacy(id string) authority.Legacy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.legacy[id]
}

func (s *seen) set(id string, change func(*authority.Legacy)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	legacy := s.legacy[id]
	change(&legacy)
	s.legacy[id] = legacy
}

// declare installs a plugin that declares patterns.
func (s *seen) declare(id string, patterns ...string) {
	s.set(id, func(l *authority.Legacy) {
		*l = authority.Legacy{FreshUntil: time.Now().Add(1000 * time.Hour), Installed: true}
		l.Events = patterns
	})
}

// audit keeps what was recorded.
type audit struct {
	mu      sync.Mutex
	records []journal.Receipt
	failure error
}

func (a *audit) Append(_ context.Context, receipt journal.Receipt) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.records = append(a.records, receipt)
	return a.failure
}

func (a *audit) last() journal.Receipt {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.records[len(a.records)-1]
}

// world is a hub on a store.
type world struct {
	*testing.T
	store  *store.Store
	term   fence.Term
	hub    *events.Hub
	seen   *seen
	clock  *clock
	audit  *audit
	config events.Config
}

// limits are short, so that nothing here waits for long.
var limits = events.Limits{
	Poll: 10 * time.Millisecond, Pace: time.Millisecond, Heartbeat: 50 * time.Millisecond, Check: 10 * time.Millisecond,
}

func newWorld(t *testing.T, engine store.Engine, key []byte, limits events.Limits) *world {
	t.Helper()
	w := &world{T: t, seen: &seen{legacy: map[string]authority.Legacy{}}, clock: &clock{}, audit: &audit{}}
	var err error
	w.store, err = store.Open(t.Context(), engine, store.Options{
		Now: w.clock.Now, Log: slog.New(slog.DiscardHandler), Fatal: func(err error) { t.Error(err) },
	})
	w.must(err)
	t.Cleanup(func() { w.must(w.store.Close()) })
	w.term, err = storetest.Vouch(t.Context(), w.store)
	w.must(err)
	if key == nil {
		key = make([]byte, query.CursorKeySize)
	}
	cursors, err := query.NewCursors(key)
	w.must(err)
	w.config = events.Config{
		Store: w.store, Rows: w.store, View: w.seen, Legacy: w.seen, Receipts: w.audit, Cursors: cursors, Now: w.clock.Now,
		NewAuditID: uuid.NewString, Log: slog.New(slog.DiscardHandler), Limits: limits,
	}
	w.hub = events.NewHub(w.config)
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func proven(context.Context) error { return nil }

// watch opens a stream, and closes it at the end of the test.
func (w *world) watch(id string, watch events.Watch) *events.Stream {
	w.Helper()
	s, err := w.open(id, watch)
	w.must(err)
	w.Cleanup(s.Close)
	return s
}

func (w *world) open(id string, watch events.Watch) (*events.Stream, error) {
	if watch.RequestID == "" {
		watch.RequestID = "r"
	}
	if watch.Proven == nil {
		watch.Proven = proven
	}
	return w.hub.Open(w.Context(), id, watch)
}

// refused is the refusal of opening a stream.
func (w *world) refused(id string, watch events.Watch) *admission.Refusal {
	w.Helper()
	s, err := w.open(id, watch)
	if err == nil {
		s.Close()
		w.Fatalf("%+v was not refused", watch)
	}
	return w.asRefusal(err)
}

func (w *world) asRefusal(err error) *admission.Refusal {
	w.Helper()
	var refusal *admission.Refusal
	if !errors.As(err, &refusal) {
		w.Fatalf("the error is no refusal: %v", err)
	}
	if refusal.AuditID == "" || refusal.AuditID != w.audit.last().AuditID || w.audit.last().Reason != refusal.Reason {
		w.Errorf("the refusal %v is recorded as %+v", refusal, w.audit.last())
	}
	return refusal
}

func (w *world) wantReason(refusal *admission.Refusal, reason contract.Reason, field string) {
	w.Helper()
	if refusal.Reason != reason || refusal.State != reason.Parent() || refusal.Field != field {
		w.Errorf("refused with %s/%s about %q: %s; want %s about %q", refusal.State, refusal.Reason, refusal.Field, refusal.Message, reason, field)
	}
}

// timeout bounds the wait for a message.
const timeout = 20 * time.Second

// next is the stream's next message.
func (w *world) next(s *events.Stream) (events.Delivery, error) {
	ctx, cancel := context.WithTimeout(w.Context(), timeout)
	defer cancel()
	return s.Next(ctx)
}

// event is the stream's next event; heartbeats before it are left out.
func (w *world) event(s *events.Stream) events.Delivery {
	w.Helper()
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); {
		d, err := w.next(s)
		w.must(err)
		if d.Event != nil {
			return d
		}
	}
	w.Fatal("no event comes")
	return events.Delivery{}
}

// end is the refusal that ends a stream; what comes before it is left out.
func (w *world) end(s *events.Stream) *admission.Refusal {
	w.Helper()
	return w.asRefusal(w.endError(s))
}

func (w *world) endError(s *events.Stream) error {
	w.Helper()
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); {
		if _, err := w.next(s); err != nil {
			return err
		}
	}
	w.Fatal("the stream does not end")
	return nil
}

// silent checks that a stream sends a heartbeat and no event.
func (w *world) silent(s *events.Stream) (cursor string) {
	w.Helper()
	for range 2 {
		d, err := w.next(s)
		w.must(err)
		if d.Event != nil {
			w.Errorf("%s comes", d.Event.Type)
		}
		cursor = d.Cursor
	}
	return cursor
}

// commit commits an event in a workspace.
func (w *world) commit(workspace, eventType, target string, data any) {
	w.Helper()
	w.must(w.tryCommit(workspace, eventType, target, data))
}

func (w *world) tryCommit(workspace, eventType, target string, data any) error {
	text, err := journal.EncodeEvent(data)
	if err != nil {
		return err
	}
	return w.store.Write(w.Context(), workspace, func(tx command.Tx) error {
		return tx.Append(journal.Entry{
			WorkspaceID: workspace, Kind: journal.KindCommand, AuditID: uuid.NewString(), InstallationID: "someone", Revision: 3,
			Method: "M", Result: contract.StateApplied, TargetID: target, After: "1.7", EventType: eventType, Event: text, At: w.clock.Now(),
		})
	})
}

// fence gives an installation all capabilities in a workspace, or takes them.
func (w *world) fence(id, workspace string, state authority.State) {
	w.Helper()
	key := authority.Key{InstallationID: id, WorkspaceID: workspace}
	from, err := w.store.Row(w.Context(), key)
	w.must(err)
	next := authority.Row{
		Key: key, Revision: from.Revision + 1, Act: authority.ActName(from.Revision+1, "abcdef"), State: state,
		Granted: contract.AllCapabilities, Declared: contract.AllCapabilities, Allowed: contract.AllCapabilities,
		Sum: authority.Vector{}.Sum(), Cause: authority.CauseHuman, AuditID: authority.AuditID(key, from.Revision+1),
	}
	w.must(w.store.Fence(w.Context(), w.term, from, next))
}

func sqliteAt(t *testing.T) store.Engine {
	t.Helper()
	engine, err := sqlite.Open(filepath.Join(t.TempDir(), "host.db"))
	if err != nil {
		t.Fatal(err)
	}
	return engine
}
