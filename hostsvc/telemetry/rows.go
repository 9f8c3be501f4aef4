package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kandev/plugin-host/hostsvc/authority"
)

// rowMetrics sums up the rows of authority, whenever somebody lists them all: a
// round and a sweep do.
type rowMetrics struct {
	now func() time.Time

	rows, holds, oldestHold, starting, gated, newest *prometheus.Desc

	mu    sync.Mutex
	known bool
	sum   summary
	// held is when each hold was first listed.
	held map[authority.Key]time.Time
}

type summary struct {
	states          map[authority.State]int
	starting, gated int
	newest          time.Time
}

// rowStates are the states that a row can be in.
var rowStates = []authority.State{authority.StateNone, authority.StateActive, authority.StateRevoked, authority.StateExpired}

func newRowMetrics(now func() time.Time) *rowMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
	}
	return &rowMetrics{
		now: now, held: map[authority.Key]time.Time{},
		rows:       desc("rows", "Rows of authority by state, as last listed.", "state"),
		holds:      desc("holds_pending", "Rows with a narrowing that is in force and not yet a revision."),
		oldestHold: desc("hold_oldest_seconds", "How long the oldest of them has been pending; 0 for none."),
		starting:   desc("rows_starting", "Rows that were rebuilt from their event and wait for live reads; nothing is effective meanwhile."),
		gated:      desc("rows_gated", "Rows with a closed gate."),
		newest:     desc("revision_age_seconds", "Time since the newest revision of all rows."),
	}
}

// observe takes a listing of every row.
func (r *rowMetrics) observe(rows []authority.Row) {
	sum := summary{states: map[authority.State]int{}}
	now := r.now()
	held := map[authority.Key]time.Time{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range rows {
		row := &rows[i]
		sum.states[row.State]++
		if row.Starting {
			sum.starting++
		}
		if row.Gates != 0 {
			sum.gated++
		}
		if row.UpdatedAt.After(sum.newest) {
			sum.newest = row.UpdatedAt
		}
		if row.Hold == nil {
			continue
		}
		held[row.Key] = now
		if since, ok := r.held[row.Key]; ok {
			held[row.Key] = since
		}
	}
	r.known, r.sum, r.held = true, sum, held
}

// Describe implements prometheus.Collector.
func (r *rowMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{r.rows, r.holds, r.oldestHold, r.starting, r.gated, r.newest} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (r *rowMetrics) Collect(out chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known {
		return
	}
	now := r.now()
	put := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for _, state := range rowStates {
		put(r.rows, float64(r.sum.states[state]), state.String())
	}
	oldest := now
	for _, since := range r.held {
		if since.Before(oldest) {
			oldest = since
		}
	}
	put(r.holds, float64(len(r.held)))
	put(r.oldestHold, now.Sub(oldest).Seconds())
	put(r.starting, float64(r.sum.starting))
	put(r.gated, float64(r.sum.gated))
	if !r.sum.newest.IsZero() {
		put(r.newest, now.Sub(r.sum.newest).Seconds())
	}
}
