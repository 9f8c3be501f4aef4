package install_test

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hack/controlplane"
)

// cluster is a control plane of a test's own.
type cluster struct {
	config     *rest.Config
	api        clientset.Interface
	kubeconfig string
}

func start(t *testing.T) cluster {
	t.Helper()
	return startWith(t, controlplane.Options{})
}

func startWith(t *testing.T, options controlplane.Options) cluster {
	t.Helper()
	plane, err := controlplane.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := plane.WriteKubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	api, err := clientset.NewForConfig(plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	return cluster{config: plane.Config(), api: api, kubeconfig: kubeconfig}
}

func (c cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	// No two calls share a discovery cache: one from before the CRDs hides them.
	return tool(t, "kubectl", append([]string{"--kubeconfig", c.kubeconfig, "--cache-dir", t.TempDir()}, args...)...)
}

func (c cluster) createNamespace(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if _, err := c.api.CoreV1().Namespaces().Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestKustomizeInstalls applies config/ as docs/howto/install.md says, and holds the
// result to what it promises: it applies twice without a change, the pod passes Pod
// Security, the samples are right, and everybody may do exactly what they should.
func TestKustomizeInstalls(t *testing.T) {
	c := start(t)
	dir := filepath.Join(configDir, "default")

	// Neither the CRDs' kinds nor the namespace exist for a dry run before they do.
	c.kubectl(t, "apply", "--server-side", "-k", filepath.Join(configDir, "crd"))
	c.kubectl(t, "wait", "--for=condition=Established", "--timeout=30s", "-f", filepath.Join(configDir, "crd", "bases"))
	c.kubectl(t, "apply", "--server-side", "-f", filepath.Join(dir, "namespace.yaml"))
	c.kubectl(t, "apply", "--server-side", "--dry-run=server", "-k", dir)
	if _, err := c.api.RbacV1().ClusterRoles().Get(t.Context(), host, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("the dry run left something behind: %v", err)
	}
	c.kubectl(t, "apply", "--server-side", "-k", dir)
	before := c.installed(t)
	c.kubectl(t, "apply", "--server-side", "-k", dir)
	for id, after := range c.installed(t) {
		if before[id] != after {
			t.Errorf("applying again changed %s:\n%s\n%s", id, before[id], after)
		}
	}

	t.Run("the pod passes the restricted Pod Security level", func(t *testing.T) {
		if err := c.admits(t.Context(), deployment(t, kustomized(t)).Spec.Template); err != nil {
			t.Error(err)
		}
		for _, values := range valuesFiles(t) {
			if err := c.admits(t.Context(), deployment(t, charted(t, "--values", values)).Spec.Template); err != nil {
				t.Errorf("chart with %s: %v", values, err)
			}
		}
		// Otherwise the above would say nothing.
		rooted := deployment(t, kustomized(t)).Spec.Template
		rooted.Spec.SecurityContext.RunAsNonRoot = nil
		if err := c.admits(t.Context(), rooted); !apierrors.IsForbidden(err) {
			t.Errorf("a pod that may run as root is answered with %v, want forbidden", err)
		}
	})
	t.Run("the samples apply and fit together", func(t *testing.T) { c.samples(t) })
	t.Run("rights", func(t *testing.T) { c.rights(t) })
}

// installed returns what the cluster has of each object of config/default. The
// resource version isn't in it: the API server rewrites a claim that is applied
// without a change.
func (c cluster) installed(t *testing.T) map[string]string {
	t.Helper()
	var list unstructured.UnstructuredList
	text := c.kubectl(t, "get", "-k", filepath.Join(configDir, "default"), "-o", "json")
	if err := list.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if want := len(kustomized(t)); len(list.Items) != want {
		t.Fatalf("the cluster has %d of %d objects", len(list.Items), want)
	}
	found := map[string]string{}
	for _, object := range list.Items {
		object.SetResourceVersion("")
		content, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		found[object.GetKind()+"/"+object.GetName()] = string(content)
	}
	return found
}

// admits asks the API server about a pod of the template, in the namespace of the
// plugin host, without making it.
func (c cluster) admits(ctx context.Context, template corev1.PodTemplateSpec) error {
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name = "trial"
	_, err := c.api.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// samples applies config/samples and checks that the approval names what the
// controllers would compute: a reader is to change the ID and nothing else.
func (c cluster) samples(t *testing.T) {
	t.Helper()
	dir := filepath.Join(configDir, "samples")
	// Whoever writes a grant must be whom it names.
	c.kubectl(t, "apply", "--server-side", "-k", dir, "--as=ada@example.com", "--as-group=system:masters")
	rendered := parse(t, tool(t, "kustomize", "build", dir))
	installation := convert[v1alpha1.PluginInstallation](t, rendered["PluginInstallation/standup"])
	approval := convert[v1alpha1.PluginCapabilityApproval](t, rendered["PluginCapabilityApproval/standup"])
	workspace := convert[corev1.Namespace](t, rendered["Namespace/"+approval.Namespace])

	manifest := contract.Manifest{PluginID: installation.Spec.PluginID, MinHostVersion: installation.Spec.Manifest.MinHostVersion}
	var declared []v1alpha1.CapabilityID
	for _, capability := range installation.Spec.Manifest.Capabilities {
		declared = append(declared, capability.ID)
		manifest.Capabilities = append(manifest.Capabilities, contract.DeclaredCapability{
			ID: string(capability.ID), Required: capability.Required, Reason: capability.Reason,
		})
	}
	digest, err := manifest.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if approval.Spec.ManifestDigest != digest {
		t.Errorf("the approval names the digest %s, the installation has %s", approval.Spec.ManifestDigest, digest)
	}
	if id := workspace.Labels[v1alpha1.LabelWorkspaceID]; id != approval.Spec.WorkspaceID {
		t.Errorf("the approval names the workspace %q, its namespace is %q", approval.Spec.WorkspaceID, id)
	}
	if approval.Spec.State != v1alpha1.StateActive {
		// Left out, an apply couldn't take back what `kubectl patch` set to Revoked.
		t.Error("the approval doesn't say state: Active")
	}
	for _, id := range approval.Spec.Capabilities {
		if !slices.Contains(declared, id) {
			t.Errorf("the approval grants %s, which the manifest doesn't declare", id)
		}
	}
	account := installation.Spec.ServiceAccountRef
	if object := rendered["ServiceAccount/"+account.Name]; object == nil || object.GetNamespace() != account.Namespace {
		t.Errorf("the samples lack the ServiceAccount %s/%s", account.Namespace, account.Name)
	}
	if account.Namespace == approval.Namespace {
		t.Error("the plugin lives in the workspace")
	}
}

// certificateFits verifies the certificate that the chart made as a plugin would.
func (c cluster) certificateFits(ctx context.Context, namespace string) error {
	secret, err := c.api.CoreV1().Secrets(namespace).Get(ctx, "plugin-host-tls", metav1.GetOptions{})
	if err != nil {
		return err
	}
	block, _ := pem.Decode(secret.Data["tls.crt"])
	if block == nil {
		return fmt.Errorf("tls.crt is no PEM: %.20q", secret.Data["tls.crt"])
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(secret.Data["ca.crt"]) {
		return fmt.Errorf("ca.crt holds no certificate")
	}
	_, err = certificate.Verify(x509.VerifyOptions{
		DNSName: "plugin-host." + namespace + ".svc", Roots: roots, CurrentTime: time.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

func (c cluster) cursorKeyFits(ctx context.Context, namespace string) error {
	secret, err := c.api.CoreV1().Secrets(namespace).Get(ctx, "plugin-host-cursor-keys", metav1.GetOptions{})
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(string(secret.Data["keys"]), "\n"), "\n")
	for _, line := range lines {
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(key) != 32 {
			return fmt.Errorf("a line of the cursor keys decodes to %d bytes: %w", len(key), err)
		}
	}
	return nil
}
