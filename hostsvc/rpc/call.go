package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/identity"
)

// The two things that a caller without an identity is told.
var (
	errUnauthenticated = status.Errorf(codes.Unauthenticated, "a bearer token of a plugin's pod is required")
	errNoIdentity      = status.Errorf(codes.Unavailable, "identities can't be checked now")
)

// call is what the door knows of a call: who and what. It is made by enter and
// nowhere else.
type call struct {
	principal identity.Principal
	method    *method
	// declared is what the manifest of a v1 caller declares.
	declared contract.LegacySet
	// ownAuditID is of the receipt that a write of the plugin's own commits with.
	ownAuditID string
	// still is whether what it calls is still allowed.
	still func() error
	// compatible tells whether the installation may leave out now what the first
	// plugins didn't send.
	compatible func() bool
	// crowded: the installation has its share of calls in flight already.
	crowded bool
	flight  *flight
	begun   time.Time
	// outcome is what the adapter answered, "" until it did.
	outcome Outcome
	// span is nil where nothing is traced.
	span trace.Span
	// Of a stream: proven checks the caller again, answered ends the call that opened
	// it.
	proven   func(context.Context) error
	answered func()
}

type callKey struct{}

// request is a call with its envelope, as the adapters use it.
type request struct {
	call           *call
	installationID string
	method         admission.Method
	envelope       admission.Envelope
}

// requestOf reads the call that the door put into ctx. It panics where there is
// none: an adapter that can be reached past the door must not answer.
func requestOf(ctx context.Context, message proto.Message) request {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok || c.method.legacy {
		panic("an exact call came past the door")
	}
	env := c.method.envelope(message).Completed(c.method.Method, c.compatible, uuid.NewString)
	switch {
	case c.crowded:
		env.Fault = admission.Unavailable()
	case !c.method.open:
		env.Fault = c.method.checkMessage(message)
	}
	return request{call: c, installationID: c.principal.InstallationID, method: c.method.Method, envelope: env}
}

// checkMessage bounds a command, and refuses a request that says something this
// Host does not understand, at any depth: it could be a precondition, or narrow
// what is asked for. A method that needs no capability is spared: it is how a
// newer plugin learns what this Host serves.
func (m *method) checkMessage(message proto.Message) *admission.Refusal {
	if m.Writer {
		if size := proto.Size(message); size > contract.MaxCommandBytes {
			return malformed("request", fmt.Sprintf("is longer than %d bytes as encoded", contract.MaxCommandBytes))
		}
	}
	reflected := message.ProtoReflect()
	if len(reflected.GetUnknown()) > 0 {
		return unsupported("request")
	}
	if !m.nested {
		return nil
	}
	if field := unknownWithin(reflected); field != "" {
		return unsupported(field)
	}
	return nil
}

// unknownWithin returns the path of the first message inside message that has
// fields this Host does not know, "" for none.
func unknownWithin(message protoreflect.Message) (path string) {
	look := func(name string, inner protoreflect.Message) bool {
		if len(inner.GetUnknown()) > 0 {
			path = name
		} else if rest := unknownWithin(inner); rest != "" {
			path = name + "." + rest
		}
		return path == ""
	}
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		name := string(field.Name())
		switch {
		case field.IsMap():
			if field.MapValue().Message() != nil {
				value.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { return look(name, v.Message()) })
			}
		case field.Message() == nil:
		case field.IsList():
			list := value.List()
			for i := 0; i < list.Len() && look(fmt.Sprintf("%s[%d]", name, i), list.Get(i).Message()); i++ {
			}
		default:
			look(name, value.Message())
		}
		return path == ""
	})
	return path
}

// unsupported refuses a field of a feature that this Host does not serve: the
// contract of its provider is not supported here.
func unsupported(field string) *admission.Refusal {
	return admission.RefuseField(&contract.FieldError{
		Field: field, Reason: contract.ReasonProviderContractUnsupported,
		Detail: "belongs to a feature that this Host does not serve",
	})
}

// Authenticator derives the caller from a bearer token. Errors wrap
// identity.ErrUnauthenticated or identity.ErrUnavailable.
type Authenticator interface {
	Authenticate(ctx context.Context, bearer string) (identity.Principal, error)
	// Refuses says at once, without asking anybody, that a token proves nothing;
	// nil says that Authenticate has to look.
	Refuses(bearer string) error
}

// door is what every call comes through: who calls, how many at once, and what
// happens when an adapter panics.
type door struct {
	registry *registry
	identity Authenticator
	legacy   admission.LegacyView
	// receipts records what came of v1's writers.
	receipts admission.Receipts
	crowd    *crowd
	log      *slog.Logger
	now      func() time.Time
	observer Observer
	// tracer is nil where nothing is traced.
	tracer   trace.Tracer
	refusals *sample
	// streams has a place for each of their streams: who opens them is unknown,
	// and they may stay open.
	streams chan struct{}
	// drained ends them: they would never end by themselves.
	drained chan struct{}
}

func (d *door) unary(ctx context.Context, message any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
	row, guarded, err := d.find(info.FullMethod)
	if err != nil {
		return nil, err
	}
	if !guarded {
		return handler(ctx, message)
	}
	ctx, c, err := d.enter(ctx, row)
	if err != nil {
		return nil, err
	}
	defer c.flight.leave()
	defer d.end(ctx, c)
	if row.legacy {
		return d.v1(ctx, c, func() (any, error) { return handler(ctx, message) })
	}
	defer func() {
		if cause := recover(); cause != nil {
			response, err = d.recovered(c, cause)
		}
	}()
	return handler(ctx, message)
}

// stream admits streams. Those of the services beside the Host have no caller, and
// a place each; those of the Host are counted by installation, where they are
// served.
func (d *door) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	row, guarded, err := d.find(info.FullMethod)
	if err != nil {
		return err
	}
	if guarded {
		return d.hostStream(server, stream, row, info, handler)
	}
	select {
	case d.streams <- struct{}{}:
		defer func() { <-d.streams }()
		ctx, cancel := d.untilDrained(stream.Context())
		defer cancel()
		return handler(server, endingStream{stream, ctx})
	default:
		return status.Errorf(codes.ResourceExhausted, "too many streams are open")
	}
}

// endingStream is a stream that this process may end.
type endingStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // a stream has one
}

// Context implements grpc.ServerStream.
func (s endingStream) Context() context.Context { return s.ctx }

// find returns the row of a method, or that it needs none. Whatever is not
// known is not served.
func (d *door) find(fullMethod string) (row *method, guarded bool, err error) {
	if row, ok := d.registry.methods[fullMethod]; ok {
		return row, true, nil
	}
	if _, public := publicMethods[fullMethod]; public {
		return nil, false, nil
	}
	return nil, false, status.Errorf(codes.Unimplemented, "unknown method %s", fullMethod)
}

// enter derives the caller and puts it into the context, for adapters that are
// guarded by row. The call's flight must be left at its end.
func (d *door) enter(ctx context.Context, row *method) (context.Context, *call, error) {
	begun := d.now()
	bearer, ok := bearerOf(ctx)
	if !ok {
		return nil, nil, errUnauthenticated
	}
	principal, err := d.identity.Authenticate(ctx, bearer)
	if err != nil {
		return nil, nil, d.unknown(ctx, row, err)
	}
	c := &call{principal: principal, method: row, begun: begun}
	c.compatible = func() bool { return admission.ImplicitExpectNone(d.legacy.Legacy(principal.InstallationID), d.now()) }
	c.flight, c.crowded = d.crowd.enter(principal.InstallationID)
	return context.WithValue(d.begin(ctx, c), callKey{}, c), c, nil
}

// tap turns bad tokens away before there is a call: on the reader of their own
// connection and one after the other, so that whoever sends thousands of them a
// second waits behind himself and nobody else does.
func (d *door) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	row, guarded, err := d.find(info.FullMethodName)
	if err != nil || !guarded {
		return ctx, nil //nolint:nilerr // it is found out, and answered, behind
	}
	bearer, ok := bearerIn(info.Header.Get("authorization"))
	if !ok {
		return nil, errUnauthenticated
	}
	if err := d.identity.Refuses(bearer); err != nil {
		return nil, d.unknown(ctx, row, err)
	}
	return ctx, nil
}

func (d *door) unknown(ctx context.Context, row *method, err error) error {
	answer, level := errNoIdentity, slog.LevelWarn
	if errors.Is(err, identity.ErrUnauthenticated) {
		answer, level = errUnauthenticated, slog.LevelInfo
	}
	if leftOut, ok := d.refusals.next(); ok {
		d.log.Log(ctx, level, "call refused: the identity is not proven", "method", row.Name, "error", err, "leftOut", leftOut)
	}
	return answer
}

// bearerOf returns the one bearer token of a call.
func bearerOf(ctx context.Context) (string, bool) {
	return bearerIn(metadata.ValueFromIncomingContext(ctx, "authorization"))
}

func bearerIn(values []string) (string, bool) {
	if len(values) != 1 {
		return "", false
	}
	const scheme = "Bearer "
	value := values[0]
	if len(value) <= len(scheme) || !strings.EqualFold(value[:len(scheme)], scheme) {
		return "", false
	}
	return value[len(scheme):], true
}

func (d *door) logPanic(c *call, cause any) {
	d.log.Error("a call panicked", "method", c.method.Name, "cause", cause, "stack", string(debug.Stack()))
}

// recovered answers a call whose adapter panicked: nothing is known of its
// outcome, and nothing of the cause is told.
func (d *door) recovered(c *call, cause any) (any, error) {
	d.logPanic(c, cause)
	refusal := admission.Unavailable()
	c.refused(refusal)
	if c.method.Writer {
		return c.method.writeFailure(refusal), nil
	}
	return nil, readFailure(refusal, dataTexts)
}
