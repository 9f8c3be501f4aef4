package controllers_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
)

// tighten makes a human policy, which goes with the spec.
func tighten(ctx context.Context, name string, rules ...v1alpha1.PolicyRule) *v1alpha1.HumanPolicy {
	GinkgoHelper()
	policy := &v1alpha1.HumanPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.HumanPolicySpec{Rules: rules},
	}
	Expect(api.Create(ctx, policy)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(api.Delete(ctx, policy))).To(Succeed()) })
	return policy
}

// policyIs waits until a policy's status says whether it is the one in force.
func policyIs(ctx context.Context, name, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var o v1alpha1.HumanPolicy
		g.Expect(api.Get(ctx, client.ObjectKey{Name: name}, &o)).To(Succeed())
		g.Expect(why(o.Status.Conditions, v1alpha1.ConditionActive)).To(Equal(reason))
		g.Expect(o.Status.Version).To(ContainSubstring(name))
		g.Expect(o.Status.ObservedGeneration).To(Equal(o.Generation))
	}).Should(Succeed())
}

func at(revision int64, grants ...v1alpha1.CapabilityID) func(Gomega, *approval) {
	return func(g Gomega, o *approval) {
		g.Expect(o.Status.Revision).To(Equal(revision))
		g.Expect(o.Status.EffectiveCapabilities).To(ConsistOf(grants))
		g.Expect(isTrue(o.Status.Conditions, v1alpha1.ConditionFenced)).To(BeTrue())
	}
}

var _ = Describe("I2: the human policy of the cluster", func() {
	It("takes away at once, makes a revision everywhere, and gives nothing back", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		writes, reads := newScene(ctx, readTasks, writeTasks), newScene(ctx, readTasks, writeTasks)
		writes.grant(ctx, readTasks, writeTasks)
		reads.grant(ctx, readTasks)
		writes.allowed(ctx, h)

		denying := tighten(ctx, unique("deny"), v1alpha1.PolicyRule{Class: "MessagesAndTasks", Deny: true})
		writes.refused(ctx, h, writes.key(ctx), contract.ReasonHumanReserved)
		writes.converged(ctx, h, at(2, readTasks))
		reads.converged(ctx, h, at(2, readTasks))
		policyIs(ctx, denying.Name, v1alpha1.ReasonNewest)
		Expect(story(ctx, writes.key(ctx))).To(Equal([]string{"Grant Human", "Narrow PolicyChanged"}))
		Expect(history(ctx, reads.key(ctx))[1].Spec.Cause).To(BeEquivalentTo("PolicyChanged"))
		Expect(writes.approval(ctx).Status.HumanPolicyVersion).To(ContainSubstring(denying.Name))

		By("deleting it, which is no act")
		Expect(api.Delete(ctx, denying)).To(Succeed())
		o := writes.converged(ctx, h, at(3, readTasks))
		Expect(why(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(Equal(string("ActAlreadyUsed")))
		reads.converged(ctx, h, at(3, readTasks))
		writes.refused(ctx, h, writes.key(ctx), contract.ReasonMissingCapabilityApproval)

		By("granting again, which is one")
		spec := writes.spec(ctx, readTasks, writeTasks)
		spec.SupersedesAct = o.Status.Act
		writes.apply(ctx, spec)
		writes.converged(ctx, h, at(4, readTasks, writeTasks))
		writes.allowed(ctx, h)
	})

	It("is the newest; the one before it is in force again once that is deleted", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		older := tighten(ctx, unique("older"), v1alpha1.PolicyRule{Class: "MessagesAndTasks", Deny: true})
		s.apply(ctx, s.spec(ctx, readTasks, writeTasks))
		s.converged(ctx, h, at(1, readTasks))
		policyIs(ctx, older.Name, v1alpha1.ReasonNewest)
		Eventually(func() bool { return time.Now().After(older.CreationTimestamp.Add(time.Second)) }).Should(BeTrue())
		newer := tighten(ctx, unique("newer"), v1alpha1.PolicyRule{Class: "ReadProjections", Deny: true})
		s.converged(ctx, h, at(2))
		policyIs(ctx, older.Name, v1alpha1.ReasonSuperseded)
		policyIs(ctx, newer.Name, v1alpha1.ReasonNewest)
		Expect(api.Delete(ctx, newer)).To(Succeed())
		policyIs(ctx, older.Name, v1alpha1.ReasonNewest)
		s.converged(ctx, h, at(3))
	})

	It("caps lifetimes, also of what was granted before", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		o := s.grant(ctx, readTasks, writeTasks)
		Expect(o.Status.ExpiresAt).To(BeNil())
		seconds := int64(3600)
		tighten(ctx, unique("hour"), v1alpha1.PolicyRule{Class: "MessagesAndTasks", MaxLifetimeSeconds: &seconds})
		s.converged(ctx, h, func(g Gomega, o *approval) {
			g.Expect(o.Status.Revision).To(BeEquivalentTo(2))
			g.Expect(o.Status.ExpiresAt).NotTo(BeNil())
			g.Expect(o.Status.ExpiresAt.Time).To(BeTemporally("~", o.Status.IssuedAt.Add(time.Hour), 2*time.Second))
		})
		s.allowed(ctx, h)
	})

	It("ends a grant of one human where it demands two", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, readTasks, writeTasks)
		tighten(ctx, unique("two"), v1alpha1.PolicyRule{Class: "MessagesAndTasks", FourEyes: true})
		s.converged(ctx, h, at(2, readTasks))
		s.refused(ctx, h, s.key(ctx), contract.ReasonHumanReserved)
	})

	It("holds while the controllers were away, and over a lost store", func(ctx SpecContext) {
		db := newDatabase(ctx, onSQLite)
		h := start(db)
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, readTasks, writeTasks)
		h.kill()
		tighten(ctx, unique("deny"), v1alpha1.PolicyRule{Class: "MessagesAndTasks", Deny: true})
		h = start(db)
		s.converged(ctx, h, at(2, readTasks))
		h.kill()
		db.lose()
		h = start(db)
		s.converged(ctx, h, at(3, readTasks))
	})
})
