// Package events delivers the outbox to those who watch it (WatchEvents). A Hub
// has one reader of the store's tail for all streams of the process, which runs
// while somebody watches, and a bounded ring of what it read last. Each stream
// goes along the ring at its own pace, so that none holds up another; what is
// behind the ring comes from the store, which is how a stream resumes.
//
// Events are hints (I15): at least once, in the order of commits within a
// workspace, and whoever loses them reads back. What a plugin may be sent is
// decided for each one: its manifest's declaration, the installation's standing
// and its pod, and for what only the exact contract knows, the approval of the
// workspace (I6, I12). Nothing private is in them (I14).
//
// It imports contract, domain, authority, admission, journal and query.
package events
