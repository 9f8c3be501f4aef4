package admission

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// Envelope is what all exact requests share, whatever their payload.
type Envelope struct {
	RequestID   string
	WorkspaceID string
	// Revision is the caller's capability revision; 0 is absent.
	Revision       uint64
	ManifestDigest string
	// IdempotencyKey, Guard and Provenance are for writers.
	IdempotencyKey string
	Guard          *Guard
	Provenance     *Provenance
	// Fault is what the adapter found wrong while translating: a field of a
	// feature that is not served, a request beyond its bound, a call beyond
	// the caller's share. It answers after the envelope's own faults.
	Fault *Refusal

	// implicit are the fields that the Host filled in, see Completed.
	implicit []string
	granted  func() bool
}

// Guard is a writer's statement about pending transitions of its target
// (ADR, C2). Exactly one of the two is set.
type Guard struct {
	ExpectNone bool
	Named      *NamedTransition
}

// absent: it states nothing.
func (g *Guard) absent() bool { return g == nil || !g.ExpectNone && g.Named == nil }

// NamedTransition names the pending transition that the caller expects.
type NamedTransition struct {
	ID              string
	ResourceVersion string
}

// Provenance is the managed execution that an agent-originated call claims to
// come from. It never adds authority (ADR, C1).
type Provenance struct {
	ConversationID  string
	SessionID       string
	GenerationToken string
}

// Record returns the provenance as journaled, with the token as a digest.
func (p *Provenance) Record() *journal.Provenance {
	if p == nil {
		return nil
	}
	sum := sha256.Sum256([]byte(p.GenerationToken))
	return &journal.Provenance{
		ConversationID: p.ConversationID, SessionID: p.SessionID, GenerationTokenDigest: hex.EncodeToString(sum[:]),
	}
}

// Method is the registry's row of one exact RPC, as far as admission needs it.
type Method struct {
	// Name is the RPC's name, for example "CreateTaskExact".
	Name string
	// Capability is the one that authorises it.
	Capability contract.Capability
	Writer     bool
	// Added are the fields of its request that the shipped one doesn't have, by
	// name.
	Added []string
}

// Call returns the part that the authorisation depends on.
func (e Envelope) Call(m Method) authority.Call {
	return authority.Call{Capability: m.Capability, Revision: e.Revision, ManifestDigest: e.ManifestDigest}
}

// CheckShape returns the first fault of an envelope, or nil. Writers must give
// a revision, an idempotency key and a guard; readers may omit the revision.
func (e Envelope) CheckShape(m Method) *Refusal { return e.OfItsShape(m, e.checkShape(m)) }

func (e Envelope) checkShape(m Method) *Refusal {
	for _, id := range []struct{ field, value string }{
		{"request_id", e.RequestID}, {"workspace_id", e.WorkspaceID},
	} {
		if fault := contract.CheckIdentifier(id.field, id.value); fault != nil {
			return RefuseField(fault)
		}
	}
	if e.ManifestDigest != "" {
		if _, fault := contract.ParseManifestDigest("manifest_digest", e.ManifestDigest); fault != nil {
			return RefuseField(fault)
		}
	}
	if m.Writer {
		if refusal := e.checkWriter(); refusal != nil {
			return refusal
		}
	}
	return e.Fault
}

func (e Envelope) checkWriter() *Refusal {
	if e.Revision == 0 {
		return missing("capability_revision")
	}
	if fault := contract.CheckIdentifier("idempotency_key", e.IdempotencyKey); fault != nil {
		return RefuseField(fault)
	}
	if refusal := e.checkGuard(); refusal != nil {
		return refusal
	}
	return e.checkProvenance()
}

// Recordable returns the envelope without what is no identifier, for the
// records of refusals: a malformed request must not fill the audit with a text
// of its own choosing.
func (e Envelope) Recordable() Envelope {
	for _, text := range []*string{&e.RequestID, &e.WorkspaceID, &e.IdempotencyKey} {
		if contract.CheckIdentifier("", *text) != nil {
			*text = ""
		}
	}
	if e.checkProvenance() != nil {
		e.Provenance = nil
	}
	return e
}

func (e Envelope) checkGuard() *Refusal {
	switch {
	case e.Guard.absent():
		return missing(implicitGuard)
	case e.Guard.Named == nil:
		return nil
	case e.Guard.ExpectNone:
		return RefuseField(&contract.FieldError{
			Field: "guard", Reason: contract.ReasonMalformedPrecondition,
			Detail: "expects no transition and names one",
		})
	}
	for _, id := range []struct{ field, value string }{
		{"guard.pending_transition.pending_transition_id", e.Guard.Named.ID},
		{"guard.pending_transition.resource_version", e.Guard.Named.ResourceVersion},
	} {
		if fault := contract.CheckIdentifier(id.field, id.value); fault != nil {
			return RefuseField(fault)
		}
	}
	return nil
}

func (e Envelope) checkProvenance() *Refusal {
	if e.Provenance == nil {
		return nil
	}
	for _, id := range []struct{ field, value string }{
		{"provenance.conversation_id", e.Provenance.ConversationID},
		{"provenance.session_id", e.Provenance.SessionID},
		{"provenance.execution_generation_token", e.Provenance.GenerationToken},
	} {
		if fault := contract.CheckIdentifier(id.field, id.value); fault != nil {
			return RefuseField(fault)
		}
	}
	return nil
}

func missing(field string) *Refusal {
	return RefuseField(&contract.FieldError{Field: field, Reason: contract.ReasonMissingExactField, Detail: "is required"})
}
