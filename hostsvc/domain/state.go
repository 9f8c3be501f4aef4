package domain

import "time"

// PluginState is one value that an installation keeps with the Host. It belongs
// to the installation and has no resource version.
type PluginState struct {
	InstallationID string
	// Scope is meant to be "instance", "workspace", "task" or "agent", and
	// ScopeID to be empty for the first; v1 checks neither.
	Scope     string
	ScopeID   string
	Key       string
	Value     Object
	UpdatedAt time.Time
}
