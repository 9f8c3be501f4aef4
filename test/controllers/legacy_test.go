package controllers_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
)

var (
	readByV1  = admission.LegacyNeed{contract.LegacyReadTasks}
	writeByV1 = admission.LegacyNeed{contract.LegacyWriteTasks}
)

// byV1 decides a v1 call of the plugin in one process.
func (s *scene) byV1(ctx context.Context, h *host, need admission.LegacyNeed) *admission.LegacyRefusal {
	GinkgoHelper()
	return admission.AuthoriseLegacy(h.view.Legacy(s.installation(ctx).Status.InstallationID), need, h.now())
}

func grantedTo(id string) *v1alpha1.Compatibility {
	grant := v1alpha1.CompatibilityGrant{InstallationID: id, ApprovedBy: ada, Reason: "works by v1"}
	return &v1alpha1.Compatibility{
		LegacyWriters: []v1alpha1.LegacyWriter{{Resource: "tasks", CompatibilityGrant: grant}}, ImplicitExpectNone: &grant,
	}
}

// newSceneByV1 installs a plugin that declares v1 methods, and has its writers granted.
func newSceneByV1(ctx context.Context) *scene {
	GinkgoHelper()
	s := newScene(ctx, readTasks)
	s.registered(ctx)
	s.editInstallation(ctx, func(o *installation) {
		o.Spec.Manifest.Legacy = &v1alpha1.LegacyManifest{
			APIRead: []v1alpha1.LegacyReadResource{"tasks"}, APIWrite: []v1alpha1.LegacyWriteResource{"tasks"}, Events: []string{"task.*"},
		}
		o.Spec.Compatibility = grantedTo(o.Status.InstallationID)
	})
	return s
}

var _ = Describe("I12: v1", func() {
	It("does what the manifest declares and an admin grants, and nothing else, with no approval", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newSceneByV1(ctx)
		Eventually(func() *admission.LegacyRefusal { return s.byV1(ctx, h, writeByV1) }).Should(BeNil())
		Expect(s.byV1(ctx, h, readByV1)).To(BeNil())
		Expect(s.byV1(ctx, h, admission.LegacyNeed{contract.LegacyReadMessages})).To(
			HaveField("Message", "capability 'api_read:messages' not declared"))
		seen := h.view.Legacy(s.installation(ctx).Status.InstallationID)
		Expect(seen.Events).To(Equal([]string{"task.*"}))
		Expect(admission.ImplicitExpectNone(seen, h.now())).To(BeTrue())
		s.refused(ctx, h, s.key(ctx), contract.ReasonMissingCapabilityApproval)

		By("taking the grant away")
		s.editInstallation(ctx, func(o *installation) { o.Spec.Compatibility = nil })
		Eventually(func() *admission.LegacyRefusal { return s.byV1(ctx, h, writeByV1) }).Should(
			HaveField("Message", ContainSubstring("capability 'api_write:tasks' not granted")))
		Expect(s.byV1(ctx, h, readByV1)).To(BeNil())

		By("suspending it")
		s.editInstallation(ctx, func(o *installation) { o.Spec.Suspend = true })
		Eventually(func() *admission.LegacyRefusal { return s.byV1(ctx, h, readByV1) }).Should(
			HaveField("Message", "the plugin is suspended by a platform admin"))
	})

	It("is not revived by an install from Git", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newSceneByV1(ctx)
		Eventually(func() *admission.LegacyRefusal { return s.byV1(ctx, h, writeByV1) }).Should(BeNil())
		was := s.installation(ctx)
		Expect(api.Delete(ctx, was)).To(Succeed())
		again := &v1alpha1.PluginInstallation{}
		again.Name, again.Spec = was.Name, was.Spec
		Expect(api.Create(ctx, again)).To(Succeed())
		now := s.registered(ctx)
		Expect(now.Status.InstallationID).NotTo(Equal(was.Status.InstallationID))
		Expect(says(now.Status.Conditions, v1alpha1.ConditionAccepted)).To(ContainSubstring(
			"spec.compatibility.legacyWriters[tasks] and spec.compatibility.implicitExpectNone names another installation"))
		Eventually(func() *admission.LegacyRefusal { return s.byV1(ctx, h, readByV1) }).Should(BeNil())
		Expect(s.byV1(ctx, h, writeByV1)).To(HaveField("Message", ContainSubstring("not granted")))
		seen := h.view.Legacy(now.Status.InstallationID)
		Expect(admission.ImplicitExpectNone(seen, h.now())).To(BeFalse())
	})

	It("I6: is refused by a replica whose watch is frozen, within a lease's life", func(ctx SpecContext) {
		leads, follows := replicasOn(ctx, newDatabase(ctx, onSQLite))
		s := newSceneByV1(ctx)
		for _, h := range []*host{leads, follows} {
			Eventually(func() *admission.LegacyRefusal { return s.byV1(ctx, h, readByV1) }).Should(BeNil())
		}
		id := s.installation(ctx).Status.InstallationID
		follows.wire.freeze()
		s.editInstallation(ctx, func(o *installation) { o.Spec.Suspend = true })
		since := time.Now()
		Eventually(func() *admission.LegacyRefusal {
			return admission.AuthoriseLegacy(follows.view.Legacy(id), readByV1, follows.now())
		}).WithTimeout(leaseLife(roundEvery) + slack).WithPolling(5 * time.Millisecond).Should(HaveField("Unavailable", true))
		AddReportEntry("latency", fmt.Sprintf("v1, frozen watch, suspended: refused after %v, at most %v",
			time.Since(since).Round(time.Millisecond), leaseLife(roundEvery)))
		Expect(s.byV1(ctx, leads, readByV1)).To(HaveField("Message", "the plugin is suspended by a platform admin"))

		By("thawing it")
		follows.wire.thaw()
		Eventually(func() *admission.LegacyRefusal { return s.byV1(ctx, follows, readByV1) }).Should(
			HaveField("Message", "the plugin is suspended by a platform admin"))
	})
})

// unchecked waits until the installation says that nobody has checked these grants.
func (s *scene) unchecked(ctx context.Context, fields ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		o := s.installation(ctx)
		g.Expect(o.Status.ObservedGeneration).To(Equal(o.Generation))
		g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(Equal(v1alpha1.ReasonNotVerified))
		g.Expect(isTrue(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(BeTrue())
		for _, field := range fields {
			g.Expect(says(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(ContainSubstring("spec.compatibility." + field))
		}
	}).Should(Succeed())
}

// forgeV1 has mallory edit the installation, as soon as the API server lets it.
func (s *scene) forgeV1(ctx context.Context, edit func(*installation)) {
	GinkgoHelper()
	Eventually(func() error {
		o := s.installation(ctx)
		edit(o)
		return as(mallory).Update(ctx, o)
	}).Should(Succeed())
}

var _ = Describe("I12: while an admission policy is not in force, a grant of compatibility", func() {
	notGranted := HaveField("Message", ContainSubstring("not granted"))
	breakPolicy := func(ctx context.Context) {
		policy, _ := policyAndBinding(v1alpha1.PolicyInstallations)
		Expect(api.Delete(ctx, policy)).To(Succeed())
		notInForce(ctx, v1alpha1.PolicyInstallations)
	}

	It("that is forged then never counts, what was granted stands, and the human's next edit counts", func(ctx SpecContext) {
		restorePolicies()
		h := start(newDatabase(ctx, onSQLite))
		s := newSceneByV1(ctx)
		Eventually(func() *admission.LegacyRefusal { return s.byV1(ctx, h, writeByV1) }).Should(BeNil())
		bystander := newSceneByV1(ctx)
		Eventually(func() *admission.LegacyRefusal { return bystander.byV1(ctx, h, writeByV1) }).Should(BeNil())
		id := s.installation(ctx).Status.InstallationID
		implied := func() bool { return admission.ImplicitExpectNone(h.view.Legacy(id), h.now()) }
		Expect(implied()).To(BeTrue())

		breakPolicy(ctx)
		s.forgeV1(ctx, func(o *installation) { o.Spec.Compatibility.LegacyWriters[0].Reason = "forged" })
		s.unchecked(ctx, "legacyWriters[tasks]")
		Expect(s.byV1(ctx, h, writeByV1)).To(notGranted)
		Expect(implied()).To(BeTrue(), "the entry that nobody touched")
		Expect(bystander.byV1(ctx, h, writeByV1)).To(BeNil(), "what was granted before")

		By("restoring it, and edits that need no right to approve")
		restoreNow(ctx)
		h.regained(ctx)
		s.forgeV1(ctx, func(o *installation) { o.Spec.Version = "1.0.1" })
		s.unchecked(ctx, "legacyWriters[tasks]")
		Consistently(func() *admission.LegacyRefusal { return s.byV1(ctx, h, writeByV1) }).WithTimeout(roundEvery).Should(notGranted)
		Expect(bystander.byV1(ctx, h, writeByV1)).To(BeNil())
		Expect(isTrue(bystander.registered(ctx).Status.Conditions, v1alpha1.ConditionReviewRequired)).To(BeFalse())

		By("the human's edit")
		s.editInstallation(ctx, func(o *installation) { o.Spec.Compatibility.LegacyWriters[0].Reason = "reviewed" })
		Eventually(func() *admission.LegacyRefusal { return s.byV1(ctx, h, writeByV1) }).Should(BeNil())
		Expect(implied()).To(BeTrue())
		Eventually(func() bool {
			return isTrue(s.registered(ctx).Status.Conditions, v1alpha1.ConditionReviewRequired)
		}).Should(BeFalse())
	})

	It("that was taken out before is not put back, and neither is what nobody watched", func(ctx SpecContext) {
		restorePolicies()
		db := newDatabase(ctx, onSQLite)
		h := start(db)
		s, stays := newSceneByV1(ctx), newSceneByV1(ctx)
		for _, one := range []*scene{s, stays} {
			Eventually(func() *admission.LegacyRefusal { return one.byV1(ctx, h, writeByV1) }).Should(BeNil())
		}
		granted := s.installation(ctx).Spec.Compatibility.DeepCopy()
		s.editInstallation(ctx, func(o *installation) { o.Spec.Compatibility = nil })
		breakPolicy(ctx)
		s.forgeV1(ctx, func(o *installation) { o.Spec.Compatibility = granted })
		s.unchecked(ctx, "legacyWriters[tasks]", "implicitExpectNone")
		Expect(s.byV1(ctx, h, writeByV1)).To(notGranted)
		Expect(stays.byV1(ctx, h, writeByV1)).To(BeNil())

		By("another process, which never takes what was granted for anything else")
		h.kill()
		h = start(db)
		Eventually(func(g Gomega) {
			refusal := stays.byV1(ctx, h, writeByV1)
			Expect(refusal == nil || refusal.Unavailable).To(BeTrue(), "%v", refusal)
			g.Expect(refusal).To(BeNil())
		}).WithPolling(time.Millisecond).Should(Succeed())
		s.unchecked(ctx, "legacyWriters[tasks]", "implicitExpectNone")

		By("another one that finds the policies back")
		h.kill()
		forged := newScene(ctx, readTasks)
		restoreNow(ctx)
		h = start(db)
		h.regained(ctx)
		Eventually(func() *admission.LegacyRefusal { return stays.byV1(ctx, h, writeByV1) }).Should(BeNil())
		s.unchecked(ctx, "legacyWriters[tasks]", "implicitExpectNone")
		Expect(s.byV1(ctx, h, writeByV1)).To(notGranted)

		By("a grant that comes and goes while no process runs, between two proofs")
		forged.registered(ctx)
		h.kill()
		breakPolicy(ctx)
		forged.forgeV1(ctx, func(o *installation) {
			o.Spec.Manifest.Legacy = &v1alpha1.LegacyManifest{APIWrite: []v1alpha1.LegacyWriteResource{"tasks"}}
			o.Spec.Compatibility = grantedTo(o.Status.InstallationID)
		})
		restoreNow(ctx)
		h = start(db)
		forged.unchecked(ctx, "legacyWriters[tasks]")
		Expect(forged.byV1(ctx, h, writeByV1)).To(notGranted)
		Expect(stays.byV1(ctx, h, writeByV1)).To(BeNil())
	})

	It("counts on every replica", func(ctx SpecContext) {
		leads, follows := replicasOn(ctx, newDatabase(ctx, onSQLite))
		s := newSceneByV1(ctx)
		for _, h := range []*host{leads, follows} {
			Eventually(func() *admission.LegacyRefusal { return s.byV1(ctx, h, writeByV1) }).Should(BeNil())
		}
	})
})

var _ = Describe("a plugin's configuration", func() {
	It("that doesn't fit is named in Accepted, and takes nothing away", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		act := s.grant(ctx, writeTasks).Status.Act
		s.allowed(ctx, h)
		document := func(text string) *apiextensionsv1.JSON { return &apiextensionsv1.JSON{Raw: []byte(text)} }
		o := s.editInstallation(ctx, func(o *installation) {
			o.Spec.Manifest.ConfigSchema = document(`{"type": "object", "properties": {"days": {"type": "integer", "minimum": 1}}}`)
			o.Spec.Config = document(`{"days": 0, "deep": {"kept": [1, null]}}`)
		})
		rejected(Default, o, v1alpha1.ReasonConfigInvalid)
		Expect(says(o.Status.Conditions, v1alpha1.ConditionAccepted)).To(HavePrefix("spec.config.days: "))
		s.allowed(ctx, h)
		Expect(s.approval(ctx).Status.Act).To(Equal(act))
		o = s.editInstallation(ctx, func(o *installation) { o.Spec.Config = document(`{"days": 1, "deep": {"kept": [1, null]}}`) })
		Expect(isTrue(o.Status.Conditions, v1alpha1.ConditionAccepted)).To(BeTrue())
		var read v1alpha1.PluginInstallation
		Expect(api.Get(ctx, client.ObjectKeyFromObject(o), &read)).To(Succeed())
		Expect(read.Spec.Config.Raw).To(MatchJSON(`{"days": 1, "deep": {"kept": [1, null]}}`))
	})
})
