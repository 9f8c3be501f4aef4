package store

import (
	"fmt"

	"github.com/kandev/plugin-host/hostsvc/domain"
)

var (
	statsNames = []string{
		"session_id", "workspace_id", "added_committed", "deleted_committed", "added_peak_pending", "deleted_peak_pending",
		"committed_available", "version",
	}
	upsertStats = upsert("code_stats", statsNames, 2, "", "")
)

// SetCodeStats writes the counts of a session of the workspace. An error that wraps
// ErrMisplaced is for a session that isn't there.
func (t *tx) SetCodeStats(stats domain.CodeStats) error {
	if err := t.own("code stats", stats.SessionID, stats.WorkspaceID, stats.Version); err != nil {
		return err
	}
	if err := t.enter(stats.SessionID, ""); err != nil {
		return fmt.Errorf("write code stats: %w", err)
	}
	return t.later(nil, "write code stats", upsertStats, stats.SessionID, stats.WorkspaceID, stats.AddedCommitted,
		stats.DeletedCommitted, stats.AddedPeakPending, stats.DeletedPeakPending, flag(stats.CommittedAvailable), int64(stats.Version))
}
