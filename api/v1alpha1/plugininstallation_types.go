package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PluginInstallationSpec is what the platform admin asks for.
//
// A grant for a v1 writer never waits for its declaration: an upgrade would else
// make it work with no human act.
//
// +kubebuilder:validation:XValidation:rule="!has(self.compatibility) || !has(self.compatibility.legacyWriters) || self.compatibility.legacyWriters.all(w, has(self.manifest.legacy) && has(self.manifest.legacy.apiWrite) && w.resource in self.manifest.legacy.apiWrite)",message="each resource of legacyWriters must be declared in spec.manifest.legacy.apiWrite; take away the grant that isn't",fieldPath=".compatibility.legacyWriters"
type PluginInstallationSpec struct {
	// pluginID is the package's own ID, 1 to 128 characters: lower-case letters,
	// digits, `.`, `_` and `-`, beginning with a letter or digit. It can't be a
	// UUID: what a plugin makes bears its ID in the place where the exact contract
	// writes that of an installation. Immutable. Example: `kandev.standup-notes`.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9._-]*$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="pluginID is immutable: another plugin is another installation"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$')",message="pluginID can't be a UUID: installation IDs are"
	PluginID string `json:"pluginID"`

	// version is the package's version, 1 to 64 printable ASCII characters
	// without white space. Any change is an upgrade review in every workspace,
	// whether or not the manifest changed. Example: `1.4.0`.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[!-~]+$`
	Version string `json:"version"`

	// manifest is what the package declares: the ceiling of what any workspace
	// can grant it.
	//
	// +required
	Manifest PluginManifest `json:"manifest"`

	// serviceAccountRef names the ServiceAccount of the plugin's pods. A
	// ServiceAccount belongs to at most one installation, and its namespace is
	// never a workspace.
	//
	// +required
	ServiceAccountRef ServiceAccountReference `json:"serviceAccountRef"`

	// suspend true closes the gate Suspended in every workspace: the plugin
	// still authenticates and is told why, and nothing is authorised. Default:
	// false.
	//
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// config is the operator's values for the plugin's configuration, an object of
	// at most 64 members and 64 KiB. It must fit manifest.configSchema. What that
	// marks as secret can't stand here: secretRefs has it. Example:
	// `{channel: standup, daysAhead: 2}`.
	//
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:pruning:PreserveUnknownFields
	Config *apiextensionsv1.JSON `json:"config,omitempty"`

	// secretRefs give the values of the configuration that are secret, at most 32,
	// each property once.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	SecretRefs []SecretReference `json:"secretRefs,omitempty"`

	// compatibility is what plugins of before need, granted to this installation.
	//
	// +optional
	Compatibility *Compatibility `json:"compatibility,omitempty"`

	// workload is how the controllers run the plugin. Absent: they run nothing, and
	// what they had run ends; somebody else makes the plugin's pods.
	//
	// +optional
	Workload *Workload `json:"workload,omitempty"`
}

// PluginManifest is the part of a plugin's package that humans review and that
// status.manifestDigest covers.
type PluginManifest struct {
	// capabilities are the capabilities that the package declares, at most 64,
	// each ID once. Nothing outside this list can become effective.
	//
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=64
	Capabilities []ManifestCapability `json:"capabilities,omitempty"`

	// minHostVersion is the lowest Kandev level that the package works with, as
	// `MAJOR.MINOR` or `MAJOR.MINOR.PATCH`, at most 32 characters. A Host below
	// it doesn't accept the installation. Example: `0.43.0`.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})(\.(0|[1-9][0-9]{0,5}))?$`
	MinHostVersion string `json:"minHostVersion,omitempty"`

	// legacy is what the package declares for the shipped v1 methods. Absent: it
	// calls none that needs a declaration.
	//
	// +optional
	Legacy *LegacyManifest `json:"legacy,omitempty"`

	// configSchema is the JSON Schema of spec.config, an object of at most 64
	// members and 64 KiB. A property with `secret: true` or `format: password` is
	// secret; the formats `agent-profile` and `textarea` say how people edit a
	// text. It isn't part of the digest. Example:
	// `{type: object, properties: {daysAhead: {type: integer, minimum: 1}}}`.
	//
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:pruning:PreserveUnknownFields
	ConfigSchema *apiextensionsv1.JSON `json:"configSchema,omitempty"`
}

// ManifestCapability is one declared capability.
type ManifestCapability struct {
	// id is the capability's ID, one of the Host's contract. Example:
	// `host.v2.write:tasks`.
	//
	// +required
	ID CapabilityID `json:"id"`

	// required true means that the plugin can't work without it: in a workspace
	// where it isn't granted, the gate RequiredCapabilityUnavailable is closed
	// and nothing is effective. Default: false.
	//
	// +optional
	Required bool `json:"required,omitempty"`

	// reason tells the reviewing human in at most 1024 characters what the
	// plugin does with it; of the control characters only tab and line ends.
	// Example: `Creates the follow-up tasks of a stand-up.`
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$`
	Reason string `json:"reason,omitempty"`
}

// ServiceAccountReference names the plugin's ServiceAccount.
type ServiceAccountReference struct {
	// namespace of the ServiceAccount, a DNS label of 1 to 63 characters.
	// Example: `plugin-standup`.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`

	// name of the ServiceAccount, a DNS subdomain of 1 to 253 characters.
	// Example: `standup`.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`

	// acceptUID acknowledges a changed principal: the uid of the ServiceAccount
	// that the installer looked at, at most 128 characters. Needed only when the
	// gate PrincipalChanged is closed. Example:
	// `0d1c2f5e-7c55-4b0e-9a51-3f1f2a4c8b7d`.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]*$`
	AcceptUID types.UID `json:"acceptUID,omitempty"`
}

// PluginInstallationStatus is what the controllers observed.
type PluginInstallationStatus struct {
	// installationID is this installation's random UUID. It is minted once, never
	// changes, and isn't used again after an uninstall. Approvals name it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	InstallationID string `json:"installationID,omitempty"`

	// manifestDigest is `v1:` and the SHA-256, in lower-case hex, over the
	// canonical JSON of pluginID and of the manifest's capabilities, legacy and
	// minHostVersion. Approvals name it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=67
	// +kubebuilder:validation:Pattern=`^v1:[0-9a-f]{64}$`
	ManifestDigest string `json:"manifestDigest,omitempty"`

	// serviceAccountUID is the uid of the ServiceAccount that is authenticated,
	// at most 128 characters.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	ServiceAccountUID types.UID `json:"serviceAccountUID,omitempty"`

	// namespaceUID is the uid of that ServiceAccount's namespace, at most 128
	// characters.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	NamespaceUID types.UID `json:"namespaceUID,omitempty"`

	// workspaceCount is the number of workspaces with a revision for this
	// installation. It is above the length of workspaces where that list is cut
	// at its bound.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	WorkspaceCount int32 `json:"workspaceCount,omitempty"`

	// workspaces shows what is in force in each workspace, ordered by
	// workspaceID, at most 1000. It is a summary; the approvals are the detail.
	//
	// +optional
	// +listType=map
	// +listMapKey=workspaceID
	// +kubebuilder:validation:MaxItems=1000
	Workspaces []InstallationWorkspace `json:"workspaces,omitempty"`

	// observedGeneration is the generation that this status speaks of.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Accepted, Ready and UpgradeReviewPending, WorkloadReady with
	// spec.workload, and ConfigReady with spec.secretRefs; at most 16.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// InstallationWorkspace is what is in force for one workspace.
type InstallationWorkspace struct {
	// workspaceID is the workspace, 1 to 63 characters. Example: `payments`.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`
	WorkspaceID string `json:"workspaceID"`

	// namespace is the Namespace that is bound to the workspace, at most 63
	// characters; empty while none is.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// revision is the revision in force there.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Revision int64 `json:"revision,omitempty"`

	// state is `Active`, `Revoked`, `Expired` or `Pending`.
	//
	// +required
	// +kubebuilder:validation:Enum=Active;Revoked;Expired;Pending
	State State `json:"state"`

	// effective is the number of capabilities that work there now, at most 64.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=64
	Effective int32 `json:"effective,omitempty"`

	// declared is the number of capabilities that the manifest in force declares,
	// at most 64.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=64
	Declared int32 `json:"declared,omitempty"`
}

// PluginInstallation is one installed plugin. Creating it installs, editing its
// version or manifest is an upgrade or rollback, deleting it uninstalls and
// revokes every approval for good. It grants nothing: a workspace does, with a
// PluginCapabilityApproval of the same name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=pi,categories=plugins
// +kubebuilder:selectablefield:JSONPath=`.spec.serviceAccountRef.namespace`
// +kubebuilder:selectablefield:JSONPath=`.spec.serviceAccountRef.name`
// +kubebuilder:printcolumn:name="Plugin",type=string,JSONPath=`.spec.pluginID`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Installation ID",type=string,JSONPath=`.status.installationID`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.installationID) || (has(self.status) && has(self.status.installationID) && self.status.installationID == oldSelf.status.installationID)",message="installationID can't change or vanish once it is set",fieldPath=".status.installationID"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.serviceAccountUID) || (has(self.status) && has(self.status.serviceAccountUID) && (self.status.serviceAccountUID == oldSelf.status.serviceAccountUID || (has(self.spec.serviceAccountRef.acceptUID) && self.status.serviceAccountUID == self.spec.serviceAccountRef.acceptUID)))",message="serviceAccountUID can't vanish once it is set, and changes to spec.serviceAccountRef.acceptUID only",fieldPath=".status.serviceAccountUID"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.namespaceUID) || (has(self.status) && has(self.status.namespaceUID) && (self.status.namespaceUID == oldSelf.status.namespaceUID || (has(self.status.serviceAccountUID) && has(oldSelf.status.serviceAccountUID) && self.status.serviceAccountUID != oldSelf.status.serviceAccountUID)))",message="namespaceUID can't vanish once it is set, and changes with serviceAccountUID only",fieldPath=".status.namespaceUID"
type PluginInstallation struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what the platform admin asks for.
	//
	// +required
	Spec PluginInstallationSpec `json:"spec,omitzero"`

	// status is what the controllers observed.
	//
	// +optional
	Status PluginInstallationStatus `json:"status,omitzero"`
}

// PluginInstallationList is a list of PluginInstallation.
//
// +kubebuilder:object:root=true
type PluginInstallationList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []PluginInstallation `json:"items"`
}
