package v1alpha1

// CapabilityID names one capability of the Host's contract. The set is closed:
// no wildcard, no prefix, no alias. Example: `host.v2.read:tasks`.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:Pattern=`^host\.v2\.(read|write):[a-z0-9_]+$`
// +kubebuilder:validation:Enum="host.v2.read:managed_agent_conversations";"host.v2.read:workspaces";"host.v2.read:workflows";"host.v2.read:tasks";"host.v2.read:sessions";"host.v2.read:interactions";"host.v2.read:messages";"host.v2.read:task_inbox";"host.v2.read:task_directives";"host.v2.read:task_relations";"host.v2.read:task_transitions";"host.v2.read:change_requests";"host.v2.read:terminal_resources";"host.v2.write:managed_agent_conversations";"host.v2.write:messages";"host.v2.write:task_directives";"host.v2.write:tasks";"host.v2.write:task_relations";"host.v2.write:task_runs";"host.v2.write:sessions";"host.v2.write:task_transitions"
type CapabilityID string

// State is the state of a grant. Each field allows the values that make sense
// there.
type State string

const (
	// StateActive: the grant stands.
	StateActive State = "Active"
	// StateRevoked: the grant was taken away.
	StateRevoked State = "Revoked"
	// StateExpired: the grant's time is over.
	StateExpired State = "Expired"
	// StatePending: no grant was ever in force; status only.
	StatePending State = "Pending"
)

// GateType names a temporary block. While one is closed nothing is effective;
// opening it again needs no human act.
//
// +kubebuilder:validation:Enum=Suspended;ServiceAccountConflict;WorkspaceConflict;HostVersionUnsupported;PrincipalChanged;RequiredCapabilityUnavailable
type GateType string

const (
	// GateSuspended: spec.suspend of the installation is true.
	GateSuspended GateType = "Suspended"
	// GateServiceAccountConflict: another installation names the same
	// ServiceAccount, or it is in a workspace's namespace.
	GateServiceAccountConflict GateType = "ServiceAccountConflict"
	// GateWorkspaceConflict: another namespace claims the same workspace ID.
	GateWorkspaceConflict GateType = "WorkspaceConflict"
	// GateHostVersionUnsupported: the manifest asks for a newer Host.
	GateHostVersionUnsupported GateType = "HostVersionUnsupported"
	// GatePrincipalChanged: the ServiceAccount or its namespace isn't the one
	// that was reviewed.
	GatePrincipalChanged GateType = "PrincipalChanged"
	// GateRequiredCapabilityUnavailable: the manifest requires a capability that
	// isn't granted here.
	GateRequiredCapabilityUnavailable GateType = "RequiredCapabilityUnavailable"
)

// Gate is a closed gate and what opens it.
type Gate struct {
	// type names the block. Example: `PrincipalChanged`.
	//
	// +required
	Type GateType `json:"type"`

	// message says in at most 1024 characters what opens the gate.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
}
