// Command conformance drives any Host over gRPC, as its plugins do, and says for each
// method who may call it, what it answers to bad requests, how it pages and in which
// order. It knows nothing of the Host but its address, the CA of its certificate, the
// tokens of two or three installations, and what those were given
// (docs/reference/conformance.md).
//
// The cases are made for the content that -print-content writes, in the format of
// imports. A method of the service without cases is a failure.
//
// It may import the generated wire, gRPC and the contract's bounds; nothing of the
// Host. Its test starts a real Host on a control plane, and may import what that needs.
package main
