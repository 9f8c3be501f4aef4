// Package plugindata gives v1 what operators keep for plugins in the cluster, their
// configuration with its secrets, and takes away what plugins kept with the Host once
// they are uninstalled.
//
// No call waits for the cluster: what is configured is in memory, from the watch of
// installations, and the Secrets that those name are read beforehand, each by its
// name. The Host can read no other one: a platform admin lets it read those, in the
// namespace of each plugin (docs/howto/plugin-configuration.md).
//
// It may import the API types, controllers/kinds, hostsvc/domain, hostsvc/legacy,
// controller-runtime and client-go, and no other package of this module.
package plugindata
