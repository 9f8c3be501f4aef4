package importer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kandev/plugin-host/hostsvc/importer"
	"github.com/kandev/plugin-host/hostsvc/store"
	"github.com/kandev/plugin-host/hostsvc/store/postgres"
	"github.com/kandev/plugin-host/hostsvc/store/sqlite"
	server "github.com/kandev/plugin-host/test/postgres"
)

// now is when these tests import.
var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func clock() time.Time { return now }

// database is one database of a test, which opens as often as it is asked to.
type database func(tb testing.TB) store.Engine

// databases are an empty database of each engine.
func databases(t *testing.T) map[string]database {
	t.Helper()
	path := filepath.Join(t.TempDir(), "host.db")
	dsn, err := postgresServer(t).NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return map[string]database{
		"sqlite":   func(tb testing.TB) store.Engine { tb.Helper(); return openSQLite(tb, path) },
		"postgres": func(tb testing.TB) store.Engine { tb.Helper(); return openPostgres(tb, dsn) },
	}
}

func openSQLite(tb testing.TB, path string) store.Engine {
	tb.Helper()
	engine, err := sqlite.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	return engine
}

func openPostgres(tb testing.TB, dsn string) store.Engine {
	tb.Helper()
	engine, err := postgres.Open(tb.Context(), dsn)
	if err != nil {
		tb.Fatal(err)
	}
	return engine
}

// running is the one server of these tests.
var running *server.Server

func postgresServer(tb testing.TB) *server.Server {
	tb.Helper()
	if running == nil {
		s, err := server.Start(context.Background())
		if err != nil {
			tb.Fatal(err) // an engine is never skipped
		}
		running = s
	}
	return running
}

func openStore(tb testing.TB, engine store.Engine) *store.Store {
	tb.Helper()
	s, err := store.Open(tb.Context(), engine, store.Options{
		Now: clock, Log: slog.New(slog.DiscardHandler), Fatal: func(err error) { tb.Errorf("the store ended the process: %v", err) },
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() }) // a test that closes it looks at the error
	return s
}

func fileOf(tb testing.TB, text string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "import")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

func sourceOf(tb testing.TB, text string) importer.Source {
	tb.Helper()
	source, err := importer.OpenFile(fileOf(tb, text))
	if err != nil {
		tb.Fatal(err)
	}
	source.Name = "file"
	return source
}

func run(tb testing.TB, s importer.Store, text string, o importer.Options) (importer.Summary, error) {
	tb.Helper()
	o.Now = clock
	return importer.Run(tb.Context(), s, sourceOf(tb, text), o)
}

// check is a dry run without a store.
func check(tb testing.TB, s importer.Store, text string, o importer.Options) (importer.Summary, error) {
	tb.Helper()
	scratch, err := sqlite.OpenScratch()
	if err != nil {
		tb.Fatal(err)
	}
	defer func() {
		if err := scratch.Close(); err != nil {
			tb.Error(err)
		}
	}()
	o.DryRun, o.Scratch = true, scratch
	return run(tb, s, text, o)
}

func faultsOf(tb testing.TB, err error) *importer.FaultsError {
	tb.Helper()
	var faults *importer.FaultsError
	if !errors.As(err, &faults) {
		tb.Fatalf("got %v, want faults", err)
	}
	return faults
}

// lines joins documents of JSON.
func lines(documents ...string) string { return strings.Join(documents, "\n") + "\n" }

const (
	aWorkspace = `{"kind":"workspace","id":"w","name":"W"}`
	aWorkflow  = `{"kind":"workflow","workspace_id":"w","id":"f","name":"F"}`
	aStep      = `{"kind":"step","workspace_id":"w","id":"s","workflow_id":"f","name":"S"}`
	aTask      = `{"kind":"task","workspace_id":"w","id":"t","workflow_step_id":"s","title":"T"}`
	aSession   = `{"kind":"session","workspace_id":"w","id":"c","task_id":"t","state":"RUNNING","started_at":"2026-01-01T00:00:00Z"}`
	aTurn      = `{"kind":"turn","workspace_id":"w","id":"u","session_id":"c","started_at":"2026-01-01T00:00:00Z"}`
	aMessage   = `{"kind":"message","workspace_id":"w","id":"m","session_id":"c","turn_id":"u","author_type":"user","content":"hello","created_at":"2026-01-01T00:00:01Z"}`
)

var conversation = []string{aWorkspace, aWorkflow, aStep, aTask, aSession, aTurn, aMessage}

func TestMain(m *testing.M) {
	if path := os.Getenv(crashEnv); path != "" {
		importUntilKilled(path)
	}
	code := m.Run()
	if running != nil {
		if err := running.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
