// Package auditlog is the history of authority as a file: events as JSON lines,
// and the proof that a history, put together from an archive and from what is
// still in the API, has no gap and no change. The Host's metrics server writes
// this format, `kubectl capability audit` reads and writes it, and nothing in it
// needs either of them: docs/howto/audit.md describes it for other readers.
//
// It is pure: no I/O but the reader and the writer that it is given. It imports
// contract and authority only.
package auditlog
