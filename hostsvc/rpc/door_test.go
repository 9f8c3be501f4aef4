package rpc

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kandev/plugin-host/hostsvc/identity"
	"github.com/kandev/plugin-host/hostsvc/journal"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// nobody lets no one in.
type nobody struct{}

// Refuses leaves it to Authenticate.
func (nobody) Refuses(string) error { return nil }

func (nobody) Authenticate(context.Context, string) (identity.Principal, error) {
	return identity.Principal{}, identity.ErrUnauthenticated
}

// quiet is a stream that nobody uses.
type quiet struct{ grpc.ServerStream }

func (quiet) Context() context.Context { return context.Background() }

func newDoor(t *testing.T) *door {
	t.Helper()
	registry, err := newRegistry(pluginv1.File_kandev_plugin_v1_host_proto.Services().ByName("Host"))
	if err != nil {
		t.Fatal(err)
	}
	return &door{
		registry: registry, identity: nobody{}, crowd: &crowd{limit: 1, now: time.Now}, now: time.Now,
		log: slog.New(slog.DiscardHandler), observer: unobserved{}, refusals: &sample{now: time.Now}, streams: make(chan struct{}, 1),
		drained: make(chan struct{}), receipts: unkept{},
	}
}

// unkept receipts are durable enough for a door alone.
type unkept struct{}

// Append implements admission.Receipts.
func (unkept) Append(context.Context, journal.Receipt) error { return nil }

// TestUserAsk31_NoKindOfStreamIsAWayAround: one table of methods against every
// kind of RPC. Whatever the kind, a handler is reached on the public list alone.
func TestUserAsk31_NoKindOfStreamIsAWayAround(t *testing.T) {
	d := newDoor(t)
	for _, method := range []struct {
		name       string
		unary, any codes.Code
	}{
		{"/kandev.plugin.v1.Host/GetTaskExact", codes.Unauthenticated, codes.Unimplemented},
		{"/kandev.plugin.v1.Host/UpdateTaskExact", codes.Unauthenticated, codes.Unimplemented},
		{"/kandev.plugin.v1.Host/GetCapabilityContext", codes.Unauthenticated, codes.Unimplemented},
		{"/kandev.plugin.v1.Host/Unknown", codes.Unimplemented, codes.Unimplemented},
		{"/kandev.plugin.v1.Other/GetTaskExact", codes.Unimplemented, codes.Unimplemented},
		{"/grpc.health.v1.Health/Unknown", codes.Unimplemented, codes.Unimplemented},
		{"/grpc.health.v1.HealthX/Check", codes.Unimplemented, codes.Unimplemented},
		{"/grpc.health.v1.Health/Check", codes.OK, codes.OK},
		{"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", codes.OK, codes.OK},
	} {
		for _, kind := range []struct {
			name           string
			client, server bool
		}{{"unary", false, false}, {"client", true, false}, {"server", false, true}, {"bidi", true, true}} {
			t.Run(method.name+"/"+kind.name, func(t *testing.T) {
				reached := false
				var err error
				want := method.any
				if !kind.client && !kind.server {
					want = method.unary
					_, err = d.unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: method.name}, func(context.Context, any) (any, error) {
						reached = true
						return struct{}{}, nil
					})
				} else {
					err = d.stream(nil, quiet{}, &grpc.StreamServerInfo{
						FullMethod: method.name, IsClientStream: kind.client, IsServerStream: kind.server,
					}, func(any, grpc.ServerStream) error {
						reached = true
						return nil
					})
				}
				if status.Code(err) != want || reached != (want == codes.OK) {
					t.Errorf("got %v, reached: %v; want %v", err, reached, want)
				}
			})
		}
	}
}

// TestUserAsk16_AServiceThatNobodyDeclaredIsNotServed: registering one is
// enough to keep the server from being made.
func TestUserAsk16_AServiceThatNobodyDeclaredIsNotServed(t *testing.T) {
	d := newDoor(t)
	server := grpc.NewServer()
	pluginv1.RegisterHostServer(server, pluginv1.UnimplementedHostServer{})
	if err := d.knowsAll(server); err != nil {
		t.Errorf("the Host alone: %v", err)
	}
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "kandev.plugin.v1.Backdoor", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Watch", ServerStreams: true}},
	}, nil)
	if err := d.knowsAll(server); err == nil || !strings.Contains(err.Error(), "kandev.plugin.v1.Backdoor/Watch") {
		t.Errorf("got %v, want it to name the method", err)
	}
	for name, why := range publicMethods {
		if why == "" {
			t.Errorf("%s is public and nobody says why", name)
		}
	}
}
