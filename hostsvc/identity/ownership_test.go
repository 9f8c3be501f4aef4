package identity_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/identity"
)

const (
	installed = types.UID("5b0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77")
	elsewhere = types.UID("6c0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77")
)

func controlledBy(version, kind, name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: uid, Controller: new(true)}
}

func byInstallation(uid types.UID) metav1.OwnerReference {
	return controlledBy("plugins.kandev.ai/v1alpha1", "PluginInstallation", "notes", uid)
}

func byDeployment(d *appsv1.Deployment) metav1.OwnerReference {
	return controlledBy("apps/v1", "Deployment", d.Name, d.UID)
}

func byReplicaSet(r *appsv1.ReplicaSet) metav1.OwnerReference {
	return controlledBy("apps/v1", "ReplicaSet", r.Name, r.UID)
}

func podTemplate() (*metav1.LabelSelector, corev1.PodTemplateSpec) {
	labels := map[string]string{"of": "plugin"}
	return &metav1.LabelSelector{MatchLabels: labels}, corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "plugin", Image: "plugin.invalid/plugin"}}},
	}
}

func (w *world) deployment(name string, owners ...metav1.OwnerReference) *appsv1.Deployment {
	w.t.Helper()
	selector, template := podTemplate()
	made, err := w.clients.AppsV1().Deployments(w.namespace).Create(w.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners},
		Spec:       appsv1.DeploymentSpec{Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	must(w.t, err)
	return made
}

func (w *world) replicaSet(name string, owners ...metav1.OwnerReference) *appsv1.ReplicaSet {
	w.t.Helper()
	selector, template := podTemplate()
	made, err := w.clients.AppsV1().ReplicaSets(w.namespace).Create(w.t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners},
		Spec:       appsv1.ReplicaSetSpec{Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	must(w.t, err)
	return made
}

func (w *world) podOf(name string, owners ...metav1.OwnerReference) *corev1.Pod {
	w.t.Helper()
	made, err := w.clients.CoreV1().Pods(w.namespace).Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners},
		Spec: corev1.PodSpec{
			ServiceAccountName: "plugin", Containers: []corev1.Container{{Name: "plugin", Image: "plugin.invalid/plugin"}},
		},
	}, metav1.CreateOptions{})
	must(w.t, err)
	return made
}

// runsIt registers the installation as one whose plugin the controllers run.
func (w *world) runsIt() {
	w.register(func(r *identity.Registration) { r.WorkloadOf = string(installed) })
}

func (w *world) notTheWorkload(t *testing.T, token string) {
	t.Helper()
	_, err := w.auth.Authenticate(t.Context(), token)
	if !errors.Is(err, identity.ErrUnauthenticated) || !strings.Contains(err.Error(), "none that the installation's workload runs") {
		t.Errorf("answered %v", err)
	}
}

// TestI1_OnlyPodsOfTheWorkloadAreThePlugin: where the controllers run a plugin, another
// pod under its ServiceAccount is not the plugin.
func TestI1_OnlyPodsOfTheWorkloadAreThePlugin(t *testing.T) {
	w := newWorld(t)
	ours := w.deployment("ours", byInstallation(installed))
	before, now := w.replicaSet("ours-1", byDeployment(ours)), w.replicaSet("ours-2", byDeployment(ours))
	theirs := w.deployment("theirs", byInstallation(elsewhere))
	bare := w.deployment("bare")
	lookalike := byInstallation(installed)
	lookalike.APIVersion = "plugins.invalid/v1alpha1"
	uncontrolled := byDeployment(ours)
	uncontrolled.Controller = nil
	gone := byReplicaSet(now)
	gone.UID = elsewhere
	absent := byReplicaSet(now)
	absent.Name = "absent"
	direct := byDeployment(ours)
	called := func(name string) []metav1.OwnerReference {
		reference := byReplicaSet(now)
		reference.Name = name
		return []metav1.OwnerReference{reference}
	}

	w.runsIt()
	for name, c := range map[string]struct {
		owners []metav1.OwnerReference
		ours   bool
	}{
		"of the version that runs":            {[]metav1.OwnerReference{byReplicaSet(now)}, true},
		"of the version before, in a rollout": {[]metav1.OwnerReference{byReplicaSet(before)}, true},
		"of nobody":                           {nil, false},
		"of an owner that doesn't control it": {[]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: now.Name, UID: now.UID}}, false},
		"of the installation itself":          {[]metav1.OwnerReference{byInstallation(installed)}, false},
		"of the deployment itself":            {[]metav1.OwnerReference{direct}, false},
		"of a job":                            {[]metav1.OwnerReference{controlledBy("batch/v1", "Job", now.Name, now.UID)}, false},
		"of a replica set of another group":   {[]metav1.OwnerReference{controlledBy("apps.invalid/v1", "ReplicaSet", now.Name, now.UID)}, false},
		"of one of that name that is gone":    {[]metav1.OwnerReference{gone}, false},
		"of one that isn't there":             {[]metav1.OwnerReference{absent}, false},
		"of an orphan":                        {[]metav1.OwnerReference{byReplicaSet(w.replicaSet("orphan"))}, false},
		"of one that ours doesn't control":    {[]metav1.OwnerReference{byReplicaSet(w.replicaSet("loose", uncontrolled))}, false},
		"of another installation's":           {[]metav1.OwnerReference{byReplicaSet(w.replicaSet("theirs-1", byDeployment(theirs)))}, false},
		"of a deployment of nobody":           {[]metav1.OwnerReference{byReplicaSet(w.replicaSet("bare-1", byDeployment(bare)))}, false},
		"of one of a kind of the same name":   {[]metav1.OwnerReference{byReplicaSet(w.replicaSet("fake-1", byDeployment(w.deployment("fake", lookalike))))}, false},
		"of one in a chain that is too long":  {[]metav1.OwnerReference{byReplicaSet(w.replicaSet("long", byReplicaSet(now)))}, false},
		// The API server takes any name in a reference; nothing can have these.
		"of a path":                            {called("a/b"), false},
		"of a folder":                          {called(".."), false},
		"of a name that no request can hold":   {called(strings.Repeat("x", 1<<20)), false},
		"of a replica set of the installation": {[]metav1.OwnerReference{byReplicaSet(w.replicaSet("short", byInstallation(installed)))}, false},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			token := w.token("plugin", w.podOf(fmt.Sprintf("pod-%d", worlds.Add(1)), c.owners...), contract.Audience)
			if !c.ours {
				w.notTheWorkload(t, token)
				return
			}
			w.accepted(token)
		})
	}
	// Somebody else runs it: whose pod it is says nothing.
	w.register(func(*identity.Registration) {})
	w.accepted(w.good())
	// From here on the controllers do.
	w.runsIt()
	w.notTheWorkload(t, w.good())
}

// TestI1_AChainThatBreaksEndsThePlugin: what a pod belongs to is asked again, with the
// pod itself.
func TestI1_AChainThatBreaksEndsThePlugin(t *testing.T) {
	for name, breaks := range map[string]func(t *testing.T, w *world){
		"deployment made anew": func(t *testing.T, w *world) {
			t.Helper()
			must(t, w.clients.AppsV1().Deployments(w.namespace).Delete(t.Context(), "ours", metav1.DeleteOptions{}))
			w.deployment("ours", byInstallation(installed))
		},
		"replica set gone": func(t *testing.T, w *world) {
			t.Helper()
			must(t, w.clients.AppsV1().ReplicaSets(w.namespace).Delete(t.Context(), "ours-1", metav1.DeleteOptions{}))
		},
		"deployment that ends": func(t *testing.T, w *world) {
			t.Helper()
			must(t, w.clients.AppsV1().Deployments(w.namespace).Delete(t.Context(), "ours",
				metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}))
		},
		"installed anew": func(_ *testing.T, w *world) {
			w.register(func(r *identity.Registration) { r.WorkloadOf = string(elsewhere) })
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			w := newWorld(t)
			set := w.replicaSet("ours-1", byDeployment(w.deployment("ours", byInstallation(installed))))
			w.runsIt()
			token := w.token("plugin", w.podOf("ours-1-x", byReplicaSet(set)), contract.Audience)
			w.accepted(token)
			breaks(t, w)
			w.eventually("refused", func() bool {
				_, err := w.auth.Authenticate(t.Context(), token)
				return errors.Is(err, identity.ErrUnauthenticated)
			})
			w.notTheWorkload(t, token)
		})
	}
}

// TestI1_WhatRunsAPodIsUnknown: without the right to read the ReplicaSet nothing is
// known of the pod, and the plugin isn't told that it is none.
func TestI1_WhatRunsAPodIsUnknown(t *testing.T) {
	w := newWorld(t)
	set := w.replicaSet("ours-1", byDeployment(w.deployment("ours", byInstallation(installed))))
	token := w.token("plugin", w.podOf("ours-1-x", byReplicaSet(set)), contract.Audience)
	const user = "system:serviceaccount:plugin-host-system:plugin-host"
	let := func(name string, rules ...rbacv1.PolicyRule) {
		name = w.namespace + "-" + name
		_, err := w.clients.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
		must(t, err)
		_, err = w.clients.RbacV1().RoleBindings(w.namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}, metav1.CreateOptions{})
		must(t, err)
	}
	let("pods", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get"}})
	as := rest.CopyConfig(w.config)
	as.Impersonate = rest.ImpersonationConfig{UserName: user}
	cluster, err := identity.NewKubeCluster(as)
	must(t, err)
	w.auth = w.authenticator(w.reviewer, cluster)
	w.accepted(token)
	w.runsIt()
	unknown := func() bool {
		_, err := w.auth.Authenticate(t.Context(), token)
		return errors.Is(err, identity.ErrUnavailable)
	}
	w.eventually("unavailable", unknown)
	let("workloads", rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"replicasets"}, Verbs: []string{"get"}})
	w.eventually("accepted", func() bool {
		w.offset.Add(int64(2 * time.Second)) // past the pause after a failure
		_, err := w.auth.Authenticate(t.Context(), token)
		return err == nil
	})
}

// turning answers one call with the one registration, and all after it with the other.
type turning struct {
	account       identity.Account
	first, others identity.Registration
	asked         atomic.Bool
}

func (d *turning) Registration(account identity.Account) (identity.Registration, bool) {
	if d.asked.CompareAndSwap(false, true) {
		return d.first, account == d.account
	}
	return d.others, account == d.account
}

// TestI1_CallsOfTwoViewsDoNotMix: while spec.workload comes or goes, some calls know of
// it and others don't yet. Each gets its own answer.
func TestI1_CallsOfTwoViewsDoNotMix(t *testing.T) {
	w := newWorld(t)
	set := w.replicaSet("ours-1", byDeployment(w.deployment("ours", byInstallation(installed))))
	token := w.token("plugin", w.podOf("ours-1-x", byReplicaSet(set)), contract.Audience)
	before := *w.directory.registration.Load()
	after := before
	after.WorkloadOf = string(installed)
	d := &turning{account: w.directory.account, first: after, others: before}
	d.asked.Store(true)
	auth := identity.NewAuthenticator(identity.Config{Reviewer: w.reviewer, Cluster: w.cluster, Directory: d, Now: w.now})
	call := func() error {
		_, err := auth.Authenticate(t.Context(), token)
		return err
	}
	must(t, call()) // the token is known, and the pod is, but not whose it is
	d.asked.Store(false)
	knows := make(chan error, 1)
	go func() { knows <- call() }()
	w.eventually("a call knows of the workload", d.asked.Load)
	for {
		select {
		case err := <-knows:
			must(t, err)
			return
		default:
			must(t, call())
		}
	}
}
