// Package rpc serves kandev.plugin.v1.Host over gRPC and TLS. Its adapters
// translate between the wire and the domain and hold no rule: who calls comes
// from identity, what may be done from admission and authority, what happens
// from command and query. One file per namespace of the contract; registry.go
// says what every RPC needs, outcome.go maps every outcome to the wire once.
//
// It imports contract, domain, authority, admission, command, query, legacy,
// events, identity and the generated protobuf code; no Kubernetes client, no store.
package rpc
