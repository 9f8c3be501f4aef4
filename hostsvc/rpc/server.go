package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"

	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/query"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

const (
	// maxMessageBytes bounds what the transport reads of one request. It leaves
	// room above contract.MaxCommandBytes, so that a command beyond its bound
	// is answered INVALID, and for the longest list filter.
	maxMessageBytes = 1 << 20
	// maxHeaderBytes bounds a call's metadata; a token has about 1,200 bytes.
	maxHeaderBytes = 16 << 10
	// maxStreams bounds the calls in flight on one connection.
	maxStreams = 256
	// maxOpenStreams bounds the streams of health and reflection, on all
	// connections.
	maxOpenStreams = 128
	// DefaultMaxInFlight is the default bound on an installation's calls in
	// flight.
	DefaultMaxInFlight = 128

	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 10 * time.Second
	minClientPing    = 10 * time.Second
	connectTimeout   = 10 * time.Second
	// drainTime is how long calls in flight may take to end when the server
	// stops.
	drainTime = 10 * time.Second
)

// Config is what a server is made of.
type Config struct {
	// CertFile and KeyFile are PEM files; they are read again when they change.
	CertFile, KeyFile string
	Identity          Authenticator
	Reader            *query.Reader
	Executor          *command.Executor
	// MaxInFlight bounds each installation's calls in flight; 0 is
	// DefaultMaxInFlight.
	MaxInFlight int
	Now         func() time.Time
	Log         *slog.Logger
	// Stats, if set, is told about every call, for metrics.
	Stats stats.Handler
}

// Server serves kandev.plugin.v1.Host, with gRPC health and reflection beside
// it.
type Server struct {
	grpc   *grpc.Server
	health *health.Server
}

// host implements the service. Its methods are the adapters.
type host struct {
	pluginv1.UnimplementedHostServer

	reader   *query.Reader
	executor *command.Executor
	// operations is the service in the order of the shipped context.
	operations []*method
}

// NewServer returns a server that is not serving yet. It fails when an RPC has
// no entry in the registry, or the certificate can't be used.
func NewServer(config Config) (*Server, error) {
	registry, err := newRegistry(pluginv1.File_kandev_plugin_v1_host_proto.Services().ByName("Host"))
	if err != nil {
		return nil, fmt.Errorf("make the method registry: %w", err)
	}
	transport, err := TransportOptions(config)
	if err != nil {
		return nil, err
	}
	limit := config.MaxInFlight
	if limit == 0 {
		limit = DefaultMaxInFlight
	}
	door := &door{
		registry: registry, identity: config.Identity, crowd: &crowd{limit: int64(limit)}, log: config.Log,
		refusals: &sample{now: config.Now}, streams: make(chan struct{}, maxOpenStreams),
		open: []string{
			healthpb.Health_ServiceDesc.ServiceName, "grpc.reflection.v1.ServerReflection",
			"grpc.reflection.v1alpha.ServerReflection",
		},
	}
	s := &Server{
		grpc: grpc.NewServer(append(transport,
			grpc.UnaryInterceptor(door.unary), grpc.StreamInterceptor(door.stream))...),
		health: health.NewServer(),
	}
	pluginv1.RegisterHostServer(s.grpc, &host{
		reader: config.Reader, executor: config.Executor, operations: shippedOrder(registry.order),
	})
	healthpb.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	s.health.SetServingStatus(pluginv1.Host_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	return s, nil
}

// TransportOptions are the options of the server below its interceptors: TLS,
// bounds and keepalive. Measurements compare with a server of the same ones.
func TransportOptions(config Config) ([]grpc.ServerOption, error) {
	certificates, err := loadCertificates(config.CertFile, config.KeyFile, config.Now, config.Log)
	if err != nil {
		return nil, err
	}
	options := []grpc.ServerOption{
		grpc.Creds(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, GetCertificate: certificates.get,
		})),
		grpc.MaxRecvMsgSize(maxMessageBytes), grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(maxStreams), grpc.ConnectionTimeout(connectTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPing, PermitWithoutStream: true}),
	}
	if config.Stats != nil {
		options = append(options, grpc.StatsHandler(config.Stats))
	}
	return options, nil
}

// Serve serves until ctx ends, then tells health checks so, lets the calls in
// flight end for at most ten seconds, and returns nil. It closes the listener.
// A server serves once.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve the Host: %w", err)
	case <-ctx.Done():
	}
	s.health.Shutdown()
	drained := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(drained)
	}()
	drain := time.NewTimer(drainTime)
	defer drain.Stop()
	select {
	case <-drained:
	case <-drain.C:
		s.grpc.Stop()
		<-drained
	}
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve the Host: %w", err)
	}
	return nil
}
