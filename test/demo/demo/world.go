package main

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
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hack/controlplane"
	"github.com/kandev/plugin-host/hack/rundir"
	"github.com/kandev/plugin-host/sdk"
)

const (
	hostNamespace   = "plugin-host-system"
	hostAccount     = "plugin-host"
	pluginNamespace = "plugin-sample"
	pluginAccount   = "sample"
	pluginPod       = "sample-0"
	// plugin is the name of the installation and of its approvals.
	plugin = "sample"
)

// world is everything the story happens in.
type world struct {
	stage
	root, bin string
	tokenLife time.Duration

	dir        *rundir.Dir
	control    *controlplane.ControlPlane
	api        client.WithWatch // looks; every change goes through kubectl
	kubectl    string
	kubeconfig string
	host       *process
	pluginEnv  []string
}

// start brings everything up: control plane, the release's manifests, two workspaces,
// the Host with seeded tasks, and the plugin's pod and token. Nothing is installed or
// granted.
func (w *world) start(ctx context.Context) error {
	for _, name := range []string{"plugin-host", "sample-plugin"} {
		if _, err := os.Stat(filepath.Join(w.bin, name)); err != nil {
			return fmt.Errorf("find %s (`make build` builds it): %w", name, err)
		}
	}
	var err error
	if w.dir, err = rundir.Create("demo"); err != nil {
		return err
	}
	w.title("A real control plane: etcd with fsync, kube-apiserver with ServiceAccount admission")
	// The control plane ends last, not with ctx: the Host stops before it.
	w.control, err = controlplane.Start(context.WithoutCancel(ctx), controlplane.Options{Durable: true, OwnSignals: true})
	if err != nil {
		return err
	}
	if w.kubectl, err = w.control.Kubectl(); err != nil {
		return err
	}
	w.kubeconfig = w.path("admin.kubeconfig")
	if err := w.control.WriteKubeconfig(w.kubeconfig); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("register the API types: %w", err)
	}
	if w.api, err = client.NewWithWatch(w.control.Config(), client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if err := w.kube(ctx, "version"); err != nil {
		return err
	}

	w.title("Install the plugin host and make two namespaces workspaces")
	for _, args := range [][]string{
		{"apply", "--server-side", "-k", "config/default"},
		{"wait", "crd", "--for=condition=Established", "--timeout=20s", "--all"},
		{"apply", "--server-side", "-f", "test/demo/manifests/workspaces.yaml", "-f", "test/demo/manifests/plugin.yaml"},
	} {
		if err := w.kube(ctx, args...); err != nil {
			return err
		}
	}
	if err := w.startHost(ctx); err != nil {
		return err
	}
	return w.startPod(ctx)
}

// path is a file of the demo's own folder.
func (w *world) path(elem ...string) string {
	return filepath.Join(append([]string{w.dir.Path()}, elem...)...)
}

// end takes everything down that start brought up, in any state.
func (w *world) end() error {
	var err error
	if w.host != nil {
		err = w.host.stop()
	}
	if w.control != nil {
		err = errors.Join(err, w.control.Stop())
	}
	if w.dir != nil {
		err = errors.Join(err, w.dir.Remove())
	}
	return err
}

// kube runs kubectl as the administrator and shows what it wrote.
func (w *world) kube(ctx context.Context, args ...string) error {
	written, err := w.kubeQuietly(ctx, args...)
	if err != nil {
		return err
	}
	w.show("kubectl "+strings.Join(w.shorten(args), " "), written)
	return nil
}

func (w *world) kubeQuietly(ctx context.Context, args ...string) (string, error) {
	env := []string{"KUBECONFIG=" + w.kubeconfig, "KUBECACHEDIR=" + w.path("kubectl-cache"), "KUBERC=off"}
	r, err := execute(ctx, w.root, env, w.kubectl, args...)
	if err != nil {
		return "", err
	}
	if r.code != 0 {
		return "", fmt.Errorf("kubectl %s: exit code %d: %s", strings.Join(args, " "), r.code, r.stderr)
	}
	return r.stdout + r.stderr, nil
}

// shorten tells files of the demo's folder and of the tree by their place, and quotes what a
// shell would not keep in one piece.
func (w *world) shorten(args []string) []string {
	short := make([]string, 0, len(args))
	for _, arg := range args {
		arg = strings.ReplaceAll(strings.ReplaceAll(arg, w.dir.Path()+"/", ""), w.root+"/", "")
		if strings.ContainsAny(arg, " {}\"[]?*@()") {
			arg = "'" + arg + "'"
		}
		short = append(short, arg)
	}
	return short
}

// startHost runs plugin-host as its pod would: under its own ServiceAccount, which
// has the rights that the release gives it, and no more.
func (w *world) startHost(ctx context.Context) error {
	w.title("Run plugin-host under its own ServiceAccount")
	token, err := w.kubeQuietly(ctx, "create", "token", hostAccount, "--namespace", hostNamespace,
		"--duration", w.tokenLife.String())
	if err != nil {
		return err
	}
	if err := w.writeHostKubeconfig(strings.TrimSpace(token)); err != nil {
		return err
	}
	if err := w.writeCertificates(); err != nil {
		return err
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("draw a cursor key: %w", err)
	}
	keys := base64.StdEncoding.EncodeToString(key) + "\n"
	if err := os.WriteFile(w.path("cursor-keys"), []byte(keys), 0o600); err != nil {
		return fmt.Errorf("write the cursor key: %w", err)
	}
	addresses, err := freeAddresses(2)
	if err != nil {
		return err
	}
	args := []string{
		"--kubeconfig=" + w.path("host.kubeconfig"),
		"--store=sqlite", "--sqlite-path=" + w.path("plugin-host.db"),
		"--grpc-listen=" + addresses[0], "--health-listen=" + addresses[1],
		"--tls-cert-file=" + w.path("tls.crt"), "--tls-key-file=" + w.path("tls.key"),
		"--cursor-key-file=" + w.path("cursor-keys"),
		"--leader-election-namespace=" + hostNamespace,
		"--seed-file=" + filepath.Join(w.root, "test", "demo", "manifests", "seed.yaml"),
	}
	w.show("plugin-host "+strings.Join(w.shorten(args), " "), "")
	if w.host, err = spawn(w.dir.Path(), filepath.Join(w.bin, "plugin-host"), args...); err != nil {
		return err
	}
	if err := w.awaitReady(ctx, "http://"+addresses[1]+"/readyz"); err != nil {
		return errors.Join(err, w.host.lastWords())
	}
	w.pluginEnv = []string{
		sdk.EnvAddress + "=" + addresses[0],
		sdk.EnvCAFile + "=" + w.path("ca.crt"),
		sdk.EnvTokenFile + "=" + w.path("token"),
	}
	return w.check(true, "plugin-host is ready", nil)
}

func (w *world) awaitReady(ctx context.Context, url string) error {
	return await(ctx, "plugin-host is ready", func() (bool, string, error) {
		select {
		case <-w.host.ended:
			return false, "", fmt.Errorf("plugin-host ended: %w", w.host.err)
		default:
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return false, "", err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, err.Error(), nil
		}
		defer func() { _ = response.Body.Close() }()
		return response.StatusCode == http.StatusOK, response.Status, nil
	})
}

// writeHostKubeconfig is what a pod has in its service account folder.
func (w *world) writeHostKubeconfig(token string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["demo"] = &clientcmdapi.Cluster{
		Server: w.control.Config().Host, CertificateAuthorityData: w.control.CA(),
	}
	config.AuthInfos[hostAccount] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["demo"] = &clientcmdapi.Context{Cluster: "demo", AuthInfo: hostAccount, Namespace: hostNamespace}
	config.CurrentContext = "demo"
	if err := clientcmd.WriteToFile(*config, w.path("host.kubeconfig")); err != nil {
		return fmt.Errorf("write the Host's kubeconfig: %w", err)
	}
	return nil
}

// writeCertificates makes a CA and the Host's serving certificate.
func (w *world) writeCertificates() error {
	now := time.Now()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "plugin-host demo CA"},
		NotBefore: now.Add(-time.Minute), NotAfter: now.Add(w.tokenLife + time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	serving := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "plugin-host"},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the CA's key: %w", err)
	}
	servingKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the serving key: %w", err)
	}
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, &authorityKey.PublicKey, authorityKey)
	if err != nil {
		return fmt.Errorf("make the CA: %w", err)
	}
	servingDER, err := x509.CreateCertificate(rand.Reader, serving, authority, &servingKey.PublicKey, authorityKey)
	if err != nil {
		return fmt.Errorf("make the serving certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(servingKey)
	if err != nil {
		return fmt.Errorf("encode the serving key: %w", err)
	}
	files := map[string]*pem.Block{
		"ca.crt":  {Type: "CERTIFICATE", Bytes: authorityDER},
		"tls.crt": {Type: "CERTIFICATE", Bytes: servingDER},
		"tls.key": {Type: "PRIVATE KEY", Bytes: keyDER},
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := os.WriteFile(w.path(name), pem.EncodeToMemory(files[name]), 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

// freeAddresses finds ports that nobody listens on.
func freeAddresses(n int) ([]string, error) {
	var held []net.Listener
	defer func() {
		for _, listener := range held {
			_ = listener.Close() // it only held its port
		}
	}()
	var addresses []string
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		held = append(held, listener)
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}

// startPod makes the plugin's pod and what its kubelet would give it: a token that is
// bound to the pod. No kubelet runs here; the plugin runs as a process of this machine.
func (w *world) startPod(ctx context.Context) error {
	w.title("The plugin's pod, and a token bound to it")
	if err := w.kube(ctx, "apply", "--server-side", "-f", "test/demo/manifests/pod.yaml"); err != nil {
		return err
	}
	args := []string{
		"create", "token", pluginAccount, "--namespace", pluginNamespace, "--audience", contract.Audience,
		"--bound-object-kind", "Pod", "--bound-object-name", pluginPod, "--duration", w.tokenLife.String(),
	}
	token, err := w.kubeQuietly(ctx, args...)
	if err != nil {
		return err
	}
	w.show("kubectl "+strings.Join(args, " ")+" > token", "")
	if err := os.WriteFile(w.path("token"), []byte(token), 0o600); err != nil {
		return fmt.Errorf("write the plugin's token: %w", err)
	}
	return nil
}

// handOver says how to go on by hand.
func (w *world) handOver() {
	w.title("Everything is left running. In another terminal, from the top of the tree:")
	fmt.Fprintf(w.out, `
  export KUBECONFIG=%s
  alias kubectl=%s
  kubectl get plugins -A                      # installations, approvals, their history
  kubectl get pca -n team-a %s -o yaml
  kubectl get pcae --sort-by=.spec.revision

  # the plugin, as its pod would run it
  export %s
  bin/sample-plugin context
  bin/sample-plugin list --workspace team-a

  # grant to the installation of now: the file holds its ID, its digest and the act
  kubectl apply --server-side --force-conflicts -f %s
  # take it away
  kubectl patch pca %s -n team-a --type=merge -p '{"spec":{"state":"Revoked"}}'

The log of plugin-host: %s
Ctrl-C ends and removes everything.
`, w.kubeconfig, w.kubectl, plugin, strings.Join(w.pluginEnv, " "), w.path("next-approval.yaml"), plugin, w.host.log)
}
