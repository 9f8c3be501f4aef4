package kinds

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

func drawInstant(t *rapid.T, name string) time.Time {
	if rapid.Bool().Draw(t, name+" is unset") {
		return time.Time{}
	}
	return time.UnixMicro(rapid.Int64Range(946684800_000000, 32503679999_000000).Draw(t, name)).UTC()
}

func drawSet(t *rapid.T, name string) contract.CapabilitySet {
	return contract.CapabilitySet(rapid.Uint64().Draw(t, name)) & contract.AllCapabilities
}

func drawActor(t *rapid.T, name string) authority.Actor {
	return authority.Actor{
		Name:      rapid.SampledFrom([]string{"", "ada@example.com", "grace <g&h>"}).Draw(t, name),
		Assurance: rapid.SampledFrom([]authority.Assurance{authority.ActorClaimed, authority.ActorUnknown, authority.ActorSystem}).Draw(t, name+" assurance"),
	}
}

func drawHold(t *rapid.T) *authority.Hold {
	if rapid.Bool().Draw(t, "no hold") {
		return nil
	}
	return &authority.Hold{
		State:   rapid.SampledFrom([]authority.State{authority.StateActive, authority.StateRevoked}).Draw(t, "hold state"),
		Granted: drawSet(t, "hold granted"), ExpiresAt: drawInstant(t, "hold expires"), Cause: authority.CauseApprovalDeleted,
		Actor: drawActor(t, "hold actor"), Reason: rapid.String().Draw(t, "hold reason"), UID: "u-1",
		Generation: rapid.Int64Range(0, 1<<53).Draw(t, "hold generation"), Spent: rapid.Bool().Draw(t, "spent"),
		ThroughUID: rapid.SampledFrom([]string{"", "u-2"}).Draw(t, "through uid"), Through: rapid.Int64Range(0, 9).Draw(t, "through"),
	}
}

func drawSeen(t *rapid.T) authority.Seen {
	seen := authority.Seen{
		UID: rapid.SampledFrom([]string{"", "u-1"}).Draw(t, "seen uid"), Generation: rapid.Int64Range(0, 1<<53).Draw(t, "seen generation"),
		Gone: rapid.Bool().Draw(t, "gone"), Revoked: rapid.Bool().Draw(t, "revoked"),
	}
	if seen.UID == "" || rapid.Bool().Draw(t, "not recorded") {
		return seen.Unrecorded()
	}
	seen.Asked, seen.Until = drawSet(t, "asked"), drawInstant(t, "until")
	return seen
}

func drawEvent(t *rapid.T) authority.Event {
	text := func(name string) string { return rapid.SampledFrom([]string{"", "a", "Ünï <&>"}).Draw(t, name) }
	key := authority.Key{InstallationID: "3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77", WorkspaceID: "payments"}
	from := authority.Row{
		Key: key, Revision: rapid.Uint64Range(0, 1<<62).Draw(t, "before"), EventHash: text("previous hash"), Hold: drawHold(t),
	}
	from.Vector.ManifestDigest = text("digest before")
	next := authority.Row{
		Key: key, Revision: from.Revision + 1, Act: text("act"),
		State:   rapid.SampledFrom([]authority.State{authority.StateActive, authority.StateRevoked, authority.StateExpired}).Draw(t, "state"),
		Granted: drawSet(t, "granted"), Declared: drawSet(t, "declared"), Required: drawSet(t, "required"), Allowed: drawSet(t, "allowed"),
		ExpiresAt: drawInstant(t, "expires"), Gates: authority.Gates(rapid.Uint8Range(0, 63).Draw(t, "gates")),
		Vector: authority.Vector{
			ApprovalUID: text("approval uid"), InstallationUID: text("installation uid"), Version: text("version"),
			ManifestDigest: text("digest"), Suspended: rapid.Bool().Draw(t, "suspended"),
			ServiceAccountNamespace: text("sa namespace"), ServiceAccountName: text("sa name"),
			ServiceAccountUID: text("sa uid"), ServiceAccountNamespaceUID: text("sa namespace uid"),
			WorkspaceNamespace: text("namespace"), WorkspaceNamespaceUID: text("namespace uid"),
			WorkspaceID: text("workspace"), PolicyVersion: text("policy"),
		},
		Seen:  drawSeen(t),
		Actor: drawActor(t, "actor"), Cause: authority.CauseHuman, Reason: rapid.String().Draw(t, "reason"),
		ApprovedBy: text("approved by"), IssuedAt: drawInstant(t, "issued"),
		UpdatedAt: time.UnixMicro(rapid.Int64Range(946684800_000000, 32503679999_000000).Draw(t, "updated")).UTC(),
		Unproven:  rapid.Bool().Draw(t, "unproven"),
	}
	next.Sum = next.Vector.Sum()
	event, err := authority.NewEvent(from, authority.Outcome{Changed: true, Next: next, Type: authority.EventNarrow}, "standup")
	if err != nil {
		t.Fatal(err)
	}
	return event
}

func TestI3_EventRebuildsTheRowThroughTheAPI(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		event := drawEvent(t)
		text, err := json.Marshal(EventObject(event))
		if err != nil {
			t.Fatal(err)
		}
		var object v1alpha1.PluginCapabilityApprovalEvent
		if err := json.Unmarshal(text, &object); err != nil {
			t.Fatal(err)
		}
		back, err := EventOf(&object)
		if err != nil {
			t.Fatal(err)
		}
		if err := back.Verify(); err != nil {
			t.Error(err)
		}
		if !reflect.DeepEqual(back, event) {
			t.Errorf("came back as\n%+v, not\n%+v", back, event)
		}
	})
}

func TestI3_AnEventThatIsNotUnderstoodRebuildsNothing(t *testing.T) {
	for name, spoil := range map[string]func(*v1alpha1.PluginCapabilityApprovalEventSpec){
		"spec.granted": func(s *v1alpha1.PluginCapabilityApprovalEventSpec) {
			s.Granted = append(s.Granted, "host.v2.read:future")
		},
		"spec.effective": func(s *v1alpha1.PluginCapabilityApprovalEventSpec) {
			s.Effective = append(s.Effective, "host.v2.read:*")
		},
		"spec.state":  func(s *v1alpha1.PluginCapabilityApprovalEventSpec) { s.State = "Dormant" },
		"spec.gates":  func(s *v1alpha1.PluginCapabilityApprovalEventSpec) { s.Gates = append(s.Gates, "Moon") },
		"spec.vector": func(s *v1alpha1.PluginCapabilityApprovalEventSpec) { s.ManifestDigest = "v1:other" },
		"spec.hold":   func(s *v1alpha1.PluginCapabilityApprovalEventSpec) { s.Hold = &v1alpha1.AppliedHold{State: "Dormant"} },
		"spec.seen": func(s *v1alpha1.PluginCapabilityApprovalEventSpec) {
			s.Seen.Asked = &v1alpha1.AskedFor{Capabilities: []v1alpha1.CapabilityID{"host.v2.read:future"}}
		},
		"decision digest": func(s *v1alpha1.PluginCapabilityApprovalEventSpec) { s.Unproven = !s.Unproven },
	} {
		t.Run(name, func(t *testing.T) {
			object := EventObject(rapid.Custom(drawEvent).Example(1))
			spoil(&object.Spec)
			event, err := EventOf(object)
			if err == nil {
				err = event.Verify()
			}
			if err == nil {
				t.Error("it was taken for the truth")
			}
		})
	}
}
