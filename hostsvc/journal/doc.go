// Package journal defines the durable records of the Host: the entry of a
// committed command, fence or hold, which is audit receipt, idempotency record
// and outbox event at once (I8), and the receipt of everything that commits
// nothing: reads and refusals. It computes and verifies their hash chains and
// gathers receipts into segments. It imports contract and domain only.
//
// Entries are chained per workspace, under the workspace's lock. Receipts are
// chained per Host process, refusals also per installation, so that a plugin
// that is approved nowhere can't touch a workspace's chain. Roots, appended
// periodically, name the heads of all chains and are chained themselves: they
// show that a whole chain was deleted, cut or rewritten together with its head.
package journal
