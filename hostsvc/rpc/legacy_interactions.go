package rpc

import (
	"context"

	"github.com/kandev/plugin-host/hostsvc/legacy"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// ListPendingInteractions lists what humans owe the instance's agents.
func (h *host) ListPendingInteractions(ctx context.Context, message *pluginv1.ListPendingInteractionsRequest) (*pluginv1.ListPendingInteractionsResponse, error) {
	f := message.GetFilter()
	filter := legacy.InteractionFilter{SessionIDs: f.GetSessionIds(), TaskIDs: f.GetTaskIds(), Kinds: f.GetKinds()}
	pending, info, err := h.v1.ListPendingInteractions(ctx, callerOf(ctx), filter, v1Page(message.GetPage()))
	if err != nil {
		return nil, err
	}
	response := &pluginv1.ListPendingInteractionsResponse{PageInfo: v1PageInfo(info)}
	for i := range pending {
		response.Interactions = append(response.Interactions, interactionDTO(&pending[i]))
	}
	return response, nil
}

// GetInteraction reads one interaction.
func (h *host) GetInteraction(ctx context.Context, message *pluginv1.GetInteractionRequest) (*pluginv1.GetInteractionResponse, error) {
	interaction, err := h.v1.GetInteraction(ctx, callerOf(ctx), message.GetId())
	if err != nil {
		return nil, err
	}
	return &pluginv1.GetInteractionResponse{Interaction: interactionDTO(&interaction)}, nil
}
