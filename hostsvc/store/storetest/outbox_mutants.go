package storetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kandev/plugin-host/hostsvc/store"
)

// paging is an engine that reads the outbox by another statement.
type paging struct {
	store.Engine
	page string
}

// Outbox implements store.Engine.
func (e paging) Outbox() store.Outbox {
	outbox := e.Engine.Outbox()
	outbox.Page = e.page
	return outbox
}

// pagingBy rewrites the statement that reads the outbox: old text and new text in
// turn. It panics where the statement has no such text, which would be no mutant.
func pagingBy(texts ...string) func(store.Engine) store.Engine {
	return func(e store.Engine) store.Engine {
		page := e.Outbox().Page
		for i := 0; i < len(texts); i += 2 {
			if !strings.Contains(page, texts[i]) {
				panic(fmt.Sprintf("the outbox is not read by %q", texts[i]))
			}
			page = strings.ReplaceAll(page, texts[i], texts[i+1])
		}
		return paging{e, page}
	}
}

// The rules of the outbox on PostgreSQL: what is read ends where a transaction is
// still open that may come before, and a place is a transaction and the commit in it,
// whatever the clocks say.
var postgresOutboxMutants = []mutant{
	{"OutboxWithoutTheHorizon", pagingBy("xid < pg_snapshot_xmin(pg_current_snapshot())", "xid IS NOT NULL"), testOutboxWaits},
	{"OutboxUpToTheSnapshotsEnd", pagingBy("pg_snapshot_xmin", "pg_snapshot_xmax"), testOutboxWaits},
	{
		"OutboxSettledBeyondTheHorizon",
		pagingBy("CAST(CAST(pg_snapshot_xmin(pg_current_snapshot())", "CAST(CAST(pg_snapshot_xmax(pg_current_snapshot())"), testOutboxWaits,
	},
	{
		"OutboxByTime", pagingBy("ORDER BY xid, version", "ORDER BY at", "ORDER BY xid, seq", "ORDER BY at", "ORDER BY xid, minor", "ORDER BY at"),
		testOutboxCommits,
	},
	{"OutboxPlaceIsTheTransaction", pagingBy("(xid, version) > (CAST(CAST(CAST($1 AS bigint) AS text) AS xid8), CAST($2 AS bigint))",
		"xid > CAST(CAST(CAST($1 AS bigint) AS text) AS xid8)"), testOutboxCommits},
}

// The same on SQLite, where one process writes and nothing is open beside it.
var sqliteOutboxMutants = []mutant{
	{
		"OutboxByTime", pagingBy("ORDER BY rowid", "ORDER BY at", "ORDER BY after_entry, seq", "ORDER BY at", "ORDER BY major, minor", "ORDER BY at"),
		testOutboxCommits,
	},
	{"OutboxPublishedPlaceIsTheCommit", pagingBy("(after_entry, seq) > ($1, $2)", "after_entry > $1"), testOutbox},
	{"OutboxPublishedComesFirst", pagingBy("ORDER BY major, minor", "ORDER BY minor DESC, major"), testOutbox},
}

// RunSoleMutants runs tests of the suite on mutants of an engine that one process
// writes with, and fails for those that are not noticed.
func RunSoleMutants(t *testing.T, fresh func(t testing.TB) Database) {
	runMutants(t, fresh, sqliteOutboxMutants)
}
