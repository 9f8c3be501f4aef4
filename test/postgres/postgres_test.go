package postgres_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/kandev/plugin-host/test/postgres"
)

func TestServerIsDurableAndLocal(t *testing.T) {
	server := start(t)
	conn := connect(t, server.DSN())
	for setting, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "listen_addresses": "", "server_encoding": "UTF8",
	} {
		var got string
		if err := conn.QueryRow(t.Context(), "SELECT current_setting($1)", setting).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
}

func TestEachDatabaseIsFresh(t *testing.T) {
	server := start(t)
	seen := map[string]bool{}
	for range 3 {
		dsn, err := server.NewDatabase(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if seen[dsn] {
			t.Fatalf("%s was given out twice", dsn)
		}
		seen[dsn] = true
		if _, err := connect(t, dsn).Exec(t.Context(), "CREATE TABLE only_here (id int)"); err != nil {
			t.Errorf("a fresh database has a table already: %v", err)
		}
	}
}

func TestStopBreaksConnectionsAndLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", shortTemp(t))
	server, err := postgres.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t, server.DSN())
	for range 2 {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a connection outlived the server")
	}
	left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "kandev-*", "pg-*"))
	if err != nil || left != nil {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestACancelledStartLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", shortTemp(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := postgres.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "kandev-*", "pg-*"))
	if err != nil || left != nil {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func start(t *testing.T) *postgres.Server {
	t.Helper()
	server, err := postgres.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// connect opens a connection that the end of the test closes.
func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // the server may be gone
	return conn
}

// shortTemp makes a temporary folder with a path short enough for a Unix socket,
// through which the server's user may pass.
func shortTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "t-") //nolint:usetesting // its folders are too long and closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
