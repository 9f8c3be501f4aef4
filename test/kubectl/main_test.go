// Package kubectl_test uses the kubectl plugin as people do: the real binary, from
// the command line, against a real API server and a real plugin-host with the
// release's own manifests. What it prints is compared with files in testdata;
// `go test ./test/kubectl -update` writes them anew.
package kubectl_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kandev/plugin-host/test/world"
)

var (
	update = flag.Bool("update", false, "write the golden files anew")
	// everything is the world that all tests of the package share.
	everything *world.World
	// bin holds the binaries, built from this tree.
	bin string
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := start(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func start(m *testing.M) (code int, err error) {
	if bin, err = os.MkdirTemp("", "kubectl-capability-"); err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(bin) }()
	build := exec.Command("go", "build", "-o", bin+"/", "./cmd/plugin-host", "./cmd/kubectl-capability", "./test/demo/sample-plugin")
	build.Dir, build.Stderr = "../..", os.Stderr
	if err := build.Run(); err != nil {
		return 1, fmt.Errorf("build the binaries: %w", err)
	}
	ctx := context.Background()
	if everything, err = world.Start(ctx, world.Options{Bin: bin}); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, everything.Stop()) }()
	if err := letPeopleIn(ctx); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// letPeopleIn gives Ada and Grace what the how-to gives approvers: they read
// installations and history, and approve where the demo's bindings say.
func letPeopleIn(ctx context.Context) error {
	for _, role := range []string{"plugin-host-viewer", "plugin-host-auditor"} {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "people-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{
				{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: world.Ada},
				{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: world.Grace},
			},
		}
		if err := everything.API.Create(ctx, binding); err != nil {
			return fmt.Errorf("bind %s: %w", role, err)
		}
	}
	return nil
}

// capability runs the plugin as somebody, "" for the cluster's administrator.
func capability(t *testing.T, as string, args ...string) world.Result {
	t.Helper()
	if as != "" {
		args = append(args, "--as", as)
	}
	r, err := everything.Run(t.Context(), environment(), filepath.Join(bin, "kubectl-capability"), args...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func environment() []string {
	return []string{
		"KUBECONFIG=" + everything.Kubeconfig, "KUBECACHEDIR=" + everything.Path("kubectl-cache"), "KUBERC=off",
		"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"),
	}
}

// must runs the plugin and wants an exit code.
func must(t *testing.T, code int, as string, args ...string) world.Result {
	t.Helper()
	r := capability(t, as, args...)
	if r.Code != code {
		t.Fatalf("kubectl capability %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), r.Code, code, r.Stdout, r.Stderr)
	}
	return r
}

// unstable are the parts of an output that differ from run to run.
var unstable = []struct {
	form *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uuid>"},
	{regexp.MustCompile(`v1:[0-9a-f]{64}`), "v1:<digest>"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "<hash>"},
	{regexp.MustCompile(`\b(\d+)-[a-z2-7]{6}\b`), "$1-<act>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC`), "<time>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "<time>"},
	{regexp.MustCompile(`default "[^"]*kubectl-cache"`), "default <cache>"},
	{regexp.MustCompile(`https?://127\.0\.0\.1:\d+`), "<server>"},
}

// golden compares what was printed with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	for _, u := range unstable {
		got = u.form.ReplaceAllString(got, u.as)
	}
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: printed\n%s\nwant\n%s", file, got, want)
	}
}

// both is everything that was printed, as a person sees it.
func both(r world.Result) string { return r.Stdout + r.Stderr }
