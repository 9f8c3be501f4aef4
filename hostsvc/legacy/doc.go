// Package legacy is v1 as shipped: its queries and commands with the shipped
// defaults, order, paging and texts (host-v1 facts, section 2). One aggregate, one
// file. Whether a call is allowed at all is decided before it gets here, by
// admission.AuthoriseLegacy.
//
// v1 sees the whole instance, knows no approval and no revision, and never becomes
// exact (I12): this package can't reach the executor of exact commands, its
// idempotency keys, guards or tokens. What both worlds agree on they have from
// domain, and from the store, whose ports each declares for itself.
//
// It imports contract, domain, admission and journal.
package legacy
