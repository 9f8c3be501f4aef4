package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/fence"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/query"
)

var (
	_ command.Store    = (*Store)(nil)
	_ query.Store      = (*Store)(nil)
	_ fence.Ledger     = (*Store)(nil)
	_ journal.Segments = (*Store)(nil)
	_ journal.History  = (*Store)(nil)
	_ journal.Rooted   = (*Store)(nil)
)

// Options are what a store needs besides its engine. All are required.
type Options struct {
	// Now is the clock of entries and of Prune, and where the database has no
	// clock of its own, of the lease. Where it has one, Now counts the rest of a
	// lease down.
	Now func() time.Time
	Log *slog.Logger
	// Fatal is called when the database is in an unknown state, for example
	// after a failed fsync. It must end the process; the store answers nothing
	// any more.
	Fatal func(error)
}

// Store is the durable state. It is safe for concurrent use.
type Store struct {
	engine Engine
	now    func() time.Time
	log    *slog.Logger
	fatal  func(error)

	// opened is Options.Now of when the store was opened.
	opened time.Time
	// cluster is the one that this process has claimed the store for, nil before.
	cluster atomic.Pointer[string]
	// progress is how far this process has seen the store, nil before it has.
	progress atomic.Pointer[progress]
	// The statements that depend on the engine's clock.
	beginning, decision, decisions, vouchedDecision, timedRecord string

	outbox Outbox
	// committed has something when a transaction has committed since it was looked
	// at last.
	committed chan struct{}

	known   *known
	queue   *queue
	workers sync.WaitGroup
	// lost: the database is in an unknown state; nothing runs any more.
	lost atomic.Bool
	// ctx is what commands run under, never a caller's context.
	ctx    context.Context //nolint:containedctx // the store's own life
	cancel context.CancelFunc
	close  func() error
}

// Open brings the schema up to date and starts the store on engine, which it
// owns from then on, also when Open fails. ctx bounds Open only.
func Open(ctx context.Context, engine Engine, options Options) (*Store, error) {
	s := &Store{
		engine: engine, now: options.Now, log: options.Log, fatal: options.Fatal, known: newKnown(), queue: newQueue(),
		outbox: engine.Outbox(), committed: make(chan struct{}, 1),
	}
	s.opened = s.now()
	clock := engine.Clock()
	s.beginning, s.timedRecord = selectBeginning(clock), selectTimedRecord(clock)
	s.decision, s.decisions, s.vouchedDecision = selectDecision(clock), selectDecisions(clock), selectVouchedDecision(clock)
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.close = sync.OnceValue(s.shutDown)
	err := migrate(ctx, engine)
	if err == nil {
		err = forgetForeign(ctx, engine)
	}
	if err != nil {
		s.cancel()
		return nil, errors.Join(fmt.Errorf("open the store: %w", err), engine.Close())
	}
	for range engine.Writers() {
		s.workers.Go(func() { s.work(false) })
	}
	if engine.Writers() > 1 {
		s.workers.Go(func() { s.work(true) })
	}
	return s, nil
}

// Close lets what was begun come to its end, refuses everything else with
// ErrClosed and closes the engine.
func (s *Store) Close() error { return s.close() }

func (s *Store) shutDown() error {
	s.queue.close()
	s.workers.Wait()
	s.cancel()
	err := s.engine.Close()
	s.known.clear()
	if err != nil {
		return fmt.Errorf("close the database: %w", err)
	}
	return nil
}

func (s *Store) newAuditID() string { return uuid.NewString() }

// Write implements command.Store.
func (s *Store) Write(ctx context.Context, workspaceID string, fn func(command.Tx) error) error {
	return s.run(ctx, workspaceLock(workspaceID), false, func(t *tx) error { return fn(t) })
}

// Locks by name. One transaction takes at most one exclusively.
const (
	leaderLock        = "leader"
	installationsLock = "installations"
	rootsLock         = "roots"
)

func workspaceLock(id string) lockName {
	return lockName{name: "workspace/" + id, workspace: id}
}

func installationLock(id string) lockName { return lockName{name: "installation/" + id} }

// read runs fn on one snapshot and types its errors.
func (s *Store) read(ctx context.Context, doing string, fn func(Conn) error) error {
	return failed(doing, s.engine.Read(ctx, fn))
}
