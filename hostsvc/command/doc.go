// Package command holds the shared domain commands: what a writer does, once,
// whichever adapter asks. Executor takes every command through the same steps
// (shape, early refusal, lock, authority, idempotency, provenance, effect,
// journal); one file per aggregate holds the commands themselves and the
// narrow store that they need. It imports contract, domain, authority,
// admission and journal.
package command
