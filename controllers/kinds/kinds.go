// Package kinds translates the API's kinds to authority's values and back. It
// is pure: nothing is read here, so that the controllers and the command line
// understand an object the same way. It may import the API's kinds, contract,
// authority and configschema.
package kinds

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// ApprovalOf translates an approval object, nil when it is being deleted: a
// deletion timestamp counts as absent everywhere.
func ApprovalOf(o *v1alpha1.PluginCapabilityApproval) *authority.Approval {
	if o.DeletionTimestamp != nil {
		return nil
	}
	a := &authority.Approval{
		UID: string(o.UID), Generation: o.Generation,
		InstallationID: o.Spec.InstallationID, WorkspaceID: o.Spec.WorkspaceID,
		ManifestDigest: o.Spec.ManifestDigest, SupersedesAct: o.Spec.SupersedesAct,
		// Only Active is active: a state that this build doesn't know grants nothing.
		Revoked:    o.Spec.State != "" && o.Spec.State != v1alpha1.StateActive,
		ApprovedBy: o.Spec.ApprovedBy, ApprovedVia: o.Spec.ApprovedVia, ConfirmedBy: o.Spec.ConfirmedBy,
		ChangedBy: o.Spec.ChangedBy, Reason: o.Spec.Reason,
	}
	a.Capabilities, a.Unknown = capabilitiesOf(o.Spec.Capabilities)
	if o.Spec.ExpiresAt != nil {
		a.ExpiresAt = instant(o.Spec.ExpiresAt.Time)
	}
	return a
}

// instant has the resolution of what is recorded.
func instant(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// capabilitiesOf parses IDs again although the schema has: an object can be
// older than its schema.
func capabilitiesOf(ids []v1alpha1.CapabilityID) (set contract.CapabilitySet, unknown []string) {
	for _, id := range ids {
		c, err := contract.ParseCapability(string(id))
		if err != nil {
			unknown = append(unknown, string(id))
			continue
		}
		set |= contract.SetOf(c)
	}
	return set, unknown
}

// InstallationOf translates an installation object by itself: the conflict and
// the changed principal depend on other objects and stay false. unknown lists
// what is declared and this Host doesn't have; such a package needs a newer Host.
func InstallationOf(o *v1alpha1.PluginInstallation) (installation authority.Installation, unknown []string, err error) {
	installation = authority.Installation{
		UID: string(o.UID), ID: o.Status.InstallationID, Name: o.Name, Version: o.Spec.Version, Suspended: o.Spec.Suspend,
		ServiceAccountNamespace:    o.Spec.ServiceAccountRef.Namespace,
		ServiceAccountName:         o.Spec.ServiceAccountRef.Name,
		ServiceAccountUID:          string(o.Status.ServiceAccountUID),
		ServiceAccountNamespaceUID: string(o.Status.NamespaceUID),
	}
	manifest := contract.Manifest{
		PluginID: o.Spec.PluginID, Legacy: legacyOf(o.Spec.Manifest.Legacy), MinHostVersion: o.Spec.Manifest.MinHostVersion,
	}
	for _, declared := range o.Spec.Manifest.Capabilities {
		manifest.Capabilities = append(manifest.Capabilities, contract.DeclaredCapability{
			ID: string(declared.ID), Required: declared.Required, Reason: declared.Reason,
		})
		c, parseErr := contract.ParseCapability(string(declared.ID))
		if parseErr != nil {
			unknown = append(unknown, string(declared.ID))
			continue
		}
		installation.Declared |= contract.SetOf(c)
		if declared.Required {
			installation.Required |= contract.SetOf(c)
		}
	}
	_, unknownLegacy := manifest.Legacy.Set()
	unknown = append(unknown, unknownLegacy...)
	if installation.ManifestDigest, err = manifest.Digest(); err != nil {
		return installation, unknown, fmt.Errorf("digest the manifest of installation %s: %w", o.Name, err)
	}
	// The schema refuses such an ID, and an object can be older than its schema: what
	// isn't taken works nowhere.
	installation.HostVersionUnsupported = !atLeast(HostLevel, o.Spec.Manifest.MinHostVersion) || len(unknown) > 0 ||
		contract.ReadsAsInstallationID(o.Spec.PluginID)
	return installation, unknown, nil
}

// HostLevel is the Kandev level whose contract this build implements. A
// manifest's minHostVersion is compared with it, not with our own version.
const HostLevel = "0.91.1"

// atLeast compares versions of up to three numbers; a missing one is 0. What
// isn't a version is newer than everything: it is unknown, so unsupported.
func atLeast(have, want string) bool {
	if want == "" {
		return true
	}
	h, hOK := versionOf(have)
	w, wOK := versionOf(want)
	if !hOK || !wOK {
		return false
	}
	for i := range h {
		if h[i] != w[i] {
			return h[i] > w[i]
		}
	}
	return true
}

func versionOf(text string) (version [3]uint64, ok bool) {
	parts := strings.Split(text, ".")
	if len(parts) > len(version) {
		return version, false
	}
	for i, part := range parts {
		number, err := strconv.ParseUint(part, 10, 32)
		if err != nil {
			return version, false
		}
		version[i] = number
	}
	return version, true
}

// PolicyOf tightens the built-in policy by the newest of the human policies, if
// there is one, and names it. Later policies replace earlier ones whole.
func PolicyOf(builtIn authority.Policy, policies []v1alpha1.HumanPolicy) (policy authority.Policy, active string, err error) {
	var newest *v1alpha1.HumanPolicy
	for i := range policies {
		p := &policies[i]
		if p.DeletionTimestamp == nil && (newest == nil || p.CreationTimestamp.After(newest.CreationTimestamp.Time) ||
			p.CreationTimestamp.Equal(&newest.CreationTimestamp) && p.Name > newest.Name) {
			newest = p
		}
	}
	if newest == nil {
		return builtIn, "", nil
	}
	version, err := policyVersion(newest)
	if err != nil {
		return authority.Policy{}, "", err
	}
	rules := make([]authority.Rule, len(newest.Spec.Rules))
	for i, rule := range newest.Spec.Rules {
		rules[i] = authority.Rule{Class: authority.Class(rule.Class), Deny: rule.Deny, FourEyes: rule.FourEyes}
		if rule.MaxLifetimeSeconds != nil {
			rules[i].MaxLifetime = time.Duration(*rule.MaxLifetimeSeconds) * time.Second
		}
	}
	return builtIn.Tighten(version, rules, newest.Spec.AcceptClaimedFourEyes), newest.Name, nil
}

// policyVersion is a policy's name with a digest of what it takes away: another
// policy that is created under the name is another version.
func policyVersion(p *v1alpha1.HumanPolicy) (string, error) {
	digest, err := contract.CanonicalDigest(struct {
		Rules  []v1alpha1.PolicyRule `json:"rules"`
		Accept bool                  `json:"acceptClaimedFourEyes"`
	}{p.Spec.Rules, p.Spec.AcceptClaimedFourEyes})
	if err != nil {
		return "", fmt.Errorf("digest human policy %s: %w", p.Name, err)
	}
	return p.Name + "@" + hex.EncodeToString(digest[:6]), nil
}
