// Package process runs one process of a plugin: it starts the executable as its
// author expects it (hashicorp/go-plugin, gRPC under AutoMTLS, the Host service
// on broker stream 1), keeps what it writes within bounds, and ends it with
// everything that it started.
//
// The child gets the launcher's environment without the variables that are the
// launcher's own, and its data folder in KANDEV_PLUGIN_DATA_DIR. A pod's
// environment is the plugin's to configure, as the environment of Kandev's own
// process was; what is stripped names the way to the Host, which goes through
// the launcher. Child and launcher are one pod and one user: the token's file
// can't be hidden from a child that looks for it, and it is its own
// installation's token.
//
// The package imports go-plugin, gRPC and the standard library, the generated
// protocol, and nothing of the Host.
package process
