package controllers_test

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeobject "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

var _ = Describe("in the wrong order", func() {
	var (
		h *host
		s *scene
	)
	BeforeEach(func(ctx SpecContext) {
		h = start(newDatabase(ctx, onSQLite))
		s = newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		s.allowed(ctx, h)
	})

	It("I3 I7: an installation deleted and created again at once: the old approval says what is wrong with it", func(ctx SpecContext) {
		old := s.key(ctx)
		Expect(api.Delete(ctx, s.installation(ctx))).To(Succeed())
		s.install(ctx, readTasks, writeTasks)
		s.refused(ctx, h, old, contract.ReasonCapabilityRevoked)
		fresh := s.key(ctx)
		Expect(fresh.InstallationID).NotTo(Equal(old.InstallationID))
		s.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(o.Status.State).To(Equal(v1alpha1.StatePending))
			g.Expect(o.Status.InstallationID).To(Equal(fresh.InstallationID))
			for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReviewRequired} {
				g.Expect(why(o.Status.Conditions, kind)).To(Equal(v1alpha1.ReasonInstallationMismatch))
				g.Expect(says(o.Status.Conditions, kind)).To(ContainSubstring(fresh.InstallationID))
			}
		})
		s.refused(ctx, h, fresh, contract.ReasonMissingCapabilityApproval)
		Eventually(func() []string { return story(ctx, old) }).Should(Equal([]string{"Grant Human", "Revoke Uninstalled"}))
		Expect(story(ctx, fresh)).To(BeEmpty())
		Eventually(func() (bool, error) { return h.store.Tombstoned(ctx, old.InstallationID) }).Should(BeTrue())
	})

	It("I7: an approval deleted and created again at once: revoked", func(ctx SpecContext) {
		used := s.spec(ctx, writeTasks)
		s.remove(ctx)
		s.apply(ctx, used)
		revoked(Default, s.converged(ctx, h, usedAgain))
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human", "Revoke ApprovalDeleted"}))
	})

	It("I7: 50 edits in a row, revoked and not: revoked, and every revision has its event", func(ctx SpecContext) {
		used := s.spec(ctx, writeTasks)
		for i := range 50 {
			spec := used
			if i%2 == 0 {
				spec.State = v1alpha1.StateRevoked
			}
			spec.Reason = fmt.Sprint("Edit ", i)
			s.apply(ctx, spec)
		}
		revoked(Default, s.converged(ctx, h, usedAgain))
		Expect(s.approval(ctx).Generation).To(BeEquivalentTo(51))
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		lines := story(ctx, s.key(ctx))
		Expect(lines[:2]).To(Equal([]string{"Grant Human", "Revoke Human"}))
		for _, line := range lines[1:] {
			Expect(line).To(Equal("Revoke Human"), "nothing is granted in between")
		}
	})

	It("an edit between the decision and its status: no status speaks of a version that it wasn't computed from", func(ctx SpecContext) {
		revoking := s.spec(ctx, writeTasks)
		revoking.State = v1alpha1.StateRevoked
		edit := func(seen authority.Seen) {
			defer GinkgoRecover()
			if seen.Generation == 2 {
				h.beforeMark.Store(nil)
				s.apply(ctx, revoking)
			}
		}
		var lies atomic.Int64
		check := func(written runtimeobject.ApplyConfiguration) {
			defer GinkgoRecover()
			text, err := json.Marshal(written)
			Expect(err).NotTo(HaveOccurred())
			var o approval
			Expect(json.Unmarshal(text, &o)).To(Succeed())
			if o.Status.ObservedGeneration > 2 && isTrue(o.Status.Conditions, v1alpha1.ConditionReady) {
				lies.Add(1)
			}
		}
		h.beforeMark.Store(&edit)
		h.afterStatus.Store(&check)
		told := s.spec(ctx, writeTasks)
		told.Reason = "Told better."
		s.apply(ctx, told)
		s.converged(ctx, h, revoked)
		Expect(s.approval(ctx).Generation).To(BeEquivalentTo(3))
		Expect(lies.Load()).To(BeZero())
	})

	It("I13: a namespace deleted with everything in it", func(ctx SpecContext) {
		key := s.key(ctx)
		// Without a controller manager it stays in deletion, which counts.
		Expect(api.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})).To(Succeed())
		s.refused(ctx, h, key, contract.ReasonCapabilityRevoked)
		s.remove(ctx)
		Eventually(func() []string { return story(ctx, key) }).Should(HaveExactElements(Equal("Grant Human"), HavePrefix("Revoke ")))
		Eventually(func(g Gomega) {
			workspaces := s.installation(ctx).Status.Workspaces
			g.Expect(workspaces).To(ConsistOf(HaveField("State", v1alpha1.StateRevoked)))
		}).Should(Succeed())
	})

	It("I7: a label moved to another namespace: neither has anything, and the other says whose it is", func(ctx SpecContext) {
		other := unique("other")
		newNamespace(ctx, other)
		theirs := &approval{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: s.plugin}, Spec: s.spec(ctx, writeTasks)}
		label(ctx, s.namespace, "")
		label(ctx, other, s.workspace)
		Expect(api.Create(ctx, theirs)).To(Succeed())
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		Eventually(func(g Gomega) {
			g.Expect(api.Get(ctx, client.ObjectKeyFromObject(theirs), theirs)).To(Succeed())
			g.Expect(why(theirs.Status.Conditions, v1alpha1.ConditionReady)).To(Equal("WorkspaceConflict"))
		}).Should(Succeed())
		Eventually(func() []string { return story(ctx, s.key(ctx)) }).Should(Equal([]string{"Grant Human", "Revoke WorkspaceRemoved"}))
	})

	It("I7: an act while suspended: it takes force when that ends", func(ctx SpecContext) {
		s.editInstallation(ctx, func(o *installation) { o.Spec.Suspend = true })
		wider := s.spec(ctx, readTasks, writeTasks)
		wider.SupersedesAct = s.approval(ctx).Status.Act
		s.apply(ctx, wider)
		o := s.settled(ctx, func(g Gomega, o *approval) {
			gated(v1alpha1.GateSuspended)(g, o)
			g.Expect(o.Status.Act).NotTo(Equal(wider.SupersedesAct), "the act is done")
		})
		s.editInstallation(ctx, func(o *installation) { o.Spec.Suspend = false })
		after := s.converged(ctx, h, active)
		Expect(after.Status.Act).To(Equal(o.Status.Act), "opening is no act")
		Expect(after.Status.EffectiveCapabilities).To(ConsistOf(readTasks, writeTasks))
	})

	It("I7: an upgrade and its approval in one commit, the installation first", func(ctx SpecContext) {
		next := s.spec(ctx, writeTasks, readInbox)
		next.SupersedesAct = s.approval(ctx).Status.Act
		next.ManifestDigest = digestOf(writeTasks, readInbox)
		s.editInstallation(ctx, func(o *installation) {
			o.Spec.Version, o.Spec.Manifest = "2.0.0", manifest(writeTasks, readInbox)
		})
		s.apply(ctx, next)
		o := s.converged(ctx, h, active)
		Expect(o.Status.EffectiveCapabilities).To(ConsistOf(writeTasks, readInbox))
	})

	It("I1: two plugins in one workspace have nothing to do with each other", func(ctx SpecContext) {
		other := &scene{plugin: unique("plugin"), workspace: s.workspace, namespace: s.namespace}
		newNamespace(ctx, other.plugin)
		newServiceAccount(ctx, other.plugin, other.plugin)
		other.install(ctx, readTasks, writeTasks)
		other.refused(ctx, h, other.key(ctx), contract.ReasonMissingCapabilityApproval)
		other.grant(ctx, writeTasks)
		other.allowed(ctx, h)
		spec := s.spec(ctx, writeTasks)
		spec.State = v1alpha1.StateRevoked
		s.apply(ctx, spec)
		s.settled(ctx, revoked)
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		other.allowed(ctx, h)
		Expect(story(ctx, other.key(ctx))).To(Equal([]string{"Grant Human"}))
	})
})

var _ = Describe("I2: an expiry", func() {
	It("denies at its instant by the Host's clock, without a pass, and is recorded without polling", func(ctx SpecContext) {
		// No round comes to its help.
		h := startWithRounds(newDatabase(ctx, onSQLite), time.Hour)
		s := newScene(ctx, readTasks, writeTasks)
		spec := s.spec(ctx, writeTasks)
		until := metav1.NewTime(time.Now().Add(15 * time.Second).UTC().Truncate(time.Second))
		spec.ExpiresAt = &until
		s.apply(ctx, spec)
		s.settled(ctx, active)
		key := s.key(ctx)
		row, err := h.store.AuthorityRow(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		Expect(authority.Decide(row, h.view.Observe(key), true, write(), until.Add(-time.Microsecond)).Allowed()).To(BeTrue())
		Expect(authority.Decide(row, h.view.Observe(key), true, write(), until.Time).Reason).To(Equal(contract.ReasonCapabilityRevoked))
		before := reconciles()["pass"]
		s.settled(ctx, func(g Gomega, o *approval) { g.Expect(o.Status.State).To(Equal(v1alpha1.StateExpired)) })
		Expect(reconciles()["pass"]-before).To(BeNumerically("<=", 3), "one pass records it")
		Expect(history(ctx, key)[1].Spec.Time.Time).To(BeTemporally(">=", until.Time))
	})

	It("that has passed already grants nothing, and a later one is an act", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		spec := s.spec(ctx, writeTasks)
		past := metav1.NewTime(time.Now().Add(-time.Hour).UTC().Truncate(time.Second))
		spec.ExpiresAt = &past
		s.apply(ctx, spec)
		o := s.converged(ctx, h, func(g Gomega, o *approval) {
			g.Expect(o.Status.State).To(Equal(v1alpha1.StateExpired))
			g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReady)).To(Equal(v1alpha1.ReasonExpired))
		})
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		spec.ExpiresAt = nil
		s.apply(ctx, spec)
		s.settled(ctx, usedAgain)
		spec.SupersedesAct = o.Status.Act
		s.apply(ctx, spec)
		s.converged(ctx, h, active)
		s.allowed(ctx, h)
	})
})

var _ = Describe("objects at their bounds", func() {
	It("are processed, told in full, and revoked", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		var all []v1alpha1.CapabilityID
		for c := range contract.AllCapabilities.All() {
			all = append(all, v1alpha1.CapabilityID(c.String()))
		}
		s := newScene(ctx, all...)
		s.editInstallation(ctx, func(o *installation) {
			for i := range o.Spec.Manifest.Capabilities {
				o.Spec.Manifest.Capabilities[i].Reason = strings.Repeat("ß", 500)
			}
		})
		spec := s.spec(ctx, all...)
		spec.Reason = strings.Repeat("ß", 1024)
		spec.ApprovedBy = strings.Repeat("a", 256)
		spec.ChangedBy = spec.ApprovedBy
		s.applyAs(ctx, as(spec.ApprovedBy), spec)
		o := s.converged(ctx, h, active)
		Expect(o.Status.EffectiveCapabilities).To(HaveLen(len(all)))
		spec.State, spec.ChangedBy, spec.Reason = v1alpha1.StateRevoked, strings.Repeat("c", 256), strings.Repeat("ü", 1024)
		s.applyAs(ctx, as(spec.ChangedBy), spec)
		s.converged(ctx, h, revoked)
		Expect(history(ctx, s.key(ctx))[1].Spec).To(And(
			HaveField("Reason", spec.Reason), HaveField("Actor.Name", spec.ChangedBy)))
		spec.State = v1alpha1.StateActive
		s.applyAs(ctx, as(spec.ApprovedBy), spec)
		s.converged(ctx, h, usedAgain)
	})
})

// A fleet is many installations in a few workspaces; registerLimit bounds the
// time in which all of them are registered, on a loaded machine.
const (
	registerLimit      = time.Minute
	fleetInstallations = 40
	fleetWorkspaces    = 5
)

var _ = Describe("a fleet", func() {
	It(fmt.Sprintf("of %d installations in %d workspaces comes", fleetInstallations, fleetWorkspaces)+" into force and is revoked; nothing grows but what is kept", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		var places []*scene
		for range fleetWorkspaces {
			w := &scene{}
			w.workspace, w.namespace = newWorkspace(ctx)
			places = append(places, w)
		}
		home := unique("home")
		newNamespace(ctx, home)
		each := func(do func(i int)) {
			GinkgoHelper()
			var group sync.WaitGroup
			next := make(chan int)
			for range 8 {
				group.Go(func() {
					defer GinkgoRecover()
					for i := range next {
						do(i)
					}
				})
			}
			for i := range fleetInstallations {
				next <- i
			}
			close(next)
			group.Wait()
		}
		prefix := unique("fleet")
		at := func(i, w int) *scene {
			return &scene{plugin: fmt.Sprintf("%s-%d", prefix, i), workspace: places[w].workspace, namespace: places[w].namespace}
		}
		begun := time.Now()
		each(func(i int) {
			s := at(i, 0)
			newServiceAccount(ctx, home, s.plugin)
			o := &installation{ObjectMeta: metav1.ObjectMeta{Name: s.plugin}, Spec: v1alpha1.PluginInstallationSpec{
				PluginID: "kandev.sample", Version: "1.0.0", Manifest: manifest(readTasks, writeTasks),
				ServiceAccountRef: v1alpha1.ServiceAccountReference{Namespace: home, Name: s.plugin},
			}}
			Expect(api.Create(ctx, o)).To(Succeed())
		})
		Eventually(func(g Gomega) {
			var list v1alpha1.PluginInstallationList
			g.Expect(api.List(ctx, &list)).To(Succeed())
			for i := range list.Items {
				g.Expect(list.Items[i].Status.ObservedGeneration).To(Equal(list.Items[i].Generation))
			}
		}).WithTimeout(registerLimit).WithPolling(200 * time.Millisecond).Should(Succeed())
		each(func(i int) {
			for w := range places {
				one := at(i, w)
				one.apply(ctx, one.spec(ctx, writeTasks))
			}
		})
		states := func() map[v1alpha1.State]int {
			var list v1alpha1.PluginCapabilityApprovalList
			Expect(api.List(ctx, &list)).To(Succeed())
			found := map[v1alpha1.State]int{}
			for i := range list.Items {
				if o := &list.Items[i]; o.Status.ObservedGeneration == o.Generation && isTrue(o.Status.Conditions, v1alpha1.ConditionFenced) {
					found[o.Status.State]++
				}
			}
			return found
		}
		const all = fleetInstallations * fleetWorkspaces
		Eventually(states).WithTimeout(2 * time.Minute).WithPolling(time.Second).Should(Equal(map[v1alpha1.State]int{v1alpha1.StateActive: all}))
		AddReportEntry("from the first object to all in force", time.Since(begun))
		goroutines, heap := runtime.NumGoroutine(), heapInUse()

		each(func(i int) {
			for w := range places {
				o := at(i, w)
				a := &approval{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: o.plugin}}
				Expect(api.Patch(ctx, a, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"state":"Revoked"}}`)))).To(Succeed())
			}
		})
		Eventually(states).WithTimeout(2 * time.Minute).WithPolling(time.Second).Should(Equal(map[v1alpha1.State]int{v1alpha1.StateRevoked: all}))
		if grown := runtime.NumGoroutine() - goroutines; grown > 50 {
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			Fail(fmt.Sprintf("%d goroutines more than before", grown))
		}
		// Two versions of each object may be alive at once, under the race detector
		// and beside what other specs have left. What one approval weighs, the
		// benchmark measures.
		Expect(heapInUse()).To(BeNumerically("<", heap+all*128<<10), "nothing grows without bound")
		for w := range places {
			Expect(h.store.Row(ctx, at(0, w).key(ctx))).To(HaveField("Revision", uint64(2)))
		}
	})
})

func heapInUse() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
