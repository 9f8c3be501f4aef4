package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/events"
	"github.com/kandev/plugin-host/hostsvc/fence"
	"github.com/kandev/plugin-host/hostsvc/identity"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/rpc"
	"github.com/kandev/plugin-host/hostsvc/store"
	"github.com/kandev/plugin-host/hostsvc/telemetry"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// bench is the ground that both sides stand on: a folder, a certificate, a
// token, and what has to be released at the end.
type bench struct {
	dir    string
	config rpc.Config
	roots  *x509.CertPool
	bearer bearer
	issuer *issuer
	// tasks is how many the workspace gets, if more than the constant says.
	tasks   int
	release []func() error
}

// bearer sends the token with every call, as a plugin does.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return true }

func newBench() (*bench, error) {
	dir, err := os.MkdirTemp("", "plugin-host-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	b := &bench{dir: dir}
	b.later(func() error { return os.RemoveAll(dir) })
	if b.issuer, err = newIssuer(); err != nil {
		return nil, b.close(err)
	}
	token, err := b.issuer.token(approved)
	if err != nil {
		return nil, b.close(err)
	}
	b.bearer = bearer(token)
	if err := b.certify(); err != nil {
		return nil, b.close(err)
	}
	return b, nil
}

func (b *bench) later(f func() error) { b.release = append(b.release, f) }

// close releases everything, the last first, and joins what fails to err.
func (b *bench) close(err error) error {
	for i := len(b.release) - 1; i >= 0; i-- {
		err = errors.Join(err, b.release[i]())
	}
	b.release = nil
	return err
}

func (b *bench) certify() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "plugin-host"}, DNSNames: []string{"plugin-host"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode the key: %w", err)
	}
	b.roots = x509.NewCertPool()
	b.roots.AddCert(certificate)
	b.config = rpc.Config{
		CertFile: filepath.Join(b.dir, "tls.crt"), KeyFile: filepath.Join(b.dir, "tls.key"),
		Now: time.Now, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	for path, block := range map[string]*pem.Block{
		b.config.CertFile: {Type: "CERTIFICATE", Bytes: der}, b.config.KeyFile: {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			return fmt.Errorf("write the certificate: %w", err)
		}
	}
	return nil
}

// serve runs a server until close, and returns its address.
func (b *bench) serve(ctx context.Context, serve func(context.Context, net.Listener) error) (address string, err error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- serve(serving, listener) }()
	b.later(func() error {
		stop()
		return <-served
	})
	return listener.Addr().String(), nil
}

// connect returns a client that calls with a token.
func (b *bench) connect(address string, token bearer) (pluginv1.HostClient, error) {
	conn, err := grpc.NewClient(address, grpc.WithPerRPCCredentials(token),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			RootCAs: b.roots, ServerName: "plugin-host", MinVersion: tls.VersionTLS13,
		})))
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	b.later(conn.Close)
	return pluginv1.NewHostClient(conn), nil
}

// anonymous returns a client that brings no token of its own.
func (b *bench) anonymous(address string) (pluginv1.HostClient, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: b.roots, ServerName: "plugin-host", MinVersion: tls.VersionTLS13,
	})))
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	b.later(conn.Close)
	return pluginv1.NewHostClient(conn), nil
}

// bare returns a client of a server of the same transport without a Host.
func (b *bench) bare(ctx context.Context, host pluginv1.HostServer) (pluginv1.HostClient, error) {
	options, err := rpc.TransportOptions(b.config)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(options...)
	pluginv1.RegisterHostServer(server, host)
	address, err := b.serve(ctx, func(ctx context.Context, listener net.Listener) error {
		stop := context.AfterFunc(ctx, server.Stop)
		defer stop()
		return server.Serve(listener)
	})
	if err != nil {
		return nil, err
	}
	return b.connect(address, b.bearer)
}

// noReceipts is a recorder that records nothing, to tell the price of receipts
// from the price of the rest.
type noReceipts struct{}

func (noReceipts) Append(context.Context, journal.Receipt) error { return nil }

// host is a Host on an engine, with one seeded and approved workspace.
type host struct {
	client  pluginv1.HostClient
	address string
	// version is the version of all that was seeded.
	version string
}

// taskID is the task of a worker.
func taskID(worker int) string { return fmt.Sprintf("01990a4e-7b6c-7c3e-8a2f-%012d", worker) }

// tasks is how many tasks a workspace has, unless a bench asks for more.
const tasks = 64

// start serves a Host on engine, with durable receipts or none.
func (b *bench) start(ctx context.Context, engine store.Engine, durable bool) (*host, error) {
	s, err := store.Open(ctx, engine, store.Options{Now: time.Now, Log: b.config.Log, Fatal: func(err error) { panic(err) }})
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	b.later(s.Close)
	var receipts admission.Receipts = noReceipts{}
	if durable {
		recorder := journal.NewRecorder(s, uuid.NewString(), time.Now) //nolint:contextcheck // it lives longer than any call
		b.later(func() error { return recorder.Close(context.WithoutCancel(ctx)) })
		receipts = recorder
	}
	row, view := grant()
	h := &host{}
	if h.version, err = seed(ctx, s, row, max(b.tasks, tasks)); err != nil {
		return nil, err
	}
	key, err := query.NewCursorKey()
	if err != nil {
		return nil, err
	}
	cursors, err := query.NewCursors(key)
	if err != nil {
		return nil, err
	}
	// Calls are counted, as in the product.
	measured, err := telemetry.NewMetrics(prometheus.NewRegistry(), time.Now)
	if err != nil {
		return nil, err
	}
	receipts = measured.Receipts(receipts)
	config := b.config
	config.Observer = measured
	config.Identity = identity.NewAuthenticator(identity.Config{
		Reviewer: b.issuer, Cluster: objects{}, Directory: directory{view}, Now: time.Now, Observer: measured,
	})
	config.Reader = &query.Reader{
		Store: s, View: view, Receipts: receipts, Cursors: cursors, Now: time.Now, NewAuditID: uuid.NewString,
	}
	config.Executor = &command.Executor{
		Store: s, View: view, Receipts: receipts, Now: time.Now, NewAuditID: uuid.NewString,
		NewID: func() string { return uuid.Must(uuid.NewV7()).String() },
	}
	config.Events = events.NewHub(events.Config{
		Store: s, Rows: s, View: view, Legacy: declared{view}, Plugins: view, Receipts: receipts, Cursors: cursors, Now: time.Now,
		NewAuditID: uuid.NewString, Log: config.Log, Observer: measured, Limits: events.Limits{Streams: watchers},
	})
	server, err := rpc.NewServer(config)
	if err != nil {
		return nil, err
	}
	if h.address, err = b.serve(ctx, server.Serve); err != nil {
		return nil, err
	}
	h.client, err = b.connect(h.address, b.bearer)
	return h, err
}

// vouch does once, for longer than any run, what the rounds of a Host do in
// short steps.
func vouch(ctx context.Context, s *store.Store, term fence.Term) error {
	if err := s.Complete(ctx, term); err != nil {
		return err
	}
	round, err := s.BeginRound(ctx)
	if err != nil {
		return err
	}
	_, err = s.RenewLease(ctx, round, 24*time.Hour)
	return err
}

// seed makes the workspace, its tasks and its grant.
func seed(ctx context.Context, s *store.Store, row authority.Row, tasks int) (version string, err error) {
	term, err := s.Lead(ctx)
	if err != nil {
		return "", fmt.Errorf("lead: %w", err)
	}
	if err := vouch(ctx, s, term); err != nil {
		return "", fmt.Errorf("make the store vouch for its rows: %w", err)
	}
	now := time.Now()
	err = s.Seed(ctx, workspaceID, func(tx store.SeedTx) error {
		if err := tx.Workflow(domain.Workflow{ID: "flow", Name: "Flow", CreatedAt: now, UpdatedAt: now}); err != nil {
			return err
		}
		if err := tx.WorkflowStep(domain.WorkflowStep{ID: "todo", WorkflowID: "flow", Name: "To do", StageType: "work"}); err != nil {
			return err
		}
		for i := range tasks {
			draft := domain.TaskDraft{WorkflowID: "flow", WorkflowStepID: "todo", Title: "Write the release notes", Description: description}
			if err := tx.Task(domain.NewTask(taskID(i), workspaceID, "human:ann", draft, domain.Placement{StepID: "todo", Admitted: true}, int32(i), now)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("seed the workspace: %w", err)
	}
	before, err := s.Row(ctx, row.Key)
	if err != nil {
		return "", fmt.Errorf("read the row: %w", err)
	}
	row.Revision, row.UpdatedAt = before.Revision+1, now
	if err := s.Fence(ctx, term, before, row); err != nil {
		return "", fmt.Errorf("grant: %w", err)
	}
	return domain.ResourceVersion(term.StoreEpoch, 1), nil
}

const description = "Collect what changed since the last release, group it by what a reader cares about, and leave out what only we would miss."
