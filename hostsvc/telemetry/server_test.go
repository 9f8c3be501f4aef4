package telemetry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hack/controlplane"
	"github.com/kandev/plugin-host/hostsvc/auditlog"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/store"
	"github.com/kandev/plugin-host/hostsvc/store/sqlite"
)

// shown is the server on a real API server and a real store.
type shown struct {
	*testing.T
	clients *kubernetes.Clientset
	store   *store.Store
	address string
	client  *http.Client
}

func show(t *testing.T) *shown {
	t.Helper()
	plane, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := &shown{T: t, clients: kubernetes.NewForConfigOrDie(plane.Config())}
	engine, err := sqlite.Open(filepath.Join(t.TempDir(), "host.db"))
	s.must(err)
	s.store, err = store.Open(t.Context(), engine, store.Options{
		Now: time.Now, Log: slog.New(slog.DiscardHandler), Fatal: func(err error) { panic(err) },
	})
	s.must(err)
	t.Cleanup(func() { s.must(s.store.Close()) })

	certificate, roots := selfSigned(t)
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	s.must(err)
	s.address = free.Addr().String()
	s.must(free.Close())
	config := plane.Config()
	transport, err := rest.HTTPClientFor(config)
	s.must(err)
	server, err := metricsserver.NewServer(Server(ServerConfig{
		Listen: s.address, Archive: s.store, Log: slog.New(slog.DiscardHandler),
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil },
	}), config, transport)
	s.must(err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		s.must(<-served)
	})
	s.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "plugin-host"}}}
	deadline := time.NewTimer(20 * time.Second)
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		if code, _ := s.get("", "/metrics"); code != 0 {
			return s
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("the server does not come up")
		}
	}
}

func (s *shown) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// get asks with a token; the code is 0 when there was no answer.
func (s *shown) get(token, path string) (code int, text string) {
	s.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://"+s.address+path, http.NoBody)
	s.must(err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

// may makes a person of a shipped ClusterRole and returns their token.
func (s *shown) may(name, roleFile string) string {
	s.Helper()
	_, err := s.clients.CoreV1().ServiceAccounts("default").Create(s.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	s.must(err)
	if roleFile != "" {
		text, err := os.ReadFile(filepath.Join("../../config/rbac", roleFile))
		s.must(err)
		var role rbacv1.ClusterRole
		s.must(yaml.UnmarshalStrict(text, &role))
		_, err = s.clients.RbacV1().ClusterRoles().Create(s.Context(), &role, metav1.CreateOptions{})
		s.must(err)
		_, err = s.clients.RbacV1().ClusterRoleBindings().Create(s.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}},
		}, metav1.CreateOptions{})
		s.must(err)
	}
	token, err := s.clients.CoreV1().ServiceAccounts("default").CreateToken(s.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	s.must(err)
	return token.Status.Token
}

// history archives n revisions of a key and returns them.
func (s *shown) history(key authority.Key, n int) []authority.Event {
	s.Helper()
	row := authority.Row{Key: key}
	events := make([]authority.Event, n)
	for i := range events {
		next := authority.Row{
			Key: key, Revision: row.Revision + 1, State: authority.StateActive, Granted: contract.SetOf(contract.ReadTasks),
			Declared: contract.AllCapabilities, Allowed: contract.AllCapabilities,
			Vector: authority.Vector{WorkspaceID: key.WorkspaceID}, Actor: authority.Actor{Name: "ann", Assurance: authority.ActorVerified},
			Cause: authority.CauseHuman, Reason: fmt.Sprintf("revision %d", i+1), UpdatedAt: time.Unix(1_700_000_000+int64(i), 0).UTC(),
		}
		next.Sum = next.Vector.Sum()
		event, err := authority.NewEvent(row, authority.Outcome{Next: next, Type: authority.EventNarrow}, "notes")
		s.must(err)
		events[i], row = event, event.Row
	}
	s.must(s.store.Archive(s.Context(), events))
	return events
}

func TestMetricsAndHistoryAreForWhomTheAPIServerLets(t *testing.T) {
	s := show(t)
	key := authority.Key{InstallationID: "inst-1", WorkspaceID: "payments"}
	want := s.history(key, historyPage+3)
	s.history(authority.Key{InstallationID: "inst-1", WorkspaceID: "other"}, 2)
	const events = auditlog.Path + "?installation=inst-1&workspace=payments"
	prometheus, auditor, nobody := s.may("prometheus", "metrics_reader_role.yaml"), s.may("auditor", "auditor_role.yaml"), s.may("nobody", "")

	for _, test := range []struct {
		name, token, path string
		code              int
	}{
		{"no token", "", "/metrics", http.StatusUnauthorized},
		{"no token", "", events, http.StatusUnauthorized},
		// The API server says what is wrong with it, which the filter takes for an error.
		{"a forged token", nobody + "x", events, http.StatusInternalServerError},
		{"nobody", nobody, "/metrics", http.StatusForbidden},
		{"nobody", nobody, events, http.StatusForbidden},
		{"prometheus", prometheus, "/metrics", http.StatusOK},
		{"prometheus", prometheus, events, http.StatusForbidden},
		{"auditor", auditor, "/metrics", http.StatusForbidden},
		{"auditor", auditor, events, http.StatusOK},
	} {
		if code, text := s.get(test.token, test.path); code != test.code {
			t.Errorf("%s at %s: %d %s, want %d", test.name, test.path, code, text, test.code)
		}
	}

	_, text := s.get(auditor, events)
	revision := uint64(0)
	for event, err := range auditlog.Decode(strings.NewReader(text)) {
		s.must(err)
		revision++
		if event.Row.Key != key || event.Hash() != want[revision-1].Hash() {
			t.Fatalf("event %d is %+v", revision, event.Row)
		}
	}
	if int(revision) != len(want) {
		t.Errorf("%d events, want %d", revision, len(want))
	}
	if _, text := s.get(auditor, events+"&after=202"); strings.Count(text, "\n") != 1 {
		t.Errorf("after revision 202 there are %d, want 1", strings.Count(text, "\n"))
	}
	if code, text := s.get(auditor, auditlog.Path+"?installation=inst-1&workspace=nowhere"); code != http.StatusOK || text != "" {
		t.Errorf("of a workspace without history: %d %q", code, text)
	}
	for path, fault := range map[string]string{
		auditlog.Path:                                    "installation: is required",
		auditlog.Path + "?installation=inst-1":           "workspace: is required",
		events + "&after=-1":                             "after: is no revision",
		events + "&workspace=other":                      "workspace: is given more than once",
		events + "&limit=5":                              "limit: there is no such parameter",
		auditlog.Path + "?installation=%20i&workspace=w": "installation: starts with white space",
	} {
		if code, text := s.get(auditor, path); code != http.StatusBadRequest || !strings.Contains(text, fault) {
			t.Errorf("%s: %d %q, want it to say %q", path, code, text, fault)
		}
	}
}

// broken gives one page and then fails.
type broken struct{ first []authority.Event }

func (b broken) ArchivedEvents(_ context.Context, _ authority.Key, after uint64, _ int) ([]authority.Event, error) {
	if after == 0 && b.first != nil {
		return b.first, nil
	}
	return nil, errors.New("SELECT secret FROM events")
}

// TestAPartIsNeverTakenForTheWhole: a history that can't be read to its end ends
// in an error of the transport, and one that can't be begun in one of HTTP.
func TestAPartIsNeverTakenForTheWhole(t *testing.T) {
	row := authority.Row{Key: authority.Key{InstallationID: "i", WorkspaceID: "w"}, Revision: 1, State: authority.StateRevoked, UpdatedAt: time.Unix(1_700_000_000, 0).UTC()}
	row.Vector.WorkspaceID = "w"
	row.Sum = row.Vector.Sum()
	event, err := authority.NewEvent(authority.Row{Key: row.Key}, authority.Outcome{Next: row, Type: authority.EventNarrow}, "notes")
	if err != nil {
		t.Fatal(err)
	}
	page := make([]authority.Event, historyPage)
	for i := range page {
		page[i] = event
	}
	for name, archive := range map[string]broken{"at once": {}, "in the middle": {first: page}} {
		t.Run(name, func(t *testing.T) {
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{Handler: &history{archive: archive, log: slog.New(slog.DiscardHandler)}}
			served := make(chan error, 1)
			go func() { served <- server.Serve(listener) }()
			defer func() {
				_ = server.Close()
				<-served
			}()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+"?installation=i&workspace=w", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			text, err := io.ReadAll(response.Body)
			if archive.first == nil {
				if response.StatusCode != http.StatusInternalServerError || strings.Contains(string(text), "SELECT") {
					t.Errorf("%d %s", response.StatusCode, text)
				}
			} else if err == nil {
				t.Errorf("a part reads as the whole: %d bytes", len(text))
			}
		})
	}
	response := &recorded{header: http.Header{}}
	(&history{}).ServeHTTP(response, &http.Request{Method: http.MethodPost})
	if response.code != http.StatusMethodNotAllowed || response.header.Get("Allow") != http.MethodGet {
		t.Errorf("a POST: %d", response.code)
	}
}

type recorded struct {
	header http.Header
	code   int
}

func (r *recorded) Header() http.Header         { return r.header }
func (r *recorded) Write(p []byte) (int, error) { return len(p), nil }
func (r *recorded) WriteHeader(code int)        { r.code = code }
