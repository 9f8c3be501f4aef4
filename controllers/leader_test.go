package controllers

import (
	"context"
	"testing"

	"github.com/go-logr/logr"

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
