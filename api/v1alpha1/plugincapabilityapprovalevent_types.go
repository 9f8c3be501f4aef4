package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// EventType is what a revision did to the grant.
//
// +kubebuilder:validation:Enum=Grant;Narrow;Revoke;UpgradeReview
type EventType string

const (
	// EventGrant: something works that didn't before.
	EventGrant EventType = "Grant"
	// EventNarrow: something doesn't work any more.
	EventNarrow EventType = "Narrow"
	// EventRevoke: nothing is left.
	EventRevoke EventType = "Revoke"
	// EventUpgradeReview: another version or manifest is in force.
	EventUpgradeReview EventType = "UpgradeReview"
)

// EventCause is what made the controllers write a revision.
//
// +kubebuilder:validation:Enum=Human;Expired;ApprovalDeleted;Uninstalled;WorkspaceRemoved;ManifestChanged;PolicyChanged;Suspended;Resumed;PrincipalChanged;GateClosed;GateOpened;UnseenChange;StoreEpoch
type EventCause string

const (
	// CauseHuman: an edit of the approval.
	CauseHuman EventCause = "Human"
	// CauseExpired: expiresAt has passed.
	CauseExpired EventCause = "Expired"
	// CauseApprovalDeleted: the approval was deleted.
	CauseApprovalDeleted EventCause = "ApprovalDeleted"
	// CauseUninstalled: the installation was deleted.
	CauseUninstalled EventCause = "Uninstalled"
	// CauseWorkspaceRemoved: the namespace lost its label or is gone.
	CauseWorkspaceRemoved EventCause = "WorkspaceRemoved"
	// CauseManifestChanged: version or manifest of the installation changed.
	CauseManifestChanged EventCause = "ManifestChanged"
	// CausePolicyChanged: another human policy is in force.
	CausePolicyChanged EventCause = "PolicyChanged"
	// CauseSuspended: the installation was suspended.
	CauseSuspended EventCause = "Suspended"
	// CauseResumed: the installation isn't suspended any more.
	CauseResumed EventCause = "Resumed"
	// CausePrincipalChanged: the ServiceAccount or its namespace changed.
	CausePrincipalChanged EventCause = "PrincipalChanged"
	// CauseGateClosed: another gate closed.
	CauseGateClosed EventCause = "GateClosed"
	// CauseGateOpened: a gate opened.
	CauseGateOpened EventCause = "GateOpened"
	// CauseUnseenChange: the approval changed while no process watched.
	CauseUnseenChange EventCause = "UnseenChange"
	// CauseStoreEpoch: the store was restored or replaced.
	CauseStoreEpoch EventCause = "StoreEpoch"
)

// Assurance is how well the actor of a revision is known.
//
// +kubebuilder:validation:Enum=Verified;Claimed;Unknown;System
type Assurance string

const (
	// AssuranceVerified: admission compared the name with the requester.
	AssuranceVerified Assurance = "Verified"
	// AssuranceClaimed: the object says so and nothing has checked it.
	AssuranceClaimed Assurance = "Claimed"
	// AssuranceUnknown: nobody is named, as in a deletion.
	AssuranceUnknown Assurance = "Unknown"
	// AssuranceSystem: no human; the controllers acted by their own rules.
	AssuranceSystem Assurance = "System"
)

// Actor is who caused a revision.
type Actor struct {
	// name as the approval or the controllers give it, at most 256 characters;
	// empty when it is unknown. Example: `ada@example.com`.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name,omitempty"`

	// assurance is how well the name is known. Example: `Verified`.
	//
	// +required
	Assurance Assurance `json:"assurance"`
}

// AuthorityVector is all that authority depended on when the revision was
// computed. A part that didn't exist is absent.
type AuthorityVector struct {
	// approvalUID is the uid of the approval, at most 128 characters.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	ApprovalUID types.UID `json:"approvalUID,omitempty"`

	// installationUID is the uid of the installation's object, at most 128
	// characters.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	InstallationUID types.UID `json:"installationUID,omitempty"`

	// version is spec.version of the installation, at most 64 characters.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`

	// manifestDigest is the digest in force: `v1:` and 64 lower-case hex digits.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=67
	// +kubebuilder:validation:Pattern=`^(v1:[0-9a-f]{64})?$`
	ManifestDigest string `json:"manifestDigest,omitempty"`

	// suspended is spec.suspend of the installation.
	//
	// +optional
	Suspended bool `json:"suspended,omitempty"`

	// serviceAccountNamespace is the namespace of the plugin's ServiceAccount, at
	// most 63 characters.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ServiceAccountNamespace string `json:"serviceAccountNamespace,omitempty"`

	// serviceAccountName is the name of the plugin's ServiceAccount, at most 253
	// characters.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// serviceAccountUID is the uid of the plugin's ServiceAccount, at most 128
	// characters.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	ServiceAccountUID types.UID `json:"serviceAccountUID,omitempty"`

	// namespaceUID is the uid of the ServiceAccount's namespace, at most 128
	// characters.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	NamespaceUID types.UID `json:"namespaceUID,omitempty"`

	// workspaceNamespace is the namespace that is the workspace, at most 63
	// characters.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	WorkspaceNamespace string `json:"workspaceNamespace,omitempty"`

	// workspaceNamespaceUID is the uid of that namespace, at most 128 characters.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	WorkspaceNamespaceUID types.UID `json:"workspaceNamespaceUID,omitempty"`

	// workspaceID is the workspace that the namespace was bound to, at most 63
	// characters.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	WorkspaceID string `json:"workspaceID,omitempty"`

	// humanPolicyVersion is the version of the human policy, at most 253
	// characters.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	HumanPolicyVersion string `json:"humanPolicyVersion,omitempty"`
}

// SeenVersion is a version of the approval that was processed.
type SeenVersion struct {
	// uid of the approval, at most 128 characters.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid,omitempty"`

	// generation of the approval.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Generation int64 `json:"generation,omitempty"`

	// gone is true when that object is known to be deleted, or to have stopped
	// naming this sequence.
	//
	// +optional
	Gone bool `json:"gone,omitempty"`

	// revoked is true when that version asked for `Revoked`.
	//
	// +optional
	Revoked bool `json:"revoked,omitempty"`

	// asked is what that version asked for, which the next version is compared
	// with; absent: not known. Whatever comes next then counts as asking for less,
	// so that nothing comes into force later by an act that was only waiting.
	//
	// +optional
	Asked *AskedFor `json:"asked,omitempty"`
}

// AskedFor is what a version of an approval asked for.
type AskedFor struct {
	// capabilities are those that it listed, at most 64; empty: none.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Capabilities []CapabilityID `json:"capabilities,omitempty"`

	// expiresAt is the expiry that it asked for, with microseconds; absent: none.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z$`
	ExpiresAt *metav1.MicroTime `json:"expiresAt,omitempty"`
}

// AppliedHold is a narrowing that was in force before this revision and that
// the revision made permanent.
type AppliedHold struct {
	// granted is what the hold still allowed, at most 64; empty: nothing.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Granted []CapabilityID `json:"granted,omitempty"`

	// state is the state that the hold still allowed: `Active`, `Revoked` or
	// `Expired`.
	//
	// +required
	// +kubebuilder:validation:Enum=Active;Revoked;Expired
	State State `json:"state"`

	// expiresAt is the latest expiry that the hold still allowed, with
	// microseconds; absent: any.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z$`
	ExpiresAt *metav1.MicroTime `json:"expiresAt,omitempty"`

	// cause is what set the hold. Example: `Human`.
	//
	// +required
	Cause EventCause `json:"cause"`

	// actor is who set the hold.
	//
	// +required
	Actor Actor `json:"actor"`

	// reason is the human's reason, at most 1024 characters.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`

	// uid is the uid of the first version of the approval that narrowed, at most
	// 128 characters.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid,omitempty"`

	// generation is the generation of that version.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Generation int64 `json:"generation,omitempty"`

	// spent is true when more than one version narrowed, so that no spec may use
	// the act name from before the hold.
	//
	// +optional
	Spent bool `json:"spent,omitempty"`

	// throughUID is the uid of the newest version that narrowed, where that is
	// not the first, at most 128 characters.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	ThroughUID types.UID `json:"throughUID,omitempty"`

	// throughGeneration is the generation of that version.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ThroughGeneration int64 `json:"throughGeneration,omitempty"`
}

// PluginCapabilityApprovalEventSpec is one revision of one installation in one
// workspace. It holds all that rebuilds the authority row.
type PluginCapabilityApprovalEventSpec struct {
	// auditID is the ID of this entry, derived from installationID, workspaceID
	// and revision; 1 to 128 characters.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._:-]+$`
	AuditID string `json:"auditID"`

	// type is what the revision did to the grant: `Grant`, `Narrow`, `Revoke` or
	// `UpgradeReview`.
	//
	// +required
	Type EventType `json:"type"`

	// installationID is the installation's UUID.
	//
	// +required
	// +kubebuilder:validation:MinLength=36
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	InstallationID string `json:"installationID"`

	// installationName is the installation's name, 1 to 253 characters. Example:
	// `standup`.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	InstallationName string `json:"installationName"`

	// workspaceID is the workspace, 1 to 63 characters. Example: `payments`.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`
	WorkspaceID string `json:"workspaceID"`

	// beforeRevision is the revision that was in force before; 0: none.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	BeforeRevision int64 `json:"beforeRevision"`

	// revision is this revision, above beforeRevision.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision"`

	// beforeManifestDigest is the digest that was in force before; empty: none.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=67
	// +kubebuilder:validation:Pattern=`^(v1:[0-9a-f]{64})?$`
	BeforeManifestDigest string `json:"beforeManifestDigest,omitempty"`

	// manifestDigest is the digest in force as of this revision: `v1:` and 64
	// lower-case hex digits. Absent where none was ever known.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=67
	// +kubebuilder:validation:Pattern=`^(v1:[0-9a-f]{64})?$`
	ManifestDigest string `json:"manifestDigest,omitempty"`

	// granted are the capabilities that a human granted and nothing has taken
	// away, at most 64.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Granted []CapabilityID `json:"granted,omitempty"`

	// effective are the capabilities that work as of this revision, at most 64.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Effective []CapabilityID `json:"effective,omitempty"`

	// declared are the capabilities that the manifest in force declares, at most
	// 64.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Declared []CapabilityID `json:"declared,omitempty"`

	// required are those of declared that the plugin can't work without, at most
	// 64.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Required []CapabilityID `json:"required,omitempty"`

	// allowed are the capabilities that the human policy leaves to plugins, at
	// most 64.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Allowed []CapabilityID `json:"allowed,omitempty"`

	// state of the grant: `Active`, `Revoked` or `Expired`.
	//
	// +required
	// +kubebuilder:validation:Enum=Active;Revoked;Expired
	State State `json:"state"`

	// expiresAt is the instant at which the grant ends, in UTC with microseconds;
	// absent: it doesn't.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z$`
	ExpiresAt *metav1.MicroTime `json:"expiresAt,omitempty"`

	// gates are the gates that are closed as of this revision, at most 16.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Gates []GateType `json:"gates,omitempty"`

	// act is the name of the last human act as of this revision; empty before
	// the first one. Example: `17-k3v7qa`.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=26
	// +kubebuilder:validation:Pattern=`^([0-9]{1,19}-[a-z2-7]{6})?$`
	Act string `json:"act,omitempty"`

	// approvedBy is the human of the last act, as the approval names them, at
	// most 256 characters. Example: `ada@example.com`.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	ApprovedBy string `json:"approvedBy,omitempty"`

	// approvedVia is the GitOps identity that claimed approvedBy, at most 256
	// characters; absent when the human wrote.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	ApprovedVia string `json:"approvedVia,omitempty"`

	// confirmedBy is the second human of the last act, at most 256 characters.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	ConfirmedBy string `json:"confirmedBy,omitempty"`

	// issuedAt is when the last act took force, in UTC with microseconds; absent:
	// there was none.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z$`
	IssuedAt *metav1.MicroTime `json:"issuedAt,omitempty"`

	// actor is who caused the revision.
	//
	// +required
	Actor Actor `json:"actor"`

	// cause is what made the controllers write the revision. Example: `Human`.
	//
	// +required
	Cause EventCause `json:"cause"`

	// reason is the human's reason, or what the controllers saw; at most 1024
	// characters.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`

	// time is when the revision was computed, in UTC with microseconds.
	//
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z$`
	Time metav1.MicroTime `json:"time"`

	// hold is the narrowing that this revision made permanent; absent: none.
	//
	// +optional
	Hold *AppliedHold `json:"hold,omitempty"`

	// vector is all that authority depended on.
	//
	// +required
	Vector AuthorityVector `json:"vector"`

	// seen is the version of the approval that was processed.
	//
	// +optional
	Seen SeenVersion `json:"seen,omitzero"`

	// humanPolicyVersion is the version of the human policy as of this revision,
	// at most 253 characters.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	HumanPolicyVersion string `json:"humanPolicyVersion,omitempty"`

	// unproven is true where the grant was admitted before admission policies
	// were proven to be in force.
	//
	// +optional
	Unproven bool `json:"unproven,omitempty"`

	// decisionDigest is the SHA-256 over the canonical form of this revision's
	// decision: 64 lower-case hex digits, with or without a version before a
	// colon. Example: `v1:` and 64 digits.
	//
	// +required
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=80
	// +kubebuilder:validation:Pattern=`^([a-z0-9]{1,15}:)?[0-9a-f]{64}$`
	DecisionDigest string `json:"decisionDigest"`

	// previousHash is the hash of the event before in the same sequence, in the
	// same form; empty in the first event.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=80
	// +kubebuilder:validation:Pattern=`^(([a-z0-9]{1,15}:)?[0-9a-f]{64})?$`
	PreviousHash string `json:"previousHash,omitempty"`
}

// PluginCapabilityApprovalEvent is one entry of the history of authority. The
// controllers write it before the revision takes force (I4), nobody changes it,
// and its name is `<installationID>.<workspaceID>.r<revision>`, so that a
// revision exists once. The newest of each sequence is never pruned. Its lists
// are atomic, since two sets are equal in any order and nothing here may move.
// The rule on the name compares it in two parts: the API server finds no bound
// for the cost of a text that a number was appended to.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=pcae,categories=plugins
// +kubebuilder:selectablefield:JSONPath=`.spec.installationID`
// +kubebuilder:selectablefield:JSONPath=`.spec.workspaceID`
// +kubebuilder:selectablefield:JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Workspace",type=string,JSONPath=`.spec.workspaceID`
// +kubebuilder:printcolumn:name="Plugin",type=string,JSONPath=`.spec.installationName`
// +kubebuilder:printcolumn:name="Revision",type=integer,JSONPath=`.spec.revision`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Cause",type=string,JSONPath=`.spec.cause`
// +kubebuilder:printcolumn:name="Actor",type=string,JSONPath=`.spec.actor.name`
// +kubebuilder:printcolumn:name="Assurance",type=string,JSONPath=`.spec.actor.assurance`,priority=1
// +kubebuilder:printcolumn:name="Act",type=string,JSONPath=`.spec.act`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.spec == oldSelf.spec",message="an event never changes",fieldPath=".spec"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.startsWith(self.spec.installationID + '.' + self.spec.workspaceID + '.r') && self.metadata.name.substring(self.spec.installationID.size() + self.spec.workspaceID.size() + 3) == string(self.spec.revision)",message="metadata.name must be <installationID>.<workspaceID>.r<revision>",fieldPath=".spec.revision"
// +kubebuilder:validation:XValidation:rule="self.spec.revision > self.spec.beforeRevision",message="revision must be above beforeRevision",fieldPath=".spec.revision"
type PluginCapabilityApprovalEvent struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the revision.
	//
	// +required
	Spec PluginCapabilityApprovalEventSpec `json:"spec,omitzero"`
}

// PluginCapabilityApprovalEventList is a list of PluginCapabilityApprovalEvent.
//
// +kubebuilder:object:root=true
type PluginCapabilityApprovalEventList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []PluginCapabilityApprovalEvent `json:"items"`
}
