package controllers

import (
	"context"
	"errors"
	"hash/fnv"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kandev/plugin-host/hostsvc/authority"
)

// Priorities of requests. What takes authority away goes before all else: at the
// start of a term every row has a request, and a revocation must not wait for
// them.
const (
	urgent = 100
	normal = 0
	idle   = handler.LowPriority
)

var errNoPriorities = errors.New("the controller's queue knows no priorities")

// requests feeds a controller from within: what is added before the controller
// runs, on a replica that doesn't lead, waits for it. Each request is kept once,
// at the highest of its priorities.
type requests[request comparable] struct {
	mu    sync.Mutex
	queue priorityqueue.PriorityQueue[request]
	early map[request]int
}

func newRequests[request comparable]() *requests[request] {
	return &requests[request]{early: map[request]int{}}
}

func (r *requests[request]) add(one request) { r.addAt(normal, one) }

// hurry is add for what takes authority away.
func (r *requests[request]) hurry(one request) { r.addAt(urgent, one) }

// together is the priority of a pass that nothing hurries. Those of one
// installation go together, and so share their live reads: at a cold start with
// thousands of approvals that is most of the work. It moves nobody for long:
// what is urgent goes before, and the rest is as many as it is.
func together(key authority.Key) int {
	const groups = 64
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(key.InstallationID)) // it never fails
	return normal - int(hash.Sum32()%groups)
}

// later adds what isn't urgent once a while has passed, so that what is asked for
// many times meanwhile is done once.
func (r *requests[request]) later(one request, after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue == nil {
		r.early[one] = max(r.early[one], normal)
		return
	}
	r.queue.AddWithOpts(priorityqueue.AddOpts{After: after}, one)
}

// pace spaces what is done again and again for one thing.
type pace struct {
	least, every time.Duration

	mu  sync.Mutex
	due map[string]time.Time
}

// wait returns how long the next time is away: at least a little, so that what
// comes together is done once, and longer where the last time was a moment ago.
func (p *pace) wait(name string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	due := p.due[name]
	if !now.Before(due) {
		next := now.Add(p.least)
		if again := due.Add(p.every); again.After(next) {
			next = again
		}
		if p.due == nil {
			p.due = map[string]time.Time{}
		}
		p.due[name], due = next, next
	}
	return due.Sub(now)
}

// addAt adds at a priority.
func (r *requests[request]) addAt(priority int, one request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue == nil {
		if before, ok := r.early[one]; !ok || before < priority {
			r.early[one] = priority
		}
		return
	}
	r.queue.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, one)
}

// source is the controller's end.
func (r *requests[request]) source() source.TypedSource[request] {
	return source.TypedFunc[request](func(_ context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
		ordered, ok := queue.(priorityqueue.PriorityQueue[request])
		if !ok {
			return errNoPriorities
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.queue = ordered
		for one, priority := range r.early {
			ordered.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, one)
		}
		r.early = nil
		return nil
	})
}
