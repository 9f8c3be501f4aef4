package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/query"
)

// Kept is how long a stream can be resumed, and how far back one can start: a
// plugin that was away for longer reads everything again. What was emitted stays in
// the store for twice as long, as one may start far back and be resumed later.
const Kept = time.Hour

// Limits are what a hub does at most, and how soon. The zero value of a field is the
// default.
type Limits struct {
	// Streams of one installation, and of all of them, in this process.
	Streams, AllStreams int
	// Ring is how many of the newest events are in memory, RingBytes what they take
	// there, about.
	Ring, RingBytes int
	// Poll is how often the store is asked for what other processes have committed,
	// Pace how soon after an answer it is asked again.
	Poll, Pace time.Duration
	// Heartbeat is how long a stream is silent, Check how long it goes without being
	// checked.
	Heartbeat, Check time.Duration
	// Behind is how long a stream that has caught up may be behind the ring, and how
	// long a message may wait for its reader.
	Behind time.Duration
}

func (l Limits) orDefault() Limits {
	for _, number := range []struct {
		value *int
		or    int
	}{{&l.Streams, 16}, {&l.AllStreams, 1024}, {&l.Ring, 8192}, {&l.RingBytes, 32 << 20}} {
		if *number.value == 0 {
			*number.value = number.or
		}
	}
	for _, span := range []struct {
		value *time.Duration
		or    time.Duration
	}{
		{&l.Poll, 100 * time.Millisecond}, {&l.Pace, 5 * time.Millisecond}, {&l.Heartbeat, 10 * time.Second},
		{&l.Check, time.Second}, {&l.Behind, 10 * time.Second},
	} {
		if *span.value == 0 {
			*span.value = span.or
		}
	}
	return l
}

const (
	// pageSize is how many events are read from the store at a time. A stream begins
	// with firstPage, and reads as many as it may keep.
	pageSize, firstPage = 256, 16
	// catching is how many streams read from the store at once.
	catching = 4
)

// Config is what a hub is made of.
type Config struct {
	Store Store
	// Rows are what approvals are read from.
	Rows     query.Store
	View     admission.View
	Legacy   admission.LegacyView
	Plugins  Plugins
	Receipts admission.Receipts
	Cursors  *query.Cursors
	Now      func() time.Time
	// NewAuditID returns a random audit ID.
	NewAuditID func() string
	Log        *slog.Logger
	// Observer may be nil.
	Observer Observer
	Limits   Limits
}

// Observer is told what streams do, for metrics. It must not block.
type Observer interface {
	// Watching counts a stream that begins, and with -1 one that ends.
	Watching(streams int)
	// Dropped counts a stream that was ended for being slow.
	Dropped()
	// Delivered counts an event that was sent that long after it had been committed.
	Delivered(after time.Duration)
}

// unobserved is an Observer that nobody listens to.
type unobserved struct{}

// Watching implements Observer.
func (unobserved) Watching(int) {}

// Dropped implements Observer.
func (unobserved) Dropped() {}

// Delivered implements Observer.
func (unobserved) Delivered(time.Duration) {}

// Hub delivers events to streams. It is safe for concurrent use.
type Hub struct {
	config Config
	limits Limits
	// catching has a place for each stream that reads from the store.
	catching chan struct{}

	mu sync.Mutex
	// streams counts them by installation, all altogether.
	streams map[string]int
	all     int
	// feed runs while all is more than zero.
	feed *feed
}

// NewHub returns a hub. It reads nothing until somebody watches.
func NewHub(config Config) *Hub {
	if config.Observer == nil {
		config.Observer = unobserved{}
	}
	return &Hub{
		config: config, limits: config.Limits.orDefault(), catching: make(chan struct{}, catching), streams: map[string]int{},
	}
}

// enter counts a stream of an installation in.
func (h *Hub) enter(installationID string) (ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams[installationID] >= h.limits.Streams || h.all >= h.limits.AllStreams {
		return false
	}
	h.streams[installationID]++
	h.all++
	h.config.Observer.Watching(1)
	return true
}

// join returns the feed, which begins at page's end of the order where none runs.
func (h *Hub) join(page Page) *feed {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.feed == nil || h.feed.ended() {
		h.feed = newFeed(h, page)
	}
	return h.feed
}

// leave counts a stream out. The feed ends with the last one.
func (h *Hub) leave(installationID string) {
	h.mu.Lock()
	h.streams[installationID]--
	if h.streams[installationID] == 0 {
		delete(h.streams, installationID)
	}
	h.all--
	h.config.Observer.Watching(-1)
	var last *feed
	if h.all == 0 {
		last, h.feed = h.feed, nil
	}
	h.mu.Unlock()
	if last != nil {
		last.stop()
		<-last.done
	}
}

// read reads at most limit events that the ring does not hold, and returns of them what
// one stream may keep: they stay in memory until it has sent them.
func (h *Hub) read(ctx context.Context, after Position, limit int) (Page, error) {
	select {
	case h.catching <- struct{}{}:
		defer func() { <-h.catching }()
	case <-ctx.Done():
		return Page{}, fmt.Errorf("wait to read events: %w", ctx.Err())
	}
	page, err := h.config.Store.Events(ctx, after, limit)
	if err != nil {
		return Page{}, fmt.Errorf("read events: %w", err)
	}
	bytes := 0
	for i := range page.Records {
		bytes += page.Records[i].size()
		if i > 0 && bytes > chunkBytes {
			page.Records, page.End = slices.Clone(page.Records[:i]), page.Records[i-1].Position
			break
		}
	}
	return page, nil
}

// Errors of a feed.
var (
	// errOtherOrder: the store was replaced or restored.
	errOtherOrder = errors.New("the order of events is another one now")
	// errBehind: the ring no longer holds what was asked for.
	errBehind = errors.New("the ring has gone on")
)

// feed is the one reader of the store's tail, with the ring of what it read last.
type feed struct {
	hub  *Hub
	stop context.CancelFunc
	done chan struct{}

	mu sync.Mutex
	// ring holds every event behind floor up to tail, in order.
	ring        []*Event
	bytes       int
	floor, tail Position
	origin      Origin
	// read is when the tail was read last.
	read time.Time
	// changed is closed, and replaced, when anything here has changed.
	changed chan struct{}
	failure error
}

func newFeed(h *Hub, page Page) *feed {
	ctx, stop := context.WithCancel(context.Background())
	f := &feed{
		hub: h, stop: stop, done: make(chan struct{}), floor: page.Settled, tail: page.Settled, origin: page.Origin,
		read: h.config.Now(), changed: make(chan struct{}),
	}
	go f.run(ctx)
	return f
}

func (f *feed) ended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failure != nil
}

func (f *feed) run(ctx context.Context) {
	defer close(f.done)
	poll := time.NewTimer(f.hub.limits.Poll)
	defer poll.Stop()
	healthy := true
	for {
		begun := f.hub.config.Now()
		page, err := f.hub.config.Store.Events(ctx, f.tail, pageSize)
		if ctx.Err() != nil {
			return
		}
		if (err == nil) != healthy {
			healthy = err == nil
			f.hub.config.Log.LogAttrs(ctx, slog.LevelWarn, "whether the outbox can be read has changed",
				slog.Bool("readable", healthy), slog.Any("error", err))
		}
		if err == nil && !f.take(page, begun) {
			return
		}
		if len(page.Records) == pageSize {
			continue
		}
		poll.Reset(f.hub.limits.Pace)
		select {
		case <-poll.C:
		case <-ctx.Done():
			return
		}
		poll.Reset(f.hub.limits.Poll)
		select {
		case <-poll.C:
		case <-f.hub.config.Store.Committed():
		case <-ctx.Done():
			return
		}
	}
}

// take adds a page to the ring and wakes every stream; it is false at the end of the
// order.
func (f *feed) take(page Page, begun time.Time) bool {
	added := eventsOf(page.Records)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read = begun
	switch {
	case page.Origin != f.origin || page.Settled.Compare(f.tail) < 0:
		f.failure = errOtherOrder
	case page.End == f.tail && len(added) == 0:
		return true
	}
	if f.failure != nil || len(added) > 0 {
		defer func() {
			close(f.changed)
			f.changed = make(chan struct{})
		}()
	}
	f.tail = page.End
	for _, e := range added {
		f.ring = append(f.ring, e)
		f.bytes += e.size()
	}
	drop := 0
	for drop < len(f.ring) && (len(f.ring)-drop > f.hub.limits.Ring || f.bytes > f.hub.limits.RingBytes) {
		f.floor = f.ring[drop].Position
		f.bytes -= f.ring[drop].size()
		f.ring[drop] = nil
		drop++
	}
	// Events of one place stay or go together.
	for drop > 0 && drop < len(f.ring) && f.ring[drop].Position == f.floor {
		f.bytes -= f.ring[drop].size()
		f.ring[drop] = nil
		drop++
	}
	f.ring = f.ring[drop:]
	return f.failure == nil
}

// chunk is how many events a stream takes off the ring at a time, and chunkBytes how
// much they take at most, from the ring or the store, but for one: they stay in memory
// until it has sent them, and every stream may be slow.
const (
	chunk      = 64
	chunkBytes = 1 << 20
)

// part is what the ring has for a stream.
type part struct {
	events []*Event
	// end is the place up to which nothing was left out, and at when all before it
	// had been committed.
	end Position
	at  time.Time
	// changed is set where there are no events: it is closed once there may be.
	changed <-chan struct{}
}

// holds tells whether the ring has all that is behind a place. The error is errBehind
// or errOtherOrder.
func (f *feed) holds(p Position) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.heldFrom(p)
}

func (f *feed) heldFrom(p Position) error {
	if f.failure == nil && p.Compare(f.floor) < 0 {
		return errBehind
	}
	return f.failure
}

// after returns what is behind a place. The error is that of holds.
func (f *feed) after(p Position) (part, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.heldFrom(p); err != nil {
		return part{}, err
	}
	from, _ := slices.BinarySearchFunc(f.ring, p, func(e *Event, p Position) int {
		if e.Position.Compare(p) <= 0 {
			return -1
		}
		return 1
	})
	if from == len(f.ring) {
		end := f.tail
		if p.Compare(end) > 0 {
			end = p // another process was ahead
		}
		return part{end: end, at: f.read, changed: f.changed}, nil
	}
	to, bytes := from, 0
	for to < len(f.ring) && (to == from || f.ring[to-1].more || to-from < chunk && bytes+f.ring[to].size() <= chunkBytes) {
		bytes += f.ring[to].size()
		to++
	}
	last := f.ring[to-1]
	return part{events: slices.Clone(f.ring[from:to]), end: last.Position, at: last.At}, nil
}
