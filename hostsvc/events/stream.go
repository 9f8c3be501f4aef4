package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/query"
)

// Watch is a request for a stream.
type Watch struct {
	RequestID string
	// Cursor is where to go on, "" for now.
	Cursor string
	// FromStart asks for all that is kept.
	FromStart bool
	// Patterns narrow the stream, none is all that the manifest declares.
	Patterns []string
	// Fault is what the adapter found wrong while translating.
	Fault *admission.Refusal
	// Proven returns nil while the caller still is who it was: it is asked as often
	// as authority is, and its error ends the stream as it is.
	Proven func(context.Context) error
}

// Delivery is one message of a stream.
type Delivery struct {
	// Event is nil for a heartbeat.
	Event *Event
	// Cursor resumes the stream behind this message.
	Cursor string
	// Revision is the capability revision in force in the event's workspace, 0 where
	// the declaration alone allowed it (I12).
	Revision uint64
}

// Stream is one open stream. It is used by one goroutine, which calls Next and Sent
// in turn.
type Stream struct {
	hub            *Hub
	feed           *feed
	installationID string
	watch          Watch
	receipt        journal.Receipt

	mark mark
	// pending are events behind mark that were not looked at yet; end is where mark
	// is when they have been.
	pending []*Event
	end     mark
	// page is how many events are read from the store next.
	page int
	// declared are the patterns that were checked last.
	declared []string
	// started: the first message has been sent.
	started bool
	// joined: the stream has caught up once; behind is since when it is not caught up
	// any more.
	joined bool
	behind time.Time
	// sending is the event that Next returned last, nil for a heartbeat.
	sending *Event
	// beat goes off when the stream has been silent for long, tick when it is due to
	// be checked.
	beat *time.Timer
	tick *time.Ticker
	due  bool
}

// Open checks a request for a stream, records it and opens the stream, which must be
// closed. A refusal is in the audit before it is returned; the other error is
// Proven's.
func (h *Hub) Open(ctx context.Context, installationID string, watch Watch) (*Stream, error) {
	s := &Stream{
		hub: h, installationID: installationID, watch: watch, beat: time.NewTimer(h.limits.Heartbeat),
		tick: time.NewTicker(h.limits.Check), page: firstPage,
	}
	s.receipt = journal.Receipt{
		AuditID: h.config.NewAuditID(), InstallationID: installationID, Method: Method, RequestID: watch.RequestID,
		RequestDigest: watch.digest(), Result: contract.StateApplied, At: h.config.Now(),
	}
	if !h.enter(installationID) {
		s.beat.Stop()
		s.tick.Stop()
		return nil, s.record(ctx, tooMany())
	}
	opened := false
	defer func() {
		if !opened { // whatever went wrong, its place is free
			s.Close()
		}
	}()
	if err := s.open(ctx); err != nil {
		return nil, s.record(ctx, err)
	}
	if h.config.Receipts.Append(ctx, s.receipt) != nil {
		return nil, admission.Unavailable()
	}
	opened = true
	return s, nil
}

func (w Watch) digest() string {
	digest, err := contract.CanonicalDigest(struct {
		Cursor    string   `json:"cursor"`
		FromStart bool     `json:"from_start"`
		Patterns  []string `json:"patterns"`
	}{w.Cursor, w.FromStart, w.Patterns})
	if err != nil {
		return ""
	}
	return digest.String()
}

// Close ends the stream.
func (s *Stream) Close() {
	s.beat.Stop()
	s.tick.Stop()
	s.hub.leave(s.installationID)
}

// AuditID identifies the record of the request.
func (s *Stream) AuditID() string { return s.receipt.AuditID }

// record makes a refusal durable before anyone learns of it.
func (s *Stream) record(ctx context.Context, err error) error {
	var refusal *admission.Refusal
	if !errors.As(err, &refusal) {
		return err
	}
	record := s.receipt
	record.AuditID, record.At = s.hub.config.NewAuditID(), s.hub.config.Now()
	env := admission.Envelope{RequestID: s.watch.RequestID}
	return admission.RecordRefusal(context.WithoutCancel(ctx), s.hub.config.Receipts, record, env, refusal)
}

// tooMany says that a caller has its share of streams: the budget is used up, and
// coming back at once helps nobody.
func tooMany() *admission.Refusal {
	refusal := admission.Refuse(contract.ReasonProviderRateLimited, "too many streams are open; close one first")
	refusal.RetryAfter = time.Second
	return refusal
}

// tooSlow ends a stream that was not read in time. The same, with the last cursor, is
// to be tried again, as after any other end that loses nothing; that is what tells it
// from one stream too many.
func (s *Stream) tooSlow(why string) *admission.Refusal {
	s.hub.config.Observer.Dropped()
	refusal := admission.Refuse(contract.ReasonDependencyUnavailable, why+"; come back with its last cursor")
	refusal.RetryAfter = time.Second
	return refusal
}

func (s *Stream) open(ctx context.Context) error {
	if refusal := s.checkShape(); refusal != nil {
		return refusal
	}
	if err := s.check(ctx); err != nil {
		return err
	}
	now := s.hub.config.Now()
	page, err := s.hub.config.Store.Events(ctx, Position{}, 1)
	if err != nil {
		return s.unavailable(ctx, err)
	}
	s.feed = s.hub.join(page) //nolint:contextcheck // the feed is everybody's
	s.mark = mark{page.Origin, page.Settled, now}
	switch {
	case s.watch.Cursor != "":
		resumed, refusal := s.hub.resume(s.installationID, s.watch.Cursor, now, page)
		if refusal != nil {
			return refusal
		}
		s.mark = resumed
	case s.watch.FromStart:
		if s.mark.position, err = s.hub.config.Store.EventsSince(ctx, now.Add(-Kept)); err != nil {
			return s.unavailable(ctx, err)
		}
	}
	s.end = s.mark
	return nil
}

func (s *Stream) checkShape() *admission.Refusal {
	if fault := contract.CheckIdentifier("request_id", s.watch.RequestID); fault != nil {
		return admission.RefuseField(fault)
	}
	if s.watch.FromStart && s.watch.Cursor != "" {
		return malformed("from_start", "can't be asked for with a cursor")
	}
	if len(s.watch.Patterns) > contract.MaxEventPatterns {
		return malformed("patterns", fmt.Sprintf("has more than %d", contract.MaxEventPatterns))
	}
	for i, pattern := range s.watch.Patterns {
		if fault := contract.CheckEventPattern(fmt.Sprintf("patterns[%d]", i), pattern); fault != nil {
			return admission.RefuseField(fault)
		}
	}
	return s.watch.Fault
}

// check decides whether the stream may go on: the caller, the installation and the
// declaration of each pattern that was asked for.
func (s *Stream) check(ctx context.Context) error {
	if err := s.watch.Proven(ctx); err != nil {
		return err
	}
	s.due = false
	legacy := s.hub.config.Legacy.Legacy(s.installationID)
	if refusal := Standing(legacy, s.hub.config.Now()); refusal != nil {
		return refusal
	}
	if s.started && slices.Equal(s.declared, legacy.Events) {
		return nil
	}
	for i, pattern := range s.watch.Patterns {
		switch {
		case pattern == ContextChanged, slices.Contains(legacy.Events, pattern):
		case s.started:
			return admission.Refuse(contract.ReasonCapabilityRevoked, fmt.Sprintf("the manifest no longer declares the events %s", pattern))
		default:
			return malformed(fmt.Sprintf("patterns[%d]", i), "is not declared by the manifest")
		}
	}
	s.declared = legacy.Events
	return nil
}

// Standing decides by what is seen of an installation as a whole: whether it may
// watch events at all. nil is that it may.
func Standing(legacy authority.Legacy, now time.Time) *admission.Refusal {
	refused := admission.AuthoriseLegacy(legacy, nil, now)
	switch {
	case refused == nil:
		return nil
	case refused.Unavailable:
		refusal := admission.Unavailable()
		refusal.Message = refused.Message
		return refusal
	case legacy.Gates == authority.GateHostVersionUnsupported:
		return admission.Refuse(contract.ReasonHostVersionUnsupported, refused.Message)
	default:
		return admission.Refuse(contract.ReasonCapabilityRevoked, refused.Message)
	}
}

// wanted tells whether an event is one that the stream asked for and the manifest
// declares. The installation's own news need no declaration.
func (s *Stream) wanted(e *Event) bool {
	switch e.class {
	case classUnknown:
		return false
	case classOwn:
		return e.InstallationID == s.installationID && s.wantsOwn()
	case classLegacy, classExact:
	}
	if len(s.watch.Patterns) > 0 {
		return s.hub.wants(s.watch.Patterns, e)
	}
	return s.hub.wants(s.declared, e)
}

func (s *Stream) wantsOwn() bool {
	return len(s.watch.Patterns) == 0 || matchesAny(s.watch.Patterns, ContextChanged)
}

// allowed decides about one event in one workspace (I6).
func (s *Stream) allowed(ctx context.Context, e *Event) (allowed bool, revision uint64, err error) {
	if e.class != classExact {
		return true, 0, nil
	}
	key := authority.Key{InstallationID: s.installationID, WorkspaceID: e.WorkspaceID}
	err = s.hub.config.Rows.Read(ctx, func(snapshot query.Snapshot) error {
		row, err := snapshot.AuthorityRow(key)
		if err != nil {
			return fmt.Errorf("read authority: %w", err)
		}
		refusal := admission.Authorise(row, snapshot.Current(), s.hub.config.View, key, authority.Call{Capability: e.capability}, s.hub.config.Now())
		switch {
		case refusal == nil:
			allowed, revision = true, row.Revision
		case refusal.State == contract.StateUnavailable:
			// What isn't certain is neither sent nor left out.
			return refusal
		}
		return nil
	})
	if err != nil {
		return false, 0, admission.AsRefusal(err)
	}
	return allowed, revision, nil
}

// Next waits for the next message. Its error ends the stream: an *admission.Refusal,
// which is in the audit, what Proven returned, or that of ctx.
func (s *Stream) Next(ctx context.Context) (Delivery, error) {
	d, err := s.next(ctx)
	if err != nil {
		return Delivery{}, s.ended(ctx, err)
	}
	s.sending = d.Event
	return d, nil
}

// ended is what a stream is told that ends with err.
func (s *Stream) ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("watch events: %w", context.Cause(ctx))
	}
	return s.record(ctx, err)
}

// Sent waits until the transport has taken the message that Next returned, which is
// when sent says nil. A reader that does not read holds a message up: it is given
// Limits.Behind, and meanwhile the stream, and the message, stay under the same
// checks as a stream that waits for an event. Its error ends the stream as Next's
// does, or is what sent says. What is then still being sent must end with the stream.
func (s *Stream) Sent(ctx context.Context, sent <-chan error) error {
	begun := s.hub.config.Now()
	for {
		select {
		case err := <-sent:
			return s.taken(err)
		case <-s.tick.C:
			select {
			case err := <-sent: // both had happened
				return s.taken(err)
			default:
			}
			if err := s.heldUp(ctx, begun); err != nil {
				return s.ended(ctx, err)
			}
		case <-ctx.Done():
			return fmt.Errorf("send an event: %w", context.Cause(ctx))
		}
	}
}

func (s *Stream) taken(err error) error {
	if err != nil {
		return fmt.Errorf("send an event: %w", err)
	}
	if e := s.sending; e != nil && e.class != classOwn {
		s.hub.config.Observer.Delivered(s.hub.config.Now().Sub(e.At))
	}
	return nil
}

// heldUp checks a stream whose reader has not taken a message since begun.
func (s *Stream) heldUp(ctx context.Context, begun time.Time) error {
	if s.hub.config.Now().Sub(begun) > s.hub.limits.Behind {
		return s.tooSlow("a message was not read in time")
	}
	if err := s.check(ctx); err != nil {
		return err
	}
	switch err := s.feed.holds(s.mark.position); {
	case errors.Is(err, errOtherOrder):
		return stale("the store was restored")
	case err == nil:
		s.behind = time.Time{}
	default:
		if err := s.late(); err != nil {
			return err
		}
	}
	e := s.sending
	if e == nil {
		return nil
	}
	allowed := s.wanted(e)
	if allowed {
		var err error
		if allowed, _, err = s.allowed(ctx, e); err != nil {
			return err
		}
	}
	if !allowed {
		// Only the end of the stream takes it back.
		return s.tooSlow("a message that was not read may no longer be sent")
	}
	return nil
}

// late ends a stream that had caught up and has been behind the ring for too long
// since.
func (s *Stream) late() error {
	if !s.joined {
		return nil
	}
	now := s.hub.config.Now()
	if s.behind.IsZero() {
		s.behind = now
	}
	if now.Sub(s.behind) > s.hub.limits.Behind {
		return s.tooSlow("the stream was not read in time")
	}
	return nil
}

func (s *Stream) next(ctx context.Context) (Delivery, error) {
	if !s.started {
		return s.first()
	}
	for {
		d, err := s.nextPending(ctx)
		if d.Cursor != "" || err != nil {
			return d, err
		}
		changed, err := s.more(ctx)
		if err != nil {
			return Delivery{}, err
		}
		if changed != nil {
			// There is nothing more to look at now.
			select {
			case <-changed:
			case <-s.tick.C:
				s.due = true
			case <-s.beat.C:
				return s.heartbeat(ctx)
			case <-ctx.Done():
				return Delivery{}, fmt.Errorf("wait for an event: %w", context.Cause(ctx))
			}
		}
		// Others' events may keep it from ever coming to wait.
		select {
		case <-s.beat.C:
			return s.heartbeat(ctx)
		case <-s.tick.C:
			s.due = true
		default:
		}
		if s.due {
			if err := s.check(ctx); err != nil {
				return Delivery{}, err
			}
		}
	}
}

// first is sent at once: whoever watches reads back what it may do, and has a cursor
// to come back with.
func (s *Stream) first() (Delivery, error) {
	s.started = true
	if !s.wantsOwn() {
		return s.deliver(nil, 0)
	}
	return s.deliver(newEvent(Record{
		ID: ContextChanged + "/" + s.receipt.AuditID, Type: ContextChanged, InstallationID: s.installationID, At: s.receipt.At,
	}), 0)
}

// heartbeat tells where the stream is.
func (s *Stream) heartbeat(ctx context.Context) (Delivery, error) {
	if err := s.check(ctx); err != nil {
		return Delivery{}, err
	}
	return s.deliver(nil, 0)
}

// nextPending delivers the next pending event that is for the stream. Without one
// the Delivery is empty.
func (s *Stream) nextPending(ctx context.Context) (Delivery, error) {
	for len(s.pending) > 0 {
		e := s.pending[0]
		s.pending[0] = nil
		s.pending = s.pending[1:]
		if !s.wanted(e) {
			continue
		}
		if err := s.check(ctx); err != nil {
			return Delivery{}, err
		}
		if !s.wanted(e) { // the declaration may have changed since
			continue
		}
		allowed, revision, err := s.allowed(ctx, e)
		if err != nil {
			return Delivery{}, err
		}
		if !allowed {
			continue
		}
		if !e.more {
			s.mark.position, s.mark.at = e.Position, later(s.mark.at, e.At)
		}
		return s.deliver(e, revision)
	}
	s.mark = s.end
	return Delivery{}, nil
}

func (s *Stream) deliver(e *Event, revision uint64) (Delivery, error) {
	cursor, err := s.hub.seal(s.installationID, s.mark)
	if err != nil {
		return Delivery{}, admission.Unavailable()
	}
	s.beat.Reset(s.hub.limits.Heartbeat)
	return Delivery{Event: e, Cursor: cursor, Revision: revision}, nil
}

// more looks for events behind mark. Where there are none, changed is closed once
// there may be.
func (s *Stream) more(ctx context.Context) (changed <-chan struct{}, err error) {
	p, err := s.feed.after(s.mark.position)
	switch {
	case errors.Is(err, errOtherOrder):
		return nil, stale("the store was restored")
	case err == nil:
		s.joined, s.behind = true, time.Time{}
		s.pending, s.end = p.events, mark{s.mark.origin, p.end, later(s.mark.at, p.at)}
		if p.changed != nil {
			s.mark = s.end
		}
		return p.changed, nil
	}
	if err := s.late(); err != nil {
		return nil, err
	}
	page, err := s.hub.read(ctx, s.mark.position, s.page)
	if err != nil {
		return nil, s.unavailable(ctx, err)
	}
	if page.Origin != s.mark.origin || page.End.Compare(s.mark.position) < 0 {
		return nil, stale("the store was restored")
	}
	s.page = min(2*max(len(page.Records), 1), pageSize)
	s.pending, s.end = eventsOf(page.Records), mark{page.Origin, page.End, s.mark.at}
	return nil, nil //nolint:nilnil // there is something to look at, and nothing to wait for
}

// unavailable is what is told of a fault, which is logged.
func (s *Stream) unavailable(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		s.hub.config.Log.ErrorContext(ctx, "a stream of events failed", "installation", s.installationID, "error", err)
	}
	return admission.Unavailable()
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
