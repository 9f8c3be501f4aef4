package rpc

import (
	"sync"
	"sync/atomic"
	"time"
)

// crowd bounds each installation's calls in flight, so that one plugin can't
// take the readers and the places in the queues of all others. A call beyond
// the bound is UNAVAILABLE/DEPENDENCY_UNAVAILABLE with retry_after: nothing was
// done, and the same again is right a moment later. It is not RATE_LIMITED,
// whose one reason is a provider's budget.
type crowd struct {
	limit   int64
	now     func() time.Time
	flights sync.Map // installation ID -> *flight
}

// flight counts the calls of one installation, and bounds what is logged of
// those that failed. It stays when it is empty: there are as many as
// installations that ever called this process.
type flight struct {
	calls    atomic.Int64
	failures sample
}

// enter counts a call in; crowded is true where it is one too many, and such a
// call must only be refused.
func (c *crowd) enter(installationID string) (f *flight, crowded bool) {
	found, ok := c.flights.Load(installationID)
	if !ok {
		found, _ = c.flights.LoadOrStore(installationID, &flight{failures: sample{now: c.now}})
	}
	f = found.(*flight) //nolint:errcheck,forcetypeassert // nothing else is stored
	return f, f.calls.Add(1) > c.limit
}

func (f *flight) leave() { f.calls.Add(-1) }
