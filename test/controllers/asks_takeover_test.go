package controllers_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// The lease is taken this often, and takes at most that long each time: its life and
// a retry, and room for a busy machine.
const (
	takeovers     = 20
	takeoverLimit = 10 * time.Second
)

var _ = Describe("user-asks 97: the lease", func() {
	It("is lost, given back, or runs out, again and again: one leads each time, whoever lost it ends, and who comes later contends", func(ctx SpecContext) {
		clients, err := kubernetes.NewForConfig(config)
		Expect(err).NotTo(HaveOccurred())
		db := newDatabase(ctx, onSQLite)
		leads, follows := replicasOn(ctx, db)
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, readTasks, writeTasks)
		leases := clients.CoordinationV1().Leases(db.namespace)
		change := func(spec string) {
			GinkgoHelper()
			_, err := leases.Patch(ctx, "plugin-host", types.MergePatchType, []byte(`{"spec":{`+spec+`}}`), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		term := func() uint64 {
			GinkgoHelper()
			epochs, err := follows.store.Epochs(ctx)
			Expect(err).NotTo(HaveOccurred())
			return epochs.Term.LeaderEpoch
		}
		first, slowest := term(), time.Duration(0)
		for n := uint64(1); n <= takeovers; n++ {
			since := time.Now()
			switch {
			case n%7 == 0:
				// It lives, and finds the lease another's for longer than it may try.
				change(`"holderIdentity":"somebody-else","leaseDurationSeconds":2`)
				Eventually(leads.done).Should(BeClosed())
				Expect(leads.failure).To(HaveOccurred(), "it lost the lease")
			case n%2 == 0:
				leads.die()
				Eventually(leads.done).Should(BeClosed())
				change(`"holderIdentity":""`)
			default:
				leads.die()
				Eventually(leads.done).Should(BeClosed())
				change(`"leaseDurationSeconds":1`)
			}
			Eventually(term).Should(BeNumerically(">", first+n-1))
			took := time.Since(since)
			Expect(took).To(BeNumerically("<", takeoverLimit))
			slowest = max(slowest, took)
			Expect(term()).To(Equal(first+n), "one led")
			leads, follows = follows, elected(newHostOn(follows.store, db.namespace))
		}
		AddReportEntry("takeovers", fmt.Sprintf("%d, the slowest took %v", takeovers, slowest.Round(time.Millisecond)))
		Expect(leads.done).NotTo(BeClosed())
		s.remove(ctx)
		Eventually(func() []string { return story(ctx, s.key(ctx)) }).Should(ContainElement("Revoke ApprovalDeleted"))
		Expect(term()).To(Equal(first+takeovers), "nobody led in between")
	})
})
