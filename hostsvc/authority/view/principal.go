package view

import "strings"

// Principal is whose pods run under a ServiceAccount, as far as this process
// sees.
type Principal struct {
	InstallationID   string
	InstallationName string
	PluginID         string
	// ServiceAccountUID is the pinned one, "" while none is pinned: a token of
	// any other is not the plugin's.
	ServiceAccountUID string
	// WorkloadOf is the UID of the installation's object if the controllers run its
	// plugin, "" if somebody else does.
	WorkloadOf string
	// Conflict: more than one installation claims the ServiceAccount, or it is
	// in a workspace's namespace. Nobody is authenticated by it.
	Conflict bool
	// Unknown: the installations or the namespaces have not all been seen, so
	// neither whose it is nor that it is nobody's can be told.
	Unknown bool
}

type serviceAccount struct{ namespace, name string }

// Principal returns the installation that claims a ServiceAccount.
func (v *View) Principal(namespace, name string) (Principal, bool) {
	const needed = SourceInstallations | SourceNamespaces
	if Source(v.complete.Load())&needed != needed {
		return Principal{Unknown: true}, false
	}
	principal, ok := (*v.principals.Load())[serviceAccount{namespace, name}]
	return principal, ok
}

// renewPrincipals is called with mu held. Installations are few, and a change
// of one can change another.
func (v *View) renewPrincipals() {
	principals := make(map[serviceAccount]Principal, len(v.installations))
	plugins := make(map[string]bool, len(v.installations))
	for _, installation := range v.installations {
		plugins[installation.PluginID] = true
		claimed := serviceAccount{installation.ServiceAccountNamespace, installation.ServiceAccountName}
		principal := Principal{
			InstallationID: installation.ID, InstallationName: installation.Name, PluginID: installation.PluginID,
			ServiceAccountUID: installation.ServiceAccountUID,
			Conflict:          v.namespaces[claimed.namespace].WorkspaceID != "",
		}
		if installation.Workload {
			principal.WorkloadOf = installation.UID
		}
		if _, taken := principals[claimed]; taken {
			principal = Principal{Conflict: true}
		}
		principals[claimed] = principal
	}
	v.principals.Store(&principals)
	v.plugins.Store(&plugins)
	v.renewLegacy(principals)
}

// InstalledPlugin returns the longest ID of an installed plugin that name is, or
// begins with before a dot; "" for none. It neither blocks nor allocates.
func (v *View) InstalledPlugin(name string) (pluginID string) {
	plugins := *v.plugins.Load()
	for name != "" && !plugins[name] {
		name = name[:max(strings.LastIndexByte(name, '.'), 0)]
	}
	return name
}
