package kinds

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
)

func TestHostLevel(t *testing.T) {
	for want, ok := range map[string]bool{
		"": true, "0.1": true, HostLevel: true, "0.91": true, "0.91.2": false, "0.100": false, "1.0.0": false,
		"v0.1": false, "0.1.2.3": false, "latest": false, "0.1-rc1": false,
	} {
		if atLeast(HostLevel, want) != ok {
			t.Errorf("a manifest that asks for %q: accepted is %v, want %v", want, !ok, ok)
		}
	}
}

func TestApprovalOfTakesOnlyWhatItKnows(t *testing.T) {
	until := metav1.NewTime(time.Date(2027, 3, 1, 9, 0, 0, 123456789, time.FixedZone("CET", 3600)))
	object := &v1alpha1.PluginCapabilityApproval{
		ObjectMeta: metav1.ObjectMeta{UID: "u", Generation: 4},
		Spec: v1alpha1.PluginCapabilityApprovalSpec{
			Capabilities: []v1alpha1.CapabilityID{"host.v2.read:tasks", "host.v2.read:*", "host.v2.write:merge"},
			State:        v1alpha1.StateActive, ExpiresAt: &until,
		},
	}
	a := ApprovalOf(object)
	if a.Capabilities != contract.SetOf(contract.ReadTasks) || !slices.Equal(a.Unknown, []string{"host.v2.read:*", "host.v2.write:merge"}) {
		t.Errorf("capabilities %v, unknown %q", a.Capabilities, a.Unknown)
	}
	if want := time.Date(2027, 3, 1, 8, 0, 0, 123456000, time.UTC); !a.ExpiresAt.Equal(want) || a.ExpiresAt.Location() != time.UTC {
		t.Errorf("expires at %v, want %v", a.ExpiresAt, want)
	}
	if a.Revoked {
		t.Error("an active approval counts as revoked")
	}
	for state, revoked := range map[v1alpha1.State]bool{"": false, v1alpha1.StateRevoked: true, "Dormant": true} {
		object.Spec.State = state
		if ApprovalOf(object).Revoked != revoked {
			t.Errorf("state %q: revoked is %v, want %v", state, !revoked, revoked)
		}
	}
	now := metav1.Now()
	object.DeletionTimestamp = &now
	if ApprovalOf(object) != nil {
		t.Error("an object that is being deleted counts")
	}
}

// An object that is older than its schema works nowhere where that refuses it now.
func TestInstallationOfAPluginIDLikeAnInstallations(t *testing.T) {
	for id, refused := range map[string]bool{
		"kandev.sample": false, "3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77": true, "3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c7": false,
		"3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77.notes": false,
	} {
		got, unknown, err := InstallationOf(&v1alpha1.PluginInstallation{Spec: v1alpha1.PluginInstallationSpec{PluginID: id}})
		if err != nil || len(unknown) != 0 || got.HostVersionUnsupported != refused {
			t.Errorf("%s: refused %t, %q, %v", id, got.HostVersionUnsupported, unknown, err)
		}
	}
}

func TestInstallationOfAnUnknownCapabilityNeedsANewerHost(t *testing.T) {
	object := &v1alpha1.PluginInstallation{Spec: v1alpha1.PluginInstallationSpec{
		PluginID: "kandev.sample",
		Manifest: v1alpha1.PluginManifest{Capabilities: []v1alpha1.ManifestCapability{
			{ID: "host.v2.write:tasks", Required: true}, {ID: "host.v2.read:tasks"},
		}},
	}}
	known, unknown, err := InstallationOf(object)
	if err != nil || len(unknown) != 0 || known.HostVersionUnsupported {
		t.Fatalf("got %+v, %q, %v", known, unknown, err)
	}
	if known.Declared != contract.SetOf(contract.ReadTasks, contract.WriteTasks) || known.Required != contract.SetOf(contract.WriteTasks) {
		t.Errorf("declared %v, required %v", known.Declared, known.Required)
	}
	slices.Reverse(object.Spec.Manifest.Capabilities)
	if reordered, _, err := InstallationOf(object); err != nil || reordered.ManifestDigest != known.ManifestDigest {
		t.Errorf("a reordered manifest has the digest %s, want %s (%v)", reordered.ManifestDigest, known.ManifestDigest, err)
	}
	object.Spec.Manifest.Capabilities = append(object.Spec.Manifest.Capabilities, v1alpha1.ManifestCapability{ID: "host.v2.read:future"})
	newer, unknown, err := InstallationOf(object)
	if err != nil || !newer.HostVersionUnsupported || !slices.Equal(unknown, []string{"host.v2.read:future"}) {
		t.Errorf("got %+v, %q, %v", newer, unknown, err)
	}
}
