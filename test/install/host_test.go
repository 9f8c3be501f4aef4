package install_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// program is plugin-host as a cluster would run it: the binary, with the command line
// of a Deployment, the Secrets that it mounts and the rights of its own ServiceAccount.
// Only where it listens and where its files lie is of the test.
type program struct {
	binary string
	// dir holds its files; the store in it outlives a process.
	dir     string
	args    []string
	secrets map[string][]byte
}

// running is a process of it.
type running struct {
	address string
	metrics string
	secrets map[string][]byte
	cmd     *exec.Cmd
	ended   chan struct{}
	log     *safeBuffer
}

// gracePeriod is how long a process has to end, in a cluster as here.
const gracePeriod = 30 * time.Second

// buildHost builds the binary.
func buildHost(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), host)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/kandev/plugin-host/cmd/plugin-host")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build plugin-host: %v\n%s", err, out)
	}
	return binary
}

// runHost starts it as config/default would and returns once it is ready; it ends with
// the test, and must not have asked for what it may not.
func (c cluster) runHost(t *testing.T) running {
	t.Helper()
	r := c.startHost(t, program{
		binary: buildHost(t), dir: t.TempDir(), secrets: chartSecrets(t),
		args: deployment(t, kustomized(t)).Spec.Template.Spec.Containers[0].Args,
	})
	t.Cleanup(func() {
		r.stop(t)
		if strings.Contains(r.log.String(), "is forbidden:") {
			t.Errorf("plugin-host asked for what it may not\n%s", r.log)
		}
	})
	return r
}

// startHost starts it and returns once it is ready. It ends with stop, and with the
// test at the latest.
func (c cluster) startHost(t *testing.T, p program) running {
	t.Helper()
	r := running{address: freeAddress(t), metrics: freeAddress(t), secrets: p.secrets, ended: make(chan struct{}), log: &safeBuffer{}}
	mount(t, filepath.Join(p.dir, "tls"), p.secrets, "tls.crt", "tls.key")
	mount(t, filepath.Join(p.dir, "cursor-keys"), p.secrets, "keys")
	if keys := p.secrets[secretKeys]; keys != nil {
		mount(t, filepath.Join(p.dir, "secret-keys"), map[string][]byte{"keys": keys}, "keys")
	}
	if err := os.MkdirAll(filepath.Join(p.dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	health := freeAddress(t)
	args := slices.Clone(p.args)
	for i := range args {
		args[i] = strings.NewReplacer(
			"/var/lib/plugin-host", filepath.Join(p.dir, "data"), "/etc/plugin-host", p.dir,
			"$(POD_NAMESPACE)", namespace, "=:8443", "="+r.address, "=:8081", "="+health, "=:9443", "="+r.metrics,
		).Replace(args[i])
	}
	args = append(args, "--kubeconfig="+c.kubeconfigOfHost(t, p.dir), "--seed-file="+seedFile(t, p.dir))
	// Not the test's context: it ends before what the test cleans up, and a signal of its
	// own beside that of stop would be the second one, which ends the process at once.
	r.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), p.binary, args...)
	r.cmd.Stdout, r.cmd.Stderr = r.log, r.log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = r.cmd.Wait() // its exit code is looked at
		close(r.ended)
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // it has ended, unless the test failed
		<-r.ended
	})
	waitReady(t, "http://"+health+"/readyz", r.log)
	return r
}

// mount puts files of Secrets into a folder as a kubelet does, the first time and when
// they change: all at once, by a link that is renamed.
func mount(t *testing.T, dir string, secrets map[string][]byte, names ...string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	version, err := os.MkdirTemp(dir, "..v") //nolint:usetesting // it must lie beside the links to it
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		writeFile(t, filepath.Join(version, name), secrets[name])
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "..data")
	if err := os.Symlink(filepath.Base(version), link+"_next"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link+"_next", link); err != nil {
		t.Fatal(err)
	}
}

// serves tells whether it proves to be plugin-host to who trusts an authority.
func (r running) serves(t *testing.T, authority []byte) bool {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		t.Fatal("the authority holds no certificate")
	}
	dialer := tls.Dialer{Config: &tls.Config{
		RootCAs: roots, ServerName: host + "." + namespace + ".svc", MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
	}}
	connection, err := dialer.DialContext(t.Context(), "tcp", r.address)
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}

// stop ends it as a kubelet does, once, and demands that it ends well. It may be called
// again when it has returned.
func (r running) stop(t *testing.T) {
	t.Helper()
	select {
	case <-r.ended:
	default:
		_ = r.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	}
	select {
	case <-r.ended:
	case <-time.After(gracePeriod):
		_ = r.cmd.Process.Kill()
		<-r.ended
	}
	if code := r.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("plugin-host ended with %d after SIGTERM\n%s", code, r.log)
	}
}

// seedFile writes the one that docs/howto/install.md shows.
func seedFile(t *testing.T, dir string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/howto/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "cat > seed.yaml <<EOF\n")
	text, _, _ := strings.Cut(rest, "\nEOF\n")
	path := filepath.Join(dir, "seed.yaml")
	writeFile(t, path, []byte(text))
	return path
}

func waitReady(t *testing.T, url string, log fmt.Stringer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("plugin-host isn't ready\n%s", log)
		}
	}
}

// kubeconfigOfHost holds a token of plugin-host's ServiceAccount.
func (c cluster) kubeconfigOfHost(t *testing.T, dir string) string {
	t.Helper()
	token, err := c.api.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), host, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[host] = &clientcmdapi.Cluster{Server: c.config.Host, CertificateAuthorityData: c.config.CAData}
	config.AuthInfos[host] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts[host] = &clientcmdapi.Context{Cluster: host, AuthInfo: host}
	config.CurrentContext = host
	path := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// chartSecrets are the values of the Secrets that the chart makes, by key.
func chartSecrets(t *testing.T) map[string][]byte {
	t.Helper()
	values := map[string][]byte{}
	for _, object := range charted(t).ofKind("Secret") {
		for key, value := range convert[corev1.Secret](t, object).Data {
			values[key] = value
		}
	}
	return values
}

// context asks the Host what the plugin standup may do, from a pod of its own.
func (c cluster) context(t *testing.T, r running) *pluginv1.GetCapabilityContextResponse {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(r.secrets["ca.crt"]) {
		t.Fatal("the chart's ca.crt holds no certificate")
	}
	connection, err := grpc.NewClient(r.address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: roots, ServerName: host + "." + namespace + ".svc", MinVersion: tls.VersionTLS13,
	})))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	answer, err := pluginv1.NewHostClient(connection).GetCapabilityContext(
		metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.pluginToken(t)),
		&pluginv1.GetCapabilityContextRequest{RequestId: "a-request"}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// pluginToken is what a pod of the plugin has: a token bound to it, for the Host.
func (c cluster) pluginToken(t *testing.T) string {
	t.Helper()
	const plugin, account = "plugin-standup", "standup"
	no, yes := false, true
	pod, err := c.api.CoreV1().Pods(plugin).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: account + "-"},
		Spec: corev1.PodSpec{
			ServiceAccountName: account,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{Name: account, Image: account, SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token, err := c.api.CoreV1().ServiceAccounts(plugin).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			Audiences:      []string{contract.Audience},
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if len(data) == 0 {
		t.Fatalf("nothing to write to %s", filepath.Base(path))
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// safeBuffer is a log that is read while it is written.
type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
