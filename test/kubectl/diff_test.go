package kubectl_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/test/world"
)

const (
	readTasks     = "host.v2.read:tasks"
	readWorkflows = "host.v2.read:workflows"
	readMessages  = "host.v2.read:messages"
	writeTasks    = "host.v2.write:tasks"
)

// difference is what -o json prints.
type difference struct {
	Changes []struct {
		Name      string   `json:"name"`
		Namespace string   `json:"namespace"`
		Effect    string   `json:"effect"`
		Grants    []string `json:"grants"`
		Takes     []string `json:"takes"`
		Starts    []string `json:"starts"`
		Stops     []string `json:"stops"`
	} `json:"changes"`
	ExitCode int `json:"exitCode"`
}

func diffOf(t *testing.T, code int, args ...string) difference {
	t.Helper()
	r := must(t, code, world.Ada, append([]string{"diff", "-o", "json"}, args...)...)
	var d difference
	if err := json.Unmarshal([]byte(r.Stdout), &d); err != nil {
		t.Fatalf("%v\n%s", err, r.Stdout)
	}
	if d.ExitCode != code {
		t.Errorf("it says exit code %d and ends with %d", d.ExitCode, code)
	}
	return d
}

// What diff says before an apply is what the Host does after it: step by step, on
// a real cluster.
func TestDiffSaysWhatTheHostWillDo(t *testing.T) {
	installed(t, "differ", readTasks, readWorkflows, writeTasks)
	git := newFolder(t)
	git.write("differ.yaml", must(t, 0, world.Ada, "review", "differ", "-n", "team-a", "-o", "yaml",
		"--capability", readTasks, "--reason", "First").Stdout)
	now := []string{} // what works
	act := ""
	apply := func(as string) {
		t.Helper()
		mustKube(t, as, "apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller", "-f", git.path)
	}

	// The first grant, in every form.
	r := must(t, 3, world.Ada, "diff", "-f", git.path)
	golden(t, "diff-grant", strings.ReplaceAll(r.Stdout, git.path, "<git>"))
	r = must(t, 3, world.Ada, "diff", "-f", git.path, "-o", "markdown")
	golden(t, "diff-grant-markdown", strings.ReplaceAll(r.Stdout, git.path, "<git>"))

	steps := []struct {
		name string
		do   func()
		as   string
		code int
	}{
		{"the first grant", func() {}, world.Ada, 3},
		{"nothing", func() {}, world.Ada, 0},
		{"a reason", func() { git.edit("differ.yaml", `reason: "First"`, `reason: "Reviewed"`) }, world.Ada, 0},
		{"more, under a used act", func() {
			git.edit("differ.yaml", "  - "+readTasks, "  - "+readTasks+"\n  - "+writeTasks)
		}, world.Ada, 4},
		{"more, under the act in force", func() { git.edit("differ.yaml", `supersedesAct: ""`, `supersedesAct: "`+act+`"`) }, world.Ada, 3},
		{"less", func() { git.edit("differ.yaml", "  - "+writeTasks+"\n", "") }, world.Ada, 2},
		{"an end", func() {
			git.edit("differ.yaml", "state: Active", "state: Active\n  expiresAt: \""+time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339)+"\"")
		}, world.Ada, 2},
		{"a revocation", func() { git.edit("differ.yaml", "state: Active", "state: Revoked") }, world.Ada, 2},
		{"the revert of it", func() { git.edit("differ.yaml", "state: Revoked", "state: Active") }, world.Ada, 4},
		{"a new act", func() {
			must(t, 0, world.Ada, "review", "-f", git.path, "--in-place")
		}, world.Ada, 3},
		{"an upgrade that declares less and more, alone", func() {
			next := manifest("differ", "2.0.0", readWorkflows, writeTasks, readMessages)
			git.write("installation.yaml", asYAML(t, next))
		}, "", 2},
	}
	for _, step := range steps {
		step.do()
		d := diffOf(t, step.code, "-f", git.path)
		for _, c := range d.Changes {
			if c.Name != "differ" || c.Namespace != "team-a" {
				t.Fatalf("%s: it speaks of %s in %s", step.name, c.Name, c.Namespace)
			}
			now = slices.DeleteFunc(append(now, append(c.Grants, c.Starts...)...), func(id string) bool {
				return slices.Contains(append(c.Takes, c.Stops...), id)
			})
		}
		slices.SortFunc(now, func(a, b string) int { return order(a) - order(b) })
		apply(step.as)
		o := settled(t, "team-a", "differ", step.name, works(now...))
		act = o.Status.Act
	}

	// An upgrade and its approval in one commit: which of them the cluster sees
	// first makes no difference.
	next := manifest("differ", "3.0.0", readTasks, readMessages)
	digest, err := contract.Manifest{PluginID: next.Spec.PluginID, Capabilities: []contract.DeclaredCapability{{ID: readTasks}, {ID: readMessages}}}.Digest()
	if err != nil {
		t.Fatal(err)
	}
	before := settled(t, "team-a", "differ", "the upgrade", works())
	git.write("installation.yaml", asYAML(t, next))
	git.edit("differ.yaml", before.Spec.ManifestDigest, digest)
	git.edit("differ.yaml", `supersedesAct: "`+before.Spec.SupersedesAct, `supersedesAct: "`+before.Status.Act)
	git.edit("differ.yaml", "  - "+readTasks, "  - "+readTasks+"\n  - "+readMessages)
	r = must(t, 3, world.Ada, "diff", "-f", git.path)
	golden(t, "diff-upgrade", strings.ReplaceAll(r.Stdout, git.path, "<git>"))
	mustKube(t, world.Ada, "apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller", "-f", filepath.Join(git.path, "differ.yaml"))
	settled(t, "team-a", "differ", "the approval that waits for its manifest", works())
	mustKube(t, "", "apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller", "-f", filepath.Join(git.path, "installation.yaml"))
	settled(t, "team-a", "differ", "the upgrade with its approval", works(readTasks, readMessages))
}

// order is the place of an ID in the contract.
func order(id string) int {
	return slices.Index([]string{readWorkflows, readTasks, readMessages, writeTasks}, id)
}

func TestDiffOfARangeOfCommits(t *testing.T) {
	installed(t, "ranger", readTasks, writeTasks)
	must(t, 0, world.Ada, "approve", "ranger", "-n", "team-a", "--capability", readTasks, "--yes", "--reason", "x")
	git := newFolder(t)
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", git.path, "-c", "user.name=ada", "-c", "user.email=ada@example.com", "-c", "commit.gpgsign=false"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	// The plugin runs in the repository, as CI does.
	diff := func(code int, args ...string) world.Result {
		t.Helper()
		script := `cd "$0" && exec "$@"`
		r, err := everything.Run(t.Context(), environment(), "sh", append([]string{
			"-c", script, git.path, filepath.Join(bin, "kubectl-capability"), "diff", "--as", world.Ada}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		if r.Code != code {
			t.Fatalf("diff %v: exit code %d, want %d\n%s%s", args, r.Code, code, r.Stdout, r.Stderr)
		}
		return r
	}
	run("init", "--quiet", "--initial-branch=main")
	git.write("clusters/prod/ranger.yaml", must(t, 0, world.Ada, "review", "ranger", "-n", "team-a", "-o", "yaml").Stdout)
	git.write("clusters/prod/other.yaml", "kind: ConfigMap\napiVersion: v1\nmetadata: {name: x}\n")
	git.write("README.md", "Nothing of ours.\n")
	run("add", ".")
	run("commit", "--quiet", "-m", "The grant")
	run("checkout", "--quiet", "-b", "change")

	git.edit("clusters/prod/ranger.yaml", "  - "+readTasks, "  - "+readTasks+"\n  - "+writeTasks)
	run("commit", "--quiet", "-am", "More")
	r := diff(3, "--git", "main..HEAD", "clusters", "-o", "markdown")
	golden(t, "diff-git-markdown", r.Stdout)
	diff(0, "--git", "main..HEAD", "elsewhere")
	diff(3, "--git", "main...change")

	run("rm", "--quiet", "clusters/prod/ranger.yaml")
	run("commit", "--quiet", "-m", "Prune it by accident")
	golden(t, "diff-git-prune", diff(2, "--git", "main..HEAD").Stdout)

	// Moving a manifest prunes nothing.
	run("checkout", "--quiet", "-b", "move", "main")
	run("mv", "clusters/prod/ranger.yaml", "clusters/prod/moved.yaml")
	run("commit", "--quiet", "-m", "Move it")
	diff(0, "--git", "main..HEAD")

	golden(t, "diff-git-unknown", both(diff(1, "--git", "nowhere..HEAD")))
	golden(t, "diff-git-no-range", both(diff(1, "--git", "HEAD")))
}

func TestDiffNamesWhatIsInvalid(t *testing.T) {
	r := must(t, 5, world.Ada, "diff", "-f", "test/kubectl/testdata/invalid.yaml")
	golden(t, "diff-invalid", r.Stdout)
	golden(t, "diff-nothing", both(must(t, 1, world.Ada, "diff")))
	golden(t, "diff-no-file", both(must(t, 1, world.Ada, "diff", "-f", "nowhere.yaml")))
}

// A human policy in a pull request shows where it bites.
func TestDiffOfAHumanPolicy(t *testing.T) {
	installed(t, "policed", readTasks, writeTasks)
	must(t, 0, world.Ada, "approve", "policed", "-n", "team-a", "--all-declared", "--yes", "--reason", "x")
	git := newFolder(t)
	git.write("policy.yaml", `apiVersion: plugins.kandev.ai/v1alpha1
kind: HumanPolicy
metadata:
  name: no-writes
spec:
  rules:
  - class: MessagesAndTasks
    deny: true
`)
	found := false
	for _, c := range diffOf(t, 2, "-f", git.path).Changes {
		if c.Name == "policed" {
			found = slices.Equal(c.Takes, []string{writeTasks}) && c.Effect == "Narrows"
		}
	}
	if !found {
		t.Error("it doesn't say what the policy takes from policed")
	}
}
