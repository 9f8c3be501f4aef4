package install_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
)

// right is one verb on one resource: "patch plugininstallations/status.plugins.kandev.ai".
type right string

// rightsOf spells out verbs on resources.
func rightsOf(resources []string, verbs ...string) []right {
	var all []right
	for _, resource := range resources {
		for _, verb := range verbs {
			all = append(all, right(verb+" "+resource))
		}
	}
	return all
}

const (
	installations = "plugininstallations.plugins.kandev.ai"
	approvals     = "plugincapabilityapprovals.plugins.kandev.ai"
	history       = "plugincapabilityapprovalevents.plugins.kandev.ai"
	humanPolicies = "humanpolicies.plugins.kandev.ai"
)

// every verb that the API server asks an authorizer about for a resource, and the
// three that let somebody gain rights.
var verbs = []string{
	"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
	"bind", "escalate", "impersonate",
	// What only our admission policies ask about.
	v1alpha1.VerbApprove,
}

// rights compares what each subject may do with what it is for, in both directions:
// every resource that the API server serves, under every verb.
func (c cluster) rights(t *testing.T) {
	t.Helper()
	const workspace, other, plugin = "rights-workspace", "rights-other", "rights-plugin"
	for _, name := range []string{workspace, other, plugin} {
		c.createNamespace(t, name, nil)
	}
	c.kubectl(t, "--namespace", plugin, "create", "rolebinding", "plugin-host-workloads", "--clusterrole=plugin-host-workloads", "--serviceaccount="+namespace+":"+host)
	for _, role := range []string{"installer", "viewer", "auditor", "human-policy", "workspace-binder", "metrics-reader", "compatibility-approver"} {
		c.kubectl(t, "create", "clusterrolebinding", "rights-"+role, "--clusterrole=plugin-host-"+role, "--user="+role)
	}
	for _, role := range []string{"approver", "revoker"} {
		c.kubectl(t, "--namespace", workspace, "create", "rolebinding", "rights-"+role, "--clusterrole=plugin-host-"+role, "--user="+role)
	}
	manager := "system:serviceaccount:" + namespace + ":" + host
	managerEverywhere := slices.Concat(
		rightsOf([]string{
			"namespaces", "serviceaccounts", installations, approvals, humanPolicies,
			"validatingadmissionpolicies.admissionregistration.k8s.io", "validatingadmissionpolicybindings.admissionregistration.k8s.io",
			// What runs plugins, to read; to write in the namespaces of a binding only.
			"deployments.apps", "networkpolicies.networking.k8s.io",
		}, "get", "list", "watch"),
		rightsOf([]string{"pods"}, "list", "watch"),
		rightsOf([]string{
			"plugininstallations/status.plugins.kandev.ai", "plugincapabilityapprovals/status.plugins.kandev.ai",
			"humanpolicies/status.plugins.kandev.ai",
		}, "patch"),
		rightsOf([]string{history}, "create", "delete", "get", "list", "watch"),
		rightsOf([]string{
			"tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io", "events.events.k8s.io",
		}, "create"),
	)
	managerAtHome := slices.Concat(managerEverywhere,
		rightsOf([]string{"leases.coordination.k8s.io"}, "create", "get", "update"),
		rightsOf([]string{"events"}, "create", "patch"),
		// Approvals in dry runs only: admission lets no ServiceAccount grant.
		rightsOf([]string{"configmaps", approvals}, "create"))
	managerAtPlugin := slices.Concat(managerEverywhere,
		rightsOf([]string{"deployments.apps", "networkpolicies.networking.k8s.io"}, "create", "delete", "patch", "update"),
		rightsOf([]string{"replicasets.apps"}, "get"),
		rightsOf([]string{"configmaps"}, "create", "delete", "get", "patch", "update"))
	write := []string{"create", "delete", "get", "list", "patch", "update", "watch"}
	read := []string{"get", "list", "watch"}

	resources := c.resources(t)
	// What everybody may do, and every ServiceAccount: a plugin's has just that.
	accounts := []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
	anybody := c.may(t, "nobody", nil, "", resources)
	anyAccount := c.may(t, "system:serviceaccount:"+namespace+":nobody", accounts, "", resources)
	for _, want := range []struct {
		who       string
		groups    []string
		namespace string
		rights    []right
	}{
		{who: manager, groups: accounts, rights: managerEverywhere},
		{who: manager, groups: accounts, namespace: namespace, rights: managerAtHome},
		{who: manager, groups: accounts, namespace: workspace, rights: managerEverywhere},
		{who: manager, groups: accounts, namespace: plugin, rights: managerAtPlugin},
		{who: "installer", rights: rightsOf([]string{installations}, write...)},
		{who: "approver", namespace: workspace, rights: append(rightsOf([]string{approvals}, write...), "get namespaces")},
		{who: "approver", namespace: other},
		{who: "approver"},
		{who: "revoker", namespace: workspace, rights: rightsOf([]string{approvals}, "delete", "get", "list", "patch", "update", "watch")},
		{who: "revoker", namespace: other},
		{who: "workspace-binder", rights: append(rightsOf([]string{"namespaces"}, "get", "patch"), "bind workspaces.plugins.kandev.ai")},
		{who: "human-policy", rights: rightsOf([]string{humanPolicies}, "create", "delete", "get", "list", "watch")},
		{who: "metrics-reader"},
		{who: "auditor", rights: rightsOf([]string{history}, read...)},
		{who: "viewer", rights: rightsOf([]string{installations, approvals, humanPolicies}, read...)},
	} {
		where := "everywhere"
		if want.namespace != "" {
			where = "in " + want.namespace
		}
		t.Run(want.who+" "+where, func(t *testing.T) {
			got := c.may(t, want.who, want.groups, want.namespace, resources)
			given := anybody
			if want.groups != nil {
				given = anyAccount
			}
			for r := range got {
				if !given[r] && !slices.Contains(want.rights, r) {
					t.Errorf("may %s and must not", r)
				}
			}
			for _, r := range want.rights {
				if !got[r] {
					t.Errorf("may not %s and must", r)
				}
			}
		})
	}

	t.Run("by name", func(t *testing.T) { c.rightsByName(t, manager, accounts, workspace, other) })
	t.Run("nobody has any of it unbound", func(t *testing.T) {
		for _, given := range []map[right]bool{anybody, anyAccount} {
			for r := range given {
				if strings.Contains(string(r), "plugins.kandev.ai") || strings.Contains(string(r), " secrets") ||
					strings.Contains(string(r), " serviceaccounts/token") {
					t.Errorf("may %s without a binding", r)
				}
			}
		}
	})
	t.Run("the built-in roles gain reading and nothing else", func(t *testing.T) { c.aggregation(t) })
}

// resources lists every resource and subresource that the API server serves.
func (c cluster) resources(t *testing.T) []schema.GroupResource {
	t.Helper()
	_, lists, err := c.api.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	found := map[schema.GroupResource]bool{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range list.APIResources {
			found[schema.GroupResource{Group: version.Group, Resource: resource.Name}] = true
		}
	}
	// Not served, and yet what impersonation and our admission policies are checked on.
	for _, virtual := range []string{"users", "groups"} {
		found[schema.GroupResource{Resource: virtual}] = true
	}
	for _, virtual := range []string{v1alpha1.ResourceCapabilities, v1alpha1.ResourceWorkspaces} {
		found[schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: virtual}] = true
	}
	for _, known := range []string{"secrets", "pods/exec", "serviceaccounts/token", "plugininstallations", "plugincapabilityapprovals/status"} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(found)), func(r schema.GroupResource) bool { return r.Resource == known }) {
			t.Fatalf("discovery lacks %s", known)
		}
	}
	return slices.Collect(maps.Keys(found))
}

// may returns all that a user may do in a namespace, or in every one.
func (c cluster) may(t *testing.T, user string, groups []string, namespace string, resources []schema.GroupResource) map[right]bool {
	t.Helper()
	type question struct {
		resource schema.GroupResource
		verb     string
	}
	questions := make(chan question)
	found, errs := map[right]bool{}, []error(nil)
	var mutex sync.Mutex
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for q := range questions {
				allowed, err := c.allowed(t.Context(), user, groups, namespace, q.verb, q.resource, "")
				mutex.Lock()
				if err != nil {
					errs = append(errs, err)
				} else if allowed {
					found[right(q.verb+" "+q.resource.String())] = true
				}
				mutex.Unlock()
			}
		})
	}
	for _, resource := range resources {
		for _, verb := range verbs {
			questions <- question{resource, verb}
		}
	}
	close(questions)
	workers.Wait()
	if len(errs) != 0 {
		t.Fatalf("%d of the reviews failed, the first: %v", len(errs), errs[0])
	}
	return found
}

// rightsByName are those that a rule gives on named objects only, which nobody has on all.
func (c cluster) rightsByName(t *testing.T, manager string, accounts []string, workspace, other string) {
	t.Helper()
	may := func(want bool, user string, groups []string, namespace, verb, resource, name string) {
		t.Helper()
		group := ""
		if resource == v1alpha1.ResourceCapabilities {
			group = v1alpha1.GroupVersion.Group
		}
		got, err := c.allowed(t.Context(), user, groups, namespace, verb, schema.GroupResource{Group: group, Resource: resource}, name)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s may %s %s %s in %q: %v, want %v", user, verb, resource, name, namespace, got, want)
		}
	}
	const approve, capabilities = v1alpha1.VerbApprove, v1alpha1.ResourceCapabilities
	for _, capability := range contract.Capabilities() {
		id := capability.String()
		may(true, "approver", nil, workspace, approve, capabilities, id)
		may(false, "approver", nil, other, approve, capabilities, id)
		may(false, "revoker", nil, workspace, approve, capabilities, id)
		may(false, manager, accounts, workspace, approve, capabilities, id)
	}
	may(false, "approver", nil, workspace, approve, capabilities, "host.v2.write:everything")
	compatibility := []string{v1alpha1.CompatImplicitExpectNone}
	for _, resource := range v1alpha1.LegacyWriteResources() {
		compatibility = append(compatibility, v1alpha1.LegacyWriterPrefix+string(resource))
	}
	for _, name := range compatibility {
		may(true, "compatibility-approver", nil, "", approve, capabilities, name)
		may(false, "approver", nil, workspace, approve, capabilities, name)
		may(false, "installer", nil, "", approve, capabilities, name)
		may(false, manager, accounts, "", approve, capabilities, name)
	}
	may(false, "compatibility-approver", nil, workspace, approve, capabilities, contract.WriteTasks.String())
	for _, verb := range []string{"get", "update"} {
		may(true, manager, accounts, namespace, verb, "configmaps", "plugin-host-store")
		may(false, manager, accounts, namespace, verb, "configmaps", "another")
		may(false, manager, accounts, workspace, verb, "configmaps", "plugin-host-store")
	}
}

func (c cluster) allowed(
	ctx context.Context, user string, groups []string, namespace, verb string, resource schema.GroupResource, objectName string,
) (bool, error) {
	name, subresource, _ := strings.Cut(resource.Resource, "/")
	review, err := c.api.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: append([]string{"system:authenticated"}, groups...),
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: resource.Group, Version: "*", Resource: name, Subresource: subresource, Namespace: namespace,
				Name: objectName,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether %s may %s %s: %w", user, verb, resource, err)
	}
	return review.Status.Allowed, nil
}

// aggregation checks our ClusterRoles against the selectors of the cluster's own
// aggregated roles, as the controller manager would combine them.
func (c cluster) aggregation(t *testing.T) {
	t.Helper()
	list, err := c.api.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	joined := map[string][]string{}
	for _, builtin := range list.Items {
		if builtin.AggregationRule == nil {
			continue
		}
		for _, selector := range builtin.AggregationRule.ClusterRoleSelectors {
			matches, err := metav1.LabelSelectorAsSelector(&selector)
			if err != nil {
				t.Fatal(err)
			}
			for _, role := range list.Items {
				if strings.HasPrefix(role.Name, host) && matches.Matches(labels.Set(role.Labels)) {
					joined[builtin.Name] = append(joined[builtin.Name], role.Name)
					readsOnly(t, role)
				}
			}
		}
	}
	want := map[string][]string{"view": {"plugin-host-viewer"}}
	if !maps.EqualFunc(joined, want, slices.Equal[[]string]) {
		t.Errorf("the built-in roles take in %v, want %v", joined, want)
	}
}

func readsOnly(t *testing.T, role rbacv1.ClusterRole) {
	t.Helper()
	for _, rule := range role.Rules {
		for _, verb := range rule.Verbs {
			if verb != "get" && verb != "list" && verb != "watch" {
				t.Errorf("%s takes the verb %s into a built-in role", role.Name, verb)
			}
		}
	}
}
