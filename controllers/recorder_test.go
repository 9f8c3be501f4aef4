package controllers

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

func TestRecorder_TellsEachRevision(t *testing.T) {
	ada := authority.Actor{Name: "ada", Assurance: authority.ActorVerified}
	machine := authority.Actor{Assurance: authority.ActorSystem}
	for name, c := range map[string]struct {
		event  authority.Event
		reason string
		warn   bool
		says   []string
	}{
		"a grant": {
			authority.Event{
				Type: authority.EventGrant, Effective: contract.SetOf(contract.ReadTasks),
				Row: authority.Row{Revision: 1, State: authority.StateActive, Cause: authority.CauseHuman, Actor: ada, Reason: "the stand-up bot", ConfirmedBy: "grace"},
			},
			v1alpha1.EventReasonGranted, false,
			[]string{"revision 1: ada (Human)", "confirmed by grace", "host.v2.read:tasks works now", "the stand-up bot"},
		},
		"a grant through a GitOps identity": {
			authority.Event{Type: authority.EventGrant, Row: authority.Row{
				Revision: 2, State: authority.StateActive, Cause: authority.CauseHuman, ApprovedVia: "flux",
				Actor: authority.Actor{Name: "ada", Assurance: authority.ActorClaimed},
			}},
			v1alpha1.EventReasonGranted, false, []string{"ada, as claimed", "through flux"},
		},
		"a revocation": {
			authority.Event{Type: authority.EventRevoke, Row: authority.Row{Revision: 3, State: authority.StateRevoked, Cause: authority.CauseHuman, Actor: ada}},
			v1alpha1.EventReasonRevoked, false, []string{"ada", "nothing works now"},
		},
		"a deletion": {
			authority.Event{Type: authority.EventRevoke, Row: authority.Row{
				Revision: 3, State: authority.StateRevoked, Cause: authority.CauseApprovalDeleted, Actor: authority.Actor{Assurance: authority.ActorUnknown},
			}},
			v1alpha1.EventReasonRevoked, true, []string{"somebody unknown (ApprovalDeleted)"},
		},
		"an expiry": {
			authority.Event{Type: authority.EventRevoke, Row: authority.Row{Revision: 4, State: authority.StateExpired, Cause: authority.CauseExpired, Actor: machine}},
			v1alpha1.EventReasonExpired, true, []string{"Expired"},
		},
		"a narrowing": {
			authority.Event{Type: authority.EventNarrow, Row: authority.Row{Revision: 5, State: authority.StateActive, Cause: authority.CauseHuman, Actor: ada}},
			v1alpha1.EventReasonNarrowed, false, nil,
		},
		"a suspension": {
			authority.Event{Type: authority.EventNarrow, Row: authority.Row{
				Revision: 6, State: authority.StateActive, Cause: authority.CauseSuspended, Actor: machine, Gates: authority.GateSuspended,
			}},
			v1alpha1.EventReasonGateClosed, true, []string{"nothing works while Suspended"},
		},
		"a resumption": {
			authority.Event{Type: authority.EventUpgradeReview, Row: authority.Row{Revision: 7, State: authority.StateActive, Cause: authority.CauseResumed, Actor: machine}},
			v1alpha1.EventReasonGateOpened, false, nil,
		},
		"another ServiceAccount": {
			authority.Event{Type: authority.EventNarrow, Row: authority.Row{
				Revision: 8, State: authority.StateActive, Cause: authority.CausePrincipalChanged, Actor: machine, Gates: authority.GatePrincipalChanged,
			}},
			v1alpha1.EventReasonGateClosed, true, nil,
		},
		"an upgrade": {
			authority.Event{Type: authority.EventUpgradeReview, Row: authority.Row{Revision: 9, State: authority.StateActive, Cause: authority.CauseManifestChanged, Actor: machine}},
			v1alpha1.EventReasonUpgradeReview, false, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			reason, warn := reasonOf(c.event)
			if reason != c.reason || warn != c.warn {
				t.Errorf("told as %s (warning %v), want %s (warning %v)", reason, warn, c.reason, c.warn)
			}
			story := storyOf(c.event)
			for _, text := range c.says {
				if !strings.Contains(story, text) {
					t.Errorf("%q doesn't say %q", story, text)
				}
			}
		})
	}
}

func TestRecorder_CutsNoRune(t *testing.T) {
	for _, text := range []string{strings.Repeat("ü", 2000), strings.Repeat("a", 1023) + "ü", strings.Repeat("𝄞", 400)} {
		got := cut(text, noteBytes)
		if len(got) > noteBytes || !utf8.ValidString(got) || !strings.HasSuffix(got, "...") {
			t.Errorf("%d bytes, valid %v: %q", len(got), utf8.ValidString(got), got[len(got)-8:])
		}
	}
	if cut("short", noteBytes) != "short" {
		t.Error("a short text is changed")
	}
}
