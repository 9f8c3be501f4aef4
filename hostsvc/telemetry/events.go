package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kandev/plugin-host/hostsvc/events"
)

var _ events.Observer = (*Metrics)(nil)

// eventMetrics are those of the streams of events.
type eventMetrics struct {
	streams prometheus.Gauge
	dropped prometheus.Counter
	lag     prometheus.Histogram
}

func newEventMetrics() eventMetrics {
	return eventMetrics{
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "event_streams", Help: "Streams of events that are open in this process.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "event_streams_dropped_total", Help: "Streams that were ended for not being read in time.",
		}),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "event_delivery_seconds",
			Help: "From the commit of an event until it is sent to one stream; of those that are resumed, the time away included.", Buckets: slowBuckets,
		}),
	}
}

// Watching implements events.Observer.
func (m *Metrics) Watching(streams int) { m.events.streams.Add(float64(streams)) }

// Dropped implements events.Observer.
func (m *Metrics) Dropped() { m.events.dropped.Inc() }

// Delivered implements events.Observer.
func (m *Metrics) Delivered(after time.Duration) { m.events.lag.Observe(after.Seconds()) }
