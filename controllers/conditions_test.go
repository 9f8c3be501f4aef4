package controllers

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

var until = time.Date(2030, 6, 1, 0, 0, 0, 0, time.UTC)

// A condition tells people what to do, by name.
func TestConditions_SayWhatToDo(t *testing.T) {
	active := func() authority.Report {
		return authority.Report{
			Row: authority.Row{
				Key: authority.Key{InstallationID: "i", WorkspaceID: "payments"}, Revision: 3, Act: "3-aaaaaa", State: authority.StateActive,
				Granted: contract.SetOf(contract.ReadTasks), Declared: contract.SetOf(contract.ReadTasks), Allowed: contract.AllCapabilities,
				ApprovedBy: "ada", ExpiresAt: until, Vector: authority.Vector{PolicyVersion: "builtin/v1+strict@0123"},
			},
			Effective: contract.SetOf(contract.ReadTasks), Declared: contract.SetOf(contract.ReadTasks),
		}
	}
	review := func(reason authority.ReviewReason) authority.Report {
		r := active()
		r.Review = &authority.Review{Reason: reason, Widens: contract.SetOf(contract.WriteTasks), Act: "3-aaaaaa", Digest: "v1:x"}
		return r
	}
	asks := func(t time.Time) *v1alpha1.PluginCapabilityApprovalSpec {
		at := metav1.NewTime(t)
		return &v1alpha1.PluginCapabilityApprovalSpec{ExpiresAt: &at}
	}
	revoked := active()
	revoked.Row.State, revoked.Row.Cause, revoked.Row.UpdatedAt = authority.StateRevoked, authority.CauseHuman, until
	revoked.Row.Actor = authority.Actor{Name: "grace", Assurance: authority.ActorVerified}
	claimedBy := revoked
	claimedBy.Row.Actor.Assurance = authority.ActorClaimed
	behindGitOps := active()
	behindGitOps.Row.ApprovedVia, behindGitOps.Row.ConfirmedBy = "system:serviceaccount:flux:kc", "grace"
	unproven := active()
	unproven.Row.Unproven = true

	ready := approvalReady
	required := func(r authority.Report, spec *v1alpha1.PluginCapabilityApprovalSpec) metav1.Condition {
		return reviewRequired(r, spec, "the doubt")
	}
	for name, c := range map[string]struct {
		of     func(authority.Report, *v1alpha1.PluginCapabilityApprovalSpec) metav1.Condition
		report authority.Report
		spec   *v1alpha1.PluginCapabilityApprovalSpec
		says   []string
		not    []string
	}{
		"what was asked for": {ready, active(), asks(until), []string{"1 of 1"}, []string{"caps", "claimed", "nobody"}},
		"a lifetime that the policy caps": {ready, active(), asks(until.Add(time.Hour)),
			[]string{"2030-06-01T00:00:00.000000Z", "builtin/v1+strict@0123", "caps"}, nil},
		"a lifetime without an end that the policy caps": {ready, active(), &v1alpha1.PluginCapabilityApprovalSpec{}, []string{"caps"}, nil},
		"an end that an earlier narrowing has set, not the policy": {ready, review(authority.ReviewActAlreadyUsed), asks(until.Add(time.Hour)),
			nil, []string{"caps"}},
		"two names behind a GitOps identity": {ready, behindGitOps, asks(until),
			[]string{"both claimed by system:serviceaccount:flux:kc", "can't know that two humans looked"}, nil},
		"a grant of before the policies": {ready, unproven, asks(until), []string{"nobody has checked who approved", "review it"}, nil},
		"who revoked, and when":          {ready, revoked, asks(until), []string{"revision 3 of 2030-06-01", "a human took it away: grace;", "3-aaaaaa"}, []string{"claimed"}},
		"who is said to have revoked":    {ready, claimedBy, asks(until), []string{"grace, as claimed"}, nil},
		"a version that nobody checked": {required, review(authority.ReviewNotVerified), asks(until),
			[]string{"nobody has checked who wrote this version", "grant host.v2.write:tasks", "the doubt"}, nil},
		"a missing second human": {required, review(authority.ReviewConfirmationRequired), &v1alpha1.PluginCapabilityApprovalSpec{ApprovedBy: "ada"},
			[]string{"grant host.v2.write:tasks", "a human other than ada", "spec.confirmedBy", "changes nothing else"}, nil},
		"the same human twice": {required, review(authority.ReviewConfirmationRequired),
			&v1alpha1.PluginCapabilityApprovalSpec{ApprovedBy: "ada", ConfirmedBy: "ada"}, []string{"spec.confirmedBy is spec.approvedBy", "other than ada"}, nil},
		"a GitOps identity's claims": {required, review(authority.ReviewConfirmationRequired),
			&v1alpha1.PluginCapabilityApprovalSpec{ApprovedBy: "ada", ConfirmedBy: "grace", ApprovedVia: "flux"},
			[]string{"flux", "acceptClaimedFourEyes", "account of their own"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.of(c.report, c.spec).Message
			for _, text := range c.says {
				if !strings.Contains(got, text) {
					t.Errorf("it doesn't say %q: %s", text, got)
				}
			}
			for _, text := range c.not {
				if strings.Contains(got, text) {
					t.Errorf("it says %q: %s", text, got)
				}
			}
		})
	}
}

// No reason of a review is without words.
func TestConditions_EachReviewSaysSomething(t *testing.T) {
	for _, reason := range []authority.ReviewReason{
		authority.ReviewActAlreadyUsed, authority.ReviewDigestNotInForce, authority.ReviewWorkspaceMismatch,
		authority.ReviewInstallationMismatch, authority.ReviewNotVerified, authority.ReviewConfirmationRequired,
	} {
		c := reviewRequired(authority.Report{Review: &authority.Review{Reason: reason}}, &v1alpha1.PluginCapabilityApprovalSpec{}, "doubt")
		if c.Status != metav1.ConditionTrue || c.Reason != string(reason) || len(c.Message) < 20 {
			t.Errorf("%s: %+v", reason, c)
		}
	}
}

func TestShorten_CutsNoCharacter(t *testing.T) {
	for begins := range 4 {
		got := shorten(strings.Repeat("x", begins) + strings.Repeat("€", 1000))
		if !utf8.ValidString(got) || !strings.HasSuffix(got, "€...") || len(got) > 1003 || len(got) < 1000 {
			t.Errorf("%d bytes before: %q", begins, got)
		}
	}
}
