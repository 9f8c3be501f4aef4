package controllers_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

// converged says that the history is whole, that status and row are at its end,
// and that nothing is left over.
func (s *scene) converged(ctx SpecContext, h *host, expected func(Gomega, *approval)) *approval {
	GinkgoHelper()
	key := s.key(ctx)
	return s.settled(ctx, func(g Gomega, o *approval) {
		expected(g, o)
		row, err := h.store.Row(ctx, key)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(row.Hold).To(BeNil())
		g.Expect(row.Starting).To(BeFalse())
		g.Expect(row.Revision).To(BeEquivalentTo(o.Status.Revision))
		events := history(ctx, key)
		g.Expect(events).To(HaveLen(int(row.Revision)))
		previous := ""
		for _, e := range events {
			g.Expect(e.Spec.PreviousHash).To(Equal(previous), "the chain holds at revision %d", e.Spec.Revision)
			previous = hashOf(e)
		}
		g.Expect(previous).To(Equal(row.EventHash))
	})
}

func active(g Gomega, o *approval) {
	g.Expect(o.Status.State).To(Equal(v1alpha1.StateActive))
	g.Expect(isTrue(o.Status.Conditions, v1alpha1.ConditionReady)).To(BeTrue())
	g.Expect(isTrue(o.Status.Conditions, v1alpha1.ConditionFenced)).To(BeTrue())
}

// dies waits until the process has died at its step.
func (h *host) dies() {
	GinkgoHelper()
	Eventually(h.killed).Should(BeClosed())
	h.wait()
}

func (h *host) dieAt(s step) { h.killAt.Store(&s) }

var _ = Describe("I3 I4 I7: a process killed", func() {
	for _, at := range steps {
		Describe(string(at), func() {
			var (
				db *database
				h  *host
				s  *scene
			)
			BeforeEach(func(ctx SpecContext) {
				db = newDatabase(ctx, onSQLite)
				h = start(db)
				s = newScene(ctx, readTasks, writeTasks)
			})

			if at != beforeHold && at != afterHold {
				It("of a grant: the grant takes force once", func(ctx SpecContext) {
					spec := s.spec(ctx, writeTasks)
					h.dieAt(at)
					s.apply(ctx, spec)
					h.dies()
					h = start(db)
					s.converged(ctx, h, active)
					s.allowed(ctx, h)
					Expect(story(ctx, s.key(ctx))[0]).To(Equal("Grant Human"))
				})

				It("of a grant that is revoked meanwhile: nothing is granted", func(ctx SpecContext) {
					spec := s.spec(ctx, writeTasks)
					h.dieAt(at)
					s.apply(ctx, spec)
					h.dies()
					spec.State = v1alpha1.StateRevoked
					s.apply(ctx, spec)
					h = start(db)
					s.converged(ctx, h, revoked)
					s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
				})
			}

			It("of a revocation: it is revoked, by a human", func(ctx SpecContext) {
				s.grant(ctx, writeTasks)
				spec := s.spec(ctx, writeTasks)
				spec.State = v1alpha1.StateRevoked
				h.dieAt(at)
				s.apply(ctx, spec)
				h.dies()
				h = start(db)
				s.converged(ctx, h, revoked)
				Expect(story(ctx, s.key(ctx))[:2]).To(Equal([]string{"Grant Human", "Revoke Human"}))
			})

			It("of a revocation, and the used manifest applied again: it stays revoked and the history says so", func(ctx SpecContext) {
				s.grant(ctx, writeTasks)
				used := s.spec(ctx, writeTasks)
				revoking := used
				revoking.State = v1alpha1.StateRevoked
				h.dieAt(at)
				s.apply(ctx, revoking)
				h.dies()
				s.apply(ctx, used)
				h = start(db)
				revoked(Default, s.converged(ctx, h, usedAgain))
				s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
				second := "Revoke Human"
				if at == beforeHold {
					// Nothing was durable: nobody knows what happened, so it counts
					// as revoked in between.
					second = "Revoke UnseenChange"
				}
				Expect(story(ctx, s.key(ctx))[:2]).To(Equal([]string{"Grant Human", second}))
			})

			It("of a narrowing that another one follows: both hold", func(ctx SpecContext) {
				s.grant(ctx, readTasks, writeTasks)
				h.dieAt(at)
				s.apply(ctx, s.spec(ctx, readTasks))
				h.dies()
				s.apply(ctx, s.spec(ctx, writeTasks))
				h = start(db)
				s.converged(ctx, h, func(g Gomega, o *approval) {
					g.Expect(o.Status.EffectiveCapabilities).To(BeEmpty())
					usedAgain(g, o)
				})
			})
		})
	}

	It("while a human revokes and a tool applies the used manifest again: it counts as revoked", func(ctx SpecContext) {
		db := newDatabase(ctx, onSQLite)
		h := start(db)
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		used := s.spec(ctx, writeTasks)
		h.kill()
		revoking := used
		revoking.State = v1alpha1.StateRevoked
		s.apply(ctx, revoking)
		s.apply(ctx, used)
		h = start(db)
		revoked(Default, s.converged(ctx, h, usedAgain))
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human", "Revoke UnseenChange"}))
	})

	It("while a human deletes and a tool applies the used manifest again: it counts as deleted", func(ctx SpecContext) {
		db := newDatabase(ctx, onSQLite)
		h := start(db)
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		used := s.spec(ctx, writeTasks)
		h.kill()
		s.remove(ctx)
		s.apply(ctx, used)
		h = start(db)
		revoked(Default, s.converged(ctx, h, usedAgain))
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human", "Revoke ApprovalDeleted"}))
	})

	It("I1: while a status claims another installation's ID: it inherits nothing", func(ctx SpecContext) {
		db := newDatabase(ctx, onSQLite)
		h := start(db)
		s, thief := newScene(ctx, readTasks, writeTasks), &scene{plugin: unique("thief")}
		s.grant(ctx, writeTasks)
		key := s.key(ctx)
		h.kill()
		newNamespace(ctx, thief.plugin)
		newServiceAccount(ctx, thief.plugin, thief.plugin)
		thief.install(ctx, readTasks, writeTasks)
		claimed := thief.installation(ctx)
		claimed.Status.InstallationID = key.InstallationID
		Expect(powerful.Status().Update(ctx, claimed)).To(Succeed())
		Expect(api.Delete(ctx, s.installation(ctx))).To(Succeed())

		h = start(db)
		s.refused(ctx, h, key, contract.ReasonCapabilityRevoked)
		Eventually(func() (bool, error) { return h.store.Tombstoned(ctx, key.InstallationID) }).Should(BeTrue())
		Eventually(func() []string { return story(ctx, key) }).Should(HaveExactElements(
			Equal("Grant Human"), HavePrefix("Revoke ")))
		Eventually(func(g Gomega) {
			g.Expect(why(thief.installation(ctx).Status.Conditions, v1alpha1.ConditionAccepted)).To(Equal(v1alpha1.ReasonHistoryLost))
		}).Should(Succeed())
	})

	It("I13: while everything is deleted in any order: the sweep revokes it", func(ctx SpecContext) {
		db := newDatabase(ctx, onSQLite)
		h := start(db)
		uninstalled, deleted := newScene(ctx, readTasks, writeTasks), newScene(ctx, readTasks, writeTasks)
		uninstalled.grant(ctx, writeTasks)
		deleted.grant(ctx, writeTasks)
		first, second := uninstalled.key(ctx), deleted.key(ctx)
		h.kill()
		Expect(api.Delete(ctx, uninstalled.installation(ctx))).To(Succeed())
		uninstalled.remove(ctx)
		deleted.remove(ctx)
		h = start(db)
		uninstalled.refused(ctx, h, first, contract.ReasonCapabilityRevoked)
		deleted.refused(ctx, h, second, contract.ReasonCapabilityRevoked)
		Eventually(func() []string { return story(ctx, second) }).Should(Equal([]string{"Grant Human", "Revoke ApprovalDeleted"}))
		Eventually(func() (bool, error) { return h.store.Tombstoned(ctx, first.InstallationID) }).Should(BeTrue())
		Eventually(func() int { return len(history(ctx, first)) }).Should(Equal(2))
		Expect(history(ctx, first)[1].Spec.Type).To(Equal(v1alpha1.EventRevoke))
	})
})

var _ = Describe("I6 I7: a store that takes no hold", func() {
	It("keeps the version waiting; the Host denies meanwhile, and nothing is forgotten", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		s.allowed(ctx, h)
		used := s.spec(ctx, writeTasks)
		revoking := used
		revoking.State = v1alpha1.StateRevoked
		h.failHolds.Store(1 << 40)
		s.apply(ctx, revoking)
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		s.apply(ctx, used)
		Consistently(func() []string { return story(ctx, s.key(ctx)) }).WithTimeout(time.Second).Should(Equal([]string{"Grant Human"}))
		refusal, err := h.decide(ctx, s.key(ctx), write())
		Expect(err).NotTo(HaveOccurred())
		Expect(refusal).To(BeNil(), "a version that grants the same lets the row stand")
		h.failHolds.Store(0)
		revoked(Default, s.converged(ctx, h, usedAgain))
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human", "Revoke Human"}))
	})
})

var _ = Describe("I3 I4: a lost store", func() {
	It("is rebuilt from the newest events: revisions go on, and what was granted still is", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s, lost := newScene(ctx, readTasks, writeTasks), newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		lost.grant(ctx, writeTasks)
		spec := lost.spec(ctx, writeTasks)
		spec.State = v1alpha1.StateRevoked
		lost.apply(ctx, spec)
		lost.settled(ctx, revoked)
		key := s.key(ctx)
		h.kill()

		h = start(newDatabase(ctx, onSQLite))
		o := s.converged(ctx, h, func(g Gomega, o *approval) {
			active(g, o)
			g.Expect(o.Status.Revision).To(BeEquivalentTo(2))
		})
		Expect(o.Status.Act).To(HavePrefix("1-"), "a rebuild is no act")
		Expect(s.key(ctx)).To(Equal(key), "the installation keeps its ID")
		s.allowed(ctx, h)
		Expect(story(ctx, key)).To(Equal([]string{"Grant Human", "UpgradeReview StoreEpoch"}))
		lost.converged(ctx, h, func(g Gomega, o *approval) {
			revoked(g, o)
			g.Expect(o.Status.Revision).To(BeNumerically(">", 2))
		})
	})

	It("I6: refuses an installation whose history is lost with it", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		h.kill()
		Expect(powerful.DeleteAllOf(ctx, &v1alpha1.PluginCapabilityApprovalEvent{})).To(Succeed())
		h = start(newDatabase(ctx, onSQLite))
		Eventually(func(g Gomega) {
			o := s.installation(ctx)
			g.Expect(why(o.Status.Conditions, v1alpha1.ConditionAccepted)).To(Equal(v1alpha1.ReasonHistoryLost))
			g.Expect(says(o.Status.Conditions, v1alpha1.ConditionAccepted)).To(ContainSubstring(s.namespace))
		}).Should(Succeed())
		refusal, err := h.decide(ctx, s.key(ctx), write())
		Expect(err).NotTo(HaveOccurred())
		Expect(refusal).NotTo(BeNil())
		Expect(story(ctx, s.key(ctx))).To(BeEmpty(), "no revision is used again")
	})
})

var _ = Describe("I5: a process that was deposed and has nothing to fence", func() {
	It("learns it at its next look, and ends", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		theirs, err := h.store.Lead(ctx)
		Expect(err).NotTo(HaveOccurred())
		Eventually(h.done).Should(BeClosed())
		Expect(h.failure).To(MatchError(ContainSubstring("no longer leads")))
		Expect(h.store.Epochs(ctx)).To(HaveField("Term", theirs))
	})
})

var _ = Describe("I5: a process that is deposed while it begins its term", func() {
	It("ends, and doesn't take the term back from the one that leads", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		h.kill()

		// A lost store: the next process has a row to rebuild.
		late := newHost(newDatabase(ctx, onSQLite))
		DeferCleanup(late.store.Close)
		var theirs fence.Term
		late.beforeFenceStart = func() {
			term, err := late.store.Lead(ctx)
			Expect(err).NotTo(HaveOccurred())
			theirs = term
		}
		run(late)
		DeferCleanup(func() {
			late.stop()
			Eventually(late.done).WithTimeout(patience).Should(BeClosed())
		})
		Eventually(late.done).Should(BeClosed())
		Expect(late.failure).To(MatchError(ContainSubstring("no longer leads")))
		epochs, err := late.store.Epochs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(epochs.Term).To(Equal(theirs))
		row, err := late.store.Row(ctx, s.key(ctx))
		Expect(err).NotTo(HaveOccurred())
		Expect(row.Revision).To(BeZero())
	})
})
