package board_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kandev/plugin-host/hostsvc/board"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/store"
	"github.com/kandev/plugin-host/hostsvc/store/sqlite"
)

var errBroken = errors.New("the workspace is broken")

// broken is a store with a workspace that nothing can be written to.
type broken struct {
	board.Store

	workspace string
}

func (b broken) Board(ctx context.Context, workspaceID string, fn func(board.SweepTx) error) error {
	if workspaceID == b.workspace {
		return errBroken
	}
	return b.Store.Board(ctx, workspaceID, fn)
}

// A workspace that can't be swept keeps no other from it, whichever comes first.
func TestSweepGoesOnBehindAFailure(t *testing.T) {
	engine, err := sqlite.Open(filepath.Join(t.TempDir(), "host.db"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	clock := func() time.Time { return now }
	durable, err := store.Open(t.Context(), engine, store.Options{Now: clock, Log: slog.New(slog.DiscardHandler), Fatal: func(error) {}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = durable.Close() })
	for _, workspace := range []string{"a", "b", "c"} {
		err := durable.Seed(t.Context(), workspace, func(tx store.SeedTx) error {
			return tx.PendingTransition(domain.PendingTransition{
				ID: "of-" + workspace, TaskID: "gone", SessionID: "gone", ToStepID: "gone", Predicate: domain.PredicateTurnEnd, QueuedAt: now,
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	sweeper := &board.Sweeper{Store: broken{durable, "a"}, Now: clock, NewAuditID: uuid.NewString}
	if removed, err := sweeper.Sweep(t.Context()); removed != 2 || !errors.Is(err, errBroken) {
		t.Errorf("removed %d, with %v", removed, err)
	}
	sweeper.Store = durable
	if removed, err := sweeper.Sweep(t.Context()); removed != 1 || err != nil {
		t.Errorf("afterwards removed %d, with %v", removed, err)
	}
}
