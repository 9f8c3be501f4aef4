package install_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kandev/plugin-host/hack/controlplane"
)

// The releases, as docs/howto/install.md names them.
const (
	crdRelease  = host + "-crds"
	mainRelease = host
	// secretKeys is the Secret with the keys of plugins' secrets.
	secretKeys = host + "-secret-keys"
	// uninstallTime is how long each step of an uninstall may take.
	uninstallTime = 2 * time.Minute
)

// helm is one Helm on one cluster.
type helm struct {
	cluster
	binary string
}

func (h helm) try(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return try(t, "", h.binary, append([]string{"--kubeconfig", h.kubeconfig, "--namespace", namespace}, args...)...)
}

func (h helm) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := h.try(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// define runs a command of the definitions' chart, and lists each kind once, as in every
// cluster the garbage collector does. The API server itself is slow otherwise: if it has to
// delete a definition whose objects nobody has read, the first list of its own fails, and a
// second attempt may come only after five minutes.
func (h helm) define(t *testing.T, args ...string) {
	t.Helper()
	h.run(t, args...)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for file := range contents(t, crdChartDir+"/files") {
		group, plural, _ := strings.Cut(strings.TrimSuffix(file, ".yaml"), "_")
		path := "/apis/" + group + "/v1alpha1/" + plural
		for {
			err := h.api.Discovery().RESTClient().Get().AbsPath(path).Do(ctx).Error()
			if err == nil {
				break
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("list %s: %v", path, err)
			}
		}
	}
}

// TestHelm3 and TestHelm4 install, upgrade, roll back and uninstall both charts in every
// order, in a cluster that collects garbage and deletes namespaces; plugin-host runs, and
// a plugin has a grant.
func TestHelm3(t *testing.T) {
	t.Parallel()
	lifecycle(t, "helm")
}

func TestHelm4(t *testing.T) {
	t.Parallel()
	lifecycle(t, "helm4")
}

func lifecycle(t *testing.T, name string) {
	t.Helper()
	h := helm{startWith(t, controlplane.Options{ControllerManager: true}), name}
	h.definePeers(t)
	binary := buildHost(t)
	crds, chart := older(t)
	h.createNamespace(t, namespace, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	t.Run("the API server takes every set of values", func(t *testing.T) { h.strictly(t) })
	t.Run("the definitions come first", func(t *testing.T) { h.definitionsComeFirst(t) })
	t.Run("upgrade and rollback keep what is granted", func(t *testing.T) { h.upgrades(t, binary, crds, chart) })
	t.Run("uninstall in order", func(t *testing.T) { h.uninstallsInOrder(t, binary) })
	t.Run("uninstall the definitions first", func(t *testing.T) { h.uninstallsDefinitionsFirst(t, binary) })
	t.Run("uninstall the namespace first", func(t *testing.T) { h.uninstallsNamespaceFirst(t, binary) })
	if name == "helm4" {
		t.Run("take over what kubectl and Helm 3 installed", func(t *testing.T) { h.takesOver(t, crds, chart) })
	}
}

// definePeers gives the cluster the real definitions of what the chart's optional
// objects are: cert-manager's and the Prometheus operator's.
func (c cluster) definePeers(t *testing.T) {
	t.Helper()
	for _, peer := range []struct{ module, file string }{
		{"github.com/cert-manager/cert-manager", "deploy/crds/cert-manager.io_certificates.yaml"},
		{"github.com/prometheus-operator/prometheus-operator", "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml"},
		{"github.com/prometheus-operator/prometheus-operator", "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"},
	} {
		// A file of the module's, which isn't built: the module proxy has it.
		cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", peer.module)
		cmd.Dir = filepath.Join("testdata", "peers")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("download %s: %v\n%s", peer.module, err, out)
		}
		var module struct {
			Dir string `json:"Dir"`
		}
		if err := json.Unmarshal(out, &module); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(module.Dir, filepath.FromSlash(peer.file))
		c.kubectl(t, "apply", "--server-side", "-f", file)
		c.kubectl(t, "wait", "--for=condition=Established", "--timeout=30s", "-f", file)
	}
}

// strictly renders the charts and asks the API server about each object, which refuses
// a field that it doesn't know or that is there twice.
func (h helm) strictly(t *testing.T) {
	t.Helper()
	charts := map[string]string{crdChartDir + "/values.yaml": crdChartDir}
	for _, values := range valuesFiles(t) {
		charts[values] = chartDir
	}
	for values, chart := range charts {
		text := tool(t, h.binary, "template", mainRelease, chart, "--namespace", namespace, "--kube-version", kubernetes, "--values", values)
		kubectl := []string{"--kubeconfig", h.kubeconfig, "--cache-dir", t.TempDir(), "--namespace", namespace}
		out, err := try(t, text, "kubectl", append(kubectl, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")...)
		if err != nil {
			t.Errorf("with %s: %v", values, err)
		} else if got, want := strings.Count(out, "serverside-applied"), len(parse(t, text)); got != want {
			t.Errorf("with %s the API server took %d of %d objects", values, got, want)
		}
	}
	// Otherwise the above would say nothing.
	bad := "apiVersion: cert-manager.io/v1\nkind: Certificate\nmetadata: {name: bad}\n" +
		"spec: {secretName: s, issuerRef: {name: i}, dnsNames: [a.example.com], keySize: 256}\n"
	if _, err := try(t, bad, "kubectl", "--kubeconfig", h.kubeconfig, "--cache-dir", t.TempDir(), "--namespace", namespace,
		"apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"); err == nil || !strings.Contains(err.Error(), "keySize") {
		t.Errorf("a Certificate with an unknown field is answered with %v", err)
	}
}

// definitionsComeFirst: without them an install stops with a reason; and one plugin host
// serves a cluster.
func (h helm) definitionsComeFirst(t *testing.T) {
	t.Helper()
	if _, err := h.try(t, "install", mainRelease, chartDir); err == nil || !strings.Contains(err.Error(), "install the chart plugin-host-crds first") {
		t.Errorf("without the definitions an install is answered with %v", err)
	}
	h.define(t, "install", crdRelease, crdChartDir, "--set", "keep=false")
	h.run(t, "install", mainRelease, chartDir)
	if err := h.certificateFits(t.Context(), namespace); err != nil {
		t.Error(err)
	}
	if err := h.cursorKeyFits(t.Context(), namespace); err != nil {
		t.Error(err)
	}
	if _, err := h.try(t, "install", "second", chartDir, "--namespace", "default"); err == nil ||
		!strings.Contains(err.Error(), "cannot be imported into the current release") {
		t.Errorf("a second plugin host in one cluster is answered with %v", err)
	}
	h.run(t, "uninstall", mainRelease)
	h.run(t, "uninstall", crdRelease)
	h.clear(t)
}

// upgrades goes from an older version of both charts to this one and back.
func (h helm) upgrades(t *testing.T, binary, crds, chart string) {
	t.Helper()
	h.define(t, "install", crdRelease, crds)
	h.run(t, "install", mainRelease, chart)
	p := h.installed(t, binary)
	r := h.startHost(t, p)
	h.grant(t)
	before, secrets := h.objects(t), h.secrets(t)
	// Somebody else's field on an object of the release.
	h.kubectl(t, "--namespace", namespace, "rollout", "restart", "deployment/"+host)

	unchanged := func(step string, current bool) {
		t.Helper()
		if after := h.objects(t); !maps.Equal(before, after) {
			t.Errorf("%s changed objects:\n%v\n%v", step, before, after)
		}
		if !maps.Equal(secrets, h.secrets(t)) {
			t.Errorf("%s changed keys", step)
		}
		if got := h.isCurrent(t); got != [2]bool{current, current} {
			t.Errorf("after %s the definitions and the roles are of this version: %v, want %v", step, got, current)
		}
	}
	h.run(t, "upgrade", crdRelease, crdChartDir)
	h.run(t, "upgrade", mainRelease, chartDir)
	unchanged("an upgrade", true)
	// The Deployment would have replaced the process.
	r.stop(t)
	r = h.startHost(t, h.installed(t, binary, p.dir))
	h.ready(t)
	unchanged("a new process", true)
	h.scrapes(t, r, h.rotates(t, r, p))
	h.run(t, "rollback", mainRelease, "1")
	h.run(t, "rollback", crdRelease, "1")
	unchanged("a rollback", false)

	r.stop(t)
	h.run(t, "uninstall", mainRelease)
	out := h.run(t, "uninstall", crdRelease)
	if !strings.Contains(out, "plugininstallations.plugins.kandev.ai") {
		t.Errorf("Helm doesn't say that it keeps the definitions: %s", out)
	}
	if after := h.objects(t); !maps.Equal(before, after) {
		t.Errorf("an uninstall that keeps the definitions changed objects:\n%v\n%v", before, after)
	}
	// Kept, they are taken up again, and can be let go.
	h.define(t, "install", crdRelease, crdChartDir, "--set", "keep=false")
	h.run(t, "uninstall", crdRelease)
	h.clear(t)
}

// rotates gives the running process another certificate of another authority, which it
// returns: no restart, and no moment without one of the two.
func (h helm) rotates(t *testing.T, r running, p program) (authority []byte) {
	t.Helper()
	next := chartSecrets(t)
	if !r.serves(t, p.secrets["ca.crt"]) || r.serves(t, next["ca.crt"]) {
		t.Fatal("it doesn't serve with the certificate of its Secret")
	}
	mount(t, filepath.Join(p.dir, "tls"), next, "tls.crt", "tls.key")
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !r.serves(t, next["ca.crt"]) {
		if !r.serves(t, p.secrets["ca.crt"]) && !r.serves(t, next["ca.crt"]) {
			t.Fatal("it serves with neither certificate")
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("it doesn't take up a new certificate")
		}
	}
	return next["ca.crt"]
}

// scrapes reads the metrics as the chart's ServiceMonitor says: verified by the Secret's
// authority, and with a token of who may have them. Nobody else gets any.
func (h helm) scrapes(t *testing.T, r running, authority []byte) {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		t.Fatal("the authority holds no certificate")
	}
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: roots, ServerName: host + "." + namespace + ".svc", MinVersion: tls.VersionTLS13,
	}}}
	defer client.CloseIdleConnections()
	h.kubectl(t, "--namespace", namespace, "create", "serviceaccount", "scraper")
	h.kubectl(t, "create", "clusterrolebinding", "scraper", "--clusterrole=plugin-host-metrics-reader", "--serviceaccount="+namespace+":scraper")
	for account, want := range map[string]int{"scraper": http.StatusOK, "default": http.StatusForbidden, "": http.StatusUnauthorized} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.metrics+"/metrics", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if account != "" {
			request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(h.kubectl(t, "--namespace", namespace, "create", "token", account)))
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != want || (want == http.StatusOK) != strings.Contains(string(text), "plugin_host_") {
			t.Errorf("the metrics for %q: %s, %v, want %d\n%.300s", account, response.Status, err, want, text)
		}
	}
	h.kubectl(t, "delete", "clusterrolebinding", "scraper")
	h.kubectl(t, "--namespace", namespace, "delete", "serviceaccount", "scraper")
}

func (h helm) uninstallsInOrder(t *testing.T, binary string) {
	t.Helper()
	r := h.installAll(t, binary)
	r.stop(t)
	h.within(t, "the main chart", func() { h.run(t, "uninstall", mainRelease, "--wait", "--timeout=2m") })
	h.leaves(t, crdRelease, keptInNamespace()...)
	if h.objects(t)["approval"] == "" {
		t.Error("the approval went with the main chart")
	}
	h.within(t, "the definitions", func() { h.run(t, "uninstall", crdRelease, "--wait", "--timeout=2m") })
	h.leaves(t, "", keptInNamespace()...)
	h.clear(t)
}

// uninstallsDefinitionsFirst takes them away under a process that watches them.
func (h helm) uninstallsDefinitionsFirst(t *testing.T, binary string) {
	t.Helper()
	r := h.installAll(t, binary)
	h.within(t, "the definitions", func() { h.run(t, "uninstall", crdRelease, "--wait", "--timeout=2m") })
	if out := h.kubectl(t, "get", "crd", "-o", "name"); strings.Contains(out, "kandev") {
		t.Errorf("left of the definitions: %s", out)
	}
	h.within(t, "the main chart", func() { h.run(t, "uninstall", mainRelease, "--wait", "--timeout=2m") })
	h.within(t, "the process", func() { r.stop(t) })
	h.leaves(t, "", keptInNamespace()...)
	h.clear(t)
}

// uninstallsNamespaceFirst deletes the namespaces of the workspace, of the plugin and of
// plugin-host itself, whose releases go with it; the page says how to remove the rest.
func (h helm) uninstallsNamespaceFirst(t *testing.T, binary string) {
	t.Helper()
	r := h.installAll(t, binary)
	h.within(t, "the namespaces", func() {
		h.kubectl(t, "delete", "namespace", "payments", "plugin-standup", namespace, "--timeout=2m")
	})
	h.within(t, "the process", func() { r.stop(t) })
	if _, err := h.try(t, "uninstall", mainRelease); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("an uninstall is answered with %v: has the release outlived its namespace?", err)
	}
	sh := h.shell(t, "ada@example.com")
	commands := 0
	for _, block := range blocks(t, "upgrade-and-uninstall.md") {
		if block.heading == "When the namespace went first" {
			h.within(t, "the rest", func() { sh(t, block.text) })
			commands++
		}
	}
	if commands == 0 {
		t.Error("the page has no commands for it")
	}
	h.leaves(t, "")
}

// takesOver: what kubectl applied client-side is taken by Helm 3, and its releases are
// upgraded by Helm 4.
func (c cluster) takesOver(t *testing.T, crds, chart string) {
	t.Helper()
	three, four := helm{c, "helm"}, helm{c, "helm4"}
	c.createNamespace(t, namespace, nil)
	c.kubectl(t, "apply", "-f", filepath.Join(crds, "files"))
	if _, err := three.try(t, "install", crdRelease, crdChartDir); err == nil {
		t.Error("Helm takes what isn't its own without being told to")
	}
	own := []string{"install", crdRelease, crdChartDir, "--take-ownership", "--set", "keep=false"}
	if _, err := four.try(t, own...); err == nil || !strings.Contains(err.Error(), "conflict") {
		t.Errorf("Helm 4 takes over other texts than its own: %v; the page says otherwise", err)
	}
	four.define(t, append(own, "--force-conflicts", "--replace")...)
	four.run(t, "uninstall", crdRelease, "--wait", "--timeout=2m")

	c.kubectl(t, "apply", "-f", filepath.Join(crds, "files"))
	three.run(t, "install", crdRelease, crds, "--take-ownership", "--set", "keep=false")
	three.run(t, "install", mainRelease, chart)
	secrets := c.secrets(t)
	four.define(t, "upgrade", crdRelease, crdChartDir, "--set", "keep=false")
	four.run(t, "upgrade", mainRelease, chartDir)
	if got := c.isCurrent(t); got != [2]bool{true, true} {
		t.Errorf("the definitions and the roles are of this version: %v", got)
	}
	if !maps.Equal(secrets, c.secrets(t)) {
		t.Error("Helm 4 changed keys")
	}
	four.run(t, "uninstall", mainRelease, "--wait", "--timeout=2m")
	four.run(t, "uninstall", crdRelease, "--wait", "--timeout=2m")
	c.leaves(t, "", keptInNamespace()...)
}

// older makes both charts as an earlier version of them could have been: without the
// printer columns and a role, and with another text.
func older(t *testing.T) (crds, chart string) {
	t.Helper()
	dir := t.TempDir()
	for _, from := range []string{crdChartDir, chartDir} {
		to := filepath.Join(dir, filepath.Base(from))
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
		edit(t, filepath.Join(to, "Chart.yaml"), func(chart map[string]any) { chart["version"], chart["appVersion"] = "0.0.9", "0.0.9" })
	}
	crds, chart = filepath.Join(dir, filepath.Base(crdChartDir)), filepath.Join(dir, filepath.Base(chartDir))
	edit(t, filepath.Join(crds, "files", "plugins.kandev.ai_plugininstallations.yaml"), func(crd map[string]any) {
		spec, _ := crd["spec"].(map[string]any)
		versions, _ := spec["versions"].([]any)
		version, _ := versions[0].(map[string]any)
		delete(version, "additionalPrinterColumns")
		validation, _ := version["schema"].(map[string]any)
		root, _ := validation["openAPIV3Schema"].(map[string]any)
		root["description"] = "What it was once said to be."
	})
	if err := os.Remove(filepath.Join(chart, "files", "rbac", "viewer_role.yaml")); err != nil {
		t.Fatal(err)
	}
	return crds, chart
}

func edit(t *testing.T, path string, change func(map[string]any)) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	change(object)
	if text, err = yaml.Marshal(object); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// isCurrent says whether the definitions and the roles in the cluster are of this
// version, not of the one that older makes.
func (c cluster) isCurrent(t *testing.T) [2]bool {
	t.Helper()
	columns := c.kubectl(t, "get", "crd", "plugininstallations.plugins.kandev.ai",
		"-o", "jsonpath={.spec.versions[0].additionalPrinterColumns[*].name}")
	_, err := c.api.RbacV1().ClusterRoles().Get(t.Context(), "plugin-host-viewer", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return [2]bool{strings.Contains(columns, "Age"), err == nil}
}

// installAll installs both charts so that an uninstall takes all, starts plugin-host and
// grants.
func (h helm) installAll(t *testing.T, binary string) running {
	t.Helper()
	h.define(t, "install", crdRelease, crdChartDir, "--set", "keep=false")
	h.run(t, "install", mainRelease, chartDir)
	r := h.startHost(t, h.installed(t, binary))
	h.grant(t)
	return r
}

// installed is the program that the cluster's Deployment describes. A folder of an
// earlier process has its store.
func (h helm) installed(t *testing.T, binary string, dir ...string) program {
	t.Helper()
	d, err := h.api.AppsV1().Deployments(namespace).Get(t.Context(), host, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := program{binary: binary, args: d.Spec.Template.Spec.Containers[0].Args, secrets: map[string][]byte{}}
	for key, value := range h.secrets(t) {
		_, key, _ = strings.Cut(key, "/")
		p.secrets[key] = []byte(value)
	}
	sealing, err := h.api.CoreV1().Secrets(namespace).Get(t.Context(), secretKeys, metav1.GetOptions{})
	if err != nil {
		if !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	} else {
		p.secrets[secretKeys] = sealing.Data["keys"]
	}
	if dir == nil {
		dir = []string{t.TempDir()}
	}
	p.dir = dir[0]
	return p
}

func (c cluster) secrets(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, name := range []string{"plugin-host-tls", "plugin-host-cursor-keys"} {
		secret, err := c.api.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range secret.Data {
			found[name+"/"+key] = string(value)
		}
	}
	return found
}

// grant installs the plugin of config/samples and grants it what the sample grants, as
// the user of the kubeconfig.
func (c cluster) grant(t *testing.T) {
	t.Helper()
	dir := filepath.Join(configDir, "samples")
	c.kubectl(t, "apply", "--server-side", "-f", filepath.Join(dir, "plugin_namespace.yaml"),
		"-f", filepath.Join(dir, "workspace.yaml"), "-f", filepath.Join(dir, "plugininstallation.yaml"))
	c.kubectl(t, "wait", "plugininstallation/standup", "--for=condition=Ready", "--timeout=30s")
	me, err := c.api.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "plugincapabilityapproval.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var approval map[string]any
	if err := yaml.Unmarshal(text, &approval); err != nil {
		t.Fatal(err)
	}
	spec, _ := approval["spec"].(map[string]any)
	spec["approvedBy"] = me.Status.UserInfo.Username
	spec["installationID"] = c.kubectl(t, "get", "plugininstallation", "standup", "-o", "jsonpath={.status.installationID}")
	if text, err = json.Marshal(approval); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "approval.json")
	writeFile(t, path, text)
	c.kubectl(t, "apply", "--server-side", "-f", path)
	c.ready(t)
}

// objects is what authority consists of: the identity of each object, and what it says.
func (c cluster) objects(t *testing.T) map[string]string {
	t.Helper()
	const said = `{.metadata.uid} {.spec} {.status.installationID} {.status.state} {.status.revision} {.status.act} {.status.effectiveCapabilities}`
	return map[string]string{
		"installation": c.kubectl(t, "get", "plugininstallation", "standup", "-o", "jsonpath="+said),
		"approval":     c.kubectl(t, "--namespace", "payments", "get", "pca", "standup", "-o", "jsonpath="+said),
		"events":       c.kubectl(t, "get", "pcae", "-o", "jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.spec}{end}"),
	}
}

// within runs a step and demands that it ends in time.
func (c cluster) within(t *testing.T, what string, step func()) {
	t.Helper()
	start := time.Now()
	step()
	if took := time.Since(start); took > uninstallTime {
		t.Errorf("%s took %s to go", what, took)
	}
}

// keptInNamespace is what an uninstall leaves there: the store, what tells a lost or an
// older store, and whose turn it is.
func keptInNamespace() []string {
	return []string{
		"PersistentVolumeClaim/plugin-host-data", "Secret/" + secretKeys, "ConfigMap/plugin-host-store", "Lease/plugin-host.plugins.kandev.ai",
	}
}

// leaves waits until the cluster has nothing of plugin-host but what is kept ("Kind/name")
// and what is of a release, and nothing that is being deleted.
func (c cluster) leaves(t *testing.T, release string, kept ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), uninstallTime)
	defer cancel()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		left := c.ours(t, release, kept)
		if len(left) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("left behind or stuck: %s", strings.Join(left, ", "))
		}
	}
}

// ours lists all objects of the cluster that are of plugin-host, or that are being deleted.
func (c cluster) ours(t *testing.T, release string, kept []string) []string {
	t.Helper()
	lists, err := c.api.Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	quiet := rest.CopyConfig(c.config)
	quiet.WarningHandler = rest.NoWarnings{} // it lists what is deprecated too
	client, err := metadata.NewForConfig(quiet)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || resource.Kind == "Event" {
				continue
			}
			items, err := client.Resource(version.WithResource(resource.Name)).List(t.Context(), metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				continue // a definition that has just gone
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range items.Items {
				own := version.Group == "plugins.kandev.ai" || item.Namespace == namespace ||
					item.Namespace == "" && strings.HasPrefix(item.Name, host) || item.Labels["app.kubernetes.io/part-of"] == host
				switch {
				case item.DeletionTimestamp != nil:
				case !own, item.Name == namespace, slices.Contains(kept, resource.Kind+"/"+item.Name), item.Name == "default" && resource.Kind == "ServiceAccount", item.Name == "kube-root-ca.crt":
					continue
				case release != "" && (item.Labels["app.kubernetes.io/instance"] == release || item.Labels["name"] == release ||
					version.Group == "plugins.kandev.ai"):
					continue
				}
				found = append(found, resource.Kind+" "+item.Namespace+"/"+item.Name)
			}
		}
	}
	return found
}

// clear deletes what an uninstall leaves in the namespace, on purpose.
func (c cluster) clear(t *testing.T) {
	t.Helper()
	c.kubectl(t, "--namespace", namespace, "delete", "persistentvolumeclaims,leases,configmaps", "--all", "--timeout=2m")
	c.kubectl(t, "--namespace", namespace, "delete", "secret", secretKeys, "--ignore-not-found")
	c.leaves(t, "")
}

// ready waits until the sample's approval is in force.
func (c cluster) ready(t *testing.T) {
	t.Helper()
	if _, err := try(t, "", "kubectl", "--kubeconfig", c.kubeconfig, "--namespace", "payments",
		"wait", "pca/standup", "--for=condition=Ready", "--timeout=30s"); err != nil {
		t.Fatalf("%v\n%s", err, c.kubectl(t, "--namespace", "payments", "get", "pca", "standup", "-o", "yaml"))
	}
}
