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

// Field selectors of the API server.
const (
	fieldInstallationID          = "spec.installationID"
	fieldServiceAccountNamespace = "spec.serviceAccountRef.namespace"
	fieldServiceAccountName      = "spec.serviceAccountRef.name"
)

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

// read reads the approval, then the installation, the namespace and the policy:
// where the namespace that is read after an approval is the bound one, the
// approval was read in it. A namespace that was made anew in between lends what
// stands in it to nobody.
func (c *cluster) read(ctx context.Context, key authority.Key) (reading, error) {
	var r reading
	bound, isBound, err := c.bindings.lookUp(ctx, key.WorkspaceID)
	if err != nil {
		return r, err
	}
	name, known := c.view.InstallationName(key.InstallationID)
	var approval *v1alpha1.PluginCapabilityApproval
	var object *v1alpha1.PluginInstallation
	var all []v1alpha1.PluginInstallation
	for {
		if isBound && known {
			if approval, err = c.approval(ctx, view.Place{Namespace: bound.Namespace, Name: name}); err != nil {
				return r, err
			}
		}
		if r.InstallationName, object, all, err = c.installation(ctx, key.InstallationID); err != nil {
			return r, err
		}
		if known && r.InstallationName == name {
			break
		}
		// Only the installation says where its approval stands.
		name, known = r.InstallationName, true
	}
	if object != nil {
		examined, err := c.examine(ctx, object, all)
		if err != nil {
			return r, err
		}
		r.Intent.Installation = &examined.Installation
	}
	here := false
	if isBound {
		if r.Intent.Workspace, here, err = c.workspace(ctx, bound); err != nil {
			return r, err
		}
	}
	if r.Intent.Policy, err = c.policies.inForce(ctx); err != nil || !here {
		return r, err
	}
	r.place = &view.Place{Namespace: bound.Namespace, Name: name}
	if approval == nil {
		return r, nil
	}
	r.Intent.Approval = kinds.ApprovalOf(approval)
	reports, err := c.reportsFor(ctx, approval, key, object != nil)
	if err != nil {
		return r, err
	}
	if reports {
		if approval.Status.InstallationID == key.InstallationID {
			r.Published = uint64(approval.Status.Revision)
		}
		r.Object = &fence.Object{
			Namespace: approval.Namespace, Name: approval.Name,
			UID: string(approval.UID), ResourceVersion: approval.ResourceVersion, Read: approval,
		}
	}
	return r, nil
}

// approval reads the object at a place, nil when there is none.
func (c *cluster) approval(ctx context.Context, place view.Place) (*v1alpha1.PluginCapabilityApproval, error) {
	var approval v1alpha1.PluginCapabilityApproval
	err := c.live.Get(ctx, nameOf(place), &approval)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // absence is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("read approval %s/%s: %w", place.Namespace, place.Name, err)
	}
	return &approval, nil
}

// standsAt tells whether the approval of a key stands, or would stand, at a place:
// by the binding and by the name of the installation, whether or not either is
// there now.
func (c *cluster) standsAt(ctx context.Context, key authority.Key, place view.Place) (bool, error) {
	bound, isBound, err := c.bindings.lookUp(ctx, key.WorkspaceID)
	if err != nil || !isBound || bound.Namespace != place.Namespace {
		return false, err
	}
	if name, known := c.view.InstallationName(key.InstallationID); known {
		return name == place.Name, nil
	}
	// An ID that nobody has ever installed stands nowhere.
	name, object, _, err := c.installation(ctx, key.InstallationID)
	return err == nil && object != nil && name == place.Name, err
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
// it is uninstalled or being deleted, and beside it at least those that name the
// same ServiceAccount. That it is gone is never concluded from a cache. The name
// of one that is gone is that of its history.
func (c *cluster) installation(
	ctx context.Context, id string,
) (name string, object *v1alpha1.PluginInstallation, all []v1alpha1.PluginInstallation, err error) {
	if namespace, account, known := c.view.AccountOf(id); known {
		// One small list has it, with all that matters of the others.
		claims, err := c.naming(ctx, namespace, account)
		if err != nil {
			return "", nil, nil, err
		}
		for i := range claims {
			owns, err := c.owns(ctx, &claims[i], id)
			if err != nil {
				return "", nil, nil, err
			}
			if owns && claims[i].DeletionTimestamp == nil {
				return claims[i].Name, &claims[i], claims, nil
			}
		}
	}
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

func (c *cluster) installations(ctx context.Context, selection ...client.ListOption) ([]v1alpha1.PluginInstallation, error) {
	var list v1alpha1.PluginInstallationList
	if err := c.live.List(ctx, &list, selection...); err != nil {
		return nil, fmt.Errorf("list the installations: %w", err)
	}
	return list.Items, nil
}

// naming lists the installations that name a ServiceAccount.
func (c *cluster) naming(ctx context.Context, namespace, name string) ([]v1alpha1.PluginInstallation, error) {
	return c.installations(ctx, client.MatchingFields{
		fieldServiceAccountNamespace: namespace, fieldServiceAccountName: name,
	})
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
	kinds.Principal
	unknown []string
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
	return examinedOf(object, account, namespace, all)
}

// examinedOf is the installation of an object under its ServiceAccount and the
// account's namespace, nil when absent, and beside all installations that may
// name the same account.
func examinedOf(
	object *v1alpha1.PluginInstallation, account, namespace *metav1.PartialObjectMetadata, all []v1alpha1.PluginInstallation,
) (examined, error) {
	installation, unknown, err := kinds.InstallationOf(object)
	if err != nil {
		return examined{}, err
	}
	e := examined{Installation: installation, unknown: unknown}
	e.ClaimedBy = kinds.Claims(object, all)
	if account != nil && namespace != nil {
		e.AccountUID, e.NamespaceUID = string(account.UID), string(namespace.UID)
	}
	if namespace != nil {
		e.InWorkspace = namespace.Labels[v1alpha1.LabelWorkspaceID]
	}
	e.Judge(&e.Installation)
	return e, nil
}

// workspace returns a workspace if its bound namespace lives and bears its
// label, and whether that very namespace is there at all.
func (c *cluster) workspace(ctx context.Context, bound authority.Workspace) (workspace *authority.Workspace, here bool, err error) {
	// One list of what bears the label, whatever its value, serves many passes.
	labelled := &metav1.PartialObjectMetadataList{}
	labelled.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := c.live.List(ctx, labelled, client.HasLabels{v1alpha1.LabelWorkspaceID}); err != nil {
		return nil, false, fmt.Errorf("list the namespaces of workspaces: %w", err)
	}
	bears := false
	for _, o := range labelled.Items {
		if o.Labels[v1alpha1.LabelWorkspaceID] != bound.ID || o.DeletionTimestamp != nil {
			continue
		}
		if string(o.UID) == bound.NamespaceUID {
			bears = true
		} else {
			bound.Conflict = true
		}
	}
	if bears {
		return &bound, true, nil
	}
	object, err := c.metadata(ctx, "Namespace", client.ObjectKey{Name: bound.Namespace})
	return nil, err == nil && object != nil && string(object.UID) == bound.NamespaceUID, err
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
