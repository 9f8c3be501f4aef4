package controllers_test

import (
	"context"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/store"
)

// mark is what the cluster knows of a store, nothing before the first round.
func (d *database) mark(ctx context.Context) (storeID string, beat uint64) {
	GinkgoHelper()
	var o corev1.ConfigMap
	err := powerful.Get(ctx, client.ObjectKey{Namespace: d.namespace, Name: "plugin-host-store"}, &o)
	if apierrors.IsNotFound(err) {
		return "", 0
	}
	Expect(err).NotTo(HaveOccurred())
	beat, err = strconv.ParseUint(o.Data["beat"], 10, 64)
	Expect(err).NotTo(HaveOccurred())
	return o.Data["storeID"], beat
}

// epoch is the store's.
func (h *host) epoch(ctx context.Context) uint64 {
	GinkgoHelper()
	epochs, err := h.store.Epochs(ctx)
	Expect(err).NotTo(HaveOccurred())
	return epochs.Term.StoreEpoch
}

// beats waits until a process has renewed the lease once more and told the
// cluster.
func (h *host) beats(ctx context.Context, db *database) {
	GinkgoHelper()
	round, err := h.store.BeginRound(ctx)
	Expect(err).NotTo(HaveOccurred())
	Eventually(func(g Gomega) {
		_, beat := db.mark(ctx)
		g.Expect(beat).To(BeNumerically(">", round.Beat))
	}).Should(Succeed())
}

var _ = Describe("I3 I7: a store that is not what it was", func() {
	var (
		db *database
		h  *host
		s  *scene
	)
	BeforeEach(func(ctx SpecContext) {
		db = newDatabase(ctx, onSQLite)
		h = start(db)
		s = newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, readTasks, writeTasks)
		h.beats(ctx, db)
	})

	It("an older one: what was taken away since stays away, and every sequence goes on", func(ctx SpecContext) {
		other := newScene(ctx, readTasks, writeTasks)
		other.grant(ctx, writeTasks)
		before := h.epoch(ctx)
		h.kill()
		copied := GinkgoT().TempDir()
		db.copyTo(copied)

		h = start(db)
		spec := s.spec(ctx, writeTasks)
		spec.State = v1alpha1.StateRevoked
		s.apply(ctx, spec)
		o := s.converged(ctx, h, revoked)
		h.beats(ctx, db)
		h.kill()
		db.restore(copied)

		h = start(db)
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		again := s.converged(ctx, h, func(g Gomega, now *approval) {
			revoked(g, now)
			g.Expect(now.Status.Revision).To(BeNumerically(">", o.Status.Revision))
		})
		Expect(h.epoch(ctx)).To(BeNumerically(">", before))
		Expect(again.Status.Act).To(Equal(o.Status.Act), "a restore is no act")
		other.converged(ctx, h, at(2, writeTasks))
		other.allowed(ctx, h)
		Expect(story(ctx, other.key(ctx))).To(Equal([]string{"Grant Human", "UpgradeReview StoreEpoch"}))
	})

	It("an older one that had not seen the grant: the grant stands, by its event", func(ctx SpecContext) {
		h.kill()
		copied := GinkgoT().TempDir()
		db.copyTo(copied)
		h = start(db)
		late := newScene(ctx, readTasks, writeTasks)
		late.grant(ctx, writeTasks)
		h.beats(ctx, db)
		h.kill()
		db.restore(copied)
		h = start(db)
		late.converged(ctx, h, at(2, writeTasks))
		late.allowed(ctx, h)
	})

	It("a lost one: rebuilt from the events, in another epoch than ever, and the cluster knows it from then on", func(ctx SpecContext) {
		former, _ := db.mark(ctx)
		h.kill()
		db.lose()
		h = start(db)
		s.converged(ctx, h, at(2, readTasks, writeTasks))
		s.allowed(ctx, h)
		Expect(h.epoch(ctx)).To(BeNumerically(">", 1))
		h.beats(ctx, db)
		now, _ := db.mark(ctx)
		Expect(now).NotTo(Equal(former))

		By("losing it again in the middle of that: one epoch more, nothing else")
		h.kill()
		db.lose()
		between := db.store()
		Expect(between.BeginEpoch(ctx)).To(Succeed())
		Expect(between.Close()).To(Succeed())
		h = start(db)
		s.converged(ctx, h, at(3, readTasks, writeTasks))
		s.allowed(ctx, h)
	})

	It("a crash between the store's beat and the cluster's: nothing happens", func(ctx SpecContext) {
		before := h.epoch(ctx)
		h.kill()
		between := db.store()
		round, err := between.BeginRound(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, err = between.RenewLease(ctx, round, leaseLife(roundEvery))
		Expect(err).NotTo(HaveOccurred())
		Expect(between.Close()).To(Succeed())
		h = start(db)
		s.converged(ctx, h, at(1, readTasks, writeTasks))
		s.allowed(ctx, h)
		Expect(h.epoch(ctx)).To(Equal(before))
	})

	It("replaced under a running leader: it begins a new epoch, and leads in that", func(ctx SpecContext) {
		before := h.epoch(ctx)
		var o corev1.ConfigMap
		Eventually(func() error {
			if err := powerful.Get(ctx, client.ObjectKey{Namespace: db.namespace, Name: "plugin-host-store"}, &o); err != nil {
				return err
			}
			o.Data["beat"] = "1000000"
			return powerful.Update(ctx, &o)
		}).Should(Succeed())
		Eventually(func() uint64 { return h.epoch(ctx) }).Should(BeNumerically(">", before))
		s.converged(ctx, h, at(2, readTasks, writeTasks))
		s.allowed(ctx, h)
		Expect(h.done).NotTo(BeClosed())
		_, beat := db.mark(ctx)
		Expect(beat).To(BeNumerically("<", 1000000))
	})

	It("with an older cluster: the rows stand, and a manifest that comes back is used", func(ctx SpecContext) {
		used := s.spec(ctx, readTasks, writeTasks)
		s.apply(ctx, s.spec(ctx, readTasks))
		o := s.converged(ctx, h, at(2, readTasks))
		h.beats(ctx, db)
		before := h.epoch(ctx)
		h.kill()
		By("restoring the objects of before: without status, under new uids, and without the newest event")
		newest := history(ctx, s.key(ctx))[1]
		Expect(powerful.Delete(ctx, &newest)).To(Succeed())
		s.remove(ctx)
		s.apply(ctx, used)
		var object corev1.ConfigMap
		Expect(powerful.Get(ctx, client.ObjectKey{Namespace: db.namespace, Name: "plugin-host-store"}, &object)).To(Succeed())
		object.Data["beat"] = "1"
		Expect(powerful.Update(ctx, &object)).To(Succeed())

		h = start(db)
		now := s.settled(ctx, usedAgain)
		Expect(now.Status.Revision).To(BeNumerically(">", o.Status.Revision))
		Expect(now.Status.EffectiveCapabilities).To(BeEmpty())
		Expect(h.epoch(ctx)).To(Equal(before))
		h.beats(ctx, db)
	})
})

var _ = Describe("I1 I7: a store of another cluster", func() {
	It("is refused, and adopted only by name: its authority ends", func(ctx SpecContext) {
		db := newDatabase(ctx, onSQLite)
		h := start(db)
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		key := s.key(ctx)
		h.kill()
		const elsewhere = "11111111-2222-3333-4444-555555555555"
		system := string(uidOf(ctx, "kube-system"))
		between := db.store()
		Expect(between.Claim(ctx, elsewhere, system)).To(Succeed(), "as if the other cluster had taken it")
		Expect(between.Close()).To(Succeed())

		late := newHost(db)
		_, err := late.manager(ctx)
		Expect(err).To(MatchError(store.ErrOtherCluster))
		Expect(err).To(MatchError(And(ContainSubstring(system), ContainSubstring(elsewhere), ContainSubstring("--store-adopt-from"))))
		Expect(late.store.Close()).To(Succeed())

		h = newHost(db)
		h.adoptFrom = elsewhere
		startHost(h)
		s.refused(ctx, h, key, contract.ReasonCapabilityRevoked)
		Expect(h.store.Tombstoned(ctx, key.InstallationID)).To(BeTrue())
	})

	It("that takes it while this one runs: the process ends", func(ctx SpecContext) {
		db := newDatabase(ctx, onPostgres)
		h := start(db)
		newScene(ctx, readTasks, writeTasks).grant(ctx, writeTasks)
		other := db.store()
		DeferCleanup(other.Close)
		Expect(other.Claim(ctx, "elsewhere", string(uidOf(ctx, "kube-system")))).To(Succeed())
		Eventually(h.done).Should(BeClosed())
		Expect(h.failure).To(HaveOccurred(), "it is deposed, or learns whose the store is")
		again := newHost(db)
		DeferCleanup(func() { Expect(again.store.Close()).To(Succeed()) })
		_, err := again.manager(ctx)
		Expect(err).To(MatchError(store.ErrOtherCluster))
	})
})
