package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/query"
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
)

// revisionAnswer is the revision that a read or a fence saw, and where in the
// workspace's commit order a write or a fence stands; 0 for a write that was
// refused.
type revisionAnswer struct {
	revision uint64
	version  domain.Version
}

// revisionState is the row's revision and the newest commit.
type revisionState struct {
	revision uint64
	version  domain.Version
}

// revisionModel is a row as I5 promises it: a write commits exactly when its
// revision is the one in force, a fence adds one, a read sees the present, and
// the commit order is the order in which they happened.
func revisionModel(start revisionState) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return start },
		Step: func(state, input, output any) (bool, any) {
			now, op, answer := state.(revisionState), input.(revisionOp), output.(revisionAnswer)
			next := now
			switch op.kind {
			case opFence:
				next = revisionState{now.revision + 1, now.version + 1}
				return answer == revisionAnswer(next), next
			case opWrite:
				if op.revision != now.revision {
					return answer.version == 0, now
				}
				next.version++
				return answer.version == next.version, next
			default:
				return answer.revision == now.revision, now
			}
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	}
}

// testLinearizable runs writers, readers and fences of one row at once on every
// given store and demands that some order of all of them, within the times at
// which they were called and answered, explains every answer.
func testLinearizable(t *testing.T, worlds ...*world) {
	const clients, rounds, fences = 6, 60, 12
	leader := worlds[len(worlds)-1] // it led last
	leader.seed("w", clients)
	leader.grant("w")
	start := revisionState{revision: 1, version: domain.Version(len(leader.entries("w")))}

	var (
		mu      sync.Mutex
		history []porcupine.Operation
		begun   = time.Now()
		wait    sync.WaitGroup
	)
	record := func(client int, op revisionOp, do func() (revisionAnswer, error)) {
		call := time.Since(begun)
		answer, err := do()
		returned := time.Since(begun)
		if err != nil {
			t.Errorf("client %d: %+v: %v", client, op, err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		history = append(history, porcupine.Operation{
			ClientId: client, Input: op, Output: answer, Call: call.Nanoseconds(), Return: returned.Nanoseconds(),
		})
	}
	for client := range clients {
		w := worlds[client%len(worlds)]
		wait.Go(func() {
			known := uint64(1)
			for n := range rounds {
				if n%4 == 3 {
					record(client, revisionOp{kind: opRead}, func() (answer revisionAnswer, err error) {
						known, err = w.revision(t)
						return revisionAnswer{revision: known}, err
					})
					continue
				}
				under := known
				record(client, revisionOp{kind: opWrite, revision: under}, func() (revisionAnswer, error) {
					version, err := w.writeUnder(t, under, taskID(client), fmt.Sprintf("%d-%d", client, n))
					return revisionAnswer{version: version}, err
				})
			}
		})
	}
	wait.Go(func() {
		for range fences {
			// Reads between fences spread them over the writers' time.
			for range rounds / fences {
				record(clients, revisionOp{kind: opRead}, func() (revisionAnswer, error) {
					revision, err := leader.revision(t)
					return revisionAnswer{revision: revision}, err
				})
			}
			record(clients, revisionOp{kind: opFence}, func() (revisionAnswer, error) {
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
	if t.Failed() {
		return
	}
	fenced := map[uint64]domain.Version{}
	for _, e := range leader.entries("w") {
		if e.Kind == journal.KindFence {
			fenced[e.Revision] = e.Version
		}
	}
	for i, operation := range history {
		if answer, ok := operation.Output.(revisionAnswer); ok && operation.Input.(revisionOp).kind == opFence {
			answer.version = fenced[answer.revision]
			history[i].Output = answer
		}
	}
	switch result := porcupine.CheckOperationsTimeout(revisionModel(start), history, time.Minute); result {
	case porcupine.Ok:
	case porcupine.Unknown:
		t.Fatalf("the history of %d operations could not be checked in time", len(history))
	default:
		t.Fatalf("no order explains the history of %d operations", len(history))
	}
}

// revision reads the revision in force, as an exact read does.
func (w *world) revision(t *testing.T) (revision uint64, err error) {
	err = w.Read(t.Context(), func(s query.Snapshot) error {
		row, err := s.AuthorityRow(key("w"))
		if err != nil {
			return err
		}
		revision = row.Revision
		return nil
	})
	return revision, err
}

// writeUnder is an exact write that was authorised under a revision. It returns
// the version that it committed, 0 when it was refused.
func (w *world) writeUnder(t *testing.T, revision uint64, task, title string) (version domain.Version, err error) {
	errFenced := errors.New("another revision is in force")
	err = w.Write(t.Context(), "w", func(tx command.Tx) error {
		row, err := tx.AuthorityRow(key("w"))
		if err != nil {
			return err
		}
		if row.Revision != revision {
			return errFenced
		}
		version = tx.Version()
		return touch("w", task, title, title)(tx)
	})
	if errors.Is(err, errFenced) {
		return 0, nil
	}
	return version, err
}
