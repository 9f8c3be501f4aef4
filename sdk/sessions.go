package sdk

import (
	"context"

	"google.golang.org/grpc"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// Sessions is the namespace Host.Sessions of the contract.
type Sessions struct{ host *Host }

// Sessions returns the calls about sessions.
func (h *Host) Sessions() Sessions { return Sessions{h} }

// List yields a workspace's sessions, newest start first; a nil filter all. Needs
// host.v2.read:sessions.
func (s Sessions) List(
	ctx context.Context, workspaceID string, filter *pluginv1.SessionFilter, options ListOptions,
) Pages[*pluginv1.ExactSessionObservation] {
	c := call{method: "ListSessionsExact", workspaceID: workspaceID, capability: contract.ReadSessions}
	return pages(ctx, s.host, c, options, func(
		ctx context.Context, requestID string, page *pluginv1.ExactReadPage, opts ...grpc.CallOption,
	) ([]*pluginv1.ExactSessionObservation, *pluginv1.ExactReadPageInfo, error) {
		answer, err := s.host.client.ListSessionsExact(ctx, &pluginv1.ListSessionsExactRequest{
			RequestId: requestID, WorkspaceId: workspaceID, Filter: filter, Page: page,
		}, opts...)
		return answer.GetItems(), answer.GetPageInfo(), err
	})
}
