package admission_test

import (
	"context"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

// compatibilityNames are what a right to grant compatibility names.
func compatibilityNames() []v1alpha1.CapabilityID {
	names := []v1alpha1.CapabilityID{v1alpha1.CompatImplicitExpectNone}
	for _, resource := range v1alpha1.LegacyWriteResources() {
		names = append(names, v1alpha1.CapabilityID(v1alpha1.LegacyWriterPrefix+string(resource)))
	}
	return names
}

const someID = "3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77"

// entry is a grant of compatibility under its name, as who grants writes it.
func entry(who, name string) patch {
	e := patch{"installationID": someID, "approvedBy": who, "reason": "works by v1"}
	if resource, ok := strings.CutPrefix(name, v1alpha1.LegacyWriterPrefix); ok {
		e["resource"] = resource
	}
	return e
}

// compatibility holds entries by the names in them.
func compatibility(entries ...patch) patch {
	writers, implicit := []any{}, any(nil)
	for _, e := range entries {
		if e["resource"] == nil {
			implicit = e
		} else {
			writers = append(writers, e)
		}
	}
	return patch{"compatibility": patch{"legacyWriters": writers, "implicitExpectNone": implicit}}
}

func with(e patch, field string, value any) patch {
	changed := patch{}
	for k, v := range e {
		changed[k] = v
	}
	if changed[field] = value; value == nil {
		delete(changed, field)
	}
	return changed
}

// legacyInstallation declares every v1 writer.
func legacyInstallation(ctx context.Context) *v1alpha1.PluginInstallation {
	GinkgoHelper()
	o := installation()
	o.Spec.Manifest.Legacy = &v1alpha1.LegacyManifest{APIWrite: v1alpha1.LegacyWriteResources()}
	create(ctx, o)
	return o
}

// compatible is one to which ada has granted all compatibility.
func compatible(ctx context.Context) (*v1alpha1.PluginInstallation, []patch) {
	GinkgoHelper()
	o := legacyInstallation(ctx)
	var all []patch
	for _, name := range compatibilityNames() {
		all = append(all, entry(ada.name, string(name)))
	}
	Expect(edits(ctx, ada, o, compatibility(all...))).To(Succeed())
	Expect(administrator.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
	Expect(o.Spec.Compatibility.LegacyWriters).To(HaveLen(3))
	return o, all
}

// mayGrant is a human who may write installations and grant the names in the whole
// cluster.
func mayGrant(ctx context.Context, name string, names ...v1alpha1.CapabilityID) person {
	GinkgoHelper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"plugininstallations"}, Verbs: []string{"create", "update", "patch"},
		}},
	}
	if len(names) > 0 {
		resourceNames := make([]string, len(names))
		for i, n := range names {
			resourceNames[i] = string(n)
		}
		role.Rules = append(role.Rules, rbacv1.PolicyRule{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{v1alpha1.ResourceCapabilities},
			ResourceNames: resourceNames, Verbs: []string{v1alpha1.VerbApprove},
		})
	}
	create(ctx, role)
	create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: clusterRole(name), Subjects: []rbacv1.Subject{user(name)},
	})
	return human(name)
}

var _ = Describe("compatibility", func() {
	const policy = v1alpha1.PolicyInstallations

	It("has no field that these tests leave out", func() {
		Expect(fieldsOf(v1alpha1.Compatibility{})).To(ConsistOf("legacyWriters", "implicitExpectNone"))
		Expect(fieldsOf(v1alpha1.CompatibilityGrant{})).To(ConsistOf("installationID", "approvedBy", "approvedVia", "reason"))
	})

	It("is granted by who holds the right in the whole cluster, each by its name", func(ctx SpecContext) {
		o := legacyInstallation(ctx)
		names := compatibilityNames()
		for i, name := range names {
			grant := func(who person) error { return tries(ctx, who, o, compatibility(entry(who.name, string(name)))) }
			Expect(grant(ada)).To(Succeed(), string(name))
			Expect(grant(administrator)).To(Succeed(), string(name))
			Expect(grant(dora)).To(beRefusedBy(policy, "may not grant "+string(name)+":", "in the whole cluster"), string(name))
			for _, who := range machines() {
				Expect(grant(who)).To(beRefusedBy(policy, who.name+" may only suspend"), "%s by %s", name, who.name)
			}
			alone := mayGrant(ctx, "only-"+strings.ToLower(strings.ReplaceAll(string(name), ":", "-")), name)
			Eventually(ctx, func() error { return grant(alone) }).Should(Succeed(), string(name))
			for _, other := range names {
				if other != name {
					Expect(tries(ctx, alone, o, compatibility(entry(alone.name, string(name)), entry(alone.name, string(other))))).To(
						beRefusedBy(policy, "may not grant "+string(other)+":"), "%s by who may grant %s", other, name)
				}
			}
			rest := slices.Delete(slices.Clone(names), i, i+1)
			without := mayGrant(ctx, "without-"+strings.ToLower(strings.ReplaceAll(string(name), ":", "-")), rest...)
			Eventually(ctx, func() error { return tries(ctx, without, o, compatibility(entry(without.name, string(rest[0])))) }).Should(Succeed())
			Expect(grant(without)).To(beRefusedBy(policy, "may not grant "+string(name)+":"), string(name))
		}
	})

	It("isn't granted by a right in one namespace, or by a right to a capability", func(ctx SpecContext) {
		o := legacyInstallation(ctx)
		who := mayGrant(ctx, "local@example.com", allCapabilities()...)
		create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "local", Namespace: payments},
			RoleRef:    clusterRole("plugin-host-compatibility-approver"), Subjects: []rbacv1.Subject{user(who.name)},
		})
		Eventually(ctx, func() error { return tries(ctx, who, o, patch{"version": "2.0.0"}) }).Should(Succeed())
		for _, name := range compatibilityNames() {
			Expect(tries(ctx, who, o, compatibility(entry(who.name, string(name))))).To(beRefusedBy(policy, "may not grant "+string(name)+":"))
		}
	})

	It("names who grants", func(ctx SpecContext) {
		o := legacyInstallation(ctx)
		for _, name := range compatibilityNames() {
			e := entry(ada.name, string(name))
			Expect(tries(ctx, ada, o, compatibility(with(e, "approvedBy", grace.name)))).To(beRefusedBy(policy, "approvedBy must be "+ada.name))
			Expect(tries(ctx, ada, o, compatibility(with(e, "approvedVia", flux.name)))).To(beRefusedBy(policy, "approvedVia absent"))
			claimed := with(entry("linus@example.com", string(name)), "approvedVia", flux.name)
			Expect(tries(ctx, flux, o, compatibility(claimed))).To(Succeed(), string(name))
			for field, values := range map[string][]any{
				"approvedVia": {nil, pipeline.name, ada.name}, "approvedBy": {flux.name, pipeline.name, bot.name, "system:admin"},
			} {
				for _, value := range values {
					Expect(tries(ctx, flux, o, compatibility(with(claimed, field, value)))).To(
						beRefusedBy(policy, "approvedVia must be "+flux.name), "%s %v", field, value)
				}
			}
		}
	})

	It("is granted anew by any change of an entry", func(ctx SpecContext) {
		o, all := compatible(ctx)
		for i := range all {
			for field, value := range map[string]any{
				"installationID": "00000000-0000-4000-8000-000000000000", "approvedBy": dora.name, "approvedVia": "somebody", "reason": "other",
			} {
				changed := slices.Clone(all)
				changed[i] = with(all[i], field, value)
				Expect(tries(ctx, dora, o, compatibility(changed...))).To(beRefusedBy(policy), "%s of %v", field, all[i]["resource"])
				if field == "installationID" || field == "reason" {
					Expect(tries(ctx, ada, o, compatibility(changed...))).To(Succeed(), "%s of %v", field, all[i]["resource"])
					Expect(tries(ctx, grace, o, compatibility(changed...))).To(
						beRefusedBy(policy, "approvedBy must be "+grace.name), "another's grant under their name")
				}
				changed[i] = with(with(all[i], field, value), "approvedBy", dora.name)
				changed[i] = with(changed[i], "approvedVia", nil)
				Expect(tries(ctx, dora, o, compatibility(changed...))).To(beRefusedBy(policy, "may not grant"), "%s of %v", field, all[i]["resource"])
			}
		}
	})

	It("stays as it is through an upgrade by who may not grant it", func(ctx SpecContext) {
		o, all := compatible(ctx)
		reordered := slices.Clone(all)
		slices.Reverse(reordered)
		for _, spec := range []patch{
			{"version": "2.0.0"}, {"suspend": true}, {"config": patch{"a": int64(1)}}, compatibility(all...), compatibility(reordered...),
			change{spec: patch{"version": "2.0.0"}}.and(compatibility(all...)),
		} {
			Expect(tries(ctx, dora, o, spec)).To(Succeed(), "%v", spec)
		}
	})

	It("is taken away by anybody, with nothing else", func(ctx SpecContext) {
		o, all := compatible(ctx)
		for _, who := range everybody() {
			for i := range all {
				rest := slices.Delete(slices.Clone(all), i, i+1)
				Expect(tries(ctx, who, o, compatibility(rest...))).To(Succeed(), "%v by %s", all[i]["resource"], who.name)
				suspended := change{spec: patch{"suspend": true}}.and(compatibility(rest...))
				Expect(tries(ctx, who, o, suspended)).To(Succeed(), who.name)
			}
			Expect(tries(ctx, who, o, patch{"compatibility": nil})).To(Succeed(), who.name)
			Expect(tries(ctx, who, o, compatibility())).To(Succeed(), who.name)
		}
		for _, who := range machines() {
			for _, spec := range []patch{{"version": "2.0.0"}, {"config": patch{"a": "b"}}, {"manifest": patch{"configSchema": patch{"a": "b"}}}} {
				Expect(tries(ctx, who, o, change{spec: spec}.and(patch{"compatibility": nil}))).To(beRefusedBy(policy, "may only suspend"), "%v", spec)
			}
		}
		Expect(edits(ctx, administrator, o, patch{"suspend": true})).To(Succeed())
		Expect(tries(ctx, bot, o, patch{"compatibility": nil, "suspend": false})).To(beRefusedBy(policy, "may only suspend"))
	})

	It("is granted at creation like later", func(ctx SpecContext) {
		created := func(by string) *v1alpha1.PluginInstallation {
			o := installation()
			o.Spec.Manifest.Legacy = &v1alpha1.LegacyManifest{APIWrite: v1alpha1.LegacyWriteResources()}
			grant := v1alpha1.CompatibilityGrant{InstallationID: someID, ApprovedBy: by}
			o.Spec.Compatibility = &v1alpha1.Compatibility{
				LegacyWriters: []v1alpha1.LegacyWriter{{Resource: "tasks", CompatibilityGrant: grant}}, ImplicitExpectNone: &grant,
			}
			return o
		}
		Expect(ada.Create(ctx, created(ada.name), client.DryRunAll)).To(Succeed())
		Expect(dora.Create(ctx, created(dora.name), client.DryRunAll)).To(beRefusedBy(policy, "may not grant legacy.write:tasks"))
		Expect(ada.Create(ctx, created(grace.name), client.DryRunAll)).To(beRefusedBy(policy, "approvedBy must be "+ada.name))
		Expect(flux.Create(ctx, created("linus@example.com"), client.DryRunAll)).To(beRefusedBy(policy, "approvedVia must be"))
	})

	It("never waits for its declaration", func(ctx SpecContext) {
		o, all := compatible(ctx)
		less := patch{"manifest": patch{"legacy": patch{"apiWrite": []any{"tasks", "messages"}}}}
		Expect(tries(ctx, ada, o, less)).To(beRefusedBySchema("spec.compatibility.legacyWriters"))
		Expect(tries(ctx, ada, o, patch{"manifest": patch{"legacy": nil}})).To(beRefusedBySchema("spec.compatibility.legacyWriters"))
		kept := slices.DeleteFunc(slices.Clone(all), func(e patch) bool { return e["resource"] == "interactions" })
		Expect(tries(ctx, dora, o, change{spec: less}.and(compatibility(kept...)))).To(Succeed(), "an upgrade takes both away")
	})
})
