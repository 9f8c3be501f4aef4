package sdk

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// LegacyError is the answer to a v1 call that did not succeed. v1 has codes and
// texts instead of states and reasons: what the manifest doesn't declare is
// codes.PermissionDenied.
type LegacyError struct {
	// Method is the RPC's name without service.
	Method string
	Code   codes.Code
	// Message explains to a human. Never parse it.
	Message string
}

func (e *LegacyError) Error() string { return fmt.Sprintf("%s: %v: %s", e.Method, e.Code, e.Message) }

// legacy makes a v1 call that can be sent again without harm. While the Host
// answers UNAVAILABLE, or not at all, it is, after growing delays, up to the
// attempts allowed.
func (h *Host) legacy(ctx context.Context, method string, try func(ctx context.Context, opts ...grpc.CallOption) error) error {
	if h.isClosed() {
		return fmt.Errorf("%s: %w", method, ErrClosed)
	}
	delay := firstDelay
	for n := 1; ; n++ {
		err := h.sendLegacy(ctx, method, try)
		denial, ok := err.(*LegacyError) //nolint:errorlint // sendLegacy returns it unwrapped
		again := ok && (denial.Code == codes.Unavailable || denial.Code == codes.DeadlineExceeded)
		wait := delay/2 + rand.N(delay/2) //nolint:gosec // no secret
		deadline, bounded := ctx.Deadline()
		if !again || n >= h.attempts || bounded && time.Until(deadline) <= wait {
			return err
		}
		if err := h.sleep(ctx, wait); err != nil {
			return fmt.Errorf("%s: wait to send it again: %w; the last answer was: %w", method, err, denial)
		}
		delay = min(2*delay, maxDelay)
	}
}

// sendLegacy sends a v1 call once, and once more under a token that was replaced in
// the meantime.
func (h *Host) sendLegacy(ctx context.Context, method string, try func(ctx context.Context, opts ...grpc.CallOption) error) error {
	token, err := h.token.current()
	if err != nil {
		return fmt.Errorf("%s: read the token: %w", method, err)
	}
	once := func(token string) error {
		ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		return try(ctx, grpc.PerRPCCredentials(bearer(token)))
	}
	err = once(token)
	if status.Code(err) == codes.Unauthenticated {
		if fresh, readErr := h.token.reread(); readErr == nil && fresh != token {
			h.log.Info("The token was replaced; sending the request again.", "method", method)
			err = once(fresh)
		}
	}
	answer := status.Convert(err)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", method, context.Cause(ctx))
	case h.isClosed():
		return fmt.Errorf("%s: %w", method, ErrClosed)
	case answer.Code() == codes.Unauthenticated:
		return &UnauthenticatedError{Method: method, TokenFile: h.token.path, Message: answer.Message()}
	default:
		return &LegacyError{Method: method, Code: answer.Code(), Message: answer.Message()}
	}
}
