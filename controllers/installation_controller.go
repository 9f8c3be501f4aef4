package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

// grantRetry is how long the leader waits for its watch to deliver what it has read.
const grantRetry = 20 * time.Millisecond

// maxWorkspaces is the schema's bound of status.workspaces.
const maxWorkspaces = 1000

// installationReconciler gives an installation its ID, its digest and its
// principal, says what is wrong with it, and has its rows computed again when
// what they depend on changes.
type installationReconciler struct {
	cluster  *cluster
	cached   client.Reader
	statuses *statuses
	store    Store
	leader   *leader
	proof    *proof
	now      func() time.Time
	// workload says how what runs the installation is, nil for nothing.
	workload func(*v1alpha1.PluginInstallation) *metav1.Condition
	secrets  ConfigSecrets
	passes   *requests[authority.Key]

	mu sync.Mutex
	// known is what the rows were last computed again for, by name.
	known map[string]authority.Installation
}

// Reconcile implements reconcile.Reconciler.
func (r *installationReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if _, err := r.leader.wait(ctx); err != nil {
		return reconcile.Result{}, err
	}
	object, err := r.cluster.installationNamed(ctx, request.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if object == nil {
		// uninstallReconciler sees to it.
		r.forget(request.Name)
		return reconcile.Result{}, nil
	}
	if object.Status.InstallationID == "" {
		// No approval of it can come before it has an ID, and none should come while
		// nobody knows whether it is checked: it would be distrusted for good.
		if _, err := r.proof.await(ctx); err != nil {
			return reconcile.Result{}, err
		}
		if r.proof.arriving() {
			return reconcile.Result{RequeueAfter: proofRetry / 4}, nil
		}
	}
	granted, err := r.proof.review(ctx, object)
	if err != nil {
		return reconcile.Result{}, err
	}
	if granted.again {
		return reconcile.Result{RequeueAfter: grantRetry}, nil
	}
	lost, err := r.register(ctx, object)
	if err != nil {
		return reconcile.Result{}, err
	}
	ref := object.Spec.ServiceAccountRef
	all, err := r.cluster.naming(ctx, ref.Namespace, ref.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	found, err := r.cluster.examine(ctx, object, all)
	if err != nil {
		return reconcile.Result{}, err
	}
	status := v1alpha1.PluginInstallationStatus{
		InstallationID: object.Status.InstallationID, ManifestDigest: found.ManifestDigest,
	}
	pin(&found, object.Spec.ServiceAccountRef.AcceptUID)
	status.ServiceAccountUID = types.UID(found.ServiceAccountUID)
	status.NamespaceUID = types.UID(found.ServiceAccountNamespaceUID)

	// The approvals first: what their status says can then only be older than
	// the rows.
	approvals, err := r.approvals(ctx, object)
	if err != nil {
		return reconcile.Result{}, err
	}
	rows, err := r.store.RowsOfInstallation(ctx, status.InstallationID)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("list the rows: %w", err)
	}
	if lost == "" {
		lost = r.lostHistory(approvals, rows)
	}
	r.summarise(&status, rows)
	acceptance := accepted(&found, object, lost)
	status.Conditions = []metav1.Condition{
		acceptance, installationReady(acceptance, found.Suspended),
		upgradeReview(unreviewed(approvals, found.ManifestDigest), found.ManifestDigest),
	}
	if object.Spec.Compatibility != nil {
		status.Conditions = append(status.Conditions, grantReview(granted.notVerified))
	}
	if len(object.Spec.SecretRefs) > 0 {
		status.Conditions = append(status.Conditions, configReady(object, r.secrets))
	}
	if c := r.workload(object); c != nil {
		status.Conditions = append(status.Conditions, *c)
	}
	err = r.statuses.applyInstallation(ctx, object, status)
	if errors.Is(err, fence.ErrConflict) {
		return reconcile.Result{RequeueAfter: retryLeast}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if r.changed(found.Installation) {
		for _, row := range rows {
			r.passes.addAt(together(row.Key), row.Key)
		}
	}
	return reconcile.Result{}, nil
}

// register makes the installation's ID durable before anyone can see it. An ID
// that the status has is kept: it was durable once.
func (r *installationReconciler) register(ctx context.Context, object *v1alpha1.PluginInstallation) (lost string, err error) {
	uid, name := string(object.UID), object.Name
	if object.Status.InstallationID == "" {
		object.Status.InstallationID, err = r.store.RecordInstallation(ctx, uid, name)
		if err != nil {
			return "", fmt.Errorf("record installation %s: %w", name, err)
		}
		return "", nil
	}
	err = r.store.AdoptInstallation(ctx, uid, name, object.Status.InstallationID)
	if errors.Is(err, ErrInstallationKnown) {
		return "the store has recorded another ID for this object, or another object for this ID; install it again", nil
	}
	if err != nil {
		return "", fmt.Errorf("record installation %s: %w", name, err)
	}
	return "", nil
}

// pin takes over the live principal once, and again only when the installer
// acknowledges the very ServiceAccount that is there.
func pin(found *examined, accept types.UID) {
	first := found.ServiceAccountUID == "" && !found.ServiceAccountConflict
	if found.AccountUID == "" || (!first && string(accept) != found.AccountUID) {
		return
	}
	found.ServiceAccountUID, found.ServiceAccountNamespaceUID = found.AccountUID, found.NamespaceUID
	found.PrincipalChanged = false
}

func (r *installationReconciler) approvals(ctx context.Context, object *v1alpha1.PluginInstallation) ([]v1alpha1.PluginCapabilityApproval, error) {
	var list v1alpha1.PluginCapabilityApprovalList
	if err := r.cached.List(ctx, &list, client.MatchingFields{indexInstallationName: object.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the approvals of installation %s: %w", object.Name, err)
	}
	var mine []v1alpha1.PluginCapabilityApproval
	for _, approval := range list.Items {
		if approval.Spec.InstallationID == object.Status.InstallationID && approval.DeletionTimestamp == nil {
			mine = append(mine, approval)
		}
	}
	return mine, nil
}

// unreviewed lists the namespaces whose approval names another digest.
func unreviewed(approvals []v1alpha1.PluginCapabilityApproval, digest string) []string {
	var namespaces []string
	for _, approval := range approvals {
		if approval.Spec.ManifestDigest != digest && approval.Spec.State != v1alpha1.StateRevoked {
			namespaces = append(namespaces, approval.Namespace)
		}
	}
	slices.Sort(namespaces)
	return namespaces
}

// lostHistory says which workspace's status knows more than the store. Only the
// approval that stands for the workspace counts: whoever may write a status in
// another namespace says nothing about it.
func (r *installationReconciler) lostHistory(approvals []v1alpha1.PluginCapabilityApproval, rows []authority.Row) string {
	revisions := map[string]uint64{}
	for _, row := range rows {
		revisions[row.Key.WorkspaceID] = row.Revision
	}
	for _, approval := range approvals {
		s := &approval.Status
		bound, ok := r.cluster.view.Binding(approval.Spec.WorkspaceID)
		if !ok || bound.Namespace != approval.Namespace {
			continue
		}
		if s.InstallationID == approval.Spec.InstallationID && s.Revision > 0 &&
			uint64(s.Revision) > revisions[approval.Spec.WorkspaceID] {
			return fmt.Sprintf("the approval in namespace %s was at revision %d, which neither the store nor any event knows; install again",
				approval.Namespace, s.Revision)
		}
	}
	return ""
}

func (r *installationReconciler) summarise(status *v1alpha1.PluginInstallationStatus, rows []authority.Row) {
	now := r.now()
	for _, row := range rows {
		if row.Revision == 0 {
			continue
		}
		status.WorkspaceCount++
		if len(status.Workspaces) == maxWorkspaces {
			continue
		}
		status.Workspaces = append(status.Workspaces, v1alpha1.InstallationWorkspace{
			WorkspaceID: row.Key.WorkspaceID, Namespace: row.Vector.WorkspaceNamespace,
			Revision: int64(row.Revision), State: v1alpha1.State(row.State.String()),
			Effective: int32(row.Effective(now).Len()), Declared: int32(row.Declared.Len()),
		})
	}
}

// changed tells whether an installation differs from what its rows were
// computed for by this process.
func (r *installationReconciler) changed(installation authority.Installation) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, ok := r.known[installation.Name]
	r.known[installation.Name] = installation
	return !ok || before != installation
}

func (r *installationReconciler) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, name)
}

// uninstallReconciler retires installation IDs whose object is gone and has
// every row of theirs revoked. No finalizer waits for it (I13): the sweep finds
// what was missed.
type uninstallReconciler struct {
	cluster *cluster
	store   Store
	leader  *leader
	passes  *requests[authority.Key]
}

// Reconcile implements reconcile.TypedReconciler; the request is an ID.
func (r *uninstallReconciler) Reconcile(ctx context.Context, id string) (reconcile.Result, error) {
	if _, err := r.leader.wait(ctx); err != nil {
		return reconcile.Result{}, err
	}
	_, object, _, err := r.cluster.installation(ctx, id)
	if err != nil {
		return reconcile.Result{}, err
	}
	if object != nil {
		return reconcile.Result{}, nil
	}
	if err := r.store.Tombstone(ctx, id); err != nil {
		return reconcile.Result{}, fmt.Errorf("tombstone installation %s: %w", id, err)
	}
	rows, err := r.store.RowsOfInstallation(ctx, id)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("list the rows: %w", err)
	}
	for _, row := range rows {
		r.passes.addAt(together(row.Key), row.Key)
	}
	return reconcile.Result{}, nil
}
