// Package relay brings events from the Host to the plugin: it follows
// Host.WatchEvents and turns each event into a Plugin.DeliverEvent, one after
// the other, with the timing that plugins' authors know: 10 s for an attempt,
// three more after 5, 15 and 45 s, then the event is dropped with a line in the
// log.
//
// What is different from a Kandev that has its plugins in its own process, all
// to the plugin's good:
//   - Nothing is lost while the launcher, the plugin or the Host is away. The
//     Host keeps the events; the place reached is in a file, written after
//     delivery, and is come back to. An event may be delivered twice around a
//     crash, and has the same event_id then.
//   - A full queue drops nothing: it stops reading, and the Host ends a reader
//     that is too slow, who comes back.
//   - While no process of the plugin runs, no attempt is used up.
//   - A stream without even a heartbeat for 35 s is opened again.
//   - A place that can't be written for a while, as on a full disk, ends nothing.
//   - An event is delivered once, however many declared patterns it matches.
//   - occurred_at is when it happened, not when it was sent.
//
// Only a place that the Host doesn't keep any more, or doesn't know, loses
// events; that is an error in the log, and the relay goes on with the oldest
// that there is.
//
// Time is the standard library's; the tests run it in testing/synctest. The
// package imports contract, proto and launcher/pause, gRPC and the standard
// library.
package relay
