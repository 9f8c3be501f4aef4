package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"

	"github.com/kandev/plugin-host/launcher/pack"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

const (
	// DefaultWebhookTimeout is for who sets none: senders of webhooks mostly wait no
	// longer. A plugin that needs more answers and goes on.
	DefaultWebhookTimeout = 30 * time.Second
	// MaxWebhookTimeout leaves a server's answer time to be written.
	MaxWebhookTimeout = 4 * time.Minute
	// maxWebhookAnswer bounds the body of an answer. Bytes.
	maxWebhookAnswer = pack.MaxWebhookBytes
)

func (s *Server) webhook(w http.ResponseWriter, r *http.Request, strangers, platforms places) *failure {
	key := r.PathValue("key")
	declared, ok := s.Manifest.Webhook(key)
	if !ok {
		return &failure{status: http.StatusNotFound, text: fmt.Sprintf("plugin %q has no webhook %q", s.Manifest.ID, key)}
	}
	platform, kind := s.platform(r), strangers
	if platform {
		kind = platforms
	}
	if declared.Access != pack.AccessPublic && !platform {
		return &failure{status: http.StatusUnauthorized, text: textUnauthenticated}
	}
	if full := kind.take(); full != nil {
		return full
	}
	defer kind.leave()
	plugin, runs := s.Plugin()
	if !runs {
		return &failure{status: http.StatusServiceUnavailable, text: textNotActive}
	}
	body, err := readBody(w, r, declared.MaxBodyBytes)
	switch {
	case errors.Is(err, errTooLarge):
		return &failure{status: http.StatusRequestEntityTooLarge, text: fmt.Sprintf("webhook body exceeds max size of %d bytes", declared.MaxBodyBytes)}
	case errors.Is(err, errTooSlow):
		return &failure{status: http.StatusRequestTimeout, text: "webhook body did not arrive in time"}
	case err != nil:
		return &failure{status: http.StatusBadRequest, text: "webhook body can't be read"}
	}
	got, failed := s.callWebhook(plugin, r, key, body)
	if failed != nil {
		return failed
	}
	if !s.mayLogIn(platform, got.headers) {
		return &failure{status: http.StatusForbidden, text: "auth login rejected"}
	}
	respond(w, got)
	return nil
}

func (s *Server) callWebhook(plugin grpc.ClientConnInterface, r *http.Request, key string, body []byte) (*answer, *failure) {
	ctx, cancel := context.WithTimeout(r.Context(), s.WebhookTimeout)
	defer cancel()
	got, err := pluginv1.NewPluginClient(plugin).HandleWebhook(ctx, &pluginv1.WebhookRequest{
		WebhookKey: key, Method: r.Method, Query: queryIn(r.URL.RawQuery), Headers: headersIn(r.Header), Body: body,
	}, atMost(maxWebhookAnswer))
	a := &answer{code: int(got.GetStatus()), headers: got.GetHeaders(), body: got.GetBody()}
	switch {
	case isLate(err):
		return nil, &failure{status: http.StatusGatewayTimeout, text: "plugin webhook timed out", cause: err}
	case isGone(err):
		return nil, &failure{status: http.StatusServiceUnavailable, text: textNotActive, cause: err}
	case isBeyond(err), err == nil && !a.within(maxWebhookAnswer):
		return nil, &failure{status: http.StatusBadGateway, text: "plugin webhook response exceeds maximum size", cause: err}
	case err != nil:
		return nil, &failure{status: http.StatusBadGateway, text: "plugin webhook failed", cause: err}
	case a.code < 200 || a.code > 599:
		return nil, &failure{status: http.StatusBadGateway, text: fmt.Sprintf("plugin returned invalid webhook status %d", a.code)}
	}
	return a, nil
}

// queryIn writes bytes that the wire can't have as any query can: a byte of it means the
// same.
func queryIn(query string) string {
	if utf8.ValidString(query) {
		return query
	}
	var b strings.Builder
	for i := range len(query) {
		if query[i] < utf8.RuneSelf {
			b.WriteByte(query[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", query[i])
		}
	}
	return b.String()
}

// headersIn joins values. Authorization and Cookie are for those before the
// plugin.
func headersIn(from http.Header) map[string]string {
	to := make(map[string]string, len(from))
	for name, values := range from {
		if name != "Authorization" && name != "Cookie" {
			// The wire has UTF-8; a header may have any byte.
			to[name] = strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD")
		}
	}
	return to
}

// mayLogIn says whether an answer's login, if it has one, may be passed on: one
// login, of a plugin that declares to make logins, to the platform.
func (s *Server) mayLogIn(platform bool, headers map[string]string) bool {
	logins := 0
	for name := range headers {
		if strings.EqualFold(name, headerLogin) {
			logins++
		}
	}
	return logins == 0 || logins == 1 && platform && s.Manifest.Capabilities.Auth
}
