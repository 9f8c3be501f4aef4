package authority

import (
	"time"

	"github.com/kandev/plugin-host/contract"
)

// Cause says why a revision came about.
type Cause string

// The causes of a revision.
const (
	CauseHuman            Cause = "Human"
	CauseExpired          Cause = "Expired"
	CauseApprovalDeleted  Cause = "ApprovalDeleted"
	CauseUninstalled      Cause = "Uninstalled"
	CauseWorkspaceRemoved Cause = "WorkspaceRemoved"
	CauseManifestChanged  Cause = "ManifestChanged"
	CausePolicyChanged    Cause = "PolicyChanged"
	CauseSuspended        Cause = "Suspended"
	CauseResumed          Cause = "Resumed"
	CausePrincipalChanged Cause = "PrincipalChanged"
	CauseGateClosed       Cause = "GateClosed"
	CauseGateOpened       Cause = "GateOpened"
	CauseUnseenChange     Cause = "UnseenChange"
	CauseStoreEpoch       Cause = "StoreEpoch"
)

// movesAct tells whether a narrowing of this cause spends the act's name.
// What machines do (manifests, expiry, policy, uninstall) leaves it alone, so
// that a renewal in review is not invalidated by routine.
func (c Cause) movesAct() bool {
	switch c {
	case CauseHuman, CauseApprovalDeleted, CauseWorkspaceRemoved, CauseUnseenChange:
		return true
	default:
		return false
	}
}

// Intent is what humans ask for and what the cluster says about one key, read
// live and uncached in one go.
type Intent struct {
	// Approval is nil when absent or with a deletion timestamp.
	Approval *Approval
	// Installation is nil when uninstalled.
	Installation *Installation
	// Workspace is nil when the workspace has no live, bound namespace.
	Workspace *Workspace
	Policy    Policy
	// WatchedFrom is the earliest generation of Approval from which on this
	// process has compared every later version, up to this one, with the version
	// before it; 0 when it has not handled this one.
	// Compute and Narrowings need it (Unwatched): without it, an approval that
	// has grown by two generations counts as revoked in between.
	WatchedFrom int64
}

// Approval is the spec of an approval object.
type Approval struct {
	UID            string
	Generation     int64
	InstallationID string
	WorkspaceID    string
	ManifestDigest string
	SupersedesAct  string
	Capabilities   contract.CapabilitySet
	// Unknown are IDs that this Host does not know; they grant nothing.
	Unknown    []string
	Revoked    bool
	ExpiresAt  time.Time
	ApprovedBy string
	// ApprovedVia is the GitOps identity that claims ApprovedBy, "" when the
	// human wrote; ConfirmedBy the second human, if any.
	ApprovedVia string
	ConfirmedBy string
	ChangedBy   string
	Reason      string
	// Checked: the admission policies were proven in force when this version
	// came, so the names in it are what they verified. Without it no act is
	// admitted.
	Checked bool
}

// asks returns the capabilities that a asks for, with a mark for those that this
// Host doesn't know.
func (a *Approval) asks() contract.CapabilitySet {
	if len(a.Unknown) > 0 {
		return a.Capabilities | unknownIDs
	}
	return a.Capabilities
}

// Installation is an installation object as accepted, with its manifest.
type Installation struct {
	UID            string
	ID             string
	Name           string
	Version        string
	ManifestDigest string
	Declared       contract.CapabilitySet
	Required       contract.CapabilitySet
	Suspended      bool

	HostVersionUnsupported bool
	ServiceAccountConflict bool
	// PrincipalChanged: the live ServiceAccount or its namespace is not the
	// pinned one, or the reference moved, and no human has acknowledged it.
	PrincipalChanged bool

	ServiceAccountNamespace    string
	ServiceAccountName         string
	ServiceAccountUID          string
	ServiceAccountNamespaceUID string
}

// Workspace is a workspace's durable binding to a live namespace.
type Workspace struct {
	ID           string
	Namespace    string
	NamespaceUID string
	// Conflict: another namespace claims the same ID.
	Conflict bool
}

// Mismatch says why an approval object does not speak for a key.
type Mismatch string

// The mismatches.
const (
	MismatchNone         Mismatch = ""
	MismatchInstallation Mismatch = "InstallationMismatch"
	MismatchWorkspace    Mismatch = "WorkspaceMismatch"
)

// approver says how far the name of the act's human can be trusted.
func (a *Approval) approver() Actor {
	if a.Checked && a.ApprovedVia == "" {
		return Actor{Name: a.ApprovedBy, Assurance: ActorVerified}
	}
	return Actor{Name: a.ApprovedBy, Assurance: ActorClaimed}
}

// mismatch tells whether the approval speaks for key at all. A workspace or an
// installation other than the reviewed one counts as an absent approval: else
// moving a label would spend a used manifest in another workspace.
func (a *Approval) mismatch(key Key) Mismatch {
	switch {
	case a.InstallationID != key.InstallationID:
		return MismatchInstallation
	case a.WorkspaceID != key.WorkspaceID:
		return MismatchWorkspace
	default:
		return MismatchNone
	}
}

// speaking returns the approval that counts for key, or nil.
func (in Intent) speaking(key Key) *Approval {
	if in.Approval == nil || in.Approval.mismatch(key) != MismatchNone {
		return nil
	}
	return in.Approval
}

// GatesAround are the gates that the objects around an approval close. There
// must be an installation and a workspace.
func (in Intent) GatesAround() Gates {
	var gates Gates
	for _, g := range []struct {
		closed bool
		gate   Gates
	}{
		{in.Installation.Suspended, GateSuspended},
		{in.Installation.ServiceAccountConflict, GateServiceAccountConflict},
		{in.Workspace.Conflict, GateWorkspaceConflict},
		{in.Installation.HostVersionUnsupported, GateHostVersionUnsupported},
		{in.Installation.PrincipalChanged, GatePrincipalChanged},
	} {
		if g.closed {
			gates |= g.gate
		}
	}
	return gates
}

// Unwatched tells whether some version of the key's approval, up to this one, may
// have taken away from the one before without anybody having compared the two.
//
// Each version has to be compared with the one before it, by the watch handler or
// with the row: what waits for its digest is nowhere else, and a later version that
// asks for it again by the same act would bring it back (I7). The handler compares
// what it handles, but for the first; the row says what the processed version asked
// for, and so does for the very next one (Seen). So the history of an approval that
// has grown by two or more is known to who watched from the processed version on,
// that version included: who began to watch one later has never seen what that one
// took away. Whether it did is not known, so it counts as revoked.
func (in Intent) Unwatched(row Row) bool {
	a := in.speaking(row.Key)
	if a == nil {
		return false
	}
	from := in.WatchedFrom
	if from == 0 {
		from = a.Generation
	}
	if row.Seen.UID != a.UID {
		return from > 1
	}
	return a.Generation > row.Seen.Generation+1 && from > row.Seen.Generation
}

// rebound tells whether the workspace is bound to another namespace than the
// one that the row was computed for. A new binding starts with no authority.
func (r *Row) rebound(in Intent) bool {
	was := r.Vector.WorkspaceNamespaceUID
	return was != "" && in.Workspace != nil && in.Workspace.NamespaceUID != was
}

// VectorOf returns the vector of an installation in a workspace under a
// policy: the one function for the controllers, which record it, and for the
// Host, which compares it.
func VectorOf(installation *Installation, workspace *Workspace, policy Policy) Vector {
	var v Vector
	if installation != nil {
		v.InstallationUID = installation.UID
		v.Version = installation.Version
		v.ManifestDigest = installation.ManifestDigest
		v.Suspended = installation.Suspended
		v.ServiceAccountNamespace = installation.ServiceAccountNamespace
		v.ServiceAccountName = installation.ServiceAccountName
		v.ServiceAccountUID = installation.ServiceAccountUID
		v.ServiceAccountNamespaceUID = installation.ServiceAccountNamespaceUID
	}
	if workspace != nil {
		v.WorkspaceID = workspace.ID
		v.WorkspaceNamespace = workspace.Namespace
		v.WorkspaceNamespaceUID = workspace.NamespaceUID
	}
	v.PolicyVersion = policy.Version
	return v
}
