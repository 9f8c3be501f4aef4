package controllers

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// Every condition of ours is made here. They speak to people: the message says
// what to do.

func condition(kind string, status bool, reason, message string) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	if status {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// stamp sets the generation, and the time of the last change by comparison
// with the conditions before.
func stamp(conditions, before []metav1.Condition, generation int64, now time.Time) []metav1.Condition {
	for i := range conditions {
		c := &conditions[i]
		c.ObservedGeneration = generation
		c.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
		for _, b := range before {
			if b.Type == c.Type && b.Status == c.Status {
				c.LastTransitionTime = metav1.NewTime(b.LastTransitionTime.UTC())
			}
		}
	}
	return conditions
}

// gateMessages says what opens each gate, and who can.
var gateMessages = map[string]string{
	"Suspended":                     "a platform admin has suspended the installation; it works again once its spec.suspend is false",
	"ServiceAccountConflict":        "another installation names the same ServiceAccount, or it is in a workspace's namespace; see the installation's Accepted condition",
	"WorkspaceConflict":             "another namespace bears the same label " + v1alpha1.LabelWorkspaceID + "; a platform admin removes it there",
	"HostVersionUnsupported":        "the manifest asks for a newer Host; a platform admin updates the Host or installs another version",
	"PrincipalChanged":              "the plugin's ServiceAccount or its namespace isn't the one that was reviewed; a platform admin sets the installation's spec.serviceAccountRef.acceptUID to the uid of the ServiceAccount if it is right",
	"RequiredCapabilityUnavailable": "the plugin doesn't work without what its manifest requires and nobody granted here: %s; " + grantAnew,
}

// grantAnew says how an approver grants, on top of the act in force.
const grantAnew = "an approver who wants that sets spec.supersedesAct to %q and spec.manifestDigest to the installation's status.manifestDigest"

func gateMessage(row *authority.Row, gate string) string {
	if gate == "RequiredCapabilityUnavailable" {
		return fmt.Sprintf(gateMessages[gate], list(row.Required&^row.Granted), row.Act)
	}
	return gateMessages[gate]
}

func gatesOf(row *authority.Row) []v1alpha1.Gate {
	var list []v1alpha1.Gate
	for _, name := range row.Gates.Names() {
		list = append(list, v1alpha1.Gate{Type: v1alpha1.GateType(name), Message: gateMessage(row, name)})
	}
	return list
}

// causes says why a row was revoked.
var causes = map[authority.Cause]string{
	authority.CauseHuman:            "a human took it away",
	authority.CauseApprovalDeleted:  "the approval was deleted",
	authority.CauseUninstalled:      "the installation was removed",
	authority.CauseWorkspaceRemoved: "the namespace was no longer this workspace",
	authority.CauseUnseenChange:     "the approval was changed while no process watched, which counts as revoked",
}

// revokedBecause says why, and how to grant again.
func revokedBecause(row *authority.Row) string {
	cause, ok := causes[row.Cause]
	if !ok {
		// A later revision, of a manifest for instance, that changed nothing.
		cause = "it was taken away before"
	}
	if ok && row.Actor.Name != "" {
		cause += ": " + nameOfActor(row.Actor)
	}
	return fmt.Sprintf("revoked, as of revision %d of %s: %s; to grant again, "+grantAnew,
		row.Revision, authority.Timestamp(row.UpdatedAt), cause, row.Act)
}

// nameOfActor says who it was, and whether that is certain.
func nameOfActor(a authority.Actor) string {
	if a.Assurance == authority.ActorVerified {
		return a.Name
	}
	return a.Name + ", as claimed"
}

// inForce says what works, and what a reader should know of how it was granted.
func inForce(r authority.Report, spec *v1alpha1.PluginCapabilityApprovalSpec) string {
	row := r.Row
	message := fmt.Sprintf("%d of %d declared capabilities work", r.Effective.Len(), r.Declared.Len())
	if r.Review == nil && !row.ExpiresAt.IsZero() && (spec.ExpiresAt == nil || spec.ExpiresAt.After(row.ExpiresAt)) {
		message += fmt.Sprintf(", until %s: the human policy %s caps how long such a grant lasts, whatever spec.expiresAt asks for",
			authority.Timestamp(row.ExpiresAt), row.Vector.PolicyVersion)
	}
	if row.ApprovedVia != "" && row.ConfirmedBy != "" {
		message += fmt.Sprintf("; spec.approvedBy and spec.confirmedBy were both claimed by %s: the cluster can't know that two humans looked", row.ApprovedVia)
	}
	if row.Unproven {
		message += "; granted while the admission policies were not proven in force, so nobody has checked who approved: review it, and approve it again"
	}
	return message
}

// approvalReady tells whether what was granted works.
func approvalReady(r authority.Report, spec *v1alpha1.PluginCapabilityApprovalSpec) metav1.Condition {
	no := func(reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionReady, false, reason, message)
	}
	row := r.Row
	switch {
	case r.Waiting != nil:
		return no(string(r.Waiting.Reason), waiting(r))
	case r.InstallationMissing:
		return no(v1alpha1.ReasonInstallationNotFound, "the installation was removed; installing again needs a new approval")
	case r.WorkspaceMissing:
		return no(v1alpha1.ReasonWorkspaceMismatch, workspaceMissing(row.Key.WorkspaceID))
	case r.Review != nil && r.Review.Reason == authority.ReviewInstallationMismatch:
		return no(v1alpha1.ReasonInstallationMismatch, installationMismatch(row.Key.InstallationID))
	case r.Review != nil && r.Review.Reason == authority.ReviewWorkspaceMismatch:
		return no(v1alpha1.ReasonWorkspaceMismatch, workspaceMissing(row.Key.WorkspaceID))
	case row.State == authority.StateNone:
		return no(v1alpha1.ReasonNothingGranted, "nothing was granted so far; see ReviewRequired")
	case row.State == authority.StateRevoked:
		return no(v1alpha1.ReasonRevoked, revokedBecause(&row))
	case row.State == authority.StateExpired:
		return no(v1alpha1.ReasonExpired, fmt.Sprintf("expired at %s; to renew it, "+grantAnew, authority.Timestamp(row.ExpiresAt), row.Act))
	case row.Gates != 0:
		first := row.Gates.Names()[0]
		return no(first, gateMessage(&row, first))
	case r.Effective == 0:
		return no(v1alpha1.ReasonNothingGranted, "no capability that the manifest declares is granted")
	default:
		return condition(v1alpha1.ConditionReady, true, v1alpha1.ReasonInForce, inForce(r, spec))
	}
}

// approvalFenced is written after the fence has committed only: the status
// step is the last of a pass.
func approvalFenced(r authority.Report) metav1.Condition {
	revision := r.Row.Revision
	if r.Waiting != nil {
		return condition(v1alpha1.ConditionFenced, false, string(r.Waiting.Reason), waiting(r))
	}
	if revision == 0 {
		return condition(v1alpha1.ConditionFenced, false, v1alpha1.ReasonNothingGranted, "there is no revision yet")
	}
	return condition(v1alpha1.ConditionFenced, true, v1alpha1.ReasonFenced,
		fmt.Sprintf("no exact write under a revision below %d can commit any more", revision))
}

// waiting says why a row isn't what the spec asks for.
func waiting(r authority.Report) string {
	if r.Waiting.Reason == authority.WaitingHistory {
		return fmt.Sprintf("nothing works here: %s; a platform admin installs the plugin again, or, where the store is whole and somebody else has written this status, deletes this approval for a new one", shorten(r.Waiting.Message))
	}
	return fmt.Sprintf("what this version of the spec takes away is gone already, what it adds waits: revision %d can't be recorded yet: %s; a platform admin removes the cause, and it goes on by itself",
		r.Row.Revision+1, shorten(r.Waiting.Message))
}

// reviewRequired says what an approval asks for and doesn't get, and what a
// human has to write to grant it. doubt says why nobody has checked this version,
// where that is the reason.
func reviewRequired(r authority.Report, spec *v1alpha1.PluginCapabilityApprovalSpec, doubt string) metav1.Condition {
	review := r.Review
	if r.Waiting != nil {
		c := condition(v1alpha1.ConditionReviewRequired, false, string(r.Waiting.Reason), "not known yet; see Fenced")
		c.Status = metav1.ConditionUnknown
		return c
	}
	if review == nil {
		return condition(v1alpha1.ConditionReviewRequired, false, v1alpha1.ReasonReviewed, "nothing in the spec waits for a human")
	}
	var does []string
	if review.Widens != 0 {
		does = append(does, "grant "+list(review.Widens))
	}
	if review.Reactivates {
		does = append(does, "make the grant active")
	}
	if review.Extends {
		does = append(does, "extend it beyond "+authority.Timestamp(r.Row.ExpiresAt))
	}
	would := "nothing changes"
	if len(does) > 0 {
		would = "it would " + strings.Join(does, ", ")
	}
	var message string
	switch review.Reason {
	case authority.ReviewActAlreadyUsed:
		message = fmt.Sprintf("the act that spec.supersedesAct names was used before: %s; a human who wants that sets spec.supersedesAct to %q and spec.manifestDigest to %q", would, review.Act, review.Digest)
	case authority.ReviewDigestNotInForce:
		message = fmt.Sprintf("spec.manifestDigest isn't the digest in force: %s once that manifest is installed; to grant on the one in force, review it and set spec.manifestDigest to %q with spec.supersedesAct %q", would, review.Digest, review.Act)
	case authority.ReviewInstallationMismatch:
		message = fmt.Sprintf("%s; a human who wants to grant sets spec.installationID to that ID, spec.supersedesAct to %q and spec.manifestDigest to %q", installationMismatch(r.Row.Key.InstallationID), review.Act, review.Digest)
	case authority.ReviewWorkspaceMismatch:
		message = workspaceMissing(r.Row.Key.WorkspaceID)
	case authority.ReviewNotVerified:
		message = "nobody has checked who wrote this version: " + would + "; " + doubt
	case authority.ReviewConfirmationRequired:
		message = confirmation(spec, would)
	}
	return condition(v1alpha1.ConditionReviewRequired, true, string(review.Reason), message)
}

// confirmation says how a second human comes to stand behind a spec.
func confirmation(spec *v1alpha1.PluginCapabilityApprovalSpec, would string) string {
	switch second := fmt.Sprintf("a human other than %s sets spec.confirmedBy to their own name, in a write that changes nothing else", spec.ApprovedBy); {
	case spec.ApprovedVia != "":
		return fmt.Sprintf("the human policy asks for two humans, and %s, which wrote this, is neither: what it claims in spec.approvedBy and spec.confirmedBy counts only under a policy with spec.acceptClaimedFourEyes; %s once a human approves with an account of their own and another one confirms",
			spec.ApprovedVia, would)
	case spec.ConfirmedBy == spec.ApprovedBy:
		return fmt.Sprintf("the human policy asks for two humans, and spec.confirmedBy is spec.approvedBy: %s once %s", would, second)
	default:
		return fmt.Sprintf("the human policy asks for a second human: %s once %s", would, second)
	}
}

// How a version that nobody has checked comes to count.
const (
	doubtAlways = "it came while the admission policies were not proven in force, and never counts; a human who wants that has it written anew: another human approves it, or the same one revokes it first and then approves"
	doubtNow    = "the admission policies are not in force now: %s; once a platform admin has put that right, it counts by itself"
)

func list(set contract.CapabilitySet) string { return strings.Join(set.IDs(), ", ") }

func installationMismatch(id string) string {
	return fmt.Sprintf("spec.installationID isn't the ID of the installation of this name; the one that is installed has the ID %q", id)
}

func workspaceMissing(id string) string {
	return fmt.Sprintf("this namespace isn't the workspace %q; a platform admin labels it with %s=%s", id, v1alpha1.LabelWorkspaceID, id)
}

// absent are the conditions of an approval that speaks for nothing and has
// changed nothing. What an earlier revision says doesn't speak of this version.
func absent(reason, message string) []metav1.Condition {
	return []metav1.Condition{
		condition(v1alpha1.ConditionReady, false, reason, message),
		condition(v1alpha1.ConditionFenced, false, v1alpha1.ReasonNothingGranted, "no revision follows from this approval; see Ready"),
		condition(v1alpha1.ConditionReviewRequired, true, reason, message),
	}
}

// accepted tells whether an installation can be authorised on this Host, and
// configured.
func accepted(e *examined, object *v1alpha1.PluginInstallation, lost string) metav1.Condition {
	no := func(reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionAccepted, false, reason, message)
	}
	account := e.ServiceAccountNamespace + "/" + e.ServiceAccountName
	misfit := kinds.ConfigFault(object)
	switch {
	case lost != "":
		return no(v1alpha1.ReasonHistoryLost, lost)
	case contract.ReadsAsInstallationID(object.Spec.PluginID):
		return no(v1alpha1.ReasonPluginIDInvalid,
			"spec.pluginID: can't be a UUID, as installation IDs are; delete this installation and install a package of another ID")
	case len(e.unknown) > 0:
		return no(v1alpha1.ReasonUnknownCapability,
			"spec.manifest: this Host doesn't have "+shorten(strings.Join(e.unknown, ", "))+"; a newer Host may")
	case e.HostVersionUnsupported:
		return no(string(v1alpha1.GateHostVersionUnsupported),
			"spec.manifest.minHostVersion is above "+kinds.HostLevel+", the level of this Host")
	case len(e.ClaimedBy) > 0:
		return no(string(v1alpha1.GateServiceAccountConflict),
			"spec.serviceAccountRef: "+account+" is named by another installation too: "+shorten(strings.Join(e.ClaimedBy, ", ")))
	case e.InWorkspace != "":
		return no(v1alpha1.ReasonServiceAccountInWorkspace,
			"spec.serviceAccountRef.namespace: "+e.ServiceAccountNamespace+" is the namespace of workspace "+e.InWorkspace+"; give the plugin a namespace of its own")
	case e.AccountUID == "":
		return no(v1alpha1.ReasonServiceAccountNotFound, "spec.serviceAccountRef: "+account+" or its namespace doesn't exist")
	case e.PrincipalChanged:
		return no(string(v1alpha1.GatePrincipalChanged),
			"spec.serviceAccountRef: "+account+" isn't the ServiceAccount that was reviewed; if it is right, set acceptUID to "+e.AccountUID)
	case misfit != nil:
		return no(v1alpha1.ReasonConfigInvalid, shorten(misfit.Error()))
	default:
		message := "the installation can be authorised"
		if others := kinds.OtherGrants(object); len(others) > 0 {
			message += "; " + strings.Join(others, " and ") + " names another installation than " + e.ID + ", which this one is, and grants nothing"
		}
		return condition(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, message)
	}
}

func installationReady(accepted metav1.Condition, suspended bool) metav1.Condition {
	switch {
	case accepted.Status != metav1.ConditionTrue:
		return condition(v1alpha1.ConditionReady, false, v1alpha1.ReasonNotAccepted, "see Accepted: "+accepted.Reason)
	case suspended:
		return condition(v1alpha1.ConditionReady, false, string(v1alpha1.GateSuspended), gateMessages["Suspended"])
	default:
		return condition(v1alpha1.ConditionReady, true, v1alpha1.ReasonAccepted, "approvals of it can take force")
	}
}

// configReady names the references of spec.secretRefs that have no value.
func configReady(object *v1alpha1.PluginInstallation, secrets ConfigSecrets) metav1.Condition {
	if kinds.ConfigFault(object) != nil {
		return condition(v1alpha1.ConditionConfigReady, false, v1alpha1.ReasonConfigInvalid, "see Accepted; the plugin gets no configuration")
	}
	why, known := secrets.Unresolved(object)
	switch {
	case !known:
		// What the process before this one has read stands until this one has.
		if c := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionConfigReady); c != nil && c.ObservedGeneration == object.Generation {
			return *c
		}
		return condition(v1alpha1.ConditionConfigReady, false, v1alpha1.ReasonSecretsNotRead, "the Secrets of spec.secretRefs are not read yet")
	case len(why) > 0:
		return condition(v1alpha1.ConditionConfigReady, false, v1alpha1.ReasonSecretsUnresolved, shorten(strings.Join(why, "; ")))
	default:
		return condition(v1alpha1.ConditionConfigReady, true, v1alpha1.ReasonSecretsResolved, "every reference of spec.secretRefs has its value")
	}
}

// upgradeReview names the namespaces whose approval is of another manifest.
func upgradeReview(namespaces []string, digest string) metav1.Condition {
	if len(namespaces) == 0 {
		return condition(v1alpha1.ConditionUpgradeReviewPending, false, v1alpha1.ReasonManifestReviewed,
			"every approval names the digest in force")
	}
	return condition(v1alpha1.ConditionUpgradeReviewPending, true, v1alpha1.ReasonManifestNotReviewed,
		fmt.Sprintf("another digest than %s is named by the approvals of %d namespaces: %s", digest, len(namespaces), shorten(strings.Join(namespaces, ", "))))
}

// shorten keeps a message within what a condition may hold, whatever is listed.
func shorten(text string) string {
	const most = 1000
	if len(text) <= most {
		return text
	}
	// Half a character at the end would be stored as another one, and so never be what
	// was written.
	return strings.ToValidUTF8(text[:most], "") + "..."
}
