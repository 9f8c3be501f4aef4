// Package domain holds the entities that plugins work on and the rules that
// hold for them whoever asks: states, defaults, WIP admission and moves, the
// current turn, who is owed an answer, relations, and what of a text may leave
// the Host. It is pure: no I/O, no clock, no Kubernetes, SQL or protobuf. It
// imports only contract, for bounds, reasons and digests.
//
// One aggregate, one file. An entity of a workspace carries Version, the commit
// of its workspace that wrote it; as a text it is the entity's resource version.
// What belongs to the instance (profiles, plugin state) has none.
package domain
