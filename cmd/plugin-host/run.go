package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kandev/plugin-host/controllers"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/events"
	"github.com/kandev/plugin-host/hostsvc/identity"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/rpc"
	"github.com/kandev/plugin-host/hostsvc/store"
	"github.com/kandev/plugin-host/hostsvc/store/postgres"
	"github.com/kandev/plugin-host/hostsvc/store/sqlite"
)

const (
	leaderElectionID = "plugin-host.plugins.kandev.ai"
	// roundsInALease is how many rounds begin in the time of a lease: two can fail
	// before anybody notices.
	roundsInALease = 3
	// proofSettle is how long new admission policies must hold before they count.
	proofSettle = 3 * time.Second
	// pruneEvery is how often versions that no list can show any more go.
	pruneEvery = time.Minute
	// pruneReceiptsEvery is how often receipts that are too old go: each time cuts
	// every chain that has any.
	pruneReceiptsEvery = 24 * time.Hour
	// rootEvery is how often what moved in the chains is rooted.
	rootEvery = time.Minute
	// storeCheck bounds the store's readiness check.
	storeCheck = 2 * time.Second
	// dialTimeout bounds one attempt to connect for the leader's lease.
	dialTimeout = 3 * time.Second
	// flushTime is what receipts in flight have to become durable at the end.
	flushTime = 5 * time.Second
)

// run serves until ctx ends, or until something fails that only a new process
// can mend. Calls in flight end before the store closes.
func run(ctx context.Context, s settings, log *slog.Logger) (err error) {
	cursors, err := s.cursors()
	if err != nil {
		return err
	}
	sealed, err := s.vault()
	if err != nil {
		return err
	}
	cluster, err := s.cluster()
	if err != nil {
		return err
	}
	if s.namespace, err = s.ownNamespace(); err != nil {
		return err
	}
	if s.leaderElectionNamespace == "" {
		s.leaderElectionNamespace = s.namespace
	}
	ops, err := newOperations(ctx, s, log)
	if err != nil {
		return err
	}
	defer ops.close(ctx, log)
	// A database in an unknown state ends the process, whatever else runs.
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	durable, err := open(ctx, s, log, fail)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, durable.Close()) }()
	if s.seedFile != "" {
		if err := seed(ctx, durable, s.seedFile, log); err != nil {
			return fmt.Errorf("--seed-file: %w", err)
		}
	}
	// The last root covers the last receipts.
	defer func() { endRoots(ctx, durable, log) }()
	receipts := journal.NewRecorder(durable, uuid.NewString(), time.Now) //nolint:contextcheck // it outlives every call
	defer func() {
		flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		err = errors.Join(err, receipts.Close(flush))
	}()

	workloads, err := s.workloads(ctx)
	if err != nil {
		return err
	}
	policy := authority.BuiltInPolicy()
	seen := view.New(policy)
	mgr, err := newManager(s, cluster, ops.server(s, durable, log), log)
	if err != nil {
		return err
	}
	if mgr, err = ops.readiness.Manager(mgr); err != nil {
		return err
	}
	configs, err := addPluginData(ctx, mgr, durable, sealed, log)
	if err != nil {
		return err
	}
	if err := controllers.Add(ctx, mgr, controllers.Options{
		Store: ops.metrics.Store(ledger{durable}, ops.tracing.Tracer()), Observer: ops.metrics.Controllers(ops.tracing.Tracer()),
		View: seen, Policy: policy, Now: time.Now, Random: rand.Reader,
		Namespace: s.namespace, AdoptFrom: s.adoptFrom, RoundEvery: s.lease / roundsInALease, LeaseLife: s.lease,
		ProofSettle: proofSettle, EventRetention: s.eventRetention, Workloads: workloads, ConfigSecrets: configs,
	}); err != nil {
		return fmt.Errorf("add the controllers: %w", err)
	}
	if err := mgr.Add(pruner(durable, log)); err != nil {
		return fmt.Errorf("add the pruner: %w", err)
	}
	if err := mgr.Add(receiptPruner(durable, s.receiptRetention, pruneReceiptsEvery, log)); err != nil {
		return fmt.Errorf("add the pruner of receipts: %w", err)
	}
	if err := mgr.Add(transitionSweeper(durable, sweepTransitionsEvery, log)); err != nil {
		return fmt.Errorf("add the sweeper of transitions: %w", err)
	}
	if err := mgr.Add(rooter(durable, rootEvery, log)); err != nil {
		return fmt.Errorf("add the rooter: %w", err)
	}
	if err := addChecks(mgr, durable, seen); err != nil {
		return err
	}
	authenticator, err := newAuthenticator(cluster, mgr, seen, ops.metrics)
	if err != nil {
		return err
	}
	if err := ops.follow(mgr, durable, authenticator); err != nil {
		return err
	}
	recorded := ops.metrics.Receipts(receipts)
	hub := events.NewHub(events.Config{
		Store: durable, Rows: durable, View: seen, Legacy: seen, Plugins: seen, Receipts: recorded, Cursors: cursors, Now: time.Now,
		NewAuditID: uuid.NewString, Log: log, Observer: ops.metrics,
	})
	server, err := rpc.NewServer(rpc.Config{
		CertFile: s.tlsCertFile, KeyFile: s.tlsKeyFile, Identity: authenticator,
		Reader: &query.Reader{
			Store: durable, View: seen, Receipts: recorded, Cursors: cursors, Now: time.Now, NewAuditID: uuid.NewString,
		},
		Executor: &command.Executor{
			Store: durable, View: seen, Receipts: recorded, Now: time.Now, NewID: newID, NewAuditID: uuid.NewString,
		},
		Legacy: seen, V1: newLegacy(durable, sealed, configs),
		Events: hub, Emitter: &command.Emitter{Store: durable, Now: time.Now, NewID: newID},
		Now: time.Now, Log: log, Ready: ops.readiness.Check, Observer: ops.metrics, Tracer: ops.tracing.Calls(),
	})
	if err != nil {
		return fmt.Errorf("make the Host: %w", err)
	}
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", s.grpcListen)
	if err != nil {
		return fmt.Errorf("--grpc-listen: %w", err)
	}
	log.Info("Serving", "grpc", listener.Addr().String(), "health", s.healthListen, "metrics", s.metricsListen, "store", s.store)
	group, running := errgroup.WithContext(ctx)
	context.AfterFunc(running, ops.readiness.Drain)
	// The manager ends once the calls in flight have: until then, they are checked
	// against what it watches, and the lease is kept.
	managing, end := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error {
		defer end()
		return server.Serve(running, listener)
	})
	group.Go(func() error {
		if err := mgr.Start(managing); err != nil {
			return fmt.Errorf("run the controllers: %w", err)
		}
		return nil
	})
	err = group.Wait()
	if lost := context.Cause(ctx); errors.Is(lost, store.ErrDatabaseLost) {
		err = errors.Join(lost, err)
	}
	return err
}

func open(ctx context.Context, s settings, log *slog.Logger, fatal func(error)) (*store.Store, error) {
	engine, err := openEngine(ctx, s)
	if err != nil {
		return nil, err
	}
	durable, err := store.Open(ctx, engine, store.Options{
		Now: time.Now, Log: log,
		Fatal: func(err error) { fatal(fmt.Errorf("%w: %w", store.ErrDatabaseLost, err)) },
	})
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	return durable, nil
}

func openEngine(ctx context.Context, s settings) (store.Engine, error) {
	if s.store == storeSQLite {
		engine, err := sqlite.Open(s.sqlitePath)
		if err != nil {
			return nil, fmt.Errorf("--sqlite-path: %w", err)
		}
		return engine, nil
	}
	dsn, err := s.postgresDSN()
	if err != nil {
		return nil, err
	}
	engine, err := postgres.Open(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("--postgres-dsn-file: %w", err)
	}
	return engine, nil
}

func newManager(s settings, cluster *rest.Config, shown metricsserver.Options, log *slog.Logger) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	if err := controllers.AddToScheme(scheme); err != nil {
		return nil, err
	}
	renew := s.leaderLease * 2 / 3
	lease, err := s.leaderLock(cluster, renew)
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(cluster, ctrl.Options{
		Scheme: scheme, Logger: logr.FromSlogHandler(log.Handler()), Cache: controllers.CacheOptions(),
		Metrics:                shown,
		HealthProbeBindAddress: s.healthListen,
		LeaderElection:         s.leaderElect, LeaderElectionID: leaderElectionID, LeaderElectionResourceLockInterface: lease,
		LeaseDuration: &s.leaderLease, RenewDeadline: &renew, RetryPeriod: new(s.leaderLease * 2 / 15),
		// The process ends when the manager does, and fences check the term.
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	return mgr, nil
}

// ownConnections lets the leader's lease have connections of its own: no load
// delays its renewal. Clients of equal settings share theirs; a dialer is
// compared by its address.
func ownConnections(cluster *rest.Config) *rest.Config {
	own := rest.CopyConfig(cluster)
	own.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	return own
}

func newAuthenticator(cluster *rest.Config, mgr manager.Manager, seen *view.View, observer identity.Observer) (*identity.Authenticator, error) {
	reviewer, err := identity.NewKubeReviewer(cluster)
	if err != nil {
		return nil, fmt.Errorf("make the token reviewer: %w", err)
	}
	objects, err := identity.NewKubeCluster(cluster)
	if err != nil {
		return nil, fmt.Errorf("make the reader of pods: %w", err)
	}
	authenticator := identity.NewAuthenticator(identity.Config{
		Reviewer: reviewer, Cluster: objects, Directory: directory{seen}, Now: time.Now, Observer: observer,
	})
	if err := mgr.Add(authenticator); err != nil {
		return nil, fmt.Errorf("look at the plugins' pods: %w", err)
	}
	return authenticator, nil
}

// addChecks names what readiness waits for: the store, each watch, and the
// comparison of the rows with the history.
func addChecks(mgr manager.Manager, durable *store.Store, seen *view.View) error {
	checks := map[string]healthz.Checker{
		"store": func(request *http.Request) error {
			ctx, cancel := context.WithTimeout(request.Context(), storeCheck)
			defer cancel()
			_, err := durable.Epochs(ctx)
			return err
		},
	}
	for _, source := range seen.Missing() {
		checks[source] = func(*http.Request) error {
			if slices.Contains(seen.Missing(), source) {
				return fmt.Errorf("%s: not complete yet", source)
			}
			return nil
		}
	}
	for name, check := range checks {
		if err := mgr.AddReadyzCheck(name, check); err != nil {
			return fmt.Errorf("add the readiness check %s: %w", name, err)
		}
	}
	if err := mgr.AddHealthzCheck("process", healthz.Ping); err != nil {
		return fmt.Errorf("add the liveness check: %w", err)
	}
	return nil
}

// pruner removes versions that no list can show any more; the leader does.
func pruner(durable *store.Store, log *slog.Logger) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		ticker := time.NewTicker(pruneEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return nil
			}
			if err := durable.Prune(ctx, time.Now().Add(-store.SnapshotLife)); err != nil && ctx.Err() == nil {
				log.Error("Pruning failed; the next one is due", "after", pruneEvery, "error", err)
			}
		}
	})
}

// newID is time-ordered, so that new rows lie together.
func newID() string { return uuid.Must(uuid.NewV7()).String() }
