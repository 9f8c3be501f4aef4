package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hack/controlplane"
	"github.com/kandev/plugin-host/hack/rundir"
	"github.com/kandev/plugin-host/hack/toolbox"
	"github.com/kandev/plugin-host/sdk"
)

const (
	// Plugin is the name of the installation and of its approvals.
	Plugin = "sample"
	// Workspace is the workspace, and its namespace, that Draft grants in.
	Workspace = "team-a"

	hostNamespace   = "plugin-host-system"
	hostAccount     = "plugin-host"
	pluginNamespace = "plugin-sample"
	pluginAccount   = "sample"
	pluginPod       = "sample-0"

	// Ada grants in the workspaces.
	Ada = "ada@example.com"
	// Grace may, too.
	Grace = "grace@example.com"
)

// Narrator is told what happens, for a person to read.
type Narrator interface {
	// Title begins a step.
	Title(format string, args ...any)
	// Show is a command and what it wrote.
	Show(command, output string)
	// Holds is a claim that was found to be so.
	Holds(claim string)
}

// Options say how to start a World. The zero value is a silent one.
type Options struct {
	// Bin is the folder of plugin-host and sample-plugin. Empty: bin of the working tree.
	Bin string
	// Seed is the Host's seed file. Empty: the demo's.
	Seed string
	// TokenLife is how long tokens and certificates serve. Zero: one hour.
	TokenLife time.Duration
	// Narrator is told the steps. Nil: nobody is.
	Narrator Narrator
}

// World is a running world. What it exports is read only.
type World struct {
	// API is the administrator's client, with the types of the API. Approver is
	// the client of a human who may grant in the workspaces: Ada.
	API, Approver client.WithWatch
	// Kubectl is the path of the binary, Kubeconfig the administrator's.
	Kubectl, Kubeconfig string
	// Host is plugin-host.
	Host *Process
	// Address, CAFile and TokenFile are what the plugin's pod would be given.
	Address, CAFile, TokenFile string
	// Database is the Host's SQLite file. The Host alone may open it while it runs.
	Database string

	narrator  Narrator
	root, bin string
	seed      string
	tokenLife time.Duration
	dir       *rundir.Dir
	// hostArgs start the Host, and health is where it says that it is ready.
	hostArgs []string
	health   string
	control  *controlplane.ControlPlane
}

// Start brings everything up: control plane, the release's manifests, two workspaces,
// the Host with seeded tasks, and the plugin's pod and token. Nothing is installed or
// granted. The world stays until Stop, also when ctx ends; a start that fails leaves
// nothing.
func Start(ctx context.Context, o Options) (*World, error) {
	w := &World{narrator: o.Narrator, bin: o.Bin, seed: o.Seed, tokenLife: o.TokenLife}
	if w.narrator == nil {
		w.narrator = silence{}
	}
	if w.tokenLife == 0 {
		w.tokenLife = time.Hour
	}
	if err := w.start(ctx); err != nil {
		return nil, errors.Join(err, w.Stop())
	}
	return w, nil
}

func (w *World) start(ctx context.Context) error {
	var err error
	if w.root, err = toolbox.Root(); err != nil {
		return err
	}
	if w.bin == "" {
		w.bin = filepath.Join(w.root, "bin")
	}
	if w.seed == "" {
		w.seed = filepath.Join(w.root, "test", "demo", "manifests", "seed.yaml")
	}
	for _, name := range []string{"plugin-host", "sample-plugin"} {
		if _, err := os.Stat(w.Binary(name)); err != nil {
			return fmt.Errorf("find %s (`make build` builds it): %w", name, err)
		}
	}
	if w.dir, err = rundir.Create("world"); err != nil {
		return err
	}
	if err := w.startControlPlane(ctx); err != nil {
		return err
	}
	w.narrator.Title("Install the plugin host and make two namespaces workspaces")
	for _, args := range [][]string{
		{"apply", "--server-side", "-k", "config/default"},
		{"wait", "crd", "--for=condition=Established", "--timeout=20s", "--all"},
		{"apply", "--server-side", "-f", "test/demo/manifests/workspaces.yaml", "-f", "test/demo/manifests/plugin.yaml"},
	} {
		if err := w.Kube(ctx, args...); err != nil {
			return err
		}
	}
	if err := w.startHost(ctx); err != nil {
		return err
	}
	return w.startPod(ctx)
}

func (w *World) startControlPlane(ctx context.Context) error {
	w.narrator.Title("A real control plane: etcd with fsync, kube-apiserver with ServiceAccount admission")
	// Left alone, controller-runtime complains about it on stderr with a stack.
	log.SetLogger(logr.Discard())
	// The control plane ends last, not with ctx: the Host stops before it.
	var err error
	w.control, err = controlplane.Start(context.WithoutCancel(ctx), controlplane.Options{Durable: true, OwnSignals: true})
	if err != nil {
		return err
	}
	if w.Kubectl, err = w.control.Kubectl(); err != nil {
		return err
	}
	w.Kubeconfig = w.Path("admin.kubeconfig")
	if err := w.control.WriteKubeconfig(w.Kubeconfig); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("register the API types: %w", err)
		}
	}
	if w.API, err = client.NewWithWatch(w.control.Config(), client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	asAda := rest.CopyConfig(w.control.Config())
	asAda.Impersonate.UserName = Ada
	if w.Approver, err = client.NewWithWatch(asAda, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a human's client: %w", err)
	}
	return w.Kube(ctx, "version")
}

// startPod makes the plugin's pod and what its kubelet would give it: a token that is
// bound to the pod. No kubelet runs here; the plugin runs as a process of this machine.
func (w *World) startPod(ctx context.Context) error {
	w.narrator.Title("The plugin's pod, and a token bound to it")
	if err := w.Kube(ctx, "apply", "--server-side", "-f", "test/demo/manifests/pod.yaml"); err != nil {
		return err
	}
	args := w.tokenArgs(pluginNamespace, pluginAccount, pluginPod)
	token, err := w.kubeQuietly(ctx, args...)
	if err != nil {
		return err
	}
	w.narrator.Show("kubectl "+strings.Join(args, " ")+" > token", "")
	w.TokenFile = w.Path("token")
	if err := os.WriteFile(w.TokenFile, []byte(token), 0o600); err != nil {
		return fmt.Errorf("write the plugin's token: %w", err)
	}
	return nil
}

func (w *World) tokenArgs(namespace, account, pod string) []string {
	return []string{
		"create", "token", account, "--namespace", namespace, "--audience", contract.Audience,
		"--bound-object-kind", "Pod", "--bound-object-name", pod, "--duration", w.tokenLife.String(),
	}
}

// TokenFor makes a pod of a plugin's ServiceAccount and a token that is bound to it.
func (w *World) TokenFor(ctx context.Context, namespace, account string) (string, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account + "-0"},
		Spec: corev1.PodSpec{
			ServiceAccountName: account, Containers: []corev1.Container{{Name: "plugin", Image: "plugin"}},
		},
	}
	if err := w.API.Create(ctx, pod); err != nil {
		return "", fmt.Errorf("create the pod of %s/%s: %w", namespace, account, err)
	}
	token, err := w.kubeQuietly(ctx, w.tokenArgs(namespace, account, pod.Name)...)
	return strings.TrimSpace(token), err
}

// AllowApprover lets Ada grant in a workspace's namespace.
func (w *World) AllowApprover(ctx context.Context, namespace string) error {
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "plugin-host-approvers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "plugin-host-approver"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: Ada}},
	}
	if err := w.API.Create(ctx, binding); err != nil {
		return fmt.Errorf("let %s approve in %s: %w", Ada, namespace, err)
	}
	return nil
}

// Stop takes everything down, the Host first, in whatever state it is.
func (w *World) Stop() error {
	var err error
	if w.Host != nil {
		err = w.Host.Stop()
	}
	if w.control != nil {
		err = errors.Join(err, w.control.Stop())
	}
	if w.dir != nil {
		err = errors.Join(err, w.dir.Remove())
	}
	return err
}

// Path is a file of the world's own folder, which goes with Stop.
func (w *World) Path(elem ...string) string {
	return filepath.Join(append([]string{w.dir.Path()}, elem...)...)
}

// Binary is the path of plugin-host or sample-plugin.
func (w *World) Binary(name string) string { return filepath.Join(w.bin, name) }

// PluginEnv is the environment of the plugin's process, as NAME=value.
func (w *World) PluginEnv() []string {
	return []string{
		sdk.EnvAddress + "=" + w.Address,
		sdk.EnvCAFile + "=" + w.CAFile,
		sdk.EnvTokenFile + "=" + w.TokenFile,
	}
}

// Kube runs kubectl as the administrator, at the top of the tree, and shows what it
// wrote.
func (w *World) Kube(ctx context.Context, args ...string) error {
	written, err := w.kubeQuietly(ctx, args...)
	if err != nil {
		return err
	}
	w.narrator.Show("kubectl "+strings.Join(w.Shorten(args), " "), written)
	return nil
}

func (w *World) kubeQuietly(ctx context.Context, args ...string) (string, error) {
	env := []string{"KUBECONFIG=" + w.Kubeconfig, "KUBECACHEDIR=" + w.Path("kubectl-cache"), "KUBERC=off"}
	r, err := w.Run(ctx, env, w.Kubectl, args...)
	if err != nil {
		return "", err
	}
	if r.Code != 0 {
		return "", fmt.Errorf("kubectl %s: exit code %d: %s", strings.Join(args, " "), r.Code, r.Stderr)
	}
	return r.Stdout + r.Stderr, nil
}

// Shorten tells files of the world's folder and of the tree by their place, and quotes
// what a shell would not keep in one piece.
func (w *World) Shorten(args []string) []string {
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

// silence is a Narrator that tells nobody.
type silence struct{}

// Title implements Narrator.
func (silence) Title(string, ...any) {}

// Show implements Narrator.
func (silence) Show(string, string) {}

// Holds implements Narrator.
func (silence) Holds(string) {}
