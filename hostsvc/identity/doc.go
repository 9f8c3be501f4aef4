// Package identity turns the bearer token of a call into the installation that
// it belongs to (I1). A token is reviewed by the API server once and then
// served from memory; on every call what it claims is checked again: its
// ServiceAccount is still the one that the installation was pinned to and no
// second installation claims it, and its pod still runs, as a live read that is
// at most 15 seconds old has shown. Where the controllers run the plugin, the pod is
// one of the installation's Deployment.
//
// It imports contract and client-go, and nothing else of this module: Reviewer,
// Cluster, Directory and Observer are its ports.
package identity
