// Package store keeps everything durable: authority rows, the domain, the
// journal, bindings and installations. It implements the ports that command,
// query, fence and journal declare, and offers the controllers what they need
// besides (leader epochs, installation IDs, workspace bindings, the sweep).
//
// What is the same for every database lives here: the queue of each workspace,
// the shared commits, the rules of the fence, the SQL. A database is an
// Engine; store/sqlite and store/postgres are the two. Both run the same suite
// (store/storetest).
//
// A workspace is a serial domain: every transaction that may write in it takes
// its exclusive lock first (I5, I8). Locks are taken in this order: workspace,
// leader, installation, then rows (authority, idempotency, domain rows,
// journal, head). A transaction locks at most one workspace and moves at most
// one authority row; one that is in no workspace takes one other lock by name in
// the workspace's place (lease, state, archive, cuts, roots). A new store epoch
// moves no row: a row that was written in an earlier one is Starting.
//
// The store vouches for its rows while its lease runs, by its own clock, and once
// its epoch is complete (Tx.Current, Snapshot.Current). Both come with the
// statement that a transaction or a read begins with. The lease is looked at
// again just before COMMIT wherever a command relied on it: nothing that it
// authorised commits later than its end, but for a COMMIT under way and for what
// the database lets a transaction idle, both at most 2 s on PostgreSQL.
//
// It imports contract, domain, authority, journal, command, query and fence; no
// engine and no Kubernetes client.
package store
