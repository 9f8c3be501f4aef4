package sdk

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// maxWaiting is how many events of a kind wait at most; with more, the kind is
// listed instead.
const maxWaiting = 1000

// agenda is what a Reconciler has to do. It never holds more than maxWaiting events
// of a kind, so that the stream is always read in time.
type agenda struct {
	resync time.Duration
	// wake has room for one token: there may be more to do.
	wake chan struct{}

	mu     sync.Mutex
	duties []*duty
	// turn is whose events are looked at next.
	turn int
}

// duty is what is to be done about one kind.
type duty struct {
	kind AnyKind
	// standing is what was known of the plugin's authority in the kind's workspace.
	standing *pluginv1.WorkspaceCapabilityContext

	// cause is why the kind is to be listed, not before begin; empty: it is not.
	cause Cause
	begin time.Time
	// events wait, each about another resource. There are none before the first list,
	// and none while a list is due: it begins later, and so shows what they are about.
	events []Event
	// pause is the last one after a failure, 0 after a success.
	pause time.Duration
	// listed: the kind was listed, and is again at resync at the latest.
	listed bool
	resync time.Time
}

// item is one thing to do: an event, or a list where cause is set.
type item struct {
	duty  *duty
	cause Cause
	event Event
}

func (i item) do(ctx context.Context) error {
	if i.cause != "" {
		return i.duty.kind.sync(ctx, i.cause)
	}
	return i.duty.kind.changed(ctx, i.event)
}

// list makes a kind be listed, soon. What waits is part of it.
func (d *duty) list(cause Cause, begin time.Time) {
	if d.cause == "" || begin.Before(d.begin) {
		d.cause, d.begin = cause, begin
	}
	d.events = nil
}

// listAll makes all kinds be listed now.
func (a *agenda) listAll(cause Cause) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range a.duties {
		d.list(cause, time.Now())
	}
	a.notify()
}

// judge makes the kinds be listed in whose workspace the plugin's authority changed.
func (a *agenda) judge(of func(workspaceID string) *pluginv1.WorkspaceCapabilityContext) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range a.duties {
		_, workspaceID, _ := d.kind.about()
		if now := of(workspaceID); !proto.Equal(d.standing, now) {
			d.standing = now
			d.list(CauseAuthority, time.Now())
		}
	}
	a.notify()
}

// hear takes an event in.
func (a *agenda) hear(event Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range a.duties {
		_, workspaceID, patterns := d.kind.about()
		if event.WorkspaceID != "" && event.WorkspaceID != workspaceID || !matchesAny(patterns, event.Type) {
			continue
		}
		switch {
		case d.cause != "" || !d.listed:
		case !d.kind.takesEvents():
			d.list(CauseEvent, time.Now().Add(settle))
		case d.waits(event):
		case len(d.events) == maxWaiting:
			d.list(CauseGap, time.Now())
		default:
			d.events = append(d.events, event)
		}
	}
	a.notify()
}

// waits tells whether another event about the same waits already: the one that it is
// read for shows this one's change, too.
func (d *duty) waits(event Event) bool {
	for _, e := range d.events {
		if e.ID == event.ID || e.Type == event.Type && e.ResourceID == event.ResourceID && e.ResourceID != "" {
			return true
		}
	}
	return false
}

// take returns what is to be done now, or how long there is nothing.
func (a *agenda) take(now time.Time) (next item, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	wait = a.resync
	for _, d := range a.duties {
		if d.listed && d.cause == "" {
			if !d.resync.After(now) {
				d.list(CauseResync, now)
			} else {
				wait = min(wait, d.resync.Sub(now))
			}
		}
		if d.cause == "" {
			continue
		}
		if !d.begin.After(now) {
			next = item{duty: d, cause: d.cause}
			// From here on events wait again: they may be about what comes after it.
			d.cause, d.listed = "", true
			d.resync = now.Add(a.resync)
			return next, 0
		}
		wait = min(wait, d.begin.Sub(now))
	}
	for i := range a.duties {
		d := a.duties[(a.turn+i)%len(a.duties)]
		if len(d.events) > 0 {
			next = item{duty: d, event: d.events[0]}
			d.events = d.events[1:]
			a.turn += i + 1
			return next, 0
		}
	}
	return item{}, wait
}

// done says how it went: what failed makes the kind be listed again, later.
func (a *agenda) done(i item, err error, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := i.duty
	switch {
	case err != nil:
		d.pause = min(max(2*d.pause, firstDelay), longestPause)
		d.list(CauseFailed, now.Add(spread(d.pause)))
	case i.cause != "":
		d.pause = 0
		d.resync = now.Add(a.resync - spread(a.resync/5))
	}
}

func (a *agenda) notify() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}
