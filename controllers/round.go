package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

// rounds keep the store's lease, on every replica: a round reads, past every
// watch and cache, what authority depends on, holds what any row allows beyond
// it, and only then lets commands commit for another while. Whatever fails, a
// frozen watch, a dead leader, a dead API server, what was revoked before a
// round began commits nothing beyond that round's lease.
//
// The leader makes every round, and asks for the passes that follow. Any other
// replica makes one when the leader's don't come.
type rounds struct {
	store    Store
	live     client.Reader
	cluster  *cluster
	bindings *bindings
	policies *policies
	history  fence.History
	// delivered returns what the watch has delivered of a version, nil for nothing.
	delivered func(view.Place, version) *authority.Approval
	view      *view.View
	marks     *marks
	leader    *leader
	passes    *requests[authority.Key]
	// settle looks for what the leader has settled of the grants of compatibility. It
	// comes before v1 calls can be fresh.
	settle func(context.Context) error
	// uninstalls are the IDs of installations that may be gone.
	uninstalls *requests[string]
	// every is the time between two rounds, life what a lease lasts from the
	// beginning of its round.
	every, life time.Duration
	now         func() time.Time
	observer    Observer
	log         logr.Logger

	// fetched are the approvals that are newer than their rows, by place.
	fetched map[view.Place]*authority.Approval
	// unreadable are the versions that could not be read in the last round.
	unreadable map[view.Place]version

	// complete: the view knows that the ledger is.
	complete bool
	failure  atomic.Pointer[error]
	began    atomic.Bool
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (r *rounds) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (r *rounds) Start(ctx context.Context) error {
	ticker := time.NewTicker(r.every)
	defer ticker.Stop()
	for {
		begun := r.now()
		err := r.turn(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, ErrOtherCluster) {
			return err // it must serve nothing more
		}
		before := r.failure.Swap(&err)
		r.began.Store(true)
		switch {
		case err != nil:
			r.observer.Round(r.now().Sub(begun), err)
			r.log.Error(err, "A round failed; commands commit until the lease runs out", "life", r.life)
		case before != nil && *before != nil:
			r.log.Info("Rounds succeed again")
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// ready is a readiness check: this replica's rounds succeed, or another's do.
func (r *rounds) ready(request *http.Request) error {
	if !r.began.Load() {
		return errors.New("no round has been made yet")
	}
	round, err := r.store.BeginRound(request.Context())
	if err != nil {
		return fmt.Errorf("read the lease: %w", err)
	}
	if round.Begun.Before(round.LeasedUntil) {
		return nil
	}
	why := errors.New("no round has succeeded in time")
	if failure := r.failure.Load(); failure != nil && *failure != nil {
		why = *failure
	}
	return fmt.Errorf("the lease has run out: %w", why)
}

// turn makes one round if it is this replica's turn.
func (r *rounds) turn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.life)
	defer cancel()
	begun := r.now()
	leads := r.leader.leads()
	if leads {
		if err := r.leader.current(ctx); err != nil {
			return err
		}
	}
	known, err := r.marks.read(ctx)
	if err != nil {
		return err
	}
	round, err := r.store.BeginRound(ctx)
	if err != nil {
		return fmt.Errorf("begin a round: %w", err)
	}
	if err := known.allows(round); err != nil {
		r.leader.renew()
		return err
	}
	if round.Complete && !r.complete {
		r.view.MarkComplete(view.SourceLedger)
		r.complete = true
	}
	if err := r.bindings.load(ctx); err != nil {
		return err
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	if !leads && round.LeasedUntil.Sub(round.Begun) > r.life-r.every*3/2 {
		return r.refresh(ctx) // another replica's rounds come in time
	}
	if err := r.compare(ctx); err != nil {
		return err
	}
	beat, err := r.store.RenewLease(ctx, round, r.life)
	if err != nil {
		return fmt.Errorf("renew the lease: %w", err)
	}
	if err := r.marks.write(ctx, known, round.StoreID, beat); err != nil {
		return err
	}
	r.observer.Round(r.now().Sub(begun), nil)
	return nil
}

// allEvery is the time between two passes of those that all asks for.
const allEvery = 20 * time.Millisecond

// all asks for a pass of every row, for statuses that a process didn't live to
// write, and whether each installation is there: what went while no process
// watched revokes too, and needs no finalizer (I13). What differs, the next round
// finds at once; these are spread, or ten thousand of them would take the API
// server from that round.
func (r *rounds) all(ctx context.Context) error {
	rows, err := r.store.Rows(ctx)
	if err != nil {
		return fmt.Errorf("list the rows: %w", err)
	}
	for i := range rows {
		r.passes.later(rows[i].Key, time.Duration(i)*allEvery)
		r.uninstalls.addAt(idle, rows[i].Key.InstallationID)
	}
	return nil
}
