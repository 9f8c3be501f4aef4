package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	server "github.com/kandev/plugin-host/test/postgres"

	"github.com/kandev/plugin-host/hostsvc/store"
	"github.com/kandev/plugin-host/hostsvc/store/postgres"
	"github.com/kandev/plugin-host/hostsvc/store/storetest"
)

// crashEnv turns the test binary into another process of the same database.
const crashEnv = "STORETEST_CRASH_POSTGRES"

func TestMain(m *testing.M) {
	if dsn := os.Getenv(crashEnv); dsn != "" {
		engine, err := postgres.Open(context.Background(), dsn)
		if err == nil {
			err = storetest.CrashWriter(engine)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func start(t testing.TB) *server.Server {
	t.Helper()
	s, err := server.Start(t.Context())
	if err != nil {
		t.Fatal(err) // an engine is never skipped
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func open(t testing.TB, dsn string) *postgres.Engine {
	t.Helper()
	engine, err := postgres.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	return engine
}

func TestStore(t *testing.T) { storetest.Run(t, fresh(start(t))) }

func BenchmarkStore(b *testing.B) { storetest.Bench(b, fresh(start(b))) }

// fresh returns what makes an empty database on a server.
func fresh(s *server.Server) func(testing.TB) storetest.Database {
	return func(t testing.TB) storetest.Database {
		t.Helper()
		dsn, err := s.NewDatabase(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return storetest.Database{
			Open: func(t testing.TB) store.Engine { return open(t, dsn) },
			Crash: func(t testing.TB) *exec.Cmd {
				t.Helper()
				self, err := os.Executable()
				if err != nil {
					t.Fatal(err)
				}
				cmd := exec.CommandContext(context.WithoutCancel(t.Context()), self)
				cmd.Env = append(os.Environ(), crashEnv+"="+dsn)
				return cmd
			},
		}
	}
}

func TestOpenNeverShowsTheConnectionString(t *testing.T) {
	for _, dsn := range []string{
		"postgres://user:secret@localhost:notaport/db", "host=/nowhere user=user password=secret dbname=db connect_timeout=1",
	} {
		_, err := postgres.Open(t.Context(), dsn)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("open %s: %v", dsn, err)
		}
	}
	if _, err := postgres.Open(t.Context(), "postgres://user:secret@localhost:notaport/db"); !errors.Is(err, postgres.ErrDSN) {
		t.Errorf("a malformed connection string: %v", err)
	}
}
