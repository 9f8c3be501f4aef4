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
	var answer error
	err := l.store.engine.Read(ctx, func(c Conn) error {
		snap := &snapshot{store: l.store, conn: c}
		answer = fn(snap)
		return snap.failure
	})
	if err != nil {
		return failed("read a snapshot", err)
	}
	return answer
}

// Write implements legacy.Store.
func (l legacyStore) Write(ctx context.Context, workspaceID string, fn func(legacy.Tx) error) error {
	return l.store.run(ctx, workspaceLock(workspaceID), false, func(t *tx) error { return fn(t) })
}
