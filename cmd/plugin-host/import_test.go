package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kandev/plugin-host/hostsvc/query"
)

// shell runs a command, and returns its exit code with what it wrote.
func shell(t *testing.T, args ...string) (exit int, out string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	err := commands[args[0]](t.Context(), args[1:], &stdout, &stderr)
	if err != nil {
		stderr.WriteString(err.Error())
	}
	return code(err), stdout.String() + stderr.String()
}

func TestImportCommand(t *testing.T) {
	db := "--sqlite-path=" + filepath.Join(t.TempDir(), "host.db")
	good := file(t, "good.yaml", seeds)
	bad := file(t, "bad.yaml", strings.Replace(seeds, "parent_id: t-1", "parent_id: t-9", 1))
	for _, c := range []struct {
		what string
		args []string
		exit int
		says []string
	}{
		{"no file", []string{"import", db}, 2, []string{"name one file to import, not 0"}},
		{"two files", []string{"import", db, good, bad}, 2, []string{"name one file to import, not 2"}},
		{"no store", []string{"import", good}, 2, []string{"--sqlite-path is required"}},
		{"no such flag", []string{"import", "--force", good}, 2, []string{"-force"}},
		{"no such file", []string{"import", db, good + "x"}, 1, []string{"no such file"}},
		{"help", []string{"import", "-h"}, 0, []string{"Usage: plugin-host import [flags] FILE", "-dry-run"}},
		{"checked without a store", []string{"import", "--dry-run", good}, 0, []string{"5 documents checked and not imported, 0 left alone"}},
		{"checked with a fault", []string{"import", "--dry-run", bad}, 1, []string{bad + `:10: task "t-2": parent_id: is no task`}},
		{"checked for a store that isn't", []string{"import", "--dry-run", db, good}, 0, []string{"5 documents checked"}},
		{"with a fault", []string{"import", db, bad}, 1, []string{`:10: task "t-2": parent_id`, "0 documents imported"}},
		{"imported", []string{"import", db, "--name=first", good}, 0, []string{"5 documents imported, 0 left alone"}},
		{"again", []string{"import", db, "--name=first", good}, 0, []string{"5 documents had been imported before", "0 documents imported"}},
		{"another under its name", []string{"import", db, "--name=first", bad}, 1, []string{"begun with other content"}},
		{"under another name", []string{"import", db, good}, 1, []string{`:2: workspace "payments": id: is there already`}},
		{"what isn't there", []string{"import", db, "--skip-existing", good}, 0, []string{"0 documents imported, 5 left alone"}},
	} {
		exit, out := shell(t, c.args...)
		if exit != c.exit {
			t.Errorf("%s: exit code %d, want %d: %s", c.what, exit, c.exit, out)
		}
		for _, says := range c.says {
			if !strings.Contains(out, says) {
				t.Errorf("%s: wrote %q, want %q", c.what, out, says)
			}
		}
		if _, err := os.Stat(strings.TrimPrefix(db, "--sqlite-path=")); strings.HasPrefix(c.what, "checked") && err == nil {
			t.Errorf("%s: a dry run has made the database", c.what)
		}
	}
}

// A Host that runs has its database for itself.
func TestImportIsRefusedWhileTheHostRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "host.db")
	durable, err := open(t.Context(), settings{store: storeSQLite, sqlitePath: path}, slog.New(slog.DiscardHandler), func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = durable.Close() })
	exit, out := shell(t, "import", "--sqlite-path="+path, file(t, "good.yaml", seeds))
	if exit != 1 || !strings.Contains(out, "stop the Host") {
		t.Errorf("exit code %d: %s", exit, out)
	}
}

func TestSeedCommand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "host.db")
	for _, c := range []struct {
		what string
		args []string
		exit int
		says string
	}{
		{"no store", nil, 2, "--sqlite-path is required"},
		{"an argument", []string{"x"}, 2, `unexpected argument "x"`},
		{"no tasks", []string{"--tasks=0"}, 2, "there must be a workspace"},
		{"printed", []string{"--tasks=2", "--print"}, 0, `"kind":"task"`},
		{"imported", []string{"--tasks=6", "--workspaces=2", "--messages=30", "--sqlite-path=" + path}, 0, " documents imported, 0 left alone"},
		{"again", []string{"--tasks=6", "--workspaces=2", "--messages=30", "--sqlite-path=" + path}, 0, "\n0 documents imported"},
		{"another one", []string{"--tasks=1", "--prefix=other", "--sqlite-path=" + path}, 0, " documents imported, 0 left alone"},
	} {
		exit, out := shell(t, append([]string{"seed"}, c.args...)...)
		if exit != c.exit || !strings.Contains(out, c.says) {
			t.Errorf("%s: exit code %d: %q, want %d and %q", c.what, exit, out, c.exit, c.says)
		}
	}
	// What is printed is what would be imported.
	_, printed := shell(t, "seed", "--tasks=3", "--messages=10", "--print")
	if exit, out := shell(t, "import", "--dry-run", file(t, "sample.jsonl", printed)); exit != 0 {
		t.Errorf("exit code %d: %s", exit, out)
	}
	durable, err := open(t.Context(), settings{store: storeSQLite, sqlitePath: path}, slog.New(slog.DiscardHandler), func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = durable.Close() })
	tasks := 0
	err = durable.Read(t.Context(), func(s query.Snapshot) error {
		for _, workspace := range []string{"sample-000", "sample-001"} {
			newest, _, err := s.Head(workspace)
			if err != nil {
				return err
			}
			list, err := s.Tasks(workspace, query.TaskFilter{}, newest, "", 100)
			if err != nil {
				return err
			}
			tasks += len(list)
		}
		return nil
	})
	if err != nil || tasks != 6 {
		t.Errorf("%d tasks, %v", tasks, err)
	}
}
