package main

import (
	"context"
	"log/slog"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// receiptStore is the part of the store that receipts are pruned by.
type receiptStore interface {
	PruneReceipts(ctx context.Context, olderThan time.Time) (receipts uint64, err error)
}

// receiptPruner removes the receipts and roots that are older than retention, at
// the start of a term and every so often after; the leader does. A retention of 0
// keeps them all. What can't be pruned is left for the next time.
func receiptPruner(durable receiptStore, retention, every time.Duration, log *slog.Logger) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		if retention == 0 {
			return nil
		}
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			receipts, err := durable.PruneReceipts(ctx, time.Now().Add(-retention))
			if receipts > 0 {
				log.Info("Pruned receipts", "receipts", receipts, "olderThan", retention)
			}
			if err != nil && ctx.Err() == nil {
				log.Error("Not every chain of receipts was pruned; the next time is due", "after", every, "error", err)
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return nil
			}
		}
	})
}
