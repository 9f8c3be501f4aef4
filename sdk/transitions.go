package sdk

import (
	"context"

	"google.golang.org/grpc"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// TaskTransitions is the namespace Host.TaskTransitions of the contract.
type TaskTransitions struct{ host *Host }

// TaskTransitions returns the calls about moves that wait.
func (h *Host) TaskTransitions() TaskTransitions { return TaskTransitions{h} }

// ListPending yields the moves that wait in a workspace, oldest first, or those of
// one task where taskID is not empty. ExpectTransition takes ID and version of one.
// Needs host.v2.read:task_transitions.
func (t TaskTransitions) ListPending(
	ctx context.Context, workspaceID, taskID string, options ListOptions,
) Pages[*pluginv1.PendingTaskTransition] {
	c := call{method: "ListPendingTaskTransitionsExact", workspaceID: workspaceID, capability: contract.ReadTaskTransitions}
	return pages(ctx, t.host, c, options, func(
		ctx context.Context, requestID string, page *pluginv1.ExactReadPage, opts ...grpc.CallOption,
	) ([]*pluginv1.PendingTaskTransition, *pluginv1.ExactReadPageInfo, error) {
		answer, err := t.host.client.ListPendingTaskTransitionsExact(ctx, &pluginv1.ListPendingTaskTransitionsExactRequest{
			RequestId: requestID, WorkspaceId: workspaceID, TaskId: taskID, Page: page,
		}, opts...)
		return answer.GetItems(), answer.GetPageInfo(), err
	})
}
