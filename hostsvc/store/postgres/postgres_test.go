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

func start(tb testing.TB) *server.Server {
	tb.Helper()
	s, err := server.Start(tb.Context())
	if err != nil {
		tb.Fatal(err) // an engine is never skipped
	}
	tb.Cleanup(func() {
		if err := s.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func open(tb testing.TB, dsn string) *postgres.Engine {
	tb.Helper()
	engine, err := postgres.Open(tb.Context(), dsn)
	if err != nil {
		tb.Fatal(err)
	}
	return engine
}

func TestStore(t *testing.T) { storetest.Run(t, fresh(start(t))) }

func TestI5_RenewalWaitsForFences(t *testing.T) {
	storetest.RunRenewalWaitsForFences(t, fresh(start(t))(t), func(tx store.Transaction) (waits bool, err error) {
		err = tx.Query(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`, func(r store.Row) error {
			waits = r.Int(0) > 0
			return nil
		})
		return waits, err
	})
}

func BenchmarkStore(b *testing.B) { storetest.Bench(b, fresh(start(b))) }

// fresh returns what makes an empty database on a server.
func fresh(s *server.Server) func(testing.TB) storetest.Database {
	return func(tb testing.TB) storetest.Database {
		tb.Helper()
		dsn, err := s.NewDatabase(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		return storetest.Database{
			Open: func(tb testing.TB) store.Engine {
				tb.Helper()
				return open(tb, dsn)
			},
			Crash: func(tb testing.TB) *exec.Cmd {
				tb.Helper()
				self, err := os.Executable()
				if err != nil {
					tb.Fatal(err)
				}
				cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), self)
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

// A second replica on the same database: locks, fences and terms hold across
// both.
func TestI5_AcrossReplicas(t *testing.T) { storetest.RunReplicas(t, fresh(start(t))) }

// What the suite finds when a rule of PostgreSQL's store is taken away.
func TestMutants_AreNoticed(t *testing.T) { storetest.RunMutants(t, fresh(start(t))) }

// A connection that the server ends costs at most the command that it carried,
// and the pool replaces it.
func TestLostConnectionCommitsNothing(t *testing.T) {
	s := start(t)
	dsn, err := s.NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	engine := open(t, dsn)
	defer func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	}()
	setUp, err := engine.Begin(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(setUp.Script("CREATE TABLE kept (n bigint)"), setUp.Commit()); err != nil {
		t.Fatal(err)
	}
	tx, err := engine.Begin(t.Context(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("INSERT INTO kept (n) VALUES ($1)", int64(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("SELECT pg_terminate_backend(pg_backend_pid())"); err == nil {
		t.Fatal("the connection ended itself and the statement succeeded")
	}
	if tx.Alive() {
		t.Error("a transaction without a connection is alive")
	}
	if err := tx.Commit(); err == nil {
		t.Error("committed without a connection")
	}
	// The lock went with the connection, and so did the write.
	again, err := engine.Begin(t.Context(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Rollback()
	err = again.Query("SELECT n FROM kept", func(store.Row) error { return errors.New("the write is there") })
	if err != nil {
		t.Error(err)
	}
}

// locked begins a transaction and runs its first statement, which the lock comes
// with.
func locked(t *testing.T, engine store.Engine, name string) (store.Transaction, error) {
	t.Helper()
	tx, err := engine.Begin(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Query("SELECT 1", func(store.Row) error { return nil }); err != nil {
		if tx.Alive() {
			t.Error("a transaction without its lock is alive")
		}
		tx.Rollback()
		return nil, err
	}
	return tx, nil
}

// Whoever waits too long for a lock gives up, and nothing happened.
func TestLockTimeout(t *testing.T) {
	s := start(t)
	dsn, err := s.NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	engine := open(t, dsn)
	defer func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	}()
	first, err := locked(t, engine, "lock")
	if err != nil {
		t.Fatal(err)
	}
	if tx, err := locked(t, engine, "other"); err != nil {
		t.Errorf("another lock: %v", err)
	} else {
		tx.Rollback()
	}
	// The holder is kept busy: the server would end it for idling.
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if _, err := first.Exec("SELECT pg_sleep(0.02)"); err != nil {
				stopped <- err
				return
			}
		}
	}()
	if tx, err := locked(t, engine, "lock"); err == nil {
		t.Error("two transactions hold one lock")
		tx.Rollback()
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	first.Rollback()
	second, err := locked(t, engine, "lock")
	if err != nil {
		t.Fatalf("the lock after its holder has ended: %v", err)
	}
	second.Rollback()
}
