package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/store"
	"github.com/kandev/plugin-host/hostsvc/store/sqlite"
)

// countedPrunings tells of each call, after it.
type countedPrunings struct {
	*store.Store
	called chan uint64
}

func (c countedPrunings) PruneReceipts(ctx context.Context, olderThan time.Time) (uint64, error) {
	receipts, err := c.Store.PruneReceipts(ctx, olderThan)
	c.called <- receipts
	return receipts, err
}

func TestReceiptsArePrunedOnceTheyAreOld(t *testing.T) {
	engine, err := sqlite.Open(filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	// The store writes a year and a day ago.
	durable, err := store.Open(t.Context(), engine, store.Options{
		Now: func() time.Time { return time.Now().Add(-defaultReceiptRetention - 24*time.Hour) },
		Log: slog.New(slog.DiscardHandler), Fatal: func(err error) { t.Errorf("the store ended: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := durable.Close(); err != nil {
			t.Error(err)
		}
	}()
	recorder := journal.NewRecorder(durable, "chain", func() time.Time {
		return time.Now().Add(-defaultReceiptRetention - 24*time.Hour)
	})
	if err := recorder.Append(t.Context(), journal.Receipt{AuditID: "audit-1", Result: contract.StateApplied}); err != nil {
		t.Fatal(err)
	}
	if err := recorder.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := durable.AppendRoot(t.Context()); err != nil {
		t.Fatal(err)
	}

	text := &logged{}
	log := slog.New(slog.NewTextHandler(text, nil))
	prune := func(retention time.Duration) (receipts []uint64) {
		t.Helper()
		counted := countedPrunings{durable, make(chan uint64)}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- receiptPruner(counted, retention, time.Millisecond, log).Start(ctx) }()
		for {
			select {
			case n := <-counted.called:
				if receipts = append(receipts, n); len(receipts) == 2 {
					stop()
				}
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
				return receipts
			}
		}
	}
	if got := prune(0); len(got) != 0 {
		t.Errorf("without a retention, prunings took %v receipts", got)
	}
	if got := prune(defaultReceiptRetention + 48*time.Hour); len(got) < 2 || got[0]+got[1] != 0 {
		t.Errorf("prunings of what is older than a year and two days took %v receipts", got)
	}
	if got := prune(defaultReceiptRetention); len(got) < 2 || got[0] != 1 || got[1] != 0 {
		t.Errorf("prunings of what is older than a year took %v receipts", got)
	}
	if got := text.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "receipts=1") {
		t.Errorf("logged\n%s", got)
	}
}
