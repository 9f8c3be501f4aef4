package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/test/world"
)

const (
	readTasks      = v1alpha1.CapabilityID("host.v2.read:tasks")
	readWorkflows  = v1alpha1.CapabilityID("host.v2.read:workflows")
	readWorkspaces = v1alpha1.CapabilityID("host.v2.read:workspaces")
	writeTasks     = v1alpha1.CapabilityID("host.v2.write:tasks")

	// What the seed file names.
	workflow  = "delivery"
	firstStep = "todo"

	// slowest is how long a write may commit after the API server showed its
	// revocation, in a world where nothing fails. `make bench` measures it properly.
	slowest = time.Second
)

const (
	missing = "DENIED/MISSING_CAPABILITY_APPROVAL"
	revoked = "DENIED/CAPABILITY_REVOKED"
)

// story is what one step hands to the next.
type story struct {
	*demo
	installed *v1alpha1.PluginInstallation
	// git is the path of team-a's approval in Git.
	git string
	// task is the one that the plugin created.
	task string
}

// tell runs the steps and ends with the first that isn't so.
func tell(ctx context.Context, d *demo) error {
	s := &story{demo: d}
	for _, step := range []struct {
		title string
		tell  func(context.Context) error
	}{
		{"Installed, and nothing granted: denied, with the reason", s.nothingGranted},
		{"A human approves with kubectl: it works, once for each key", s.grant},
		{"The other workspace: still denied, and as if it weren't there", s.otherWorkspace},
		{"A plugin that knows nothing of all this runs unmodified, through the launcher", s.unmodified},
		{"An upgrade wants more: the new capability stays inactive, and kubectl shows why", s.upgrade},
		{"Revoked: denied at once", s.revoke},
		{"GitOps applies the old manifest again: nothing comes back", s.applyAgain},
		{"Installed anew under the same name: the old approval grants nothing", s.reinstall},
		{"The audit trail: every revision, by whom and why", s.history},
	} {
		d.Title("%s", step.title)
		if err := step.tell(ctx); err != nil {
			return fmt.Errorf("%s: %w", strings.ToLower(step.title[:1])+step.title[1:], err)
		}
	}
	d.Title("%d checks in %.1f s", d.checks, time.Since(d.began).Seconds())
	return nil
}

// denied calls the plugin and demands an outcome.
func (s *story) denied(ctx context.Context, outcome, claim string, args ...string) (answer, error) {
	a, err := s.plugin(ctx, args...)
	if err != nil {
		return answer{}, err
	}
	return a, s.check(a.outcome() == outcome && a.AuditID != "" && !a.Local,
		fmt.Sprintf("%s: %s, with an audit ID", claim, outcome), a.outcome()+": "+a.Message)
}

// works calls the plugin and demands a success.
func (s *story) works(ctx context.Context, claim string, args ...string) (answer, error) {
	a, err := s.plugin(ctx, args...)
	if err != nil {
		return answer{}, err
	}
	return a, s.check(a.Reason == "", claim, a.outcome()+": "+a.Message)
}

func (s *story) approvals(ctx context.Context) error {
	return s.Kube(ctx, "get", "pca", "-A")
}

func (s *story) nothingGranted(ctx context.Context) error {
	if err := s.apply(ctx, "test/demo/manifests/installation.yaml"); err != nil {
		return err
	}
	var err error
	if s.installed, err = s.Installation(ctx); err != nil {
		return err
	}
	if err := s.Kube(ctx, "get", "pi", "-o", "wide"); err != nil {
		return err
	}
	// The Host learns of the new installation through its watch.
	var a answer
	if err := world.Await(ctx, "the plugin is known", func() (bool, string, error) {
		r, err := s.pluginQuietly(ctx, "context")
		if err != nil || r.Code != 0 {
			return false, r.Stderr, err
		}
		a, err = decode(r)
		return true, "", err
	}); err != nil {
		return err
	}
	if err := s.check(len(a.Workspaces) == 0, "the plugin learns that nobody approved it", a.Workspaces); err != nil {
		return err
	}
	_, err = s.denied(ctx, missing, "reading is denied", "list", "--workspace", "team-a")
	return err
}

func (s *story) grant(ctx context.Context) error {
	var err error
	s.git, err = s.commit("git/team-a/approval.yaml",
		world.Draft(s.installed, "", "Reports for team A.", readTasks, readWorkflows, writeTasks))
	if err != nil {
		return err
	}
	text, err := os.ReadFile(s.git)
	if err != nil {
		return fmt.Errorf("read the approval: %w", err)
	}
	s.Show("cat "+s.Shorten([]string{s.git})[0], string(text))
	if err := s.approve(ctx, s.git); err != nil {
		return err
	}
	if _, err := s.Settled(ctx, "the grant is in force", world.InForce("3/3")); err != nil {
		return err
	}
	if err := s.approvals(ctx); err != nil {
		return err
	}
	before, err := s.works(ctx, "reading works", "list", "--workspace", "team-a")
	if err != nil {
		return err
	}
	if err := s.check(len(before.Tasks) > 0, "it shows the tasks of team-a", before.Tasks); err != nil {
		return err
	}
	return s.write(ctx, len(before.Tasks))
}

func (s *story) write(ctx context.Context, before int) error {
	create := []string{
		"create", "--workspace", "team-a", "--workflow", workflow, "--step", firstStep, "--key", "report-1",
		"--title", "Write the weekly report",
	}
	first, err := s.plugin(ctx, create...)
	if err != nil {
		return err
	}
	if err := s.check(first.State == contract.StateApplied, "a task is created: APPLIED", first.outcome()+": "+first.Message); err != nil {
		return err
	}
	s.task = first.Task.ID
	again, err := s.plugin(ctx, create...)
	if err != nil {
		return err
	}
	if err := s.check(again.State == contract.StateAlreadyApplied && again.Task.ID == s.task,
		"the same key again finds the first result: ALREADY_APPLIED, the same task", again); err != nil {
		return err
	}
	create[len(create)-1] = "Write something else"
	other, err := s.plugin(ctx, create...)
	if err != nil {
		return err
	}
	if err := s.check(other.outcome() == "CONFLICT/IDEMPOTENCY_MISMATCH",
		"the same key for something else: CONFLICT/IDEMPOTENCY_MISMATCH", other.outcome()); err != nil {
		return err
	}
	after, err := s.plugin(ctx, "list", "--workspace", "team-a")
	if err != nil {
		return err
	}
	return s.check(len(after.Tasks) == before+1, "three calls made one task", len(after.Tasks)-before)
}

func (s *story) otherWorkspace(ctx context.Context) error {
	known, err := s.denied(ctx, missing, "team-b is another human's to grant", "list", "--workspace", "team-b")
	if err != nil {
		return err
	}
	absent, err := s.denied(ctx, missing, "a workspace that doesn't exist", "list", "--workspace", "team-nowhere")
	if err != nil {
		return err
	}
	known.AuditID, absent.AuditID = "", ""
	return s.check(fmt.Sprint(known) == fmt.Sprint(absent),
		"but for the audit ID the two answers are the same: the plugin can't tell whether team-b exists",
		fmt.Sprint(known, absent))
}

func (s *story) upgrade(ctx context.Context) error {
	if err := s.apply(ctx, "test/demo/manifests/installation-v2.yaml"); err != nil {
		return err
	}
	var err error
	if s.installed, err = s.Installation(ctx); err != nil {
		return err
	}
	was, err := s.Settled(ctx, "the upgrade is in force with the old grant", world.InForce("3/4"))
	if err != nil {
		return err
	}
	if err := s.approvals(ctx); err != nil {
		return err
	}
	if err := world.Await(ctx, "the upgrade waits for a review", func() (bool, string, error) {
		if err := s.API.Get(ctx, client.ObjectKey{Name: world.Plugin}, s.installed); err != nil {
			return false, "", fmt.Errorf("read the installation: %w", err)
		}
		c := world.Condition(s.installed.Status.Conditions, v1alpha1.ConditionUpgradeReviewPending, s.installed.Generation)
		return c.Status == metav1.ConditionTrue, world.Describe(s.installed.Status.Conditions), nil
	}); err != nil {
		return err
	}
	if err := s.Kube(ctx, "get", "pi", world.Plugin, "-o",
		`jsonpath={.status.conditions[?(@.type=="UpgradeReviewPending")].message}{"\n"}`); err != nil {
		return err
	}
	if _, err := s.denied(ctx, missing, "the new capability doesn't work", "workspace", "--workspace", "team-a"); err != nil {
		return err
	}
	if _, err := s.works(ctx, "what was granted goes on working", "list", "--workspace", "team-a"); err != nil {
		return err
	}

	s.say("Somebody adds the new ID to the approval, without a new review:")
	spec := *was.Spec.DeepCopy()
	spec.Capabilities = append(spec.Capabilities, readWorkspaces)
	hasty, err := s.commit("git/team-a/hasty.yaml", spec)
	if err != nil {
		return err
	}
	if err := s.approve(ctx, hasty); err != nil {
		return err
	}
	now, err := s.Settled(ctx, "the edit was looked at", world.InForce("3/4"))
	if err != nil {
		return err
	}
	if err := s.Kube(ctx, "get", "pca", "-n", "team-a", world.Plugin, "-o",
		`jsonpath={.status.inactiveCapabilities}{"\n"}{.status.conditions[?(@.type=="ReviewRequired")].message}{"\n"}`); err != nil {
		return err
	}
	inactive := slices.ContainsFunc(now.Status.InactiveCapabilities, func(c v1alpha1.InactiveCapability) bool {
		return c.ID == string(readWorkspaces)
	})
	review := world.Condition(now.Status.Conditions, v1alpha1.ConditionReviewRequired, now.Generation)
	if err := s.check(inactive && review.Status == metav1.ConditionTrue && now.Status.Revision == was.Status.Revision,
		"it stays inactive, no revision was made, and ReviewRequired says what a human must do",
		world.Describe(now.Status.Conditions)); err != nil {
		return err
	}

	s.say("The human reviews version 2 and approves it: the new digest, and the act that it supersedes.")
	s.git, err = s.commit("git/team-a/approval.yaml", world.Draft(s.installed, now.Status.Act, "Version 2 reviewed.",
		readTasks, readWorkflows, readWorkspaces, writeTasks))
	if err != nil {
		return err
	}
	if err := s.approve(ctx, s.git); err != nil {
		return err
	}
	if _, err := s.Settled(ctx, "the new grant is in force", world.InForce("4/4")); err != nil {
		return err
	}
	_, err = s.works(ctx, "now it works", "workspace", "--workspace", "team-a")
	return err
}

func (s *story) revoke(ctx context.Context) error {
	s.say("The plugin writes without pause while the human revokes.")
	watching, stop := context.WithCancel(ctx)
	defer stop()
	shown, err := s.watchRevocation(watching, "team-a")
	if err != nil {
		return err
	}
	hammer, err := s.startHammer(watching, "team-a", s.task)
	if err != nil {
		return err
	}
	err = s.Kube(ctx, "patch", "pca", world.Plugin, "-n", "team-a", "--as", world.Grace, "--type=merge", "-p",
		`{"spec":{"state":"Revoked","changedBy":"grace@example.com","reason":"Incident 42."}}`)
	if err != nil {
		return errors.Join(err, hammer.cmd.Process.Kill())
	}
	last, err := hammer.end()
	if err != nil {
		return err
	}
	var at time.Time
	select {
	case at = <-shown:
	case <-time.After(world.Patience):
		return errors.New("the watch never showed the revocation")
	}
	s.say("%d writes; from the API server showing the revocation, the last success was answered after %s, the denial after %s.",
		last.Writes, milliseconds(last.LastSuccess.Sub(at)), milliseconds(last.Denied.Sub(at)))
	if err := s.check(last.outcome() == revoked && last.LastSuccess.Sub(at) < slowest,
		"the next write was denied at once: "+revoked, last.outcome()+": "+last.Message); err != nil {
		return err
	}
	if _, err := s.Settled(ctx, "the revocation is fenced", func(o *v1alpha1.PluginCapabilityApproval) bool {
		return o.Status.State == v1alpha1.StateRevoked
	}); err != nil {
		return err
	}
	if err := s.approvals(ctx); err != nil {
		return err
	}
	_, err = s.denied(ctx, revoked, "reading is denied too", "list", "--workspace", "team-a")
	return err
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

func (s *story) applyAgain(ctx context.Context) error {
	if err := s.approve(ctx, s.git); err != nil {
		return err
	}
	now, err := s.Settled(ctx, "the old manifest was looked at", func(o *v1alpha1.PluginCapabilityApproval) bool {
		return o.Spec.State == v1alpha1.StateActive &&
			world.Condition(o.Status.Conditions, v1alpha1.ConditionReviewRequired, o.Generation).Status == metav1.ConditionTrue
	})
	if err != nil {
		return err
	}
	if err := s.Kube(ctx, "get", "pca", "-n", "team-a", "-o", "wide"); err != nil {
		return err
	}
	if err := s.Kube(ctx, "get", "pca", "-n", "team-a", world.Plugin, "-o",
		`jsonpath={.status.conditions[?(@.type=="ReviewRequired")].message}{"\n"}`); err != nil {
		return err
	}
	review := world.Condition(now.Status.Conditions, v1alpha1.ConditionReviewRequired, now.Generation)
	if err := s.check(now.Status.State == v1alpha1.StateRevoked && review.Reason == v1alpha1.ReasonActAlreadyUsed &&
		now.Status.Act != "" && strings.Contains(review.Message, now.Status.Act),
		"it stays revoked: the act is used, and the message names the one that a new grant must give",
		world.Describe(now.Status.Conditions)); err != nil {
		return err
	}
	if _, err := s.denied(ctx, revoked, "the plugin is still denied", "list", "--workspace", "team-a"); err != nil {
		return err
	}
	s.say("A human who wants it back puts that name into the file: a new act.")
	s.git, err = s.commit("git/team-a/approval.yaml", world.Draft(s.installed, now.Status.Act, "Incident 42 is closed.",
		readTasks, readWorkflows, readWorkspaces, writeTasks))
	if err != nil {
		return err
	}
	if err := s.approve(ctx, s.git); err != nil {
		return err
	}
	if _, err := s.Settled(ctx, "the new grant is in force", world.InForce("4/4")); err != nil {
		return err
	}
	_, err = s.works(ctx, "now it works again", "list", "--workspace", "team-a")
	return err
}

func (s *story) reinstall(ctx context.Context) error {
	if err := s.Kube(ctx, "delete", "pi", world.Plugin); err != nil {
		return err
	}
	if _, err := s.Settled(ctx, "uninstalling has revoked", func(o *v1alpha1.PluginCapabilityApproval) bool {
		return o.Status.State == v1alpha1.StateRevoked
	}); err != nil {
		return err
	}
	if err := s.approvals(ctx); err != nil {
		return err
	}
	if err := world.Await(ctx, "the token of an uninstalled plugin proves nothing", func() (bool, string, error) {
		r, err := s.pluginQuietly(ctx, "context")
		return strings.Contains(r.Stderr, "does not accept the token"), r.Stdout + r.Stderr, err
	}); err != nil {
		return err
	}
	if err := s.check(true, "uninstalling revoked what team-a had granted, and the plugin's token proves nothing any more", nil); err != nil {
		return err
	}
	if err := s.apply(ctx, "test/demo/manifests/installation-v2.yaml"); err != nil {
		return err
	}
	before := s.installed.Status
	var err error
	if s.installed, err = s.Installation(ctx); err != nil {
		return err
	}
	if err := s.check(s.installed.Status.InstallationID != before.InstallationID &&
		s.installed.Status.ManifestDigest == before.ManifestDigest,
		"the same package under the same name has another installation ID", s.installed.Status.InstallationID); err != nil {
		return err
	}
	if err := s.approve(ctx, s.git); err != nil {
		return err
	}
	now, err := s.Observed(ctx, "the old approval was looked at", func(o *v1alpha1.PluginCapabilityApproval) bool {
		review := world.Condition(o.Status.Conditions, v1alpha1.ConditionReviewRequired, o.Generation)
		return review.Reason == v1alpha1.ReasonInstallationMismatch
	})
	if err != nil {
		return err
	}
	if err := s.approvals(ctx); err != nil {
		return err
	}
	if err := s.Kube(ctx, "get", "pca", "-n", "team-a", world.Plugin, "-o",
		`jsonpath={.status.conditions[?(@.type=="ReviewRequired")].message}{"\n"}`); err != nil {
		return err
	}
	if err := s.check(len(now.Status.EffectiveCapabilities) == 0 && now.Status.State != v1alpha1.StateActive,
		"the old approval is about another installation, says so, and grants nothing",
		world.Describe(now.Status.Conditions)); err != nil {
		return err
	}
	if err := world.Await(ctx, "the new installation is known", func() (bool, string, error) {
		r, err := s.pluginQuietly(ctx, "context")
		return r.Code == 0, r.Stderr, err
	}); err != nil {
		return err
	}
	if _, err := s.denied(ctx, missing, "the plugin is denied", "list", "--workspace", "team-a"); err != nil {
		return err
	}
	_, err = s.commit("next-approval.yaml", world.Draft(s.installed, "", "Installed anew, reviewed.",
		readTasks, readWorkflows, readWorkspaces, writeTasks))
	return err
}

// historyColumns tell the history as the how-to does.
const historyColumns = "REVISION:.spec.revision,TIME:.spec.time,TYPE:.spec.type,CAUSE:.spec.cause," +
	"ACTOR:.spec.actor.name,ASSURANCE:.spec.actor.assurance,REASON:.spec.reason"

func (s *story) history(ctx context.Context) error {
	if err := s.Kube(ctx, "get", "pcae", "-l", v1alpha1.LabelWorkspaceID+"=team-a",
		"--sort-by=.spec.revision", "-o", "custom-columns="+historyColumns); err != nil {
		return err
	}
	var list v1alpha1.PluginCapabilityApprovalEventList
	if err := s.API.List(ctx, &list, client.MatchingLabels{v1alpha1.LabelWorkspaceID: "team-a"}); err != nil {
		return fmt.Errorf("list the events: %w", err)
	}
	// The new installation was never granted anything here: all is about the first.
	events := list.Items
	slices.SortFunc(events, func(a, b v1alpha1.PluginCapabilityApprovalEvent) int {
		return int(a.Spec.Revision - b.Spec.Revision)
	})
	var told []string
	for i, e := range events {
		if e.Spec.Revision != int64(i+1) || e.Spec.BeforeRevision != int64(i) || (e.Spec.PreviousHash == "") != (i == 0) {
			return fmt.Errorf("the history has a gap at revision %d: %+v", i+1, e.Spec)
		}
		told = append(told, fmt.Sprintf("%s/%s", e.Spec.Type, e.Spec.Cause))
	}
	want := []string{
		"Grant/Human", "UpgradeReview/ManifestChanged", "Grant/Human", "Revoke/Human", "Grant/Human", "Revoke/Uninstalled",
	}
	if err := s.check(slices.Equal(told, want), "revisions without a gap, each chained to the one before, tell this story", told); err != nil {
		return err
	}
	return s.rewriteHistory(ctx, events[len(events)-1].Name)
}

// rewriteHistory tries what nobody may, the cluster's administrator included.
func (s *story) rewriteHistory(ctx context.Context, event string) error {
	err := s.Kube(ctx, "patch", "pcae", event, "--type=merge", "-p", `{"spec":{"reason":"Nothing happened."}}`)
	return s.check(err != nil && strings.Contains(err.Error(), "an event never changes"),
		"the administrator can't rewrite an event", err)
}
