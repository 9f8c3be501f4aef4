package v1alpha1

// LegacyReadResource is a resource that v1 methods read.
//
// +kubebuilder:validation:Enum=tasks;sessions;workspaces;workflows;agent_profiles;executor_profiles;repositories;messages;interactions
type LegacyReadResource string

// LegacyWriteResource is a resource that v1 methods write.
//
// +kubebuilder:validation:Enum=tasks;messages;interactions
type LegacyWriteResource string

// LegacyWriteResources lists all of them.
func LegacyWriteResources() []LegacyWriteResource {
	return []LegacyWriteResource{"tasks", "messages", "interactions"}
}

// LegacyManifest is what a package declares for the shipped v1 methods. A
// declaration is all the authority that they have, in every workspace at once; it
// never becomes a capability (I12).
type LegacyManifest struct {
	// apiRead are the resources that the plugin reads by v1 methods, each once.
	// Example: `[tasks, workflows]`.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=9
	APIRead []LegacyReadResource `json:"apiRead,omitempty"`

	// apiWrite are the resources that it writes by v1 methods, each once. Each
	// works only with a grant in spec.compatibility.legacyWriters besides.
	// Example: `[tasks]`.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	APIWrite []LegacyWriteResource `json:"apiWrite,omitempty"`

	// events are the patterns of the event subjects that it is sent, at most 64 of
	// at most 256 characters, each once: segments between dots, each of letters,
	// digits, `_` and `-`, or `*` for any one segment. Example: `[task.*]`.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^([A-Za-z0-9_-]+|\*)(\.([A-Za-z0-9_-]+|\*))*$`
	Events []string `json:"events,omitempty"`

	// state true: it keeps state of its own in the Host. Default: false.
	//
	// +optional
	State bool `json:"state,omitempty"`

	// secrets true: it keeps secrets of its own in the Host. Default: false.
	//
	// +optional
	Secrets bool `json:"secrets,omitempty"`

	// agentInvoke true: it asks the utility agent. Default: false.
	//
	// +optional
	AgentInvoke bool `json:"agentInvoke,omitempty"`
}

// SecretReference gives one value of the plugin's configuration.
type SecretReference struct {
	// name is the property of the configuration that has the value, 1 to 128
	// letters, digits, `.`, `_` and `-`, beginning with a letter, a digit or `_`.
	// Example: `api_token`.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9._-]*$`
	Name string `json:"name"`

	// secretName is the name of a Secret in the namespace of
	// spec.serviceAccountRef, a DNS subdomain of 1 to 253 characters. Example:
	// `standup-tokens`.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	SecretName string `json:"secretName"`

	// key is the key in that Secret, 1 to 253 letters, digits, `.`, `_` and `-`.
	// Example: `token`.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]+$`
	Key string `json:"key"`
}

// Compatibility is what an installation may do that only plugins of before need.
// Each part is a grant: it names the installation and who granted, and writing it
// takes the verb approve (docs/reference/admission.md).
type Compatibility struct {
	// legacyWriters let the plugin write by v1 methods, one entry for each
	// resource. The manifest must declare it in legacy.apiWrite.
	//
	// +optional
	// +listType=map
	// +listMapKey=resource
	// +kubebuilder:validation:MaxItems=3
	LegacyWriters []LegacyWriter `json:"legacyWriters,omitempty"`

	// implicitExpectNone lets the plugin leave out of exact writes what the first
	// plugins didn't send: an absent guard then expects no pending transition, and
	// the Host makes an absent request ID. Absent: such a write is refused.
	//
	// +optional
	ImplicitExpectNone *CompatibilityGrant `json:"implicitExpectNone,omitempty"`
}

// LegacyWriter grants the v1 writers of one resource.
type LegacyWriter struct {
	// resource is what they write: `tasks`, `messages` or `interactions`.
	//
	// +required
	Resource LegacyWriteResource `json:"resource"`

	CompatibilityGrant `json:",inline"`
}

// CompatibilityGrant says to whom, by whom and why.
type CompatibilityGrant struct {
	// installationID is status.installationID of this installation, a lower-case
	// UUID. A grant that names another one is for an installation of before, and
	// grants nothing. Example: `3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77`.
	//
	// +required
	// +kubebuilder:validation:MinLength=36
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	InstallationID string `json:"installationID"`

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
	// approvedBy, at most 256 characters; absent when the human wrote. Example:
	// `system:serviceaccount:flux-system:kustomize-controller`.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f]*$`
	ApprovedVia string `json:"approvedVia,omitempty"`

	// reason is why, at most 1024 characters, of the control characters only tab
	// and line ends. Example: `Works by v1 until its release 2.0.`
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$`
	Reason string `json:"reason,omitempty"`
}
