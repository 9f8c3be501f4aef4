package kubectl_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/test/world"
)

const gitOps = "system:serviceaccount:team-a:approvals"

// A GitOps identity that an administrator named applies what two humans are
// claimed to have reviewed: the grant works, and nobody takes the names for
// verified. It changes the admission policies, so it is the last test of the
// package by its file's name.
func TestGitOps_AnIdentityClaimsWhoApproved(t *testing.T) {
	installed(t, "claimed", readTasks, writeTasks)
	mustKube(t, "", "-n", "team-a", "create", "serviceaccount", "approvals")
	mustKube(t, "", "-n", "team-a", "create", "rolebinding", "approvals", "--clusterrole=plugin-host-approver", "--serviceaccount=team-a:approvals")
	git := newFolder(t)
	git.write("claimed.yaml", must(t, 0, world.Ada, "review", "claimed", "-n", "team-a", "-o", "yaml", "--capability", readTasks,
		"--via", gitOps, "--reason", "Reviewed in PR 118").Stdout)
	apply := func() world.Result {
		t.Helper()
		return kube(t, gitOps, "apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller", "-f", git.path)
	}
	// Until it is named, it grants nothing.
	if r := apply(); r.Code == 0 || !strings.Contains(r.Stderr, "unless an administrator named them as a GitOps identity") {
		t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
	}
	for _, policy := range v1alpha1.AdmissionPolicies() {
		mustKube(t, "", "patch", "validatingadmissionpolicy", policy, "--type=json",
			"-p", `[{"op":"test","path":"/spec/variables/0/name","value":"gitOpsIdentities"},{"op":"replace","path":"/spec/variables/0/expression","value":"['`+gitOps+`']"}]`)
	}
	// While the changed policies aren't proven nothing widens, and what came in the
	// meantime has to be written anew: here, another human approves it in Git.
	approver, other := world.Ada, world.Grace
	var granted *v1alpha1.PluginCapabilityApproval
	if err := world.Await(t.Context(), "the claimed grant is in force", func() (bool, string, error) {
		if r := apply(); r.Code != 0 {
			return false, r.Stderr, nil
		}
		granted = settled(t, "team-a", "claimed", "the Host has looked", func(*v1alpha1.PluginCapabilityApproval) bool { return true })
		review := world.Condition(granted.Status.Conditions, v1alpha1.ConditionReviewRequired, granted.Generation)
		if review.Status == metav1.ConditionTrue && review.Reason == v1alpha1.ReasonNotVerified {
			git.edit("claimed.yaml", `approvedBy: "`+approver, `approvedBy: "`+other)
			approver, other = other, approver
		}
		return len(granted.Status.EffectiveCapabilities) == 1, world.Describe(granted.Status.Conditions), nil
	}); err != nil {
		t.Fatal(err)
	}
	if granted.Status.ApproverAssurance != v1alpha1.ApproverClaimed || granted.Status.ApprovedVia != gitOps {
		t.Errorf("approved by %s, %s, via %s", granted.Status.ApprovedBy, granted.Status.ApproverAssurance, granted.Status.ApprovedVia)
	}
	text := must(t, 0, world.Ada, "review", "claimed", "-n", "team-a").Stdout
	golden(t, "via-review", strings.ReplaceAll(text, approver, "<approver>"))
	// Without drift, as its own identity.
	for range reconciles {
		if r := apply(); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
	}
	unchanged(t, granted)
	// A human revokes beside Git, and is told that Git will be back.
	golden(t, "via-revoke", both(must(t, 0, world.Grace, "revoke", "claimed", "-n", "team-a", "--reason", "Incident 42")))
	if r := apply(); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	settled(t, "team-a", "claimed", "self-heal restores nothing", works())
	audit := must(t, 0, world.Ada, "audit", "claimed", "-n", "team-a").Stdout
	if !strings.Contains(audit, "by "+approver+" (Claimed) via "+gitOps) || !strings.Contains(audit, "by grace@example.com (Verified)") {
		t.Errorf("the history says\n%s", audit)
	}
}
