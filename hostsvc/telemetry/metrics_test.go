package telemetry

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/controllers"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/fence"
	"github.com/kandev/plugin-host/hostsvc/identity"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/rpc"
)

// clock only moves when a test moves it.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func newTestMetrics(t *testing.T) (*Metrics, *prometheus.Registry, *clock) {
	t.Helper()
	c := &clock{now: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)}
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(registry, c.Now)
	if err != nil {
		t.Fatal(err)
	}
	return m, registry, c
}

// value is a series' value: a counter's, a gauge's, or the number of a
// histogram's observations. Labels are "name=value".
func value(t *testing.T, registry prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			if has(metric, labels) {
				switch {
				case metric.Counter != nil:
					return metric.GetCounter().GetValue()
				case metric.Gauge != nil:
					return metric.GetGauge().GetValue()
				default:
					return float64(metric.GetHistogram().GetSampleCount())
				}
			}
		}
	}
	t.Fatalf("there is no %s with %v", name, labels)
	return 0
}

func has(metric *dto.Metric, labels []string) bool {
	found := 0
	for _, pair := range metric.GetLabel() {
		for _, label := range labels {
			if pair.GetName()+"="+pair.GetValue() == label {
				found++
			}
		}
	}
	return found == len(labels)
}

func want(t *testing.T, registry prometheus.Gatherer, expected float64, name string, labels ...string) {
	t.Helper()
	if got := value(t, registry, name, labels...); got != expected {
		t.Errorf("%s%v is %v, want %v", name, labels, got, expected)
	}
}

// TestUserAsk20_ThousandDenialsAreCountedExactly, from many callers at once.
func TestUserAsk20_ThousandDenialsAreCountedExactly(t *testing.T) {
	m, registry, _ := newTestMetrics(t)
	done := make(chan struct{})
	for range 10 {
		go func() {
			defer func() { done <- struct{}{} }()
			for range 100 {
				m.Called(rpc.Outcome{
					Method: "GetTaskExact", State: contract.StateDenied, Reason: contract.ReasonCapabilityRevoked, Took: time.Millisecond,
				})
			}
		}()
	}
	for range 10 {
		<-done
	}
	want(t, registry, 1000, "plugin_host_calls_total", "method=GetTaskExact", "state=DENIED", "reason=CAPABILITY_REVOKED")
	want(t, registry, 1000, "plugin_host_call_duration_seconds", "method=GetTaskExact")
}

// TestACallCostsNoAllocation once its outcome is known.
func TestACallCostsNoAllocation(t *testing.T) {
	m, _, _ := newTestMetrics(t)
	o := rpc.Outcome{Method: "GetTaskExact", State: contract.StateApplied, AuditID: "audit", Took: time.Millisecond}
	m.Called(o)
	if n := testing.AllocsPerRun(1_000, func() { m.Called(o) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func BenchmarkCalled(b *testing.B) {
	m, err := NewMetrics(prometheus.NewRegistry(), time.Now)
	if err != nil {
		b.Fatal(err)
	}
	o := rpc.Outcome{Method: "GetTaskExact", State: contract.StateApplied, AuditID: "audit", Took: time.Millisecond}
	for b.Loop() {
		m.Called(o)
	}
}

// TestNamesAndHelp by the conventions of Prometheus, and no label by which a
// plugin or a tenant could make series.
func TestNamesAndHelp(t *testing.T) {
	m, registry, _ := newTestMetrics(t)
	fill(t, m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
	bounded := map[string]bool{"method": true, "state": true, "reason": true, "cause": true, "answer": true, "answered": true, "written": true, "outcome": true, "succeeded": true, "check": true}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "plugin_host_") {
			t.Errorf("%s is not named after the process", family.GetName())
		}
		for _, metric := range family.GetMetric() {
			for _, pair := range metric.GetLabel() {
				if !bounded[pair.GetName()] {
					t.Errorf("%s has the label %s, whose values nothing bounds", family.GetName(), pair.GetName())
				}
			}
		}
	}
}

// fill makes every metric have a series.
func fill(t *testing.T, m *Metrics) {
	t.Helper()
	m.Called(rpc.Outcome{Method: "GetTaskExact", State: contract.StateApplied})
	m.Refused(identity.CauseShape)
	m.Reviewed(identity.AnswerAccepted, time.Millisecond)
	m.Looked(true, time.Millisecond)
	m.Round(time.Millisecond, nil)
	m.Watched(time.Millisecond)
	m.Proven(true)
	m.readiness("store", true)
	m.rows.observe([]authority.Row{{State: authority.StateActive, UpdatedAt: m.now()}})
	for _, outcome := range []string{outcomeDone, outcomeOvertaken, outcomeDeposed, outcomeFailed} {
		m.fenceTime.WithLabelValues(outcome)
		m.holdTime.WithLabelValues(outcome)
		m.passTime.WithLabelValues(outcome)
	}
	if err := m.Follow(Figures{
		QueueWaiting: func() int { return 3 }, ReviewsInFlight: func() int { return 2 },
		Principals:      func() (int, time.Duration) { return 7, 2 * time.Second },
		CertificateEnds: func() time.Time { return time.Unix(1_800_000_000, 0) },
	}); err != nil {
		t.Fatal(err)
	}
}

func TestFigures(t *testing.T) {
	m, registry, c := newTestMetrics(t)
	fill(t, m)
	want(t, registry, 3, "plugin_host_store_queue_waiting")
	want(t, registry, 2, "plugin_host_token_reviews_in_flight")
	want(t, registry, 7, "plugin_host_principals_watched")
	want(t, registry, 2, "plugin_host_principal_sighting_age_seconds")
	want(t, registry, 1_800_000_000, "plugin_host_certificate_expiry_timestamp_seconds")
	want(t, registry, 1, "plugin_host_tokens_refused_total", "cause=shape")
	want(t, registry, 1, "plugin_host_token_reviews_total", "answer=accepted")
	want(t, registry, 1, "plugin_host_rounds_total", "succeeded=true")
	m.Round(time.Second, errors.New("no answer"))
	want(t, registry, 1, "plugin_host_rounds_total", "succeeded=false")
	want(t, registry, 1, "plugin_host_round_duration_seconds")
	want(t, registry, 1, "plugin_host_widening_proven")
	m.Proven(false)
	want(t, registry, 0, "plugin_host_widening_proven")

	// Rows: a hold is as old as its first listing, whatever it grows to.
	held := authority.Row{Key: authority.Key{InstallationID: "i", WorkspaceID: "w"}, State: authority.StateActive, Hold: &authority.Hold{}, Gates: 1, UpdatedAt: c.now}
	rebuilt := authority.Row{Key: authority.Key{InstallationID: "i", WorkspaceID: "x"}, State: authority.StateRevoked, Starting: true, UpdatedAt: c.now.Add(-time.Hour)}
	m.rows.observe([]authority.Row{held, rebuilt})
	c.now = c.now.Add(20 * time.Second)
	m.rows.observe([]authority.Row{held, rebuilt})
	c.now = c.now.Add(10 * time.Second)
	want(t, registry, 1, "plugin_host_rows", "state=Active")
	want(t, registry, 1, "plugin_host_rows", "state=Revoked")
	want(t, registry, 0, "plugin_host_rows", "state=Expired")
	want(t, registry, 1, "plugin_host_holds_pending")
	want(t, registry, 30, "plugin_host_hold_oldest_seconds")
	want(t, registry, 1, "plugin_host_rows_starting")
	want(t, registry, 1, "plugin_host_rows_gated")
	want(t, registry, 30, "plugin_host_revision_age_seconds")
	held.Hold = nil
	m.rows.observe([]authority.Row{held, rebuilt})
	want(t, registry, 0, "plugin_host_hold_oldest_seconds")
}

// ledger answers as a store would.
type ledger struct {
	controllers.Store

	err   error
	round controllers.Round
}

func (l *ledger) Fence(context.Context, fence.Term, authority.Row, authority.Row) error { return l.err }

func (l *ledger) Hold(_ context.Context, from authority.Row, _ authority.Hold) (authority.Row, error) {
	return from, l.err
}

func (l *ledger) Rows(context.Context) ([]authority.Row, error) {
	return []authority.Row{{State: authority.StateRevoked}}, l.err
}

func (l *ledger) BeginRound(context.Context) (controllers.Round, error) { return l.round, l.err }

func (l *ledger) RenewLease(context.Context, controllers.Round, time.Duration) (uint64, error) {
	return 8, l.err
}

func TestWhatTheControllersDoIsMeasured(t *testing.T) {
	m, registry, c := newTestMetrics(t)
	inner := &ledger{}
	store := m.Store(inner, noop.NewTracerProvider().Tracer(""))
	for err, outcome := range map[error]string{
		nil: outcomeDone, fence.ErrOvertaken: outcomeOvertaken, fence.ErrDeposed: outcomeDeposed, errors.New("disk full"): outcomeFailed,
	} {
		inner.err = err
		if got := store.Fence(t.Context(), fence.Term{}, authority.Row{}, authority.Row{}); !errors.Is(got, err) {
			t.Errorf("got %v, want %v", got, err)
		}
		if _, got := store.Hold(t.Context(), authority.Row{}, authority.Hold{}); !errors.Is(got, err) {
			t.Errorf("got %v, want %v", got, err)
		}
		_, end := m.Controllers(noop.NewTracerProvider().Tracer("")).Pass(t.Context(), authority.Key{})
		end(err)
		want(t, registry, 1, "plugin_host_fence_duration_seconds", "outcome="+outcome)
		want(t, registry, 1, "plugin_host_hold_duration_seconds", "outcome="+outcome)
		want(t, registry, 1, "plugin_host_pass_duration_seconds", "outcome="+outcome)
	}
	inner.err = nil
	if rows, err := store.Rows(t.Context()); err != nil || len(rows) != 1 {
		t.Errorf("got %v, %v", rows, err)
	}
	want(t, registry, 1, "plugin_host_rows", "state=Revoked")

	// The lease: the store's clock is an hour ahead, and only differences of it
	// are used.
	inner.round.Begun = c.now.Add(time.Hour)
	inner.round.LeasedUntil = inner.round.Begun.Add(4 * time.Second)
	round, err := store.BeginRound(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want(t, registry, 4, "plugin_host_lease_remaining_seconds")
	c.now = c.now.Add(time.Second)
	want(t, registry, 3, "plugin_host_lease_remaining_seconds")
	if beat, err := store.RenewLease(t.Context(), round, 15*time.Second); err != nil || beat != 8 {
		t.Errorf("got %d, %v", beat, err)
	}
	want(t, registry, 14, "plugin_host_lease_remaining_seconds")
	c.now = c.now.Add(20 * time.Second)
	want(t, registry, -6, "plugin_host_lease_remaining_seconds")
}

// TestSpansOfAuthority name the row, and how it ended, and hold together.
func TestSpansOfAuthority(t *testing.T) {
	m, _, _ := newTestMetrics(t)
	exporter := tracetest.NewInMemoryExporter()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)).Tracer("test")
	inner := &ledger{}
	store, observer := m.Store(inner, tracer), m.Controllers(tracer)
	key := authority.Key{InstallationID: "inst-1", WorkspaceID: "payments"}
	ctx, end := observer.Pass(t.Context(), key)
	_, _ = store.Hold(ctx, authority.Row{Key: key}, authority.Hold{})
	inner.err = fence.ErrOvertaken
	_ = store.Fence(ctx, fence.Term{}, authority.Row{Key: key}, authority.Row{Key: key, Revision: 7, AuditID: "audit-7"})
	end(inner.err)
	observer.Round(2*time.Second, errors.New("no answer"))
	spans := exporter.GetSpans()
	if len(spans) != 4 {
		t.Fatalf("%d spans, want 4", len(spans))
	}
	for i, want := range []struct{ name, status string }{{"hold", ""}, {"fence", "overtaken"}, {"pass", "overtaken"}, {"round", "failed"}} {
		span := spans[i]
		said := map[string]string{}
		for _, attribute := range span.Attributes {
			said[string(attribute.Key)] = attribute.Value.String()
		}
		if span.Name != want.name || span.Status.Description != want.status {
			t.Errorf("span %d is %s and ended %q, want %+v", i, span.Name, span.Status.Description, want)
		}
		if want.name == "round" {
			if took := span.EndTime.Sub(span.StartTime); took < 2*time.Second {
				t.Errorf("the round took %v", took)
			}
			continue
		}
		if said["kandev.installation_id"] != "inst-1" || said["kandev.workspace_id"] != "payments" {
			t.Errorf("%s says %v", span.Name, said)
		}
		if want.name == "fence" && (said["kandev.revision"] != "7" || said["kandev.audit_id"] != "audit-7") {
			t.Errorf("%s says %v", span.Name, said)
		}
		if span.SpanContext.TraceID() != spans[2].SpanContext.TraceID() {
			t.Errorf("%s is not in the trace of its pass", span.Name)
		}
	}
}

type appender struct{ err error }

func (a *appender) Append(context.Context, journal.Receipt) error { return a.err }

func TestReceiptsAreCounted(t *testing.T) {
	m, registry, _ := newTestMetrics(t)
	inner := &appender{}
	receipts := m.Receipts(inner)
	if err := receipts.Append(t.Context(), journal.Receipt{}); err != nil {
		t.Error(err)
	}
	inner.err = errors.New("disk full")
	if err := receipts.Append(t.Context(), journal.Receipt{}); !errors.Is(err, inner.err) {
		t.Errorf("got %v", err)
	}
	want(t, registry, 1, "plugin_host_receipts_total", "written=true")
	want(t, registry, 1, "plugin_host_receipts_total", "written=false")
	want(t, registry, 2, "plugin_host_receipt_duration_seconds")
}

func TestRegisteringTwiceIsAnError(t *testing.T) {
	_, registry, c := newTestMetrics(t)
	if _, err := NewMetrics(registry, c.Now); err == nil {
		t.Error("the same metrics are registered twice")
	}
}
