package controllers_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

// reconciles counts the requests that each controller has finished without an
// error, in every process of this suite.
func reconciles() map[string]float64 {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	finished := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, pair := range metric.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			if labels["result"] != "error" {
				finished[labels["controller"]] += metric.GetCounter().GetValue()
			}
		}
	}
	return finished
}

// failures counts the requests of a controller that ended in an error.
func failures(controller string) float64 {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_errors_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, pair := range metric.GetLabel() {
				if pair.GetName() == "controller" && pair.GetValue() == controller {
					return metric.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

// versions lists the resource version of every object of ours.
func versions(ctx context.Context) map[string]string {
	GinkgoHelper()
	all := map[string]string{}
	for _, kind := range []string{"PluginInstallation", "PluginCapabilityApproval", "PluginCapabilityApprovalEvent"} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
		Expect(api.List(ctx, list)).To(Succeed())
		for _, item := range list.Items {
			all[kind+" "+client.ObjectKeyFromObject(&item).String()] = item.ResourceVersion
		}
	}
	return all
}

var _ = Describe("the steady state", func() {
	It("writes nothing in 50 reconciles of everything", func(ctx SpecContext) {
		db := newDatabase(ctx, onSQLite)
		h := start(db)
		active := newScene(ctx, readTasks, writeTasks)
		active.grant(ctx, readTasks)
		suspended := newScene(ctx, readTasks)
		suspended.grant(ctx, readTasks)
		suspended.editInstallation(ctx, func(o *installation) { o.Spec.Suspend = true })
		suspended.settled(ctx, gated(v1alpha1.GateSuspended))
		used := newScene(ctx, readTasks)
		used.grant(ctx, readTasks)
		spec := used.spec(ctx, readTasks)
		spec.State = v1alpha1.StateRevoked
		used.apply(ctx, spec)
		used.settled(ctx, revoked)
		spec.State = v1alpha1.StateActive
		used.apply(ctx, spec)
		used.settled(ctx, usedAgain)
		pending := newScene(ctx, readTasks)
		waiting := pending.spec(ctx, readTasks)
		waiting.ManifestDigest = digestOf(writeTasks)
		pending.apply(ctx, waiting)
		pending.settled(ctx, func(g Gomega, o *approval) { g.Expect(o.Status.State).To(Equal(v1alpha1.StatePending)) })
		deleted := newScene(ctx, readTasks)
		deleted.grant(ctx, readTasks)
		deleted.remove(ctx)
		gone := newScene(ctx, readTasks)
		gone.grant(ctx, readTasks)
		Expect(api.Delete(ctx, gone.installation(ctx))).To(Succeed())
		gone.settled(ctx, revoked)
		again := newScene(ctx, readTasks)
		again.grant(ctx, readTasks)
		Expect(api.Delete(ctx, again.installation(ctx))).To(Succeed())
		again.settled(ctx, revoked)
		again.install(ctx, readTasks)
		again.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(o.Status.InstallationID).NotTo(Equal(o.Spec.InstallationID))
			g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReady)).To(Equal(v1alpha1.ReasonInstallationMismatch))
		})
		for _, s := range []*scene{active, suspended, used, deleted} {
			Eventually(func(g Gomega) {
				workspaces := s.installation(ctx).Status.Workspaces
				events := history(ctx, s.key(ctx))
				g.Expect(workspaces).To(ConsistOf(HaveField("Revision", int64(len(events)))))
				if s == deleted {
					g.Expect(workspaces[0].State).To(Equal(v1alpha1.StateRevoked))
				}
			}).Should(Succeed())
		}
		heads := func() (list []uint64) {
			for _, s := range []*scene{active, suspended, used, pending, deleted, gone, again} {
				version, _, err := h.store.Head(ctx, s.workspace)
				Expect(err).NotTo(HaveOccurred())
				list = append(list, uint64(version))
			}
			return list
		}
		before, commits := versions(ctx), heads()
		begin := reconciles()
		enough := func() bool {
			now := reconciles()
			for _, controller := range []string{"pass", "approval", "installation"} {
				if now[controller]-begin[controller] < 50 {
					return false
				}
			}
			return true
		}
		// A new process reconciles everything that there is.
		for round := 0; !enough(); round++ {
			Expect(round).To(BeNumerically("<", 50))
			h.stop()
			Eventually(h.done).Should(BeClosed())
			Expect(h.store.Close()).To(Succeed())
			count := reconciles()
			h = start(db)
			Eventually(func(g Gomega) {
				now := reconciles()
				g.Expect(now["pass"] - count["pass"]).To(BeNumerically(">=", 6))
				g.Expect(now["approval"] - count["approval"]).To(BeNumerically(">=", 5))
				g.Expect(now["installation"] - count["installation"]).To(BeNumerically(">=", 5))
			}).Should(Succeed())
		}
		Expect(versions(ctx)).To(Equal(before))
		Expect(heads()).To(Equal(commits), "nothing was committed either")
	})
})
