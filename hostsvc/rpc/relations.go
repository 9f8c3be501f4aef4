package rpc

import (
	"context"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/query"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// GetTaskRelationsExact lists the graph around one task.
func (h *host) GetTaskRelationsExact(ctx context.Context, message *pluginv1.GetTaskRelationsExactRequest) (*pluginv1.GetTaskRelationsExactResponse, error) {
	r := requestOf(ctx, message)
	list, receipt, refusal := h.reader.TaskRelations(ctx, r.installationID, r.method, r.envelope, message.GetTaskId(), pageOf(message.GetPage()))
	if refusal != nil {
		return nil, r.failure(refusal, taskTexts)
	}
	return &pluginv1.GetTaskRelationsExactResponse{
		Items:    relationDTOs(list.Items, receipt.StoreEpoch),
		PageInfo: r.pageInfo(list.NextCursor, list.SnapshotVersion, receipt),
	}, nil
}

// ListTaskRelationsExact lists the edges of a workspace, or of one task.
func (h *host) ListTaskRelationsExact(ctx context.Context, message *pluginv1.ListTaskRelationsExactRequest) (*pluginv1.ListTaskRelationsExactResponse, error) {
	r := requestOf(ctx, message)
	list, receipt, refusal := h.reader.Relations(ctx, r.installationID, r.method, r.envelope, message.GetTaskId(), pageOf(message.GetPage()))
	if refusal != nil {
		return nil, r.failure(refusal, taskTexts)
	}
	return &pluginv1.ListTaskRelationsExactResponse{
		Items:    relationDTOs(list.Items, receipt.StoreEpoch),
		PageInfo: r.pageInfo(list.NextCursor, list.SnapshotVersion, receipt),
	}, nil
}

func relationDTOs(relations []query.Relation, storeEpoch uint64) []*pluginv1.TaskRelation {
	items := make([]*pluginv1.TaskRelation, len(relations))
	for i, r := range relations {
		items[i] = &pluginv1.TaskRelation{
			WorkspaceId: r.WorkspaceID, SourceTaskId: r.SourceTaskID, TargetTaskId: r.TargetTaskID, Kind: string(r.Kind),
			SourceResourceVersion: domain.ResourceVersion(storeEpoch, r.SourceVersion),
			TargetResourceVersion: domain.ResourceVersion(storeEpoch, r.TargetVersion),
			ResourceVersion:       domain.ResourceVersion(storeEpoch, r.Version),
		}
	}
	return items
}
