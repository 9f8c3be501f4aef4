package rpc

import (
	"context"
	"slices"
	"strings"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/query"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

var contextTexts = shippedTexts{
	identifiers: "request_id is a required bounded identifier, workspace_id an optional one",
	unavailable: "capability approval state is unavailable",
}

// limits are the bounds that the shipped context names.
var limits = map[string]uint64{
	"page_size":             contract.MaxPageSize,
	"command_payload_bytes": contract.MaxCommandBytes,
}

// descriptions say in a line what each operation does, for people.
var descriptions = map[string]string{
	"GetCapabilityContext":   "Tells what this installation may do.",
	"ListWorkspacesExact":    "Reads one workspace.",
	"ListWorkflowsExact":     "Lists the workflows of a workspace.",
	"ListWorkflowStepsExact": "Lists the steps of a workflow.",
	"ListTasksExact":         "Lists the tasks of a workspace.",
	"GetTaskExact":           "Reads one task.",
	"CreateTaskExact":        "Creates a task at a stated place.",
	"UpdateTaskExact":        "Changes fields of a task.",

	"GetTaskRelationsExact":           "Lists the graph of relations around one task.",
	"ListTaskRelationsExact":          "Lists the relations of a workspace's tasks.",
	"ListPendingTaskTransitionsExact": "Lists the moves that wait in a workspace.",

	"ListSessionsExact":            "Lists the sessions of a workspace.",
	"ListPendingInteractionsExact": "Lists what the agents of a workspace wait for a human with.",
	"GetInteractionExact":          "Reads one permission request or clarification.",
	"ListSanitizedMessagesExact":   "Lists the messages of a workspace without system markup.",
	"ListTaskInboxExact":           "Lists what waits for somebody in a workspace.",
}

// GetCapabilityContext tells the caller its own standing.
func (h *host) GetCapabilityContext(ctx context.Context, message *pluginv1.GetCapabilityContextRequest) (*pluginv1.GetCapabilityContextResponse, error) {
	r := requestOf(ctx, message)
	found, receipt, refusal := h.reader.Context(ctx, r.installationID, r.envelope)
	if refusal != nil {
		return nil, r.failure(refusal, contextTexts)
	}
	r.served(receipt)
	response := &pluginv1.GetCapabilityContextResponse{
		ContractVersion: contract.ContractVersion, ContextRevision: found.Revision, AuditId: receipt.AuditID,
	}
	if r.envelope.WorkspaceID != "" {
		response.Context = h.workspaceContext(r.installationID, &found.Workspaces[0])
		return response, nil
	}
	for i := range found.Workspaces {
		response.Workspaces = append(response.Workspaces, workspaceOverview(&found.Workspaces[i]))
	}
	return response, nil
}

// workspaceContext is the shipped shape of the context of one workspace.
func (h *host) workspaceContext(installationID string, w *query.WorkspaceContext) *pluginv1.HostCapabilityContext {
	out := &pluginv1.HostCapabilityContext{
		InstallationId: installationID, WorkspaceId: w.WorkspaceID, ManifestDigest: w.ManifestDigest,
		ApprovalRevision: w.Revision, ApprovalState: shippedState(w.State), Limits: limits,
	}
	for _, m := range h.operations {
		operation := &pluginv1.HostOperationSupport{
			Method: m.Name, Description: descriptions[m.Name], Supported: true, Authorized: m.open,
		}
		if !m.open {
			verdict := w.Verdicts[m.Capability]
			operation.CapabilityId = m.Capability.String()
			operation.Authorized = verdict.Allowed()
			operation.UnavailableReason = denyText(verdict.Reason)
		}
		out.Operations = append(out.Operations, operation)
	}
	return out
}

func workspaceOverview(w *query.WorkspaceContext) *pluginv1.WorkspaceCapabilityContext {
	ids := w.Capabilities.IDs()
	slices.Sort(ids)
	return &pluginv1.WorkspaceCapabilityContext{
		WorkspaceId: w.WorkspaceID, CapabilityIds: ids, ManifestDigest: w.ManifestDigest,
		State: strings.ToLower(w.State.String()), CapabilityRevision: w.Revision,
	}
}

// shippedState is a state in the words of the shipped context, which knows
// three: expired reads as revoked, pending as never approved.
func shippedState(state authority.State) string {
	switch state {
	case authority.StateActive:
		return "active"
	case authority.StateRevoked, authority.StateExpired:
		return "revoked"
	default:
		return denyText(contract.ReasonMissingCapabilityApproval)
	}
}

// shippedOrder lists the operations as the shipped context does: itself, then
// the commands with UpdateTaskExact first, then the reads.
func shippedOrder(methods []*method) []*method {
	rank := func(m *method) int {
		switch {
		case m.open:
			return 0
		case m.Name == "UpdateTaskExact":
			return 1
		case m.Writer:
			return 2
		default:
			return 3
		}
	}
	ordered := slices.Clone(methods)
	slices.SortStableFunc(ordered, func(a, b *method) int { return rank(a) - rank(b) })
	return ordered
}
