package main

import (
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// fieldOwner owns what this tool writes.
const fieldOwner = client.FieldOwner("kubectl-capability")

// The ClusterRoles that the release ships, for hints.
const (
	roleViewer   = "plugin-host-viewer"
	roleAuditor  = "plugin-host-auditor"
	roleApprover = "plugin-host-approver"
	roleRevoker  = "plugin-host-revoker"
)

// cluster reads and writes as the user.
type cluster struct {
	api client.Client
	// namespace is the one of --namespace or of the context.
	namespace string
}

// connect makes the client that the kubeconfig flags ask for.
func (t *tool) connect() (*cluster, error) {
	config, err := t.flags.ToRESTConfig()
	if err != nil {
		return nil, noCluster(err)
	}
	namespace, _, err := t.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, noCluster(err)
	}
	// The API server paces its clients. A pace of our own would fail what waits for
	// the Host with an error about the pace, when the time to wait is over.
	config.QPS = -1
	config.WarningHandler = rest.NewWarningWriter(t.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1alpha1.AddToScheme, corev1.AddToScheme, rbacv1.AddToScheme, authenticationv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register the API's kinds: %w", err)
		}
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &cluster{api: api, namespace: namespace}, nil
}

// whoami is the user as the cluster knows them.
func (c *cluster) whoami(ctx context.Context) (string, error) {
	var review authenticationv1.SelfSubjectReview
	if err := c.api.Create(ctx, &review); err != nil {
		return "", reading{doing: "ask the cluster who you are", err: err}
	}
	return review.Status.UserInfo.Username, nil
}

// installation returns an installation, nil when there is none or it is being
// deleted.
func (c *cluster) installation(ctx context.Context, name string) (*v1alpha1.PluginInstallation, error) {
	var o v1alpha1.PluginInstallation
	err := c.api.Get(ctx, client.ObjectKey{Name: name}, &o)
	if apierrors.IsNotFound(err) || err == nil && o.DeletionTimestamp != nil {
		return nil, nil //nolint:nilnil // absence is an answer
	}
	if err != nil {
		return nil, reading{doing: "read the installation " + name, role: roleViewer, err: err}
	}
	return &o, nil
}

// approval returns an approval, nil when there is none or it is being deleted.
func (c *cluster) approval(ctx context.Context, namespace, name string) (*v1alpha1.PluginCapabilityApproval, error) {
	var o v1alpha1.PluginCapabilityApproval
	err := c.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &o)
	if apierrors.IsNotFound(err) || err == nil && o.DeletionTimestamp != nil {
		return nil, nil //nolint:nilnil // absence is an answer
	}
	if err != nil {
		return nil, reading{doing: "read the approval " + namespace + "/" + name, role: roleViewer, err: err}
	}
	return &o, nil
}

// workspace returns the namespace, nil when there is none. It names the workspace
// by its label.
func (c *cluster) workspace(ctx context.Context, name string) (*corev1.Namespace, error) {
	var o corev1.Namespace
	err := c.api.Get(ctx, client.ObjectKey{Name: name}, &o)
	if apierrors.IsNotFound(err) || err == nil && o.DeletionTimestamp != nil {
		return nil, nil //nolint:nilnil // absence is an answer
	}
	if err != nil {
		return nil, reading{
			doing: "read the namespace " + name, role: roleApprover, err: err,
			hint: "is it the workspace that you mean? -n chooses its namespace",
		}
	}
	return &o, nil
}

func (c *cluster) approvals(ctx context.Context, options ...client.ListOption) ([]v1alpha1.PluginCapabilityApproval, error) {
	var list v1alpha1.PluginCapabilityApprovalList
	if err := c.api.List(ctx, &list, options...); err != nil {
		return nil, reading{doing: "list the approvals", role: roleViewer, err: err}
	}
	return list.Items, nil
}

func (c *cluster) installations(ctx context.Context) ([]v1alpha1.PluginInstallation, error) {
	var list v1alpha1.PluginInstallationList
	if err := c.api.List(ctx, &list); err != nil {
		return nil, reading{doing: "list the installations", role: roleViewer, err: err}
	}
	return list.Items, nil
}

func (c *cluster) humanPolicies(ctx context.Context) ([]v1alpha1.HumanPolicy, error) {
	var list v1alpha1.HumanPolicyList
	if err := c.api.List(ctx, &list); err != nil {
		return nil, reading{doing: "list the human policies", role: roleViewer, err: err}
	}
	return list.Items, nil
}

// policy is the human policy in force.
func (c *cluster) policy(ctx context.Context) (authority.Policy, error) {
	all, err := c.humanPolicies(ctx)
	if err != nil {
		return authority.Policy{}, err
	}
	policy, _, err := kinds.PolicyOf(authority.BuiltInPolicy(), all)
	return policy, err
}

// events lists the history that a selector names, unordered.
func (c *cluster) events(ctx context.Context, options ...client.ListOption) ([]v1alpha1.PluginCapabilityApprovalEvent, error) {
	var all []v1alpha1.PluginCapabilityApprovalEvent
	var list v1alpha1.PluginCapabilityApprovalEventList
	for {
		page := append(slices.Clone(options), client.Limit(500), client.Continue(list.Continue))
		list = v1alpha1.PluginCapabilityApprovalEventList{}
		if err := c.api.List(ctx, &list, page...); err != nil {
			return nil, reading{doing: "list the history", role: roleAuditor, err: err}
		}
		all = append(all, list.Items...)
		if list.Continue == "" {
			return all, nil
		}
	}
}

// principal reads what other objects say about an installation's ServiceAccount.
// What the user may not see counts as unchanged, and is told in notes.
func (c *cluster) principal(ctx context.Context, o *v1alpha1.PluginInstallation, all []v1alpha1.PluginInstallation) (p kinds.Principal, notes []string, err error) {
	ref := o.Spec.ServiceAccountRef
	p.ClaimedBy = kinds.Claims(o, all)
	var account corev1.ServiceAccount
	var namespace corev1.Namespace
	accountErr := c.api.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &account)
	namespaceErr := c.api.Get(ctx, client.ObjectKey{Name: ref.Namespace}, &namespace)
	if apierrors.IsForbidden(accountErr) || apierrors.IsForbidden(namespaceErr) {
		p.AccountUID, p.NamespaceUID = string(o.Status.ServiceAccountUID), string(o.Status.NamespaceUID)
		return p, []string{"you may not read ServiceAccounts in " + ref.Namespace + ", so it counts as the one that was reviewed"}, nil
	}
	for _, err := range []error{accountErr, namespaceErr} {
		if client.IgnoreNotFound(err) != nil {
			return p, nil, reading{doing: "read the ServiceAccount " + ref.Namespace + "/" + ref.Name, err: err}
		}
	}
	if accountErr == nil && account.DeletionTimestamp == nil && namespaceErr == nil && namespace.DeletionTimestamp == nil {
		p.AccountUID, p.NamespaceUID = string(account.UID), string(namespace.UID)
	}
	p.InWorkspace = namespace.Labels[v1alpha1.LabelWorkspaceID]
	return p, nil, nil
}

// row rebuilds the row of a key from its newest event, as the Host does after a
// loss of its store: the store itself can't be read from here. published is the
// revision that a status shows.
func (c *cluster) row(ctx context.Context, key authority.Key, published int64) (authority.Row, error) {
	objects, err := c.events(ctx, client.MatchingLabels{
		v1alpha1.LabelInstallationID: key.InstallationID, v1alpha1.LabelWorkspaceID: key.WorkspaceID,
	})
	if err != nil {
		return authority.Row{}, err
	}
	var newest *v1alpha1.PluginCapabilityApprovalEvent
	for i := range objects {
		if newest == nil || objects[i].Spec.Revision > newest.Spec.Revision {
			newest = &objects[i]
		}
	}
	switch {
	case newest == nil && published == 0:
		return authority.Row{Key: key}, nil
	case newest == nil || newest.Spec.Revision < published:
		return authority.Row{}, problem{
			what: fmt.Sprintf("revision %d is in force, and its event %s is gone", published, authority.EventName(key, uint64(published))),
			hint: "the newest event is never pruned, so somebody has deleted it; `kubectl capability audit --all` names every gap",
		}
	}
	event, err := kinds.EventOf(newest)
	if err != nil {
		return authority.Row{}, problem{what: err.Error(), hint: "a newer plugin host wrote it: use the kubectl-capability of its version"}
	}
	return event.Rebuilt(), nil
}

// checked tells whether a version counts as verified. The store knows; a status
// tells it only of a version that waits for that reason.
func checked(o *v1alpha1.PluginCapabilityApproval) bool {
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReviewRequired)
	return c == nil || c.Reason != v1alpha1.ReasonNotVerified || c.ObservedGeneration != o.Generation
}

// seen is the row with the version that the status says was processed: that
// moves without a revision.
func seen(row authority.Row, o *v1alpha1.PluginCapabilityApproval) authority.Row {
	if o == nil || o.Status.InstallationID != row.Key.InstallationID || o.Status.ObservedGeneration == 0 ||
		row.Seen.UID != "" && row.Seen.UID != string(o.UID) {
		return row
	}
	if row.Seen.UID == "" && (o.Spec.InstallationID != row.Key.InstallationID || o.Spec.WorkspaceID != row.Key.WorkspaceID) {
		return row // of another installation, for example: it never spoke for this row
	}
	processed := authority.Seen{UID: string(o.UID), Generation: o.Status.ObservedGeneration, Revoked: row.Seen.Revoked}
	if o.Status.ObservedGeneration == o.Generation {
		processed.Revoked = o.Spec.State == v1alpha1.StateRevoked
	}
	row.Seen = row.Seen.Later(processed)
	return row
}
