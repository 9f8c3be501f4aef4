package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/store"
)

// revisionOp is one operation of the linearizability test on a row.
type revisionOp struct {
	kind revisionKind
	// revision is what a write was authorised under.
	revision uint64
}

type revisionKind uint8

const (
	opRead revisionKind = iota
	opWrite
	opFence
	// opRenew renews the lease, and opLapse is its end, which comes at some time
	// between the call of the renewal and when the store's clock shows it.
	opRenew
	opLapse
)

// revisionAnswer is the revision that a read or a fence saw, and where in the
// workspace's commit order a write or a fence stands; 0 for a write that was
// refused.
type revisionAnswer struct {
	revision uint64
	version  domain.Version
	// late: a write was refused because of the lease.
	late bool
}

// revisionState is the row's revision, the newest commit, and whether the lease
// runs.
type revisionState struct {
	revision uint64
	version  domain.Version
	leased   bool
}

// revisionModel is a row as I5 promises it: a write commits only under the lease
// and exactly when its revision is the one in force, a fence adds one, a read
// sees the present, and the commit order is the order in which they happened. A
// write may find the lease over a little early, never late.
func revisionModel(start revisionState) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return start },
		Step: func(state, input, output any) (bool, any) {
			now, op, answer := state.(revisionState), input.(revisionOp), output.(revisionAnswer)
			next := now
			switch op.kind {
			case opRenew:
				next.leased = true
				return true, next
			case opLapse:
				next.leased = false
				return now.leased, next
			case opFence:
				next.revision++
				next.version++
				return answer.revision == next.revision && answer.version == next.version, next
			case opWrite:
				if answer.late {
					return true, now
				}
				if op.revision != now.revision {
					return answer.version == 0, now
				}
				next.version++
				return now.leased && answer.version == next.version, next
			default:
				return answer.revision == now.revision, now
			}
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	}
}

// testLinearizable runs writers, readers and fences of one row at once on every
// given store and demands that some order of all of them, within the times at
// which they were called and answered, explains every answer. The stores vouch
// for their rows for long.
func testLinearizable(t testing.TB, worlds ...*world) { linearizable(t, 0, worlds) }

// testLinearizableLease does the same with a lease that ends again and again,
// by real clocks.
func testLinearizableLease(t testing.TB, worlds ...*world) {
	for _, w := range worlds {
		var err error
		w.term, err = w.Lead(t.Context())
		w.must(err)
	}
	leader := worlds[len(worlds)-1]
	leader.must(leader.Complete(t.Context(), leader.term))
	linearizable(t, 40*time.Millisecond, worlds)
}

func linearizable(t testing.TB, lease time.Duration, worlds []*world) {
	t.Helper()
	const clients, fences = 6, 12
	rounds := 60
	leader := worlds[len(worlds)-1] // it led last
	leader.seed("w", clients)
	leader.grant("w")
	start := revisionState{revision: 1, version: domain.Version(len(leader.entries("w"))), leased: lease == 0}

	h := &recorded{t: t, begun: time.Now()}
	var wait, keeper sync.WaitGroup
	var commits, late atomic.Int64
	stop := make(chan struct{})
	if lease > 0 {
		rounds *= 3
		keeper.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				// No call may fail the test from here: this is no goroutine of its own.
				call := h.now()
				round, err := leader.BeginRound(t.Context())
				if err == nil {
					_, err = leader.RenewLease(t.Context(), round, lease)
				}
				if err != nil {
					t.Errorf("renew the lease: %v", err)
					return
				}
				h.add(clients+1, revisionOp{kind: opRenew}, revisionAnswer{}, call, h.now())
				for over := false; !over; {
					now, err := leader.BeginRound(t.Context())
					if err != nil {
						t.Errorf("read the store's clock: %v", err)
						return
					}
					over = !now.Begun.Before(now.LeasedUntil)
				}
				h.add(clients+2, revisionOp{kind: opLapse}, revisionAnswer{}, call, h.now())
			}
		})
	}
	for client := range clients {
		w := worlds[client%len(worlds)]
		wait.Go(func() {
			known := uint64(1)
			for n := range rounds {
				if n%4 == 3 {
					h.record(client, revisionOp{kind: opRead}, func() (answer revisionAnswer, err error) {
						known, err = w.revision()
						return revisionAnswer{revision: known}, err
					})
					continue
				}
				under := known
				h.record(client, revisionOp{kind: opWrite, revision: under}, func() (revisionAnswer, error) {
					answer, err := w.writeUnder(under, taskID(client), fmt.Sprintf("%d-%d", client, n))
					switch {
					case answer.late:
						late.Add(1)
					case answer.version > 0:
						commits.Add(1)
					}
					return answer, err
				})
			}
		})
	}
	wait.Go(func() {
		for range fences {
			// Reads between fences spread them over the writers' time.
			for range rounds / fences {
				h.record(clients, revisionOp{kind: opRead}, func() (revisionAnswer, error) {
					revision, err := leader.revision()
					return revisionAnswer{revision: revision}, err
				})
			}
			h.record(clients, revisionOp{kind: opFence}, func() (revisionAnswer, error) {
				from, err := leader.Row(t.Context(), key("w"))
				if err != nil {
					return revisionAnswer{}, err
				}
				to := activeRow(key("w"), from.Revision+1)
				return revisionAnswer{revision: to.Revision}, leader.Fence(t.Context(), leader.term, from, to)
			})
		}
	})
	wait.Wait()
	close(stop)
	keeper.Wait()
	if t.Failed() {
		return
	}
	t.Logf("%d writes committed, %d found the lease over", commits.Load(), late.Load())
	if commits.Load() == 0 || (late.Load() > 0) != (lease > 0) {
		t.Errorf("%d writes committed and %d found the lease over", commits.Load(), late.Load())
	}
	fenced := map[uint64]domain.Version{}
	for _, e := range leader.entries("w") {
		if e.Kind == journal.KindFence {
			fenced[e.Revision] = e.Version
		}
	}
	for i, operation := range h.history {
		if answer, ok := operation.Output.(revisionAnswer); ok && operation.Input.(revisionOp).kind == opFence {
			answer.version = fenced[answer.revision]
			h.history[i].Output = answer
		}
	}
	switch result := porcupine.CheckOperationsTimeout(revisionModel(start), h.history, time.Minute); result {
	case porcupine.Ok:
	case porcupine.Unknown:
		t.Fatalf("the history of %d operations could not be checked in time", len(h.history))
	default:
		t.Fatalf("no order explains the history of %d operations", len(h.history))
	}
}

// recorded is a history as its clients make it.
type recorded struct {
	t       testing.TB
	begun   time.Time
	mu      sync.Mutex
	history []porcupine.Operation
}

func (h *recorded) now() int64 { return time.Since(h.begun).Nanoseconds() }

func (h *recorded) record(client int, op revisionOp, do func() (revisionAnswer, error)) {
	call := h.now()
	answer, err := do()
	returned := h.now()
	if err != nil {
		h.t.Errorf("client %d: %+v: %v", client, op, err)
		return
	}
	h.add(client, op, answer, call, returned)
}

func (h *recorded) add(client int, op revisionOp, answer revisionAnswer, call, returned int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.history = append(h.history, porcupine.Operation{ClientId: client, Input: op, Output: answer, Call: call, Return: returned})
}

// revision reads the revision in force, as an exact read does.
func (w *world) revision() (revision uint64, err error) {
	err = w.Read(w.t.Context(), func(s query.Snapshot) error {
		row, err := s.AuthorityRow(key("w"))
		if err != nil {
			return err
		}
		revision = row.Revision
		return nil
	})
	return revision, err
}

// writeUnder is an exact write that was authorised under a revision.
func (w *world) writeUnder(revision uint64, task, title string) (answer revisionAnswer, err error) {
	errFenced := errors.New("another revision is in force")
	err = w.Write(w.t.Context(), "w", func(tx command.Tx) error {
		row, err := tx.AuthorityRow(key("w"))
		if err != nil {
			return err
		}
		if row.Revision != revision {
			return errFenced
		}
		if !tx.Current() {
			return errNotCurrent
		}
		answer.version = tx.Version()
		return touch("w", task, title, title)(tx)
	})
	switch {
	case errors.Is(err, errFenced):
		return revisionAnswer{}, nil
	case errors.Is(err, errNotCurrent), errors.Is(err, store.ErrLeaseRanOut):
		return revisionAnswer{late: true}, nil
	}
	return answer, err
}
