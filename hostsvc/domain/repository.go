package domain

import (
	"net/url"
	"strings"
	"time"
)

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

// PublicRemoteURL is the remote URL without what may be secret: user information,
// query and fragment. A local path, and what isn't understood, is "".
func (r Repository) PublicRemoteURL() string {
	raw := strings.TrimSpace(r.RemoteURL)
	if !strings.Contains(raw, "://") {
		return publicSCP(raw)
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Opaque != "" || strings.EqualFold(u.Scheme, "file") {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}

// publicSCP is the short form of an SSH address, [user@]host:path, without the
// user.
func publicSCP(address string) string {
	host, path, ok := strings.Cut(address, ":")
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		host = host[at+1:]
	}
	// One letter is a drive.
	if !ok || len(host) < 2 || path == "" || strings.ContainsAny(host, "/\\") || strings.ContainsAny(path, "@?#\\") {
		return ""
	}
	return host + ":" + path
}
