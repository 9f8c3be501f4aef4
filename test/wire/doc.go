// Package wire holds the declared messages and services to the wire that plugins
// and hosts in the field speak: testdata/shipped.txt, facts of others that are
// transcribed and never generated from our own descriptors. What is declared here
// has their numbers, types and labels, reads and writes their bytes, and adds
// nothing that they could collide with.
//
// The tests import the generated types and the protobuf runtime, nothing else of
// this project. The bytes are made by an encoder of their own.
package wire
