// Package e2e_test runs a plugin's pods on a real node: a kubelet with containerd and
// runc, a CNI plugin, the real control plane with its controllers, and plugin-host as
// a process under its own ServiceAccount. Everything that the controllers make of
// spec.workload is made real here, and looked at from outside: by the kernel's account
// of the process, and by what the plugin is answered. `make e2e-pods` runs it, where the
// machine allows it.
//
// What is not real: the scheduler, which is a loop here, for there is one node; and the
// network policy, which no plugin of this node's network enforces. Users of a pod's own
// are left out: they need a newer runtime than distributions have.
//
// It may import the API types, contract, hack and the clients of Kubernetes.
package e2e_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/hack/controlplane"
)

const (
	hostNamespace = "plugin-host-system"
	plugin        = "sample"
	pluginSpace   = "plugin-sample"
	workspace     = "team-a"
	ada           = "ada@example.com"
	image         = "docker.io/library/kandev-sample:"
)

// TestPods is the life of a plugin in its pods: started, used, granted, revoked,
// suspended, upgraded, uninstalled.
func TestPods(t *testing.T) {
	tools := os.Getenv("KANDEV_E2E_TOOLS")
	if tools == "" {
		t.Skip("`make e2e-pods` runs it, where the machine allows it")
	}
	log.SetLogger(logr.Discard())
	e := &world{dir: t.TempDir()}
	e.build(t)
	plane, err := controlplane.Start(t.Context(), controlplane.Options{ControllerManager: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	e.plane = plane
	e.connect(t)
	e.install(t)
	e.node = startNode(t, tools, e.kubeconfig)
	e.images(t)
	e.startHost(t)
	go e.schedule(t.Context())

	t.Log("the controllers run the plugin, and the kubelet its pod")
	e.kubectl(t, "create", "rolebinding", "plugin-host-workloads", "--namespace="+pluginSpace,
		"--clusterrole=plugin-host-workloads", "--serviceaccount="+hostNamespace+":plugin-host")
	e.installPlugin(t, "1.0.0")
	e.running(t, "1.0.0")
	pod := e.pod(t)
	e.hardened(t, pod)

	t.Log("v1: what the manifest declares works, and what it doesn't declare does not")
	for _, want := range []string{`{"count":1}`, `{"count":2}`} {
		if got := e.hook(t, pod, "do=state&key=k"); got != want {
			t.Fatalf("state: %s, want %s", got, want)
		}
	}
	if got := e.hook(t, pod, "do=tasks"); !strings.Contains(got, "not declared") {
		t.Fatalf("tasks: %s", got)
	}

	t.Log("exact calls: denied, granted, revoked")
	e.answers(t, pod, 3, "MISSING_CAPABILITY_APPROVAL")
	e.approve(t, v1alpha1.StateActive)
	e.answers(t, pod, 0, "")
	e.approve(t, v1alpha1.StateRevoked)
	e.answers(t, pod, 3, "CAPABILITY_REVOKED")

	t.Log("suspended: no pod; resumed: another one")
	e.edit(t, func(o *v1alpha1.PluginInstallation) { o.Spec.Suspend = true })
	e.says(t, string(v1alpha1.GateSuspended))
	await(t, "no pod is left", func() (bool, string) {
		all := e.pods(t)
		return len(all) == 0, fmt.Sprint(len(all), " pods")
	})
	e.edit(t, func(o *v1alpha1.PluginInstallation) { o.Spec.Suspend = false })
	e.running(t, "1.0.0")

	t.Log("upgraded: another version in another pod, with the same state")
	e.edit(t, func(o *v1alpha1.PluginInstallation) { o.Spec.Version, o.Spec.Workload.Image = "1.1.0", image+"1.1.0" })
	e.running(t, "1.1.0")
	pod = e.pod(t)
	if got := e.hook(t, pod, "do=about"); !strings.Contains(got, "kandev.sample/1.1.0") {
		t.Errorf("the plugin runs in %s", got)
	}
	if got := e.hook(t, pod, "do=state&key=k"); got != `{"count":3}` {
		t.Errorf("state after the upgrade: %s", got)
	}

	t.Log("I13: uninstalled, which waits for nothing and leaves nothing")
	begun := time.Now()
	e.kubectl(t, "delete", "plugininstallation", plugin, "--timeout=5s")
	t.Logf("deleted in %v", time.Since(begun).Round(time.Millisecond))
	await(t, "nothing is left", func() (bool, string) { return e.nothing(t) })
}

// world is all that a test has.
type world struct {
	dir        string
	plane      *controlplane.ControlPlane
	api        client.Client
	kubeconfig string
	node       *node
}

func (e *world) path(name string) string { return filepath.Join(e.dir, name) }

func root() string { return filepath.Join("..", "..") }

// build makes the binaries; those of a pod are static.
func (e *world) build(t *testing.T) {
	t.Helper()
	for _, pkg := range []string{"./cmd/plugin-host", "./cmd/plugin-launcher", "./test/launcher/plugin", "./test/demo/sample-plugin", "./test/e2e/pause"} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", e.path("bin")+string(filepath.Separator), pkg)
		cmd.Dir, cmd.Env = root(), append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", pkg, err, out)
		}
	}
}

func (e *world) binary(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(e.path("bin"), name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// images makes those of the pods. That of the plugin holds the launcher and the
// package, and a program that makes exact calls.
func (e *world) images(t *testing.T) {
	t.Helper()
	e.node.load(t, imageOf(t, "docker.io/library/kandev-pause:e2e", []string{"/pause"}, []file{{"pause", e.binary(t, "pause"), 0o755}}))
	for _, version := range []string{"1.0.0", "1.1.0"} {
		e.node.load(t, imageOf(t, image+version, []string{"/plugin-launcher"}, []file{
			{"plugin-launcher", e.binary(t, "plugin-launcher"), 0o755},
			{"sample-plugin", e.binary(t, "sample-plugin"), 0o755},
			{"plugin/sample.tar.gz", packageOf(t, version, e.binary(t, "plugin")), 0o644},
		}))
	}
}

func (e *world) connect(t *testing.T) {
	t.Helper()
	e.kubeconfig = e.path("admin.kubeconfig")
	if err := e.plane.WriteKubeconfig(e.kubeconfig); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, networkingv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if e.api, err = client.New(e.plane.Config(), client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
}

func (e *world) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	binary, err := e.plane.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"--kubeconfig=" + e.kubeconfig, "--cache-dir=" + t.TempDir()}, args...)...)
	cmd.Dir = root()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// install is what an administrator does once.
func (e *world) install(t *testing.T) {
	t.Helper()
	e.kubectl(t, "apply", "--server-side", "-k", "config/default")
	e.kubectl(t, "wait", "crd", "--for=condition=Established", "--timeout=20s", "--all")
	// Its own pod would need an image; here it is a process.
	e.kubectl(t, "--namespace="+hostNamespace, "delete", "deployment", "plugin-host")
	e.kubectl(t, "apply", "--server-side", "-f", "test/demo/manifests/workspaces.yaml", "-f", "test/demo/manifests/plugin.yaml")
}

func (e *world) installPlugin(t *testing.T, version string) {
	t.Helper()
	if err := e.api.Create(t.Context(), &v1alpha1.PluginInstallation{
		ObjectMeta: metav1.ObjectMeta{Name: plugin},
		Spec: v1alpha1.PluginInstallationSpec{
			PluginID: "kandev.sample", Version: version,
			Manifest: v1alpha1.PluginManifest{
				Capabilities: []v1alpha1.ManifestCapability{{ID: "host.v2.read:tasks", Reason: "Reads tasks."}},
				Legacy:       &v1alpha1.LegacyManifest{State: true},
			},
			ServiceAccountRef: v1alpha1.ServiceAccountReference{Namespace: pluginSpace, Name: "sample"},
			Workload:          &v1alpha1.Workload{Image: image + version, Package: "/plugin/sample.tar.gz"},
		},
	}); err != nil {
		t.Fatal(err)
	}
}

// startHost runs plugin-host under its ServiceAccount, where the pods reach it.
func (e *world) startHost(t *testing.T) {
	t.Helper()
	token := e.kubectl(t, "create", "token", "plugin-host", "--namespace="+hostNamespace, "--duration=1h")
	config := clientcmdapi.NewConfig()
	config.Clusters["e2e"] = &clientcmdapi.Cluster{Server: e.plane.Config().Host, CertificateAuthorityData: e.plane.CA()}
	config.AuthInfos["host"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["e2e"] = &clientcmdapi.Context{Cluster: "e2e", AuthInfo: "host", Namespace: hostNamespace}
	config.CurrentContext = "e2e"
	if err := clientcmd.WriteToFile(*config, e.path("host.kubeconfig")); err != nil {
		t.Fatal(err)
	}
	e.certificates(t)
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	if err := os.WriteFile(e.path("keys"), []byte(base64.StdEncoding.EncodeToString(key)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	port, health := freePort(t), fmt.Sprintf("127.0.0.1:%d", freePort(t))
	output, err := os.Create(e.path("host.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = output.Close() }() // the child has its own handle
	cmd := exec.Command(filepath.Join(e.path("bin"), "plugin-host"),
		"--kubeconfig="+e.path("host.kubeconfig"), "--namespace="+hostNamespace,
		"--sqlite-path="+e.path("host.db"), "--seed-file="+filepath.Join(root(), "test/demo/manifests/seed.yaml"),
		fmt.Sprintf("--grpc-listen=:%d", port), "--health-listen="+health, "--metrics-listen=0",
		"--tls-cert-file="+e.path("tls.crt"), "--tls-key-file="+e.path("tls.key"), "--cursor-key-file="+e.path("keys"),
		fmt.Sprintf("--workload-host-address=%s:%d", podGateway, port), "--workload-user-namespaces=never")
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop(cmd)
		if t.Failed() {
			text, _ := os.ReadFile(e.path("host.log"))
			t.Logf("plugin-host:\n%s", text[max(0, len(text)-6000):])
		}
	})
	await(t, "plugin-host is ready", func() (bool, string) {
		code, text := get(t, "http://"+health+"/readyz")
		return code == http.StatusOK, text
	})
}

// certificates makes a CA, in ca.crt beside the certificate, and the certificate.
func (e *world) certificates(t *testing.T) {
	t.Helper()
	now := time.Now()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "plugin-host CA"}, NotBefore: now.Add(-time.Minute),
		NotAfter: now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	serving := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "plugin-host"}, NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		IPAddresses: []net.IP{net.ParseIP(podGateway)}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	servingKey, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	ca, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	cert, err2 := x509.CreateCertificate(rand.Reader, serving, authority, servingKey.Public(), authorityKey)
	key, err3 := x509.MarshalPKCS8PrivateKey(servingKey)
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"ca.crt": {Type: "CERTIFICATE", Bytes: ca}, "tls.crt": {Type: "CERTIFICATE", Bytes: cert}, "tls.key": {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(e.path(name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// schedule binds each pod to the one node.
func (e *world) schedule(ctx context.Context) {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var pods corev1.PodList
		if e.api.List(ctx, &pods, client.InNamespace(pluginSpace)) != nil {
			continue
		}
		for i := range pods.Items {
			if pod := &pods.Items[i]; pod.Spec.NodeName == "" {
				_ = e.api.SubResource("binding").Create(ctx, pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}})
			}
		}
	}
}

func get(t *testing.T, url string) (code int, text string) {
	t.Helper()
	return do(t, http.MethodGet, url)
}

func do(t *testing.T, method, url string) (code int, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(body)
}

func (e *world) installation(t *testing.T) *v1alpha1.PluginInstallation {
	t.Helper()
	var o v1alpha1.PluginInstallation
	if err := e.api.Get(t.Context(), client.ObjectKey{Name: plugin}, &o); err != nil {
		t.Fatal(err)
	}
	return &o
}

func (e *world) edit(t *testing.T, edit func(*v1alpha1.PluginInstallation)) {
	t.Helper()
	await(t, "the installation is edited", func() (bool, string) {
		o := e.installation(t)
		edit(o)
		err := e.api.Update(t.Context(), o)
		return err == nil, fmt.Sprint(err)
	})
}

// says waits for the reason of the condition WorkloadReady.
func (e *world) says(t *testing.T, reason string) {
	t.Helper()
	await(t, "WorkloadReady says "+reason, func() (bool, string) {
		o := e.installation(t)
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionWorkloadReady)
		if c == nil {
			return false, "nothing"
		}
		return c.Reason == reason && c.ObservedGeneration == o.Generation, c.Reason + ": " + c.Message + e.trouble(t)
	})
}

// trouble is what the kubelet says about the pods.
func (e *world) trouble(t *testing.T) string {
	t.Helper()
	var events corev1.EventList
	if err := e.api.List(t.Context(), &events, client.InNamespace(pluginSpace)); err != nil {
		return ""
	}
	text := ""
	for _, event := range events.Items {
		text += "\n" + event.Reason + ": " + event.Message
	}
	return text
}

// running waits until the pod of a version, and no other, is ready.
func (e *world) running(t *testing.T, version string) {
	t.Helper()
	begun := time.Now()
	e.says(t, v1alpha1.ReasonRunning)
	t.Logf("version %s is ready %v later", version, time.Since(begun).Round(time.Millisecond))
	if pod := e.pod(t); pod.Spec.Containers[0].Image != image+version {
		t.Fatalf("%s runs %s", pod.Name, pod.Spec.Containers[0].Image)
	}
}

func (e *world) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	if err := e.api.List(t.Context(), &pods, client.InNamespace(pluginSpace)); err != nil {
		t.Fatal(err)
	}
	return pods.Items
}

func (e *world) pod(t *testing.T) *corev1.Pod {
	t.Helper()
	pods := e.pods(t)
	if len(pods) != 1 {
		t.Fatalf("there are %d pods, want 1", len(pods))
	}
	return &pods[0]
}

func container(pod *corev1.Pod) string {
	return strings.TrimPrefix(pod.Status.ContainerStatuses[0].ContainerID, "containerd://")
}

// hardened looks at the pod's process as the runtime and the kernel have it.
func (e *world) hardened(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	spec := e.node.spec(t, container(pod))
	for what, holds := range map[string]bool{
		"its root file system is read-only": spec.Root.Readonly,
		"it can't gain privileges":          spec.Process.NoNewPrivileges,
		"it isn't root":                     spec.Process.User.UID == 65532 && spec.Process.User.GID == 65532,
		"it has no capability":              len(spec.Process.Capabilities.Bounding)+len(spec.Process.Capabilities.Effective)+len(spec.Process.Capabilities.Permitted) == 0,
		"its system calls are filtered":     spec.Linux.Seccomp != nil && spec.Linux.Seccomp.DefaultAction == "SCMP_ACT_ERRNO",
	} {
		if !holds {
			t.Errorf("by the runtime, not so: %s: %+v", what, spec)
		}
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", e.node.process(t, container(pod))))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Uid:\t65532\t65532\t65532\t65532\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n", "CapEff:\t0000000000000000\n",
		"CapPrm:\t0000000000000000\n", "CapBnd:\t0000000000000000\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the kernel doesn't say %q:\n%s", want, text)
		}
	}
}

// hook calls the plugin's webhook through the launcher.
func (e *world) hook(t *testing.T, pod *corev1.Pod, query string) string {
	t.Helper()
	_, text := do(t, http.MethodPost, "http://"+net.JoinHostPort(pod.Status.PodIP, "8080")+"/webhooks/hook?"+query)
	return text
}

// answers waits until an exact call from the pod, under its own token, is answered so.
func (e *world) answers(t *testing.T, pod *corev1.Pod, code int, reason string) {
	t.Helper()
	var n int
	await(t, fmt.Sprintf("an exact call ends with %d %s", code, reason), func() (bool, string) {
		n++
		out, err := e.node.ctr(t.Context(), "tasks", "exec", fmt.Sprintf("--exec-id=call-%d-%d", time.Now().UnixNano(), n), container(pod),
			"/sample-plugin", "list", "-workspace="+workspace)
		got := 0
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			got = exit.ExitCode()
		}
		return got == code && strings.Contains(out, reason), fmt.Sprint(got, " ", out)
	})
}

// approve is what Ada does.
func (e *world) approve(t *testing.T, state v1alpha1.State) {
	t.Helper()
	config := rest.CopyConfig(e.plane.Config())
	config.Impersonate.UserName = ada
	her, err := client.New(config, client.Options{Scheme: e.api.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	o := e.installation(t)
	approval := &v1alpha1.PluginCapabilityApproval{ObjectMeta: metav1.ObjectMeta{Namespace: workspace, Name: plugin}}
	await(t, "the approval is written", func() (bool, string) {
		err := her.Get(t.Context(), client.ObjectKeyFromObject(approval), approval)
		switch {
		case apierrors.IsNotFound(err):
			approval.Spec = v1alpha1.PluginCapabilityApprovalSpec{
				InstallationName: plugin, InstallationID: o.Status.InstallationID, ManifestDigest: o.Status.ManifestDigest,
				WorkspaceID: workspace, Capabilities: []v1alpha1.CapabilityID{"host.v2.read:tasks"}, State: state, ApprovedBy: ada,
			}
			err = her.Create(t.Context(), approval)
		case err == nil:
			approval.Spec.State = state
			err = her.Update(t.Context(), approval)
		}
		return err == nil, fmt.Sprint(err)
	})
}

// nothing says that all that the controllers made is gone.
func (e *world) nothing(t *testing.T) (gone bool, left string) {
	t.Helper()
	var found []string
	for _, list := range []client.ObjectList{&corev1.PodList{}, &appsv1.DeploymentList{}, &appsv1.ReplicaSetList{}, &networkingv1.NetworkPolicyList{}, &corev1.ConfigMapList{}} {
		if err := e.api.List(t.Context(), list, client.InNamespace(pluginSpace), client.HasLabels{v1alpha1.LabelInstallationID}); err != nil {
			t.Fatal(err)
		}
		if n := meta.LenList(list); n > 0 {
			found = append(found, fmt.Sprintf("%d of %T", n, list))
		}
	}
	return len(found) == 0, strings.Join(found, ", ")
}
