package sdk

import (
	"context"

	"google.golang.org/grpc"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// Sanitization is how much of a message is shown. No level shows system markup
// (I14).
type Sanitization string

const (
	// SystemContextRemoved keeps the text, without system markup.
	SystemContextRemoved Sanitization = "system_context_removed"
	// ContentRemoved keeps no text.
	ContentRemoved Sanitization = "content_removed"
)

// Messages is the namespace Host.Messages of the contract.
type Messages struct{ host *Host }

// Messages returns the calls about messages.
func (h *Host) Messages() Messages { return Messages{h} }

// ListSanitized yields a workspace's messages, oldest first; a nil filter all.
// Every observation tells the level applied. Needs host.v2.read:messages.
func (m Messages) ListSanitized(
	ctx context.Context, workspaceID string, filter *pluginv1.MessageFilter, level Sanitization, options ListOptions,
) Pages[*pluginv1.ExactMessageObservation] {
	c := call{method: "ListSanitizedMessagesExact", workspaceID: workspaceID, capability: contract.ReadMessages}
	return pages(ctx, m.host, c, options, func(
		ctx context.Context, requestID string, page *pluginv1.ExactReadPage, opts ...grpc.CallOption,
	) ([]*pluginv1.ExactMessageObservation, *pluginv1.ExactReadPageInfo, error) {
		answer, err := m.host.client.ListSanitizedMessagesExact(ctx, &pluginv1.ListSanitizedMessagesExactRequest{
			RequestId: requestID, WorkspaceId: workspaceID, Filter: filter, Sanitization: string(level), Page: page,
		}, opts...)
		return answer.GetItems(), answer.GetPageInfo(), err
	})
}
