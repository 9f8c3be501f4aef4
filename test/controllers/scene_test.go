package controllers_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

const (
	readTasks  = v1alpha1.CapabilityID("host.v2.read:tasks")
	writeTasks = v1alpha1.CapabilityID("host.v2.write:tasks")
	readInbox  = v1alpha1.CapabilityID("host.v2.read:task_inbox")
)

// scene is one plugin and one workspace.
type scene struct {
	plugin    string // the installation's name, and its namespace's
	workspace string // the ID
	namespace string // of the workspace
}

func unique(prefix string) string { return prefix + "-" + uuid.NewString()[:8] }

// newScene installs a plugin that declares capabilities, beside a workspace.
func newScene(ctx context.Context, declares ...v1alpha1.CapabilityID) *scene {
	GinkgoHelper()
	s := &scene{plugin: unique("plugin")}
	s.workspace, s.namespace = newWorkspace(ctx)
	newNamespace(ctx, s.plugin)
	newServiceAccount(ctx, s.plugin, s.plugin)
	s.install(ctx, declares...)
	return s
}

func newNamespace(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
}

func newServiceAccount(ctx context.Context, namespace, name string) *corev1.ServiceAccount {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	Expect(api.Create(ctx, account)).To(Succeed())
	return account
}

func newServiceAccountKind() client.Object { return &corev1.ServiceAccount{} }

func newWorkspace(ctx context.Context) (id, namespace string) {
	GinkgoHelper()
	id, namespace = unique("w"), unique("team")
	newNamespace(ctx, namespace)
	label(ctx, namespace, id)
	return id, namespace
}

// label makes a namespace a workspace, or no longer one.
func label(ctx context.Context, namespace, workspace string) {
	GinkgoHelper()
	value := "null"
	if workspace != "" {
		value = `"` + workspace + `"`
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, v1alpha1.LabelWorkspaceID, value)
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	Expect(api.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

func manifest(declares ...v1alpha1.CapabilityID) v1alpha1.PluginManifest {
	var m v1alpha1.PluginManifest
	for _, id := range declares {
		m.Capabilities = append(m.Capabilities, v1alpha1.ManifestCapability{ID: id, Reason: "It needs it."})
	}
	return m
}

func (s *scene) install(ctx context.Context, declares ...v1alpha1.CapabilityID) {
	GinkgoHelper()
	Expect(api.Create(ctx, &v1alpha1.PluginInstallation{
		ObjectMeta: metav1.ObjectMeta{Name: s.plugin},
		Spec: v1alpha1.PluginInstallationSpec{
			PluginID: "kandev.sample", Version: "1.0.0", Manifest: manifest(declares...),
			ServiceAccountRef: v1alpha1.ServiceAccountReference{Namespace: s.plugin, Name: s.plugin},
		},
	})).To(Succeed())
}

func (s *scene) installation(ctx context.Context) *v1alpha1.PluginInstallation {
	GinkgoHelper()
	var o v1alpha1.PluginInstallation
	Expect(api.Get(ctx, client.ObjectKey{Name: s.plugin}, &o)).To(Succeed())
	return &o
}

// registered waits until the controllers have processed the installation.
func (s *scene) registered(ctx context.Context) *v1alpha1.PluginInstallation {
	GinkgoHelper()
	var o *v1alpha1.PluginInstallation
	Eventually(func(g Gomega) {
		o = s.installation(ctx)
		g.Expect(o.Status.InstallationID).NotTo(BeEmpty())
		g.Expect(o.Status.ObservedGeneration).To(Equal(o.Generation))
	}).Should(Succeed())
	return o
}

// editInstallation edits and waits until that is processed.
func (s *scene) editInstallation(ctx context.Context, edit func(*v1alpha1.PluginInstallation)) *v1alpha1.PluginInstallation {
	GinkgoHelper()
	Eventually(func() error {
		o := s.installation(ctx)
		edit(o)
		return api.Update(ctx, o)
	}).Should(Succeed())
	return s.registered(ctx)
}

func (s *scene) key(ctx context.Context) authority.Key {
	GinkgoHelper()
	return authority.Key{InstallationID: s.registered(ctx).Status.InstallationID, WorkspaceID: s.workspace}
}

// spec is a first grant, as `review` would print it.
func (s *scene) spec(ctx context.Context, grants ...v1alpha1.CapabilityID) v1alpha1.PluginCapabilityApprovalSpec {
	GinkgoHelper()
	o := s.registered(ctx)
	return v1alpha1.PluginCapabilityApprovalSpec{
		InstallationName: s.plugin, InstallationID: o.Status.InstallationID, ManifestDigest: o.Status.ManifestDigest,
		WorkspaceID: s.workspace, Capabilities: grants, State: v1alpha1.StateActive, ApprovedBy: ada,
	}
}

// apply writes the manifest as it is, whatever is there, as a GitOps tool does.
func (s *scene) apply(ctx context.Context, spec v1alpha1.PluginCapabilityApprovalSpec) *v1alpha1.PluginCapabilityApproval {
	GinkgoHelper()
	return s.applyAs(ctx, api, spec)
}

// applyAs is the same by somebody else.
func (s *scene) applyAs(ctx context.Context, who client.Client, spec v1alpha1.PluginCapabilityApprovalSpec) *v1alpha1.PluginCapabilityApproval {
	GinkgoHelper()
	o := &v1alpha1.PluginCapabilityApproval{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.plugin}}
	Eventually(func() error {
		err := who.Get(ctx, client.ObjectKeyFromObject(o), o)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err != nil {
			o.ResourceVersion, o.UID = "", ""
			o.Spec = spec
			return who.Create(ctx, o)
		}
		o.Spec = spec
		return who.Update(ctx, o)
	}).Should(Succeed())
	return o
}

func (s *scene) approval(ctx context.Context) *v1alpha1.PluginCapabilityApproval {
	GinkgoHelper()
	var o v1alpha1.PluginCapabilityApproval
	Expect(api.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: s.plugin}, &o)).To(Succeed())
	return &o
}

func (s *scene) remove(ctx context.Context) {
	GinkgoHelper()
	Expect(api.Delete(ctx, s.approval(ctx))).To(Succeed())
}

// settled waits until the status speaks of the approval's generation and says
// what is expected of it.
func (s *scene) settled(ctx context.Context, expected func(Gomega, *v1alpha1.PluginCapabilityApproval)) *v1alpha1.PluginCapabilityApproval {
	GinkgoHelper()
	var o *v1alpha1.PluginCapabilityApproval
	Eventually(func(g Gomega) {
		o = s.approval(ctx)
		g.Expect(o.Status.ObservedGeneration).To(Equal(o.Generation))
		expected(g, o)
	}).Should(Succeed())
	return o
}

// grant makes the first grant and waits for it.
func (s *scene) grant(ctx context.Context, grants ...v1alpha1.CapabilityID) *v1alpha1.PluginCapabilityApproval {
	GinkgoHelper()
	s.apply(ctx, s.spec(ctx, grants...))
	return s.settled(ctx, func(g Gomega, o *v1alpha1.PluginCapabilityApproval) {
		g.Expect(o.Status.State).To(Equal(v1alpha1.StateActive))
		g.Expect(o.Status.EffectiveCapabilities).To(ConsistOf(grants))
		g.Expect(isTrue(o.Status.Conditions, v1alpha1.ConditionFenced)).To(BeTrue())
	})
}

func isTrue(conditions []metav1.Condition, kind string) bool {
	return meta.IsStatusConditionTrue(conditions, kind)
}

func why(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return c.Reason
	}
	return ""
}

func says(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return c.Message
	}
	return ""
}

// history lists the events of a key by revision and checks their chain.
func history(ctx context.Context, key authority.Key) []v1alpha1.PluginCapabilityApprovalEvent {
	GinkgoHelper()
	var list v1alpha1.PluginCapabilityApprovalEventList
	Expect(api.List(ctx, &list, client.MatchingFields{
		"spec.installationID": key.InstallationID, "spec.workspaceID": key.WorkspaceID,
	})).To(Succeed())
	events := make([]v1alpha1.PluginCapabilityApprovalEvent, len(list.Items))
	for _, e := range list.Items {
		Expect(e.Spec.Revision).To(BeNumerically("<=", len(events)), "revisions have no gap")
		events[e.Spec.Revision-1] = e
	}
	return events
}

// story is the history in short: type and cause of each revision.
func story(ctx context.Context, key authority.Key) []string {
	GinkgoHelper()
	var lines []string
	for _, e := range history(ctx, key) {
		lines = append(lines, string(e.Spec.Type)+" "+string(e.Spec.Cause))
	}
	return lines
}

func write() authority.Call { return authority.Call{Capability: contract.WriteTasks} }

// allowed waits until the Host lets a write through.
func (s *scene) allowed(ctx context.Context, h *host) {
	GinkgoHelper()
	key := s.key(ctx)
	Eventually(func(g Gomega) {
		refusal, err := h.decide(ctx, key, write())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(refusal).To(BeNil())
	}).Should(Succeed())
}

// refused waits until the Host refuses a write for a reason.
func (s *scene) refused(ctx context.Context, h *host, key authority.Key, reason contract.Reason) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		refusal, err := h.decide(ctx, key, write())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(refusal).NotTo(BeNil())
		g.Expect(refusal.Reason).To(Equal(reason))
	}).Should(Succeed())
}

func kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	cache := filepath.Join(GinkgoT().TempDir(), "cache")
	cmd := exec.CommandContext(ctx, kubectlPath, append([]string{"--kubeconfig", kubeconfig, "--cache-dir", cache}, args...)...)
	out, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	return string(out)
}

func fields(text string) []string { return strings.Fields(text) }

// hashOf is the event's link in the chain, as contract.CanonicalDigest has it.
func hashOf(e v1alpha1.PluginCapabilityApprovalEvent) string {
	GinkgoHelper()
	digest, err := contract.CanonicalDigest([]string{e.Spec.PreviousHash, e.Spec.DecisionDigest})
	Expect(err).NotTo(HaveOccurred())
	return digest.String()
}
