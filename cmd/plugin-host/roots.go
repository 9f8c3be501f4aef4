package main

import (
	"context"
	"log/slog"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kandev/plugin-host/hostsvc/journal"
)

// rootStore is the part of the store that roots are appended by.
type rootStore interface {
	AppendRoot(ctx context.Context) (journal.Root, error)
}

// rooter appends a root every so often; the leader does. What moves after its
// last one, endRoots covers.
func rooter(durable rootStore, every time.Duration, log *slog.Logger) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				appendRoot(ctx, durable, log)
			case <-ctx.Done():
				return nil
			}
		}
	})
}

// endRoots appends the root of everything that the process has written, within
// the time that its receipts have too. It runs once nothing is written any more.
func endRoots(ctx context.Context, durable rootStore, log *slog.Logger) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	appendRoot(last, durable, log)
}

// appendRoot logs the root's hash: kept outside the store, it shows also what
// is rewritten together with the roots. A failure leaves what moved to the next
// root, and never keeps the process from its work.
func appendRoot(ctx context.Context, durable rootStore, log *slog.Logger) {
	root, err := durable.AppendRoot(ctx)
	if root.Number > 0 {
		log.Info("Appended a root of the chains", "number", root.Number, "hash", root.Hash)
	}
	if err != nil && ctx.Err() == nil {
		log.Error("The chains are not all rooted", "error", err)
	}
}
