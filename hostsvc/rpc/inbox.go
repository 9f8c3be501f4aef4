package rpc

import (
	"context"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/query"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// ListTaskInboxExact lists what waits for somebody in a workspace.
func (h *host) ListTaskInboxExact(ctx context.Context, message *pluginv1.ListTaskInboxExactRequest) (*pluginv1.ListTaskInboxExactResponse, error) {
	r := requestOf(ctx, message)
	filter := query.InboxFilter{TaskID: message.GetTaskId(), SessionID: message.GetSessionId()}
	list, receipt, refusal := h.reader.Inbox(ctx, r.installationID, r.method, r.envelope, filter, pageOf(message.GetPage()))
	if refusal != nil {
		return nil, r.failure(refusal, taskTexts)
	}
	response := &pluginv1.ListTaskInboxExactResponse{PageInfo: r.pageInfo(list.NextCursor, list.SnapshotVersion, receipt)}
	for _, i := range list.Items {
		response.Items = append(response.Items, &pluginv1.TaskInboxItem{
			Id: i.ID, WorkspaceId: i.WorkspaceID, TaskId: i.TaskID, SessionId: i.SessionID, Kind: string(i.Kind), State: i.State,
			CreatedAt: wholeSecond(i.CreatedAt), CanonicalDigest: i.Digest.String(),
			ResourceVersion: domain.ResourceVersion(receipt.StoreEpoch, i.Version),
		})
	}
	return response, nil
}
