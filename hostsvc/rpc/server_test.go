package rpc_test

import (
	"context"
	"crypto/tls"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kandev/plugin-host/hostsvc/identity"
	"github.com/kandev/plugin-host/hostsvc/rpc"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// TestCallsInFlightAreBoundedPerInstallation: one call too many is told to come
// back, and only to its own installation.
func TestCallsInFlightAreBoundedPerInstallation(t *testing.T) {
	slow := &failing{}
	w := newWorld(t, func(o *options) { o.failing, o.maxInFlight = slow, 2 })
	s := w.play("ws")
	w.approve(beta, "ws")
	entered, release := make(chan struct{}, 2), make(chan struct{})
	slow.set(func() error {
		entered <- struct{}{}
		<-release
		return nil
	})
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() {
			if _, err := w.host.GetTaskExact(w.as(alpha), s.get); err != nil {
				t.Errorf("a call within the bound: %v", err)
			}
		})
	}
	<-entered
	<-entered
	slow.set(nil)
	_, err := w.host.GetTaskExact(w.as(alpha), s.get)
	if got := detail(t, err); status.Code(err) != codes.Unavailable || got.GetReason() != "DEPENDENCY_UNAVAILABLE" || got.GetRetryAfterMs() == 0 {
		t.Errorf("a read too many: %v", err)
	} else {
		w.receipt(got.GetAuditId())
	}
	head := w.head("ws")
	response, err := w.host.UpdateTaskExact(w.as(alpha), s.update)
	w.must(err)
	if got := response.GetResult(); got.GetReason() != "DEPENDENCY_UNAVAILABLE" || w.head("ws") != head {
		t.Errorf("a write too many: %v", got)
	}
	if _, err := w.host.GetTaskExact(w.as(beta), &pluginv1.GetTaskExactRequest{RequestId: "r", WorkspaceId: "ws", TaskId: taskID("ws", 0)}); err != nil {
		t.Errorf("another installation: %v", err)
	}
	close(release)
	calls.Wait()
	again, err := w.host.UpdateTaskExact(w.as(alpha), s.update)
	w.must(err)
	if again.GetResult().GetStatus() != pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_APPLIED {
		t.Errorf("the same when there is room: %v", again.GetResult())
	}
}

// TestRefusedIdentitiesDoNotFillTheLog: the log says that it happens, and how
// often.
func TestRefusedIdentitiesDoNotFillTheLog(t *testing.T) {
	w := newWorld(t, func(o *options) { o.identity = tokens{err: identity.ErrUnavailable} })
	refuse := func(n int) {
		for range n {
			if _, err := w.host.GetTaskExact(w.as(alpha), &pluginv1.GetTaskExactRequest{}); status.Code(err) != codes.Unavailable {
				t.Fatalf("got %v", err)
			}
		}
	}
	refuse(50)
	if n := strings.Count(w.log.String(), "call refused"); n != 10 {
		t.Errorf("%d lines for 50 refusals in one instant, want 10", n)
	}
	w.clock.advance(time.Second)
	refuse(1)
	if !strings.Contains(w.log.String(), "leftOut=40") {
		t.Errorf("what was left out is not told:\n%s", w.log)
	}
}

// TestCertificateIsReadAgain: a rotated certificate serves new connections; a
// broken one does not replace it.
func TestCertificateIsReadAgain(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	certFile, keyFile, roots := newCertificate(t, dir)
	server, err := rpc.NewServer(rpc.Config{CertFile: certFile, KeyFile: keyFile, Identity: tokens{}, Now: w.clock.Now, Log: discard()})
	w.must(err)
	w.address, _ = serve(t, server)
	check := func(want codes.Code) {
		t.Helper()
		conn := w.dial()
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); status.Code(err) != want {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	w.roots = roots
	check(codes.OK)

	_, _, w.roots = newCertificate(t, dir)
	check(codes.Unavailable)
	w.clock.advance(time.Minute)
	check(codes.OK)

	w.must(os.WriteFile(certFile, []byte("no certificate"), 0o600))
	w.clock.advance(time.Minute)
	check(codes.OK)

	if _, err := rpc.NewServer(rpc.Config{CertFile: certFile, KeyFile: keyFile, Identity: tokens{}, Now: w.clock.Now, Log: discard()}); err == nil {
		t.Error("a server starts with a broken certificate")
	}
}

// TestTransport: TLS 1.3 only; health and reflection ask for no identity and
// show nothing but the service.
func TestTransport(t *testing.T) {
	w := newWorld(t)
	old, err := grpc.NewClient(w.address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: w.roots, ServerName: "plugin-host", MaxVersion: tls.VersionTLS12, MinVersion: tls.VersionTLS12,
	})))
	w.must(err)
	defer func() { w.must(old.Close()) }()
	if _, err := healthpb.NewHealthClient(old).Check(t.Context(), &healthpb.HealthCheckRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("TLS 1.2: %v", err)
	}
	for _, service := range []string{"", "kandev.plugin.v1.Host"} {
		got, err := healthpb.NewHealthClient(w.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", service, got, err)
		}
	}
	stream, err := reflectionpb.NewServerReflectionClient(w.conn).ServerReflectionInfo(t.Context())
	w.must(err)
	w.must(stream.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{},
	}))
	answer, err := stream.Recv()
	w.must(err)
	var names []string
	for _, service := range answer.GetListServicesResponse().GetService() {
		names = append(names, service.GetName())
	}
	if got := strings.Join(names, " "); !strings.Contains(got, "kandev.plugin.v1.Host") {
		t.Errorf("reflection shows %q", got)
	}
	w.must(stream.CloseSend())
}

// TestOpenStreamsAreBounded: who proves no identity can't keep any number of
// streams open, on any number of connections, and calls go on.
func TestOpenStreamsAreBounded(t *testing.T) {
	w := newWorld(t)
	s := w.play("ws")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := func(conn *grpc.ClientConn) error {
		stream, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
		w.must(err)
		_, err = stream.Recv()
		return err
	}
	for range 2 {
		conn := w.dial()
		for i := range 64 {
			if err := watch(conn); err != nil {
				t.Fatalf("stream %d: %v", i, err)
			}
		}
	}
	if err := watch(w.dial()); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one stream more: %v", err)
	}
	if _, err := w.host.GetTaskExact(w.as(alpha), s.get); err != nil {
		t.Errorf("a call meanwhile: %v", err)
	}
	cancel()
	deadline := time.Now().Add(20 * time.Second)
	for ctx = t.Context(); watch(w.conn) != nil; {
		if time.Now().After(deadline) {
			t.Fatal("ended streams keep their places")
		}
	}
}

// TestConcurrentWritersKeepTheirOrder: writers of one task race; exactly one
// wins each version.
func TestConcurrentWritersKeepTheirOrder(t *testing.T) {
	w := newWorld(t)
	s := w.play("ws")
	const racers = 16
	var applied sync.Map
	var calls sync.WaitGroup
	for i := range racers {
		calls.Go(func() {
			request := proto.CloneOf(s.update)
			request.IdempotencyKey = strings.Repeat("k", i+1)
			request.Title = ptr(strings.Repeat("t", i+1))
			response, err := w.host.UpdateTaskExact(w.as(alpha), request)
			if err != nil {
				t.Error(err)
				return
			}
			switch response.GetResult().GetStatus() {
			case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_APPLIED:
				applied.Store(i, response.GetTask().GetTitle())
			case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_CONFLICT:
			default:
				t.Errorf("racer %d: %v", i, response.GetResult())
			}
		})
	}
	calls.Wait()
	winners := 0
	applied.Range(func(_, title any) bool {
		winners++
		got, err := w.host.GetTaskExact(w.as(alpha), s.get)
		w.must(err)
		if got.GetItem().GetTask().GetTitle() != title {
			t.Errorf("the task is called %q, the winner said %q", got.GetItem().GetTask().GetTitle(), title)
		}
		return true
	})
	if winners != 1 {
		t.Errorf("%d racers won one version", winners)
	}
}
