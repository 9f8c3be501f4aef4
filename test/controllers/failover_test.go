package controllers_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc/metadata"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// replicaLease is the leader's lease of processes under test, and that of the
// store: short, so that failing over takes no time.
const replicaLease = 3 * time.Second

// behind starts a process that reaches the API server through a proxy.
func (r *replicas) behind(p *proxy) proxied {
	GinkgoHelper()
	lease := replicaLease.String()
	return proxied{p, r.start("--kubeconfig="+p.kubeconfig, "--leader-lease-duration="+lease, "--lease-duration="+lease)}
}

// proxied is a process and its way to the API server.
type proxied struct {
	way *proxy
	*replica
}

// isLeading is what a process logs when its term has begun.
const isLeading = `"msg":"Leading"`

// readers ask replicas for the revision, one after the other, and remember where
// it went back.
type readers struct {
	mu      sync.Mutex
	hosts   []pluginv1.HostClient
	highest uint64
	wrong   []string
	answers atomic.Int64
}

// serve replaces the replicas that are asked.
func (r *readers) serve(replicas ...*replica) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hosts = nil
	for _, p := range replicas {
		r.hosts = append(r.hosts, p.host)
	}
}

func (r *readers) next(n int) pluginv1.HostClient {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hosts[n%len(r.hosts)]
}

func (r *readers) saw(n int, revision uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if revision < r.highest {
		r.wrong = append(r.wrong, fmt.Sprintf("replica %d: %d after %d", n, revision, r.highest))
	}
	r.highest = max(r.highest, revision)
}

// run reads until the spec ends.
func (r *readers) run(workspace, token string) {
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+token))
	done := make(chan struct{})
	DeferCleanup(func() {
		cancel()
		<-done
	})
	go func() {
		defer close(done)
		for n := 0; ctx.Err() == nil; n++ {
			limited, stop := context.WithTimeout(ctx, callLimit/4)
			response, err := r.next(n).GetCapabilityContext(limited, &pluginv1.GetCapabilityContextRequest{
				WorkspaceId: workspace, RequestId: uuid.NewString(),
			})
			stop()
			if revision := response.GetContext().GetApprovalRevision(); err == nil && revision > 0 {
				r.answers.Add(1)
				r.saw(n, revision)
			}
		}
	}()
}

// passSteps are the places in a pass at which the leader is taken away.
func passSteps() []struct {
	name string
	door *door
} {
	const events, status = "/plugincapabilityapprovalevents", "/status"
	return []struct {
		name string
		door *door
	}{
		{"the hold is written, the event is not", newDoor(http.MethodPost, events, false)},
		{"the event is written, the row is not fenced", newDoor(http.MethodPost, events, true)},
		{"the row is fenced, the status is not written", newDoor(http.MethodPatch, status, false)},
		{"the status is written, the pass has not ended", newDoor(http.MethodPatch, status, true)},
	}
}

var _ = Describe("I3 I4 I5: the leader of two replicas, as processes of their own, on PostgreSQL", func() {
	It("is killed, or stopped and woken, in the middle of each step: the other one takes over, and no reader sees a revision go back", func(ctx SpecContext) {
		server, err := startPostgres()
		Expect(err).NotTo(HaveOccurred())
		dsn, err := server.NewDatabase(ctx)
		Expect(err).NotTo(HaveOccurred())
		processes := buildReplicas(ctx, dsn)
		db := databaseAt(ctx, dsn).store() // the test leads nothing
		DeferCleanup(db.Close)

		leads := processes.behind(startProxy())
		leads.isReady(ctx)
		s := newScene(ctx, readTasks, writeTasks)
		s.seedWorkspace(ctx, db)
		s.grant(ctx, readTasks, writeTasks)
		key := s.key(ctx)
		follows := processes.behind(startProxy())
		follows.isReady(ctx)
		reads := &readers{}
		reads.serve(leads.replica, follows.replica)
		reads.run(s.workspace, s.token(ctx))

		expires := time.Now().Add(240 * time.Hour).Truncate(time.Second)
		for _, wakes := range []bool{false, true} {
			for _, step := range passSteps() {
				what := "killed: "
				if wakes {
					what = "stopped and woken: "
				}
				By(what + step.name)
				before := story(ctx, key)
				led, err := db.Epochs(ctx)
				Expect(err).NotTo(HaveOccurred())
				leads.way.arm(step.door)
				// Each edit takes time away, so that the grant goes on.
				expires = expires.Add(-time.Hour)
				spec := s.spec(ctx, readTasks, writeTasks)
				at := metav1.NewTime(expires)
				spec.ExpiresAt = &at
				since := time.Now()
				s.apply(ctx, spec)
				Eventually(step.door.reached).Should(BeClosed(), leads.log.String)
				if wakes {
					leads.signal(syscall.SIGSTOP)
				} else {
					leads.signal(syscall.SIGKILL)
					Eventually(leads.ended).Should(BeClosed())
					close(step.door.opened)
				}
				reads.serve(follows.replica)
				replaces := processes.behind(startProxy())
				narrowed := func(g Gomega, o *approval) {
					active(g, o)
					g.Expect(o.Status.ExpiresAt).NotTo(BeNil())
					g.Expect(o.Status.ExpiresAt.Time).To(BeTemporally("==", expires))
				}
				s.settled(ctx, narrowed)
				took := time.Since(since)
				Eventually(func(g Gomega) {
					epochs, err := db.Epochs(ctx)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(epochs.Term.LeaderEpoch).To(BeNumerically(">", led.Term.LeaderEpoch))
				}).Should(Succeed(), "the other one leads")
				s.settled(ctx, func(g Gomega, o *approval) {
					narrowed(g, o)
					row, err := db.Row(ctx, key)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(row.Hold).To(BeNil())
					g.Expect(row.Starting).To(BeFalse())
					g.Expect(row.Revision).To(BeEquivalentTo(o.Status.Revision))
				})
				AddReportEntry("failover", fmt.Sprintf("%s%s: recorded after %v", what, step.name, took.Round(time.Millisecond)))
				// Rebuilt from its event, a row is computed once more.
				after := story(ctx, key)
				Expect(after[len(before)]).To(Equal("Narrow Human"))
				Expect(after[len(before)+1:]).To(Or(BeEmpty(), Equal([]string{"UpgradeReview StoreEpoch"})))

				if wakes {
					head, _, err := db.Head(ctx, s.workspace)
					Expect(err).NotTo(HaveOccurred())
					leads.signal(syscall.SIGCONT)
					close(step.door.opened)
					Eventually(leads.ended).WithTimeout(patience).Should(BeClosed(), leads.log.String)
					Expect(leads.cmd.ProcessState.ExitCode()).To(Equal(1), leads.log.String())
					last, _, err := db.Head(ctx, s.workspace)
					Expect(err).NotTo(HaveOccurred())
					Expect(last).To(Equal(head), "the one that woke up moved nothing")
					Expect(strings.Count(leads.log.String(), isLeading)).To(Equal(1), "it didn't lead again")
					Expect(story(ctx, key)).To(Equal(after))
				}
				answered := reads.answers.Load()
				Eventually(reads.answers.Load).Should(BeNumerically(">", answered+5), "the one that leads answers")
				replaces.isReady(ctx)
				leads, follows = follows, replaces
				if strings.Contains(replaces.log.String(), isLeading) {
					leads, follows = replaces, leads
				}
				reads.serve(leads.replica, follows.replica)
			}
		}
		reads.mu.Lock()
		defer reads.mu.Unlock()
		Expect(reads.wrong).To(BeEmpty())
		row, err := db.Row(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		events := history(ctx, key)
		Expect(events).To(HaveLen(int(row.Revision)), "one event for each revision")
		Expect(hashOf(events[len(events)-1])).To(Equal(row.EventHash))
	})
})
