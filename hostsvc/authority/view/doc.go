// Package view holds what this process sees in its watches beside the store's
// rows: approvals, installations, namespaces and the bindings of workspaces.
// The Host asks it on every call (Observe), the controllers' watch handlers
// feed it, and it tells whose ServiceAccount is whose (Principal).
//
// It can only deny early or make a call wait: what allows is the row alone,
// inside the transaction of the effect (I8). It imports authority and contract
// only; Kubernetes objects are translated by whoever feeds it.
package view
