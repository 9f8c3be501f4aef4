package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

// fieldInstallationID is a field selector of the API server.
const fieldInstallationID = "spec.installationID"

// cluster reads what humans ask for, live: past every cache. It implements
// fence.Intent.
type cluster struct {
	live     client.Reader
	store    Store
	view     *view.View
	bindings *bindings
	policies *policies
	proof    *proof

	// owned holds the IDs that the store has confirmed, by object UID.
	owned sync.Map
}

// Read implements fence.Intent.
func (c *cluster) Read(ctx context.Context, key authority.Key) (fence.Reading, error) {
	read, err := c.read(ctx, key)
	if err != nil || read.Intent.Approval == nil {
		return read.Reading, err
	}
	row, err := c.store.Row(ctx, key)
	if err != nil {
		return read.Reading, fmt.Errorf("read the row: %w", err)
	}
	place := fence.Object{Namespace: read.place.Namespace, Name: read.place.Name, UID: read.Intent.Approval.UID}
	read.Intent.Approval.Checked, err = c.proof.checked(ctx, &row, place, read.Intent.Approval)
	return read.Reading, err
}

// reading is a fence.Reading and where the key's approval stands or would
// stand; no place where the workspace's namespace is gone.
type reading struct {
	fence.Reading
	place *view.Place
}

func (c *cluster) read(ctx context.Context, key authority.Key) (reading, error) {
	var r reading
	var err error
	if r.Intent.Policy, err = c.policies.inForce(ctx); err != nil {
		return r, err
	}
	name, object, all, err := c.installation(ctx, key.InstallationID)
	if err != nil {
		return r, err
	}
	r.InstallationName = name
	if object != nil {
		examined, err := c.examine(ctx, object, all)
		if err != nil {
			return r, err
		}
		r.Intent.Installation = &examined.Installation
	}
	workspace, namespace, err := c.workspace(ctx, key.WorkspaceID)
	if err != nil || namespace == "" {
		return r, err
	}
	r.Intent.Workspace = workspace
	r.place = &view.Place{Namespace: namespace, Name: name}
	var approval v1alpha1.PluginCapabilityApproval
	err = c.live.Get(ctx, nameOf(*r.place), &approval)
	if apierrors.IsNotFound(err) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("read approval %s/%s: %w", namespace, name, err)
	}
	r.Intent.Approval = kinds.ApprovalOf(&approval)
	reports, err := c.reportsFor(ctx, &approval, key, object != nil)
	if err != nil {
		return r, err
	}
	if reports {
		if approval.Status.InstallationID == key.InstallationID {
			r.Published = uint64(approval.Status.Revision)
		}
		r.Object = &fence.Object{
			Namespace: approval.Namespace, Name: approval.Name,
			UID: string(approval.UID), ResourceVersion: approval.ResourceVersion, Read: &approval,
		}
	}
	return r, nil
}

// reportsFor tells whether the status of an approval speaks of key: one object
// can stand for several keys one after the other (a reinstall, a new label),
// and two passes must not overwrite each other. The installation of that name
// comes first; one that is gone has the word until there is another.
func (c *cluster) reportsFor(ctx context.Context, approval *v1alpha1.PluginCapabilityApproval, key authority.Key, installed bool) (bool, error) {
	if installed || approval.Spec.WorkspaceID != key.WorkspaceID {
		return approval.Spec.WorkspaceID == key.WorkspaceID, nil
	}
	successor, err := c.installationNamed(ctx, approval.Spec.InstallationName)
	return successor == nil && approval.Spec.InstallationID == key.InstallationID, err
}

// installation returns the name of an installation ID and its object, nil when
// it is uninstalled or being deleted, and beside it every installation. They are
// few, and one list serves many passes. That it is gone is never concluded from
// a cache. The name of one that is gone is that of its history.
func (c *cluster) installation(
	ctx context.Context, id string,
) (name string, object *v1alpha1.PluginInstallation, all []v1alpha1.PluginInstallation, err error) {
	if all, err = c.installations(ctx); err != nil {
		return "", nil, nil, err
	}
	for i := range all {
		owns, err := c.owns(ctx, &all[i], id)
		if err != nil {
			return "", nil, nil, err
		}
		if !owns {
			continue
		}
		if all[i].DeletionTimestamp != nil {
			return all[i].Name, nil, all, nil
		}
		return all[i].Name, &all[i], all, nil
	}
	if name, known := c.view.InstallationName(id); known {
		return name, nil, all, nil
	}
	var events v1alpha1.PluginCapabilityApprovalEventList
	if err := c.live.List(ctx, &events, client.MatchingFields{fieldInstallationID: id}, client.Limit(1)); err != nil {
		return "", nil, nil, fmt.Errorf("look for the history of installation %s: %w", id, err)
	}
	if len(events.Items) > 0 {
		return events.Items[0].Spec.InstallationName, nil, all, nil
	}
	// Nobody knows its name any more; the ID is one.
	return id, nil, all, nil
}

func (c *cluster) installations(ctx context.Context) ([]v1alpha1.PluginInstallation, error) {
	var list v1alpha1.PluginInstallationList
	if err := c.live.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list the installations: %w", err)
	}
	return list.Items, nil
}

// owns tells whether an installation ID is an object's: the status says so, and
// the store has minted it for no other. Else whoever writes a status could
// inherit the authority of another installation.
func (c *cluster) owns(ctx context.Context, object *v1alpha1.PluginInstallation, id string) (bool, error) {
	if object == nil || object.Status.InstallationID != id {
		return false, nil
	}
	if confirmed, ok := c.owned.Load(object.UID); ok && confirmed == id {
		return true, nil
	}
	err := c.store.AdoptInstallation(ctx, string(object.UID), object.Name, id)
	if errors.Is(err, ErrInstallationKnown) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("confirm the ID of installation %s: %w", object.Name, err)
	}
	c.owned.Store(object.UID, id)
	return true, nil
}

func (c *cluster) installationNamed(ctx context.Context, name string) (*v1alpha1.PluginInstallation, error) {
	var object v1alpha1.PluginInstallation
	err := c.live.Get(ctx, client.ObjectKey{Name: name}, &object)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // absence is an answer
	case err != nil:
		return nil, fmt.Errorf("read installation %s: %w", name, err)
	case object.DeletionTimestamp != nil:
		return nil, nil //nolint:nilnil // a deletion timestamp counts as absent
	}
	return &object, nil
}

// examined is an installation with what other objects say about it.
type examined struct {
	authority.Installation
	unknown []string
	// accountUID and namespaceUID are the live ones, "" when absent.
	accountUID   string
	namespaceUID string
	// inWorkspace is the workspace whose namespace the ServiceAccount is in.
	inWorkspace string
	// claimedBy are the other installations that name the ServiceAccount.
	claimedBy []string
}

// pinned tells whether the live principal is the one in the status.
func (e *examined) pinned() bool {
	return e.ServiceAccountUID != "" && e.ServiceAccountUID == e.accountUID &&
		e.ServiceAccountNamespaceUID == e.namespaceUID
}

// examine looks at an installation beside all others.
func (c *cluster) examine(
	ctx context.Context, object *v1alpha1.PluginInstallation, all []v1alpha1.PluginInstallation,
) (examined, error) {
	ref := object.Spec.ServiceAccountRef
	account, err := c.metadata(ctx, "ServiceAccount", client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name})
	if err != nil {
		return examined{}, err
	}
	namespace, err := c.metadata(ctx, "Namespace", client.ObjectKey{Name: ref.Namespace})
	if err != nil {
		return examined{}, err
	}
	return examinedOf(object, account, namespace, claimants(all, ref))
}

// claimants are the installations that name a ServiceAccount.
func claimants(all []v1alpha1.PluginInstallation, ref v1alpha1.ServiceAccountReference) []v1alpha1.PluginInstallation {
	var claims []v1alpha1.PluginInstallation
	for _, other := range all {
		if r := other.Spec.ServiceAccountRef; r.Namespace == ref.Namespace && r.Name == ref.Name {
			claims = append(claims, other)
		}
	}
	return claims
}

// examinedOf is the installation of an object under its ServiceAccount and the
// account's namespace, nil when absent, and beside the installations that name
// the same account.
func examinedOf(
	object *v1alpha1.PluginInstallation, account, namespace *metav1.PartialObjectMetadata, claims []v1alpha1.PluginInstallation,
) (examined, error) {
	installation, unknown, err := kinds.InstallationOf(object)
	if err != nil {
		return examined{}, err
	}
	e := examined{Installation: installation, unknown: unknown}
	if account != nil && namespace != nil {
		e.accountUID, e.namespaceUID = string(account.UID), string(namespace.UID)
	}
	if namespace != nil {
		e.inWorkspace = namespace.Labels[v1alpha1.LabelWorkspaceID]
	}
	for _, other := range claims {
		if other.UID != object.UID && other.DeletionTimestamp == nil {
			e.claimedBy = append(e.claimedBy, other.Name)
		}
	}
	e.ServiceAccountConflict = len(e.claimedBy) > 0 || e.inWorkspace != ""
	e.PrincipalChanged = !e.pinned()
	return e, nil
}

// workspace returns a workspace if its bound namespace lives and bears its
// label, and the namespace's name as long as that very namespace is there.
func (c *cluster) workspace(ctx context.Context, id string) (workspace *authority.Workspace, namespace string, err error) {
	bound, ok, err := c.bindings.lookUp(ctx, id)
	if err != nil || !ok {
		return nil, "", err
	}
	// One list of what bears the label, whatever its value, serves many passes.
	labelled := &metav1.PartialObjectMetadataList{}
	labelled.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := c.live.List(ctx, labelled, client.HasLabels{v1alpha1.LabelWorkspaceID}); err != nil {
		return nil, "", fmt.Errorf("list the namespaces of workspaces: %w", err)
	}
	bears := false
	for _, o := range labelled.Items {
		if o.Labels[v1alpha1.LabelWorkspaceID] != id || o.DeletionTimestamp != nil {
			continue
		}
		if string(o.UID) == bound.NamespaceUID {
			bears = true
		} else {
			bound.Conflict = true
		}
	}
	if bears {
		return &bound, bound.Namespace, nil
	}
	object, err := c.metadata(ctx, "Namespace", client.ObjectKey{Name: bound.Namespace})
	if err != nil || object == nil || string(object.UID) != bound.NamespaceUID {
		return nil, "", err
	}
	return nil, bound.Namespace, nil
}

// metadata reads the metadata of a core object, nil when it is absent or being
// deleted.
func (c *cluster) metadata(ctx context.Context, kind string, name client.ObjectKey) (*metav1.PartialObjectMetadata, error) {
	object := metadataOf(kind)
	err := c.live.Get(ctx, name, object)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // absence is an answer
	case err != nil:
		return nil, fmt.Errorf("read %s %s: %w", kind, name, err)
	case object.DeletionTimestamp != nil:
		return nil, nil //nolint:nilnil // a deletion timestamp counts as absent
	}
	return object, nil
}

func metadataOf(kind string) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return object
}
