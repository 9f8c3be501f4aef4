package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/certificate"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/events"
	"github.com/kandev/plugin-host/hostsvc/legacy"
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
	// DefaultDrainTime is how long calls in flight may take to end when the
	// server stops.
	DefaultDrainTime = 10 * time.Second
	// DefaultConnectionAge is how old a connection gets, give or take a tenth:
	// then it is told to go away, so that clients spread over new replicas.
	DefaultConnectionAge = 10 * time.Minute
	// streamGrace is what a stream of health has to say that it is over.
	streamGrace = time.Second
	// connectionGrace is what its calls in flight have to end then.
	connectionGrace = 30 * time.Second
	// readyEvery is how often readiness is asked for, readyTimeout what it has to
	// answer: a database that hangs is not ready.
	readyEvery   = time.Second
	readyTimeout = 3 * time.Second
)

// publicMethods are the RPCs that ask for no identity, each with its reason.
// Everything else needs an entry in the registry, or the server is not made.
var publicMethods = map[string]string{
	healthpb.Health_Check_FullMethodName:                                   "load balancers and probes have no identity; it tells whether the process serves",
	healthpb.Health_Watch_FullMethodName:                                   "as above, pushed",
	healthpb.Health_List_FullMethodName:                                    "as above, for all services",
	reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      "tells the published contract and nothing of this installation",
	reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: "as above, for older tools",
}

// Config is what a server is made of.
type Config struct {
	// CertFile and KeyFile are PEM files; they are read again when they change.
	CertFile, KeyFile string
	Identity          Authenticator
	Reader            *query.Reader
	Executor          *command.Executor
	// Legacy says what v1 calls are allowed; nil allows none. V1 serves them.
	Legacy admission.LegacyView
	V1     *legacy.Host
	// Events are watched, and Emitter publishes what plugins say. nil serves no
	// streams, and publishes nothing.
	Events  *events.Hub
	Emitter *command.Emitter
	// MaxInFlight bounds each installation's calls in flight; 0 is
	// DefaultMaxInFlight.
	MaxInFlight int
	// DrainTime bounds how long calls in flight may go on when the server stops,
	// MaxConnectionAge how long a connection lives; 0 are the defaults.
	DrainTime, MaxConnectionAge time.Duration
	Now                         func() time.Time
	Log                         *slog.Logger
	// Ready tells what keeps this process from serving, for gRPC health; nil is
	// always ready.
	Ready func(context.Context) error
	// Observer is told about every call of a proven caller; it may be nil.
	Observer Observer
	// Tracer opens a span for each of them; nil traces nothing.
	Tracer trace.Tracer
}

// Server serves kandev.plugin.v1.Host, with gRPC health and reflection beside
// it.
type Server struct {
	grpc      *grpc.Server
	health    *health.Server
	ready     func(context.Context) error
	log       *slog.Logger
	drainTime time.Duration
	drained   chan struct{}
}

// host implements the service. Its methods are the adapters.
type host struct {
	pluginv1.UnimplementedHostServer

	reader   *query.Reader
	executor *command.Executor
	v1       *legacy.Host
	events   *events.Hub
	emitter  *command.Emitter
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
		registry: registry, identity: config.Identity, legacy: config.Legacy, crowd: &crowd{limit: int64(limit), now: config.Now}, log: config.Log,
		now: config.Now, observer: config.Observer, tracer: config.Tracer,
		refusals: &sample{now: config.Now}, streams: make(chan struct{}, maxOpenStreams),
		drained: make(chan struct{}),
	}
	if door.legacy == nil {
		door.legacy = noLegacy{}
	}
	if config.Executor != nil {
		door.receipts = config.Executor.Receipts
	}
	if door.observer == nil {
		door.observer = unobserved{}
	}
	s := &Server{
		grpc: grpc.NewServer(append(transport,
			grpc.InTapHandle(door.tap), grpc.UnaryInterceptor(door.unary), grpc.StreamInterceptor(door.stream))...),
		health: health.NewServer(), ready: config.Ready, log: config.Log, drainTime: config.DrainTime,
		drained: door.drained,
	}
	if s.drainTime == 0 {
		s.drainTime = DefaultDrainTime
	}
	pluginv1.RegisterHostServer(s.grpc, &host{
		reader: config.Reader, executor: config.Executor, v1: config.V1, events: config.Events, emitter: config.Emitter,
		operations: shippedOrder(registry.order),
	})
	healthpb.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	if err := door.knowsAll(s.grpc); err != nil {
		return nil, err
	}
	s.tell(config.Ready == nil)
	return s, nil
}

// knowsAll is an error when an RPC is served that has no entry in the registry
// and is not public.
func (d *door) knowsAll(server *grpc.Server) error {
	for service, info := range server.GetServiceInfo() {
		for _, served := range info.Methods {
			if _, _, err := d.find(fmt.Sprintf("/%s/%s", service, served.Name)); err != nil {
				return fmt.Errorf("serve %s/%s: it needs no capability and is not public", service, served.Name)
			}
		}
	}
	return nil
}

// TransportOptions are the options of the server below its interceptors: TLS,
// bounds and keepalive. Measurements compare with a server of the same ones.
func TransportOptions(config Config) ([]grpc.ServerOption, error) {
	certificates, err := certificate.Load(config.CertFile, config.KeyFile, config.Now, config.Log)
	if err != nil {
		return nil, err
	}
	age := config.MaxConnectionAge
	if age == 0 {
		age = DefaultConnectionAge
	}
	return []grpc.ServerOption{
		grpc.Creds(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, GetCertificate: certificates.Get,
		})),
		grpc.MaxRecvMsgSize(maxMessageBytes), grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(maxStreams), grpc.ConnectionTimeout(connectTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: keepaliveTime, Timeout: keepaliveTimeout, MaxConnectionAge: age, MaxConnectionAgeGrace: connectionGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPing, PermitWithoutStream: true}),
	}, nil
}

// Serve serves until ctx ends, then tells health checks so, tells every client
// to go away, lets the calls in flight end for the drain time, and returns nil.
// It closes the listener. A server serves once.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(listener) }()
	watch, stop := context.WithCancel(ctx)
	defer stop()
	var watching sync.WaitGroup
	if s.ready != nil {
		watching.Go(func() { s.watchReadiness(watch) })
	}
	select {
	case err := <-served:
		return fmt.Errorf("serve the Host: %w", err)
	case <-ctx.Done():
	}
	watching.Wait()
	s.health.Shutdown()
	drained := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(drained)
	}()
	streams, drain := time.NewTimer(streamGrace), time.NewTimer(s.drainTime)
	defer streams.Stop()
	defer drain.Stop()
	for ended := false; !ended; {
		select {
		case <-drained:
			ended = true
		case <-streams.C:
			close(s.drained)
		case <-drain.C:
			s.log.WarnContext(ctx, "calls in flight did not end in time and are cut off", "after", s.drainTime)
			s.grpc.Stop()
			<-drained
			ended = true
		}
	}
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve the Host: %w", err)
	}
	return nil
}

// watchReadiness lets gRPC health say what Ready says, and logs each change
// with its cause.
func (s *Server) watchReadiness(ctx context.Context) {
	ticker := time.NewTicker(readyEvery)
	defer ticker.Stop()
	was := false
	for {
		asking, cancel := context.WithTimeout(ctx, readyTimeout)
		err := s.ready(asking)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if is := err == nil; is != was {
			was = is
			s.tell(is)
			if is {
				s.log.InfoContext(ctx, "ready to serve")
			} else {
				s.log.WarnContext(ctx, "not ready to serve any more", "cause", err)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) tell(ready bool) {
	answer := healthpb.HealthCheckResponse_NOT_SERVING
	if ready {
		answer = healthpb.HealthCheckResponse_SERVING
	}
	for _, service := range []string{"", pluginv1.Host_ServiceDesc.ServiceName} {
		s.health.SetServingStatus(service, answer)
	}
}
