package kubectl_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/test/world"
)

const digits = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// reconciles is how often a GitOps controller applies what is in Git already.
const reconciles = 5

func TestGitOps_ServerSideApplyRoundTripsWithoutDrift(t *testing.T) {
	installed(t, "fluxed", readTasks, writeTasks)
	git := newFolder(t)
	git.write("fluxed.yaml", must(t, 0, world.Ada, "review", "fluxed", "-n", "team-a", "-o", "yaml", "--capability", readTasks, "--reason", "x").Stdout)
	flux := func(extra ...string) string {
		t.Helper()
		return mustKube(t, world.Ada, append([]string{"apply", "--server-side", "--force-conflicts",
			"--field-manager=kustomize-controller", "-f", git.path}, extra...)...)
	}
	flux()
	before := settled(t, "team-a", "fluxed", "the grant", works(readTasks))
	for range reconciles {
		// Flux asks by a dry run whether there is drift, and applies where there is.
		var dry v1alpha1.PluginCapabilityApproval
		if err := json.Unmarshal([]byte(flux("--dry-run=server", "-o", "json")), &dry); err != nil {
			t.Fatal(err)
		}
		if dry.ResourceVersion != before.ResourceVersion || !equality.Semantic.DeepEqual(dry.Spec, before.Spec) || !equality.Semantic.DeepEqual(dry.Status, before.Status) {
			t.Fatalf("it sees drift: %+v, not %+v", dry, before)
		}
		flux()
	}
	unchanged(t, before)
	// The status belongs to the Host alone.
	for _, entry := range before.ManagedFields {
		if entry.Subresource == "" && entry.Manager != "kustomize-controller" {
			t.Errorf("the field manager %s owns a part of what Git says", entry.Manager)
		}
		if entry.Subresource == "status" && entry.Manager != "plugin-host" {
			t.Errorf("the field manager %s owns a part of the status", entry.Manager)
		}
	}
}

func TestGitOps_ClientSideApplyRoundTripsWithoutDrift(t *testing.T) {
	installed(t, "argoed", readTasks, writeTasks)
	git := newFolder(t)
	git.write("argoed.yaml", must(t, 0, world.Ada, "review", "argoed", "-n", "team-a", "-o", "yaml", "--capability", readTasks, "--reason", "x").Stdout)
	mustKube(t, world.Ada, "apply", "-f", git.path)
	before := settled(t, "team-a", "argoed", "the grant", works(readTasks))
	for range reconciles {
		if r := kube(t, world.Ada, "diff", "-f", git.path); r.Code != 0 {
			t.Fatalf("it sees drift:\n%s%s", r.Stdout, r.Stderr)
		}
		mustKube(t, world.Ada, "apply", "-f", git.path)
	}
	unchanged(t, before)
}

// unchanged wants the very object, written by nobody since.
func unchanged(t *testing.T, before *v1alpha1.PluginCapabilityApproval) {
	t.Helper()
	var now v1alpha1.PluginCapabilityApproval
	if err := everything.API.Get(t.Context(), client.ObjectKeyFromObject(before), &now); err != nil {
		t.Fatal(err)
	}
	if now.ResourceVersion != before.ResourceVersion || now.Generation != before.Generation {
		t.Errorf("it was written: resource version %s -> %s, generation %d -> %d", before.ResourceVersion, now.ResourceVersion, before.Generation, now.Generation)
	}
}

// I7: no manifest works twice. An approval that is pruned by accident is revoked,
// and its manifest gives nothing back, however often it is applied.
func TestI7_PruningFailsClosedAndAddingBackRestoresNothing(t *testing.T) {
	installed(t, "pruned", readTasks, writeTasks)
	git := newFolder(t)
	file := git.write("clusters/prod/pruned.yaml", must(t, 0, world.Ada, "review", "pruned", "-n", "team-a", "-o", "yaml",
		"--capability", readTasks, "--reason", "x").Stdout)
	apply := func() {
		t.Helper()
		mustKube(t, world.Ada, "apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller", "-f", file)
	}
	apply()
	granted := settled(t, "team-a", "pruned", "the grant", works(readTasks))
	mustKube(t, world.Ada, "-n", "team-a", "delete", "pca", "pruned")
	name := authority.EventName(authority.Key{InstallationID: granted.Spec.InstallationID, WorkspaceID: "team-a"}, uint64(granted.Status.Revision)+1)
	if err := world.Await(t.Context(), "the revocation is recorded", func() (bool, string, error) {
		err := everything.API.Get(t.Context(), client.ObjectKey{Name: name}, &v1alpha1.PluginCapabilityApprovalEvent{})
		return err == nil, "no event " + name, client.IgnoreNotFound(err)
	}); err != nil {
		t.Fatal(err)
	}
	golden(t, "gitops-pruned-explain", must(t, 2, world.Ada, "explain", "pruned", "-n", "team-a", "--capability", readTasks).Stdout)
	for range 2 {
		apply()
		o := settled(t, "team-a", "pruned", "the manifest that was added back", func(o *v1alpha1.PluginCapabilityApproval) bool {
			review := world.Condition(o.Status.Conditions, v1alpha1.ConditionReviewRequired, o.Generation)
			return review.Status == metav1.ConditionTrue && review.Reason == v1alpha1.ReasonActAlreadyUsed
		})
		if len(o.Status.EffectiveCapabilities) != 0 || o.Status.Revision <= granted.Status.Revision || o.Status.Act == granted.Status.Act {
			t.Fatalf("revision %d, act %s, effective %v", o.Status.Revision, o.Status.Act, o.Status.EffectiveCapabilities)
		}
	}
	// It says so before, too: an edit of the manifest that leaves the act as it is
	// asks, and does not get.
	git.edit("clusters/prod/pruned.yaml", `reason: "x"`, `reason: "Again"`)
	must(t, 4, world.Ada, "diff", "-f", git.path)
	// A human puts the act in.
	must(t, 0, world.Ada, "review", "-f", git.path, "--in-place")
	must(t, 3, world.Ada, "diff", "-f", git.path)
	apply()
	settled(t, "team-a", "pruned", "the new act", works(readTasks))
	golden(t, "gitops-pruned-audit", must(t, 0, world.Ada, "audit", "pruned", "-n", "team-a").Stdout)
}

// An emergency revocation beside Git: self-heal puts the manifest back, and gets
// nothing.
func TestI7_SelfHealAfterARevocationRestoresNothing(t *testing.T) {
	installed(t, "healed", readTasks)
	git := newFolder(t)
	git.write("healed.yaml", must(t, 0, world.Ada, "review", "healed", "-n", "team-a", "-o", "yaml", "--capability", readTasks).Stdout)
	heal := func() {
		t.Helper()
		mustKube(t, world.Ada, "apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller", "-f", git.path)
	}
	heal()
	settled(t, "team-a", "healed", "the grant", works(readTasks))
	must(t, 0, world.Grace, "revoke", "healed", "-n", "team-a", "--reason", "Incident 42")
	for range reconciles {
		heal()
	}
	o := settled(t, "team-a", "healed", "self-heal", func(o *v1alpha1.PluginCapabilityApproval) bool {
		return o.Spec.State == v1alpha1.StateActive
	})
	if o.Status.State != v1alpha1.StateRevoked || len(o.Status.EffectiveCapabilities) != 0 {
		t.Errorf("state %s, effective %v", o.Status.State, o.Status.EffectiveCapabilities)
	}
}

// A new cluster from the same Git: the folder of another cluster names IDs and acts
// that are not this one's.
func TestGitOps_ANewClusterFromTheSameGit(t *testing.T) {
	installed(t, "moved", readTasks, writeTasks)
	git := newFolder(t)
	original := `# Reviewed by the payments team.
apiVersion: plugins.kandev.ai/v1alpha1
kind: PluginCapabilityApproval
metadata:
  name: moved
  namespace: team-b # theirs
spec:
  installationName: moved
  installationID: 11111111-2222-3333-4444-555555555555   # of the old cluster
  manifestDigest: 'v1:` + digits + `'
  workspaceID: team-b
  supersedesAct: "17-k3v7qa"
  capabilities: [host.v2.read:tasks] # no writes
  approvedBy: grace@example.com
---
apiVersion: v1
kind: ConfigMap
metadata: {name: untouched}
`
	git.write("payments/moved.yaml", original)
	r := must(t, 1, world.Grace, "review", "-f", git.path, "--capability", writeTasks)
	golden(t, "review-folder-adds", both(r))
	if git.read("payments/moved.yaml") != original {
		t.Error("a refusal changed the file")
	}
	r = must(t, 0, world.Grace, "review", "-f", filepath.Join(git.path, "payments/moved.yaml"), "-o", "yaml")
	golden(t, "review-folder", r.Stdout)
	must(t, 0, world.Grace, "review", "-f", git.path, "--in-place")
	if git.read("payments/moved.yaml") == original {
		t.Error("--in-place wrote nothing")
	}
	onlyApproval := git.write("apply/moved.yaml", firstDocument(git.read("payments/moved.yaml")))
	mustKube(t, world.Grace, "apply", "--server-side", "-f", onlyApproval)
	settled(t, "team-b", "moved", "the grant in the new cluster", works(readTasks))
}

func firstDocument(text string) string {
	first, _, _ := strings.Cut(text, "\n---\n")
	return first + "\n"
}
