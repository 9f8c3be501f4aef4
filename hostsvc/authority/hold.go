package authority

import (
	"time"

	"github.com/kandev/plugin-host/contract"
)

// Hold is a narrowing that was seen and takes effect before any revision: what
// is still allowed. It only ever shrinks; the next fence applies it, and it
// counts as that act whatever the approval says by then, so that revoking and
// re-applying at once still leaves a revocation behind.
type Hold struct {
	// State is StateActive or StateRevoked.
	State   State
	Granted contract.CapabilitySet
	// ExpiresAt is the latest expiry still allowed, zero for no limit.
	ExpiresAt time.Time
	Cause     Cause
	Actor     Actor
	Reason    string
	// UID and Generation name the first version that narrowed.
	UID        string
	Generation int64
	// Spent: more than one version narrowed, so the act's name is used up
	// whatever the spec in front of us says.
	Spent bool
	// ThroughUID and Through name the newest narrowing version that the hold has
	// absorbed, where that is not the first. One that takes nothing more away is a
	// revocation all the same: an event that applied the hold of before has not
	// applied it.
	ThroughUID string
	Through    int64
	// Mixed: a machine has taken away more than the version that the hold names.
	// Equal leaves it out: it says where the content is from.
	Mixed bool
}

// Equal compares two holds, nil included.
func (h *Hold) Equal(other *Hold) bool {
	if h == nil || other == nil {
		return h == other
	}
	return h.allowsAs(other) &&
		h.Cause == other.Cause && h.Actor == other.Actor && h.Reason == other.Reason &&
		h.UID == other.UID && h.Generation == other.Generation && h.Spent == other.Spent &&
		h.ThroughUID == other.ThroughUID && h.Through == other.Through
}

// speaksOf tells whether a hold is of the very version that was processed. A
// deletion's is one above the last version.
func (h *Hold) speaksOf(seen Seen) bool {
	if h.UID == "" || h.UID != seen.UID {
		return false
	}
	if h.Cause == CauseApprovalDeleted {
		return seen.Gone && h.Generation == seen.Generation+1
	}
	return !seen.Gone && h.Generation == seen.Generation
}

// Merge intersects a further narrowing into h, which may be nil. The first
// version, its cause and its actor stay; two narrowing versions of an approval
// spend the act's name.
func (h *Hold) Merge(next Hold) Hold {
	if h == nil {
		return next
	}
	merged := *h
	merged.Granted &= next.Granted
	if next.State == StateRevoked {
		merged.State = StateRevoked
	}
	merged.ExpiresAt = earlier(h.ExpiresAt, next.ExpiresAt)
	switch {
	case !next.Cause.movesAct():
		merged.Mixed = h.Mixed || !merged.allowsAs(h)
	case !h.Cause.movesAct():
		// A human's narrowing outranks a machine's: the history must name it.
		merged.Cause, merged.Actor, merged.Reason = next.Cause, next.Actor, next.Reason
		merged.UID, merged.Generation, merged.Spent = next.UID, next.Generation, next.Spent
		merged.ThroughUID, merged.Through = next.ThroughUID, next.Through
		merged.Mixed = next.Mixed || !merged.allowsAs(&next)
	case h.UID != next.UID || h.Generation != next.Generation || next.Spent:
		merged.Spent = true
		merged.absorb(next)
	}
	return merged
}

// allowsAs tells whether two holds leave the same.
func (h *Hold) allowsAs(other *Hold) bool {
	return h.State == other.State && h.Granted == other.Granted && h.ExpiresAt.Equal(other.ExpiresAt)
}

// absorb records the newest version that narrowed.
func (h *Hold) absorb(next Hold) {
	uid, generation := h.ThroughUID, h.Through
	if generation == 0 {
		uid, generation = h.UID, h.Generation
	}
	if next.UID != uid || next.Generation > generation {
		h.ThroughUID, h.Through = next.UID, next.Generation
	}
}

// narrowsNothing tells whether merging next into what the row already holds
// would change nothing.
func narrowsNothing(row *Row, next Hold) bool {
	if row.Hold == nil {
		return false
	}
	merged := row.Hold.Merge(next)
	return merged.Equal(row.Hold)
}

// Narrowing returns the hold that version cur of the key's approval demands,
// if any. Only a version newer than the processed one counts, and only if it
// allows less than the row (marks and gates aside), asks for less than the
// version before it, or is revoked where the processed one was not: taking away
// from a grant that still waits for its digest is an act too. prev is the version
// handled before cur, nil if none; a nil cur is a deletion of prev, or of the
// processed object when prev is nil too.
//
// Where the object is another one than row.Seen.UID, the caller has confirmed
// live that it, or its absence, is the present state: a lagging view would
// else cost a fresh grant.
func Narrowing(row Row, prev, cur *Approval) (Hold, bool) {
	if cur != nil && row.Seen.UID == cur.UID && cur.Generation <= row.Seen.Generation {
		return Hold{}, false
	}
	if cur != nil && row.Seen.UID != "" && cur.UID != row.Seen.UID && !row.Seen.Gone {
		// Another object under the same name: the processed one was deleted.
		return withdrawn(row, row.Seen.UID, row.Seen.Generation+1, CauseApprovalDeleted, Actor{Assurance: ActorUnknown}, "")
	}
	if cur != nil && cur.mismatch(row.Key) != MismatchNone {
		spoke := prev != nil && prev.mismatch(row.Key) == MismatchNone
		if !spoke && (row.Seen.UID != cur.UID || row.Seen.Gone) {
			return Hold{}, false
		}
		return withdrawn(row, cur.UID, cur.Generation, CauseHuman, editor(prev, cur), given(row, prev, cur))
	}
	if cur == nil {
		uid, generation := row.Seen.UID, row.Seen.Generation
		if prev != nil {
			uid, generation = prev.UID, prev.Generation
		}
		other := prev != nil && prev.mismatch(row.Key) != MismatchNone && row.Seen.UID != uid
		if uid == "" || other || (row.Seen.UID == uid && row.Seen.Gone && generation <= row.Seen.Generation) {
			return Hold{}, false
		}
		return withdrawn(row, uid, generation+1, CauseApprovalDeleted, Actor{Assurance: ActorUnknown}, "")
	}
	hold := Hold{
		State: StateActive, Granted: row.Granted & cur.Capabilities, ExpiresAt: cur.ExpiresAt,
		Cause: CauseHuman, Actor: editor(prev, cur), Reason: given(row, prev, cur), UID: cur.UID, Generation: cur.Generation,
	}
	if cur.Revoked {
		hold.State, hold.Granted = StateRevoked, 0
	}
	newlyRevoked := cur.Revoked && !(row.Seen.UID == cur.UID && row.Seen.Revoked)
	less := allowsLess(row, cur) || lessThanBefore(prev, cur) || row.Seen.narrowedBy(cur)
	if !less && !newlyRevoked || narrowsNothing(&row, hold) {
		return Hold{}, false
	}
	return hold, true
}

// Loss returns the hold for a row whose installation was uninstalled or whose
// workspace was lost, if it still allows anything.
func Loss(row Row, cause Cause) (Hold, bool) {
	if row.State != StateActive && row.State != StateExpired {
		return Hold{}, false
	}
	hold := Hold{State: StateRevoked, Cause: cause, Actor: Actor{Assurance: ActorSystem}}
	return hold, !narrowsNothing(&row, hold)
}

// Differing returns the hold of a row whose objects are other ones than it was
// computed from, in what no narrowing says: a suspension, another principal,
// another version. It takes nothing away; while there is a hold nothing is
// allowed (Decide), and the next fence lifts it.
func Differing(row Row) (Hold, bool) {
	hold := Hold{
		State: StateActive, Granted: contract.AllCapabilities, Cause: CauseGateClosed, Actor: Actor{Assurance: ActorSystem},
	}
	return hold, row.State == StateActive && !narrowsNothing(&row, hold)
}

// takesNothing tells a hold that only marks a row as differing.
func (h *Hold) takesNothing() bool {
	return h.State == StateActive && h.Granted.Covers(contract.AllCapabilities) && h.ExpiresAt.IsZero() && !h.Cause.movesAct()
}

// Shrunk returns the hold for a manifest or a human policy that now allows
// less than the row grants: fewer capabilities, or an earlier end (zero for no
// limit).
func Shrunk(row Row, ceiling contract.CapabilitySet, latest time.Time, cause Cause) (Hold, bool) {
	if row.State != StateActive || ceiling.Covers(row.Granted) && !later(row.ExpiresAt, latest) {
		return Hold{}, false
	}
	hold := Hold{
		State: StateActive, Granted: row.Granted & ceiling, ExpiresAt: earlier(row.ExpiresAt, latest),
		Cause: cause, Actor: Actor{Assurance: ActorSystem},
	}
	return hold, !narrowsNothing(&row, hold)
}

// confirmed tells whether two humans stand behind the row's grant.
func (r *Row) confirmed(p Policy) bool { return p.confirms(r.ApprovedBy, r.ApprovedVia, r.ConfirmedBy) }

func withdrawn(row Row, uid string, generation int64, cause Cause, actor Actor, reason string) (Hold, bool) {
	hold := Hold{State: StateRevoked, Cause: cause, Actor: actor, Reason: reason, UID: uid, Generation: generation}
	return hold, !narrowsNothing(&row, hold)
}

// allowsLess compares a version with what the row lets through; marks and
// gates don't count.
func allowsLess(row Row, cur *Approval) bool {
	if row.State != StateActive {
		return false
	}
	granted, expires := row.Granted, row.ExpiresAt
	if row.Hold != nil {
		if row.Hold.State != StateActive {
			return false
		}
		granted &= row.Hold.Granted
		expires = earlier(expires, row.Hold.ExpiresAt)
	}
	return cur.Revoked || !cur.Capabilities.Covers(granted) || later(expires, cur.ExpiresAt)
}

// lessThanBefore compares a version with the one handled before it.
func lessThanBefore(prev, cur *Approval) bool {
	if prev == nil || prev.UID != cur.UID || cur.Generation <= prev.Generation {
		return false
	}
	return cur.Revoked && !prev.Revoked || !cur.Capabilities.Covers(prev.Capabilities) ||
		later(prev.ExpiresAt, cur.ExpiresAt)
}

// narrowedBy tells whether cur, the version that follows the processed one, asks
// for less than that did. It is for whoever has not handled the processed version
// and has nothing else to compare with. Of what is gone or revoked, nothing waits.
func (s Seen) narrowedBy(cur *Approval) bool {
	if s.UID != cur.UID || cur.Generation != s.Generation+1 || s.Gone || s.Revoked {
		return false
	}
	return !cur.asks().Covers(s.Asked) || later(s.Until, cur.ExpiresAt)
}

// given is the reason that came with a version. One that stood there before
// was about something else.
func given(row Row, prev, cur *Approval) string {
	before := row.Reason
	if prev != nil {
		before = prev.Reason
	}
	if cur.Reason == before {
		return ""
	}
	return cur.Reason
}

// editor attributes a narrowing edit: changedBy counts only when this very
// write changed it, otherwise nobody can say who wrote.
func editor(prev, cur *Approval) Actor {
	if prev != nil && cur.ChangedBy != "" && cur.ChangedBy != prev.ChangedBy {
		if cur.Checked {
			return Actor{Name: cur.ChangedBy, Assurance: ActorVerified}
		}
		return Actor{Name: cur.ChangedBy, Assurance: ActorClaimed}
	}
	return Actor{Assurance: ActorUnknown}
}

// unseen returns the hold for a history that nobody watched: it counts as
// revoked in between, and whatever stands there now does not speak for it.
func unseen(row Row, in Intent) (Hold, bool) {
	if !in.Unwatched(row) {
		return Hold{}, false
	}
	a := in.Approval
	hold := Hold{
		State: StateRevoked, Cause: CauseUnseenChange, Actor: Actor{Assurance: ActorUnknown},
		UID: a.UID, Generation: a.Generation, Spent: true,
	}
	return hold, !narrowsNothing(&row, hold)
}

// Narrowings lists the holds that a live reading demands of a row, in the
// order in which they are to be merged. in.WatchedFrom must be set.
func Narrowings(row Row, in Intent) []Hold {
	var holds []Hold
	add := func(hold Hold, ok bool) {
		if ok {
			holds = append(holds, hold)
		}
	}
	switch {
	case in.Installation == nil:
		add(Loss(row, CauseUninstalled))
	case in.Workspace == nil, row.rebound(in):
		add(Loss(row, CauseWorkspaceRemoved))
	}
	// What the approval takes away is an act, whatever else is lost.
	add(Narrowing(row, nil, in.Approval))
	add(unseen(row, in))
	if in.Installation != nil {
		ceiling := in.Policy.ceiling(row.confirmed(in.Policy))
		add(Shrunk(row, ceiling, in.Policy.latest(row.Granted&ceiling, row.IssuedAt), CausePolicyChanged))
		add(Shrunk(row, in.Installation.Declared, time.Time{}, CauseManifestChanged))
	}
	return holds
}
