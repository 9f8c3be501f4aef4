package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/kandev/plugin-host/hostsvc/store"
)

// Scratch is a map on disk for one goroutine, gone when it is closed. A dry run of an
// import remembers in it what it has read. It implements importer.Scratch.
type Scratch struct {
	dir  string
	conn *conn
}

// OpenScratch makes an empty one in a folder of its own where temporary files go.
func OpenScratch() (*Scratch, error) {
	dir, err := os.MkdirTemp("", "plugin-host-scratch-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for temporary files: %w", err)
	}
	s := &Scratch{dir: dir}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open a temporary database: %w", err), s.Close())
	}
	return s, nil
}

func (s *Scratch) open() (err error) {
	path := filepath.Join(s.dir, "scratch.db")
	if err := private(path); err != nil {
		return err
	}
	if s.conn, err = connect(path, sqlite.OpenReadWrite); err != nil {
		return err
	}
	for _, pragma := range []string{"PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF"} {
		if err := s.conn.pragma(pragma); err != nil {
			return err
		}
	}
	_, err = s.conn.Exec(`CREATE TABLE scratch (key BLOB NOT NULL PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID`)
	return err
}

// Put implements importer.Scratch.
func (s *Scratch) Put(values map[string]string) (err error) {
	if _, err := s.conn.Exec("BEGIN"); err != nil {
		return err
	}
	for key, value := range values {
		_, err := s.conn.Exec(`INSERT INTO scratch (key, value) VALUES ($1, $2)
			ON CONFLICT (key) DO UPDATE SET value = excluded.value`, []byte(key), value)
		if err != nil {
			return fmt.Errorf("write into a temporary database: %w", err)
		}
	}
	_, err = s.conn.Exec("COMMIT")
	return err
}

// scratchStep is how many keys one statement asks for.
const scratchStep = 64

var selectScratch = `SELECT key, value FROM scratch WHERE key IN ($1` + parameters(2, scratchStep) + `)`

func parameters(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, ", $%d", i)
	}
	return b.String()
}

// Get implements importer.Scratch.
func (s *Scratch) Get(keys []string) (map[string]string, error) {
	found := map[string]string{}
	for from := 0; from < len(keys); from += scratchStep {
		args := make([]any, scratchStep)
		for i := range args {
			args[i] = []byte(keys[min(from+i, len(keys)-1)])
		}
		err := s.conn.Query(selectScratch, func(r store.Row) error {
			found[string(r.Bytes(0))] = r.Text(1)
			return nil
		}, args...)
		if err != nil {
			return nil, fmt.Errorf("read from a temporary database: %w", err)
		}
	}
	return found, nil
}

// Close removes it.
func (s *Scratch) Close() error {
	var err error
	if s.conn != nil {
		err = s.conn.db.Close()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
