package sdk

import (
	"context"

	"google.golang.org/grpc"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// TaskInbox is the namespace Host.TaskInbox of the contract.
type TaskInbox struct{ host *Host }

// TaskInbox returns the calls about what waits for somebody.
func (h *Host) TaskInbox() TaskInbox { return TaskInbox{h} }

// InboxFilter narrows a list of what waits. The zero value is the whole workspace.
type InboxFilter struct {
	// TaskID is the one task wanted. Optional.
	TaskID string
	// SessionID is the one session wanted. Optional.
	SessionID string
}

// List yields what waits in a workspace, oldest first. Needs
// host.v2.read:task_inbox.
func (i TaskInbox) List(
	ctx context.Context, workspaceID string, filter InboxFilter, options ListOptions,
) Pages[*pluginv1.TaskInboxItem] {
	c := call{method: "ListTaskInboxExact", workspaceID: workspaceID, capability: contract.ReadTaskInbox}
	return pages(ctx, i.host, c, options, func(
		ctx context.Context, requestID string, page *pluginv1.ExactReadPage, opts ...grpc.CallOption,
	) ([]*pluginv1.TaskInboxItem, *pluginv1.ExactReadPageInfo, error) {
		answer, err := i.host.client.ListTaskInboxExact(ctx, &pluginv1.ListTaskInboxExactRequest{
			RequestId: requestID, WorkspaceId: workspaceID, TaskId: filter.TaskID, SessionId: filter.SessionID, Page: page,
		}, opts...)
		return answer.GetItems(), answer.GetPageInfo(), err
	})
}
