package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// decisionColumns are what authority.Decide reads, with nothing to parse
// unless a hold is set; recordColumns are the rest of the row.
const (
	decisionColumns = `a.revision, a.state, a.granted, a.declared, a.required, a.allowed, a.expires_at, a.gates,
		a.hold, a.starting, a.manifest_digest, a.vector_sum, a.seen_uid, a.seen_generation, a.seen_gone, a.seen_revoked,
		a.store_epoch`
	decisionWidth = 17
	recordColumns = `a.act, a.vector, a.actor, a.assurance, a.cause, a.reason, a.approved_by, a.issued_at,
		a.updated_at, a.audit_id, a.event_hash, a.unproven, a.approved_via, a.confirmed_by, a.installation_id, a.workspace_id,
		s.store_epoch, a.seen_asked, a.seen_until, a.seen_asked_of`

	// selectDecisionBefore passes over a row that no revision was ever in force of:
	// before the lock, its workspace takes no other time than one that isn't there
	// (I14).
	selectDecisionBefore = `SELECT s.store_epoch, ` + decisionColumns + `
		FROM authority a CROSS JOIN store s WHERE a.installation_id = $1 AND a.workspace_id = $2 AND a.revision > 0`
	selectRecords = `SELECT ` + decisionColumns + `, ` + recordColumns + `
		FROM authority a CROSS JOIN store s `
	whereKey     = `WHERE a.installation_id = $1 AND a.workspace_id = $2`
	selectRecord = selectRecords + whereKey
	recordWidth  = decisionWidth + 20
)

// selectTimedRecord returns the statement that reads a row, NULL where there is
// none, and the store's clock after it.
func selectTimedRecord(clock string) string {
	if clock == "" {
		clock = "0"
	}
	return `SELECT ` + decisionColumns + `, ` + recordColumns + `, ` + clock + `
		FROM store s LEFT JOIN authority a ON a.installation_id = $1 AND a.workspace_id = $2`
}

// selectDecision returns the statement that reads a row for a decision. It needs
// the epoch and the vouch of its transaction.
func selectDecision(clock string) string {
	return `SELECT ` + decisionColumns + `, ` + readingColumns(clock) + ` FROM authority a ` + whereKey
}

// selectDecisions returns the statement that reads the rows of an installation
// for a decision, like selectDecision.
func selectDecisions(clock string) string {
	return `SELECT ` + decisionColumns + `, ` + readingColumns(clock) + `, a.workspace_id FROM authority a
		WHERE a.installation_id = $1 ORDER BY a.workspace_id`
}

// selectVouchedDecision returns the statement that reads the store epoch, the
// store's vouch and a row, all of one moment.
func selectVouchedDecision(clock string) string {
	return `SELECT s.store_epoch, ` + vouchColumns(clock) + `, ` + decisionColumns + `, ` + readingColumns(clock) + `
		FROM store s LEFT JOIN authority a ON a.installation_id = $1 AND a.workspace_id = $2`
}

func holdText(h *authority.Hold) (any, error) {
	if h == nil {
		return nil, nil //nolint:nilnil // NULL is the stored form of no hold
	}
	text, err := json.Marshal(h) //nolint:musttag // stored under its fields' names
	if err != nil {
		return nil, fmt.Errorf("encode a hold: %w", err)
	}
	return string(text), nil
}

// scanDecision scans a row as of a store epoch. What was written in an earlier
// one has not been computed from live objects since.
func scanDecision(r Row, at int, epoch uint64, row *authority.Row) error {
	row.Revision = uint64(r.Int(at))
	row.State = authority.State(r.Int(at + 1))
	row.Granted = contract.CapabilitySet(r.Int(at + 2))
	row.Declared = contract.CapabilitySet(r.Int(at + 3))
	row.Required = contract.CapabilitySet(r.Int(at + 4))
	row.Allowed = contract.CapabilitySet(r.Int(at + 5))
	row.ExpiresAt = microTime(r, at+6)
	row.Gates = authority.Gates(r.Int(at + 7))
	if !r.Null(at + 8) {
		row.Hold = new(authority.Hold)
		if err := json.Unmarshal([]byte(r.Text(at+8)), row.Hold); err != nil { //nolint:musttag // stored under its fields' names
			return fmt.Errorf("decode the hold: %w", err)
		}
	}
	row.Starting = r.Int(at+9) != 0 || uint64(r.Int(at+16)) < epoch
	row.Vector.ManifestDigest = r.Text(at + 10)
	if n := copy(row.Sum[:], r.Bytes(at+11)); n != len(row.Sum) {
		return fmt.Errorf("the vector's sum has %d bytes", n)
	}
	// No decision needs what it asked for.
	row.Seen = authority.Seen{
		UID: r.Text(at + 12), Generation: r.Int(at + 13), Gone: r.Int(at+14) != 0, Revoked: r.Int(at+15) != 0,
	}.Unrecorded()
	return nil
}

func scanRecord(r Row, row *authority.Row) error {
	const at = decisionWidth
	if err := scanDecision(r, 0, uint64(r.Int(at+16)), row); err != nil {
		return err
	}
	row.Act = r.Text(at)
	if err := json.Unmarshal([]byte(r.Text(at+1)), &row.Vector); err != nil { //nolint:musttag // stored under its fields' names
		return fmt.Errorf("decode the vector: %w", err)
	}
	row.Actor = authority.Actor{Name: r.Text(at + 2), Assurance: authority.Assurance(r.Text(at + 3))}
	row.Cause = authority.Cause(r.Text(at + 4))
	row.Reason = r.Text(at + 5)
	row.ApprovedBy = r.Text(at + 6)
	row.IssuedAt = microTime(r, at+7)
	row.UpdatedAt = microTime(r, at+8)
	row.AuditID = r.Text(at + 9)
	row.EventHash = r.Text(at + 10)
	row.Unproven = r.Int(at+11) != 0
	row.ApprovedVia, row.ConfirmedBy = r.Text(at+12), r.Text(at+13)
	row.Key = authority.Key{InstallationID: r.Text(at + 14), WorkspaceID: r.Text(at + 15)}
	if r.Text(at+19) == askedOf(row.Seen) {
		row.Seen.Asked, row.Seen.Until = contract.CapabilitySet(r.Int(at+17)), microTime(r, at+18)
	}
	return nil
}

// askedOf names the version that the stored seen_asked and seen_until are of. A
// Host of a release before them that runs beside this one writes seen without
// them.
func askedOf(seen authority.Seen) string {
	if seen.UID == "" {
		return ""
	}
	return seen.UID + "/" + strconv.FormatInt(seen.Generation, 10)
}

// AuthorityRow implements command.Store. The row holds what a decision needs,
// not the record of who made it.
func (s *Store) AuthorityRow(ctx context.Context, key authority.Key) (*authority.Row, error) {
	if s.lost.Load() {
		return nil, ErrClosed
	}
	row, moves := s.known.get(key)
	if row != nil {
		return row, nil
	}
	err := s.engine.Query(ctx, selectDecisionBefore, func(r Row) error {
		row = &authority.Row{Key: key}
		return scanDecision(r, 1, uint64(r.Int(0)), row)
	}, key.InstallationID, key.WorkspaceID)
	if err == nil && row != nil && s.engine.Sole() {
		s.known.put(*row, moves)
	}
	return row, failed("read an authority row", err)
}

// AuthorityRow implements command.Tx.
func (t *tx) AuthorityRow(key authority.Key) (*authority.Row, error) {
	if key.WorkspaceID != t.workspace {
		return nil, fmt.Errorf("read the authority row of workspace %s: %w", key.WorkspaceID, ErrWorkspaceBound)
	}
	var row *authority.Row
	asked := t.store.asked()
	err := t.query("read an authority row", t.store.decision, func(r Row) error {
		row = &authority.Row{Key: key}
		until, vouched := t.vouch.row(scanReading(r, decisionWidth, asked), t.store.clock())
		if row.Uncompared = !vouched; vouched && until.Before(t.vouch.until) {
			t.vouch.until = until // so that it must not end before the commit
		}
		return scanDecision(r, 0, t.epochs.StoreEpoch, row)
	}, key.InstallationID, key.WorkspaceID)
	return row, err
}

// Row implements fence.Ledger.
func (s *Store) Row(ctx context.Context, key authority.Key) (authority.Row, error) {
	row := authority.Row{Key: key}
	at := s.clock().UTC().Truncate(time.Microsecond)
	err := s.read(ctx, "read an authority row", func(c Conn) error {
		return c.Query(s.timedRecord, func(r Row) error {
			if row.ReadAt = at; s.engine.Clock() != "" {
				row.ReadAt = time.UnixMicro(r.Int(recordWidth)).UTC()
			}
			if r.Null(0) {
				return nil
			}
			return scanRecord(r, &row)
		}, key.InstallationID, key.WorkspaceID)
	})
	return row, err
}

// Rows lists every authority row, by installation and workspace, for the
// ledger sweep.
func (s *Store) Rows(ctx context.Context) ([]authority.Row, error) {
	return s.rows(ctx, selectRecords+`ORDER BY a.installation_id, a.workspace_id`)
}

// RowsOfInstallation lists the authority rows of one installation, by
// workspace.
func (s *Store) RowsOfInstallation(ctx context.Context, installationID string) ([]authority.Row, error) {
	return s.rows(ctx, selectRecords+`WHERE a.installation_id = $1 ORDER BY a.workspace_id`, installationID)
}

func (s *Store) rows(ctx context.Context, statement string, args ...any) ([]authority.Row, error) {
	var rows []authority.Row
	err := s.read(ctx, "list the authority rows", func(c Conn) error {
		return c.Query(statement, func(r Row) error {
			var row authority.Row
			if err := scanRecord(r, &row); err != nil {
				return err
			}
			rows = append(rows, row)
			return nil
		}, args...)
	})
	return rows, err
}

// record reads the whole row under the lock; the zero row is one that does not
// exist.
func (t *tx) record(key authority.Key) (row authority.Row, err error) {
	row.Key = key
	err = t.query("read an authority row", selectRecord, func(r Row) error {
		return scanRecord(r, &row)
	}, key.InstallationID, key.WorkspaceID)
	return row, err
}

var (
	authorityNames = []string{
		"installation_id", "workspace_id", "revision", "act", "state", "granted", "declared", "required", "allowed",
		"expires_at", "gates", "hold", "starting", "manifest_digest", "vector_sum", "vector", "seen_uid",
		"seen_generation", "seen_gone", "seen_revoked", "seen_asked", "seen_until", "seen_asked_of", "actor", "assurance", "cause", "reason", "approved_by",
		"approved_via", "confirmed_by", "issued_at", "updated_at", "audit_id", "event_hash", "unproven", "store_epoch",
		"leader_epoch", "changes",
	}
	upsertAuthority = upsert("authority", authorityNames, 2, "changes", "authority.changes + excluded.changes")
)

// putRecord writes the whole row, with the epochs of the write. changes counts
// toward the installation's context revision.
func (t *tx) putRecord(row authority.Row, changes int64) error {
	hold, err := holdText(row.Hold)
	if err != nil {
		return err
	}
	vector, err := json.Marshal(row.Vector) //nolint:musttag // stored under its fields' names
	if err != nil {
		return fmt.Errorf("encode the vector: %w", err)
	}
	sum := row.Vector.Sum()
	t.moved = append(t.moved, row.Key)
	return t.later(nil, "write an authority row", upsertAuthority,
		row.Key.InstallationID, row.Key.WorkspaceID, int64(row.Revision), row.Act, int64(row.State),
		int64(row.Granted), int64(row.Declared), int64(row.Required), int64(row.Allowed), micros(row.ExpiresAt),
		int64(row.Gates), hold, flag(row.Starting), row.Vector.ManifestDigest, slices.Clone(sum[:]), string(vector),
		row.Seen.UID, row.Seen.Generation, flag(row.Seen.Gone), flag(row.Seen.Revoked),
		int64(row.Seen.Asked), micros(row.Seen.Until), askedOf(row.Seen),
		clean(row.Actor.Name), string(row.Actor.Assurance), string(row.Cause), clean(row.Reason), clean(row.ApprovedBy),
		clean(row.ApprovedVia), clean(row.ConfirmedBy),
		micros(row.IssuedAt), micros(row.UpdatedAt), row.AuditID, row.EventHash, flag(row.Unproven),
		int64(t.epochs.StoreEpoch), int64(t.epochs.LeaderEpoch), changes)
}
