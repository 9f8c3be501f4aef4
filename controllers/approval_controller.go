package controllers

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

// approvalReconciler finds the key that an approval stands for and asks for a
// pass of it. An approval that stands for none gets a status that says why,
// and changes nothing.
type approvalReconciler struct {
	cluster  *cluster
	cached   client.Reader
	view     *view.View
	bindings *bindings
	statuses *statuses
	store    Store
	leader   *leader
	passes   *requests[authority.Key]
}

// Reconcile implements reconcile.Reconciler.
func (r *approvalReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if _, err := r.leader.wait(ctx); err != nil {
		return reconcile.Result{}, err
	}
	var approval v1alpha1.PluginCapabilityApproval
	// What it names can't change, and a status is bound to its version: the cache
	// is good enough to find the key, whose pass reads it live.
	err := r.cached.Get(ctx, request.NamespacedName, &approval)
	if apierrors.IsNotFound(err) {
		// The watch's handler has seen the deletion and asks for the pass.
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read approval %s: %w", request.NamespacedName, err)
	}
	if key, ok := r.view.StandsAt(placeOf(&approval)); ok && key == namedBy(&approval) {
		// It stands where it says; the pass finds out whether that is so.
		r.passes.addAt(together(key), key)
		return reconcile.Result{}, nil
	}
	key, why, err := r.resolve(ctx, &approval)
	if err != nil {
		return reconcile.Result{}, err
	}
	if why == nil {
		r.passes.addAt(together(key), key)
		return reconcile.Result{}, nil
	}
	err = r.statuses.applyApproval(ctx, &approval, pending(approval.Status, why.reason, why.message))
	if errors.Is(err, fence.ErrConflict) {
		return reconcile.Result{RequeueAfter: retryLeast}, nil
	}
	return reconcile.Result{}, err
}

// namedBy is the key that an approval names itself.
func namedBy(approval *v1alpha1.PluginCapabilityApproval) authority.Key {
	return authority.Key{InstallationID: approval.Spec.InstallationID, WorkspaceID: approval.Spec.WorkspaceID}
}

// unplaced says why an approval stands for no key.
type unplaced struct{ reason, message string }

func (r *approvalReconciler) resolve(ctx context.Context, approval *v1alpha1.PluginCapabilityApproval) (authority.Key, *unplaced, error) {
	key := namedBy(approval)
	installation, err := r.cluster.installationNamed(ctx, approval.Spec.InstallationName)
	if err != nil {
		return key, nil, err
	}
	installed := installation != nil && installation.Status.InstallationID != ""
	if installed {
		key.InstallationID = installation.Status.InstallationID
	}
	here, why, err := r.isHere(ctx, approval)
	if err != nil || (!here && why != nil) {
		return key, why, err
	}
	if !installed {
		row, err := r.store.Row(ctx, key)
		if err != nil {
			return key, nil, fmt.Errorf("read the row: %w", err)
		}
		if row.Revision == 0 {
			return key, &unplaced{v1alpha1.ReasonInstallationNotFound, fmt.Sprintf(
				"spec.installationName: no installation %q is registered", approval.Spec.InstallationName)}, nil
		}
	}
	return key, nil, nil
}

// isHere tells whether the approval's namespace is the one that its workspace
// is bound to, and binds a workspace that never was. A namespace that was bound
// and has lost its label is still the place: the pass revokes.
func (r *approvalReconciler) isHere(ctx context.Context, approval *v1alpha1.PluginCapabilityApproval) (bool, *unplaced, error) {
	workspaceID := approval.Spec.WorkspaceID
	namespace, err := r.cluster.metadata(ctx, "Namespace", client.ObjectKey{Name: approval.Namespace})
	if err != nil {
		return false, nil, err
	}
	bound, ok, err := r.bindings.lookUp(ctx, workspaceID)
	if err != nil {
		return false, nil, err
	}
	labelled := namespace != nil && namespace.Labels[v1alpha1.LabelWorkspaceID] == workspaceID
	if !ok && labelled {
		if bound, err = r.bindings.bind(ctx, workspaceID, namespace.Name, string(namespace.UID)); err != nil {
			return false, nil, err
		}
		ok = true
	}
	switch {
	case ok && bound.Namespace == approval.Namespace && (namespace == nil || bound.NamespaceUID == string(namespace.UID)):
		return true, nil, nil
	case labelled:
		return false, &unplaced{string(v1alpha1.GateWorkspaceConflict), fmt.Sprintf(
			"workspace %q is bound to another namespace; a platform admin labels this one with another ID, or passes the workspace on to it by the annotation %s, whose value is the uid of the namespace that it leaves", workspaceID, v1alpha1.AnnotationRebindFrom)}, nil
	default:
		return false, &unplaced{v1alpha1.ReasonWorkspaceMismatch, "spec.workspaceID: " + workspaceMissing(workspaceID)}, nil
	}
}
