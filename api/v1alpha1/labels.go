package v1alpha1

const (
	// LabelWorkspaceID on a Namespace makes it the workspace of that ID. On a
	// PluginCapabilityApprovalEvent it repeats spec.workspaceID.
	LabelWorkspaceID = "plugins.kandev.ai/workspace-id"
	// LabelInstallationID on a PluginCapabilityApprovalEvent repeats
	// spec.installationID.
	LabelInstallationID = "plugins.kandev.ai/installation-id"
)
