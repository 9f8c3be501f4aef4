package controllers_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
)

// slack is what a lease's promise adds to its life.
const slack = 2 * time.Second

// latency measures from an answer of the API server, which was just given, until
// every one of some processes refuses a write, and says when that was.
func (s *scene) latency(ctx context.Context, path string, within time.Duration, processes ...*host) {
	GinkgoHelper()
	took := s.refusedWithin(ctx, within, processes...)
	AddReportEntry("latency", fmt.Sprintf("%s: refused after %v, at most %v", path, took.Round(time.Millisecond), within))
}

func (s *scene) refusedWithin(ctx context.Context, within time.Duration, processes ...*host) time.Duration {
	GinkgoHelper()
	key, since := s.key(ctx), time.Now()
	Eventually(func(g Gomega) {
		for _, h := range processes {
			refusal, err := h.decide(ctx, key, write())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(refusal).NotTo(BeNil())
		}
	}).WithTimeout(within).WithPolling(2 * time.Millisecond).Should(Succeed())
	return time.Since(since)
}

// elected runs a process that leads only while it has its namespace's lease.
func elected(h *host) *host {
	GinkgoHelper()
	h.elect = true
	run(h)
	DeferCleanup(func() {
		h.stop()
		Eventually(h.done).WithTimeout(patience).Should(BeClosed())
	})
	return h
}

// replicasOn runs two processes on one store; the first one leads.
func replicasOn(ctx context.Context, db *database) (leads, follows *host) {
	GinkgoHelper()
	shared := db.store()
	DeferCleanup(func() { Expect(shared.Close()).To(Succeed()) })
	leads = elected(newHostOn(shared, db.namespace))
	Eventually(func() error { return leads.isReady(ctx, "") }).Should(Succeed())
	Eventually(func(g Gomega) {
		round, err := shared.BeginRound(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(round.Complete).To(BeTrue())
	}).Should(Succeed())
	return leads, elected(newHostOn(shared, db.namespace))
}

var _ = Describe("I6: what was revoked is refused", func() {
	life := leaseLife(roundEvery)

	It("by every replica that watches, whoever leads", func(ctx SpecContext) {
		leads, follows := replicasOn(ctx, newDatabase(ctx, onSQLite))
		Eventually(func() error { return follows.isReady(ctx, "") }).Should(Succeed(), "it serves without leading")
		s := newScene(ctx, readTasks, writeTasks)
		o := s.grant(ctx, writeTasks)
		const times = 25
		took := make([]time.Duration, times)
		for i := range took {
			s.allowed(ctx, leads)
			s.allowed(ctx, follows)
			spec := s.spec(ctx, writeTasks)
			spec.SupersedesAct, spec.State = o.Status.Act, v1alpha1.StateRevoked
			s.apply(ctx, spec)
			took[i] = s.refusedWithin(ctx, slack, leads, follows)
			o = s.settled(ctx, revoked)
			spec.SupersedesAct, spec.State = o.Status.Act, v1alpha1.StateActive
			s.apply(ctx, spec)
			o = s.settled(ctx, active)
		}
		slices.Sort(took)
		AddReportEntry("latency", fmt.Sprintf("healthy watches, two replicas, %d revocations: half of them refused after %v, all after %v",
			times, took[times/2].Round(time.Microsecond), took[times-1].Round(time.Microsecond)))
	})

	It("while the leader is dead: by the others, at once; the next leader records it", func(ctx SpecContext) {
		leads, follows := replicasOn(ctx, newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		s.allowed(ctx, follows)
		leads.die()
		s.remove(ctx)
		s.latency(ctx, "dead leader, deleted", slack, follows)
		Eventually(func() []string { return story(ctx, s.key(ctx)) }).Should(Equal([]string{"Grant Human", "Revoke ApprovalDeleted"}))
	})

	It("while every watch is frozen: by the leader's next round, which records it", func(ctx SpecContext) {
		leads, follows := replicasOn(ctx, newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		s.allowed(ctx, leads)
		s.allowed(ctx, follows)
		leads.wire.freeze()
		follows.wire.freeze()
		used := s.spec(ctx, writeTasks)
		revoking := used
		revoking.State = v1alpha1.StateRevoked
		s.apply(ctx, revoking)
		s.latency(ctx, "frozen watches, revoked", life+slack, leads, follows)
		o := s.converged(ctx, leads, revoked)
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human", "Revoke Human"}))

		By("thawing them: what they lag behind takes nothing away that is granted since")
		anew := used
		anew.SupersedesAct = o.Status.Act
		s.apply(ctx, anew)
		leads.wire.thaw()
		follows.wire.thaw()
		s.converged(ctx, leads, active)
		s.allowed(ctx, leads)
		s.allowed(ctx, follows)
	})

	It("while every watch is frozen and the leader is dead: by another replica's round", func(ctx SpecContext) {
		leads, follows := replicasOn(ctx, newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		s.allowed(ctx, follows)
		follows.wire.freeze()
		leads.die()
		s.remove(ctx)
		s.latency(ctx, "frozen watches and a dead leader, deleted", life+slack, follows)
		Eventually(func() []string { return story(ctx, s.key(ctx)) }).Should(Equal([]string{"Grant Human", "Revoke ApprovalDeleted"}))
	})

	It("I7: while every watch is frozen, and the used manifest applied again: it counts as revoked", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		s.allowed(ctx, h)
		h.wire.freeze()
		used := s.spec(ctx, writeTasks)
		revoking := used
		revoking.State = v1alpha1.StateRevoked
		s.apply(ctx, revoking)
		s.apply(ctx, used)
		s.latency(ctx, "frozen watch, revoked and applied again", life+slack, h)
		revoked(Default, s.converged(ctx, h, usedAgain))
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human", "Revoke UnseenChange"}))
	})

	It("while every watch is frozen: an uninstall, a suspension, a label and an account too", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		uninstalled, suspended := newScene(ctx, readTasks, writeTasks), newScene(ctx, readTasks, writeTasks)
		unlabelled, replaced := newScene(ctx, readTasks, writeTasks), newScene(ctx, readTasks, writeTasks)
		all := []*scene{uninstalled, suspended, unlabelled, replaced}
		for _, s := range all {
			s.grant(ctx, writeTasks)
			s.allowed(ctx, h)
		}
		key := uninstalled.key(ctx)
		h.wire.freeze()
		Expect(api.Delete(ctx, uninstalled.installation(ctx))).To(Succeed())
		o := suspended.installation(ctx)
		o.Spec.Suspend = true
		Expect(api.Update(ctx, o)).To(Succeed())
		label(ctx, unlabelled.namespace, "")
		account := newServiceAccountKind()
		account.SetNamespace(replaced.plugin)
		account.SetName(replaced.plugin)
		Expect(api.Delete(ctx, account)).To(Succeed())
		for _, s := range []*scene{suspended, unlabelled, replaced} {
			s.latency(ctx, "frozen watch, around the approval", life+slack, h)
		}
		Eventually(func(g Gomega) {
			refusal, err := h.decide(ctx, key, write())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(refusal).NotTo(BeNil())
		}).WithTimeout(life + slack).Should(Succeed())
		suspended.converged(ctx, h, gated(v1alpha1.GateSuspended))
		replaced.converged(ctx, h, gated(v1alpha1.GatePrincipalChanged))
		Eventually(func() []string { return story(ctx, unlabelled.key(ctx)) }).Should(ContainElement("Revoke WorkspaceRemoved"))
	})

	It("while every watch is frozen and no event can be made: a suspension, by the next round, and it costs one revision", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		s.allowed(ctx, h)
		stop := refuseWrites(ctx, "plugincapabilityapprovalevents", "false")
		Eventually(func() error { return powerful.Create(ctx, forgery(ctx, s.key(ctx)), client.DryRunAll) }).Should(MatchError(ContainSubstring("in the way")))
		h.wire.freeze()
		o := s.installation(ctx)
		o.Spec.Suspend = true
		Expect(api.Update(ctx, o)).To(Succeed())
		s.latency(ctx, "frozen watch, no events, suspended", life+slack, h)
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human"}))
		stop()
		s.converged(ctx, h, gated(v1alpha1.GateSuspended))
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human", "Narrow Suspended"}))
	})

	It("while the API server is away: everything, once the lease has run out; and it comes back by itself", func(ctx SpecContext) {
		leads, follows := replicasOn(ctx, newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		s.allowed(ctx, leads)
		s.allowed(ctx, follows)
		key := s.key(ctx)
		leads.wire.sever()
		follows.wire.sever()
		s.latency(ctx, "no API server", life+slack, leads, follows)
		refusal, err := follows.decide(ctx, key, write())
		Expect(err).NotTo(HaveOccurred())
		Expect(refusal.Reason).To(Equal(contract.ReasonDependencyUnavailable), "nobody knows, so it isn't denied")
		Expect(follows.isReady(ctx, "lease")).To(MatchError(ContainSubstring("the lease has run out")))
		follows.wire.mend()
		s.allowed(ctx, follows)
		Expect(follows.isReady(ctx, "lease")).To(Succeed())
	})
})

var _ = Describe("a round", func() {
	It("reads no approval by itself where nothing has changed, whatever stands there", func(ctx SpecContext) {
		db := newDatabase(ctx, onSQLite)
		h := start(db)
		granted, used, gone := newScene(ctx, readTasks, writeTasks), newScene(ctx, readTasks), newScene(ctx, readTasks)
		granted.grant(ctx, writeTasks)
		used.grant(ctx, readTasks)
		spec := used.spec(ctx, readTasks)
		revoking := spec
		revoking.State = v1alpha1.StateRevoked
		used.apply(ctx, revoking)
		used.settled(ctx, revoked)
		used.apply(ctx, spec)
		used.settled(ctx, usedAgain)
		gone.grant(ctx, readTasks)
		label(ctx, gone.namespace, "")
		gone.settled(ctx, revoked)
		key := granted.key(ctx)
		h.beats(ctx, db)
		for range 5 {
			h.beats(ctx, db) // what was asked for before is done
		}
		before := h.wire.reads.Load()
		for range 5 {
			h.beats(ctx, db)
		}
		Expect(h.wire.reads.Load()).To(Equal(before))
		Expect(story(ctx, key)).To(HaveLen(1))
	})
})

var _ = Describe("I6: one object that can't be read", func() {
	It("stops nothing but what it concerns", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		poisoned, other := newScene(ctx, readTasks, writeTasks), newScene(ctx, readTasks, writeTasks)
		poisoned.grant(ctx, writeTasks)
		other.grant(ctx, writeTasks)
		poisoned.allowed(ctx, h)
		h.wire.poison(poisoned.namespace, poisoned.plugin)
		h.wire.freeze() // else the watch would tell
		spec := poisoned.spec(ctx, writeTasks)
		spec.Reason = "Nobody can read it."
		poisoned.apply(ctx, spec)
		poisoned.latency(ctx, "an approval that can't be read", leaseLife(roundEvery)+slack, h)
		Consistently(func(g Gomega) {
			refusal, err := h.decide(ctx, other.key(ctx), write())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(refusal).To(BeNil())
		}).WithTimeout(leaseLife(roundEvery)).Should(Succeed())
	})
})
