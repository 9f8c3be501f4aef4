package kubectl_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/test/world"
)

// manifest is an installation's manifest.
func manifest(name, version string, ids ...string) *v1alpha1.PluginInstallation {
	o := &v1alpha1.PluginInstallation{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PluginInstallation"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.PluginInstallationSpec{
			PluginID: "kandev." + name, Version: version,
			ServiceAccountRef: v1alpha1.ServiceAccountReference{Namespace: "plugin-" + name, Name: name},
		},
	}
	for _, id := range ids {
		o.Spec.Manifest.Capabilities = append(o.Spec.Manifest.Capabilities, v1alpha1.ManifestCapability{ID: v1alpha1.CapabilityID(id)})
	}
	return o
}

// installed installs a plugin of its own, and waits until it is ready.
func installed(t *testing.T, name string, ids ...string) *v1alpha1.PluginInstallation {
	t.Helper()
	o := manifest(name, "1.0.0", ids...)
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "plugin-" + name}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "plugin-" + name}},
	} {
		if err := everything.API.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	git := newFolder(t)
	git.write("installation.yaml", asYAML(t, o))
	mustKube(t, "", "apply", "--server-side", "--field-manager=kustomize-controller", "-f", git.path)
	err := world.Await(t.Context(), name+" is ready", func() (bool, string, error) {
		err := everything.API.Get(t.Context(), client.ObjectKeyFromObject(o), o)
		ready := world.Condition(o.Status.Conditions, v1alpha1.ConditionReady, o.Generation)
		return ready.Status == metav1.ConditionTrue, world.Describe(o.Status.Conditions), err
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// settled waits until the Host has looked at an approval as it is now, and holds
// says so.
func settled(t *testing.T, namespace, name, what string, holds func(*v1alpha1.PluginCapabilityApproval) bool) *v1alpha1.PluginCapabilityApproval {
	t.Helper()
	var o v1alpha1.PluginCapabilityApproval
	err := world.Await(t.Context(), what, func() (bool, string, error) {
		err := everything.API.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &o)
		fenced := world.Condition(o.Status.Conditions, v1alpha1.ConditionFenced, o.Generation)
		return o.Status.ObservedGeneration == o.Generation && fenced.Status != metav1.ConditionUnknown && fenced.Reason != v1alpha1.ReasonFencing && holds(&o),
			fmt.Sprintf("state %s, revision %d, effective %v; %s", o.Status.State, o.Status.Revision,
				o.Status.EffectiveCapabilities, world.Describe(o.Status.Conditions)), err
	})
	if err != nil {
		t.Fatal(err)
	}
	return &o
}

func works(ids ...string) func(*v1alpha1.PluginCapabilityApproval) bool {
	return func(o *v1alpha1.PluginCapabilityApproval) bool {
		have := make([]string, len(o.Status.EffectiveCapabilities))
		for i, id := range o.Status.EffectiveCapabilities {
			have[i] = string(id)
		}
		return strings.Join(have, " ") == strings.Join(ids, " ")
	}
}

// folder is a Git folder of manifests.
type folder struct {
	t    *testing.T
	path string
}

func newFolder(t *testing.T) folder {
	t.Helper()
	return folder{t, t.TempDir()}
}

func (f folder) write(name, text string) string {
	f.t.Helper()
	file := filepath.Join(f.path, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return file
}

func (f folder) read(name string) string {
	f.t.Helper()
	text, err := os.ReadFile(filepath.Join(f.path, name))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(text)
}

// edit replaces a text that must be there.
func (f folder) edit(name, old, text string) {
	f.t.Helper()
	before := f.read(name)
	if !strings.Contains(before, old) {
		f.t.Fatalf("%s has no %q:\n%s", name, old, before)
	}
	f.write(name, strings.Replace(before, old, text, 1))
}

func asYAML(t *testing.T, o client.Object) string {
	t.Helper()
	text, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// kube runs kubectl at the world's top, as somebody.
func kube(t *testing.T, as string, args ...string) world.Result {
	t.Helper()
	if as != "" {
		args = append(args, "--as", as)
	}
	r, err := everything.Run(t.Context(), environment(), everything.Kubectl, args...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustKube(t *testing.T, as string, args ...string) string {
	t.Helper()
	r := kube(t, as, args...)
	if r.Code != 0 {
		t.Fatalf("kubectl %s: exit code %d\n%s%s", strings.Join(args, " "), r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}
