package postgres

import "github.com/kandev/plugin-host/hostsvc/store"

// Outbox implements store.Engine. An event's place is its transaction's, which is
// settled once no transaction of a lower number is open. That holds for those of
// the server's other databases too: a foreign one that writes and stays open
// delays events, and nothing else.
func (e *Engine) Outbox() store.Outbox {
	const after = `(CAST(CAST(CAST($1 AS bigint) AS text) AS xid8), CAST($2 AS bigint))`
	const settled = `xid < pg_snapshot_xmin(pg_current_snapshot())`
	return store.Outbox{
		Page: `(SELECT CAST(0 AS bigint), CAST(CAST(xid AS text) AS bigint), minor, id, event_type, workspace_id, installation_id, audit_id, revision, target_id,
				after_version, event, at, source
			FROM (
				(SELECT xid, version AS minor, audit_id AS id, event_type, workspace_id, installation_id, audit_id, revision, target_id,
						after_version, event, at, '' AS source
					FROM journal WHERE (xid, version) > ` + after + ` AND ` + settled + ` AND event_type <> ''
					ORDER BY xid, version LIMIT CAST($3 AS bigint))
				UNION ALL
				(SELECT xid, seq, id, event_type, '', installation_id, '', CAST(0 AS bigint), '', '', event, at, source
					FROM emitted WHERE (xid, seq) > ` + after + ` AND ` + settled + `
					ORDER BY xid, seq LIMIT CAST($3 AS bigint))
			) events ORDER BY xid, minor LIMIT CAST($3 AS bigint))
			UNION ALL
			SELECT CAST(1 AS bigint), CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint) - 1, 9223372036854775807,
				store_id, '', '', '', '', store_epoch, '', '', '', CAST(0 AS bigint), '' FROM store`,
		Emit: `INSERT INTO emitted (id, installation_id, source, event_type, event, at) VALUES ($1, $2, $3, $4, $5, $6)`,
		// A transaction that is visible has a lower number than the snapshot's end. What
		// has a greater one was counted by another cluster, that a dump was made of.
		Forget: []string{
			`UPDATE journal SET xid = NULL WHERE xid >= pg_snapshot_xmax(pg_current_snapshot()) AND event_type <> ''`,
			`DELETE FROM emitted WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())`,
		},
	}
}
