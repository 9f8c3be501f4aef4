package events_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/events"
)

// guard proves an identity until it is lost, and counts how often it is asked.
type guard struct {
	asked atomic.Int64
	mu    sync.Mutex
	lost  error
}

func (g *guard) proven(context.Context) error {
	g.asked.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lost
}

func (g *guard) lose(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost = err
}

// checked waits until the stream has been checked twice more: at least the second
// check began after the call.
func (w *world) checked(g *guard) {
	w.Helper()
	want := g.asked.Load() + 2
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(w.timeout); g.asked.Load() < want; <-poll.C {
		if time.Now().After(deadline) {
			w.Fatal("the stream is not checked")
		}
	}
}

// sending waits in Sent, in a goroutine of its own, for a message that is taken when
// sent says so, and returns once it waits.
func (w *world) sending(s *events.Stream, g *guard, sent <-chan error) (done <-chan error) {
	w.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.Sent(w.Context(), sent) }()
	w.checked(g)
	return ended
}

func (w *world) wait(done <-chan error) error {
	w.Helper()
	limit := time.NewTimer(w.timeout)
	defer limit.Stop()
	select {
	case err := <-done:
		return err
	case <-limit.C:
		w.Fatal("the stream still waits")
		return nil
	}
}

// counts is what an observer was told.
type counts struct{ watching, dropped, delivered atomic.Int64 }

func (c *counts) Watching(n int)          { c.watching.Add(int64(n)) }
func (c *counts) Dropped()                { c.dropped.Add(1) }
func (c *counts) Delivered(time.Duration) { c.delivered.Add(1) }

// A message waits for its reader for a bounded time, by the Host's clock, and its
// place is free as soon as the stream is closed.
func TestUnreadMessageEndsTheStream(t *testing.T) {
	short := limits
	short.Behind, short.Streams = time.Minute, 1
	d, seen := onSQLite(t), &counts{}
	d.mutate = func(c *events.Config) { c.Observer = seen }
	w := d.world(short)
	w.seen.declare(alpha, "task.*")
	g := &guard{}
	s, err := w.open(alpha, events.Watch{Proven: g.proven})
	w.must(err)
	w.event(s)
	w.commit("w", "task.created", "taken", nil)
	at := w.event(s)
	sent := make(chan error, 1)
	done := w.sending(s, g, sent)
	w.clock.advance(30 * time.Second) // the clock goes on by itself, too
	w.checked(g)
	sent <- nil
	w.must(w.wait(done))
	if n := seen.delivered.Load(); n != 1 {
		t.Errorf("%d events were delivered", n)
	}
	w.commit("w", "task.created", "unread", nil)
	w.event(s)
	done = w.sending(s, g, sent)
	w.clock.advance(30 * time.Second)
	w.checked(g)
	select {
	case err := <-done:
		t.Fatalf("the stream ends in time with %v", err)
	default:
	}
	w.clock.advance(30 * time.Second)
	refusal := w.asRefusal(w.wait(done))
	w.wantSlow(refusal, "a message was not read in time")
	if refusal.RetryAfter == 0 || seen.dropped.Load() != 1 || seen.delivered.Load() != 1 {
		t.Errorf("come back after %v; %d dropped and %d delivered", refusal.RetryAfter, seen.dropped.Load(), seen.delivered.Load())
	}
	s.Close()
	again := w.watch(alpha, events.Watch{Cursor: at.Cursor})
	w.event(again)
	if e := w.event(again).Event; e.ResourceID != "unread" {
		t.Errorf("back again, %s comes", e.ResourceID)
	}
}

// Who reads each message just in time is behind the ring all the same.
func TestTricklingReaderIsDropped(t *testing.T) {
	short := limits
	short.Ring, short.Behind = 8, time.Minute
	w := onSQLite(t).world(short)
	w.seen.declare(alpha, "task.*")
	g := &guard{}
	slow, fast := w.watch(alpha, events.Watch{Proven: g.proven}), w.watch(alpha, events.Watch{})
	w.event(slow)
	w.event(fast)
	w.commit("w", "task.created", "first", nil)
	w.event(slow)
	w.event(fast)
	for i := range 100 {
		w.commit("w", "task.created", fmt.Sprint(i), nil)
		w.event(fast)
	}
	sent := make(chan error, 1)
	for range 2 {
		w.event(slow)
		done := w.sending(slow, g, sent)
		w.clock.advance(25 * time.Second)
		w.checked(g)
		sent <- nil
		w.must(w.wait(done))
	}
	w.event(slow)
	done := w.sending(slow, g, sent)
	w.clock.advance(25 * time.Second)
	w.wantSlow(w.asRefusal(w.wait(done)), "the stream was not read in time")
}

// A message that nobody reads keeps no stream beyond its authority: that is asked for
// while it waits as it is while nothing does.
func TestI6_UnreadMessageIsUnderAuthority(t *testing.T) { onBoth(t, unreadMessageIsUnderAuthority) }

func unreadMessageIsUnderAuthority(d database) {
	t := d.TB
	w := d.world(limits)
	expired := errors.New("the pod is gone")
	const noLonger = contract.Reason("what waits is taken back")
	legacy := func(change func(*authority.Legacy)) func(*guard) {
		return func(*guard) { w.seen.set(alpha, change) }
	}
	for _, c := range []struct {
		name   string
		take   func(*guard)
		reason contract.Reason
	}{
		{"suspended", legacy(func(l *authority.Legacy) { l.Gates |= authority.GateSuspended }), contract.ReasonCapabilityRevoked},
		{"uninstalled", legacy(func(l *authority.Legacy) { l.Installed = false }), contract.ReasonCapabilityRevoked},
		{"unseen", legacy(func(l *authority.Legacy) { l.FreshUntil = time.Time{} }), contract.ReasonDependencyUnavailable},
		{"no longer declared", legacy(func(l *authority.Legacy) { l.Events = []string{"task.*"} }), noLonger},
		{"the approval is revoked", func(*guard) { w.fence(alpha, "w", authority.StateRevoked) }, noLonger},
		{"the identity is lost", func(g *guard) { g.lose(expired) }, ""},
	} {
		t.Log(c.name)
		w.seen.declare(alpha, "task.*", "task_relation.*")
		w.fence(alpha, "w", authority.StateActive)
		g := &guard{}
		s := w.watch(alpha, events.Watch{Proven: g.proven})
		w.event(s)
		w.commit("w", "task_relation.created", "r", nil)
		for w.event(s).Event.Type != "task_relation.created" {
		}
		done := w.sending(s, g, nil) // and the clock goes on as ever
		c.take(g)
		err := w.wait(done)
		switch {
		case c.reason == noLonger:
			w.wantSlow(w.asRefusal(err), "a message that was not read may no longer be sent")
		case c.reason != "":
			w.wantReason(w.asRefusal(err), c.reason, "")
		case !errors.Is(err, expired):
			t.Errorf("the stream ends with %v", err)
		}
	}
}

// What Send says of the transport, and the end of the caller, end the wait as they
// are: neither is a refusal.
func TestSentEnds(t *testing.T) {
	w := onSQLite(t).world(limits)
	w.seen.declare(alpha, "task.*")
	s := w.watch(alpha, events.Watch{})
	w.event(s)
	records := len(w.audit.records)
	broken := errors.New("the connection is gone")
	sent := make(chan error, 1)
	sent <- broken
	if err := s.Sent(t.Context(), sent); !errors.Is(err, broken) {
		t.Errorf("it ends with %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the server stops")
	cancel(why)
	if err := s.Sent(ctx, nil); !errors.Is(err, why) {
		t.Errorf("it ends with %v", err)
	}
	if len(w.audit.records) != records {
		t.Errorf("recorded is %+v", w.audit.last())
	}
}
