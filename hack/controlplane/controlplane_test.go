package controlplane_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kandev/plugin-host/hack/controlplane"
	"github.com/kandev/plugin-host/hack/toolbox"
)

const (
	audience = "plugins.kandev.ai"
	// asOwner makes this test binary start a control plane and wait for its end.
	asOwner = "CONTROLPLANE_TEST_OWNER"
)

func TestMain(m *testing.M) {
	if os.Getenv(asOwner) != "" {
		playOwner()
	}
	os.Exit(m.Run())
}

func TestPodBoundTokenIsReviewedAsThePodsIdentity(t *testing.T) {
	plane := start(t, controlplane.Options{CRDDirs: []string{"testdata/crds"}, Durable: true})
	clients := clientset(t, plane.Config())
	ctx := t.Context()

	if _, err := clients.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "ws"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "plugin-0"},
		Spec: corev1.PodSpec{
			ServiceAccountName: "plugin",
			Containers:         []corev1.Container{{Name: "plugin", Image: "plugin.invalid/plugin"}},
		},
	}
	// Only ServiceAccount admission refuses a pod whose ServiceAccount isn't there.
	if _, err := clients.CoreV1().Pods("ws").Create(ctx, pod, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("a pod of a missing ServiceAccount: %v, want forbidden", err)
	}
	account, err := clients.CoreV1().ServiceAccounts("ws").Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "plugin"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if pod, err = clients.CoreV1().Pods("ws").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := clients.CoreV1().ServiceAccounts("ws").CreateToken(ctx, "plugin", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			Audiences:      []string{audience},
			BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	review := func(audience string) authenticationv1.TokenReviewStatus {
		t.Helper()
		got, err := clients.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: token.Status.Token, Audiences: []string{audience}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Status
	}
	status := review(audience)
	if !status.Authenticated || status.User.Username != "system:serviceaccount:ws:plugin" || status.User.UID != string(account.UID) {
		t.Errorf("reviewed as %+v, want the ServiceAccount ws/plugin with uid %s", status, account.UID)
	}
	if got := status.User.Extra["authentication.kubernetes.io/pod-uid"]; len(got) != 1 || got[0] != string(pod.UID) {
		t.Errorf("bound to pod %v, want %s", got, pod.UID)
	}
	if status := review("someone.else"); status.Authenticated {
		t.Error("the token authenticates for an audience it was not made for")
	}
}

func TestKubectlTalksToTheControlPlaneAndCRDsAreInstalled(t *testing.T) {
	plane := start(t, controlplane.Options{CRDDirs: []string{"testdata/crds"}})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := plane.WriteKubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(kubeconfig); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig holds a key and has mode %v (%v)", info.Mode(), err)
	}
	kubectl, err := plane.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ args, want string }{
		{"get widgets.test.kandev.ai", "No resources found"},
		{"version", "Server Version: v1.37"},
	} {
		args := append([]string{"--kubeconfig", kubeconfig}, strings.Fields(test.args)...)
		out, err := exec.CommandContext(t.Context(), kubectl, args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), test.want) {
			t.Errorf("kubectl %s: %v\n%s\nwant %q", test.args, err, out, test.want)
		}
	}
	if !bytes.Contains(plane.CA(), []byte("BEGIN CERTIFICATE")) {
		t.Errorf("the CA is %q", plane.CA())
	}
}

// TestControllerManagerDoesWhatOnlyItDoes: default ServiceAccounts, garbage
// collection, and the deletion of a namespace with what is in it.
func TestControllerManagerDoesWhatOnlyItDoes(t *testing.T) {
	plane := start(t, controlplane.Options{ControllerManager: true})
	clients := clientset(t, plane.Config())
	ctx := t.Context()
	if _, err := clients.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "ws"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the default ServiceAccount", func() bool {
		_, err := clients.CoreV1().ServiceAccounts("ws").Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
	maps := clients.CoreV1().ConfigMaps("ws")
	owner, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:            "owned",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(ctx, owner.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "garbage collection", func() bool {
		_, err := maps.Get(ctx, "owned", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if err := clients.CoreV1().Namespaces().Delete(ctx, "ws", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the namespace", func() bool {
		_, err := clients.CoreV1().Namespaces().Get(ctx, "ws", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func TestAMissingCRDFolderFailsTheStartAndLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	_, err := controlplane.Start(t.Context(), controlplane.Options{CRDDirs: []string{"testdata/nowhere"}})
	if err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Fatalf("got %v, want an error that names the folder", err)
	}
	if left := runDirs(t, os.Getenv("TMPDIR")); left != nil {
		t.Errorf("left behind: %v", left)
	}
}

func TestMissingBinariesNameTheMakeTarget(t *testing.T) {
	t.Setenv(toolbox.AssetsVar, "")
	t.Setenv(toolbox.DirVar, t.TempDir())
	_, err := controlplane.Start(t.Context(), controlplane.Options{})
	var missing *toolbox.MissingError
	if !errors.As(err, &missing) {
		t.Fatalf("got %v, want a *toolbox.MissingError", err)
	}
	for _, want := range []string{"kube-apiserver", "etcd", "make control-plane"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q doesn't name %q", err, want)
		}
	}
}

func TestTheContextEndsTheControlPlane(t *testing.T) {
	for _, test := range []struct {
		name string
		// before runs before Start, with the means to cancel.
		before func(t *testing.T, cancel func())
	}{
		{"while it starts", func(t *testing.T, cancel func()) {
			t.Helper()
			pattern := filepath.Join(os.Getenv("TMPDIR"), "kandev-*", "cp-*", "etcd.pid")
			ctx, tick := t.Context(), time.NewTicker(10*time.Millisecond)
			t.Cleanup(tick.Stop)
			go func() {
				defer cancel()
				for files := []string(nil); files == nil; { // until the first process is up
					select {
					case <-tick.C:
						files, _ = filepath.Glob(pattern)
					case <-ctx.Done():
						return
					}
				}
			}()
		}},
		{"before it starts", func(_ *testing.T, cancel func()) { cancel() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			test.before(t, cancel)
			plane, err := controlplane.Start(ctx, controlplane.Options{})
			if err == nil {
				_ = plane.Stop()
				t.Fatal("a control plane started under a cancelled context")
			}
			if left := runDirs(t, os.Getenv("TMPDIR")); left != nil {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	t.Run("while it runs", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		plane, err := controlplane.Start(ctx, controlplane.Options{})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := plane.Stop(); err != nil {
			t.Fatal(err)
		}
		if serves(plane.Config().Host) {
			t.Error("the API server still answers")
		}
	})
}

// TestNothingOutlivesItsOwner ends a process that runs a control plane in each way
// a process ends.
func TestNothingOutlivesItsOwner(t *testing.T) {
	for _, number := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(number.String(), func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			owner, host := startOwner(t)
			if !serves(host) {
				t.Fatal("the owner's API server doesn't answer")
			}
			if err := owner.Process.Signal(number); err != nil {
				t.Fatal(err)
			}
			err := owner.Wait()
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				t.Fatalf("the owner ended with %v, want the signal", err)
			}
			if status, ok := exit.Sys().(syscall.WaitStatus); !ok || status.Signal() != number {
				t.Errorf("the owner ended with %v, want the signal", err)
			}
			var runs []string              // folders of what may run
			if number == syscall.SIGKILL { // nobody could clean up: the next one does
				if !serves(host) {
					t.Fatal("the API server ended with its owner: nothing is tested")
				}
				start(t, controlplane.Options{})
				runs = runDirs(t, os.Getenv("TMPDIR"))
			} else if left := runDirs(t, os.Getenv("TMPDIR")); left != nil {
				t.Errorf("left behind: %v", left)
			}
			if serves(host) {
				t.Error("the dead owner's API server still answers")
			}
			if lines := processes(t, filepath.Join(os.Getenv("TMPDIR"), "kandev-"), runs); lines != nil {
				t.Errorf("still running: %q", lines)
			}
		})
	}
}

// start starts a control plane that ends with the test.
func start(t *testing.T, options controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	plane, err := controlplane.Start(context.Background(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	return plane
}

func clientset(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

// playOwner starts a control plane, prints its address and waits to be ended.
func playOwner() {
	plane, err := controlplane.Start(context.Background(), controlplane.Options{ControllerManager: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(plane.Config().Host)
	select {}
}

func startOwner(t *testing.T) (owner *exec.Cmd, host string) {
	t.Helper()
	owner = exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), asOwner+"=1")
	owner.Stderr = os.Stderr
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = owner.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the owner did not start: %v", err)
	}
	return owner, strings.TrimSpace(line)
}

// serves reports whether an API server answers at an address, in whatever way.
func serves(host string) bool {
	client := &http.Client{Timeout: 5 * time.Second}
	response, err := client.Get(strings.Replace(host, "https:", "http:", 1))
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, response.Body)
	return response.Body.Close() == nil
}

// await polls a condition for half a minute.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// processes lists the command lines that name a path, without those that name one of
// the folders to except.
func processes(t *testing.T, path string, except []string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), path) {
			continue // it ended meanwhile, or is none of ours
		}
		if !slices.ContainsFunc(except, func(dir string) bool { return strings.Contains(string(text), dir) }) {
			found = append(found, string(text))
		}
	}
	return found
}

// runDirs lists the folders of running control planes below a temporary folder.
func runDirs(t *testing.T, temp string) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(temp, "kandev-*", "cp-*"))
	if err != nil {
		t.Fatal(err)
	}
	return left
}
