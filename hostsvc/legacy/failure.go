package legacy

import (
	"errors"
	"fmt"

	"github.com/kandev/plugin-host/hostsvc/domain"
)

// Kind is what kind of failure a v1 call has; the adapter has a code for each.
type Kind int

// The kinds.
const (
	// Unknown is any failure that v1 has no better word for.
	Unknown Kind = iota
	InvalidArgument
	NotFound
	FailedPrecondition
	// PermissionDenied is of the few checks that look at more than declarations.
	PermissionDenied
	ResourceExhausted
	Unimplemented
	Unavailable
)

// Failure is a v1 answer that says why not. Text is the whole text of the status,
// as shipped where v1 has one; it holds nothing private (I14). Every other error of
// this package is a fault of the Host's own, and is answered without its text.
type Failure struct {
	Kind Kind
	Text string
}

func (f *Failure) Error() string { return f.Text }

// fail makes a failure.
func fail(kind Kind, format string, args ...any) *Failure {
	return &Failure{Kind: kind, Text: fmt.Sprintf(format, args...)}
}

// ruled makes a failure of a refusal by a rule of the domain; any other error stays.
func ruled(err error) error {
	var refused *domain.RuleError
	if !errors.As(err, &refused) {
		return err
	}
	kinds := map[domain.Fault]Kind{
		domain.FaultInvalid: InvalidArgument, domain.FaultNotFound: NotFound, domain.FaultPrecondition: FailedPrecondition,
		domain.FaultDenied: PermissionDenied,
	}
	return &Failure{Kind: kinds[refused.Fault], Text: refused.Text}
}
