package install_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kandev/plugin-host/hack/toolbox"
)

// TestHowToGrantAndRevoke runs the commands of docs/howto/grant-and-revoke.md, as
// they stand there, against plugin-host with the Deployment's command line and no
// other right than what config/default gives: the page is true, the command line is
// understood, and the rights suffice.
func TestHowToGrantAndRevoke(t *testing.T) {
	c := start(t)
	c.kubectl(t, "apply", "--server-side", "-k", filepath.Join(configDir, "default"))
	c.kubectl(t, "wait", "--for=condition=Established", "--timeout=30s", "-f", filepath.Join(configDir, "crd", "bases"))
	r := c.runHost(t)

	sh, grace := c.shell(t, "ada@example.com"), c.shell(t, "grace@example.com")
	get := func(field string) string {
		t.Helper()
		return sh(t, `kubectl --namespace payments get pca standup -o jsonpath='{.status.`+field+`}'`)
	}
	want := func(step, field, value string) {
		t.Helper()
		if got := get(field); got != value {
			t.Fatalf("after %q, status.%s is %q, want %q", step, field, got, value)
		}
	}
	const both = `["host.v2.read:tasks","host.v2.write:tasks"]`
	seen := map[string]string{}
	for _, block := range blocks(t, "grant-and-revoke.md") {
		if strings.Contains(block.text, `"changedBy":"grace@example.com"`) {
			grace(t, block.text) // nobody says who somebody else is
		} else {
			sh(t, block.text)
		}
		seen[block.heading] += block.text
		switch {
		case strings.Contains(block.text, "cat > approval.yaml"):
			want("grant", "effectiveCapabilities", both)
			c.answers(t, r, "active", "host.v2.read:tasks", "host.v2.write:tasks")
			seen["act"] = get("act")
		case block.heading == "Narrow":
			sh(t, `kubectl --namespace payments wait pca/standup --for=condition=Fenced --timeout=30s`)
			want("narrow", "effectiveCapabilities", `["host.v2.read:tasks"]`)
		case block.heading == "Revoke":
			want("revoke", "state", "Revoked")
			want("revoke", "effectiveCapabilities", "")
			c.answers(t, r, "revoked")
			// What the page says next: the old file gives nothing back, by force or not.
			sh(t, `kubectl apply --server-side --force-conflicts -f approval.yaml
kubectl --namespace payments wait pca/standup --for=condition=ReviewRequired --timeout=30s`)
			want("the old manifest again", "state", "Revoked")
		case strings.Contains(block.text, "ReviewRequired"):
			if text := sh(t, block.text); !strings.Contains(text, get("act")) {
				t.Errorf("the condition says %q, which doesn't name the act %s", text, get("act"))
			}
		case strings.Contains(block.text, "ACT="):
			want("grant again", "effectiveCapabilities", both)
			if get("act") == seen["act"] {
				t.Error("the second grant has the name of the first")
			}
		case block.heading == "Read the history":
			story := sh(t, `kubectl get pcae --sort-by=.spec.revision -o jsonpath='{range .items[*]}{.spec.type}{" "}{end}'`)
			if got := strings.Fields(story); !slices.Equal(got, []string{"Grant", "Narrow", "Revoke", "Grant"}) {
				t.Errorf("the history reads %v", got)
			}
		}
	}
	for _, heading := range []string{"Grant", "Narrow", "Revoke", "Grant again", "Read the history", "For a whole plugin at once"} {
		if seen[heading] == "" {
			t.Errorf("the page has no commands for %q", heading)
		}
	}
	sh(t, `kubectl --namespace payments wait pca/standup --for=jsonpath='{.status.state}'=Revoked --timeout=30s`)
}

// answers says what the Host tells the plugin about the workspace of the page.
func (c cluster) answers(t *testing.T, r running, state string, capabilities ...string) {
	t.Helper()
	workspaces := c.context(t, r).GetWorkspaces()
	if len(workspaces) != 1 || workspaces[0].GetWorkspaceId() != "payments" {
		t.Fatalf("the plugin is told of %v, want payments", workspaces)
	}
	if got := workspaces[0]; got.GetState() != state || !slices.Equal(got.GetCapabilityIds(), capabilities) {
		t.Errorf("the plugin is told %s with %v, want %s with %v", got.GetState(), got.GetCapabilityIds(), state, capabilities)
	}
}

type block struct{ heading, text string }

var commands = regexp.MustCompile("(?s)```sh\n(.*?)```")

// blocks are the shell commands of a how-to, in order, each with the heading that
// it is under.
func blocks(t *testing.T, page string) []block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs/howto", page))
	if err != nil {
		t.Fatal(err)
	}
	var found []block
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		heading, rest, _ := strings.Cut(section, "\n")
		for _, match := range commands.FindAllStringSubmatch(rest, -1) {
			found = append(found, block{heading, match[1]})
		}
	}
	return found
}

// shell returns a function that runs commands as a user of the cluster does: at the
// top of a working tree, with kubectl on the path, as a person of our pages who may do
// everything.
func (c cluster) shell(t *testing.T, person string) func(*testing.T, string) string {
	t.Helper()
	box, err := toolbox.Here()
	if err != nil {
		t.Fatal(err)
	}
	kubectl, err := box.Path("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	// A copy of what the page refers to: it writes files of its own beside it.
	tree := t.TempDir()
	if err := os.CopyFS(filepath.Join(tree, "config"), os.DirFS(configDir)); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(c.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate, user.ImpersonateGroups = person, []string{"system:masters"}
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T, lines string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", lines)
		cmd.Dir = tree
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "KUBECACHEDIR="+t.TempDir(),
			"PATH="+filepath.Dir(kubectl)+string(os.PathListSeparator)+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n$ %s\n%s", err, lines, out)
		}
		return string(out)
	}
}
