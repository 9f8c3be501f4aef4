package view_test

import (
	"slices"
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
)

const life = 15 * time.Second

var (
	begun = time.Date(2027, 1, 1, 9, 0, 0, 0, time.UTC)
	terms = authority.LegacyTerms{
		Declared: contract.LegacySetOf(contract.LegacyReadTasks, contract.LegacyWriteTasks), Events: []string{"task.*"},
		Writers: contract.LegacySetOf(contract.LegacyWriteTasks), ImplicitExpectNone: true,
	}
)

func withLegacy(change ...func(*view.Installation)) view.Installation {
	i := installed()
	i.Generation, i.Legacy = 3, terms
	for _, f := range change {
		f(&i)
	}
	return i
}

// reading is what a live read shows of withLegacy.
func reading() map[string]int64 { return map[string]int64{"i-1": 3} }

func TestI12_LegacyIsWhatTheInstallationHasAndWasGranted(t *testing.T) {
	for name, c := range map[string]struct {
		change    func(*view.View)
		installed bool
		gates     authority.Gates
	}{
		"as it is": {func(*view.View) {}, true, 0},
		"suspended": {func(v *view.View) { v.SetInstallation(withLegacy(func(i *view.Installation) { i.Suspended = true })) },
			true, authority.GateSuspended},
		"a Host too old": {func(v *view.View) {
			v.SetInstallation(withLegacy(func(i *view.Installation) { i.HostVersionUnsupported = true }))
		}, true, authority.GateHostVersionUnsupported},
		"no principal pinned": {func(v *view.View) {
			v.SetInstallation(withLegacy(func(i *view.Installation) { i.ServiceAccountUID = "" }))
		}, true, authority.GatePrincipalChanged},
		"claimed by two": {func(v *view.View) {
			v.SetInstallation(withLegacy(func(i *view.Installation) { i.UID, i.ID, i.Name = "i-2", "rival", "rival" }))
		}, true, authority.GateServiceAccountConflict},
		"in a workspace": {func(v *view.View) { v.SetNamespace("plugin", view.Namespace{UID: "p-1", WorkspaceID: "another"}) },
			true, authority.GateServiceAccountConflict},
		"uninstalled": {func(v *view.View) { v.RemoveInstallation(plugin, "i-1") }, false, 0},
		"installed again": {func(v *view.View) {
			v.RemoveInstallation(plugin, "i-1")
			v.SetInstallation(withLegacy(func(i *view.Installation) { i.UID, i.ID = "i-2", "fresh" }))
		}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			v := full()
			v.SetInstallation(withLegacy())
			v.InstallationsRead(begun, life, reading())
			c.change(v)
			got := v.Legacy(id)
			want := authority.LegacyTerms{}
			if c.installed && c.gates == 0 {
				want = terms
			}
			if got.Installed != c.installed || got.Gates != c.gates || !got.LegacyTerms.Equal(want) {
				t.Errorf("got %+v", got)
			}
			if !got.FreshUntil.Equal(begun.Add(life)) {
				t.Errorf("fresh until %v", got.FreshUntil)
			}
		})
	}
}

func TestLegacyComesBackWithTheGate(t *testing.T) {
	v := full()
	v.SetInstallation(withLegacy(func(i *view.Installation) { i.Suspended = true }))
	v.SetInstallation(withLegacy())
	if got := v.Legacy(id); !got.LegacyTerms.Equal(terms) {
		t.Errorf("got %+v", got)
	}
	fewer := terms
	fewer.Writers, fewer.Events = 0, []string{"task.created"}
	v.SetInstallation(withLegacy(func(i *view.Installation) { i.Generation, i.Legacy = 4, fewer }))
	if got := v.Legacy(id); !got.LegacyTerms.Equal(fewer) || !slices.Equal(got.Events, fewer.Events) {
		t.Errorf("got %+v", got)
	}
}

// A second object that claims an ID neither speaks for it nor authenticates as it.
func TestI1_AnIDHasOneInstallation(t *testing.T) {
	v := full()
	v.SetInstallation(withLegacy())
	v.SetInstallation(withLegacy(func(i *view.Installation) {
		i.UID, i.Name, i.ServiceAccountName, i.Suspended = "i-2", "thief", "thief", true
	}))
	if got := v.Legacy(id); !got.Installed || got.Gates != 0 || !got.LegacyTerms.Equal(terms) {
		t.Errorf("got %+v", got)
	}
	if p, _ := v.Principal("plugin", "thief"); p.InstallationID != "" {
		t.Errorf("the thief is %+v", p)
	}
}

// The rule of design/authority.md, freshness: a read counts once the watch has
// shown what it showed.
func TestI6_LegacyIsFreshOnceTheWatchHasCaughtUp(t *testing.T) {
	later := func(i *view.Installation) { i.Generation = 4 }
	other := func(i *view.Installation) {
		i.UID, i.ID, i.Name, i.ServiceAccountName = "i-2", "second", "second", "second"
	}
	for name, c := range map[string]struct {
		live     map[string]int64
		before   func(*view.View)
		catchUp  func(*view.View)
		unneeded bool
	}{
		"as watched":     {reading(), func(*view.View) {}, nil, true},
		"an older state": {map[string]int64{"i-1": 2}, func(*view.View) {}, nil, true},
		"an edit":        {map[string]int64{"i-1": 4}, func(*view.View) {}, func(v *view.View) { v.SetInstallation(withLegacy(later)) }, false},
		"an uninstall":   {map[string]int64{}, func(*view.View) {}, func(v *view.View) { v.RemoveInstallation(plugin, "i-1") }, false},
		"an installation": {map[string]int64{"i-1": 3, "i-2": 3}, func(*view.View) {},
			func(v *view.View) { v.SetInstallation(withLegacy(other)) }, false},
		"an installation in place of another": {map[string]int64{"i-1": 3, "i-9": 3},
			func(v *view.View) { v.SetInstallation(withLegacy(other)) },
			func(v *view.View) {
				v.RemoveInstallation("second", "i-2")
				v.SetInstallation(withLegacy(other, func(i *view.Installation) { i.UID = "i-9" }))
			}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := full()
			v.SetInstallation(withLegacy())
			c.before(v)
			v.InstallationsRead(begun, life, c.live)
			if got := v.Legacy(id).FreshUntil; got.IsZero() == c.unneeded {
				t.Fatalf("before the watch: fresh until %v", got)
			}
			if c.catchUp != nil {
				c.catchUp(v)
			}
			if got := v.Legacy(id); !got.FreshUntil.Equal(begun.Add(life)) {
				t.Errorf("after it: fresh until %v", got.FreshUntil)
			}
		})
	}
}

func TestI6_FreshnessNeverGoesBack(t *testing.T) {
	v := full()
	v.SetInstallation(withLegacy())
	v.InstallationsRead(begun.Add(time.Second), life, reading())
	v.InstallationsRead(begun, life, reading())
	if got := v.Legacy(id).FreshUntil; !got.Equal(begun.Add(time.Second + life)) {
		t.Errorf("fresh until %v", got)
	}
	// One that the watch doesn't catch up with takes nothing away before its time.
	v.InstallationsRead(begun.Add(2*time.Second), life, map[string]int64{"i-1": 9})
	if got := v.Legacy(id); !got.FreshUntil.Equal(begun.Add(time.Second + life)) {
		t.Errorf("fresh until %v", got.FreshUntil)
	}
}

func TestI6_NoLegacyBeforeItsSources(t *testing.T) {
	v := view.New(authority.BuiltInPolicy())
	v.SetInstallation(withLegacy())
	v.InstallationsRead(begun, life, reading())
	for _, source := range []view.Source{view.SourceInstallations, view.SourceNamespaces} {
		if got := v.Legacy(id); got.Installed || got.Fresh(begun) || !got.LegacyTerms.Equal(authority.LegacyTerms{}) {
			t.Errorf("before %v: %+v", v.Missing(), got)
		}
		v.MarkComplete(source)
	}
	if got := v.Legacy(id); !got.Fresh(begun) || !got.LegacyTerms.Equal(terms) {
		t.Errorf("got %+v", got)
	}
	if got := v.Legacy("unknown"); got.Installed || !got.Fresh(begun) {
		t.Errorf("an unknown installation: %+v", got)
	}
}

func TestLegacyAllocatesNothing(t *testing.T) {
	v := full()
	v.SetInstallation(withLegacy())
	v.InstallationsRead(begun, life, reading())
	if n := testing.AllocsPerRun(100, func() {
		if l := v.Legacy(id); !l.Fresh(begun) {
			t.Error("not fresh")
		}
		v.Legacy("unknown")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
