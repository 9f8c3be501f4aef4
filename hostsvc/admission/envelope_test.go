package admission

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

var (
	writer = Method{Name: "CreateTaskExact", Capability: contract.WriteTasks, Writer: true}
	reader = Method{Name: "GetTaskExact", Capability: contract.ReadTasks}
)

func complete() Envelope {
	return Envelope{
		RequestID: "r", WorkspaceID: "w", Revision: 3, ManifestDigest: contract.ManifestDigestPrefix + strings.Repeat("0", 64),
		IdempotencyKey: "k", Guard: &Guard{Named: &NamedTransition{ID: "t", ResourceVersion: "1.2"}},
		Provenance: &Provenance{ConversationID: "c", SessionID: "s", GenerationToken: "g"},
	}
}

func TestCheckShape_Complete(t *testing.T) {
	e := complete()
	none := complete()
	none.Guard, none.Provenance, none.ManifestDigest = &Guard{ExpectNone: true}, nil, ""
	for _, m := range []Method{writer, reader} {
		for _, envelope := range []Envelope{e, none} {
			if refusal := envelope.CheckShape(m); refusal != nil {
				t.Errorf("%s: %v", m.Name, refusal)
			}
		}
	}
	if refusal := (Envelope{RequestID: "r", WorkspaceID: "w"}).CheckShape(reader); refusal != nil {
		t.Errorf("a reader needs no more: %v", refusal)
	}
}

// Every absent field is INVALID/MISSING_EXACT_FIELD and is named.
func TestCheckShape_NamesWhatIsMissing(t *testing.T) {
	for field, c := range map[string]struct {
		drop   func(*Envelope)
		reader bool
	}{
		"request_id":          {func(e *Envelope) { e.RequestID = "" }, true},
		"workspace_id":        {func(e *Envelope) { e.WorkspaceID = "" }, true},
		"capability_revision": {func(e *Envelope) { e.Revision = 0 }, false},
		"idempotency_key":     {func(e *Envelope) { e.IdempotencyKey = "" }, false},
		"guard":               {func(e *Envelope) { e.Guard = nil }, false},
		"guard.pending_transition.pending_transition_id": {func(e *Envelope) { e.Guard.Named.ID = "" }, false},
		"guard.pending_transition.resource_version":      {func(e *Envelope) { e.Guard.Named.ResourceVersion = "" }, false},
		"provenance.conversation_id":                     {func(e *Envelope) { e.Provenance.ConversationID = "" }, false},
		"provenance.session_id":                          {func(e *Envelope) { e.Provenance.SessionID = "" }, false},
		"provenance.execution_generation_token":          {func(e *Envelope) { e.Provenance.GenerationToken = "" }, false},
	} {
		e := complete()
		c.drop(&e)
		want := fmt.Sprintf("INVALID/MISSING_EXACT_FIELD: %s: is required", field)
		if refusal := e.CheckShape(writer); refusal == nil || refusal.Error() != want {
			t.Errorf("%v, want %s", refusal, want)
		}
		if refusal := e.CheckShape(reader); (refusal != nil) != c.reader {
			t.Errorf("a reader without %s: %v", field, refusal)
		}
	}
	e := complete()
	e.Guard = &Guard{}
	if refusal := e.CheckShape(writer); refusal == nil || refusal.Field != "guard" || refusal.Reason != contract.ReasonMissingExactField {
		t.Errorf("an empty guard: %v", refusal)
	}
}

func TestCheckShape_NamesWhatIsMalformed(t *testing.T) {
	long := strings.Repeat("x", contract.MaxIdentifierBytes+1)
	for field, spoil := range map[string]func(*Envelope){
		"request_id":      func(e *Envelope) { e.RequestID = " r" },
		"workspace_id":    func(e *Envelope) { e.WorkspaceID = "w\x00" },
		"manifest_digest": func(e *Envelope) { e.ManifestDigest = "v1:0" },
		"idempotency_key": func(e *Envelope) { e.IdempotencyKey = long },
		"guard.pending_transition.pending_transition_id": func(e *Envelope) { e.Guard.Named.ID = long },
		"guard.pending_transition.resource_version":      func(e *Envelope) { e.Guard.Named.ResourceVersion = "\xff" },
		"provenance.execution_generation_token":          func(e *Envelope) { e.Provenance.GenerationToken = "g " },
	} {
		e := complete()
		spoil(&e)
		refusal := e.CheckShape(writer)
		if refusal == nil || refusal.Field != field || refusal.Reason != contract.ReasonMalformedPrecondition || refusal.State != contract.StateInvalid {
			t.Errorf("%s: %v", field, refusal)
		}
	}
}

// The first fault answers, in the order of the fields.
func TestCheckShape_Order(t *testing.T) {
	e := Envelope{}
	for _, step := range []struct {
		field string
		mend  func()
	}{
		{"request_id", func() { e.RequestID = "r" }},
		{"workspace_id", func() { e.WorkspaceID = "w" }},
		{"capability_revision", func() { e.Revision = 1 }},
		{"idempotency_key", func() { e.IdempotencyKey = "k" }},
		{"guard", func() { e.Guard = &Guard{ExpectNone: true} }},
	} {
		if refusal := e.CheckShape(writer); refusal == nil || refusal.Field != step.field {
			t.Errorf("want %s: %v", step.field, refusal)
		}
		step.mend()
	}
	if refusal := e.CheckShape(writer); refusal != nil {
		t.Error(refusal)
	}
}

func TestProvenance_RecordHoldsNoToken(t *testing.T) {
	p := complete().Provenance
	record := p.Record()
	if record.ConversationID != "c" || record.SessionID != "s" || record.GenerationTokenDigest == "g" || len(record.GenerationTokenDigest) != 64 {
		t.Errorf("recorded %+v", record)
	}
	if (*Provenance)(nil).Record() != nil {
		t.Error("nothing is recorded as something")
	}
}

type view struct{ seen authority.Observed }

func (v view) Observe(authority.Key) *authority.Observed { return &v.seen }

// The refusal of a decision has its state, a text for people, the revision
// where it may be told, and says when to come back only where that helps.
func TestAuthorise(t *testing.T) {
	key := authority.Key{InstallationID: "i", WorkspaceID: "w"}
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	row := authority.Row{
		Key: key, Revision: 3, State: authority.StateActive, Granted: contract.AllCapabilities,
		Declared: contract.AllCapabilities, Allowed: contract.AllCapabilities,
	}
	row.Sum = row.Vector.Sum()
	call := authority.Call{Capability: contract.WriteTasks, Revision: 3}
	settled := view{authority.Observed{Synced: true, Vector: row.Sum}}
	if refusal := Authorise(&row, true, settled, key, call, at); refusal != nil {
		t.Fatalf("refused: %v", refusal)
	}
	for reason, change := range map[contract.Reason]func(*authority.Row, *view, *authority.Call){
		contract.ReasonHostVersionUnsupported:    func(_ *authority.Row, v *view, _ *authority.Call) { v.seen.HostVersionUnsupported = true },
		contract.ReasonMissingCapabilityApproval: func(r *authority.Row, _ *view, _ *authority.Call) { r.Granted = 0 },
		contract.ReasonCapabilityRevoked:         func(r *authority.Row, _ *view, _ *authority.Call) { r.State = authority.StateRevoked },
		contract.ReasonDependencyUnavailable:     func(r *authority.Row, _ *view, _ *authority.Call) { r.Starting = true },
		contract.ReasonStaleCapabilityRevision:   func(_ *authority.Row, _ *view, c *authority.Call) { c.Revision = 2 },
		contract.ReasonHumanReserved:             func(r *authority.Row, _ *view, _ *authority.Call) { r.Allowed = 0 },
	} {
		r, v, c := row, settled, call
		change(&r, &v, &c)
		refusal := Authorise(&r, true, v, key, c, at)
		if refusal == nil || refusal.Reason != reason || refusal.State != reason.Parent() || refusal.Message == "" || refusal.Revision != 3 {
			t.Errorf("%s: %+v", reason, refusal)
			continue
		}
		if (refusal.RetryAfter > 0) != (refusal.State == contract.StateUnavailable) {
			t.Errorf("%s: retry after %s", reason, refusal.RetryAfter)
		}
	}
	if refusal := Authorise(nil, true, settled, key, call, at); refusal == nil || refusal.Revision != 0 || refusal.Reason != contract.ReasonMissingCapabilityApproval {
		t.Errorf("no row: %+v", refusal)
	}
}

// A fault can never read as an answer.
func TestI6_AFaultIsUnavailable(t *testing.T) {
	refusal := Refuse(contract.ReasonHumanReserved, "no")
	if got := AsRefusal(fmt.Errorf("wrapped: %w", refusal)); got != refusal {
		t.Errorf("got %v", got)
	}
	for _, err := range []error{errors.New("SELECT secret FROM store"), nil} {
		got := AsRefusal(err)
		if got.State != contract.StateUnavailable || got.RetryAfter <= 0 || strings.Contains(got.Error(), "SELECT") {
			t.Errorf("%v reads %+v", err, got)
		}
	}
	if got := Refuse("NO_SUCH_REASON", ""); got.State != contract.StateUnsupported {
		t.Errorf("an unknown reason is %s", got.State)
	}
}
