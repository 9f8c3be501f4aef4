package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/legacy"
)

var (
	_ legacy.StateStore  = (*Store)(nil)
	_ legacy.SecretStore = (*Store)(nil)
)

// What an installation keeps with the Host is in no workspace and has no version.
// The installation's own lock orders its writes, and so puts each before its
// tombstone, which removes it, or after, when it is refused.

const (
	stateAt = ` FROM plugin_state WHERE installation_id = $1 AND scope = $2 AND scope_id = $3`
	// selectKept is what a write of state builds on.
	selectKept = `SELECT CAST(CASE WHEN EXISTS (` + selectTombstone + `) THEN 1 ELSE 0 END AS bigint),
		COALESCE((SELECT entries FROM plugin_usage WHERE installation_id = $1), 0),
		COALESCE((SELECT bytes FROM plugin_usage WHERE installation_id = $1), 0),
		(SELECT size` + stateAt + ` AND key = $4)`
)

// State implements legacy.StateStore.
func (s *Store) State(ctx context.Context, key legacy.StateKey) (entry domain.PluginState, found bool, err error) {
	err = failed("read an entry of state", s.engine.Query(ctx, `SELECT key, value, updated_at`+stateAt+` AND key = $4`, func(r Row) (err error) {
		entry, err = scanState(r, key)
		found = true
		return err
	}, key.InstallationID, key.Scope, key.ScopeID, key.Key))
	return entry, found, err
}

// States implements legacy.StateStore.
func (s *Store) States(ctx context.Context, installationID, scope, scopeID string, maxBytes int) (entries []domain.PluginState, complete bool, err error) {
	of := legacy.StateKey{InstallationID: installationID, Scope: scope, ScopeID: scopeID}
	err = s.read(ctx, "list the state of a scope", func(c Conn) error {
		entries, complete = nil, true
		// How much there is comes first: what isn't answered isn't read.
		var size int64
		err := c.Query(`SELECT CAST(COALESCE(sum(size), 0) AS bigint)`+stateAt, func(r Row) error { size = r.Int(0); return nil },
			installationID, scope, scopeID)
		if err != nil || size > int64(maxBytes) {
			complete = false
			return err
		}
		return c.Query(`SELECT key, value, updated_at`+stateAt+` ORDER BY key`, func(r Row) error {
			entry, err := scanState(r, of)
			entries = append(entries, entry)
			return err
		}, installationID, scope, scopeID)
	})
	return entries, complete, err
}

func scanState(r Row, of legacy.StateKey) (domain.PluginState, error) {
	entry := domain.PluginState{
		InstallationID: of.InstallationID, Scope: of.Scope, ScopeID: of.ScopeID, Key: r.Text(0), UpdatedAt: nanoTime(r, 2),
	}
	if err := json.Unmarshal([]byte(r.Text(1)), &entry.Value); err != nil {
		return domain.PluginState{}, fmt.Errorf("decode an entry of state: %w", err)
	}
	return entry, nil
}

// PutState implements legacy.StateStore.
func (s *Store) PutState(ctx context.Context, entry domain.PluginState, receipt journal.Receipt, allow func(legacy.StateWrite) error) error {
	if entry.Value == nil {
		entry.Value = domain.Object{}
	}
	value, err := json.Marshal(entry.Value)
	if err != nil {
		return fmt.Errorf("encode an entry of state: %w", err)
	}
	size := int64(len(entry.Scope) + len(entry.ScopeID) + len(entry.Key) + len(value))
	return s.run(ctx, installationLock(entry.InstallationID), false, func(t *tx) error {
		kept, err := t.kept(legacy.StateKey{InstallationID: entry.InstallationID, Scope: entry.Scope, ScopeID: entry.ScopeID, Key: entry.Key})
		if err != nil {
			return err
		}
		if kept.dead {
			return legacy.ErrUninstalled
		}
		entries, bytes := kept.entries, kept.bytes+size-kept.size
		if !kept.found {
			entries++
		}
		if err := allow(legacy.StateWrite{ValueBytes: len(value), Entries: int(entries), Bytes: bytes}); err != nil {
			return err
		}
		_, err = t.exec("write an entry of state", `INSERT INTO plugin_state
			(installation_id, scope, scope_id, key, size, updated_at, value) VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT (installation_id, scope, scope_id, key)
			DO UPDATE SET size = excluded.size, updated_at = excluded.updated_at, value = excluded.value`,
			entry.InstallationID, entry.Scope, entry.ScopeID, entry.Key, size, entry.UpdatedAt.UnixNano(), string(value))
		if err != nil {
			return err
		}
		if err := t.keeps(entry.InstallationID, entries, bytes); err != nil {
			return err
		}
		return t.recordOwn(entry.InstallationID, receipt)
	})
}

// DeleteState implements legacy.StateStore.
func (s *Store) DeleteState(ctx context.Context, key legacy.StateKey, receipt journal.Receipt, allow func() error) error {
	return s.run(ctx, installationLock(key.InstallationID), false, func(t *tx) error {
		kept, err := t.kept(key)
		if err != nil {
			return err
		}
		if kept.dead {
			return legacy.ErrUninstalled
		}
		if err := allow(); err != nil {
			return err
		}
		if err := t.recordOwn(key.InstallationID, receipt); err != nil || !kept.found {
			return err
		}
		_, err = t.exec("remove an entry of state", `DELETE`+stateAt+` AND key = $4`, key.InstallationID, key.Scope, key.ScopeID, key.Key)
		if err != nil {
			return err
		}
		return t.keeps(key.InstallationID, kept.entries-1, kept.bytes-kept.size)
	})
}

// recordOwn writes the receipt of a write of an installation's own in its transaction, at
// the end of the installation's chain, which its lock orders. Where there is none, or
// retention has taken all of it, a new one begins: its name was never used before.
func (t *tx) recordOwn(installationID string, receipt journal.Receipt) error {
	if receipt.AuditID == "" || receipt.InstallationID != installationID || receipt.Refused() {
		return fmt.Errorf("write what installation %s keeps: %w", installationID, errNoReceipt)
	}
	prefix := "writes/" + installationID + "/"
	segment := journal.Segment{
		Chain: prefix + receipt.AuditID, Count: 1, Body: append(receipt.AppendJSON(nil), '\n'), At: t.store.now(),
	}
	previous := ""
	err := t.query("find the end of a chain", `SELECT chain, idx, hash FROM chains WHERE chain > $1 AND chain < $2
		ORDER BY chain DESC LIMIT 1`, func(r Row) error {
		segment.Chain, segment.Index, previous = r.Text(0), uint64(r.Int(1)), r.Text(2)
		return nil
	}, prefix, prefix+"\x7f")
	if err != nil {
		return err
	}
	segment.Index++
	return t.insertSegment(segment.Link(previous))
}

// errNoReceipt: nothing is written without the receipt of just that.
var errNoReceipt = errors.New("the write has no receipt of its own")

// kept is what an installation keeps as state, and what its entry of one name has.
type kept struct {
	dead           bool
	entries, bytes int64
	found          bool
	size           int64
}

func (t *tx) kept(key legacy.StateKey) (k kept, err error) {
	err = t.query("read what an installation keeps", selectKept, func(r Row) error {
		k = kept{dead: r.Int(0) != 0, entries: r.Int(1), bytes: r.Int(2), found: !r.Null(3), size: r.Int(3)}
		return nil
	}, key.InstallationID, key.Scope, key.ScopeID, key.Key)
	return k, err
}

func (t *tx) keeps(installationID string, entries, bytes int64) error {
	_, err := t.exec("record what an installation keeps", `INSERT INTO plugin_usage (installation_id, entries, bytes)
		VALUES ($1, $2, $3) ON CONFLICT (installation_id) DO UPDATE SET entries = excluded.entries, bytes = excluded.bytes`,
		installationID, entries, bytes)
	return err
}

// purge removes all that an installation keeps, in the transaction of its
// tombstone: it is bounded, by what it may keep.
func (t *tx) purge(installationID string) error {
	for _, table := range []string{"plugin_state", "plugin_secrets", "plugin_usage"} {
		if _, err := t.exec("remove what an installation kept", `DELETE FROM `+table+` WHERE installation_id = $1`, installationID); err != nil {
			return err
		}
	}
	return nil
}

// Keeping lists the installations that keep state or secrets and aren't
// tombstoned: their IDs by the uids of their objects.
func (s *Store) Keeping(ctx context.Context) (map[string]string, error) {
	keeping := map[string]string{}
	err := s.read(ctx, "list the installations that keep something", func(c Conn) error {
		clear(keeping)
		return c.Query(`SELECT object_uid, installation_id FROM installations i
			WHERE (EXISTS (SELECT 1 FROM plugin_usage u WHERE u.installation_id = i.installation_id)
				OR EXISTS (SELECT 1 FROM plugin_secrets s WHERE s.installation_id = i.installation_id))
			AND NOT EXISTS (SELECT 1 FROM tombstones d WHERE d.installation_id = i.installation_id)`, func(r Row) error {
			keeping[r.Text(0)] = r.Text(1)
			return nil
		})
	})
	return keeping, err
}
