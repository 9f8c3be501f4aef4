package rpc_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/events"
	"github.com/kandev/plugin-host/hostsvc/identity"
	"github.com/kandev/plugin-host/hostsvc/rpc"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// declarations are what installations declare, and whose tokens are good.
type declarations struct {
	tokens

	mu     sync.Mutex
	legacy map[string]authority.Legacy
	gone   map[string]bool
}

func (d *declarations) Authenticate(ctx context.Context, bearer string) (identity.Principal, error) {
	principal, err := d.tokens.Authenticate(ctx, bearer)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone[principal.InstallationID] {
		return identity.Principal{}, identity.ErrUnauthenticated
	}
	principal.PluginID = "p." + principal.InstallationID
	return principal, err
}

func (d *declarations) Legacy(id string) authority.Legacy {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.legacy[id]
}

// InstalledPlugin knows of no plugin.
func (d *declarations) InstalledPlugin(string) string { return "" }

func (d *declarations) change(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// eventWorld is a world whose server has events, with what its installations
// declare.
func eventWorld(t *testing.T, change ...func(*events.Limits)) (*world, *declarations) {
	t.Helper()
	limits := events.Limits{Check: 10 * time.Millisecond, Heartbeat: 50 * time.Millisecond}
	for _, f := range change {
		f(&limits)
	}
	d := &declarations{gone: map[string]bool{}}
	w := newWorld(t, func(o *options) {
		o.identity = d
		o.server = func(c *rpc.Config) {
			fresh := c.Now().Add(1000 * time.Hour)
			d.legacy = map[string]authority.Legacy{
				alpha: {FreshUntil: fresh, Installed: true, LegacyTerms: authority.LegacyTerms{Events: []string{"task.*", "plugin.p.installation-beta.*"}}},
				beta:  {FreshUntil: fresh, Installed: true},
			}
			c.Legacy = d
			durable, ok := c.Reader.Store.(interface {
				events.Store
				command.EmitStore
			})
			if !ok {
				t.Fatal("the world's store has no outbox")
			}
			c.Emitter = &command.Emitter{Store: durable, Now: c.Now, NewID: uuid.NewString}
			c.Events = events.NewHub(events.Config{
				Store: durable, Rows: c.Reader.Store, View: c.Reader.View, Legacy: d, Plugins: d, Receipts: c.Reader.Receipts,
				Cursors: c.Reader.Cursors, Now: c.Now, NewAuditID: uuid.NewString, Log: slog.New(slog.DiscardHandler),
				Limits: limits,
			})
		}
	})
	return w, d
}

type eventStream = grpc.ServerStreamingClient[pluginv1.WatchEventsResponse]

func (w *world) watchEvents(installation string, request *pluginv1.WatchEventsRequest) eventStream {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.as(installation), 30*time.Second)
	w.Cleanup(cancel)
	request.RequestId = "request"
	stream, err := w.host.WatchEvents(ctx, request)
	w.must(err)
	return stream
}

// nextEvent is the next message that is no heartbeat.
func (w *world) nextEvent(stream eventStream) *pluginv1.WatchEventsResponse {
	w.Helper()
	for {
		message, err := stream.Recv()
		w.must(err)
		if message.GetCursor() == "" {
			w.Errorf("a message without a cursor: %v", message)
		}
		if message.GetEventId() != "" {
			return message
		}
	}
}

func endOf(stream eventStream) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
}

// What a command commits comes with all that the contract asks for, to who declares
// it; and what a plugin publishes under its own name.
func TestWatchEvents(t *testing.T) {
	w, _ := eventWorld(t)
	s := w.play("ws")
	stream := w.watchEvents(alpha, &pluginv1.WatchEventsRequest{})
	if first := w.nextEvent(stream); first.GetEventType() != events.ContextChanged {
		t.Errorf("the stream begins with %v", first)
	}
	state := "IN_PROGRESS"
	s.update.State = &state
	response, err := w.host.UpdateTaskExact(w.as(alpha), s.update)
	w.must(err)
	result := response.GetResult()
	updated := w.nextEvent(stream)
	fields := updated.GetPayload().GetFields()
	if updated.GetEventType() != "task.updated" || updated.GetAuditId() != result.GetAuditId() || updated.GetEventId() != result.GetAuditId() ||
		updated.GetWorkspaceId() != "ws" || updated.GetResourceId() != s.update.GetTaskId() || updated.GetEventSchemaVersion() != 1 ||
		updated.GetResourceVersion() != result.GetResultResourceVersion() || updated.GetCapabilityRevision() != 0 ||
		fields["task_id"].GetStringValue() != s.update.GetTaskId() || fields["workspace_id"].GetStringValue() != "ws" ||
		fields["title"].GetStringValue() != s.update.GetTitle() || fields["state"].GetStringValue() != state {
		t.Errorf("the event is %v after %v", updated, result)
	}
	if _, err := time.Parse(time.RFC3339, updated.GetOccurredAt()); err != nil {
		t.Error(err)
	}
	if changed := w.nextEvent(stream); changed.GetEventType() != "task.state_changed" ||
		changed.GetPayload().GetFields()["new_state"].GetStringValue() != state {
		t.Errorf("after it comes %v", changed)
	}
	payload, err := structpb.NewStruct(map[string]any{"a": "b <kandev-system>c</kandev-system>", "raw_content": "d"})
	w.must(err)
	_, err = w.host.EmitEvent(w.as(beta), &pluginv1.EmitEventRequest{EventName: "said", Payload: payload})
	w.must(err)
	said := w.nextEvent(stream)
	if fields := said.GetPayload().GetFields(); said.GetEventType() != "plugin.p.installation-beta.said" || said.GetWorkspaceId() != "" ||
		len(fields) != 1 || fields["a"].GetStringValue() != "b" {
		t.Errorf("what was published is %v", said)
	}

	again := w.watchEvents(alpha, &pluginv1.WatchEventsRequest{Cursor: updated.GetCursor(), Patterns: []string{"plugin.p.installation-beta.*"}})
	if next := w.nextEvent(again); next.GetEventId() != said.GetEventId() {
		t.Errorf("resumed, %v comes", next)
	}
	all := w.watchEvents(alpha, &pluginv1.WatchEventsRequest{FromStart: true, Patterns: []string{"task.*"}})
	if before := w.nextEvent(all); before.GetPayload().GetFields()["state"].GetStringValue() != "TODO" { // the play's own
		t.Errorf("from the start, %v comes", before)
	}
	if next := w.nextEvent(all); next.GetEventId() != updated.GetEventId() {
		t.Errorf("then %v comes", next)
	}
}

// The end of a stream is a status with exactly one result.
func TestWatchEvents_Ends(t *testing.T) {
	for _, c := range []struct {
		name   string
		end    func(w *world, d *declarations)
		code   codes.Code
		reason contract.Reason
	}{
		{"suspended", func(_ *world, d *declarations) {
			d.change(func() {
				legacy := d.legacy[alpha]
				legacy.Gates = authority.GateSuspended
				d.legacy[alpha] = legacy
			})
		}, codes.PermissionDenied, contract.ReasonCapabilityRevoked},
		{"unknown", func(_ *world, d *declarations) {
			d.change(func() { d.legacy[alpha] = authority.Legacy{} })
		}, codes.Unavailable, contract.ReasonDependencyUnavailable},
		{"the pod is gone", func(_ *world, d *declarations) {
			d.change(func() { d.gone[alpha] = true })
		}, codes.Unauthenticated, ""},
		{"the server stops", func(w *world, _ *declarations) {
			go func() { _ = w.stop() }()
		}, codes.Unavailable, contract.ReasonDependencyUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, d := eventWorld(t)
			stream := w.watchEvents(alpha, &pluginv1.WatchEventsRequest{})
			w.nextEvent(stream)
			c.end(w, d)
			err := endOf(stream)
			if status.Code(err) != c.code {
				t.Fatalf("it ends with %v", err)
			}
			if c.reason == "" {
				if len(status.Convert(err).Details()) != 0 {
					t.Errorf("who proves nothing is told %v", err)
				}
				return
			}
			if result := detail(t, err); result.GetReason() != string(c.reason) || result.GetAuditId() == "" && c.name != "the server stops" {
				t.Errorf("the result is %v", result)
			}
		})
	}
}

func TestWatchEvents_Refused(t *testing.T) {
	w, _ := eventWorld(t)
	unknown := &pluginv1.WatchEventsRequest{}
	unknown.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 900, protowire.VarintType), 1))
	for _, c := range []struct {
		name    string
		as      context.Context
		request *pluginv1.WatchEventsRequest
		code    codes.Code
		field   string
	}{
		{"undeclared", w.as(alpha), &pluginv1.WatchEventsRequest{Patterns: []string{"message.*"}}, codes.InvalidArgument, "patterns[0]"},
		{"cursor", w.as(alpha), &pluginv1.WatchEventsRequest{Cursor: "x"}, codes.InvalidArgument, "cursor"},
		{"a field of tomorrow", w.as(alpha), unknown, codes.Unimplemented, "request"},
		{"nobody", t.Context(), &pluginv1.WatchEventsRequest{}, codes.Unauthenticated, ""},
		{"not installed", w.as("installation-gamma"), &pluginv1.WatchEventsRequest{}, codes.Unavailable, ""},
	} {
		c.request.RequestId = "r"
		stream, err := w.host.WatchEvents(c.as, c.request)
		w.must(err)
		_, err = stream.Recv()
		if status.Code(err) != c.code {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if c.code == codes.Unauthenticated {
			continue
		}
		if result := detail(t, err); result.GetField() != c.field || result.GetAuditId() == "" {
			t.Errorf("%s: %v", c.name, result)
		}
	}
	stream, err := w.host.WatchEvents(w.as(alpha), &pluginv1.WatchEventsRequest{})
	w.must(err)
	if _, err = stream.Recv(); status.Code(err) != codes.InvalidArgument || detail(t, err).GetReason() != string(contract.ReasonMissingExactField) {
		t.Errorf("without a request ID: %v", err)
	}
}

// A client that goes away ends its stream, and nobody is told that anything failed.
func TestWatchEvents_ClientLeaves(t *testing.T) {
	w, _ := eventWorld(t)
	ctx, cancel := context.WithCancel(w.as(alpha))
	stream, err := w.host.WatchEvents(ctx, &pluginv1.WatchEventsRequest{RequestId: "r"})
	w.must(err)
	w.nextEvent(stream)
	cancel()
	if err := endOf(stream); status.Code(err) != codes.Canceled && !errors.Is(err, io.EOF) {
		t.Errorf("it ends with %v", err)
	}
}

// EmitEvent takes any name, asks for no declaration, and has texts for what is beyond
// its bounds.
func TestEmitEvent(t *testing.T) {
	w, d := eventWorld(t)
	for _, name := range []string{"", "a.b.c", "with space", strings.Repeat("n", 1024)} {
		if _, err := w.host.EmitEvent(w.as(beta), &pluginv1.EmitEventRequest{EventName: name}); err != nil {
			t.Errorf("the name %q: %v", name, err)
		}
	}
	long, err := structpb.NewStruct(map[string]any{"a": strings.Repeat("x", command.MaxEmittedBytes)})
	w.must(err)
	for text, request := range map[string]*pluginv1.EmitEventRequest{
		"event name exceeds maximum size of 1024 bytes":     {EventName: strings.Repeat("n", 1025)},
		"event payload exceeds maximum size of 65536 bytes": {EventName: "n", Payload: long},
	} {
		_, err := w.host.EmitEvent(w.as(beta), request)
		if status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() != text {
			t.Errorf("%v in place of %s", err, text)
		}
	}
	for range command.EmitBurst + 1 { // the clock stands still
		_, err = w.host.EmitEvent(w.as(beta), &pluginv1.EmitEventRequest{EventName: "n"})
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one too many: %v", err)
	}
	d.change(func() {
		legacy := d.legacy[beta]
		legacy.Gates = authority.GateSuspended
		d.legacy[beta] = legacy
	})
	if _, err := w.host.EmitEvent(w.as(beta), &pluginv1.EmitEventRequest{EventName: "n"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("suspended: %v", err)
	}
	if _, err := w.host.EmitEvent(metadata.NewOutgoingContext(t.Context(), nil), &pluginv1.EmitEventRequest{EventName: "n"}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("nobody: %v", err)
	}
}
