package store

import (
	"fmt"
	"strings"

	"github.com/kandev/plugin-host/hostsvc/domain"
)

var (
	statsNames = []string{
		"session_id", "workspace_id", "added_committed", "deleted_committed", "added_peak_pending", "deleted_peak_pending",
		"committed_available", "version",
	}
	statsColumns = strings.Join(statsNames, ", ")
	upsertStats  = upsert("code_stats", statsNames, 2, "", "")
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

// CodeStatsOf implements legacy.SessionSnapshot.
func (s *snapshot) CodeStatsOf(sessions []domain.Session) ([]domain.CodeStats, error) {
	type name struct{ session, workspace string }
	all := map[name]domain.CodeStats{}
	ids := make([]string, len(sessions))
	for i, session := range sessions {
		ids[i] = session.ID
	}
	q := streams{}
	q.in("session_id", ids)
	if len(ids) > 0 {
		err := s.query("read code stats", `SELECT `+statsColumns+` FROM code_stats WHERE `+q.where.String(), func(r Row) error {
			all[name{r.Text(0), r.Text(1)}] = domain.CodeStats{
				SessionID: r.Text(0), WorkspaceID: r.Text(1), AddedCommitted: r.Int(2), DeletedCommitted: r.Int(3),
				AddedPeakPending: r.Int(4), DeletedPeakPending: r.Int(5), CommittedAvailable: r.Int(6) != 0,
				Version: domain.Version(r.Int(7)),
			}
			return nil
		}, q.args...)
		if err != nil {
			return nil, err
		}
	}
	stats := make([]domain.CodeStats, len(sessions))
	for i, session := range sessions {
		counted, ok := all[name{session.ID, session.WorkspaceID}]
		if !ok {
			counted = domain.CodeStats{SessionID: session.ID, WorkspaceID: session.WorkspaceID}
		}
		stats[i] = counted
	}
	return stats, nil
}
