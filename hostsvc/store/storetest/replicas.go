package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/fence"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// RunReplicas runs the tests that need two stores on one database at once,
// for the engines that allow it.
func RunReplicas(t *testing.T, fresh func(t testing.TB) Database) {
	t.Run("FenceAgainstWritersOfBoth", func(t *testing.T) { testReplicasFence(t, fresh(t)) })
	t.Run("I5_Linearizable", func(t *testing.T) {
		d := fresh(t)
		testLinearizable(t, open(t, d), open(t, d))
	})
	t.Run("I5_LinearizableWhileTheLeaseEnds", func(t *testing.T) {
		d := fresh(t)
		testLinearizableLease(t, openAt(t, d.Open(t), time.Now), openAt(t, d.Open(t), time.Now))
	})
	t.Run("NewLeaderDeposesTheOther", func(t *testing.T) { testReplicasLead(t, fresh(t)) })
	t.Run("Retention_TwoPrune", func(t *testing.T) {
		d := fresh(t)
		testRetentionConcurrently(t, open(t, d), open(t, d))
	})
	t.Run("Outbox_TailLosesNothing", func(t *testing.T) {
		d := fresh(t)
		testOutboxTail(t, open(t, d), open(t, d))
	})
	t.Run("Outbox_WaitsForOpenTransactions", func(t *testing.T) { testOutboxWaits(t, fresh(t)) })
	t.Run("Outbox_ForgetsForeignPlaces", func(t *testing.T) { testOutboxForeign(t, fresh(t)) })
	t.Run("OneInstallationID", func(t *testing.T) { testReplicasInstallation(t, fresh(t)) })
}

func testReplicasFence(t testing.TB, d Database) {
	replicas := []*world{open(t, d), open(t, d)}
	leader := replicas[1] // it led last
	const writers = 24
	leader.seed("w", 2*writers)
	from := leader.grant("w")
	errFenced := errors.New("another revision is in force")
	var commits [2]atomic.Int64
	stop := make(chan struct{})
	var wait sync.WaitGroup
	for i := range 2 * writers {
		w, id := replicas[i%2], taskID(i)
		wait.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				err := w.Write(t.Context(), "w", func(tx command.Tx) error {
					row, err := tx.AuthorityRow(key("w"))
					if err != nil {
						return err
					}
					if row.Revision != from.Revision {
						return errFenced
					}
					return touch("w", id, fmt.Sprint(n), fmt.Sprintf("%s-%d", id, n))(tx)
				})
				switch {
				case errors.Is(err, errFenced):
					return
				case err != nil:
					t.Errorf("writer %d: %v", i, err)
					return
				}
				commits[i%2].Add(1)
			}
		})
	}
	await(t, "both replicas to commit", func() bool {
		return commits[0].Load() >= 2*writers && commits[1].Load() >= 2*writers || t.Failed()
	})
	begun := time.Now()
	err := leader.Fence(t.Context(), leader.term, from, activeRow(key("w"), from.Revision+1))
	took := time.Since(begun)
	if err != nil {
		close(stop)
	}
	wait.Wait()
	leader.must(err)
	if took > maxFenceWait {
		t.Errorf("the fence waited %s", took)
	}
	t.Logf("the fence took %s after %d and %d commits", took, commits[0].Load(), commits[1].Load())
	fenced := false
	for _, e := range replicas[0].entries("w") {
		switch {
		case e.Kind == journal.KindFence && e.Revision == from.Revision+1:
			fenced = true
		case fenced:
			t.Fatalf("version %d committed under revision %d after the fence", e.Version, e.Revision)
		}
	}
	if !fenced {
		t.Error("the journal has no entry of the fence")
	}
}

// From the moment that leading returns, the other's fences are refused, and
// what the new leader reads is final.
func testReplicasLead(t testing.TB, d Database) {
	old, successor := open(t, d), open(t, d)
	var err error
	old.term, err = old.Lead(t.Context())
	old.must(err)
	old.grant("w")
	stopped := make(chan error, 1)
	var led atomic.Bool
	go func() {
		for after := 0; after < 20; {
			if led.Load() {
				after++
			}
			row, err := old.Row(t.Context(), key("w"))
			if err == nil {
				err = old.Fence(t.Context(), old.term, row, activeRow(key("w"), row.Revision+1))
			}
			if err != nil {
				stopped <- err
				return
			}
		}
		stopped <- nil
	}()
	await(t, "the old leader to fence", func() bool { return successor.row("w").Revision > 5 })
	successor.term, err = successor.Lead(t.Context())
	successor.must(err)
	led.Store(true)
	seen := successor.row("w")
	successor.wantErr("the old leader", <-stopped, fence.ErrDeposed)
	if now := successor.row("w"); now.Revision != seen.Revision {
		t.Errorf("the row moved from revision %d to %d under a deposed leader", seen.Revision, now.Revision)
	}
	if next := successor.grant("w"); next.Revision != seen.Revision+1 {
		t.Errorf("the new leader fenced to %d after %d", next.Revision, seen.Revision)
	}
}

func testReplicasInstallation(t *testing.T, d Database) {
	replicas := []*world{open(t, d), open(t, d)}
	ids := make([]string, 8)
	var wait sync.WaitGroup
	for i := range ids {
		wait.Go(func() {
			var err error
			if ids[i], err = replicas[i%2].RecordInstallation(t.Context(), "uid", "plugin"); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Errorf("the replicas minted %v for one object", ids)
		}
	}
}
