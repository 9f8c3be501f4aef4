package rpc

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/query"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// Outcome is how one exact call of a proven installation ended.
type Outcome struct {
	// Method is the RPC's name.
	Method string
	State  contract.State
	// Reason is "" for a success.
	Reason contract.Reason
	// AuditID is "" where nothing could be recorded.
	AuditID string
	Took    time.Duration
}

// Observer is told how calls end, for metrics. It must not block or allocate.
type Observer interface {
	Called(outcome Outcome)
}

// unobserved is an Observer that nobody listens to.
type unobserved struct{}

// Called implements Observer.
func (unobserved) Called(Outcome) {}

// The adapters answer through these: what the wire says and what is observed
// of a call are one.

func (r request) failure(refusal *admission.Refusal, texts shippedTexts) error {
	r.call.refused(refusal)
	return readFailure(refusal, texts)
}

func (r request) refusal(refusal *admission.Refusal) *pluginv1.HostCommandResult {
	r.call.refused(refusal)
	return refusalResult(refusal)
}

func (r request) result(result command.Result) *pluginv1.HostCommandResult {
	r.call.outcome.State, r.call.outcome.AuditID = result.State, result.AuditID
	return commandResult(result)
}

func (r request) served(receipt query.Receipt) {
	r.call.outcome.State, r.call.outcome.AuditID = contract.StateApplied, receipt.AuditID
}

func (c *call) refused(refusal *admission.Refusal) {
	c.outcome.State, c.outcome.Reason, c.outcome.AuditID = refusal.State, refusal.Reason, refusal.AuditID
}

// begin opens the span of a call whose caller is proven; before that, nobody
// makes this process write anything. No span has a token or a payload.
func (d *door) begin(ctx context.Context, c *call) context.Context {
	if d.tracer == nil {
		return ctx
	}
	ctx = propagation.TraceContext{}.Extract(ctx, incoming{ctx})
	ctx, c.span = d.tracer.Start(ctx, pluginv1.Host_ServiceDesc.ServiceName+"/"+c.method.Name,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(c.begun), trace.WithAttributes(
			attribute.String("rpc.system", "grpc"), attribute.String("rpc.service", pluginv1.Host_ServiceDesc.ServiceName),
			attribute.String("rpc.method", c.method.Name),
			attribute.String("kandev.installation_id", c.principal.InstallationID),
		))
	return ctx
}

// end tells everyone who listens how a call ended.
func (d *door) end(ctx context.Context, c *call) {
	if c.outcome.State == "" {
		// Whatever it answered, it was none of the contract's outcomes.
		c.refused(admission.Unavailable())
	}
	o := &c.outcome
	o.Method, o.Took = c.method.Name, d.now().Sub(c.begun)
	d.observer.Called(*o)
	if c.span != nil {
		c.span.SetAttributes(attribute.String("kandev.state", string(o.State)), attribute.String("kandev.reason", string(o.Reason)),
			attribute.String("kandev.audit_id", o.AuditID))
		if o.State == contract.StateUnavailable {
			c.span.SetStatus(codes.Error, string(o.Reason))
		}
		c.span.End()
	}
	if o.State.Succeeded() {
		return
	}
	if leftOut, ok := c.flight.failures.next(); ok {
		level := slog.LevelInfo
		if o.State == contract.StateUnavailable {
			level = slog.LevelWarn
		}
		d.log.Log(ctx, level, "a call was not served", "method", o.Method, "installation", c.principal.InstallationID,
			"state", string(o.State), "reason", string(o.Reason), "auditID", o.AuditID, "leftOut", leftOut)
	}
}

// incoming reads the trace context from a call's metadata (W3C).
type incoming struct {
	ctx context.Context //nolint:containedctx // the metadata is in it
}

// Get implements propagation.TextMapCarrier.
func (i incoming) Get(key string) string {
	if values := metadata.ValueFromIncomingContext(i.ctx, key); len(values) == 1 {
		return values[0]
	}
	return ""
}

// Set implements propagation.TextMapCarrier; nothing is sent back.
func (incoming) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (incoming) Keys() []string { return nil }
