package rpc

import (
	"context"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/query"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

var interactionTexts = shippedTexts{
	identifiers: bothIdentifiers,
	notFound:    "interaction was not found",
	unavailable: "workspace data service is unavailable",
	filter:      "interaction filter",
}

// ListPendingInteractionsExact lists what humans owe a workspace's agents.
func (h *host) ListPendingInteractionsExact(ctx context.Context, message *pluginv1.ListPendingInteractionsExactRequest) (*pluginv1.ListPendingInteractionsExactResponse, error) {
	r := requestOf(ctx, message)
	filter := query.InteractionFilter{
		SessionIDs: message.GetFilter().GetSessionIds(), TaskIDs: message.GetFilter().GetTaskIds(), Kinds: message.GetFilter().GetKinds(),
	}
	list, receipt, refusal := h.reader.PendingInteractions(ctx, r.installationID, r.method, r.envelope, filter, pageOf(message.GetPage()))
	if refusal != nil {
		return nil, r.failure(refusal, interactionTexts)
	}
	response := &pluginv1.ListPendingInteractionsExactResponse{PageInfo: r.pageInfo(list.NextCursor, list.SnapshotVersion, receipt)}
	for i := range list.Items {
		response.Items = append(response.Items, interactionObservation(&list.Items[i], receipt.StoreEpoch, response.PageInfo.ObservedAt))
	}
	return response, nil
}

// GetInteractionExact reads one interaction.
func (h *host) GetInteractionExact(ctx context.Context, message *pluginv1.GetInteractionExactRequest) (*pluginv1.GetInteractionExactResponse, error) {
	r := requestOf(ctx, message)
	interaction, receipt, refusal := h.reader.Interaction(ctx, r.installationID, r.method, r.envelope, message.GetInteractionId())
	if refusal != nil {
		return nil, r.failure(refusal, interactionTexts)
	}
	observedAt := timestamp(receipt.ObservedAt)
	return &pluginv1.GetInteractionExactResponse{
		Item: interactionObservation(&interaction, receipt.StoreEpoch, observedAt), Receipt: r.receipt(receipt, observedAt),
	}, nil
}

func interactionObservation(i *domain.Interaction, storeEpoch uint64, observedAt string) *pluginv1.ExactInteractionObservation {
	return &pluginv1.ExactInteractionObservation{
		Interaction: interactionDTO(i), ResourceVersion: domain.ResourceVersion(storeEpoch, i.Version), ObservedAt: observedAt,
	}
}

// interactionDTO is an interaction in both worlds.
func interactionDTO(i *domain.Interaction) *pluginv1.Interaction {
	out := &pluginv1.Interaction{
		Id: i.ID, Kind: string(i.Kind), TaskId: i.TaskID, SessionId: i.SessionID, TurnId: i.TurnID, Status: string(i.Status),
		Title: i.Title, Context: i.Context, ToolCallId: i.ToolCallID, ActionType: i.ActionType, Options: optionDTOs(i.Options),
		AgentDisconnected: i.AgentDisconnected, CreatedAt: wholeSecond(i.CreatedAt), UpdatedAt: wholeSecond(i.UpdatedAt),
	}
	for _, q := range i.Questions {
		out.Questions = append(out.Questions, &pluginv1.InteractionQuestion{
			Id: q.ID, Title: q.Title, Prompt: q.Prompt, Options: optionDTOs(q.Options),
		})
	}
	return out
}

func optionDTOs(options []domain.InteractionOption) (out []*pluginv1.InteractionOption) {
	for _, o := range options {
		out = append(out, &pluginv1.InteractionOption{OptionId: o.ID, Label: o.Label, Kind: o.Kind, Description: o.Description})
	}
	return out
}
