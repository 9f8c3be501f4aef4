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
// one authority row.
//
// It imports contract, domain, authority, journal, command, query and fence; no
// engine and no Kubernetes client.
package store
