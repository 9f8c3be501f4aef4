package sdk

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// Error is the answer to an exact call that did not succeed. State and Reason
// are always of the contract: what the SDK doesn't know, it reads as
// UNSUPPORTED/UNKNOWN_RESULT_VALUE. Retry says what a caller may do; what may
// be done without asking, the SDK has done before it returns:
//
//   - STALE_CAPABILITY_REVISION: the context was fetched anew and a new request
//     made, once.
//   - UNAVAILABLE, and RATE_LIMITED with a boundary: the same request was sent
//     again after growing delays, up to the attempts allowed.
//   - MISSING_CAPABILITY_APPROVAL, CAPABILITY_REVOKED, HUMAN_RESERVED: calls of
//     this capability in this workspace are parked, see Host.Wait.
//   - Everything else: nothing, it is never repeated.
type Error struct {
	// Method is the RPC's name without service.
	Method string
	// WorkspaceID is the workspace of the call; empty for the context of all.
	WorkspaceID string
	// RequestID is the request's, as the Host's audit record has it.
	RequestID string

	State  contract.State
	Reason contract.Reason
	// Field is the path of the field at fault, where one decided.
	Field string
	// Message explains to a human. Never parse it.
	Message string
	// AuditID identifies the Host's audit record of the answer. Empty when the
	// Host was not asked, or its answer got lost.
	AuditID string
	// RetryAfter is what the Host demanded to wait; 0: it named nothing.
	RetryAfter time.Duration
	// Local says that the Host was not asked: the SDK knew the answer.
	Local bool
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Method)
	if e.WorkspaceID != "" {
		fmt.Fprintf(&b, " in workspace %q", e.WorkspaceID)
	}
	fmt.Fprintf(&b, ": %s/%s", e.State, e.Reason)
	if e.Field != "" {
		fmt.Fprintf(&b, ": %s", e.Field)
	}
	if e.Message != "" {
		fmt.Fprintf(&b, ": %s", e.Message)
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, " (retry after %v)", e.RetryAfter)
	}
	if e.AuditID != "" {
		fmt.Fprintf(&b, " (audit ID %s)", e.AuditID)
	}
	return b.String()
}

// Retry is what a caller may do about it, by the contract's table of reasons.
func (e *Error) Retry() contract.Retry {
	info, ok := contract.LookupReason(e.Reason)
	if !ok {
		return contract.RetryUpgrade // as of UNKNOWN_RESULT_VALUE
	}
	return info.Retry
}

// parks tells whether the answer stands until the standing of the whole
// installation moves. PROVENANCE_REJECTED isn't one: it is about one agent
// execution, and the plugin's own writes must go on.
func (e *Error) parks() bool {
	switch e.Reason {
	case contract.ReasonMissingCapabilityApproval, contract.ReasonCapabilityRevoked, contract.ReasonHumanReserved:
		return true
	default:
		return false
	}
}

func reasonOf(err error) contract.Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ""
}

// readState maps the wire's state. PARTIAL and UNCERTAIN are names on the wire
// that no method of this contract may answer with, so they are unknown here.
func readState(s pluginv1.HostCommandStatus) (contract.State, bool) {
	switch s {
	case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_APPLIED:
		return contract.StateApplied, true
	case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_ALREADY_APPLIED:
		return contract.StateAlreadyApplied, true
	case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_NO_CHANGE:
		return contract.StateNoChange, true
	case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_CONFLICT:
		return contract.StateConflict, true
	case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_DENIED:
		return contract.StateDenied, true
	case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_NOT_FOUND:
		return contract.StateNotFound, true
	case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_INVALID:
		return contract.StateInvalid, true
	case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_UNSUPPORTED:
		return contract.StateUnsupported, true
	case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_RATE_LIMITED:
		return contract.StateRateLimited, true
	case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_UNAVAILABLE:
		return contract.StateUnavailable, true
	default:
		return "", false
	}
}

// readResult returns nil for a success of the contract and an *Error without
// its call for everything else, the unknown included.
func readResult(r *pluginv1.HostCommandResult) *Error {
	state, known := readState(r.GetStatus())
	if known && state.Succeeded() && r.GetReason() == "" {
		return nil
	}
	e := &Error{
		State: state, Reason: contract.Reason(r.GetReason()),
		Field: r.GetField(), Message: r.GetMessage(), AuditID: r.GetAuditId(),
		RetryAfter: time.Duration(r.GetRetryAfterMs()) * time.Millisecond,
	}
	if info, ok := contract.LookupReason(e.Reason); known && ok && info.Parent == state {
		return e
	}
	e.State, e.Reason, e.RetryAfter = contract.StateUnsupported, contract.ReasonUnknownResultValue, 0
	e.Message = fmt.Sprintf("the Host answered state %v with reason %q, which this SDK does not know: %s",
		r.GetStatus(), r.GetReason(), r.GetMessage())
	return e
}

// unknownResult is for answers that break the contract's shape.
func unknownResult(format string, args ...any) *Error {
	return &Error{
		State: contract.StateUnsupported, Reason: contract.ReasonUnknownResultValue, Message: fmt.Sprintf(format, args...),
	}
}

// readStatus reads a failed call: by its one typed detail, and where the
// answer didn't come from the Host, by the transport's code.
func readStatus(err error) *Error {
	s := status.Convert(err)
	if len(s.Proto().GetDetails()) > 0 {
		return readDetail(s)
	}
	switch s.Code() {
	case codes.Unavailable, codes.DeadlineExceeded:
		return &Error{
			State: contract.StateUnavailable, Reason: contract.ReasonDependencyUnavailable,
			Message: "no answer of the Host: " + s.Message(),
		}
	case codes.Unimplemented:
		return &Error{
			State: contract.StateUnsupported, Reason: contract.ReasonHostVersionUnsupported,
			Message: "the Host does not serve this method: " + s.Message(),
		}
	default:
		return unknownResult("the answer %v holds no typed result: %s", s.Code(), s.Message())
	}
}

func readDetail(s *status.Status) *Error {
	var results []*pluginv1.HostCommandResult
	for _, detail := range s.Details() {
		if result, ok := detail.(*pluginv1.HostCommandResult); ok {
			results = append(results, result)
		}
	}
	if len(results) != 1 {
		return unknownResult("the answer %v holds %d typed results, not one: %s", s.Code(), len(results), s.Message())
	}
	if e := readResult(results[0]); e != nil {
		if e.Message == "" {
			e.Message = s.Message()
		}
		return e
	}
	return unknownResult("the answer %v holds the result of a success", s.Code())
}
