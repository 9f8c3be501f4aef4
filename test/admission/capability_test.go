package admission_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

// approverOf is a human who may write approvals, and grant the capabilities in
// payments: by one role with those names.
func approverOf(ctx context.Context, name string, ids ...v1alpha1.CapabilityID) person {
	GinkgoHelper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: payments}}
	role.Rules = []rbacv1.PolicyRule{{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"plugincapabilityapprovals"}, Verbs: []string{"create", "update", "patch"},
	}}
	if len(ids) > 0 {
		names := make([]string, len(ids))
		for i, id := range ids {
			names[i] = string(id)
		}
		role.Rules = append(role.Rules, rbacv1.PolicyRule{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{v1alpha1.ResourceCapabilities},
			ResourceNames: names, Verbs: []string{v1alpha1.VerbApprove},
		})
	}
	create(ctx, role)
	create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: payments},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: []rbacv1.Subject{user(name)},
	})
	return human(name)
}

// proposal is an approval of the capabilities by who writes it.
func proposal(who person, ids ...v1alpha1.CapabilityID) *v1alpha1.PluginCapabilityApproval {
	a := approval(who.name)
	a.Spec.Capabilities = ids
	return a
}

var _ = Describe("the right to approve", func() {
	It("is asked for every capability, all at once included, within the API server's budget", func(ctx SpecContext) {
		all := allCapabilities()
		Expect(ada.Create(ctx, proposal(ada, all...), client.DryRunAll)).To(Succeed())
		Expect(ada.Create(ctx, proposal(ada), client.DryRunAll)).To(Succeed())
		for _, id := range all {
			Expect(ada.Create(ctx, proposal(ada, id), client.DryRunAll)).To(Succeed(), string(id))
			Expect(dora.Create(ctx, proposal(dora, id), client.DryRunAll)).To(
				beRefusedBy(v1alpha1.PolicyApprovals, fmt.Sprintf("may not grant %s:", id)), string(id))
		}
	})

	It("is missed by its name, each alone", func(ctx SpecContext) {
		all := allCapabilities()
		for i, missing := range all {
			rest := slices.Delete(slices.Clone(all), i, i+1)
			who := approverOf(ctx, fmt.Sprintf("without-%d", i), rest...)
			Eventually(ctx, func() error { return who.Create(ctx, proposal(who, rest...), client.DryRunAll) }).Should(Succeed(), string(missing))
			Expect(who.Create(ctx, proposal(who, all...), client.DryRunAll)).To(
				beRefusedBy(v1alpha1.PolicyApprovals, fmt.Sprintf("may not grant %s:", missing)), string(missing))
		}
	})

	It("is no right to update, and update no right to approve", func(ctx SpecContext) {
		who := approverOf(ctx, "writer-only@example.com")
		a := granted(ctx)
		Eventually(ctx, func() error { return tries(ctx, who, a, patch{"state": "Revoked"}) }).Should(Succeed())
		Expect(tries(ctx, who, a, patch{"capabilities": []any{readTasks, writeTasks, readSessions}, "approvedBy": who.name})).To(
			beRefusedBy(v1alpha1.PolicyApprovals, "may not grant"))
	})

	It("is asked for the whole new list, not only for what is added", func(ctx SpecContext) {
		// Else who may grant one capability could move a grant of all to another plugin.
		who := approverOf(ctx, "lead@example.com", readTasks, readSessions)
		a := granted(ctx)
		for _, spec := range []patch{
			{"capabilities": []any{readTasks, writeTasks, readSessions}},
			{"manifestDigest": digestOf("b")},
			{"supersedesAct": "1-abcdef"},
		} {
			spec["approvedBy"] = who.name
			Eventually(ctx, func() error { return tries(ctx, who, a, spec) }).Should(
				beRefusedBy(v1alpha1.PolicyApprovals, "may not grant "+string(writeTasks)), "%v", spec)
		}
		Expect(tries(ctx, who, a, patch{"capabilities": []any{readTasks, readSessions}, "approvedBy": who.name})).To(Succeed())
	})

	It("holds in the namespace where it is given", func(ctx SpecContext) {
		elsewhere := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: uniqueName()}}
		create(ctx, elsewhere)
		for _, who := range []person{ada, grace} {
			a := proposal(who, readTasks)
			a.Namespace = elsewhere.Name
			Expect(who.Create(ctx, a, client.DryRunAll)).To(
				beRefusedBy(v1alpha1.PolicyApprovals, "in the namespace "+elsewhere.Name), who.name)
		}
		a := proposal(administrator, allCapabilities()...)
		a.Namespace = elsewhere.Name
		Expect(administrator.Create(ctx, a, client.DryRunAll)).To(Succeed(), "every verb everywhere includes approve")
	})

	It("is given for all capabilities by plugin-host-approver, for compatibility by its own role, and for none by any other", func() {
		files, err := os.ReadDir(configDir + "/rbac")
		Expect(err).NotTo(HaveOccurred())
		for _, file := range files {
			text, err := os.ReadFile(configDir + "/rbac/" + file.Name())
			Expect(err).NotTo(HaveOccurred())
			var named []v1alpha1.CapabilityID
			for _, object := range objects(text) {
				var role rbacv1.ClusterRole
				body, err := object.MarshalJSON()
				Expect(err).NotTo(HaveOccurred())
				Expect(yaml.Unmarshal(body, &role)).To(Succeed())
				for _, rule := range role.Rules {
					Expect(rule.Resources).NotTo(ContainElement("*"), file.Name())
					Expect(rule.Verbs).NotTo(ContainElement("*"), file.Name())
					if !slices.Contains(rule.Verbs, v1alpha1.VerbApprove) {
						continue
					}
					Expect(rule.Resources).To(ConsistOf(v1alpha1.ResourceCapabilities))
					for _, id := range rule.ResourceNames {
						named = append(named, v1alpha1.CapabilityID(id))
					}
				}
				for label := range role.Labels {
					Expect(label).NotTo(Or(HaveSuffix("aggregate-to-edit"), HaveSuffix("aggregate-to-admin")), file.Name())
				}
			}
			switch file.Name() {
			case "approver_role.yaml":
				Expect(named).To(ConsistOf(allCapabilities()))
			case "compatibility_approver_role.yaml":
				Expect(named).To(ConsistOf(compatibilityNames()))
			default:
				Expect(named).To(BeEmpty(), file.Name())
			}
		}
	})

	It("can be given for reading alone, as the reference shows", func(ctx SpecContext) {
		apply(ctx, []byte(documentedRole()))
		create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "read-leads", Namespace: payments},
			RoleRef:    clusterRole("plugin-read-approver"), Subjects: []rbacv1.Subject{user("read-lead@example.com")},
		})
		lead := human("read-lead@example.com")
		var reading, writing []v1alpha1.CapabilityID
		for _, id := range allCapabilities() {
			if strings.HasPrefix(string(id), "host.v2.read:") {
				reading = append(reading, id)
			} else {
				writing = append(writing, id)
			}
		}
		Eventually(ctx, func() error { return lead.Create(ctx, proposal(lead, reading...), client.DryRunAll) }).Should(Succeed())
		for _, id := range writing {
			Expect(lead.Create(ctx, proposal(lead, append(slices.Clone(reading), id)...), client.DryRunAll)).To(
				beRefusedBy(v1alpha1.PolicyApprovals, fmt.Sprintf("may not grant %s:", id)))
		}
	})
})

// documentedRole is the role in docs/reference/admission.md.
func documentedRole() string {
	GinkgoHelper()
	text, err := os.ReadFile("../../docs/reference/admission.md")
	Expect(err).NotTo(HaveOccurred())
	for _, block := range strings.Split(string(text), "```") {
		if role, found := strings.CutPrefix(block, "yaml\n"); found && strings.Contains(role, "plugin-read-approver") {
			return role
		}
	}
	Fail("docs/reference/admission.md shows no role plugin-read-approver")
	return ""
}

var _ = Describe("a capability that the policy doesn't know", func() {
	definition := func() *apiextensionsv1.CustomResourceDefinition {
		return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "plugincapabilityapprovals.plugins.kandev.ai"}}
	}
	// The definition of a later release, or one that somebody edited.
	loosen := func(ctx context.Context) {
		GinkgoHelper()
		crd := definition()
		Expect(administrator.Get(ctx, client.ObjectKeyFromObject(crd), crd)).To(Succeed())
		before := crd.DeepCopy()
		spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		list := spec.Properties["capabilities"]
		list.Items.Schema.Enum, list.Items.Schema.Pattern = nil, ""
		Expect(administrator.Update(ctx, crd)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			crd := definition()
			Expect(administrator.Get(ctx, client.ObjectKeyFromObject(crd), crd)).To(Succeed())
			crd.Spec = before.Spec
			Expect(administrator.Update(ctx, crd)).To(Succeed())
			Eventually(ctx, func() error {
				return administrator.Create(ctx, proposal(administrator, "host.v2.read:merge"), client.DryRunAll)
			}).Should(
				beRefusedBySchema("spec.capabilities"))
		})
	}

	It("is refused by the schema, and by the policy where the schema is another one", Serial, func(ctx SpecContext) {
		unknown := []v1alpha1.CapabilityID{
			"host.v2.write:merge", "host.v2.write:deploy", "host.v2.write:release", "host.v2.write:rewrite_history",
			"host.v2.write:cross_workspace", "host.v2.write:secret_scope_expand", "host.v2.read:invented", "host.v2.*", "*",
		}
		for _, id := range unknown {
			Expect(administrator.Create(ctx, proposal(administrator, id), client.DryRunAll)).To(beRefusedBySchema("spec.capabilities"), string(id))
		}
		loosen(ctx)
		for _, id := range unknown {
			Eventually(ctx, func() error {
				return administrator.Create(ctx, proposal(administrator, readTasks, id), client.DryRunAll)
			}).Should(
				beRefusedBy(v1alpha1.PolicyApprovals, "no plugin can be granted "+string(id)+": it is reserved for humans, or newer than this policy"), string(id))
		}
	})
})
