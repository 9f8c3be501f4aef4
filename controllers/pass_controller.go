package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

// passReconciler runs passes: one key is one request.
type passReconciler struct {
	pass   *fence.Pass
	leader *leader
	view   *view.View
	store  Store
	now    func() time.Time
	// settled is told the ID of an installation one of whose rows has moved.
	settled func(installationID string)
	// told is given each row whose status is published.
	told func(authority.Row)

	mu        sync.Mutex
	revisions map[authority.Key]uint64
}

// Reconcile implements reconcile.TypedReconciler.
func (r *passReconciler) Reconcile(ctx context.Context, key authority.Key) (reconcile.Result, error) {
	term, err := r.leader.wait(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.leader.current(ctx); errors.Is(err, fence.ErrDeposed) {
		return reconcile.Result{}, reconcile.TerminalError(err) //nolint:wrapcheck // it is the wrapping
	} else if err != nil {
		return reconcile.Result{}, err
	}
	row, err := r.store.Row(ctx, key)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read the row: %w", err)
	}
	if seen := r.view.Observe(key).Revision; seen > row.Revision {
		r.settled(key.InstallationID)
		err := fmt.Errorf("revision %d was published and the store is at %d: %w", seen, row.Revision, fence.ErrHistoryLost)
		return reconcile.Result{}, errors.Join(err, r.pass.Tell(ctx, key, err))
	}
	result, err := r.pass.Run(ctx, term, key)
	if errors.Is(err, fence.ErrDeposed) {
		r.leader.depose(term, err)
		return reconcile.Result{}, reconcile.TerminalError(err) //nolint:wrapcheck // it is the wrapping
	}
	if errors.Is(err, fence.ErrHistoryLost) {
		r.settled(key.InstallationID)
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("run a pass: %w", err)
	}
	r.told(result.Row)
	if r.moved(result.Row) {
		r.settled(key.InstallationID)
	}
	if result.Wake.IsZero() {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: max(result.Wake.Sub(r.now()), time.Millisecond)}, nil
}

// moved tells whether a row is at another revision than this process saw last.
func (r *passReconciler) moved(row authority.Row) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.revisions[row.Key] == row.Revision {
		return false
	}
	r.revisions[row.Key] = row.Revision
	return true
}
