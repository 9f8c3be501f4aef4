package controllers

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
)

// bindings looks bindings up. One that isn't known may have been made by another
// process; one that is known changes only when a human says so, which every round
// looks for.
type bindings struct {
	store Store
	view  *view.View
}

func (b *bindings) lookUp(ctx context.Context, workspaceID string) (authority.Workspace, bool, error) {
	if bound, ok := b.view.Binding(workspaceID); ok {
		return bound, true, nil
	}
	if err := b.load(ctx); err != nil {
		return authority.Workspace{}, false, err
	}
	bound, ok := b.view.Binding(workspaceID)
	return bound, ok, nil
}

func (b *bindings) load(ctx context.Context) error {
	all, err := b.store.Bindings(ctx)
	if err != nil {
		return fmt.Errorf("list the bindings: %w", err)
	}
	for _, bound := range all {
		b.view.SetBinding(bound)
	}
	return nil
}

func (b *bindings) bind(ctx context.Context, workspaceID, namespace, uid string) (authority.Workspace, error) {
	bound, err := b.store.Bind(ctx, workspaceID, namespace, uid)
	if err != nil {
		return authority.Workspace{}, fmt.Errorf("bind workspace %s to namespace %s: %w", workspaceID, namespace, err)
	}
	b.view.SetBinding(bound)
	return bound, nil
}

// rebindReconciler passes a workspace on to another namespace, where a human who
// may bind it has named the namespace that it leaves. It starts there with no
// authority: the passes revoke what was granted in the former one.
type rebindReconciler struct {
	cluster  *cluster
	bindings *bindings
	store    Store
	leader   *leader
	passes   *requests[authority.Key]
}

// Reconcile implements reconcile.Reconciler; the request is a namespace.
func (r *rebindReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if _, err := r.leader.wait(ctx); err != nil {
		return reconcile.Result{}, err
	}
	namespace, err := r.cluster.metadata(ctx, "Namespace", client.ObjectKey{Name: request.Name})
	if err != nil || namespace == nil {
		return reconcile.Result{}, err
	}
	workspaceID, from := namespace.Labels[v1alpha1.LabelWorkspaceID], namespace.Annotations[v1alpha1.AnnotationRebindFrom]
	if workspaceID == "" || from == "" || from == string(namespace.UID) {
		return reconcile.Result{}, nil
	}
	// The approvals are listed first: one that comes later finds the binding.
	var approvals v1alpha1.PluginCapabilityApprovalList
	if err := r.cluster.live.List(ctx, &approvals, client.InNamespace(namespace.Name)); err != nil {
		return reconcile.Result{}, fmt.Errorf("list the approvals in namespace %s: %w", namespace.Name, err)
	}
	bound, err := r.store.Rebind(ctx, workspaceID, from, namespace.Name, string(namespace.UID))
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("pass workspace %s on to namespace %s: %w", workspaceID, namespace.Name, err)
	}
	if bound.NamespaceUID != string(namespace.UID) {
		// It was never bound, or isn't bound to the one that is named: the approvals
		// in this namespace say so.
		return reconcile.Result{}, nil
	}
	r.bindings.view.SetBinding(bound)
	rows, err := r.store.Rows(ctx)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("list the rows: %w", err)
	}
	for _, row := range rows {
		if row.Key.WorkspaceID == workspaceID {
			r.passes.hurry(row.Key)
		}
	}
	for i := range approvals.Items {
		if approval := kinds.ApprovalOf(&approvals.Items[i]); approval != nil && approval.WorkspaceID == workspaceID {
			r.passes.add(keyOf(approval))
		}
	}
	return reconcile.Result{}, nil
}

func addRebinds(mgr manager.Manager, r *rebindReconciler) error {
	named := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: o.GetName()}}}
	})
	asked := func(o client.Object) bool {
		return o.GetLabels()[v1alpha1.LabelWorkspaceID] != "" && o.GetAnnotations()[v1alpha1.AnnotationRebindFrom] != ""
	}
	err := builder.ControllerManagedBy(mgr).Named("rebind").
		WatchesMetadata(metadataOf("Namespace"), named, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return asked(e.Object) },
			DeleteFunc: func(event.DeleteEvent) bool { return false },
			UpdateFunc: func(e event.UpdateEvent) bool {
				return asked(e.ObjectNew) && (!asked(e.ObjectOld) || rebinds(e.ObjectOld) != rebinds(e.ObjectNew))
			},
		})).
		WithOptions(controller.Options{EnableWarmup: new(true)}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add the controller of rebinds: %w", err)
	}
	return nil
}

// rebinds is what a namespace asks to be bound to, and from where.
func rebinds(o client.Object) [2]string {
	return [2]string{o.GetLabels()[v1alpha1.LabelWorkspaceID], o.GetAnnotations()[v1alpha1.AnnotationRebindFrom]}
}
