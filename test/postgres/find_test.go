package postgres

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	for _, test := range []struct {
		name string
		// have are the server binaries of the system, below its root.
		have []string
		// path is the folder on PATH, want the folder found; "" for none.
		path, want string
	}{
		{name: "nothing", path: "usr/bin"},
		{name: "on PATH before Debian's place",
			have: []string{"opt/pg/initdb", "opt/pg/postgres", "lib/15/bin/initdb", "lib/15/bin/postgres"}, path: "opt/pg", want: "opt/pg"},
		{name: "newest of Debian's, as a number",
			have: []string{"lib/9/bin/initdb", "lib/9/bin/postgres", "lib/15/bin/initdb", "lib/15/bin/postgres"}, path: "usr/bin", want: "lib/15/bin"},
		{name: "a client package has no server",
			have: []string{"lib/17/bin/psql", "lib/15/bin/initdb", "lib/15/bin/postgres"}, path: "usr/bin", want: "lib/15/bin"},
		{name: "initdb without postgres",
			have: []string{"opt/pg/initdb", "lib/15/bin/initdb"}, path: "opt/pg"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			for _, name := range test.have {
				if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o750); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(root, name), []byte("#!/bin/sh\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", filepath.Join(root, test.path))
			got, err := find(filepath.Join(root, "lib", "*", "bin"))
			if test.want == "" {
				if !errors.Is(err, ErrNoServer) {
					t.Fatalf("got %q, %v; want ErrNoServer", got, err)
				}
				for _, says := range []string{"initdb", "PATH", "/usr/lib/postgresql", "make test"} {
					if !strings.Contains(err.Error(), says) {
						t.Errorf("%q doesn't say %q", err, says)
					}
				}
				return
			}
			if err != nil || got != filepath.Join(root, test.want) {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}
