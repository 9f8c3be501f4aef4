package authority

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/kandev/plugin-host/contract"
)

// Key names one authority row.
type Key struct {
	InstallationID string
	WorkspaceID    string
}

// State is the lasting state of a row.
type State uint8

// The states of a row. StateNone is a row of revision 0: it exists only to
// carry what was seen or held before the first revision, and authorises
// nothing.
const (
	StateNone State = iota
	StateActive
	StateRevoked
	StateExpired
)

func (s State) String() string {
	switch s {
	case StateActive:
		return "Active"
	case StateRevoked:
		return "Revoked"
	case StateExpired:
		return "Expired"
	default:
		return "None"
	}
}

// ParseState is the inverse of State.String.
func ParseState(text string) (State, bool) {
	for _, s := range []State{StateActive, StateRevoked, StateExpired, StateNone} {
		if s.String() == text {
			return s, true
		}
	}
	return StateNone, false
}

// Gates is a set of temporary blocks. Closing or opening one is a revision but
// no human act, and opening one is no widening.
type Gates uint8

// The gates.
const (
	GateSuspended Gates = 1 << iota
	GateServiceAccountConflict
	GateWorkspaceConflict
	GateHostVersionUnsupported
	GatePrincipalChanged
	GateRequiredCapabilityUnavailable
)

var gateNames = [...]struct {
	gate Gates
	name string
}{
	{GateSuspended, "Suspended"},
	{GateServiceAccountConflict, "ServiceAccountConflict"},
	{GateWorkspaceConflict, "WorkspaceConflict"},
	{GateHostVersionUnsupported, "HostVersionUnsupported"},
	{GatePrincipalChanged, "PrincipalChanged"},
	{GateRequiredCapabilityUnavailable, "RequiredCapabilityUnavailable"},
}

// Names lists the closed gates in a fixed order; never nil.
func (g Gates) Names() []string {
	names := make([]string, 0, len(gateNames))
	for _, row := range gateNames {
		if g&row.gate != 0 {
			names = append(names, row.name)
		}
	}
	return names
}

// ParseGates returns the set that names lists; ok is false for an unknown one.
func ParseGates(names []string) (g Gates, ok bool) {
	for _, name := range names {
		found := false
		for _, row := range gateNames {
			if row.name == name {
				g |= row.gate
				found = true
			}
		}
		if !found {
			return 0, false
		}
	}
	return g, true
}

// Seen is the version of an approval object that was processed last.
type Seen struct {
	UID        string
	Generation int64
	// Gone: the object of this UID is known to be deleted, or to have stopped
	// naming this row.
	Gone bool
	// Revoked: the processed version asked for Revoked.
	Revoked bool
	// Asked and Until are the capabilities and the expiry that it asked for, zero
	// for no expiry, to compare the next version with. Where that is not known
	// (Unrecorded), whatever follows is narrower.
	Asked contract.CapabilitySet
	Until time.Time
}

const (
	// unknownIDs stands in Seen.Asked for IDs that this Host doesn't know. One that
	// does know them couldn't else tell that the next version leaves them out.
	unknownIDs = contract.CapabilitySet(1 << 63)
	// unrecorded is covered by nothing that can be asked for.
	unrecorded = ^contract.CapabilitySet(0)
)

// Unrecorded returns s without what the version asked for, as it is in rows and
// events that were written before this was kept.
func (s Seen) Unrecorded() Seen {
	if s.UID != "" {
		s.Asked, s.Until = unrecorded, time.Time{}
	}
	return s
}

// Recorded tells whether it is known, in IDs, what the version asked for. Events
// leave out what isn't.
func (s Seen) Recorded() bool { return s.UID != "" && contract.AllCapabilities.Covers(s.Asked) }

// Before tells whether (uid, generation) is another version than s, and, for
// the same object, a later one.
func (s Seen) Before(uid string, generation int64) bool {
	return s.UID != uid || generation > s.Generation
}

// Later returns the later of two marks: seen never goes back. Marks of two
// objects can't be ordered by themselves, so the receiver, which the row
// holds, gives way.
func (s Seen) Later(next Seen) Seen {
	if next == (Seen{}) || (s.UID == next.UID && s.Generation > next.Generation) {
		return s
	}
	return next
}

// Vector is what a revision depends on besides the approval's own content. If
// what the Host watches differs from it, the row is not up to date.
type Vector struct {
	// ApprovalUID is recorded and not compared: Seen says which object counts.
	ApprovalUID             string
	InstallationUID         string
	Version                 string
	ManifestDigest          string
	Suspended               bool
	ServiceAccountNamespace string
	ServiceAccountName      string
	// ServiceAccountUID and ServiceAccountNamespaceUID are the pinned
	// principal that was reviewed.
	ServiceAccountUID          string
	ServiceAccountNamespaceUID string
	WorkspaceNamespace         string
	WorkspaceNamespaceUID      string
	WorkspaceID                string
	PolicyVersion              string
}

// VectorSum identifies a vector for comparison on the request path.
type VectorSum [16]byte

// samePrincipal compares the ServiceAccount, by name and as pinned.
func (v Vector) samePrincipal(other Vector) bool {
	return v.ServiceAccountNamespace == other.ServiceAccountNamespace && v.ServiceAccountName == other.ServiceAccountName &&
		v.ServiceAccountUID == other.ServiceAccountUID && v.ServiceAccountNamespaceUID == other.ServiceAccountNamespaceUID
}

// Sum returns the vector's identity: SHA-256 over its compared fields, each
// with its length, cut to 16 bytes.
func (v Vector) Sum() VectorSum {
	hash := sha256.New()
	var length [8]byte
	for _, field := range []string{
		v.InstallationUID, v.Version, v.ManifestDigest, v.ServiceAccountNamespace, v.ServiceAccountName,
		v.ServiceAccountUID, v.ServiceAccountNamespaceUID, v.WorkspaceNamespace, v.WorkspaceNamespaceUID,
		v.WorkspaceID, v.PolicyVersion,
	} {
		binary.BigEndian.PutUint64(length[:], uint64(len(field)))
		hash.Write(length[:])
		hash.Write([]byte(field))
	}
	if v.Suspended {
		hash.Write([]byte{1})
	}
	var sum VectorSum
	copy(sum[:], hash.Sum(nil))
	return sum
}

// Assurance says how far an actor's name can be trusted.
type Assurance string

// The assurances of an actor.
const (
	ActorVerified Assurance = "Verified"
	ActorClaimed  Assurance = "Claimed"
	ActorUnknown  Assurance = "Unknown"
	ActorSystem   Assurance = "System"
)

// Actor is who a change is attributed to. Name is empty when unknown.
type Actor struct {
	Name      string
	Assurance Assurance
}

// Row is the serialisation point of one (installation, workspace): what is in
// force. It changes only inside the fence transaction, except for Hold (any
// replica may narrow) and Seen.
type Row struct {
	Key Key
	// Revision is the one sequence of this key (I3); 0 is "never approved".
	Revision uint64
	// Act names the last human act, "" before the first.
	Act   string
	State State
	// Granted is what the last act granted, shrunk by everything since.
	Granted contract.CapabilitySet
	// Declared, Required and Allowed are the manifest's ceiling, its required
	// part and the human policy, as of this revision.
	Declared contract.CapabilitySet
	Required contract.CapabilitySet
	Allowed  contract.CapabilitySet
	// ExpiresAt is zero for no expiry.
	ExpiresAt time.Time
	Gates     Gates
	// Hold is a narrowing that is in effect and not yet a revision.
	Hold *Hold
	// Starting: rebuilt from an event and not yet computed from live objects.
	Starting bool
	Vector   Vector
	Sum      VectorSum
	Seen     Seen
	Actor    Actor
	Cause    Cause
	Reason   string
	// ApprovedBy is the human of the last act, as recorded; ApprovedVia the
	// GitOps identity that claimed the name, "" when the human wrote; ConfirmedBy
	// the second human, if any.
	ApprovedBy  string
	ApprovedVia string
	ConfirmedBy string
	// IssuedAt is when the last act came into force, UpdatedAt when this
	// revision did.
	IssuedAt  time.Time
	UpdatedAt time.Time
	AuditID   string
	// EventHash is the hash of this revision's event, the link for the next.
	EventHash string
	// Unproven: granted before the admission policies were proven in force. It
	// is history: a later act is admitted only while they are.
	Unproven bool

	// ReadAt is the store's clock, to the microsecond, when the row was read to
	// compute the next one from it: what is read after it is no older. The zero
	// time is unknown. Like Uncompared it is of one reading of the row and no part
	// of any record.
	ReadAt time.Time `json:"-"`
	// Uncompared: the row was computed from what was read longer ago than a lease
	// lasts, and no round of freshness that began after its fence has renewed the
	// lease. What was revoked while it was computed shows in neither, so that
	// nothing is allowed by it yet (design/authority.md, freshness). Only a row
	// that was read for a decision says so.
	Uncompared bool `json:"-"`
}

// Expired tells whether the row's expiry, or its hold's, has come.
func (r *Row) Expired(now time.Time) bool {
	if reached(r.ExpiresAt, now) {
		return true
	}
	return r.Hold != nil && reached(r.Hold.ExpiresAt, now)
}

// Effective is what works now (I2): nothing unless the row is active, no gate
// is closed, it was computed from live objects and has not expired; otherwise
// granted ∩ hold ∩ declared ∩ human policy.
func (r *Row) Effective(now time.Time) contract.CapabilitySet {
	if r.State != StateActive || r.Gates != 0 || r.Starting || r.Expired(now) {
		return 0
	}
	effective := r.Granted & r.Declared & r.Allowed
	if r.Hold != nil {
		if r.Hold.State != StateActive {
			return 0
		}
		effective &= r.Hold.Granted
	}
	return effective
}

func reached(deadline, now time.Time) bool { return !deadline.IsZero() && !now.Before(deadline) }

// earlier returns the earlier of two expiries, where zero is "never".
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// later tells whether expiry a grants longer than expiry b.
func later(a, b time.Time) bool { return !b.IsZero() && (a.IsZero() || a.After(b)) }
