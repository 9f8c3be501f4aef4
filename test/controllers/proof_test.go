package controllers_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

const mallory = "mallory@example.com"

// notVerified says that the spec grants nothing since nobody has checked it.
func notVerified(g Gomega, o *approval) {
	g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(Equal(v1alpha1.ReasonNotVerified))
	g.Expect(isTrue(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(BeTrue())
	g.Expect(says(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(ContainSubstring("nobody has checked"))
}

// breakages are ways to take a policy out of force.
var breakages = []struct {
	what string
	do   func(ctx context.Context)
}{
	{"its deletion", func(ctx context.Context) {
		policy, _ := policyAndBinding(v1alpha1.PolicyApprovals)
		Expect(api.Delete(ctx, policy)).To(Succeed())
	}},
	{"the deletion of its binding", func(ctx context.Context) {
		_, binding := policyAndBinding(v1alpha1.PolicyApprovals)
		Expect(api.Delete(ctx, binding)).To(Succeed())
	}},
	{"a binding that only warns", func(ctx context.Context) {
		patchBinding(ctx, `{"spec":{"validationActions":["Warn"]}}`)
	}},
	{"a binding that leaves the workspaces out", func(ctx context.Context) {
		patchBinding(ctx, `{"spec":{"matchResources":{"namespaceSelector":{"matchExpressions":[
			{"key":"plugins.kandev.ai/workspace-id","operator":"DoesNotExist"}]}}}}`)
	}},
}

// letEverybodyGrant edits a policy: it still refuses its probe.
func letEverybodyGrant(ctx context.Context) {
	GinkgoHelper()
	policy, _ := policyAndBinding(v1alpha1.PolicyApprovals)
	Expect(api.Get(ctx, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
	policy.Spec.Validations = policy.Spec.Validations[:1]
	Expect(api.Update(ctx, policy)).To(Succeed())
}

// regained waits until a process has proven the policies that there are.
func (h *host) regained(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		pins, _, err := h.store.Proof(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		for _, name := range v1alpha1.AdmissionPolicies() {
			policy, binding := policyAndBinding(name)
			for _, object := range []client.Object{policy, binding} {
				g.Expect(api.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
				g.Expect(pins).To(ContainSubstring(fmt.Sprintf("%s %s %d\n", name, object.GetUID(), object.GetGeneration())))
			}
		}
		g.Expect(h.proven.Load()).To(BeTrue())
	}).Should(Succeed())
}

func patchBinding(ctx context.Context, patch string) {
	GinkgoHelper()
	_, binding := policyAndBinding(v1alpha1.PolicyApprovals)
	Expect(api.Patch(ctx, binding, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

// forge has mallory write a grant in ada's name, as soon as the API server lets it.
func (s *scene) forge(ctx context.Context, spec v1alpha1.PluginCapabilityApprovalSpec) *approval {
	GinkgoHelper()
	spec.ApprovedBy = ada
	return s.applyAs(ctx, as(mallory), spec)
}

// wider is what a human would write to grant more.
func (s *scene) wider(ctx context.Context, grants ...v1alpha1.CapabilityID) v1alpha1.PluginCapabilityApprovalSpec {
	GinkgoHelper()
	spec := s.spec(ctx, grants...)
	spec.SupersedesAct = s.approval(ctx).Status.Act
	return spec
}

// anew has grace write a spec, which the policies check whole.
func (s *scene) anew(ctx context.Context, spec v1alpha1.PluginCapabilityApprovalSpec) {
	GinkgoHelper()
	spec.ApprovedBy = grace
	s.applyAs(ctx, as(grace), spec)
}

var _ = Describe("I7: while an admission policy is not in force", func() {
	for _, breakage := range breakages {
		It("by "+breakage.what+": what is forged then never widens, what was granted stands, narrowing works", func(ctx SpecContext) {
			restorePolicies()
			h := start(newDatabase(ctx, onSQLite))
			s := newScene(ctx, readTasks, writeTasks, readInbox)
			s.grant(ctx, writeTasks, readTasks)
			s.allowed(ctx, h)
			wider := s.wider(ctx, writeTasks, readTasks, readInbox)

			breakage.do(ctx)
			s.forge(ctx, wider)
			o := s.settled(ctx, notVerified)
			Expect(o.Status.EffectiveCapabilities).To(ConsistOf(writeTasks, readTasks))
			Expect(o.Status.Revision).To(BeEquivalentTo(1))
			s.allowed(ctx, h)

			By("restoring it, which brings nothing of that into force")
			restoreNow(ctx)
			Consistently(func(g Gomega) {
				o := s.approval(ctx)
				g.Expect(o.Status.Revision).To(BeEquivalentTo(1))
				g.Expect(o.Status.EffectiveCapabilities).To(ConsistOf(writeTasks, readTasks))
			}).WithTimeout(roundEvery * 3).Should(Succeed())
			notVerified(Default, s.approval(ctx))

			By("a new write that somebody with the right makes")
			h.regained(ctx)
			s.anew(ctx, wider)
			o = s.converged(ctx, h, func(g Gomega, o *approval) {
				g.Expect(o.Status.EffectiveCapabilities).To(ConsistOf(writeTasks, readTasks, readInbox))
			})
			Expect(o.Status.ApproverAssurance).To(Equal(v1alpha1.ApproverVerified))
			Expect(o.Status.ApprovedBy).To(Equal(grace))
		})
	}

	It("a revocation takes force and is recorded", func(ctx SpecContext) {
		restorePolicies()
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		s.allowed(ctx, h)
		policy, _ := policyAndBinding(v1alpha1.PolicyEvents)
		Expect(api.Delete(ctx, policy)).To(Succeed())
		notInForce(ctx, v1alpha1.PolicyEvents)
		revoking := s.spec(ctx, writeTasks)
		revoking.State = v1alpha1.StateRevoked
		s.apply(ctx, revoking)
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		s.settled(ctx, revoked)
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human", "Revoke Human"}))
	})

	for _, breakage := range []struct {
		what string
		do   func(context.Context)
	}{
		{"its deletion", breakages[0].do},
		{"an edit that lets everybody grant and still refuses the probe", letEverybodyGrant},
	} {
		It("between two proofs, while the process is down, by "+breakage.what+": what was forged then never widens", func(ctx SpecContext) {
			restorePolicies()
			db := newDatabase(ctx, onSQLite)
			h := start(db)
			s := newScene(ctx, readTasks, writeTasks, readInbox)
			s.grant(ctx, readTasks)
			wider := s.wider(ctx, writeTasks, readTasks)
			h.kill()
			breakage.do(ctx)
			s.forge(ctx, wider)
			restoreNow(ctx)

			h = start(db)
			o := s.settled(ctx, notVerified)
			Expect(o.Status.EffectiveCapabilities).To(ConsistOf(readTasks))

			By("an edit of the reason, for which nobody needs the right to approve")
			laundered := wider
			laundered.Reason = "This is fine."
			s.applyAs(ctx, as(mallory), laundered)
			s.settled(ctx, notVerified)

			By("the same across a restart")
			h.kill()
			laundered.Reason = "It is, really."
			s.applyAs(ctx, as(mallory), laundered)
			h = start(db)
			o = s.settled(ctx, notVerified)
			Expect(o.Status.EffectiveCapabilities).To(ConsistOf(readTasks))
			s.anew(ctx, wider)
			s.converged(ctx, h, active)
			s.allowed(ctx, h)
		})
	}

	It("and the process hasn't noticed yet: what is forged then never widens either", func(ctx SpecContext) {
		restorePolicies()
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, readTasks)
		h.regained(ctx)
		h.blind.Store(true)
		breakages[0].do(ctx)
		s.forge(ctx, s.wider(ctx, readTasks, writeTasks))
		o := s.settled(ctx, notVerified)
		Expect(h.proven.Load()).To(BeTrue(), "it still takes the policies for proven")
		Expect(o.Status.EffectiveCapabilities).To(ConsistOf(readTasks))
		h.blind.Store(false)
		restoreNow(ctx)
		h.regained(ctx)
		notVerified(Default, s.settled(ctx, notVerified))
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human"}))
	})

	It("and another process takes over: what one has distrusted, the other does too, and a deposed one proves nothing", func(ctx SpecContext) {
		restorePolicies()
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, readTasks)
		breakages[0].do(ctx)
		s.forge(ctx, s.wider(ctx, readTasks, writeTasks))
		s.settled(ctx, notVerified)
		second := beside(h)
		Eventually(h.done).Should(BeClosed())
		deposed, err := h.store.Epochs(ctx)
		Expect(err).NotTo(HaveOccurred())
		deposed.Term.LeaderEpoch--
		Expect(h.store.Prove(ctx, deposed.Term, "forged", nil)).To(MatchError(fence.ErrDeposed))
		restoreNow(ctx)
		second.regained(ctx)
		later := s.approval(ctx).Spec
		later.Reason = "Nothing to see here."
		s.applyAs(ctx, as(mallory), later)
		o := s.settled(ctx, notVerified)
		Expect(o.Status.EffectiveCapabilities).To(ConsistOf(readTasks))
		s.anew(ctx, later)
		s.converged(ctx, second, func(g Gomega, o *approval) {
			g.Expect(o.Status.EffectiveCapabilities).To(ConsistOf(readTasks, writeTasks))
		})
	})

	It("a checked grant that waits for its digest waits for the policies too, and goes on by itself", func(ctx SpecContext) {
		restorePolicies()
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks)
		s.grant(ctx, readTasks)
		ahead := s.wider(ctx, readTasks, writeTasks)
		ahead.ManifestDigest = digestOf(readTasks, writeTasks)
		s.apply(ctx, ahead)
		s.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(o.Status.InactiveCapabilities).To(ConsistOf(
				v1alpha1.InactiveCapability{ID: string(writeTasks), Reason: v1alpha1.InactiveNotDeclared}))
		})
		_, binding := policyAndBinding(v1alpha1.PolicyWorkspaces)
		Expect(api.Delete(ctx, binding)).To(Succeed())
		notInForce(ctx, v1alpha1.PolicyWorkspaces)
		s.editInstallation(ctx, func(o *installation) { o.Spec.Manifest = manifest(readTasks, writeTasks) })
		s.settled(ctx, func(g Gomega, o *approval) {
			notVerified(g, o)
			g.Expect(says(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(And(
				ContainSubstring(v1alpha1.PolicyWorkspaces), ContainSubstring("by itself")))
		})
		restoreNow(ctx)
		o := s.converged(ctx, h, func(g Gomega, o *approval) {
			g.Expect(o.Status.EffectiveCapabilities).To(ConsistOf(readTasks, writeTasks))
		})
		Expect(o.Status.ApproverAssurance).To(Equal(v1alpha1.ApproverVerified))
	})

	It("from the beginning: a fresh install converges by itself, but for what came before", func(ctx SpecContext) {
		restorePolicies()
		for _, name := range v1alpha1.AdmissionPolicies() {
			policy, _ := policyAndBinding(name)
			Expect(api.Delete(ctx, policy)).To(Succeed())
		}
		notInForce(ctx, v1alpha1.PolicyApprovals)
		h := start(newDatabase(ctx, onSQLite))
		early := newScene(ctx, readTasks, writeTasks)
		early.forge(ctx, early.spec(ctx, writeTasks))
		o := early.settled(ctx, notVerified)
		Expect(o.Status.State).To(Equal(v1alpha1.StatePending))
		Expect(o.Status.Revision).To(BeZero())

		restoreNow(ctx)
		h.regained(ctx)
		late := newScene(ctx, readTasks, writeTasks)
		late.grant(ctx, writeTasks)
		late.allowed(ctx, h)
		notVerified(Default, early.approval(ctx))
	})
})

var _ = Describe("I7: a proof of the admission policies that gets no answer", func() {
	It("holds acts back for a while, and then counts as none; what was granted stands", func(ctx SpecContext) {
		db := newDatabase(ctx, onSQLite)
		h := start(db)
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		h.kill()

		h = startSilent(db)
		s.allowed(ctx, h)
		s.apply(ctx, s.wider(ctx, writeTasks, readTasks))
		Consistently(func(g Gomega) {
			g.Expect(s.approval(ctx).Status.ObservedGeneration).To(BeEquivalentTo(1), "it waits")
		}).WithTimeout(roundEvery * 2).Should(Succeed())
		o := s.settled(ctx, notVerified)
		Expect(o.Status.EffectiveCapabilities).To(ConsistOf(writeTasks))
		s.allowed(ctx, h)
		revoking := s.spec(ctx, writeTasks)
		revoking.State = v1alpha1.StateRevoked
		s.apply(ctx, revoking)
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		s.settled(ctx, revoked)

		h.silent.Store(false)
		h.regained(ctx)
		s.anew(ctx, s.wider(ctx, readTasks))
		s.converged(ctx, h, active)
	})
})

// silence is what a client sees of an API server that is overloaded.
func silence() error {
	return apierrors.NewServerTimeout(v1alpha1.GroupVersion.WithResource("plugincapabilityapprovals").GroupResource(), "create", 1)
}

// startSilent runs a process whose dry-run requests get no answer.
func startSilent(db *database) *host {
	GinkgoHelper()
	h := newHost(db)
	h.silent.Store(true)
	startHost(h)
	return h
}
