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

// meddled is the real cluster whose network can be cut, and whose watch can
// freeze: it stays open and says nothing.
type meddled struct {
	identity.Cluster
	looks  atomic.Int64
	cut    atomic.Bool
	frozen atomic.Bool
}

func (m *meddled) Look(ctx context.Context, account identity.Account, owned bool) (identity.Sighting, error) {
	m.looks.Add(1)
	if m.cut.Load() {
		return identity.Sighting{}, errors.New("connection refused")
	}
	return m.Cluster.Look(ctx, account, owned)
}

func (m *meddled) Follow(ctx context.Context, account identity.Account, from identity.Sighting, gone func(string)) error {
	return m.Cluster.Follow(ctx, account, from, func(uid string) {
		if !m.frozen.Load() {
			gone(uid)
		}
	})
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
	cluster   *meddled
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
	w.clients = unlimited(t, w.config)
	_, err := w.clients.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
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
	cluster, err := identity.NewKubeCluster(w.config)
	must(t, err)
	w.cluster = &meddled{Cluster: cluster}
	w.auth = w.authenticator(w.reviewer, w.cluster)
	w.start(w.auth)
	return w
}

func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.offset.Load())) }

// authenticator returns one that only looks when a call needs it.
func (w *world) authenticator(reviewer identity.Reviewer, cluster identity.Cluster) *identity.Authenticator {
	return identity.NewAuthenticator(identity.Config{
		Reviewer: reviewer, Cluster: cluster, Directory: w.directory, Now: w.now,
	})
}

// start lets an authenticator look by itself until the test ends.
func (w *world) start(auth *identity.Authenticator) {
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() { done <- auth.Start(ctx) }()
	w.t.Cleanup(func() {
		stop()
		must(w.t, <-done)
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

// eventuallyRefused waits until a token that was good proves nothing, and
// returns how long that took. Until then it must be accepted, and after it
// never again.
func (w *world) eventuallyRefused(token string) time.Duration {
	w.t.Helper()
	begun := time.Now()
	w.eventually("the token is refused", func() bool {
		_, err := w.auth.Authenticate(w.t.Context(), token)
		if err != nil && !errors.Is(err, identity.ErrUnauthenticated) {
			w.t.Fatalf("got %v, want it accepted or refused", err)
		}
		return err != nil
	})
	took := time.Since(begun)
	w.refused(token, "")
	return took
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
			if err := w.auth.Refuses(test.token); !errors.Is(err, identity.ErrUnauthenticated) {
				t.Errorf("at once: %v", err)
			}
			if n := w.reviewer.reviews.Load(); n != 0 {
				t.Errorf("%d reviews: such a token must not reach the API server", n)
			}
		})
	}
	t.Run("what only the API server can tell", func(t *testing.T) {
		for _, token := range []string{good, string(altered)} {
			if err := w.auth.Refuses(token); err != nil {
				t.Errorf("refused at once: %v", err)
			}
		}
		if n := w.reviewer.reviews.Load(); n != 0 {
			t.Errorf("%d reviews", n)
		}
	})
	t.Run("altered signature", func(t *testing.T) {
		for range 3 {
			refusedBy(t, w.auth, string(altered), "does not accept the token")
		}
		if n := w.reviewer.reviews.Load(); n != 1 {
			t.Errorf("%d reviews of one refused token, want 1", n)
		}
		if err := w.auth.Refuses(string(altered)); !errors.Is(err, identity.ErrUnauthenticated) {
			t.Errorf("the next time: %v", err)
		}
	})
	t.Run("expired", func(t *testing.T) {
		w.accepted(good)
		w.offset.Store(int64(2 * time.Hour))
		defer w.offset.Store(0)
		refusedBy(t, w.auth, good, "expired")
		refusedBy(t, w.authenticator(w.reviewer, w.cluster), good, "expired")
	})
}

func TestI1_EveryCallChecksThePodAndTheInstallation(t *testing.T) {
	t.Run("deleted pod", func(t *testing.T) {
		w := newWorld(t)
		token, never := w.good(), w.good()
		w.accepted(token)
		w.deletePod("plugin-0")
		w.eventuallyRefused(token)
		// One that is first seen now is refused too, though the API server may
		// still answer from its own memory.
		w.refused(never, "the pod or its ServiceAccount does not exist")

		again := w.createPod("plugin-0", "plugin", "")
		w.refused(token, "the pod or its ServiceAccount does not exist")
		if got := w.accepted(w.token("plugin", again, contract.Audience)); got.PodUID != string(again.UID) {
			t.Errorf("the new pod is %+v", got)
		}
	})
	// The API server goes on to accept the token of a pod that is being deleted
	// for a minute and more.
	t.Run("pod being deleted", func(t *testing.T) {
		w := newWorld(t)
		pod := w.createPod("plugin-1", "plugin", "some-node")
		token := w.token("plugin", pod, contract.Audience)
		w.accepted(token)
		w.deletePod("plugin-1")
		review, err := w.reviewer.Review(t.Context(), token, contract.Audience)
		must(t, err)
		if !review.Authenticated {
			t.Error("the API server refuses the token by itself: this test shows nothing")
		}
		w.eventuallyRefused(token)
		refusedBy(t, w.authenticator(w.reviewer, w.cluster), token, "being deleted")
	})
	t.Run("ServiceAccount deleted", func(t *testing.T) {
		w := newWorld(t)
		token := w.good()
		w.accepted(token)
		must(t, w.clients.CoreV1().ServiceAccounts(w.namespace).Delete(t.Context(), "plugin", metav1.DeleteOptions{}))
		w.eventuallyRefused(token)
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
	auth := w.authenticator(w.reviewer, w.cluster) // nothing has been seen yet
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
	other := &directory{account: identity.Account{Namespace: w.namespace, Name: "other"}}
	other.registration.Store(&identity.Registration{InstallationID: "inst-2", ServiceAccountUID: string(account.UID)})
	fresh := w.token("other", pod, contract.Audience)
	reviewer := &gated{Reviewer: w.reviewer, free: fresh, open: make(chan struct{})}
	auth := identity.NewAuthenticator(identity.Config{
		Reviewer: reviewer, Cluster: w.cluster, Directory: directories{w.directory, other}, Now: w.now,
	})

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

// However many forged tokens of one plugin come, few of them reach the API
// server, and neither its known token nor another plugin's new one waits.
func TestI1_ForgedTokensDoNotFloodTheAPIServer(t *testing.T) {
	w := newWorld(t)
	account := w.createAccount("other")
	pod := w.createPod("other-0", "other", "")
	other := &directory{account: identity.Account{Namespace: w.namespace, Name: "other"}}
	other.registration.Store(&identity.Registration{InstallationID: "inst-2", ServiceAccountUID: string(account.UID)})
	stopped := time.Now()
	auth := identity.NewAuthenticator(identity.Config{
		Reviewer: w.reviewer, Cluster: w.cluster, Directory: directories{w.directory, other},
		Now: func() time.Time { return stopped.Add(time.Duration(w.offset.Load())) }, // it stands still
	})
	known, fresh := w.good(), w.good()
	accepted := func(what, token string) {
		t.Helper()
		if _, err := auth.Authenticate(t.Context(), token); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	accepted("the plugin's token", known)
	before := w.reviewer.reviews.Load()
	const forged, most = 1_000, 200
	unavailable := 0
	for i := range forged {
		_, err := auth.Authenticate(t.Context(), forge(t, known, func(said map[string]any) { said["jti"] = fmt.Sprint(i) }))
		switch {
		case errors.Is(err, identity.ErrUnavailable):
			unavailable++
		case !errors.Is(err, identity.ErrUnauthenticated):
			t.Fatalf("a forged token: %v", err)
		}
	}
	if n := w.reviewer.reviews.Load() - before; n != most || unavailable != forged-most {
		t.Errorf("%d of %d forged tokens reached the API server and %d were put off, want %d and the rest", n, forged, unavailable, most)
	}
	accepted("the plugin's known token", known)
	accepted("another plugin's new token", w.token("other", pod, contract.Audience))
	if _, err := auth.Authenticate(t.Context(), fresh); !errors.Is(err, identity.ErrUnavailable) {
		t.Errorf("the plugin's new token in the same second: %v, want unavailable", err)
	}
	w.offset.Store(int64(time.Second))
	accepted("the plugin's new token a second later", fresh)
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
	if _, err := w.authenticator(reviewer, w.cluster).Authenticate(t.Context(), token); !errors.Is(err, identity.ErrUnavailable) {
		t.Errorf("no answer about the token: %v, want unavailable", err)
	}
	blind, err := identity.NewKubeCluster(nowhere)
	must(t, err)
	if _, err := w.authenticator(w.reviewer, blind).Authenticate(t.Context(), token); !errors.Is(err, identity.ErrUnavailable) {
		t.Errorf("no answer about the pod: %v, want unavailable", err)
	}
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
