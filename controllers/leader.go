package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

// leader begins this process's terms in office: a new leader epoch, then the
// comparison of every row with its newest event. Only after that does "no row"
// mean "never approved", and only then do passes run. A term ends with the
// process, or with the store's epoch.
type leader struct {
	store    Store
	events   *events
	bindings *bindings
	view     *view.View
	marks    *marks
	schemas  *schemas
	// all asks for a pass of every row.
	all func(context.Context) error
	// beginIn is told the store and its epoch that a term begins in.
	beginIn func(storeEpoch)
	log     logr.Logger

	mu   sync.Mutex
	term fence.Term
	// leading is closed while term is in force.
	leading chan struct{}
	deposed chan error
	again   chan struct{}
}

func newLeader(store Store, e *events, b *bindings, v *view.View, m *marks, s *schemas, log logr.Logger) *leader {
	return &leader{
		store: store, events: e, bindings: b, view: v, marks: m, schemas: s, log: log,
		leading: make(chan struct{}), deposed: make(chan error, 1), again: make(chan struct{}, 1),
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (l *leader) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. Its error ends the process.
func (l *leader) Start(ctx context.Context) error {
	select {
	case <-l.schemas.current:
	case <-ctx.Done():
		return nil
	}
	for {
		err := l.lead(ctx)
		if errors.Is(err, fence.ErrOlderStore) {
			continue // which the next comparison notices
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case err := <-l.deposed:
			return err
		case <-l.again:
			select {
			case err := <-l.deposed:
				// Another process leads: a new term would take it back.
				return err
			default:
			}
			l.resign()
		case <-ctx.Done():
			return nil
		}
	}
}

// lead begins a term. It returns an error when ctx ends, or another process
// leads by now.
func (l *leader) lead(ctx context.Context) error {
	if err := retry(ctx, l.log, "Comparing the store with what the cluster knows of it", l.beginEpoch); err != nil {
		return err
	}
	// The term is begun once: a process that was deposed meanwhile must not take
	// it back from the one that leads.
	var term fence.Term
	if err := retry(ctx, l.log, "Beginning a term", func(ctx context.Context) (err error) {
		term, err = l.store.Lead(ctx)
		return err
	}); err != nil {
		return err
	}
	if err := retry(ctx, l.log, "Reading which store the term is in", func(ctx context.Context) error {
		round, err := l.store.BeginRound(ctx)
		if err == nil {
			l.beginIn(storeEpoch{round.StoreID, term.StoreEpoch})
		}
		return err
	}); err != nil {
		return err
	}
	var deposed error
	if err := retry(ctx, l.log, "Comparing the rows with their events", func(ctx context.Context) error {
		err := l.compare(ctx, term)
		if err == nil {
			err = l.store.Complete(ctx, term)
		}
		if errors.Is(err, fence.ErrDeposed) {
			deposed, err = err, nil
		}
		return err
	}); err != nil {
		return err
	}
	if deposed != nil {
		return deposed
	}
	l.view.MarkComplete(view.SourceLedger)
	if err := retry(ctx, l.log, "Asking for a pass of every row", l.all); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term = term
	close(l.leading)
	l.log.Info("Leading", "storeEpoch", term.StoreEpoch, "leaderEpoch", term.LeaderEpoch)
	return nil
}

// beginEpoch begins a new store epoch where the store isn't what the cluster
// knows. A crash before the mark is written costs one more epoch.
func (l *leader) beginEpoch(ctx context.Context) error {
	known, err := l.marks.read(ctx)
	if err != nil {
		return err
	}
	round, err := l.store.BeginRound(ctx)
	if err != nil {
		return fmt.Errorf("read the store's identity: %w", err)
	}
	why := known.allows(round)
	if why == nil {
		return nil
	}
	l.log.Error(why, "A new store epoch begins", "epoch", round.StoreEpoch)
	if err := l.store.BeginEpoch(ctx); err != nil {
		return fmt.Errorf("begin a new store epoch: %w", err)
	}
	begun, err := l.store.BeginRound(ctx)
	if err != nil {
		return fmt.Errorf("read the store's identity: %w", err)
	}
	if begun.Older || begun.StoreID != round.StoreID || begun.StoreEpoch <= round.StoreEpoch {
		// The cluster must not come to know a store that no epoch has begun in.
		return fmt.Errorf("epoch %d of store %s after %d of %s: %w", begun.StoreEpoch, begun.StoreID, round.StoreEpoch, round.StoreID, errStoreBehind)
	}
	return l.marks.write(ctx, known, begun.StoreID, begun.Beat)
}

// resign ends a term whose store isn't what the cluster knows.
func (l *leader) resign() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term, l.leading = fence.Term{}, make(chan struct{})
	select {
	case <-l.again: // several may have asked
	default:
	}
}

// renew asks for another term, in another store epoch; a process that doesn't
// lead leaves that to the one that does.
func (l *leader) renew() {
	if !l.leads() {
		return
	}
	select {
	case l.again <- struct{}{}:
	default:
	}
}

// leads tells whether a term of this process is in force, as far as it knows.
func (l *leader) leads() bool {
	_, leading := l.state()
	select {
	case <-leading:
		return true
	default:
		return false
	}
}

func (l *leader) state() (fence.Term, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term, l.leading
}

// errNoTerm: this process has ended its own term and not begun the next one.
var errNoTerm = errors.New("no term of this process is in force")

// current ends the process when another one leads by now: one that was stopped
// for a while may have nothing to fence by which it would learn that.
func (l *leader) current(ctx context.Context) error {
	mine, _ := l.state()
	if mine == (fence.Term{}) {
		return errNoTerm
	}
	term, err := l.store.Term(ctx)
	if err != nil {
		return fmt.Errorf("read the term in force: %w", err)
	}
	if term != mine {
		err := fmt.Errorf("term %d.%d is over, %d.%d is in force: %w", mine.StoreEpoch, mine.LeaderEpoch,
			term.StoreEpoch, term.LeaderEpoch, fence.ErrDeposed)
		l.depose(mine, err)
		return err
	}
	return nil
}

// wait returns the term once it has begun.
func (l *leader) wait(ctx context.Context) (fence.Term, error) {
	for {
		term, leading := l.state()
		select {
		case <-leading:
			if term != (fence.Term{}) {
				return term, nil
			}
		case <-ctx.Done():
			return fence.Term{}, fmt.Errorf("wait for the term to begin: %w", ctx.Err())
		}
	}
}

// depose ends the process: another one leads. In an older copy of the store nobody
// does, and this process, which remembers the store, begins another term. A term
// that this process has ended itself says nothing.
func (l *leader) depose(term fence.Term, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if term != l.term {
		return
	}
	if errors.Is(err, fence.ErrOlderStore) {
		select {
		case l.again <- struct{}{}:
		default:
		}
		return
	}
	select {
	case l.deposed <- err:
	default:
	}
}

// compare takes every row that is behind its newest event straight to it.
func (l *leader) compare(ctx context.Context, term fence.Term) error {
	newest, highest, err := l.events.newest(ctx, func(err error) {
		l.log.Error(err, "An event can't be read back; its sequence answers UNAVAILABLE")
	})
	if err != nil {
		return err
	}
	// Another leader may have passed a workspace on.
	if err := l.bindings.load(ctx); err != nil {
		return err
	}
	rows, err := l.store.Rows(ctx)
	if err != nil {
		return fmt.Errorf("list the rows: %w", err)
	}
	revisions := make(map[authority.Key]uint64, len(rows))
	for _, row := range rows {
		revisions[row.Key] = row.Revision
	}
	for key, revision := range highest {
		l.view.SetRevision(key, revision)
		event, ok := newest[key]
		if !ok || revisions[key] >= revision {
			continue
		}
		l.log.Info("Rebuilding a row from its newest event", "installation", key.InstallationID, "workspace", key.WorkspaceID, "revision", revision)
		if v := event.Row.Vector; v.WorkspaceNamespaceUID != "" {
			// A lost store has lost its bindings too; the history knows them.
			if _, err := l.bindings.bind(ctx, v.WorkspaceID, v.WorkspaceNamespace, v.WorkspaceNamespaceUID); err != nil {
				return err
			}
		}
		if err := l.store.FenceStart(ctx, term, event); err != nil {
			return fmt.Errorf("take installation %s in workspace %s to revision %d: %w", key.InstallationID, key.WorkspaceID, revision, err)
		}
	}
	return nil
}

// retry runs fn until it succeeds; it returns an error only when ctx ends.
func retry(ctx context.Context, log logr.Logger, doing string, fn func(context.Context) error) error {
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Steps: 30, Cap: 5 * time.Second}
	err := backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		err := fn(ctx)
		if err != nil && ctx.Err() == nil {
			log.Error(err, doing+" failed; trying again")
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}
