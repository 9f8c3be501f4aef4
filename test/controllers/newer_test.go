package controllers_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
)

// withNewerSchema adds an ID to the enums of capabilities, as the CRDs of a newer
// release have it, for the rest of the spec.
func withNewerSchema(ctx SpecContext, id string) {
	GinkgoHelper()
	for _, name := range []string{"plugininstallations", "plugincapabilityapprovals"} {
		key := client.ObjectKey{Name: name + "." + v1alpha1.GroupVersion.Group}
		var crd apiextensionsv1.CustomResourceDefinition
		Expect(api.Get(ctx, key, &crd)).To(Succeed())
		before := crd.DeepCopy().Spec
		schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		relax(schema, apiextensionsv1.JSON{Raw: []byte(`"` + id + `"`)})
		Expect(api.Update(ctx, &crd)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(api.Get(ctx, key, &crd)).To(Succeed())
			crd.Spec = before
			Expect(api.Update(ctx, &crd)).To(Succeed())
		})
	}
}

// withNewerPolicy lets the admission policy know an ID, as that of a newer release
// does, for the rest of the spec.
func withNewerPolicy(ctx SpecContext, id string) {
	GinkgoHelper()
	restorePolicies()
	policy, _ := policyAndBinding(v1alpha1.PolicyApprovals)
	Expect(api.Get(ctx, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
	for i := range policy.Spec.Variables {
		if v := &policy.Spec.Variables[i]; v.Name == "unknown" {
			v.Expression = strings.Replace(v.Expression, "[\n", "['"+id+"',\n", 1)
			Expect(v.Expression).To(ContainSubstring(id))
		}
	}
	Expect(api.Update(ctx, policy)).To(Succeed())
}

// relax adds value to every enum that has a capability ID.
func relax(schema *apiextensionsv1.JSONSchemaProps, value apiextensionsv1.JSON) {
	for _, known := range schema.Enum {
		if string(known.Raw) == `"`+string(readTasks)+`"` {
			schema.Enum = append(schema.Enum, value)
			break
		}
	}
	if schema.Items != nil {
		relax(schema.Items.Schema, value)
	}
	for name, property := range schema.Properties {
		relax(&property, value)
		schema.Properties[name] = property
	}
}

var _ = Describe("I6: a capability that only a newer release knows", func() {
	const newer = v1alpha1.CapabilityID("host.v2.write:everything")

	It("is granted to nobody and told by name, in an approval and in a manifest", func(ctx SpecContext) {
		withNewerPolicy(ctx, string(newer))
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		withNewerSchema(ctx, string(newer))
		spec := s.spec(ctx, writeTasks, newer)
		Eventually(func() error {
			o := &approval{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.plugin}, Spec: spec}
			return api.Create(ctx, o, client.DryRunAll)
		}).Should(Succeed(), "the schema takes effect")
		s.apply(ctx, spec)
		o := s.converged(ctx, h, active)
		Expect(o.Status.EffectiveCapabilities).To(ConsistOf(writeTasks))
		Expect(o.Status.InactiveCapabilities).To(ContainElement(
			v1alpha1.InactiveCapability{ID: string(newer), Reason: v1alpha1.InactiveUnknown}))
		s.allowed(ctx, h)

		By("a manifest that declares it")
		s.editInstallation(ctx, func(o *installation) { o.Spec.Manifest = manifest(readTasks, writeTasks, newer) })
		s.settled(ctx, gated(v1alpha1.GateHostVersionUnsupported))
		s.refused(ctx, h, s.key(ctx), contract.ReasonHostVersionUnsupported)
		Eventually(func(g Gomega) {
			o := s.installation(ctx)
			rejected(g, o, v1alpha1.ReasonUnknownCapability)
			g.Expect(says(o.Status.Conditions, v1alpha1.ConditionAccepted)).To(ContainSubstring(string(newer)))
		}).Should(Succeed())
		patch := []byte(`{"spec":{"state":"Revoked"}}`)
		Expect(api.Patch(ctx, s.approval(ctx), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
		s.settled(ctx, revoked)

		By("the objects gone, before the older schema comes back")
		s.remove(ctx)
		Expect(api.Delete(ctx, s.installation(ctx))).To(Succeed())
	})
})
