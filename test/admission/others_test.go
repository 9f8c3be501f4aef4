package admission_test

import (
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

var _ = Describe("an installation", func() {
	changes := []patch{
		{"pluginID": "kandev.other"}, {"version": "2.0.0"},
		{"manifest": patch{"capabilities": []any{patch{"id": writeTasks}}}}, {"manifest": patch{"minHostVersion": "0.43.0"}},
		{"manifest": patch{"legacy": patch{"apiRead": []any{"tasks"}}}}, {"manifest": patch{"configSchema": patch{"type": "object"}}},
		{"config": patch{"channel": patch{"name": "standup"}}}, {"secretRefs": []any{patch{"name": "token", "secretName": "tokens", "key": "token"}}},
		{"workload": patch{"image": "standup@sha256:1"}},
		{"serviceAccountRef": patch{"name": "other"}}, {"serviceAccountRef": patch{"namespace": "other"}},
		{"serviceAccountRef": patch{"acceptUID": "0d1c2f5e-7c55-4b0e-9a51-3f1f2a4c8b7d"}}, {"suspend": false},
	}
	immutable := func(spec patch) bool { _, is := spec["pluginID"]; return is }

	It("has no field that these tests leave out", func() {
		tested := map[string]bool{"compatibility": true} // by tests of its own
		for _, spec := range changes {
			for field := range spec {
				tested[field] = true
			}
		}
		for _, field := range fieldsOf(v1alpha1.PluginInstallationSpec{}) {
			Expect(tested).To(HaveKey(field), "and the policy has to know it")
		}
	})

	It("is written by people and GitOps, not by machines", func(ctx SpecContext) {
		suspended := installation()
		suspended.Spec.Suspend = true
		create(ctx, suspended)
		for _, who := range everybody() {
			refused := slices.ContainsFunc(machines(), func(m person) bool { return m.name == who.name })
			if refused {
				Expect(who.Create(ctx, installation(), client.DryRunAll)).To(beRefusedBy(v1alpha1.PolicyInstallations, who.name+" may only suspend"))
			} else {
				Expect(who.Create(ctx, installation(), client.DryRunAll)).To(Succeed(), who.name)
			}
			for _, spec := range changes {
				err := tries(ctx, who, suspended, spec)
				switch {
				case immutable(spec):
					Expect(err).To(beRefusedBySchema("spec.pluginID"))
				case refused:
					Expect(err).To(beRefusedBy(v1alpha1.PolicyInstallations, who.name+" may only suspend"), "%v", spec)
				default:
					Expect(err).To(Succeed(), "%v by %s", spec, who.name)
				}
			}
		}
	})

	It("is suspended by anybody, with nothing else", func(ctx SpecContext) {
		running := installation()
		create(ctx, running)
		for _, who := range everybody() {
			Expect(tries(ctx, who, running, patch{"suspend": true})).To(Succeed(), who.name)
		}
		for _, spec := range changes {
			if _, suspends := spec["suspend"]; suspends || immutable(spec) {
				continue
			}
			Expect(tries(ctx, bot, running, change{spec: spec}.and(patch{"suspend": true}))).To(
				beRefusedBy(v1alpha1.PolicyInstallations), "%v", spec)
		}
	})

	It("is deleted, labelled and written without a change by anybody", func(ctx SpecContext) {
		running := installation()
		create(ctx, running)
		for _, who := range everybody() {
			Expect(sends(ctx, who, running, patch{"metadata": patch{"finalizers": []any{"example.com/a"}}}, client.DryRunAll)).To(Succeed(), who.name)
			Expect(who.Update(ctx, running.DeepCopy(), client.DryRunAll)).To(Succeed(), who.name)
			Expect(who.Delete(ctx, running, client.DryRunAll)).To(Succeed(), who.name)
		}
	})
})

var _ = Describe("status", func() {
	It("is written by the controllers alone", func(ctx SpecContext) {
		a, running, tightened := granted(ctx), installation(), humanPolicy()
		create(ctx, running)
		create(ctx, tightened)
		written := map[client.Object]patch{
			a:         {"state": "Active", "revision": int64(7), "effectiveCapabilities": []any{readTasks}},
			running:   {"installationID": a.Spec.InstallationID},
			tightened: {"version": "1+x", "observedGeneration": int64(1)},
		}
		for object, status := range written {
			for _, who := range everybody() {
				copied, ok := object.DeepCopyObject().(client.Object)
				Expect(ok).To(BeTrue())
				err := who.Status().Patch(ctx, copied, merge(patch{"status": status}), &client.SubResourcePatchOptions{
					PatchOptions: client.PatchOptions{DryRun: []string{"All"}}})
				if who.name == controllers.name {
					Expect(err).NotTo(HaveOccurred())
				} else {
					Expect(err).To(beRefusedBy(v1alpha1.PolicyStatus, controllers.name+" alone, not by "+who.name))
				}
			}
		}
	})

	It("changes no decision for whoever may update it", func(ctx SpecContext) {
		// A status that anybody could write would show a grant that isn't there, or
		// take the act's name from the next human.
		a := granted(ctx)
		Expect(controllers.Status().Patch(ctx, a.DeepCopy(), merge(patch{"status": patch{"act": "1-abcdef", "revision": int64(1)}}))).To(Succeed())
		for _, status := range []any{patch{"act": ""}, patch{"revision": int64(9)}, patch{"state": "Active"}} {
			Expect(dora.Status().Patch(ctx, a.DeepCopy(), merge(patch{"status": status}))).To(beRefusedBy(v1alpha1.PolicyStatus))
			// The spec's endpoint ignores it, and the status's ignores the spec.
			Expect(sends(ctx, dora, a, patch{"status": status})).To(Succeed())
		}
		Expect(controllers.Status().Patch(ctx, a.DeepCopy(), merge(patch{"spec": patch{"capabilities": allCapabilities()}}))).To(Succeed())
		Expect(administrator.Get(ctx, client.ObjectKeyFromObject(a), a)).To(Succeed())
		Expect(a.Status.Act).To(Equal("1-abcdef"))
		Expect(a.Status.Revision).To(BeEquivalentTo(1))
		Expect(a.Spec.Capabilities).To(ConsistOf(readTasks, writeTasks))
	})
})

var _ = Describe("the history of authority", func() {
	It("is written and pruned by the controllers alone, and never changes", func(ctx SpecContext) {
		written := event()
		Expect(controllers.Create(ctx, written)).To(Succeed())
		for _, who := range everybody() {
			created := who.Create(ctx, event(), client.DryRunAll)
			deleted := who.Delete(ctx, written, client.DryRunAll)
			collection := who.DeleteAllOf(ctx, written, client.DryRunAll)
			for _, err := range []error{created, deleted, collection} {
				if who.name == controllers.name {
					Expect(err).NotTo(HaveOccurred())
				} else {
					Expect(err).To(beRefusedBy(v1alpha1.PolicyEvents, controllers.name+" alone, not by "+who.name))
				}
			}
			Expect(tries(ctx, who, written, patch{"reason": "better"})).NotTo(Succeed(), who.name)
			Expect(sends(ctx, who, written, patch{"metadata": patch{"labels": patch{v1alpha1.LabelWorkspaceID: "billing"}}}, client.DryRunAll)).To(
				beRefusedBy(v1alpha1.PolicyEvents, "never change"), who.name)
			Expect(sends(ctx, who, written, patch{"metadata": patch{"finalizers": []any{"example.com/a"}}}, client.DryRunAll)).To(Succeed(), who.name)
		}
		Expect(controllers.Delete(ctx, written)).To(Succeed())
	})
})

var _ = Describe("a human policy", func() {
	It("is made and unmade by people and GitOps, not by machines", func(ctx SpecContext) {
		tightened := humanPolicy()
		create(ctx, tightened)
		for _, who := range []person{administrator, dora, ada, grace, flux} {
			Expect(who.Create(ctx, humanPolicy(), client.DryRunAll)).To(Succeed(), who.name)
			Expect(who.Delete(ctx, tightened, client.DryRunAll)).To(Succeed(), who.name)
		}
		for _, who := range machines() {
			refused := beRefusedBy(v1alpha1.PolicyHumanPolicies, who.name+" may not write a human policy")
			Expect(who.Create(ctx, humanPolicy(), client.DryRunAll)).To(refused)
			Expect(who.Delete(ctx, tightened, client.DryRunAll)).To(refused)
			Expect(who.DeleteAllOf(ctx, tightened, client.DryRunAll)).To(refused)
			Expect(tries(ctx, who, tightened, patch{"rules": []any{}})).NotTo(Succeed(), "it is immutable")
		}
	})
})
