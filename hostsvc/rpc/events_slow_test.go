package rpc_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/events"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

const (
	// window is what a client of these tests takes unread; the server's transport
	// takes as much again.
	window = 64 << 10
	// large events are several times what both take.
	largeEvents     = 16
	largeEventBytes = 48 << 10
	// patience is Limits.Behind, by the world's own clock.
	patience = time.Minute
)

// The goroutines of a stream: its handler, which waits in Sent for what is being
// sent, and its sender, which a client's flow control holds up.
const (
	handling = "rpc.(*host).WatchEvents("
	sending  = "rpc.(*host).WatchEvents.func"
	waiting  = "events.(*Stream).Sent("
	heldUp   = "transport.(*writeQuota).get("
)

func goroutinesIn(function string) int {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	n := 0
	for one := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(one, function) {
			n++
		}
	}
	return n
}

func (w *world) await(what string, done func() bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.Fatalf("waited in vain for %s", what)
		}
	}
}

// narrow is a client with a window of its own that does not grow.
func (w *world) narrow() pluginv1.HostClient {
	w.Helper()
	conn, err := grpc.NewClient(w.address, grpc.WithInitialWindowSize(window), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: w.roots, ServerName: "plugin-host", MinVersion: tls.VersionTLS13,
	})))
	w.must(err)
	w.Cleanup(func() { w.must(conn.Close()) })
	return pluginv1.NewHostClient(conn)
}

func (w *world) watchOn(client pluginv1.HostClient, request *pluginv1.WatchEventsRequest) eventStream {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.as(alpha), time.Minute)
	w.Cleanup(cancel)
	request.RequestId = "request"
	stream, err := client.WatchEvents(ctx, request)
	w.must(err)
	return stream
}

func (w *world) say(name string) {
	w.Helper()
	payload, err := structpb.NewStruct(map[string]any{"text": strings.Repeat("x", largeEventBytes)})
	w.must(err)
	_, err = w.host.EmitEvent(w.as(beta), &pluginv1.EmitEventRequest{EventName: name, Payload: payload})
	w.must(err)
}

// hears reads what say said, from one number up to another.
func (w *world) hears(stream eventStream, from, to int) {
	w.Helper()
	for i := from; i < to; i++ {
		if e := w.nextEvent(stream); e.GetEventType() != said(i) {
			w.Fatalf("%s comes in place of %s", e.GetEventType(), said(i))
		}
	}
}

func said(i int) string { return fmt.Sprintf("plugin.p.%s.%d", beta, i) }

// rest reads a stream to its end: how many events it still had, the last cursor and
// the end.
func (w *world) rest(stream eventStream, cursor string) (n int, last string, err error) {
	w.Helper()
	for {
		message, err := stream.Recv()
		if err != nil {
			return n, cursor, err
		}
		if message.GetEventId() != "" {
			if message.GetEventType() != said(n) {
				w.Fatalf("%s comes in place of %s", message.GetEventType(), said(n))
			}
			n++
		}
		cursor = message.GetCursor()
	}
}

// stuckWorld has a stream whose client has read one message and reads no more, until
// a message to it is held up, and one that reads on the same connection. There is one
// more place.
func stuckWorld(t *testing.T) (w *world, d *declarations, stuck, reads eventStream, cursor string) {
	t.Helper()
	w, d = eventWorld(t, func(l *events.Limits) { l.Streams, l.Behind, l.Heartbeat = 3, patience, time.Hour })
	client := w.narrow()
	stuck, reads = w.watchOn(client, &pluginv1.WatchEventsRequest{}), w.watchOn(client, &pluginv1.WatchEventsRequest{})
	cursor = w.nextEvent(stuck).GetCursor()
	w.nextEvent(reads)
	for i := range largeEvents {
		w.say(fmt.Sprint(i))
	}
	w.hears(reads, 0, largeEvents)
	w.await("a message to be held up", func() bool { return goroutinesIn(heldUp) == 1 && goroutinesIn(waiting) == 1 })
	return w, d, stuck, reads, cursor
}

// A client that reads no more holds its place for as long as it is given and no
// longer. Nobody else notices; it is told why once it reads again, and goes on where
// it stopped.
func TestWatchEvents_WhoDoesNotReadIsDropped(t *testing.T) {
	w, _, stuck, reads, cursor := stuckWorld(t)
	third := w.watchOn(w.host, &pluginv1.WatchEventsRequest{})
	w.nextEvent(third)
	if err := endOf(w.watchOn(w.host, &pluginv1.WatchEventsRequest{})); status.Code(err) != codes.ResourceExhausted ||
		detail(t, err).GetReason() != string(contract.ReasonProviderRateLimited) || detail(t, err).GetRetryAfterMs() == 0 {
		t.Fatalf("one stream too many ends with %v", err)
	}
	w.clock.advance(patience - time.Second)
	w.say(fmt.Sprint(largeEvents))
	w.hears(reads, largeEvents, largeEvents+1)
	w.hears(third, largeEvents, largeEvents+1)
	if goroutinesIn(heldUp) != 1 || goroutinesIn(handling) != 3 {
		t.Fatal("the stream ended before its time")
	}

	w.await("the others to be at rest", func() bool { return goroutinesIn(waiting) == 1 })
	w.clock.advance(2 * time.Second)
	w.await("the stream to end, and what it was sending", func() bool {
		return goroutinesIn(handling) == 2 && goroutinesIn(sending) == 2 && goroutinesIn(heldUp) == 0
	})
	ctx, leave := context.WithTimeout(w.as(alpha), time.Minute)
	defer leave()
	fourth, err := w.host.WatchEvents(ctx, &pluginv1.WatchEventsRequest{RequestId: "r"}) // nothing was read yet
	w.must(err)
	w.nextEvent(fourth)
	w.say(fmt.Sprint(largeEvents + 1))
	w.hears(reads, largeEvents+1, largeEvents+2)
	w.hears(third, largeEvents+1, largeEvents+2)
	w.hears(fourth, largeEvents+1, largeEvents+2)

	n, cursor, err := w.rest(stuck, cursor)
	result := detail(t, err)
	if status.Code(err) != codes.Unavailable || result.GetReason() != string(contract.ReasonDependencyUnavailable) ||
		!strings.Contains(result.GetMessage(), "not read in time") || result.GetRetryAfterMs() == 0 {
		t.Errorf("the stream ends with %v", err)
	}
	if receipt := w.receipt(result.GetAuditId()); receipt.Method != events.Method || receipt.Reason != contract.ReasonDependencyUnavailable {
		t.Errorf("recorded is %+v", receipt)
	}
	if n == 0 || n >= largeEvents {
		t.Errorf("it still had %d events", n)
	}
	// Its place was given away; one that ends makes room for it to come back.
	leave()
	w.await("a place", func() bool { return goroutinesIn(handling) == 2 })
	again := w.watchOn(w.host, &pluginv1.WatchEventsRequest{Cursor: cursor})
	w.nextEvent(again)
	w.hears(again, n, largeEvents+2)
}

// A client that reads no more and whose authority ends is dropped as soon as one that
// reads, and is sent nothing more than what was on its way.
func TestI6_RevocationEndsAHeldUpStream(t *testing.T) {
	for _, c := range []struct {
		name   string
		revoke func(*declarations)
		code   codes.Code
		reason contract.Reason
	}{
		{"suspended", func(d *declarations) {
			legacy := d.legacy[alpha]
			legacy.Gates = authority.GateSuspended
			d.legacy[alpha] = legacy
		}, codes.PermissionDenied, contract.ReasonCapabilityRevoked},
		{"the pod is gone", func(d *declarations) { d.gone[alpha] = true }, codes.Unauthenticated, ""},
		{"the event is no longer declared", func(d *declarations) {
			legacy := d.legacy[alpha]
			legacy.Events = []string{"task.*"}
			d.legacy[alpha] = legacy
		}, codes.Unavailable, contract.ReasonDependencyUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, d, stuck, _, cursor := stuckWorld(t)
			d.change(func() { c.revoke(d) }) // and the clock stands still
			w.await("the stream to end, and what it was sending", func() bool { return goroutinesIn(heldUp) == 0 && goroutinesIn(waiting) == 0 })
			n, _, err := w.rest(stuck, cursor)
			if n >= largeEvents {
				t.Errorf("it still had %d events", n)
			}
			if status.Code(err) != c.code {
				t.Fatalf("it ends with %v", err)
			}
			if c.reason != "" && detail(t, err).GetReason() != string(c.reason) {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

// A server that stops waits for no client that does not read.
func TestWatchEvents_StopEndsAHeldUpStream(t *testing.T) {
	w, _, stuck, _, cursor := stuckWorld(t)
	stopped := make(chan error, 1)
	go func() { stopped <- w.stop() }()
	w.await("the handlers to end", func() bool { return goroutinesIn(handling) == 0 && goroutinesIn(sending) == 0 })
	_, _, err := w.rest(stuck, cursor)
	if status.Code(err) != codes.Unavailable || detail(t, err).GetReason() != string(contract.ReasonDependencyUnavailable) {
		t.Errorf("it ends with %v", err) // as one that is cut off does
	}
	w.must(<-stopped)
}
