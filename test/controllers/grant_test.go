package controllers_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
)

type (
	approval     = v1alpha1.PluginCapabilityApproval
	installation = v1alpha1.PluginInstallation
)

// usedAgain says that applying a used manifest gave nothing back, and that the
// status names the act that a new grant needs.
func usedAgain(g Gomega, o *approval) {
	g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(Equal(v1alpha1.ReasonActAlreadyUsed))
	g.Expect(isTrue(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(BeTrue())
	g.Expect(says(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(And(
		ContainSubstring(o.Status.Act), ContainSubstring("spec.supersedesAct")))
}

func revoked(g Gomega, o *approval) {
	g.Expect(o.Status.State).To(Equal(v1alpha1.StateRevoked))
	g.Expect(o.Status.EffectiveCapabilities).To(BeEmpty())
	g.Expect(isTrue(o.Status.Conditions, v1alpha1.ConditionFenced)).To(BeTrue())
}

var _ = Describe("a human act", func() {
	It("I2 I4: takes force with its event, and kubectl shows it", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks, readInbox)
		o := s.grant(ctx, readTasks, writeTasks)
		Expect(o.Status.Revision).To(BeEquivalentTo(1))
		Expect(o.Status.Act).To(MatchRegexp(`^1-[a-z2-7]{6}$`))
		Expect(isTrue(o.Status.Conditions, v1alpha1.ConditionReady)).To(BeTrue())
		s.allowed(ctx, h)

		key := s.key(ctx)
		Expect(story(ctx, key)).To(Equal([]string{"Grant Human"}))
		Expect(history(ctx, key)[0].Spec).To(And(
			HaveField("Actor", v1alpha1.Actor{Name: "ada@example.com", Assurance: v1alpha1.AssuranceVerified}),
			HaveField("Unproven", false), HaveField("AuditID", o.Status.LastAuditID)))
		Expect(fields(kubectl(ctx, "get", "pca", "-n", s.namespace, "--no-headers"))).To(ContainElements(
			s.workspace, s.plugin, "Active", "1", "2/3", "ada@example.com"))
		Eventually(func(g Gomega) {
			g.Expect(s.installation(ctx).Status.Workspaces).To(ConsistOf(v1alpha1.InstallationWorkspace{
				WorkspaceID: s.workspace, Namespace: s.namespace, Revision: 1, State: v1alpha1.StateActive, Effective: 2, Declared: 3,
			}))
		}).Should(Succeed())
	})

	It("I7: narrows by an edit, and the manifest from before gives nothing back", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, readTasks, writeTasks)
		used := s.spec(ctx, readTasks, writeTasks)

		narrower := s.spec(ctx, readTasks)
		narrower.ChangedBy = grace
		s.applyAs(ctx, as(grace), narrower)
		o := s.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(o.Status.EffectiveCapabilities).To(ConsistOf(readTasks))
		})
		s.refused(ctx, h, s.key(ctx), contract.ReasonMissingCapabilityApproval)
		Expect(history(ctx, s.key(ctx))[1].Spec).To(And(
			HaveField("Type", v1alpha1.EventNarrow), HaveField("Actor", v1alpha1.Actor{Name: grace, Assurance: v1alpha1.AssuranceVerified})))

		s.apply(ctx, used)
		again := s.settled(ctx, usedAgain)
		Expect(again.Status.EffectiveCapabilities).To(ConsistOf(readTasks))
		Expect(again.Status.Revision).To(Equal(o.Status.Revision))
		Expect(again.Status.InactiveCapabilities).To(ConsistOf(
			v1alpha1.InactiveCapability{ID: string(writeTasks), Reason: v1alpha1.InactiveActAlreadyUsed}))
	})

	It("I7: revokes by an edit; self-heal is a no-op, and the name that status shows grants again, once", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		used := s.spec(ctx, writeTasks)

		revoking := used
		revoking.State = v1alpha1.StateRevoked
		s.apply(ctx, revoking)
		taken := s.settled(ctx, revoked)
		Expect(says(taken.Status.Conditions, v1alpha1.ConditionReady)).To(And(
			ContainSubstring("a human took it away"), ContainSubstring(taken.Status.Act)), "it says what to do next")
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		s.apply(ctx, used)
		o := s.settled(ctx, usedAgain)
		revoked(Default, o)
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human", "Revoke Human"}))

		next := used
		next.SupersedesAct = o.Status.Act
		s.apply(ctx, next)
		s.settled(ctx, func(g Gomega, o *approval) { g.Expect(o.Status.State).To(Equal(v1alpha1.StateActive)) })
		s.allowed(ctx, h)
		next.State = v1alpha1.StateRevoked
		s.apply(ctx, next)
		s.settled(ctx, revoked)
		next.State = v1alpha1.StateActive
		s.apply(ctx, next)
		revoked(Default, s.settled(ctx, usedAgain))
	})

	It("I7 I13: revokes by a deletion, which no finalizer holds up; applying it again is a no-op", func(ctx SpecContext) {
		// The watch alone has to notice: no round comes to its help.
		h := startWithRounds(newDatabase(ctx, onSQLite), time.Hour)
		s := newScene(ctx, readTasks, writeTasks)
		Expect(s.grant(ctx, writeTasks).Finalizers).To(BeEmpty())
		used := s.spec(ctx, writeTasks)
		s.remove(ctx)
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		Eventually(func() []string { return story(ctx, s.key(ctx)) }).Should(Equal([]string{"Grant Human", "Revoke ApprovalDeleted"}))
		Expect(history(ctx, s.key(ctx))[1].Spec.Actor.Assurance).To(Equal(v1alpha1.AssuranceUnknown))

		s.apply(ctx, used)
		o := s.settled(ctx, usedAgain)
		Expect(o.Status.Revision).To(BeEquivalentTo(2), "the sequence goes on in a new object (I3)")
		Expect(o.Status.EffectiveCapabilities).To(BeEmpty())
	})

	It("I13: counts a deletion timestamp as absent, whoever's finalizer holds the object", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		finalizers(ctx, s.approval(ctx), "example.com/foreign")
		s.remove(ctx)
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		s.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(o.DeletionTimestamp).NotTo(BeNil())
			revoked(g, o)
		})
		finalizers(ctx, s.approval(ctx))
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human", "Revoke ApprovalDeleted"}))
	})

	It("I2: expires at its instant, and a revision records it", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		spec := s.spec(ctx, writeTasks)
		spec.ExpiresAt = h.inAnHour()
		s.apply(ctx, spec)
		s.settled(ctx, active)
		h.expire()
		s.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(o.Status.State).To(Equal(v1alpha1.StateExpired))
			g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReady)).To(Equal(v1alpha1.ReasonExpired))
		})
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human", "Revoke Expired"}))
	})

	It("ignores what changes nothing: a reason, a reordered list", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, readTasks, writeTasks)
		spec := s.spec(ctx, writeTasks, readTasks)
		spec.Reason = "Told better."
		s.apply(ctx, spec)
		o := s.settled(ctx, func(Gomega, *approval) {})
		Expect(o.Status.Revision).To(BeEquivalentTo(1))
		s.allowed(ctx, h)
	})
})

var _ = Describe("an upgrade", func() {
	It("I2 I7: is an intersection; what it adds stays inactive and kubectl shows why", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, readTasks, writeTasks)
		s.editInstallation(ctx, func(o *installation) {
			o.Spec.Version, o.Spec.Manifest = "2.0.0", manifest(writeTasks, readInbox)
		})
		o := s.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(o.Status.EffectiveCapabilities).To(ConsistOf(writeTasks))
			g.Expect(o.Status.EffectiveSummary).To(Equal("1/2"))
		})
		Expect(o.Status.InactiveCapabilities).To(ConsistOf(
			v1alpha1.InactiveCapability{ID: string(readInbox), Reason: v1alpha1.InactiveNotReviewed},
			v1alpha1.InactiveCapability{ID: string(readTasks), Reason: v1alpha1.InactiveNotDeclared}))
		Expect(kubectl(ctx, "get", "pca", "-n", s.namespace, s.plugin, "-o", "yaml")).To(ContainSubstring("reason: NotReviewed"))
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human", "UpgradeReview ManifestChanged"}))
		Eventually(func(g Gomega) {
			g.Expect(isTrue(s.installation(ctx).Status.Conditions, v1alpha1.ConditionUpgradeReviewPending)).To(BeTrue())
		}).Should(Succeed())
		s.allowed(ctx, h)

		By("rolling back, which brings nothing back")
		s.editInstallation(ctx, func(o *installation) {
			o.Spec.Version, o.Spec.Manifest = "1.0.0", manifest(readTasks, writeTasks)
		})
		s.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(o.Status.EffectiveCapabilities).To(ConsistOf(writeTasks))
			g.Expect(o.Status.Revision).To(BeEquivalentTo(3))
			usedAgain(g, o)
		})

		By("a new act, which grants it")
		next := s.spec(ctx, readTasks, writeTasks)
		next.SupersedesAct = s.approval(ctx).Status.Act
		s.apply(ctx, next)
		s.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(o.Status.EffectiveCapabilities).To(ConsistOf(readTasks, writeTasks))
		})
		Eventually(func(g Gomega) {
			g.Expect(isTrue(s.installation(ctx).Status.Conditions, v1alpha1.ConditionUpgradeReviewPending)).To(BeFalse())
		}).Should(Succeed())
	})

	It("I7: takes its approval along in one commit, the approval first", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks)
		o := s.grant(ctx, readTasks)
		next := s.spec(ctx, readTasks, writeTasks)
		next.SupersedesAct = o.Status.Act
		next.ManifestDigest = digestOf(readTasks, writeTasks)
		s.apply(ctx, next)
		s.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(Equal(v1alpha1.ReasonReviewed))
			g.Expect(o.Status.EffectiveCapabilities).To(ConsistOf(readTasks))
		})
		s.editInstallation(ctx, func(o *installation) { o.Spec.Manifest = manifest(readTasks, writeTasks) })
		Expect(s.installation(ctx).Status.ManifestDigest).To(Equal(next.ManifestDigest))
		s.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(o.Status.EffectiveCapabilities).To(ConsistOf(readTasks, writeTasks))
		})
		s.allowed(ctx, h)
	})

	It("I3 I7: by a reinstall under the same name, the old approval grants nothing", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, readTasks, writeTasks)
		old := s.key(ctx)
		Expect(s.installation(ctx).Finalizers).To(BeEmpty())
		Expect(api.Delete(ctx, s.installation(ctx))).To(Succeed())
		s.refused(ctx, h, old, contract.ReasonCapabilityRevoked)
		s.settled(ctx, func(g Gomega, o *approval) {
			revoked(g, o)
			g.Expect(o.Status.InstallationID).To(Equal(old.InstallationID))
			g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReady)).To(Equal(v1alpha1.ReasonInstallationNotFound))
		})
		Expect(story(ctx, old)).To(Equal([]string{"Grant Human", "Revoke Uninstalled"}))
		Expect(h.store.Tombstoned(ctx, old.InstallationID)).To(BeTrue())

		s.install(ctx, readTasks, writeTasks)
		fresh := s.key(ctx)
		Expect(fresh.InstallationID).NotTo(Equal(old.InstallationID))
		s.refused(ctx, h, fresh, contract.ReasonMissingCapabilityApproval)
		s.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(o.Status.InstallationID).To(Equal(fresh.InstallationID))
			g.Expect(o.Status.State).To(Equal(v1alpha1.StatePending))
			g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(Equal(v1alpha1.ReasonInstallationMismatch))
			g.Expect(says(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(ContainSubstring(fresh.InstallationID))
		})
		Expect(story(ctx, fresh)).To(BeEmpty())

		By("a human who reviews the new one, in the same object")
		s.apply(ctx, s.spec(ctx, readTasks, writeTasks))
		o := s.settled(ctx, func(g Gomega, o *approval) { g.Expect(o.Status.State).To(Equal(v1alpha1.StateActive)) })
		Expect(o.Status.Revision).To(BeEquivalentTo(1), "a sequence of its own")
		s.allowed(ctx, h)
	})
})

func digestOf(declares ...v1alpha1.CapabilityID) string {
	GinkgoHelper()
	m := contract.Manifest{PluginID: "kandev.sample"}
	for _, c := range manifest(declares...).Capabilities {
		m.Capabilities = append(m.Capabilities, contract.DeclaredCapability{ID: string(c.ID), Required: c.Required, Reason: c.Reason})
	}
	digest, err := m.Digest()
	Expect(err).NotTo(HaveOccurred())
	return digest
}

func finalizers(ctx context.Context, o client.Object, names ...string) {
	GinkgoHelper()
	before, ok := o.DeepCopyObject().(client.Object)
	Expect(ok).To(BeTrue())
	o.SetFinalizers(names)
	Expect(api.Patch(ctx, o, client.MergeFrom(before))).To(Succeed())
}
