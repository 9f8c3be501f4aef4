package admission_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

var _ = Describe("a GitOps identity", func() {
	claim := func(approvedBy, approvedVia string) *v1alpha1.PluginCapabilityApproval {
		a := approval(approvedBy)
		a.Spec.ApprovedVia = approvedVia
		return a
	}

	It("claims the human, and says that it does", func(ctx SpecContext) {
		a := claim("linus@example.com", flux.name)
		Expect(flux.Create(ctx, a)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(administrator.Delete(ctx, a)).To(Succeed()) })
		Expect(edits(ctx, flux, a, patch{"capabilities": []any{readTasks, writeTasks, readSessions}, "approvedBy": "margaret@example.com"})).To(Succeed())
		Expect(administrator.Get(ctx, client.ObjectKeyFromObject(a), a)).To(Succeed())
		Expect(a.Spec.ApprovedBy).To(Equal("margaret@example.com"))
		Expect(a.Spec.ApprovedVia).To(Equal(flux.name), "the human isn't lost, and isn't taken for verified")
	})

	It("claims nothing without saying so", func(ctx SpecContext) {
		for _, via := range []string{"", bot.name, "linus@example.com"} {
			Expect(flux.Create(ctx, claim("linus@example.com", via), client.DryRunAll)).To(
				beRefusedBy(v1alpha1.PolicyApprovals, "spec.approvedVia must be "+flux.name), via)
		}
	})

	It("is no human", func(ctx SpecContext) {
		for _, name := range []string{flux.name, pipeline.name, bot.name, controllers.name, node.name, "system:admin"} {
			Expect(flux.Create(ctx, claim(name, flux.name), client.DryRunAll)).To(
				beRefusedBy(v1alpha1.PolicyApprovals, "spec.approvedBy must be the human"), name)
		}
	})

	It("can have any name, and speaks for no human by itself", func(ctx SpecContext) {
		Expect(pipeline.Create(ctx, claim("linus@example.com", pipeline.name), client.DryRunAll)).To(Succeed())
		Expect(pipeline.Create(ctx, claim(pipeline.name, ""), client.DryRunAll)).To(beRefusedBy(v1alpha1.PolicyApprovals, "spec.approvedVia must be"))
		Expect(pipeline.Create(ctx, claim(pipeline.name, pipeline.name), client.DryRunAll)).To(
			beRefusedBy(v1alpha1.PolicyApprovals, "spec.approvedBy must be the human"))
		Expect(pipeline.Create(ctx, claim("linus@example.com", flux.name), client.DryRunAll)).To(
			beRefusedBy(v1alpha1.PolicyApprovals, "spec.approvedVia must be "+pipeline.name), "one identity for another")
		a := granted(ctx)
		Expect(tries(ctx, pipeline, a, patch{"confirmedBy": pipeline.name})).To(beRefusedBy(v1alpha1.PolicyApprovals), "it is no second human")
	})

	It("is named by nobody else", func(ctx SpecContext) {
		for _, who := range []person{ada, grace, dora, administrator} {
			Expect(who.Create(ctx, claim(who.name, flux.name), client.DryRunAll)).To(
				beRefusedBy(v1alpha1.PolicyApprovals, "spec.approvedVia absent"), who.name)
			Expect(who.Create(ctx, claim(who.name, who.name), client.DryRunAll)).To(
				beRefusedBy(v1alpha1.PolicyApprovals, "spec.approvedVia absent"), who.name)
		}
	})

	It("needs the right to approve like anybody", func(ctx SpecContext) {
		a := claim("linus@example.com", flux.name)
		a.Namespace = fluxNamespace
		Expect(flux.Create(ctx, a, client.DryRunAll)).To(beRefusedBy(v1alpha1.PolicyApprovals, flux.name+" may not grant"))
	})

	It("gives way to a human, who takes its name away", func(ctx SpecContext) {
		a := claim("linus@example.com", flux.name)
		Expect(flux.Create(ctx, a)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(administrator.Delete(ctx, a)).To(Succeed()) })
		more := patch{"capabilities": []any{readTasks, writeTasks, readSessions}, "approvedBy": ada.name}
		Expect(tries(ctx, ada, a, more)).To(beRefusedBy(v1alpha1.PolicyApprovals, "spec.approvedVia absent"))
		more["approvedVia"] = nil
		Expect(edits(ctx, ada, a, more)).To(Succeed())
		// What Git says still is another grant, which it has to sign.
		Expect(tries(ctx, flux, a, patch{"capabilities": []any{readTasks, writeTasks}, "approvedBy": "linus@example.com"})).To(
			beRefusedBy(v1alpha1.PolicyApprovals, "spec.approvedVia"))
	})

	It("claims two humans, not one twice", func(ctx SpecContext) {
		a := claim("linus@example.com", flux.name)
		a.Spec.ConfirmedBy = "margaret@example.com"
		Expect(flux.Create(ctx, a, client.DryRunAll)).To(Succeed())
		for _, name := range []string{"linus@example.com", flux.name, pipeline.name, bot.name} {
			a.Spec.ConfirmedBy = name
			Expect(flux.Create(ctx, a, client.DryRunAll)).To(
				beRefusedBy(v1alpha1.PolicyApprovals, "spec.confirmedBy must be a human other than"), name)
		}
	})
})

var _ = Describe("a confirmation", func() {
	It("is a write of the second human that changes nothing else", func(ctx SpecContext) {
		a := granted(ctx, ends("2030-01-01T00:00:00Z"))
		Expect(edits(ctx, grace, a, patch{"confirmedBy": grace.name})).To(Succeed())
		Expect(tries(ctx, administrator, a, patch{"confirmedBy": administrator.name})).To(Succeed(), "another second human")
		for _, more := range []patch{
			{"capabilities": []any{readTasks}}, {"capabilities": []any{readTasks, writeTasks, readSessions}},
			{"state": "Revoked"}, {"expiresAt": "2029-01-01T00:00:00Z"}, {"reason": "fine"}, {"changedBy": administrator.name},
			{"manifestDigest": digestOf("b")}, {"supersedesAct": "1-abcdef"}, {"installationID": "3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77"},
			{"approvedBy": administrator.name}, {"approvedBy": "linus@example.com"}, {"approvedVia": flux.name},
		} {
			Expect(tries(ctx, administrator, a, change{spec: more}.and(patch{"confirmedBy": administrator.name}))).To(
				beRefusedBy(v1alpha1.PolicyApprovals), "%v", more)
		}
	})

	It("is nobody's but the one who writes", func(ctx SpecContext) {
		a := granted(ctx)
		Expect(tries(ctx, grace, a, patch{"confirmedBy": "linus@example.com"})).To(beRefusedBy(v1alpha1.PolicyApprovals))
		Expect(tries(ctx, ada, a, patch{"confirmedBy": grace.name})).To(beRefusedBy(v1alpha1.PolicyApprovals, "spec.confirmedBy"))
		Expect(tries(ctx, ada, a, patch{"confirmedBy": ada.name})).To(beRefusedBy(v1alpha1.PolicyApprovals, "spec.confirmedBy"),
			"the first human isn't the second")
	})

	It("takes the right to approve all of it", func(ctx SpecContext) {
		a := granted(ctx)
		Expect(tries(ctx, dora, a, patch{"confirmedBy": dora.name})).To(beRefusedBy(v1alpha1.PolicyApprovals, "may not grant"))
		half := approverOf(ctx, "half@example.com", readTasks)
		Eventually(ctx, func() error { return tries(ctx, half, a, patch{"confirmedBy": half.name}) }).Should(
			beRefusedBy(v1alpha1.PolicyApprovals, "may not grant "+string(writeTasks)))
	})

	It("is no machine's", func(ctx SpecContext) {
		a := granted(ctx)
		for _, who := range machines() {
			Expect(tries(ctx, who, a, patch{"confirmedBy": who.name})).To(beRefusedBy(v1alpha1.PolicyApprovals, "may only narrow"), who.name)
		}
		Expect(tries(ctx, flux, a, patch{"confirmedBy": flux.name})).To(beRefusedBy(v1alpha1.PolicyApprovals), "GitOps on a human's grant")
		Expect(tries(ctx, flux, a, patch{"confirmedBy": "linus@example.com"})).To(beRefusedBy(v1alpha1.PolicyApprovals))
	})

	It("confirms what a GitOps identity claims, too", func(ctx SpecContext) {
		a := approval("linus@example.com")
		a.Spec.ApprovedVia = flux.name
		Expect(flux.Create(ctx, a)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(administrator.Delete(ctx, a)).To(Succeed()) })
		Expect(tries(ctx, grace, a, patch{"confirmedBy": grace.name})).To(Succeed())
	})

	It("isn't carried over to another grant", func(ctx SpecContext) {
		a := granted(ctx)
		Expect(edits(ctx, grace, a, patch{"confirmedBy": grace.name})).To(Succeed())
		more := patch{"capabilities": []any{readTasks, writeTasks, readSessions}}
		Expect(tries(ctx, ada, a, more)).To(beRefusedBy(v1alpha1.PolicyApprovals, "spec.confirmedBy must be absent"))
		more["confirmedBy"] = ""
		Expect(tries(ctx, ada, a, more)).To(Succeed())
		more["confirmedBy"] = nil
		Expect(tries(ctx, ada, a, more)).To(Succeed())
	})

	It("can't be written into a grant", func(ctx SpecContext) {
		for _, who := range []person{ada, grace, administrator} {
			a := approval(who.name)
			for _, name := range []string{who.name, "linus@example.com"} {
				a.Spec.ConfirmedBy = name
				Expect(who.Create(ctx, a, client.DryRunAll)).To(beRefusedBy(v1alpha1.PolicyApprovals, "spec.confirmedBy"), name)
			}
		}
	})

	It("survives a revocation by anybody, which it doesn't hinder", func(ctx SpecContext) {
		a := granted(ctx)
		Expect(edits(ctx, grace, a, patch{"confirmedBy": grace.name})).To(Succeed())
		for _, who := range everybody() {
			Expect(tries(ctx, who, a, patch{"state": "Revoked"})).To(Succeed(), who.name)
		}
	})
})
