package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/hostsvc/fence"
)

// electing is a store whose terms begin in an epoch.
type electing struct {
	*ledgerOf
	epoch    uint64
	complete func()
}

func (e *electing) BeginRound(context.Context) (Round, error) {
	return Round{StoreID: "s", StoreEpoch: e.epoch}, nil
}

func (e *electing) Lead(context.Context) (fence.Term, error) {
	return fence.Term{StoreEpoch: e.epoch, LeaderEpoch: 1}, nil
}

func (e *electing) Complete(context.Context, fence.Term) error {
	e.complete()
	return nil
}

// A process that leads again in another epoch of the store has watched nothing of
// what the rows have: its holds are gone.
func TestI7_ATermInAnotherEpochBeginsTheHistoryAnew(t *testing.T) {
	w := newWorld(t)
	c := w.cluster()
	watch := newWatch(c.view, nil, c, c.bindings, logr.Discard())
	defer watch.queue.ShutDown()
	s := &electing{ledgerOf: &ledgerOf{w: w}, epoch: 1}
	l := newLeader(s, &events{live: w}, c.bindings, c.view, &marks{live: w, namespace: "host"}, nil, logr.Discard())
	l.all = func(context.Context) error { return nil }
	l.beginIn = watch.beginIn
	watch.beginIn(storeEpoch{"s", 1})
	watch.deliver(seen("a", 1), seen("a", 2), seen("a", 3))
	object := fence.Object{Namespace: somewhere.Namespace, Name: somewhere.Name, UID: "a"}
	for _, term := range []struct {
		epoch uint64
		from  int64
	}{{1, 1}, {2, 3}} {
		s.epoch = term.epoch
		s.complete = func() {
			watch.deliver()
			if from, err := watch.WatchedFrom(t.Context(), object, 3); err != nil || from != term.from {
				t.Errorf("epoch %d: watched from %d (%v), want %d", term.epoch, from, err, term.from)
			}
		}
		if err := l.lead(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.resign()
	}
}

// older is a store under which an older copy is put: one whose terms are refused
// until another epoch begins.
type older struct {
	*ledgerOf
	mu     sync.Mutex
	epoch  uint64
	term   uint64
	copied bool
	// lose loses the store once an epoch has begun in it.
	lose bool
	id   string
}

func (o *older) BeginRound(context.Context) (Round, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return Round{StoreID: o.id, StoreEpoch: o.epoch, Older: o.copied}, nil
}

func (o *older) BeginEpoch(context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.epoch, o.copied = o.epoch+1, false
	if o.lose {
		o.id, o.epoch, o.lose = "another", 1, false
	}
	return nil
}

func (o *older) Lead(context.Context) (fence.Term, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.term++
	if o.term == 1 {
		o.copied = true // after the comparison with what the cluster knows
	}
	return fence.Term{StoreEpoch: o.epoch, LeaderEpoch: o.term}, nil
}

func (o *older) Complete(context.Context, fence.Term) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.copied {
		return fmt.Errorf("complete: %w", fence.ErrOlderStore)
	}
	return nil
}

func (o *older) putBack() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.copied = true
}

// writes takes every mark that is written.
type writes struct{ client.Client }

func (writes) Create(context.Context, client.Object, ...client.CreateOption) error { return nil }

// A leader that finds an older copy of its store goes on in another epoch of it,
// with nothing handled: what its holds were is gone. The process remembers how far
// the store was, so it doesn't end. Where another process leads, it does.
func TestI7_AnOlderCopyUnderALeaderBeginsAnEpoch(t *testing.T) {
	w := newWorld(t)
	c := w.cluster()
	s := &older{ledgerOf: &ledgerOf{w: w}, epoch: 1, id: "s"}
	current := make(chan struct{})
	close(current)
	l := newLeader(s, &events{live: w}, c.bindings, c.view, &marks{live: w, writer: writes{}, namespace: "host"},
		&schemas{current: current}, logr.Discard())
	led, began := make(chan struct{}), make(chan storeEpoch, 8)
	l.all = func(context.Context) error { led <- struct{}{}; return nil }
	l.beginIn = func(e storeEpoch) { began <- e }
	ended := make(chan error, 1)
	go func() { ended <- l.Start(t.Context()) }()
	lead := func() fence.Term {
		t.Helper()
		select {
		case <-led:
		case err := <-ended:
			t.Fatalf("the process ends: %v", err)
		}
		term, err := l.wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return term
	}
	first := lead()
	if first.StoreEpoch != 2 || (<-began).epoch != 1 || (<-began).epoch != 2 {
		t.Fatalf("a copy that was put back while the term began leads to term %+v", first)
	}
	s.putBack()
	deposed := fmt.Errorf("fence: %w", fence.ErrOlderStore)
	l.depose(first, deposed)
	l.depose(first, deposed) // as two passes do
	second := lead()
	if second.StoreEpoch != 3 || (<-began).epoch != 3 {
		t.Fatalf("a copy that was put back under term %+v leads to %+v", first, second)
	}
	l.depose(first, fence.ErrDeposed) // which this process has ended itself
	l.depose(second, fence.ErrDeposed)
	if err := <-ended; !errors.Is(err, fence.ErrDeposed) {
		t.Errorf("the process ends with %v", err)
	}
	select {
	case e := <-began:
		t.Errorf("another term begins in %+v", e)
	default:
	}
}

// The cluster knows the store that an epoch has begun in. One that is lost in
// between has begun none.
func TestI7_NoMarkOfAStoreThatNoEpochHasBegunIn(t *testing.T) {
	w := newWorld(t)
	c := w.cluster()
	s := &older{ledgerOf: &ledgerOf{w: w}, epoch: 1, id: "s", copied: true, lose: true}
	// No mark can be written: there is no writer.
	l := newLeader(s, &events{live: w}, c.bindings, c.view, &marks{live: w, namespace: "host"}, nil, logr.Discard())
	if err := l.beginEpoch(t.Context()); !errors.Is(err, errStoreBehind) {
		t.Errorf("the store is lost once its epoch has begun: %v", err)
	}
}
