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

// errHistoryLost: a status, or an event that can't be read, knows a revision
// that the store has lost. Going on would use revisions again (I3).
var errHistoryLost = errors.New("the store is behind a revision that was published")

// passReconciler runs passes: one key is one request.
type passReconciler struct {
	pass   *fence.Pass
	leader *leader
	view   *view.View
	store  Store
	now    func() time.Time
	// settled is told the ID of an installation one of whose rows has moved.
	settled func(installationID string)

	mu        sync.Mutex
	revisions map[authority.Key]uint64
}

// Reconcile implements reconcile.TypedReconciler.
func (r *passReconciler) Reconcile(ctx context.Context, key authority.Key) (reconcile.Result, error) {
	term, err := r.leader.wait(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	row, err := r.store.Row(ctx, key)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read the row: %w", err)
	}
	if seen := r.view.Observe(key).Revision; seen > row.Revision {
		r.settled(key.InstallationID)
		return reconcile.Result{}, fmt.Errorf("installation %s in workspace %s: revision %d was published and the store has %d: %w",
			key.InstallationID, key.WorkspaceID, seen, row.Revision, errHistoryLost)
	}
	result, err := r.pass.Run(ctx, term, key)
	if errors.Is(err, fence.ErrDeposed) {
		r.leader.depose(err)
		return reconcile.Result{}, reconcile.TerminalError(err) //nolint:wrapcheck // it is the wrapping
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("run a pass: %w", err)
	}
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
