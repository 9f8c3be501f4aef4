package v1alpha1

// Condition types. Every condition carries observedGeneration and speaks only
// for that generation.
const (
	// ConditionAccepted on a PluginInstallation: the package can be authorised
	// on this Host at all. Its principal is known and belongs to no other
	// installation, and the Host is new enough.
	ConditionAccepted = "Accepted"
	// ConditionReady on a PluginInstallation: it has its ID, its manifest digest
	// and its principal, and isn't suspended. On a PluginCapabilityApproval:
	// what a human granted and the manifest declares works now.
	ConditionReady = "Ready"
	// ConditionWorkloadReady on a PluginInstallation with spec.workload: its pod
	// runs and is ready. It says nothing about what the plugin may do.
	ConditionWorkloadReady = "WorkloadReady"
	// ConditionConfigReady on a PluginInstallation with spec.secretRefs: each of them
	// has its value. While one has none, the plugin gets no configuration.
	ConditionConfigReady = "ConfigReady"
	// ConditionUpgradeReviewPending on a PluginInstallation: at least one
	// workspace hasn't reviewed the manifest in force.
	ConditionUpgradeReviewPending = "UpgradeReviewPending"
	// ConditionFenced on a PluginCapabilityApproval: no exact write authorised
	// under a revision below status.revision can commit any more, on any
	// replica (I5).
	ConditionFenced = "Fenced"
	// ConditionReviewRequired on a PluginCapabilityApproval: the spec asks for
	// more than is granted and only a new human act can grant it (I7). The
	// message says what would widen and the act name to put into
	// spec.supersedesAct. On a PluginInstallation: an entry of spec.compatibility
	// grants nothing, with the reason NotVerified.
	ConditionReviewRequired = "ReviewRequired"
)

// ConditionActive on a HumanPolicy: it is the one in force.
const ConditionActive = "Active"

// Reasons of Active on a HumanPolicy.
const (
	// ReasonNewest: no policy is newer.
	ReasonNewest = "Newest"
	// ReasonSuperseded: a newer policy is in force.
	ReasonSuperseded = "Superseded"
	// ReasonNotUnderstood: this Host can't tell what the policy takes away.
	ReasonNotUnderstood = "NotUnderstood"
)

// Reasons of Accepted and Ready on a PluginInstallation. The gates
// (GateType) are reasons too, under their own name.
const (
	// ReasonAccepted: the installation can be authorised.
	ReasonAccepted = "Accepted"
	// ReasonServiceAccountNotFound: the ServiceAccount or its namespace doesn't
	// exist.
	ReasonServiceAccountNotFound = "ServiceAccountNotFound"
	// ReasonServiceAccountInWorkspace: the ServiceAccount lives in a workspace's
	// namespace, where workspace owners could become the plugin.
	ReasonServiceAccountInWorkspace = "ServiceAccountInWorkspace"
	// ReasonPluginIDInvalid: spec.pluginID is one that the schema refuses now, and
	// the object is older.
	ReasonPluginIDInvalid = "PluginIDInvalid"
	// ReasonConfigInvalid: spec.config or spec.secretRefs doesn't fit
	// spec.manifest.configSchema, or that is no schema. What approvals grant works
	// all the same; the plugin gets no configuration.
	ReasonConfigInvalid = "ConfigInvalid"
	// ReasonHistoryLost: status names revisions that neither the store nor any
	// event knows; a human has to install again.
	ReasonHistoryLost = "HistoryLost"
	// ReasonNotAccepted: Ready is false because Accepted is.
	ReasonNotAccepted = "NotAccepted"
)

// Reasons of WorkloadReady on a PluginInstallation. The gate Suspended and
// NotAccepted are reasons too: nothing runs then.
const (
	// ReasonRunning: the pod of the version in spec is ready.
	ReasonRunning = "Running"
	// ReasonStarting: it isn't yet.
	ReasonStarting = "Starting"
	// ReasonUnresolved: it waits for what spec.workload names and can't be had: a
	// Secret or a key of it, a claim, an image.
	ReasonUnresolved = "Unresolved"
	// ReasonStuck: it has not become ready in ten minutes, or can't be made.
	ReasonStuck = "Stuck"
	// ReasonStopping: what ran ends, and nothing begins before that.
	ReasonStopping = "Stopping"
	// ReasonScaledToZero: spec.workload.replicas is 0.
	ReasonScaledToZero = "ScaledToZero"
	// ReasonForbidden: the Host may not run anything in the plugin's namespace.
	ReasonForbidden = "Forbidden"
	// ReasonRejected: the API server refuses what spec.workload asks for.
	ReasonRejected = "Rejected"
	// ReasonHostNotConfigured: the Host wasn't given what a pod needs: its CA, or
	// the launcher's image.
	ReasonHostNotConfigured = "HostNotConfigured"
)

// Reasons of ConfigReady on a PluginInstallation. ConfigInvalid is one too: the plugin
// gets no configuration then.
const (
	// ReasonSecretsResolved: every reference has its value.
	ReasonSecretsResolved = "SecretsResolved"
	// ReasonSecretsUnresolved: the message names the references that have none, and why.
	ReasonSecretsUnresolved = "SecretsUnresolved"
	// ReasonSecretsNotRead: nobody has read this version's Secrets yet.
	ReasonSecretsNotRead = "SecretsNotRead"
)

// Reasons of UpgradeReviewPending.
const (
	// ReasonManifestNotReviewed: an approval names another manifest digest than
	// the one in force.
	ReasonManifestNotReviewed = "ManifestNotReviewed"
	// ReasonManifestReviewed: every approval names the digest in force.
	ReasonManifestReviewed = "ManifestReviewed"
)

// Reasons of Ready and Fenced on a PluginCapabilityApproval. Ready uses the
// gates' names too.
const (
	// ReasonInForce: the row is active and no gate is closed.
	ReasonInForce = "InForce"
	// ReasonRevoked: a human or an uninstall took the grant away.
	ReasonRevoked = "Revoked"
	// ReasonExpired: spec.expiresAt has passed.
	ReasonExpired = "Expired"
	// ReasonNothingGranted: nothing was granted so far, or nothing is left.
	ReasonNothingGranted = "NothingGranted"
	// ReasonFenced: the revision in status is the one that every writer is
	// checked against.
	ReasonFenced = "Fenced"
	// ReasonFencing: the next revision can't be recorded yet; the message says
	// why. What the spec takes away is gone already.
	ReasonFencing = "Fencing"
)

// Reasons of ReviewRequired, and of a PluginCapabilityApproval that counts as
// absent.
const (
	// ReasonReviewed: nothing in the spec waits for a human.
	ReasonReviewed = "Reviewed"
	// ReasonActAlreadyUsed: spec.supersedesAct isn't the act in force.
	ReasonActAlreadyUsed = "ActAlreadyUsed"
	// ReasonDigestNotInForce: spec.manifestDigest isn't the digest in force.
	ReasonDigestNotInForce = "DigestNotInForce"
	// ReasonWorkspaceMismatch: spec.workspaceID isn't the workspace that the
	// namespace is bound to.
	ReasonWorkspaceMismatch = "WorkspaceMismatch"
	// ReasonInstallationMismatch: spec.installationID isn't the ID of the
	// installation of that name.
	ReasonInstallationMismatch = "InstallationMismatch"
	// ReasonInstallationNotFound: no installation has that name.
	ReasonInstallationNotFound = "InstallationNotFound"
	// ReasonNotDeclared: the spec lists capabilities that the manifest in force
	// doesn't declare.
	ReasonNotDeclared = "NotDeclared"
	// ReasonHumanReserved: the human policy keeps what the spec lists for
	// humans.
	ReasonHumanReserved = "HumanReserved"
	// ReasonNotVerified: the spec came while the admission policies were not
	// proven in force, so nobody has checked who wrote it. It widens after a new
	// edit.
	ReasonNotVerified = "NotVerified"
	// ReasonConfirmationRequired: the human policy asks for a second human, who
	// sets spec.confirmedBy to their own name.
	ReasonConfirmationRequired = "ConfirmationRequired"
	// ReasonUnseenChange: the approval changed while no process watched; it
	// counts as revoked once.
	ReasonUnseenChange = "UnseenChange"
	// ReasonUnknownCapability: the spec lists an ID that this Host's contract
	// doesn't have.
	ReasonUnknownCapability = "UnknownCapability"
)

// Reasons of the Kubernetes events (events.k8s.io) that tell transitions: each
// once, when the status that shows it is written. Those of revisions regard the
// PluginCapabilityApproval, and are related to the PluginCapabilityApprovalEvent
// that records the revision.
const (
	// EventReasonGranted: a human act widened or renewed the grant.
	EventReasonGranted = "Granted"
	// EventReasonNarrowed: less is granted than before.
	EventReasonNarrowed = "Narrowed"
	// EventReasonRevoked: nothing is granted any more.
	EventReasonRevoked = "Revoked"
	// EventReasonExpired: the grant has come to its end.
	EventReasonExpired = "Expired"
	// EventReasonGateClosed: a temporary block; nothing works.
	EventReasonGateClosed = "GateClosed"
	// EventReasonGateOpened: the block is gone; what was granted works again.
	EventReasonGateOpened = "GateOpened"
	// EventReasonUpgradeReview: computed again, for another manifest, policy or
	// store, without a human act.
	EventReasonUpgradeReview = "UpgradeReview"
	// EventReasonReviewRequired: the spec asks for what only a human act grants.
	EventReasonReviewRequired = "ReviewRequired"
	// EventReasonWorkloadReady regards a PluginInstallation: the plugin's pod is
	// ready.
	EventReasonWorkloadReady = "WorkloadReady"
	// EventReasonWorkloadNotReady: it isn't, or no longer; the note begins with the
	// condition's reason.
	EventReasonWorkloadNotReady = "WorkloadNotReady"
	// EventReasonConfigReady regards a PluginInstallation: every reference of
	// spec.secretRefs has its value again.
	EventReasonConfigReady = "ConfigReady"
	// EventReasonConfigNotReady: one has none, or another one than before.
	EventReasonConfigNotReady = "ConfigNotReady"
	// EventReasonHistoryLost: a revision was published that the store doesn't
	// have.
	EventReasonHistoryLost = "HistoryLost"
	// EventReasonPoliciesNotInForce regards a ValidatingAdmissionPolicy: not all
	// admission policies are in force, so no act is admitted.
	EventReasonPoliciesNotInForce = "AdmissionPoliciesNotInForce"
	// EventReasonPoliciesInForce: they are again.
	EventReasonPoliciesInForce = "AdmissionPoliciesInForce"
)
