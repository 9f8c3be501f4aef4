package launcher_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// host is the other side of the launcher's wire: a gRPC server over TLS that
// serves the few methods that the sample plugin uses, to one token.
type host struct {
	pluginv1.UnimplementedHostServer

	address, caFile, tokenFile string
	// keyFile is the private key of the CA, which is its own serving certificate.
	keyFile string

	mu     sync.Mutex
	state  map[string]*structpb.Struct
	events []*pluginv1.WatchEventsResponse
	grown  chan struct{}
	opened []*pluginv1.WatchEventsRequest
}

const podToken = "the-token-of-the-pod"

func newHost(t *testing.T) *host {
	t.Helper()
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	defer certified.Close()
	folder := t.TempDir()
	h := &host{
		caFile: filepath.Join(folder, "ca.crt"), tokenFile: filepath.Join(folder, "token"),
		state: map[string]*structpb.Struct{}, grown: make(chan struct{}),
	}
	writeFile(t, h.caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certified.Certificate().Raw}))
	h.keyFile = filepath.Join(folder, "tls.key")
	key, err := x509.MarshalPKCS8PrivateKey(certified.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, h.keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	writeFile(t, h.tokenFile, []byte(podToken+"\n"))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.address = listener.Addr().String()
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&certified.TLS.Certificates[0])),
		grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := h.identify(ctx); err != nil {
				return nil, err
			}
			return handle(ctx, request)
		}))
	pluginv1.RegisterHostServer(server, h)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return h
}

func (h *host) identify(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	if !slices.Equal(md.Get("authorization"), []string{"Bearer " + podToken}) {
		return status.Error(codes.Unauthenticated, "who is this?")
	}
	return nil
}

func (h *host) GetState(_ context.Context, r *pluginv1.GetStateRequest) (*pluginv1.GetStateResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	value, found := h.state[r.GetKey()]
	return &pluginv1.GetStateResponse{Found: found, Value: value}, nil
}

func (h *host) SetState(_ context.Context, r *pluginv1.SetStateRequest) (*pluginv1.SetStateResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state[r.GetKey()] = r.GetValue()
	return &pluginv1.SetStateResponse{}, nil
}

func (h *host) ListTasks(context.Context, *pluginv1.ListTasksRequest) (*pluginv1.ListTasksResponse, error) {
	return nil, status.Error(codes.PermissionDenied, "capability 'api_read:tasks' not declared")
}

func (h *host) WatchEvents(r *pluginv1.WatchEventsRequest, stream grpc.ServerStreamingServer[pluginv1.WatchEventsResponse]) error {
	if err := h.identify(stream.Context()); err != nil {
		return err
	}
	h.mu.Lock()
	h.opened = append(h.opened, r)
	at := len(h.events)
	h.mu.Unlock()
	if r.GetCursor() != "" {
		if _, err := fmt.Sscan(r.GetCursor(), &at); err != nil {
			return status.Error(codes.InvalidArgument, "no cursor")
		}
	}
	if err := stream.Send(&pluginv1.WatchEventsResponse{Cursor: fmt.Sprint(at)}); err != nil {
		return err
	}
	for {
		h.mu.Lock()
		grown, rest := h.grown, h.events[at:]
		h.mu.Unlock()
		for _, next := range rest {
			if err := stream.Send(next); err != nil {
				return err
			}
			at++
		}
		select {
		case <-grown:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (h *host) publish(t *testing.T, eventType string) {
	t.Helper()
	payload, err := structpb.NewStruct(map[string]any{"task_id": "t"})
	if err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.events) + 1
	h.events = append(h.events, &pluginv1.WatchEventsResponse{
		EventId: fmt.Sprint("event-", n), EventType: eventType, OccurredAt: "2026-01-02T03:04:05Z", WorkspaceId: "w",
		Payload: payload, Cursor: fmt.Sprint(n),
	})
	close(h.grown)
	h.grown = make(chan struct{})
}

// delivered returns the IDs under which the plugin got events of a type.
func (h *host) delivered(eventType string) []any {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids, _ := h.state["event."+eventType].AsMap()["ids"].([]any)
	return ids
}

func (h *host) streams() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.opened)
}

func writeFile(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
