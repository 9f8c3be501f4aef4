package controllers_test

import (
	"context"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

// told lists the Kubernetes events about an object, in the order of their time.
func told(ctx context.Context, namespace, kind, name string) []eventsv1.Event {
	GinkgoHelper()
	var all eventsv1.EventList
	Expect(api.List(ctx, &all, client.InNamespace(namespace))).To(Succeed())
	about := slices.DeleteFunc(all.Items, func(e eventsv1.Event) bool { return e.Regarding.Kind != kind || e.Regarding.Name != name })
	slices.SortFunc(about, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	return about
}

// toldOf lists the reasons of those about the scene's approval.
func (s *scene) toldOf(ctx context.Context) []string {
	GinkgoHelper()
	var reasons []string
	for _, e := range told(ctx, s.namespace, "PluginCapabilityApproval", s.plugin) {
		reasons = append(reasons, e.Reason)
	}
	return reasons
}

var _ = Describe("a transition is told as a Kubernetes event", func() {
	It("once for each revision, with its actor and why, and never again by another process", func(ctx SpecContext) {
		db := newDatabase(ctx, onSQLite)
		h := start(db)
		s := newScene(ctx, readTasks, writeTasks)
		first := s.spec(ctx, writeTasks, readTasks)
		first.Reason = "The stand-up bot."
		s.apply(ctx, first)
		s.settled(ctx, active)
		narrower := first
		narrower.Capabilities, narrower.ChangedBy, narrower.Reason = []v1alpha1.CapabilityID{readTasks}, grace, "Too much."
		s.applyAs(ctx, as(grace), narrower)
		s.settled(ctx, func(g Gomega, o *approval) { g.Expect(o.Status.Revision).To(BeEquivalentTo(2)) })
		s.editInstallation(ctx, func(o *installation) { o.Spec.Suspend = true })
		s.settled(ctx, gated(v1alpha1.GateSuspended))
		s.editInstallation(ctx, func(o *installation) { o.Spec.Suspend = false })
		s.settled(ctx, open)
		expiring := s.wider(ctx, readTasks)
		expiring.ExpiresAt = h.inAnHour()
		s.apply(ctx, expiring)
		s.settled(ctx, active)
		revisions := func() []eventsv1.Event {
			return slices.DeleteFunc(told(ctx, s.namespace, "PluginCapabilityApproval", s.plugin), func(e eventsv1.Event) bool {
				return e.Reason == v1alpha1.EventReasonReviewRequired // of the grant that has expired
			})
		}
		// By the clock of an hour later they would be old, and none would be told any more.
		Eventually(revisions).Should(HaveLen(len(history(ctx, s.key(ctx)))))
		h.expire()
		s.settled(ctx, func(g Gomega, o *approval) { g.Expect(o.Status.State).To(Equal(v1alpha1.StateExpired)) })
		again := s.wider(ctx, readTasks)
		s.apply(ctx, again)
		s.settled(ctx, active)
		s.remove(ctx)
		want := []string{
			v1alpha1.EventReasonGranted, v1alpha1.EventReasonNarrowed, v1alpha1.EventReasonGateClosed, v1alpha1.EventReasonGateOpened,
		}
		Eventually(func() []string { return s.toldOf(ctx) }).Should(ContainElements(append(want, v1alpha1.EventReasonExpired, v1alpha1.EventReasonRevoked)))
		events := history(ctx, s.key(ctx))
		Eventually(revisions).Should(HaveLen(len(events)), "one for each revision")
		for i, e := range revisions() {
			Expect(e.Series).To(BeNil())
			Expect(e.Related).NotTo(BeNil())
			at := slices.IndexFunc(events, func(r v1alpha1.PluginCapabilityApprovalEvent) bool { return r.Name == e.Related.Name })
			Expect(at).To(BeNumerically(">=", 0), "%d: %s", i, e.Related.Name)
			if actor := events[at].Spec.Actor.Name; actor != "" {
				Expect(e.Note).To(And(ContainSubstring(actor), Not(ContainSubstring("as claimed"))))
			}
			Expect(e.Note).To(ContainSubstring("revision"))
		}
		Expect(kubectl(ctx, "get", "events.events.k8s.io", "-n", s.namespace, "-o=jsonpath={.items[*].note}")).To(And(
			ContainSubstring("grace@example.com (Human)"), ContainSubstring("Too much."), ContainSubstring("The stand-up bot.")))

		By("another process, which passes over everything")
		h.kill()
		count := reconciles()
		start(db)
		Eventually(func() float64 { return reconciles()["pass"] - count["pass"] }).Should(BeNumerically(">", 0))
		Consistently(revisions).WithTimeout(2 * time.Second).Should(HaveLen(len(events)))
	})

	It("user-asks 2: not before its status is written, and once, however often that fails", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s, other := newScene(ctx, readTasks, writeTasks), newScene(ctx, readTasks)
		o := other.grant(ctx, readTasks)
		spec := s.spec(ctx, writeTasks)
		stop := refuseWrites(ctx, "plugincapabilityapprovals/status", "false")
		Eventually(func() error { return writeStatus(ctx, o, `{"status":{"observedGeneration":1}}`) }).Should(MatchError(ContainSubstring("in the way")))
		before := failures("pass")
		s.apply(ctx, spec)
		Eventually(func() []string { return story(ctx, s.key(ctx)) }).Should(Equal([]string{"Grant Human"}))
		Eventually(func() float64 { return failures("pass") - before }).Should(BeNumerically(">", 3))
		Expect(s.toldOf(ctx)).To(BeEmpty())
		stop()
		s.converged(ctx, h, active)
		Eventually(func() []string { return s.toldOf(ctx) }).Should(Equal([]string{v1alpha1.EventReasonGranted}))
		By("another status of the same revision")
		Expect(writeStatus(ctx, s.approval(ctx), `{"status":{"effectiveSummary":"9/9"}}`)).To(Succeed())
		Eventually(func() string { return s.approval(ctx).Status.EffectiveSummary }).Should(Equal("1/2"))
		Consistently(func() []string { return s.toldOf(ctx) }).WithTimeout(2 * time.Second).Should(HaveLen(1))
	})

	It("when a human has to look, once for each time", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		used := s.spec(ctx, writeTasks)
		revoking := used
		revoking.State = v1alpha1.StateRevoked
		for range 2 {
			s.apply(ctx, revoking)
			s.settled(ctx, revoked)
			s.apply(ctx, used)
			s.converged(ctx, h, usedAgain)
		}
		Eventually(func() []string { return s.toldOf(ctx) }).Should(ContainElements(v1alpha1.EventReasonReviewRequired, v1alpha1.EventReasonRevoked))
		count := func() (n int) {
			for _, reason := range s.toldOf(ctx) {
				if reason == v1alpha1.EventReasonReviewRequired {
					n++
				}
			}
			return n
		}
		Eventually(count).Should(Equal(2))
		Consistently(count).WithTimeout(time.Second).Should(Equal(2))
		for _, e := range told(ctx, s.namespace, "PluginCapabilityApproval", s.plugin) {
			if e.Reason == v1alpha1.EventReasonReviewRequired {
				Expect(e.Type).To(Equal("Warning"))
				Expect(e.Note).To(ContainSubstring("spec.supersedesAct"), "it says what to write")
			}
		}
	})

	It("when history is lost, once", func(ctx SpecContext) {
		start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, readTasks)
		Expect(writeStatus(ctx, s.approval(ctx), `{"status":{"revision":1000}}`)).To(Succeed())
		lost := func() []string {
			return slices.DeleteFunc(s.toldOf(ctx), func(reason string) bool { return reason != v1alpha1.EventReasonHistoryLost })
		}
		Eventually(lost).Should(HaveLen(1))
		Eventually(func() []eventsv1.Event { return told(ctx, metav1.NamespaceDefault, "PluginInstallation", s.plugin) }).Should(
			ConsistOf(HaveField("Reason", v1alpha1.EventReasonHistoryLost)))
		Consistently(lost).WithTimeout(time.Second).Should(HaveLen(1))
	})

	It("when the admission policies are lost and regained, about the policy", func(ctx SpecContext) {
		restorePolicies()
		// What processes of other specs have told is told by their own clocks.
		before := map[string]bool{}
		each := func(do func(eventsv1.Event)) {
			for _, name := range v1alpha1.AdmissionPolicies() {
				for _, e := range told(ctx, metav1.NamespaceDefault, "ValidatingAdmissionPolicy", name) {
					do(e)
				}
			}
		}
		each(func(e eventsv1.Event) { before[e.Name] = true })
		start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, readTasks)
		reasons := func() (list []string) {
			each(func(e eventsv1.Event) {
				if !before[e.Name] && strings.Contains(e.Note, "admitted") {
					list = append(list, e.Reason)
				}
			})
			return list
		}
		Expect(reasons()).To(BeEmpty(), "that all is well is no news")
		_, binding := policyAndBinding(v1alpha1.PolicyStatus)
		Expect(api.Delete(ctx, binding)).To(Succeed())
		Eventually(reasons).Should(ConsistOf(v1alpha1.EventReasonPoliciesNotInForce))
		restoreNow(ctx)
		Eventually(reasons).Should(ConsistOf(v1alpha1.EventReasonPoliciesNotInForce, v1alpha1.EventReasonPoliciesInForce))
	})
})
