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
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// waits says that the next revision isn't recorded, and that the status says so
// of this very version.
func waits(cause string) func(Gomega, *approval) {
	return func(g Gomega, o *approval) {
		for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionFenced} {
			g.Expect(isTrue(o.Status.Conditions, kind)).To(BeFalse())
			g.Expect(why(o.Status.Conditions, kind)).To(Equal(v1alpha1.ReasonFencing))
			g.Expect(says(o.Status.Conditions, kind)).To(ContainSubstring(cause))
		}
		g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReviewRequired)).To(Equal(v1alpha1.ReasonFencing))
	}
}

// writeStatus is somebody with the right to write it, through the API server.
func writeStatus(ctx context.Context, o client.Object, patch string) error {
	return powerful.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("somebody"))
}

// refuseWrites has an admission policy refuse what expression doesn't allow, until
// the function that it returns is called.
func refuseWrites(ctx context.Context, resource, expression string) (stop func()) {
	GinkgoHelper()
	name := unique("refuse")
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{v1alpha1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{resource},
					},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: expression, Message: "a third party is in the way"}},
		},
	}
	Expect(api.Create(ctx, policy)).To(Succeed())
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	Expect(api.Create(ctx, binding)).To(Succeed())
	stop = func() {
		GinkgoHelper()
		Expect(client.IgnoreNotFound(api.Delete(context.Background(), binding))).To(Succeed())
		Expect(client.IgnoreNotFound(api.Delete(context.Background(), policy))).To(Succeed())
	}
	DeferCleanup(stop)
	return stop
}

// forgery is a well-formed event of the next revision with content that nobody
// decided.
func forgery(ctx context.Context, key authority.Key) *v1alpha1.PluginCapabilityApprovalEvent {
	GinkgoHelper()
	events := history(ctx, key)
	forged := events[len(events)-1].DeepCopy()
	forged.ObjectMeta = metav1.ObjectMeta{Name: authority.EventName(key, uint64(forged.Spec.Revision)+1), Labels: forged.Labels}
	forged.Spec.BeforeRevision, forged.Spec.Revision = forged.Spec.Revision, forged.Spec.Revision+1
	forged.Spec.Granted = append(forged.Spec.Granted, readInbox)
	forged.Spec.PreviousHash = hashOf(events[len(events)-1])
	return forged
}

var _ = Describe("an API server that refuses", func() {
	var (
		h *host
		s *scene
	)
	BeforeEach(func(ctx SpecContext) {
		h = start(newDatabase(ctx, onSQLite))
		s = newScene(ctx, readTasks, writeTasks, readInbox)
		s.grant(ctx, writeTasks)
		s.allowed(ctx, h)
	})

	It("I4 I6: events: a revocation takes power away at once, and is recorded when it can be", func(ctx SpecContext) {
		stop := refuseWrites(ctx, "plugincapabilityapprovalevents", "false")
		Eventually(func() error { return powerful.Create(ctx, forgery(ctx, s.key(ctx)), client.DryRunAll) }).Should(MatchError(ContainSubstring("in the way")))
		before := failures("pass")
		used := s.spec(ctx, writeTasks)
		revoking := used
		revoking.State = v1alpha1.StateRevoked
		s.apply(ctx, revoking)
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		s.settled(ctx, func(g Gomega, o *approval) {
			waits("a third party is in the way")(g, o)
			g.Expect(o.Status.State).To(Equal(v1alpha1.StateRevoked))
			g.Expect(o.Status.EffectiveCapabilities).To(BeEmpty())
			g.Expect(o.Status.Revision).To(BeEquivalentTo(1))
		})

		By("self-heal, which brings nothing back")
		s.apply(ctx, used)
		o := s.settled(ctx, waits("a third party is in the way"))
		Expect(o.Status.EffectiveCapabilities).To(BeEmpty())
		at := o.ResourceVersion
		Consistently(func(g Gomega) {
			refusal, err := h.decide(ctx, s.key(ctx), write())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(refusal).NotTo(BeNil())
			g.Expect(s.approval(ctx).ResourceVersion).To(Equal(at), "waiting writes nothing")
		}).WithTimeout(3 * time.Second).Should(Succeed())
		Expect(failures("pass")-before).To(BeNumerically("<", 60), "no hot loop")
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human"}))

		stop()
		revoked(Default, s.converged(ctx, h, usedAgain))
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human", "Revoke Human"}))
	})

	It("I4: events: a widening waits, and what was granted before goes on", func(ctx SpecContext) {
		stop := refuseWrites(ctx, "plugincapabilityapprovalevents", "false")
		Eventually(func() error { return powerful.Create(ctx, forgery(ctx, s.key(ctx)), client.DryRunAll) }).Should(MatchError(ContainSubstring("in the way")))
		wider := s.spec(ctx, writeTasks, readTasks)
		wider.SupersedesAct = s.approval(ctx).Status.Act
		s.apply(ctx, wider)
		o := s.settled(ctx, waits("a third party is in the way"))
		Expect(o.Status.EffectiveCapabilities).To(ConsistOf(writeTasks))
		s.allowed(ctx, h)
		stop()
		o = s.converged(ctx, h, active)
		Expect(o.Status.EffectiveCapabilities).To(ConsistOf(readTasks, writeTasks))
	})

	It("I6 I7: everything, while a revocation is held: self-heal meanwhile brings nothing back", func(ctx SpecContext) {
		stop := refuseWrites(ctx, "plugincapabilityapprovalevents", "false")
		Eventually(func() error { return powerful.Create(ctx, forgery(ctx, s.key(ctx)), client.DryRunAll) }).Should(MatchError(ContainSubstring("in the way")))
		used := s.spec(ctx, writeTasks)
		revoking := used
		revoking.State = v1alpha1.StateRevoked
		s.apply(ctx, revoking)
		s.settled(ctx, waits("in the way"))
		h.wire.sever()
		stop()
		for range 3 {
			s.apply(ctx, revoking)
			s.apply(ctx, used)
		}
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human"}))
		h.wire.mend()
		revoked(Default, s.converged(ctx, h, usedAgain))
		Expect(story(ctx, s.key(ctx))[:2]).To(Equal([]string{"Grant Human", "Revoke Human"}))
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
	})

	It("I5: statuses: the fence is done all the same, and told once that is possible", func(ctx SpecContext) {
		stop := refuseWrites(ctx, "plugincapabilityapprovals/status", "false")
		Eventually(func() error {
			return writeStatus(ctx, s.approval(ctx), `{"status":{"observedGeneration":1}}`)
		}).Should(MatchError(ContainSubstring("in the way")))
		revoking := s.spec(ctx, writeTasks)
		revoking.State = v1alpha1.StateRevoked
		s.apply(ctx, revoking)
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		Eventually(func() []string { return story(ctx, s.key(ctx)) }).Should(Equal([]string{"Grant Human", "Revoke Human"}))
		Eventually(func(g Gomega) {
			row, err := h.store.Row(ctx, s.key(ctx))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(row.Revision).To(BeEquivalentTo(2))
		}).Should(Succeed())
		stop()
		s.converged(ctx, h, revoked)
		Expect(story(ctx, s.key(ctx))).To(HaveLen(2), "trying again makes no revision")
	})

	It("I4: an event that somebody forged: nothing follows from it, and its removal is all it takes", func(ctx SpecContext) {
		forged := forgery(ctx, s.key(ctx))
		Expect(powerful.Create(ctx, forged)).To(Succeed())
		revoking := s.spec(ctx, writeTasks)
		revoking.State = v1alpha1.StateRevoked
		s.apply(ctx, revoking)
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		s.settled(ctx, func(g Gomega, o *approval) {
			waits(forged.Name)(g, o)
			g.Expect(o.Status.Revision).To(BeEquivalentTo(1))
			g.Expect(o.Status.EffectiveCapabilities).To(BeEmpty())
		})
		row, err := h.store.Row(ctx, s.key(ctx))
		Expect(err).NotTo(HaveOccurred())
		Expect(row.Revision).To(BeEquivalentTo(1))
		Expect(row.Hold).NotTo(BeNil())
		Expect(powerful.Delete(ctx, forged)).To(Succeed())
		s.converged(ctx, h, revoked)
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human", "Revoke Human"}))
	})
})

var _ = Describe("a status that somebody else writes", func() {
	var (
		h *host
		s *scene
	)
	BeforeEach(func(ctx SpecContext) {
		h = start(newDatabase(ctx, onSQLite))
		s = newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, readTasks)
	})
	// same says that authority is what it was.
	same := func(ctx SpecContext) {
		GinkgoHelper()
		row, err := h.store.Row(ctx, s.key(ctx))
		Expect(err).NotTo(HaveOccurred())
		Expect(row.Revision).To(BeEquivalentTo(1))
		Expect(row.Granted).To(Equal(contract.SetOf(contract.ReadTasks)))
	}

	It("I2: is written anew, whoever owns what stands in it", func(ctx SpecContext) {
		before := s.approval(ctx).Status
		Expect(writeStatus(ctx, s.approval(ctx), `{"status":{
			"effectiveCapabilities":["host.v2.read:tasks","host.v2.write:tasks"],"effectiveSummary":"2/2","act":"9-aaaaaa",
			"expiresAt":"2030-01-01T00:00:00.000000Z","gates":[{"type":"Suspended","message":"a lie"}],"approvedBy":"mallory"}}`)).To(Succeed())
		Eventually(func() v1alpha1.PluginCapabilityApprovalStatus { return s.approval(ctx).Status }).Should(Equal(before))
		same(ctx)

		By("an installation's")
		o := s.installation(ctx)
		Expect(writeStatus(ctx, s.installation(ctx), `{"status":{"manifestDigest":"`+digestOf(readInbox)+`","workspaces":[
			{"workspaceID":"elsewhere","state":"Active"}],"workspaceCount":9}}`)).To(Succeed())
		Eventually(func(g Gomega) {
			status := s.installation(ctx).Status
			g.Expect(status.ManifestDigest).To(Equal(o.Status.ManifestDigest))
			g.Expect(status.Workspaces).To(HaveLen(1))
			g.Expect(status.WorkspaceCount).To(BeEquivalentTo(1))
		}).Should(Succeed())
		same(ctx)
	})

	It("I3: lowers and empties no revision", func(ctx SpecContext) {
		for _, patch := range []string{`{"status":{"revision":0}}`, `{"status":{"revision":null}}`, `{"status":null}`, `{"status":{"revision":0,"installationID":null}}`} {
			Expect(writeStatus(ctx, s.approval(ctx), patch)).To(MatchError(apierrors.IsInvalid, "is invalid"), patch)
		}
		By("under another installation's ID, which is written anew")
		Expect(writeStatus(ctx, s.approval(ctx), fmt.Sprintf(`{"status":{"revision":0,"installationID":%q}}`, uuid.NewString()))).To(Succeed())
		s.settled(ctx, func(g Gomega, o *approval) {
			g.Expect(o.Status.Revision).To(BeEquivalentTo(1))
			g.Expect(o.Status.InstallationID).To(Equal(o.Spec.InstallationID))
		})
		same(ctx)
	})

	It("I3 I6: raises a revision: nothing works, the status says so, and a revocation still takes", func(ctx SpecContext) {
		Expect(writeStatus(ctx, s.approval(ctx), `{"status":{"revision":1000}}`)).To(Succeed())
		s.refused(ctx, h, s.key(ctx), contract.ReasonDependencyUnavailable)
		lost := func(g Gomega, o *approval) {
			g.Expect(why(o.Status.Conditions, v1alpha1.ConditionReady)).To(Equal(v1alpha1.ReasonHistoryLost))
			g.Expect(why(o.Status.Conditions, v1alpha1.ConditionFenced)).To(Equal(v1alpha1.ReasonHistoryLost))
			g.Expect(says(o.Status.Conditions, v1alpha1.ConditionReady)).To(ContainSubstring("1000"))
		}
		s.settled(ctx, lost)
		same(ctx)
		revoking := s.spec(ctx, readTasks)
		revoking.State = v1alpha1.StateRevoked
		s.apply(ctx, revoking)
		s.refused(ctx, h, s.key(ctx), contract.ReasonCapabilityRevoked)
		s.settled(ctx, lost)
		Expect(story(ctx, s.key(ctx))).To(Equal([]string{"Grant Human"}))

		By("deleting the approval, after which a human grants anew and the sequence goes on")
		s.remove(ctx)
		Eventually(func() []string { return story(ctx, s.key(ctx)) }).Should(Equal([]string{"Grant Human", "Revoke Human"}))
		next := s.spec(ctx, writeTasks)
		next.SupersedesAct = history(ctx, s.key(ctx))[1].Spec.Act
		s.apply(ctx, next)
		s.converged(ctx, h, active)
		s.allowed(ctx, h)
	})

	It("I6: of an approval in another namespace, that claims the workspace, denies nothing here", func(ctx SpecContext) {
		s.apply(ctx, func() v1alpha1.PluginCapabilityApprovalSpec {
			spec := s.spec(ctx, readTasks, writeTasks)
			spec.SupersedesAct = s.approval(ctx).Status.Act
			return spec
		}())
		s.settled(ctx, active)
		s.allowed(ctx, h)
		elsewhere := unique("elsewhere")
		newNamespace(ctx, elsewhere)
		theirs := &approval{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: s.plugin}, Spec: s.spec(ctx, readTasks)}
		Expect(api.Create(ctx, theirs)).To(Succeed())
		Expect(writeStatus(ctx, theirs, fmt.Sprintf(`{"status":{"revision":1000,"installationID":%q}}`, theirs.Spec.InstallationID))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(api.Get(ctx, client.ObjectKeyFromObject(theirs), theirs)).To(Succeed())
			g.Expect(why(theirs.Status.Conditions, v1alpha1.ConditionReady)).To(Equal(v1alpha1.ReasonWorkspaceMismatch))
		}).Should(Succeed())
		s.editInstallation(ctx, func(o *installation) { o.Spec.Version = "1.0.1" })
		s.settled(ctx, func(g Gomega, o *approval) { g.Expect(o.Status.Revision).To(BeEquivalentTo(3)) })
		Expect(isTrue(s.installation(ctx).Status.Conditions, v1alpha1.ConditionAccepted)).To(BeTrue())
		s.allowed(ctx, h)
	})

	It("I1: moves no pin: only the installer acknowledges another ServiceAccount", func(ctx SpecContext) {
		Expect(api.DeleteAllOf(ctx, newServiceAccountKind(), client.InNamespace(s.plugin))).To(Succeed())
		s.settled(ctx, gated(v1alpha1.GatePrincipalChanged))
		fresh := newServiceAccount(ctx, s.plugin, s.plugin)
		for _, patch := range []string{
			fmt.Sprintf(`{"status":{"serviceAccountUID":%q}}`, fresh.UID), `{"status":{"serviceAccountUID":null}}`,
			`{"status":{"serviceAccountUID":""}}`, `{"status":{"namespaceUID":null}}`, `{"status":{"namespaceUID":"x"}}`,
		} {
			Expect(writeStatus(ctx, s.installation(ctx), patch)).To(MatchError(apierrors.IsInvalid, "is invalid"), patch)
		}
		s.settled(ctx, gated(v1alpha1.GatePrincipalChanged))
		s.editInstallation(ctx, func(o *installation) { o.Spec.ServiceAccountRef.AcceptUID = fresh.UID })
		s.settled(ctx, open)
	})
})

var _ = Describe("I6: somebody who makes and deletes approvals without end", func() {
	It("that name a workspace of others, delays no pass there", func(ctx SpecContext) {
		h := start(newDatabase(ctx, onSQLite))
		s := newScene(ctx, readTasks, writeTasks)
		s.grant(ctx, writeTasks)
		elsewhere, spec := unique("elsewhere"), s.spec(ctx)
		newNamespace(ctx, elsewhere)
		looping, stop := context.WithCancel(ctx)
		var loops sync.WaitGroup
		var deleted atomic.Int64
		for i := range 4 {
			loops.Go(func() {
				for n := 0; looping.Err() == nil; n++ {
					o := &approval{Spec: spec}
					o.Namespace, o.Name = elsewhere, fmt.Sprintf("p%d-%d", i, n)
					o.Spec.InstallationName = o.Name
					if api.Create(looping, o) == nil && api.Delete(looping, o) == nil {
						deleted.Add(1)
					}
				}
			})
		}
		DeferCleanup(func() {
			stop()
			loops.Wait()
		})
		Eventually(deleted.Load).Should(BeNumerically(">", 80))
		began := time.Now()
		wider := s.spec(ctx, readTasks, writeTasks)
		wider.SupersedesAct = s.approval(ctx).Status.Act
		s.apply(ctx, wider)
		s.converged(ctx, h, func(g Gomega, o *approval) {
			g.Expect(o.Status.EffectiveCapabilities).To(ConsistOf(readTasks, writeTasks))
		})
		Expect(time.Since(began)).To(BeNumerically("<", 10*time.Second))
	})
})
