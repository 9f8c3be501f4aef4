package controllers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

// Indexes of the cache, so that no mapper lists everything.
const (
	indexInstallationName        = "spec.installationName"
	indexServiceAccount          = "serviceAccount"
	indexServiceAccountNamespace = "serviceAccountNamespace"
)

const (
	// Passes mostly wait for the API server; the more at once, the more of them
	// share each read.
	passWorkers = 128
	// approvalWorkers find the keys of approvals.
	approvalWorkers = 4
	// summaryDelay is how long an installation's summary of its workspaces waits
	// for others of its rows to move, and summaryEvery the time between two.
	summaryDelay = time.Second
	summaryEvery = 15 * time.Second
	// passTimeout bounds one request, waits for the watch included.
	passTimeout = time.Minute
)

// Options are what the controllers need besides the manager.
type Options struct {
	Store Store
	// View is filled from the manager's watches and read by the Host.
	View *view.View
	// Policy is the built-in human policy, which the cluster's can tighten.
	Policy authority.Policy
	// Now is the clock of revisions, expiries and conditions.
	Now func() time.Time
	// Random is the source of act names.
	Random io.Reader
	// Namespace is the Host's own, where the cluster remembers the store.
	Namespace string
	// AdoptFrom is the uid of the kube-system namespace of the cluster that the
	// store was taken from, "" for none: see Store.Claim.
	AdoptFrom string
	// RoundEvery is the time between two rounds, LeaseLife how long commands
	// commit after the beginning of a round: at least three times as long.
	RoundEvery time.Duration
	LeaseLife  time.Duration
	// ProofSettle is how long admission policies that were never proven in force
	// must hold before they count: longer than the slowest API server takes to
	// enforce what was written.
	ProofSettle time.Duration
	// EventRetention is how old an event of authority must be to be pruned from the
	// API for its age, once the store has it; zero: none is.
	EventRetention time.Duration
	// Workloads are how plugins run that the controllers run.
	Workloads Workloads
	// ConfigSecrets are what plugins are configured with.
	ConfigSecrets ConfigSecrets
	// Observer may be nil.
	Observer Observer
}

// AddToScheme registers the kinds that the controllers read and write.
func AddToScheme(scheme *runtime.Scheme) error {
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, admissionregistrationv1.AddToScheme, eventsv1.AddToScheme, v1alpha1.AddToScheme,
		appsv1.AddToScheme, networkingv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("register the kinds: %w", err)
		}
	}
	return nil
}

// CacheOptions are the cache's options that the controllers need: no kind is
// watched by accident, and nothing is kept that nobody reads.
func CacheOptions() cache.Options {
	strip := cache.TransformStripManagedFields()
	return cache.Options{
		ReaderFailOnMissingInformer: true,
		ByObject:                    workloadCache(),
		DefaultTransform: func(object any) (any, error) {
			if o, ok := object.(*metav1.PartialObjectMetadata); ok {
				o.Labels = only(v1alpha1.LabelWorkspaceID, o.Labels)
				o.Annotations = only(v1alpha1.AnnotationRebindFrom, o.Annotations)
				o.OwnerReferences = nil
			}
			return strip(object)
		},
	}
}

func only(name string, all map[string]string) map[string]string {
	value, ok := all[name]
	if !ok {
		return nil
	}
	return map[string]string{name: value}
}

// Add claims the store for this cluster and adds the controllers to a manager
// that has not been started, with readiness checks named crds and lease.
func Add(ctx context.Context, mgr manager.Manager, o Options) error {
	live, log := mgr.GetAPIReader(), mgr.GetLogger()
	if o.Observer == nil {
		o.Observer = unobserved{}
	}
	writer := client.WithFieldValidation(mgr.GetClient(), metav1.FieldValidationStrict)

	if err := claim(ctx, live, o.Store, o.AdoptFrom); err != nil {
		return err
	}
	known, err := newSchemas(mgr.GetConfig(), log.WithName("schemas"))
	if err != nil {
		return err
	}
	bound := &bindings{store: o.Store, view: o.View}
	// What many passes read alike, they read together.
	together := newShared(live)
	policy := &policies{live: together, builtIn: o.Policy}
	objects := &cluster{live: together, store: o.Store, view: o.View, bindings: bound, policies: policy}
	status := newStatuses(writer, o.Now)
	history := &events{live: live, writer: writer}
	stores := &marks{live: live, writer: writer, namespace: o.Namespace}

	passes, uninstalls := newRequests[authority.Key](), newRequests[string]()
	installations := newRequests[reconcile.Request]()

	approvals := newWatch(o.View, o.Store, objects, bound, log.WithName("watch"))
	holds := newStorm()
	approvals.narrowed = func(key authority.Key, held bool) {
		if !held {
			passes.add(key)
			return
		}
		holds.held(key.WorkspaceID)
		passes.hurry(key)
	}
	views := &feed{
		view: o.View, bindings: bound, log: log.WithName("view"), uninstalls: uninstalls,
		builtIn: o.Policy, policies: map[string]v1alpha1.HumanPolicy{}, granting: map[string]granting{},
	}
	if err := views.register(ctx, mgr.GetCache(), approvals); err != nil {
		return err
	}
	lead := newLeader(o.Store, history, bound, o.View, stores, known, log.WithName("leader"))
	lead.beginIn = approvals.beginIn
	notes := newRecorder(history, writer, o.View, o.Now, log.WithName("recorder"))
	status.told = notes.status
	admitted := newProof(together, writer, o.Store, lead, o.Namespace, o.ProofSettle, log.WithName("proof"))
	views.grants, admitted.granted = admitted, views.regrant
	if err := admitted.register(ctx, mgr.GetCache()); err != nil {
		return err
	}
	admitted.writtenAnew, approvals.believed = approvals.writtenAnew, admitted.believed
	admitted.turned, admitted.observed = notes.proof, o.Observer.Proven
	admitted.resume = func(ctx context.Context) error {
		for _, name := range views.granted() {
			installations.add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
		}
		return resume(ctx, mgr.GetClient(), passes.add)
	}
	objects.proof, status.doubt = admitted, admitted.doubt
	fresh := &rounds{
		store: o.Store, live: live, cluster: objects, bindings: bound, policies: policy, history: approvals, delivered: approvals.delivered, view: o.View,
		marks: stores, leader: lead, passes: passes, uninstalls: uninstalls, observer: o.Observer,
		every: o.RoundEvery, life: o.LeaseLife, now: o.Now, log: log.WithName("rounds"),
	}
	fresh.settle = func(ctx context.Context) error {
		// A restarted process must not take what was granted for unknown.
		if admitted.loaded.Load() && !views.unsettled() {
			return nil
		}
		_, _, err := admitted.load(ctx)
		return err
	}
	lead.all = fresh.all
	for _, runnable := range []manager.Runnable{
		known, approvals, views, fresh, lead, notes, admitted,
		&retention{live: live, writer: writer, store: o.Store, leader: lead, keep: o.EventRetention, now: o.Now, log: log.WithName("retention")},
	} {
		if err := mgr.Add(runnable); err != nil {
			return fmt.Errorf("add %T to the manager: %w", runnable, err)
		}
	}
	for name, check := range map[string]healthz.Checker{"crds": known.ready, "lease": fresh.ready} {
		if err := mgr.AddReadyzCheck(name, check); err != nil {
			return fmt.Errorf("add the readiness check %s: %w", name, err)
		}
	}
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	summaries := &pace{least: summaryDelay, every: summaryEvery}
	if err := builder.TypedControllerManagedBy[authority.Key](mgr).Named("pass").
		WatchesRawSource(passes.source()).
		WithOptions(controller.TypedOptions[authority.Key]{
			MaxConcurrentReconciles: passWorkers, ReconciliationTimeout: passTimeout, EnableWarmup: new(true),
		}).
		Complete(calmPasses{storm: holds, TypedReconciler: observedPasses{observer: o.Observer, TypedReconciler: &passReconciler{
			pass: &fence.Pass{
				Intent: objects, History: observedHistory{approvals, o.Observer, o.Now}, Events: history,
				Ledger: distrusting{o.Store, admitted}, Status: status, Now: o.Now, Random: o.Random,
			},
			told:   notes.revision,
			leader: lead, view: o.View, store: o.Store, now: o.Now, revisions: map[authority.Key]uint64{},
			settled: func(installationID string) {
				if name, ok := o.View.InstallationName(installationID); ok {
					installations.later(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}, summaries.wait(name, o.Now()))
				}
			},
		}}}); err != nil {
		return fmt.Errorf("add the controller of passes: %w", err)
	}
	if err := builder.TypedControllerManagedBy[string](mgr).Named("uninstall").
		WatchesRawSource(uninstalls.source()).
		WithOptions(controller.TypedOptions[string]{EnableWarmup: new(true)}).
		Complete(&uninstallReconciler{cluster: objects, store: o.Store, leader: lead, passes: passes}); err != nil {
		return fmt.Errorf("add the controller of uninstalls: %w", err)
	}
	if err := addPolicies(mgr, &policyReconciler{
		policies: policy, statuses: status, store: o.Store, leader: lead, passes: passes,
	}); err != nil {
		return err
	}
	if err := addRebinds(mgr, &rebindReconciler{
		cluster: objects, bindings: bound, store: o.Store, leader: lead, passes: passes,
	}); err != nil {
		return err
	}
	if err := addApprovals(mgr, o.View, &approvalReconciler{
		cluster: objects, cached: mgr.GetClient(), view: o.View, bindings: bound, statuses: status, store: o.Store, leader: lead, passes: passes,
	}); err != nil {
		return err
	}
	userNamespaces, err := o.Workloads.userNamespaces(mgr.GetConfig())
	if err != nil {
		return err
	}
	workloads := newWorkloads(objects, mgr.GetClient(), live, writer, lead, func() (*kinds.WorkloadHost, error) {
		return o.Workloads.host(o.Namespace, userNamespaces)
	}, func(name string) {
		installations.add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	})
	if err := addWorkloads(mgr, workloads); err != nil {
		return err
	}
	o.ConfigSecrets.Follow(func(name string) {
		installations.add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	})
	return addInstallations(mgr, installations, &installationReconciler{
		cluster: objects, cached: mgr.GetClient(), statuses: status, store: o.Store, leader: lead, proof: admitted, now: o.Now,
		workload: workloads.condition, secrets: o.ConfigSecrets, passes: passes, known: map[string]authority.Installation{},
	})
}

// claim makes the store this cluster's, or confirms that it is: two clusters on
// one store would each move the other's authority.
func claim(ctx context.Context, live client.Reader, store Store, adoptFrom string) error {
	system := metadataOf("Namespace")
	if err := live.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return fmt.Errorf("read the identity of the cluster: %w", err)
	}
	err := store.Claim(ctx, string(system.UID), adoptFrom)
	if errors.Is(err, ErrOtherCluster) {
		return fmt.Errorf("this cluster is %s: %w; give this Host a store of its own, or, if that cluster is gone for good, adopt its store with --store-adopt-from and that cluster's ID: its authority ends, its tasks stay",
			system.UID, err)
	}
	if err != nil {
		return fmt.Errorf("claim the store: %w", err)
	}
	return nil
}

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, index := range []struct {
		object client.Object
		name   string
		value  func(client.Object) []string
	}{
		{&v1alpha1.PluginCapabilityApproval{}, indexInstallationName, func(o client.Object) []string {
			approval, ok := o.(*v1alpha1.PluginCapabilityApproval)
			if !ok {
				return nil
			}
			return []string{approval.Spec.InstallationName}
		}},
		{&v1alpha1.PluginInstallation{}, indexServiceAccount, func(o client.Object) []string {
			return serviceAccountOf(o, func(ref v1alpha1.ServiceAccountReference) string { return ref.Namespace + "/" + ref.Name })
		}},
		{&v1alpha1.PluginInstallation{}, indexServiceAccountNamespace, func(o client.Object) []string {
			return serviceAccountOf(o, func(ref v1alpha1.ServiceAccountReference) string { return ref.Namespace })
		}},
	} {
		if err := indexer.IndexField(ctx, index.object, index.name, index.value); err != nil {
			return fmt.Errorf("index %T by %s: %w", index.object, index.name, err)
		}
	}
	return nil
}

func serviceAccountOf(o client.Object, value func(v1alpha1.ServiceAccountReference) string) []string {
	installation, ok := o.(*v1alpha1.PluginInstallation)
	if !ok {
		return nil
	}
	return []string{value(installation.Spec.ServiceAccountRef)}
}

func addApprovals(mgr manager.Manager, seen *view.View, r *approvalReconciler) error {
	cached := mgr.GetClient()
	named := func(ctx context.Context, o client.Object) []reconcile.Request {
		return approvalsIn(ctx, cached, client.MatchingFields{indexInstallationName: o.GetName()})
	}
	inside := func(ctx context.Context, o client.Object) []reconcile.Request {
		found := approvalsIn(ctx, cached, client.InNamespace(o.GetName()))
		// Another namespace that claims a bound workspace concerns the bound one.
		if bound, ok := seen.Binding(o.GetLabels()[v1alpha1.LabelWorkspaceID]); ok && bound.Namespace != o.GetName() {
			found = append(found, approvalsIn(ctx, cached, client.InNamespace(bound.Namespace))...)
		}
		return found
	}
	err := builder.ControllerManagedBy(mgr).Named("approval").
		For(&v1alpha1.PluginCapabilityApproval{}, builder.WithPredicates(predicate.Or(
			r.statuses.tampered(approvalStatus), predicate.GenerationChangedPredicate{}))).
		Watches(&v1alpha1.PluginInstallation{}, handler.EnqueueRequestsFromMapFunc(named),
			builder.WithPredicates(installationMatters())).
		WatchesMetadata(metadataOf("Namespace"), handler.EnqueueRequestsFromMapFunc(inside),
			builder.WithPredicates(namespaceMatters())).
		WithOptions(controller.Options{MaxConcurrentReconciles: approvalWorkers, EnableWarmup: new(true)}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add the controller of approvals: %w", err)
	}
	return nil
}

func approvalsIn(ctx context.Context, cached client.Reader, selection client.ListOption) []reconcile.Request {
	var list v1alpha1.PluginCapabilityApprovalList
	if err := cached.List(ctx, &list, selection, client.UnsafeDisableDeepCopy); err != nil {
		// The cache fails only when it ends; the next process begins with everything.
		return nil
	}
	found := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		found[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
	}
	return found
}

func addInstallations(mgr manager.Manager, from *requests[reconcile.Request], r *installationReconciler) error {
	cached := mgr.GetClient()
	by := func(index string, value func(client.Object) string) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			var list v1alpha1.PluginInstallationList
			if err := cached.List(ctx, &list, client.MatchingFields{index: value(o)}, client.UnsafeDisableDeepCopy); err != nil {
				return nil // as above
			}
			found := make([]reconcile.Request, len(list.Items))
			for i := range list.Items {
				found[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
			}
			return found
		})
	}
	claimants := by(indexServiceAccount, func(o client.Object) string {
		if installation, ok := o.(*v1alpha1.PluginInstallation); ok {
			return installation.Spec.ServiceAccountRef.Namespace + "/" + installation.Spec.ServiceAccountRef.Name
		}
		return o.GetNamespace() + "/" + o.GetName()
	})
	named := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		// metadata.name is spec.installationName, by the schema.
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: o.GetName()}}}
	})
	inside := by(indexServiceAccountNamespace, func(o client.Object) string { return o.GetName() })
	err := builder.ControllerManagedBy(mgr).Named("installation").
		For(&v1alpha1.PluginInstallation{}, builder.WithPredicates(predicate.Or(
			r.statuses.tampered(installationStatus), predicate.GenerationChangedPredicate{}))).
		Watches(&v1alpha1.PluginInstallation{}, claimants, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.PluginCapabilityApproval{}, named, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(metadataOf("ServiceAccount"), claimants, builder.WithPredicates(identityMatters())).
		WatchesMetadata(metadataOf("Namespace"), inside, builder.WithPredicates(namespaceMatters())).
		WatchesRawSource(from.source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: 2, EnableWarmup: new(true)}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add the controller of installations: %w", err)
	}
	return nil
}

// installationMatters passes what approvals of an installation depend on; its
// summary of workspaces is not part of it.
func installationMatters() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.PluginInstallation)
		after, okAfter := e.ObjectNew.(*v1alpha1.PluginInstallation)
		return !ok || !okAfter || before.UID != after.UID || before.Generation != after.Generation ||
			before.Status.InstallationID != after.Status.InstallationID ||
			before.Status.ServiceAccountUID != after.Status.ServiceAccountUID ||
			before.Status.NamespaceUID != after.Status.NamespaceUID
	}}
}

// namespaceMatters passes what makes a namespace a workspace.
func namespaceMatters() predicate.Predicate {
	identity := identityMatters()
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return identity.Update(e) ||
			e.ObjectOld.GetLabels()[v1alpha1.LabelWorkspaceID] != e.ObjectNew.GetLabels()[v1alpha1.LabelWorkspaceID]
	}}
}

// identityMatters passes creation, deletion and its beginning.
func identityMatters() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
			(e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
	}}
}
