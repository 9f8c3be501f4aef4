package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kandev/plugin-host/hostsvc/board"
)

// sweepTransitionsEvery is how long a move that can't be applied any more keeps
// writers from its task, at most.
const sweepTransitionsEvery = 30 * time.Second

// transitionSweeper removes moves that wait for what can't come; the leader does.
func transitionSweeper(durable board.Store, every time.Duration, log *slog.Logger) manager.Runnable {
	sweeper := &board.Sweeper{Store: durable, Now: time.Now, NewAuditID: uuid.NewString}
	return manager.RunnableFunc(func(ctx context.Context) error {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return nil
			}
			removed, err := sweeper.Sweep(ctx)
			if err != nil && ctx.Err() == nil {
				log.Error("Sweeping pending transitions failed; the next one is due", "after", every, "error", err)
			}
			if removed > 0 {
				log.Info("Removed pending transitions that can't be applied any more", "transitions", removed)
			}
		}
	})
}
