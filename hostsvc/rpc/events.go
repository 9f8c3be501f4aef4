package rpc

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/events"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

var eventTexts = shippedTexts{
	identifiers: "request_id is a required bounded identifier",
	unavailable: "events are unavailable",
}

// errDrained is why a stream ends when the server stops.
var errDrained = errors.New("the server stops")

// untilDrained is a context that ends with the server's streams.
func (d *door) untilDrained(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-d.drained:
			cancel(errDrained)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// hostStream admits a stream of the Host. Its caller is checked as that of any call,
// and again for each message: the adapter asks proven. It is observed as a call
// that ends when the stream is open; what ends the stream later is logged.
func (d *door) hostStream(server any, stream grpc.ServerStream, row *method, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	if !row.streams || info.IsClientStream {
		return status.Errorf(codes.Unimplemented, "%s is no such stream", row.Name)
	}
	ctx, cancel := d.untilDrained(stream.Context())
	defer cancel()
	bearer, _ := bearerOf(ctx)
	ctx, c, err := d.enter(ctx, row)
	if err != nil {
		return err
	}
	leave := sync.OnceFunc(c.flight.leave) // who only listens is in nobody's way
	defer leave()
	c.proven = func(ctx context.Context) error {
		principal, err := d.identity.Authenticate(ctx, bearer)
		switch {
		case err != nil:
			return d.unknown(ctx, row, err)
		case principal != c.principal:
			return errUnauthenticated
		}
		return nil
	}
	open := false
	answered := sync.OnceFunc(func() { d.end(ctx, c) })
	c.answered = func() {
		open = true
		answered()
		leave()
	}
	defer answered()
	defer func() {
		if cause := recover(); cause != nil {
			d.logPanic(c, cause)
			refusal := admission.Unavailable()
			c.refused(refusal)
			err = readFailure(refusal, dataTexts)
		}
		if open && err != nil && stream.Context().Err() == nil {
			if leftOut, ok := c.flight.failures.next(); ok {
				d.log.Log(ctx, slog.LevelInfo, "a stream was ended", "method", row.Name, "installation", c.principal.InstallationID,
					"reason", string(c.outcome.Reason), "auditID", c.outcome.AuditID, "leftOut", leftOut)
			}
		}
	}()
	return handler(server, endingStream{stream, ctx})
}

// WatchEvents streams events.
func (h *host) WatchEvents(message *pluginv1.WatchEventsRequest, stream grpc.ServerStreamingServer[pluginv1.WatchEventsResponse]) error {
	ctx := stream.Context()
	r := requestOf(ctx, message)
	if h.events == nil {
		return h.UnimplementedHostServer.WatchEvents(message, stream)
	}
	fault := r.envelope.Fault
	if fault == nil {
		fault = r.call.method.checkMessage(message)
	}
	watched, err := h.events.Open(ctx, r.installationID, events.Watch{
		RequestID: message.GetRequestId(), Cursor: message.GetCursor(), FromStart: message.GetFromStart(),
		Patterns: message.GetPatterns(), Fault: fault, Proven: r.call.proven,
	})
	if err != nil {
		return r.ended(ctx, err)
	}
	defer watched.Close()
	r.call.outcome.State, r.call.outcome.AuditID = contract.StateApplied, watched.AuditID()
	r.call.answered()
	// A Send that the client's flow control holds up ends with this handler and by
	// nothing else, so the handler waits beside it: returning ends both.
	messages, sent := make(chan *pluginv1.WatchEventsResponse), make(chan error, 1)
	defer close(messages)
	go func() {
		for message := range messages {
			sent <- stream.Send(message)
		}
	}()
	for {
		delivery, err := watched.Next(ctx)
		if err != nil {
			return r.ended(ctx, err)
		}
		messages <- eventMessage(&delivery)
		if err := watched.Sent(ctx, sent); err != nil {
			return r.ended(ctx, err)
		}
	}
}

// ended is the end of a stream of events.
func (r request) ended(ctx context.Context, err error) error {
	var refusal *admission.Refusal
	switch {
	case errors.Is(context.Cause(ctx), errDrained):
		return r.failure(admission.Unavailable(), eventTexts)
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.As(err, &refusal):
		return r.failure(refusal, eventTexts)
	case status.Code(err) != codes.Unknown:
		return err // the identity's own
	default:
		return r.failure(admission.Unavailable(), eventTexts)
	}
}

func eventMessage(d *events.Delivery) *pluginv1.WatchEventsResponse {
	e := d.Event
	if e == nil {
		return &pluginv1.WatchEventsResponse{Cursor: d.Cursor}
	}
	schema, payload := e.Content()
	return &pluginv1.WatchEventsResponse{
		EventId: e.ID, EventType: e.Type, OccurredAt: timestamp(e.At), WorkspaceId: e.WorkspaceID, Payload: payload,
		EventSchemaVersion: schema, ResourceId: e.ResourceID, ResourceVersion: e.ResourceVersion, Cursor: d.Cursor,
		CapabilityRevision: d.Revision, AuditId: e.AuditID,
	}
}

// EmitEvent publishes an event in the plugin's own name. Where there are no events,
// it succeeds, as shipped.
func (h *host) EmitEvent(ctx context.Context, message *pluginv1.EmitEventRequest) (*pluginv1.EmitEventResponse, error) {
	caller := callerOf(ctx)
	if h.emitter == nil {
		return &pluginv1.EmitEventResponse{}, nil
	}
	var payload map[string]any
	if message.GetPayload() != nil {
		payload = message.GetPayload().AsMap()
	}
	err := h.emitter.Emit(ctx, caller.InstallationID, caller.PluginID, message.GetEventName(), payload, caller.Still)
	var refused *command.EmitError
	if errors.As(err, &refused) {
		kind := legacy.InvalidArgument
		if refused.TooMany {
			kind = legacy.ResourceExhausted
		}
		return nil, &legacy.Failure{Kind: kind, Text: refused.Text}
	}
	if err != nil {
		return nil, err
	}
	return &pluginv1.EmitEventResponse{}, nil
}
