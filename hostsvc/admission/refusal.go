package admission

import (
	"errors"
	"fmt"
	"time"

	"github.com/kandev/plugin-host/contract"
)

// Refusal is the typed answer of a call that did not do what it asked. Nothing
// of the call has been committed.
type Refusal struct {
	State  contract.State
	Reason contract.Reason
	// Revision is the row's revision for the receipt, 0 where telling it would
	// tell an unknown workspace from an unapproved one.
	Revision uint64
	// Field names the offending field of an INVALID or UNSUPPORTED request.
	Field string
	// Message is for people and holds nothing private.
	Message string
	// RetryAfter is how long to wait before trying the same again, where that
	// can help.
	RetryAfter time.Duration
	// AuditID identifies the refusal's audit record, "" until it is durable.
	AuditID string
}

func (r *Refusal) Error() string {
	text := fmt.Sprintf("%s/%s", r.State, r.Reason)
	if r.Field != "" {
		text += ": " + r.Field
	}
	if r.Message != "" {
		text += ": " + r.Message
	}
	return text
}

// Refuse returns a refusal of the reason's parent state.
func Refuse(reason contract.Reason, message string) *Refusal {
	return &Refusal{State: reason.Parent(), Reason: reason, Message: message}
}

// RefuseField returns the refusal of a faulty field.
func RefuseField(fault *contract.FieldError) *Refusal {
	return &Refusal{State: fault.Reason.Parent(), Reason: fault.Reason, Field: fault.Field, Message: fault.Detail}
}

// retryAfter is how long an unsettled authority usually takes to settle.
const retryAfter = 250 * time.Millisecond

// Unavailable returns the refusal for a dependency that can't answer now. The
// cause is for logs, never for the caller.
func Unavailable() *Refusal {
	r := Refuse(contract.ReasonDependencyUnavailable, "a service that this call depends on is not available")
	r.RetryAfter = retryAfter
	return r
}

// AsRefusal returns the refusal in err's chain. Any other error becomes
// UNAVAILABLE, so that a fault can never read as an answer.
func AsRefusal(err error) *Refusal {
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return refusal
	}
	return Unavailable()
}
