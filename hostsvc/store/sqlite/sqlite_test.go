package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kandev/plugin-host/hostsvc/store"
	"github.com/kandev/plugin-host/hostsvc/store/sqlite"
	"github.com/kandev/plugin-host/hostsvc/store/storetest"
)

// Environment variables that turn the test binary into another process of the
// same database.
const (
	crashEnv  = "STORETEST_CRASH_SQLITE"
	secondEnv = "STORETEST_SECOND_SQLITE"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(crashEnv); path != "" {
		engine, err := sqlite.Open(path)
		if err == nil {
			err = storetest.CrashWriter(engine)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if path := os.Getenv(secondEnv); path != "" {
		engine, err := sqlite.Open(path)
		if errors.Is(err, sqlite.ErrLocked) {
			os.Exit(42)
		}
		fmt.Fprintln(os.Stderr, engine, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func fresh(tb testing.TB) storetest.Database {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "dir ?mode=ro", "plugin-host.db")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		tb.Fatal(err)
	}
	return storetest.Database{
		Open: func(tb testing.TB) store.Engine {
			tb.Helper()
			return open(tb, path)
		},
		Crash: func(tb testing.TB) *exec.Cmd {
			tb.Helper()
			return again(tb, crashEnv, path)
		},
	}
}

func open(tb testing.TB, path string) *sqlite.Engine {
	tb.Helper()
	engine, err := sqlite.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	return engine
}

func again(tb testing.TB, env, path string) *exec.Cmd {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), self)
	cmd.Env = append(os.Environ(), env+"="+path)
	return cmd
}

func TestMutants_AreNoticed(t *testing.T) { storetest.RunSoleMutants(t, fresh) }

func TestStore(t *testing.T) { storetest.Run(t, fresh) }

func TestI5_AnyOrderOfClaimsEpochsAndLeases(t *testing.T) { storetest.RunEpochs(t, fresh) }

// A file that was copied and put back later is behind the beat that was
// published meanwhile, and behind its history: nothing in it is in force until a
// new epoch has been compared with that.
func TestI3_OlderCopyIsBehindItsBeat(t *testing.T) {
	database, save, restore := olderCopy(t)
	storetest.RunOlderCopy(t, database, save, restore)
}

// olderCopy is a database that is copied and put back with all its files, as
// backups of a volume do.
func olderCopy(t *testing.T) (database storetest.Database, save, restore func()) {
	t.Helper()
	folder, saved := filepath.Join(t.TempDir(), "volume"), filepath.Join(t.TempDir(), "saved")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	replace := func(from, to string) func() {
		return func() {
			t.Helper()
			if err := os.RemoveAll(to); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(to, os.DirFS(from)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return storetest.Database{Open: func(tb testing.TB) store.Engine {
		tb.Helper()
		return open(tb, filepath.Join(folder, "host.db"))
	}}, replace(folder, saved), replace(saved, folder)
}

func TestSecondProcessIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	engine := open(t, path)
	out, err := again(t, secondEnv, path).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 42 {
		t.Errorf("a second process: %v, %s", err, out)
	}
	if _, err := sqlite.Open(path); !errors.Is(err, sqlite.ErrLocked) {
		t.Errorf("opened twice: %v", err)
	}
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, path).Close(); err != nil {
		t.Errorf("open and close after the first has ended: %v", err)
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "no such folder", "a.db")
	if _, err := sqlite.Open(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("opened in a folder that is not there: %v", err)
	}
	path = filepath.Join(t.TempDir(), "a.db")
	if err := os.WriteFile(path, []byte("this is a text and no database, whatever it is called"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(path); err == nil {
		t.Error("opened a text file")
	}
}

func BenchmarkStore(b *testing.B) { storetest.Bench(b, fresh) }

func TestFilesAreTheOwnersAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "host.db")
	engine, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = engine.Close() }()
	for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
		info, err := os.Stat(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %o", info.Name(), mode)
		}
	}
}

func TestListsOfConversationsFollowTheirIndexes(t *testing.T) {
	storetest.RunPlans(t, fresh(t), func(c store.Conn, statement store.Statement) (steps []string, err error) {
		err = c.Query("EXPLAIN QUERY PLAN "+statement.Text, func(r store.Row) error {
			steps = append(steps, r.Text(3))
			return nil
		}, statement.Args...)
		return steps, err
	})
}
