package sdk_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
	"github.com/kandev/plugin-host/sdk"
)

// peer is the SDK's other side: a gRPC server over TLS whose answers a test
// scripts. What it doesn't script answers UNIMPLEMENTED.
type peer struct {
	pluginv1.UnimplementedHostServer

	onWorkspaces func(*pluginv1.ListWorkspacesExactRequest) (*pluginv1.ListWorkspacesExactResponse, error)
	onWorkflows  func(*pluginv1.ListWorkflowsExactRequest) (*pluginv1.ListWorkflowsExactResponse, error)
	onSteps      func(*pluginv1.ListWorkflowStepsExactRequest) (*pluginv1.ListWorkflowStepsExactResponse, error)
	onTasks      func(*pluginv1.ListTasksExactRequest) (*pluginv1.ListTasksExactResponse, error)
	onGet        func(*pluginv1.GetTaskExactRequest) (*pluginv1.GetTaskExactResponse, error)
	onCreate     func(context.Context, *pluginv1.CreateTaskExactRequest) (*pluginv1.CreateTaskExactResponse, error)
	onUpdate     func(*pluginv1.UpdateTaskExactRequest) (*pluginv1.UpdateTaskExactResponse, error)
	onWatch      func(*pluginv1.WatchEventsRequest, grpc.ServerStreamingServer[pluginv1.WatchEventsResponse]) error
	// onAny, where set, answers everything but the context.
	onAny func(method string, request proto.Message) (proto.Message, error)

	mu       sync.Mutex
	standing *pluginv1.GetCapabilityContextResponse
	// accepts is the one token that authenticates; empty: every one.
	accepts string
	// contexts counts the contexts served, down fails them.
	contexts int
	down     error
	tokens   []string
}

func (p *peer) set(change func(*peer)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// grant puts a workspace's standing under a new context revision.
func (p *peer) grant(workspaceID string, revision uint64, capabilities ...contract.Capability) {
	p.set(func(p *peer) {
		p.standing = &pluginv1.GetCapabilityContextResponse{
			ContractVersion: contract.ContractVersion, ContextRevision: p.standing.GetContextRevision() + 1,
			Workspaces: []*pluginv1.WorkspaceCapabilityContext{{
				WorkspaceId: workspaceID, State: "active", CapabilityRevision: revision,
				CapabilityIds: contract.SetOf(capabilities...).IDs(),
			}},
		}
	})
}

func (p *peer) identify(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	bearer := md.Get("authorization")
	p.mu.Lock()
	accepts := p.accepts
	p.tokens = append(p.tokens, bearer...)
	p.mu.Unlock()
	if len(bearer) != 1 || accepts != "" && bearer[0] != "Bearer "+accepts {
		return nil, status.Error(codes.Unauthenticated, "who is this?")
	}
	if message, ok := req.(proto.Message); ok && p.onAny != nil && info.FullMethod != pluginv1.Host_GetCapabilityContext_FullMethodName {
		return p.onAny(path.Base(info.FullMethod), message)
	}
	return handle(ctx, req)
}

func (p *peer) GetCapabilityContext(
	_ context.Context, r *pluginv1.GetCapabilityContextRequest,
) (*pluginv1.GetCapabilityContextResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.contexts++
	if r.GetRequestId() == "" || r.GetWorkspaceId() != "" {
		return nil, status.Error(codes.InvalidArgument, "the SDK asks for all workspaces under a request ID")
	}
	return p.standing, p.down
}

func (p *peer) ListWorkspacesExact(
	_ context.Context, r *pluginv1.ListWorkspacesExactRequest,
) (*pluginv1.ListWorkspacesExactResponse, error) {
	return p.onWorkspaces(r)
}

func (p *peer) ListWorkflowsExact(
	_ context.Context, r *pluginv1.ListWorkflowsExactRequest,
) (*pluginv1.ListWorkflowsExactResponse, error) {
	return p.onWorkflows(r)
}

func (p *peer) ListWorkflowStepsExact(
	_ context.Context, r *pluginv1.ListWorkflowStepsExactRequest,
) (*pluginv1.ListWorkflowStepsExactResponse, error) {
	return p.onSteps(r)
}

func (p *peer) ListTasksExact(
	ctx context.Context, r *pluginv1.ListTasksExactRequest,
) (*pluginv1.ListTasksExactResponse, error) {
	if p.onTasks == nil {
		return p.UnimplementedHostServer.ListTasksExact(ctx, r)
	}
	return p.onTasks(r)
}

func (p *peer) WatchEvents(
	r *pluginv1.WatchEventsRequest, stream grpc.ServerStreamingServer[pluginv1.WatchEventsResponse],
) error {
	return p.onWatch(r, stream)
}

func (p *peer) GetTaskExact(
	_ context.Context, r *pluginv1.GetTaskExactRequest,
) (*pluginv1.GetTaskExactResponse, error) {
	return p.onGet(r)
}

func (p *peer) CreateTaskExact(
	ctx context.Context, r *pluginv1.CreateTaskExactRequest,
) (*pluginv1.CreateTaskExactResponse, error) {
	return p.onCreate(ctx, r)
}

func (p *peer) UpdateTaskExact(
	_ context.Context, r *pluginv1.UpdateTaskExactRequest,
) (*pluginv1.UpdateTaskExactResponse, error) {
	return p.onUpdate(r)
}

// pod is what a plugin's pod has.
type pod struct {
	caFile, tokenFile string
	address           string
	dial              func(context.Context, string) (net.Conn, error)
}

const serverName = "plugin-host.test"

// start serves p over TLS and memory, with a pod that reaches it. It must be
// called in a bubble: certificates are of its time.
func start(t *testing.T, p *peer) pod {
	t.Helper()
	if p.standing == nil {
		p.grant("team-a", 7, contract.ReadTasks, contract.WriteTasks)
	}
	dir := t.TempDir()
	here := pod{
		caFile: filepath.Join(dir, "ca.crt"), tokenFile: filepath.Join(dir, "token"), address: serverName + ":8443",
	}
	certificate, err := newCertificate(here.caFile)
	if err != nil {
		t.Fatal(err)
	}
	here.project(t, "first-token")
	listener := bufconn.Listen(1 << 20)
	here.dial = func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }
	server := grpc.NewServer(
		grpc.Creds(credentials.NewServerTLSFromCert(&certificate)), grpc.UnaryInterceptor(p.identify))
	pluginv1.RegisterHostServer(server, p)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return here
}

// project replaces the token as the kubelet does: a new file behind the name.
func (p pod) project(t *testing.T, token string) {
	t.Helper()
	next := p.tokenFile + ".next"
	if err := os.WriteFile(next, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, p.tokenFile); err != nil {
		t.Fatal(err)
	}
}

func (p pod) connect(t *testing.T, options ...sdk.Option) *sdk.Host {
	t.Helper()
	host, err := p.try(t, options...)
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return host
}

func (p pod) try(t *testing.T, options ...sdk.Option) (*sdk.Host, error) {
	t.Helper()
	return sdk.Connect(t.Context(), append([]sdk.Option{
		sdk.WithAddress(p.address), sdk.WithCAFile(p.caFile), sdk.WithTokenFile(p.tokenFile), sdk.WithDialer(p.dial),
	}, options...)...)
}

// newCertificate makes a serving certificate that is its own CA.
func newCertificate(caFile string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: serverName},
		DNSNames: []string{serverName}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, os.WriteFile(caFile, text, 0o600)
}

// pass lets the bubble's clock run: it takes no time.
func pass(d time.Duration) { <-time.After(d) }

// result makes a command result as the wire has it.
func result(s pluginv1.HostCommandStatus, reason contract.Reason) *pluginv1.HostCommandResult {
	return &pluginv1.HostCommandResult{
		Status: s, Reason: string(reason), AuditId: "audit-" + string(reason), Message: "because", Field: "some.field",
	}
}

// fail makes the status of a reader that failed.
func fail(t *testing.T, code codes.Code, details ...*pluginv1.HostCommandResult) error {
	t.Helper()
	s := status.New(code, "because")
	for _, detail := range details {
		var err error
		if s, err = s.WithDetails(detail); err != nil {
			t.Fatal(err)
		}
	}
	return s.Err()
}

var wireStates = map[contract.State]pluginv1.HostCommandStatus{
	contract.StateApplied:        pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_APPLIED,
	contract.StateAlreadyApplied: pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_ALREADY_APPLIED,
	contract.StateNoChange:       pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_NO_CHANGE,
	contract.StateConflict:       pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_CONFLICT,
	contract.StateDenied:         pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_DENIED,
	contract.StateNotFound:       pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_NOT_FOUND,
	contract.StateInvalid:        pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_INVALID,
	contract.StateUnsupported:    pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_UNSUPPORTED,
	contract.StateRateLimited:    pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_RATE_LIMITED,
	contract.StateUnavailable:    pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_UNAVAILABLE,
}

// creations scripts the answers of CreateTaskExact, one after another; the last
// one repeats. It records what was asked.
type creations struct {
	mu       sync.Mutex
	requests []*pluginv1.CreateTaskExactRequest
	at       []time.Time
	answers  []*pluginv1.HostCommandResult
}

func (c *creations) answer(
	_ context.Context, r *pluginv1.CreateTaskExactRequest,
) (*pluginv1.CreateTaskExactResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, r)
	c.at = append(c.at, time.Now())
	answer := c.answers[min(len(c.requests), len(c.answers))-1]
	response := &pluginv1.CreateTaskExactResponse{Result: answer}
	if slices.Contains([]pluginv1.HostCommandStatus{
		wireStates[contract.StateApplied], wireStates[contract.StateAlreadyApplied], wireStates[contract.StateNoChange],
	}, answer.GetStatus()) {
		response.Task = &pluginv1.Task{Id: "task-1", Title: r.GetTask().GetTitle()}
	}
	return response, nil
}

func (c *creations) asked() []*pluginv1.CreateTaskExactRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

var aTask = sdk.NewTask{
	ExternalID: "ext-1", WorkflowID: "wf", WorkflowVersion: "v1", StepID: "step", StepVersion: "v2", Title: "Write it",
}

func create(t *testing.T, host *sdk.Host) (sdk.TaskResult, error) {
	t.Helper()
	return host.Tasks().Create(t.Context(), "team-a", sdk.NewOperation("key-1", sdk.ExpectNone()), aTask)
}
