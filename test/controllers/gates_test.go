package controllers_test

import (
	"strings"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
)

// gated says that exactly this gate is closed and that its message helps.
func gated(gate v1alpha1.GateType) func(Gomega, *approval) {
	return func(g Gomega, o *approval) {
		g.Expect(o.Status.Gates).To(ConsistOf(And(HaveField("Type", gate), HaveField("Message", Not(BeEmpty())))))
		g.Expect(o.Status.EffectiveCapabilities).To(BeEmpty())
		g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReady)).To(Equal(string(gate)))
	}
}

func open(g Gomega, o *approval) {
	g.Expect(o.Status.Gates).To(BeEmpty())
	g.Expect(isTrue(o.Status.Conditions, v1alpha1.ConditionReady)).To(BeTrue())
}

// rejected says why an installation isn't accepted.
func rejected(g Gomega, o *installation, reason string) {
	g.Expect(isTrue(o.Status.Conditions, v1alpha1.ConditionAccepted)).To(BeFalse())
	g.Expect(why(o.Status.Conditions, v1alpha1.ConditionAccepted)).To(Equal(reason))
	g.Expect(says(o.Status.Conditions, v1alpha1.ConditionAccepted)).To(ContainSubstring("spec."))
	g.Expect(isTrue(o.Status.Conditions, v1alpha1.ConditionReady)).To(BeFalse())
}

var _ = Describe("a gate", func() {
	var (
		h   *host
		s   *scene
		act string
	)
	BeforeEach(func(ctx SpecContext) {
		h = start(newDatabase(ctx, onSQLite))
		s = newScene(ctx, readTasks, writeTasks)
		act = s.grant(ctx, readTasks, writeTasks).Status.Act
		s.allowed(ctx, h)
	})
	// reopened says that the grant is back without an act.
	reopened := func(ctx SpecContext) {
		GinkgoHelper()
		Expect(s.settled(ctx, open).Status.Act).To(Equal(act))
		s.allowed(ctx, h)
	}

	It("I6: closes while the installation is suspended", func(ctx SpecContext) {
		s.editInstallation(ctx, func(o *installation) { o.Spec.Suspend = true })
		s.settled(ctx, gated(v1alpha1.GateSuspended))
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		s.editInstallation(ctx, func(o *installation) { o.Spec.Suspend = false })
		reopened(ctx)
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human", "Narrow Suspended", "UpgradeReview Resumed"}))
	})

	It("I1: closes for both installations that claim one ServiceAccount", func(ctx SpecContext) {
		other := &v1alpha1.PluginInstallation{
			ObjectMeta: metav1.ObjectMeta{Name: unique("rival")}, Spec: *s.installation(ctx).Spec.DeepCopy(),
		}
		Expect(api.Create(ctx, other)).To(Succeed())
		s.settled(ctx, gated(v1alpha1.GateServiceAccountConflict))
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		for _, name := range []string{s.plugin, other.Name} {
			Eventually(func(g Gomega) {
				var o installation
				g.Expect(api.Get(ctx, client.ObjectKey{Name: name}, &o)).To(Succeed())
				rejected(g, &o, string(v1alpha1.GateServiceAccountConflict))
			}).Should(Succeed())
		}
		principal, ok := h.view.Principal(s.plugin, s.plugin)
		Expect(ok && principal.Conflict).To(BeTrue(), "nobody is authenticated by it")

		Expect(api.Delete(ctx, other)).To(Succeed())
		reopened(ctx)
		Eventually(func() bool {
			principal, ok := h.view.Principal(s.plugin, s.plugin)
			return ok && !principal.Conflict && principal.InstallationID != ""
		}).Should(BeTrue())
	})

	It("I1: closes while the ServiceAccount is in a workspace's namespace", func(ctx SpecContext) {
		label(ctx, s.plugin, unique("w"))
		s.settled(ctx, gated(v1alpha1.GateServiceAccountConflict))
		Eventually(func(g Gomega) { rejected(g, s.installation(ctx), v1alpha1.ReasonServiceAccountInWorkspace) }).Should(Succeed())
		label(ctx, s.plugin, "")
		reopened(ctx)
	})

	It("I1: closes when the principal changes, until the installer acknowledges it", func(ctx SpecContext) {
		pinned := s.registered(ctx).Status.ServiceAccountUID
		account := metav1.ObjectMeta{Namespace: s.plugin, Name: s.plugin}
		Expect(api.DeleteAllOf(ctx, newServiceAccountKind(), client.InNamespace(s.plugin))).To(Succeed())
		s.settled(ctx, gated(v1alpha1.GatePrincipalChanged))
		fresh := newServiceAccount(ctx, account.Namespace, account.Name)
		Eventually(func(g Gomega) {
			o := s.installation(ctx)
			rejected(g, o, string(v1alpha1.GatePrincipalChanged))
			g.Expect(says(o.Status.Conditions, v1alpha1.ConditionAccepted)).To(ContainSubstring(string(fresh.UID)))
			g.Expect(o.Status.ServiceAccountUID).To(Equal(pinned))
		}).Should(Succeed())

		s.editInstallation(ctx, func(o *installation) { o.Spec.ServiceAccountRef.AcceptUID = pinned })
		Expect(s.installation(ctx).Status.ServiceAccountUID).To(Equal(pinned), "another uid acknowledges nothing")
		s.editInstallation(ctx, func(o *installation) { o.Spec.ServiceAccountRef.AcceptUID = fresh.UID })
		Expect(s.installation(ctx).Status.ServiceAccountUID).To(Equal(fresh.UID))
		reopened(ctx)
	})

	It("I1: closes when the reference moves to another ServiceAccount", func(ctx SpecContext) {
		other := newServiceAccount(ctx, s.plugin, "other")
		s.editInstallation(ctx, func(o *installation) { o.Spec.ServiceAccountRef.Name = other.Name })
		s.settled(ctx, gated(v1alpha1.GatePrincipalChanged))
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		s.editInstallation(ctx, func(o *installation) { o.Spec.ServiceAccountRef.Name = s.plugin })
		reopened(ctx)
	})

	It("closes while another namespace claims the workspace, which gets nothing", func(ctx SpecContext) {
		claimant := unique("claimant")
		newNamespace(ctx, claimant)
		label(ctx, claimant, s.workspace)
		spec := s.spec(ctx, readTasks, writeTasks)
		theirs := &v1alpha1.PluginCapabilityApproval{ObjectMeta: metav1.ObjectMeta{Namespace: claimant, Name: s.plugin}, Spec: spec}
		Expect(api.Create(ctx, theirs)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(api.Get(ctx, client.ObjectKeyFromObject(theirs), theirs)).To(Succeed())
			g.Expect(theirs.Status.State).To(Equal(v1alpha1.StatePending))
			g.Expect(why(theirs.Status.Conditions, v1alpha1.ConditionReady)).To(Equal("WorkspaceConflict"))
			g.Expect(isTrue(theirs.Status.Conditions, v1alpha1.ConditionFenced)).To(BeFalse())
		}).Should(Succeed())
		s.settled(ctx, gated(v1alpha1.GateWorkspaceConflict))

		By("revoking in the wrong namespace, which concerns nobody")
		theirs.Spec.State = v1alpha1.StateRevoked
		Expect(api.Update(ctx, theirs)).To(Succeed())
		label(ctx, claimant, "")
		reopened(ctx)
		Eventually(func(g Gomega) {
			g.Expect(api.Get(ctx, client.ObjectKeyFromObject(theirs), theirs)).To(Succeed())
			g.Expect(why(theirs.Status.Conditions, v1alpha1.ConditionReady)).To(Equal(v1alpha1.ReasonWorkspaceMismatch))
		}).Should(Succeed())
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human", "Narrow GateClosed", "UpgradeReview GateOpened"}))
	})

	It("closes while a required capability isn't granted", func(ctx SpecContext) {
		s.editInstallation(ctx, func(o *installation) {
			o.Spec.Manifest.Capabilities = append(o.Spec.Manifest.Capabilities, v1alpha1.ManifestCapability{ID: readInbox, Required: true})
		})
		o := s.settled(ctx, gated(v1alpha1.GateRequiredCapabilityUnavailable))
		Expect(o.Status.Gates[0].Message).To(And(ContainSubstring(string(readInbox)), ContainSubstring(act)))
		s.refused(ctx, h, s.key(ctx), contract.ReasonMissingCapabilityApproval)
		s.editInstallation(ctx, func(o *installation) { o.Spec.Manifest = manifest(readTasks, writeTasks) })
		reopened(ctx)
	})

	It("closes while the manifest asks for a newer Host", func(ctx SpecContext) {
		s.editInstallation(ctx, func(o *installation) { o.Spec.Manifest.MinHostVersion = "999.0" })
		s.settled(ctx, gated(v1alpha1.GateHostVersionUnsupported))
		rejected(Default, s.installation(ctx), string(v1alpha1.GateHostVersionUnsupported))
		s.refused(ctx, h, s.key(ctx), contract.ReasonHostVersionUnsupported)
		s.editInstallation(ctx, func(o *installation) { o.Spec.Manifest.MinHostVersion = "0.43" })
		reopened(ctx)
	})
})

var _ = Describe("a workspace", func() {
	It("I7: that loses its label loses its grants for good", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		label(ctx, s.namespace, "")
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		s.settled(ctx, func(g Gomega, o *approval) {
			revoked(g, o)
			g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReady)).To(Equal(v1alpha1.ReasonWorkspaceMismatch))
		})
		label(ctx, s.namespace, s.workspace)
		o := s.settled(ctx, usedAgain)
		revoked(Default, o)
		Expect(story(ctx, s.key(ctx))[:2]).To(Equal([]string{"Grant Human", "Revoke WorkspaceRemoved"}))
	})

	It("I7: named by a namespace anew brings no used manifest along", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		before := s.key(ctx)
		other := unique("w")
		label(ctx, s.namespace, other)
		s.refused(ctx, h, before, contract.ReasonCapabilityRevoked)
		after := before
		after.WorkspaceID = other
		s.refused(ctx, h, after, contract.ReasonMissingCapabilityApproval)
		Expect(story(ctx, after)).To(BeEmpty())
	})
})

var _ = Describe("bad input", func() {
	It("I7: of another installation or manifest changes nothing and says what is right", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		good := s.spec(ctx, writeTasks)

		wrong := good
		wrong.InstallationID = uuid.NewString()
		s.apply(ctx, wrong)
		s.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(o.Status.State).To(Equal(v1alpha1.StatePending))
			g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReady)).To(Equal(v1alpha1.ReasonInstallationMismatch))
			g.Expect(says(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(And(
				ContainSubstring("spec.installationID"), ContainSubstring(good.InstallationID)))
		})

		stale := good
		stale.ManifestDigest = "v1:" + strings.Repeat("0", 64)
		s.apply(ctx, stale)
		s.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(o.Status.State).To(Equal(v1alpha1.StatePending))
			g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(Equal(v1alpha1.ReasonDigestNotInForce))
			g.Expect(says(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(And(
				ContainSubstring("spec.manifestDigest"), ContainSubstring(good.ManifestDigest)))
		})
		s.refused(ctx, h, s.key(ctx), contract.ReasonMissingCapabilityApproval)
		Expect(story(ctx, s.key(ctx))).To(BeEmpty())

		s.apply(ctx, good)
		s.settled(ctx, func(g Gomega, o *approval) { g.Expect(o.Status.State).To(Equal(v1alpha1.StateActive)) })
		s.allowed(ctx, h)
	})

	It("of a namespace that is no workspace, or of no installation, stays pending with the reason", func(ctx SpecContext) {
		start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks)
		spec := s.spec(ctx, readTasks)
		label(ctx, s.namespace, "")
		s.apply(ctx, spec)
		s.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(o.Status.State).To(Equal(v1alpha1.StatePending))
			g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReady)).To(Equal(v1alpha1.ReasonWorkspaceMismatch))
		})

		nobody := spec
		nobody.InstallationName = unique("nobody")
		label(ctx, s.namespace, s.workspace)
		o := &v1alpha1.PluginCapabilityApproval{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: nobody.InstallationName}, Spec: nobody}
		Expect(api.Create(ctx, o)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(api.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
			g.Expect(o.Status.State).To(Equal(v1alpha1.StatePending))
			g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReady)).To(Equal(v1alpha1.ReasonInstallationNotFound))
		}).Should(Succeed())

		By("the label that was missing, which lets the waiting approval take force")
		s.settled(ctx, func(g Gomega, o *approval) { g.Expect(o.Status.State).To(Equal(v1alpha1.StateActive)) })
	})
})
