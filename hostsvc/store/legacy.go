package store

import (
	"context"

	"github.com/kandev/plugin-host/hostsvc/legacy"
)

// Legacy returns the store as v1 sees it.
func (s *Store) Legacy() legacy.Store { return legacyStore{s} }

type legacyStore struct{ store *Store }

// Read implements legacy.Store.
func (l legacyStore) Read(ctx context.Context, fn func(legacy.Snapshot) error) error {
	return l.store.readSnapshot(ctx, func(snap *snapshot) error { return fn(snap) })
}

// Write implements legacy.Store.
func (l legacyStore) Write(ctx context.Context, workspaceID string, fn func(legacy.Tx) error) error {
	return l.store.run(ctx, workspaceLock(workspaceID), false, func(t *tx) error { return fn(t) })
}
