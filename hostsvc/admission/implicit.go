package admission

import (
	"slices"
	"strings"

	"github.com/kandev/plugin-host/contract"
)

// The fields that the Host fills in for an installation with the grant of
// spec.compatibility.implicitExpectNone, and nothing else (host contract, "One wire
// for three worlds").
const (
	implicitGuard     = "guard"
	implicitRequestID = "request_id"
)

// Completed is the envelope with what a plugin of the shipped wire leaves out: an
// absent guard of a writer expects that no transition is pending, the strictest one,
// and an absent request ID is one of newID. granted tells whether the installation has
// the grant now; without it the envelope stays as it is. A guard that is there and
// says nothing is as absent as none.
//
// What was filled in is in the record of the call, and a writer asks again under its
// lock whether it may be (CheckImplicit).
func (e Envelope) Completed(m Method, granted func() bool, newID func() string) Envelope {
	e.granted = granted
	noID, noGuard := e.RequestID == "", m.Writer && e.Guard.absent()
	if !noID && !noGuard || !e.mayLeaveOut() {
		return e
	}
	if noID {
		e.RequestID = newID()
		e.implicit = append(e.implicit, implicitRequestID)
	}
	if noGuard {
		e.Guard = &Guard{ExpectNone: true}
		e.implicit = append(e.implicit, implicitGuard)
	}
	return e
}

// mayLeaveOut tells whether the installation has the grant now. Nobody to ask is no.
func (e Envelope) mayLeaveOut() bool { return e.granted != nil && e.granted() }

// CheckImplicit refuses what the Host filled in once the grant for it is gone, as if
// it had never been: for whoever decides under a lock (I5).
func (e Envelope) CheckImplicit() *Refusal {
	if len(e.implicit) == 0 || e.mayLeaveOut() {
		return nil
	}
	return missing(e.implicit[0])
}

// Implicit is what the Host filled in, for the record: the fields' names with a comma
// between them, "" for nothing.
func (e Envelope) Implicit() string { return strings.Join(e.implicit, ",") }

// OfItsShape gives a refusal of what is absent the reason that it has for an
// installation with the grant: a field that the shipped request never had is missing
// from its shape, and the grant doesn't stand for it. Any other stays, nil too.
func (e Envelope) OfItsShape(m Method, refusal *Refusal) *Refusal {
	if refusal == nil || refusal.Reason != contract.ReasonMissingExactField || !slices.Contains(m.Added, refusal.Field) || !e.mayLeaveOut() {
		return refusal
	}
	return RefuseField(&contract.FieldError{
		Field: refusal.Field, Reason: contract.ReasonUnsupportedLegacyShape,
		Detail: "is required, and spec.compatibility.implicitExpectNone doesn't stand for it",
	})
}
