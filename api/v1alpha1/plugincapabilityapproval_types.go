package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PluginCapabilityApprovalSpec is what a human granted, and everything that the
// human looked at while doing so.
type PluginCapabilityApprovalSpec struct {
	// installationName is the name of the PluginInstallation, 1 to 253
	// characters. It must equal metadata.name, so that a workspace has one
	// approval for each installation. Immutable. Example: `standup`.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="installationName is immutable"
	InstallationName string `json:"installationName"`

	// installationID is status.installationID of the installation that the human
	// reviewed, a lower-case UUID. Installing again under the same name makes
	// another ID, and an approval of the old one grants nothing. Example:
	// `3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77`.
	//
	// +required
	// +kubebuilder:validation:MinLength=36
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	InstallationID string `json:"installationID"`

	// manifestDigest is status.manifestDigest of the installation as the human
	// reviewed it: `v1:` and 64 lower-case hex digits. The approval widens
	// nothing while another digest is in force.
	//
	// +required
	// +kubebuilder:validation:MinLength=67
	// +kubebuilder:validation:MaxLength=67
	// +kubebuilder:validation:Pattern=`^v1:[0-9a-f]{64}$`
	ManifestDigest string `json:"manifestDigest"`

	// workspaceID is the workspace that the human reviewed, 1 to 63 lower-case
	// letters, digits and `-`. It must be the one that this namespace is bound
	// to by its label, or the approval counts as absent. Immutable. Example:
	// `payments`.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="workspaceID is immutable"
	WorkspaceID string `json:"workspaceID"`

	// supersedesAct is status.act as the human saw it, empty for the first
	// grant. It makes the grant single-use: once used it widens nothing again,
	// whoever applies it. `kubectl capability review` prints the right value.
	// Example: `17-k3v7qa`.
	//
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=26
	// +kubebuilder:validation:Pattern=`^([0-9]{1,19}-[a-z2-7]{6})?$`
	SupersedesAct string `json:"supersedesAct,omitempty"`

	// capabilities are the capability IDs that the human grants, at most 64, each
	// once. Empty grants nothing. Example: `[host.v2.read:tasks,
	// host.v2.write:tasks]`.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Capabilities []CapabilityID `json:"capabilities,omitempty"`

	// state is `Active`, or `Revoked` to take the grant away at once. Going back
	// to `Active` is a widening and needs a new act. Default: `Active`.
	//
	// +optional
	// +kubebuilder:default=Active
	// +kubebuilder:validation:Enum=Active;Revoked
	State State `json:"state,omitempty"`

	// approvedBy is the human who granted, as the cluster authenticates them, 1
	// to 256 characters, none of them a control character. Example:
	// `ada@example.com`.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f]*$`
	ApprovedBy string `json:"approvedBy"`

	// approvedVia is the GitOps identity that applied the manifest and claims
	// approvedBy, at most 256 characters; absent when the human wrote. It must be
	// the requester, and one that the platform admin named: what it claims about
	// humans, the cluster can't check. Example:
	// `system:serviceaccount:flux-system:kustomize-controller`.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f]*$`
	ApprovedVia string `json:"approvedVia,omitempty"`

	// confirmedBy is the second human, where the human policy asks for two: it
	// is set by a write of their own that changes nothing else, and must not be
	// approvedBy; at most 256 characters. Behind a GitOps identity both names are
	// claims. Example: `grace@example.com`.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f]*$`
	ConfirmedBy string `json:"confirmedBy,omitempty"`

	// changedBy is the human who narrowed the grant later, at most 256
	// characters, none of them a control character. Looked at only in the write
	// that changes it. Example: `grace@example.com`.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f]*$`
	ChangedBy string `json:"changedBy,omitempty"`

	// reason is why, for those who read the history, at most 1024 characters, of
	// the control characters only tab and line ends: not every store can hold the
	// others, and a text must never stand in the way of a revocation.
	// Example: `Stand-up bot for the payments team, reviewed in PR 118.`
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$`
	Reason string `json:"reason,omitempty"`

	// expiresAt is the instant at which the grant ends by the Host's own clock,
	// RFC 3339 in upper case, at most microseconds, years 2000 to 2999. Absent:
	// it doesn't expire. A later one, or none where there was one, is a
	// widening. Example: `2027-03-01T08:00:00Z`.
	//
	// The pattern is narrower than the format: the API server lets pass
	// spellings that no client can decode, and one such object would stop every
	// watch of this kind.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
}

// PluginCapabilityApprovalStatus is the authority in force, as of
// status.revision. The store's row is the truth; this is its copy.
type PluginCapabilityApprovalStatus struct {
	// installationID is the installation whose sequence revision belongs to: the
	// one of that name. After a reinstall it is another one, which begins anew.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	InstallationID string `json:"installationID,omitempty"`

	// revision is the revision in force. Revisions of one installation in one
	// workspace only grow, whatever is deleted and created again.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Revision int64 `json:"revision,omitempty"`

	// act is the name of the last human act; the next grant names it in
	// spec.supersedesAct. Empty before the first one. Example: `17-k3v7qa`.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=26
	// +kubebuilder:validation:Pattern=`^([0-9]{1,19}-[a-z2-7]{6})?$`
	Act string `json:"act,omitempty"`

	// state is `Active`, `Revoked`, `Expired`, or `Pending` while no grant was
	// ever in force.
	//
	// +optional
	// +kubebuilder:validation:Enum=Active;Revoked;Expired;Pending
	State State `json:"state,omitempty"`

	// expiresAt is the instant at which what is in force ends, with
	// microseconds; absent: it doesn't.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z$`
	ExpiresAt *metav1.MicroTime `json:"expiresAt,omitempty"`

	// effectiveCapabilities are the capabilities that work now, at most 64:
	// declared, granted, left to plugins by the human policy, and not blocked.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	EffectiveCapabilities []CapabilityID `json:"effectiveCapabilities,omitempty"`

	// effectiveSummary is the number of effective capabilities, a slash, and the
	// number that the manifest in force declares. Example: `3/5`.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[0-9]{1,4}/[0-9]{1,4}$`
	EffectiveSummary string `json:"effectiveSummary,omitempty"`

	// inactiveCapabilities are the capabilities that spec.capabilities asks for,
	// or that the manifest in force declares, and that aren't granted, each with
	// the reason; at most 64.
	//
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=64
	InactiveCapabilities []InactiveCapability `json:"inactiveCapabilities,omitempty"`

	// gates are the temporary blocks that are closed, each with what opens it; at
	// most 16. While there is one, nothing is effective.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Gates []Gate `json:"gates,omitempty"`

	// manifestDigest is the digest in force as of the revision: `v1:` and 64
	// lower-case hex digits.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=67
	// +kubebuilder:validation:Pattern=`^v1:[0-9a-f]{64}$`
	ManifestDigest string `json:"manifestDigest,omitempty"`

	// humanPolicyVersion is the version of the human policy as of the revision,
	// at most 253 characters.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	HumanPolicyVersion string `json:"humanPolicyVersion,omitempty"`

	// approvedBy is who granted what is in force, at most 256 characters.
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

	// confirmedBy is the second human behind what is in force, at most 256
	// characters.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	ConfirmedBy string `json:"confirmedBy,omitempty"`

	// approverAssurance says how far approvedBy can be trusted: `Verified` by the
	// admission policies, `Claimed` by a GitOps identity, or `Unproven`: granted
	// while the policies weren't proven in force. Grants of the last kind are to
	// be reviewed.
	//
	// +optional
	ApproverAssurance ApproverAssurance `json:"approverAssurance,omitempty"`

	// issuedAt is when the last human act took force, in UTC.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$`
	IssuedAt *metav1.Time `json:"issuedAt,omitempty"`

	// updatedAt is when the revision took force, in UTC.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$`
	UpdatedAt *metav1.Time `json:"updatedAt,omitempty"`

	// lastAuditID is spec.auditID of the event of the revision, at most 128
	// characters.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	LastAuditID string `json:"lastAuditID,omitempty"`

	// observedGeneration is the generation that this status speaks of.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready, Fenced and ReviewRequired; at most 16.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ApproverAssurance says how far the name of the approver can be trusted.
//
// +kubebuilder:validation:Enum=Verified;Claimed;Unproven
type ApproverAssurance string

const (
	// ApproverVerified: the admission policies have checked that the approver
	// wrote.
	ApproverVerified ApproverAssurance = "Verified"
	// ApproverClaimed: a GitOps identity wrote and named the approver.
	ApproverClaimed ApproverAssurance = "Claimed"
	// ApproverUnproven: nobody has checked.
	ApproverUnproven ApproverAssurance = "Unproven"
)

// InactiveReason says why a capability isn't granted.
//
// +kubebuilder:validation:Enum=NotDeclared;NotReviewed;ActAlreadyUsed;HumanReserved;Unknown
type InactiveReason string

const (
	// InactiveNotDeclared: the manifest in force doesn't declare it.
	InactiveNotDeclared InactiveReason = "NotDeclared"
	// InactiveNotReviewed: no human has granted it, or it waits until the digest
	// that the human reviewed is in force.
	InactiveNotReviewed InactiveReason = "NotReviewed"
	// InactiveActAlreadyUsed: spec.supersedesAct isn't the act in force.
	InactiveActAlreadyUsed InactiveReason = "ActAlreadyUsed"
	// InactiveHumanReserved: the human policy keeps it for humans.
	InactiveHumanReserved InactiveReason = "HumanReserved"
	// InactiveUnknown: this Host's contract doesn't have it.
	InactiveUnknown InactiveReason = "Unknown"
)

// InactiveCapability is one capability that was asked for, or is declared, and
// isn't granted.
type InactiveCapability struct {
	// id is the ID as spec.capabilities has it, 1 to 256 characters. It need not
	// be one of the contract: an object can be older than the schema.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	ID string `json:"id"`

	// reason is why it isn't granted. Example: `NotDeclared`.
	//
	// +required
	Reason InactiveReason `json:"reason"`
}

// PluginCapabilityApproval grants capabilities to one installation in one
// workspace: the namespace that it lives in. Its spec is the human's, reviewed
// and applied like any manifest; its status is the authority in force.
// Narrowing it, revoking it and deleting it always work; widening needs a new
// human act that names the one before.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=pca,categories=plugins
// +kubebuilder:selectablefield:JSONPath=`.spec.installationName`
// +kubebuilder:selectablefield:JSONPath=`.spec.workspaceID`
// +kubebuilder:selectablefield:JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Workspace",type=string,JSONPath=`.spec.workspaceID`
// +kubebuilder:printcolumn:name="Plugin",type=string,JSONPath=`.spec.installationName`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Revision",type=integer,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Effective",type=string,JSONPath=`.status.effectiveSummary`,description="effective of declared capabilities"
// +kubebuilder:printcolumn:name="Approved By",type=string,JSONPath=`.status.approvedBy`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1,description="why it works, or doesn't"
// +kubebuilder:printcolumn:name="Act",type=string,JSONPath=`.status.act`,priority=1
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.status.expiresAt`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.installationName",message="installationName must equal metadata.name",fieldPath=".spec.installationName"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.revision) || (has(self.status) && has(self.status.installationID) && (!has(oldSelf.status.installationID) || self.status.installationID != oldSelf.status.installationID)) || (has(self.status) && has(self.status.revision) && self.status.revision >= oldSelf.status.revision)",message="revision can't decrease or vanish once it is set for an installation",fieldPath=".status.revision"
type PluginCapabilityApproval struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what the human granted.
	//
	// +required
	Spec PluginCapabilityApprovalSpec `json:"spec,omitzero"`

	// status is the authority in force.
	//
	// +optional
	Status PluginCapabilityApprovalStatus `json:"status,omitzero"`
}

// PluginCapabilityApprovalList is a list of PluginCapabilityApproval.
//
// +kubebuilder:object:root=true
type PluginCapabilityApprovalList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []PluginCapabilityApproval `json:"items"`
}
