package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	nodeName = "localhost"
	// The pods' network; the gateway is this machine.
	podSubnet  = "10.213.77.0/24"
	podGateway = "10.213.77.1"

	patience  = 90 * time.Second
	pollEvery = 200 * time.Millisecond
)

// sysctls are what a kubelet and a network plugin set.
func sysctls() []string {
	return []string{
		"kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory", "vm/panic_on_oom",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward",
	}
}

// folders are those that its parts make outside the node's own folder.
func folders() []string {
	return []string{
		"/run/containerd", "/run/netns", "/var/lib/cni", "/var/lib/kubelet", "/opt/containerd", "/usr/libexec/kubernetes/kubelet-plugins",
	}
}

// node is a kubelet with its container runtime on this machine.
type node struct {
	tools, dir string
	containerd *exec.Cmd
	kubelet    *exec.Cmd
	// before is what the machine had: values of sysctls, and cgroups. fresh are the
	// folders that it hadn't.
	before  map[string]string
	cgroups []string
	fresh   []string
}

// startNode starts containerd and a kubelet, and puts everything back at the end of
// the test.
func startNode(t *testing.T, tools, kubeconfig string) *node {
	t.Helper()
	// A socket's path is short, and the folder goes when the mounts have gone.
	dir, err := os.MkdirTemp("", "kandev-e2e-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	n := &node{tools: tools, dir: dir, before: map[string]string{}, cgroups: podCgroups()}
	for _, name := range sysctls() {
		if value, err := os.ReadFile("/proc/sys/" + name); err == nil {
			n.before[name] = strings.TrimSpace(string(value))
		}
	}
	for _, folder := range folders() {
		if _, err := os.Lstat(folder); errors.Is(err, fs.ErrNotExist) {
			n.fresh = append(n.fresh, folder)
		}
	}
	t.Cleanup(func() { n.restore(t) })
	n.write(t, "containerd.toml", fmt.Sprintf(`version = 2
root = %[1]q
state = %[2]q
[grpc]
  address = %[3]q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/kandev-pause:e2e"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %[4]q
    conf_dir = %[5]q
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = %[6]q
`, n.path("containerd"), n.path("run"), n.socket(), filepath.Join(tools, "cni"), n.path("net.d"), n.tool("runc")))
	n.write(t, "net.d/10-pods.conflist", fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "kandev-e2e", "plugins": [{"type": "ptp", "ipMasq": false,
"ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q, "gateway": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`, n.path("ipam"), podSubnet, podGateway))
	n.containerd = n.start(t, "containerd", "--config="+n.path("containerd.toml"))
	await(t, "containerd answers", func() (bool, string) {
		out, err := exec.Command(n.tool("ctr"), "--address="+n.socket(), "version").CombinedOutput()
		return err == nil, string(out)
	})
	n.write(t, "kubelet.yaml", fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix://%s
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
makeIPTablesUtilChains: false
evictionHard: {nodefs.available: "0%%"}
imageGCHighThresholdPercent: 100
healthzPort: 0
port: %d
podLogsDir: %s
syncFrequency: 5s
`, n.socket(), freePort(t), n.path("pods")))
	n.kubelet = n.start(t, "kubelet", "--config="+n.path("kubelet.yaml"), "--kubeconfig="+kubeconfig,
		"--root-dir="+n.path("kubelet"), "--cert-dir="+n.path("pki"), "--hostname-override="+nodeName)
	return n
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("%v is no address of TCP", listener.Addr())
	}
	return address.Port
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }
func (n *node) tool(name string) string { return filepath.Join(n.tools, "bin", name) }
func (n *node) socket() string          { return n.path("containerd.sock") }

func (n *node) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(n.path(name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.path(name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (n *node) start(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	log, err := os.Create(n.path(name + ".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the child has its own handle
	cmd := exec.Command(n.tool(name), args...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(n.tools, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// ctr runs containerd's own client among the pods' containers.
func (n *node) ctr(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, n.tool("ctr"), append([]string{"--address=" + n.socket(), "--namespace=k8s.io"}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (n *node) load(t *testing.T, image string) {
	t.Helper()
	if out, err := n.ctr(t.Context(), "images", "import", image); err != nil {
		t.Fatalf("import %s: %v: %s", image, err, out)
	}
}

// process is the number of a container's first process.
func (n *node) process(t *testing.T, container string) int {
	t.Helper()
	out, err := n.ctr(t.Context(), "tasks", "ls")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == container {
			var pid int
			if _, err := fmt.Sscan(fields[1], &pid); err == nil {
				return pid
			}
		}
	}
	t.Fatalf("no container %s in\n%s", container, out)
	return 0
}

// runtimeSpec is the part of a container's specification that hardens it.
type runtimeSpec struct {
	Root struct {
		Readonly bool `json:"readonly"`
	} `json:"root"`
	Process struct {
		NoNewPrivileges bool `json:"noNewPrivileges"`
		User            struct {
			UID int `json:"uid"`
			GID int `json:"gid"`
		} `json:"user"`
		Capabilities struct {
			Bounding  []string `json:"bounding"`
			Effective []string `json:"effective"`
			Permitted []string `json:"permitted"`
		} `json:"capabilities"`
	} `json:"process"`
	Linux struct {
		Seccomp *struct {
			DefaultAction string `json:"defaultAction"`
		} `json:"seccomp"`
	} `json:"linux"`
}

// spec is how the runtime was told to run a container.
func (n *node) spec(t *testing.T, container string) runtimeSpec {
	t.Helper()
	out, err := n.ctr(t.Context(), "containers", "info", "--spec", container)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var spec runtimeSpec
	if err := json.Unmarshal([]byte(out), &spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

func await(t *testing.T, what string, holds func() (bool, string)) {
	t.Helper()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for end := time.Now().Add(patience); ; <-ticker.C {
		ok, saw := holds()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s; last seen: %s", patience, what, saw)
		}
	}
}

// restore ends the pods and the node, and puts back what they changed.
func (n *node) restore(t *testing.T) {
	t.Helper()
	if t.Failed() {
		for _, name := range []string{"kubelet", "containerd"} {
			text, _ := os.ReadFile(n.path(name + ".log"))
			t.Logf("%s:\n%s", name, text[max(0, len(text)-6000):])
		}
	}
	stop(n.kubelet)
	if n.containerd != nil {
		ctx := context.WithoutCancel(t.Context())
		for _, kind := range []string{"tasks", "containers"} {
			out, _ := n.ctr(ctx, kind, "ls", "--quiet")
			for _, id := range strings.Fields(out) {
				force := []string{kind, "delete", id}
				if kind == "tasks" {
					force = []string{kind, "delete", "--force", id}
				}
				if out, err := n.ctr(ctx, force...); err != nil {
					t.Logf("delete %s of %s: %v: %s", kind, id, err, out)
				}
			}
		}
	}
	stop(n.containerd)
	n.endShims()
	n.unmount(t)
	for name, value := range n.before {
		if now, err := os.ReadFile("/proc/sys/" + name); err == nil && strings.TrimSpace(string(now)) != value {
			if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil {
				t.Errorf("put back %s: %v", name, err)
			}
		}
	}
	for _, cgroup := range podCgroups() {
		if !slices.Contains(n.cgroups, cgroup) {
			removeEmpty(cgroup)
		}
	}
	if slices.Contains(n.fresh, "/var/lib/kubelet") {
		// The one file that a kubelet has outside its own folder, and leaves.
		_ = os.Remove("/var/lib/kubelet/device-plugins/kubelet.sock")
	}
	for _, folder := range n.fresh {
		// Only what is empty: a file in there may be somebody else's by now.
		removeEmpty(folder)
	}
	if err := os.RemoveAll(n.dir); err != nil {
		t.Errorf("remove the node's folder: %v", err)
	}
	if left := n.leftovers(); len(left) > 0 {
		t.Errorf("the machine isn't as it was: %v", left)
	}
}

func stop(cmd *exec.Cmd) {
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		_ = cmd.Process.Kill()
		<-ended
	}
}

// shims are the processes that hold this containerd's containers.
func (n *node) shims() []int {
	var found []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		line, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err == nil && strings.Contains(string(line), "containerd-shim") && strings.Contains(string(line), n.socket()) {
			found = append(found, pid)
		}
	}
	return found
}

func (n *node) endShims() {
	for _, pid := range n.shims() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for end := time.Now().Add(5 * time.Second); len(n.shims()) > 0 && time.Now().Before(end); {
		<-time.After(pollEvery)
	}
}

// mounts are those below the node's folders, the innermost first.
func (n *node) mounts() []string {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) > 1 && slices.ContainsFunc(append(n.fresh, n.dir), func(folder string) bool { return strings.HasPrefix(fields[1], folder+"/") }) {
			found = append(found, fields[1])
		}
	}
	slices.Reverse(found)
	return found
}

func (n *node) unmount(t *testing.T) {
	t.Helper()
	for _, path := range n.mounts() {
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Logf("unmount %s: %v", path, err)
		}
	}
}

// podCgroups are the roots of cgroups that kubelets make.
func podCgroups() []string {
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/kubepods", "/sys/fs/cgroup/*/kubepods", "/sys/fs/cgroup/k8s.io", "/sys/fs/cgroup/*/k8s.io"} {
		matches, err := filepath.Glob(pattern)
		if err == nil {
			found = append(found, matches...)
		}
	}
	return found
}

// removeEmpty removes the empty folders below a root, and it, the innermost first;
// cgroups are empty once no process is in them.
func removeEmpty(root string) {
	var folders []string
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			folders = append(folders, path)
		}
		return nil
	})
	slices.Reverse(folders)
	for _, folder := range folders {
		_ = syscall.Rmdir(folder)
	}
}

// leftovers tells what is not as it was before.
func (n *node) leftovers() []string {
	left := n.mounts()
	for _, cgroup := range podCgroups() {
		if !slices.Contains(n.cgroups, cgroup) {
			left = append(left, cgroup)
		}
	}
	for _, folder := range n.fresh {
		if _, err := os.Lstat(folder); err == nil {
			left = append(left, folder)
		}
	}
	for _, pid := range n.shims() {
		left = append(left, fmt.Sprintf("process %d", pid))
	}
	for name, value := range n.before {
		if now, err := os.ReadFile("/proc/sys/" + name); err == nil && strings.TrimSpace(string(now)) != value {
			left = append(left, name+"="+strings.TrimSpace(string(now)))
		}
	}
	return left
}
