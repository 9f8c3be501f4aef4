package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/kandev/plugin-host/launcher/relay"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// host keeps a history of events; a cursor is a place in it.
type host struct {
	pluginv1.UnimplementedHostServer

	mu      sync.Mutex
	events  []*pluginv1.WatchEventsResponse
	grown   chan struct{}
	oldest  int // what is before isn't kept
	opened  []*pluginv1.WatchEventsRequest
	sent    int
	breakAt int // after so many sent in one stream, it ends; 0: never
}

func (h *host) publish(types ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range types {
		h.events = append(h.events, &pluginv1.WatchEventsResponse{
			EventId: fmt.Sprint("e", len(h.events)+1), EventType: name, OccurredAt: "2026-01-02T03:04:05.678Z",
			WorkspaceId: "w", Cursor: fmt.Sprint(len(h.events) + 1),
		})
	}
	close(h.grown)
	h.grown = make(chan struct{})
}

func (h *host) WatchEvents(r *pluginv1.WatchEventsRequest, stream grpc.ServerStreamingServer[pluginv1.WatchEventsResponse]) error {
	h.mu.Lock()
	h.opened = append(h.opened, r)
	at := len(h.events)
	if r.GetFromStart() {
		at = h.oldest
	}
	h.mu.Unlock()
	if r.GetCursor() != "" {
		if _, err := fmt.Sscan(r.GetCursor(), &at); err != nil || at < h.oldest {
			gone, _ := status.New(codes.FailedPrecondition, "stale").WithDetails(&pluginv1.HostCommandResult{Reason: "STALE_RESOURCE_VERSION"})
			return gone.Err()
		}
	} else if err := stream.Send(&pluginv1.WatchEventsResponse{Cursor: fmt.Sprint(at)}); err != nil {
		return err
	}
	for n := 1; ; n++ {
		h.mu.Lock()
		grown := h.grown
		var next *pluginv1.WatchEventsResponse
		if at < len(h.events) {
			next = h.events[at]
			h.sent++
		}
		h.mu.Unlock()
		if next == nil {
			select {
			case <-grown:
				continue
			case <-stream.Context().Done():
				return nil
			}
		}
		if err := stream.Send(next); err != nil {
			return err
		}
		at++
		if n == h.breakAt {
			return status.Error(codes.Unavailable, "the Host stops")
		}
	}
}

func (h *host) requests() []*pluginv1.WatchEventsRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.opened)
}

// plugin writes down what it is delivered, and refuses what it is told to.
type plugin struct {
	pluginv1.UnimplementedPluginServer

	mu     sync.Mutex
	got    []*pluginv1.Event
	at     []time.Time
	refuse func(attempt int, e *pluginv1.Event) error
}

func (p *plugin) DeliverEvent(ctx context.Context, e *pluginv1.Event) (*pluginv1.EventAck, error) {
	p.mu.Lock()
	p.got, p.at = append(p.got, e), append(p.at, time.Now())
	n, refuse := len(p.got), p.refuse
	p.mu.Unlock()
	if refuse != nil {
		if err := refuse(n, e); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				<-ctx.Done()
			}
			return nil, err
		}
	}
	return &pluginv1.EventAck{}, nil
}

func (p *plugin) types() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, e := range p.got {
		all = append(all, e.GetEventType())
	}
	return all
}

type world struct {
	t      *testing.T
	host   *host
	plugin *plugin
	relay  *relay.Relay
	file   string
	ended  chan error
	cancel context.CancelFunc
}

// connected serves over memory, so that it can be in a bubble.
func connected(t *testing.T, register func(*grpc.Server)) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(64 << 10)
	server := grpc.NewServer()
	register(server)
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
	})
	return conn
}

func newWorld(t *testing.T, file string) *world {
	t.Helper()
	w := &world{host: &host{grown: make(chan struct{})}, plugin: &plugin{}, file: file}
	toHost := connected(t, func(s *grpc.Server) { pluginv1.RegisterHostServer(s, w.host) })
	toPlugin := connected(t, func(s *grpc.Server) { pluginv1.RegisterPluginServer(s, w.plugin) })
	w.relay = &relay.Relay{
		Patterns: []string{"*", "*.*"}, Host: toHost, Log: slog.New(slog.DiscardHandler), CursorFile: w.file, RetryDelays: relay.RetryDelays(),
		Plugin: func(context.Context) (grpc.ClientConnInterface, error) { return toPlugin, nil },
	}
	return w
}

func (w *world) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w.ended, w.cancel = make(chan error, 1), cancel
	go func() { w.ended <- w.relay.Run(ctx) }()
	synctest.Wait()
}

func (w *world) stop(t *testing.T) {
	t.Helper()
	w.cancel()
	if err := <-w.ended; err != nil {
		t.Error(err)
	}
}

func (w *world) cursor(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(w.file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func bubble(t *testing.T, test func(w *world)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cursor")
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, file)
		w.t = t
		test(w)
	})
}

func TestEventsAreDeliveredInOrderAndThePlaceIsKept(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		w.host.publish("before.start")
		w.start(t)
		w.host.publish("task.created", "task.updated")
		w.host.publish("turn.started")
		synctest.Wait()
		if got := w.plugin.types(); !slices.Equal(got, []string{"task.created", "task.updated", "turn.started"}) {
			t.Errorf("delivered %q", got)
		}
		first := w.plugin.got[0]
		if uuid.Validate(first.GetEventId()) != nil || first.GetOccurredAt() != "2026-01-02T03:04:05Z" || first.GetWorkspaceId() != "w" {
			t.Errorf("delivered %v", first)
		}
		if w.plugin.got[1].GetEventId() == first.GetEventId() {
			t.Error("two events have one ID")
		}
		if got := w.cursor(t); got != "4" {
			t.Errorf("the place kept is %q", got)
		}
		w.stop(t)
		// What happens while no launcher runs is delivered later.
		w.host.publish("task.deleted")
		w.start(t)
		if got := w.plugin.types(); len(got) != 4 || got[3] != "task.deleted" {
			t.Errorf("after a restart, delivered %q", got)
		}
		w.stop(t)
	})
}

func TestARefusedEventIsTriedFourTimesAndThenDropped(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		w.plugin.refuse = func(_ int, e *pluginv1.Event) error {
			if e.GetEventType() == "bad" {
				return errors.New("no")
			}
			return nil
		}
		w.start(t)
		w.host.publish("bad", "good")
		time.Sleep(64 * time.Second) //nolint:forbidigo // the bubble's time
		synctest.Wait()
		if got := w.plugin.types(); !slices.Equal(got, []string{"bad", "bad", "bad"}) {
			t.Fatalf("before the last attempt, delivered %q", got)
		}
		if got := w.cursor(t); got != "0" {
			t.Errorf("the place kept is %q while its event isn't delivered", got)
		}
		time.Sleep(time.Minute) //nolint:forbidigo // as above
		synctest.Wait()
		if got := w.plugin.types(); !slices.Equal(got, []string{"bad", "bad", "bad", "bad", "good"}) {
			t.Fatalf("delivered %q", got)
		}
		for i, want := range []time.Duration{0, 5 * time.Second, 20 * time.Second, 65 * time.Second, 65 * time.Second} {
			if got := w.plugin.at[i].Sub(w.plugin.at[0]); got != want {
				t.Errorf("attempt %d after %v, want %v", i, got, want)
			}
			if same := w.plugin.got[i].GetEventId() == w.plugin.got[0].GetEventId(); same != (i < 4) {
				t.Errorf("attempt %d has the ID %s", i, w.plugin.got[i].GetEventId())
			}
		}
		if got := w.cursor(t); got != "2" {
			t.Errorf("the place kept is %q", got)
		}
		w.stop(t)
	})
}

func TestAnAttemptHasTenSeconds(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		w.plugin.refuse = func(n int, _ *pluginv1.Event) error {
			if n == 1 {
				return context.DeadlineExceeded // once its context has ended
			}
			return nil
		}
		w.start(t)
		w.host.publish("slow")
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's time
		synctest.Wait()
		if len(w.plugin.at) != 2 || w.plugin.at[1].Sub(w.plugin.at[0]) != 15*time.Second {
			t.Errorf("attempts at %v", w.plugin.at)
		}
		w.stop(t)
	})
}

func TestOnlyDeclaredEventsAreDelivered(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		w.relay.Patterns = []string{"task.*", "turn.started", "*.*.s1"}
		w.start(t)
		w.host.publish("task.created", "task", "task.a.b", "turn.started", "turn.completed", "agent.stream.s1", "capability-context-changed")
		synctest.Wait()
		if got := w.plugin.types(); !slices.Equal(got, []string{"task.created", "turn.started", "agent.stream.s1"}) {
			t.Errorf("delivered %q", got)
		}
		if got := w.cursor(t); got != "7" {
			t.Errorf("the place kept is %q", got)
		}
		w.stop(t)
	})
}

// What was under way when the launcher ended comes again, with its ID.
func TestAnEventUnderWayIsntLostByAnEnd(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		w.plugin.refuse = func(n int, _ *pluginv1.Event) error {
			if n == 1 {
				return context.DeadlineExceeded
			}
			return nil
		}
		w.start(t)
		w.host.publish("slow")
		time.Sleep(time.Second) //nolint:forbidigo // the bubble's time
		w.stop(t)
		w.start(t)
		if got := w.plugin.types(); !slices.Equal(got, []string{"slow", "slow"}) ||
			w.plugin.got[0].GetEventId() != w.plugin.got[1].GetEventId() {
			t.Errorf("delivered %v", w.plugin.got)
		}
		w.stop(t)
	})
}

func TestABrokenStreamIsOpenedAgainAtItsPlace(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		w.host.breakAt = 2
		w.start(t)
		w.host.publish("1", "2", "3", "4", "5")
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's time
		synctest.Wait()
		if got := w.plugin.types(); !slices.Equal(got, []string{"1", "2", "3", "4", "5"}) {
			t.Errorf("delivered %q", got)
		}
		ids := map[string]bool{}
		for _, r := range w.host.opened {
			ids[r.GetRequestId()] = true
		}
		if len(w.host.opened) < 3 || len(ids) != len(w.host.opened) {
			t.Errorf("%d streams were opened by %d requests", len(w.host.opened), len(ids))
		}
		w.stop(t)
	})
}

// A Host that says nothing any more, though its connection stands, is asked again; one
// that the plugin keeps waiting isn't silent.
func TestASilentStreamIsOpenedAgain(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		w.start(t)
		w.host.publish("task.created")
		synctest.Wait()
		time.Sleep(34 * time.Second) //nolint:forbidigo // the bubble's time
		w.host.publish("task.updated")
		synctest.Wait()
		time.Sleep(34 * time.Second) //nolint:forbidigo // as above
		if n := len(w.host.requests()); n != 1 {
			t.Fatalf("%d streams were opened, and none was silent for long", n)
		}
		time.Sleep(3 * time.Second) //nolint:forbidigo // as above
		if got := w.host.requests(); len(got) != 2 || got[1].GetCursor() != "2" {
			t.Errorf("after a long silence, opened are %v", got)
		}
		w.stop(t)
	})
	bubble(t, func(w *world) {
		t := w.t
		w.relay.Plugin = func(ctx context.Context) (grpc.ClientConnInterface, error) { // none runs
			<-ctx.Done()
			return nil, ctx.Err()
		}
		w.start(t)
		for range relay.QueueLength + 10 {
			w.host.publish("task.created")
		}
		time.Sleep(10 * time.Minute) //nolint:forbidigo // as above
		if n := len(w.host.requests()); n != 1 {
			t.Errorf("%d streams were opened while the plugin kept one waiting", n)
		}
		w.stop(t)
	})
}

func TestAPlaceThatIsGoneBeginsWithTheOldest(t *testing.T) {
	text := func(text string) func(string) error {
		return func(name string) error { return os.WriteFile(name, []byte(text), 0o600) }
	}
	for name, put := range map[string]func(string) error{
		"too old": text("1"), "garbled": text("\xff\xfe"), "too long": text(strings.Repeat("c", 3000)),
		"a pipe": func(name string) error { return syscall.Mkfifo(name, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				t := w.t
				if err := put(w.file); err != nil {
					t.Fatal(err)
				}
				w.host.oldest = 2
				w.host.publish("1", "2", "3", "4")
				w.start(t)
				time.Sleep(time.Minute) //nolint:forbidigo // the bubble's time
				synctest.Wait()
				if got := w.plugin.types(); !slices.Equal(got, []string{"3", "4"}) {
					t.Errorf("delivered %q", got)
				}
				if got := w.cursor(t); got != "4" {
					t.Errorf("the place kept is %q", got)
				}
				w.stop(t)
			})
		})
	}
}

// A plugin that takes nothing holds the Host back; nothing is dropped here.
func TestTheQueueIsBounded(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		open := make(chan struct{})
		toPlugin := w.relay.Plugin
		w.relay.Plugin = func(ctx context.Context) (grpc.ClientConnInterface, error) {
			select {
			case <-open:
				return toPlugin(ctx)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		w.start(t)
		var types []string
		for i := range 5000 {
			types = append(types, fmt.Sprint("event.", i, strings.Repeat("x", 100)))
		}
		w.host.publish(types...)
		time.Sleep(time.Hour) //nolint:forbidigo // the bubble's time: no attempt is used up meanwhile
		synctest.Wait()
		w.host.mu.Lock()
		if w.host.sent >= len(types) {
			t.Errorf("the relay took all %d events", w.host.sent)
		}
		w.host.mu.Unlock()
		close(open)
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's time
		synctest.Wait()
		if got := w.plugin.types(); !slices.Equal(got, types) {
			t.Errorf("%d events were delivered, or in another order", len(got))
		}
		if got := w.cursor(t); got != "5000" {
			t.Errorf("the place kept is %q", got)
		}
		w.stop(t)
	})
}

func TestAPlaceThatCantBeKeptIsAnError(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		w.relay.CursorFile = filepath.Join(w.file, "no", "folder")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := w.relay.Run(ctx); err == nil {
			t.Error("the relay runs without a memory")
		}
	})
}

// A disk that is full for a while ends no plugin, which could be what makes room.
func TestAPlaceThatCantBeKeptForAWhileIsKeptLater(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		w.start(t)
		w.host.publish("task.created")
		synctest.Wait()
		if got := w.cursor(t); got != "1" {
			t.Fatalf("the place kept is %q", got)
		}
		if err := errors.Join(os.Remove(w.file), os.MkdirAll(filepath.Join(w.file, "full"), 0o700)); err != nil {
			t.Fatal(err)
		}
		w.host.publish("task.updated", "task.deleted")
		synctest.Wait()
		if got := w.plugin.types(); len(got) != 3 {
			t.Errorf("delivered %q", got)
		}
		if err := os.RemoveAll(w.file); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(filepath.Dir(w.file)); err != nil || len(left) != 0 {
			t.Errorf("failing has left %v, %v", left, err)
		}
		w.host.publish("task.moved")
		synctest.Wait()
		if got := w.cursor(t); got != "4" {
			t.Errorf("the place kept is %q", got)
		}
		w.stop(t)
	})
	// What a crash has left doesn't stay.
	bubble(t, func(w *world) {
		t := w.t
		if err := os.WriteFile(w.file+".new", []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		w.start(t)
		w.host.publish("task.created")
		synctest.Wait()
		w.stop(t)
		if left, err := os.ReadDir(filepath.Dir(w.file)); err != nil || len(left) != 1 || w.cursor(t) != "1" {
			t.Errorf("left are %v, %v", left, err)
		}
	})
}
