package controllers

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
)

// sweep looks at every row, at the start of a term and then from time to time:
// what is gone while nobody watched revokes too, and needs no finalizer (I13).
type sweep struct {
	store      Store
	view       *view.View
	every      time.Duration
	now        func() time.Time
	log        logr.Logger
	passes     *requests[authority.Key]
	uninstalls *requests[string]
}

func (s *sweep) run(ctx context.Context, current func(context.Context) error) {
	ticker := time.NewTicker(s.every)
	defer ticker.Stop()
	all := true
	for {
		err := current(ctx)
		if err == nil {
			err = s.once(ctx, all)
		}
		if err == nil {
			all = false
		} else if ctx.Err() == nil {
			s.log.Error(err, "The sweep failed; the next one is due", "after", s.every)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// once asks for a pass of every row that isn't up to date, or of all.
func (s *sweep) once(ctx context.Context, all bool) error {
	rows, err := s.store.Rows(ctx)
	if err != nil {
		return err
	}
	now := s.now()
	// Whether it is gone, a live read says.
	gone := map[string]struct{}{}
	for i := range rows {
		row := &rows[i]
		installed := s.view.Installed(row.Key.InstallationID)
		if all || behind(row, s.view.Observe(row.Key), installed, now) {
			s.passes.add(row.Key)
		}
		if all || (!installed && row.State != authority.StateRevoked) {
			gone[row.Key.InstallationID] = struct{}{}
		}
	}
	for id := range gone {
		s.uninstalls.add(id)
	}
	return nil
}

// behind tells whether a row may differ from what the objects ask for. A wrong
// yes costs a pass that changes nothing.
func behind(row *authority.Row, seen *authority.Observed, installed bool, now time.Time) bool {
	if row.Hold != nil || row.Starting || (row.State == authority.StateActive && row.Expired(now)) {
		return true
	}
	if installed && seen.Vector != row.Sum || !installed && row.State == authority.StateActive {
		return true
	}
	a := &seen.Approval
	if a.Gone {
		return row.Seen.UID != "" && !row.Seen.Gone
	}
	return a.UID != "" && (row.Seen.Gone || row.Seen.Before(a.UID, a.Generation))
}
