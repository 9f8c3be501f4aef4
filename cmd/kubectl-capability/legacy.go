package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// v1 as people see it: what a manifest declares works in every workspace at once and
// no approval is asked, but for writers, which a platform administrator grants.

// legacyNames lists what a manifest declares for v1, by the words that plugins know.
func legacyNames(m *v1alpha1.LegacyManifest) []string {
	if m == nil {
		return nil
	}
	o := &v1alpha1.PluginInstallation{Spec: v1alpha1.PluginInstallationSpec{Manifest: v1alpha1.PluginManifest{Legacy: m}}}
	terms := kinds.LegacyOf(o)
	return append(terms.Declared.Names(), eventNames(terms)...)
}

func eventNames(terms authority.LegacyTerms) []string {
	names := make([]string, len(terms.Events))
	for i, pattern := range terms.Events {
		names[i] = "event " + pattern
	}
	slices.Sort(names)
	return names
}

// explainLegacy shows what the package's words mean for v1.
func (p *parsedPackage) explainLegacy(t *tool) {
	names := legacyNames(&p.legacy)
	if len(names) == 0 {
		return
	}
	rows := [][]string{{"BY V1, IN EVERY WORKSPACE", "NEEDS"}}
	for _, name := range names {
		needs := "nothing more"
		if resource, ok := strings.CutPrefix(name, contract.LegacyWritePrefix); ok {
			needs = "a grant of " + v1alpha1.LegacyWriterPrefix + resource
		}
		rows = append(rows, []string{name, needs})
	}
	fmt.Fprintln(t.ErrOut)
	table(t.ErrOut, rows)
	fmt.Fprintln(t.ErrOut)
}

// worksByV1 lists what v1 calls of an installation may do by its spec, were it not for
// the grants in the fields without, which count for nothing.
func worksByV1(o *v1alpha1.PluginInstallation, without []string) []string {
	if blockedBySpec(o) != "" {
		return nil
	}
	terms := kinds.LegacyOf(o)
	works := append((terms.Declared&^contract.LegacyWriters | terms.Writers).Names(), eventNames(terms)...)
	if terms.ImplicitExpectNone {
		works = append(works, v1alpha1.CompatImplicitExpectNone)
	}
	return slices.DeleteFunc(works, func(name string) bool { return needsGrant(name) && inFields(without, name) })
}

// blockedBySpec is the gate that an installation's spec closes to everything, "" for
// none.
func blockedBySpec(o *v1alpha1.PluginInstallation) string {
	installation, _, err := kinds.InstallationOf(o)
	switch {
	case o.Spec.Suspend:
		return string(v1alpha1.GateSuspended)
	case err != nil || installation.HostVersionUnsupported:
		return string(v1alpha1.GateHostVersionUnsupported)
	default:
		return ""
	}
}

// blockedV1 says what keeps every v1 call of an installation from working, "" for
// nothing. Of what is wrong with its ServiceAccount the controllers tell.
func blockedV1(o *v1alpha1.PluginInstallation) string {
	if gate := blockedBySpec(o); gate != "" {
		return gate
	}
	accepted := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionAccepted)
	if accepted == nil {
		return notLookedAt
	}
	switch accepted.Reason {
	case string(v1alpha1.GateServiceAccountConflict), v1alpha1.ReasonServiceAccountInWorkspace,
		v1alpha1.ReasonServiceAccountNotFound, string(v1alpha1.GatePrincipalChanged):
		return accepted.Reason
	default:
		return ""
	}
}

const notLookedAt = "the Host has not looked at it yet"

// needsGrant tells whether a name takes a grant, and not only a declaration.
func needsGrant(name string) bool {
	return strings.HasPrefix(name, contract.LegacyWritePrefix) || name == v1alpha1.CompatImplicitExpectNone
}

// inFields tells whether a name's grant is in one of the fields.
func inFields(fields []string, name string) bool {
	return slices.ContainsFunc(fields, func(field string) bool { return strings.HasSuffix(field, grantOf(name)) })
}

// stillUnverified lists the fields of grants that count for nothing in live and stand
// in next as they are: whoever writes one anew has it checked.
func stillUnverified(live, next *v1alpha1.PluginInstallation) []string {
	same := map[string]bool{}
	for _, g := range kinds.GrantsOf(live) {
		same[g.ID] = true
	}
	unverified := kinds.UnverifiedGrants(live)
	var fields []string
	for _, g := range kinds.GrantsOf(next) {
		if same[g.ID] && slices.Contains(unverified, g.Field) {
			fields = append(fields, g.Field)
		}
	}
	return fields
}

// legacyRows are the v1 declarations of an installation, none for one without.
func legacyRows(o *v1alpha1.PluginInstallation) [][]string {
	unverified, blocked := kinds.UnverifiedGrants(o), blockedV1(o)
	works := worksByV1(o, nil)
	names := legacyNames(o.Spec.Manifest.Legacy)
	for _, name := range works {
		names = appendNew(names, name)
	}
	if granted := o.Spec.Compatibility; granted != nil && granted.ImplicitExpectNone != nil {
		names = appendNew(names, v1alpha1.CompatImplicitExpectNone)
	}
	if len(names) == 0 {
		return nil
	}
	rows := [][]string{{"BY V1, IN EVERY WORKSPACE", "WORKS", "WHY NOT"}}
	for _, name := range names {
		switch {
		case blocked != "":
			rows = append(rows, []string{name, "no", blocked})
		case needsGrant(name) && slices.Contains(works, name) && o.Status.ObservedGeneration != o.Generation:
			rows = append(rows, []string{name, "no", notLookedAt})
		case needsGrant(name) && inFields(unverified, name):
			rows = append(rows, []string{name, "no", v1alpha1.ReasonNotVerified})
		case slices.Contains(works, name):
			rows = append(rows, []string{name, "yes", ""})
		case inFields(kinds.OtherGrants(o), name):
			rows = append(rows, []string{name, "no", "granted to another installation"})
		default:
			rows = append(rows, []string{name, "no", "not granted"})
		}
	}
	return rows
}

// grantOf is how the field of a name's grant ends.
func grantOf(name string) string {
	if resource, ok := strings.CutPrefix(name, contract.LegacyWritePrefix); ok {
		return ".legacyWriters[" + resource + "]"
	}
	return ".implicitExpectNone"
}

// lacksWriters lists the declared writers that aren't granted.
func lacksWriters(o *v1alpha1.PluginInstallation) []v1alpha1.LegacyWriteResource {
	if o.Spec.Manifest.Legacy == nil {
		return nil
	}
	terms := kinds.LegacyOf(o)
	var lacks []v1alpha1.LegacyWriteResource
	for _, resource := range o.Spec.Manifest.Legacy.APIWrite {
		c, ok := contract.ParseLegacyCapability(contract.LegacyWritePrefix + string(resource))
		if ok && !terms.Writers.Has(c) {
			lacks = append(lacks, resource)
		}
	}
	return lacks
}

// hintWriters says how the v1 writers are granted that aren't.
func (t *tool) hintWriters(o *v1alpha1.PluginInstallation) {
	lacks := lacksWriters(o)
	if len(lacks) == 0 || o.Status.InstallationID == "" {
		return
	}
	var writers []v1alpha1.LegacyWriter
	if o.Spec.Compatibility != nil {
		for _, writer := range o.Spec.Compatibility.LegacyWriters {
			if !slices.Contains(lacks, writer.Resource) {
				writers = append(writers, writer)
			}
		}
	}
	names := make([]string, len(lacks))
	for i, resource := range lacks {
		names[i] = v1alpha1.LegacyWriterPrefix + string(resource)
		writers = append(writers, v1alpha1.LegacyWriter{Resource: resource, CompatibilityGrant: v1alpha1.CompatibilityGrant{
			InstallationID: o.Status.InstallationID, ApprovedBy: "YOUR-NAME",
		}})
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"compatibility": map[string]any{"legacyWriters": writers}}})
	if err != nil {
		return // what it is made of has no way to fail
	}
	// Nobody's name may end the quotation that it is shown in.
	quotable := strings.ReplaceAll(string(patch), "'", `\u0027`)
	fmt.Fprintf(t.Out, "Not granted to its v1 writers: %s. Who holds approve on those grants them:\n  kubectl patch plugininstallation %s --type=merge -p '%s'\n",
		strings.Join(names, ", "), o.Name, quotable)
}

// keepDeclared takes the grants away that a manifest no longer declares, and returns
// what went.
func keepDeclared(o *v1alpha1.PluginInstallation) []string {
	if o.Spec.Compatibility == nil {
		return nil
	}
	var gone []string
	o.Spec.Compatibility.LegacyWriters = slices.DeleteFunc(o.Spec.Compatibility.LegacyWriters, func(w v1alpha1.LegacyWriter) bool {
		declared := o.Spec.Manifest.Legacy != nil && slices.Contains(o.Spec.Manifest.Legacy.APIWrite, w.Resource)
		if !declared {
			gone = append(gone, v1alpha1.LegacyWriterPrefix+string(w.Resource))
		}
		return !declared
	})
	return gone
}

// waitsOf says what of an installation waits for somebody, though it may be accepted.
func waitsOf(o *v1alpha1.PluginInstallation) []metav1.Condition {
	var waits []metav1.Condition
	for _, of := range []struct{ kind, reason string }{
		{v1alpha1.ConditionReviewRequired, v1alpha1.ReasonNotVerified},
		{v1alpha1.ConditionConfigReady, v1alpha1.ReasonSecretsUnresolved},
	} {
		if c := meta.FindStatusCondition(o.Status.Conditions, of.kind); c != nil && c.Reason == of.reason {
			waits = append(waits, *c)
		}
	}
	return waits
}
