package controllers_test

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

var _ = Describe("upstream: one plugin in two workspaces", func() {
	It("has a sequence in each: what happens in the one is nothing to the other, an upgrade reviews both, an uninstall ends both, once", func(ctx SpecContext) {
		db := newDatabase(ctx, onSQLite)
		h := start(db)
		a := newScene(ctx, readTasks, writeTasks)
		b := &scene{plugin: a.plugin}
		b.workspace, b.namespace = newWorkspace(ctx)
		a.grant(ctx, readTasks, writeTasks)
		b.grant(ctx, writeTasks)
		b.allowed(ctx, h)
		revoking := a.spec(ctx, readTasks, writeTasks)
		revoking.State = v1alpha1.StateRevoked
		a.apply(ctx, revoking)
		a.settled(ctx, revoked)
		a.refused(ctx, h, a.key(ctx), contract.ReasonCapabilityRevoked)
		b.converged(ctx, h, at(1, writeTasks))
		b.allowed(ctx, h)

		a.apply(ctx, a.wider(ctx, readTasks, writeTasks))
		a.converged(ctx, h, at(3, readTasks, writeTasks))
		a.editInstallation(ctx, func(o *installation) { o.Spec.Version = "1.0.1" })
		a.converged(ctx, h, at(4, readTasks, writeTasks))
		b.converged(ctx, h, at(2, writeTasks))
		Expect(a.installation(ctx).Status.InstallationID).To(Equal(a.approval(ctx).Spec.InstallationID))

		first, second := a.key(ctx), b.key(ctx)
		Expect(api.Delete(ctx, a.installation(ctx))).To(Succeed())
		a.settled(ctx, revoked)
		b.settled(ctx, revoked)
		h.kill()
		h = start(db)
		a.refused(ctx, h, first, contract.ReasonCapabilityRevoked)
		b.refused(ctx, h, second, contract.ReasonCapabilityRevoked)
		Expect(story(ctx, first)).To(Equal([]string{
			"Grant Human", "Revoke Human", "Grant Human", "UpgradeReview ManifestChanged", "Revoke Uninstalled"}))
		Expect(story(ctx, second)).To(Equal([]string{"Grant Human", "UpgradeReview ManifestChanged", "Revoke Uninstalled"}))
	})
})

var _ = Describe("authority.md, status: an approval that is replaced between the decision and its status", func() {
	It("the new object gets no status that was computed from the old one", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		old := s.grant(ctx, writeTasks)
		d := keepDiary(ctx, s.namespace)
		told := s.spec(ctx, writeTasks)
		told.Reason = "Told better."
		replace := func(seen authority.Seen) {
			defer GinkgoRecover()
			if seen.UID != string(old.UID) || seen.Generation != 2 {
				return
			}
			h.beforeMark.Store(nil)
			h.failHolds.Store(1 << 40) // else a hold may overtake the status
			s.remove(ctx)
			s.apply(ctx, told)
		}
		before := failures("pass")
		h.beforeMark.Store(&replace)
		s.apply(ctx, told)
		Eventually(func() float64 { return failures("pass") - before }).Should(BeNumerically(">", 0), "the status has been tried")
		h.failHolds.Store(0)
		revoked(Default, s.converged(ctx, h, usedAgain))
		h.stop()

		d.mu.Lock()
		defer d.mu.Unlock()
		replaced := 0
		for i := range d.seen {
			o := &d.seen[i]
			if o.UID == old.UID || len(o.Status.Conditions) == 0 {
				continue
			}
			replaced++
			Expect(o.Status.ObservedGeneration).To(BeNumerically("<=", o.Generation))
			Expect(isTrue(o.Status.Conditions, v1alpha1.ConditionReady)).To(BeFalse(), "%+v", o.Status)
		}
		Expect(replaced).To(BeNumerically(">", 0))
	})
})

var _ = Describe("authority.md, what the Host sees: edits that take nothing away", func() {
	It("make no revision, and not one call is refused meanwhile: a reason, a widening that is refused, metadata", func(ctx SpecContext) {
		// Its lease outlasts the spec on a busy machine too.
		h := startWithRounds(newDatabase(ctx, onSQLite), 5*time.Second)
		s := newScene(ctx, readTasks, writeTasks, readInbox)
		s.grant(ctx, readTasks, writeTasks)
		s.allowed(ctx, h)
		key, calls, refusals := s.key(ctx), 0, map[contract.Reason]int{}
		calling, stop := context.WithCancel(ctx)
		var caller sync.WaitGroup
		caller.Go(func() {
			defer GinkgoRecover()
			for ; calling.Err() == nil; calls++ {
				refusal, err := h.decide(ctx, key, write())
				Expect(err).NotTo(HaveOccurred())
				if refusal != nil {
					refusals[refusal.Reason]++
				}
			}
		})
		defer caller.Wait()
		defer stop()
		told := s.spec(ctx, readTasks, writeTasks)
		told.Reason = "Told better."
		s.apply(ctx, told)
		s.settled(ctx, active)
		s.apply(ctx, s.spec(ctx, readTasks, writeTasks, readInbox))
		s.settled(ctx, usedAgain)
		s.editInstallation(ctx, func(o *installation) { o.Annotations = map[string]string{"example.com/owner": "us"} })
		for _, name := range []string{s.namespace, s.plugin} {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			Expect(api.Patch(ctx, namespace, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"us"}}}`)))).To(Succeed())
		}
		s.converged(ctx, h, at(1, readTasks, writeTasks))
		stop()
		caller.Wait()
		Expect(refusals).To(BeEmpty())
		Expect(calls).To(BeNumerically(">", 20))
	})
})

var _ = Describe("user-asks 77: the kinds", func() {
	It("have one version each and no conversion, so that no webhook stands between a revocation and the controllers", func(ctx SpecContext) {
		var all apiextensionsv1.CustomResourceDefinitionList
		Expect(api.List(ctx, &all)).To(Succeed())
		ours := 0
		for i := range all.Items {
			spec := &all.Items[i].Spec
			if spec.Group != v1alpha1.GroupVersion.Group {
				continue
			}
			ours++
			Expect(spec.Versions).To(ConsistOf(And(HaveField("Name", v1alpha1.GroupVersion.Version), HaveField("Served", true), HaveField("Storage", true))))
			Expect(spec.Conversion.Strategy).To(Equal(apiextensionsv1.NoneConverter), all.Items[i].Name)
		}
		Expect(ours).To(BeNumerically(">=", 4))
	})
})
