package controllers_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/store"
)

const (
	workflow = "delivery"
	column   = "todo"
)

// frozen is the view of a replica whose watch has stopped: what it saw then it
// sees for ever. Only the row can stop its writers.
type frozen struct{ seen authority.Observed }

func (f *frozen) Observe(authority.Key) *authority.Observed { return &f.seen }

// writers hammer a workspace under one revision until they are stopped.
type writers struct {
	stop     context.CancelFunc
	group    sync.WaitGroup
	attempts []atomic.Int64
	applied  atomic.Int64
}

// seedWorkspace gives the scene's workspace a place for tasks.
func (s *scene) seedWorkspace(ctx context.Context, db *store.Store) (workflowVersion, stepVersion string) {
	GinkgoHelper()
	now := time.Now()
	Expect(db.Seed(ctx, s.workspace, func(tx store.SeedTx) error {
		if err := tx.Workflow(domain.Workflow{ID: workflow, Name: "Delivery", CreatedAt: now, UpdatedAt: now}); err != nil {
			return err
		}
		return tx.WorkflowStep(domain.WorkflowStep{ID: column, WorkflowID: workflow, Name: "To do", StageType: "custom", Start: true})
	})).To(Succeed())
	epochs, err := db.Epochs(ctx)
	Expect(err).NotTo(HaveOccurred())
	version, _, err := db.Head(ctx, s.workspace)
	Expect(err).NotTo(HaveOccurred())
	at := domain.ResourceVersion(epochs.StoreEpoch, version)
	return at, at
}

// hammer starts n writers under revision. Every other one is of a replica that
// sees nothing any more.
func (s *scene) hammer(h *host, key authority.Key, revision uint64, n int, workflowVersion, stepVersion string) *writers {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &writers{stop: cancel, attempts: make([]atomic.Int64, n)}
	DeferCleanup(func() {
		cancel()
		w.group.Wait()
	})
	seeing, blind := h.executor(), h.executor()
	blind.View = &frozen{*h.view.Observe(key)}
	method := admission.Method{Name: "CreateTaskExact", Capability: contract.WriteTasks, Writer: true}
	for i := range n {
		executor := seeing
		if i%2 == 1 {
			executor = blind
		}
		w.group.Go(func() {
			for ctx.Err() == nil {
				id := uuid.NewString()
				_, refusal := executor.Run(ctx, key.InstallationID, method, admission.Envelope{
					RequestID: id, WorkspaceID: key.WorkspaceID, Revision: revision, IdempotencyKey: id,
					Guard: &admission.Guard{ExpectNone: true},
				}, command.CreateTask{
					Draft:                   domain.TaskDraft{WorkflowID: workflow, WorkflowStepID: column, Title: "A task", ExternalID: id},
					ExpectedWorkflowVersion: workflowVersion, ExpectedStepVersion: stepVersion,
				})
				if refusal == nil {
					w.applied.Add(1)
				}
				w.attempts[i].Add(1)
			}
		})
	}
	return w
}

// tryOn waits until every writer has tried n times more.
func (w *writers) tryOn(n int64) {
	GinkgoHelper()
	goals := make([]int64, len(w.attempts))
	for i := range w.attempts {
		goals[i] = w.attempts[i].Load() + n
	}
	Eventually(func() bool {
		for i := range w.attempts {
			if w.attempts[i].Load() < goals[i] {
				return false
			}
		}
		return true
	}).WithTimeout(patience).Should(BeTrue())
}

// commits lists what a workspace's journal says in its order.
func commits(ctx context.Context, db *store.Store, workspace string) []journal.Entry {
	GinkgoHelper()
	var all []journal.Entry
	for after := domain.Version(0); ; {
		page, err := db.Entries(ctx, workspace, after, 1000)
		Expect(err).NotTo(HaveOccurred())
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		after = page[len(page)-1].Version
	}
}

// fencedOff says that no command of a revision below r was committed after the
// fence to r, and that some were before.
func fencedOff(entries []journal.Entry, r uint64) {
	GinkgoHelper()
	fenced, before := domain.Version(0), 0
	for _, e := range entries {
		switch {
		case e.Kind == journal.KindFence && e.Revision == r:
			fenced = e.Version
		case e.Kind == journal.KindCommand && fenced == 0:
			before++
		case e.Kind == journal.KindCommand && e.Revision < r:
			Fail(fmt.Sprintf("version %d, of revision %d, was committed after the fence to %d at version %d", e.Version, e.Revision, r, fenced))
		}
	}
	Expect(fenced).NotTo(BeZero(), "the fence is in the journal")
	Expect(before).To(BeNumerically(">", 0), "there were writers to fence off")
}

var _ = Describe("I5: a revocation against writers under the old revision", func() {
	// revoke revokes through the API server and waits for Fenced=True.
	revoke := func(ctx SpecContext, s *scene) *approval {
		GinkgoHelper()
		spec := s.spec(ctx, writeTasks)
		spec.State = v1alpha1.StateRevoked
		s.apply(ctx, spec)
		from := time.Now()
		o := s.settled(ctx, revoked)
		AddReportEntry("from the API server's answer to Fenced=True", time.Since(from))
		return o
	}

	for _, engine := range []string{onSQLite, onPostgres} {
		for _, n := range []int{16, 48} {
			It(fmt.Sprintf("of %d, on %s", n, engine), func(ctx SpecContext) {
				h := start(newDatabase(ctx, engine))
				s := newScene(ctx, readTasks, writeTasks)
				workflowVersion, stepVersion := s.seedWorkspace(ctx, h.store)
				s.grant(ctx, writeTasks)
				s.allowed(ctx, h)
				w := s.hammer(h, s.key(ctx), 1, n, workflowVersion, stepVersion)
				w.tryOn(5)
				Expect(w.applied.Load()).To(BeNumerically(">", 0))

				o := revoke(ctx, s)
				head, _, err := h.store.Head(ctx, s.workspace)
				Expect(err).NotTo(HaveOccurred())
				applied := w.applied.Load()
				w.tryOn(5)
				w.stop()
				w.group.Wait()
				fencedOff(commits(ctx, h.store, s.workspace), uint64(o.Status.Revision))
				last, _, err := h.store.Head(ctx, s.workspace)
				Expect(err).NotTo(HaveOccurred())
				Expect(last).To(Equal(head), "not one commit came after Fenced=True")
				Expect(w.applied.Load()-applied).To(BeNumerically("<=", int64(n)), "answers of earlier commits only")
				Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human", "Revoke Human"}))
			})
		}

		It("of 16 with a stale controller beside the one that leads, on "+engine, func(ctx SpecContext) {
			db := newDatabase(ctx, engine)
			stale := start(db)
			s := newScene(ctx, readTasks, writeTasks)
			workflowVersion, stepVersion := s.seedWorkspace(ctx, stale.store)
			s.grant(ctx, writeTasks)
			s.allowed(ctx, stale)

			var leading *host
			if engine == onSQLite {
				leading = beside(stale) // one process has the file
			} else {
				leading = start(db)
			}
			Eventually(leading.view.Missing).Should(BeEmpty())
			s.allowed(ctx, leading)
			w := s.hammer(leading, s.key(ctx), 1, 16, workflowVersion, stepVersion)
			w.tryOn(5)

			o := revoke(ctx, s)
			head, _, err := leading.store.Head(ctx, s.workspace)
			Expect(err).NotTo(HaveOccurred())
			w.tryOn(5)
			w.stop()
			w.group.Wait()
			fencedOff(commits(ctx, leading.store, s.workspace), uint64(o.Status.Revision))
			last, _, err := leading.store.Head(ctx, s.workspace)
			Expect(err).NotTo(HaveOccurred())
			Expect(last).To(Equal(head), "not one commit came after Fenced=True")
			Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human", "Revoke Human"}))

			By("the stale one alone, which can't fence and ends")
			leading.stop()
			Eventually(leading.done).Should(BeClosed())
			next := s.spec(ctx, writeTasks)
			next.SupersedesAct = o.Status.Act
			s.apply(ctx, next)
			Eventually(stale.done).Should(BeClosed())
			Expect(stale.failure).To(MatchError(ContainSubstring("no longer leads")))
			row, err := leading.store.Row(ctx, s.key(ctx))
			Expect(err).NotTo(HaveOccurred())
			Expect(row.State).To(Equal(authority.StateRevoked))
		})
	}
})
