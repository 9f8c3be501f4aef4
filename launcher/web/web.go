package web

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/textproto"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kandev/plugin-host/launcher/pack"
)

const (
	// MaxAtOnce is how many requests of the platform are served at once, and how many
	// of everybody else: strangers who send slowly don't keep the platform out. Each
	// may hold a webhook's body and the plugin's answer in memory.
	MaxAtOnce = 16

	headerLogin  = "X-Kandev-Auth-Login"
	headerActor  = "X-Kandev-Actor-Id"
	headerBranch = "X-Kandev-Head-Branch"

	textNotActive       = "plugin is not active"
	textUnauthenticated = "authentication required"
)

// Server serves one plugin. Fields are set before Handler.
type Server struct {
	Manifest pack.Manifest
	// Plugin returns the connection to the running plugin; false: none runs.
	Plugin func() (grpc.ClientConnInterface, bool)
	// IsPlatform says whether a bearer is the platform's; nil: nobody is.
	IsPlatform func(bearer string) bool
	Log        *slog.Logger

	// platforms has a place for each request of the platform, strangers for the others'.
	platforms, strangers chan struct{}
}

// Handler returns the handler of webhooks and actions.
func (s *Server) Handler() http.Handler {
	s.platforms, s.strangers = make(chan struct{}, MaxAtOnce), make(chan struct{}, MaxAtOnce)
	mux := http.NewServeMux()
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		mux.Handle(method+" /webhooks/{key}", s.bounded(s.webhook))
	}
	mux.Handle("POST /actions/{key}", s.bounded(s.action))
	return mux
}

// Health returns the handler of /healthz, which answers as long as the launcher
// does, and /readyz, which answers 200 while a plugin runs.
func (s *Server) Health() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if _, runs := s.Plugin(); !runs {
			http.Error(w, textNotActive, http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	return mux
}

// failure is an error as the caller sees it.
type failure struct {
	status int
	text   string
	// cause is for the log; nil: there is nothing more to know.
	cause error
}

// bounded serves a bounded number of requests at once.
func (s *Server) bounded(serve func(http.ResponseWriter, *http.Request) *failure) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		slots := s.strangers
		if s.platform(r) {
			slots = s.platforms
		}
		var failed *failure
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			failed = serve(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			failed = &failure{status: http.StatusServiceUnavailable, text: "too many requests at once"}
		}
		if failed == nil {
			return
		}
		if failed.cause != nil {
			s.Log.Warn("A request failed", "path", r.URL.Path, "status", failed.status, "text", failed.text, "error", failed.cause)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(failed.status)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": failed.text}) // the caller is gone
	})
}

// platform says whether the platform calls.
func (s *Server) platform(r *http.Request) bool {
	scheme, bearer, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return ok && strings.EqualFold(scheme, "Bearer") && bearer != "" && s.IsPlatform != nil && s.IsPlatform(bearer)
}

// readBody reads at most bound bytes; more is an errTooLarge.
func readBody(r *http.Request, bound int64) ([]byte, error) {
	if r.ContentLength > bound {
		return nil, errTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, bound+1))
	if err == nil && int64(len(body)) > bound {
		err = errTooLarge
	}
	return body, err
}

var errTooLarge = errors.New("the body is too large")

// respond writes the plugin's answer. Set-Cookie and what is about the
// connection alone are dropped.
func respond(w http.ResponseWriter, code int, headers map[string]string, body []byte) {
	for name, value := range headers {
		switch textproto.CanonicalMIMEHeaderKey(name) {
		case "Set-Cookie", "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Te", "Trailer",
			"Transfer-Encoding", "Upgrade", "Content-Length", "Date":
		default:
			w.Header().Set(name, value)
		}
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(body) // the caller is gone, or the status has no body
}

// isGone says whether a call failed because no plugin was there to take it.
func isGone(err error) bool { return status.Code(err) == codes.Unavailable }
