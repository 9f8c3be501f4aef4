package install_test

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// TestChartLetsTheHostRunPlugins: in the namespaces that are named, and in no others.
func TestChartLetsTheHostRunPlugins(t *testing.T) {
	const role = "plugin-host-workloads"
	found := map[string]bool{}
	objects := charted(t, "--set", "workloads.namespaces={plugin-a}")
	for _, object := range objects.ofKind("RoleBinding") {
		binding := convert[rbacv1.RoleBinding](t, object)
		if binding.RoleRef.Name != role {
			continue
		}
		found[binding.Namespace] = true
		if binding.RoleRef.Kind != "ClusterRole" || len(binding.Subjects) != 1 ||
			binding.Subjects[0] != (rbacv1.Subject{Kind: "ServiceAccount", Name: host, Namespace: namespace}) {
			t.Errorf("in %s it binds %v to %v", binding.Namespace, binding.Subjects, binding.RoleRef)
		}
	}
	if len(found) != 1 || !found["plugin-a"] {
		t.Errorf("it is bound in %v, want plugin-a", found)
	}
	for _, object := range slices.Concat(charted(t).ofKind("RoleBinding"), kustomized(t).ofKind("RoleBinding")) {
		if object.GetName() == role {
			t.Errorf("it is bound in %s, where nobody asked for it", object.GetNamespace())
		}
	}
	for _, object := range slices.Concat(objects.ofKind("ClusterRoleBinding"), kustomized(t).ofKind("ClusterRoleBinding")) {
		binding := convert[rbacv1.ClusterRoleBinding](t, object)
		if binding.RoleRef.Name == role {
			t.Errorf("%s binds it in the whole cluster", binding.Name)
		}
	}
}

// TestChartTellsTheHostHowPluginsRun: what isn't the default.
func TestChartTellsTheHostHowPluginsRun(t *testing.T) {
	args := func(set ...string) []string {
		return deployment(t, charted(t, set...)).Spec.Template.Spec.Containers[0].Args
	}
	got := args("--set", "service.port=443", "--set", "workloads.launcherImage=launcher@sha256:1", "--set", "workloads.userNamespaces=never")
	for _, want := range []string{
		"--workload-host-address=plugin-host." + namespace + ".svc:443", "--launcher-image=launcher@sha256:1", "--workload-user-namespaces=never",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%q lacks %s", got, want)
		}
	}
}
