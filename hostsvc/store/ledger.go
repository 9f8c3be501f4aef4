package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/fence"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// EventContextChanged is the outbox event of every change of authority.
const EventContextChanged = "capability-context-changed"

// Fence implements fence.Ledger. The stored sum is that of the vector.
func (s *Store) Fence(ctx context.Context, term fence.Term, from, to authority.Row) error {
	if to.Key != from.Key || to.Revision != from.Revision+1 {
		return fmt.Errorf("fence from revision %d to %d: %w", from.Revision, to.Revision, ErrRevisionSkipped)
	}
	return s.run(ctx, workspaceLock(from.Key.WorkspaceID), true, func(t *tx) error {
		current, err := t.overtake(term, from)
		if err != nil {
			return err
		}
		if err := t.checkTombstone(to); err != nil {
			return err
		}
		next := to
		next.Seen = current.Seen.Later(to.Seen)
		return t.fence(next, from.ReadAt)
	})
}

// FenceStart takes a row that is behind its newest event straight to it, for
// the rebuild at the start of a term: nothing is effective until a fence that
// was computed from live objects lifts the mark. A hold that is set stays,
// unless it is the very one that the event applied, and so does a later mark of
// what was seen. It does nothing when the row is not behind.
func (s *Store) FenceStart(ctx context.Context, term fence.Term, event authority.Event) error {
	row := event.Rebuilt()
	return s.run(ctx, workspaceLock(row.Key.WorkspaceID), true, func(t *tx) error {
		if err := t.checkTerm(term); err != nil {
			return err
		}
		current, err := t.record(row.Key)
		if err != nil || current.Revision >= row.Revision {
			return err
		}
		next := row
		next.Starting = true
		next.Hold = event.Remaining(current.Hold)
		next.Seen = current.Seen.Later(row.Seen)
		return t.fence(next, time.Time{}) // nothing was read for it
	})
}

// MarkSeen implements fence.Ledger.
func (s *Store) MarkSeen(ctx context.Context, term fence.Term, from authority.Row, seen authority.Seen) error {
	return s.run(ctx, workspaceLock(from.Key.WorkspaceID), true, func(t *tx) error {
		current, err := t.overtake(term, from)
		if err != nil {
			return err
		}
		next := current
		next.Seen = current.Seen.Later(seen)
		if next.Seen == current.Seen {
			return nil
		}
		return t.putRecord(next, 0)
	})
}

// Hold implements fence.Ledger.
func (s *Store) Hold(ctx context.Context, from authority.Row, hold authority.Hold) (authority.Row, error) {
	var held authority.Row
	err := s.run(ctx, workspaceLock(from.Key.WorkspaceID), true, func(t *tx) error {
		row, err := t.record(from.Key)
		if err != nil {
			return err
		}
		if processed(row.Seen, hold) {
			held = row
			return nil
		}
		// What was left to hold then is not what is left now: it would cost a grant
		// that came since, or be older than another object that was processed since.
		if row.Revision != from.Revision || row.Seen != from.Seen {
			return fmt.Errorf("the row is at revision %d, and has processed %+v: %w", row.Revision, row.Seen, fence.ErrOvertaken)
		}
		held, err = t.hold(row, hold)
		return err
	})
	if err != nil {
		// The transaction may still be writing held.
		return authority.Row{}, err
	}
	held.ReadAt = from.ReadAt // what it was computed from is no younger
	return held, nil
}

// hold merges a hold into the row as it was read, with its entry.
func (t *tx) hold(row authority.Row, hold authority.Hold) (authority.Row, error) {
	merged := row.Hold.Merge(hold)
	if merged.Equal(row.Hold) {
		return row, nil
	}
	row.Hold, row.Sum = &merged, row.Vector.Sum() // as stored
	if err := t.putRecord(row, 1); err != nil {
		return row, err
	}
	entry, err := t.change(journal.KindHold, t.store.newAuditID(), row, t.store.now(), heldData{
		State: hold.State.String(), Granted: hold.Granted.IDs(), ExpiresAt: authority.Timestamp(hold.ExpiresAt),
		Cause: string(hold.Cause), Actor: hold.Actor.Name, Assurance: string(hold.Actor.Assurance),
		UID: hold.UID, Generation: hold.Generation,
	})
	if err != nil {
		return row, err
	}
	return row, t.Append(entry)
}

// processed tells whether the row has taken in the version that a hold speaks
// of. A deletion speaks of the version after the last one.
func processed(seen authority.Seen, hold authority.Hold) bool {
	if hold.UID == "" || hold.UID != seen.UID {
		return false
	}
	return seen.Generation >= hold.Generation ||
		(seen.Gone && hold.Cause == authority.CauseApprovalDeleted && seen.Generation+1 >= hold.Generation)
}

// heldData is what the audit says about a hold: what is still allowed, and on
// whose account.
type heldData struct {
	State      string   `json:"state"`
	Granted    []string `json:"granted"`
	ExpiresAt  string   `json:"expires_at,omitempty"`
	Cause      string   `json:"cause"`
	Actor      string   `json:"actor,omitempty"`
	Assurance  string   `json:"assurance"`
	UID        string   `json:"approval_uid,omitempty"`
	Generation int64    `json:"approval_generation,omitempty"`
}

// fencedData is what the audit says about a revision besides its number.
type fencedData struct {
	State    string   `json:"state"`
	Granted  []string `json:"granted"`
	Gates    []string `json:"gates,omitempty"`
	Starting bool     `json:"starting,omitempty"`
	Cause    string   `json:"cause"`
	Act      string   `json:"act"`
}

const selectTerm = `SELECT store_epoch, leader_epoch, store_id, beat FROM store`

func scanTerm(r Row) (fence.Term, progress) {
	term := fence.Term{StoreEpoch: uint64(r.Int(0)), LeaderEpoch: uint64(r.Int(1))}
	return term, progress{storeID: r.Text(2), epoch: term.StoreEpoch, beat: uint64(r.Int(3))}
}

// Check implements fence.Ledger.
func (s *Store) Check(ctx context.Context, term fence.Term, from authority.Row) error {
	var current fence.Term
	var now progress
	row := authority.Row{Key: from.Key}
	seen := s.progress.Load()
	err := s.read(ctx, "check an authority row", func(c Conn) error {
		err := c.Query(selectTerm, func(r Row) error { current, now = scanTerm(r); return nil })
		if err != nil {
			return err
		}
		return c.Query(selectRecord, func(r Row) error { return scanRecord(r, &row) }, from.Key.InstallationID, from.Key.WorkspaceID)
	})
	if err != nil {
		return err
	}
	if err := inForce(term, current, now, seen); err != nil {
		return err
	}
	return stillAs(row, from)
}

// stillAs refuses a row that isn't the one that from was read as any more.
func stillAs(row, from authority.Row) error {
	if row.Revision != from.Revision || !row.Hold.Equal(from.Hold) {
		return fmt.Errorf("the row is at revision %d: %w", row.Revision, fence.ErrOvertaken)
	}
	return nil
}

// checkTerm refuses a process that no longer leads, and one that has seen the
// store further on: the rows of an older copy lack what was held since, and its
// term is the same. The lock makes a new leader wait for fences that have passed
// the check, and them for it.
func (t *tx) checkTerm(term fence.Term) error {
	if err := t.lockShared(leaderLock); err != nil {
		return err
	}
	var current fence.Term
	var now progress
	seen := t.store.progress.Load()
	err := t.query("read the leader's epoch", selectTerm, func(r Row) error {
		current, now = scanTerm(r)
		return nil
	})
	if err != nil {
		return err
	}
	if err := inForce(term, current, now, seen); err != nil {
		return err
	}
	t.store.sees(now)
	t.epochs = current
	return nil
}

// inForce compares a term with the one in force, of a store that is where now says
// and had been seen at seen before.
func inForce(term, current fence.Term, now progress, seen *progress) error {
	if now.behind(seen) {
		return fmt.Errorf("the store is at beat %d of epoch %d, and was at %d of %d: %w",
			now.beat, now.epoch, seen.beat, seen.epoch, fence.ErrOlderStore)
	}
	if current != term {
		return fmt.Errorf("term %d of store epoch %d, now %d of %d: %w",
			term.LeaderEpoch, term.StoreEpoch, current.LeaderEpoch, current.StoreEpoch, fence.ErrDeposed)
	}
	return nil
}

// overtake returns the stored row if it still is the one that from was read
// as.
func (t *tx) overtake(term fence.Term, from authority.Row) (authority.Row, error) {
	if err := t.checkTerm(term); err != nil {
		return authority.Row{}, err
	}
	current, err := t.record(from.Key)
	if err != nil {
		return authority.Row{}, err
	}
	if err := stillAs(current, from); err != nil {
		return authority.Row{}, err
	}
	return current, nil
}

// checkTombstone refuses what would give an uninstalled plugin authority. An
// event of before, obeyed under a mark or a hold that revokes, gives none.
func (t *tx) checkTombstone(to authority.Row) error {
	if to.State != authority.StateActive || to.Starting || (to.Hold != nil && to.Hold.State == authority.StateRevoked) {
		return nil
	}
	if err := t.lockShared(installationLock(to.Key.InstallationID).name); err != nil {
		return err
	}
	dead, err := tombstoned(func(row func(Row) error, args ...any) error {
		return t.query("look for a tombstone", selectTombstone, row, args...)
	}, to.Key.InstallationID)
	if err != nil {
		return err
	}
	if dead {
		return fmt.Errorf("fence installation %s to Active: %w", to.Key.InstallationID, ErrTombstoned)
	}
	return nil
}

// fence writes a row that was computed from what was read at readAt or later.
func (t *tx) fence(row authority.Row, readAt time.Time) error {
	if err := t.lockShared(leaseLock); err != nil {
		return err
	}
	if err := t.putRecord(row, 1); err != nil {
		return err
	}
	read := int64(0) // an unknown time is too long ago
	if !readAt.IsZero() {
		read = readAt.UnixMicro()
	}
	err := t.later(nil, "record the reading of an authority row", `UPDATE authority
		SET fenced_beat = (SELECT beat FROM store), read_at = $3 WHERE installation_id = $1 AND workspace_id = $2`,
		row.Key.InstallationID, row.Key.WorkspaceID, read)
	if err != nil {
		return err
	}
	entry, err := t.change(journal.KindFence, row.AuditID, row, t.store.now(), fencedData{
		State: row.State.String(), Granted: row.Granted.IDs(), Gates: row.Gates.Names(), Starting: row.Starting,
		Cause: string(row.Cause), Act: row.Act,
	})
	if err != nil {
		return err
	}
	return t.Append(entry)
}

// change is the entry of a change of authority, with its outbox event: a hint
// like every event (I15).
func (t *tx) change(kind journal.Kind, auditID string, row authority.Row, at time.Time, data any) (journal.Entry, error) {
	event, err := json.Marshal(struct {
		SchemaVersion      int    `json:"event_schema_version"`
		AuditID            string `json:"audit_id"`
		InstallationID     string `json:"installation_id"`
		WorkspaceID        string `json:"workspace_id"`
		CapabilityRevision uint64 `json:"capability_revision"`
		Data               any    `json:"data"`
	}{1, auditID, row.Key.InstallationID, row.Key.WorkspaceID, row.Revision, data})
	if err != nil {
		return journal.Entry{}, fmt.Errorf("encode the event of a change of authority: %w", err)
	}
	return journal.Entry{
		WorkspaceID: row.Key.WorkspaceID, Kind: kind, AuditID: auditID, InstallationID: row.Key.InstallationID,
		Revision: row.Revision, Result: contract.StateApplied, EventType: EventContextChanged, Event: string(event),
		At: at,
	}, nil
}
