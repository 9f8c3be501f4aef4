package rpc

import (
	"context"
	"time"

	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/query"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

var messageTexts = dataTexts.filtering("message filter", "")

// ListSanitizedMessagesExact lists the messages of a workspace without system markup.
func (h *host) ListSanitizedMessagesExact(ctx context.Context, message *pluginv1.ListSanitizedMessagesExactRequest) (*pluginv1.ListSanitizedMessagesExactResponse, error) {
	r := requestOf(ctx, message)
	filter, fault := messageFilterOf(message.GetFilter())
	if r.envelope.Fault == nil {
		r.envelope.Fault = fault
	}
	level := query.Sanitization(message.GetSanitization())
	list, receipt, refusal := h.reader.Messages(ctx, r.installationID, r.method, r.envelope, filter, level, pageOf(message.GetPage()))
	if refusal != nil {
		return nil, r.failure(refusal, messageTexts)
	}
	if level == "" {
		level = query.SystemContextRemoved
	}
	response := &pluginv1.ListSanitizedMessagesExactResponse{PageInfo: r.pageInfo(list.NextCursor, list.SnapshotVersion, receipt)}
	for i := range list.Items {
		m := &list.Items[i]
		response.Items = append(response.Items, &pluginv1.ExactMessageObservation{
			Message: messageDTO(&m.Message), Sanitization: string(level), CanonicalDigest: m.Digest.String(),
			ResourceVersion: domain.ResourceVersion(receipt.StoreEpoch, m.Message.Version), ObservedAt: response.PageInfo.ObservedAt,
		})
	}
	return response, nil
}

func messageFilterOf(filter *pluginv1.MessageFilter) (query.MessageFilter, *admission.Refusal) {
	if filter == nil {
		return query.MessageFilter{}, nil
	}
	out := query.MessageFilter{SessionIDs: filter.GetSessionIds(), TaskIDs: filter.GetTaskIds(), Types: filter.GetTypes()}
	for _, bound := range []struct {
		field string
		text  *string
		to    **time.Time
	}{{"filter.since", filter.Since, &out.Since}, {"filter.until", filter.Until, &out.Until}} {
		if bound.text == nil {
			continue
		}
		at, err := time.Parse(time.RFC3339, *bound.text)
		if err != nil {
			return query.MessageFilter{}, malformed(bound.field, "is no RFC 3339 time")
		}
		at = at.UTC()
		*bound.to = &at
	}
	return out, nil
}

// messageDTO is a message in both worlds. Its content has no system markup any more.
func messageDTO(m *domain.Message) *pluginv1.Message {
	return &pluginv1.Message{
		Id: m.ID, SessionId: m.SessionID, TaskId: m.TaskID, TurnId: m.TurnID, AuthorType: string(m.AuthorType),
		Content: m.Content, Type: string(m.Type), CreatedAt: wholeSecond(m.CreatedAt),
	}
}
