package rpc_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/fence"
	"github.com/kandev/plugin-host/hostsvc/identity"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/rpc"
	"github.com/kandev/plugin-host/hostsvc/store"
	"github.com/kandev/plugin-host/hostsvc/store/sqlite"
	"github.com/kandev/plugin-host/hostsvc/store/storetest"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// The installations of a world and the digest of their manifest.
const (
	alpha  = "installation-alpha"
	beta   = "installation-beta"
	digest = "v1:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// tokens is who a bearer token belongs to. That a real token proves its
// installation is package identity's to show, on a real API server.
type tokens struct{ err error }

// Refuses knows a bad token at once.
func (t tokens) Refuses(bearer string) error {
	if t.err == nil && !strings.HasPrefix(bearer, "token-of-") {
		return fmt.Errorf("%w: the bearer %q is secret", identity.ErrUnauthenticated, bearer)
	}
	return nil
}

func (t tokens) Authenticate(_ context.Context, bearer string) (identity.Principal, error) {
	if t.err != nil {
		return identity.Principal{}, t.err
	}
	installation, ok := strings.CutPrefix(bearer, "token-of-")
	if !ok {
		return identity.Principal{}, fmt.Errorf("%w: the bearer %q is secret", identity.ErrUnauthenticated, bearer)
	}
	return identity.Principal{InstallationID: installation}, nil
}

// view is a fixed view: what is not set is in step with the row.
type view struct {
	mu   sync.RWMutex
	keys map[authority.Key]*authority.Observed
	rest authority.Observed
}

func (v *view) Observe(key authority.Key) *authority.Observed {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if seen := v.keys[key]; seen != nil {
		return seen
	}
	return &v.rest
}

func (v *view) set(key authority.Key, seen authority.Observed) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.keys[key] = &seen
}

// clock is a clock that only a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// world is a server over TLS on a SQLite database, with a client.
type world struct {
	*testing.T
	store    *store.Store
	term     fence.Term
	view     *view
	clock    *clock
	receipts *receipts
	log      *buffer
	address  string
	certFile string
	roots    *x509.CertPool
	host     pluginv1.HostClient
	conn     *grpc.ClientConn
	// stop ends the server, and returns once it has.
	stop func() error
}

// options change a world before it starts.
type options struct {
	identity    rpc.Authenticator
	maxInFlight int
	failing     *failing
	// panics: the test makes a call panic.
	panics bool
	// server changes the server's own settings.
	server func(*rpc.Config)
	// engine is the database; nil is SQLite in a new file. traced sees what is asked
	// of it.
	engine store.Engine
	traced *traced
}

func newWorld(t *testing.T, change ...func(*options)) *world {
	t.Helper()
	o := options{identity: tokens{}}
	for _, f := range change {
		f(&o)
	}
	w := &world{
		T: t, view: &view{keys: map[authority.Key]*authority.Observed{}, rest: authority.Observed{Synced: true}},
		log: &buffer{}, clock: &clock{now: time.Date(2026, 5, 4, 3, 2, 1, 123456000, time.UTC)},
	}
	log := slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	t.Cleanup(func() {
		if text := w.log.String(); strings.Contains(text, "panicked") && !o.panics {
			t.Errorf("a call panicked: %s", text)
		}
	})
	var err error
	engine := o.engine
	if engine == nil {
		engine, err = sqlite.Open(filepath.Join(t.TempDir(), "host.db"))
		w.must(err)
	}
	if o.traced != nil {
		o.traced.Engine = engine
		engine = o.traced
	}
	w.store, err = store.Open(t.Context(), engine, store.Options{
		Now: w.clock.Now, Log: log, Fatal: func(err error) { panic(err) },
	})
	w.must(err)
	t.Cleanup(func() { w.must(w.store.Close()) })
	w.term, err = storetest.Vouch(t.Context(), w.store)
	w.must(err)

	key, err := query.NewCursorKey()
	w.must(err)
	cursors, err := query.NewCursors(key)
	w.must(err)
	w.receipts = &receipts{Recorder: journal.NewRecorder(w.store, uuid.NewString(), w.clock.Now)}
	t.Cleanup(func() { w.must(w.receipts.Close(context.Background())) })
	newAuditID := uuid.NewString
	newID := func() string { return uuid.Must(uuid.NewV7()).String() }
	var reads query.Store = w.store
	var writes command.Store = w.store
	if o.failing != nil {
		o.failing.Store = w.store
		reads, writes = o.failing, o.failing
	}
	certFile, keyFile, roots := newCertificate(t, t.TempDir())
	config := rpc.Config{
		CertFile: certFile, KeyFile: keyFile, Identity: o.identity, MaxInFlight: o.maxInFlight, Now: w.clock.Now, Log: log,
		Reader: &query.Reader{
			Store: reads, View: w.view, Receipts: w.receipts, Cursors: cursors, Now: w.clock.Now, NewAuditID: newAuditID,
		},
		Executor: &command.Executor{
			Store: writes, View: w.view, Receipts: w.receipts, Now: w.clock.Now, NewID: newID, NewAuditID: newAuditID,
		},
	}
	if o.server != nil {
		o.server(&config)
	}
	server, err := rpc.NewServer(config)
	w.must(err)
	w.roots, w.certFile = roots, certFile
	w.address, w.stop = serve(t, server)
	w.conn = w.dial()
	w.host = pluginv1.NewHostClient(w.conn)
	return w
}

// serve serves until the test ends, or stop is called, and returns the address.
func serve(t *testing.T, server *rpc.Server) (address string, stop func() error) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String(), stop
}

func (w *world) dial() *grpc.ClientConn {
	w.Helper()
	conn, err := grpc.NewClient(w.address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: w.roots, ServerName: "plugin-host", MinVersion: tls.VersionTLS13,
	})))
	w.must(err)
	w.Cleanup(func() { w.must(conn.Close()) })
	return conn
}

// newCertificate writes a self-signed certificate for "plugin-host".
func newCertificate(t *testing.T, dir string) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "plugin-host"}, DNSNames: []string{"plugin-host"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for path, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AddCert(certificate)
	return certFile, keyFile, roots
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// as returns a context that calls as an installation.
func (w *world) as(installation string) context.Context {
	return metadata.AppendToOutgoingContext(w.Context(), "authorization", "Bearer token-of-"+installation)
}

// seed gives a workspace one workflow with two steps and n tasks, named after
// it, and returns the resource version of all of it.
func (w *world) seed(workspace string, n int) string {
	w.Helper()
	now := w.clock.Now()
	w.must(w.store.Seed(w.Context(), workspace, func(tx store.SeedTx) error {
		if err := tx.Workspace(domain.Workspace{Name: "The " + workspace, CreatedAt: now, UpdatedAt: now}); err != nil {
			return err
		}
		if err := tx.Workflow(domain.Workflow{ID: workspace + "-flow", Name: "Flow", CreatedAt: now, UpdatedAt: now}); err != nil {
			return err
		}
		for i, name := range []string{"todo", "doing"} {
			step := domain.WorkflowStep{
				ID: workspace + "-" + name, WorkflowID: workspace + "-flow", Name: name, Position: int32(i), StageType: "work",
			}
			if err := tx.WorkflowStep(step); err != nil {
				return err
			}
		}
		for i := range n {
			task := domain.NewTask(taskID(workspace, i), workspace, "human:ann", domain.TaskDraft{
				WorkflowID: workspace + "-flow", WorkflowStepID: workspace + "-todo", Title: fmt.Sprintf("Task %d", i),
				ExternalID: fmt.Sprintf("external-%d", i),
			}, domain.Placement{StepID: workspace + "-todo", Admitted: true}, int32(i), now)
			if err := tx.Task(task); err != nil {
				return err
			}
		}
		return nil
	}))
	return domain.ResourceVersion(w.term.StoreEpoch, w.head(workspace))
}

func taskID(workspace string, i int) string { return fmt.Sprintf("%s-task-%04d", workspace, i) }

func (w *world) head(workspace string) domain.Version {
	w.Helper()
	version, _, err := w.store.Head(w.Context(), workspace)
	w.must(err)
	return version
}

// approved is the row of an approval of everything.
func approved(key authority.Key) authority.Row {
	return authority.Row{
		Key: key, State: authority.StateActive, Granted: contract.AllCapabilities, Declared: contract.AllCapabilities,
		Required: contract.SetOf(contract.ReadTasks), Allowed: contract.AllCapabilities,
		Vector: authority.Vector{WorkspaceID: key.WorkspaceID, ManifestDigest: digest, PolicyVersion: "test"},
		Seen:   authority.Seen{UID: "approval-uid", Generation: 5},
		Actor:  authority.Actor{Name: "ann", Assurance: authority.ActorClaimed}, Cause: authority.CauseHuman,
	}
}

// fence moves the row of row's key to the next revision with row's content, and
// lets the view see the same.
func (w *world) fence(row authority.Row) authority.Row {
	w.Helper()
	before, err := w.store.Row(w.Context(), row.Key)
	w.must(err)
	hold := row.Hold
	row.Hold, row.Revision, row.UpdatedAt = nil, before.Revision+1, w.clock.Now()
	row.AuditID = authority.AuditID(row.Key, row.Revision)
	row.Sum = row.Vector.Sum()
	w.must(w.store.Fence(w.Context(), w.term, before, row))
	if hold != nil {
		_, err = w.store.Hold(w.Context(), row, *hold)
		w.must(err)
	}
	w.view.set(row.Key, inStep(row))
	return row
}

// inStep is what is observed of a row that has taken in everything.
func inStep(row authority.Row) authority.Observed {
	return authority.Observed{
		Synced: true, Vector: row.Vector.Sum(), Revision: row.Revision,
		Approval: authority.ObservedApproval{
			UID: row.Seen.UID, Generation: row.Seen.Generation, Capabilities: row.Granted, ExpiresAt: row.ExpiresAt,
		},
	}
}

// approve grants an installation everything in a workspace.
func (w *world) approve(installation, workspace string) authority.Row {
	w.Helper()
	return w.fence(approved(authority.Key{InstallationID: installation, WorkspaceID: workspace}))
}

// entries are all entries of a workspace.
func (w *world) entries(workspace string) []journal.Entry {
	w.Helper()
	entries, err := w.store.Entries(w.Context(), workspace, 0, 10_000)
	w.must(err)
	return entries
}

func noGuard() *pluginv1.PendingTransitionGuard {
	return &pluginv1.PendingTransitionGuard{Expectation: &pluginv1.PendingTransitionGuard_ExpectNone{
		ExpectNone: &pluginv1.PendingTransitionGuard_NoTransition{},
	}}
}

func namedGuard(id, version string) *pluginv1.PendingTransitionGuard {
	return &pluginv1.PendingTransitionGuard{Expectation: &pluginv1.PendingTransitionGuard_PendingTransition{
		PendingTransition: &pluginv1.PendingTransitionGuard_NamedTransition{PendingTransitionId: id, ResourceVersion: version},
	}}
}

// detail is the one result in a reader's error.
func detail(t *testing.T, err error) *pluginv1.HostCommandResult {
	t.Helper()
	details := status.Convert(err).Details()
	if len(details) != 1 {
		t.Fatalf("%d details in %v, want 1", len(details), err)
	}
	result, ok := details[0].(*pluginv1.HostCommandResult)
	if !ok {
		t.Fatalf("the detail of %v is a %T", err, details[0])
	}
	return result
}

// buffer keeps a log.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// receipts is the durable recorder; it can be made to fail.
type receipts struct {
	*journal.Recorder
	broken atomic.Bool
}

func (r *receipts) Append(ctx context.Context, receipt journal.Receipt) error {
	if r.broken.Load() {
		return errors.New("disk full: /var/lib/secret/path")
	}
	return r.Recorder.Append(ctx, receipt)
}

// recorded are the durable receipts, chain by chain and in each the oldest first, each
// with the name of its chain.
func (w *world) recorded() iter.Seq2[string, journal.Receipt] {
	return func(yield func(string, journal.Receipt) bool) {
		w.Helper()
		chains, err := w.store.Chains(w.Context())
		w.must(err)
		for _, chain := range chains {
			segments, err := w.store.Segments(w.Context(), chain.Name, 0, 10_000)
			w.must(err)
			for _, segment := range segments {
				for line := range strings.Lines(string(segment.Body)) {
					var receipt journal.Receipt
					w.must(json.Unmarshal([]byte(line), &receipt))
					if !yield(chain.Name, receipt) {
						return
					}
				}
			}
		}
	}
}

// receipt finds the durable receipt of an audit ID.
func (w *world) receipt(auditID string) journal.Receipt {
	w.Helper()
	for chain, receipt := range w.recorded() {
		if receipt.AuditID != auditID {
			continue
		}
		if receipt.Refused() != strings.HasPrefix(chain, "refusals/") {
			w.Errorf("receipt %+v is in chain %s", receipt, chain)
		}
		return receipt
	}
	w.Fatalf("no receipt has the audit ID %q", auditID)
	return journal.Receipt{}
}

// failing is a store whose every transaction can be made to end badly.
type failing struct {
	*store.Store
	mu   sync.Mutex
	fail func() error
	// written, when set, is called after each commit of a command.
	written func()
	// writes counts the commands that asked for a workspace's lock.
	writes atomic.Int64
}

func (f *failing) set(fail func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

func (f *failing) trip() error {
	f.mu.Lock()
	fail := f.fail
	f.mu.Unlock()
	if fail == nil {
		return nil
	}
	return fail()
}

func (f *failing) Read(ctx context.Context, fn func(query.Snapshot) error) error {
	if err := f.trip(); err != nil {
		return err
	}
	return f.Store.Read(ctx, fn)
}

func (f *failing) Write(ctx context.Context, workspaceID string, fn func(command.Tx) error) error {
	f.writes.Add(1)
	if err := f.trip(); err != nil {
		return err
	}
	err := f.Store.Write(ctx, workspaceID, fn)
	if err == nil && f.written != nil {
		f.written()
	}
	return err
}

// sameBytes compares two messages that must not differ.
func sameBytes(t *testing.T, a, b proto.Message) {
	t.Helper()
	if !proto.Equal(a, b) {
		t.Errorf("the answers differ:\n%v\n%v", a, b)
	}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
