package view_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
)

const (
	id        = "3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77"
	plugin    = "standup"
	workspace = "payments"
	namespace = "team-payments"
)

var (
	key   = authority.Key{InstallationID: id, WorkspaceID: workspace}
	place = view.Place{Namespace: namespace, Name: plugin}
	bound = authority.Workspace{ID: workspace, Namespace: namespace, NamespaceUID: "n-1"}
)

func installed() view.Installation {
	return view.Installation{
		Installation: authority.Installation{
			UID: "i-1", ID: id, Name: plugin, Version: "1", ManifestDigest: "v1:a", Declared: contract.AllCapabilities,
			ServiceAccountNamespace: "plugin", ServiceAccountName: "sa", ServiceAccountUID: "s-1",
		},
		PluginID: "kandev.standup",
	}
}

func approved(generation int64) view.Approval {
	return view.Approval{UID: "a-1", Generation: generation, Spec: &authority.Approval{
		UID: "a-1", Generation: generation, InstallationID: id, WorkspaceID: workspace,
		Capabilities: contract.SetOf(contract.ReadTasks),
	}}
}

// full is a view that has seen one of everything.
func full() *view.View {
	v := view.New(authority.BuiltInPolicy())
	v.SetInstallation(installed())
	v.SetNamespace(namespace, view.Namespace{UID: "n-1", WorkspaceID: workspace})
	v.SetBinding(bound)
	v.SetApproval(place, approved(3))
	for _, source := range []view.Source{view.SourceApprovals, view.SourceInstallations, view.SourceNamespaces, view.SourcePolicies, view.SourceLedger} {
		v.MarkComplete(source)
	}
	return v
}

func sum(change func(*authority.Installation, *authority.Workspace)) authority.VectorSum {
	installation, workspace := installed().Installation, bound
	change(&installation, &workspace)
	return authority.VectorOf(&installation, &workspace, authority.BuiltInPolicy()).Sum()
}

func TestI6_NothingIsSyncedBeforeEverySource(t *testing.T) {
	v := view.New(authority.BuiltInPolicy())
	v.SetInstallation(installed())
	other := authority.Key{InstallationID: "unknown", WorkspaceID: workspace}
	sources := []view.Source{view.SourceLedger, view.SourcePolicies, view.SourceNamespaces, view.SourceApprovals, view.SourceInstallations}
	for i, source := range sources {
		if v.Observe(key).Synced || v.Observe(other).Synced {
			t.Errorf("synced after %d of %d sources", i, len(sources))
		}
		if missing := v.Missing(); len(missing) != len(sources)-i {
			t.Errorf("after %d sources, missing %v", i, missing)
		}
		v.MarkComplete(source)
	}
	if !v.Observe(key).Synced || !v.Observe(other).Synced || len(v.Missing()) != 0 {
		t.Error("not synced after every source")
	}
}

func TestI6_ObservesWhatTheRowDependsOn(t *testing.T) {
	same := sum(func(*authority.Installation, *authority.Workspace) {})
	for name, c := range map[string]struct {
		change func(*view.View)
		wants  func(o *authority.Observed) bool
	}{
		"everything as it is": {func(*view.View) {}, func(o *authority.Observed) bool {
			return o.Vector == same && o.Approval.UID == "a-1" && o.Approval.Generation == 3 && !o.Approval.Gone &&
				o.Approval.Capabilities == contract.SetOf(contract.ReadTasks) && o.Revision == 0
		}},
		"another version of the package": {func(v *view.View) {
			i := installed()
			i.Version = "2"
			v.SetInstallation(i)
		}, func(o *authority.Observed) bool {
			return o.Vector == sum(func(i *authority.Installation, _ *authority.Workspace) { i.Version = "2" })
		}},
		"a Host too old": {func(v *view.View) {
			i := installed()
			i.HostVersionUnsupported = true
			v.SetInstallation(i)
		}, func(o *authority.Observed) bool { return o.HostVersionUnsupported }},
		"uninstalled": {func(v *view.View) { v.RemoveInstallation(plugin, "i-1") }, func(o *authority.Observed) bool {
			return o.Vector != same && o.Approval.UID == "a-1"
		}},
		"another object of the name uninstalled": {func(v *view.View) { v.RemoveInstallation(plugin, "i-0") }, func(o *authority.Observed) bool {
			return o.Vector == same
		}},
		"reinstalled": {func(v *view.View) {
			i := installed()
			i.UID, i.ID = "i-2", "fresh"
			v.SetInstallation(i)
		}, func(o *authority.Observed) bool { return o.Vector != same }},
		"an ID that another object claims too": {func(v *view.View) {
			i := installed()
			i.UID, i.Name, i.Version = "i-2", "thief", "9"
			v.SetInstallation(i)
		}, func(o *authority.Observed) bool { return o.Vector == same }},
		"the label gone": {func(v *view.View) { v.SetNamespace(namespace, view.Namespace{UID: "n-1"}) }, func(o *authority.Observed) bool {
			return o.Vector != same
		}},
		"the namespace gone": {func(v *view.View) { v.RemoveNamespace(namespace) }, func(o *authority.Observed) bool { return o.Vector != same }},
		"another namespace of the name": {func(v *view.View) {
			v.SetNamespace(namespace, view.Namespace{UID: "n-2", WorkspaceID: workspace})
		}, func(o *authority.Observed) bool { return o.Vector != same }},
		"another namespace that claims the workspace": {func(v *view.View) {
			v.SetNamespace("other", view.Namespace{UID: "n-3", WorkspaceID: workspace})
			v.SetApproval(view.Place{Namespace: "other", Name: plugin}, view.Approval{UID: "a-9", Generation: 1})
		}, func(o *authority.Observed) bool { return o.Vector == same && o.Approval.UID == "a-1" }},
		"deleted": {func(v *view.View) { v.SetApproval(place, view.Approval{UID: "a-1", Generation: 3}) }, func(o *authority.Observed) bool {
			return o.Approval.Gone && o.Approval.Generation == 3 && !o.Approval.Confirmed
		}},
		"naming another installation": {func(v *view.View) {
			a := approved(4)
			a.Spec.InstallationID = "other"
			v.SetApproval(place, a)
		}, func(o *authority.Observed) bool { return o.Approval.Gone && o.Approval.Generation == 4 }},
		"confirmed":                {func(v *view.View) { v.Confirm(place, "a-1") }, func(o *authority.Observed) bool { return o.Approval.Confirmed }},
		"another object confirmed": {func(v *view.View) { v.Confirm(place, "a-2") }, func(o *authority.Observed) bool { return !o.Approval.Confirmed }},
		"replaced after it was confirmed": {func(v *view.View) {
			v.Confirm(place, "a-1")
			v.SetApproval(place, view.Approval{UID: "a-2", Generation: 1})
		}, func(o *authority.Observed) bool { return o.Approval.UID == "a-2" && !o.Approval.Confirmed }},
		"a revision, and a lower one after it": {func(v *view.View) {
			v.SetRevision(key, 7)
			v.SetRevision(key, 6)
		}, func(o *authority.Observed) bool { return o.Revision == 7 }},
	} {
		t.Run(name, func(t *testing.T) {
			v := full()
			c.change(v)
			if o := v.Observe(key); !o.Synced || !c.wants(o) {
				t.Errorf("observed %+v", *o)
			}
		})
	}
}

// The order in which watches deliver is nobody's to choose.
func TestI6_AnyOrderOfDeliveryEndsTheSame(t *testing.T) {
	want := *full().Observe(key)
	steps := []func(*view.View){
		func(v *view.View) { v.SetInstallation(installed()) },
		func(v *view.View) { v.SetNamespace(namespace, view.Namespace{UID: "n-1", WorkspaceID: workspace}) },
		func(v *view.View) { v.SetBinding(bound) },
		func(v *view.View) { v.SetApproval(place, approved(3)) },
		func(v *view.View) {
			v.MarkComplete(view.SourceApprovals | view.SourceInstallations | view.SourceNamespaces | view.SourcePolicies | view.SourceLedger)
		},
	}
	permute(len(steps), func(order []int) {
		v := view.New(authority.BuiltInPolicy())
		for _, i := range order {
			steps[i](v)
		}
		if got := *v.Observe(key); got != want {
			t.Errorf("in the order %v: %+v, want %+v", order, got, want)
		}
	})
}

func permute(n int, visit func([]int)) {
	order := make([]int, 0, n)
	used := make([]bool, n)
	var next func()
	next = func() {
		if len(order) == n {
			visit(order)
			return
		}
		for i := range n {
			if used[i] {
				continue
			}
			used[i], order = true, append(order, i)
			next()
			used[i], order = false, order[:len(order)-1]
		}
	}
	next()
}

func TestAbsenceIsKnownOnceTheWatchHasDelivered(t *testing.T) {
	v := view.New(authority.BuiltInPolicy())
	v.SetInstallation(installed())
	v.SetBinding(bound)
	v.SetRevision(key, 1)
	if v.Observe(key).Approval.Gone {
		t.Error("gone before the watch has delivered anything")
	}
	v.MarkComplete(view.SourceApprovals)
	if o := v.Observe(key).Approval; !o.Gone || o.UID != "" {
		t.Errorf("observed %+v, want gone without a UID", o)
	}
}

// Before every installation and namespace was seen, a rival or a workspace may
// be among the others, and nobody may be told that he is nobody.
func TestI6_PrincipalIsUnknownUntilAllWasSeen(t *testing.T) {
	v := view.New(authority.BuiltInPolicy())
	v.SetInstallation(installed())
	for _, source := range []view.Source{view.SourceInstallations, view.SourceNamespaces} {
		for _, account := range []string{"sa", "other"} {
			if p, ok := v.Principal("plugin", account); ok || p != (view.Principal{Unknown: true}) {
				t.Errorf("%s before %v: %+v, %v", account, v.Missing(), p, ok)
			}
		}
		v.MarkComplete(source)
	}
	if p, ok := v.Principal("plugin", "sa"); !ok || p.Unknown || p.InstallationID != id {
		t.Errorf("got %+v, %v", p, ok)
	}
	if p, ok := v.Principal("plugin", "other"); ok || p.Unknown {
		t.Errorf("nobody's ServiceAccount: %+v, %v", p, ok)
	}
}

func TestI1_PrincipalOfAServiceAccount(t *testing.T) {
	v := full()
	if p, ok := v.Principal("plugin", "sa"); !ok || p.Conflict || p.InstallationID != id || p.ServiceAccountUID != "s-1" || p.PluginID != "kandev.standup" {
		t.Errorf("got %+v, %v", p, ok)
	}
	if _, ok := v.Principal("plugin", "other"); ok {
		t.Error("somebody claims a ServiceAccount that nobody named")
	}
	rival := installed()
	rival.UID, rival.ID, rival.Name = "i-2", "rival", "rival"
	v.SetInstallation(rival)
	if p, _ := v.Principal("plugin", "sa"); !p.Conflict || p.InstallationID != "" {
		t.Errorf("with two claims: %+v", p)
	}
	v.RemoveInstallation("rival", "i-2")
	v.SetNamespace("plugin", view.Namespace{UID: "p-1", WorkspaceID: "another"})
	if p, _ := v.Principal("plugin", "sa"); !p.Conflict {
		t.Errorf("in a workspace's namespace: %+v", p)
	}
	v.SetNamespace("plugin", view.Namespace{UID: "p-1"})
	if p, _ := v.Principal("plugin", "sa"); p.Conflict || p.InstallationID != id {
		t.Errorf("after both conflicts: %+v", p)
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	v := full()
	unknown := authority.Key{InstallationID: "unknown", WorkspaceID: "unknown"}
	elsewhere := authority.Key{InstallationID: id, WorkspaceID: "unknown"}
	if n := testing.AllocsPerRun(100, func() {
		v.Observe(key)
		v.Observe(unknown)
		v.Observe(elsewhere)
		v.Principal("plugin", "sa")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestReadersAndWritersTogether(t *testing.T) {
	v := full()
	var group sync.WaitGroup
	for reader := range 4 {
		group.Go(func() {
			for i := range 2000 {
				o := v.Observe(authority.Key{InstallationID: id, WorkspaceID: fmt.Sprintf("w-%d", (reader+i)%8)})
				if !o.Synced {
					t.Error("not synced any more")
					return
				}
			}
		})
	}
	for writer := range 2 {
		group.Go(func() {
			for i := range 500 {
				w := fmt.Sprintf("w-%d", i%8)
				ns := fmt.Sprintf("ns-%d", i%8)
				v.SetBinding(authority.Workspace{ID: w, Namespace: ns, NamespaceUID: "u"})
				v.SetNamespace(ns, view.Namespace{UID: "u", WorkspaceID: w})
				v.SetApproval(view.Place{Namespace: ns, Name: plugin}, approved(int64(i+writer)))
				v.SetRevision(authority.Key{InstallationID: id, WorkspaceID: w}, uint64(i))
			}
		})
	}
	group.Wait()
}

func BenchmarkObserve(b *testing.B) {
	v := full()
	for i := range 10_000 {
		v.SetRevision(authority.Key{InstallationID: id, WorkspaceID: fmt.Sprintf("w-%d", i)}, 1)
	}
	b.ReportAllocs()
	for b.Loop() {
		if !v.Observe(key).Synced {
			b.Fatal("not synced")
		}
	}
}
