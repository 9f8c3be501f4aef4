package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/launcher/pause"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

const (
	// QueueLength is how many events wait for the plugin at most.
	QueueLength = 100
	// AttemptTimeout bounds one attempt to deliver.
	AttemptTimeout = 10 * time.Second
	// saveInterval is how old the written place may be while events come without a
	// pause.
	saveInterval = time.Second
	// longestSilence ends a stream on which nothing came, not even one of the
	// heartbeats, which come every 10 s: another Host may answer, or the same again.
	longestSilence = 35 * time.Second

	shortestPause = time.Second
	longestPause  = 30 * time.Second
)

// RetryDelays is how long is waited before each attempt after the first.
func RetryDelays() []time.Duration {
	return []time.Duration{5 * time.Second, 15 * time.Second, 45 * time.Second}
}

// Relay relays. Fields are set before Run.
type Relay struct {
	// Host is the connection to the Host.
	Host grpc.ClientConnInterface
	// Plugin returns the connection to the plugin, once it runs.
	Plugin func(ctx context.Context) (grpc.ClientConnInterface, error)
	// Patterns are the event types that the plugin's manifest declares, with * for
	// exactly one segment between dots. The Host has others for newer plugins
	// (capability-context-changed): who didn't ask for them doesn't know them.
	Patterns []string
	// CursorFile is where the place reached is kept.
	CursorFile string
	Log        *slog.Logger
	// RetryDelays replaces the package's.
	RetryDelays []time.Duration
}

// Run relays until ctx ends, and returns nil then. It fails only when the place
// reached can't be read, or written for the first time. What fails later, as where the
// plugin has filled its disk, is logged: after a restart, events then come again.
func (r *Relay) Run(ctx context.Context) error {
	from := &pluginv1.WatchEventsRequest{}
	var err error
	from.Cursor, err = readCursor(r.CursorFile)
	switch {
	case errors.Is(err, errGarbled):
		r.Log.Error("The place reached in the events is lost; the oldest that there are come again", "file", r.CursorFile, "error", err)
		from.FromStart = true
	case err != nil:
		return err
	}
	queue := make(chan *pluginv1.WatchEventsResponse, QueueLength)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		r.follow(ctx, from, queue)
		return nil
	})
	group.Go(func() error { return r.deliverAll(ctx, queue) })
	return group.Wait() //nolint:wrapcheck // our own, from deliverAll
}

// follow reads the Host's events into the queue, until ctx ends. It begins where
// from says, and moves it along.
func (r *Relay) follow(ctx context.Context, from *pluginv1.WatchEventsRequest, queue chan<- *pluginv1.WatchEventsResponse) {
	wait, told := shortestPause, ""
	for {
		received, err := r.followOnce(ctx, from, queue)
		if ctx.Err() != nil {
			return
		}
		if received {
			wait, told = shortestPause, ""
		}
		if from.GetCursor() != "" && isUnknownPlace(err) {
			r.Log.Error("The Host doesn't keep the place that was reached; events between are lost", "error", err)
			from.Cursor, from.FromStart = "", true
		} else if text := err.Error(); text != told {
			r.Log.Warn("The stream of events ended; it is opened again", "error", err)
			told = text
		}
		if !pause.For(ctx, wait) {
			return
		}
		wait = min(2*wait, longestPause)
	}
}

// followOnce reads one stream to its end, which is always an error, and moves
// from along. It says whether anything came.
func (r *Relay) followOnce(
	ctx context.Context, from *pluginv1.WatchEventsRequest, queue chan<- *pluginv1.WatchEventsResponse,
) (received bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(longestSilence, func() { cancel(errSilent) })
	defer silence.Stop()
	from.RequestId = uuid.NewString()
	stream, err := pluginv1.NewHostClient(r.Host).WatchEvents(ctx, from)
	if err != nil {
		return false, fmt.Errorf("follow events: %w", err)
	}
	for {
		silence.Reset(longestSilence)
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return received, errors.New("the Host ended the stream")
		}
		if errors.Is(context.Cause(ctx), errSilent) {
			return received, errSilent
		}
		if err != nil {
			return received, fmt.Errorf("follow events: %w", err)
		}
		silence.Stop() // the plugin may keep it waiting
		select {
		case queue <- event:
		case <-ctx.Done():
			return received, ctx.Err()
		}
		received = true
		from.Cursor, from.FromStart = event.GetCursor(), false
	}
}

var errSilent = errors.New("the Host is silent")

// isUnknownPlace says whether the Host refused the cursor: it is too old, or of
// another store.
func isUnknownPlace(err error) bool {
	for _, detail := range status.Convert(err).Details() {
		result, ok := detail.(*pluginv1.HostCommandResult)
		if !ok {
			continue
		}
		reason := contract.Reason(result.GetReason())
		return reason == contract.ReasonStaleResourceVersion || reason == contract.ReasonMalformedPrecondition
	}
	return false
}

// deliverAll delivers what is in the queue, and writes down how far it is.
func (r *Relay) deliverAll(ctx context.Context, queue <-chan *pluginv1.WatchEventsResponse) error {
	var reached, written string
	var saved time.Time
	failing := false
	save := func() error {
		if reached == written {
			return nil
		}
		if err := writeCursor(r.CursorFile, reached); err != nil {
			if written == "" {
				return err
			}
			if !failing {
				r.Log.Error("The place reached in the events can't be written; it is tried again", "error", err)
			}
			failing = true
			return nil
		}
		written, saved, failing = reached, time.Now(), false
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return save()
		case event := <-queue:
			if event.GetEventId() != "" && r.declared(event.GetEventType()) && !r.deliver(ctx, eventOf(event)) {
				return save() // ctx has ended; the event comes again
			}
			reached = event.GetCursor()
		}
		if len(queue) == 0 || time.Since(saved) >= saveInterval {
			if err := save(); err != nil {
				return err
			}
		}
	}
}

// declared says whether an event type matches a pattern.
func (r *Relay) declared(eventType string) bool {
	return slices.ContainsFunc(r.Patterns, func(pattern string) bool {
		return slices.EqualFunc(strings.Split(pattern, "."), strings.Split(eventType, "."), func(want, got string) bool {
			return want == "*" || want == got
		})
	})
}

// eventOf translates an event. Its ID is a UUID whatever the Host's are, and the
// same whenever it is delivered.
func eventOf(e *pluginv1.WatchEventsResponse) *pluginv1.Event {
	id := e.GetEventId()
	if uuid.Validate(id) != nil {
		id = uuid.NewSHA1(uuid.NameSpaceURL, []byte("kandev-event:"+id)).String()
	}
	occurred := e.GetOccurredAt()
	if at, err := time.Parse(time.RFC3339Nano, occurred); err == nil {
		occurred = at.UTC().Format(time.RFC3339)
	}
	return &pluginv1.Event{
		EventId: id, EventType: e.GetEventType(), OccurredAt: occurred,
		WorkspaceId: e.GetWorkspaceId(), Payload: e.GetPayload(),
	}
}

// deliver tries until the event is delivered or dropped. It returns false when
// ctx ended before.
func (r *Relay) deliver(ctx context.Context, event *pluginv1.Event) bool {
	for attempt := 0; ; attempt++ {
		err := r.attempt(ctx, event)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		log := r.Log.With("event", event.GetEventId(), "type", event.GetEventType(), "attempt", attempt+1, "error", err)
		if attempt == len(r.RetryDelays) {
			log.Error("An event is dropped: the plugin doesn't take it")
			return true
		}
		log.Warn("The plugin doesn't take an event", "again", r.RetryDelays[attempt].String())
		if !pause.For(ctx, r.RetryDelays[attempt]) {
			return false
		}
	}
}

func (r *Relay) attempt(ctx context.Context, event *pluginv1.Event) error {
	conn, err := r.Plugin(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, AttemptTimeout)
	defer cancel()
	if _, err := pluginv1.NewPluginClient(conn).DeliverEvent(ctx, event); err != nil {
		return fmt.Errorf("deliver an event: %w", err)
	}
	return nil
}
