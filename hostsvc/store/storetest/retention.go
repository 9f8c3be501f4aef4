package storetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/store"
)

// receipt appends one receipt, in a segment of its own.
func (w *world) receipt(recorder *journal.Recorder, result contract.State) {
	w.t.Helper()
	w.must(recorder.Append(w.t.Context(), journal.Receipt{AuditID: "a", InstallationID: "i", Result: result, At: w.clock.Now()}))
}

// verified verifies everything and returns how many receipts each chain has
// left.
func (w *world) verified() map[string]int {
	w.t.Helper()
	_, err := journal.VerifyRoots(w.t.Context(), w)
	w.must(err)
	chains, err := w.Chains(w.t.Context())
	w.must(err)
	left := map[string]int{}
	for _, chain := range chains {
		left[chain.Name], err = journal.VerifyReceipts(w.t.Context(), w, chain)
		w.must(err)
	}
	return left
}

// segments counts what is stored, proven or not.
func (w *world) segments(chain string) int {
	w.t.Helper()
	segments, err := w.Segments(w.t.Context(), chain, 0, 1<<20)
	w.must(err)
	return len(segments)
}

func (w *world) prune(age time.Duration) uint64 {
	w.t.Helper()
	n, err := w.PruneReceipts(w.t.Context(), w.clock.Now().Add(-age))
	w.must(err)
	return n
}

// aged is a store with three days of receipts and roots: the chain of a process
// that has ended on the first, the chains of one that goes on, and a workspace
// that was written to on the first day only. It returns the recorder that goes
// on.
func aged(w *world) *journal.Recorder {
	w.t.Helper()
	w.write("idle", 2)
	w.receipts("ended", 3)
	recorder := journal.NewRecorder(w, "goes-on", w.clock.Now)
	for day := range 3 {
		if day > 0 {
			w.clock.advance(24 * time.Hour)
		}
		for range 4 {
			w.receipt(recorder, contract.StateApplied)
			w.clock.advance(time.Second)
		}
		w.receipt(recorder, contract.StateDenied)
		w.root()
		w.write("busy", 1)
		w.root()
	}
	return recorder
}

func testRetention(t *testing.T, d Database) {
	w := open(t, d)
	recorder := aged(w)
	before := w.verified()
	if want := map[string]int{"reads/ended": 3, "reads/goes-on": 12, "refusals/goes-on/i": 3}; !reflect.DeepEqual(before, want) {
		t.Fatalf("the chains hold %v", before)
	}
	if n := w.prune(1000 * time.Hour); n != 0 || w.segments(journal.CutsChain) != 0 {
		t.Errorf("pruned %d receipts before their time", n)
	}
	// A day and a half: what the first day wrote goes, 3 + 4 + 1 receipts and two
	// roots.
	if n := w.prune(36 * time.Hour); n != 8 {
		t.Errorf("pruned %d receipts, want 8", n)
	}
	left := w.verified()
	if want := map[string]int{"reads/goes-on": 8, "refusals/goes-on/i": 2, journal.CutsChain: 4}; !reflect.DeepEqual(left, want) {
		t.Errorf("the chains hold %v, want %v", left, want)
	}
	if w.segments("reads/ended") != 0 || w.segments("reads/goes-on") != 8 {
		t.Errorf("%d and %d segments are stored", w.segments("reads/ended"), w.segments("reads/goes-on"))
	}
	roots, err := w.Roots(t.Context(), 0, 100)
	w.must(err)
	if roots[0].Number != 3 {
		t.Errorf("the oldest root is %d", roots[0].Number)
	}
	cuts, err := journal.Cuts(t.Context(), w)
	w.must(err)
	if c := cuts["reads/ended"]; c.Position != 3 || c.Removed != 3 || c.Hash == "" || !c.At.Equal(w.clock.Now()) {
		t.Errorf("the cut of the chain that ended is %+v", c)
	}
	if c := cuts[journal.RootsChain]; c.Position != 2 || c.Removed != 2 {
		t.Errorf("the cut of the roots is %+v", c)
	}
	// Again changes nothing, and everything goes on.
	n := w.segments(journal.CutsChain)
	if again := w.prune(36 * time.Hour); again != 0 || w.segments(journal.CutsChain) != n {
		t.Errorf("pruned again: %d receipts, %d cuts more", again, w.segments(journal.CutsChain)-n)
	}
	w.receipt(recorder, contract.StateApplied)
	w.root()
	w.verified()
	// Everything goes but the newest root, and a process goes on with chains of
	// which nothing is left.
	w.clock.advance(time.Hour)
	w.must(ignoreClosed(w.PruneReceipts(t.Context(), w.clock.Now())))
	if left := w.verified(); len(left) != 1 {
		t.Errorf("the chains hold %v, want the cuts alone", left)
	}
	w.receipt(recorder, contract.StateApplied)
	w.receipt(recorder, contract.StateDenied)
	w.root()
	left = w.verified()
	delete(left, journal.CutsChain)
	if want := map[string]int{"reads/goes-on": 1, "refusals/goes-on/i": 1}; !reflect.DeepEqual(left, want) {
		t.Errorf("the chains hold %v, want %v", left, want)
	}
	w.must(recorder.Close(t.Context()))
	w.close()
	w = open(t, d)
	w.verified()
	w.clock.advance(1000 * time.Hour)
	if n := w.prune(time.Hour); n != 2 {
		t.Errorf("after a restart, pruned %d receipts", n)
	}
	w.verified()
}

func ignoreClosed(_ uint64, err error) error { return err }

// retentionTampering is what is done to an aged store, before or after its first
// day is pruned.
type retentionTampering struct {
	name   string
	before bool
	change []statement
	// prune is what pruning finds, verify what the verification does.
	prune, verify *journal.ChainError
}

var retentionTamperings = []retentionTampering{
	{
		name:   "GapWithoutCut",
		change: []statement{{`DELETE FROM segments WHERE chain = $1 AND idx = 5`, []any{"reads/goes-on"}}},
		verify: &journal.ChainError{Chain: "reads/goes-on", At: 5, Detail: "missing"},
	},
	{
		name: "GapWithAnEntryThatIsNoCut",
		change: []statement{
			{`DELETE FROM segments WHERE chain = $1 AND idx = 5`, []any{"reads/goes-on"}},
			{`UPDATE cuts SET position = 5 WHERE chain = $1`, []any{"reads/goes-on"}},
		},
		verify: &journal.ChainError{Chain: "reads/goes-on", At: 5, Detail: "missing"},
	},
	{
		name:   "ChangedCut",
		change: []statement{{`UPDATE segments SET at = at + 1 WHERE chain = $1 AND idx = 1`, []any{journal.CutsChain}}},
		verify: &journal.ChainError{Chain: journal.CutsChain, At: 1, Detail: "changed"},
	},
	{
		name: "RemovedCuts",
		change: []statement{
			{`DELETE FROM segments WHERE chain = $1 AND idx = 2`, []any{journal.CutsChain}},
			{`DELETE FROM segments WHERE chain = $1 AND idx = 1`, []any{journal.CutsChain}},
			{`DELETE FROM chains WHERE chain = $1`, []any{journal.CutsChain}},
		},
		verify: &journal.ChainError{Chain: journal.RootsChain, At: 1, Detail: "missing"},
	},
	{
		// What only an old root named is found by the root that names it again.
		name: "IdleChainRemoved",
		change: []statement{
			{`DELETE FROM journal WHERE workspace_id = $1 AND version = 1`, []any{"idle"}},
			{`DELETE FROM journal WHERE workspace_id = $1 AND version = 2`, []any{"idle"}},
			{`DELETE FROM heads WHERE workspace_id = $1`, []any{"idle"}},
			{`DELETE FROM rooted WHERE chain = $1`, []any{"idle"}},
		},
		verify: &journal.ChainError{Chain: "idle", At: 2, Detail: "missing"},
	},
	{
		name: "BrokenChainIsNotPruned", before: true,
		change: []statement{{`UPDATE segments SET receipts = 7 WHERE chain = $1 AND idx = 2`, []any{"reads/ended"}}},
		prune:  &journal.ChainError{Chain: "reads/ended", At: 2, Detail: "changed"},
		verify: &journal.ChainError{Chain: "reads/ended", At: 2, Detail: "changed"},
	},
	{
		name: "BrokenRootsAreNotPruned", before: true,
		change: []statement{{`UPDATE roots SET at = at + 1 WHERE number = $1`, []any{int64(2)}}},
		prune:  &journal.ChainError{Chain: journal.RootsChain, At: 2, Detail: "changed"},
		verify: &journal.ChainError{Chain: journal.RootsChain, At: 2, Detail: "changed"},
	},
}

func (c retentionTampering) run(t *testing.T, d Database) {
	w := open(t, d)
	recorder := aged(w)
	w.must(recorder.Close(t.Context()))
	now := w.clock.Now()
	if !c.before {
		w.prune(36 * time.Hour)
		w.root()
	}
	w.close()
	for _, change := range c.change {
		tamper(t, d, change.text, change.args...)
	}
	w = open(t, d)
	check := func(when string, err error, want *journal.ChainError) {
		t.Helper()
		var got *journal.ChainError
		errors.As(err, &got)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", when, err, want)
		}
	}
	if c.before {
		n, err := w.PruneReceipts(t.Context(), now.Add(-36*time.Hour))
		check("prune", err, c.prune)
		if n == 0 {
			t.Error("what is whole was not pruned")
		}
	}
	_, err := journal.VerifyRoots(t.Context(), w)
	chains, failed := w.Chains(t.Context())
	w.must(failed)
	for _, chain := range chains {
		if err == nil {
			_, err = journal.VerifyReceipts(t.Context(), w, chain)
		}
	}
	check("verify", err, c.verify)
}

// What a fault leaves behind goes the next time, and is never a gap.
func testRetentionFaults(t *testing.T, d Database) {
	engine := &faulty{Engine: d.Open(t)}
	w := openOn(t, engine)
	recorder := aged(w)
	w.must(recorder.Close(t.Context()))
	w.clock.advance(1000 * time.Hour)
	for at := 1; ; at++ {
		engine.arm(func(n int) fault {
			if n == at {
				return ends
			}
			return works
		}, nil)
		_, err := w.PruneReceipts(t.Context(), w.clock.Now().Add(-time.Hour))
		engine.arm(nil, nil)
		w.verified()
		if err == nil {
			break
		}
		w.wantErr("a faulty prune", err, store.ErrUnavailable)
	}
	left := w.verified()
	if len(left) != 1 || w.segments("reads/goes-on")+w.segments("reads/ended")+w.segments("refusals/goes-on/i") != 0 {
		t.Errorf("the chains hold %v", left)
	}
	if roots, err := w.Roots(t.Context(), 0, 100); err != nil || len(roots) == 0 || len(roots) > 3 {
		t.Errorf("%d roots are left, %v", len(roots), err)
	}
}

// Receipts, roots, commands, prunes and verifications at once.
func testRetentionConcurrently(t *testing.T, worlds ...*world) {
	recorders := make([]*journal.Recorder, len(worlds))
	var wait, pruners sync.WaitGroup
	for i, w := range worlds {
		recorders[i] = journal.NewRecorder(w, fmt.Sprintf("p%d", i), w.clock.Now)
		wait.Go(func() {
			for n := range 60 {
				result := contract.StateApplied
				if n%5 == 0 {
					result = contract.StateDenied
				}
				err := recorders[i].Append(t.Context(), journal.Receipt{AuditID: "a", InstallationID: "i", Result: result, At: w.clock.Now()})
				if err != nil {
					t.Errorf("append: %v", err)
				}
				w.clock.advance(time.Second)
			}
		})
		wait.Go(func() {
			for n := range 40 {
				name := fmt.Sprintf("w%d", n%4)
				if err := w.Write(t.Context(), name, func(tx command.Tx) error { return tx.Append(entry(name, "", "x")) }); err != nil {
					t.Errorf("write: %v", err)
				}
			}
		})
	}
	stop := make(chan struct{})
	for _, w := range worlds {
		pruners.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := w.AppendRoot(t.Context()); err != nil {
					t.Errorf("append a root: %v", err)
					return
				}
				if _, err := w.PruneReceipts(t.Context(), w.clock.Now().Add(-10*time.Second)); err != nil {
					t.Errorf("prune: %v", err)
					return
				}
				if _, err := journal.VerifyRoots(t.Context(), w); err != nil {
					t.Errorf("verify the roots: %v", err)
					return
				}
			}
		})
	}
	wait.Wait()
	close(stop)
	pruners.Wait()
	for i, recorder := range recorders {
		worlds[i].must(recorder.Close(t.Context()))
	}
	w := worlds[0]
	// Whatever the others came to, there are roots and receipts to cut now.
	w.root()
	w.clock.advance(time.Minute)
	w.root()
	_, err := w.PruneReceipts(t.Context(), w.clock.Now().Add(-10*time.Second))
	w.must(err)
	left := w.verified()
	pruned := uint64(0)
	segments, err := w.Segments(t.Context(), journal.CutsChain, 0, 1<<20)
	w.must(err)
	cuts := map[bool]int{}
	for _, segment := range segments {
		for line := range bytes.Lines(segment.Body) {
			var cut journal.Cut
			w.must(json.Unmarshal(line, &cut))
			ofRoots := cut.Chain == journal.RootsChain
			cuts[ofRoots]++
			if !ofRoots {
				pruned += cut.Removed
			}
		}
	}
	kept := 0
	for chain, n := range left {
		if chain != journal.CutsChain {
			kept += n
		}
	}
	if total := pruned + uint64(kept); total != uint64(60*len(worlds)) || cuts[false] == 0 || cuts[true] == 0 {
		t.Errorf("%d receipts were pruned and %d are left, of %d; cuts of the roots and of others: %v", pruned, kept, 60*len(worlds), cuts)
	}
}
