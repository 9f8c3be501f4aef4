package store

import (
	"context"
	"fmt"
	"time"

	"github.com/kandev/plugin-host/hostsvc/fence"
)

// Round is the start of one round of freshness, as the store saw it.
type Round struct {
	StoreID    string
	StoreEpoch uint64
	// Complete: the epoch's rows have been compared with the history.
	Complete bool
	// Begun is the store's clock, and LeasedUntil the lease by the same clock,
	// both to the microsecond; the zero time is no lease.
	Begun       time.Time
	LeasedUntil time.Time
	// Beat is how often the lease has been renewed. It only grows, so that a
	// store with a lower one than was published is an older copy.
	Beat uint64
	// Older: this process has seen the store further on, so it is an older copy.
	Older bool
}

// vouch is what the store says about its rows: nothing is authorised by them
// unless its epoch is complete and its lease runs. A clock that stands before
// the lease's beginning was set back, and shows nothing about its end.
type vouch struct {
	complete    bool
	from, until time.Time
	// life is from the one to the other, whatever shortens until.
	life time.Duration
	// beat is the one at which the round began that the lease is of.
	beat int64
}

func (v vouch) at(now time.Time) bool {
	return v.complete && !now.Before(v.from) && now.Before(v.until)
}

// reading is what a row says of its fence: the beat then, and when the row had
// been read for it.
type reading struct {
	beat int64
	at   time.Time
}

// row returns until when the vouch extends to a row. It is the lease's end once a
// round has compared the row, which one that began at a later beat than the row
// was fenced at has: a renewal ended between the two, and renewals and fences wait
// for each other. Until then, the row is a comparison itself, with what was read
// for it, and worth as much as a round that began when it was read. ok is false
// where it is worth nothing any more.
func (v vouch) row(r reading, now time.Time) (until time.Time, ok bool) {
	if r.beat < v.beat {
		return v.until, true
	}
	until = r.at.Add(v.life)
	return until, !now.Before(r.at) && now.Before(until)
}

// vouchWidth is how many columns a vouch has, readingWidth how many a reading.
const (
	vouchWidth   = 4
	readingWidth = 2
)

// vouchColumns are a vouch relative to the database's clock, or to 1970 where
// the process's clock is the store's.
func vouchColumns(clock string) string {
	if clock == "" {
		clock = "0"
	}
	return `s.store_epoch - s.complete_epoch, s.lease_from - ` + clock + `, s.lease_until - ` + clock + `, s.lease_beat`
}

// readingColumns are a row's reading, relative to the same as a vouch.
func readingColumns(clock string) string {
	if clock == "" {
		clock = "0"
	}
	return `a.fenced_beat, a.read_at - ` + clock
}

// clock is the process's time since the store was opened, on top of the wall
// clock of then: where Options.Now is monotonic, no wall clock moves it.
func (s *Store) clock() time.Time { return s.opened.Add(s.now().Sub(s.opened)) }

// asked is what the vouch of a statement that is about to be sent counts from.
// The database reads its clock after that, so counted from before, a lease ends
// early, never late.
func (s *Store) asked() time.Time {
	if s.engine.Clock() == "" {
		return time.UnixMicro(0)
	}
	return s.clock()
}

func scanVouch(r Row, at int, asked time.Time) vouch {
	from, until := time.Duration(r.Int(at+1))*time.Microsecond, time.Duration(r.Int(at+2))*time.Microsecond
	return vouch{
		complete: r.Int(at) == 0, from: asked.Add(from), until: asked.Add(until), life: until - from, beat: r.Int(at + 3),
	}
}

func scanReading(r Row, at int, asked time.Time) reading {
	return reading{beat: r.Int(at), at: asked.Add(time.Duration(r.Int(at+1)) * time.Microsecond)}
}

// leaseLock orders the renewals of all replicas among themselves and with fences:
// a round that begins at a later beat than a row was fenced at sees the row.
// Nobody else takes it, and a row that is being renewed is read by everybody
// meanwhile.
const leaseLock = "lease"

// BeginRound returns what a round of freshness starts from. Everything that
// the round reads must be read after it has returned.
func (s *Store) BeginRound(ctx context.Context) (Round, error) {
	clock := s.engine.Clock()
	if clock == "" {
		clock = "0"
	}
	var round Round
	var cluster string
	seen := s.progress.Load()
	err := s.engine.Query(ctx, `SELECT store_id, store_epoch, complete_epoch, lease_until, beat, cluster_uid, `+clock+` FROM store`,
		func(r Row) error {
			round = Round{
				StoreID: r.Text(0), StoreEpoch: uint64(r.Int(1)), Complete: r.Int(1) == r.Int(2), Beat: uint64(r.Int(4)),
			}
			cluster = r.Text(5)
			if until := r.Int(3); until != 0 {
				round.LeasedUntil = time.UnixMicro(until).UTC()
			}
			if s.engine.Clock() == "" {
				round.Begun = s.clock().UTC().Truncate(time.Microsecond)
			} else {
				round.Begun = time.UnixMicro(r.Int(6)).UTC()
			}
			return nil
		})
	if err == nil && round.StoreEpoch == 0 {
		err = errNoStoreRow
	}
	if err != nil {
		return Round{}, failed("begin a round", err)
	}
	now := progress{storeID: round.StoreID, epoch: round.StoreEpoch, beat: round.Beat}
	round.Older = now.behind(seen)
	s.sees(now)
	return round, s.ours(cluster)
}

// RenewLease lets commands commit until life after the round began, by the
// store's clock, and returns how often the lease has been renewed. It is
// durable on return, needs no leader and never shortens a lease. The error is
// fence.ErrDeposed when the round began in another store or another epoch of it,
// fence.ErrOlderStore when it began at a later beat, and ErrClockSetBack when the store's clock stands before the round's beginning.
func (s *Store) RenewLease(ctx context.Context, round Round, life time.Duration) (beat uint64, err error) {
	clock, now := s.engine.Clock(), int64(0)
	if clock == "" {
		clock, now = "0", s.clock().UnixMicro()
	}
	// A lease in force stays unless this one ends later. One that begins in the
	// future is of a clock that was set back since.
	const keep = `lease_until > $3 AND lease_from <= `
	statement := `UPDATE store SET beat = beat + 1,
		lease_from = CASE WHEN ` + keep + clock + ` + $4 THEN lease_from ELSE $2 END,
		lease_until = CASE WHEN ` + keep + clock + ` + $4 THEN lease_until ELSE $3 END,
		lease_beat = CASE WHEN ` + keep + clock + ` + $4 THEN lease_beat ELSE $5 END
		WHERE store_epoch = $1 AND $2 <= ` + clock + ` + $4 AND beat >= $7 AND store_id = $6`
	from := round.Begun.UnixMicro()
	// What this process has seen since the round began counts too.
	least := round.Beat
	if seen := s.progress.Load(); seen != nil && seen.storeID == round.StoreID && seen.epoch == round.StoreEpoch {
		least = max(least, seen.beat)
	}
	var renewed progress
	err = s.run(ctx, lockName{name: leaseLock}, true, func(t *tx) error {
		n, err := t.exec("renew the lease", statement, int64(round.StoreEpoch), from, from+life.Microseconds(), now, int64(round.Beat), round.StoreID, int64(least))
		if err != nil {
			return err
		}
		var cluster string
		err = t.query("read the beat", `SELECT beat, store_epoch, cluster_uid, store_id FROM store`, func(r Row) error {
			renewed = progress{storeID: r.Text(3), epoch: uint64(r.Int(1)), beat: uint64(r.Int(0))}
			cluster = r.Text(2)
			return nil
		})
		switch {
		case err != nil:
			return err
		case renewed.storeID != round.StoreID:
			return fmt.Errorf("renew the lease of store %s, now %s: %w", round.StoreID, renewed.storeID, fence.ErrDeposed)
		case renewed.epoch != round.StoreEpoch:
			return fmt.Errorf("renew the lease of store epoch %d, now %d: %w", round.StoreEpoch, renewed.epoch, fence.ErrDeposed)
		case renewed.beat < least:
			return fmt.Errorf("renew the lease at beat %d, now %d: %w", least, renewed.beat, fence.ErrOlderStore)
		case n == 0:
			return fmt.Errorf("renew the lease of a round that began at %s: %w", round.Begun, ErrClockSetBack)
		}
		return s.ours(cluster)
	})
	if err != nil {
		return 0, err
	}
	s.sees(renewed)
	return renewed.beat, nil
}
