// Package world starts everything that the main job happens in, of real parts: a
// durable control plane, the release's own manifests, two workspaces, bin/plugin-host
// as a process under its own ServiceAccount with seeded tasks, and a plugin's pod
// with the token that is bound to it. The demo tells a story in it, the bench
// measures in it.
//
// It may import the API types, contract, the SDK's names of the environment, the
// packages below hack that start a control plane, and Kubernetes' clients; nothing of
// the Host, which is here a binary.
package world
