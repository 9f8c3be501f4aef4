package identity_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hack/controlplane"
	"github.com/kandev/plugin-host/hostsvc/identity"
)

// waitAtMost bounds every wait for the API server.
const waitAtMost = 20 * time.Second

// directory is a fixed directory that a test may change: the registration of
// one account.
type directory struct {
	account      identity.Account
	registration atomic.Pointer[identity.Registration]
}

func (d *directory) Registration(account identity.Account) (identity.Registration, bool) {
	r := d.registration.Load()
	if r != nil && r.Unknown {
		return *r, false
	}
	if r == nil || account != d.account {
		return identity.Registration{}, false
	}
	return *r, true
}

// counting counts the questions that reach the API server.
type counting struct {
	identity.Reviewer
	reviews atomic.Int64
}

func (c *counting) Review(ctx context.Context, token, audience string) (identity.Review, error) {
	c.reviews.Add(1)
	return c.Reviewer.Review(ctx, token, audience)
}

// world is a namespace on a real API server with a plugin's ServiceAccount and
// one running pod, and an authenticator over it.
type world struct {
	t         *testing.T
	config    *rest.Config
	clients   kubernetes.Interface
	namespace string
	account   *corev1.ServiceAccount
	pod       *corev1.Pod
	directory *directory
	reviewer  *counting
	pods      *identity.KubePods
	offset    atomic.Int64
	auth      *identity.Authenticator
}

var (
	planeOnce sync.Once
	plane     *controlplane.ControlPlane
	errPlane  error
	worlds    atomic.Int64
)

func TestMain(m *testing.M) {
	code := m.Run()
	if plane != nil {
		if err := plane.Stop(); err != nil {
			fmt.Println("stop the control plane:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	planeOnce.Do(func() { plane, errPlane = controlplane.Start(context.Background(), controlplane.Options{}) })
	if errPlane != nil {
		t.Fatal(errPlane)
	}
	w := &world{t: t, config: plane.Config(), namespace: fmt.Sprintf("plugin-%d", worlds.Add(1))}
	clients, err := kubernetes.NewForConfig(w.config)
	must(t, err)
	w.clients = clients
	_, err = clients.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
	}, metav1.CreateOptions{})
	must(t, err)
	w.account = w.createAccount("plugin")
	w.pod = w.createPod("plugin-0", "plugin", "")
	w.directory = &directory{account: identity.Account{Namespace: w.namespace, Name: "plugin"}}
	w.register(func(*identity.Registration) {})

	reviewer, err := identity.NewKubeReviewer(w.config)
	must(t, err)
	w.reviewer = &counting{Reviewer: reviewer}
	w.pods = w.watchPods(true)
	w.auth = w.authenticator(w.reviewer, w.pods)
	w.seePod(w.pod.Name, string(w.pod.UID))
	return w
}

func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.offset.Load())) }

func (w *world) authenticator(reviewer identity.Reviewer, pods identity.Pods) *identity.Authenticator {
	return identity.NewAuthenticator(reviewer, pods, w.directory, w.now)
}

// watchPods follows the pods; a watch that is not started knows none.
func (w *world) watchPods(start bool) *identity.KubePods {
	w.t.Helper()
	informers, err := cache.New(w.config, cache.Options{})
	must(w.t, err)
	live, err := client.New(w.config, client.Options{})
	must(w.t, err)
	pods, err := identity.NewKubePods(w.t.Context(), informers, live)
	must(w.t, err)
	if start {
		done := make(chan error, 1)
		go func() { done <- informers.Start(w.t.Context()) }()
		w.t.Cleanup(func() { must(w.t, <-done) })
	}
	return pods
}

// seePod waits until the watch shows the pod of a UID, "" for none.
func (w *world) seePod(name, uid string) {
	w.t.Helper()
	w.eventually("the watch shows pod "+name, func() bool {
		pod, found := w.pods.Pod(w.namespace, name)
		return found == (uid != "") && pod.UID == uid
	})
}

func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), waitAtMost)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.t.Fatalf("waited %v and still not: %s", waitAtMost, what)
		}
	}
}

func (w *world) createAccount(name string) *corev1.ServiceAccount {
	w.t.Helper()
	account, err := w.clients.CoreV1().ServiceAccounts(w.namespace).Create(w.t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(w.t, err)
	return account
}

func (w *world) createPod(name, account, node string) *corev1.Pod {
	w.t.Helper()
	pod, err := w.clients.CoreV1().Pods(w.namespace).Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			ServiceAccountName: account, NodeName: node,
			Containers: []corev1.Container{{Name: "plugin", Image: "plugin.invalid/plugin"}},
		},
	}, metav1.CreateOptions{})
	must(w.t, err)
	return pod
}

func (w *world) deletePod(name string) {
	w.t.Helper()
	must(w.t, w.clients.CoreV1().Pods(w.namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{}))
}

// token asks for a token bound to a pod, unbound for a nil pod.
func (w *world) token(account string, pod *corev1.Pod, audiences ...string) string {
	w.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		}
	}
	answer, err := w.clients.CoreV1().ServiceAccounts(w.namespace).CreateToken(w.t.Context(), account, request, metav1.CreateOptions{})
	must(w.t, err)
	return answer.Status.Token
}

func (w *world) good() string { return w.token("plugin", w.pod, contract.Audience) }

func (w *world) register(change func(*identity.Registration)) {
	r := identity.Registration{
		InstallationID: "inst-1", InstallationName: "notes", PluginID: "kandev.notes",
		ServiceAccountUID: string(w.account.UID),
	}
	change(&r)
	w.directory.registration.Store(&r)
}

func (w *world) accepted(token string) identity.Principal {
	w.t.Helper()
	principal, err := w.auth.Authenticate(w.t.Context(), token)
	if err != nil {
		w.t.Fatalf("a good token is refused: %v", err)
	}
	return principal
}

func (w *world) refused(token, why string) {
	w.t.Helper()
	refusedBy(w.t, w.auth, token, why)
}

func refusedBy(t *testing.T, auth *identity.Authenticator, token, why string) {
	t.Helper()
	principal, err := auth.Authenticate(t.Context(), token)
	if !errors.Is(err, identity.ErrUnauthenticated) || !strings.Contains(err.Error(), why) {
		t.Errorf("got %+v, %v; want it refused because %q", principal, err, why)
	}
	if principal != (identity.Principal{}) {
		t.Errorf("refused with a principal: %+v", principal)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestI1_TokenProvesItsInstallation(t *testing.T) {
	w := newWorld(t)
	token := w.good()
	got := w.accepted(token)
	credential := got.CredentialID
	want := identity.Principal{
		InstallationID: "inst-1", InstallationName: "notes", PluginID: "kandev.notes",
		ServiceAccount:    identity.Account{Namespace: w.namespace, Name: "plugin"},
		ServiceAccountUID: string(w.account.UID), PodName: "plugin-0", PodUID: string(w.pod.UID), CredentialID: credential,
	}
	if got != want || credential == "" {
		t.Errorf("got %+v, want %+v with a credential ID", got, want)
	}
	if w.accepted(token) != got {
		t.Error("the same token proves something else from memory")
	}
	if n := w.reviewer.reviews.Load(); n != 1 {
		t.Errorf("%d reviews of one token, want 1", n)
	}
	both := w.token("plugin", w.pod, contract.Audience, "another.example")
	if got := w.accepted(both); got.InstallationID != "inst-1" || got.CredentialID == credential {
		t.Errorf("a token of two audiences: %+v", got)
	}
}

func TestI1_OneReviewForManyCallers(t *testing.T) {
	w := newWorld(t)
	token := w.good()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var callers sync.WaitGroup
	for i := range 64 {
		callers.Go(func() {
			ctx := t.Context()
			if i%8 == 0 {
				// A caller that has gone away must take nothing from the others.
				ctx = gone
			}
			_, err := w.auth.Authenticate(ctx, token)
			if err != nil && !(ctx == gone && errors.Is(err, identity.ErrUnavailable)) {
				t.Errorf("caller %d: %v", i, err)
			}
		})
	}
	callers.Wait()
	w.accepted(token)
	if n := w.reviewer.reviews.Load(); n != 1 {
		t.Errorf("%d reviews of one token, want 1", n)
	}
}

func TestI1_BadTokens(t *testing.T) {
	w := newWorld(t)
	other := w.createAccount("other")
	otherPod := w.createPod("other-0", "other", "")
	good := w.good()
	altered := []byte(good)
	// A base64 character in the middle of the signature.
	if i := len(altered) - 20; altered[i] == 'A' {
		altered[i] = 'B'
	} else {
		altered[i] = 'A'
	}
	for _, test := range []struct{ name, token, why string }{
		{"none", "", "three parts"},
		{"garbage", "garbage", "three parts"},
		{"another audience", w.token("plugin", w.pod, "another.example"), "another audience"},
		{"the API server's own audience", w.token("plugin", w.pod), "another audience"},
		{"unbound", w.token("plugin", nil, contract.Audience), "not bound to a pod"},
		{"unknown ServiceAccount", w.token(other.Name, otherPod, contract.Audience), "no installation names"},
	} {
		t.Run(test.name, func(t *testing.T) {
			refusedBy(t, w.auth, test.token, test.why)
			if n := w.reviewer.reviews.Load(); n != 0 {
				t.Errorf("%d reviews: such a token must not reach the API server", n)
			}
		})
	}
	t.Run("altered signature", func(t *testing.T) {
		for range 3 {
			refusedBy(t, w.auth, string(altered), "does not accept the token")
		}
		if n := w.reviewer.reviews.Load(); n != 1 {
			t.Errorf("%d reviews of one refused token, want 1", n)
		}
	})
	t.Run("expired", func(t *testing.T) {
		w.accepted(good)
		w.offset.Store(int64(2 * time.Hour))
		defer w.offset.Store(0)
		refusedBy(t, w.auth, good, "expired")
		refusedBy(t, w.authenticator(w.reviewer, w.pods), good, "expired")
	})
}

func TestI1_EveryCallChecksThePodAndTheInstallation(t *testing.T) {
	t.Run("deleted pod", func(t *testing.T) {
		w := newWorld(t)
		token, never := w.good(), w.good()
		w.accepted(token)
		w.deletePod("plugin-0")
		w.seePod("plugin-0", "")
		w.refused(token, "the pod does not exist")
		// One that is first seen now is refused too, though the API server may
		// still answer from its own memory.
		w.refused(never, "the pod does not exist")

		again := w.createPod("plugin-0", "plugin", "")
		w.refused(token, "the pod does not exist")
		if got := w.accepted(w.token("plugin", again, contract.Audience)); got.PodUID != string(again.UID) {
			t.Errorf("the new pod is %+v", got)
		}
	})
	t.Run("pod being deleted", func(t *testing.T) {
		w := newWorld(t)
		pod := w.createPod("plugin-1", "plugin", "some-node")
		w.seePod("plugin-1", string(pod.UID))
		token := w.token("plugin", pod, contract.Audience)
		w.accepted(token)
		w.deletePod("plugin-1")
		w.eventually("the watch shows the deletion", func() bool {
			got, found := w.pods.Pod(w.namespace, "plugin-1")
			return found && got.Deleting
		})
		w.refused(token, "being deleted")
		refusedBy(t, w.authenticator(w.reviewer, w.watchPods(false)), token, "being deleted")
	})
	t.Run("watch behind", func(t *testing.T) {
		w := newWorld(t)
		auth := w.authenticator(w.reviewer, w.watchPods(false))
		token := w.good()
		if _, err := auth.Authenticate(t.Context(), token); err != nil {
			t.Fatalf("a running pod that the watch has not shown: %v", err)
		}
		w.deletePod("plugin-0")
		refusedBy(t, auth, token, "the pod does not exist")
	})
	t.Run("ServiceAccount of another UID", func(t *testing.T) {
		w := newWorld(t)
		must(t, w.clients.CoreV1().ServiceAccounts(w.namespace).Delete(t.Context(), "plugin", metav1.DeleteOptions{}))
		w.createAccount("plugin")
		pod := w.createPod("plugin-1", "plugin", "")
		w.refused(w.token("plugin", pod, contract.Audience), "not the one that the installation was pinned to")
	})
	for _, test := range []struct {
		name, why string
		change    func(*identity.Registration)
	}{
		{"pin moved", "pinned to", func(r *identity.Registration) { r.ServiceAccountUID = "another" }},
		{"nothing pinned", "pinned to", func(r *identity.Registration) { r.ServiceAccountUID = "" }},
		{"no installation ID", "pinned to", func(r *identity.Registration) { r.InstallationID = "" }},
		{"two installations", "more than one installation", func(r *identity.Registration) { r.Conflict = true }},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			token := w.good()
			w.accepted(token)
			w.register(test.change)
			w.refused(token, test.why)
			w.register(func(*identity.Registration) {})
			w.accepted(token)
		})
	}
	t.Run("uninstalled", func(t *testing.T) {
		w := newWorld(t)
		token := w.good()
		w.accepted(token)
		w.directory.registration.Store(nil)
		w.refused(token, "no installation names")
	})
}

// forge returns a token that says something else of itself, under the signature
// that it had.
func forge(t *testing.T, token string, change func(said map[string]any)) string {
	t.Helper()
	parts := strings.Split(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	must(t, err)
	var said map[string]any
	must(t, json.Unmarshal(text, &said))
	change(said)
	text, err = json.Marshal(said)
	must(t, err)
	parts[1] = base64.RawURLEncoding.EncodeToString(text)
	return strings.Join(parts, ".")
}

// boundPod is the pod that claims name.
func boundPod(said map[string]any) map[string]any {
	bound, _ := said["kubernetes.io"].(map[string]any)
	pod, _ := bound["pod"].(map[string]any)
	return pod
}

// A token that gives the UID of a running pod to another name is refused, and
// its refusal is not the pod's.
func TestI1_ForgedTokenSaysNothingAboutAPod(t *testing.T) {
	w := newWorld(t)
	auth := w.authenticator(w.reviewer, w.watchPods(false)) // the pod is not in the watch yet
	good := w.good()
	for _, name := range []string{"plugin-9", "..", "a/b", strings.Repeat("x", 300)} {
		_, err := auth.Authenticate(t.Context(), forge(t, good, func(said map[string]any) { boundPod(said)["name"] = name }))
		if !errors.Is(err, identity.ErrUnauthenticated) {
			t.Errorf("a pod called %.20q: %v", name, err)
		}
	}
	if _, err := auth.Authenticate(t.Context(), good); err != nil {
		t.Errorf("after forged tokens of the same pod: %v", err)
	}
	if n := w.reviewer.reviews.Load(); n != 1 {
		t.Errorf("%d reviews, want that of the good token alone", n)
	}
}

// gated holds the reviews of all tokens but one.
type gated struct {
	identity.Reviewer
	free string
	held atomic.Int64
	open chan struct{}
}

func (g *gated) Review(ctx context.Context, token, audience string) (identity.Review, error) {
	if token != g.free {
		g.held.Add(1)
		<-g.open
	}
	return g.Reviewer.Review(ctx, token, audience)
}

// directories asks one after another.
type directories []*directory

func (d directories) Registration(account identity.Account) (identity.Registration, bool) {
	for _, one := range d {
		if r, ok := one.Registration(account); ok {
			return r, true
		}
	}
	return identity.Registration{}, false
}

// Forged tokens that say all the right things about one plugin are refused, and
// keep no other plugin from being asked about.
func TestI1_ForgedTokensLeaveRoomForOthers(t *testing.T) {
	w := newWorld(t)
	account := w.createAccount("other")
	pod := w.createPod("other-0", "other", "")
	w.seePod(pod.Name, string(pod.UID))
	other := &directory{account: identity.Account{Namespace: w.namespace, Name: "other"}}
	other.registration.Store(&identity.Registration{InstallationID: "inst-2", ServiceAccountUID: string(account.UID)})
	fresh := w.token("other", pod, contract.Audience)
	reviewer := &gated{Reviewer: w.reviewer, free: fresh, open: make(chan struct{})}
	auth := identity.NewAuthenticator(reviewer, w.pods, directories{w.directory, other}, w.now)

	good := w.good()
	var forgers sync.WaitGroup
	var refused, unavailable atomic.Int64
	const forged = 200
	for i := range forged {
		token := forge(t, good, func(said map[string]any) { said["jti"] = fmt.Sprint(i) })
		forgers.Go(func() {
			switch _, err := auth.Authenticate(t.Context(), token); {
			case errors.Is(err, identity.ErrUnauthenticated):
				refused.Add(1)
			case errors.Is(err, identity.ErrUnavailable):
				unavailable.Add(1)
			default:
				t.Errorf("a forged token: %v", err)
			}
		})
	}
	w.eventually("the forgers have their share", func() bool { return reviewer.held.Load()+unavailable.Load() == forged })
	got, err := auth.Authenticate(t.Context(), fresh)
	if err != nil || got.InstallationID != "inst-2" {
		t.Errorf("another plugin's first call: %+v, %v", got, err)
	}
	close(reviewer.open)
	forgers.Wait()
	if refused.Load() == 0 || refused.Load() > 16 {
		t.Errorf("%d forged tokens were asked about at once, want some and at most 16", refused.Load())
	}
}

// A Host that has just started knows nobody yet: a plugin that calls then is to
// come again, not to give up.
func TestI6_IncompleteDirectoryIsUnavailable(t *testing.T) {
	w := newWorld(t)
	w.register(func(r *identity.Registration) { *r = identity.Registration{Unknown: true} })
	token, known := w.good(), w.good()
	if _, err := w.auth.Authenticate(t.Context(), token); !errors.Is(err, identity.ErrUnavailable) {
		t.Errorf("before the installations were seen: %v, want unavailable", err)
	}
	w.register(func(*identity.Registration) {})
	w.accepted(token)
	w.accepted(known)
	w.register(func(r *identity.Registration) { r.Unknown = true })
	if _, err := w.auth.Authenticate(t.Context(), known); !errors.Is(err, identity.ErrUnavailable) {
		t.Errorf("a token from memory: %v, want unavailable", err)
	}
}

func TestI6_UnreachableAPIServerIsUnavailable(t *testing.T) {
	w := newWorld(t)
	token := w.good()
	nowhere := rest.CopyConfig(w.config)
	nowhere.Host = "https://127.0.0.1:1/"
	reviewer, err := identity.NewKubeReviewer(nowhere)
	must(t, err)
	if _, err := w.authenticator(reviewer, w.pods).Authenticate(t.Context(), token); !errors.Is(err, identity.ErrUnavailable) {
		t.Errorf("no answer about the token: %v, want unavailable", err)
	}

	live, err := client.New(w.config, client.Options{})
	must(t, err)
	w.accepted(token)
	away := &unreachable{Reader: live}
	informers, err := cache.New(w.config, cache.Options{})
	must(t, err)
	blind, err := identity.NewKubePods(t.Context(), informers, away)
	must(t, err)
	auth := w.authenticator(w.reviewer, blind)
	if _, err := auth.Authenticate(t.Context(), token); err != nil {
		t.Fatalf("a good token: %v", err)
	}
	away.gone.Store(true)
	if _, err := auth.Authenticate(t.Context(), token); !errors.Is(err, identity.ErrUnavailable) {
		t.Errorf("no answer about the pod: %v, want unavailable", err)
	}
}

// unreachable is a live reader whose network can be cut.
type unreachable struct {
	client.Reader
	gone atomic.Bool
}

func (u *unreachable) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if u.gone.Load() {
		return errors.New("connection refused")
	}
	return u.Reader.Get(ctx, key, object, options...)
}

func TestVerifiedTokenCostsNoAllocation(t *testing.T) {
	w := newWorld(t)
	token := w.good()
	w.accepted(token)
	allocations := testing.AllocsPerRun(1_000, func() {
		if _, err := w.auth.Authenticate(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	})
	if allocations != 0 {
		t.Errorf("%v allocations, want none", allocations)
	}
}
