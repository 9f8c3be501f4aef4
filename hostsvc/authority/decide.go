package authority

import (
	"time"

	"github.com/kandev/plugin-host/contract"
)

// Observed is what this process sees in its watches about one key, beside the
// row. The zero value with Synced set says "nothing other than the row".
type Observed struct {
	// Synced is false until every watch has delivered its initial state.
	Synced bool
	// HostVersionUnsupported: the manifest asks for a newer Host.
	HostVersionUnsupported bool
	// Approval is the newest version seen of the approval object.
	Approval ObservedApproval
	// Vector is the sum over the watched objects; the zero sum is "unknown",
	// which differs from every row.
	Vector VectorSum
	// Revision is the highest revision seen in status or events; a row below
	// it comes from an older store.
	Revision uint64
}

// ObservedApproval is one watched version of an approval object.
type ObservedApproval struct {
	// UID is "" when no object is known.
	UID        string
	Generation int64
	// Gone: absent, with a deletion timestamp, or naming another key. Without
	// a UID: the watch has delivered everything, and no object was there.
	Gone bool
	// Confirmed: for a UID other than the row's, a live read agreed.
	Confirmed    bool
	Revoked      bool
	Capabilities contract.CapabilitySet
	ExpiresAt    time.Time
}

// Call is the part of a request that its authorisation depends on.
type Call struct {
	Capability contract.Capability
	// Revision is the caller's capability revision; 0 where the method lets
	// it be omitted.
	Revision uint64
	// ManifestDigest, when given, must be the one in force.
	ManifestDigest string
}

// Verdict is the outcome of Decide. The zero Reason allows.
type Verdict struct {
	State  contract.State
	Reason contract.Reason
	// Revision is the row's revision, for receipts. It is 0 for the answers
	// that must not tell an unknown workspace from an unapproved one.
	Revision uint64
}

// Allowed tells whether the call may go on.
func (v Verdict) Allowed() bool { return v.Reason == "" }

// Decide is the one authorisation decision. row may be nil for "no row". The
// checks and their answers are those of the contract's table, in its order;
// the first failure answers. It neither blocks nor allocates.
//
// The Host calls it twice: before any lock, to deny early, and inside the
// transaction of the effect, on that transaction's row, to allow (I8).
func Decide(row *Row, seen *Observed, call Call, now time.Time) Verdict {
	if seen.HostVersionUnsupported || (row != nil && row.Gates&GateHostVersionUnsupported != 0) {
		return refuse(row, contract.StateUnsupported, contract.ReasonHostVersionUnsupported)
	}
	if row == nil || row.Revision == 0 {
		if !seen.Synced {
			return Verdict{State: contract.StateUnavailable, Reason: contract.ReasonDependencyUnavailable}
		}
		return Verdict{State: contract.StateDenied, Reason: contract.ReasonMissingCapabilityApproval}
	}
	if final(row, now) || finalAhead(row, seen, now) {
		return refuse(row, contract.StateDenied, contract.ReasonCapabilityRevoked)
	}
	if row.Gates&GateRequiredCapabilityUnavailable != 0 {
		return refuse(row, contract.StateDenied, contract.ReasonMissingCapabilityApproval)
	}
	if unsettled(row, seen) {
		return refuse(row, contract.StateUnavailable, contract.ReasonDependencyUnavailable)
	}
	if call.Revision != 0 && call.Revision != row.Revision ||
		call.ManifestDigest != "" && call.ManifestDigest != row.Vector.ManifestDigest {
		return refuse(row, contract.StateDenied, contract.ReasonStaleCapabilityRevision)
	}
	if !row.Allowed.Has(call.Capability) {
		return refuse(row, contract.StateDenied, contract.ReasonHumanReserved)
	}
	if !row.Effective(now).Has(call.Capability) {
		return refuse(row, contract.StateDenied, contract.ReasonMissingCapabilityApproval)
	}
	return Verdict{State: contract.StateApplied, Revision: row.Revision}
}

// gatesForHumans are the gates that only a human can open.
const gatesForHumans = GateSuspended | GatePrincipalChanged | GateWorkspaceConflict | GateServiceAccountConflict

// final: what the row itself says is over, whatever else is known.
func final(row *Row, now time.Time) bool {
	return row.State != StateActive || row.Gates&gatesForHumans != 0 || row.Expired(now) ||
		(row.Hold != nil && row.Hold.State != StateActive)
}

// finalAhead: a version newer than the one processed is revoked, deleted or
// expired. An older one says nothing: a lagging watch must not deny what has
// been approved since.
func finalAhead(row *Row, seen *Observed, now time.Time) bool {
	a := &seen.Approval
	over := a.Gone || a.Revoked || reached(a.ExpiresAt, now)
	if a.UID != row.Seen.UID {
		return a.Confirmed && over
	}
	// A deletion may leave the generation as it was processed. Below it, the
	// version named another key and was edited back since.
	return over && (a.Generation > row.Seen.Generation ||
		a.Gone && !row.Seen.Gone && a.Generation == row.Seen.Generation)
}

// unsettled: something is known that the row has not taken in yet.
func unsettled(row *Row, seen *Observed) bool {
	if !seen.Synced || row.Starting || row.Hold != nil || seen.Revision > row.Revision || seen.Vector != row.Sum {
		return true
	}
	a := &seen.Approval
	if a.Gone && !row.Seen.Gone {
		return true
	}
	if a.UID == "" || !row.Seen.Before(a.UID, a.Generation) {
		return false
	}
	if a.UID != row.Seen.UID {
		// Another object stands in its place: the one that was processed is
		// gone.
		return true
	}
	return !a.Capabilities.Covers(row.Granted) || later(row.ExpiresAt, a.ExpiresAt)
}

func refuse(row *Row, state contract.State, reason contract.Reason) Verdict {
	v := Verdict{State: state, Reason: reason}
	if row != nil {
		v.Revision = row.Revision
	}
	return v
}
