package web

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kandev/plugin-host/launcher/pack"
)

const (
	// MaxAtOnce is how many requests of one kind are served at once: webhooks that
	// strangers call, webhooks that the platform calls, and actions. None keeps the
	// others out, whatever the plugin does with it. Each may hold a body and the
	// plugin's answer in memory.
	MaxAtOnce = 16
	// TransferTime bounds how long a request's body may take to come, and again how
	// long its answer may take to go: who is slow keeps a place no longer.
	TransferTime = 30 * time.Second

	headerLogin  = "X-Kandev-Auth-Login"
	headerActor  = "X-Kandev-Actor-Id"
	headerBranch = "X-Kandev-Head-Branch"

	textNotActive       = "plugin is not active"
	textUnauthenticated = "authentication required"

	// maxHeaderBytes bounds the headers of an answer, names and values.
	maxHeaderBytes = 64 << 10
	// failuresPerSecond and failuresAtOnce bound how many failures are logged: who
	// calls, and strangers may, decides how many there are.
	failuresPerSecond = 10
	failuresAtOnce    = 100
)

// Server serves one plugin. Fields are set before Handler.
type Server struct {
	Manifest pack.Manifest
	// Plugin returns the connection to the running plugin; false: none runs.
	Plugin func() (grpc.ClientConnInterface, bool)
	// IsPlatform says whether a bearer is the platform's; nil: nobody is.
	IsPlatform func(bearer string) bool
	// WebhookTimeout bounds how long the plugin may take to answer one webhook.
	WebhookTimeout time.Duration
	Log            *slog.Logger

	// failures bounds what is logged; untold is how many were not.
	failures *rate.Limiter
	untold   atomic.Int64
}

// Handler returns the handler of webhooks and actions.
func (s *Server) Handler() http.Handler {
	s.failures = rate.NewLimiter(failuresPerSecond, failuresAtOnce)
	strangers, platforms, actions := newPlaces(), newPlaces(), newPlaces()
	mux := http.NewServeMux()
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		mux.Handle(method+" /webhooks/{key}", s.answering(func(w http.ResponseWriter, r *http.Request) *failure {
			return s.webhook(w, r, strangers, platforms)
		}))
	}
	// What is for GET would take HEAD too, which no plugin knows.
	mux.HandleFunc("HEAD /webhooks/{key}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", "GET, POST")
		w.WriteHeader(http.StatusMethodNotAllowed)
	})
	mux.Handle("POST /actions/{key}", s.answering(func(w http.ResponseWriter, r *http.Request) *failure {
		return s.action(w, r, actions)
	}))
	return mux
}

// Health returns the handler of /healthz, which answers as long as the launcher
// does, and /readyz, which answers 200 while a plugin runs, as Server.Plugin says.
func Health(plugin func() (grpc.ClientConnInterface, bool)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if _, runs := plugin(); !runs {
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
	// again says that the same may go well soon.
	again bool
}

// places are those of the requests of one kind that are served at once.
type places chan struct{}

func newPlaces() places { return make(places, MaxAtOnce) }

// take takes a place; leave gives it back.
func (p places) take() *failure {
	select {
	case p <- struct{}{}:
		return nil
	default:
		return &failure{status: http.StatusServiceUnavailable, text: "too many requests at once", again: true}
	}
}

func (p places) leave() { <-p }

// answering tells the caller of a failure.
func (s *Server) answering(serve func(http.ResponseWriter, *http.Request) *failure) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		failed := serve(w, r)
		if failed == nil {
			return
		}
		if r.Context().Err() == nil { // that a caller has gone is no failure of the plugin
			s.tell(r, failed)
		}
		if failed.again {
			w.Header().Set("Retry-After", "1")
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(failed.status)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": failed.text}) // the caller is gone
	})
}

// tell logs a failure that has a cause.
func (s *Server) tell(r *http.Request, failed *failure) {
	if failed.cause == nil {
		return
	}
	if !s.failures.Allow() {
		s.untold.Add(1)
		return
	}
	if n := s.untold.Swap(0); n > 0 {
		s.Log.Warn("Too many requests failed; not all were logged", "requests", n)
	}
	s.Log.Warn("A request failed", "path", r.URL.Path, "status", failed.status, "text", failed.text, "error", failed.cause)
}

// platform says whether the platform calls.
func (s *Server) platform(r *http.Request) bool {
	scheme, bearer, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return ok && strings.EqualFold(scheme, "Bearer") && bearer != "" && s.IsPlatform != nil && s.IsPlatform(bearer)
}

// readBody reads at most bound bytes in TransferTime. It fails with errTooLarge,
// errTooSlow or what the connection says.
func readBody(w http.ResponseWriter, r *http.Request, bound int64) ([]byte, error) {
	if r.ContentLength > bound {
		return nil, errTooLarge
	}
	// The server lifts it when the body has come. What is no connection isn't slow.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(TransferTime))
	body, err := io.ReadAll(io.LimitReader(r.Body, bound+1))
	var network net.Error
	switch {
	case errors.As(err, &network) && network.Timeout():
		return nil, errTooSlow
	case err != nil:
		return nil, err //nolint:wrapcheck // nobody reads it
	case int64(len(body)) > bound:
		return nil, errTooLarge
	}
	return body, nil
}

var (
	errTooLarge = errors.New("the body is too large")
	errTooSlow  = errors.New("the body is too slow")
)

// answer is what the plugin answers.
type answer struct {
	code    int
	headers map[string]string
	body    []byte
}

// within says whether an answer is in its bounds.
func (a *answer) within(bound int) bool {
	headers := 0
	for name, value := range a.headers {
		headers += len(name) + len(value)
	}
	return len(a.body) <= bound && headers <= maxHeaderBytes
}

// atMost bounds what is read of an answer, headers and all.
func atMost(bound int) grpc.CallOption {
	const framing = 64 << 10 // of up to thousands of headers
	return grpc.MaxCallRecvMsgSize(bound + maxHeaderBytes + framing)
}

// isBeyond says whether a call failed because the answer was beyond atMost. A
// plugin can say ResourceExhausted too, for reasons of its own.
func isBeyond(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(status.Convert(err).Message(), "received message larger than max")
}

// respond writes the plugin's answer. Set-Cookie and what is about the
// connection alone are dropped.
func respond(w http.ResponseWriter, a *answer) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(TransferTime)) // as in readBody
	for name, value := range a.headers {
		switch textproto.CanonicalMIMEHeaderKey(name) {
		case "Set-Cookie", "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Te", "Trailer",
			"Transfer-Encoding", "Upgrade", "Content-Length", "Date":
		default:
			w.Header().Set(name, value)
		}
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body)
}

// isLate says whether a call failed because the plugin didn't answer in time.
func isLate(err error) bool { return status.Code(err) == codes.DeadlineExceeded }

// isGone says whether a call failed because no plugin was there to take it.
func isGone(err error) bool { return status.Code(err) == codes.Unavailable }
