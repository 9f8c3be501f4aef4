package controllers_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/test/lifecycle"
)

// realWorld plays the table of lifecycles on the real API server, with the real
// controllers and store.
type realWorld struct {
	ctx context.Context
	db  *database
	h   *host
	*scene
	// account is the present ServiceAccount's name, other a namespace beside the
	// workspace's, and skew how far the clock was moved.
	account string
	other   string
	skew    time.Duration
	former  types.UID
}

func newRealWorld(ctx context.Context) *realWorld {
	GinkgoHelper()
	w := &realWorld{ctx: ctx, db: newDatabase(ctx, onSQLite), scene: &scene{plugin: unique("plugin")}}
	w.account = w.plugin
	w.workspace, w.namespace = newWorkspace(ctx)
	newNamespace(ctx, w.plugin)
	newServiceAccount(ctx, w.plugin, w.plugin)
	w.Start()
	DeferCleanup(w.Loosen)
	return w
}

func capabilityIDs(set contract.CapabilitySet) []v1alpha1.CapabilityID { return kinds.IDsOf(set) }

func manifestOf(p lifecycle.Package) v1alpha1.PluginManifest {
	m := v1alpha1.PluginManifest{MinHostVersion: p.MinHostVersion}
	for c := range p.Declared.All() {
		m.Capabilities = append(m.Capabilities, v1alpha1.ManifestCapability{
			ID: v1alpha1.CapabilityID(c.String()), Required: p.Required.Has(c), Reason: "It needs it.",
		})
	}
	return m
}

func (w *realWorld) Install(p lifecycle.Package) {
	GinkgoHelper()
	Eventually(func() error {
		return api.Create(w.ctx, &v1alpha1.PluginInstallation{
			ObjectMeta: metav1.ObjectMeta{Name: w.plugin},
			Spec: v1alpha1.PluginInstallationSpec{
				PluginID: "kandev.sample", Version: p.Version, Manifest: manifestOf(p),
				ServiceAccountRef: v1alpha1.ServiceAccountReference{Namespace: w.plugin, Name: w.account},
			},
		})
	}).Should(Succeed())
}

func (w *realWorld) editSpec(edit func(*v1alpha1.PluginInstallationSpec)) {
	GinkgoHelper()
	Eventually(func() error {
		o := w.installation(w.ctx)
		edit(&o.Spec)
		return api.Update(w.ctx, o)
	}).Should(Succeed())
}

func (w *realWorld) Edit(p lifecycle.Package) {
	w.editSpec(func(s *v1alpha1.PluginInstallationSpec) { s.Version, s.Manifest = p.Version, manifestOf(p) })
}

func (w *realWorld) Suspend(suspended bool) {
	w.editSpec(func(s *v1alpha1.PluginInstallationSpec) { s.Suspend = suspended })
}

func (w *realWorld) Uninstall() {
	GinkgoHelper()
	Expect(api.Delete(w.ctx, w.installation(w.ctx))).To(Succeed())
}

func (w *realWorld) RecreateServiceAccount() {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.plugin, Name: w.account}}
	Expect(api.Delete(w.ctx, account)).To(Succeed())
	newServiceAccount(w.ctx, w.plugin, w.account)
}

func (w *realWorld) MoveServiceAccount() {
	GinkgoHelper()
	w.account = unique("moved")
	newServiceAccount(w.ctx, w.plugin, w.account)
	w.editSpec(func(s *v1alpha1.PluginInstallationSpec) { s.ServiceAccountRef.Name = w.account })
}

func (w *realWorld) AcceptServiceAccount() {
	GinkgoHelper()
	var account corev1.ServiceAccount
	Expect(api.Get(w.ctx, client.ObjectKey{Namespace: w.plugin, Name: w.account}, &account)).To(Succeed())
	w.editSpec(func(s *v1alpha1.PluginInstallationSpec) { s.ServiceAccountRef.AcceptUID = account.UID })
}

func (w *realWorld) Tighten(rules ...authority.Rule) {
	GinkgoHelper()
	policy := &v1alpha1.HumanPolicy{ObjectMeta: metav1.ObjectMeta{Name: unique("policy")}}
	for _, r := range rules {
		rule := v1alpha1.PolicyRule{Class: v1alpha1.PolicyClass(r.Class), Deny: r.Deny, FourEyes: r.FourEyes}
		if r.MaxLifetime > 0 {
			seconds := int64(r.MaxLifetime / time.Second)
			rule.MaxLifetimeSeconds = &seconds
		}
		policy.Spec.Rules = append(policy.Spec.Rules, rule)
	}
	Expect(api.Create(w.ctx, policy)).To(Succeed())
}

func (w *realWorld) Loosen() {
	GinkgoHelper()
	// The spec's context is over when this cleans up.
	Expect(api.DeleteAllOf(context.WithoutCancel(w.ctx), &v1alpha1.HumanPolicy{})).To(Succeed())
}

func (w *realWorld) Apply(a authority.Approval) {
	GinkgoHelper()
	spec := v1alpha1.PluginCapabilityApprovalSpec{
		InstallationName: w.plugin, InstallationID: a.InstallationID, WorkspaceID: a.WorkspaceID,
		ManifestDigest: a.ManifestDigest, SupersedesAct: a.SupersedesAct, Capabilities: capabilityIDs(a.Capabilities),
		State: v1alpha1.StateActive, ApprovedBy: a.ApprovedBy, ConfirmedBy: a.ConfirmedBy, Reason: a.Reason,
	}
	if a.Revoked {
		spec.State = v1alpha1.StateRevoked
	}
	if !a.ExpiresAt.IsZero() {
		until := metav1.NewTime(a.ExpiresAt)
		spec.ExpiresAt = &until
	}
	if a.ConfirmedBy == "" {
		w.scene.apply(w.ctx, spec)
		return
	}
	// The second human writes nothing but their own name.
	Eventually(func() error {
		o := w.approval(w.ctx)
		o.Spec.ConfirmedBy = a.ConfirmedBy
		Expect(o.Spec).To(Equal(spec))
		return as(a.ConfirmedBy).Update(w.ctx, o)
	}).Should(Succeed())
}

func (w *realWorld) Delete() { w.remove(w.ctx) }

func (w *realWorld) Label(on bool) {
	if !on {
		label(w.ctx, w.namespace, "")
		return
	}
	label(w.ctx, w.namespace, w.workspace)
}

func (w *realWorld) MoveLabel() {
	w.other = unique("other")
	newNamespace(w.ctx, w.other)
	w.Label(false)
	label(w.ctx, w.other, w.workspace)
}

func (w *realWorld) ReturnLabel() {
	label(w.ctx, w.other, "")
	w.Label(true)
}

// DeleteNamespace begins a deletion that no namespace controller ends here: it
// counts as done.
func (w *realWorld) DeleteNamespace() {
	GinkgoHelper()
	var former corev1.Namespace
	Expect(api.Get(w.ctx, client.ObjectKey{Name: w.namespace}, &former)).To(Succeed())
	Expect(api.Delete(w.ctx, &former)).To(Succeed())
	w.former = former.UID
}

func (w *realWorld) Rebind() {
	GinkgoHelper()
	w.namespace = unique("team")
	Expect(api.Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: w.namespace, Labels: map[string]string{v1alpha1.LabelWorkspaceID: w.workspace},
		Annotations: map[string]string{v1alpha1.AnnotationRebindFrom: string(w.former)},
	}})).To(Succeed())
	w.former = ""
}

func (w *realWorld) Advance(d time.Duration) {
	w.skew += d
	w.h.skew.Store(int64(w.skew))
}

func (w *realWorld) Stop() { w.h.kill() }

func (w *realWorld) Start() {
	w.h = start(w.db)
	w.h.skew.Store(int64(w.skew))
}

func (w *realWorld) LoseStore() { w.db = newDatabase(w.ctx, onSQLite) }

func (w *realWorld) RestoreCluster() {
	GinkgoHelper()
	installation, approval := w.installation(w.ctx), w.approval(w.ctx)
	for _, o := range []client.Object{installation, approval} {
		Expect(api.Delete(w.ctx, o)).To(Succeed())
		o.SetUID("")
		o.SetResourceVersion("")
	}
	installation.Status, approval.Status = v1alpha1.PluginInstallationStatus{}, v1alpha1.PluginCapabilityApprovalStatus{}
	Expect(api.Create(w.ctx, installation)).To(Succeed())
	Expect(api.Create(w.ctx, approval)).To(Succeed())
}

func (w *realWorld) Now() time.Time { return time.Now().Add(w.skew) }

func (w *realWorld) Observe(installationID string, until func(lifecycle.Observation) string) lifecycle.Observation {
	GinkgoHelper()
	var seen lifecycle.Observation
	Eventually(func(g Gomega) {
		seen = w.observe(g, installationID)
		g.Expect(until(seen)).To(BeEmpty())
	}).Should(Succeed())
	return seen
}

func (w *realWorld) observe(g Gomega, installationID string) lifecycle.Observation {
	seen := lifecycle.Observation{InstallationID: installationID, WorkspaceID: w.workspace}
	var o v1alpha1.PluginInstallation
	err := api.Get(w.ctx, client.ObjectKey{Name: w.plugin}, &o)
	g.Expect(client.IgnoreNotFound(err)).To(Succeed())
	if err == nil {
		g.Expect(o.Status.ObservedGeneration).To(Equal(o.Generation))
		seen.Digest = o.Status.ManifestDigest
		if installationID == "" {
			seen.InstallationID = o.Status.InstallationID
		}
	}
	key := authority.Key{InstallationID: seen.InstallationID, WorkspaceID: w.workspace}
	row, err := w.h.store.Row(w.ctx, key)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(row.Hold).To(BeNil())
	g.Expect(row.Starting).To(BeFalse())
	seen.Revision, seen.Act, seen.Gates, seen.ExpiresAt = row.Revision, row.Act, row.Gates.Names(), row.ExpiresAt
	if len(seen.Gates) == 0 {
		seen.Gates = nil
	}
	seen.Story = story(w.ctx, key)
	seen.Effective = row.Effective(w.h.now())
	if row.Revision > 0 {
		seen.State = row.State.String()
	}
	var a v1alpha1.PluginCapabilityApproval
	err = api.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: w.plugin}, &a)
	if apierrors.IsNotFound(err) || w.former != "" {
		// Nobody writes to an object in a namespace that is going.
		return seen
	}
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(a.Status.ObservedGeneration).To(Equal(a.Generation))
	speaksOfAnother := a.Status.InstallationID != "" && a.Status.InstallationID != key.InstallationID
	if !speaksOfAnother && isTrue(a.Status.Conditions, v1alpha1.ConditionReviewRequired) {
		seen.Review = why(a.Status.Conditions, v1alpha1.ConditionReviewRequired)
	}
	if seen.State == "" {
		seen.State = string(a.Status.State)
	}
	if a.Status.InstallationID != key.InstallationID || row.Revision == 0 {
		return seen
	}
	// The status says what is in force.
	g.Expect(a.Status.Revision).To(BeEquivalentTo(row.Revision))
	g.Expect(a.Status.Act).To(Equal(row.Act))
	g.Expect(string(a.Status.State)).To(Equal(row.State.String()))
	g.Expect(a.Status.EffectiveCapabilities).To(ConsistOf(capabilityIDs(seen.Effective)))
	g.Expect(isTrue(a.Status.Conditions, v1alpha1.ConditionFenced)).To(BeTrue())
	g.Expect(isTrue(a.Status.Conditions, v1alpha1.ConditionReady)).To(Equal(seen.Effective != 0))
	return seen
}

// A human policy is the whole cluster's, so that the rows that have one would
// meet others.
var _ = Describe("lifecycle", Serial, func() {
	for _, row := range lifecycle.Table() {
		It(fmt.Sprintf("%s (%s)", row.Name, row.Source), func(ctx SpecContext) {
			lifecycle.Run(newRealWorld(ctx), row, func(step lifecycle.Step, what string) {
				Fail(fmt.Sprintf("after %q: %s", step.Does, what))
			})
		})
	}
})
