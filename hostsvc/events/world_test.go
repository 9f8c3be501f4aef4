package events_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	server "github.com/kandev/plugin-host/test/postgres"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
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
	testing.TB

	open func() store.Engine
	// sole: its lease is by the clock of the test.
	sole bool
	// mutate, when set, takes a rule away from what a hub is made of.
	mutate func(*events.Config)
	// trust, when set, is put between a stream and the proof of its caller.
	trust func(proof) proof
	// timeout bounds the wait for a message; 0 is the default.
	timeout time.Duration
}

// world is a new process on the database.
func (d database) world(limits events.Limits) *world {
	d.Helper()
	w := newWorld(d.TB, d.open(), d.mutate, limits)
	w.trust = d.trust
	if w.timeout = d.timeout; w.timeout == 0 {
		w.timeout = 20 * time.Second
	}
	return w
}

// onBoth runs a test on both databases.
func onBoth(t *testing.T, test func(database)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) { test(onSQLite(t)) })
	t.Run("PostgreSQL", func(t *testing.T) {
		s := databases(t)
		dsn, err := s.NewDatabase(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		test(database{TB: t, open: func() store.Engine {
			engine, err := postgres.Open(t.Context(), dsn)
			if err != nil {
				t.Fatal(err)
			}
			return engine
		}})
	})
}

func onSQLite(tb testing.TB) database {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "host.db")
	return database{TB: tb, sole: true, open: func() store.Engine {
		engine, err := sqlite.Open(path)
		if err != nil {
			tb.Fatal(err)
		}
		return engine
	}}
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
	mu      sync.Mutex
	legacy  map[string]authority.Legacy
	plugins []string
}

// InstalledPlugin is that of a view of the plugins that a test installs.
func (s *seen) InstalledPlugin(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := view.New(authority.Policy{})
	for _, id := range s.plugins {
		v.SetInstallation(view.Installation{Installation: authority.Installation{Name: id, UID: id}, PluginID: id})
	}
	return v.InstalledPlugin(name)
}

// install installs plugins in the place of those of before.
func (s *seen) install(pluginIDs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plugins = pluginIDs
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
	testing.TB

	store *store.Store
	term  fence.Term
	hub   *events.Hub
	seen  *seen
	clock *clock
	audit *audit
	trust func(proof) proof
	// timeout bounds the wait for a message.
	timeout time.Duration
}

// limits are short, so that nothing here waits for long.
var limits = events.Limits{
	Poll: 10 * time.Millisecond, Pace: time.Millisecond, Heartbeat: 50 * time.Millisecond, Check: 10 * time.Millisecond,
}

func newWorld(tb testing.TB, engine store.Engine, mutate func(*events.Config), limits events.Limits) *world {
	tb.Helper()
	w := &world{TB: tb, seen: &seen{legacy: map[string]authority.Legacy{}}, clock: &clock{}, audit: &audit{}}
	var err error
	w.store, err = store.Open(tb.Context(), engine, store.Options{
		Now: w.clock.Now, Log: slog.New(slog.DiscardHandler), Fatal: func(err error) { tb.Error(err) },
	})
	w.must(err)
	tb.Cleanup(func() { w.must(w.store.Close()) })
	w.term, err = storetest.Vouch(tb.Context(), w.store)
	w.must(err)
	cursors, err := query.NewCursors(make([]byte, query.CursorKeySize)) // the same for all of a test
	w.must(err)
	config := events.Config{
		Store: w.store, Rows: w.store, View: w.seen, Legacy: w.seen, Plugins: w.seen, Receipts: w.audit, Cursors: cursors, Now: w.clock.Now,
		NewAuditID: uuid.NewString, Log: slog.New(slog.DiscardHandler), Limits: limits,
	}
	if mutate != nil {
		mutate(&config)
	}
	w.hub = events.NewHub(config)
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func proven(context.Context) error { return nil }

// allowed allows a plugin to publish.
func allowed() error { return nil }

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
	if w.trust != nil {
		watch.Proven = w.trust(watch.Proven)
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

// wantSlow tells whether a stream ended for its reader, and for what.
func (w *world) wantSlow(refusal *admission.Refusal, why string) {
	w.Helper()
	w.wantReason(refusal, contract.ReasonDependencyUnavailable, "")
	if !strings.HasPrefix(refusal.Message, why) {
		w.Errorf("the stream ends because %s", refusal.Message)
	}
}

func (w *world) wantReason(refusal *admission.Refusal, reason contract.Reason, field string) {
	w.Helper()
	if refusal.Reason != reason || refusal.State != reason.Parent() || refusal.Field != field {
		w.Errorf("refused with %s/%s about %q: %s; want %s about %q", refusal.State, refusal.Reason, refusal.Field, refusal.Message, reason, field)
	}
}

// next is the stream's next message.
func (w *world) next(s *events.Stream) (events.Delivery, error) {
	ctx, cancel := context.WithTimeout(w.Context(), w.timeout)
	defer cancel()
	return s.Next(ctx)
}

// event is the stream's next event; heartbeats before it are left out.
func (w *world) event(s *events.Stream) events.Delivery {
	w.Helper()
	for deadline := time.Now().Add(w.timeout); time.Now().Before(deadline); {
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
	for deadline := time.Now().Add(w.timeout); time.Now().Before(deadline); {
		if _, err := w.next(s); err != nil {
			return err
		}
	}
	w.Fatal("the stream does not end")
	return nil
}

// endsSilently is what ends a stream before any other event comes.
func (w *world) endsSilently(s *events.Stream) error {
	w.Helper()
	for deadline := time.Now().Add(w.timeout); time.Now().Before(deadline); {
		d, err := w.next(s)
		if err != nil {
			return err
		}
		if d.Event != nil {
			w.Fatalf("%s is sent", d.Event.Type)
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
