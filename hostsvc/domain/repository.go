package domain

import "time"

// Repository is a source repository of a workspace. Local paths and scripts of
// a repository aren't part of the model: no plugin may see them.
type Repository struct {
	ID            string
	WorkspaceID   string
	Name          string
	DefaultBranch string
	SourceType    string
	// Provider and the fields after it say which repository of which forge it
	// is; Scope is the provider's own subdivision.
	Provider             string
	ProviderRepositoryID string
	ProviderHost         string
	ProviderOwner        string
	ProviderName         string
	ProviderScope        string
	// RemoteURL is the URL as configured, credentials included. Only
	// PublicRemoteURL may leave the Host.
	RemoteURL string
	CreatedAt time.Time
	UpdatedAt time.Time
	Version   Version
}
