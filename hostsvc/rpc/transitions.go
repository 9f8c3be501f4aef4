package rpc

import (
	"context"

	"github.com/kandev/plugin-host/hostsvc/domain"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// ListPendingTaskTransitionsExact lists the moves that wait in a workspace, or those
// of one task.
func (h *host) ListPendingTaskTransitionsExact(ctx context.Context, message *pluginv1.ListPendingTaskTransitionsExactRequest) (*pluginv1.ListPendingTaskTransitionsExactResponse, error) {
	r := requestOf(ctx, message)
	list, receipt, refusal := h.reader.PendingTransitions(ctx, r.installationID, r.method, r.envelope, message.GetTaskId(), pageOf(message.GetPage()))
	if refusal != nil {
		return nil, r.failure(refusal, taskTexts)
	}
	response := &pluginv1.ListPendingTaskTransitionsExactResponse{
		Items:    make([]*pluginv1.PendingTaskTransition, len(list.Items)),
		PageInfo: r.pageInfo(list.NextCursor, list.SnapshotVersion, receipt),
	}
	for i := range list.Items {
		response.Items[i] = pendingTransitionDTO(&list.Items[i], receipt.StoreEpoch)
	}
	return response, nil
}

func pendingTransitionDTO(p *domain.PendingTransition, storeEpoch uint64) *pluginv1.PendingTaskTransition {
	dto := &pluginv1.PendingTaskTransition{
		Id: p.ID, WorkspaceId: p.WorkspaceID, TaskId: p.TaskID, FromWorkflowId: p.FromWorkflowID, FromStepId: p.FromStepID,
		ToWorkflowId: p.ToWorkflowID, ToStepId: p.ToStepID, State: domain.TransitionPending,
		ResourceVersion: domain.ResourceVersion(storeEpoch, p.Version), CreatedAt: timestamp(p.QueuedAt),
		Predicate: string(p.Predicate), SessionId: p.SessionID, Requester: p.Requester, Actor: string(p.Actor),
	}
	if !p.ExpiresAt.IsZero() {
		expires := timestamp(p.ExpiresAt)
		dto.ExpiresAt = &expires
	}
	return dto
}
