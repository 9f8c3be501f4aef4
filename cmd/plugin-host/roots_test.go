package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/store"
	"github.com/kandev/plugin-host/hostsvc/store/sqlite"
)

// countedRoots tells of each call, after it.
type countedRoots struct {
	*store.Store
	called chan struct{}
}

func (c countedRoots) AppendRoot(ctx context.Context) (journal.Root, error) {
	defer func() { c.called <- struct{}{} }()
	return c.Store.AppendRoot(ctx)
}

// logged is a log that a test reads while it is written.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestRootsAreAppendedAndLogged(t *testing.T) {
	engine, err := sqlite.Open(filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	durable, err := store.Open(t.Context(), engine, store.Options{
		Now: time.Now, Log: slog.New(slog.DiscardHandler), Fatal: func(err error) { t.Errorf("the store ended: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := durable.Close(); err != nil {
			t.Error(err)
		}
	}()
	seed := func(workspace string) {
		t.Helper()
		if err := durable.Seed(t.Context(), workspace, func(store.SeedTx) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	seed("first")
	text := &logged{}
	log := slog.New(slog.NewTextHandler(text, nil))
	counted := countedRoots{durable, make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- rooter(counted, time.Millisecond, log).Start(ctx) }()
	for range 3 { // the first names the workspace, nothing moves after it
		<-counted.called
	}
	stop()
	for done := false; !done; {
		select {
		case <-counted.called:
		case err := <-ended:
			if done = true; err != nil {
				t.Error(err)
			}
		}
	}
	seed("second")
	endRoots(ctx, durable, log) // ctx is over, as at the end of the process

	newest, err := journal.VerifyRoots(t.Context(), durable)
	if err != nil || newest.Number != 2 {
		t.Fatalf("verified up to root %d: %v, want 2", newest.Number, err)
	}
	if heads, err := newest.Heads(); err != nil || len(heads) != 1 || heads[0].Chain != "second" {
		t.Errorf("the last root names %+v, %v", heads, err)
	}
	if got := text.String(); !strings.Contains(got, "number=2 hash="+newest.Hash) || strings.Count(got, "\n") != 2 {
		t.Errorf("logged\n%s", got)
	}
}
