package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"github.com/kandev/plugin-host/hack/toolbox"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/store"
	"github.com/kandev/plugin-host/hostsvc/store/sqlite"
)

const (
	// importMessages are imported, of importTasks tasks.
	importMessages = 1_000_000
	importTasks    = 10_000
	// importPage is a page of the list that is read afterwards.
	importPage = 200
)

// measureImport imports a million messages by the released program into an empty
// SQLite database: how fast, and how much memory it holds at most. Then it opens the
// store as a Host does, and looks at what that holds once a list has been read.
func measureImport(ctx context.Context, m *measurement) (err error) {
	dir, err := os.MkdirTemp("", "plugin-host-bench-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	root, err := toolbox.Root()
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "import.db")
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "plugin-host"), "seed", "--sqlite-path="+path,
		"--tasks="+strconv.Itoa(importTasks), "--messages="+strconv.Itoa(importMessages), "--messages-per-session=500", "--workspaces=4")
	cmd.Stderr = os.Stderr
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("import a sample (`make build` builds what does it): %w", err)
	}
	took := time.Since(began)
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return errors.New("the system doesn't tell what a process used")
	}
	file, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("look at the database: %w", err)
	}
	fmt.Printf("%d messages imported in %.1f s, resident memory at most %.1f MB, the database has %.0f MB\n",
		importMessages, took.Seconds(), float64(usage.Maxrss)/1e3, float64(file.Size())/1e6)
	m.report(figure{name: "import_messages_per_s", value: importMessages / took.Seconds(), unit: "1/s"})
	m.report(figure{name: "import_1m_messages_peak_mb", value: float64(usage.Maxrss) / 1e3, unit: "MB", atMost: bar(256)})
	resident, err := residentAfterImport(ctx, path)
	if err != nil {
		return err
	}
	// The caches of SQLite's connections are most of it, whatever the database has.
	m.report(figure{name: "store_1m_messages_resident_mb", value: resident, unit: "MB", atMost: bar(320)})
	return nil
}

// residentAfterImport is how much more memory, in MB, this process holds with the store
// of the import open, behind reading every message of a workspace page by page.
func residentAfterImport(ctx context.Context, path string) (megabytes float64, err error) {
	debug.FreeOSMemory()
	before, err := residentBytes(os.Getpid())
	if err != nil {
		return 0, err
	}
	engine, err := sqlite.Open(path)
	if err != nil {
		return 0, err
	}
	s, err := store.Open(ctx, engine, store.Options{
		Now: time.Now, Log: slog.New(slog.DiscardHandler), Fatal: func(err error) { fmt.Fprintln(os.Stderr, "bench:", err) },
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	read, after := 0, ""
	for {
		var page []domain.Message
		err := s.Read(ctx, func(r query.Snapshot) error {
			newest, _, err := r.Head("sample-000")
			if err != nil {
				return err
			}
			page, err = r.Messages("sample-000", query.MessageFilter{}, newest, after, importPage)
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("list the messages: %w", err)
		}
		if len(page) == 0 {
			break
		}
		read += len(page)
		after = query.MessageKey(page[len(page)-1])
	}
	if read != importMessages/4 {
		return 0, fmt.Errorf("%d messages in the first workspace, want %d", read, importMessages/4)
	}
	// What is left is what the store holds, and no garbage of the pages.
	debug.FreeOSMemory()
	now, err := residentBytes(os.Getpid())
	if err != nil {
		return 0, err
	}
	fmt.Printf("%d of them listed, resident memory %.1f MB more than before the store was opened\n", read, float64(now-before)/1e6)
	return float64(now-before) / 1e6, nil
}
