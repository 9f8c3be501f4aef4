package telemetry

import (
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/identity"
	"github.com/kandev/plugin-host/hostsvc/rpc"
)

// namespace begins the name of every metric of this process.
const namespace = "plugin_host"

// Buckets in seconds: of what happens in this process or its database, and of
// what crosses the network or waits for the cluster.
var (
	quickBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}
	slowBuckets  = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
)

// Metrics are the Host's. All labels have few values, which the code names: no
// installation, workspace or pod is in any of them. It is safe for concurrent
// use.
type Metrics struct {
	now func() time.Time

	calls    *prometheus.CounterVec
	callTime *prometheus.HistogramVec
	// known are the series of calls by outcome. The map is replaced, never
	// changed: a call costs a look-up and additions.
	known atomic.Pointer[map[outcome]series]
	mu    sync.Mutex

	tokensRefused map[identity.Cause]prometheus.Counter
	reviews       map[identity.Answer]prometheus.Counter
	reviewTime    prometheus.Histogram
	looks         map[bool]prometheus.Counter
	lookTime      prometheus.Histogram

	receipts    map[bool]prometheus.Counter
	receiptTime prometheus.Histogram

	events eventMetrics

	fenceTime *prometheus.HistogramVec
	holdTime  *prometheus.HistogramVec
	passTime  *prometheus.HistogramVec
	rows      *rowMetrics
	rounds    map[bool]prometheus.Counter
	roundTime prometheus.Histogram
	watchLag  prometheus.Histogram
	proven    *prometheus.GaugeVec
	ready     *prometheus.GaugeVec
	// leased is the end of the lease by this process's clock, as the time since
	// made in nanoseconds; 0 while no lease is known.
	leased atomic.Int64
	made   time.Time

	registerer prometheus.Registerer
}

// outcome is what the series of calls are counted by.
type outcome struct {
	method string
	state  contract.State
	reason contract.Reason
}

type series struct {
	calls prometheus.Counter
	took  prometheus.Observer
}

// NewMetrics registers the metrics.
func NewMetrics(registerer prometheus.Registerer, now func() time.Time) (*Metrics, error) {
	m := &Metrics{now: now, made: now(), registerer: registerer, events: newEventMetrics()}
	m.known.Store(&map[outcome]series{})
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	m.calls = counter("calls_total", "Exact calls of proven installations by method, state and reason (empty for a success).", "method", "state", "reason")
	m.callTime = histogram("call_duration_seconds", "How long exact calls took in this process.", quickBuckets, "method")
	refused := counter("tokens_refused_total", "Tokens that proved nothing or could not be checked, by cause.", "cause")
	reviews := counter("token_reviews_total", "Questions about tokens to the API server by answer; none is no answer.", "answer")
	reviewTime := histogram("token_review_duration_seconds", "How long the API server took to answer about a token.", slowBuckets)
	looks := counter("principal_looks_total", "Live reads of a plugin's ServiceAccount and pods.", "answered")
	lookTime := histogram("principal_look_duration_seconds", "How long such a read took.", slowBuckets)
	receipts := counter("receipts_total", "Receipts of reads, refusals and replays; one that failed kept its answer from the caller.", "written")
	receiptTime := histogram("receipt_duration_seconds", "How long a receipt took to become durable.", quickBuckets)
	m.fenceTime = histogram("fence_duration_seconds", "How long fences took, by how they ended.", quickBuckets, "outcome")
	m.holdTime = histogram("hold_duration_seconds", "How long writes of holds took, by how they ended.", quickBuckets, "outcome")
	m.passTime = histogram("pass_duration_seconds", "How long passes took, by how they ended.", slowBuckets, "outcome")
	rounds := counter("rounds_total", "Rounds of freshness of this replica.", "succeeded")
	roundTime := histogram("round_duration_seconds", "How long rounds took that renewed the lease.", slowBuckets)
	watchLag := histogram("watch_lag_seconds", "How long a pass waited for the watch to handle what it had read live.", slowBuckets)
	m.proven = gauge("widening_proven", "1 while the admission policies are proven in force; absent until that was tried.")
	m.ready = gauge("ready", "1 while a named condition of readiness holds.", "check")
	m.rows = newRowMetrics(now)
	for _, collector := range []prometheus.Collector{
		m.calls, m.callTime, refused, reviews, reviewTime, looks, lookTime, receipts, receiptTime, m.fenceTime, m.holdTime,
		m.passTime, rounds, roundTime, watchLag, m.proven, m.ready, m.rows, m.events.streams, m.events.dropped, m.events.lag,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "lease_remaining_seconds",
			Help: "What is left of the store's lease as this replica knows it; beyond it nothing commits. Negative: it has run out.",
		}, m.leaseRemaining),
	} {
		if err := registerer.Register(collector); err != nil {
			return nil, fmt.Errorf("register the metrics: %w", err)
		}
	}
	m.tokensRefused, m.reviews = map[identity.Cause]prometheus.Counter{}, map[identity.Answer]prometheus.Counter{}
	for _, cause := range identity.Causes {
		m.tokensRefused[cause] = refused.WithLabelValues(string(cause))
	}
	for _, answer := range identity.Answers {
		m.reviews[answer] = reviews.WithLabelValues(string(answer))
	}
	both := func(v *prometheus.CounterVec) map[bool]prometheus.Counter {
		return map[bool]prometheus.Counter{true: v.WithLabelValues(strconv.FormatBool(true)), false: v.WithLabelValues(strconv.FormatBool(false))}
	}
	m.looks, m.receipts, m.rounds = both(looks), both(receipts), both(rounds)
	single := func(v *prometheus.HistogramVec) prometheus.Histogram {
		return v.WithLabelValues().(prometheus.Histogram) //nolint:errcheck,forcetypeassert // a histogram's series is one
	}
	m.reviewTime, m.lookTime, m.receiptTime = single(reviewTime), single(lookTime), single(receiptTime)
	m.roundTime, m.watchLag = single(roundTime), single(watchLag)
	return m, nil
}

// Follow registers the figures that are read when they are asked for. Any of
// its functions may be nil.
func (m *Metrics) Follow(f Figures) error {
	add := func(name, help string, value func() float64) error {
		g := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, value)
		if err := m.registerer.Register(g); err != nil {
			return fmt.Errorf("register %s: %w", name, err)
		}
		return nil
	}
	if f.QueueWaiting != nil {
		if err := add("store_queue_waiting", "Transactions that wait for their turn in the store's queues.",
			func() float64 { return float64(f.QueueWaiting()) }); err != nil {
			return err
		}
	}
	if f.ReviewsInFlight != nil {
		if err := add("token_reviews_in_flight", "Questions about tokens that are on their way to the API server; at most 64.",
			func() float64 { return float64(f.ReviewsInFlight()) }); err != nil {
			return err
		}
	}
	if f.Principals != nil {
		if err := add("principals_watched", "Plugins whose ServiceAccount and pods are read, since they called in the last minutes.",
			func() float64 { n, _ := f.Principals(); return float64(n) }); err != nil {
			return err
		}
		if err := add("principal_sighting_age_seconds", "Age of the oldest such read that is in use; at 15 seconds its plugin's calls are UNAVAILABLE.",
			func() float64 { _, age := f.Principals(); return age.Seconds() }); err != nil {
			return err
		}
	}
	if f.CertificateEnds != nil {
		return add("certificate_expiry_timestamp_seconds", "When the serving certificate ends, in seconds since 1970.",
			func() float64 { return float64(f.CertificateEnds().Unix()) })
	}
	return nil
}

// Figures are read when the metrics are asked for.
type Figures struct {
	// QueueWaiting is the number of transactions that wait in the store.
	QueueWaiting func() int
	// ReviewsInFlight is the number of token reviews in flight.
	ReviewsInFlight func() int
	// Principals is how many plugins' pods are read, and the age of the oldest
	// read.
	Principals func() (watched int, oldest time.Duration)
	// CertificateEnds is the end of the serving certificate.
	CertificateEnds func() time.Time
}

// Called implements rpc.Observer.
func (m *Metrics) Called(o rpc.Outcome) {
	s, ok := (*m.known.Load())[outcome{o.Method, o.State, o.Reason}]
	if !ok {
		s = m.learn(outcome{o.Method, o.State, o.Reason})
	}
	s.calls.Inc()
	s.took.Observe(o.Took.Seconds())
}

// learn adds the series of an outcome that was not seen before. There are as
// many as the contract has: no caller can make one.
func (m *Metrics) learn(o outcome) series {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := series{
		calls: m.calls.WithLabelValues(o.method, string(o.state), string(o.reason)), took: m.callTime.WithLabelValues(o.method),
	}
	grown := maps.Clone(*m.known.Load())
	grown[o] = s
	m.known.Store(&grown)
	return s
}

// Refused implements identity.Observer.
func (m *Metrics) Refused(cause identity.Cause) {
	if c, ok := m.tokensRefused[cause]; ok {
		c.Inc()
	}
}

// Reviewed implements identity.Observer.
func (m *Metrics) Reviewed(answer identity.Answer, took time.Duration) {
	if c, ok := m.reviews[answer]; ok {
		c.Inc()
	}
	m.reviewTime.Observe(took.Seconds())
}

// Looked implements identity.Observer.
func (m *Metrics) Looked(answered bool, took time.Duration) {
	m.looks[answered].Inc()
	m.lookTime.Observe(took.Seconds())
}

// Round implements controllers.Observer.
func (m *Metrics) Round(took time.Duration, err error) {
	m.rounds[err == nil].Inc()
	if err == nil {
		m.roundTime.Observe(took.Seconds())
	}
}

// Watched implements controllers.Observer.
func (m *Metrics) Watched(lag time.Duration) { m.watchLag.Observe(lag.Seconds()) }

// Proven implements controllers.Observer.
func (m *Metrics) Proven(proven bool) {
	value := 0.0
	if proven {
		value = 1
	}
	m.proven.WithLabelValues().Set(value)
}

// lease records what is left of the lease from a moment of this process on.
func (m *Metrics) lease(from time.Time, left time.Duration) {
	m.leased.Store(int64(from.Add(left).Sub(m.made)))
}

func (m *Metrics) leaseRemaining() float64 {
	return (time.Duration(m.leased.Load()) - m.now().Sub(m.made)).Seconds()
}
