package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
	"github.com/kandev/plugin-host/test/world"
)

const (
	workspace = "team-a"
	elsewhere = "team-b"
	apiToken  = "hush-hush"
)

// liveHost is a Host on a control plane, with the known content and three installations.
type liveHost struct {
	*testing.T
	world   *world.World
	given   *description
	address string
	folder  string
}

// newLiveHost starts the Host with the workspaces, imports the rest of the content while
// it is down, and starts it anew with a vault, which the world has none of.
func newLiveHost(t *testing.T) *liveHost {
	t.Helper()
	bin := t.TempDir()
	compile := exec.Command("go", "build", "-o", bin+"/", "./cmd/plugin-host", "./test/demo/sample-plugin")
	compile.Dir = "../.."
	if text, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("build the Host: %v\n%s", err, text)
	}
	r := &liveHost{T: t, folder: t.TempDir()}
	seed := filepath.Join(r.folder, "workspaces.jsonl")
	isWorkspace := func(kind string) bool { return kind == "workspace" }
	r.writeContent(seed, isWorkspace)
	var err error
	r.world, err = world.Start(t.Context(), world.Options{Bin: bin, Seed: seed})
	r.must(err)
	t.Cleanup(func() {
		if err := r.world.Stop(); err != nil {
			t.Error(err)
		}
	})
	r.must(r.world.Host.Stop())
	content := filepath.Join(r.folder, "content.jsonl")
	r.writeContent(content, func(kind string) bool { return !isWorkspace(kind) })
	load := exec.Command(filepath.Join(bin, "plugin-host"), "import", "--sqlite-path="+r.world.Database, content)
	if text, err := load.CombinedOutput(); err != nil {
		t.Fatalf("import the content: %v\n%s", err, text)
	}
	r.given = &description{Workspace: workspace, ForeignWorkspace: elsewhere, Vault: true}
	r.given.Host = build{Commit: commit()}
	r.start()
	r.install()
	return r
}

// commit is the tree's own, where it can be told.
func commit() string {
	text, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func (r *liveHost) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// writeContent writes documents of the known content.
func (r *liveHost) writeContent(path string, wanted func(kind string) bool) {
	r.Helper()
	var text bytes.Buffer
	r.must(knownContent(workspace, elsewhere, "kandev.full").write(&text, wanted))
	r.must(os.WriteFile(path, text.Bytes(), 0o600))
}

// start runs the Host with what the world made for it, and a vault besides.
func (r *liveHost) start() {
	r.Helper()
	key := make([]byte, 32)
	_, err := rand.Read(key)
	r.must(err)
	keys := filepath.Join(r.folder, "secret-keys")
	r.must(os.WriteFile(keys, []byte(base64.StdEncoding.EncodeToString(key)+"\n"), 0o600))
	health := freeAddress(r.T)
	r.address = r.world.Address
	log, err := os.Create(filepath.Join(r.folder, "host.log"))
	r.must(err)
	host := exec.Command(r.world.Binary("plugin-host"),
		"--kubeconfig="+r.world.Path("host.kubeconfig"), "--store=sqlite", "--sqlite-path="+r.world.Database,
		"--grpc-listen="+r.address, "--health-listen="+health, "--metrics-listen=0",
		"--tls-cert-file="+r.world.Path("tls.crt"), "--tls-key-file="+r.world.Path("tls.key"),
		"--cursor-key-file="+r.world.Path("cursor-keys"), "--secret-key-file="+keys,
		"--leader-election-namespace=plugin-host-system")
	host.Stdout, host.Stderr = log, log
	r.must(host.Start())
	ended := make(chan error, 1)
	go func() { ended <- host.Wait() }()
	r.Cleanup(func() {
		if err := host.Process.Signal(syscall.SIGTERM); err == nil {
			select {
			case err := <-ended:
				if err != nil {
					r.Error("the Host ended with ", err)
				}
			case <-time.After(world.Patience):
				r.Error("the Host doesn't end")
				_ = host.Process.Kill()
			}
		}
		if r.Failed() {
			text, _ := os.ReadFile(log.Name())
			r.Logf("the Host's log ends with:\n%s", text[max(0, len(text)-4000):])
		}
		_ = log.Close()
	})
	err = world.Await(r.Context(), "the Host is ready", func() (bool, string, error) {
		request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+health+"/readyz", http.NoBody)
		if err != nil {
			return false, "", err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, err.Error(), nil //nolint:nilerr // it is tried again
		}
		return response.StatusCode == http.StatusOK, response.Status, response.Body.Close()
	})
	if err != nil {
		text, _ := os.ReadFile(log.Name())
		r.Fatalf("%v\n%s", err, text)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// human is a client of a person. An admin may do everything.
func (r *liveHost) human(name string, admin bool) client.Client {
	r.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", r.world.Kubeconfig)
	r.must(err)
	config.Impersonate.UserName = name
	if admin {
		config.Impersonate.Groups = []string{"system:masters"}
	}
	c, err := client.New(config, client.Options{Scheme: r.world.API.Scheme()})
	r.must(err)
	return c
}

var (
	reads  = []v1alpha1.LegacyReadResource{"tasks", "sessions", "workspaces", "workflows", "agent_profiles", "executor_profiles", "repositories", "messages", "interactions"}
	writes = []v1alpha1.LegacyWriteResource{"tasks", "messages", "interactions"}
	// needed are the capabilities that the served methods ask.
	needed = []string{
		"host.v2.read:workspaces", "host.v2.read:workflows", "host.v2.read:tasks", "host.v2.read:task_relations", "host.v2.read:task_transitions",
		"host.v2.read:sessions", "host.v2.read:messages", "host.v2.read:interactions", "host.v2.read:task_inbox", "host.v2.write:tasks",
	}
)

// install makes the four installations, their pods and tokens, grants and approvals,
// and waits until all of it is in force.
func (r *liveHost) install() {
	r.Helper()
	everything := &v1alpha1.LegacyManifest{
		APIRead: reads, APIWrite: writes, State: true, Secrets: true, AgentInvoke: true, Events: []string{"plugin.kandev.full.*"},
	}
	declared := []string{"state", "secrets"}
	for _, resource := range reads {
		declared = append(declared, "api_read:"+string(resource))
	}
	var writers []string
	for _, resource := range writes {
		writers = append(writers, "api_write:"+string(resource))
	}
	declared = append(declared, writers...)
	events := everything.Events
	r.given.Installations = []installation{
		{
			Name: "full", PluginID: "kandev.full", Declares: declared, Writers: writers, Events: events,
			Approvals: map[string][]string{workspace: needed}, Config: map[string]any{"color": "blue", "api_token": apiToken},
			Secrets: map[string]string{"plugin:kandev.full:config:api_token": apiToken, "secretRefs/api_token": apiToken},
		},
		{
			Name: "other", PluginID: "kandev.other", Declares: declared, Events: events,
			Approvals: map[string][]string{workspace: needed, elsewhere: {"host.v2.read:tasks"}},
		},
		{Name: "bare", PluginID: "kandev.bare", Approvals: map[string][]string{}},
		{Name: "twin", PluginID: "kandev.full", Declares: declared, Writers: writers, Events: events, Approvals: map[string][]string{}},
	}
	for i := range r.given.Installations {
		of := &r.given.Installations[i]
		manifest := v1alpha1.PluginManifest{}
		for _, id := range needed {
			manifest.Capabilities = append(manifest.Capabilities, v1alpha1.ManifestCapability{ID: v1alpha1.CapabilityID(id), Reason: "The suite reads and writes."})
		}
		if len(of.Declares) > 0 {
			manifest.Legacy = everything
		}
		r.installOne(of, manifest)
	}
	conn, err := dial(r.address, r.world.CAFile)
	r.must(err)
	defer func() { _ = conn.Close() }()
	host := pluginv1.NewHostClient(conn)
	for i := range r.given.Installations {
		of := &r.given.Installations[i]
		r.must(world.Await(r.Context(), of.Name+" may do what it was granted", func() (bool, string, error) {
			return inForce(r.Context(), host, of)
		}))
	}
}

// inForce tells whether an installation may do what it was granted.
func inForce(ctx context.Context, host pluginv1.HostClient, of *installation) (bool, string, error) {
	standing, err := host.GetCapabilityContext(as(ctx, of.token), &pluginv1.GetCapabilityContextRequest{RequestId: "await"})
	if err != nil {
		return false, err.Error(), nil //nolint:nilerr // it is tried again
	}
	active := 0
	for _, w := range standing.GetWorkspaces() {
		if len(w.GetCapabilityIds()) == len(of.Approvals[w.GetWorkspaceId()]) {
			active++
		}
	}
	_, err = host.UpdateTask(as(ctx, of.token), &pluginv1.UpdateTaskRequest{})
	want := "id is required"
	if refusal := of.refusalOfV1([]string{"api_write:tasks"}); refusal != "" {
		want = refusal
	}
	got := answer{err: err}.text()
	_, err = host.GetConfig(as(ctx, of.token), &pluginv1.GetConfigRequest{})
	return active == len(of.Approvals) && got == want && err == nil, fmt.Sprintf("%v; %s; %v", standing, got, err), nil
}

func (r *liveHost) installOne(of *installation, manifest v1alpha1.PluginManifest) {
	r.Helper()
	ctx, api := r.Context(), r.world.API
	namespace := "plugin-" + of.Name
	r.must(api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	r.must(api.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: of.Name, Namespace: namespace}}))
	o := &v1alpha1.PluginInstallation{
		ObjectMeta: metav1.ObjectMeta{Name: of.Name},
		Spec: v1alpha1.PluginInstallationSpec{
			PluginID: of.PluginID, Version: "1.0.0", Manifest: manifest,
			ServiceAccountRef: v1alpha1.ServiceAccountReference{Namespace: namespace, Name: of.Name},
		},
	}
	r.configure(o, of)
	r.must(api.Create(ctx, o))
	r.must(world.Await(ctx, of.Name+" is ready", func() (bool, string, error) {
		if err := api.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return false, "", fmt.Errorf("read the installation: %w", err)
		}
		ready := world.Condition(o.Status.Conditions, v1alpha1.ConditionReady, o.Generation)
		return ready.Status == metav1.ConditionTrue, world.Describe(o.Status.Conditions), nil
	}))
	if len(of.Writers) > 0 {
		before := o.DeepCopy()
		grant := v1alpha1.CompatibilityGrant{InstallationID: o.Status.InstallationID, ApprovedBy: world.Ada, Reason: "The suite writes by v1."}
		o.Spec.Compatibility = &v1alpha1.Compatibility{}
		for _, resource := range writes {
			o.Spec.Compatibility.LegacyWriters = append(o.Spec.Compatibility.LegacyWriters, v1alpha1.LegacyWriter{Resource: resource, CompatibilityGrant: grant})
		}
		r.must(r.human(world.Ada, true).Patch(ctx, o, client.MergeFrom(before)))
	}
	for in, capabilities := range of.Approvals {
		by := world.Ada
		if in == elsewhere {
			by = world.Grace
		}
		approval := &v1alpha1.PluginCapabilityApproval{
			ObjectMeta: metav1.ObjectMeta{Name: of.Name, Namespace: in},
			Spec: v1alpha1.PluginCapabilityApprovalSpec{
				InstallationName: of.Name, InstallationID: o.Status.InstallationID, ManifestDigest: o.Status.ManifestDigest,
				WorkspaceID: in, State: v1alpha1.StateActive, ApprovedBy: by, Reason: "The suite reads and writes.",
			},
		}
		for _, id := range capabilities {
			approval.Spec.Capabilities = append(approval.Spec.Capabilities, v1alpha1.CapabilityID(id))
		}
		r.must(r.human(by, false).Create(ctx, approval))
	}
	token, err := r.world.TokenFor(ctx, namespace, of.Name)
	r.must(err)
	of.TokenFile = of.Name + ".token"
	of.token = token
	r.must(os.WriteFile(filepath.Join(r.folder, of.TokenFile), []byte(token), 0o600))
}

// configure gives an installation its configuration, with a secret in it that the Host
// is let read.
func (r *liveHost) configure(o *v1alpha1.PluginInstallation, of *installation) {
	r.Helper()
	if len(of.Config) == 0 {
		return
	}
	ctx, api, namespace := r.Context(), r.world.API, o.Spec.ServiceAccountRef.Namespace
	const secret, right = "conformance", "plugin-host-plugin-secrets"
	r.must(api.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: secret, Namespace: namespace}, StringData: map[string]string{"token": apiToken},
	}))
	r.must(api.Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: right, Namespace: namespace},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}, ResourceNames: []string{secret}}},
	}))
	r.must(api.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: right, Namespace: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: right},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "plugin-host-system", Name: "plugin-host"}},
	}))
	o.Spec.Manifest.ConfigSchema = &apiextensionsv1.JSON{Raw: []byte(
		`{"type":"object","properties":{"color":{"type":"string"},"api_token":{"type":"string","secret":true}}}`)}
	o.Spec.Config = &apiextensionsv1.JSON{Raw: []byte(`{"color":"blue"}`)}
	o.Spec.SecretRefs = []v1alpha1.SecretReference{{Name: "api_token", SecretName: secret, Key: "token"}}
}

// drive runs the command, and returns its status and record.
func (r *liveHost) drive() (status int, found record) {
	r.Helper()
	text, err := json.Marshal(r.given)
	r.must(err)
	file, kept := filepath.Join(r.folder, "description.json"), filepath.Join(r.folder, "record.json")
	r.must(os.WriteFile(file, text, 0o600))
	var out, complain strings.Builder
	status = start([]string{
		"-host=" + r.address, "-ca=" + r.world.CAFile, "-description=" + file, "-record=" + kept, "-commit=" + commit(),
	}, &out, &complain)
	r.Log(strings.TrimSpace(complain.String()))
	if status == 2 {
		r.FailNow()
	}
	text, err = os.ReadFile(kept)
	r.must(err)
	r.must(json.Unmarshal(text, &found))
	return status, found
}

// TestTheHostConforms drives the real Host, as the command does, and demands that
// every case holds; then that the suite finds it out when the Host isn't as it is said
// to be.
func TestTheHostConforms(t *testing.T) {
	r := newLiveHost(t)
	status, found := r.drive()
	for _, e := range found.Cases {
		if e.Result == failed {
			t.Errorf("%s: %s: %s %q: %s", e.Method, e.Name, e.Code, e.Text, e.Problem)
		}
	}
	if status != 0 || found.Failed != 0 || found.Passed < 1000 || found.Suite.Commit != found.Host.Commit || found.Contract.Actual != declaredContract {
		t.Errorf("status %d, %d passed, %d failed, of %v against %v at contract %v", status, found.Passed, found.Failed, found.Suite, found.Host, found.Contract)
	}
	if keep := os.Getenv("CONFORMANCE_RECORD"); keep != "" {
		var text bytes.Buffer
		r.must(found.write(&text))
		r.must(os.WriteFile(keep, text.Bytes(), 0o600))
	}

	bare := &r.given.Installations[2]
	bare.Declares = []string{"state"}
	bare.Approvals = map[string][]string{workspace: {"host.v2.read:tasks"}}
	status, again := r.drive()
	if status != 1 {
		t.Errorf("the status is %d for a Host that isn't as described", status)
	}
	finds := map[string]bool{"GetState: called by bare": false, "GetTaskExact: called by bare in team-a": false, "GetCapabilityContext: all workspaces of bare": false}
	for i, e := range again.Cases {
		if was := found.Cases[min(i, len(found.Cases)-1)]; was.Method != e.Method || was.Name != e.Name {
			t.Fatalf("case %d was %s: %s, and is %s: %s", i, was.Method, was.Name, e.Method, e.Name)
		}
		if _, wanted := finds[e.Method+": "+e.Name]; wanted && e.Result == failed {
			finds[e.Method+": "+e.Name] = true
		}
	}
	for name, found := range finds {
		if !found {
			t.Errorf("%s: holds for a Host that isn't as described", name)
		}
	}
}

// TestEveryMethodHasCases: nobody adds a method of the service and forgets it here.
func TestEveryMethodHasCases(t *testing.T) {
	all := allCases()
	for _, name := range knownMethods() {
		if _, ok := all[name]; !ok {
			t.Errorf("%s has no cases", name)
		}
		delete(all, name)
	}
	for name := range all {
		t.Errorf("%s has cases and is no method of the service", name)
	}
}

// TestAMethodWithoutCasesFails: the run says so, too.
func TestAMethodWithoutCasesFails(t *testing.T) {
	s := &suite{record: &record{}, cases: map[string]methodCases{}}
	s.method(t.Context(), service.Methods().Get(0))
	if s.record.Failed != 1 || len(s.record.Cases) != 1 || s.record.Cases[0].Method != string(service.Methods().Get(0).Name()) {
		t.Errorf("the record is %+v", s.record)
	}
}
