package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
	"github.com/kandev/plugin-host/sdk"
)

// trouble is a network between plugin and Host that repeats events, swaps them, kills
// streams and spoils the cursors they come back with; lossy, it also drops events.
type trouble struct {
	lossy bool

	mu   sync.Mutex
	dice *rand.Rand
	off  bool
	// met counts what was done.
	met map[string]int
}

func (n *trouble) hits(what string, oneIn int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.off || n.met[what] > 0 && n.dice.IntN(oneIn) > 0 { // each at least once
		return false
	}
	n.met[what]++
	return true
}

func (n *trouble) cease() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.off = true
}

func (n *trouble) intercept(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := open(ctx, desc, conn, method, opts...)
	if err != nil {
		cancel()
		return nil, err
	}
	return &troubled{ClientStream: stream, network: n, cancel: cancel}, nil
}

type troubled struct {
	grpc.ClientStream
	network *trouble
	cancel  context.CancelFunc
	ready   []*pluginv1.WatchEventsResponse
	cursor  string
}

func (s *troubled) SendMsg(m any) error {
	if r, ok := m.(*pluginv1.WatchEventsRequest); ok && r.GetCursor() != "" && s.network.hits("spoilt", 4) {
		spoilt := proto.CloneOf(r)
		spoilt.Cursor = "spoilt"
		m = spoilt
	}
	return s.ClientStream.SendMsg(m)
}

func (s *troubled) receive() (*pluginv1.WatchEventsResponse, error) {
	m := &pluginv1.WatchEventsResponse{}
	return m, s.ClientStream.RecvMsg(m)
}

func (s *troubled) RecvMsg(m any) error {
	for len(s.ready) == 0 {
		next, err := s.receive()
		if err != nil {
			s.cancel()
			return err
		}
		switch {
		case s.network.hits("killed", 12):
			s.cancel()
			return status.Error(codes.Unavailable, "the connection is gone")
		case s.network.lossy && s.network.hits("dropped", 3):
			continue
		case s.network.hits("swapped", 4):
			after, err := s.receive()
			if err != nil {
				s.cancel()
				return err
			}
			// Whoever comes back between the two must get both again.
			next, after = after, next
			after.Cursor, next.Cursor = next.GetCursor(), s.cursor
			if next.GetCursor() == "" { // the first of all has no place before it
				next, after = after, next
				next.Cursor = after.GetCursor()
			}
			s.ready = append(s.ready, next, after)
		default:
			s.ready = append(s.ready, next)
		}
		if s.network.hits("repeated", 3) {
			s.ready = append(s.ready, proto.CloneOf(s.ready[0]))
			s.ready[len(s.ready)-1].Cursor = s.ready[len(s.ready)-2].GetCursor()
		}
	}
	out, ok := m.(*pluginv1.WatchEventsResponse)
	if !ok {
		return errors.New("no event")
	}
	s.cursor = s.ready[0].GetCursor()
	proto.Merge(out, s.ready[0])
	s.ready = s.ready[1:]
	return nil
}

// view keeps the tasks of "ws" that are not done, as a plugin's author would.
type view struct {
	mu       sync.Mutex
	versions map[string]string
	causes   map[sdk.Cause]int
	changes  int
}

var open = &pluginv1.TaskFilter{States: []string{"TODO"}}

func (v *view) kind(host *sdk.Host) sdk.Kind[*pluginv1.ExactTaskObservation] {
	return sdk.Kind[*pluginv1.ExactTaskObservation]{
		Name: "open tasks", WorkspaceID: "ws", Events: []string{"task.*"},
		List: func(ctx context.Context) sdk.Pages[*pluginv1.ExactTaskObservation] {
			return host.Tasks().List(ctx, "ws", open, sdk.ListOptions{PageSize: 7})
		},
		Sync: func(_ context.Context, snapshot sdk.Snapshot[*pluginv1.ExactTaskObservation]) error {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.causes[snapshot.Cause]++
			v.versions = map[string]string{}
			for _, item := range snapshot.Items {
				v.versions[item.GetTask().GetId()] = item.GetResourceVersion()
			}
			return nil
		},
		Changed: func(ctx context.Context, event sdk.Event) error {
			item, _, err := host.Tasks().Get(ctx, "ws", event.ResourceID)
			answer, _ := errors.AsType[*sdk.Error](err)
			gone := answer != nil && answer.State == contract.StateNotFound
			if err != nil && !gone {
				return err
			}
			v.mu.Lock()
			defer v.mu.Unlock()
			v.changes++
			if gone || item.GetTask().GetState() != "TODO" {
				delete(v.versions, event.ResourceID)
			} else {
				v.versions[event.ResourceID] = item.GetResourceVersion()
			}
			return nil
		},
	}
}

func (v *view) look() map[string]string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.versions)
}

// converges waits until the view is the Host's.
func (v *view) converges(t *testing.T, clean *sdk.Host, within time.Duration) {
	t.Helper()
	want := map[string]string{}
	for item, err := range clean.Tasks().List(t.Context(), "ws", open, sdk.ListOptions{}).Items() {
		if err != nil {
			t.Fatal(err)
		}
		want[item.GetTask().GetId()] = item.GetResourceVersion()
	}
	for deadline := time.Now().Add(within); ; pass(5 * time.Millisecond) {
		got := v.look()
		if maps.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the view is %v, the Host has %v", got, want)
		}
	}
}

// TestI15_TheViewConverges: whatever the network does to the events, and whatever
// humans decide meanwhile, the view becomes the Host's. Without losses it does so by
// events and gaps alone: Resync is an hour.
func TestI15_TheViewConverges(t *testing.T) {
	for _, c := range []struct {
		name   string
		lossy  bool
		resync time.Duration
	}{
		{"at least once", false, time.Hour},
		{"lossy", true, 300 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Log("seed", seed)
			dice := rand.New(rand.NewPCG(seed, 1))
			network := &trouble{lossy: c.lossy, dice: rand.New(rand.NewPCG(seed, 2)), met: map[string]int{}}
			h := startHost(t, 10)
			h.grant(t, false)
			poll := sdk.WithPollInterval(50 * time.Millisecond)
			clean := h.pod.connect(t, poll)
			host := h.pod.connect(t, poll, sdk.WithDialOptions(grpc.WithStreamInterceptor(network.intercept)))

			v := &view{causes: map[sdk.Cause]int{}}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				r := sdk.Reconciler{Host: host, Kinds: []sdk.AnyKind{v.kind(host)}, Resync: c.resync}
				ended <- r.Run(ctx)
			}()
			defer func() {
				stop()
				if err := <-ended; err != nil {
					t.Errorf("Run ends with %v", err)
				}
			}()
			v.converges(t, clean, 20*time.Second)

			for i := range 120 {
				task := fmt.Sprintf("task-%02d", dice.IntN(10))
				state := []string{"TODO", "IN_PROGRESS", "TODO", "COMPLETED"}[dice.IntN(4)]
				h.write(t, clean, i, task, state)
				switch dice.IntN(40) {
				case 0: // a revocation, and a new grant
					h.grant(t, true)
					h.grant(t, false)
				case 1:
					h.suspend(true)
					pass(30 * time.Millisecond) // the stream is checked every 10 ms
					h.suspend(false)
				}
				if i%30 == 29 {
					v.converges(t, clean, 20*time.Second)
				}
			}
			h.grant(t, true)
			h.grant(t, false)
			v.converges(t, clean, 20*time.Second)
			network.cease()
			t.Log(network.met, v.causes, v.changes)
			for _, what := range []string{"killed", "repeated", "swapped", "spoilt"} {
				if network.met[what] == 0 {
					t.Errorf("nothing was %s: this shows nothing", what)
				}
			}
			v.mu.Lock()
			defer v.mu.Unlock()
			if v.changes == 0 || !c.lossy && (v.causes[sdk.CauseStart] != 1 || v.causes[sdk.CauseResync] != 0 || v.causes[sdk.CauseGap]+v.causes[sdk.CauseAuthority] == 0) {
				t.Errorf("lists by cause: %v, changes: %d", v.causes, v.changes)
			}
		})
	}
}

// write changes a task, whatever its version.
func (*realHost) write(t *testing.T, clean *sdk.Host, i int, task, state string) {
	t.Helper()
	for {
		item, _, err := clean.Tasks().Get(t.Context(), "ws", task)
		if err == nil {
			op := sdk.NewOperation(fmt.Sprint("key-", i), sdk.ExpectNone())
			_, err = clean.Tasks().Update(t.Context(), "ws", op, task, item.GetResourceVersion(),
				sdk.TaskChange{State: &state, Title: new(fmt.Sprint("Title ", i))})
		}
		answer, _ := errors.AsType[*sdk.Error](err)
		if answer != nil && answer.Retry() == contract.RetryPark { // this side has yet to learn of the grant
			pass(10 * time.Millisecond)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
}
