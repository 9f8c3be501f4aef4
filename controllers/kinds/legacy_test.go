package kinds

import (
	"slices"
	"testing"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

const (
	ownID   = "3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77"
	otherID = "00000000-0000-4000-8000-000000000000"
)

func legacyInstallation() *v1alpha1.PluginInstallation {
	o := &v1alpha1.PluginInstallation{Spec: v1alpha1.PluginInstallationSpec{
		PluginID: "kandev.sample",
		Manifest: v1alpha1.PluginManifest{Legacy: &v1alpha1.LegacyManifest{
			APIRead: []v1alpha1.LegacyReadResource{"tasks"}, APIWrite: []v1alpha1.LegacyWriteResource{"tasks", "messages"},
			Events: []string{"task.*"}, State: true,
		}},
	}}
	o.Status.InstallationID = ownID
	return o
}

func writer(resource, id string) v1alpha1.LegacyWriter {
	return v1alpha1.LegacyWriter{Resource: v1alpha1.LegacyWriteResource(resource), CompatibilityGrant: v1alpha1.CompatibilityGrant{InstallationID: id}}
}

func TestI12_LegacyIsWhatIsDeclaredAndGrantedToTheID(t *testing.T) {
	declared := contract.LegacySetOf(contract.LegacyReadTasks, contract.LegacyWriteTasks, contract.LegacyWriteMessages, contract.LegacyState)
	for name, c := range map[string]struct {
		edit   func(*v1alpha1.PluginInstallation)
		want   authority.LegacyTerms
		others []string
	}{
		"no grant": {func(*v1alpha1.PluginInstallation) {}, authority.LegacyTerms{Declared: declared, Events: []string{"task.*"}}, nil},
		"grants of its own": {func(o *v1alpha1.PluginInstallation) {
			o.Spec.Compatibility = &v1alpha1.Compatibility{
				LegacyWriters:      []v1alpha1.LegacyWriter{writer("tasks", ownID)},
				ImplicitExpectNone: &v1alpha1.CompatibilityGrant{InstallationID: ownID},
			}
		}, authority.LegacyTerms{Declared: declared, Events: []string{"task.*"}, Writers: contract.LegacySetOf(contract.LegacyWriteTasks), ImplicitExpectNone: true}, nil},
		"grants of an installation of before": {func(o *v1alpha1.PluginInstallation) {
			o.Spec.Compatibility = &v1alpha1.Compatibility{
				LegacyWriters:      []v1alpha1.LegacyWriter{writer("tasks", otherID), writer("messages", ownID)},
				ImplicitExpectNone: &v1alpha1.CompatibilityGrant{InstallationID: otherID},
			}
		}, authority.LegacyTerms{Declared: declared, Events: []string{"task.*"}, Writers: contract.LegacySetOf(contract.LegacyWriteMessages)},
			[]string{"spec.compatibility.legacyWriters[tasks]", "spec.compatibility.implicitExpectNone"}},
		"a grant before there is an ID": {func(o *v1alpha1.PluginInstallation) {
			o.Status.InstallationID = ""
			o.Spec.Compatibility = &v1alpha1.Compatibility{
				LegacyWriters: []v1alpha1.LegacyWriter{writer("tasks", "")}, ImplicitExpectNone: &v1alpha1.CompatibilityGrant{},
			}
		}, authority.LegacyTerms{Declared: declared, Events: []string{"task.*"}}, nil},
		"a grant of what isn't declared, or isn't known": {func(o *v1alpha1.PluginInstallation) {
			o.Spec.Manifest.Legacy.APIWrite = nil
			o.Spec.Compatibility = &v1alpha1.Compatibility{LegacyWriters: []v1alpha1.LegacyWriter{writer("tasks", ownID), writer("secrets", ownID)}}
		}, authority.LegacyTerms{Declared: contract.LegacySetOf(contract.LegacyReadTasks, contract.LegacyState), Events: []string{"task.*"}}, nil},
		"no declaration": {func(o *v1alpha1.PluginInstallation) { o.Spec.Manifest.Legacy = nil }, authority.LegacyTerms{}, nil},
		"an event that is no pattern": {func(o *v1alpha1.PluginInstallation) {
			o.Spec.Manifest.Legacy = &v1alpha1.LegacyManifest{Events: []string{"task.>", "task.created"}}
		}, authority.LegacyTerms{Events: []string{"task.created"}}, nil},
	} {
		o := legacyInstallation()
		c.edit(o)
		if got := LegacyOf(o); !got.Equal(c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if got := OtherGrants(o); !slices.Equal(got, c.others) {
			t.Errorf("%s: of others %v, want %v", name, got, c.others)
		}
	}
}

func TestTheDigestCoversLegacyAndNothingOfTheOperator(t *testing.T) {
	digest := func(edit func(*v1alpha1.PluginInstallation)) string {
		t.Helper()
		o := legacyInstallation()
		edit(o)
		i, _, err := InstallationOf(o)
		if err != nil {
			t.Fatal(err)
		}
		return i.ManifestDigest
	}
	was := digest(func(*v1alpha1.PluginInstallation) {})
	if digest(func(o *v1alpha1.PluginInstallation) { o.Spec.Manifest.Legacy.Secrets = true }) == was {
		t.Error("a declaration isn't covered")
	}
	if digest(func(o *v1alpha1.PluginInstallation) { o.Spec.Manifest.Legacy = nil }) !=
		digest(func(o *v1alpha1.PluginInstallation) { o.Spec.Manifest.Legacy = &v1alpha1.LegacyManifest{} }) {
		t.Error("declaring nothing isn't the same as no declaration")
	}
	same := func(o *v1alpha1.PluginInstallation) {
		slices.Reverse(o.Spec.Manifest.Legacy.APIWrite)
		o.Spec.Compatibility = &v1alpha1.Compatibility{LegacyWriters: []v1alpha1.LegacyWriter{writer("tasks", ownID)}}
		o.Spec.SecretRefs = []v1alpha1.SecretReference{{Name: "a", SecretName: "b", Key: "c"}}
	}
	if digest(same) != was {
		t.Error("the order of a list, or what the operator says, is part of the manifest")
	}
}

func TestALegacyResourceOfTomorrowNeedsANewerHost(t *testing.T) {
	o := legacyInstallation()
	o.Spec.Manifest.Legacy.APIRead = append(o.Spec.Manifest.Legacy.APIRead, "calendars")
	i, unknown, err := InstallationOf(o)
	if err != nil || !i.HostVersionUnsupported || !slices.Equal(unknown, []string{"api_read:calendars"}) {
		t.Errorf("got %v, %q, %v", i.HostVersionUnsupported, unknown, err)
	}
}

func TestI12_AGrantIsAllThatItSays(t *testing.T) {
	grants := func(edit func(*v1alpha1.PluginInstallation)) []authority.LegacyGrant {
		o := legacyInstallation()
		o.UID = "uid-1"
		o.Spec.Compatibility = &v1alpha1.Compatibility{
			LegacyWriters:      []v1alpha1.LegacyWriter{writer("tasks", ownID), writer("messages", otherID)},
			ImplicitExpectNone: &v1alpha1.CompatibilityGrant{InstallationID: ownID, ApprovedBy: "ada@example.com"},
		}
		edit(o)
		return GrantsOf(o)
	}
	was := grants(func(*v1alpha1.PluginInstallation) {})
	if len(was) != 2 || was[0].Field != "spec.compatibility.legacyWriters[tasks]" || was[0].Writers != contract.LegacySetOf(contract.LegacyWriteTasks) ||
		was[1].Field != "spec.compatibility.implicitExpectNone" || !was[1].ImplicitExpectNone || was[0].ID == was[1].ID || GrantObject(was[0].ID) != "uid-1" {
		t.Fatalf("the grants are %+v", was)
	}
	for what, c := range map[string]struct {
		edit           func(*v1alpha1.PluginInstallation)
		tasks, implied bool
	}{
		"another version of the plugin": {func(o *v1alpha1.PluginInstallation) { o.Spec.Version = "2.0.0"; o.Generation++ }, true, true},
		"another reason":                {func(o *v1alpha1.PluginInstallation) { o.Spec.Compatibility.LegacyWriters[0].Reason = "so" }, false, true},
		"another approver":              {func(o *v1alpha1.PluginInstallation) { o.Spec.Compatibility.ImplicitExpectNone.ApprovedBy = "eve" }, true, false},
		"another way":                   {func(o *v1alpha1.PluginInstallation) { o.Spec.Compatibility.ImplicitExpectNone.ApprovedVia = "git" }, true, false},
		"another resource":              {func(o *v1alpha1.PluginInstallation) { o.Spec.Compatibility.LegacyWriters[0].Resource = "messages" }, false, true},
		"another object":                {func(o *v1alpha1.PluginInstallation) { o.UID = "uid-2" }, false, false},
	} {
		now := grants(c.edit)
		if len(now) != 2 || (now[0].ID == was[0].ID) != c.tasks || (now[1].ID == was[1].ID) != c.implied {
			t.Errorf("%s: the grants are %+v, before %+v", what, now, was)
		}
	}
}
