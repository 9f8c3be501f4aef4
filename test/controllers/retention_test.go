package controllers_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// staying is how many of a sequence's newest events no pruning takes.
const staying = 20

// left lists the events of a key that the API server has, by revision.
func left(ctx context.Context, key authority.Key) map[uint64]v1alpha1.PluginCapabilityApprovalEvent {
	GinkgoHelper()
	var list v1alpha1.PluginCapabilityApprovalEventList
	Expect(api.List(ctx, &list, client.MatchingFields{
		"spec.installationID": key.InstallationID, "spec.workspaceID": key.WorkspaceID,
	})).To(Succeed())
	all := map[uint64]v1alpha1.PluginCapabilityApprovalEvent{}
	for _, e := range list.Items {
		all[uint64(e.Spec.Revision)] = e
	}
	return all
}

// revisions makes the scene's sequence n long.
func (s *scene) revisions(ctx context.Context, n int) {
	GinkgoHelper()
	for i := len(history(ctx, s.key(ctx))); i < n; i++ {
		s.editInstallation(ctx, func(o *installation) { o.Spec.Suspend = !o.Spec.Suspend })
		Eventually(func() int { return len(history(ctx, s.key(ctx))) }).Should(Equal(i + 1))
	}
	s.settled(ctx, func(g Gomega, o *approval) { g.Expect(o.Status.Revision).To(BeEquivalentTo(n)) })
}

var _ = Describe("I4: the retention of events", func() {
	const length = 31

	var (
		db  *database
		s   *scene
		key authority.Key
	)
	BeforeEach(func(ctx SpecContext) {
		db = newDatabase(ctx, onSQLite)
		h := start(db)
		s = newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		key = s.key(ctx)
		s.revisions(ctx, length)
		h.kill()
	})
	// pruning starts a process for which every event is old.
	pruning := func(prepare ...func(*host)) *host {
		GinkgoHelper()
		h := newHost(db)
		h.retention = time.Nanosecond
		for _, fn := range prepare {
			fn(h)
		}
		startHost(h)
		return h
	}
	// provable says that archive and API hold one unbroken chain.
	provable := func(ctx context.Context, h *host) {
		GinkgoHelper()
		archived, err := h.store.ArchivedEvents(ctx, key, 0, 1000)
		Expect(err).NotTo(HaveOccurred())
		Expect(archived).To(HaveLen(length - staying))
		remaining, hash := left(ctx, key), ""
		for _, event := range archived {
			Expect(event.PreviousHash).To(Equal(hash))
			hash = event.Hash()
			Expect(remaining).NotTo(HaveKey(event.Row.Revision))
		}
		for revision := uint64(length - staying + 1); revision <= length; revision++ {
			event := remaining[revision]
			Expect(event.Spec.PreviousHash).To(Equal(hash), "revision %d", revision)
			hash = hashOf(event)
		}
	}

	It("prunes what the store has, keeps the newest, and leaves a chain that is whole; authority goes on", func(ctx SpecContext) {
		h := pruning()
		Eventually(func() int { return len(left(ctx, key)) }).Should(Equal(staying))
		provable(ctx, h)

		By("a lost store, which is rebuilt from what is left")
		h.kill()
		h = start(newDatabase(ctx, onSQLite))
		s.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(o.Status.Revision).To(BeNumerically(">", length))
			g.Expect(isTrue(o.Status.Conditions, v1alpha1.ConditionFenced)).To(BeTrue())
		})
		s.allowed(ctx, h)
	})

	It("survives a crash between the archive and the deletions", func(ctx SpecContext) {
		h := pruning(func(h *host) { h.dieAtDelete.Store(5) })
		Eventually(h.killed).Should(BeClosed())
		Expect(len(left(ctx, key))).To(BeNumerically(">", staying))
		h.wait()
		h = pruning()
		Eventually(func() int { return len(left(ctx, key)) }).Should(Equal(staying))
		provable(ctx, h)
	})

	It("prunes nothing that doesn't lead up to what stays: a gap is left as it is, and so is what follows it", func(ctx SpecContext) {
		gap := &v1alpha1.PluginCapabilityApprovalEvent{}
		gap.Name = authority.EventName(key, 4)
		Expect(powerful.Delete(ctx, gap)).To(Succeed())
		other := newScene(ctx, readTasks)
		h := pruning()
		other.grant(ctx, readTasks)
		Consistently(func() int { return len(left(ctx, key)) }).WithTimeout(2 * time.Second).Should(Equal(length - 1))
		archived, err := h.store.ArchivedEvents(ctx, key, 0, 1000)
		Expect(err).NotTo(HaveOccurred())
		Expect(archived).To(BeEmpty())
	})

	It("prunes nothing that is young", func(ctx SpecContext) {
		pruning(func(h *host) { h.retention = time.Hour })
		s.settled(ctx, open)
		Consistently(func() int { return len(left(ctx, key)) }).WithTimeout(2 * time.Second).Should(Equal(length))
	})
})
