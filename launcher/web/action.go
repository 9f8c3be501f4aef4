package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/launcher/pack"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

const (
	// ActionTimeout bounds how long the plugin may take to answer one action, as
	// plugins' authors know it.
	ActionTimeout = 15 * time.Second
	// maxActionRequest bounds an action's request, maxActionAnswer the body of its
	// answer. Bytes.
	maxActionRequest = pack.MaxActionBytes + 4096
	maxActionAnswer  = 1 << 20

	textUnavailable = "plugin action unavailable"
	textInvalid     = "invalid plugin action payload"
)

// actionRequest is the request of an action.
type actionRequest struct {
	WorkspaceID  string          `json:"workspaceId"`
	TaskID       string          `json:"taskId"`
	SessionID    string          `json:"sessionId"`
	RepositoryID string          `json:"repositoryId"`
	Body         json.RawMessage `json:"body"`
}

func (s *Server) action(w http.ResponseWriter, r *http.Request, kind places) *failure {
	// First of all, so that a stranger learns nothing, not even what there is.
	actor := r.Header.Get(headerActor)
	if !s.platform(r) || actor == "" {
		return &failure{status: http.StatusUnauthorized, text: textUnauthenticated}
	}
	key := r.PathValue("key")
	declared, ok := s.Manifest.Action(key)
	if !ok {
		return &failure{status: http.StatusNotFound, text: "plugin action not found"}
	}
	if full := kind.take(); full != nil {
		return full
	}
	defer kind.leave()
	request, failed := readAction(w, r, declared)
	if failed != nil {
		return failed
	}
	branch := r.Header.Get(headerBranch)
	if !utf8.ValidString(actor) || !utf8.ValidString(branch) { // the wire can't have it
		return &failure{status: http.StatusBadRequest, text: textInvalid}
	}
	request.Context.ActorId, request.Context.HeadBranch = actor, branch
	plugin, runs := s.Plugin()
	if !runs {
		return &failure{status: http.StatusServiceUnavailable, text: textUnavailable}
	}
	got, failed := callAction(r.Context(), plugin, request)
	if failed != nil {
		return failed
	}
	if !s.mayLogIn(false, got.headers) {
		return &failure{status: http.StatusForbidden, text: "auth login rejected"}
	}
	respond(w, got)
	return nil
}

func callAction(ctx context.Context, plugin grpc.ClientConnInterface, request *pluginv1.PluginActionRequest) (*answer, *failure) {
	ctx, cancel := context.WithTimeout(ctx, ActionTimeout)
	defer cancel()
	got, err := pluginv1.NewPluginClient(plugin).HandleAction(ctx, request, atMost(maxActionAnswer))
	a := &answer{code: int(got.GetStatus()), headers: got.GetHeaders(), body: got.GetBody()}
	switch {
	case isLate(err):
		return nil, &failure{status: http.StatusGatewayTimeout, text: "plugin action timed out", cause: err}
	case isBeyond(err), err == nil && !a.within(maxActionAnswer):
		return nil, &failure{status: http.StatusBadGateway, text: "plugin action response exceeds maximum size", cause: err}
	case err != nil:
		return nil, &failure{status: http.StatusServiceUnavailable, text: textUnavailable, cause: err}
	case a.code == 0:
		a.code = http.StatusOK
	case a.code < 200 || a.code > 599:
		return nil, &failure{status: http.StatusBadGateway, text: textUnavailable, cause: errors.New("its status is none")}
	}
	return a, nil
}

// readAction reads and checks a request.
func readAction(w http.ResponseWriter, r *http.Request, declared pack.Action) (*pluginv1.PluginActionRequest, *failure) {
	text, err := readBody(w, r, maxActionRequest)
	if errors.Is(err, errTooLarge) {
		return nil, &failure{status: http.StatusRequestEntityTooLarge, text: "plugin action request exceeds maximum size"}
	}
	if errors.Is(err, errTooSlow) {
		return nil, &failure{status: http.StatusRequestTimeout, text: "plugin action request did not arrive in time"}
	}
	invalid := func(text string) *failure { return &failure{status: http.StatusBadRequest, text: text} }
	var given actionRequest
	if err != nil || json.Unmarshal(text, &given) != nil {
		return nil, invalid(textInvalid)
	}
	body := bytes.TrimSpace(given.Body)
	if int64(len(body)) > declared.MaxBodyBytes {
		return nil, &failure{status: http.StatusRequestEntityTooLarge, text: "plugin action body exceeds declared maximum size"}
	}
	for _, id := range []string{given.WorkspaceID, given.TaskID, given.SessionID, given.RepositoryID} {
		if id != "" && contract.CheckIdentifier("id", id) != nil {
			return nil, invalid(textInvalid)
		}
	}
	switch {
	case declared.Scope == pack.ScopeWorkspace && (given.WorkspaceID == "" || given.TaskID != "" || given.SessionID != "" || given.RepositoryID != ""):
		return nil, invalid("workspace action requires only workspaceId")
	case declared.Scope == pack.ScopeTask && given.TaskID == "":
		return nil, invalid("task action requires taskId")
	case declared.Scope == pack.ScopeRepository && given.RepositoryID == "", given.WorkspaceID == "":
		return nil, invalid(textInvalid)
	}
	return &pluginv1.PluginActionRequest{ActionKey: declared.Key, Body: body, Context: &pluginv1.VerifiedActionContext{
		WorkspaceId: given.WorkspaceID, TaskId: given.TaskID, SessionId: given.SessionID, RepositoryId: given.RepositoryID,
	}}, nil
}
