package contract

import (
	"cmp"
	"regexp"
	"slices"
)

var installationID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// ReadsAsInstallationID tells whether an ID is of the form of installation IDs, which
// no plugin's own ID may have: sources are "plugin:" and either (domain facts, section
// 11), so that one could be taken for the other.
func ReadsAsInstallationID(id string) bool { return installationID.MatchString(id) }

// Manifest is the part of a plugin package that its digest covers: what a
// human reviews. The version is not in it; a new version is an upgrade review
// whether or not the digest moved.
type Manifest struct {
	PluginID     string               `json:"pluginID"`
	Capabilities []DeclaredCapability `json:"capabilities"`
	// Legacy is the v1 part. One that declares nothing has the digest of none.
	Legacy         *LegacyDeclaration `json:"legacy,omitempty"`
	MinHostVersion string             `json:"minHostVersion,omitempty"`
}

// Digest returns ManifestDigestPrefix + SHA-256 of the RFC 8785 canonical JSON
// of the manifest with its capabilities sorted by ID and its lists of v1 as sets.
// The order in which a package lists them is therefore irrelevant.
func (m Manifest) Digest() (string, error) {
	m.Capabilities = slices.Clone(m.Capabilities)
	if m.Capabilities == nil {
		m.Capabilities = []DeclaredCapability{}
	}
	slices.SortFunc(m.Capabilities, func(a, b DeclaredCapability) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Reason, b.Reason), compareBool(a.Required, b.Required))
	})
	m.Legacy = m.Legacy.canonical()
	digest, err := CanonicalDigest(m)
	if err != nil {
		return "", err
	}
	return ManifestDigestPrefix + digest.String(), nil
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}
