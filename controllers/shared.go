package controllers

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// sharedTimeout bounds one shared request; it has no caller's context.
const sharedTimeout = 30 * time.Second

// shared is a live reader whose equal reads share requests. A read joins a
// request that begins after it was asked for, never one that has begun: what a
// pass gets is always from after it read its row (authority.md, compute). With
// thousands of approvals of a few installations in a few namespaces, that is
// one request for many passes, and one alone costs nothing more.
type shared struct {
	inner client.Reader

	mu      sync.Mutex
	flights map[string]*flights
}

// flights are the requests of one kind: one under way and one that waits for
// its end.
type flights struct{ running, next *flight }

// flight is one request. It is under way from begun on and has an answer once
// done is closed.
type flight struct {
	read   func(context.Context) (runtime.Object, error)
	done   chan struct{}
	answer runtime.Object
	err    error
}

func newShared(inner client.Reader) *shared {
	return &shared{inner: inner, flights: map[string]*flights{}}
}

// Get implements client.Reader.
func (s *shared) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	fresh, ok := object.DeepCopyObject().(client.Object)
	if !ok || len(options) > 0 {
		return s.inner.Get(ctx, key, object, options...) //nolint:wrapcheck // it is the reader
	}
	return s.read(ctx, fmt.Sprintf("%T %s %s", object, object.GetObjectKind().GroupVersionKind(), key), object,
		func(ctx context.Context) (runtime.Object, error) { return fresh, s.inner.Get(ctx, key, fresh) })
}

// List implements client.Reader.
func (s *shared) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	fresh, ok := list.DeepCopyObject().(client.ObjectList)
	if !ok {
		return s.inner.List(ctx, list, options...) //nolint:wrapcheck // it is the reader
	}
	var o client.ListOptions
	o.ApplyOptions(options)
	key := fmt.Sprintf("%T %s %+v", list, list.GetObjectKind().GroupVersionKind(), *o.AsListOptions())
	return s.read(ctx, key+" in "+o.Namespace, list,
		func(ctx context.Context) (runtime.Object, error) { return fresh, s.inner.List(ctx, fresh, &o) })
}

func (s *shared) read(ctx context.Context, key string, into runtime.Object, read func(context.Context) (runtime.Object, error)) error {
	f := s.join(ctx, key, read)
	select {
	case <-f.done:
	case <-ctx.Done():
		return fmt.Errorf("wait for a shared read: %w", ctx.Err())
	}
	if f.err != nil {
		return f.err
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(f.answer.DeepCopyObject()).Elem())
	return nil
}

// join returns the request that begins next, which is this moment if none is
// under way.
func (s *shared) join(ctx context.Context, key string, read func(context.Context) (runtime.Object, error)) *flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.flights[key]
	if all == nil {
		all = &flights{}
		s.flights[key] = all
	}
	if all.next != nil {
		return all.next
	}
	f := &flight{read: read, done: make(chan struct{})}
	if all.running != nil {
		all.next = f
		return f
	}
	all.running = f
	// Who asked may go away; those who joined stay.
	go s.fly(context.WithoutCancel(ctx), key, f)
	return f
}

// fly runs a request and those that were asked for meanwhile.
func (s *shared) fly(ctx context.Context, key string, f *flight) {
	for f != nil {
		bounded, cancel := context.WithTimeout(ctx, sharedTimeout)
		f.answer, f.err = f.read(bounded)
		cancel()
		close(f.done)

		s.mu.Lock()
		all := s.flights[key]
		f, all.running, all.next = all.next, all.next, nil
		if f == nil {
			delete(s.flights, key)
		}
		s.mu.Unlock()
	}
}
