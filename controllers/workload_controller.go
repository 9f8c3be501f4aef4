package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/controllers/kinds"
)

const (
	// workloadEvery is how often what runs a plugin is compared with what should
	// where no watch shows a change: the ConfigMap, and the CA in it.
	workloadEvery = time.Minute
	// workloadRetry is how long the API server's refusal is not asked about again.
	workloadRetry = 5 * time.Second
)

// workloadReconciler runs plugins whose installation has spec.workload: a
// Deployment, its NetworkPolicy and the Host's CA, in the namespace of the
// plugin's ServiceAccount. It may write there only where an administrator has
// bound the ClusterRole plugin-host-workloads, so that neither it nor who may
// install reaches any other namespace.
//
// Nothing runs of an installation that isn't accepted. One that is suspended, or
// approved nowhere, is no such: the former has no pod, and the latter keeps it, to
// be told why it may do nothing.
type workloadReconciler struct {
	cluster *cluster
	cached  client.Reader
	live    client.Reader
	writer  client.Client
	leader  *leader
	host    func() (*kinds.WorkloadHost, error)
	// turned has the status of an installation written.
	turned func(name string)

	mu sync.Mutex
	// found is the condition of each installation, with the generation that it
	// speaks of.
	found map[types.UID]metav1.Condition
}

func newWorkloads(
	objects *cluster, cached, live client.Reader, writer client.Client, lead *leader,
	host func() (*kinds.WorkloadHost, error), turned func(string),
) *workloadReconciler {
	return &workloadReconciler{
		cluster: objects, cached: cached, live: live, writer: writer, leader: lead, host: host, turned: turned,
		found: map[types.UID]metav1.Condition{},
	}
}

// workloadCache watches what runs plugins, and nothing else of those kinds.
func workloadCache() map[client.Object]cache.ByObject {
	labelled := labels.NewSelector()
	if has, err := labels.NewRequirement(v1alpha1.LabelInstallationID, selection.Exists, nil); err == nil {
		labelled = labelled.Add(*has)
	}
	return map[client.Object]cache.ByObject{
		&appsv1.Deployment{}: {Label: labelled}, &networkingv1.NetworkPolicy{}: {Label: labelled},
	}
}

func addWorkloads(mgr manager.Manager, r *workloadReconciler) error {
	mine := handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &v1alpha1.PluginInstallation{}, handler.OnlyControllerOwner())
	account := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		installation, ok := o.(*v1alpha1.PluginInstallation)
		if !ok {
			return nil
		}
		// Another one that names the ServiceAccount, or no longer does, decides too.
		ref := installation.Spec.ServiceAccountRef
		return r.naming(ctx, client.MatchingFields{indexServiceAccount: ref.Namespace + "/" + ref.Name})
	})
	inside := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return r.naming(ctx, client.MatchingFields{indexServiceAccountNamespace: o.GetName()})
	})
	named := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return r.naming(ctx, client.MatchingFields{indexServiceAccount: o.GetNamespace() + "/" + o.GetName()})
	})
	err := builder.ControllerManagedBy(mgr).Named("workload").
		For(&v1alpha1.PluginInstallation{}, builder.WithPredicates(installationMatters())).
		Watches(&v1alpha1.PluginInstallation{}, account, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&appsv1.Deployment{}, mine).
		Watches(&networkingv1.NetworkPolicy{}, mine).
		WatchesMetadata(metadataOf("ServiceAccount"), named, builder.WithPredicates(identityMatters())).
		WatchesMetadata(metadataOf("Namespace"), inside, builder.WithPredicates(namespaceMatters())).
		WithOptions(controller.Options{MaxConcurrentReconciles: 2, EnableWarmup: new(true)}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add the controller of workloads: %w", err)
	}
	return nil
}

func (r *workloadReconciler) naming(ctx context.Context, which client.ListOption) []reconcile.Request {
	var list v1alpha1.PluginInstallationList
	if err := r.cached.List(ctx, &list, which, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache fails only when it ends
	}
	var found []reconcile.Request
	for i := range list.Items {
		found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return found
}

// Reconcile implements reconcile.Reconciler.
func (r *workloadReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if _, err := r.leader.wait(ctx); err != nil {
		return reconcile.Result{}, err
	}
	object, err := r.cluster.installationNamed(ctx, request.Name)
	if err != nil || object == nil || object.Status.InstallationID == "" {
		// The garbage collector ends what ran, and an ID comes with another event.
		return reconcile.Result{}, err
	}
	// What the cache doesn't show yet comes with an event.
	had, err := r.ours(ctx, r.cached, object)
	if err != nil {
		return reconcile.Result{}, err
	}
	if object.Spec.Workload == nil && len(had) == 0 {
		r.tell(object, nil)
		return reconcile.Result{}, nil
	}
	// A process that was stopped for a while must not take back what another did.
	if err := r.leader.current(ctx); err != nil {
		return reconcile.Result{}, err
	}
	c, err := r.bring(ctx, object, had)
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		r.tell(object, new(refused.condition()))
		return reconcile.Result{RequeueAfter: workloadRetry}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	r.tell(object, c)
	if object.Spec.Workload == nil {
		return reconcile.Result{}, nil
	}
	if c.Reason == v1alpha1.ReasonStarting || c.Reason == v1alpha1.ReasonUnresolved {
		// No watch shows what its pod waits for.
		return reconcile.Result{RequeueAfter: workloadRetry}, nil
	}
	return reconcile.Result{RequeueAfter: workloadEvery}, nil
}

// bring makes what is there what should be there.
func (r *workloadReconciler) bring(ctx context.Context, object *v1alpha1.PluginInstallation, had []client.Object) (*metav1.Condition, error) {
	if object.Spec.Workload == nil {
		gone, err := r.remove(ctx, object, had, client.ObjectKey{})
		if err != nil || gone {
			return nil, err
		}
		return new(condition(v1alpha1.ConditionWorkloadReady, false, v1alpha1.ReasonStopping, "spec.workload is gone; the pod ends")), nil
	}
	why, err := r.unacceptable(ctx, object)
	if err != nil {
		return nil, err
	}
	if why != "" {
		if _, err := r.remove(ctx, object, had, client.ObjectKey{}); err != nil {
			return nil, err
		}
		return new(condition(v1alpha1.ConditionWorkloadReady, false, v1alpha1.ReasonNotAccepted, "nothing runs; see Accepted: "+why)), nil
	}
	host, err := r.host()
	if err != nil {
		return nil, &refusal{v1alpha1.ReasonHostNotConfigured, err.Error()}
	}
	wanted, err := kinds.WorkloadOf(object, host)
	if errors.Is(err, kinds.ErrNoLauncherImage) {
		return nil, &refusal{v1alpha1.ReasonHostNotConfigured, err.Error()}
	}
	if err != nil {
		return nil, err
	}
	gone, err := r.remove(ctx, object, had, client.ObjectKeyFromObject(wanted.Deployment))
	if err != nil {
		return nil, err
	}
	if !gone {
		// Two processes under one ServiceAccount would be one too many.
		return new(condition(v1alpha1.ConditionWorkloadReady, false, v1alpha1.ReasonStopping, "the pod of another ServiceAccount ends first")), nil
	}
	// The policy is there before the pod.
	for _, o := range []client.Object{wanted.CA, wanted.NetworkPolicy} {
		if _, err := r.apply(ctx, o); err != nil {
			return nil, r.refusedBy(object, err)
		}
	}
	applied, err := r.apply(ctx, wanted.Deployment)
	if err != nil {
		return nil, r.refusedBy(object, err)
	}
	var deployment appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(applied.Object, &deployment); err != nil {
		return nil, fmt.Errorf("decode deployment %s: %w", client.ObjectKeyFromObject(applied), err)
	}
	ready := workloadReady(object, &deployment)
	if ready.Reason != v1alpha1.ReasonStarting && ready.Reason != v1alpha1.ReasonStuck {
		return &ready, nil
	}
	lacks, err := r.lacks(ctx, object)
	if err != nil {
		return nil, err
	}
	if lacks != "" {
		ready.Reason, ready.Message = v1alpha1.ReasonUnresolved, shorten("deployment "+deployment.Namespace+"/"+deployment.Name+": "+lacks)
	}
	return &ready, nil
}

// lacks says what of spec.workload the newest pod of an installation can't get,
// "" for nothing. The Host may read no Secret and no claim; the kubelet and the
// scheduler say in the pod's status what they don't find.
func (r *workloadReconciler) lacks(ctx context.Context, object *v1alpha1.PluginInstallation) (string, error) {
	var pods corev1.PodList
	err := r.live.List(ctx, &pods, client.InNamespace(object.Spec.ServiceAccountRef.Namespace), client.MatchingLabels(kinds.WorkloadLabels(object)))
	if err != nil {
		return "", fmt.Errorf("list the pods of installation %s: %w", object.Name, err)
	}
	var newest *corev1.Pod
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.DeletionTimestamp == nil && (newest == nil || newest.CreationTimestamp.Before(&pod.CreationTimestamp)) {
			newest = pod
		}
	}
	if newest == nil {
		return "", nil
	}
	return unresolved(newest), nil
}

// unacceptable says why nothing may run, "" for nothing.
func (r *workloadReconciler) unacceptable(ctx context.Context, object *v1alpha1.PluginInstallation) (string, error) {
	owns, err := r.cluster.owns(ctx, object, object.Status.InstallationID)
	if err != nil {
		return "", err
	}
	lost := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionAccepted)
	if !owns || lost != nil && lost.Reason == v1alpha1.ReasonHistoryLost {
		return v1alpha1.ReasonHistoryLost, nil
	}
	ref := object.Spec.ServiceAccountRef
	all, err := r.cluster.naming(ctx, ref.Namespace, ref.Name)
	if err != nil {
		return "", err
	}
	found, err := r.cluster.examine(ctx, object, all)
	if err != nil {
		return "", err
	}
	pin(&found, ref.AcceptUID)
	// What doesn't fit in its configuration keeps a plugin from reading it, and not
	// from running.
	if c := accepted(&found, object, ""); c.Status != metav1.ConditionTrue && c.Reason != v1alpha1.ReasonConfigInvalid {
		return c.Reason, nil
	}
	return "", nil
}

// ours lists what runs an installation, wherever it is, deployments first.
func (r *workloadReconciler) ours(ctx context.Context, from client.Reader, object *v1alpha1.PluginInstallation) ([]client.Object, error) {
	var deployments appsv1.DeploymentList
	var policies networkingv1.NetworkPolicyList
	for _, list := range []client.ObjectList{&deployments, &policies} {
		if err := from.List(ctx, list, client.MatchingLabels(kinds.WorkloadLabels(object))); err != nil {
			return nil, fmt.Errorf("list what runs installation %s: %w", object.Name, err)
		}
	}
	var found []client.Object
	for i := range deployments.Items {
		found = append(found, &deployments.Items[i])
	}
	for i := range policies.Items {
		found = append(found, &policies.Items[i])
	}
	n := 0
	for _, o := range found {
		if metav1.IsControlledBy(o, object) {
			found[n] = o
			n++
		}
	}
	return found[:n], nil
}

// remove ends what runs under another name than keep, and tells whether all of it
// is gone. The policy stays until the pod has ended.
func (r *workloadReconciler) remove(ctx context.Context, object *v1alpha1.PluginInstallation, had []client.Object, keep client.ObjectKey) (gone bool, err error) {
	if !slices.ContainsFunc(had, func(o client.Object) bool { return client.ObjectKeyFromObject(o) != keep }) {
		return true, nil
	}
	// The cache can show a policy and not yet the deployment that it is for.
	if had, err = r.ours(ctx, r.live, object); err != nil {
		return false, err
	}
	gone = true
	for _, o := range had {
		deployment, ok := o.(*appsv1.Deployment)
		if !ok || client.ObjectKeyFromObject(o) == keep {
			continue
		}
		gone = false
		if deployment.DeletionTimestamp != nil {
			continue
		}
		if err := r.delete(ctx, object, deployment, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
			return false, err
		}
	}
	if !gone {
		return false, nil
	}
	for _, o := range had {
		policy, ok := o.(*networkingv1.NetworkPolicy)
		if !ok || client.ObjectKeyFromObject(o) == keep || policy.DeletionTimestamp != nil {
			continue
		}
		var ca corev1.ConfigMap
		name := client.ObjectKey{Namespace: policy.Namespace, Name: policy.Name + kinds.WorkloadCASuffix}
		switch err := r.live.Get(ctx, name, &ca); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return false, r.refusedBy(object, fmt.Errorf("read configmap %s: %w", name, err))
		case metav1.IsControlledBy(&ca, object):
			if err := r.delete(ctx, object, &ca); err != nil {
				return false, err
			}
		}
		// Last, for it is what the others are found by.
		if err := r.delete(ctx, object, policy); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (r *workloadReconciler) delete(ctx context.Context, object *v1alpha1.PluginInstallation, o client.Object, options ...client.DeleteOption) error {
	err := r.writer.Delete(ctx, o, append(options, client.Preconditions{UID: new(o.GetUID())})...)
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return r.refusedBy(object, fmt.Errorf("delete %T %s: %w", o, client.ObjectKeyFromObject(o), err))
	}
	return nil
}

// apply makes an object exactly what it should be, and returns what the API server
// has made of it. Applying leaves what somebody else has put beside it, an own
// container for instance; then the whole is replaced.
func (r *workloadReconciler) apply(ctx context.Context, o client.Object) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("encode %T %s: %w", o, client.ObjectKeyFromObject(o), err)
	}
	delete(fields, "status")
	wanted := &unstructured.Unstructured{Object: fields}
	applied := wanted.DeepCopy()
	if err := r.writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), fieldOwner, client.ForceOwnership); err != nil {
		return nil, fmt.Errorf("apply %s %s: %w", wanted.GetKind(), client.ObjectKeyFromObject(o), err)
	}
	for _, part := range []string{"spec", "data", "binaryData", "immutable"} {
		if !sharedPart(applied, part) {
			continue
		}
		if fields[part] == nil {
			delete(applied.Object, part)
		} else {
			applied.Object[part] = wanted.DeepCopy().Object[part]
		}
		if err := r.writer.Update(ctx, applied, fieldOwner); err != nil {
			return nil, fmt.Errorf("replace %s %s: %w", wanted.GetKind(), client.ObjectKeyFromObject(o), err)
		}
	}
	return applied, nil
}

// sharedPart tells whether somebody else owns anything of a part of an object.
func sharedPart(o *unstructured.Unstructured, part string) bool {
	for _, entry := range o.GetManagedFields() {
		if entry.Manager == string(fieldOwner) && entry.Operation == metav1.ManagedFieldsOperationApply || entry.Subresource == "status" || entry.FieldsV1 == nil {
			continue
		}
		var owned map[string]json.RawMessage
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil {
			return true // unknown, so replaced
		}
		if _, ok := owned["f:"+part]; ok {
			return true
		}
	}
	return false
}

// tell has the condition written, unless it was.
func (r *workloadReconciler) tell(object *v1alpha1.PluginInstallation, c *metav1.Condition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.found[object.UID]
	if c == nil {
		delete(r.found, object.UID)
		if known {
			r.turned(object.Name)
		}
		return
	}
	c.ObservedGeneration = object.Generation
	r.found[object.UID] = *c
	if before != *c {
		r.turned(object.Name)
	}
}

// condition returns what is known of what runs an installation, for its status;
// nil for nothing to say.
func (r *workloadReconciler) condition(object *v1alpha1.PluginInstallation) *metav1.Condition {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.found[object.UID]; ok && (c.ObservedGeneration == object.Generation || object.Spec.Workload == nil) {
		return &c
	}
	if object.Spec.Workload == nil {
		return nil
	}
	// What the process before this one has found stands until this one knows.
	if c := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionWorkloadReady); c != nil && c.ObservedGeneration == object.Generation {
		return c
	}
	return new(condition(v1alpha1.ConditionWorkloadReady, false, v1alpha1.ReasonStarting, "not looked at yet"))
}
