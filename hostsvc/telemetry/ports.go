package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/kandev/plugin-host/controllers"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/fence"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// How a write of authority ends, as a label.
const (
	outcomeDone      = "done"
	outcomeOvertaken = "overtaken"
	outcomeDeposed   = "deposed"
	outcomeFailed    = "failed"
)

func outcomeOf(err error) string {
	switch {
	case err == nil:
		return outcomeDone
	case errors.Is(err, fence.ErrDeposed):
		return outcomeDeposed
	case errors.Is(err, fence.ErrOvertaken), errors.Is(err, fence.ErrConflict):
		return outcomeOvertaken
	default:
		return outcomeFailed
	}
}

// Receipts measures next.
func (m *Metrics) Receipts(next admission.Receipts) admission.Receipts { return &receipts{next, m} }

type receipts struct {
	next admission.Receipts
	m    *Metrics
}

// Append implements admission.Receipts.
func (r *receipts) Append(ctx context.Context, receipt journal.Receipt) error {
	begun := r.m.now()
	err := r.next.Append(ctx, receipt)
	r.m.receipts[err == nil].Inc()
	r.m.receiptTime.Observe(r.m.now().Sub(begun).Seconds())
	return err
}

// Store measures and traces what the controllers do with next.
func (m *Metrics) Store(next controllers.Store, tracer trace.Tracer) controllers.Store {
	return &observedStore{Store: next, m: m, tracer: tracer}
}

type observedStore struct {
	controllers.Store

	m      *Metrics
	tracer trace.Tracer
	begins begins
}

// span opens a span about a row; end closes it with its error.
func span(ctx context.Context, tracer trace.Tracer, name string, key authority.Key, more ...attribute.KeyValue) (_ context.Context, end func(error)) {
	ctx, s := tracer.Start(ctx, name, trace.WithAttributes(append(more,
		attribute.String("kandev.installation_id", key.InstallationID), attribute.String("kandev.workspace_id", key.WorkspaceID))...))
	return ctx, func(err error) {
		if err != nil {
			s.SetStatus(codes.Error, outcomeOf(err))
		}
		s.End()
	}
}

// Fence implements fence.Ledger.
func (s *observedStore) Fence(ctx context.Context, term fence.Term, from, to authority.Row) error {
	ctx, end := span(ctx, s.tracer, "fence", to.Key,
		attribute.Int64("kandev.revision", int64(to.Revision)), attribute.String("kandev.audit_id", to.AuditID))
	begun := s.m.now()
	err := s.Store.Fence(ctx, term, from, to)
	s.m.fenceTime.WithLabelValues(outcomeOf(err)).Observe(s.m.now().Sub(begun).Seconds())
	end(err)
	return err
}

// Hold implements fence.Ledger.
func (s *observedStore) Hold(ctx context.Context, from authority.Row, hold authority.Hold) (authority.Row, error) {
	ctx, end := span(ctx, s.tracer, "hold", from.Key)
	begun := s.m.now()
	row, err := s.Store.Hold(ctx, from, hold)
	s.m.holdTime.WithLabelValues(outcomeOf(err)).Observe(s.m.now().Sub(begun).Seconds())
	end(err)
	return row, err
}

// Rows implements controllers.Store.
func (s *observedStore) Rows(ctx context.Context) ([]authority.Row, error) {
	rows, err := s.Store.Rows(ctx)
	if err == nil {
		s.m.rows.observe(rows)
	}
	return rows, err
}

// BeginRound implements controllers.Store.
func (s *observedStore) BeginRound(ctx context.Context) (controllers.Round, error) {
	begun := s.m.now()
	round, err := s.Store.BeginRound(ctx)
	if err == nil {
		s.m.lease(begun, round.LeasedUntil.Sub(round.Begun))
		s.begins.put(round.Begun, begun)
	}
	return round, err
}

// RenewLease implements controllers.Store.
func (s *observedStore) RenewLease(ctx context.Context, round controllers.Round, life time.Duration) (uint64, error) {
	beat, err := s.Store.RenewLease(ctx, round, life)
	if err != nil {
		return beat, err
	}
	if begun, ok := s.begins.take(round.Begun); ok {
		s.m.lease(begun, life)
	}
	return beat, nil
}

// begins are the moments of this process's clock at which rounds began, by the
// store's clock: the two are never compared.
type begins struct {
	mu  sync.Mutex
	all map[time.Time]time.Time
}

// maxBegins is far more than the rounds that are under way at once.
const maxBegins = 64

func (b *begins) put(store, here time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil || len(b.all) >= maxBegins {
		b.all = map[time.Time]time.Time{}
	}
	b.all[store] = here
}

func (b *begins) take(store time.Time) (here time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	here, ok = b.all[store]
	delete(b.all, store)
	return here, ok
}

// Controllers is what the controllers tell what they do.
func (m *Metrics) Controllers(tracer trace.Tracer) controllers.Observer {
	return &observer{Metrics: m, tracer: tracer}
}

type observer struct {
	*Metrics

	tracer trace.Tracer
}

// Pass implements controllers.Observer.
func (o *observer) Pass(ctx context.Context, key authority.Key) (_ context.Context, end func(error)) {
	begun := o.now()
	ctx, endSpan := span(ctx, o.tracer, "pass", key)
	return ctx, func(err error) {
		o.passTime.WithLabelValues(outcomeOf(err)).Observe(o.now().Sub(begun).Seconds())
		endSpan(err)
	}
}

// Round implements controllers.Observer: it makes the span of a round when the
// round is over.
func (o *observer) Round(took time.Duration, err error) {
	o.Metrics.Round(took, err)
	_, s := o.tracer.Start(context.Background(), "round", trace.WithTimestamp(time.Now().Add(-took)))
	if err != nil {
		s.SetStatus(codes.Error, outcomeOf(err))
	}
	s.End()
}
