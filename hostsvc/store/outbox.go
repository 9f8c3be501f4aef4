package store

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/events"
)

var (
	_ events.Store      = (*Store)(nil)
	_ command.EmitStore = (*Store)(nil)
)

// Outbox is how a database orders the events of all workspaces. A place in that
// order is a pair of numbers that are not negative.
type Outbox struct {
	// Page lists the events behind place ($1, $2), at most $3, in their order and
	// as far as nothing that is still open can come before them. One row more, the
	// last, is the place up to which that is so, with the store's ID and epoch. The
	// columns are those of scanOutbox.
	Page string
	// Emit adds an event that belongs to no workspace: id, installation_id, source,
	// event_type, event, at.
	Emit string
	// Forget takes out of the order what can't have a place in it. It runs when
	// the store is opened.
	Forget []string
}

// emittedLock orders what plugins publish among themselves.
const emittedLock = "emitted"

// forgetForeign ends what another database's numbers would say in this one.
func forgetForeign(ctx context.Context, engine Engine) error {
	statements := engine.Outbox().Forget
	if len(statements) == 0 {
		return nil
	}
	db, err := engine.Begin(ctx, "")
	if err != nil {
		return failed("begin to look for foreign places in the outbox", err)
	}
	for _, statement := range statements {
		if _, err := db.Exec(statement); err != nil {
			db.Rollback()
			return failed("forget foreign places in the outbox", err)
		}
	}
	return failed("forget foreign places in the outbox", db.Commit())
}

// Events implements events.Store.
func (s *Store) Events(ctx context.Context, after events.Position, limit int) (events.Page, error) {
	var page events.Page
	err := failed("read the outbox", s.engine.Query(ctx, s.outbox.Page, func(r Row) error {
		at := events.Position{Major: uint64(r.Int(1)), Minor: uint64(r.Int(2))}
		if r.Int(0) != 0 {
			page.Settled, page.Origin = at, events.Origin{StoreID: r.Text(3), Epoch: uint64(r.Int(8))}
			return nil
		}
		page.Records = append(page.Records, scanOutbox(r, at))
		return nil
	}, int64(after.Major), int64(after.Minor), int64(limit)))
	if err == nil && page.Origin.Epoch == 0 {
		err = failed("read the outbox", errNoStoreRow)
	}
	if err != nil {
		return events.Page{}, err
	}
	page.End = page.Settled
	if len(page.Records) == limit {
		page.End = page.Records[limit-1].Position
	}
	return page, nil
}

// scanOutbox reads: 0 for an event, place, id, event_type, workspace_id,
// installation_id, audit_id, revision, target_id, after_version, event, at, source.
func scanOutbox(r Row, at events.Position) events.Record {
	return events.Record{
		Position: at, ID: r.Text(3), Type: r.Text(4), WorkspaceID: r.Text(5), InstallationID: r.Text(6), AuditID: r.Text(7),
		Revision: uint64(r.Int(8)), ResourceID: r.Text(9), ResourceVersion: r.Text(10), Event: r.Text(11), At: nanoTime(r, 12),
		PluginID: strings.TrimPrefix(r.Text(13), domain.PluginSource("")),
	}
}

// EventsSince implements events.Store. Events are in the order of time but for
// the drift of clocks, so a search by halves finds the first one.
func (s *Store) EventsSince(ctx context.Context, since time.Time) (events.Position, error) {
	page, err := s.Events(ctx, events.Position{}, 1)
	if err != nil {
		return events.Position{}, err
	}
	low, high := uint64(0), page.Settled.Major
	for low < high {
		middle := low + (high-low)/2
		page, err := s.Events(ctx, events.Position{Major: middle, Minor: math.MaxInt64}, 1)
		if err != nil {
			return events.Position{}, fmt.Errorf("search the outbox by time: %w", err)
		}
		if len(page.Records) == 0 || !page.Records[0].At.Before(since) {
			high = middle
		} else {
			low = page.Records[0].Position.Major
		}
	}
	return events.Position{Major: low}, nil
}

// Emit implements command.EmitStore: the event is durable once it returns.
func (s *Store) Emit(ctx context.Context, e command.Emitted, allow func() error) error {
	return s.run(ctx, lockName{name: emittedLock}, false, func(t *tx) error {
		if err := allow(); err != nil {
			return err
		}
		_, err := t.exec("publish an event", s.outbox.Emit, e.ID, e.InstallationID, e.Source, clean(e.Type), e.Event, e.At.UnixNano())
		return err
	})
}

// PruneEmitted removes what plugins have published before an instant, in steps, so
// that nothing waits long.
func (s *Store) PruneEmitted(ctx context.Context, olderThan time.Time) error {
	for {
		var n int64
		err := s.run(ctx, lockName{name: emittedLock}, false, func(t *tx) (err error) {
			n, err = t.exec("remove old events", `DELETE FROM emitted WHERE seq IN
				(SELECT seq FROM emitted WHERE at < $1 ORDER BY seq LIMIT $2)`, olderThan.UnixNano(), int64(pruneStep))
			return err
		})
		if err != nil || n < pruneStep {
			return err
		}
	}
}

// Committed implements events.Store.
func (s *Store) Committed() <-chan struct{} { return s.committed }

// wake tells whoever reads the outbox that there may be something new. It never
// waits.
func (s *Store) wake() {
	select {
	case s.committed <- struct{}{}:
	default:
	}
}
