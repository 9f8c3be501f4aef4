package controllers

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

// Observer is told what the controllers do and find, for metrics and traces. It
// must not block.
type Observer interface {
	// Pass is told that a pass begins; what it returns is called at its end.
	Pass(ctx context.Context, key authority.Key) (_ context.Context, end func(error))
	// Round is told of each round that this replica made, also of one that failed.
	Round(took time.Duration, err error)
	// Watched is told how long a pass waited for the watch to handle what it had
	// read live.
	Watched(lag time.Duration)
	// Proven is told after each attempt whether the admission policies are proven
	// in force.
	Proven(proven bool)
}

// unobserved is an Observer that nobody listens to.
type unobserved struct{}

// Pass implements Observer.
func (unobserved) Pass(ctx context.Context, _ authority.Key) (context.Context, func(error)) {
	return ctx, func(error) {}
}

// Round implements Observer.
func (unobserved) Round(time.Duration, error) {}

// Watched implements Observer.
func (unobserved) Watched(time.Duration) {}

// Proven implements Observer.
func (unobserved) Proven(bool) {}

// observedPasses tells observer of each pass.
type observedPasses struct {
	reconcile.TypedReconciler[authority.Key]

	observer Observer
}

// Reconcile implements reconcile.TypedReconciler.
func (o observedPasses) Reconcile(ctx context.Context, key authority.Key) (reconcile.Result, error) {
	ctx, end := o.observer.Pass(ctx, key)
	result, err := o.TypedReconciler.Reconcile(ctx, key)
	end(err)
	return result, err //nolint:wrapcheck // it is the one that is observed
}

// observedHistory tells observer of each wait for the watch.
type observedHistory struct {
	fence.History

	observer Observer
	now      func() time.Time
}

// WatchedFrom implements fence.History.
func (o observedHistory) WatchedFrom(ctx context.Context, object fence.Object, generation int64) (int64, error) {
	begun := o.now()
	from, err := o.History.WatchedFrom(ctx, object, generation)
	o.observer.Watched(o.now().Sub(begun))
	return from, err
}
