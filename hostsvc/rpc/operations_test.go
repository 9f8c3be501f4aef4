package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/identity"
	"github.com/kandev/plugin-host/hostsvc/rpc"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// waitAtMost bounds every wait for the server.
const waitAtMost = 20 * time.Second

func (w *world) eventually(what string, holds func() bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), waitAtMost)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.Fatalf("waited %v and still not: %s", waitAtMost, what)
		}
	}
}

// observer keeps every outcome.
type observer struct {
	mu       sync.Mutex
	outcomes []rpc.Outcome
}

func (o *observer) Called(outcome rpc.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.outcomes = append(o.outcomes, outcome)
}

// take returns what was observed since the last time.
func (o *observer) take() []rpc.Outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken := o.outcomes
	o.outcomes = nil
	return taken
}

// TestObservedIsWhatWasAnswered: the outcome that is counted, traced and logged
// is the one on the wire, audit ID included.
func TestObservedIsWhatWasAnswered(t *testing.T) {
	seen := &observer{}
	broken := &failing{}
	w := newWorld(t, func(o *options) {
		o.failing, o.panics = broken, true
		o.server = func(c *rpc.Config) { c.Observer = seen }
	})
	s := w.play("ws")
	seen.take()
	one := func(want rpc.Outcome) {
		t.Helper()
		got := seen.take()
		if len(got) != 1 {
			t.Fatalf("observed %+v, want one outcome", got)
		}
		got[0].Took = 0
		if got[0] != want {
			t.Errorf("observed %+v, want %+v", got[0], want)
		}
	}
	read, err := w.host.GetTaskExact(w.as(alpha), s.get)
	w.must(err)
	one(rpc.Outcome{Method: "GetTaskExact", State: contract.StateApplied, AuditID: read.GetReceipt().GetAuditId()})

	list, err := w.host.ListTasksExact(w.as(alpha), s.list)
	w.must(err)
	one(rpc.Outcome{Method: "ListTasksExact", State: contract.StateApplied, AuditID: list.GetPageInfo().GetReceipt().GetAuditId()})

	standing, err := w.host.GetCapabilityContext(w.as(alpha), &pluginv1.GetCapabilityContextRequest{RequestId: "r"})
	w.must(err)
	one(rpc.Outcome{Method: "GetCapabilityContext", State: contract.StateApplied, AuditID: standing.GetAuditId()})

	written, err := w.host.UpdateTaskExact(w.as(alpha), s.update)
	w.must(err)
	one(rpc.Outcome{Method: "UpdateTaskExact", State: contract.StateApplied, AuditID: written.GetResult().GetAuditId()})

	replayed, err := w.host.UpdateTaskExact(w.as(alpha), s.update)
	w.must(err)
	one(rpc.Outcome{Method: "UpdateTaskExact", State: contract.StateAlreadyApplied, AuditID: replayed.GetResult().GetAuditId()})

	_, err = w.host.GetTaskExact(w.as(beta), s.get)
	one(rpc.Outcome{
		Method: "GetTaskExact", State: contract.StateDenied, Reason: contract.ReasonMissingCapabilityApproval,
		AuditID: detail(t, err).GetAuditId(),
	})

	created, err := w.host.CreateTaskExact(w.as(alpha), &pluginv1.CreateTaskExactRequest{RequestId: "r", WorkspaceId: "ws"})
	w.must(err)
	one(rpc.Outcome{
		Method: "CreateTaskExact", State: contract.StateInvalid, Reason: contract.Reason(created.GetResult().GetReason()),
		AuditID: created.GetResult().GetAuditId(),
	})

	broken.set(func() error { panic("at work") })
	_, err = w.host.GetTaskExact(w.as(alpha), s.get)
	broken.set(nil)
	one(rpc.Outcome{Method: "GetTaskExact", State: contract.StateUnavailable, Reason: contract.ReasonDependencyUnavailable})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a panic answers %v", err)
	}

	// Who proves nothing is nobody's call.
	if _, err := w.host.GetTaskExact(t.Context(), s.get); status.Code(err) != codes.Unauthenticated {
		t.Errorf("got %v", err)
	}
	if got := seen.take(); len(got) != 0 {
		t.Errorf("observed %+v", got)
	}
}

// TestFailedCallsAreLoggedWithTheirAuditID, ten a second and installation, so
// that one of them can't hide another.
func TestFailedCallsAreLoggedWithTheirAuditID(t *testing.T) {
	w := newWorld(t)
	s := w.play("ws")
	var audits []string
	for range 30 {
		_, err := w.host.GetTaskExact(w.as(beta), s.get)
		audits = append(audits, detail(t, err).GetAuditId())
	}
	_, err := w.host.GetTaskExact(w.as("installation-gamma"), s.get)
	gamma := detail(t, err).GetAuditId()
	text := w.log.String()
	for _, want := range append(audits[:10:10], gamma) {
		if !strings.Contains(text, "auditID="+want) {
			t.Errorf("audit ID %s is not in the log", want)
		}
	}
	if n := strings.Count(text, "a call was not served"); n != 11 {
		t.Errorf("%d lines for 30 denials of one installation and one of another, want 11", n)
	}
	w.clock.advance(time.Second)
	_, _ = w.host.GetTaskExact(w.as(beta), s.get)
	if !strings.Contains(w.log.String(), "leftOut=20") {
		t.Error("what was left out is not told")
	}
	if strings.Contains(w.log.String(), "token-of-") {
		t.Error("a token is in the log")
	}
}

// TestTraces: a proven call is a span in its caller's trace, with what was
// answered and without what was sent.
func TestTraces(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	w := newWorld(t, func(o *options) {
		o.server = func(c *rpc.Config) { c.Tracer = provider.Tracer("test") }
	})
	s := w.play("ws")
	exporter.Reset()
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	ctx := metadata.AppendToOutgoingContext(w.as(alpha), "traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	written, err := w.host.UpdateTaskExact(ctx, s.update)
	w.must(err)
	_, err = w.host.GetTaskExact(w.as(beta), s.get)
	denied := detail(t, err)
	_, _ = w.host.GetTaskExact(metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+trace+"-00f067aa0ba902b7-01"), s.get)

	w.eventually("both spans have ended", func() bool { return len(exporter.GetSpans()) >= 2 })
	spans := exporter.GetSpans()
	if len(spans) != 2 {
		t.Fatalf("%d spans, want one for each proven call", len(spans))
	}
	for i, want := range []struct{ name, state, reason, audit string }{
		{"kandev.plugin.v1.Host/UpdateTaskExact", "APPLIED", "", written.GetResult().GetAuditId()},
		{"kandev.plugin.v1.Host/GetTaskExact", "DENIED", "MISSING_CAPABILITY_APPROVAL", denied.GetAuditId()},
	} {
		span := spans[i]
		said := map[string]string{}
		for _, attribute := range span.Attributes {
			said[string(attribute.Key)] = attribute.Value.AsString()
		}
		if span.Name != want.name || said["kandev.state"] != want.state || said["kandev.reason"] != want.reason || said["kandev.audit_id"] != want.audit || want.audit == "" {
			t.Errorf("span %q says %v, want %+v", span.Name, said, want)
		}
		if text := fmt.Sprint(said, span.Events); strings.Contains(text, "token") || strings.Contains(text, "second") {
			t.Errorf("a token or a payload is in the span: %s", text)
		}
	}
	if got := spans[0].SpanContext.TraceID().String(); got != trace {
		t.Errorf("trace %s, want the caller's", got)
	}
	if spans[1].SpanContext.TraceID().String() == trace {
		t.Error("a call without a trace context is in another's trace")
	}
}

// TestHealthFollowsReadiness, with the cause in the log.
func TestHealthFollowsReadiness(t *testing.T) {
	var cause atomic.Pointer[error]
	notYet := errors.New("approvals: not complete yet")
	cause.Store(&notYet)
	w := newWorld(t, func(o *options) {
		o.server = func(c *rpc.Config) {
			c.Ready = func(context.Context) error { return *cause.Load() }
		}
	})
	client := healthpb.NewHealthClient(w.conn)
	is := func(want healthpb.HealthCheckResponse_ServingStatus) func() bool {
		return func() bool {
			for _, service := range []string{"", "kandev.plugin.v1.Host"} {
				got, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
				w.must(err)
				if got.GetStatus() != want {
					return false
				}
			}
			return true
		}
	}
	if !is(healthpb.HealthCheckResponse_NOT_SERVING)() {
		t.Error("it serves before it is ready")
	}
	var ready error
	cause.Store(&ready)
	w.eventually("it serves", is(healthpb.HealthCheckResponse_SERVING))
	lost := errors.New("lease: ran out")
	cause.Store(&lost)
	w.eventually("it serves no more", is(healthpb.HealthCheckResponse_NOT_SERVING))
	if !strings.Contains(w.log.String(), "lease: ran out") {
		t.Errorf("the log does not name the cause: %s", w.log)
	}
}

// TestDrain: a server that stops tells its clients to go away, lets what is in
// flight end, and refuses what comes.
func TestDrain(t *testing.T) {
	slow := &failing{}
	w := newWorld(t, func(o *options) { o.failing = slow })
	s := w.play("ws")
	entered, release := make(chan struct{}), make(chan struct{})
	slow.set(func() error {
		entered <- struct{}{}
		<-release
		return nil
	})
	inFlight := make(chan error, 1)
	go func() {
		response, err := w.host.UpdateTaskExact(w.as(alpha), s.update)
		if err == nil && response.GetResult().GetStatus() != pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_APPLIED {
			err = fmt.Errorf("answered %v", response.GetResult())
		}
		inFlight <- err
	}()
	<-entered // the read before the lock
	watch, err := healthpb.NewHealthClient(w.dial()).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	w.must(err)
	first, err := watch.Recv()
	w.must(err)
	if first.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health before is %v", first)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- w.stop() }()
	last, err := watch.Recv()
	w.must(err)
	if last.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health while it drains is %v", last)
	}
	w.eventually("the client has been told to go away", func() bool { return w.conn.GetState() != connectivity.Ready })
	if _, err := w.host.GetTaskExact(w.as(alpha), s.get); status.Code(err) != codes.Unavailable {
		t.Errorf("a call that comes while it drains: %v", err)
	}
	slow.set(nil)
	close(release)
	if err := <-inFlight; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	// A stream of health never ends by itself, and keeps nothing from its end.
	begun := time.Now()
	w.must(<-stopped)
	if took := time.Since(begun); took > rpc.DefaultDrainTime/2 {
		t.Errorf("the end took %v", took)
	}
}

// TestDrainIsBounded: a call that doesn't end is cut off.
func TestDrainIsBounded(t *testing.T) {
	slow := &failing{}
	w := newWorld(t, func(o *options) {
		o.failing = slow
		o.server = func(c *rpc.Config) { c.DrainTime = 50 * time.Millisecond }
	})
	s := w.play("ws")
	entered, release := make(chan struct{}), make(chan struct{})
	slow.set(func() error {
		entered <- struct{}{}
		<-release
		return nil
	})
	inFlight := make(chan error, 1)
	go func() {
		_, err := w.host.GetTaskExact(w.as(alpha), s.get)
		inFlight <- err
	}()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- w.stop() }()
	if err := <-inFlight; status.Code(err) != codes.Unavailable {
		t.Errorf("the call that was cut off: %v", err)
	}
	close(release)
	w.must(<-stopped)
}

// TestConnectionsAgeOut: clients connect again and spread over new replicas; no
// call fails for that.
func TestConnectionsAgeOut(t *testing.T) {
	w := newWorld(t, func(o *options) {
		o.server = func(c *rpc.Config) { c.MaxConnectionAge = 50 * time.Millisecond }
	})
	s := w.play("ws")
	var away atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for state := w.conn.GetState(); w.conn.WaitForStateChange(ctx, state); state = w.conn.GetState() {
			if state == connectivity.Ready {
				away.Store(true)
			}
		}
	}()
	w.eventually("the connection is sent away", func() bool {
		if _, err := w.host.GetTaskExact(w.as(alpha), s.get); err != nil {
			t.Fatalf("a call: %v", err)
		}
		return away.Load()
	})
}

// revocable is an authenticator whose one token stops proving anything, as a
// pod's does when the pod is deleted.
type revocable struct {
	tokens

	gone *atomic.Bool
}

func (r revocable) Authenticate(ctx context.Context, bearer string) (identity.Principal, error) {
	if r.gone.Load() {
		return identity.Principal{}, fmt.Errorf("%w: the pod is gone", identity.ErrUnauthenticated)
	}
	return r.tokens.Authenticate(ctx, bearer)
}

// TestUserAsk34_TheSameConnectionIsDenied: a connection proves nothing; the
// next call on it is denied as its token is.
func TestUserAsk34_TheSameConnectionIsDenied(t *testing.T) {
	var gone atomic.Bool
	w := newWorld(t, func(o *options) { o.identity = revocable{gone: &gone} })
	s := w.play("ws")
	if _, err := w.host.GetTaskExact(w.as(alpha), s.get); err != nil {
		t.Fatal(err)
	}
	gone.Store(true)
	if _, err := w.host.GetTaskExact(w.as(alpha), s.get); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the next call on the same connection: %v", err)
	}
	if w.conn.GetState() != connectivity.Ready {
		t.Error("it was another connection: this test shows nothing")
	}
}

// TestUserAsk16_EveryMethodAsksForAnIdentityOrIsPublic calls whatever the
// server says that it serves, with no token: health and reflection answer, and
// nothing else does.
func TestUserAsk16_EveryMethodAsksForAnIdentityOrIsPublic(t *testing.T) {
	w := newWorld(t)
	public := map[string]bool{
		"/grpc.health.v1.Health/Check": true, "/grpc.health.v1.Health/Watch": true, "/grpc.health.v1.Health/List": true,
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      true,
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": true,
	}
	asked := 0
	for _, method := range w.served() {
		name := fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
		ctx, cancel := context.WithTimeout(t.Context(), waitAtMost)
		stream, err := w.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, name)
		w.must(err)
		_ = stream.SendMsg(&healthpb.HealthCheckRequest{})
		if public[name] {
			delete(public, name)
			w.must(stream.CloseSend())
			err := stream.RecvMsg(&healthpb.HealthCheckResponse{})
			if code := status.Code(err); code == codes.Unauthenticated || code == codes.PermissionDenied || code == codes.Unimplemented {
				t.Errorf("%s is public and answers %v", name, err)
			}
		} else {
			asked++
			_ = stream.CloseSend()
			if err := stream.RecvMsg(&pluginv1.HostCommandResult{}); status.Code(err) != codes.Unauthenticated {
				t.Errorf("%s without a token answers %v", name, err)
			}
		}
		cancel()
	}
	if len(public) > 0 || asked != len(pluginv1.Host_ServiceDesc.Methods)+len(pluginv1.Host_ServiceDesc.Streams) {
		t.Errorf("not served: %v; %d methods ask for an identity", public, asked)
	}
}

// served lists what reflection shows.
func (w *world) served() []protoreflect.MethodDescriptor {
	w.Helper()
	stream, err := reflectionpb.NewServerReflectionClient(w.conn).ServerReflectionInfo(w.Context())
	w.must(err)
	ask := func(request *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		w.must(stream.Send(request))
		answer, err := stream.Recv()
		w.must(err)
		return answer
	}
	services := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
	var methods []protoreflect.MethodDescriptor
	for _, service := range services.GetListServicesResponse().GetService() {
		answer := ask(&reflectionpb.ServerReflectionRequest{
			MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service.GetName()},
		})
		files := &descriptorpb.FileDescriptorSet{}
		for _, text := range answer.GetFileDescriptorResponse().GetFileDescriptorProto() {
			file := &descriptorpb.FileDescriptorProto{}
			w.must(proto.Unmarshal(text, file))
			files.File = append(files.File, file)
		}
		known, err := protodesc.NewFiles(files)
		w.must(err)
		found, err := known.FindDescriptorByName(protoreflect.FullName(service.GetName()))
		w.must(err)
		descriptor, ok := found.(protoreflect.ServiceDescriptor)
		if !ok {
			w.Fatalf("%s is no service", service.GetName())
		}
		for i := range descriptor.Methods().Len() {
			methods = append(methods, descriptor.Methods().Get(i))
		}
	}
	return methods
}
