package admission_test

import (
	"context"
	"strings"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

func namespaceWith(labels, annotations map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: uniqueName(), Labels: labels, Annotations: annotations}}
}

func workspace(id string) map[string]string { return map[string]string{v1alpha1.LabelWorkspaceID: id} }

func rebindFrom(uid string) map[string]string {
	return map[string]string{v1alpha1.AnnotationRebindFrom: uid}
}

// labelling are the ways to change a namespace's metadata: its subresources let
// one, too.
func labelling() map[string]func(ctx context.Context, who person, n *corev1.Namespace, metadata patch) error {
	subresource := func(name string) func(context.Context, person, *corev1.Namespace, patch) error {
		return func(ctx context.Context, who person, n *corev1.Namespace, metadata patch) error {
			return who.SubResource(name).Patch(ctx, n.DeepCopy(), merge(patch{"metadata": metadata}),
				&client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}})
		}
	}
	return map[string]func(context.Context, person, *corev1.Namespace, patch) error{
		"namespaces": func(ctx context.Context, who person, n *corev1.Namespace, metadata patch) error {
			return sends(ctx, who, n, patch{"metadata": metadata}, client.DryRunAll)
		},
		"namespaces/status": subresource("status"),
		// Its endpoint takes no patch.
		"namespaces/finalize": func(ctx context.Context, who person, n *corev1.Namespace, metadata patch) error {
			n = n.DeepCopy()
			n.Labels, n.Annotations = edited(n.Labels, metadata["labels"]), edited(n.Annotations, metadata["annotations"])
			return who.SubResource("finalize").Update(ctx, n,
				&client.SubResourceUpdateOptions{UpdateOptions: client.UpdateOptions{DryRun: []string{metav1.DryRunAll}}})
		},
	}
}

func edited(before map[string]string, changes any) map[string]string {
	after := map[string]string{}
	for key, value := range before {
		after[key] = value
	}
	fields, _ := changes.(patch)
	for key, value := range fields {
		if text, set := value.(string); set {
			after[key] = text
		} else {
			delete(after, key)
		}
	}
	return after
}

var _ = Describe("a workspace", func() {
	label := func(id any) patch { return patch{"labels": patch{v1alpha1.LabelWorkspaceID: id}} }
	annotation := func(uid any) patch { return patch{"annotations": patch{v1alpha1.AnnotationRebindFrom: uid}} }

	It("is bound by who may bind it, whichever way they write", func(ctx SpecContext) {
		plain, bound := namespaceWith(nil, nil), namespaceWith(workspace("billing"), nil)
		create(ctx, plain)
		create(ctx, bound)
		for name, write := range labelling() {
			for _, who := range []person{ada, grace, administrator, flux} {
				Expect(write(ctx, who, plain, label("billing"))).To(Succeed(), "%s by %s", name, who.name)
				Expect(write(ctx, who, bound, label("shipping"))).To(Succeed(), "%s by %s", name, who.name)
				Expect(write(ctx, who, bound, annotation(uuid.NewString()))).To(Succeed(), "%s by %s", name, who.name)
			}
			Expect(write(ctx, dora, plain, label("billing"))).To(beRefusedBy(v1alpha1.PolicyWorkspaces, dora.name+" may not bind the workspace billing"), name)
			Expect(write(ctx, dora, bound, label("shipping"))).To(beRefusedBy(v1alpha1.PolicyWorkspaces, "may not bind the workspace shipping"), name)
			Expect(write(ctx, dora, bound, annotation(uuid.NewString()))).To(beRefusedBy(v1alpha1.PolicyWorkspaces, "may not bind the workspace billing"), name)
			for _, who := range machines() {
				Expect(write(ctx, who, plain, label("billing"))).To(beRefusedBy(v1alpha1.PolicyWorkspaces, who.name+" may not set"), name)
				Expect(write(ctx, who, bound, annotation(uuid.NewString()))).To(beRefusedBy(v1alpha1.PolicyWorkspaces, who.name+" may not set"), name)
			}
		}
	})

	It("is bound at creation by who may bind it", func(ctx SpecContext) {
		for _, who := range []person{ada, grace, administrator, flux} {
			Expect(who.Create(ctx, namespaceWith(workspace("billing"), nil), client.DryRunAll)).To(Succeed(), who.name)
		}
		Expect(dora.Create(ctx, namespaceWith(workspace("billing"), nil), client.DryRunAll)).To(
			beRefusedBy(v1alpha1.PolicyWorkspaces, "may not bind the workspace billing"))
		for _, who := range machines() {
			Expect(who.Create(ctx, namespaceWith(workspace("billing"), nil), client.DryRunAll)).To(
				beRefusedBy(v1alpha1.PolicyWorkspaces, who.name+" may not set"))
		}
	})

	It("is left by anybody, and other namespaces are nobody's business", func(ctx SpecContext) {
		bound := namespaceWith(workspace("billing"), rebindFrom(uuid.NewString()))
		create(ctx, bound)
		for _, who := range everybody() {
			for name, write := range labelling() {
				Expect(write(ctx, who, bound, label(nil))).To(Succeed(), "%s by %s", name, who.name)
				Expect(write(ctx, who, bound, annotation(nil))).To(Succeed(), "%s by %s", name, who.name)
				Expect(write(ctx, who, bound, patch{"labels": patch{"team": "billing"}})).To(Succeed(), "%s by %s", name, who.name)
			}
			Expect(who.Update(ctx, bound.DeepCopy(), client.DryRunAll)).To(Succeed(), who.name)
			Expect(who.Delete(ctx, bound, client.DryRunAll)).To(Succeed(), who.name)
			Expect(who.Create(ctx, namespaceWith(map[string]string{"team": "billing"}, nil), client.DryRunAll)).To(Succeed(), who.name)
		}
	})

	It("has an ID that a namespace could have as its name", func(ctx SpecContext) {
		for _, id := range []string{"b", "billing-2", strings.Repeat("b", 63)} {
			Expect(ada.Create(ctx, namespaceWith(workspace(id), nil), client.DryRunAll)).To(Succeed(), id)
		}
		for _, id := range []string{"Billing", "billing.eu", "bill_ing", "B"} {
			Expect(ada.Create(ctx, namespaceWith(workspace(id), nil), client.DryRunAll)).To(
				beRefusedBy(v1alpha1.PolicyWorkspaces, "must be a workspace ID", id))
		}
		Expect(ada.Create(ctx, namespaceWith(nil, rebindFrom(uuid.NewString())), client.DryRunAll)).To(
			beRefusedBy(v1alpha1.PolicyWorkspaces, v1alpha1.AnnotationRebindFrom+" needs it"), "nobody says what to bind")
	})

	It("is bound by its name, and in the whole cluster only", func(ctx SpecContext) {
		plain := namespaceWith(nil, nil)
		create(ctx, plain)
		// Who holds bind in a namespace could else take any workspace into it.
		create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "binders", Namespace: plain.Name},
			RoleRef:    clusterRole("plugin-host-workspace-binder"), Subjects: []rbacv1.Subject{user("owner@example.com")},
		})
		create(ctx, &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "test-binds-billing"},
			Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{v1alpha1.ResourceWorkspaces},
				ResourceNames: []string{"billing"}, Verbs: []string{v1alpha1.VerbBind},
			}},
		})
		owner := human("owner@example.com")
		Eventually(ctx, func() error {
			return sends(ctx, owner, plain, patch{"metadata": patch{"labels": patch{"team": "billing"}}}, client.DryRunAll)
		}).Should(Succeed())
		Expect(sends(ctx, owner, plain, patch{"metadata": label("billing")}, client.DryRunAll)).To(
			beRefusedBy(v1alpha1.PolicyWorkspaces, "may not bind the workspace billing", "in the whole cluster"))

		create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "test-binds-billing"}, RoleRef: clusterRole("test-binds-billing"),
			Subjects: []rbacv1.Subject{user("owner@example.com")},
		})
		Eventually(ctx, func() error {
			return sends(ctx, owner, plain, patch{"metadata": label("billing")}, client.DryRunAll)
		}).Should(Succeed())
		Expect(sends(ctx, owner, plain, patch{"metadata": label("shipping")}, client.DryRunAll)).To(
			beRefusedBy(v1alpha1.PolicyWorkspaces, "may not bind the workspace shipping"))
	})
})

var _ = Describe("the cluster's own work", func() {
	It("deletes a workspace with its approvals, and collects what an owner leaves", func(ctx SpecContext) {
		owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: uniqueName(), Namespace: payments}}
		create(ctx, owner)
		owned := granted(ctx)
		reference := patch{
			"apiVersion": "v1", "kind": "ConfigMap", "name": owner.Name, "uid": string(owner.UID), "blockOwnerDeletion": true,
		}
		Expect(sends(ctx, ada, owned, patch{"metadata": patch{"ownerReferences": []any{reference}}})).To(Succeed())

		gone := namespaceWith(workspace("gone"), nil)
		Expect(ada.Create(ctx, gone)).To(Succeed())
		inside := approval(administrator.name)
		inside.Namespace = gone.Name
		Expect(administrator.Create(ctx, inside)).To(Succeed())
		Expect(administrator.Delete(ctx, gone)).To(Succeed())

		// In the foreground the collector takes its own finalizer away, by a patch.
		Expect(administrator.Delete(ctx, owner, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		for _, object := range []client.Object{owned, owner, inside, gone} {
			Eventually(ctx, func() error {
				return client.IgnoreNotFound(exists(ctx, object))
			}).Should(Succeed(), "%T", object)
			Eventually(ctx, func() error { return exists(ctx, object) }).ShouldNot(Succeed(), "%T", object)
		}
	})

	It("orphans what it is told to", func(ctx SpecContext) {
		owner := granted(ctx)
		dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: uniqueName(), Namespace: payments, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "PluginCapabilityApproval", Name: owner.Name, UID: owner.UID,
		}}}}
		create(ctx, dependent)
		Expect(administrator.Delete(ctx, owner, client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
		Eventually(ctx, func() error { return exists(ctx, owner) }).ShouldNot(Succeed(), "its finalizer goes")
		Expect(exists(ctx, dependent)).To(Succeed())
	})

	It("goes on for whatever isn't ours, with no plugin-host running", func(ctx SpecContext) {
		for _, who := range []person{bot, node, component} {
			Expect(who.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: uniqueName(), Namespace: payments}}, client.DryRunAll)).To(Succeed(), who.name)
			Expect(who.Create(ctx, namespaceWith(nil, nil), client.DryRunAll)).To(Succeed(), who.name)
		}
	})
})

func exists(ctx context.Context, object client.Object) error {
	copied, ok := object.DeepCopyObject().(client.Object)
	Expect(ok).To(BeTrue())
	return administrator.Get(ctx, client.ObjectKeyFromObject(object), copied)
}
