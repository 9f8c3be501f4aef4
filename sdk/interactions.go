package sdk

import (
	"context"

	"google.golang.org/grpc"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// Interactions is the namespace Host.Interactions of the contract.
type Interactions struct{ host *Host }

// Interactions returns the calls about what agents ask humans.
func (h *Host) Interactions() Interactions { return Interactions{h} }

// ListPending yields what the agents of a workspace wait for, oldest first; a nil
// filter all. Needs host.v2.read:interactions.
func (i Interactions) ListPending(
	ctx context.Context, workspaceID string, filter *pluginv1.InteractionFilter, options ListOptions,
) Pages[*pluginv1.ExactInteractionObservation] {
	c := call{method: "ListPendingInteractionsExact", workspaceID: workspaceID, capability: contract.ReadInteractions}
	return pages(ctx, i.host, c, options, func(
		ctx context.Context, requestID string, page *pluginv1.ExactReadPage, opts ...grpc.CallOption,
	) ([]*pluginv1.ExactInteractionObservation, *pluginv1.ExactReadPageInfo, error) {
		answer, err := i.host.client.ListPendingInteractionsExact(ctx, &pluginv1.ListPendingInteractionsExactRequest{
			RequestId: requestID, WorkspaceId: workspaceID, Filter: filter, Page: page,
		}, opts...)
		return answer.GetItems(), answer.GetPageInfo(), err
	})
}

// Get returns one interaction at its current version, also one that is over. Needs
// host.v2.read:interactions.
func (i Interactions) Get(
	ctx context.Context, workspaceID, interactionID string,
) (*pluginv1.ExactInteractionObservation, *pluginv1.HostReadReceipt, error) {
	c := call{method: "GetInteractionExact", workspaceID: workspaceID, capability: contract.ReadInteractions}
	var answer *pluginv1.GetInteractionExactResponse
	sent, err := i.host.exact(ctx, c,
		func(ctx context.Context, r request, opts ...grpc.CallOption) (*pluginv1.HostCommandResult, error) {
			var err error
			answer, err = i.host.client.GetInteractionExact(ctx, &pluginv1.GetInteractionExactRequest{
				RequestId: r.id, WorkspaceId: workspaceID, InteractionId: interactionID,
			}, opts...)
			return nil, err
		})
	if err != nil {
		return nil, nil, err
	}
	if answer.GetItem().GetInteraction() == nil || answer.GetReceipt() == nil {
		return nil, nil, c.denied(unknownResult("the Host answered without the interaction or its read receipt"), sent.request)
	}
	return answer.GetItem(), answer.GetReceipt(), nil
}
