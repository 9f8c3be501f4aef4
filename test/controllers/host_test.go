package controllers_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/controllers"
	"github.com/kandev/plugin-host/controllers/plugindata"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/fence"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/store"
	"github.com/kandev/plugin-host/hostsvc/store/postgres"
	"github.com/kandev/plugin-host/hostsvc/store/sqlite"
)

// database outlives the processes that use it; so does the namespace that they
// run in, where the cluster remembers their store.
type database struct {
	open      func() (store.Engine, error)
	path      string // of the file, on SQLite
	namespace string
}

const (
	onSQLite   = "SQLite"
	onPostgres = "PostgreSQL"
)

func newDatabase(ctx context.Context, engine string) *database {
	GinkgoHelper()
	if engine == onPostgres {
		server, err := startPostgres()
		Expect(err).NotTo(HaveOccurred())
		dsn, err := server.NewDatabase(ctx)
		Expect(err).NotTo(HaveOccurred())
		return databaseAt(ctx, dsn)
	}
	path := filepath.Join(GinkgoT().TempDir(), "host.db")
	d := &database{open: func() (store.Engine, error) { return sqlite.Open(path) }, path: path, namespace: unique("host")}
	newNamespace(ctx, d.namespace)
	letHostIn(ctx, d.namespace)
	return d
}

func databaseAt(ctx context.Context, dsn string) *database {
	GinkgoHelper()
	d := &database{
		open:      func() (store.Engine, error) { return postgres.Open(context.Background(), dsn) },
		namespace: unique("host"),
	}
	newNamespace(ctx, d.namespace)
	letHostIn(ctx, d.namespace)
	return d
}

// lose takes the file away.
func (d *database) lose() {
	GinkgoHelper()
	for _, part := range d.files() {
		Expect(os.RemoveAll(part)).To(Succeed())
	}
}

// files are those that the database may consist of.
func (d *database) files() []string { return []string{d.path, d.path + "-wal", d.path + "-shm"} }

// copyTo copies the files as they are; the processes have ended.
func (d *database) copyTo(dir string) {
	GinkgoHelper()
	for _, part := range d.files() {
		text, err := os.ReadFile(part)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(dir, filepath.Base(part)), text, 0o600)).To(Succeed())
	}
}

// restore replaces the files by those of a copy.
func (d *database) restore(dir string) {
	GinkgoHelper()
	d.lose()
	(&database{path: filepath.Join(dir, filepath.Base(d.path))}).copyTo(filepath.Dir(d.path))
}

func (d *database) store() *store.Store {
	GinkgoHelper()
	engine, err := d.open()
	Expect(err).NotTo(HaveOccurred())
	s, err := store.Open(context.Background(), engine, store.Options{
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Fatal: func(err error) { panic(fmt.Sprintf("the store is lost: %v", err)) },
	})
	Expect(err).NotTo(HaveOccurred())
	return s
}

// wire is a process's way to the API server, which can be cut, or deliver nothing
// more of any watch.
type wire struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
	// thawed is closed when watches deliver again; nil: they do.
	thawed chan struct{}
	// poisoned is the path of an object that can't be decoded, "" for none.
	poisoned string
	// reads counts the reads of single approvals.
	reads atomic.Int64
}

// poison makes one approval such that no client can decode it.
func (w *wire) poison(namespace, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.poisoned = "/namespaces/" + namespace + "/plugincapabilityapprovals/" + name
}

func (w *wire) poisons(request *http.Request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.poisoned != "" && request.Method == http.MethodGet && strings.HasSuffix(request.URL.Path, w.poisoned) &&
		!strings.Contains(request.Header.Get("Accept"), "as=")
}

// freeze keeps back what watches deliver from now on; every other call goes
// through. So does a proxy that lives and swallows events.
func (w *wire) freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.thawed = make(chan struct{})
}

func (w *wire) thaw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.thawed)
	w.thawed = nil
}

func (w *wire) frozen() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.thawed
}

// through is the round tripper of a process.
func (w *wire) through(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if request.Method == http.MethodGet && strings.Contains(request.URL.Path, "/plugincapabilityapprovals/") {
			w.reads.Add(1)
		}
		if err == nil && w.poisons(request) {
			_ = response.Body.Close() // it is replaced
			response.Body = io.NopCloser(strings.NewReader(`{"apiVersion":"plugins.kandev.ai/v1alpha1","kind":"PluginCapabilityApproval","spec":{"capabilities":1}}`))
			response.ContentLength = -1
			response.Header.Del("Content-Length")
		}
		if err == nil && request.URL.Query().Get("watch") == "true" {
			response.Body = &watched{ReadCloser: response.Body, wire: w, closed: make(chan struct{})}
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// watched is what a watch delivers.
type watched struct {
	io.ReadCloser
	wire   *wire
	once   sync.Once
	closed chan struct{}
}

func (b *watched) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if frozen := b.wire.frozen(); frozen != nil {
		select {
		case <-frozen:
		case <-b.closed:
			return 0, io.ErrClosedPipe
		}
	}
	return n, err
}

func (b *watched) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return nil, errors.Join(errors.New("the API server is away"), conn.Close())
	}
	w.conns = append(w.conns, conn)
	return conn, nil
}

// sever takes the API server away, with every watch and call in flight.
func (w *wire) sever() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	for _, conn := range w.conns {
		_ = conn.Close() // the other side may have
	}
	w.conns = nil
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = false
}

// step is a place in a pass at which a process can be killed.
type step string

const (
	beforeHold   step = "before hold"
	afterHold    step = "after hold"
	beforeEvent  step = "before event"
	afterEvent   step = "after event"
	beforeFence  step = "before fence"
	afterFence   step = "after fence"
	beforeStatus step = "before status"
	afterStatus  step = "after status"
)

// steps are all of them, in the order of a pass.
var steps = []step{beforeHold, afterHold, beforeEvent, afterEvent, beforeFence, afterFence, beforeStatus, afterStatus}

var errKilled = errors.New("the process was killed")

// host is one process: the store, the view, the controllers.
type host struct {
	store *store.Store
	view  *view.View

	stop context.CancelFunc
	done chan struct{}
	// failure is why the manager ended, once done is closed.
	failure error

	// killAt is the step at which this process dies, "" for never.
	killAt atomic.Pointer[step]
	dead   atomic.Bool
	killed chan struct{}
	// failHolds is how many holds fail from now on, as a store that is down.
	failHolds atomic.Int64
	namespace string
	adoptFrom string
	// elect: it leads only while it has the lease of its namespace.
	elect  bool
	health string
	// roundEvery is the time between two rounds.
	roundEvery time.Duration
	// retention is how old an event must be to be pruned.
	retention time.Duration
	// workloads are how plugins run that the process runs.
	workloads controllers.Workloads
	// dieAtDelete is the deletion of an event at which it dies, 0 for none.
	dieAtDelete atomic.Int64
	// blind: it gets no answer when it reads an admission policy, as long as that
	// is so.
	blind atomic.Bool
	// proven is what it found of the admission policies last.
	proven atomic.Bool
	// silent: its dry-run requests get no answer.
	silent atomic.Bool
	// beforeMark is called before a processed version is recorded, and afterStatus
	// with each status of an approval that was written.
	beforeMark  atomic.Pointer[func(authority.Seen)]
	afterStatus atomic.Pointer[func(runtime.ApplyConfiguration)]
	// wire is the way to the API server.
	wire wire
	// beforeFenceStart is called before each row that is rebuilt, nil for nothing.
	beforeFenceStart func()
	// skew moves this process's clock.
	skew atomic.Int64

	receipts *journal.Recorder
}

// observer is what a process tells metrics.
type observer struct{ host *host }

func (observer) Pass(ctx context.Context, _ authority.Key) (context.Context, func(error)) {
	return ctx, func(error) {}
}
func (observer) Round(time.Duration, error) {}
func (observer) Watched(time.Duration)      {}
func (o observer) Proven(proven bool)       { o.host.proven.Store(proven) }

// blindfold keeps a process from reading single admission policies.
type blindfold struct {
	host *host
	next http.RoundTripper
}

func (b blindfold) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasPrefix(r.URL.Path, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/") {
		for b.host.blind.Load() {
			select {
			case <-time.After(20 * time.Millisecond):
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
	}
	return b.next.RoundTrip(r)
}

func (h *host) now() time.Time { return time.Now().Add(time.Duration(h.skew.Load())) }

// inAnHour is an end that a grant reaches by expire, and not before, however slow the
// machine is.
func (h *host) inAnHour() *metav1.Time {
	return &metav1.Time{Time: h.now().Add(time.Hour).UTC().Truncate(time.Second)}
}

// expire moves this process's clock past what inAnHour has said.
func (h *host) expire() { h.skew.Add(int64(time.Hour)) }

// at is called before and after each effect. After its death a process has no
// effect any more, whatever its goroutines still try.
func (h *host) at(here step, armed *step) error {
	if h.dead.Load() {
		return errKilled
	}
	if armed != nil && *armed == here {
		h.die()
		return errKilled
	}
	return nil
}

// die ends the process from within.
func (h *host) die() {
	if h.dead.CompareAndSwap(false, true) {
		close(h.killed)
		h.stop()
	}
}

// around dies at what was armed before the effect began: a test may have seen
// the effect, and armed for the next one, before this returns.
func (h *host) around(before, after step, effect func() error) error {
	armed := h.killAt.Load()
	if err := h.at(before, armed); err != nil {
		return err
	}
	if err := effect(); err != nil {
		return err
	}
	return h.at(after, armed)
}

// kill ends the process as it stands.
func (h *host) kill() {
	if h.dead.CompareAndSwap(false, true) {
		close(h.killed)
	}
	h.wait()
}

// wait waits for the end of a process, and closes its store as its death would.
func (h *host) wait() {
	GinkgoHelper()
	h.stop()
	Eventually(h.done).WithTimeout(patience).Should(BeClosed())
	Expect(h.store.Close()).To(Succeed())
}

// start runs a process on a database of its own.
func start(db *database) *host {
	GinkgoHelper()
	return startWithRounds(db, roundEvery)
}

// roundEvery is the time between two rounds where a test doesn't say another.
const roundEvery = 500 * time.Millisecond

// leaseLife is how long a lease lasts under rounds of that distance.
func leaseLife(every time.Duration) time.Duration { return 6 * every }

// startWithRounds runs one that makes a round as often as the test wants.
func startWithRounds(db *database, every time.Duration) *host {
	GinkgoHelper()
	h := newHost(db)
	h.roundEvery = every
	startHost(h)
	return h
}

// startHost runs a process until the end of the spec.
func startHost(h *host) {
	GinkgoHelper()
	h.receipts = journal.NewRecorder(h.store, uuid.NewString(), h.now)
	run(h)
	DeferCleanup(func() {
		h.stop()
		Eventually(h.done).WithTimeout(patience).Should(BeClosed())
		Expect(h.store.Close()).To(Succeed())
	})
}

// beside runs another process's controllers on the same store.
func beside(other *host) *host {
	GinkgoHelper()
	h := newHostOn(other.store, other.namespace)
	h.receipts = other.receipts
	run(h)
	DeferCleanup(func() {
		h.stop()
		Eventually(h.done).WithTimeout(patience).Should(BeClosed())
	})
	return h
}

func newHost(db *database) *host {
	GinkgoHelper()
	return newHostOn(db.store(), db.namespace)
}

func newHostOn(s *store.Store, namespace string) *host {
	return &host{store: s, namespace: namespace, roundEvery: roundEvery, view: view.New(authority.BuiltInPolicy()), done: make(chan struct{}), killed: make(chan struct{})}
}

func run(h *host) {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	mgr, err := h.manager(ctx)
	Expect(err).NotTo(HaveOccurred())
	go func() {
		h.failure = mgr.Start(ctx)
		close(h.done)
	}()
}

// secretsEvery is how often a process reads the Secrets of configurations.
const secretsEvery = 100 * time.Millisecond

// manager wires a process up, as cmd/plugin-host does.
func (h *host) manager(ctx context.Context) (ctrl.Manager, error) {
	skipNames := true
	reach := asHost(config)
	reach.Dial = h.wire.dial
	reach.Wrap(func(next http.RoundTripper) http.RoundTripper { return blindfold{h, next} })
	reach.Wrap(h.wire.through)
	h.health = freeAddress()
	mgr, err := ctrl.NewManager(reach, ctrl.Options{
		Scheme: scheme, Logger: hostLog(), Cache: controllers.CacheOptions(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: &skipNames},
		NewClient:  h.client, HealthProbeBindAddress: h.health,
		LeaderElection: h.elect, LeaderElectionID: "plugin-host", LeaderElectionNamespace: h.namespace,
		LeaseDuration: new(2 * time.Second), RenewDeadline: new(1500 * time.Millisecond), RetryPeriod: new(250 * time.Millisecond),
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	configs := plugindata.NewSource(mgr.GetAPIReader(), secretsEvery, slog.New(slog.DiscardHandler))
	if err := errors.Join(configs.Register(ctx, mgr.GetCache()), mgr.Add(configs)); err != nil {
		return nil, fmt.Errorf("add the configuration of plugins: %w", err)
	}
	return mgr, controllers.Add(ctx, mgr, controllers.Options{
		Store: &ledger{Store: h.store, host: h}, View: h.view, Policy: authority.BuiltInPolicy(),
		Now: h.now, Random: rand.Reader, Namespace: h.namespace, AdoptFrom: h.adoptFrom,
		RoundEvery: h.roundEvery, LeaseLife: leaseLife(h.roundEvery),
		EventRetention: h.retention, Observer: observer{h}, Workloads: h.workloads,
		ConfigSecrets: configs,
	})
}

// isReady asks for one of the process's readiness checks.
func (h *host) isReady(ctx context.Context, check string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.health+"/readyz/"+check, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode == http.StatusOK {
		return err
	}
	return errors.New(string(text))
}

func hostLog() logr.Logger {
	if testingVerbose {
		return GinkgoLogr
	}
	return logr.Discard()
}

// client is the process's client with its steps.
func (h *host) client(config *rest.Config, options client.Options) (client.Client, error) {
	inner, err := client.NewWithWatch(config, options)
	if err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	return interceptor.NewClient(inner, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, ok := o.(*v1alpha1.PluginCapabilityApproval); ok && h.silent.Load() {
				return silence()
			}
			if _, ok := o.(*v1alpha1.PluginCapabilityApprovalEvent); !ok {
				return c.Create(ctx, o, opts...)
			}
			return h.around(beforeEvent, afterEvent, func() error { return c.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if h.dead.Load() || h.dieAtDelete.Add(-1) == 0 {
				h.die()
				return errKilled
			}
			return c.Delete(ctx, o, opts...)
		},
		SubResourceApply: func(ctx context.Context, c client.Client, subresource string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			if kind, ok := o.(interface{ GetKind() string }); !ok || kind.GetKind() != "PluginCapabilityApproval" {
				if h.dead.Load() {
					return errKilled
				}
				return c.SubResource(subresource).Apply(ctx, o, opts...)
			}
			return h.around(beforeStatus, afterStatus, func() error {
				err := c.SubResource(subresource).Apply(ctx, o, opts...)
				if after := h.afterStatus.Load(); err == nil && after != nil {
					(*after)(o)
				}
				return err
			})
		},
	}), nil
}

// ledger is the store as the controllers see it, with its steps.
type ledger struct {
	*store.Store
	host *host
}

func (l *ledger) Term(ctx context.Context) (fence.Term, error) {
	epochs, err := l.Epochs(ctx)
	return epochs.Term, err
}

func (l *ledger) Bind(ctx context.Context, workspaceID, namespace, namespaceUID string) (authority.Workspace, error) {
	bound, err := l.Store.Bind(ctx, workspaceID, namespace, namespaceUID)
	return authority.Workspace{ID: bound.WorkspaceID, Namespace: bound.Namespace, NamespaceUID: bound.NamespaceUID}, err
}

func (l *ledger) Bindings(ctx context.Context) ([]authority.Workspace, error) {
	bindings, err := l.Store.Bindings(ctx)
	all := make([]authority.Workspace, len(bindings))
	for i, b := range bindings {
		all[i] = authority.Workspace{ID: b.WorkspaceID, Namespace: b.Namespace, NamespaceUID: b.NamespaceUID}
	}
	return all, err
}

func (l *ledger) AdoptInstallation(ctx context.Context, objectUID, name, installationID string) error {
	err := l.Store.AdoptInstallation(ctx, objectUID, name, installationID)
	if errors.Is(err, store.ErrInstallationKnown) {
		return controllers.ErrInstallationKnown
	}
	return err
}

func (l *ledger) Rebind(ctx context.Context, workspaceID, from, namespace, namespaceUID string) (authority.Workspace, error) {
	bound, err := l.Store.Rebind(ctx, workspaceID, from, namespace, namespaceUID)
	return authority.Workspace{ID: bound.WorkspaceID, Namespace: bound.Namespace, NamespaceUID: bound.NamespaceUID}, err
}

func (l *ledger) Claim(ctx context.Context, clusterUID, adoptFrom string) error {
	return otherCluster(l.Store.Claim(ctx, clusterUID, adoptFrom))
}

func (l *ledger) BeginRound(ctx context.Context) (controllers.Round, error) {
	round, err := l.Store.BeginRound(ctx)
	return controllers.Round(round), otherCluster(err)
}

func (l *ledger) RenewLease(ctx context.Context, round controllers.Round, life time.Duration) (uint64, error) {
	if l.host.dead.Load() {
		return 0, errKilled
	}
	beat, err := l.Store.RenewLease(ctx, store.Round(round), life)
	return beat, otherCluster(err)
}

func otherCluster(err error) error {
	if errors.Is(err, store.ErrOtherCluster) {
		return errors.Join(controllers.ErrOtherCluster, err)
	}
	return err
}

func (l *ledger) Hold(ctx context.Context, from authority.Row, hold authority.Hold) (row authority.Row, err error) {
	if l.host.failHolds.Add(-1) >= 0 {
		return row, store.ErrUnavailable
	}
	err = l.host.around(beforeHold, afterHold, func() (err error) {
		row, err = l.Store.Hold(ctx, from, hold)
		return err
	})
	return row, err
}

func (l *ledger) Fence(ctx context.Context, term fence.Term, from, to authority.Row) error {
	return l.host.around(beforeFence, afterFence, func() error { return l.Store.Fence(ctx, term, from, to) })
}

func (l *ledger) FenceStart(ctx context.Context, term fence.Term, event authority.Event) error {
	if before := l.host.beforeFenceStart; before != nil {
		before()
	}
	return l.Store.FenceStart(ctx, term, event)
}

func (l *ledger) MarkSeen(ctx context.Context, term fence.Term, from authority.Row, seen authority.Seen) error {
	if l.host.dead.Load() {
		return errKilled
	}
	if before := l.host.beforeMark.Load(); before != nil {
		(*before)(seen)
	}
	return l.Store.MarkSeen(ctx, term, from, seen)
}

// executor is what the Host runs commands with.
func (h *host) executor() *command.Executor {
	return &command.Executor{
		Store: h.store, View: h.view, Receipts: h.receipts, Now: h.now, NewID: uuid.NewString, NewAuditID: uuid.NewString,
	}
}

// decide is the decision that the Host would make now.
func (h *host) decide(ctx context.Context, key authority.Key, call authority.Call) (*admission.Refusal, error) {
	row, err := h.store.AuthorityRow(ctx, key)
	if err != nil {
		return nil, err
	}
	round, err := h.store.BeginRound(ctx)
	if err != nil {
		return nil, err
	}
	current := round.Complete && round.Begun.Before(round.LeasedUntil)
	return admission.Authorise(row, current, h.view, key, call, h.now()), nil
}

// testingVerbose shows what the processes log.
var testingVerbose = os.Getenv("VERBOSE") != ""
