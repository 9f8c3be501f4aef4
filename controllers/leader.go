package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

// leader begins this process's term in office: a new leader epoch, then the
// comparison of every row with its newest event. Only after that does "no row"
// mean "never approved", and only then do passes run.
type leader struct {
	store    Store
	events   *events
	bindings *bindings
	view     *view.View
	sweep    *sweep
	log      logr.Logger

	term    fence.Term
	leading chan struct{} // closed once term is set
	deposed chan error
}

func newLeader(store Store, e *events, b *bindings, v *view.View, s *sweep, log logr.Logger) *leader {
	return &leader{
		store: store, events: e, bindings: b, view: v, sweep: s, log: log,
		leading: make(chan struct{}), deposed: make(chan error, 1),
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (l *leader) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. Its error ends the process.
func (l *leader) Start(ctx context.Context) error {
	// The term is begun once: a process that was deposed meanwhile must not take
	// it back from the one that leads.
	if err := retry(ctx, l.log, "Beginning a term", func(ctx context.Context) (err error) {
		l.term, err = l.store.Lead(ctx)
		return err
	}); err != nil {
		return nil
	}
	var deposed error
	if err := retry(ctx, l.log, "Comparing the rows with their events", func(ctx context.Context) error {
		err := l.compare(ctx)
		if errors.Is(err, fence.ErrDeposed) {
			deposed, err = err, nil
		}
		return err
	}); err != nil {
		return nil
	}
	if deposed != nil {
		return deposed
	}
	close(l.leading)
	l.view.MarkComplete(view.SourceLedger)
	l.log.Info("Leading", "storeEpoch", l.term.StoreEpoch, "leaderEpoch", l.term.LeaderEpoch)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go l.sweep.run(ctx, l.current)
	select {
	case err := <-l.deposed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// current ends the process when another one leads by now: one that was stopped
// for a while may have nothing to fence by which it would learn that.
func (l *leader) current(ctx context.Context) error {
	term, err := l.store.Term(ctx)
	if err != nil {
		return fmt.Errorf("read the term in force: %w", err)
	}
	if term != l.term {
		err := fmt.Errorf("term %d.%d is over, %d.%d is in force: %w", l.term.StoreEpoch, l.term.LeaderEpoch,
			term.StoreEpoch, term.LeaderEpoch, fence.ErrDeposed)
		l.depose(err)
		return err
	}
	return nil
}

// wait returns the term once it has begun.
func (l *leader) wait(ctx context.Context) (fence.Term, error) {
	select {
	case <-l.leading:
		return l.term, nil
	case <-ctx.Done():
		return fence.Term{}, fmt.Errorf("wait for the term to begin: %w", ctx.Err())
	}
}

// depose ends the process: another one leads.
func (l *leader) depose(err error) {
	select {
	case l.deposed <- err:
	default:
	}
}

// compare takes every row that is behind its newest event straight to it.
func (l *leader) compare(ctx context.Context) error {
	newest, highest, err := l.events.newest(ctx, func(err error) {
		l.log.Error(err, "An event can't be read back; its sequence answers UNAVAILABLE")
	})
	if err != nil {
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
		if err := l.store.FenceStart(ctx, l.term, event); err != nil {
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
