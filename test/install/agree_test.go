package install_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestRenderingsAgree compares every object that both ways of installing make:
// whatever either gives or takes in rights, hardening or wiring, the other must too.
func TestRenderingsAgree(t *testing.T) {
	fromConfig := kustomized(t)
	fromChart := charted(t, "--set", "networkPolicy.enabled=true")
	maps.Copy(fromConfig, parse(t, tool(t, "kustomize", "build", filepath.Join(configDir, "network-policy"))))

	// What one of them leaves to somebody else: the chart its namespace and the CRDs,
	// which have a chart of their own (TestCRDChartIsTheCRDs); kustomize the Secrets.
	maps.DeleteFunc(fromConfig, func(_ string, o *unstructured.Unstructured) bool {
		return o.GetKind() == "Namespace" || o.GetKind() == "CustomResourceDefinition"
	})
	maps.DeleteFunc(fromChart, func(_ string, o *unstructured.Unstructured) bool { return o.GetKind() == "Secret" })

	ids := slices.Sorted(maps.Keys(fromConfig))
	if other := slices.Sorted(maps.Keys(fromChart)); !slices.Equal(ids, other) {
		t.Fatalf("other objects:\nconfig: %s\nchart:  %s", strings.Join(ids, " "), strings.Join(other, " "))
	}
	for _, id := range ids {
		if got, want := unsigned(t, fromChart[id]), unsigned(t, fromConfig[id]); got != want {
			t.Errorf("%s differs\nchart:\n%s\nconfig:\n%s", id, got, want)
		}
	}
}

// unsigned is an object without what may differ: the labels and annotations that
// each tool signs its objects with.
func unsigned(t *testing.T, object *unstructured.Unstructured) string {
	t.Helper()
	plain := object.DeepCopy()
	for _, marks := range []struct {
		get func() map[string]string
		set func(map[string]string)
	}{{plain.GetLabels, plain.SetLabels}, {plain.GetAnnotations, plain.SetAnnotations}} {
		left := marks.get()
		maps.DeleteFunc(left, func(key, _ string) bool {
			return strings.HasPrefix(key, "app.kubernetes.io/") || strings.HasPrefix(key, "helm.sh/")
		})
		if len(left) == 0 {
			left = nil
		}
		marks.set(left)
	}
	if plain.GetKind() == "NetworkPolicy" {
		// The component is put into a namespace by whoever uses it.
		plain.SetNamespace("")
	}
	text, err := yaml.Marshal(plain.Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestChartsCarryWhatIsInConfig: the copies are those that `make generate` makes.
func TestChartsCarryWhatIsInConfig(t *testing.T) {
	for _, pair := range [][2]string{
		{configDir + "/crd/bases", crdChartDir + "/files"},
		{configDir + "/rbac", chartDir + "/files/rbac"},
		{configDir + "/monitoring", chartDir + "/files/monitoring"},
	} {
		want, got := contents(t, pair[0]), contents(t, pair[1])
		delete(want, "kustomization.yaml")
		delete(want, "service_monitor.yaml") // the chart has a template for it
		if !maps.Equal(got, want) {
			t.Errorf("%s isn't what %s says: run `make generate`", pair[1], pair[0])
		}
	}
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(dir + "/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("nothing in %s: %v", dir, err)
	}
	found := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found[filepath.Base(file)] = string(text)
	}
	return found
}

// TestCRDChartIsTheCRDs: on its way through the chart no bound of a schema changes.
func TestCRDChartIsTheCRDs(t *testing.T) {
	want := parse(t, tool(t, "kustomize", "build", filepath.Join(configDir, "crd")))
	for name, values := range map[string]string{"kept": "values.yaml", "gone": "ci/gone-values.yaml"} {
		got := rendered(t, crdChartDir, "--values", filepath.Join(crdChartDir, values))
		if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
			t.Fatalf("the chart has other objects than config/crd")
		}
		for id, object := range got {
			if kept := object.GetAnnotations()["helm.sh/resource-policy"] == "keep"; kept != (name == "kept") {
				t.Errorf("%s of the chart with %s: kept on uninstall is %v", id, values, kept)
			}
			if text, other := unsigned(t, object), unsigned(t, want[id]); text != other {
				t.Errorf("%s differs\nchart:\n%s\nconfig:\n%s", id, text, other)
			}
		}
	}
}

// TestCRDsFitIntoAnAnnotation: `kubectl apply` without --server-side keeps a copy of
// the object in an annotation, and 256 KiB is the most that annotations may take.
func TestCRDsFitIntoAnAnnotation(t *testing.T) {
	for name, text := range contents(t, configDir+"/crd/bases") {
		if len(text) > 200<<10 {
			t.Errorf("%s has %d bytes, more than 200 KiB", name, len(text))
		}
	}
}

// TestKustomizeFollowsItsNamespace: an overlay with another namespace must bind the
// ServiceAccount of that namespace, not one that somebody else may create. In the
// admission policies the overlay says so itself, as config/admission shows.
func TestKustomizeFollowsItsNamespace(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	base, err := filepath.Abs(filepath.Join(configDir, "default"))
	if err != nil {
		t.Fatal(err)
	}
	// Kustomize takes relative paths only.
	base, err = filepath.Rel(dir, base)
	if err != nil {
		t.Fatal(err)
	}
	overlay := "namespace: elsewhere\nresources:\n- " + base + "\n" + patchOfNames(t)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600); err != nil {
		t.Fatal(err)
	}
	follows(t, parse(t, tool(t, "kustomize", "build", dir)), "elsewhere")
}

// patchOfNames is the patch in the comment of config/admission/kustomization.yaml, which
// names the namespace elsewhere.
func patchOfNames(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(configDir, "admission", "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "# patches:\n")
	patch, _, found := strings.Cut(rest, "apiVersion:")
	if !found {
		t.Fatal("config/admission shows no patch")
	}
	return "patches:\n" + strings.ReplaceAll("\n"+patch, "\n# ", "\n")
}

func TestChartFollowsItsNamespace(t *testing.T) {
	follows(t, charted(t, "--namespace", "elsewhere"), "elsewhere")
}

func follows(t *testing.T, rendered objects, namespace string) {
	t.Helper()
	subjects := 0
	for _, object := range rendered {
		if strings.HasSuffix(object.GetKind(), "RoleBinding") {
			for _, subject := range convert[rbacv1.RoleBinding](t, object).Subjects {
				subjects++
				if subject.Namespace != namespace || subject.Name != host {
					t.Errorf("%s %s binds %s/%s, want %s/%s", object.GetKind(), object.GetName(),
						subject.Namespace, subject.Name, namespace, host)
				}
			}
		}
		if text, err := json.Marshal(object.Object); err != nil {
			t.Error(err)
		} else if bytes.Contains(text, []byte("plugin-host-system")) {
			t.Errorf("%s %s still names plugin-host-system", object.GetKind(), object.GetName())
		}
	}
	if subjects != 2 {
		t.Errorf("found %d subjects, want 2", subjects)
	}
}

// TestPodIsHardened checks what Pod Security's restricted level leaves open too.
func TestPodIsHardened(t *testing.T) {
	all := map[string]objects{"config": kustomized(t)}
	for _, values := range valuesFiles(t) {
		all["chart with "+filepath.Base(values)] = charted(t, "--values", values)
	}
	for name, rendered := range all {
		t.Run(name, func(t *testing.T) {
			d := deployment(t, rendered)
			if got := d.Spec.Template.Labels["app.kubernetes.io/name"]; got != d.Spec.Selector.MatchLabels["app.kubernetes.io/name"] {
				t.Errorf("the pods are labelled %q, which the selector doesn't match", got)
			}
			for _, fault := range faults(d.Spec.Template.Spec) {
				t.Error(fault)
			}
			account := convert[corev1.ServiceAccount](t, rendered["ServiceAccount/"+host])
			if account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken {
				t.Error("the ServiceAccount hands its token to every pod")
			}
		})
	}
}

func faults(pod corev1.PodSpec) []string {
	var found []string
	demand := func(ok bool, fault string) {
		if !ok {
			found = append(found, fault)
		}
	}
	isTrue := func(b *bool) bool { return b != nil && *b }
	isFalse := func(b *bool) bool { return b != nil && !*b }

	demand(!pod.HostNetwork && !pod.HostPID && !pod.HostIPC, "the pod shares a namespace of the node")
	demand(pod.ServiceAccountName == host && isTrue(pod.AutomountServiceAccountToken), "the pod lacks its own token")
	demand(isFalse(pod.EnableServiceLinks), "the pod gets every Service of its namespace in its environment")
	security := pod.SecurityContext
	demand(security != nil && isTrue(security.RunAsNonRoot), "the pod may run as root")
	demand(security != nil && security.RunAsUser != nil && *security.RunAsUser == 65532, "the user isn't 65532")
	demand(security != nil && security.RunAsGroup != nil && *security.RunAsGroup == 65532, "the group isn't 65532")
	demand(security != nil && security.FSGroup != nil && *security.FSGroup == 65532, "the volumes' group isn't 65532")
	demand(security != nil && security.SeccompProfile != nil && security.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
		"no RuntimeDefault seccomp profile")
	for _, volume := range pod.Volumes {
		demand(volume.HostPath == nil, "volume "+volume.Name+" is a path of the node")
		demand(volume.Secret == nil || volume.Secret.DefaultMode != nil && *volume.Secret.DefaultMode == 0o440,
			"Secret volume "+volume.Name+" isn't mode 0440")
	}
	demand(len(pod.Containers) == 1 && len(pod.InitContainers) == 0, "there is another container")
	for _, c := range pod.Containers {
		own := c.SecurityContext
		demand(own != nil && isFalse(own.AllowPrivilegeEscalation), "privileges may escalate")
		demand(own != nil && isFalse(own.Privileged), "privileged")
		demand(own != nil && isTrue(own.ReadOnlyRootFilesystem), "the root file system is writable")
		demand(own != nil && own.Capabilities != nil && slices.Equal(own.Capabilities.Drop, []corev1.Capability{"ALL"}) &&
			len(own.Capabilities.Add) == 0, "a Linux capability is left")
		demand(!c.Resources.Requests.Cpu().IsZero() && !c.Resources.Requests.Memory().IsZero() && !c.Resources.Limits.Memory().IsZero(),
			"no resources are set")
		demand(c.LivenessProbe != nil && c.LivenessProbe.HTTPGet != nil && c.LivenessProbe.HTTPGet.Path == "/healthz", "no liveness probe")
		demand(c.ReadinessProbe != nil && c.ReadinessProbe.HTTPGet != nil && c.ReadinessProbe.HTTPGet.Path == "/readyz", "no readiness probe")
		for _, mount := range c.VolumeMounts {
			demand(mount.ReadOnly || mount.Name == "data", "mount "+mount.Name+" is writable")
		}
	}
	return found
}
