// Package domain holds the entities that plugins work on and the rules that
// hold for them whoever asks: states, priorities, defaults, WIP admission. It
// is pure: no I/O, no clock, no Kubernetes, SQL or protobuf. It imports only
// contract, for bounds and reasons.
//
// One aggregate, one file. Every entity carries Version, the commit of its
// workspace that wrote it; as a text it is the entity's resource version.
package domain
