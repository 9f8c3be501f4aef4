package web_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/kandev/plugin-host/launcher/pack"
	"github.com/kandev/plugin-host/launcher/web"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

const manifest = `
id: notes
api_version: 1
version: "1"
runtime: {type: binary, executables: {linux-amd64: plugin}}
capabilities: {auth: %auth%}
webhooks:
  - {key: open, max_body_bytes: 10}
  - {key: closed, access: authenticated}
actions:
  - {key: sync, scope: workspace, max_body_bytes: 20}
  - {key: look, scope: task, max_body_bytes: 1048576}
  - {key: push, scope: repository, max_body_bytes: 10}
`

type plugin struct {
	pluginv1.UnimplementedPluginServer

	mu      sync.Mutex
	webhook func(*pluginv1.WebhookRequest) (*pluginv1.WebhookResponse, error)
	action  func(context.Context, *pluginv1.PluginActionRequest) (*pluginv1.PluginActionResponse, error)
	hooks   []*pluginv1.WebhookRequest
	actions []*pluginv1.PluginActionRequest
}

func (p *plugin) HandleWebhook(_ context.Context, r *pluginv1.WebhookRequest) (*pluginv1.WebhookResponse, error) {
	p.mu.Lock()
	p.hooks = append(p.hooks, r)
	p.mu.Unlock()
	return p.webhook(r)
}

func (p *plugin) HandleAction(ctx context.Context, r *pluginv1.PluginActionRequest) (*pluginv1.PluginActionResponse, error) {
	p.mu.Lock()
	p.actions = append(p.actions, r)
	p.mu.Unlock()
	return p.action(ctx, r)
}

type world struct {
	*plugin
	server *web.Server
	http   http.Handler
	runs   bool
}

func newWorld(t *testing.T, auth bool) *world {
	t.Helper()
	parsed, err := pack.ParseManifest([]byte(strings.Replace(manifest, "%auth%", map[bool]string{true: "true", false: "false"}[auth], 1)))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{plugin: &plugin{
		webhook: func(*pluginv1.WebhookRequest) (*pluginv1.WebhookResponse, error) {
			return &pluginv1.WebhookResponse{Status: 200}, nil
		},
		action: func(context.Context, *pluginv1.PluginActionRequest) (*pluginv1.PluginActionResponse, error) {
			return &pluginv1.PluginActionResponse{}, nil
		},
	}, runs: true}
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer(grpc.MaxRecvMsgSize(17 << 20))
	pluginv1.RegisterPluginServer(server, w.plugin)
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
	})
	w.server = &web.Server{
		Manifest: parsed, Log: slog.New(slog.DiscardHandler), WebhookTimeout: web.DefaultWebhookTimeout,
		Plugin:     func() (grpc.ClientConnInterface, bool) { return conn, w.runs },
		IsPlatform: func(bearer string) bool { return bearer == "platform" },
	}
	w.http = w.server.Handler()
	return w
}

type call struct {
	method, path, body string
	headers            []string // name, value, ...
}

func (w *world) do(t *testing.T, c call) (*http.Response, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(c.body))
	for i := 0; i < len(c.headers); i += 2 {
		r.Header.Add(c.headers[i], c.headers[i+1])
	}
	recorder := httptest.NewRecorder()
	w.http.ServeHTTP(recorder, r)
	answer := recorder.Result()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer.Header.Get("Content-Type") == "application/json" {
		var failed struct {
			Error string `json:"error"`
		}
		if json.Unmarshal(text, &failed) == nil && failed.Error != "" {
			return answer, failed.Error
		}
	}
	return answer, string(text)
}

func platform(more ...string) []string {
	return append([]string{"Authorization", "Bearer platform", "X-Kandev-Actor-Id", "ann"}, more...)
}

func TestAWebhookIsRelayed(t *testing.T) {
	w := newWorld(t, false)
	w.webhook = func(r *pluginv1.WebhookRequest) (*pluginv1.WebhookResponse, error) {
		return &pluginv1.WebhookResponse{Status: 418, Body: append([]byte("got "), r.GetBody()...), Headers: map[string]string{
			"X-Answer": "yes", "set-cookie": "a=b", "Transfer-Encoding": "chunked", "Content-Type": "text/plain",
		}}, nil
	}
	answer, text := w.do(t, call{"POST", "/webhooks/open?a=1&b=%20", "hello", []string{
		"X-Two", "1", "X-Two", "2", "Authorization", "Bearer x", "Cookie", "c=d", "X-Bytes", "\xff",
	}})
	if answer.StatusCode != http.StatusTeapot || text != "got hello" || answer.Header.Get("X-Answer") != "yes" ||
		answer.Header.Get("Set-Cookie") != "" || answer.Header.Get("Transfer-Encoding") != "" {
		t.Errorf("answers %d %q with %v", answer.StatusCode, text, answer.Header)
	}
	got := w.hooks[0]
	if got.GetWebhookKey() != "open" || got.GetMethod() != "POST" || got.GetPath() != "" || got.GetQuery() != "a=1&b=%20" ||
		string(got.GetBody()) != "hello" || got.GetHeaders()["X-Two"] != "1, 2" || got.GetHeaders()["X-Bytes"] != "\uFFFD" {
		t.Errorf("the plugin got %v", got)
	}
	for _, name := range []string{"Authorization", "Cookie"} {
		if _, there := got.GetHeaders()[name]; there {
			t.Errorf("the plugin got %s", name)
		}
	}
}

// A query of any bytes reaches the plugin: a stranger's odd request is no failure of the
// plugin's.
func TestAQueryOfAnyBytesIsRelayed(t *testing.T) {
	for given, want := range map[string]string{
		"a=\xff&b=\u00e9%20": "a=%FF&b=%C3%A9%20", "a=\u00e9": "a=\u00e9", "": "", "%zz": "%zz",
	} {
		w := newWorld(t, false)
		if answer, text := w.do(t, call{"POST", "/webhooks/open?" + given, "", nil}); answer.StatusCode != http.StatusOK {
			t.Errorf("%q is answered %d %q", given, answer.StatusCode, text)
			continue
		}
		if got := w.hooks[0].GetQuery(); got != want {
			t.Errorf("of %q the plugin got %q", given, got)
		}
	}
}

func TestWebhookErrors(t *testing.T) {
	tests := map[string]struct {
		call    call
		answer  *pluginv1.WebhookResponse
		err     error
		stopped bool
		status  int
		text    string
	}{
		"unknown":        {call: call{method: "POST", path: "/webhooks/other"}, status: 404, text: `plugin "notes" has no webhook "other"`},
		"a path below":   {call: call{method: "POST", path: "/webhooks/open/more"}, status: 404, text: "404 page not found\n"},
		"a method":       {call: call{method: "PUT", path: "/webhooks/open"}, status: 405, text: "Method Not Allowed\n"},
		"HEAD":           {call: call{method: "HEAD", path: "/webhooks/open"}, status: 405},
		"a stranger":     {call: call{method: "POST", path: "/webhooks/closed"}, status: 401, text: "authentication required"},
		"a wrong bearer": {call: call{method: "POST", path: "/webhooks/closed", headers: []string{"Authorization", "Bearer other"}}, status: 401, text: "authentication required"},
		"too large":      {call: call{method: "POST", path: "/webhooks/open", body: "12345678901"}, status: 413, text: "webhook body exceeds max size of 10 bytes"},
		"no status":      {call: call{method: "GET", path: "/webhooks/open"}, answer: &pluginv1.WebhookResponse{}, status: 502, text: "plugin returned invalid webhook status 0"},
		"status 600":     {call: call{method: "GET", path: "/webhooks/open"}, answer: &pluginv1.WebhookResponse{Status: 600}, status: 502, text: "plugin returned invalid webhook status 600"},
		"not running":    {call: call{method: "GET", path: "/webhooks/open"}, stopped: true, status: 503, text: "plugin is not active"},
		"gone meanwhile": {call: call{method: "GET", path: "/webhooks/open"}, err: status.Error(codes.Unavailable, "x"), status: 503, text: "plugin is not active"},
		"failing":        {call: call{method: "GET", path: "/webhooks/open"}, err: errors.New("secret detail"), status: 502, text: "plugin webhook failed"},
		"exhausted":      {call: call{method: "GET", path: "/webhooks/open"}, err: status.Error(codes.ResourceExhausted, "x"), status: 502, text: "plugin webhook failed"},
		"a long answer":  {call: call{method: "GET", path: "/webhooks/open"}, answer: &pluginv1.WebhookResponse{Status: 200, Body: make([]byte, 16<<20+1)}, status: 502, text: "plugin webhook response exceeds maximum size"},
		"far too long":   {call: call{method: "GET", path: "/webhooks/open"}, answer: &pluginv1.WebhookResponse{Status: 200, Body: make([]byte, 20<<20)}, status: 502, text: "plugin webhook response exceeds maximum size"},
		"long headers": {call: call{method: "GET", path: "/webhooks/open"}, answer: &pluginv1.WebhookResponse{Status: 200, Headers: map[string]string{"X-Long": strings.Repeat("x", 64<<10)}},
			status: 502, text: "plugin webhook response exceeds maximum size"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, false)
			w.runs = !test.stopped
			if test.answer != nil || test.err != nil {
				w.webhook = func(*pluginv1.WebhookRequest) (*pluginv1.WebhookResponse, error) { return test.answer, test.err }
			}
			answer, text := w.do(t, test.call)
			if answer.StatusCode != test.status || text != test.text {
				t.Errorf("answers %d %q", answer.StatusCode, text)
			}
		})
	}
	w := newWorld(t, false)
	if answer, text := w.do(t, call{"POST", "/webhooks/closed", strings.Repeat("x", 4<<20), platform()}); answer.StatusCode != http.StatusOK {
		t.Errorf("the platform is answered %d %q", answer.StatusCode, text)
	}
	w.server.IsPlatform = nil
	if answer, _ := w.do(t, call{"POST", "/webhooks/closed", "", platform()}); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a shared bearer, somebody is the platform: %d", answer.StatusCode)
	}
}

func TestLoginsAreForThePlatformAlone(t *testing.T) {
	for name, test := range map[string]struct {
		declared bool
		platform bool
		headers  map[string]string
		want     int
	}{
		"declared":           {true, true, map[string]string{"X-Kandev-Auth-Login": "{}"}, 200},
		"not declared":       {false, true, map[string]string{"x-kandev-auth-login": "{}"}, 403},
		"not to a stranger":  {true, false, map[string]string{"X-Kandev-Auth-Login": "{}"}, 403},
		"twice":              {true, true, map[string]string{"X-Kandev-Auth-Login": "{}", "x-kandev-auth-login": "{}"}, 403},
		"none is no trouble": {false, false, nil, 200},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.declared)
			w.webhook = func(*pluginv1.WebhookRequest) (*pluginv1.WebhookResponse, error) {
				return &pluginv1.WebhookResponse{Status: 200, Headers: test.headers}, nil
			}
			var headers []string
			if test.platform {
				headers = platform()
			}
			answer, text := w.do(t, call{"POST", "/webhooks/open", "", headers})
			if answer.StatusCode != test.want || test.want == 403 && text != "auth login rejected" {
				t.Errorf("answers %d %q", answer.StatusCode, text)
			}
			if got := answer.Header.Get("X-Kandev-Auth-Login"); (got != "") != (test.want == 200 && test.headers != nil) {
				t.Errorf("the login is %q", got)
			}
		})
	}
}

func TestAnActionIsRelayedInItsVerifiedContext(t *testing.T) {
	w := newWorld(t, false)
	w.action = func(_ context.Context, r *pluginv1.PluginActionRequest) (*pluginv1.PluginActionResponse, error) {
		return &pluginv1.PluginActionResponse{Body: r.GetBody(), Headers: map[string]string{"Set-Cookie": "x", "X-A": "1"}}, nil
	}
	answer, text := w.do(t, call{"POST", "/actions/look",
		`{"workspaceId":"w","taskId":"t","sessionId":"s","repositoryId":"r","body": {"deep": [1]} , "actorId": "eve"}`,
		platform("X-Kandev-Head-Branch", "main")})
	if answer.StatusCode != http.StatusOK || text != `{"deep": [1]}` || answer.Header.Get("X-A") != "1" || answer.Header.Get("Set-Cookie") != "" {
		t.Errorf("answers %d %q with %v", answer.StatusCode, text, answer.Header)
	}
	got := w.actions[0]
	who := got.GetContext()
	if got.GetActionKey() != "look" || who.GetActorId() != "ann" || who.GetWorkspaceId() != "w" || who.GetTaskId() != "t" ||
		who.GetSessionId() != "s" || who.GetRepositoryId() != "r" || who.GetHeadBranch() != "main" {
		t.Errorf("the plugin got %v", got)
	}
}

func TestActionErrors(t *testing.T) {
	good := `{"workspaceId":"w"}`
	tests := map[string]struct {
		path, body string
		headers    []string
		answer     *pluginv1.PluginActionResponse
		err        error
		stopped    bool
		status     int
		text       string
	}{
		"a stranger":              {path: "sync", body: good, status: 401, text: "authentication required"},
		"a stranger, unknown":     {path: "other", body: good, status: 401, text: "authentication required"},
		"nobody acts":             {path: "sync", body: good, headers: platform()[:2], status: 401, text: "authentication required"},
		"a wrong bearer":          {path: "sync", body: good, headers: []string{"Authorization", "Bearer other", "X-Kandev-Actor-Id", "ann"}, status: 401, text: "authentication required"},
		"unknown":                 {path: "other", body: good, headers: platform(), status: 404, text: "plugin action not found"},
		"no JSON":                 {path: "sync", body: "{", headers: platform(), status: 400, text: "invalid plugin action payload"},
		"no workspace":            {path: "sync", body: "{}", headers: platform(), status: 400, text: "workspace action requires only workspaceId"},
		"more than a workspace":   {path: "sync", body: `{"workspaceId":"w","taskId":"t"}`, headers: platform(), status: 400, text: "workspace action requires only workspaceId"},
		"no task":                 {path: "look", body: good, headers: platform(), status: 400, text: "task action requires taskId"},
		"a task of no workspace":  {path: "look", body: `{"taskId":"t"}`, headers: platform(), status: 400, text: "invalid plugin action payload"},
		"no repository":           {path: "push", body: good, headers: platform(), status: 400, text: "invalid plugin action payload"},
		"an ID that is none":      {path: "sync", body: `{"workspaceId":" w"}`, headers: platform(), status: 400, text: "invalid plugin action payload"},
		"an actor of no text":     {path: "sync", body: good, headers: []string{"Authorization", "Bearer platform", "X-Kandev-Actor-Id", "a\xff"}, status: 400, text: "invalid plugin action payload"},
		"a branch of no text":     {path: "sync", body: good, headers: platform("X-Kandev-Head-Branch", "\xff"), status: 400, text: "invalid plugin action payload"},
		"a body too large":        {path: "sync", body: `{"workspaceId":"w","body":"12345678901234567890"}`, headers: platform(), status: 413, text: "plugin action body exceeds declared maximum size"},
		"a request too large":     {path: "look", body: strings.Repeat(" ", 1<<20+4097), headers: platform(), status: 413, text: "plugin action request exceeds maximum size"},
		"an answer too large":     {path: "sync", body: good, headers: platform(), answer: &pluginv1.PluginActionResponse{Body: make([]byte, 1<<20+1)}, status: 502, text: "plugin action response exceeds maximum size"},
		"an answer far too large": {path: "sync", body: good, headers: platform(), answer: &pluginv1.PluginActionResponse{Body: make([]byte, 20<<20)}, status: 502, text: "plugin action response exceeds maximum size"},
		"long headers":            {path: "sync", body: good, headers: platform(), answer: &pluginv1.PluginActionResponse{Headers: map[string]string{"X-Long": strings.Repeat("x", 64<<10)}}, status: 502, text: "plugin action response exceeds maximum size"},
		"a status that is none":   {path: "sync", body: good, headers: platform(), answer: &pluginv1.PluginActionResponse{Status: 99}, status: 502, text: "plugin action unavailable"},
		"a login":                 {path: "sync", body: good, headers: platform(), answer: &pluginv1.PluginActionResponse{Headers: map[string]string{"X-Kandev-Auth-Login": "{}"}}, status: 403, text: "auth login rejected"},
		"not running":             {path: "sync", body: good, headers: platform(), stopped: true, status: 503, text: "plugin action unavailable"},
		"failing":                 {path: "sync", body: good, headers: platform(), err: errors.New("secret detail"), status: 503, text: "plugin action unavailable"},
		"not implemented":         {path: "sync", body: good, headers: platform(), err: status.Error(codes.Unimplemented, "x"), status: 503, text: "plugin action unavailable"},
		"created":                 {path: "sync", body: good, headers: platform(), answer: &pluginv1.PluginActionResponse{Status: 201, Body: []byte("made")}, status: 201, text: "made"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, true)
			w.runs = !test.stopped
			if test.answer != nil || test.err != nil {
				w.action = func(context.Context, *pluginv1.PluginActionRequest) (*pluginv1.PluginActionResponse, error) {
					return test.answer, test.err
				}
			}
			answer, text := w.do(t, call{"POST", "/actions/" + test.path, test.body, test.headers})
			if answer.StatusCode != test.status || text != test.text {
				t.Errorf("answers %d %q", answer.StatusCode, text)
			}
		})
	}
	if answer, _ := newWorld(t, false).do(t, call{"GET", "/actions/sync", "", platform()}); answer.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET is answered %d", answer.StatusCode)
	}
}

func TestAnActionHasFifteenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.action = func(ctx context.Context, _ *pluginv1.PluginActionRequest) (*pluginv1.PluginActionResponse, error) {
			<-ctx.Done()
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		begin := time.Now()
		answer, text := w.do(t, call{"POST", "/actions/sync", `{"workspaceId":"w"}`, platform()})
		if answer.StatusCode != http.StatusGatewayTimeout || text != "plugin action timed out" || time.Since(begin) != web.ActionTimeout {
			t.Errorf("answers %d %q after %v", answer.StatusCode, text, time.Since(begin))
		}
	})
}

// kinds are the kinds of requests that have places of their own, by a request of
// each.
var kinds = map[string]call{
	"webhooks of strangers":    {method: "POST", path: "/webhooks/open"},
	"webhooks of the platform": {"POST", "/webhooks/closed", "", platform()},
	"actions":                  {"POST", "/actions/sync", `{"workspaceId":"w"}`, platform()},
}

// A plugin that never answers, and doesn't notice that nobody waits any more: each
// caller is told in the end, has a place for no longer, and keeps nobody out who has
// a place of another kind.
func TestAPluginThatNeverAnswersIsAnsweredFor(t *testing.T) {
	for name, hanging := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, false)
				var hangs atomic.Bool
				hangs.Store(true)
				release := make(chan struct{})
				defer close(release)
				hang := func() {
					if hangs.Load() {
						<-release
					}
				}
				w.webhook = func(*pluginv1.WebhookRequest) (*pluginv1.WebhookResponse, error) {
					hang()
					return &pluginv1.WebhookResponse{Status: 200}, nil
				}
				w.action = func(context.Context, *pluginv1.PluginActionRequest) (*pluginv1.PluginActionResponse, error) {
					hang()
					return &pluginv1.PluginActionResponse{}, nil
				}
				bound, text := web.DefaultWebhookTimeout, "plugin webhook timed out"
				if name == "actions" {
					bound, text = web.ActionTimeout, "plugin action timed out"
				}
				begin := time.Now()
				var all sync.WaitGroup
				for range web.MaxAtOnce {
					all.Go(func() {
						answer, got := w.do(t, hanging)
						if answer.StatusCode != http.StatusGatewayTimeout || got != text || time.Since(begin) != bound {
							t.Errorf("answers %d %q after %v", answer.StatusCode, got, time.Since(begin))
						}
					})
				}
				synctest.Wait()
				hangs.Store(false)
				answer, got := w.do(t, hanging)
				if answer.StatusCode != http.StatusServiceUnavailable || got != "too many requests at once" || answer.Header.Get("Retry-After") == "" {
					t.Errorf("one more is answered %d %q", answer.StatusCode, got)
				}
				for other, c := range kinds {
					if answer, got := w.do(t, c); other != name && answer.StatusCode != http.StatusOK {
						t.Errorf("they keep %s out: %d %q", other, answer.StatusCode, got)
					}
				}
				all.Wait()
				if answer, got := w.do(t, hanging); answer.StatusCode != http.StatusOK {
					t.Errorf("afterwards answers %d %q", answer.StatusCode, got)
				}
			})
		})
	}
}

// serve serves the handler over connections in memory, as the launcher serves it.
func (w *world) serve(t *testing.T) (dial func() net.Conn) {
	t.Helper()
	listener := bufconn.Listen(4096)
	server := &http.Server{Handler: w.http, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 5 * time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return func() net.Conn {
		conn, err := listener.DialContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
}

// say sends a request, or a part of one.
func say(t *testing.T, conn net.Conn, lines ...string) {
	t.Helper()
	if _, err := io.WriteString(conn, strings.Join(lines, "\r\n")); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, conn net.Conn) (code int, text string) {
	t.Helper()
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, strings.TrimSpace(string(body))
}

func TestABodyThatDoesntComeIsNotWaitedFor(t *testing.T) {
	for path, text := range map[string]string{
		"/webhooks/closed": "webhook body did not arrive in time", "/actions/sync": "plugin action request did not arrive in time",
	} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, false)
				dial := w.serve(t)
				begin := time.Now()
				var slow []net.Conn
				for range web.MaxAtOnce {
					conn := dial()
					say(t, conn, "POST "+path+" HTTP/1.1", "Host: x", "Authorization: Bearer platform", "X-Kandev-Actor-Id: ann",
						"Content-Length: 100", "", "a part of it")
					slow = append(slow, conn)
				}
				synctest.Wait()
				c := call{"POST", path, `{"workspaceId":"w"}`, platform()}
				if answer, _ := w.do(t, c); answer.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("one more is answered %d", answer.StatusCode)
				}
				for _, conn := range slow {
					if code, got := hear(t, conn); code != http.StatusRequestTimeout || got != `{"error":"`+text+`"}` || time.Since(begin) != web.TransferTime {
						t.Errorf("answers %d %q after %v", code, got, time.Since(begin))
					}
				}
				if answer, _ := w.do(t, c); answer.StatusCode != http.StatusOK {
					t.Errorf("afterwards answers %d", answer.StatusCode)
				}
			})
		})
	}
}

func TestAnAnswerThatIsNotReadIsNotWrittenForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.webhook = func(r *pluginv1.WebhookRequest) (*pluginv1.WebhookResponse, error) {
			body := make([]byte, 1<<20)
			if r.GetQuery() == "short" {
				body = nil
			}
			return &pluginv1.WebhookResponse{Status: 200, Body: body}, nil
		}
		dial := w.serve(t)
		for range web.MaxAtOnce {
			say(t, dial(), "GET /webhooks/open HTTP/1.1", "Host: x", "", "")
		}
		synctest.Wait()
		short := call{method: "GET", path: "/webhooks/open?short"}
		if answer, _ := w.do(t, short); answer.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("one more is answered %d", answer.StatusCode)
		}
		time.Sleep(web.TransferTime) //nolint:forbidigo // the bubble's time
		synctest.Wait()
		if answer, _ := w.do(t, short); answer.StatusCode != http.StatusOK {
			t.Errorf("afterwards answers %d", answer.StatusCode)
		}
	})
}

// The server's bound of reading a request isn't one of the plugin's work.
func TestAWebhookMayTakeAllOfItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.server.WebhookTimeout = web.MaxWebhookTimeout
		w.webhook = func(*pluginv1.WebhookRequest) (*pluginv1.WebhookResponse, error) {
			time.Sleep(web.MaxWebhookTimeout - time.Second) //nolint:forbidigo // the bubble's time
			return &pluginv1.WebhookResponse{Status: 200, Body: []byte("late")}, nil
		}
		conn := w.serve(t)()
		say(t, conn, "POST /webhooks/open HTTP/1.1", "Host: x", "Content-Length: 2", "", "hi")
		if code, text := hear(t, conn); code != http.StatusOK || text != "late" {
			t.Errorf("answers %d %q", code, text)
		}
	})
}

// Strangers decide how often a webhook fails, and not how much is logged.
func TestFailuresAreLoggedAtABoundedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		var log bytes.Buffer
		w.server.Log = slog.New(slog.NewTextHandler(&log, nil))
		w.webhook = func(*pluginv1.WebhookRequest) (*pluginv1.WebhookResponse, error) { return nil, errors.New("broken") }
		fail := func(n int) {
			for range n {
				if answer, _ := w.do(t, call{method: "GET", path: "/webhooks/open"}); answer.StatusCode != http.StatusBadGateway {
					t.Fatalf("answers %d", answer.StatusCode)
				}
			}
		}
		fail(250)
		time.Sleep(time.Second) //nolint:forbidigo // the bubble's time
		fail(1)
		if n := strings.Count(log.String(), "A request failed"); n != 101 {
			t.Errorf("%d failures were logged", n)
		}
		if !strings.Contains(log.String(), "requests=150") {
			t.Errorf("it isn't told how many were not logged: %.300s", log.String())
		}
	})
}

func TestHealth(t *testing.T) {
	w := newWorld(t, false)
	w.http = web.Health(w.server.Plugin)
	for _, runs := range []bool{true, false} {
		w.runs = runs
		alive, _ := w.do(t, call{method: "GET", path: "/healthz"})
		ready, _ := w.do(t, call{method: "GET", path: "/readyz"})
		if alive.StatusCode != http.StatusOK || (ready.StatusCode == http.StatusOK) != runs {
			t.Errorf("running %v: alive %d, ready %d", runs, alive.StatusCode, ready.StatusCode)
		}
	}
}
