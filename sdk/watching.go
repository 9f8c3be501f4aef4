package sdk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

const (
	// contextChanged is the type of the event about the plugin's own authority. It
	// comes first on every stream that asks for it.
	contextChanged = "capability-context-changed"
	// longestSilence ends a stream on which nothing came, not even one of the
	// heartbeats, which come every 10 s.
	longestSilence = 35 * time.Second
)

// watching follows the Host's events for a Reconciler.
type watching struct {
	host     *Host
	work     *agenda
	patterns []string
	// refresh has room for one token: the capability context is to be fetched.
	refresh chan struct{}

	// cursor is the place reached; empty: none.
	cursor string
	// gap is why everything is to be listed once a stream is open; empty: it is not.
	gap Cause
}

// run follows until ctx ends, or a stream is refused for good.
func (w *watching) run(ctx context.Context) error {
	pause, told := firstDelay, ""
	for {
		changed, _ := w.host.standing.waitFor(parkingSpace{})
		opened, err := w.once(ctx)
		switch {
		case over(ctx):
			return nil
		case w.host.isClosed():
			return fmt.Errorf("watch events: %w", ErrClosed)
		}
		if opened {
			pause, told = firstDelay, ""
		}
		answer, fatal := w.ended(err)
		if fatal {
			return fmt.Errorf("watch events: %w", answer)
		}
		if text := err.Error(); text != told {
			w.host.log.Info("The stream of events ended; it is opened again.", "error", err)
			told = text
		}
		wait := spread(pause)
		if answer != nil {
			wait += min(answer.RetryAfter, longestPause)
		}
		pause = min(2*pause, longestPause)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed: // what was suspended may work again
		case <-w.host.closed:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// once reads one stream to its end, which is always an error. opened says whether
// anything came.
func (w *watching) once(ctx context.Context) (opened bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(longestSilence, cancel)
	defer silence.Stop()
	token, err := w.host.token.current()
	if err != nil {
		return false, fmt.Errorf("read the token: %w", err)
	}
	stream, err := w.host.client.WatchEvents(ctx, &pluginv1.WatchEventsRequest{
		RequestId: uuid.NewString(), Cursor: w.cursor, Patterns: w.patterns,
	}, grpc.PerRPCCredentials(bearer(token)))
	if err != nil {
		return false, err // a status, read by ended
	}
	for {
		message, err := stream.Recv()
		if err != nil {
			return opened, err //nolint:wrapcheck // a status, read by ended
		}
		silence.Reset(longestSilence)
		opened = true
		w.cursor = message.GetCursor()
		if w.gap != "" {
			// Only now: what is committed after this list began comes on the stream.
			w.work.listAll(w.gap)
			w.gap = ""
		}
		switch {
		case message.GetEventId() == "" && message.GetEventType() == "": // a heartbeat
		case message.GetEventType() == contextChanged:
			select {
			case w.refresh <- struct{}{}:
			default:
			}
		default:
			w.work.hear(Event{
				ID: message.GetEventId(), Type: message.GetEventType(), WorkspaceID: message.GetWorkspaceId(),
				ResourceID: message.GetResourceId(), ResourceVersion: message.GetResourceVersion(),
			})
		}
	}
}

// ended decides what the end of a stream means. A connection that was lost, a Host that
// stops, a stream that wasn't read in time and one too many lose nothing: the next
// stream goes on at the cursor, later where the Host says so. What else the Host ended
// itself is taken for a gap. answer is nil where the Host gave none.
func (w *watching) ended(err error) (answer *Error, fatal bool) {
	answer = call{method: "WatchEvents"}.denied(readStatus(err), request{})
	typed := len(status.Convert(err).Details()) > 0
	switch {
	case status.Code(err) == codes.Unimplemented:
		return answer, true
	case status.Code(err) == codes.Unauthenticated:
		_, rereadErr := w.host.token.reread()
		if rereadErr != nil {
			w.host.log.Warn("The token can't be read again.", "error", rereadErr)
		}
		return nil, false
	case !typed:
		return nil, false
	case answer.State == contract.StateUnavailable, answer.State == contract.StateRateLimited:
		return answer, false
	case answer.State == contract.StateInvalid && w.cursor == "", answer.Reason == contract.ReasonHostVersionUnsupported:
		return answer, true
	case answer.State == contract.StateInvalid, answer.Reason == contract.ReasonStaleResourceVersion:
		w.cursor = ""
	}
	if w.gap == "" {
		w.gap = CauseGap
	}
	return answer, false
}

// authority makes kinds be listed in whose workspace the plugin's authority changed,
// whether the stream or the polling tells.
func (w *watching) authority(ctx context.Context, changed <-chan struct{}) error {
	for {
		select {
		case <-changed:
			changed, _ = w.host.standing.waitFor(parkingSpace{})
			w.work.judge(w.host.standing.of)
		case <-w.refresh:
			if _, err := w.host.fetch(ctx, 1); err != nil && ctx.Err() == nil && !errors.Is(err, ErrClosed) {
				w.host.log.Warn("The capability context could not be fetched; it is polled.", "error", err)
			}
		case <-w.host.closed:
			return fmt.Errorf("reconcile: %w", ErrClosed)
		case <-ctx.Done():
			return nil
		}
	}
}

// matchesAny tells whether a type is of one of the patterns, in which * stands for
// exactly one segment between dots.
func matchesAny(patterns []string, eventType string) bool {
	segments := strings.Split(eventType, ".")
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		return slices.EqualFunc(strings.Split(pattern, "."), segments, func(want, got string) bool {
			return want == "*" || want == got
		})
	})
}

func union(patterns, more []string) []string {
	for _, pattern := range more {
		if !slices.Contains(patterns, pattern) {
			patterns = append(patterns, pattern)
		}
	}
	return patterns
}
