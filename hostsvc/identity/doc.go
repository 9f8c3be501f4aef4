// Package identity turns the bearer token of a call into the installation that
// it belongs to (I1). A token is reviewed by the API server once and then
// served from memory; on every call what it claims is checked again against
// the watches: its pod still runs, its ServiceAccount is still the one that the
// installation was pinned to, and no second installation claims it.
//
// It imports contract, client-go and controller-runtime, and nothing else of
// this module: Reviewer, Pods and Directory are its ports.
package identity
