package controllers_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

// The rows of design/user-asks.md that touch conditions, events and the proof of
// the policies, each by its number. Rows 2 and 88 are in told_test.go and
// proof_test.go.

// diary collects every version of the approvals that the API server shows.
type diary struct {
	mu   sync.Mutex
	seen []approval
}

// keepDiary watches a namespace until the spec ends.
func keepDiary(ctx context.Context, namespace string) *diary {
	GinkgoHelper()
	theirs := rest.CopyConfig(config)
	theirs.Impersonate = rest.ImpersonationConfig{UserName: ada, Groups: []string{"system:masters"}}
	watching, err := client.NewWithWatch(theirs, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	stream, err := watching.Watch(ctx, &v1alpha1.PluginCapabilityApprovalList{}, client.InNamespace(namespace))
	Expect(err).NotTo(HaveOccurred())
	d, done := &diary{}, make(chan struct{})
	go func() {
		defer close(done)
		for change := range stream.ResultChan() {
			if o, ok := change.Object.(*approval); ok {
				d.mu.Lock()
				d.seen = append(d.seen, *o)
				d.mu.Unlock()
			}
		}
	}()
	DeferCleanup(func() {
		stream.Stop()
		<-done
	})
	return d
}

// consistent says that no version's status contradicts itself: whoever looks at
// one condition is told the same as who looks at another, or at the state.
func (d *diary) consistent() {
	GinkgoHelper()
	d.mu.Lock()
	defer d.mu.Unlock()
	Expect(len(d.seen)).To(BeNumerically(">", 15), "the watch has shown next to nothing")
	for i := range d.seen {
		o := &d.seen[i]
		s := &o.Status
		if len(s.Conditions) == 0 {
			continue
		}
		at := fmt.Sprintf("revision %d, state %s, generation %d: %+v", s.Revision, s.State, o.Generation, s.Conditions)
		for _, c := range s.Conditions {
			Expect(c.ObservedGeneration).To(Equal(s.ObservedGeneration), at)
			Expect(c.Message).NotTo(BeEmpty(), at)
		}
		ready, review := isTrue(s.Conditions, v1alpha1.ConditionReady), isTrue(s.Conditions, v1alpha1.ConditionReviewRequired)
		works := s.State == v1alpha1.StateActive && len(s.EffectiveCapabilities) > 0
		Expect(ready).To(Equal(works && isTrue(s.Conditions, v1alpha1.ConditionFenced)), at)
		if len(s.Gates) > 0 || s.State != v1alpha1.StateActive {
			Expect(s.EffectiveCapabilities).To(BeEmpty(), at)
			Expect(ready).To(BeFalse(), at)
		}
		if review {
			Expect(why(s.Conditions, v1alpha1.ConditionReviewRequired)).NotTo(Equal(v1alpha1.ReasonReviewed), at)
		}
		// An older generation is only ever what was written before the edit.
		if s.ObservedGeneration != o.Generation {
			Expect(s.ObservedGeneration).To(BeNumerically("<", o.Generation), at)
			Expect(i).To(BeNumerically(">", 0), at)
			Expect(s.Conditions).To(Equal(d.seen[i-1].Status.Conditions), at)
		}
	}
}

var _ = Describe("user-asks", func() {
	It("1: a restart with many pending approvals, while the policies can't be tried yet: nothing is decided, and then all is", func(ctx SpecContext) {
		const workspaces = 60
		db := newDatabase(ctx, onSQLite)
		h := start(db)
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		h.regained(ctx)
		h.kill()
		var scenes []*scene
		for range workspaces {
			one := &scene{plugin: s.plugin}
			one.workspace, one.namespace = newWorkspace(ctx)
			one.apply(ctx, one.spec(ctx, readTasks))
			scenes = append(scenes, one)
		}
		h = startSilent(db)
		s.allowed(ctx, h)
		decided := func() (n int) {
			var list v1alpha1.PluginCapabilityApprovalList
			Expect(api.List(ctx, &list)).To(Succeed())
			for i := range list.Items {
				if list.Items[i].Namespace != s.namespace && len(list.Items[i].Status.Conditions) > 0 {
					n++
				}
			}
			return n
		}
		Consistently(decided).WithTimeout(3 * time.Second).WithPolling(200 * time.Millisecond).Should(BeZero())
		h.silent.Store(false)
		for _, one := range scenes {
			one.converged(ctx, h, active)
		}
	})

	It("4: two writers of a status: a clear refusal, no loop, nothing changed; and kubectl apply is in nobody's way", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, readTasks)
		before := s.converged(ctx, h, active)
		file := filepath.Join(GinkgoT().TempDir(), "approval.yaml")
		written := map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": "PluginCapabilityApproval",
			"metadata": map[string]any{"namespace": s.namespace, "name": s.plugin}, "spec": s.spec(ctx, readTasks),
		}
		save := func() {
			text, err := yaml.Marshal(written)
			Expect(err).NotTo(HaveOccurred())
			Expect(os.WriteFile(file, text, 0o600)).To(Succeed())
		}
		save()
		apply := func(args ...string) (string, error) {
			out, err := exec.CommandContext(ctx, kubectlPath, append([]string{
				"--kubeconfig", kubeconfig, "--cache-dir", GinkgoT().TempDir(), "--as", ada, "--as-group", "system:masters", "apply", "-f", file,
			}, args...)...).CombinedOutput()
			return string(out), err
		}
		for _, args := range [][]string{{}, {"--server-side", "--force-conflicts"}, {"--server-side"}, {"--server-side"}} {
			out, err := apply(args...)
			Expect(err).NotTo(HaveOccurred(), out)
			Expect(out).NotTo(ContainSubstring("conflict"))
		}
		after := s.converged(ctx, h, active)
		Expect(after.Status).To(Equal(before.Status))
		Expect(after.Generation).To(Equal(before.Generation))

		By("somebody who writes the condition too")
		written["status"] = map[string]any{"conditions": []metav1.Condition{{
			Type: "Ready", Status: metav1.ConditionFalse, Reason: "Mine", LastTransitionTime: metav1.Now(), ObservedGeneration: after.Generation,
		}}}
		save()
		out, err := apply("--server-side", "--force-conflicts", "--subresource=status")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring(v1alpha1.PolicyStatus))
		Consistently(func() string { return s.approval(ctx).ResourceVersion }).WithTimeout(time.Second).Should(Equal(after.ResourceVersion))
	})

	It("5: what isn't granted is listed, each with its reason", func(ctx SpecContext) {
		start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks, "host.v2.write:messages")
		tighten(ctx, unique("deny"), v1alpha1.PolicyRule{Class: "RunsAndSessions", Deny: true})
		s.editInstallation(ctx, func(o *installation) {
			o.Spec.Manifest = manifest(readTasks, writeTasks, "host.v2.write:messages", "host.v2.write:sessions")
		})
		s.apply(ctx, s.spec(ctx, readTasks, writeTasks))
		s.settled(ctx, active)
		narrower := s.spec(ctx, readTasks)
		s.apply(ctx, narrower)
		s.settled(ctx, func(g Gomega, o *approval) { g.Expect(o.Status.Revision).To(BeEquivalentTo(2)) })
		s.apply(ctx, s.spec(ctx, readTasks, writeTasks, readInbox, "host.v2.write:sessions"))
		o := s.settled(ctx, usedAgain)
		Expect(o.Status.InactiveCapabilities).To(ConsistOf(
			v1alpha1.InactiveCapability{ID: string(writeTasks), Reason: v1alpha1.InactiveActAlreadyUsed},
			v1alpha1.InactiveCapability{ID: string(readInbox), Reason: v1alpha1.InactiveNotDeclared},
			v1alpha1.InactiveCapability{ID: "host.v2.write:messages", Reason: v1alpha1.InactiveNotReviewed},
			v1alpha1.InactiveCapability{ID: "host.v2.write:sessions", Reason: v1alpha1.InactiveHumanReserved},
		))
	})

	It("7 8: a revoked approval is shown as revoked, by whom and when; approving it again without a new act is told, not ignored", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		used := s.spec(ctx, writeTasks)
		revoking := used
		revoking.State, revoking.ChangedBy, revoking.Reason = v1alpha1.StateRevoked, grace, "It posts too much."
		s.applyAs(ctx, as(grace), revoking)
		o := s.converged(ctx, h, revoked)
		described := func() string { return kubectl(ctx, "describe", "pca", s.plugin, "-n", s.namespace) }
		Eventually(described).Should(And(
			ContainSubstring("Revoked"), ContainSubstring("a human took it away: "+grace),
			ContainSubstring(o.Status.UpdatedAt.UTC().Format("2006-01-02T15:04:05")), ContainSubstring("It posts too much.")))
		Expect(kubectl(ctx, "get", "pca", "-n", s.namespace, "--no-headers")).NotTo(ContainSubstring("Active"))
		Expect(kubectl(ctx, "get", "pcae", "-l", v1alpha1.LabelWorkspaceID+"="+s.workspace, "-o", "yaml")).To(And(
			ContainSubstring("approvedBy: "+ada), ContainSubstring("type: Grant"), ContainSubstring("type: Revoke")))

		again := used
		again.ChangedBy = grace
		s.apply(ctx, again)
		s.converged(ctx, h, usedAgain)
		Eventually(described).Should(And(ContainSubstring("ActAlreadyUsed"), ContainSubstring(`sets spec.supersedesAct to "`+o.Status.Act)))
	})

	It("10: a digest that is approved before it is installed, and an approval that races with the installation: one decision, none stuck", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks)
		ahead := s.spec(ctx, readTasks, writeTasks)
		ahead.ManifestDigest = digestOf(readTasks, writeTasks)
		s.apply(ctx, ahead)
		s.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(o.Status.State).To(Equal(v1alpha1.StatePending))
			g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(Equal(v1alpha1.ReasonDigestNotInForce))
		})
		s.editInstallation(ctx, func(o *installation) { o.Spec.Manifest = manifest(readTasks, writeTasks) })
		s.converged(ctx, h, active)
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human"}))

		By("an approval of nothing that is installed, and then is")
		late := &scene{plugin: unique("plugin")}
		late.workspace, late.namespace = newWorkspace(ctx)
		newNamespace(ctx, late.plugin)
		newServiceAccount(ctx, late.plugin, late.plugin)
		early := ahead
		early.InstallationName, early.WorkspaceID = late.plugin, late.workspace
		late.apply(ctx, early)
		late.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReady)).To(Equal(v1alpha1.ReasonInstallationNotFound))
		})
		late.install(ctx, readTasks, writeTasks)
		late.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(Equal(v1alpha1.ReasonInstallationMismatch))
		})
		late.apply(ctx, late.spec(ctx, readTasks))
		late.converged(ctx, h, active)
		Expect(story(ctx, late.key(ctx))).To(Equal([]string{"Grant Human"}))
	})

	It("11: granting, superseding, narrowing, revoking and expiring each leave one record with its actor, digest and object", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		o := s.grant(ctx, readTasks)
		s.anew(ctx, s.wider(ctx, readTasks, writeTasks))
		s.settled(ctx, func(g Gomega, o *approval) { g.Expect(o.Status.Revision).To(BeEquivalentTo(2)) })
		narrower := s.spec(ctx, readTasks)
		narrower.SupersedesAct, narrower.ApprovedBy, narrower.ChangedBy = s.approval(ctx).Spec.SupersedesAct, grace, ada
		s.apply(ctx, narrower)
		s.settled(ctx, func(g Gomega, o *approval) { g.Expect(o.Status.Revision).To(BeEquivalentTo(3)) })
		expiring := s.wider(ctx, readTasks, writeTasks)
		expiring.ExpiresAt = h.inAnHour()
		s.apply(ctx, expiring)
		s.settled(ctx, active)
		h.expire()
		s.settled(ctx, func(g Gomega, o *approval) { g.Expect(o.Status.State).To(Equal(v1alpha1.StateExpired)) })
		refusedAgain := s.spec(ctx, readTasks, writeTasks, readInbox)
		refusedAgain.SupersedesAct = expiring.SupersedesAct
		s.apply(ctx, refusedAgain)
		s.settled(ctx, usedAgain)
		revoking := refusedAgain
		revoking.State, revoking.ChangedBy = v1alpha1.StateRevoked, grace
		s.applyAs(ctx, as(grace), revoking)
		s.converged(ctx, h, revoked)

		type record struct {
			kind, cause, actor string
			assurance          v1alpha1.Assurance
		}
		var records []record
		for _, e := range history(ctx, s.key(ctx)) {
			records = append(records, record{string(e.Spec.Type), string(e.Spec.Cause), e.Spec.Actor.Name, e.Spec.Actor.Assurance})
			Expect(e.Spec.ManifestDigest).To(Equal(digestOf(readTasks, writeTasks)))
			Expect(e.Spec.Seen.UID).To(Equal(o.UID))
			Expect(e.Spec.AuditID).NotTo(BeEmpty())
			Expect(e.Spec.Unproven).To(BeFalse())
		}
		Expect(records).To(Equal([]record{
			{"Grant", "Human", ada, v1alpha1.AssuranceVerified},
			{"Grant", "Human", grace, v1alpha1.AssuranceVerified},
			{"Narrow", "Human", ada, v1alpha1.AssuranceVerified},
			{"Grant", "Human", ada, v1alpha1.AssuranceVerified},
			{"Revoke", "Expired", "", v1alpha1.AssuranceSystem},
			{"Revoke", "Human", grace, v1alpha1.AssuranceVerified},
		}))
	})

	It("29 80: whatever an approval goes through, no condition is left over, and none speaks of a generation that it wasn't made for", func(ctx SpecContext) {
		restorePolicies()
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		d := keepDiary(ctx, s.namespace)
		state := func(want v1alpha1.State) func(Gomega, *approval) {
			return func(g Gomega, o *approval) { g.Expect(o.Status.State).To(Equal(want)) }
		}
		regrant := func() {
			GinkgoHelper()
			spec := s.wider(ctx, readTasks, writeTasks)
			s.apply(ctx, spec)
			s.settled(ctx, func(g Gomega, o *approval) {
				active(g, o)
				g.Expect(o.Status.EffectiveCapabilities).To(HaveLen(2))
			})
		}
		revoke := func() {
			GinkgoHelper()
			spec := s.approval(ctx).Spec
			spec.State = v1alpha1.StateRevoked
			s.apply(ctx, spec)
			s.settled(ctx, revoked)
		}
		expire := func() {
			GinkgoHelper()
			spec := s.wider(ctx, readTasks)
			spec.ExpiresAt = h.inAnHour()
			s.apply(ctx, spec)
			s.settled(ctx, active)
			h.expire()
			s.settled(ctx, state(v1alpha1.StateExpired))
		}
		suspend := func(suspended bool) {
			GinkgoHelper()
			s.editInstallation(ctx, func(o *installation) { o.Spec.Suspend = suspended })
		}
		waiting := s.spec(ctx, readTasks, writeTasks)
		waiting.ManifestDigest = digestOf(readInbox)
		s.apply(ctx, waiting)
		s.settled(ctx, state(v1alpha1.StatePending))
		regrant() // Pending → Active
		suspend(true)
		s.settled(ctx, gated(v1alpha1.GateSuspended))
		revoke() // gated → Revoked
		suspend(false)
		s.settled(ctx, func(g Gomega, o *approval) { g.Expect(o.Status.Gates).To(BeEmpty()) })
		regrant() // Revoked → Active
		expire()  // Active → Expired
		revoke()  // Expired → Revoked
		expire()  // Revoked → Active → Expired
		regrant() // Expired → Active
		s.apply(ctx, s.spec(ctx, readTasks))
		s.settled(ctx, func(g Gomega, o *approval) { g.Expect(o.Status.EffectiveCapabilities).To(ConsistOf(readTasks)) })
		s.editInstallation(ctx, func(o *installation) { o.Spec.Manifest = manifest(writeTasks) })
		s.settled(ctx, func(g Gomega, o *approval) { g.Expect(o.Status.EffectiveCapabilities).To(BeEmpty()) })
		s.editInstallation(ctx, func(o *installation) { o.Spec.Manifest = manifest(readTasks, writeTasks) })
		s.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady).Status).To(Equal(metav1.ConditionFalse))
		})
		regrant()
		_, binding := policyAndBinding(v1alpha1.PolicyHumanPolicies)
		Expect(api.Delete(ctx, binding)).To(Succeed())
		notInForce(ctx, v1alpha1.PolicyHumanPolicies)
		s.apply(ctx, s.wider(ctx, writeTasks)) // Active, and not verified
		s.settled(ctx, func(g Gomega, o *approval) { g.Expect(o.Status.EffectiveCapabilities).To(ConsistOf(writeTasks)) })
		label(ctx, s.namespace, "")
		s.settled(ctx, revoked)
		label(ctx, s.namespace, s.workspace)
		s.settled(ctx, func(g Gomega, o *approval) { g.Expect(o.Status.Revision).To(BeNumerically(">", 10)) })
		Expect(api.Delete(ctx, s.installation(ctx))).To(Succeed())
		s.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReady)).To(Equal(v1alpha1.ReasonInstallationNotFound))
		})
		h.stop()
		d.consistent()
	})
})
