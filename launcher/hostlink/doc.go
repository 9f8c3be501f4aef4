// Package hostlink is the launcher's way to the plugin host: one connection
// over TLS that proves itself with the pod's projected ServiceAccount token,
// and a proxy that lets a plugin call the Host service over it without ever
// holding the token.
//
// The proxy knows no method: what the Host serves, now or later, a plugin can
// call, and every status comes through as it was, details included. Only
// methods of kandev.plugin.v1.Host pass, and no metadata of the plugin does:
// nothing of the shipped wire travels there, and nothing there can pretend to
// be somebody.
//
// The package imports contract and proto, gRPC and the standard library.
package hostlink
