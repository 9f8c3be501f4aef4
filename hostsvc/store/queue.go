package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// maxBatch is how many commands of one workspace share a commit.
const maxBatch = 64

// lockName is what a transaction locks exclusively; workspace is set for the
// lock of a workspace, whose commit order the transaction then extends.
type lockName struct {
	name      string
	workspace string
}

// job is one command in its queue.
type job struct {
	fn   func(*tx) error
	done chan error
	// taken is set by whoever gets the job first: the worker that runs it or
	// the caller that stops waiting before.
	taken atomic.Bool
}

// lane is the queue of one lock. A fence is urgent: it goes first and shares
// its transaction with nobody.
type lane struct {
	lock    lockName
	urgent  []*job
	jobs    []*job
	running bool
}

// queue hands lanes to workers, one worker at a time for each lane, lanes with
// urgent work first and otherwise in turn. Where there are several workers, one
// more takes urgent work only: a fence or a renewal of the lease finds it free
// while commands keep all others waiting, for locks that replicas hold for
// example.
type queue struct {
	mu sync.Mutex
	// wake is for the workers, wakeUrgent for the one of urgent work.
	wake, wakeUrgent *sync.Cond

	lanes  map[string]*lane
	urgent []*lane
	ready  []*lane
	closed bool
}

func newQueue() *queue {
	q := &queue{lanes: map[string]*lane{}}
	q.wake, q.wakeUrgent = sync.NewCond(&q.mu), sync.NewCond(&q.mu)
	return q
}

func (q *queue) push(lock lockName, urgent bool, j *job) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrClosed
	}
	l := q.lanes[lock.name]
	if l == nil {
		l = &lane{lock: lock}
		q.lanes[lock.name] = l
	}
	idle := len(l.urgent)+len(l.jobs) == 0
	if urgent {
		if len(l.urgent) == 0 && !l.running {
			q.urgent = append(q.urgent, l)
			q.wake.Signal()
			q.wakeUrgent.Signal()
		}
		l.urgent = append(l.urgent, j)
		return nil
	}
	if idle && !l.running {
		q.ready = append(q.ready, l)
		q.wake.Signal()
	}
	l.jobs = append(l.jobs, j)
	return nil
}

// next waits for a batch, of urgent work only if told so; ok is false once the
// queue is closed and empty.
func (q *queue) next(batch []*job, urgent bool) (l *lane, jobs []*job, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	wake := q.wake
	if urgent {
		wake = q.wakeUrgent
	}
	for {
		// At the end, whoever is still there does all that is left.
		if l := q.pop(urgent && !q.closed); l != nil {
			l.running = true
			// Who is about to queue a command runs first, so that it shares this
			// commit.
			q.mu.Unlock()
			runtime.Gosched()
			q.mu.Lock()
			jobs = l.take(batch)
			return l, jobs, true
		}
		if q.closed {
			return nil, nil, false
		}
		wake.Wait()
	}
}

// pop returns the next lane that has work and no worker. A lane may stand in
// both lists, or in one without work left.
func (q *queue) pop(urgent bool) *lane {
	for l := range drain(&q.urgent) {
		if !l.running && len(l.urgent) > 0 {
			return l
		}
	}
	if urgent {
		return nil
	}
	for l := range drain(&q.ready) {
		if !l.running && len(l.urgent)+len(l.jobs) > 0 {
			return l
		}
	}
	return nil
}

// drain takes lanes off a list until the loop ends.
func drain(list *[]*lane) iter.Seq[*lane] {
	return func(yield func(*lane) bool) {
		for len(*list) > 0 {
			l := (*list)[0]
			(*list)[0] = nil
			*list = (*list)[1:]
			if !yield(l) {
				return
			}
		}
	}
}

// take appends the lane's next transaction to batch.
func (l *lane) take(batch []*job) []*job {
	if len(l.urgent) > 0 {
		batch = append(batch, l.urgent[0])
		l.urgent[0] = nil
		l.urgent = l.urgent[1:]
		return batch
	}
	n := min(len(l.jobs), maxBatch)
	batch = append(batch, l.jobs[:n]...)
	clear(l.jobs[:n])
	l.jobs = l.jobs[n:]
	return batch
}

// release gives a lane back after its batch.
func (q *queue) release(l *lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.running = false
	switch {
	case len(l.urgent) > 0:
		q.urgent = append(q.urgent, l)
	case len(l.jobs) > 0:
		q.ready = append(q.ready, l)
		q.wake.Signal() // who gives it back may take urgent work only
	default:
		delete(q.lanes, l.lock.name)
	}
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake.Broadcast()
	q.wakeUrgent.Broadcast()
}

// Waiting is how many commands wait for their turn.
func (s *Store) Waiting() int {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	n := 0
	for _, l := range s.queue.lanes {
		n += len(l.urgent) + len(l.jobs)
	}
	return n
}

// run queues fn behind lock and waits until its transaction is durable. A
// caller that goes away withdraws what no worker has begun, and otherwise
// stops waiting: the command goes on.
func (s *Store) run(ctx context.Context, lock lockName, urgent bool, fn func(*tx) error) error {
	j := &job{fn: fn, done: make(chan error, 1)}
	if err := s.queue.push(lock, urgent, j); err != nil {
		return err
	}
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		j.taken.CompareAndSwap(false, true)
		return fmt.Errorf("stop waiting for the commit: %w", ctx.Err())
	}
}

// work is one worker. It lives as long as the store: its stack, grown once by
// the engine, serves every transaction.
func (s *Store) work(urgent bool) {
	batch := make([]*job, 0, maxBatch)
	for {
		l, jobs, ok := s.queue.next(batch[:0], urgent)
		if !ok {
			return
		}
		kept := jobs[:0]
		for _, j := range jobs {
			if j.taken.CompareAndSwap(false, true) {
				kept = append(kept, j)
			}
		}
		if len(kept) > 0 {
			s.runBatch(l.lock, kept)
		}
		clear(jobs)
		s.queue.release(l)
	}
}

// runBatch runs jobs in one transaction and answers them. If the database
// ended the transaction, nothing of it happened, and they run one by one.
func (s *Store) runBatch(lock lockName, jobs []*job) {
	errs := make([]error, len(jobs))
	if s.attempt(lock, jobs, errs) {
		for i, j := range jobs {
			j.done <- errs[i]
		}
		return
	}
	for i, j := range jobs {
		s.attempt(lock, jobs[i:i+1], errs[i:i+1])
		j.done <- errs[i]
	}
}

// attempt runs jobs in one transaction and fills errs, which are final once it
// returns true. It returns false only for several jobs, when nothing of the
// transaction happened. No answer leaves before COMMIT has returned, refusals
// included: they may rest on what a neighbour has not committed yet.
func (s *Store) attempt(lock lockName, jobs []*job, errs []error) (settled bool) {
	if s.lost.Load() {
		fill(errs, ErrClosed)
		return true
	}
	db, err := s.engine.Begin(s.ctx, lock.name)
	if err != nil {
		fill(errs, s.broken(failed("begin a transaction", err)))
		return true
	}
	t := &tx{store: s, db: db, workspace: lock.workspace, solo: len(jobs) == 1}
	defer t.finish()
	if err := t.begin(); err != nil {
		fill(errs, s.broken(err))
		return true
	}
	for i, j := range jobs {
		errs[i] = t.do(j.fn)
		if errors.Is(errs[i], ErrDatabaseLost) {
			fill(errs, s.broken(errs[i]))
			return true
		}
		if t.gone {
			return len(jobs) == 1
		}
	}
	if !t.wrote {
		return true
	}
	if err := t.writeHead(); err != nil {
		fill(errs, s.broken(err))
		return len(jobs) == 1 || errors.Is(err, ErrDatabaseLost)
	}
	if t.late() {
		fill(errs, ErrLeaseRanOut)
		return true
	}
	t.ended = true
	switch err := db.Commit(); {
	case err == nil:
		s.wake()
		return true
	case errors.Is(err, ErrNotCommitted) && !errors.Is(err, ErrDatabaseLost):
		errs[0] = failed("commit", err)
		return len(jobs) == 1
	default:
		s.log.Error("the outcome of a commit is unknown", "workspace", lock.workspace, "error", err)
		fill(errs, s.broken(fmt.Errorf("commit: %w: %w", ErrOutcomeUnknown, err)))
		return true
	}
}

// broken passes an error on, and ends the store if the database is lost.
func (s *Store) broken(err error) error {
	if errors.Is(err, ErrDatabaseLost) {
		s.lost.Store(true)
		s.queue.close()
		s.fatal(err)
	}
	return err
}

func fill(errs []error, err error) {
	for i := range errs {
		errs[i] = err
	}
}

// call runs a command and turns a panic into its error.
func (t *tx) call(fn func(*tx) error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			p := &panicError{value: value, stack: debug.Stack()}
			t.store.log.Error("a command panicked", "panic", p.Error(), "stack", string(p.stack))
			err = p
		}
	}()
	return fn(t)
}
