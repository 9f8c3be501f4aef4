package v1alpha1

const (
	// LabelWorkspaceID on a Namespace makes it the workspace of that ID. On a
	// PluginCapabilityApprovalEvent it repeats spec.workspaceID.
	LabelWorkspaceID = "plugins.kandev.ai/workspace-id"
	// LabelInstallationID on a PluginCapabilityApprovalEvent repeats
	// spec.installationID. On what the controllers make of spec.workload, pods
	// included, it is the installation's status.installationID.
	LabelInstallationID = "plugins.kandev.ai/installation-id"
	// AnnotationRebindFrom on a Namespace names the uid of the namespace that its
	// workspace ID was bound to before, so that the ID passes to this one. It
	// starts with no authority, and needs the verb `bind` like the label.
	AnnotationRebindFrom = "plugins.kandev.ai/rebind-from"
)
