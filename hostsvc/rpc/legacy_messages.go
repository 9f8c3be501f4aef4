package rpc

import (
	"context"

	"github.com/kandev/plugin-host/hostsvc/legacy"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// ListMessages lists messages of the instance.
func (h *host) ListMessages(ctx context.Context, message *pluginv1.ListMessagesRequest) (*pluginv1.ListMessagesResponse, error) {
	var filter legacy.MessageFilter
	if f := message.GetFilter(); f != nil {
		filter = legacy.MessageFilter{
			SessionIDs: f.GetSessionIds(), TaskIDs: f.GetTaskIds(), Types: f.GetTypes(), Since: f.Since, Until: f.Until,
		}
	}
	messages, info, err := h.v1.ListMessages(ctx, callerOf(ctx), filter, v1Page(message.GetPage()))
	if err != nil {
		return nil, err
	}
	response := &pluginv1.ListMessagesResponse{PageInfo: v1PageInfo(info)}
	for i := range messages {
		response.Messages = append(response.Messages, messageDTO(&messages[i]))
	}
	return response, nil
}

// SendMessage says something to a task's agent.
func (h *host) SendMessage(ctx context.Context, message *pluginv1.SendMessageRequest) (*pluginv1.SendMessageResponse, error) {
	session, status, err := h.v1.SendMessage(ctx, callerOf(ctx), message.GetTaskId(), message.GetSessionId(), message.GetText())
	if err != nil {
		return nil, err
	}
	return &pluginv1.SendMessageResponse{SessionId: session, Status: string(status)}, nil
}
