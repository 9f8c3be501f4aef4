package telemetry

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// checks is the part of a manager that takes readiness checks.
type checks struct {
	manager.Manager

	names []string
	err   error
}

func (c *checks) AddReadyzCheck(name string, _ healthz.Checker) error {
	c.names = append(c.names, name)
	return c.err
}

func TestReadinessNamesItsCauses(t *testing.T) {
	m, registry, _ := newTestMetrics(t)
	readiness := NewReadiness(m)
	inner := &checks{}
	mgr, err := readiness.Manager(inner)
	if err != nil {
		t.Fatal(err)
	}
	lost := map[string]error{}
	for _, name := range []string{"store", "approvals", "lease"} {
		if err := mgr.AddReadyzCheck(name, func(*http.Request) error { return lost[name] }); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(inner.names, " "); got != "drain store approvals lease" {
		t.Errorf("the manager has the checks %q", got)
	}
	if err := readiness.Check(t.Context()); err != nil {
		t.Errorf("when all is well: %v", err)
	}
	want(t, registry, 1, "plugin_host_ready", "check=lease")
	lost["lease"], lost["store"] = errors.New("ran out"), errors.New("locked")
	err = readiness.Check(t.Context())
	if err == nil || !strings.Contains(err.Error(), "lease: ran out") || !strings.Contains(err.Error(), "store: locked") ||
		strings.Contains(err.Error(), "approvals") {
		t.Errorf("got %v, want the two causes", err)
	}
	want(t, registry, 0, "plugin_host_ready", "check=lease")
	want(t, registry, 1, "plugin_host_ready", "check=approvals")

	clear(lost)
	readiness.Drain()
	if err := readiness.Check(context.Background()); !errors.Is(err, errDraining) {
		t.Errorf("while it ends: %v", err)
	}
	inner.err = errors.New("started already")
	if err := mgr.AddReadyzCheck("late", nil); !errors.Is(err, inner.err) {
		t.Errorf("got %v", err)
	}
}
