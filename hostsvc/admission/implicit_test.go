package admission

import (
	"slices"
	"testing"

	"github.com/kandev/plugin-host/contract"
)

// The grant stands for an absent guard of a writer and an absent request ID; whoever
// has no grant, or says both, gets the envelope as it is.
func TestCompleted(t *testing.T) {
	yes, no := func() bool { return true }, func() bool { return false }
	newID := func() string { return "made" }
	for name, c := range map[string]struct {
		envelope Envelope
		method   Method
		granted  func() bool
		implicit string
	}{
		"nothing is absent":      {Envelope{RequestID: "r", Guard: &Guard{ExpectNone: true}}, writer, yes, ""},
		"both are":               {Envelope{}, writer, yes, "request_id,guard"},
		"the guard is":           {Envelope{RequestID: "r"}, writer, yes, "guard"},
		"the guard says nothing": {Envelope{RequestID: "r", Guard: &Guard{}}, writer, yes, "guard"},
		"the request ID is":      {Envelope{Guard: &Guard{Named: &NamedTransition{}}}, writer, yes, "request_id"},
		"of a reader":            {Envelope{}, reader, yes, "request_id"},
		"without the grant":      {Envelope{}, writer, no, ""},
		"with nobody to ask":     {Envelope{}, writer, nil, ""},
	} {
		got := c.envelope.Completed(c.method, c.granted, newID)
		if got.Implicit() != c.implicit {
			t.Errorf("%s: %q was filled in, want %q", name, got.Implicit(), c.implicit)
		}
		filled := func(field string) bool { return slices.Contains(got.implicit, field) }
		if (got.RequestID == "made") != filled(implicitRequestID) {
			t.Errorf("%s: the request ID is %q", name, got.RequestID)
		}
		if filled(implicitGuard) != (got.Guard != c.envelope.Guard) || filled(implicitGuard) && (!got.Guard.ExpectNone || got.Guard.Named != nil) {
			t.Errorf("%s: the guard is %+v", name, got.Guard)
		}
	}
}

// What was filled in is refused like what is absent once the grant is gone.
func TestCheckImplicit(t *testing.T) {
	granted := true
	ask := func() bool { return granted }
	e := Envelope{}.Completed(writer, ask, func() string { return "made" })
	said := Envelope{RequestID: "r", Guard: &Guard{ExpectNone: true}}.Completed(writer, ask, nil)
	if refusal := e.CheckImplicit(); refusal != nil {
		t.Errorf("with the grant: %v", refusal)
	}
	granted = false
	if refusal := e.CheckImplicit(); refusal == nil || refusal.Error() != "INVALID/MISSING_EXACT_FIELD: request_id: is required" {
		t.Errorf("without it: %v", refusal)
	}
	if refusal := said.CheckImplicit(); refusal != nil {
		t.Errorf("without it, of what was said: %v", refusal)
	}
}

func TestOfItsShape(t *testing.T) {
	m := writer
	m.Added = []string{"guard", "expected_version"}
	granted := true
	e := Envelope{}.Completed(m, func() bool { return granted }, func() string { return "made" })
	for field, want := range map[string]contract.Reason{"expected_version": contract.ReasonUnsupportedLegacyShape, "task_id": contract.ReasonMissingExactField} {
		granted = true
		if got := e.OfItsShape(m, missing(field)); got.Reason != want || got.State != contract.StateInvalid || got.Field != field || got.Message == "" {
			t.Errorf("%s: %v, want %s", field, got, want)
		}
		granted = false
		if got := e.OfItsShape(m, missing(field)); got.Reason != contract.ReasonMissingExactField {
			t.Errorf("%s without the grant: %v", field, got)
		}
	}
	granted = true
	malformed := RefuseField(&contract.FieldError{Field: "expected_version", Reason: contract.ReasonMalformedPrecondition})
	if got := e.OfItsShape(m, malformed); got != malformed {
		t.Errorf("what is there: %v", got)
	}
	if e.OfItsShape(m, nil) != nil {
		t.Error("nothing is refused")
	}
}
