package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
	"github.com/kandev/plugin-host/sdk"
)

// stage runs a Reconciler of one kind against a scripted peer, and writes down what
// happens in which order.
type stage struct {
	t *testing.T
	p *peer
	h *sdk.Host
	k sdk.Kind[*pluginv1.ExactTaskObservation]
	r sdk.Reconciler

	mu    sync.Mutex
	story []string
	// syncs and changes are what the author's functions return, in their order; then
	// nil.
	syncs, changes []error
	// feed is what streams send; nil ends the one that is open with end.
	feed chan *pluginv1.WatchEventsResponse
	end  error

	ended chan error
}

func (s *stage) tell(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.story = append(s.story, fmt.Sprintf(format, args...))
}

// told returns what happened since it was called last.
func (s *stage) told() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	story := s.story
	s.story = nil
	return story
}

func (s *stage) expect(what string, want ...string) {
	s.t.Helper()
	if got := s.told(); !slices.Equal(got, want) {
		s.t.Errorf("%s: %q happens, not %q", what, got, want)
	}
}

func (s *stage) next(errs *[]error) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(*errs) > 0 {
		err, *errs = (*errs)[0], (*errs)[1:]
	}
	return err
}

func (s *stage) watch(r *pluginv1.WatchEventsRequest, stream grpc.ServerStreamingServer[pluginv1.WatchEventsResponse]) error {
	s.tell("open at %q for %v", r.GetCursor(), r.GetPatterns())
	for {
		select {
		case m := <-s.feed:
			if m == nil {
				return s.end
			}
			if err := stream.Send(m); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// play runs fn in a bubble with a Reconciler that is running.
func play(t *testing.T, change func(*stage), fn func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, feed: make(chan *pluginv1.WatchEventsResponse), ended: make(chan error, 1)}
		s.p = &peer{onWatch: s.watch, onTasks: func(*pluginv1.ListTasksExactRequest) (*pluginv1.ListTasksExactResponse, error) {
			s.tell("list")
			return &pluginv1.ListTasksExactResponse{PageInfo: &pluginv1.ExactReadPageInfo{SnapshotVersion: "s", Receipt: &pluginv1.HostReadReceipt{}}}, nil
		}}
		s.h = start(t, s.p).connect(t)
		s.k = sdk.Kind[*pluginv1.ExactTaskObservation]{
			Name: "tasks", WorkspaceID: "team-a", Events: []string{"task.*"},
			List: func(ctx context.Context) sdk.Pages[*pluginv1.ExactTaskObservation] {
				return s.h.Tasks().List(ctx, "team-a", nil, sdk.ListOptions{})
			},
			Sync: func(_ context.Context, snapshot sdk.Snapshot[*pluginv1.ExactTaskObservation]) error {
				s.tell("sync for %s", snapshot.Cause)
				return s.next(&s.syncs)
			},
			Changed: func(_ context.Context, e sdk.Event) error {
				s.tell("changed %s", e.ResourceID)
				return s.next(&s.changes)
			},
		}
		if change != nil {
			change(s)
		}
		s.r.Host, s.r.Kinds = s.h, []sdk.AnyKind{s.k}
		ctx, stop := context.WithCancel(t.Context())
		go func() { s.ended <- s.r.Run(ctx) }()
		fn(s)
		stop()
		synctest.Wait()
	})
}

func event(n int, kind, resource string) *pluginv1.WatchEventsResponse {
	return &pluginv1.WatchEventsResponse{
		EventId: fmt.Sprint("e", n), EventType: kind, WorkspaceId: "team-a", ResourceId: resource, Cursor: fmt.Sprint("c", n),
	}
}

// begin lets the first stream and list happen.
func (s *stage) begin() {
	s.t.Helper()
	const opened = `open at "" for [capability-context-changed task.*]`
	s.expect("before the stream has a place", opened)
	s.feed <- &pluginv1.WatchEventsResponse{Cursor: "c0"}
	s.expect("once it has one", "list", "sync for start")
}

func TestReconcilerListsOnlyOnceTheStreamHasAPlace(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.begin()
		s.feed <- event(1, "task.updated", "t1")
		s.feed <- event(2, "task.updated", "t2")
		s.expect("events", "changed t1", "changed t2")
		other := event(3, "task.updated", "t3")
		other.WorkspaceId = "team-b"
		s.feed <- other
		s.feed <- event(4, "message.added", "m1")
		s.feed <- event(5, "task.a.b", "t4")
		s.expect("events about something else")
	})
}

// The plugin comes back where it was, and lists again where that isn't enough.
func TestReconcilerAfterTheEndOfAStream(t *testing.T) {
	typed := func(code codes.Code, state contract.State, reason contract.Reason) error {
		return fail(t, code, result(wireStates[state], reason))
	}
	for _, c := range []struct {
		name string
		end  error
		want []string
	}{
		{"lost", status.Error(codes.Unavailable, "gone"), []string{`open at "c1" for [capability-context-changed task.*]`}},
		{"ended", nil, []string{`open at "c1" for [capability-context-changed task.*]`}},
		{"who is this", status.Error(codes.Unauthenticated, "who?"), []string{`open at "c1" for [capability-context-changed task.*]`}},
		{"one too many", typed(codes.ResourceExhausted, contract.StateRateLimited, contract.ReasonProviderRateLimited),
			[]string{`open at "c1" for [capability-context-changed task.*]`}},
		{"suspended", typed(codes.PermissionDenied, contract.StateDenied, contract.ReasonCapabilityRevoked),
			[]string{`open at "c1" for [capability-context-changed task.*]`, "list", "sync for gap"}},
		{"stops, or was slow", typed(codes.Unavailable, contract.StateUnavailable, contract.ReasonDependencyUnavailable),
			[]string{`open at "c1" for [capability-context-changed task.*]`}},
		{"too old", typed(codes.FailedPrecondition, contract.StateConflict, contract.ReasonStaleResourceVersion),
			[]string{`open at "" for [capability-context-changed task.*]`, "list", "sync for gap"}},
		{"unknown place", typed(codes.InvalidArgument, contract.StateInvalid, contract.ReasonMalformedPrecondition),
			[]string{`open at "" for [capability-context-changed task.*]`, "list", "sync for gap"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			play(t, nil, func(s *stage) {
				s.begin()
				s.feed <- event(1, "task.updated", "t1")
				s.expect("an event", "changed t1")
				s.end = c.end
				s.feed <- nil
				pass(time.Second)
				s.feed <- &pluginv1.WatchEventsResponse{Cursor: "c2"}
				s.expect("after the end", c.want...)
			})
		})
	}
}

// Who has one stream too many doesn't hammer the Host: it waits for what the Host says
// and ever longer besides, and lists nothing meanwhile.
func TestReconcilerWithOneStreamTooMany(t *testing.T) {
	const after = 10 * time.Second
	var mu sync.Mutex
	var opened []time.Time
	play(t, func(s *stage) {
		tooMany := result(wireStates[contract.StateRateLimited], contract.ReasonProviderRateLimited)
		tooMany.RetryAfterMs = uint32(after.Milliseconds())
		refusal := fail(t, codes.ResourceExhausted, tooMany)
		s.p.onWatch = func(*pluginv1.WatchEventsRequest, grpc.ServerStreamingServer[pluginv1.WatchEventsResponse]) error {
			mu.Lock()
			defer mu.Unlock()
			opened = append(opened, time.Now())
			return refusal
		}
	}, func(s *stage) {
		pass(5 * time.Minute)
		s.expect("while it is refused")
		mu.Lock()
		defer mu.Unlock()
		if len(opened) < 6 || len(opened) > 16 {
			s.t.Fatalf("%d streams are asked for in five minutes", len(opened))
		}
		last := opened[len(opened)-1].Sub(opened[len(opened)-2])
		if first := opened[1].Sub(opened[0]); first < after || last < after+15*time.Second {
			s.t.Errorf("the second comes after %v, the last after %v", first, last)
		}
	})
}

func TestReconcilerEndsWithWhatNoRepetitionMends(t *testing.T) {
	invalid := fail(t, codes.InvalidArgument, result(wireStates[contract.StateInvalid], contract.ReasonMalformedPrecondition))
	ends := func(s *stage, want contract.Reason) {
		s.t.Helper()
		synctest.Wait()
		select {
		case err := <-s.ended:
			if answer, ok := errors.AsType[*sdk.Error](err); !ok || answer.Reason != want {
				s.t.Errorf("it ends with %v", err)
			}
		default:
			s.t.Error("it goes on")
		}
	}
	t.Run("events that aren't declared", func(t *testing.T) {
		play(t, func(s *stage) { s.end = invalid }, func(s *stage) {
			s.feed <- nil
			ends(s, contract.ReasonMalformedPrecondition)
		})
	})
	t.Run("a Host without events", func(t *testing.T) {
		play(t, func(s *stage) { s.end = status.Error(codes.Unimplemented, "no") }, func(s *stage) {
			s.feed <- nil
			ends(s, contract.ReasonHostVersionUnsupported)
		})
	})
	t.Run("a filter that the Host refuses", func(t *testing.T) {
		play(t, func(s *stage) {
			s.p.onTasks = func(*pluginv1.ListTasksExactRequest) (*pluginv1.ListTasksExactResponse, error) { return nil, invalid }
		}, func(s *stage) {
			s.feed <- &pluginv1.WatchEventsResponse{Cursor: "c0"}
			ends(s, contract.ReasonMalformedPrecondition)
		})
	})
	t.Run("closed", func(t *testing.T) {
		play(t, nil, func(s *stage) {
			s.begin()
			if err := s.h.Close(); err != nil {
				s.t.Error(err)
			}
			if err := <-s.ended; !errors.Is(err, sdk.ErrClosed) {
				s.t.Errorf("it ends with %v", err)
			}
		})
	})
	for name, change := range map[string]func(*stage){
		"no name":         func(s *stage) { s.k.Name = "" },
		"no workspace":    func(s *stage) { s.k.WorkspaceID = "" },
		"no list":         func(s *stage) { s.k.List = nil },
		"no sync":         func(s *stage) { s.k.Sync = nil },
		"no pattern":      func(s *stage) { s.k.Events = []string{"task..x"} },
		"negative resync": func(s *stage) { s.r.Resync = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, change, func(s *stage) {
				synctest.Wait()
				select {
				case err := <-s.ended:
					if err == nil {
						s.t.Error("it ends without an error")
					}
				default:
					s.t.Error("it runs")
				}
			})
		})
	}
}

func TestReconcilerListsAgainWhatFailed(t *testing.T) {
	broken := errors.New("the author's disk is full")
	play(t, func(s *stage) { s.syncs = []error{broken, broken} }, func(s *stage) {
		s.told()
		s.feed <- &pluginv1.WatchEventsResponse{Cursor: "c0"}
		s.expect("a failure", "list", "sync for start")
		s.feed <- event(1, "task.updated", "t1") // the list shows it
		pass(time.Second)
		s.expect("again, after growing pauses", "list", "sync for failed", "list", "sync for failed")
		s.changes = []error{broken}
		s.feed <- event(2, "task.updated", "t2")
		s.feed <- event(3, "task.updated", "t3")
		pass(time.Second)
		got := s.told()
		if len(got) < 3 || got[0] != "changed t2" || got[len(got)-1] != "sync for failed" {
			s.t.Errorf("after an event that failed: %q", got)
		}
		pass(time.Minute)
	})
}

// TestI15_EventsAreHints: a plugin that is told nothing still sees everything, in time.
func TestI15_EventsAreHints(t *testing.T) {
	play(t, nil, func(s *stage) {
		done := make(chan struct{})
		defer close(done)
		go func() { // heartbeats
			for {
				select {
				case <-time.After(10 * time.Second):
				case <-done:
					return
				}
				select {
				case s.feed <- &pluginv1.WatchEventsResponse{Cursor: "c0"}:
				case <-done:
					return
				}
			}
		}()
		pass(11 * time.Second)
		s.told()
		pass(7 * time.Minute)
		s.expect("before it is time")
		pass(3 * time.Minute)
		s.expect("when it is time", "list", "sync for resync")
	})
}

func TestReconcilerWithoutChangedListsOnceForManyEvents(t *testing.T) {
	play(t, func(s *stage) { s.k.Changed = nil }, func(s *stage) {
		s.begin()
		for i := range 20 {
			s.feed <- event(i, "task.updated", fmt.Sprint("t", i))
		}
		s.expect("at once")
		pass(time.Second)
		s.expect("soon", "list", "sync for event")
	})
}

func TestReconcilerListsAgainWhenAuthorityChanges(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.begin()
		s.p.grant("team-a", 8, contract.ReadTasks)
		own := event(1, "capability-context-changed", "")
		own.WorkspaceId = ""
		s.feed <- own
		s.expect("after the event", "list", "sync for authority")
		s.p.grant("team-a", 8, contract.ReadTasks) // another context of the same authority
		pass(6 * time.Second)
		s.expect("nothing of the workspace has changed")
		s.p.grant("team-a", 9, contract.ReadTasks)
		pass(6 * time.Second)
		s.expect("without an event, by polling", "list", "sync for authority")
	})
}

// The example of the how-to lists, and reads what an event is about.
func TestTheExampleFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, feed: make(chan *pluginv1.WatchEventsResponse)}
		p := &peer{onWatch: s.watch}
		p.onAny = func(method string, _ proto.Message) (proto.Message, error) {
			s.tell("%s", method)
			if method == "ListTasksExact" {
				return &pluginv1.ListTasksExactResponse{PageInfo: &pluginv1.ExactReadPageInfo{Receipt: &pluginv1.HostReadReceipt{}}}, nil
			}
			return nil, fail(t, codes.NotFound, result(wireStates[contract.StateNotFound], contract.ReasonWorkspaceTargetNotFound))
		}
		host := start(t, p).connect(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- follow(ctx, host, "team-a") }()
		s.told()
		s.feed <- &pluginv1.WatchEventsResponse{Cursor: "c0"}
		s.feed <- event(1, "task.deleted", "t1")
		s.feed <- event(2, "task.updated", "t2")
		pass(time.Second)
		if got := s.told(); !slices.Contains(got, "ListTasksExact") {
			t.Errorf("it calls %q", got)
		}
		s.feed <- event(3, "task.deleted", "t1")
		s.expect("an event", "GetTaskExact")
		stop()
		if err := <-ended; err != nil {
			t.Errorf("it ends with %v", err)
		}
	})
}

// A silent stream is given up; a plugin that is slow takes no memory and loses nothing.
func TestReconcilerInTrouble(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.begin()
		pass(36 * time.Second)
		s.expect("after a long silence", `open at "c0" for [capability-context-changed task.*]`)
	})
	var release chan struct{}
	play(t, func(s *stage) {
		release = make(chan struct{})
		told := s.k.Changed
		s.k.Changed = func(ctx context.Context, e sdk.Event) error {
			<-release
			return told(ctx, e)
		}
	}, func(s *stage) {
		s.begin()
		for i := range 1002 {
			s.feed <- event(i, "task.updated", fmt.Sprint("t", i))
			s.feed <- event(i+5000, "task.updated", fmt.Sprint("t", i)) // the same again, unless it is being read
		}
		synctest.Wait() // the other side has heard them all
		close(release)
		s.expect("more than is kept", "changed t0", "list", "sync for gap")
	})
}
