package admission_test

import (
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

// unsigned is an approval without a name: no client of ours would send it so.
func unsigned(signature patch, ids ...v1alpha1.CapabilityID) *unstructured.Unstructured {
	GinkgoHelper()
	typed := approval("")
	typed.Spec.Capabilities = ids
	body, err := json.Marshal(typed)
	Expect(err).NotTo(HaveOccurred())
	a := &unstructured.Unstructured{}
	Expect(json.Unmarshal(body, &a.Object)).To(Succeed())
	a.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("PluginCapabilityApproval"))
	unstructured.RemoveNestedField(a.Object, "spec", "approvedBy")
	unstructured.RemoveNestedField(a.Object, "status")
	for field, value := range signature {
		Expect(unstructured.SetNestedField(a.Object, value, "spec", field)).To(Succeed())
	}
	return a
}

func approverNamed(a *unstructured.Unstructured) string {
	GinkgoHelper()
	name, _, err := unstructured.NestedString(a.Object, "spec", "approvedBy")
	Expect(err).NotTo(HaveOccurred())
	return name
}

var _ = Describe("the approver's name", Ordered, Serial, func() {
	BeforeAll(func(ctx SpecContext) {
		for _, object := range objects(overlay("mutating")) {
			if !strings.HasPrefix(object.GetKind(), "Mutating") {
				continue
			}
			Expect(administrator.Create(ctx, object)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(administrator.Delete(ctx, object)).To(Succeed()) })
		}
		Eventually(ctx, func() error { return ada.Create(ctx, unsigned(nil, readTasks), client.DryRunAll) }).Should(Succeed())
	})

	It("is filled in with who the API server says that it is, and stored", func(ctx SpecContext) {
		var self authenticationv1.SelfSubjectReview
		Expect(administrator.Create(ctx, &self)).To(Succeed())
		for name, who := range map[string]person{
			ada.name: ada, grace.name: grace, // as with kubectl --as
			self.Status.UserInfo.Username: administrator, // by a certificate
		} {
			a := unsigned(nil, allCapabilities()...)
			Expect(who.Create(ctx, a)).To(Succeed(), name)
			Expect(approverNamed(a)).To(Equal(name))
			Expect(administrator.Delete(ctx, a)).To(Succeed())
		}
	})

	It("is filled in by a server-side apply, which stays free of drift", func(ctx SpecContext) {
		a := unsigned(nil, readTasks)
		applied := func(ids ...any) *unstructured.Unstructured {
			again := &unstructured.Unstructured{Object: a.DeepCopy().Object}
			for _, field := range []string{"managedFields", "resourceVersion", "uid", "generation", "creationTimestamp"} {
				unstructured.RemoveNestedField(again.Object, "metadata", field)
			}
			Expect(unstructured.SetNestedSlice(again.Object, ids, "spec", "capabilities")).To(Succeed())
			return again
		}
		first := applied(string(readTasks))
		Expect(ada.Apply(ctx, client.ApplyConfigurationFromUnstructured(first), client.FieldOwner("kubectl"))).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(administrator.Delete(ctx, a)).To(Succeed()) })
		Expect(administrator.Get(ctx, client.ObjectKeyFromObject(a), a)).To(Succeed())
		Expect(approverNamed(a)).To(Equal(ada.name))
		generation := a.GetGeneration()

		unstructured.RemoveNestedField(a.Object, "spec", "approvedBy")
		Expect(ada.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied(string(readTasks))), client.FieldOwner("kubectl"))).To(Succeed())
		Expect(administrator.Get(ctx, client.ObjectKeyFromObject(a), a)).To(Succeed())
		Expect(approverNamed(a)).To(Equal(ada.name))
		Expect(a.GetGeneration()).To(Equal(generation), "applied again without a change")
	})

	It("stays what was written", func(ctx SpecContext) {
		a := unsigned(patch{"approvedBy": "linus@example.com"}, readTasks)
		Expect(ada.Create(ctx, a, client.DryRunAll)).To(beRefusedBy(v1alpha1.PolicyApprovals, "spec.approvedBy must be "+ada.name))
	})

	It("isn't filled in for machines and GitOps", func(ctx SpecContext) {
		for _, who := range append(machines(), flux, pipeline) {
			Expect(who.Create(ctx, unsigned(nil, readTasks), client.DryRunAll)).To(beRefusedBySchema("spec.approvedBy"), who.name)
		}
		Expect(flux.Create(ctx, unsigned(patch{"approvedVia": flux.name}, readTasks), client.DryRunAll)).To(beRefusedBySchema("spec.approvedBy"))
	})

	It("gives no right: what it fills in is checked", func(ctx SpecContext) {
		Expect(dora.Create(ctx, unsigned(nil, readTasks), client.DryRunAll)).To(beRefusedBy(v1alpha1.PolicyApprovals, "may not grant"))
	})

	It("doesn't change with a label, the reason, or a narrowing", func(ctx SpecContext) {
		a := granted(ctx)
		for _, whole := range []patch{
			{"metadata": patch{"labels": patch{"team": "payments"}}}, {"spec": patch{"reason": "another"}},
			{"spec": patch{"state": "Revoked"}}, {"spec": patch{"capabilities": []any{readTasks}}},
		} {
			Expect(sends(ctx, grace, a, whole)).To(Succeed(), "%v", whole)
			Expect(administrator.Get(ctx, client.ObjectKeyFromObject(a), a)).To(Succeed())
			Expect(a.Spec.ApprovedBy).To(Equal(ada.name), "%v", whole)
		}
		Expect(tries(ctx, grace, a, patch{"approvedBy": nil, "reason": "mine now"})).To(beRefusedBySchema("spec.approvedBy"))
		Expect(tries(ctx, grace, a, patch{"approvedBy": nil, "capabilities": []any{readTasks, readSessions}, "state": "Active"})).To(Succeed())
	})
})
