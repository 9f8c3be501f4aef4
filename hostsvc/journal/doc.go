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
//
// Receipts and roots have a retention: their chains are cut from the front, and
// each cut is recorded in a chain of its own, so that what is left is proven and
// a gap without a cut is found. Entries have none. An entry is the idempotency
// record of its command as well, which must outlive every retry, the outbox
// event, and what places a version in time; and its chain is the proof of who
// did what in the workspace, which is worth what it takes: about 1 KB for each
// command.
package journal
