package controllers

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// requests feeds a controller from within: what is added before the controller
// runs, on a replica that doesn't lead, waits for it. Each request is kept once.
type requests[request comparable] struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[request]
	early map[request]struct{}
}

func newRequests[request comparable]() *requests[request] {
	return &requests[request]{early: map[request]struct{}{}}
}

func (r *requests[request]) add(one request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue == nil {
		r.early[one] = struct{}{}
		return
	}
	r.queue.Add(one)
}

// source is the controller's end.
func (r *requests[request]) source() source.TypedSource[request] {
	return source.TypedFunc[request](func(_ context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.queue = queue
		for one := range r.early {
			queue.Add(one)
		}
		r.early = nil
		return nil
	})
}
