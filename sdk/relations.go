package sdk

import (
	"context"

	"google.golang.org/grpc"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// TaskRelations is the namespace Host.TaskRelations of the contract.
type TaskRelations struct{ host *Host }

// TaskRelations returns the calls about parents, children and dependencies.
func (h *Host) TaskRelations() TaskRelations { return TaskRelations{h} }

// Get yields the graph around one task: the edges that touch it, and all further
// ones among its descendants and among what it waits for. Needs
// host.v2.read:task_relations.
func (t TaskRelations) Get(
	ctx context.Context, workspaceID, taskID string, options ListOptions,
) Pages[*pluginv1.TaskRelation] {
	c := call{method: "GetTaskRelationsExact", workspaceID: workspaceID, capability: contract.ReadTaskRelations}
	return pages(ctx, t.host, c, options, func(
		ctx context.Context, requestID string, page *pluginv1.ExactReadPage, opts ...grpc.CallOption,
	) ([]*pluginv1.TaskRelation, *pluginv1.ExactReadPageInfo, error) {
		answer, err := t.host.client.GetTaskRelationsExact(ctx, &pluginv1.GetTaskRelationsExactRequest{
			RequestId: requestID, WorkspaceId: workspaceID, TaskId: taskID, Page: page,
		}, opts...)
		return answer.GetItems(), answer.GetPageInfo(), err
	})
}

// List yields the edges that touch one task; with an empty taskID all of the
// workspace. Needs host.v2.read:task_relations.
func (t TaskRelations) List(
	ctx context.Context, workspaceID, taskID string, options ListOptions,
) Pages[*pluginv1.TaskRelation] {
	c := call{method: "ListTaskRelationsExact", workspaceID: workspaceID, capability: contract.ReadTaskRelations}
	return pages(ctx, t.host, c, options, func(
		ctx context.Context, requestID string, page *pluginv1.ExactReadPage, opts ...grpc.CallOption,
	) ([]*pluginv1.TaskRelation, *pluginv1.ExactReadPageInfo, error) {
		answer, err := t.host.client.ListTaskRelationsExact(ctx, &pluginv1.ListTaskRelationsExactRequest{
			RequestId: requestID, WorkspaceId: workspaceID, TaskId: taskID, Page: page,
		}, opts...)
		return answer.GetItems(), answer.GetPageInfo(), err
	})
}
