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

// Decide is the one authorisation decision. row may be nil for "no row";
// current tells whether the store vouches for its rows in the snapshot that row
// was read in: its lease has not run out, and its epoch's comparison with the
// history is complete. The checks and their answers are those of the contract's
// table, in its order; the first failure answers. It neither blocks nor
// allocates.
//
// The Host calls it twice: before any lock, to deny early, and inside the
// transaction of the effect, on that transaction's row, to allow (I8).
func Decide(row *Row, seen *Observed, current bool, call Call, now time.Time) Verdict {
	q := question{row: row, seen: seen, current: current, call: call, now: now}
	for i := range conditions {
		if reason := conditions[i].fails(q); reason != "" {
			return q.refuse(reason)
		}
	}
	return Verdict{State: contract.StateApplied, Revision: row.Revision}
}

// Check is one check of a decision with its verdict.
type Check struct {
	Name string
	// Asked is false where an earlier check has answered.
	Asked bool
	// Reason is "" for a check that passed.
	Reason contract.Reason
}

// Explain is Decide with every check. Its last asked check is what Decide
// answers.
func Explain(row *Row, seen *Observed, current bool, call Call, now time.Time) ([]Check, Verdict) {
	q := question{row: row, seen: seen, current: current, call: call, now: now}
	all := make([]Check, len(conditions))
	answered := false
	for i := range conditions {
		all[i].Name = conditions[i].name
		if answered {
			continue
		}
		all[i].Asked, all[i].Reason = true, conditions[i].fails(q)
		answered = all[i].Reason != ""
	}
	return all, Decide(row, seen, current, call, now)
}

// question is what one decision depends on. It is passed by value: behind the
// table's functions, a pointer would have to be allocated.
type question struct {
	row     *Row
	seen    *Observed
	current bool
	call    Call
	now     time.Time
}

// conditions are the decision, in the order of the contract's table. Those behind
// the second have a row of at least revision 1.
var conditions = [...]struct {
	name  string
	fails func(q question) contract.Reason
}{
	{"the Host is new enough for the manifest", func(q question) contract.Reason {
		if q.seen.HostVersionUnsupported || (q.row != nil && q.row.Gates&GateHostVersionUnsupported != 0) {
			return contract.ReasonHostVersionUnsupported
		}
		return ""
	}},
	{"an approval was ever in force", func(q question) contract.Reason {
		switch {
		case q.row != nil && q.row.Revision > 0:
			return ""
		case !q.seen.Synced || !q.current:
			return contract.ReasonDependencyUnavailable
		default:
			return contract.ReasonMissingCapabilityApproval
		}
	}},
	{"it is neither revoked, expired, held nor waiting for a human", func(q question) contract.Reason {
		if final(q.row, q.now) || finalAhead(q.row, q.seen, q.now) {
			return contract.ReasonCapabilityRevoked
		}
		return ""
	}},
	{"what the manifest requires is granted", func(q question) contract.Reason {
		if q.row.Gates&GateRequiredCapabilityUnavailable != 0 {
			return contract.ReasonMissingCapabilityApproval
		}
		return ""
	}},
	{"the row is fresh and has taken in what the watches show", func(q question) contract.Reason {
		if !q.current || unsettled(q.row, q.seen) {
			return contract.ReasonDependencyUnavailable
		}
		return ""
	}},
	{"the caller's revision and manifest digest are those in force", func(q question) contract.Reason {
		if q.call.Revision != 0 && q.call.Revision != q.row.Revision ||
			q.call.ManifestDigest != "" && q.call.ManifestDigest != q.row.Vector.ManifestDigest {
			return contract.ReasonStaleCapabilityRevision
		}
		return ""
	}},
	{"the human policy leaves the capability to plugins", func(q question) contract.Reason {
		if !q.row.Allowed.Has(q.call.Capability) {
			return contract.ReasonHumanReserved
		}
		return ""
	}},
	{"the capability is declared and granted", func(q question) contract.Reason {
		if !q.row.Effective(q.now).Has(q.call.Capability) {
			return contract.ReasonMissingCapabilityApproval
		}
		return ""
	}},
}

// refuse answers with the state that belongs to a reason.
func (q question) refuse(reason contract.Reason) Verdict {
	v := Verdict{State: contract.StateDenied, Reason: reason}
	switch reason {
	case contract.ReasonHostVersionUnsupported:
		v.State = contract.StateUnsupported
	case contract.ReasonDependencyUnavailable:
		v.State = contract.StateUnavailable
	default:
	}
	if q.row != nil && q.row.Revision > 0 {
		v.Revision = q.row.Revision
	}
	return v
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
	if !seen.Synced || row.Starting || row.Uncompared || row.Hold != nil || seen.Revision > row.Revision || seen.Vector != row.Sum {
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
