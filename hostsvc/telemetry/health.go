package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// drainCheck is the condition that ends first when the process ends.
const drainCheck = "drain"

var errDraining = errors.New("the process is ending")

// Readiness is the named conditions under which this process serves. The same
// ones stand behind /readyz, gRPC health and the metric of readiness.
type Readiness struct {
	metrics  *Metrics
	draining atomic.Bool

	mu     sync.Mutex
	checks []check
}

type check struct {
	name string
	fn   healthz.Checker
}

// NewReadiness returns a readiness without conditions but that the process is
// not ending.
func NewReadiness(metrics *Metrics) *Readiness {
	r := &Readiness{metrics: metrics}
	r.add(drainCheck, r.drained)
	return r
}

func (r *Readiness) drained(*http.Request) error {
	if r.draining.Load() {
		return errDraining
	}
	return nil
}

func (r *Readiness) add(name string, fn healthz.Checker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks = append(r.checks, check{name, fn})
}

// Manager returns mgr, every readiness check of which is a condition too,
// whoever adds it.
func (r *Readiness) Manager(mgr manager.Manager) (manager.Manager, error) {
	if err := mgr.AddReadyzCheck(drainCheck, r.drained); err != nil {
		return nil, fmt.Errorf("add the readiness check %s: %w", drainCheck, err)
	}
	return &readyManager{Manager: mgr, readiness: r}, nil
}

type readyManager struct {
	manager.Manager

	readiness *Readiness
}

// AddReadyzCheck implements manager.Manager.
func (m *readyManager) AddReadyzCheck(name string, fn healthz.Checker) error {
	if err := m.Manager.AddReadyzCheck(name, fn); err != nil {
		return err //nolint:wrapcheck // it is the manager's own
	}
	m.readiness.add(name, fn)
	return nil
}

// Drain ends readiness for good.
func (r *Readiness) Drain() { r.draining.Store(true) }

// Check names each condition that doesn't hold, with its cause.
func (r *Readiness) Check(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "/readyz", http.NoBody)
	if err != nil {
		return fmt.Errorf("make a request for the checks: %w", err)
	}
	r.mu.Lock()
	checks := r.checks
	r.mu.Unlock()
	var failures []error
	for _, c := range checks {
		err := c.fn(request)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", c.name, err))
		}
		r.metrics.readiness(c.name, err == nil)
	}
	return errors.Join(failures...)
}

func (m *Metrics) readiness(name string, holds bool) {
	value := 0.0
	if holds {
		value = 1
	}
	m.ready.WithLabelValues(name).Set(value)
}
