package identity_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/rpc"
	"github.com/kandev/plugin-host/hostsvc/store"
	"github.com/kandev/plugin-host/hostsvc/store/sqlite"
	"github.com/kandev/plugin-host/hostsvc/store/storetest"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// settled is a view that has seen everything.
type settled struct{}

func (settled) Observe(authority.Key) *authority.Observed { return &authority.Observed{Synced: true} }

// serve runs a Host with the world's authenticator and returns a connection.
func (w *world) serve() *grpc.ClientConn {
	w.t.Helper()
	log := slog.New(slog.DiscardHandler)
	engine, err := sqlite.Open(filepath.Join(w.t.TempDir(), "host.db"))
	must(w.t, err)
	durable, err := store.Open(w.t.Context(), engine, store.Options{Now: time.Now, Log: log, Fatal: func(err error) { panic(err) }})
	must(w.t, err)
	w.t.Cleanup(func() { must(w.t, durable.Close()) })
	_, err = storetest.Vouch(w.t.Context(), durable)
	must(w.t, err)
	receipts := journal.NewRecorder(durable, uuid.NewString(), time.Now)
	w.t.Cleanup(func() { must(w.t, receipts.Close(context.Background())) })

	certFile, keyFile, roots := w.certificate()
	server, err := rpc.NewServer(rpc.Config{
		CertFile: certFile, KeyFile: keyFile, Identity: w.auth, Now: time.Now, Log: log,
		Reader: &query.Reader{Store: durable, View: settled{}, Receipts: receipts, Now: time.Now, NewAuditID: uuid.NewString},
	})
	must(w.t, err)
	listener, err := (&net.ListenConfig{}).Listen(w.t.Context(), "tcp", "127.0.0.1:0")
	must(w.t, err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	w.t.Cleanup(func() {
		stop()
		must(w.t, <-served)
	})
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: roots, ServerName: "plugin-host", MinVersion: tls.VersionTLS13,
	})))
	must(w.t, err)
	w.t.Cleanup(func() { must(w.t, conn.Close()) })
	return conn
}

func (w *world) certificate() (certFile, keyFile string, roots *x509.CertPool) {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(w.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"plugin-host"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(w.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(w.t, err)
	dir := w.t.TempDir()
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	must(w.t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(w.t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	leaf, err := x509.ParseCertificate(der)
	must(w.t, err)
	roots = x509.NewCertPool()
	roots.AddCert(leaf)
	return certFile, keyFile, roots
}

// TestUserAsk34_DeletedPodIsDeniedOnItsOpenConnection, and a token of a pod with
// a grace period too (user-asks 61): the API server would accept both for a
// while.
func TestUserAsk34_DeletedPodIsDeniedOnItsOpenConnection(t *testing.T) {
	w := newWorld(t)
	conn := w.serve()
	host := pluginv1.NewHostClient(conn)
	call := func(token string) codes.Code {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		_, err := host.GetCapabilityContext(ctx, &pluginv1.GetCapabilityContextRequest{RequestId: "r"})
		return status.Code(err)
	}
	graceful := w.createPod("plugin-1", "plugin", "some-node")
	for name, token := range map[string]string{"plugin-0": w.good(), "plugin-1": w.token("plugin", graceful, contract.Audience)} {
		if code := call(token); code != codes.OK {
			t.Fatalf("%s: %v", name, code)
		}
		w.deletePod(name)
		begun := time.Now()
		w.eventually("the pod's next call is denied", func() bool {
			code := call(token)
			if code != codes.OK && code != codes.Unauthenticated {
				t.Fatalf("%s: %v", name, code)
			}
			return code == codes.Unauthenticated
		})
		t.Logf("%s: denied %v after its deletion", name, time.Since(begun))
		if conn.GetState() != connectivity.Ready {
			t.Error("the connection was another one: this test shows nothing")
		}
	}
}
