package simulation

import (
	"flag"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	seedFlag      = flag.Uint64("seed", 0, "run the schedule of this seed alone, and tell all of it")
	schedulesFlag = flag.Int("schedules", 100_000, "how many schedules to run")
	mutantFlag    = flag.String("mutant", "", "with -seed: the mutant to run")
)

// shortSchedules is how many run with -short.
const shortSchedules = 2_000

// play runs the schedule of a seed, and again with its story if it failed: the
// same seed is the same schedule.
func play(seed uint64, m mutant, tell bool, ts *threads) (*failure, *world) {
	w := newWorld(seed, m, ts)
	w.tracing = tell
	failed := w.run()
	if failed != nil && !tell {
		w = newWorld(seed, m, ts)
		w.tracing = true
		failed = w.run()
	}
	return failed, w
}

// TestSimulation holds the protocol against every schedule.
func TestSimulation(t *testing.T) {
	if *seedFlag != 0 {
		failed, w := play(*seedFlag, mutant(*mutantFlag), true, &threads{})
		t.Logf("\n%s", w.story(true))
		if failed != nil {
			t.Fatalf("seed %d: %v", *seedFlag, failed)
		}
		return
	}
	n := *schedulesFlag
	if testing.Short() {
		n = min(n, shortSchedules)
	}
	var next, calls atomic.Uint64
	var failures atomic.Int32
	begun := time.Now()
	var wait sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			ts := &threads{}
			defer ts.stop()
			for failures.Load() < 3 {
				seed := next.Add(1)
				if seed > uint64(n) {
					return
				}
				failed, w := play(seed, "", false, ts)
				calls.Add(uint64(w.calls))
				if failed != nil {
					failures.Add(1)
					t.Errorf("%v\nthe last steps of seed %d:\n%s\nagain: go test ./test/simulation -run TestSimulation -seed %d",
						failed, seed, w.story(false), seed)
				}
			}
		})
	}
	wait.Wait()
	took := time.Since(begun)
	t.Logf("%d schedules in %s, %.0f a second, with %d writes", n, took.Round(time.Millisecond), float64(n)/took.Seconds(), calls.Load())
}

// TestSimulation_ASeedIsASchedule: a failure can be looked at again.
func TestSimulation_ASeedIsASchedule(t *testing.T) {
	ts := &threads{}
	defer ts.stop()
	for seed := uint64(1); seed <= 20; seed++ {
		_, first := play(seed, "", true, ts)
		_, second := play(seed, "", true, ts)
		if first.story(true) != second.story(true) {
			t.Fatalf("seed %d is two schedules", seed)
		}
	}
}

// mutantSchedules bounds the search for a mutant.
const mutantSchedules = 30_000

// TestMutants shows that the simulation would notice each mistake.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			ts := &threads{}
			defer ts.stop()
			for seed := uint64(1); seed <= mutantSchedules; seed++ {
				failed := newWorld(seed, m, ts).run()
				if failed == nil {
					continue
				}
				if own := worldFor(seed, m, ts).run(); own != nil {
					t.Fatalf("schedule %d fails without the mistake too: %v", seed, own)
				}
				t.Logf("caught after %d schedules: %v", seed, failed)
				return
			}
			t.Errorf("not caught in %d schedules", mutantSchedules)
		})
	}
}
