package hostlink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc/credentials"
)

// authorities are TLS credentials that trust the CAs of a file as it is when a
// connection begins: a pod lives longer than a CA.
type authorities string

func (a authorities) pool() (*x509.CertPool, error) {
	text, err := os.ReadFile(string(a))
	if err != nil {
		return nil, fmt.Errorf("read the file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no PEM certificate", string(a))
	}
	return roots, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (a authorities) ClientHandshake(
	ctx context.Context, authority string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	roots, err := a.pool()
	if err != nil {
		return nil, nil, fmt.Errorf("read the CA of the Host: %w", err)
	}
	current := credentials.NewTLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13})
	return current.ClientHandshake(ctx, authority, conn) //nolint:wrapcheck // gRPC's own
}

// ServerHandshake implements credentials.TransportCredentials.
func (authorities) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("a launcher serves no gRPC to the network")
}

// Info implements credentials.TransportCredentials.
func (authorities) Info() credentials.ProtocolInfo {
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13}).Info()
}

// Clone implements credentials.TransportCredentials.
func (a authorities) Clone() credentials.TransportCredentials { return a }

// OverrideServerName implements credentials.TransportCredentials. Nothing asks
// for it: the name is that of the address.
func (authorities) OverrideServerName(string) error {
	return errors.New("the Host's name is that of its address")
}
