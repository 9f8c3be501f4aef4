// Package toolbox builds and finds the developer tools of this repository:
// the control plane's binaries (kube-apiserver, etcd, kubectl,
// kube-controller-manager), the generators, the linter, kustomize, and Helm 3 and 4.
//
// Every tool is pinned by a module of its own under hack/tools and built with
// `go build` from the Go module proxy; nothing is downloaded as a binary. Built
// tools live outside the working tree, each under a key that changes with its
// module, its flags and the Go version, so that a fresh clone finds what an
// earlier one built and an upgrade never runs an old binary.
//
// The package imports the standard library only: it must build before anything
// else does.
package toolbox
