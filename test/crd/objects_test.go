package crd_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

const (
	userManager       = client.FieldOwner("git")
	controllerManager = client.FieldOwner("controllers")
)

var _ = Describe("the CRDs", func() {
	It("are applied client-side again without a change", func(ctx SpecContext) {
		out, err := kubectl(ctx, "", "apply", "--server-side=false", "-k", crdDir)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Count(out, " unchanged")).To(Equal(4), out)
	})

	It("warn of nothing when they are applied", func(ctx SpecContext) {
		out, err := kubectl(ctx, "", "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-k", crdDir)
		Expect(err).NotTo(HaveOccurred())
		Expect(out).NotTo(ContainSubstring("Warning"))
	})

	It("explain their fields", func(ctx SpecContext) {
		for path, text := range map[string]string{
			"pi.spec.pluginID":      "the package's own ID",
			"pca.spec.capabilities": "Example: `[host.v2.read:tasks",
			"pcae.spec.cause":       "ENUM:",
		} {
			Expect(kubectl(ctx, "", "explain", path)).To(ContainSubstring(text), path)
		}
	})
})

var _ = Describe("kubectl get", func() {
	columns := func(ctx context.Context, args ...string) []string {
		GinkgoHelper()
		out, err := kubectl(ctx, "", append([]string{"get"}, args...)...)
		Expect(err).NotTo(HaveOccurred())
		header, _, _ := strings.Cut(out, "\n")
		return regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(header), -1)
	}
	cells := func(ctx context.Context, args ...string) []string {
		GinkgoHelper()
		out, err := kubectl(ctx, "", append([]string{"get", "--no-headers"}, args...)...)
		Expect(err).NotTo(HaveOccurred())
		return regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(out), -1)
	}

	It("shows an installation", func(ctx SpecContext) {
		o := create(ctx, installation())
		id := uuid.NewString()
		Expect(editStatus(ctx, o, "status", document{"installationID": id, "conditions": []any{
			document{"type": "Ready", "status": "False", "reason": "Suspended", "message": "", "lastTransitionTime": "2027-01-01T00:00:00Z"},
		}})).To(Succeed())
		Expect(columns(ctx, "pi")).To(Equal([]string{"NAME", "PLUGIN", "VERSION", "READY", "AGE"}))
		Expect(columns(ctx, "pi", "-o", "wide")).To(Equal([]string{"NAME", "PLUGIN", "VERSION", "READY", "INSTALLATION ID", "AGE"}))
		Expect(cells(ctx, "pi", o.GetName(), "-o", "wide")).To(HaveExactElements(
			o.GetName(), "kandev.standup-notes", "1.4.0", "False", id, Not(BeEmpty())))
	})

	It("shows an approval", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		o := create(ctx, approval(namespace))
		Expect(editStatus(ctx, o, "status", document{"state": "Active", "revision": int64(17), "effectiveSummary": "2/5",
			"approvedBy": "ada@example.com", "act": "17-k3v7qa", "expiresAt": "2027-03-01T08:00:00.000000Z", "conditions": []any{
				document{"type": "Ready", "status": "False", "reason": "Suspended", "message": "", "lastTransitionTime": "2027-01-01T00:00:00Z"},
			}})).To(Succeed())
		Expect(columns(ctx, "pca", "-A")).To(Equal([]string{
			"NAMESPACE", "NAME", "WORKSPACE", "PLUGIN", "STATE", "REVISION", "EFFECTIVE", "APPROVED BY", "AGE"}))
		Expect(columns(ctx, "pca", "-n", namespace, "-o", "wide")).To(Equal([]string{
			"NAME", "WORKSPACE", "PLUGIN", "STATE", "REVISION", "EFFECTIVE", "APPROVED BY", "WHY", "ACT", "EXPIRES", "AGE"}))
		Expect(cells(ctx, "pca", "-n", namespace, "-o", "wide")).To(HaveExactElements(
			o.GetName(), "payments", o.GetName(), "Active", "17", "2/5", "ada@example.com", "Suspended", "17-k3v7qa",
			"2027-03-01T08:00:00.000000Z", Not(BeEmpty())))
	})

	It("tells the events of a workspace as a story", func(ctx SpecContext) {
		workspace := "w-" + uuid.NewString()[:8]
		e := event()
		with(e, "spec.workspaceID", workspace)
		with(e, "metadata.name", e["spec"].(document)["installationID"].(string)+"."+workspace+".r2")
		o := create(ctx, with(e, "metadata.labels", document{v1alpha1.LabelWorkspaceID: workspace}))
		Expect(columns(ctx, "pcae")).To(Equal([]string{"NAME", "WORKSPACE", "PLUGIN", "REVISION", "TYPE", "CAUSE", "ACTOR", "AGE"}))
		Expect(cells(ctx, "pcae", "-l", v1alpha1.LabelWorkspaceID+"="+workspace)).To(HaveExactElements(
			o.GetName(), workspace, "standup", "2", "Grant", "Human", "ada@example.com", Not(BeEmpty())))
	})

	It("finds all of them by category", func(ctx SpecContext) {
		create(ctx, installation())
		create(ctx, approval(newNamespace(ctx)))
		create(ctx, event())
		Expect(kubectl(ctx, "", "get", "plugins", "-A", "-o", "name")).To(And(
			ContainSubstring("plugininstallation.plugins.kandev.ai/"),
			ContainSubstring("plugincapabilityapproval.plugins.kandev.ai/"),
			ContainSubstring("plugincapabilityapprovalevent.plugins.kandev.ai/"),
		))
	})
})

var _ = Describe("field selectors", func() {
	It("find approvals by installation, workspace and state", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		payments := create(ctx, approval(namespace))
		billing := create(ctx, with(approval(namespace), "spec.workspaceID", "billing"))
		Expect(editStatus(ctx, payments, "status.state", "Active")).To(Succeed())
		Expect(editStatus(ctx, billing, "status.state", "Revoked")).To(Succeed())

		find := func(field, value string) []string {
			GinkgoHelper()
			var list v1alpha1.PluginCapabilityApprovalList
			Expect(api.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{field: value})).To(Succeed())
			names := make([]string, len(list.Items))
			for i, item := range list.Items {
				names[i] = item.Name
			}
			return names
		}
		Expect(find("spec.installationName", payments.GetName())).To(ConsistOf(payments.GetName()))
		Expect(find("spec.workspaceID", "billing")).To(ConsistOf(billing.GetName()))
		Expect(find("status.state", "Revoked")).To(ConsistOf(billing.GetName()))
		Expect(find("status.state", "Expired")).To(BeEmpty())
	})

	It("find events by installation, workspace and type", func(ctx SpecContext) {
		grant := create(ctx, event())
		revoke := create(ctx, with(event(), "spec.type", "Revoke"))
		id, _, err := unstructured.NestedString(revoke.Object, "spec", "installationID")
		Expect(err).NotTo(HaveOccurred())

		find := func(fields client.MatchingFields) []string {
			GinkgoHelper()
			var list v1alpha1.PluginCapabilityApprovalEventList
			Expect(api.List(ctx, &list, fields)).To(Succeed())
			names := make([]string, len(list.Items))
			for i, item := range list.Items {
				names[i] = item.Name
			}
			return names
		}
		Expect(find(client.MatchingFields{"spec.installationID": id})).To(ConsistOf(revoke.GetName()))
		Expect(find(client.MatchingFields{"spec.type": "Grant"})).To(And(ContainElement(grant.GetName()), Not(ContainElement(revoke.GetName()))))
		Expect(find(client.MatchingFields{"spec.workspaceID": "payments"})).To(ContainElements(grant.GetName(), revoke.GetName()))
		Expect(find(client.MatchingFields{"spec.workspaceID": "billing"})).To(BeEmpty())
	})
})

var _ = Describe("server-side apply", func() {
	apply := func(ctx context.Context, d document, owner client.FieldOwner) *unstructured.Unstructured {
		GinkgoHelper()
		o := object(d).DeepCopy()
		Expect(api.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), owner)).To(Succeed())
		return o
	}
	// status as controllers apply it: the typed object, without a spec.
	applyStatus := func(ctx context.Context, typed client.Object) *unstructured.Unstructured {
		GinkgoHelper()
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		Expect(err).NotTo(HaveOccurred())
		Expect(fields).NotTo(HaveKey("spec"), "an object without a spec must not claim one")
		o := object(fields)
		Expect(api.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(o), controllerManager)).To(Succeed())
		return o
	}
	// ownedBy says which top-level fields a manager owns.
	ownedBy := func(o *unstructured.Unstructured, owner client.FieldOwner) string {
		var owned []string
		for _, entry := range o.GetManagedFields() {
			if entry.Manager == string(owner) {
				owned = append(owned, regexp.MustCompile(`^\{"(f:[a-z]+)"`).FindStringSubmatch(entry.FieldsV1.GetRawString())[1]+"/"+entry.Subresource)
			}
		}
		return strings.Join(owned, " ")
	}
	roundTrip := func(ctx context.Context, d document, typed client.Object) {
		GinkgoHelper()
		first := apply(ctx, d, userManager)
		DeferCleanup(func(ctx SpecContext) { Expect(api.Delete(ctx, first)).To(Succeed()) })
		Expect(apply(ctx, d, userManager).GetResourceVersion()).To(Equal(first.GetResourceVersion()), "the same manifest again")

		typed.SetName(first.GetName())
		typed.SetNamespace(first.GetNamespace())
		typed.GetObjectKind().SetGroupVersionKind(first.GroupVersionKind())
		observed := applyStatus(ctx, typed)
		Expect(observed.GetResourceVersion()).NotTo(Equal(first.GetResourceVersion()))
		Expect(observed.GetGeneration()).To(Equal(first.GetGeneration()), "status moves no generation")
		Expect(applyStatus(ctx, typed).GetResourceVersion()).To(Equal(observed.GetResourceVersion()), "the same status again")
		last := apply(ctx, d, userManager)
		Expect(last.GetResourceVersion()).To(Equal(observed.GetResourceVersion()), "the same manifest after the status")

		Expect(last.Object["spec"]).To(Equal(first.Object["spec"]))
		Expect(ownedBy(last, userManager)).To(Equal("f:spec/"))
		Expect(ownedBy(last, controllerManager)).To(Equal("f:status/status"))
	}
	now := metav1.NewTime(time.Date(2027, 1, 1, 8, 0, 0, 0, time.UTC))
	until := metav1.NewMicroTime(time.Date(2027, 3, 1, 8, 0, 0, 1000, time.UTC))
	ready := []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: 1,
		LastTransitionTime: now, Reason: v1alpha1.ReasonInForce}}

	It("round-trips an installation", func(ctx SpecContext) {
		d := installation()
		with(d, "spec.manifest.minHostVersion", "0.43.0")
		with(d, "spec.suspend", false)
		with(d, "spec.serviceAccountRef.acceptUID", uuid.NewString())
		roundTrip(ctx, d, &v1alpha1.PluginInstallation{Status: v1alpha1.PluginInstallationStatus{
			InstallationID: uuid.NewString(), ManifestDigest: digest('a'), ServiceAccountUID: "s", NamespaceUID: "n",
			WorkspaceCount: 1, ObservedGeneration: 1, Conditions: ready,
			Workspaces: []v1alpha1.InstallationWorkspace{{WorkspaceID: "payments", Namespace: "team-payments", Revision: 3,
				State: v1alpha1.StateRevoked}},
		}})
	})

	It("round-trips an approval", func(ctx SpecContext) {
		d := approval(newNamespace(ctx))
		with(d, "spec.expiresAt", "2027-03-01T08:00:00.5+01:00")
		with(d, "spec.reason", "why")
		roundTrip(ctx, d, &v1alpha1.PluginCapabilityApproval{Status: v1alpha1.PluginCapabilityApprovalStatus{
			Revision: 3, Act: "3-abcdef", State: v1alpha1.StateActive, ExpiresAt: &until,
			EffectiveCapabilities: []v1alpha1.CapabilityID{"host.v2.read:tasks"}, EffectiveSummary: "1/2",
			InactiveCapabilities: []v1alpha1.InactiveCapability{{ID: "host.v2.write:tasks", Reason: v1alpha1.InactiveNotDeclared}},
			Gates:                []v1alpha1.Gate{{Type: v1alpha1.GateSuspended, Message: "set spec.suspend to false"}},
			ManifestDigest:       digest('a'), HumanPolicyVersion: "builtin", ApprovedBy: "ada@example.com",
			IssuedAt: &now, UpdatedAt: &now, LastAuditID: "3d7e", ObservedGeneration: 1, Conditions: ready,
		}})
	})

	It("round-trips an event, typed and to the microsecond", func(ctx SpecContext) {
		id := uuid.NewString()
		written := v1alpha1.PluginCapabilityApprovalEvent{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s.payments.r1", id),
				Labels: map[string]string{v1alpha1.LabelInstallationID: id, v1alpha1.LabelWorkspaceID: "payments"}},
			Spec: v1alpha1.PluginCapabilityApprovalEventSpec{
				AuditID: "3d7e", Type: v1alpha1.EventRevoke, InstallationID: id, InstallationName: "standup", WorkspaceID: "payments",
				Revision: 1, ManifestDigest: digest('a'), BeforeManifestDigest: digest('b'),
				Granted: []v1alpha1.CapabilityID{"host.v2.write:tasks", "host.v2.read:tasks"}, State: v1alpha1.StateRevoked,
				ExpiresAt: &until, Gates: []v1alpha1.GateType{v1alpha1.GateSuspended}, Act: "1-abcdef",
				Actor: v1alpha1.Actor{Assurance: v1alpha1.AssuranceUnknown}, Cause: v1alpha1.CauseApprovalDeleted, Time: until,
				Hold: &v1alpha1.AppliedHold{State: v1alpha1.StateRevoked, Cause: v1alpha1.CauseApprovalDeleted, ExpiresAt: &until,
					Actor: v1alpha1.Actor{Assurance: v1alpha1.AssuranceUnknown}, UID: "u", Generation: 2, Spent: true},
				Vector: v1alpha1.AuthorityVector{InstallationUID: "i", Version: "1", ManifestDigest: digest('a'), Suspended: true,
					WorkspaceID: "payments"},
				Seen: v1alpha1.SeenVersion{UID: "u", Generation: 2}, HumanPolicyVersion: "builtin", Unproven: true,
				DecisionDigest: hex('c'), PreviousHash: hex('d'),
			},
		}
		sent := written.DeepCopy()
		Expect(api.Create(ctx, sent)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(api.Delete(ctx, sent)).To(Succeed()) })
		var read v1alpha1.PluginCapabilityApprovalEvent
		Expect(api.Get(ctx, client.ObjectKeyFromObject(sent), &read)).To(Succeed())
		// The decoder gives a time its local zone; instants are compared as text.
		want, err := yaml.Marshal(written.Spec)
		Expect(err).NotTo(HaveOccurred())
		Expect(yaml.Marshal(read.Spec)).To(MatchYAML(want))
		Expect(read.Spec.Time.Time).To(BeTemporally("==", until.Time))

		again := read.DeepCopy()
		Expect(api.Update(ctx, again)).To(Succeed())
		Expect(again.ResourceVersion).To(Equal(read.ResourceVersion), "an update with the same content")
	})

	It("gives the controllers no say in the spec and the user none in status", func(ctx SpecContext) {
		d := approval(newNamespace(ctx))
		o := create(ctx, d)
		claim := object(document{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(),
			"metadata": document{"name": o.GetName(), "namespace": o.GetNamespace()},
			"spec":     document{"state": "Revoked"}, "status": document{"revision": int64(1)}})
		Expect(api.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(claim.DeepCopy()), controllerManager)).To(Succeed())
		var read v1alpha1.PluginCapabilityApproval
		Expect(api.Get(ctx, client.ObjectKeyFromObject(o), &read)).To(Succeed())
		Expect(read.Spec.State).To(Equal(v1alpha1.StateActive))
		Expect(read.Status.Revision).To(BeEquivalentTo(1))
	})
})
