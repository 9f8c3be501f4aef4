package plugindata

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

// SweepEvery is how long what an installation kept may outlive an uninstall that
// nobody saw.
const SweepEvery = time.Hour

// Kept is the store's part of the sweep.
type Kept interface {
	// Keeping lists the installations that keep something and aren't tombstoned:
	// their IDs by the uids of their objects.
	Keeping(ctx context.Context) (map[string]string, error)
	// Tombstone retires an installation's ID, and removes what it kept.
	Tombstone(ctx context.Context, installationID string) error
}

// Sweep removes what installations kept whose objects are gone. The controller does
// so when it sees an uninstall; one that happened while no Host ran, of a plugin that
// nobody ever approved of, has left nothing else to be seen by (I13). It is the
// leader's runnable.
type Sweep struct {
	Store Kept
	// Live reads past every cache: that an object is gone is never concluded from one.
	Live  client.Reader
	Every time.Duration
	Log   *slog.Logger
}

// Start implements manager.Runnable.
func (s *Sweep) Start(ctx context.Context) error {
	ticker := time.NewTicker(s.Every)
	defer ticker.Stop()
	for {
		if err := s.Run(ctx); err != nil && ctx.Err() == nil {
			s.Log.ErrorContext(ctx, "What uninstalled plugins kept can't be removed; the next try is due", "after", s.Every, "error", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Run sweeps once. The objects are listed after the installations: whoever keeps
// something was there before.
func (s *Sweep) Run(ctx context.Context) error {
	keeping, err := s.Store.Keeping(ctx)
	if err != nil {
		return fmt.Errorf("list who keeps something: %w", err)
	}
	if len(keeping) == 0 {
		return nil
	}
	var installed v1alpha1.PluginInstallationList
	if err := s.Live.List(ctx, &installed); err != nil {
		return fmt.Errorf("list the installations: %w", err)
	}
	for i := range installed.Items {
		delete(keeping, string(installed.Items[i].UID))
	}
	for _, id := range keeping {
		if err := s.Store.Tombstone(ctx, id); err != nil {
			return fmt.Errorf("tombstone installation %s: %w", id, err)
		}
		s.Log.InfoContext(ctx, "Removed what an uninstalled plugin kept", "installationID", id)
	}
	return nil
}
