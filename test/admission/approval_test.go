package admission_test

import (
	"reflect"
	"slices"
	"strings"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

// A change of one field of an approval that grants tasks, read and write, until
// 2030. Of one that is revoked where so marked, or has no end.
type change struct {
	name    string
	spec    patch
	revoked bool
	endless bool
}

// narrowing is what anybody may do who may update the object.
func narrowing() []change {
	return []change{
		{name: "capabilities: one less", spec: patch{"capabilities": []any{readTasks}}},
		{name: "capabilities: none", spec: patch{"capabilities": []any{}}},
		{name: "capabilities: absent", spec: patch{"capabilities": nil}},
		{name: "capabilities: another order", spec: patch{"capabilities": []any{writeTasks, readTasks}}},
		{name: "state: revoked", spec: patch{"state": "Revoked"}},
		{name: "expiresAt: earlier", spec: patch{"expiresAt": "2029-12-31T23:59:59Z"}},
		{name: "expiresAt: the same instant, spelt otherwise", spec: patch{"expiresAt": "2030-01-01T01:00:00.000000+01:00"}},
		{name: "expiresAt: earlier, though it reads later", spec: patch{"expiresAt": "2030-01-01T00:30:00+01:00"}},
		{name: "expiresAt: where there was none", spec: patch{"expiresAt": "2035-01-01T00:00:00Z"}, endless: true},
		{name: "reason", spec: patch{"reason": "no longer needed"}},
		{name: "reason: absent", spec: patch{"reason": nil}},
	}
}

// granting is what takes the right to approve. Each keeps approvedBy: ada.
func granting() []change {
	return []change{
		{name: "capabilities: one more", spec: patch{"capabilities": []any{readTasks, writeTasks, readSessions}}},
		{name: "capabilities: one for another", spec: patch{"capabilities": []any{readTasks, readSessions}}},
		{name: "state: active again", spec: patch{"state": "Active"}, revoked: true},
		{name: "state: the default again", spec: patch{"state": nil}, revoked: true},
		{name: "expiresAt: later", spec: patch{"expiresAt": "2030-01-01T00:00:01Z"}},
		{name: "expiresAt: later, though it reads earlier", spec: patch{"expiresAt": "2029-12-31T23:30:00-01:00"}},
		{name: "expiresAt: absent", spec: patch{"expiresAt": nil}},
		{name: "installationID", spec: patch{"installationID": uuid.NewString()}},
		{name: "manifestDigest", spec: patch{"manifestDigest": digestOf("b")}},
		{name: "supersedesAct", spec: patch{"supersedesAct": "17-k3v7qa"}},
	}
}

// on is the approval that a change is about.
func (c change) on(ctx SpecContext) *v1alpha1.PluginCapabilityApproval {
	GinkgoHelper()
	return granted(ctx, func(a *v1alpha1.PluginCapabilityApproval) {
		a.Spec.ExpiresAt = until("2030-01-01T00:00:00Z")
		if c.endless {
			a.Spec.ExpiresAt = nil
		}
		if c.revoked {
			a.Spec.State = v1alpha1.StateRevoked
		}
	})
}

// and is both changes at once.
func (c change) and(spec patch) patch {
	both := patch{}
	for _, part := range []patch{c.spec, spec} {
		for field, value := range part {
			both[field] = value
		}
	}
	return both
}

var _ = Describe("the spec of an approval", func() {
	It("has no field that these tests leave out", func() {
		// Else a policy that doesn't look at a new field would let anybody change it.
		tested := map[string]bool{
			"approvedBy": true, "approvedVia": true, "confirmedBy": true, "changedBy": true,
			"installationName": true, "workspaceID": true, // immutable
		}
		for _, c := range slices.Concat(narrowing(), granting()) {
			for field := range c.spec {
				tested[field] = true
			}
		}
		Expect(tested).To(HaveLen(len(fieldsOf(v1alpha1.PluginCapabilityApprovalSpec{}))))
		for _, field := range fieldsOf(v1alpha1.PluginCapabilityApprovalSpec{}) {
			Expect(tested).To(HaveKey(field))
		}
	})

	It("can be narrowed by whoever may update it, machines included", func(ctx SpecContext) {
		for _, c := range narrowing() {
			a := c.on(ctx)
			for _, who := range everybody() {
				Expect(tries(ctx, who, a, c.spec)).To(Succeed(), "%s by %s", c.name, who.name)
				Expect(tries(ctx, who, a, c.and(patch{"changedBy": who.name}))).To(Succeed(), "%s by %s, who says so", c.name, who.name)
			}
		}
	})

	It("can be widened by who may approve, in their own name", func(ctx SpecContext) {
		for _, c := range granting() {
			a := c.on(ctx)
			Expect(tries(ctx, ada, a, c.spec)).To(Succeed(), c.name)
			for _, who := range []person{ada, grace, administrator} {
				Expect(tries(ctx, who, a, c.and(patch{"approvedBy": who.name}))).To(Succeed(), "%s by %s", c.name, who.name)
			}
			Expect(tries(ctx, flux, a, c.and(patch{"approvedVia": flux.name, "approvedBy": "linus@example.com"}))).To(Succeed(), c.name)
		}
	})

	It("can't be widened in another's name", func(ctx SpecContext) {
		for _, c := range granting() {
			a := c.on(ctx)
			Expect(tries(ctx, grace, a, c.spec)).To(beRefusedBy(v1alpha1.PolicyApprovals, "spec.approvedBy", grace.name), c.name)
			Expect(tries(ctx, administrator, a, c.and(patch{"approvedBy": "linus@example.com"}))).To(
				beRefusedBy(v1alpha1.PolicyApprovals, "spec.approvedBy", administrator.name), c.name)
			Expect(tries(ctx, flux, a, c.spec)).To(beRefusedBy(v1alpha1.PolicyApprovals, "spec.approvedVia"), c.name)
		}
	})

	It("can't be widened without the right to approve", func(ctx SpecContext) {
		for _, c := range granting() {
			a := c.on(ctx)
			Expect(tries(ctx, dora, a, c.and(patch{"approvedBy": dora.name}))).To(
				beRefusedBy(v1alpha1.PolicyApprovals, dora.name+" may not grant host.v2.", payments), c.name)
			Expect(tries(ctx, dora, a, c.spec)).To(beRefusedBy(v1alpha1.PolicyApprovals), c.name)
		}
	})

	It("can't be widened by a machine, whatever its rights and claims", func(ctx SpecContext) {
		for _, c := range granting() {
			a := c.on(ctx)
			for _, who := range machines() {
				for _, signature := range []patch{
					{}, {"approvedBy": who.name}, {"approvedVia": who.name}, {"approvedBy": "linus@example.com", "approvedVia": who.name},
					{"approvedBy": "linus@example.com", "approvedVia": flux.name},
				} {
					Expect(tries(ctx, who, a, c.and(signature))).To(
						beRefusedBy(v1alpha1.PolicyApprovals, who.name+" may only narrow"), "%s by %s", c.name, who.name)
				}
			}
		}
	})

	It("can't be widened by a machine that has a human's name", func(ctx SpecContext) {
		a := granted(ctx)
		for _, group := range []string{"system:serviceaccounts", "system:nodes", "system:unauthenticated"} {
			who := impersonated(ada.name, group, "system:authenticated")
			Expect(tries(ctx, who, a, patch{"manifestDigest": digestOf("b")})).To(beRefusedBy(v1alpha1.PolicyApprovals, "may only narrow"), group)
			Expect(tries(ctx, who, a, patch{"state": "Revoked"})).To(Succeed(), group)
		}
	})

	It("is narrowed by nothing that also widens", func(ctx SpecContext) {
		for _, less := range narrowing() {
			for _, more := range granting() {
				if sharesField(less, more) || less.endless {
					continue
				}
				a := change{revoked: more.revoked}.on(ctx)
				Expect(tries(ctx, dora, a, more.and(less.spec))).NotTo(Succeed(), "%s and %s", less.name, more.name)
				Expect(tries(ctx, bot, a, more.and(less.spec))).To(
					beRefusedBy(v1alpha1.PolicyApprovals), "%s and %s", less.name, more.name)
			}
		}
	})

	It("can be narrowed in several ways at once", func(ctx SpecContext) {
		for _, one := range narrowing() {
			for _, other := range narrowing() {
				if sharesField(one, other) || one.endless || other.endless {
					continue
				}
				Expect(tries(ctx, bot, one.on(ctx), one.and(other.spec))).To(Succeed(), "%s and %s", one.name, other.name)
			}
		}
	})

	It("is narrowed by nothing that touches a name", func(ctx SpecContext) {
		a := granted(ctx, func(a *v1alpha1.PluginCapabilityApproval) { a.Spec.ConfirmedBy = "" })
		for _, c := range narrowing() {
			if c.endless || c.spec["expiresAt"] != nil {
				continue
			}
			for _, signature := range []patch{
				{"approvedBy": "linus@example.com"}, {"approvedVia": flux.name}, {"confirmedBy": "linus@example.com"}, {"confirmedBy": dora.name},
			} {
				Expect(tries(ctx, dora, a, c.and(signature))).To(beRefusedBy(v1alpha1.PolicyApprovals), "%s and %v", c.name, signature)
			}
		}
	})

	It("names who narrowed, or nobody", func(ctx SpecContext) {
		a := granted(ctx)
		revoke := change{spec: patch{"state": "Revoked"}}
		for _, who := range everybody() {
			Expect(tries(ctx, who, a, revoke.and(patch{"changedBy": "linus@example.com"}))).To(
				beRefusedBy(v1alpha1.PolicyApprovals, "spec.changedBy", who.name), who.name)
		}
		Expect(tries(ctx, ada, a, patch{"capabilities": []any{readTasks, readSessions}, "changedBy": grace.name})).To(
			beRefusedBy(v1alpha1.PolicyApprovals, "spec.changedBy"), "in a grant")

		Expect(edits(ctx, bot, a, patch{"capabilities": []any{readTasks}, "changedBy": bot.name})).To(Succeed())
		Expect(tries(ctx, dora, a, patch{"state": "Revoked"})).To(Succeed(), "it stays what it was")
		Expect(tries(ctx, dora, a, patch{"state": "Revoked", "changedBy": ""})).To(Succeed(), "as in a manifest")
		Expect(tries(ctx, dora, a, patch{"state": "Revoked", "changedBy": nil})).To(Succeed())
	})

	It("keeps its immutable fields, for everybody", func(ctx SpecContext) {
		a := granted(ctx)
		for _, who := range everybody() {
			Expect(tries(ctx, who, a, patch{"workspaceID": "billing"})).To(beRefusedBySchema("spec.workspaceID"), who.name)
			Expect(tries(ctx, who, a, patch{"installationName": "other"})).To(beRefusedBySchema("spec.installationName"), who.name)
		}
	})

	It("has an end that is a time", func(ctx SpecContext) {
		a := granted(ctx, ends("2030-01-01T00:00:00Z"))
		for _, text := range []string{"2029-02-31T00:00:00Z", "2029-01-01T25:00:00Z", "2029-01-01 00:00:00Z", "1999-01-01T00:00:00Z", "never", ""} {
			for _, who := range []person{ada, dora} {
				Expect(tries(ctx, who, a, patch{"expiresAt": text})).To(beRefusedBySchema("spec.expiresAt"), text)
			}
		}
	})

	It("can list nothing without the right to approve, in one's own name", func(ctx SpecContext) {
		empty := approval(dora.name)
		empty.Spec.Capabilities = nil
		Expect(dora.Create(ctx, empty, client.DryRunAll)).To(Succeed())
		empty.Spec.State = v1alpha1.StateRevoked
		Expect(dora.Create(ctx, empty, client.DryRunAll)).To(Succeed())
		empty.Spec.ApprovedBy = ada.name
		Expect(dora.Create(ctx, empty, client.DryRunAll)).To(beRefusedBy(v1alpha1.PolicyApprovals, "spec.approvedBy"))

		revoked := approval(dora.name)
		revoked.Spec.State = v1alpha1.StateRevoked
		Expect(dora.Create(ctx, revoked, client.DryRunAll)).To(
			beRefusedBy(v1alpha1.PolicyApprovals, "may not grant "+string(readTasks)), "what it lists, it could get back")
	})
})

// how is one way to write.
type how struct {
	name  string
	write func(ctx SpecContext, who person, a *v1alpha1.PluginCapabilityApproval) error
}

// grants are the ways to give one capability more, signed by who writes.
func grants() []how {
	signed := func(who person) patch {
		spec := patch{"capabilities": []any{readTasks, writeTasks, readSessions}, "approvedBy": who.name}
		if who.name == flux.name {
			spec["approvedBy"], spec["approvedVia"] = "linus@example.com", flux.name
		}
		return spec
	}
	sign := func(who person, a *v1alpha1.PluginCapabilityApproval) {
		a.Spec.Capabilities = []v1alpha1.CapabilityID{readTasks, writeTasks, readSessions}
		a.Spec.ApprovedBy, a.Spec.ApprovedVia = who.name, ""
		if who.name == flux.name {
			a.Spec.ApprovedBy, a.Spec.ApprovedVia = "linus@example.com", flux.name
		}
	}
	return []how{
		{"create", func(ctx SpecContext, who person, _ *v1alpha1.PluginCapabilityApproval) error {
			other := approval("")
			sign(who, other)
			return who.Create(ctx, other, client.DryRunAll)
		}},
		{"apply a new one", func(ctx SpecContext, who person, _ *v1alpha1.PluginCapabilityApproval) error {
			other := approval("")
			sign(who, other)
			return applies(ctx, who, other)
		}},
		{"update", func(ctx SpecContext, who person, a *v1alpha1.PluginCapabilityApproval) error {
			sign(who, a)
			return who.Update(ctx, a, client.DryRunAll)
		}},
		{"merge patch", func(ctx SpecContext, who person, a *v1alpha1.PluginCapabilityApproval) error {
			return tries(ctx, who, a, signed(who))
		}},
		{"JSON patch", func(ctx SpecContext, who person, a *v1alpha1.PluginCapabilityApproval) error {
			operations := `[{"op": "add", "path": "/spec/capabilities/-", "value": "host.v2.read:sessions"}`
			for _, field := range []string{"approvedBy", "approvedVia"} {
				if value, ok := signed(who)[field].(string); ok {
					operations += `, {"op": "add", "path": "/spec/` + field + `", "value": "` + value + `"}`
				}
			}
			return who.Patch(ctx, a, client.RawPatch(types.JSONPatchType, []byte(operations+"]")), client.DryRunAll)
		}},
		{"apply", func(ctx SpecContext, who person, a *v1alpha1.PluginCapabilityApproval) error {
			sign(who, a)
			return applies(ctx, who, a)
		}},
	}
}

// applies tries a server-side apply, with force.
func applies(ctx SpecContext, who person, a *v1alpha1.PluginCapabilityApproval) error {
	a.ManagedFields, a.ResourceVersion, a.UID, a.Generation, a.CreationTimestamp = nil, "", "", 0, metav1.Time{}
	a.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PluginCapabilityApproval"}
	//nolint:staticcheck // the typed apply configuration that replaces it isn't generated for our kinds
	return who.Patch(ctx, a, client.Apply, client.FieldOwner("test"), client.ForceOwnership, client.DryRunAll)
}

// free are the writes that no policy ever refuses.
func free() []how {
	return []how{
		{"metadata alone", func(ctx SpecContext, who person, a *v1alpha1.PluginCapabilityApproval) error {
			return sends(ctx, who, a, patch{"metadata": patch{"labels": patch{"team": "payments"}, "finalizers": []any{"example.com/a"}}}, client.DryRunAll)
		}},
		{"the same again", func(ctx SpecContext, who person, a *v1alpha1.PluginCapabilityApproval) error {
			return who.Update(ctx, a, client.DryRunAll)
		}},
		{"the same status again", func(ctx SpecContext, who person, a *v1alpha1.PluginCapabilityApproval) error {
			return who.Status().Update(ctx, a, &client.SubResourceUpdateOptions{UpdateOptions: client.UpdateOptions{DryRun: []string{metav1.DryRunAll}}})
		}},
		{"delete", func(ctx SpecContext, who person, a *v1alpha1.PluginCapabilityApproval) error {
			return who.Delete(ctx, a, client.DryRunAll)
		}},
		{"delete a collection", func(ctx SpecContext, who person, a *v1alpha1.PluginCapabilityApproval) error {
			return who.DeleteAllOf(ctx, a, client.InNamespace(payments), client.DryRunAll)
		}},
		{"revoke by an update", func(ctx SpecContext, who person, a *v1alpha1.PluginCapabilityApproval) error {
			a.Spec.State = v1alpha1.StateRevoked
			return who.Update(ctx, a, client.DryRunAll)
		}},
		{"revoke by an apply", func(ctx SpecContext, who person, a *v1alpha1.PluginCapabilityApproval) error {
			a.Spec.State = v1alpha1.StateRevoked
			return applies(ctx, who, a)
		}},
	}
}

var _ = Describe("every way to write an approval", func() {
	It("is checked alike", func(ctx SpecContext) {
		a := granted(ctx)
		for _, who := range everybody() {
			var expected gomegatypes.GomegaMatcher
			switch who.name {
			case ada.name, grace.name, flux.name, administrator.name:
				expected = Succeed()
			case dora.name:
				expected = beRefusedBy(v1alpha1.PolicyApprovals, "may not grant")
			default:
				expected = beRefusedBy(v1alpha1.PolicyApprovals, "may only narrow")
			}
			for _, way := range grants() {
				Expect(way.write(ctx, who, a.DeepCopy())).To(expected, "%s by %s", way.name, who.name)
			}
			for _, way := range free() {
				Expect(way.write(ctx, who, a.DeepCopy())).To(Succeed(), "%s by %s", way.name, who.name)
			}
		}
	})

	It("stores what it lets pass", func(ctx SpecContext) {
		a := granted(ctx)
		Expect(edits(ctx, grace, a, patch{"capabilities": []any{readTasks, writeTasks, readSessions}, "approvedBy": grace.name})).To(Succeed())
		Expect(edits(ctx, bot, a, patch{"capabilities": []any{readTasks}})).To(Succeed())
		Expect(administrator.Get(ctx, client.ObjectKeyFromObject(a), a)).To(Succeed())
		Expect(a.Spec.ApprovedBy).To(Equal(grace.name))
		Expect(a.Spec.Capabilities).To(ConsistOf(readTasks))
		Expect(dora.Delete(ctx, a)).To(Succeed())
	})
})

func sharesField(one, other change) bool {
	for field := range one.spec {
		if _, both := other.spec[field]; both {
			return true
		}
	}
	return false
}

// fieldsOf are the JSON names of a struct's fields.
func fieldsOf(object any) []string {
	var names []string
	for i := range reflect.TypeOf(object).NumField() {
		name, _, _ := strings.Cut(reflect.TypeOf(object).Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}
