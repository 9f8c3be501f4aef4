package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/hack/controlplane"
	"github.com/kandev/plugin-host/hostsvc/query"
)

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFlagsNameTheirFault(t *testing.T) {
	complete := []string{"--tls-cert-file=c", "--tls-key-file=k", "--cursor-key-file=k", "--sqlite-path=p"}
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"complete":              {complete, ""},
		"no certificate":        {complete[1:], "--tls-cert-file is required"},
		"no database":           {complete[:3], "--sqlite-path is required"},
		"no connection string":  {append([]string{"--store=postgres"}, complete...), "--postgres-dsn-file is required"},
		"another engine":        {append([]string{"--store=oracle"}, complete...), "--store: \"oracle\""},
		"an argument":           {append(complete, "serve"), "unexpected argument \"serve\""},
		"an unknown flag":       {append(complete, "--verbose"), "-verbose"},
		"no place out of a pod": {append(complete, "--kubeconfig=x", "--leader-elect=false"), "--namespace is required"},
		"no age of receipts":    {append(complete, "--receipt-retention=-1h"), "--receipt-retention: -1h0m0s is no age"},
		"no time for a lease":   {append(complete, "--lease-duration=10ms"), "--lease-duration: 10ms is less than 1s"},
		"a place for both":      {append(complete, "--kubeconfig=x", "--leader-election-namespace=n"), ""},
		"a place of its own":    {append(complete, "--kubeconfig=x", "--namespace=n"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(c.args, io.Discard)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("parse %q: %v, want %q", c.args, err, c.says)
			}
		})
	}
}

func TestCursorKeysNeverShowInErrors(t *testing.T) {
	key := base64.StdEncoding.EncodeToString(make([]byte, query.CursorKeySize))
	for name, c := range map[string]struct{ text, says string }{
		"one":       {key, ""},
		"two":       {key + "\n\n" + key + "\n", ""},
		"none":      {"\n", "no cursor key"},
		"short":     {key + "\nc2VjcmV0\n", "line 2"},
		"no base64": {"sec ret", "line 1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings{cursorKeyFile: file(t, "keys", c.text)}
			_, err := s.cursors()
			switch {
			case c.says == "" && err != nil, c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("got %v, want %q", err, c.says)
			case err != nil && (strings.Contains(err.Error(), "c2VjcmV0") || strings.Contains(err.Error(), "sec ret")):
				t.Errorf("the error holds the key: %v", err)
			}
		})
	}
}

const seeds = `---
{kind: workspace, id: payments, name: Payments}
---
{kind: workflow, workspace_id: payments, id: delivery, name: Delivery}
---
{kind: step, workspace_id: payments, workflow_id: delivery, id: todo, name: To do, is_start_step: true}
---
{kind: task, workspace_id: payments, id: t-1, workflow_step_id: todo, title: Rotate the signing key, priority: high, labels: [security]}
---
{kind: task, workspace_id: payments, id: t-2, workflow_step_id: todo, title: Tell the auditors, parent_id: t-1}
`

func TestSeedFileIsAppliedOnce(t *testing.T) {
	s := settings{store: storeSQLite, sqlitePath: filepath.Join(t.TempDir(), "host.db")}
	log := slog.New(slog.DiscardHandler)
	durable, err := open(t.Context(), s, log, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = durable.Close() })
	longer := seeds + "---\n{kind: task, workspace_id: payments, id: t-3, workflow_step_id: todo, title: Write the runbook}\n"
	for _, text := range []string{seeds, seeds, longer} {
		if err := seed(t.Context(), durable, file(t, "seeds.yaml", text), log); err != nil {
			t.Fatal(err)
		}
	}
	if err := durable.Read(t.Context(), func(s query.Snapshot) error {
		newest, _, err := s.Head("payments")
		if err != nil || newest != 2 {
			t.Errorf("the workspace is at version %d, %v; want a commit of the file, and one of what was added to it", newest, err)
		}
		for _, id := range []string{"t-1", "t-2", "t-3"} {
			if _, _, found, err := s.Task("payments", id); err != nil || !found {
				t.Errorf("task %s: found %v, %v", id, found, err)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestSeedFileNamesItsFault(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	durable, err := open(t.Context(), settings{store: storeSQLite, sqlitePath: filepath.Join(t.TempDir(), "host.db")}, log, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = durable.Close() })
	path := file(t, "seeds.yaml", strings.Replace(seeds, "parent_id: t-1", "parent_id: t-9", 1))
	err = seed(t.Context(), durable, path, log)
	if want := path + `:10: task "t-2": parent_id: is no task of the workspace`; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// The whole process, wired as in a cluster: ready once everything is complete,
// and a signal's context ends it cleanly.
func TestRunsUntilItIsTold(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	plane, err := controlplane.Start(t.Context(), controlplane.Options{CRDDirs: []string{"../../config/crd/bases"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plane.Stop() })
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := plane.WriteKubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api, err := client.New(plane.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	if err := api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "plugin-host"}}); err != nil {
		t.Fatal(err)
	}
	cert, key := keyPair(t)
	health, shown := freeAddress(t), freeAddress(t)
	s, err := parse([]string{
		"--kubeconfig=" + kubeconfig, "--leader-election-namespace=plugin-host",
		"--sqlite-path=" + filepath.Join(t.TempDir(), "host.db"), "--seed-file=" + file(t, "seeds.yaml", seeds),
		"--grpc-listen=127.0.0.1:0", "--health-listen=" + health, "--metrics-listen=" + shown, "--tls-cert-file=" + cert, "--tls-key-file=" + key,
		"--cursor-key-file=" + file(t, "keys", base64.StdEncoding.EncodeToString(make([]byte, query.CursorKeySize))),
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, s, slog.New(slog.DiscardHandler)) }()

	ready := time.NewTimer(30 * time.Second)
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v", err)
		case <-ready.C:
			t.Fatalf("not ready: %s", get(t, "http://"+health+"/readyz?verbose"))
		case <-tick.C:
		}
		if answer := get(t, "http://"+health+"/readyz?verbose"); strings.Contains(answer, "check passed") {
			for _, cause := range []string{"store", "approvals", "installations", "namespaces", "ledger"} {
				if !strings.Contains(answer, "[+]"+cause+" ok") {
					t.Errorf("readiness doesn't name %s:\n%s", cause, answer)
				}
			}
			break
		}
	}
	showsItsMetrics(t, plane, shown)
	begun := time.Now()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("with no call in flight, the end took %v", took)
	}
}

// showsItsMetrics scrapes the process as an administrator, whose token the API
// server vouches for.
func showsItsMetrics(t *testing.T, plane *controlplane.ControlPlane, address string) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "prometheus"}}
	if _, err := clients.CoreV1().ServiceAccounts("plugin-host").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := clients.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "plugin-host", Name: "prometheus"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := clients.CoreV1().ServiceAccounts("plugin-host").CreateToken(t.Context(), "prometheus", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // its certificate is this test's
	scrape := func() string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token.Status.Token)
		response, err := insecure.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%d, %v: %s", response.StatusCode, err, text)
		}
		return string(text)
	}
	lines := []string{
		"\nplugin_host_ready{check=\"lease\"} 1\n", "\nplugin_host_ready{check=\"drain\"} 1\n", "\nplugin_host_lease_remaining_seconds 1",
		"\nplugin_host_rounds_total{succeeded=\"true\"} ", "\nplugin_host_store_queue_waiting 0\n", "\nplugin_host_widening_proven 0\n",
		"\nplugin_host_certificate_expiry_timestamp_seconds ", "\nleader_election_master_status{name=\"plugin-host.plugins.kandev.ai\"} 1\n",
	}
	soon := time.NewTimer(10 * time.Second)
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		text := scrape()
		missing := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return strings.Contains(text, line) })
		if len(missing) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-soon.C:
			t.Fatalf("the metrics have no lines %q:\n%s", missing, text)
		}
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func keyPair(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return file(t, "tls.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		file(t, "tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})))
}
