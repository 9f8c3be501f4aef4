// Package contract is the vocabulary that every part of the plugin host
// shares: capability IDs with their index, result states and reasons with
// their retry models, byte and page bounds, and the canonical digest.
//
// Everything exported here is public and permanent: an ID, a state or a reason
// that has shipped is never removed and never reused for another meaning
// (ADR, "Versioning and compatibility"). testdata/golden.txt pins the list.
//
// The package imports nothing of this module, no Kubernetes client, no SQL and
// no protobuf, so that the SDK and the API types can import it freely.
package contract
