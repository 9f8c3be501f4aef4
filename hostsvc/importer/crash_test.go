package importer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/importer"
	"github.com/kandev/plugin-host/hostsvc/store"
	"github.com/kandev/plugin-host/hostsvc/store/postgres"
	"github.com/kandev/plugin-host/hostsvc/store/sqlite"
)

// crashEnv turns the test binary into a process that imports a sample and is killed:
// "<engine> <how many messages it inserts> <inside or between> <quoted place>".
const crashEnv = "IMPORTER_CRASH"

var crashed = importer.Sample{Prefix: "crash", Workspaces: 2, Tasks: 12, Messages: 300, SessionMessages: 60}

const crashBatch = 17

// mortal is a store whose process is killed at a message: as it is inserted, or once
// its batch is committed.
type mortal struct {
	*store.Store
	left   int
	inside bool
}

func (m *mortal) Import(ctx context.Context, workspace string, before, after importer.Progress, digest contract.Digest, fn func(importer.Tx) error) error {
	err := m.Store.Import(ctx, workspace, before, after, digest, func(tx importer.Tx) error { return fn(mortalTx{tx, m}) })
	if m.left <= 0 {
		kill()
	}
	return err
}

type mortalTx struct {
	importer.Tx
	mortal *mortal
}

func (t mortalTx) Message(message domain.Message) error {
	t.mortal.left--
	if t.mortal.left <= 0 && t.mortal.inside {
		kill()
	}
	return t.Tx.Message(message)
}

func kill() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// importUntilKilled is the other process.
func importUntilKilled(order string) {
	var name, place, how string
	var messages int
	_, err := fmt.Sscanf(order, "%s %d %s %q", &name, &messages, &how, &place)
	var engine store.Engine
	switch {
	case err != nil:
	case name == "sqlite":
		engine, err = sqlite.Open(place)
	default:
		engine, err = postgres.Open(context.Background(), place)
	}
	if err == nil {
		var s *store.Store
		s, err = store.Open(context.Background(), engine, store.Options{Now: clock, Log: slog.New(slog.DiscardHandler), Fatal: func(error) {}})
		if err == nil {
			_, err = importer.Run(context.Background(), &mortal{Store: s, left: messages, inside: how == "inside"}, crashed.Source(),
				importer.Options{Now: clock, BatchDocuments: crashBatch})
		}
	}
	fmt.Fprintln(os.Stderr, "it was not killed:", err)
	os.Exit(1)
}

// What was killed in the middle, between two batches or inside one, goes on behind the
// last batch, and imports everything once.
func TestAKilledImportGoesOn(t *testing.T) {
	dsn, err := postgresServer(t).NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/host.db"
	for _, engine := range []struct {
		name, place string
		open        func() store.Engine
	}{
		{"sqlite", path, func() store.Engine { return openSQLite(t, path) }},
		{"postgres", dsn, func() store.Engine { return openPostgres(t, dsn) }},
	} {
		t.Run(engine.name, func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			var last importer.Progress
			for i, how := range []string{"inside", "between", "inside", "between"} {
				cmd := exec.CommandContext(t.Context(), self)
				cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s %q", crashEnv, engine.name, 40, how, engine.place))
				out, err := cmd.CombinedOutput()
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
					t.Fatalf("process %d: %v, %s", i, err, out)
				}
				s := openStore(t, engine.open())
				progress, err := s.ImportProgress(t.Context(), crashed.Source().Digest)
				if err != nil || progress.Complete || progress.Documents <= last.Documents {
					t.Fatalf("after process %d the import is at %+v, before at %+v: %v", i, progress, last, err)
				}
				last = progress
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			s := openStore(t, engine.open())
			summary, err := importer.Run(t.Context(), s, crashed.Source(), importer.Options{Now: clock, BatchDocuments: crashBatch})
			if err != nil || !summary.Complete || summary.Before != last.Documents || summary.Inserted+summary.Before != summary.Documents {
				t.Fatalf("%+v, %v", summary, err)
			}
			whole := openStore(t, openSQLite(t, t.TempDir()+"/whole.db"))
			if _, err := importer.Run(t.Context(), whole, crashed.Source(), importer.Options{Now: clock}); err != nil {
				t.Fatal(err)
			}
			for _, workspace := range []string{"crash-000", "crash-001"} {
				got, want := contentOf(t, s, workspace), contentOf(t, whole, workspace)
				if got != want {
					t.Errorf("workspace %s of the import in pieces:\n%.2000s\nwant\n%.2000s", workspace, got, want)
				}
			}
		})
	}
}
