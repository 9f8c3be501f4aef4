package kubectl_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/hostsvc/auditlog"
	"github.com/kandev/plugin-host/test/world"
)

// Two humans: what one approved waits for another one, and no name can be put in
// by its own bearer twice.
func TestTheSecondHumanConfirms(t *testing.T) {
	installed(t, "watched", readTasks, writeTasks)
	policy := &v1alpha1.HumanPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "two-humans"},
		Spec:       v1alpha1.HumanPolicySpec{Rules: []v1alpha1.PolicyRule{{Class: "MessagesAndTasks", FourEyes: true}}},
	}
	if err := everything.API.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := everything.API.Delete(context.WithoutCancel(t.Context()), policy); err != nil {
			t.Error(err)
		}
	})
	if err := world.Await(t.Context(), "the policy is in force", func() (bool, string, error) {
		err := everything.API.Get(t.Context(), client.ObjectKeyFromObject(policy), policy)
		active := world.Condition(policy.Status.Conditions, v1alpha1.ConditionActive, policy.Generation)
		return active.Status == metav1.ConditionTrue, world.Describe(policy.Status.Conditions), err
	}); err != nil {
		t.Fatal(err)
	}
	golden(t, "confirm-nothing", both(must(t, 1, world.Grace, "confirm", "watched", "-n", "team-a", "--yes")))
	golden(t, "approve-waits", both(must(t, 2, world.Ada, "approve", "watched", "-n", "team-a", "--all-declared", "--yes", "--reason", "x")))
	golden(t, "confirm-oneself", both(must(t, 1, world.Ada, "confirm", "watched", "-n", "team-a", "--yes")))
	golden(t, "confirm", both(must(t, 0, world.Grace, "confirm", "watched", "-n", "team-a", "--yes")))
	golden(t, "confirm-review", must(t, 0, world.Grace, "review", "watched", "-n", "team-a").Stdout)
}

// What an administrator sees who may read RBAC: who could become the plugin, and
// who could pass for an approver.
func TestReviewSaysWhoElseCouldBeThePlugin(t *testing.T) {
	installed(t, "exposed", readTasks)
	mustKube(t, "", "-n", "plugin-exposed", "create", "rolebinding", "operators", "--clusterrole=cluster-admin", "--user=eve@example.com")
	mustKube(t, "", "-n", "plugin-exposed", "create", "role", "debuggers", "--verb=create", "--resource=pods/exec")
	mustKube(t, "", "-n", "plugin-exposed", "create", "rolebinding", "debuggers", "--role=debuggers", "--group=on-call")
	mustKube(t, "", "-n", "plugin-exposed", "create", "role", "minters", "--verb=create", "--resource=serviceaccounts/token", "--resource-name=exposed")
	mustKube(t, "", "-n", "plugin-exposed", "create", "rolebinding", "minters", "--role=minters", "--serviceaccount=ci:runner")
	mustKube(t, "", "create", "clusterrole", "impersonators", "--verb=impersonate", "--resource=users")
	mustKube(t, "", "create", "clusterrolebinding", "impersonators", "--clusterrole=impersonators", "--group=support")
	golden(t, "review-people", must(t, 0, "", "review", "exposed", "-n", "team-a").Stdout)
}

func TestReviewListsWhatNobodyVerified(t *testing.T) {
	golden(t, "review-unproven-none", both(must(t, 0, world.Ada, "review", "--unproven")))
}

// A Host that says nothing for as long as somebody waits is told of as that, and
// not as a failure: what was written stays.
func TestAHostThatSaysNothingIsToldOf(t *testing.T) {
	installed(t, "unanswered", readTasks)
	stopped := everything.Host.PID()
	if err := syscall.Kill(stopped, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn := sync.OnceFunc(func() {
		if err := syscall.Kill(stopped, syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	})
	defer goOn()
	// An end on a look, and one between two.
	for _, timeout := range []string{"1s", "1050ms"} {
		r := must(t, 2, world.Ada, "approve", "unanswered", "-n", "team-a", "--all-declared", "--yes", "--timeout", timeout)
		if !strings.Contains(r.Stderr, "the Host has not said what became of it") {
			t.Errorf("it says\n%s", both(r))
		}
	}
	goOn()
	settled(t, "team-a", "unanswered", "the grant", works(readTasks))
}

// Who is called at night reads the objects and the history, and needs no right in
// the workspace to have a call explained.
func TestExplainNeedsNoRightInTheWorkspace(t *testing.T) {
	const carol = "carol@example.com"
	for _, role := range []string{"plugin-host-viewer", "plugin-host-auditor"} {
		mustKube(t, "", "create", "clusterrolebinding", "carol-"+role, "--clusterrole="+role, "--user="+carol)
	}
	installed(t, "watched-by-night", readTasks)
	explain := []string{"explain", "watched-by-night", "-n", "team-a", "--capability", readTasks}
	must(t, 1, carol, explain...) // nothing shows that the namespace is a workspace
	must(t, 0, world.Ada, "approve", "watched-by-night", "-n", "team-a", "--all-declared", "--yes")
	r := must(t, 0, carol, explain...)
	if !strings.Contains(r.Stdout, "the namespace, which you may not read") {
		t.Errorf("it doesn't say what it has not seen:\n%s", r.Stdout)
	}
	must(t, 0, world.Ada, "revoke", "watched-by-night", "-n", "team-a", "--reason", "x")
	must(t, 2, carol, explain...)
}

// The manifest that review prints is the one to commit: applied, it grants exactly
// what it lists.
func TestReviewPrintsTheManifestToCommit(t *testing.T) {
	installed(t, "printed", readTasks, readWorkflows, writeTasks)
	text := must(t, 0, world.Ada, "review", "printed", "-n", "team-a", "-o", "yaml", "--capability", writeTasks,
		"--expires-in", "30d", "--reason", "Reviewed: \"yes\"\nby two").Stdout
	golden(t, "review-yaml", text)
	git := newFolder(t)
	file := git.write("printed.yaml", text)
	mustKube(t, world.Ada, "apply", "--server-side", "--validate=strict", "-f", file)
	o := settled(t, "team-a", "printed", "the grant", works(writeTasks))
	if o.Spec.Reason != "Reviewed: \"yes\"\nby two" || o.Spec.ApprovedBy != world.Ada || o.Status.ExpiresAt == nil {
		t.Errorf("it came out as %+v", o.Spec)
	}
	// Printed again, it grants what is granted now, and for as long.
	if again := must(t, 0, world.Ada, "review", "printed", "-n", "team-a", "-o", "yaml").Stdout; !strings.Contains(again,
		`expiresAt: "`+o.Status.ExpiresAt.UTC().Format(time.RFC3339)+`"`) {
		t.Errorf("printed again, it loses its end:\n%s", again)
	} else {
		must(t, 0, world.Ada, "diff", "-f", git.write("printed.yaml", again))
	}
	golden(t, "review-yaml-via", must(t, 0, world.Ada, "review", "printed", "-n", "team-a", "-o", "yaml", "--all-declared",
		"--via", "system:serviceaccount:flux-system:kustomize-controller", "--approved-by", world.Grace, "--confirmed-by", world.Ada).Stdout)
	golden(t, "review-undeclared", both(must(t, 1, world.Ada, "review", "printed", "-n", "team-a", "-o", "yaml", "--capability", readMessages)))
	if r := must(t, 0, world.Ada, "review", "printed", "-n", "team-a", "-o", "json"); !strings.HasPrefix(r.Stdout, `{"apiVersion"`) {
		t.Errorf("-o json printed %s", r.Stdout)
	}
}

// The second narrowing in a row by the same human still bears their name, where
// all goes.
func TestRevokeNamesWhoRevokedAgain(t *testing.T) {
	installed(t, "twice", readTasks, writeTasks)
	must(t, 0, world.Ada, "approve", "twice", "-n", "team-a", "--all-declared", "--yes", "--reason", "x")
	must(t, 0, world.Grace, "revoke", "twice", "-n", "team-a", "--capability", writeTasks, "--reason", "one")
	must(t, 0, world.Grace, "revoke", "twice", "-n", "team-a", "--reason", "two")
	golden(t, "audit-twice", must(t, 0, world.Ada, "audit", "twice", "-n", "team-a").Stdout)
}

func TestAuditProvesTheChain(t *testing.T) {
	o := installed(t, "chained", readTasks, writeTasks)
	must(t, 0, world.Ada, "approve", "chained", "-n", "team-a", "--all-declared", "--yes", "--reason", "x")
	must(t, 0, world.Grace, "revoke", "chained", "-n", "team-a", "--reason", "y")
	export := must(t, 0, world.Ada, "audit", "chained", "-n", "team-a", "-o", "jsonl").Stdout
	if strings.Count(export, "\n") != 2 {
		t.Fatalf("the export is\n%s", export)
	}
	files := newFolder(t)
	whole := files.write("whole.jsonl", export)
	must(t, 0, world.Ada, "audit", "chained", "-n", "team-a", "--archive", whole)

	// Somebody writes another approver into the archive.
	forged := files.write("forged.jsonl", strings.Replace(export, world.Ada, "eve@example.com", 1))
	golden(t, "audit-forged", replaced(both(must(t, 2, world.Ada, "audit", "chained", "-n", "team-a", "--archive", forged)), files.path))
	broken := files.write("broken.jsonl", "<html>\n"+export)
	golden(t, "audit-broken", replaced(both(must(t, 2, world.Ada, "audit", "chained", "-n", "team-a", "--archive", broken)), files.path))

	// The Host's archive, with a token.
	answered := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != auditlog.Path || r.Header.Get("Authorization") != "Bearer s3cret" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		// It answers for one grant, as the Host does.
		w.Header().Set("Content-Type", auditlog.ContentType)
		if r.URL.Query().Get("installation") == o.Status.InstallationID && r.URL.Query().Get("workspace") == "team-a" {
			answered++
			_, _ = w.Write([]byte(export))
		}
	}))
	t.Cleanup(server.Close)
	ca := files.write("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate(server).Raw})))
	token := files.write("token", "s3cret\n")
	must(t, 0, world.Ada, "audit", "--all", "--archive", server.URL+auditlog.Path, "--token-file", token, "--ca-file", ca)
	if answered != 1 {
		t.Errorf("the archive of chained was asked for %d times", answered)
	}
	r := must(t, 1, world.Ada, "audit", "--all", "--archive", server.URL+auditlog.Path, "--token-file", token, "--ca-file", ca, "--server-name", "plugin-host")
	if !strings.Contains(r.Stderr, "not plugin-host") {
		t.Errorf("another server's certificate: %s", r.Stderr)
	}
	wrong := files.write("wrong", "guess")
	r = must(t, 1, world.Ada, "audit", "--all", "--archive", server.URL+auditlog.Path, "--token-file", wrong, "--ca-file", ca)
	golden(t, "audit-forbidden", both(r))
	r = must(t, 1, world.Ada, "audit", "--all", "--archive", server.URL+auditlog.Path)
	if !strings.Contains(r.Stderr, "certificate") {
		t.Errorf("it says %s", r.Stderr)
	}
	// After an uninstall the history is still there, by name.
	mustKube(t, "", "delete", "plugininstallation", o.Name)
	settled(t, "team-a", "chained", "the uninstall", func(o *v1alpha1.PluginCapabilityApproval) bool { return o.Status.State != v1alpha1.StateActive })
	must(t, 0, world.Ada, "audit", "chained", "-n", "team-a")
}

func certificate(server *httptest.Server) *x509.Certificate { return server.Certificate() }

func replaced(text, path string) string { return strings.ReplaceAll(text, path, "<files>") }

// What a person reads who does something wrong: never a Go error, always what to do.
func TestErrorsSayWhatToDo(t *testing.T) {
	installed(t, "failing", readTasks)
	for name, args := range map[string][]string{
		"no-name":         {"review"},
		"two-names":       {"review", "a", "b"},
		"unknown-plugin":  {"review", "nobody", "-n", "team-a"},
		"no-workspace":    {"approve", "failing", "-n", "plugin-failing", "--all-declared", "--yes"},
		"unknown-flag":    {"approve", "failing", "--capabilities", "x"},
		"unknown-command": {"aprove", "failing"},
		"nothing-to-give": {"approve", "failing", "-n", "team-a"},
		"undeclared":      {"approve", "failing", "-n", "team-a", "--capability", writeTasks, "--yes"},
		"wildcard":        {"approve", "failing", "-n", "team-a", "--capability", "host.v2.read:*", "--yes"},
		"no-reason":       {"revoke", "failing", "-n", "team-a"},
		"not-granted":     {"revoke", "failing", "-n", "team-a", "--reason", "x"},
		"unknown-method":  {"explain", "failing", "-n", "team-a", "--method", "UpdateTask"},
		"events-revision": {"explain", "failing", "-n", "team-a", "--method", "WatchEvents", "--revision", "1"},
		"open-method":     {"explain", "failing", "-n", "team-a", "--method", "GetCapabilityContext"},
		"bad-time":        {"approve", "failing", "-n", "team-a", "--all-declared", "--expires-in", "soon", "--yes"},
		"bad-output":      {"review", "failing", "-n", "team-a", "-o", "wide"},
		"no-archive":      {"audit", "--all", "--archive", "nowhere.jsonl"},
		"no-context":      {"review", "failing", "--context", "nowhere"},
		"unreachable":     {"review", "failing", "--server", "http://127.0.0.1:1", "-n", "team-a"},
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, "error-"+name, both(must(t, 1, "", args...)))
		})
	}
	// Ada may not read the namespace that she means by leaving -n out.
	t.Run("other-namespace", func(t *testing.T) {
		golden(t, "error-other-namespace", both(must(t, 1, world.Ada, "review", "failing", "-n", "default")))
	})
	t.Run("forbidden", func(t *testing.T) {
		golden(t, "error-forbidden", both(must(t, 1, "nobody@example.com", "review", "failing", "-n", "team-a")))
	})
	t.Run("may-not-approve", func(t *testing.T) {
		mustKube(t, "", "-n", "team-a", "create", "role", "editors", "--verb=get,create,update,patch", "--resource=plugincapabilityapprovals.plugins.kandev.ai,namespaces")
		mustKube(t, "", "-n", "team-a", "create", "rolebinding", "editors", "--role=editors", "--user=bob@example.com")
		mustKube(t, "", "create", "clusterrolebinding", "bob-reads", "--clusterrole=plugin-host-viewer", "--user=bob@example.com")
		golden(t, "error-may-not-approve", both(must(t, 1, "bob@example.com", "approve", "failing", "-n", "team-a", "--all-declared", "--yes", "--reason", "x")))
	})
}

// WatchEvents needs no capability: what its events need is said of each pattern that
// the manifest declares.
func TestExplainEvents(t *testing.T) {
	explain := func(code int, as string, more ...string) string {
		return must(t, code, as, append([]string{"explain", "watching", "-n", "team-a", "--method", "WatchEvents"}, more...)...).Stdout
	}
	o := installed(t, "watching", readTasks, "host.v2.read:task_relations")
	golden(t, "explain-events-none", explain(0, world.Ada))
	o.Spec.Manifest.Legacy = &v1alpha1.LegacyManifest{Events: []string{"task.*", "task_relation.*", "plugin.*.*", "nothing.ever"}}
	update := func() {
		t.Helper()
		o.TypeMeta, o.ManagedFields, o.ResourceVersion = manifest("watching", "").TypeMeta, nil, ""
		git := newFolder(t)
		git.write("installation.yaml", asYAML(t, o))
		mustKube(t, "", "apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller", "-f", git.path)
	}
	update()
	golden(t, "explain-events", explain(0, world.Ada))
	must(t, 0, world.Ada, "approve", "watching", "-n", "team-a", "--capability", "host.v2.read:task_relations", "--reason", "It watches", "--yes")
	golden(t, "explain-events-granted", explain(0, world.Ada))
	if out := explain(0, world.Ada, "-o", "json"); !strings.Contains(out, `"capability": "host.v2.read:task_relations"`) || strings.Contains(out, "checks") {
		t.Errorf("as JSON it is\n%s", out)
	}
	o.Spec.Suspend = true
	update()
	golden(t, "explain-events-suspended", explain(2, world.Ada))
}

// kubectl finds the plugin by its name, and completes it by the script beside it.
func TestItIsAKubectlPlugin(t *testing.T) {
	script, err := os.ReadFile("../../cmd/kubectl-capability/kubectl_complete-capability")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "kubectl_complete-capability"), script, 0o755); err != nil {
		t.Fatal(err)
	}
	installed(t, "completed", readTasks)
	if out := mustKube(t, "", "capability", "review", "--help"); !strings.Contains(out, "kubectl capability review standup -n payments") {
		t.Errorf("the help of review has no example:\n%s", out)
	}
	out := mustKube(t, "", "__complete", "capability", "revi")
	if !strings.Contains(out, "review\t") {
		t.Errorf("kubectl completes to\n%s", out)
	}
	if out := capability(t, "", "__complete", "explain", "--method", "Update").Stdout; !strings.Contains(out, "UpdateTaskExact") {
		t.Errorf("--method completes to\n%s", out)
	}
	if out := capability(t, "", "__complete", "review", "").Stdout; !strings.Contains(out, "completed") {
		t.Errorf("the name completes to\n%s", out)
	}
}
