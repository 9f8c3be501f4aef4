package v1alpha1

import "strings"

// The admission policies that plugin-host is installed with. Each is a
// ValidatingAdmissionPolicy and a ValidatingAdmissionPolicyBinding of the same
// name; docs/reference/admission.md says what each refuses.
const (
	// PolicyApprovals checks who writes the spec of an approval: narrowing is
	// free, everything else needs `approve` for every capability it lists.
	PolicyApprovals = "plugin-host-approvals"
	// PolicyInstallations keeps the spec of installations from ServiceAccounts
	// and nodes that no administrator named, and checks who grants compatibility.
	PolicyInstallations = "plugin-host-installations"
	// PolicyWorkspaces checks who makes a namespace a workspace, or passes a
	// workspace on to another namespace.
	PolicyWorkspaces = "plugin-host-workspaces"
	// PolicyStatus leaves every status to the controllers.
	PolicyStatus = "plugin-host-status"
	// PolicyEvents leaves the history of authority to the controllers.
	PolicyEvents = "plugin-host-events"
	// PolicyHumanPolicies keeps human policies from ServiceAccounts and nodes
	// that no administrator named.
	PolicyHumanPolicies = "plugin-host-humanpolicies"
)

// AdmissionPolicies lists the names of all policies. No human act counts as
// verified unless every one of them is in force.
func AdmissionPolicies() []string {
	return []string{
		PolicyApprovals, PolicyInstallations, PolicyWorkspaces, PolicyStatus, PolicyEvents, PolicyHumanPolicies,
	}
}

// What the policies ask the cluster's authorizer for, beyond the verbs of our
// kinds. No such objects exist: RBAC rules name them.
const (
	// VerbApprove on ResourceCapabilities, with the capability ID as the name and
	// in the approval's namespace: may grant that capability there.
	VerbApprove          = "approve"
	ResourceCapabilities = "capabilities"
	// LegacyWriterPrefix and a resource, and CompatImplicitExpectNone, are names of
	// ResourceCapabilities too, with VerbApprove and in no namespace: may grant that
	// in spec.compatibility of any installation. v1 knows no workspace, so no right
	// that holds in one namespace is enough.
	LegacyWriterPrefix       = "legacy.write:"
	CompatImplicitExpectNone = "compat.implicitExpectNone"
	// VerbBind on ResourceWorkspaces, with the workspace ID as the name and in no
	// namespace: may make any namespace that workspace. A workspace ID belongs to
	// the cluster, so no right that holds in one namespace is enough.
	VerbBind           = "bind"
	ResourceWorkspaces = "workspaces"
)

// policyProbePrefix begins the names that no approval can have.
const policyProbePrefix = "policy-probe-"

// PolicyProbeName is the name of an approval that the policy refuses to create,
// whoever asks, in every namespace and in a dry run too: PolicyRefuses tells its
// refusal. Whoever may create approvals in one namespace can so find out whether
// the policy and its binding are in force. The object must satisfy the schema
// otherwise, and the request must be a dry run: every other policy lets a dry run
// of this name pass, so a request that succeeds, or is refused for another
// reason, proves nothing.
//
// A policy takes about a second to be in force everywhere after it was created or
// changed; each API server decides for itself.
func PolicyProbeName(policy string) string { return policyProbePrefix + policy }

// PolicyRefusalPrefix begins each message with which the policy refuses. The API
// server puts its own words before it.
func PolicyRefusalPrefix(policy string) string { return policy + ": " }

// PolicyRefuses tells whether the text of an API server's error is the policy's
// own refusal of its probe.
func PolicyRefuses(policy, message string) bool {
	return strings.Contains(message, "denied request: "+PolicyRefusalPrefix(policy)+PolicyProbeRefusal)
}

// PolicyProbeRefusal is what a policy says to its probe, after
// PolicyRefusalPrefix.
const PolicyProbeRefusal = "in force; no approval can have this name"
