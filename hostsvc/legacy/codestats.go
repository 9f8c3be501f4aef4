package legacy

import (
	"context"
	"fmt"

	"github.com/kandev/plugin-host/hostsvc/domain"
)

// ListSessionCodeStats counts the lines that sessions changed: one row for each
// session that ListSessions lists for the same filter and page.
func (h *Host) ListSessionCodeStats(ctx context.Context, _ Caller, filter SessionFilter, page Page) (stats []domain.CodeStats, info PageInfo, err error) {
	err = h.Store.Read(ctx, func(s Snapshot) error {
		var sessions []domain.Session
		if sessions, info, err = sessionPage(s, filter, page); err != nil {
			return err
		}
		stats, err = s.CodeStatsOf(sessions)
		return err
	})
	if err != nil {
		return nil, PageInfo{}, fmt.Errorf("list code stats: %w", err)
	}
	return stats, info, nil
}
