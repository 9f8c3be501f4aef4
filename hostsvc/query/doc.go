// Package query holds the shared domain queries: exact reads, once, whichever
// adapter asks. Reader takes every read through the same steps (shape, early
// refusal, one store snapshot for authority and data, durable receipt); one
// file per aggregate holds the queries and the narrow snapshot that they need.
// Lists are bound to a snapshot by a sealed cursor (I10). It imports contract,
// domain, authority, admission and journal.
package query
