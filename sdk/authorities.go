package sdk

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc/credentials"
)

// authorities are TLS credentials that trust the CAs in a file as it is when a
// connection begins: a plugin lives longer than a CA.
type authorities struct {
	path string
	log  *slog.Logger

	mu   sync.Mutex
	last *x509.CertPool
}

// pool reads the file. While it can't be used, the last CAs are kept: a
// replacement takes a moment.
func (a *authorities) pool() (*x509.CertPool, error) {
	roots := x509.NewCertPool()
	text, err := os.ReadFile(a.path)
	if err == nil && !roots.AppendCertsFromPEM(text) {
		err = fmt.Errorf("%s holds no PEM certificate", a.path)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.last = roots
	case a.last == nil:
		return nil, err
	default:
		a.log.Warn("The CA can't be read again; using the last one.", "error", err)
	}
	return a.last, nil
}

func (a *authorities) tls() (credentials.TransportCredentials, error) {
	roots, err := a.pool()
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}), nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (a *authorities) ClientHandshake(
	ctx context.Context, authority string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	current, err := a.tls()
	if err != nil {
		return nil, nil, fmt.Errorf("read the CA of the Host: %w", err)
	}
	return current.ClientHandshake(ctx, authority, conn) //nolint:wrapcheck // gRPC's own
}

// ServerHandshake implements credentials.TransportCredentials.
func (a *authorities) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, fmt.Errorf("a plugin serves nothing")
}

// Info implements credentials.TransportCredentials.
func (a *authorities) Info() credentials.ProtocolInfo {
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13}).Info()
}

// Clone implements credentials.TransportCredentials.
func (a *authorities) Clone() credentials.TransportCredentials { return a }

// OverrideServerName implements credentials.TransportCredentials. Nothing asks
// for it: the name is that of the address.
func (a *authorities) OverrideServerName(string) error {
	return fmt.Errorf("the Host's name is that of its address")
}
