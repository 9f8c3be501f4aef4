package fence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kandev/plugin-host/hostsvc/authority"
)

// maxRounds bounds the rounds of one pass. Each round is caused by a change
// made meanwhile; a pass that can't catch up returns an error and is run again.
const maxRounds = 8

// Pass runs passes for one leader's term.
type Pass struct {
	Intent  Intent
	History History
	Events  Events
	Ledger  Ledger
	Status  Status
	// Now is the clock; it is read once a round.
	Now func() time.Time
	// Random is the source of act names.
	Random io.Reader
}

// Result tells the caller what a pass left behind.
type Result struct {
	// Row is the row in force.
	Row authority.Row
	// Wake is when the row must be computed again although nothing changes:
	// its expiry. Zero for never.
	Wake time.Time
}

// Run makes one pass for key. It returns when the row is what the objects ask
// for and the status says so. Errors wrap ErrDeposed when the term is over;
// every other error is worth another try.
func (p *Pass) Run(ctx context.Context, term Term, key authority.Key) (Result, error) {
	for range maxRounds {
		row, settled, err := p.round(ctx, term, key)
		switch {
		case errors.Is(err, ErrOvertaken), errors.Is(err, ErrConflict):
			continue
		case err != nil:
			return Result{}, p.fail(ctx, key, fmt.Errorf("pass for installation %s in workspace %s: %w", key.InstallationID, key.WorkspaceID, err))
		case settled:
			result := Result{Row: row}
			if row.State == authority.StateActive {
				result.Wake = row.ExpiresAt
			}
			return result, nil
		}
	}
	return Result{}, fmt.Errorf("pass for installation %s in workspace %s: %w after %d rounds",
		key.InstallationID, key.WorkspaceID, ErrOvertaken, maxRounds)
}

// errStatus marks what only kept the status from being written.
var errStatus = errors.New("write the status")

// fail returns err, of a pass that can't go on, once the approval's status says
// so: until the pass succeeds, it would else speak of what was in force before.
func (p *Pass) fail(ctx context.Context, key authority.Key, err error) error {
	if errors.Is(err, ErrDeposed) || errors.Is(err, errStatus) || ctx.Err() != nil {
		return err
	}
	return errors.Join(err, p.Tell(ctx, key, err))
}

// Tell writes onto the approval why its pass can't go on, beside what is in
// force meanwhile.
func (p *Pass) Tell(ctx context.Context, key authority.Key, why error) error {
	row, err := p.Ledger.Row(ctx, key)
	if err != nil {
		return fmt.Errorf("read the row: %w", err)
	}
	reading, err := p.Intent.Read(ctx, key)
	if err != nil || reading.Object == nil {
		return err
	}
	report := authority.NewReport(row, reading.Intent, nil, p.now())
	report.Waiting = &authority.Waiting{Reason: authority.WaitingFence, Message: why.Error()}
	if errors.Is(why, ErrHistoryLost) {
		report.Waiting.Reason = authority.WaitingHistory
	}
	if err := p.Status.Apply(ctx, *reading.Object, report); err != nil && !errors.Is(err, ErrConflict) {
		return fmt.Errorf("%w: %w", errStatus, err)
	}
	return nil
}

// round is hold, compute, event, fence, or, when the row is up to date, seen
// and status. The row is read first: a change that comes between the reads can
// then only make the fence fail.
func (p *Pass) round(ctx context.Context, term Term, key authority.Key) (row authority.Row, settled bool, err error) {
	if row, err = p.Ledger.Row(ctx, key); err != nil {
		return row, false, fmt.Errorf("read the row: %w", err)
	}
	reading, err := p.read(ctx, key)
	if err != nil {
		return row, false, err
	}
	if row, err = p.hold(ctx, row, reading.Intent); err != nil {
		return row, false, err
	}
	if reading.Published > row.Revision {
		// A revision is published after its fence: only a row that was read before
		// another process fenced may be behind.
		newer, err := p.Ledger.Row(ctx, key)
		if err != nil {
			return row, false, fmt.Errorf("read the row again: %w", err)
		}
		if newer.Revision >= reading.Published {
			return row, false, ErrOvertaken
		}
		return row, false, fmt.Errorf("the status is at revision %d and the store at %d: %w", reading.Published, row.Revision, ErrHistoryLost)
	}
	now := p.now()
	suffix, err := authority.NewActSuffix(p.Random)
	if err != nil {
		return row, false, err
	}
	out := authority.Compute(row, reading.Intent, now, suffix)
	if a := reading.Intent.Approval; a != nil && !a.Checked && out.Next.Seen != row.Seen && !out.Next.Seen.Gone &&
		(row.Seen.Before(a.UID, a.Generation) || row.Seen.Gone) {
		// Once it is seen, by a revision or without, nothing tells any more when it
		// came.
		if err := p.Ledger.Distrust(ctx, a.UID, a.Generation); err != nil {
			return row, false, fmt.Errorf("record a version that nobody has checked: %w", err)
		}
	}
	if out.Changed {
		if row, err = p.advance(ctx, term, row, out, reading.InstallationName); err != nil || row.Revision == 0 {
			return row, false, err
		}
		// What was read says whether that is all. The status is bound to the
		// version that was read, so that a change meanwhile is a new round.
		if out = authority.Compute(row, reading.Intent, now, suffix); out.Changed {
			return row, false, nil
		}
	}
	if out.Next.Seen != row.Seen {
		if err := p.Ledger.MarkSeen(ctx, term, row, out.Next.Seen); err != nil {
			return row, false, fmt.Errorf("record the processed version: %w", err)
		}
		row.Seen = out.Next.Seen
	}
	if reading.Object != nil {
		report := authority.NewReport(row, reading.Intent, out.Review, now)
		if err := p.Status.Apply(ctx, *reading.Object, report); err != nil {
			return row, false, fmt.Errorf("%w: %w", errStatus, err)
		}
	}
	return row, true, nil
}

// now has the resolution of what events record, so that an instant is the same
// in the row and in its event.
func (p *Pass) now() time.Time { return p.Now().UTC().Truncate(time.Microsecond) }

func (p *Pass) read(ctx context.Context, key authority.Key) (Reading, error) {
	reading, err := p.Intent.Read(ctx, key)
	if err != nil {
		return Reading{}, fmt.Errorf("read the objects live: %w", err)
	}
	if reading.Intent.Approval != nil && reading.Object != nil {
		reading.Intent.WatchedFrom, err = p.History.WatchedFrom(ctx, *reading.Object, reading.Intent.Approval.Generation)
		if err != nil {
			return Reading{}, fmt.Errorf("wait for the watch to handle what was read live: %w", err)
		}
	}
	return reading, nil
}

// hold writes what was read and allows less than the row, before anything
// slower is tried. The row must not have got a revision meanwhile: what was
// read may be older than that one, and no event may be made of the two.
func (p *Pass) hold(ctx context.Context, row authority.Row, in authority.Intent) (authority.Row, error) {
	for _, hold := range authority.Narrowings(row, in) {
		held, err := p.Ledger.Hold(ctx, row, hold)
		if err != nil {
			return row, fmt.Errorf("hold a narrowing: %w", err)
		}
		if held.Revision != row.Revision {
			return row, fmt.Errorf("hold a narrowing: %w", ErrOvertaken)
		}
		row = held
	}
	return row, nil
}

// advance makes the event of the next revision exist and fences the row to it.
// It returns the fenced row, or the zero row where it obeyed an event that was
// there: what follows from that takes another round.
func (p *Pass) advance(ctx context.Context, term Term, row authority.Row, out authority.Outcome, installationName string) (authority.Row, error) {
	event, err := authority.NewEvent(row, out, installationName)
	if err != nil {
		return authority.Row{}, err
	}
	// An event is obeyed, whoever made it and whatever becomes of the store: none is
	// made of a row that lacks a hold of what was read, or that is another store's.
	if err := p.Ledger.Check(ctx, term, row); err != nil {
		return authority.Row{}, fmt.Errorf("check the row before the event of revision %d: %w", event.Row.Revision, err)
	}
	err = p.Events.Create(ctx, event)
	if errors.Is(err, ErrEventExists) {
		return authority.Row{}, p.obey(ctx, term, row)
	}
	if err != nil {
		// It may exist all the same. Left above the row, it would be the next
		// revision whenever that comes.
		if _, missing := p.Events.Get(ctx, row.Key, event.Row.Revision); missing == nil {
			return authority.Row{}, p.obey(ctx, term, row)
		}
		return authority.Row{}, fmt.Errorf("create the event of revision %d: %w", event.Row.Revision, err)
	}
	if err := p.Ledger.Fence(ctx, term, row, event.Row); err != nil {
		return authority.Row{}, fmt.Errorf("fence to revision %d: %w", event.Row.Revision, err)
	}
	return event.Row, nil
}

// obey fences the row to an event that somebody created and did not live to
// fence. Its content is the truth of its revision, whatever would be computed
// now; what is desired now and is narrower becomes a hold, so that power never
// comes back in between, and the next round records it.
func (p *Pass) obey(ctx context.Context, term Term, row authority.Row) error {
	revision := row.Revision + 1
	event, err := p.Events.Get(ctx, row.Key, revision)
	if err != nil {
		return fmt.Errorf("read the existing event of revision %d: %w", revision, err)
	}
	if err := event.Verify(); err != nil {
		return err
	}
	if event.Row.Key != row.Key || event.Row.Revision != revision || event.PreviousHash != row.EventHash {
		return fmt.Errorf("event %s does not follow revision %d of the row", event.Name(), row.Revision)
	}
	reading, err := p.read(ctx, row.Key)
	if err != nil {
		return err
	}
	to := event.Rebuilt()
	to.Hold = event.Remaining(row.Hold)
	// Compared with what the event has seen, not with what the row has seen
	// since: the event may allow what a processed version took away.
	for _, hold := range authority.Narrowings(to, reading.Intent) {
		merged := to.Hold.Merge(hold)
		to.Hold = &merged
	}
	to.Seen = seenAfter(row.Seen, to.Seen)
	if err := p.Ledger.Fence(ctx, term, row, to); err != nil {
		return fmt.Errorf("fence to the existing revision %d: %w", revision, err)
	}
	return nil
}

// seenAfter returns the later mark of a row and of the event of its next
// revision. Within one revision the mark passes to another object only from
// one that is gone, so an event whose object is gone is older than a row that
// has seen another one.
func seenAfter(row, event authority.Seen) authority.Seen {
	if row.UID != "" && event.Gone && event.UID != row.UID {
		return row
	}
	return row.Later(event)
}
