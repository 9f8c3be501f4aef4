package hostlink

import (
	"context"
	"encoding/pem"
	"errors"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// peer is the other side of the wire: a gRPC server over TLS that answers a few
// methods by rules of its own.
type peer struct {
	pluginv1.UnimplementedHostServer

	mu       sync.Mutex
	seen     []metadata.MD
	ended    chan struct{}
	deadline time.Time
}

func (p *peer) note(ctx context.Context) {
	md, _ := metadata.FromIncomingContext(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, md)
	p.deadline, _ = ctx.Deadline()
}

func (p *peer) last(key string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[len(p.seen)-1].Get(key)
}

func (p *peer) GetState(ctx context.Context, r *pluginv1.GetStateRequest) (*pluginv1.GetStateResponse, error) {
	p.note(ctx)
	if err := grpc.SetTrailer(ctx, metadata.Pairs("x-from-host", "yes")); err != nil {
		return nil, err
	}
	value, err := structpb.NewStruct(map[string]any{"key": r.GetKey()})
	return &pluginv1.GetStateResponse{Found: true, Value: value}, err
}

func (p *peer) DeletePluginOwnedTaskTree(
	ctx context.Context, _ *pluginv1.DeletePluginOwnedTaskTreeRequest,
) (*pluginv1.DeletePluginOwnedTaskTreeResponse, error) {
	p.note(ctx)
	detailed, err := status.New(codes.FailedPrecondition, "half of it").WithDetails(
		&pluginv1.DeletePluginOwnedTaskTreeProgress{DeletedTaskIds: []string{"a", "b"}})
	if err != nil {
		return nil, err
	}
	return nil, detailed.Err()
}

func (p *peer) WatchEvents(r *pluginv1.WatchEventsRequest, stream grpc.ServerStreamingServer[pluginv1.WatchEventsResponse]) error {
	p.note(stream.Context())
	for _, id := range []string{"1", "2", "3"} {
		if err := stream.Send(&pluginv1.WatchEventsResponse{EventId: id, Cursor: r.GetCursor() + id}); err != nil {
			return err
		}
	}
	if r.GetFromStart() {
		return status.Error(codes.ResourceExhausted, "too slow")
	}
	<-stream.Context().Done()
	close(p.ended)
	return nil
}

type world struct {
	peer      *peer
	link      *Link
	tokenFile string
	// plugin is what a plugin has: a connection to the proxy.
	plugin *grpc.ClientConn
	stop   func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	// A certificate for 127.0.0.1 that needs no file.
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	defer certified.Close()
	folder := t.TempDir()
	ca, token := filepath.Join(folder, "ca.crt"), filepath.Join(folder, "token")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certified.Certificate().Raw})
	if err := errors.Join(os.WriteFile(ca, block, 0o600), os.WriteFile(token, []byte("first\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	w := &world{peer: &peer{ended: make(chan struct{})}, tokenFile: token}
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&certified.TLS.Certificates[0])))
	pluginv1.RegisterHostServer(server, w.peer)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	w.stop = server.Stop
	w.link, err = Dial(listener.Addr().String(), ca, NewSecret(token))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.link.Close() })

	socket, err := net.Listen("unix", filepath.Join(folder, "s"))
	if err != nil {
		t.Fatal(err)
	}
	proxy := w.link.Server()
	go func() { _ = proxy.Serve(socket) }()
	t.Cleanup(proxy.Stop)
	w.plugin, err = grpc.NewClient("unix:"+socket.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.plugin.Close() })
	return w
}

func TestCallsPassWithThePodsTokenAndNoMetadataOfThePlugin(t *testing.T) {
	w := newWorld(t)
	host := pluginv1.NewHostClient(w.plugin)
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(),
		"authorization", "Bearer somebody-else", "x-installation", "another"), time.Minute)
	defer cancel()
	var trailer metadata.MD
	got, err := host.GetState(ctx, &pluginv1.GetStateRequest{Key: "colour"}, grpc.Trailer(&trailer))
	if err != nil || got.GetValue().AsMap()["key"] != "colour" {
		t.Fatalf("%v, %v", got, err)
	}
	if auth := w.peer.last("authorization"); !slices.Equal(auth, []string{"Bearer first"}) {
		t.Errorf("the Host saw %q", auth)
	}
	if other := w.peer.last("x-installation"); len(other) != 0 {
		t.Errorf("the plugin's metadata came through: %q", other)
	}
	if !slices.Equal(trailer.Get("x-from-host"), []string{"yes"}) {
		t.Errorf("the Host's trailer is %v", trailer)
	}
	if until := time.Until(w.peer.deadline); until <= 0 || until > time.Minute {
		t.Errorf("the deadline didn't come through: %v", w.peer.deadline)
	}
	// The kubelet replaces the token.
	if err := os.WriteFile(w.tokenFile, []byte("second"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := host.GetState(ctx, &pluginv1.GetStateRequest{}); err != nil {
		t.Fatal(err)
	}
	if auth := w.peer.last("authorization"); !slices.Equal(auth, []string{"Bearer second"}) {
		t.Errorf("after a rotation the Host saw %q", auth)
	}
}

func TestStatusesComeThroughAsTheyWere(t *testing.T) {
	w := newWorld(t)
	host := pluginv1.NewHostClient(w.plugin)
	_, err := host.DeletePluginOwnedTaskTree(t.Context(), &pluginv1.DeletePluginOwnedTaskTreeRequest{RootTaskId: "r"})
	got := status.Convert(err)
	if got.Code() != codes.FailedPrecondition || got.Message() != "half of it" || len(got.Details()) != 1 {
		t.Fatalf("answers %v with %v", err, got.Details())
	}
	progress, ok := got.Details()[0].(*pluginv1.DeletePluginOwnedTaskTreeProgress)
	if !ok || !slices.Equal(progress.GetDeletedTaskIds(), []string{"a", "b"}) {
		t.Errorf("the detail is %v", got.Details()[0])
	}
	if _, err := host.SetState(t.Context(), &pluginv1.SetStateRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a method that the Host hasn't: %v", err)
	}
	large := &pluginv1.GetStateRequest{Key: strings.Repeat("k", 5<<20)}
	if _, err := host.GetState(t.Context(), large); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message over 4 MiB: %v", err)
	}
}

func TestStreamsPass(t *testing.T) {
	w := newWorld(t)
	host := pluginv1.NewHostClient(w.plugin)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := host.WatchEvents(ctx, &pluginv1.WatchEventsRequest{Cursor: "c"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1", "2", "3"} {
		got, err := stream.Recv()
		if err != nil || got.GetEventId() != want || got.GetCursor() != "c"+want {
			t.Fatalf("%v, %v", got, err)
		}
	}
	cancel()
	select {
	case <-w.peer.ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the Host's stream goes on after the plugin broke it off")
	}
	stream, err = host.WatchEvents(t.Context(), &pluginv1.WatchEventsRequest{FromStart: true})
	for err == nil {
		_, err = stream.Recv()
	}
	if got := status.Convert(err); got.Code() != codes.ResourceExhausted || got.Message() != "too slow" {
		t.Errorf("the stream ends with %v", err)
	}
}

func TestOnlyTheHostServicePasses(t *testing.T) {
	w := newWorld(t)
	_, err := grpc_health_v1.NewHealthClient(w.plugin).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("another service answers %v", err)
	}
	err = w.plugin.Invoke(t.Context(), "/kandev.plugin.v1.HostX/GetState", &pluginv1.GetStateRequest{}, &pluginv1.GetStateResponse{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("a service whose name begins alike answers %v", err)
	}
	w.peer.mu.Lock()
	defer w.peer.mu.Unlock()
	if len(w.peer.seen) != 0 {
		t.Errorf("the Host saw %d calls", len(w.peer.seen))
	}
}

func TestAHostThatIsAwayIsUnavailable(t *testing.T) {
	w := newWorld(t)
	w.link.patience = 50 * time.Millisecond
	w.stop()
	_, err := pluginv1.NewHostClient(w.plugin).GetState(t.Context(), &pluginv1.GetStateRequest{})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("answers %v", err)
	}
}

// The certificate is for 127.0.0.1, not for localhost.
func TestACertificateOfAnotherNameIsRefused(t *testing.T) {
	w := newWorld(t)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(w.link.conn.Target(), "passthrough:///"))
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(filepath.Dir(w.tokenFile), "ca.crt")
	stranger, err := Dial("localhost:"+port, ca, NewSecret(w.tokenFile))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Close() }()
	_, err = pluginv1.NewHostClient(stranger.Conn()).GetState(t.Context(), &pluginv1.GetStateRequest{})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("answers %v", err)
	}
	if len(w.peer.seen) != 0 {
		t.Error("the token was sent to who couldn't prove to be the Host")
	}
	if _, err := Dial("no-port", ca, NewSecret(w.tokenFile)); err == nil {
		t.Error("an address without a port was taken")
	}
	if _, err := Dial("host:1", w.tokenFile, NewSecret(w.tokenFile)); err == nil {
		t.Error("a CA that is none was taken")
	}
	if _, err := Dial("host:1", ca, NewSecret(ca+"x")); err == nil {
		t.Error("a token that isn't there was taken")
	}
}

func TestSecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	s := NewSecret(file)
	if _, err := s.Read(); err == nil || s.Is("") {
		t.Error("a secret without a file")
	}
	for _, text := range []string{"", " \n", "one two", strings.Repeat("x", maxSecretBytes+1)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Read(); err == nil || s.Is(text) || len(text) > 3 && strings.Contains(err.Error(), text) {
			t.Errorf("%.10q was read as %.10q, %v", text, got, err)
		}
	}
	for _, value := range []string{"a", "b", "c", "d", "e"} {
		if err := os.WriteFile(file, []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if !s.Is(value) || s.Is(value+"x") || s.Is("") {
			t.Errorf("%q isn't told from others", value)
		}
	}
	if got := s.Values(); !slices.Equal(got, []string{"b", "c", "d", "e"}) {
		t.Errorf("remembers %q", got)
	}
}
