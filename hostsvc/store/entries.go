package store

import (
	"context"
	"fmt"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

var insertEntryRow = insert("journal", []string{
	"workspace_id", "version", "kind", "audit_id", "installation_id", "revision", "method", "capability", "request_id",
	"idempotency_key", "command_digest", "result", "target_id", "before_version", "after_version", "event_type",
	"event", "at", "previous_hash", "hash", "implicit",
})

const entryColumns = `version, kind, audit_id, installation_id, revision, method, capability, request_id,
	COALESCE(idempotency_key, ''), command_digest, result, target_id, before_version, after_version, event_type, event,
	at, previous_hash, hash, implicit`

func (t *tx) insertEntry(e journal.Entry) error {
	return t.later(nil, "append to the journal", insertEntryRow, e.WorkspaceID, int64(e.Version), string(e.Kind), e.AuditID,
		e.InstallationID, int64(e.Revision), e.Method, e.Capability, e.RequestID, nullable(e.IdempotencyKey),
		e.CommandDigest[:], string(e.Result), e.TargetID, e.Before, e.After, e.EventType, e.Event, e.At.UnixNano(),
		e.PreviousHash, e.Hash, e.Implicit)
}

func scanEntry(r Row, workspaceID string) (journal.Entry, error) {
	e := journal.Entry{
		WorkspaceID: workspaceID, Version: domain.Version(r.Int(0)), Kind: journal.Kind(r.Text(1)), AuditID: r.Text(2),
		InstallationID: r.Text(3), Revision: uint64(r.Int(4)), Method: r.Text(5), Capability: r.Text(6),
		RequestID: r.Text(7), IdempotencyKey: r.Text(8), Result: contract.State(r.Text(10)), TargetID: r.Text(11),
		Before: r.Text(12), After: r.Text(13), EventType: r.Text(14), Event: r.Text(15), At: nanoTime(r, 16),
		PreviousHash: r.Text(17), Hash: r.Text(18), Implicit: r.Text(19),
	}
	if n := copy(e.CommandDigest[:], r.Bytes(9)); n != len(e.CommandDigest) {
		return journal.Entry{}, fmt.Errorf("the command digest of entry %d has %d bytes", e.Version, n)
	}
	return e, nil
}

// Recorded implements command.Tx.
func (t *tx) Recorded(installationID, idempotencyKey string) (entry journal.Entry, found bool, err error) {
	err = t.query("look up an idempotency key", `SELECT `+entryColumns+` FROM journal
		WHERE installation_id = $1 AND workspace_id = $2 AND idempotency_key = $3`,
		func(r Row) (err error) {
			entry, err = scanEntry(r, t.workspace)
			found = true
			return err
		}, installationID, t.workspace, idempotencyKey)
	return entry, found, err
}

// Entries implements journal.History.
func (s *Store) Entries(ctx context.Context, workspaceID string, after domain.Version, limit int) ([]journal.Entry, error) {
	var entries []journal.Entry
	err := s.read(ctx, "list journal entries", func(c Conn) error {
		return c.Query(`SELECT `+entryColumns+` FROM journal
			WHERE workspace_id = $1 AND version > $2 ORDER BY version LIMIT $3`,
			func(r Row) error {
				entry, err := scanEntry(r, workspaceID)
				entries = append(entries, entry)
				return err
			}, workspaceID, int64(after), int64(limit))
	})
	return entries, err
}

// Head implements journal.History: the end of a workspace's chain, zero for an
// unknown workspace.
func (s *Store) Head(ctx context.Context, workspaceID string) (version domain.Version, hash string, err error) {
	err = s.read(ctx, "read the head of a workspace", func(c Conn) error {
		return c.Query(`SELECT version, hash FROM heads WHERE workspace_id = $1`, func(r Row) error {
			version, hash = domain.Version(r.Int(0)), r.Text(1)
			return nil
		}, workspaceID)
	})
	return version, hash, err
}

// AppendSegments implements journal.Segments. Segments of one chain come in
// their order; all of them are durable together.
func (s *Store) AppendSegments(ctx context.Context, segments []journal.Segment) error {
	return s.run(ctx, lockName{name: receiptsLane}, false, func(t *tx) error {
		for _, segment := range segments {
			if err := t.insertSegment(segment); err != nil {
				return err
			}
		}
		return nil
	})
}

// receiptsLane orders this process's segments among themselves. A chain
// belongs to one process.
const receiptsLane = "receipts"

func (t *tx) insertSegment(segment journal.Segment) error {
	_, err := t.exec("append a segment", `INSERT INTO segments (chain, idx, receipts, body, previous_hash, hash, at)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`, segment.Chain, int64(segment.Index), int64(segment.Count), segment.Body,
		segment.Previous, segment.Hash, segment.At.UnixNano())
	if err != nil {
		return err
	}
	_, err = t.exec("move the end of a chain", `INSERT INTO chains (chain, idx, hash) VALUES ($1, $2, $3)
		ON CONFLICT (chain) DO UPDATE SET idx = excluded.idx, hash = excluded.hash`,
		segment.Chain, int64(segment.Index), segment.Hash)
	return err
}

// Segments implements journal.History.
func (s *Store) Segments(ctx context.Context, chain string, after uint64, limit int) ([]journal.Segment, error) {
	var segments []journal.Segment
	err := s.read(ctx, "list segments", func(c Conn) error {
		return c.Query(`SELECT idx, receipts, body, previous_hash, hash, at FROM segments
			WHERE chain = $1 AND idx > $2 ORDER BY idx LIMIT $3`,
			func(r Row) error {
				segments = append(segments, journal.Segment{
					Chain: chain, Index: uint64(r.Int(0)), Count: int(r.Int(1)), Body: append([]byte(nil), r.Bytes(2)...),
					Previous: r.Text(3), Hash: r.Text(4), At: nanoTime(r, 5),
				})
				return nil
			}, chain, int64(after), int64(limit))
	})
	return segments, err
}

// Chains implements journal.History.
func (s *Store) Chains(ctx context.Context) ([]journal.Chain, error) {
	var chains []journal.Chain
	err := s.read(ctx, "list the chains", func(c Conn) error {
		return c.Query(`SELECT chain, idx, hash FROM chains ORDER BY chain`, func(r Row) error {
			chains = append(chains, journal.Chain{Name: r.Text(0), Index: uint64(r.Int(1)), Hash: r.Text(2)})
			return nil
		})
	})
	return chains, err
}
