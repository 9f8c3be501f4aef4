package controllers_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

const flux = "system:serviceaccount:flux-system:kustomize-controller"

// nameGitOps renders flux into every admission policy, for the rest of the spec.
func nameGitOps(ctx context.Context) {
	GinkgoHelper()
	restorePolicies()
	for _, name := range v1alpha1.AdmissionPolicies() {
		policy, _ := policyAndBinding(name)
		Expect(api.Get(ctx, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
		Expect(policy.Spec.Variables[0].Name).To(Equal("gitOpsIdentities"))
		policy.Spec.Variables[0].Expression = "['" + flux + "']"
		Expect(api.Update(ctx, policy)).To(Succeed())
	}
}

// unconfirmed says that a second human is missing, and what to write.
func unconfirmed(texts ...string) func(Gomega, *approval) {
	return func(g Gomega, o *approval) {
		g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(Equal(v1alpha1.ReasonConfirmationRequired))
		for _, text := range texts {
			g.Expect(says(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(ContainSubstring(text))
		}
	}
}

// confirm has somebody put their own name beside the approver's.
func (s *scene) confirm(ctx context.Context, who string) error {
	GinkgoHelper()
	o := s.approval(ctx)
	o.Spec.ConfirmedBy = who
	return as(who).Update(ctx, o)
}

var _ = Describe("four eyes", func() {
	fourEyes := func(ctx context.Context, acceptClaims bool) {
		GinkgoHelper()
		policy := &v1alpha1.HumanPolicy{}
		// The later one replaces the earlier one, in the same second too.
		policy.Name = unique("two-a")
		if acceptClaims {
			policy.Name = unique("two-z")
		}
		policy.Spec.Rules = []v1alpha1.PolicyRule{{Class: "MessagesAndTasks", FourEyes: true}}
		policy.Spec.AcceptClaimedFourEyes = acceptClaims
		Expect(api.Create(ctx, policy)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(api.Delete(ctx, policy)).To(Succeed()) })
	}

	It("I7: a grant waits for another human, who confirms under their own name; neither is told as more than was checked", func(ctx SpecContext) {
		fourEyes(ctx, false)
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.apply(ctx, s.spec(ctx, readTasks, writeTasks))
		o := s.settled(ctx, unconfirmed("grant host.v2.read:tasks, host.v2.write:tasks", "other than "+ada, "spec.confirmedBy"))
		Expect(o.Status.Revision).To(BeZero())
		Expect(s.confirm(ctx, ada)).To(MatchError(ContainSubstring("plugin-host-approvals")), "not the same one twice")
		Expect(s.confirm(ctx, grace)).To(Succeed())
		o = s.converged(ctx, h, active)
		Expect(o.Status).To(And(HaveField("ApprovedBy", ada), HaveField("ConfirmedBy", grace),
			HaveField("ApproverAssurance", v1alpha1.ApproverVerified), HaveField("EffectiveCapabilities", HaveLen(2))))
		s.allowed(ctx, h)
		Eventually(func() string {
			events := told(ctx, s.namespace, "PluginCapabilityApproval", s.plugin)
			return events[len(events)-1].Note
		}).Should(And(ContainSubstring(ada+" (Human)"), ContainSubstring("confirmed by "+grace)))

		By("what needs no second human")
		single := newScene(ctx, readTasks, writeTasks)
		single.grant(ctx, readTasks)
	})

	It("I7: a second human confirms nothing that nobody has checked", func(ctx SpecContext) {
		fourEyes(ctx, false)
		restorePolicies()
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		spec := s.spec(ctx, writeTasks)
		breakages[0].do(ctx)
		s.forge(ctx, spec)
		s.settled(ctx, notVerified)
		restoreNow(ctx)
		h.regained(ctx)
		Expect(s.confirm(ctx, grace)).To(Succeed(), "the policies can't know where the name beside hers is from")
		o := s.settled(ctx, notVerified)
		Expect(o.Status.Revision).To(BeZero())
	})

	It("behind a GitOps identity, both names are claims: they count only where the policy says so, and the status says what they are", func(ctx SpecContext) {
		nameGitOps(ctx)
		fourEyes(ctx, false)
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		spec := s.spec(ctx, writeTasks)
		spec.ApprovedVia, spec.ConfirmedBy = flux, grace
		Eventually(func() error {
			o := &approval{Spec: spec}
			o.Namespace, o.Name = s.namespace, s.plugin
			return as(flux).Create(ctx, o, client.DryRunAll)
		}).Should(Succeed(), "the policies know the identity")
		h.regained(ctx)
		s.applyAs(ctx, as(flux), spec)
		s.settled(ctx, unconfirmed(flux, "acceptClaimedFourEyes"))

		fourEyes(ctx, true)
		o := s.converged(ctx, h, active)
		Expect(o.Status).To(And(HaveField("ApprovedVia", flux), HaveField("ApproverAssurance", v1alpha1.ApproverClaimed)))
		Expect(says(o.Status.Conditions, v1alpha1.ConditionReady)).To(And(
			ContainSubstring("both claimed by "+flux), ContainSubstring("can't know that two humans looked")))
		Expect(history(ctx, s.key(ctx))[0].Spec.Actor).To(Equal(v1alpha1.Actor{Name: ada, Assurance: v1alpha1.AssuranceClaimed}))
		Eventually(func() string {
			var notes []string
			for _, e := range told(ctx, s.namespace, "PluginCapabilityApproval", s.plugin) {
				notes = append(notes, e.Note)
			}
			return strings.Join(notes, "\n")
		}).Should(And(ContainSubstring(ada+", as claimed (Human), through "+flux), ContainSubstring("confirmed by "+grace)))
	})
})
