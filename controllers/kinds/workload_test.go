package kinds

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
)

var update = flag.Bool("update", false, "write the golden files anew")

func workloadHost() *WorkloadHost {
	return &WorkloadHost{
		Address: "plugin-host.plugin-host-system.svc:8443", CA: "-----BEGIN CERTIFICATE-----\n", Namespace: "plugin-host-system",
		PodLabels: map[string]string{"app.kubernetes.io/name": "plugin-host"}, Port: 8443,
		LauncherImage: "launcher@sha256:1", UserNamespaces: true,
	}
}

func installationWith(w v1alpha1.Workload) *v1alpha1.PluginInstallation {
	return &v1alpha1.PluginInstallation{
		ObjectMeta: metav1.ObjectMeta{Name: "standup", UID: "5d2c9a1e-0000-4000-8000-000000000001"},
		Spec: v1alpha1.PluginInstallationSpec{
			PluginID: "kandev.standup-notes", Version: "1.4.0",
			ServiceAccountRef: v1alpha1.ServiceAccountReference{Namespace: "plugin-standup", Name: "standup"},
			Workload:          &w,
		},
		Status: v1alpha1.PluginInstallationStatus{InstallationID: "3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77"},
	}
}

func workload(t *testing.T, o *v1alpha1.PluginInstallation, host *WorkloadHost) Workload {
	t.Helper()
	made, err := WorkloadOf(o, host)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// everyWay is each of the ways in which a plugin comes, by name.
func everyWay() map[string]v1alpha1.Workload {
	replicas := int32(1)
	return map[string]v1alpha1.Workload{
		"package": {Image: "standup@sha256:2", Package: "/plugin/standup.tar.gz"},
		"package-image": {
			PackageImage: "standup-package@sha256:3", Binary: "/plugin/standup", Manifest: "/plugin/manifest.yaml",
			Args: []string{"--signature-key-file=/plugin/key.pem"}, Replicas: &replicas, ImagePullSecrets: []string{"registry"},
			Env: []v1alpha1.WorkloadVariable{
				{Name: "PRICE", Value: new("$(HOME)")},
				{Name: "TOKEN", SecretKeyRef: &v1alpha1.WorkloadSecretKey{Name: "standup-tokens", Key: "token"}},
			},
			Resources:        &v1alpha1.WorkloadResources{Limits: v1alpha1.WorkloadQuantities{CPU: "500m", Memory: "32Mi"}},
			Platform:         &v1alpha1.WorkloadPlatform{SecretName: "standup-platform"},
			Data:             &v1alpha1.WorkloadData{ClaimName: "standup-data"},
			NodeSelector:     map[string]v1alpha1.WorkloadLabel{"pool": "plugins"},
			RuntimeClassName: "gvisor",
		},
		"program": {Image: "standup@sha256:4", Args: []string{"serve"}, Data: &v1alpha1.WorkloadData{SizeLimit: "200Mi"}},
	}
}

// TestWorkloadGolden shows whole what is made. `go test ./controllers/kinds -update`
// writes it anew; read the difference.
func TestWorkloadGolden(t *testing.T) {
	for name, way := range everyWay() {
		t.Run(name, func(t *testing.T) {
			made := workload(t, installationWith(way), workloadHost())
			var got []byte
			for _, o := range []any{made.CA, made.NetworkPolicy, made.Deployment} {
				text, err := yaml.Marshal(o)
				if err != nil {
					t.Fatal(err)
				}
				got = append(append(got, "---\n"...), text...)
			}
			path := filepath.Join("testdata", "workload-"+name+".yaml")
			if *update {
				if err := os.WriteFile(path, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("what is made differs from %s:\n%s", path, got)
			}
		})
	}
}

// TestWorkloadIsHardened holds every pod to the list of what it must and must not
// have, field by field.
func TestWorkloadIsHardened(t *testing.T) {
	for name, way := range everyWay() {
		t.Run(name, func(t *testing.T) {
			o := installationWith(way)
			made := workload(t, o, workloadHost())
			pod := made.Deployment.Spec.Template.Spec
			if len(pod.InitContainers) != 0 || len(pod.EphemeralContainers) != 0 || len(pod.Containers) != 1 {
				t.Fatal("there is more than one container")
			}
			c := pod.Containers[0]
			s, p := c.SecurityContext, pod.SecurityContext
			if s == nil || p == nil {
				t.Fatal("there is no security context")
			}
			for what, holds := range map[string]bool{
				"it doesn't run as root":                 *p.RunAsNonRoot && *p.RunAsUser >= 1000 && *p.RunAsGroup >= 1000 && s.RunAsUser == nil && s.RunAsNonRoot == nil,
				"its root file system is read-only":      *s.ReadOnlyRootFilesystem,
				"it has no capability":                   len(s.Capabilities.Add) == 0 && len(s.Capabilities.Drop) == 1 && s.Capabilities.Drop[0] == "ALL",
				"it can't gain privileges":               !*s.AllowPrivilegeEscalation && !*s.Privileged,
				"the runtime filters its system calls":   p.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault && s.SeccompProfile == nil,
				"it has users of its own":                pod.HostUsers != nil && !*pod.HostUsers,
				"it shares no namespace of the node":     !pod.HostNetwork && !pod.HostPID && !pod.HostIPC && pod.ShareProcessNamespace == nil,
				"no token is mounted for the API server": !*pod.AutomountServiceAccountToken,
				"it runs as the plugin's account":        pod.ServiceAccountName == o.Spec.ServiceAccountRef.Name && made.Deployment.Namespace == o.Spec.ServiceAccountRef.Namespace,
				"it learns nothing of other services":    !*pod.EnableServiceLinks,
				"no port of the node is taken":           !strings.Contains(toYAML(t, c.Ports), "hostPort"),
				"its memory is limited":                  !c.Resources.Limits.Memory().IsZero() && c.Resources.Requests.Memory().Cmp(*c.Resources.Limits.Memory()) <= 0,
				"its disk is limited":                    !c.Resources.Limits.StorageEphemeral().IsZero(),
				"one process at a time":                  *made.Deployment.Spec.Replicas == 1 && made.Deployment.Spec.Strategy.Type == "Recreate",
				"it ends with the installation (I13)":    owned(made, o),
			} {
				if !holds {
					t.Errorf("not so: %s", what)
				}
			}
			tokens(t, pod, o.Spec.Workload.Platform)
			for _, mount := range c.VolumeMounts {
				if writable := mount.Name == "data" || mount.Name == "scratch"; mount.ReadOnly == writable {
					t.Errorf("volume %s is mounted with readOnly %v", mount.Name, mount.ReadOnly)
				}
			}
		})
	}
}

func toYAML(t *testing.T, v any) string {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// owned: the garbage collector takes all of it with the installation, whose deletion
// waits for none (I13).
func owned(made Workload, o *v1alpha1.PluginInstallation) bool {
	for _, m := range []metav1.Object{made.CA, made.NetworkPolicy, made.Deployment} {
		refs := m.GetOwnerReferences()
		if !metav1.IsControlledBy(m, o) || len(refs) != 1 || refs[0].BlockOwnerDeletion != nil || len(m.GetFinalizers()) != 0 ||
			m.GetLabels()[v1alpha1.LabelInstallationID] != o.Status.InstallationID {
			return false
		}
	}
	return true
}

// tokens: one, of the Host's audience, and no other volume says who the pod is. The
// only Secret is that of the platform, where it is asked for.
func tokens(t *testing.T, pod corev1.PodSpec, platform *v1alpha1.WorkloadPlatform) {
	t.Helper()
	found := 0
	for _, volume := range pod.Volumes {
		if s := volume.Secret; s != nil && platform != nil && s.SecretName == platform.SecretName && s.Optional == nil &&
			len(s.Items) == 3 && *s.DefaultMode == 0o440 {
			continue
		}
		if volume.Secret != nil || volume.HostPath != nil || volume.DownwardAPI != nil || volume.CSI != nil || volume.Ephemeral != nil {
			t.Errorf("volume %s has no business here", volume.Name)
		}
		if volume.EmptyDir != nil && volume.EmptyDir.SizeLimit.IsZero() {
			t.Errorf("volume %s has no limit", volume.Name)
		}
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			token := source.ServiceAccountToken
			if token == nil {
				t.Errorf("volume %s projects something that is no token", volume.Name)
				continue
			}
			found++
			if token.Audience != contract.Audience || *token.ExpirationSeconds < 600 || *token.ExpirationSeconds > 3600 {
				t.Errorf("the token is for %q, %d s", token.Audience, *token.ExpirationSeconds)
			}
		}
	}
	if found != 1 {
		t.Errorf("it has %d tokens, want 1", found)
	}
}

func TestWorkloadReachesTheHostAndNothingElse(t *testing.T) {
	for name, way := range everyWay() {
		t.Run(name, func(t *testing.T) {
			o := installationWith(way)
			made := workload(t, o, workloadHost())
			policy := made.NetworkPolicy.Spec
			if len(policy.PolicyTypes) != 2 {
				t.Errorf("it is about %v", policy.PolicyTypes)
			}
			selector, err := metav1.LabelSelectorAsSelector(&policy.PodSelector)
			if err != nil || !selector.Matches(labelsOf(made.Deployment.Spec.Template.Labels)) || selector.Empty() {
				t.Errorf("it selects %v, %v", selector, err)
			}
			if len(policy.Egress) != 2 || len(policy.Egress[0].To) != 1 || len(policy.Egress[1].To) != 1 {
				t.Fatalf("egress is %v", policy.Egress)
			}
			host := policy.Egress[0]
			if host.To[0].NamespaceSelector.MatchLabels[corev1.LabelMetadataName] != "plugin-host-system" ||
				len(host.To[0].PodSelector.MatchLabels) == 0 || host.To[0].IPBlock != nil || ports(host.Ports) != "TCP 8443" {
				t.Errorf("to the Host: %v", host)
			}
			if dns := policy.Egress[1]; dns.To[0].NamespaceSelector.MatchLabels[corev1.LabelMetadataName] != "kube-system" || ports(dns.Ports) != "UDP 53, TCP 53" {
				t.Errorf("to the DNS: %v", dns)
			}
			if !launched(o.Spec.Workload) {
				if len(policy.Ingress) != 0 {
					t.Errorf("ingress is %v, want none", policy.Ingress)
				}
				return
			}
			if len(policy.Ingress) != 1 || len(policy.Ingress[0].From) != 1 || ports(policy.Ingress[0].Ports) != "TCP 8080" ||
				policy.Ingress[0].From[0].NamespaceSelector.MatchLabels[corev1.LabelMetadataName] != "plugin-host-system" {
				t.Errorf("ingress is %v", policy.Ingress)
			}
		})
	}
	byAddress := workloadHost()
	byAddress.Address = "10.0.0.1:8443"
	if made := workload(t, installationWith(everyWay()["program"]), byAddress); len(made.NetworkPolicy.Spec.Egress) != 1 {
		t.Error("a pod that has the Host's address may ask the DNS")
	}
}

type labelsOf map[string]string

func (l labelsOf) Has(name string) bool              { _, ok := l[name]; return ok }
func (l labelsOf) Get(name string) string            { return l[name] }
func (l labelsOf) Lookup(name string) (string, bool) { v, ok := l[name]; return v, ok }

func ports(all []networkingv1.NetworkPolicyPort) string {
	var texts []string
	for _, p := range all {
		texts = append(texts, string(*p.Protocol)+" "+p.Port.String())
	}
	return strings.Join(texts, ", ")
}

func TestWorkloadRunsNothingWhileSuspended(t *testing.T) {
	o := installationWith(everyWay()["package"])
	o.Spec.Suspend = true
	if made := workload(t, o, workloadHost()); *made.Deployment.Spec.Replicas != 0 {
		t.Errorf("%d replicas run", *made.Deployment.Spec.Replicas)
	}
	zero := int32(0)
	o.Spec.Suspend, o.Spec.Workload.Replicas = false, &zero
	if made := workload(t, o, workloadHost()); *made.Deployment.Spec.Replicas != 0 {
		t.Errorf("%d replicas run, 0 were asked for", *made.Deployment.Spec.Replicas)
	}
}

// TestWorkloadStartsAnew: a plugin reads what it is when it starts.
func TestWorkloadStartsAnew(t *testing.T) {
	before := toYAML(t, workload(t, installationWith(everyWay()["package"]), workloadHost()).Deployment.Spec.Template)
	for name, c := range map[string]struct {
		edit  func(*v1alpha1.PluginInstallation)
		again bool
	}{
		"version":  {func(o *v1alpha1.PluginInstallation) { o.Spec.Version = "1.4.1" }, true},
		"manifest": {func(o *v1alpha1.PluginInstallation) { o.Spec.Manifest.MinHostVersion = "0.1" }, true},
		"config":   {func(o *v1alpha1.PluginInstallation) { o.Spec.Config = &apiextensionsv1.JSON{Raw: []byte(`{"a":1}`)} }, true},
		"secret":   {func(o *v1alpha1.PluginInstallation) { o.Spec.SecretRefs = []v1alpha1.SecretReference{{Name: "a"}} }, true},
		"nothing":  {func(*v1alpha1.PluginInstallation) {}, false},
		"suspend":  {func(o *v1alpha1.PluginInstallation) { o.Spec.Suspend = true }, false},
		"status":   {func(o *v1alpha1.PluginInstallation) { o.Status.ManifestDigest = "v1:later" }, false},
	} {
		o := installationWith(everyWay()["package"])
		c.edit(o)
		if again := toYAML(t, workload(t, o, workloadHost()).Deployment.Spec.Template) != before; again != c.again {
			t.Errorf("%s: another pod is %v, want %v", name, again, c.again)
		}
	}
}

func TestWorkloadNamesAreOfTheID(t *testing.T) {
	o := installationWith(everyWay()["package"])
	first := WorkloadName(o)
	o.Status.InstallationID = "77777777-5a0e-4c53-8a6f-2f4b8f9d1c77"
	if WorkloadName(o) == first {
		t.Error("an installation of before has the same name")
	}
	for _, name := range []string{strings.Repeat("a", 253), strings.Repeat("a", 39) + "." + strings.Repeat("b", 50), "a.b"} {
		o.Name = name
		if faults := validation.IsDNS1123Label(WorkloadName(o) + WorkloadCASuffix); len(faults) > 0 {
			t.Errorf("%s: %v", name, faults)
		}
	}
}

func TestWorkloadNeedsAnImage(t *testing.T) {
	host := workloadHost()
	host.LauncherImage = ""
	if _, err := WorkloadOf(installationWith(everyWay()["package-image"]), host); err == nil {
		t.Error("something runs without an image")
	}
}

func TestWorkloadResources(t *testing.T) {
	for name, c := range map[string]struct {
		asked           *v1alpha1.WorkloadResources
		request, limits string
	}{
		"nothing":     {nil, "64Mi", "512Mi"},
		"low limit":   {&v1alpha1.WorkloadResources{Limits: v1alpha1.WorkloadQuantities{Memory: "32Mi"}}, "32Mi", "32Mi"},
		"both":        {&v1alpha1.WorkloadResources{Requests: v1alpha1.WorkloadQuantities{Memory: "1Gi"}, Limits: v1alpha1.WorkloadQuantities{Memory: "2Gi"}}, "1Gi", "2Gi"},
		"the reverse": {&v1alpha1.WorkloadResources{Requests: v1alpha1.WorkloadQuantities{Memory: "2Gi"}, Limits: v1alpha1.WorkloadQuantities{Memory: "1Gi"}}, "2Gi", "1Gi"},
	} {
		got := resourcesOf(c.asked)
		if got.Requests.Memory().Cmp(resource.MustParse(c.request)) != 0 || got.Limits.Memory().Cmp(resource.MustParse(c.limits)) != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}
