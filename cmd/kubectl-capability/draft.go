package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/controllers/kinds"
)

// subject is a plugin in a workspace, as a human who decides about it looks at it.
type subject struct {
	name, namespace string
	workspaceID     string
	installation    *v1alpha1.PluginInstallation
	// approval is nil before the first grant.
	approval *v1alpha1.PluginCapabilityApproval
	declared contract.CapabilitySet
	required contract.CapabilitySet
}

// subject reads what a decision is about, and refuses where there is nothing to
// decide yet.
func (c *cluster) subject(ctx context.Context, name string) (subject, error) {
	s := subject{name: name, namespace: c.namespace}
	var err error
	if s.installation, err = c.installation(ctx, name); err != nil {
		return s, err
	}
	if s.installation == nil {
		return s, missing("installation", name, "`kubectl get plugininstallations` lists them; `kubectl capability install` makes one")
	}
	if s.installation.Status.InstallationID == "" || s.installation.Status.ManifestDigest == "" {
		return s, problem{
			what: fmt.Sprintf("the installation %q has no ID yet", name),
			hint: "the plugin host gives it one; `kubectl describe plugininstallation " + name + "` says what it waits for",
		}
	}
	parsed, _, err := kinds.InstallationOf(s.installation)
	if err != nil {
		return s, err
	}
	s.declared, s.required = parsed.Declared, parsed.Required
	if s.approval, err = c.approval(ctx, s.namespace, name); err != nil {
		return s, err
	}
	err = c.place(ctx, &s)
	return s, err
}

// place finds the workspace of the namespace.
func (c *cluster) place(ctx context.Context, s *subject) error {
	namespace, err := c.workspace(ctx, s.namespace)
	switch {
	case err != nil && s.approval != nil:
		// Who may write the approval need not read the namespace.
		s.workspaceID = s.approval.Spec.WorkspaceID
		return nil
	case err != nil:
		return err
	case namespace == nil:
		return missing("namespace", s.namespace, "a plugin is granted in the namespace of a workspace; choose it with -n")
	}
	s.workspaceID = namespace.Labels[v1alpha1.LabelWorkspaceID]
	if s.workspaceID == "" {
		return problem{
			what: fmt.Sprintf("the namespace %q is no workspace", s.namespace),
			hint: "`kubectl get namespaces -L " + v1alpha1.LabelWorkspaceID + "` lists the workspaces; choose one with -n\n" +
				"a platform administrator makes it one with that label",
		}
	}
	return nil
}

// act is the name that the next act supersedes.
func (s subject) act() string {
	if s.approval == nil || s.approval.Status.InstallationID != s.installation.Status.InstallationID {
		return ""
	}
	return s.approval.Status.Act
}

// settled tells whether the status speaks of the approval as it is now.
func (s subject) settled() bool {
	return s.approval == nil || s.approval.Status.ObservedGeneration == s.approval.Generation
}

// granted is what is granted now, gates aside, as the status says it.
func (s subject) granted() contract.CapabilitySet {
	if s.approval == nil || s.approval.Status.State != v1alpha1.StateActive ||
		s.approval.Status.InstallationID != s.installation.Status.InstallationID {
		return 0
	}
	var asked contract.CapabilitySet
	if a := kinds.ApprovalOf(s.approval); a != nil {
		asked = a.Capabilities
	}
	for _, inactive := range s.approval.Status.InactiveCapabilities {
		if c, err := contract.ParseCapability(inactive.ID); err == nil {
			asked &^= contract.SetOf(c)
		}
	}
	return asked
}

// proposal is what a human is about to grant.
type proposal struct {
	capabilities contract.CapabilitySet
	expiresAt    time.Time
	reason       string
	approvedBy   string
	// via is the GitOps identity that will apply it, "" for the human, and
	// confirmedBy the second human whom it claims.
	via, confirmedBy string
}

// draft is the spec that grants a proposal on top of the act in force.
func (s subject) draft(p proposal) v1alpha1.PluginCapabilityApprovalSpec {
	spec := v1alpha1.PluginCapabilityApprovalSpec{
		InstallationName: s.name, InstallationID: s.installation.Status.InstallationID,
		ManifestDigest: s.installation.Status.ManifestDigest, WorkspaceID: s.workspaceID, SupersedesAct: s.act(),
		Capabilities: kinds.IDsOf(p.capabilities), State: v1alpha1.StateActive,
		ApprovedBy: p.approvedBy, ApprovedVia: p.via, ConfirmedBy: p.confirmedBy, Reason: p.reason,
	}
	if !p.expiresAt.IsZero() {
		until := metav1.NewTime(p.expiresAt.UTC().Truncate(time.Second))
		spec.ExpiresAt = &until
	}
	return spec
}

// manifest is the draft as it is committed to Git: what the plugin asks for and
// isn't granted stands beside it, so that the reviewer sees what is left out.
func (s subject) manifest(spec v1alpha1.PluginCapabilityApprovalSpec) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("apiVersion: %s", v1alpha1.GroupVersion)
	line("kind: PluginCapabilityApproval")
	line("metadata:")
	line("  name: %s", name(s.name))
	line("  namespace: %s", name(s.namespace))
	line("spec:")
	line("  installationName: %s", name(s.name))
	line("  installationID: %s", spec.InstallationID)
	line("  # %s %s", s.installation.Spec.PluginID, s.installation.Spec.Version)
	line("  manifestDigest: %s", spec.ManifestDigest)
	line("  workspaceID: %s", name(spec.WorkspaceID))
	line("  # Makes this grant single-use: it takes effect only while this is the last act.")
	line("  supersedesAct: %q", spec.SupersedesAct)
	line("  state: Active")
	if len(spec.Capabilities) == 0 {
		line("  capabilities: []")
	} else {
		line("  capabilities:")
	}
	for _, id := range spec.Capabilities {
		line("  - %s%s", id, comment(s.remark(string(id))))
	}
	for c := range (s.declared &^ setOf(spec.Capabilities)).All() {
		line("  # not granted: %s%s", c, behind(" - ", s.remark(c.String())))
	}
	line("  approvedBy: %s", quote(spec.ApprovedBy))
	if spec.ApprovedVia != "" {
		line("  approvedVia: %s", quote(spec.ApprovedVia))
	}
	// Empty or not, they are part of what is applied: else a name of before would
	// stay with whoever set it, and a confirmation count for what comes next.
	line("  confirmedBy: %s", quote(spec.ConfirmedBy))
	line(`  changedBy: ""`)
	if spec.ExpiresAt != nil {
		line("  expiresAt: %q", spec.ExpiresAt.UTC().Format(time.RFC3339))
	}
	line("  reason: %s", quote(spec.Reason))
	return b.String()
}

func comment(text string) string { return behind(" # ", text) }

// behind puts a text behind a separator, and nothing where there is none.
func behind(separator, text string) string {
	if text == "" {
		return ""
	}
	return separator + text
}

// remark is what the package says about an ID, on one line.
func (s subject) remark(id string) string {
	for _, declared := range s.installation.Spec.Manifest.Capabilities {
		if string(declared.ID) != id {
			continue
		}
		text := strings.Join(strings.Fields(declared.Reason), " ")
		if declared.Required {
			text = strings.TrimSuffix("required: "+text, ": ")
		}
		return text
	}
	return ""
}

// plainName is longer than every word that YAML takes for something else than a
// text, such as no and null.
var plainName = regexp.MustCompile(`^[a-z][a-z0-9.-]{5,}$`)

// name is an object's name as a YAML scalar.
func name(text string) string {
	if plainName.MatchString(text) {
		return text
	}
	return quote(text)
}

// quote is a text as a YAML scalar: JSON's strings are YAML's.
func quote(text string) string { return fmt.Sprintf("%q", text) }

func setOf(ids []v1alpha1.CapabilityID) contract.CapabilitySet {
	var set contract.CapabilitySet
	for _, id := range ids {
		if c, err := contract.ParseCapability(string(id)); err == nil {
			set |= contract.SetOf(c)
		}
	}
	return set
}

// choose parses capabilities that a human named, and refuses what the package
// doesn't declare: granting it would grant nothing, and later surprise.
func (s subject) choose(names []string) (contract.CapabilitySet, error) {
	var set contract.CapabilitySet
	for _, name := range names {
		c, err := contract.ParseCapability(name)
		if err != nil {
			return 0, problem{what: err.Error(), hint: "the plugin declares " + listed(s.declared)}
		}
		if !s.declared.Has(c) {
			return 0, problem{
				what: fmt.Sprintf("the plugin doesn't declare %s, so nobody can grant it", c),
				hint: "it declares " + listed(s.declared),
			}
		}
		set |= contract.SetOf(c)
	}
	return set, nil
}

// closest helps with a name that was mistyped.
func closest(name string, known []string) string {
	best, most := "", 0
	for _, k := range known {
		n := 0
		for n < len(k) && n < len(name) && strings.EqualFold(k[n:n+1], name[n:n+1]) {
			n++
		}
		if n > most {
			best, most = k, n
		}
	}
	if most < 3 || slices.Contains(known, name) {
		return ""
	}
	return best
}
