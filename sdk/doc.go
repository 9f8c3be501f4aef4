// Package sdk is what a plugin is written with: it connects to the plugin host
// from inside a pod and makes exact calls.
//
// Connect finds address, CA and token in the pod's environment and learns the
// plugin's standing first. The accessors Workspaces, Workflows, Tasks, Sessions,
// Interactions, Messages, TaskInbox, TaskRelations and TaskTransitions carry the
// contract's namespaces; a Reconciler keeps a view of what they list. Results
// follow the contract's table of reasons and nothing else: see Error. What the
// plugin was not granted is refused, never reached in another way.
//
// The package imports contract and the generated protocol, gRPC and the
// standard library, and nothing else of this module.
package sdk
