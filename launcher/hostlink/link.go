package hostlink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
)

const (
	// maxAnswerBytes bounds an answer of the Host.
	maxAnswerBytes = 64 << 20
	// reachTime is how long a plugin's call waits for a Host that is away, as it is
	// while another version of it starts. A plugin that was written for a Host in
	// its own process knows no such moments.
	reachTime = 5 * time.Second

	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 10 * time.Second
)

// Link is a connection to the Host. It is safe for concurrent use.
type Link struct {
	conn *grpc.ClientConn
	// patience is reachTime.
	patience time.Duration
}

// Dial prepares a connection to the Host at address, host:port, whose
// certificate a CA of caFile (PEM) must have signed. Both files are read again:
// the CA's for each connection, the token's for each call, so that both may be
// rotated. It connects when it is first needed.
func Dial(address, caFile string, token *Secret) (*Link, error) {
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		return nil, fmt.Errorf("the Host's address %q is not host:port", address)
	}
	trusted := authorities(caFile)
	if _, err := trusted.pool(); err != nil {
		return nil, fmt.Errorf("read the CA of the Host: %w", err)
	}
	if _, err := token.Read(); err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(trusted),
		grpc.WithPerRPCCredentials(bearer{token}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)),
		// A dialer of our own also means: never through a proxy.
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}),
		// What may be repeated is for the plugin to decide.
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: keepaliveTime, Timeout: keepaliveTimeout, PermitWithoutStream: true,
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("set up gRPC: %w", err)
	}
	return &Link{conn: conn, patience: reachTime}, nil
}

// Conn is the connection, for the launcher's own calls.
func (l *Link) Conn() *grpc.ClientConn { return l.conn }

// Close ends the connection and all calls over it.
func (l *Link) Close() error {
	if err := l.conn.Close(); err != nil {
		return fmt.Errorf("close the connection to the Host: %w", err)
	}
	return nil
}

// reach waits until the Host can be reached, for a bounded time; what is wrong
// then, the call that follows tells.
func (l *Link) reach(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	for state := l.conn.GetState(); state != connectivity.Ready && state != connectivity.Shutdown; state = l.conn.GetState() {
		l.conn.Connect()
		if !l.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// bearer sends the token that the file holds now.
type bearer struct{ token *Secret }

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := b.token.Read()
	if err != nil {
		return nil, err
	}
	if token == "" {
		return nil, errors.New("no token")
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity makes gRPC refuse to send the token in clear.
func (bearer) RequireTransportSecurity() bool { return true }
