package journal

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Bounds of a recorder.
const (
	// maxPendingReceipts and maxPendingBytes bound what waits for one flush;
	// beyond them Append refuses with ErrOverloaded.
	maxPendingReceipts = 4096
	maxPendingBytes    = 16 << 20
	// maxShareReceipts and maxShareBytes bound one installation's part of that:
	// however many connections it opens, and whatever it calls and cancels, the
	// receipts of all others, without which they get no data, find room.
	maxShareReceipts = maxPendingReceipts / 8
	maxShareBytes    = maxPendingBytes / 8
)

// Errors of a recorder.
var (
	// ErrOverloaded: too many receipts wait to become durable, in all or of one
	// installation.
	ErrOverloaded = errors.New("too many receipts wait to be written")
	// ErrRecorderClosed: the recorder takes no receipts any more.
	ErrRecorderClosed = errors.New("the recorder of receipts is closed")
)

// Recorder makes receipts durable. Receipts that arrive while a flush is under
// way share the next one, so that its cost is spread over all who wait. It is
// safe for concurrent use.
//
// Its process has one chain of reads and, for each installation, one of
// refusals. A flush whose outcome is unknown ends every chain: the next
// segment begins new ones, so that no index is ever used for two contents.
type Recorder struct {
	store   Segments
	process string
	now     func() time.Time

	mu      sync.Mutex
	pending *batch
	closed  bool
	// room is what the receipts of reads are likely to take in the next flush.
	room int
	// wake has room for one signal: something waits.
	wake chan struct{}
	// stopped is closed once the last flush is done.
	stopped chan struct{}

	// Of the flushing goroutine only.
	era    int
	chains map[string]end
}

// batch is what one flush writes. err is set before done is closed.
type batch struct {
	segments map[string]*Segment
	total    load
	// shares are the parts of the installations, by their IDs.
	shares map[string]*load
	done   chan struct{}
	err    error
}

// load is how much waits.
type load struct{ receipts, bytes int }

func (l *load) add(bytes int) {
	l.receipts++
	l.bytes += bytes
}

func (l *load) reached(receipts, bytes int) bool { return l.receipts >= receipts || l.bytes >= bytes }

// end is where a chain continues.
type end struct {
	index uint64
	hash  string
}

func newBatch() *batch {
	return &batch{segments: map[string]*Segment{}, shares: map[string]*load{}, done: make(chan struct{})}
}

// NewRecorder starts a recorder. process must be a name that no process has
// used before, for example a random one: it is part of the chains' names.
func NewRecorder(store Segments, process string, now func() time.Time) *Recorder {
	r := &Recorder{
		store: store, process: process, now: now, pending: newBatch(), chains: map[string]end{},
		wake: make(chan struct{}, 1), stopped: make(chan struct{}),
	}
	go r.run()
	return r
}

// Append returns nil once the receipt is durable. A caller that goes away only
// stops waiting.
func (r *Recorder) Append(ctx context.Context, receipt Receipt) error {
	b, err := r.add(&receipt)
	if err != nil {
		return err
	}
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return fmt.Errorf("stop waiting for the receipt: %w", ctx.Err())
	}
}

// add encodes the receipt into the pending batch.
func (r *Recorder) add(receipt *Receipt) (*batch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.pending
	share := b.shares[receipt.InstallationID]
	switch {
	case r.closed:
		return nil, ErrRecorderClosed
	case b.total.reached(maxPendingReceipts, maxPendingBytes):
		return nil, ErrOverloaded
	case share == nil:
		share = &load{}
		b.shares[receipt.InstallationID] = share
	case share.reached(maxShareReceipts, maxShareBytes):
		return nil, ErrOverloaded
	}
	// Reads that succeeded share the chain of the process, called "".
	chain := ""
	if receipt.Refused() {
		chain = receipt.InstallationID
	}
	segment := b.segments[chain]
	if segment == nil {
		segment = &Segment{}
		if chain == "" {
			segment.Body = make([]byte, 0, r.room)
		}
		b.segments[chain] = segment
	}
	size := len(segment.Body)
	segment.Body = append(receipt.AppendJSON(segment.Body), '\n')
	segment.Count++
	b.total.add(len(segment.Body) - size)
	share.add(len(segment.Body) - size)
	if b.total.receipts == 1 {
		r.signal()
	}
	return b, nil
}

func (r *Recorder) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Close writes what waits and stops the recorder. It may be called once.
func (r *Recorder) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.signal()
	select {
	case <-r.stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("write the last receipts: %w", ctx.Err())
	}
}

func (r *Recorder) run() {
	defer close(r.stopped)
	for range r.wake {
		r.gather()
		r.mu.Lock()
		b, last := r.pending, r.closed
		r.pending = newBatch()
		if reads := b.segments[""]; reads != nil {
			r.room = len(reads.Body) + len(reads.Body)/8
		}
		r.mu.Unlock()
		if b.total.receipts > 0 {
			b.err = r.flush(b)
			close(b.done)
		}
		if last {
			return
		}
	}
}

// gather lets whoever is about to append run first, so that many share a flush;
// it ends once nobody joins, at once where nothing else runs. Callers wait for
// their receipts, so at most all calls in flight join.
func (r *Recorder) gather() {
	for joined := -1; ; {
		runtime.Gosched()
		r.mu.Lock()
		n := r.pending.total.receipts
		r.mu.Unlock()
		if n == joined {
			return
		}
		joined = n
	}
}

// flush writes a batch. It runs under no caller's context.
func (r *Recorder) flush(b *batch) error {
	names := make([]string, 0, len(b.segments))
	for name := range b.segments {
		names = append(names, name)
	}
	slices.Sort(names)
	segments := make([]Segment, 0, len(names))
	for _, name := range names {
		segment, last := b.segments[name], r.chains[name]
		segment.Chain, segment.Index, segment.At = r.chainName(name), last.index+1, r.now()
		segments = append(segments, segment.Link(last.hash))
	}
	if err := r.store.AppendSegments(context.Background(), segments); err != nil {
		r.era++
		clear(r.chains)
		return fmt.Errorf("write %d receipts: %w", b.total.receipts, err)
	}
	for i, name := range names {
		r.chains[name] = end{index: segments[i].Index, hash: segments[i].Hash}
	}
	return nil
}

// chainName names a chain: "reads/<process>", or
// "refusals/<process>/<installation>", with ".<n>" behind the process after
// the n-th lost outcome.
func (r *Recorder) chainName(installationID string) string {
	process := r.process
	if r.era > 0 {
		process += "." + strconv.Itoa(r.era)
	}
	if installationID == "" {
		return "reads/" + process
	}
	return "refusals/" + process + "/" + installationID
}
