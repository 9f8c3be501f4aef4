package controllers_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

var _ = Describe("user-asks 25: what runs a plugin", func() {
	It("stays the same objects of the same owner through upgrades and rollbacks", func(ctx SpecContext) {
		startWithWorkloads(newDatabase(ctx, onSQLite))
		s := newWorkloadScene(ctx, true)
		s.workloadIs(ctx, v1alpha1.ReasonStarting)
		owner := s.installation(ctx).UID
		identities := func() map[types.UID]bool {
			GinkgoHelper()
			all, found := renderedIn(ctx, Default, s.plugin), map[types.UID]bool{}
			add := func(o client.Object) {
				Expect(metav1.GetControllerOf(o)).To(HaveValue(HaveField("UID", owner)))
				Expect(o.GetDeletionTimestamp()).To(BeNil())
				found[o.GetUID()] = true
			}
			for i := range all.deployments {
				add(&all.deployments[i])
			}
			for i := range all.policies {
				add(&all.policies[i])
			}
			for i := range all.cas {
				add(&all.cas[i])
			}
			return found
		}
		Eventually(identities).Should(HaveLen(3))
		first := identities()
		for _, n := range []int{2, 1, 3, 1, 2, 1} {
			image := fmt.Sprintf("standup@sha256:%d", n)
			s.editInstallation(ctx, func(o *installation) {
				o.Spec.Version, o.Spec.Workload.Image = fmt.Sprintf("%d.0.0", n), image
			})
			deployment(ctx, s.plugin, func(g Gomega, d *appsv1.Deployment) {
				g.Expect(d.Spec.Template.Spec.Containers[0].Image).To(Equal(image))
			})
			Expect(identities()).To(Equal(first), image)
		}
	})
})

var _ = Describe("user-asks 89: conditions that somebody else writes beside the controllers", func() {
	It("are ours again at the end, all of them and no other", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, readTasks, writeTasks)
		kinds := func(o *approval) (all []string) {
			for _, c := range o.Status.Conditions {
				all = append(all, c.Type)
			}
			return all
		}
		before := kinds(s.approval(ctx))
		Expect(len(before)).To(BeNumerically(">", 2))
		writing, stop := context.WithCancel(ctx)
		var writer sync.WaitGroup
		var written atomic.Int64
		writer.Go(func() {
			for n := 0; writing.Err() == nil; n++ {
				o := &approval{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.plugin}}
				kind := append([]string{"Mine"}, before...)[n%(len(before)+1)]
				patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"Unknown","reason":"Mine","message":"mine","lastTransitionTime":%q}]}}`,
					kind, time.Now().UTC().Format(time.RFC3339))
				if writeStatus(writing, o, patch) == nil {
					written.Add(1)
				}
			}
		})
		defer writer.Wait()
		defer stop()
		for n := range 10 {
			spec := s.spec(ctx, readTasks, writeTasks)
			spec.Reason = fmt.Sprint("Told better, ", n)
			s.apply(ctx, spec)
			so := written.Load()
			Eventually(written.Load).Should(BeNumerically(">", so+3))
		}
		stop()
		writer.Wait()
		o := s.converged(ctx, h, at(1, readTasks, writeTasks))
		Eventually(func() []string { return kinds(s.approval(ctx)) }).Should(ConsistOf(before))
		Expect(isTrue(o.Status.Conditions, v1alpha1.ConditionReady)).To(BeTrue())
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human"}))
	})
})

var _ = Describe("authority.md, restores: what no rule closes", func() {
	It("an approval that no process ever saw, deleted and made again meanwhile, is an act; one that was edited is none", func(ctx SpecContext) {
		db := newDatabase(ctx, onSQLite)
		h := start(db)
		remade, edited := newScene(ctx, readTasks, writeTasks), newScene(ctx, readTasks, writeTasks)
		again, revoking := remade.spec(ctx, writeTasks), edited.spec(ctx, writeTasks)
		used := revoking
		revoking.State = v1alpha1.StateRevoked
		h.regained(ctx)
		h.kill()

		remade.apply(ctx, again)
		remade.remove(ctx)
		remade.apply(ctx, again)
		edited.apply(ctx, used)
		edited.apply(ctx, revoking)
		edited.apply(ctx, used)
		h = start(db)
		remade.converged(ctx, h, at(1, writeTasks))
		remade.allowed(ctx, h)
		edited.converged(ctx, h, usedAgain)
		Expect(story(ctx, edited.key(ctx))).To(Equal([]string{"Revoke UnseenChange"}))
	})
})
