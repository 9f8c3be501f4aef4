package sdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// The environment that Connect reads, and the files it expects in a pod.
const (
	// EnvAddress names the variable with the Host's address, as host:port.
	EnvAddress = "KANDEV_PLUGIN_HOST_ADDRESS"
	// EnvCAFile names the variable with the path of the CA of the Host's serving
	// certificate, PEM. Unset: DefaultCAFile.
	EnvCAFile = "KANDEV_PLUGIN_HOST_CA_FILE"
	// EnvTokenFile names the variable with the path of the projected
	// ServiceAccount token. Unset: DefaultTokenFile.
	EnvTokenFile = "KANDEV_PLUGIN_TOKEN_FILE" //nolint:gosec // a name

	// DefaultCAFile is where a pod has the CA.
	DefaultCAFile = "/var/run/kandev/ca/ca.crt"
	// DefaultTokenFile is where a pod has the token. Its audience must be
	// contract.Audience.
	DefaultTokenFile = "/var/run/secrets/kandev/token" //nolint:gosec // a path
)

const (
	defaultPollInterval = 5 * time.Second
	defaultAttempts     = 8

	// maxAnswerBytes bounds an answer of the Host. The longest is the context of
	// a plugin that very many workspaces have approved, at some 700 bytes each.
	maxAnswerBytes = 64 << 20

	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 10 * time.Second
)

// Host is a connection to the plugin host. It is safe for concurrent use.
type Host struct {
	conn     *grpc.ClientConn
	client   pluginv1.HostClient
	token    *tokenFile
	log      *slog.Logger
	interval time.Duration
	attempts int

	standing standing

	stop   context.CancelFunc
	closed <-chan struct{}
	polled sync.WaitGroup
	close  func() error
}

// ErrClosed says that the Host was closed.
var ErrClosed = errors.New("the connection to the plugin host is closed")

// Option changes how Connect connects.
type Option func(*settings)

type settings struct {
	address, caFile, tokenFile string
	pollInterval               time.Duration
	attempts                   int
	log                        *slog.Logger
	dial                       func(ctx context.Context, address string) (net.Conn, error)
	dialOptions                []grpc.DialOption
}

// WithAddress sets the Host's address, as host:port, instead of EnvAddress.
func WithAddress(address string) Option { return func(s *settings) { s.address = address } }

// WithCAFile sets the CA's path instead of EnvCAFile.
func WithCAFile(path string) Option { return func(s *settings) { s.caFile = path } }

// WithTokenFile sets the token's path instead of EnvTokenFile.
func WithTokenFile(path string) Option { return func(s *settings) { s.tokenFile = path } }

// WithPollInterval sets how long the SDK waits between two looks at the
// capability context. Default: 5 s; must be positive.
func WithPollInterval(interval time.Duration) Option {
	return func(s *settings) { s.pollInterval = interval }
}

// WithAttempts sets how often one request is sent at most while the Host
// answers UNAVAILABLE or RATE_LIMITED. 1 sends it once. Default: 8, which with
// the growing delays is some ten seconds.
func WithAttempts(attempts int) Option { return func(s *settings) { s.attempts = attempts } }

// WithLogger makes the SDK tell what it does by itself: waiting to repeat a
// request, parking, a context that could not be polled. Tokens are never
// logged. Default: nothing is logged.
func WithLogger(log *slog.Logger) Option { return func(s *settings) { s.log = log } }

// Connect connects to the Host that the pod's environment names, verifies its
// certificate against the CA, and fetches the capability context, which every
// exact call needs first. It fails when the context can't be had: with an
// *UnauthenticatedError when the token proves no installation, with an *Error
// for a typed answer of the Host.
//
// The CA is read again for every new connection, the token whenever its file
// changes.
//
// ctx bounds connecting only. Close ends what Connect started.
func Connect(ctx context.Context, options ...Option) (*Host, error) {
	s := settings{
		address:      os.Getenv(EnvAddress),
		caFile:       cmp.Or(os.Getenv(EnvCAFile), DefaultCAFile),
		tokenFile:    cmp.Or(os.Getenv(EnvTokenFile), DefaultTokenFile),
		pollInterval: defaultPollInterval,
		attempts:     defaultAttempts,
		log:          slog.New(slog.DiscardHandler),
	}
	for _, option := range options {
		option(&s)
	}
	h, err := s.host()
	if err != nil {
		return nil, fmt.Errorf("connect to the plugin host: %w", err)
	}
	if _, err := h.fetch(ctx, h.attempts); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the plugin host at %s: %w", s.address, err), h.Close())
	}
	polling, stop := context.WithCancel(context.WithoutCancel(ctx))
	h.stop, h.closed = stop, polling.Done()
	h.polled.Go(func() { h.poll(polling) })
	return h, nil
}

func (s settings) host() (*Host, error) {
	if s.address == "" {
		return nil, fmt.Errorf("no address is given: set %s to host:port", EnvAddress)
	}
	if _, port, err := net.SplitHostPort(s.address); err != nil || port == "" {
		return nil, fmt.Errorf("address %q is not host:port", s.address)
	}
	if s.pollInterval <= 0 {
		return nil, fmt.Errorf("poll interval %v is not positive", s.pollInterval)
	}
	if s.attempts < 1 {
		return nil, fmt.Errorf("%d attempts are fewer than one", s.attempts)
	}
	trusted := &authorities{path: s.caFile, log: s.log}
	if _, err := trusted.pool(); err != nil {
		return nil, fmt.Errorf("read the CA of the Host (%s): %w", EnvCAFile, err)
	}
	token := &tokenFile{path: s.tokenFile, log: s.log}
	if _, err := token.current(); err != nil {
		return nil, fmt.Errorf("read the token (%s): %w", EnvTokenFile, err)
	}
	dial := s.dial
	if dial == nil {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
	}
	conn, err := grpc.NewClient("passthrough:///"+s.address, append([]grpc.DialOption{
		grpc.WithTransportCredentials(trusted),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)),
		// A dialer of our own also means: never through a proxy.
		grpc.WithContextDialer(dial),
		// What may be repeated is decided here, by the typed result.
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(),
		// A connection that died without a word is noticed while nobody calls.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: keepaliveTime, Timeout: keepaliveTimeout, PermitWithoutStream: true,
		}),
	}, s.dialOptions...)...)
	if err != nil {
		return nil, fmt.Errorf("set up gRPC: %w", err)
	}
	h := &Host{
		conn: conn, client: pluginv1.NewHostClient(conn), token: token, log: s.log,
		interval: s.pollInterval, attempts: s.attempts,
		standing: standing{
			fetching: make(chan struct{}, 1), changed: make(chan struct{}), parked: map[parkingSpace]*Error{},
		},
		stop: func() {},
	}
	h.close = sync.OnceValue(h.shutDown)
	return h, nil
}

// Close ends the connection and the polling, and waits for the latter. Calls
// under way, and those made later, fail with ErrClosed; what a write under way
// did is not known, and the same key finds out. To close again does nothing.
func (h *Host) Close() error { return h.close() }

func (h *Host) shutDown() error {
	h.stop()
	err := h.conn.Close()
	h.polled.Wait()
	if err != nil {
		return fmt.Errorf("close the connection to the plugin host: %w", err)
	}
	return nil
}
