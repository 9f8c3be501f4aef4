package web

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/kandev/plugin-host/launcher/pack"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

func (s *Server) webhook(w http.ResponseWriter, r *http.Request) *failure {
	key := r.PathValue("key")
	declared, ok := s.Manifest.Webhook(key)
	if !ok {
		return &failure{status: http.StatusNotFound, text: fmt.Sprintf("plugin %q has no webhook %q", s.Manifest.ID, key)}
	}
	platform := s.platform(r)
	if declared.Access != pack.AccessPublic && !platform {
		return &failure{status: http.StatusUnauthorized, text: textUnauthenticated}
	}
	plugin, runs := s.Plugin()
	if !runs {
		return &failure{status: http.StatusServiceUnavailable, text: textNotActive}
	}
	body, err := readBody(r, declared.MaxBodyBytes)
	switch {
	case errors.Is(err, errTooLarge):
		return &failure{status: http.StatusRequestEntityTooLarge, text: fmt.Sprintf("webhook body exceeds max size of %d bytes", declared.MaxBodyBytes)}
	case err != nil:
		return &failure{status: http.StatusBadRequest, text: "webhook body can't be read"}
	}
	answer, err := pluginv1.NewPluginClient(plugin).HandleWebhook(r.Context(), &pluginv1.WebhookRequest{
		WebhookKey: key, Method: r.Method, Query: r.URL.RawQuery, Headers: headersIn(r.Header), Body: body,
	})
	switch {
	case err != nil && isGone(err):
		return &failure{status: http.StatusServiceUnavailable, text: textNotActive, cause: err}
	case err != nil:
		return &failure{status: http.StatusBadGateway, text: "plugin webhook failed", cause: err}
	case answer.GetStatus() < 200 || answer.GetStatus() > 599:
		return &failure{status: http.StatusBadGateway, text: fmt.Sprintf("plugin returned invalid webhook status %d", answer.GetStatus())}
	case !s.mayLogIn(platform, answer.GetHeaders()):
		return &failure{status: http.StatusForbidden, text: "auth login rejected"}
	}
	respond(w, int(answer.GetStatus()), answer.GetHeaders(), answer.GetBody())
	return nil
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
