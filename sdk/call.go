package sdk

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

const (
	// attemptTimeout ends an attempt that gets no answer. The Host's own bounds
	// are far below it.
	attemptTimeout = 15 * time.Second
	// firstDelay and maxDelay bound the growing delays between attempts.
	firstDelay = 100 * time.Millisecond
	maxDelay   = 5 * time.Second
	// longestBoundary is the longest wait demanded by the Host that the SDK sits
	// out itself. What is longer is the caller's to plan.
	longestBoundary = 30 * time.Second
)

// call is an exact call: what is fixed, however often it is asked.
type call struct {
	method      string
	workspaceID string
	capability  contract.Capability
	// op is nil for readers.
	op *Operation
}

// request is one request message's own part.
type request struct {
	id       string
	key      string
	revision uint64
}

func newRequest(key string, revision uint64) request {
	return request{id: uuid.NewString(), key: key, revision: revision}
}

// attempt sends a request once. Readers return no result: theirs is in the
// error.
type attempt func(ctx context.Context, r request, opts ...grpc.CallOption) (*pluginv1.HostCommandResult, error)

// sent is a request that succeeded.
type sent struct {
	request request
	result  *pluginv1.HostCommandResult
}

// exact makes an exact call: one request, and a second one where the first was
// built on authority that is not in force any more.
func (h *Host) exact(ctx context.Context, c call, try attempt) (sent, error) {
	if err := c.check(); err != nil {
		return sent{}, err
	}
	if h.isClosed() {
		return sent{}, fmt.Errorf("%s: %w", c.method, ErrClosed)
	}
	key := ""
	if c.op != nil {
		key = c.op.key
	}
	stale, answer, err := h.ask(ctx, c, key, 0, try)
	if reasonOf(err) != contract.ReasonStaleCapabilityRevision {
		return answer, err
	}
	if _, fetchErr := h.fetch(ctx, h.attempts); fetchErr != nil {
		return sent{}, fmt.Errorf("%w; the context could not be refreshed: %w", err, fetchErr)
	}
	if c.op != nil && c.op.keyWhenStale != "" {
		key = c.op.keyWhenStale
	}
	_, again, againErr := h.ask(ctx, c, key, stale, try)
	if againErr == errStillStale { //nolint:errorlint // our own, never wrapped
		return sent{}, err
	}
	return again, againErr
}

// errStillStale says that the context still names the revision that the Host
// refused: another request on it would be refused too.
var errStillStale = fmt.Errorf("the context still names the refused revision")

// ask builds one request on the known standing and sends it. stale is a revision
// known to be out of force, 0 for none.
func (h *Host) ask(ctx context.Context, c call, key string, stale uint64, try attempt) (uint64, sent, error) {
	space := parkingSpace{c.workspaceID, c.capability}
	revision, turn, parked := h.standing.look(space)
	if parked != nil {
		local := *parked
		local.Local = true
		local.Message = "parked until the capability context changes; the Host's answer was: " + parked.Message
		return 0, sent{}, &local
	}
	switch {
	case c.op == nil:
		revision = 0 // a reader leaves it to the authority in force
	case revision == 0:
		denial := c.denied(&Error{
			State: contract.StateDenied, Reason: contract.ReasonMissingCapabilityApproval, Local: true,
			Message: "the capability context names no approval of this workspace",
		}, request{})
		h.park(space, turn, denial)
		return 0, sent{}, denial
	case revision == stale:
		return 0, sent{}, errStillStale
	}
	r := newRequest(key, revision)
	answer, err := h.repeat(ctx, c, r, h.attempts, try)
	if denial, ok := err.(*Error); ok && denial.parks() { //nolint:errorlint // repeat returns it unwrapped
		h.park(space, turn, denial)
	}
	return revision, answer, err
}

func (h *Host) park(space parkingSpace, turn uint64, denial *Error) {
	if h.standing.park(space, turn, denial) {
		h.log.Info("Calls are parked until the capability context changes.",
			"workspace", space.workspaceID, "capability", space.capability.String(),
			"reason", string(denial.Reason), "auditID", denial.AuditID)
	}
}

// repeat sends one request, and the same again where the contract allows that:
// UNAVAILABLE with growing delays, RATE_LIMITED at the boundary it names.
func (h *Host) repeat(ctx context.Context, c call, r request, attempts int, try attempt) (sent, error) {
	delay := firstDelay
	for n := 1; ; n++ {
		result, denial, err := h.send(ctx, c, r, try)
		if err != nil {
			return sent{}, err
		}
		if denial == nil {
			return sent{r, result}, nil
		}
		wait, again := mayRepeat(denial, delay)
		deadline, bounded := ctx.Deadline()
		if !again || n >= attempts || bounded && time.Until(deadline) <= wait {
			return sent{}, denial
		}
		h.log.Debug("Waiting to send a request again.", "wait", wait, "answer", denial)
		if err := h.sleep(ctx, wait); err != nil {
			return sent{}, fmt.Errorf("wait to send it again: %w; the last answer was: %w", err, denial)
		}
		delay = min(2*delay, maxDelay)
	}
}

// mayRepeat says how long to wait before the same request may be sent again.
// The delay is spread over its upper half so that many plugins don't come back
// together; a boundary that the Host names is never undercut.
func mayRepeat(denial *Error, delay time.Duration) (wait time.Duration, again bool) {
	if denial.RetryAfter > longestBoundary {
		return 0, false
	}
	spread := delay/2 + rand.N(delay/2) //nolint:gosec // no secret
	switch denial.Retry() {
	case contract.RetrySame:
		return max(denial.RetryAfter, spread), true
	case contract.RetryAfter:
		return denial.RetryAfter + spread, denial.RetryAfter > 0
	default:
		return 0, false
	}
}

func (h *Host) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-h.closed:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx) //nolint:wrapcheck // the caller wraps it
	}
}

// isClosed tells whether Close has been called.
func (h *Host) isClosed() bool {
	select {
	case <-h.closed:
		return true
	default:
		return false
	}
}

// send sends a request once, and once more under a token that was replaced in
// the meantime: an unauthenticated request did nothing.
func (h *Host) send(ctx context.Context, c call, r request, try attempt) (*pluginv1.HostCommandResult, *Error, error) {
	token, err := h.token.current()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: read the token: %w", c.method, err)
	}
	result, err := h.attempt(ctx, token, r, try)
	if status.Code(err) == codes.Unauthenticated {
		if fresh, readErr := h.token.reread(); readErr == nil && fresh != token {
			h.log.Info("The token was replaced; sending the request again.", "method", c.method)
			result, err = h.attempt(ctx, fresh, r, try)
		}
	}
	switch {
	case err == nil && c.op == nil:
		return nil, nil, nil
	case err == nil:
		return result, c.denied(readResult(result), r), nil
	case ctx.Err() != nil:
		return nil, nil, fmt.Errorf("%s: %w", c.method, context.Cause(ctx))
	case h.isClosed():
		return nil, nil, fmt.Errorf("%s: %w", c.method, ErrClosed)
	case status.Code(err) == codes.Unauthenticated:
		return nil, nil, &UnauthenticatedError{
			Method: c.method, TokenFile: h.token.path, Message: status.Convert(err).Message(),
		}
	default:
		return nil, c.denied(readStatus(err), r), nil
	}
}

func (h *Host) attempt(ctx context.Context, token string, r request, try attempt) (*pluginv1.HostCommandResult, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return try(ctx, r, grpc.PerRPCCredentials(bearer(token)))
}

// denied completes an answer with the call it belongs to; nil stays nil.
func (c call) denied(e *Error, r request) *Error {
	if e != nil {
		e.Method, e.WorkspaceID, e.RequestID = c.method, c.workspaceID, r.id
	}
	return e
}

// check finds what makes a call pointless to send.
func (c call) check() error {
	fault := contract.CheckIdentifier("workspace_id", c.workspaceID)
	if fault == nil && c.op != nil {
		fault = c.op.check()
	}
	if fault == nil {
		return nil
	}
	return c.denied(&Error{
		State: contract.StateInvalid, Reason: fault.Reason, Field: fault.Field, Message: fault.Detail, Local: true,
	}, request{})
}
