package events_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/events"
)

// The first message comes at once, and after it exactly what is declared: as many
// events as were committed, each once, with what it is about.
func TestDelivery(t *testing.T) {
	onBoth(t, func(d database) {
		t := d.TB
		w := d.world(limits)
		w.seen.declare(alpha, "task.*", "plugin.p.*")
		w.commit("w", "task.created", "before", nil)
		s := w.watch(alpha, events.Watch{})
		first, err := w.next(s)
		w.must(err)
		if first.Event == nil || first.Event.Type != events.ContextChanged || first.Cursor == "" || first.Event.WorkspaceID != "" {
			t.Errorf("the stream begins with %+v", first)
		}
		if record := w.audit.last(); record.AuditID != s.AuditID() || record.Method != "WatchEvents" || record.Result != contract.StateApplied || record.RequestID != "r" {
			t.Errorf("recorded is %+v", record)
		}
		w.commit("w", "task.created", "t1", map[string]any{"title": "T", "workspace_id": "w"})
		w.commit("w", "message.added", "m1", nil)
		w.commit("w", "task.status_summary.updated", "t1", nil)
		w.must(w.store.Emit(t.Context(), command.Emitted{ID: "e1", InstallationID: beta, Source: "plugin:p", Type: "plugin.p.said", Event: `{"event_schema_version":1,"data":{"a":1}}`, At: w.clock.Now()}, allowed))
		w.commit("w", "task.updated", "t1", nil)

		created := w.event(s)
		schema, payload := created.Event.Content()
		if e := created.Event; e.Type != "task.created" || e.ID == "" || e.ID != e.AuditID || e.WorkspaceID != "w" || e.ResourceID != "t1" ||
			e.ResourceVersion != "1.7" || schema != 1 || payload.GetFields()["title"].GetStringValue() != "T" || created.Revision != 0 {
			t.Errorf("the event is %+v: %v", e, payload)
		}
		said := w.event(s)
		if _, payload := said.Event.Content(); said.Event.ID != "e1" || said.Event.WorkspaceID != "" || payload.GetFields()["a"].GetNumberValue() != 1 {
			t.Errorf("what a plugin published is %+v", said.Event)
		}
		if e := w.event(s).Event; e.Type != "task.updated" {
			t.Errorf("after it comes %s", e.Type)
		}
		w.silent(s)
	})
}

// A stream goes on where its cursor says, in another process too, with nothing left
// out and nothing twice.
func TestI15_ResumeAfterRestart(t *testing.T) { onBoth(t, resumeAfterRestart) }

func resumeAfterRestart(d database) {
	t := d.TB
	w := d.world(limits)
	w.seen.declare(alpha, "task.*")
	for i := range 3 {
		w.commit("w", "task.created", fmt.Sprint(i), nil)
	}
	s, err := w.open(alpha, events.Watch{FromStart: true})
	w.must(err)
	w.event(s)
	w.event(s)
	at := w.event(s)
	s.Close()
	w.must(w.store.Close())

	w = d.world(limits)
	w.seen.declare(alpha, "task.*")
	for i := 3; i < 600; i++ { // more than a page
		w.commit("w", "task.created", fmt.Sprint(i), nil)
	}
	s = w.watch(alpha, events.Watch{Cursor: at.Cursor})
	w.event(s) // the context
	for i := 2; i < 650; i++ {
		if i == 600 {
			for n := 600; n < 650; n++ {
				w.commit("w", "task.created", fmt.Sprint(n), nil)
			}
		}
		if e := w.event(s).Event; e.ResourceID != fmt.Sprint(i) {
			t.Fatalf("event %s comes in place of %d", e.ResourceID, i)
		}
	}
	w.silent(s)
}

// Writers of many workspaces and streams that come and go: each gets all that is
// committed, of each workspace in order, and none twice.
func TestI15_NothingIsLost(t *testing.T) {
	const workspaces, commands, watchers = 8, 40, 6
	onBoth(t, func(d database) {
		t := d.TB
		short := limits
		short.Ring = 16 // so that streams fall off and catch up from the store
		w := d.world(short)
		w.seen.declare(alpha, "task.*")
		start := w.watch(alpha, events.Watch{Patterns: []string{"task.*"}})
		first, err := w.next(start)
		w.must(err)
		var all sync.WaitGroup
		for i := range workspaces {
			all.Go(func() {
				for n := range commands {
					if err := w.tryCommit(fmt.Sprintf("w%d", i), "task.updated", fmt.Sprint(n), nil); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for i := range watchers {
			all.Go(func() {
				cursor, next, got := first.Cursor, map[string]int{}, 0
				for got < workspaces*commands {
					s, err := w.open(alpha, events.Watch{Cursor: cursor, Patterns: []string{"task.*"}})
					if err != nil {
						t.Error(err)
						return
					}
					for range 10 + 37*i { // and then it comes again
						d, err := w.next(s)
						if err != nil {
							t.Error(err)
							s.Close()
							return
						}
						cursor = d.Cursor
						if d.Event == nil {
							continue
						}
						if want := fmt.Sprint(next[d.Event.WorkspaceID]); d.Event.ResourceID != want {
							t.Errorf("of %s, %s comes in place of %s", d.Event.WorkspaceID, d.Event.ResourceID, want)
							s.Close()
							return
						}
						next[d.Event.WorkspaceID]++
						got++
						if got == workspaces*commands {
							break
						}
					}
					s.Close()
				}
			})
		}
		all.Wait()
	})
}

// Who does not read is dropped with a typed end once it can't keep up, and holds up
// nobody meanwhile.
func TestSlowStreamIsDropped(t *testing.T) {
	onBoth(t, func(d database) {
		t := d.TB
		short := limits
		short.Ring, short.Behind = 8, time.Minute
		w := d.world(short)
		w.seen.declare(alpha, "task.*")
		slow, fast := w.watch(alpha, events.Watch{}), w.watch(alpha, events.Watch{})
		w.event(slow)
		w.event(fast)
		w.commit("w", "task.created", "first", nil)
		at := w.event(slow)
		w.event(fast)
		for i := range 300 {
			w.commit("w", "task.created", fmt.Sprint(i), nil)
			if e := w.event(fast).Event; e.ResourceID != fmt.Sprint(i) {
				t.Fatalf("the fast one gets %s in place of %d", e.ResourceID, i)
			}
		}
		// What was on its way, or comes from the store while it is given time.
		if e := w.event(slow).Event; e.ResourceID != "0" {
			t.Fatalf("the slow one gets %s", e.ResourceID)
		}
		w.clock.advance(2 * time.Minute)
		refusal := w.end(slow)
		w.wantSlow(refusal, "the stream was not read in time")
		if refusal.RetryAfter == 0 {
			t.Error("the refusal does not say when to come back")
		}
		w.commit("w", "task.created", "last", nil)
		if e := w.event(fast).Event; e.ResourceID != "last" {
			t.Errorf("the fast one gets %s", e.ResourceID)
		}
		again := w.watch(alpha, events.Watch{Cursor: at.Cursor})
		w.event(again)
		for i := range 300 {
			if e := w.event(again).Event; e.ResourceID != fmt.Sprint(i) {
				t.Fatalf("back again, %s comes in place of %d", e.ResourceID, i)
			}
		}
	})
}

// A stream that waits ends as soon as what it rests on does, and sends nothing more.
func TestI6_RevocationEndsTheStream(t *testing.T) { onBoth(t, revocationEndsTheStream) }

func revocationEndsTheStream(d database) {
	t := d.TB
	w := d.world(limits)
	for _, c := range []struct {
		name    string
		watch   events.Watch
		take    func(*authority.Legacy)
		reason  contract.Reason
		commits bool
	}{
		{"suspended", events.Watch{}, func(l *authority.Legacy) { l.Gates |= authority.GateSuspended }, contract.ReasonCapabilityRevoked, false},
		{"suspended, with an event", events.Watch{}, func(l *authority.Legacy) { l.Gates |= authority.GateSuspended }, contract.ReasonCapabilityRevoked, true},
		{"uninstalled", events.Watch{}, func(l *authority.Legacy) { l.Installed = false }, contract.ReasonCapabilityRevoked, true},
		{"too new", events.Watch{}, func(l *authority.Legacy) { l.Gates |= authority.GateHostVersionUnsupported }, contract.ReasonHostVersionUnsupported, true},
		{"unseen", events.Watch{}, func(l *authority.Legacy) { l.FreshUntil = time.Time{} }, contract.ReasonDependencyUnavailable, true},
		{
			"no longer declared", events.Watch{Patterns: []string{"task.*", "message.added"}},
			func(l *authority.Legacy) { l.Events = []string{"message.added"} }, contract.ReasonCapabilityRevoked, true,
		},
	} {
		w.seen.declare(alpha, "task.*", "message.added")
		s := w.watch(alpha, c.watch) // there are few enough
		_, err := w.next(s)
		w.must(err)
		w.seen.set(alpha, c.take)
		if c.commits {
			w.commit("w", "task.created", "t", nil)
		}
		t.Log(c.name)
		w.wantReason(w.asRefusal(w.endsSilently(s)), c.reason, "")
	}
}

func TestI6_ALostIdentityEndsTheStream(t *testing.T) { onBoth(t, lostIdentityEndsTheStream) }

func lostIdentityEndsTheStream(d database) {
	expired := errors.New("the pod is gone")
	t := d.TB
	w := d.world(limits)
	w.seen.declare(alpha, "task.*")
	var mu sync.Mutex
	var gone error
	s := w.watch(alpha, events.Watch{Proven: func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		return gone
	}})
	w.event(s)
	mu.Lock()
	gone = expired
	mu.Unlock()
	w.commit("w", "task.created", "t", nil)
	if err := w.endsSilently(s); !errors.Is(err, expired) {
		t.Errorf("the stream ends with %v", err)
	}
	if _, err := w.open(alpha, events.Watch{Proven: func(context.Context) error { return expired }}); !errors.Is(err, expired) {
		t.Errorf("one more begins with %v", err)
	}
}

// A declaration that is changed changes what a stream of all that is declared is sent.
func TestDeclarationChanges(t *testing.T) { onBoth(t, declarationChanges) }

func declarationChanges(d database) {
	t := d.TB
	w := d.world(limits)
	w.seen.declare(alpha, "task.created")
	s := w.watch(alpha, events.Watch{})
	w.event(s)
	w.seen.declare(alpha, "message.added")
	w.silent(s)
	w.commit("w", "task.created", "t", nil)
	w.commit("w", "message.added", "m", nil)
	if e := w.event(s).Event; e.Type != "message.added" {
		t.Errorf("%s is sent", e.Type)
	}
}

func TestI2_UndeclaredIsRefused(t *testing.T) {
	onBoth(t, func(d database) {
		w := d.world(limits)
		w.seen.declare(alpha, "task.*")
		for _, c := range []struct {
			watch events.Watch
			field string
		}{
			{events.Watch{Patterns: []string{"message.added"}}, "patterns[0]"},
			{events.Watch{Patterns: []string{"task.*", "*.*"}}, "patterns[1]"},
			{events.Watch{Patterns: []string{"task.>"}}, "patterns[0]"},
			{events.Watch{Patterns: []string{""}}, "patterns[0]"},
			{events.Watch{Patterns: slices.Repeat([]string{"task.*"}, contract.MaxEventPatterns+1)}, "patterns"},
			{events.Watch{FromStart: true, Cursor: "x"}, "from_start"},
			{events.Watch{Cursor: "x"}, "cursor"},
			{events.Watch{Cursor: strings.Repeat("x", contract.MaxCursorBytes+1)}, "cursor"},
			{events.Watch{RequestID: " r"}, "request_id"},
		} {
			w.wantReason(w.refused(alpha, c.watch), contract.ReasonMalformedPrecondition, c.field)
		}
		// What isn't installed gets nothing, whatever it asks for.
		w.wantReason(w.refused(beta, events.Watch{}), contract.ReasonDependencyUnavailable, "")
		w.seen.set(beta, func(l *authority.Legacy) { l.FreshUntil = time.Now().Add(time.Hour) })
		w.wantReason(w.refused(beta, events.Watch{}), contract.ReasonCapabilityRevoked, "")
		w.seen.declare(beta)
		// What declares no event is told of its own authority and of nothing else.
		s := w.watch(beta, events.Watch{})
		w.event(s)
		w.commit("w", "task.created", "t", nil)
		w.silent(s)
	})
}

func TestCursorIsBound(t *testing.T) {
	onBoth(t, func(d database) {
		t := d.TB
		w := d.world(limits)
		w.seen.declare(alpha, "task.*")
		w.seen.declare(beta, "task.*")
		w.commit("w", "task.created", "t", nil)
		s := w.watch(alpha, events.Watch{})
		cursor := w.event(s).Cursor
		w.wantReason(w.refused(beta, events.Watch{Cursor: cursor}), contract.ReasonMalformedPrecondition, "cursor")
		altered := cursor[:10] + string(cursor[10]^1) + cursor[11:]
		w.wantReason(w.refused(alpha, events.Watch{Cursor: altered}), contract.ReasonMalformedPrecondition, "cursor")
		w.clock.advance(events.Kept - time.Minute)
		s.Close()
		resumed, err := w.open(alpha, events.Watch{Cursor: cursor})
		w.must(err)
		resumed.Close()
		w.clock.advance(2 * time.Minute)
		w.wantReason(w.refused(alpha, events.Watch{Cursor: cursor}), contract.ReasonStaleResourceVersion, "cursor")

		// A heartbeat's cursor is as young as the heartbeat.
		s = w.watch(alpha, events.Watch{})
		w.event(s)
		cursor = w.silent(s)
		w.watch(alpha, events.Watch{Cursor: cursor}).Close()

		// Another epoch ends what is open, and no cursor of before is good in it.
		w.must(w.store.BeginEpoch(t.Context()))
		w.wantReason(w.end(s), contract.ReasonStaleResourceVersion, "cursor")
		w.wantReason(w.refused(alpha, events.Watch{Cursor: cursor}), contract.ReasonStaleResourceVersion, "cursor")
		fresh := w.watch(alpha, events.Watch{})
		w.event(fresh)
		w.commit("w", "task.created", "new", nil)
		if e := w.event(fresh).Event; e.ResourceID != "new" {
			t.Errorf("in the new epoch, %s comes", e.ResourceID)
		}
	})
	// Nor one of another store under the same key.
	path := func() *world {
		w := onSQLite(t).world(limits)
		w.seen.declare(alpha, "task.*")
		return w
	}
	one, other := path(), path()
	cursor := one.event(one.watch(alpha, events.Watch{})).Cursor
	other.wantReason(other.refused(alpha, events.Watch{Cursor: cursor}), contract.ReasonStaleResourceVersion, "cursor")
}

// No private key, and nothing that is hidden, is in any event, wherever it was
// written (I14).
func TestI14_NothingPrivateIsDelivered(t *testing.T) { onBoth(t, nothingPrivateIsDelivered) }

func nothingPrivateIsDelivered(d database) {
	t := d.TB
	w := d.world(limits)
	w.seen.declare(alpha, "message.*", "plugin.*.*")
	s := w.watch(alpha, events.Watch{})
	w.event(s)
	secret := "the-hidden-text"
	hidden := "seen <kandev-system>" + secret + "</kandev-system> also"
	payload := map[string]any{
		"message_id": "m", "content": hidden, "raw_content": secret, "prompt_dispatch_pending": secret,
		"metadata": map[string]any{
			"has_hidden_prompts": true, "prompt_dispatch_attempted": secret, "kept": "yes",
			"list": []any{map[string]any{"raw_content": secret, "text": "<KANDEV-system>" + secret}},
		},
	}
	w.commit("w", "message.added", "m", payload)
	w.commit("w", "message.updated", "m", domain.NewMessagePayload(&domain.Message{
		ID: "m", Content: secret + "</kandev-system>after", MarkupBefore: mustMarkup("<kandev-system>"),
		Metadata: domain.Object{"raw_content": secret, "a": hidden},
	}))
	emitter := &command.Emitter{Store: w.store, Now: w.clock.Now, NewID: uuid.NewString}
	w.must(emitter.Emit(t.Context(), beta, "q", "said", payload, allowed))
	for range 3 {
		e := w.event(s).Event
		_, payload := e.Content()
		text := payload.String()
		if strings.Contains(text, secret) || strings.Contains(text, "prompt_dispatch") || strings.Contains(text, "has_hidden") ||
			strings.Contains(text, "raw_content") || strings.Contains(strings.ToLower(text), "kandev-system") {
			t.Errorf("%s says %s", e.Type, text)
		}
		if fields := payload.GetFields(); e.Type == "message.added" &&
			(fields["content"].GetStringValue() != "seen also" || fields["metadata"].GetStructValue().GetFields()["kept"].GetStringValue() != "yes") {
			t.Errorf("%s says %s", e.Type, text)
		}
	}
}

func mustMarkup(text string) domain.MarkupState {
	_, state := domain.MarkupState("").Strip(text)
	return state
}

// What only the exact contract knows goes where the workspace approves it, decided
// when it is sent.
func TestI6_ExactEventsNeedAnApproval(t *testing.T) { onBoth(t, exactEventsNeedAnApproval) }

func exactEventsNeedAnApproval(d database) {
	t := d.TB
	w := d.world(limits)
	w.seen.declare(alpha, "task_relation.*", "task.created")
	w.fence(alpha, "granted", authority.StateActive)
	w.fence(alpha, "revoked", authority.StateActive)
	w.fence(alpha, "revoked", authority.StateRevoked)
	s := w.watch(alpha, events.Watch{Patterns: []string{"task_relation.*", "task.created"}})
	_, err := w.next(s)
	w.must(err)
	for _, workspace := range []string{"unknown", "revoked", "granted"} {
		w.commit(workspace, "task_relation.created", "r", nil)
		w.commit(workspace, "task.created", "t", nil)
	}
	var got []string
	for range 4 {
		d := w.event(s)
		got = append(got, fmt.Sprintf("%s %s %d", d.Event.WorkspaceID, d.Event.Type, d.Revision))
	}
	if want := []string{"unknown task.created 0", "revoked task.created 0", "granted task_relation.created 1", "granted task.created 0"}; !slices.Equal(got, want) {
		t.Errorf("sent are %q", got)
	}
	w.fence(alpha, "granted", authority.StateRevoked)
	w.commit("granted", "task_relation.created", "r", nil)
	w.silent(s)
	// Where the store vouches for nothing, nothing is decided.
	w.fence(alpha, "granted", authority.StateActive)
	w.clock.advance(2 * 365 * 24 * time.Hour)
	w.seen.set(alpha, func(l *authority.Legacy) { l.FreshUntil = w.clock.Now().Add(time.Hour) })
	if d.sole { // there the lease is by this clock
		w.commit("granted", "task_relation.created", "r", nil)
		w.wantReason(w.end(s), contract.ReasonDependencyUnavailable, "")
	}
}

// An installation is told whenever its own authority changes, and nobody else.
func TestContextChanged(t *testing.T) {
	onBoth(t, func(d database) {
		t := d.TB
		w := d.world(limits)
		w.seen.declare(alpha, "task.*")
		w.seen.declare(beta, "*", "*.*")
		s := w.watch(alpha, events.Watch{})
		other := w.watch(beta, events.Watch{})
		narrowed := w.watch(alpha, events.Watch{Patterns: []string{"task.*"}})
		named := w.watch(alpha, events.Watch{Patterns: []string{events.ContextChanged}})
		for _, s := range []*events.Stream{s, other, named} {
			if e := w.event(s).Event; e.Type != events.ContextChanged {
				t.Errorf("a stream begins with %s", e.Type)
			}
		}
		if d, err := w.next(narrowed); err != nil || d.Event != nil {
			t.Errorf("a narrowed stream begins with %+v, %v", d, err)
		}
		for _, state := range []authority.State{authority.StateActive, authority.StateRevoked} {
			w.fence(alpha, "w", state)
			for _, s := range []*events.Stream{s, named} {
				e := w.event(s).Event
				_, payload := e.Content()
				if e.Type != events.ContextChanged || e.WorkspaceID != "" || payload != nil || e.AuditID == "" {
					t.Errorf("told is %+v, %v", e, payload)
				}
			}
		}
		w.silent(other)
		w.silent(narrowed)
	})
}

// A change of a task's state is an update too; one stream can be resumed between the
// two and misses neither.
func TestStateChangeIsBoth(t *testing.T) { onBoth(t, stateChangeIsBoth) }

func stateChangeIsBoth(d database) {
	t := d.TB
	w := d.world(limits)
	w.seen.declare(alpha, "task.*")
	s := w.watch(alpha, events.Watch{})
	w.event(s)
	before := domain.Task{ID: "t", WorkspaceID: "w", State: domain.TaskTodo}
	after := before
	after.State = domain.TaskInProgress
	w.commit("w", "task.updated", "t", domain.ChangedTaskPayload(&before, &after))
	w.commit("w", "task.updated", "t", domain.ChangedTaskPayload(&after, &after))
	updated, changed, other := w.event(s), w.event(s), w.event(s)
	_, payload := changed.Event.Content()
	fields := payload.GetFields()
	if updated.Event.Type != "task.updated" || changed.Event.Type != "task.state_changed" || other.Event.Type != "task.updated" ||
		fields["old_state"].GetStringValue() != "TODO" || fields["new_state"].GetStringValue() != "IN_PROGRESS" ||
		fields["task_id"].GetStringValue() != "t" || fields["workspace_id"].GetStringValue() != "w" || updated.Event.ID == changed.Event.ID {
		t.Errorf("sent are %s, %s and %s: %v", updated.Event.Type, changed.Event.Type, other.Event.Type, payload)
	}
	for _, c := range []struct {
		cursor string
		want   []string
	}{
		{updated.Cursor, []string{"task.updated", "task.state_changed", "task.updated"}},
		{changed.Cursor, []string{"task.updated"}},
	} {
		again := w.watch(alpha, events.Watch{Cursor: c.cursor})
		w.event(again)
		for _, want := range c.want {
			if e := w.event(again).Event; e.Type != want {
				t.Errorf("resumed, %s comes in place of %s", e.Type, want)
			}
		}
		w.silent(again)
	}
}

func TestStreamsAreBounded(t *testing.T) {
	onBoth(t, func(d database) {
		few := limits
		few.Streams, few.AllStreams = 2, 3
		w := d.world(few)
		w.seen.declare(alpha, "task.*")
		w.seen.declare(beta, "task.*")
		one, err := w.open(alpha, events.Watch{})
		w.must(err)
		w.watch(alpha, events.Watch{})
		w.wantReason(w.refused(alpha, events.Watch{}), contract.ReasonProviderRateLimited, "")
		w.watch(beta, events.Watch{})
		w.wantReason(w.refused(beta, events.Watch{}), contract.ReasonProviderRateLimited, "")
		one.Close()
		w.watch(beta, events.Watch{})
		// A refusal leaves no stream behind.
		w.wantReason(w.refused(alpha, events.Watch{}), contract.ReasonProviderRateLimited, "")
	})
}

// The adapter outlives a panic: what it opened then takes no place for ever.
func TestAPanicLeavesNoStreamBehind(t *testing.T) {
	few := limits
	few.Streams = 1
	w := onSQLite(t).world(few)
	w.seen.declare(alpha, "task.*")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("nothing panics")
			}
		}()
		_, _ = w.open(alpha, events.Watch{Proven: func(context.Context) error { panic("a mistake") }})
	}()
	w.watch(alpha, events.Watch{})
}

// Nobody is told what could not be recorded.
func TestI4_NoStreamWithoutARecord(t *testing.T) {
	w := onSQLite(t).world(limits)
	w.seen.declare(alpha, "task.*")
	w.audit.failure = errors.New("the disk is full")
	if s, err := w.open(alpha, events.Watch{}); err == nil {
		s.Close()
		t.Error("a stream is open without a record")
	}
	w.audit.failure = nil
	w.watch(alpha, events.Watch{})
}

// A stream ends with its caller, and with nothing to say to it.
func TestCancelled(t *testing.T) {
	w := onSQLite(t).world(limits)
	w.seen.declare(alpha, "task.*")
	s := w.watch(alpha, events.Watch{})
	w.event(s)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the server stops")
	cancel(why)
	if _, err := s.Next(ctx); !errors.Is(err, why) {
		t.Errorf("it ends with %v", err)
	}
}

func TestEmit(t *testing.T) {
	w := onSQLite(t).world(limits)
	w.seen.declare(alpha, "plugin.*.*")
	at := w.clock.Now()
	emitter := &command.Emitter{Store: w.store, Now: func() time.Time { return at }, NewID: uuid.NewString}
	s := w.watch(alpha, events.Watch{})
	w.event(s)
	w.must(emitter.Emit(t.Context(), beta, "p", "said", nil, allowed))
	e := w.event(s).Event
	if _, payload := e.Content(); e.Type != "plugin.p.said" || payload != nil || e.InstallationID != beta {
		t.Errorf("an event without data is %+v, %v", e, payload)
	}
	var refused *command.EmitError
	for _, name := range []string{strings.Repeat("n", command.MaxEmittedNameBytes), "", "a.b", "with \x00", "ü*>"} {
		if err := emitter.Emit(t.Context(), beta, "p", name, map[string]any{}, allowed); err != nil {
			t.Errorf("the name %q: %v", name, err)
		}
	}
	if err := emitter.Emit(t.Context(), beta, "p", strings.Repeat("n", command.MaxEmittedNameBytes+1), nil, allowed); !errors.As(err, &refused) || refused.TooMany {
		t.Errorf("a name that is too long: %v", err)
	}
	if err := emitter.Emit(t.Context(), beta, "p", "n", map[string]any{"a": strings.Repeat("x", command.MaxEmittedBytes)}, allowed); !errors.As(err, &refused) || refused.TooMany {
		t.Errorf("a payload that is too long: %v", err)
	}
	at = at.Add(time.Minute)
	taken := 0
	for range command.EmitBurst + 20 {
		err := emitter.Emit(t.Context(), beta, "p", "n", nil, allowed)
		if err == nil {
			taken++
		} else if !errors.As(err, &refused) || !refused.TooMany {
			t.Fatal(err)
		}
	}
	if taken != command.EmitBurst {
		t.Errorf("of a burst, %d were taken", taken)
	}
	if err := emitter.Emit(t.Context(), alpha, "q", "n", nil, allowed); err != nil {
		t.Errorf("another plugin: %v", err)
	}
}

// A plugin that publishes all that it may, as large as it may, ends nobody's stream:
// neither of those who watch it nor of all others.
func TestAFloodOfEvents_EndsNobodysStream(t *testing.T) {
	onBoth(t, func(d database) {
		const streams, writers, each = 24, 20, command.EmitBurst / 20
		d.timeout = time.Minute
		w := d.world(events.Limits{Behind: 1}) // it fits into the ring, which nobody is behind
		lists := strings.TrimSuffix(strings.Repeat("[],", 4000), ",")
		event := `{"event_schema_version":1,"data":{"l":[` + lists + `],"text":"` + strings.Repeat("x", 52_000) + `"}}`
		if len(event) > command.MaxEmittedBytes {
			w.Fatalf("an event has %d bytes", len(event))
		}
		var all sync.WaitGroup
		for i := range streams {
			installation, floods := fmt.Sprint("installation-", i), 0
			w.seen.declare(installation, "task.*")
			if i == 0 {
				w.seen.declare(installation, "task.*", "plugin.p.*")
			}
			s := w.watch(installation, events.Watch{})
			w.event(s)
			all.Go(func() {
				for {
					d, err := w.next(s)
					switch {
					case err != nil:
						w.Errorf("a stream ends with %v", err)
						return
					case d.Event == nil:
					case d.Event.Type == "plugin.p.flood":
						if _, payload := d.Event.Content(); len(payload.GetFields()["l"].GetListValue().GetValues()) != 4000 {
							w.Error("an event has another payload")
						}
						floods++
					default:
						if want := writers * each; i == 0 && floods != want {
							w.Errorf("%d events of the flood come, want %d", floods, want)
						}
						return
					}
				}
			})
		}
		var emitting sync.WaitGroup
		for range writers {
			emitting.Go(func() {
				for range each {
					if err := w.store.Emit(w.Context(), command.Emitted{
						ID: uuid.NewString(), InstallationID: beta, Source: "plugin:p", Type: "plugin.p.flood", Event: event, At: w.clock.Now(),
					}, allowed); err != nil {
						w.Error(err)
					}
				}
			})
		}
		emitting.Wait()
		w.commit("w", "task.created", "last", nil)
		all.Wait()
	})
}
