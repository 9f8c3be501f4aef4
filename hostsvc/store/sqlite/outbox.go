package sqlite

import "github.com/kandev/plugin-host/hostsvc/store"

// Outbox implements store.Engine. The rowid of an entry is its place: there is
// one writer, and entries are never removed.
func (e *Engine) Outbox() store.Outbox {
	return store.Outbox{
		Page: `SELECT * FROM (
				SELECT 0, major, minor, id, event_type, workspace_id, installation_id, audit_id, revision, target_id, after_version, event, at, source
				FROM (
					SELECT * FROM (SELECT rowid AS major, 0 AS minor, audit_id AS id, event_type, workspace_id, installation_id, audit_id,
							revision, target_id, after_version, event, at, '' AS source
						FROM journal WHERE rowid > $1 AND event_type <> '' ORDER BY rowid LIMIT $3)
					UNION ALL
					SELECT * FROM (SELECT after_entry AS major, seq AS minor, id, event_type, '' AS workspace_id, installation_id, '' AS audit_id,
							0 AS revision, '' AS target_id, '' AS after_version, event, at, source
						FROM emitted WHERE (after_entry, seq) > ($1, $2) ORDER BY after_entry, seq LIMIT $3)
				) ORDER BY major, minor LIMIT $3)
			UNION ALL
			SELECT 1, (SELECT COALESCE(max(rowid), 0) FROM journal),
				COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'emitted'), 0),
				store_id, '', '', '', '', store_epoch, '', '', '', 0, '' FROM store`,
		Emit: `INSERT INTO emitted (after_entry, id, installation_id, source, event_type, event, at)
			SELECT COALESCE(max(rowid), 0), $1, $2, $3, $4, $5, $6 FROM journal`,
	}
}
