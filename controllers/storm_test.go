package controllers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
)

func stormKey(workspaceID string) authority.Key {
	return authority.Key{InstallationID: "i", WorkspaceID: workspaceID}
}

// waited is how long a pass waits that succeeds then, however often it is put off.
func waited(s *storm, workspaceID string) time.Duration {
	defer s.ran(stormKey(workspaceID))
	began := time.Now()
	for left := s.wait(stormKey(workspaceID)); left > 0; left = s.wait(stormKey(workspaceID)) {
		<-time.After(left)
	}
	return time.Since(began)
}

// holdsOf sets a hold in each of the workspaces in turn, every ten milliseconds.
func holdsOf(s *storm, holds int, workspaces ...string) {
	for i := range holds {
		s.held(workspaces[i%len(workspaces)])
		<-time.After(10 * time.Millisecond)
	}
}

// many names so many workspaces that each has a hold of holdsOf three times in the
// window.
func many() []string {
	workspaces := make([]string, 20)
	for i := range workspaces {
		workspaces[i] = fmt.Sprint("w", i)
	}
	return workspaces
}

func TestStorm_PassesWaitForItsEnd(t *testing.T) {
	for name, storming := range map[string][]string{"of one workspace": {"w0"}, "of many workspaces": many()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStorm()
				for i := range stormHolds - 1 {
					s.held(storming[i%len(storming)])
				}
				if got := waited(s, "w0"); got != 0 {
					t.Fatalf("a pass waits %s for a few holds", got)
				}
				// It goes on for a second, with a hold every 10 ms. The last comes 990 ms
				// later; the sixteenth of them is in the window for a while more.
				go holdsOf(s, 100, storming...)
				synctest.Wait()
				if got := waited(s, "w0"); got < 990*time.Millisecond || got > time.Second+stormWindow {
					t.Fatalf("a pass waits %s for a storm of a second", got)
				}
				if got := waited(s, "w0"); got != 0 {
					t.Fatalf("a pass waits %s in calm", got)
				}
			})
		})
	}
}

func TestStorm_OfOneWorkspaceDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorm()
		// Seven tenants at once, each as fast as it can, and one is about to begin.
		go holdsOf(s, 300, many()[:stormHolds/stormShare-1]...)
		for range 20 {
			<-time.After(100 * time.Millisecond)
			if got := s.wait(stormKey("calm")); got != 0 {
				t.Fatalf("a pass of a calm workspace waits %s", got)
			}
		}
		// What would be its last share of holds makes it a storm of everyone.
		go holdsOf(s, 100, many()...)
		<-time.After(300 * time.Millisecond)
		if got := s.wait(stormKey("calm")); got == 0 {
			t.Fatal("no pass waits in a storm of many workspaces")
		}
		<-time.After(10 * time.Second)
		synctest.Wait()
		s.held("another")
		if len(s.workspaces) != 1 {
			t.Fatalf("%d workspaces are remembered long after their storm", len(s.workspaces))
		}
	})
}

func TestStorm_DelaysNoPassForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorm()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go endless(ctx, s, "w0")
		<-time.After(time.Second)
		for range 2 {
			if got := waited(s, "w0"); got != stormPatience {
				t.Fatalf("a pass waits %s in a storm without end, want %s", got, stormPatience)
			}
		}
		if len(s.waiting) != 0 {
			t.Fatalf("%d passes are remembered that wait no more", len(s.waiting))
		}
	})
}

// endless sets holds in a workspace until the test ends.
func endless(ctx context.Context, s *storm, workspaceID string) {
	for tick := time.Tick(time.Millisecond); ; {
		select {
		case <-tick:
			s.held(workspaceID)
		case <-ctx.Done():
			return
		}
	}
}

// A pass that fails has waited for all of its tries: else what takes three would be
// recorded after a minute.
func TestStorm_DelaysAFailingPassOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorm()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go endless(ctx, s, "w0")
		<-time.After(time.Second)
		tries := 0
		passes := calmPasses{storm: s, TypedReconciler: reconcile.TypedFunc[authority.Key](
			func(context.Context, authority.Key) (reconcile.Result, error) {
				tries++
				if tries < 3 {
					return reconcile.Result{}, errors.New("try again")
				}
				return reconcile.Result{}, nil
			})}
		began := time.Now()
		for tries < 3 {
			result, _ := passes.Reconcile(t.Context(), stormKey("w0"))
			<-time.After(result.RequeueAfter)
		}
		if took := time.Since(began); took != stormPatience {
			t.Errorf("three tries take %s, want %s", took, stormPatience)
		}
		if left := s.wait(stormKey("w0")); left == 0 {
			t.Error("the next pass doesn't wait")
		}
	})
}

// Whoever deletes an approval says in it of which workspace it was. Only what took
// away from a row that it stands for counts.
func TestStorm_CountsNoDeletionOfWhatTookNothing(t *testing.T) {
	v := view.New(authority.BuiltInPolicy())
	v.SetBinding(authority.Workspace{ID: "theirs", Namespace: "theirs", NamespaceUID: "n"})
	w := quietWatch()
	defer w.queue.ShutDown()
	ledger := storedRow{row: authority.Row{Key: stormKey("theirs")}}
	w.view, w.ledger, w.cluster = v, ledger, &cluster{view: v, bindings: &bindings{view: v}}
	calls := 0
	w.narrowed = func(key authority.Key, held bool) {
		calls++
		if key != stormKey("theirs") || held {
			t.Errorf("told of %v, held: %t", key, held)
		}
	}
	prev := version{uid: "a", generation: 1, spec: &authority.Approval{UID: "a", Generation: 1, InstallationID: "i", WorkspaceID: "theirs"}}
	if _, err := w.handle(t.Context(), somewhere, prev, gone("a", 1)); err != nil || calls != 1 {
		t.Errorf("told %d times: %v", calls, err)
	}
	// Where another replica has held it, it has taken away.
	ledger.row.Hold, ledger.row.Seen = &authority.Hold{UID: "a", Generation: 1}, authority.Seen{UID: "a", Generation: 1}
	held := false
	w.ledger, w.narrowed = ledger, func(_ authority.Key, h bool) { held = h }
	if _, err := w.handle(t.Context(), somewhere, prev, prev); err != nil || !held {
		t.Errorf("what another replica has held is told as held: %t, %v", held, err)
	}
}

func TestStorm_TakesNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorm()
		for range stormHolds {
			s.held("w0")
		}
		ran := 0
		passes := calmPasses{storm: s, TypedReconciler: reconcile.TypedFunc[authority.Key](
			func(context.Context, authority.Key) (reconcile.Result, error) {
				ran++
				return reconcile.Result{}, nil
			})}
		began := time.Now()
		result, err := passes.Reconcile(t.Context(), stormKey("w0"))
		if took := time.Since(began); err != nil || ran != 0 || took != 0 || result.RequeueAfter != stormWindow {
			t.Fatalf("in a storm a pass runs %d times, takes a worker for %s and comes again after %s: %v", ran, took, result.RequeueAfter, err)
		}
		<-time.After(result.RequeueAfter)
		if result, err = passes.Reconcile(t.Context(), stormKey("w0")); err != nil || ran != 1 || result != (reconcile.Result{}) {
			t.Fatalf("after it, a pass runs %d times: %v, %v", ran, result, err)
		}
	})
}
