package rpc

import (
	"context"

	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/query"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

var sessionTexts = dataTexts.filtering("session filter", "exact session filters cannot widen workspace scope")

// ListSessionsExact lists the sessions of a workspace.
func (h *host) ListSessionsExact(ctx context.Context, message *pluginv1.ListSessionsExactRequest) (*pluginv1.ListSessionsExactResponse, error) {
	r := requestOf(ctx, message)
	if r.envelope.Fault == nil {
		r.envelope.Fault = checkSessionScope(message)
	}
	filter := query.SessionFilter{TaskIDs: message.GetFilter().GetTaskIds(), States: message.GetFilter().GetStates()}
	list, receipt, refusal := h.reader.Sessions(ctx, r.installationID, r.method, r.envelope, filter, pageOf(message.GetPage()))
	if refusal != nil {
		return nil, r.failure(refusal, sessionTexts)
	}
	response := &pluginv1.ListSessionsExactResponse{PageInfo: r.pageInfo(list.NextCursor, list.SnapshotVersion, receipt)}
	for i := range list.Items {
		s := &list.Items[i]
		response.Items = append(response.Items, &pluginv1.ExactSessionObservation{
			Session: sessionDTO(s), ExecutionState: executionState(s), ExecutionId: s.ExecutionID, IsPrimary: s.Primary,
			IsTerminal: s.State.Terminal(), ResourceVersion: domain.ResourceVersion(receipt.StoreEpoch, s.Version),
			ObservedAt: response.PageInfo.ObservedAt,
		})
	}
	return response, nil
}

func checkSessionScope(message *pluginv1.ListSessionsExactRequest) *admission.Refusal {
	for _, id := range message.GetFilter().GetWorkspaceIds() {
		if id != message.GetWorkspaceId() {
			return malformed(widenedFilter, "names another workspace than the request")
		}
	}
	return nil
}

// executionState is what is known to run for a session: its state while an execution
// has it, and otherwise nothing, which is not "idle".
func executionState(s *domain.Session) string {
	switch {
	case s.ExecutionID != "":
		return string(s.State)
	case s.State.Terminal():
		return "idle"
	default:
		return unknownActivity
	}
}

// sessionDTO is a session in both worlds.
func sessionDTO(s *domain.Session) *pluginv1.Session {
	return &pluginv1.Session{
		Id: s.ID, TaskId: s.TaskID, AgentProfileId: s.AgentProfileID, AgentDisplayName: domain.StripMarkup(s.AgentDisplayName()),
		AgentProfileName: domain.StripMarkup(s.AgentProfileName()), Model: domain.StripMarkup(s.Model()),
		AcpSessionId: domain.StripMarkup(s.ACPSessionID()), State: string(s.State),
		StartedAt: startOf(s), EndedAt: optionalSecond(s.CompletedAt),
	}
}

// startOf is when a session began, "" for one that has not.
func startOf(s *domain.Session) string {
	if s.StartedAt.IsZero() {
		return ""
	}
	return wholeSecond(s.StartedAt)
}
