package authority

import (
	"time"

	"github.com/kandev/plugin-host/contract"
)

// EventType classifies a revision for the reader of the history.
type EventType string

// The event types. UpgradeReview is every revision that was computed again
// without a human act and widened no grant: a manifest, a policy, an opened
// gate, a rebuilt store.
const (
	EventGrant         EventType = "Grant"
	EventNarrow        EventType = "Narrow"
	EventRevoke        EventType = "Revoke"
	EventUpgradeReview EventType = "UpgradeReview"
)

// ReviewReason says why what an approval asks for does not widen.
type ReviewReason string

// The review reasons.
const (
	ReviewActAlreadyUsed       ReviewReason = "ActAlreadyUsed"
	ReviewDigestNotInForce     ReviewReason = "DigestNotInForce"
	ReviewWorkspaceMismatch    ReviewReason = "WorkspaceMismatch"
	ReviewInstallationMismatch ReviewReason = "InstallationMismatch"
	// ReviewNotVerified: the version came while the admission policies were not
	// proven in force.
	ReviewNotVerified ReviewReason = "NotVerified"
	// ReviewConfirmationRequired: the human policy asks for a second human.
	ReviewConfirmationRequired ReviewReason = "ConfirmationRequired"
)

// Review is what a human has to look at before an approval can widen.
type Review struct {
	Reason ReviewReason
	// Widens lists what the approval asks for and does not get.
	Widens contract.CapabilitySet
	// Reactivates: it asks for Active while the row is not.
	Reactivates bool
	// Extends: it asks for a later expiry.
	Extends bool
	// Act is the name that the next act must supersede, and Digest the
	// manifest it must name.
	Act    string
	Digest string
}

// Outcome is what Compute found.
type Outcome struct {
	// Changed: a new revision is due. Otherwise only Next.Seen may differ
	// from the row.
	Changed bool
	// Next is the row as it should be; its Revision is one more when Changed.
	Next Row
	// Type, and in Next the cause and the actor, are set when Changed.
	Type EventType
	// Review is nil when the approval gets all it asks for.
	Review *Review
}

// Compute is the "compute" step of a pass: it applies the row's hold, the
// approval, the manifest, the policy and the gates, in this order, and tells
// whether that is a new revision. It is a pure function of what was read;
// name is an unpredictable act name to use if an act is due (see NewActSuffix).
//
// A widening needs an act (I7): the approval names the current act as the one
// it supersedes and the digest in force, and no other version has spent the
// name. Everything else only narrows.
func Compute(row Row, in Intent, now time.Time, name string) Outcome {
	c := computation{row: row, in: in, now: now, next: row}
	c.next.Hold, c.next.Starting = nil, false
	c.approval = in.speaking(row.Key)

	c.applyHold()
	c.applyHistory()
	c.applyApproval()
	c.applyCeiling()
	c.applyExpiry()
	c.applyGates()
	return c.outcome(name)
}

type computation struct {
	row  Row
	in   Intent
	now  time.Time
	next Row

	approval *Approval
	// act: an act was admitted. moved: the act's name moves. spent: no
	// approval can use the current name any more.
	act, moved, spent bool

	cause  Cause
	actor  Actor
	reason string
}

// because records the first cause; later ones of the same pass are part of it.
func (c *computation) because(cause Cause, actor Actor, reason string) {
	if c.cause == "" {
		c.cause, c.actor, c.reason = cause, actor, reason
	}
}

func system() Actor { return Actor{Assurance: ActorSystem} }

func (c *computation) applyHold() {
	hold := c.row.Hold
	if hold == nil {
		return
	}
	c.next.Granted &= hold.Granted
	c.next.ExpiresAt = earlier(c.next.ExpiresAt, hold.ExpiresAt)
	if hold.State == StateRevoked {
		c.revoke()
	}
	if hold.Cause.movesAct() {
		c.moved = true
		c.spent = hold.Spent || c.approval == nil ||
			hold.UID != c.approval.UID || hold.Generation != c.approval.Generation
	}
	if !hold.takesNothing() {
		c.because(hold.Cause, hold.Actor, hold.Reason)
	}
}

// applyHistory treats what happened between the processed version and this
// one while nobody watched as one revocation.
func (c *computation) applyHistory() {
	a := c.approval
	if a == nil {
		return
	}
	seen := c.row.Seen
	if seen.UID != "" && seen.UID != a.UID && !seen.Gone {
		c.withdraw(CauseApprovalDeleted)
		return
	}
	if c.in.Unwatched(c.row) {
		c.withdraw(CauseUnseenChange)
	}
}

func (c *computation) withdraw(cause Cause) {
	c.revoke()
	c.moved, c.spent = true, true
	c.because(cause, Actor{Assurance: ActorUnknown}, "")
}

func (c *computation) revoke() {
	c.next.State, c.next.Granted = StateRevoked, 0
}

func (c *computation) applyApproval() {
	if c.in.Workspace == nil || c.row.rebound(c.in) {
		c.loseWorkspace()
	}
	switch {
	case c.approval == nil:
		c.applyAbsence()
	case c.in.Installation != nil && c.in.Workspace != nil && c.admits():
		c.applyAct()
	default:
		c.narrow()
	}
	if c.in.Installation == nil && (c.next.State == StateActive || c.next.State == StateExpired) {
		c.revoke()
		c.because(CauseUninstalled, system(), "")
	}
	// Before the first revision, an approval in a workspace that is not there
	// has not been processed: it never waited, so it can't be lost.
	if c.approval != nil && (c.in.Workspace != nil || c.row.Revision > 0 || c.moved) {
		c.next.Seen = c.next.Seen.advance(c.approval)
	}
}

// advance moves seen forward and never back.
func (s Seen) advance(a *Approval) Seen {
	if s.UID == a.UID && a.Generation < s.Generation {
		return s
	}
	return Seen{
		UID: a.UID, Generation: a.Generation, Revoked: a.Revoked,
		Asked: a.asks(), Until: a.ExpiresAt.UTC().Truncate(time.Microsecond), // as stored
	}
}

// admits tells whether the approval in front of us is the next act. Names are
// compared whole, here and, through the row's revision, in the fence.
func (c *computation) admits() bool {
	return !c.spent && c.approval.SupersedesAct == c.row.Act &&
		c.approval.ManifestDigest == c.in.Installation.ManifestDigest &&
		c.approval.Checked && !c.unconfirmed()
}

// unconfirmed tells whether the approval asks for what a second human has to
// confirm, and none has. Such a spec is no act yet and spends nothing.
func (c *computation) unconfirmed() bool {
	a, p := c.approval, c.in.Policy
	asked := a.Capabilities & c.in.Installation.Declared & p.Allowed
	return !a.Revoked && asked&p.FourEyes != 0 && !p.confirms(a.ApprovedBy, a.ApprovedVia, a.ConfirmedBy)
}

func (c *computation) applyAct() {
	a := c.approval
	c.act, c.moved = true, true
	c.next.State = StateActive
	c.next.Granted = a.Capabilities // as far as the ceiling allows
	c.next.ExpiresAt = a.ExpiresAt
	if a.Revoked {
		c.revoke()
	}
	c.next.ApprovedBy, c.next.ApprovedVia, c.next.ConfirmedBy = a.ApprovedBy, a.ApprovedVia, a.ConfirmedBy
	c.next.IssuedAt = c.now
	c.next.Unproven = false
	c.cause, c.actor, c.reason = CauseHuman, a.approver(), a.Reason
}

// narrow lets the approval take away, which needs no name and no digest.
func (c *computation) narrow() {
	a, before := c.approval, c.next
	if c.row.Seen.narrowedBy(a) {
		// What was taken away may only have waited, so that it was never granted.
		c.moved = true
		c.because(CauseHuman, Actor{Assurance: ActorUnknown}, given(c.row, nil, a))
	}
	if c.next.State == StateNone {
		return
	}
	c.next.Granted &= a.Capabilities
	if c.next.State == StateActive {
		c.next.ExpiresAt = earlier(c.next.ExpiresAt, a.ExpiresAt)
	}
	if a.Revoked {
		c.revoke()
	}
	if c.next.Granted != before.Granted || c.next.State != before.State || !c.next.ExpiresAt.Equal(before.ExpiresAt) {
		c.moved = true
		c.because(CauseHuman, Actor{Assurance: ActorUnknown}, given(c.row, nil, a))
	}
}

// applyAbsence: no approval speaks for this key.
func (c *computation) applyAbsence() {
	if c.next.State == StateActive || c.next.State == StateExpired ||
		c.row.Seen.UID != "" && !c.row.Seen.Gone {
		c.withdraw(c.absenceCause())
	}
	if h := c.row.Hold; h != nil && h.UID != "" && (c.next.Seen.UID == "" || c.next.Seen.UID == h.UID) {
		// An object that came and went between two passes.
		c.next.Seen.UID, c.next.Seen.Generation = h.UID, max(c.next.Seen.Generation, h.Generation)
	}
	if c.next.Seen.UID == "" {
		return
	}
	c.next.Seen.Gone = true
	if a := c.in.Approval; a != nil && a.UID == c.next.Seen.UID {
		c.next.Seen.Generation = max(c.next.Seen.Generation, a.Generation)
	}
}

// loseWorkspace revokes once for each loss, and also what only waits: a grant
// that was armed for a manifest must not fire in a namespace labelled anew.
func (c *computation) loseWorkspace() {
	waits := c.row.Revision == 0 && c.row.Seen.UID != "" && !c.row.Seen.Gone
	if c.row.Vector.WorkspaceNamespaceUID == "" && !waits {
		return
	}
	c.revoke()
	c.moved, c.spent = true, true
	c.because(CauseWorkspaceRemoved, system(), "")
	c.next.Vector.WorkspaceNamespace, c.next.Vector.WorkspaceNamespaceUID = "", ""
	c.next.Sum = c.next.Vector.Sum()
}

// absenceCause: an object that stopped naming the key was edited, not deleted.
func (c *computation) absenceCause() Cause {
	if a := c.in.Approval; a != nil && a.UID == c.row.Seen.UID {
		return CauseHuman
	}
	return CauseApprovalDeleted
}

// applyCeiling clips the grant for good at the manifest and the policy, and
// takes in the vector. A row that was never approved follows neither.
func (c *computation) applyCeiling() {
	installation := c.in.Installation
	if installation == nil || c.in.Workspace == nil || (c.next.Revision == 0 && !c.moved) {
		return
	}
	c.next.Declared, c.next.Required = installation.Declared, installation.Required
	c.next.Allowed = c.in.Policy.ceiling(c.next.confirmed(c.in.Policy))
	c.next.Granted &= c.next.Declared & c.next.Allowed
	if c.next.State == StateActive {
		c.next.ExpiresAt = earlier(c.next.ExpiresAt, c.in.Policy.latest(c.next.Granted, c.next.IssuedAt))
	}
	vector := VectorOf(installation, c.in.Workspace, c.in.Policy)
	vector.ApprovalUID = c.row.Vector.ApprovalUID
	if c.approval != nil {
		vector.ApprovalUID = c.approval.UID
	}
	c.next.Vector, c.next.Sum = vector, vector.Sum()

	was := c.row.Vector
	switch {
	case c.row.Revision == 0:
	case was.InstallationUID != vector.InstallationUID || was.Version != vector.Version ||
		was.ManifestDigest != vector.ManifestDigest ||
		c.row.Declared != c.next.Declared || c.row.Required != c.next.Required:
		c.because(CauseManifestChanged, system(), "")
	case was.PolicyVersion != vector.PolicyVersion || c.row.Allowed != c.next.Allowed:
		c.because(CausePolicyChanged, system(), "")
	}
}

func (c *computation) applyExpiry() {
	if c.next.State == StateActive && reached(c.next.ExpiresAt, c.now) {
		c.next.State = StateExpired
		c.because(CauseExpired, system(), "")
	}
}

func (c *computation) applyGates() {
	installation := c.in.Installation
	if installation == nil || c.in.Workspace == nil || (c.next.Revision == 0 && !c.moved) {
		return
	}
	gates := c.in.GatesAround()
	// From the grant alone, other gates aside, or it would latch itself.
	if c.next.State == StateActive && !c.next.Granted.Covers(c.next.Required) {
		gates |= GateRequiredCapabilityUnavailable
	}
	closed, opened := gates&^c.row.Gates, c.row.Gates&^gates
	c.next.Gates = gates
	switch principal := !c.next.Vector.samePrincipal(c.row.Vector); {
	case c.row.Revision == 0:
	case closed&GateSuspended != 0:
		c.because(CauseSuspended, system(), "")
	case opened&GateSuspended != 0:
		c.because(CauseResumed, system(), "")
	case (closed|opened)&GatePrincipalChanged != 0 || principal:
		c.because(CausePrincipalChanged, system(), "")
	case closed != 0:
		c.because(CauseGateClosed, system(), "")
	case opened != 0:
		c.because(CauseGateOpened, system(), "")
	case c.row.Vector.WorkspaceNamespaceUID == "":
		c.because(CauseGateOpened, system(), "the workspace is bound to a namespace again")
	}
}

func (c *computation) outcome(name string) Outcome {
	out := Outcome{Next: c.next}
	out.Changed = c.moved || c.row.Hold != nil || c.row.Starting
	if c.row.Revision > 0 {
		out.Changed = out.Changed || c.next.State != c.row.State || c.next.Granted != c.row.Granted ||
			!c.next.ExpiresAt.Equal(c.row.ExpiresAt) || c.next.Gates != c.row.Gates ||
			c.next.Sum != c.row.Sum || c.next.Declared != c.row.Declared || c.next.Required != c.row.Required || c.next.Allowed != c.row.Allowed
	}
	if out.Changed {
		out.Next.Revision = c.row.Revision + 1
		out.Next.UpdatedAt = c.now
		if c.next.State == StateNone {
			out.Next.State = StateRevoked
		}
		if c.moved {
			out.Next.Act = ActName(out.Next.Revision, name)
		}
		if c.row.Hold != nil && !c.row.Starting {
			c.because(CauseGateOpened, system(), "what differed from the objects is as it was")
		}
		c.because(CauseStoreEpoch, system(), "")
		out.Next.Cause, out.Next.Actor, out.Next.Reason = c.cause, c.actor, c.reason
		out.Type = c.eventType(out.Next)
	}
	out.Review = c.review(out.Next)
	return out
}

func (c *computation) eventType(next Row) EventType {
	was := c.row
	shrunk := was.State == StateActive && (!next.Granted.Covers(was.Granted) || later(was.ExpiresAt, next.ExpiresAt))
	grown := was.State != StateActive || !was.Granted.Covers(next.Granted) || later(next.ExpiresAt, was.ExpiresAt)
	switch {
	case next.State != StateActive && (was.State == StateActive || c.moved):
		return EventRevoke
	case c.act && (grown || !shrunk):
		return EventGrant
	case c.cause == CauseManifestChanged:
		return EventUpgradeReview
	case shrunk || next.Gates&^was.Gates != 0 || c.moved:
		return EventNarrow
	default:
		return EventUpgradeReview
	}
}

// review says what the approval asks for beyond next, and what it would take.
func (c *computation) review(next Row) *Review {
	if c.in.Installation == nil || c.in.Workspace == nil || c.in.Approval == nil {
		return nil
	}
	r := Review{Act: next.Act, Digest: c.in.Installation.ManifestDigest}
	switch c.in.Approval.mismatch(c.row.Key) {
	case MismatchInstallation:
		r.Reason = ReviewInstallationMismatch
		r.Widens = c.in.Approval.Capabilities
		return &r
	case MismatchWorkspace:
		r.Reason = ReviewWorkspaceMismatch
		r.Widens = c.in.Approval.Capabilities
		return &r
	case MismatchNone:
	}
	a := c.approval
	if c.act || a.Revoked {
		return nil
	}
	r.Widens = a.Capabilities & c.in.Installation.Declared & c.in.Policy.Allowed &^ next.Granted
	r.Reactivates = next.State != StateActive
	// What the policy caps is no wish that a human could grant.
	asked := earlier(a.ExpiresAt, c.in.Policy.latest(next.Granted, next.IssuedAt))
	r.Extends = next.State == StateActive && later(asked, next.ExpiresAt)
	if r.Widens == 0 && !r.Reactivates && !r.Extends {
		return nil
	}
	switch {
	case a.SupersedesAct != next.Act:
		r.Reason = ReviewActAlreadyUsed
	case a.ManifestDigest != c.in.Installation.ManifestDigest:
		r.Reason = ReviewDigestNotInForce
	case !a.Checked:
		r.Reason = ReviewNotVerified
	default:
		r.Reason = ReviewConfirmationRequired
	}
	return &r
}
