package main

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

var noon = time.Date(2027, 1, 5, 12, 0, 0, 0, time.UTC)

// granted is a plugin that may read tasks, and may not write them though it asks
// to, with its row.
func granted(t *testing.T) (authority.Row, picture) {
	t.Helper()
	p := picture{
		installation: &v1alpha1.PluginInstallation{
			ObjectMeta: metav1.ObjectMeta{Name: "standup", UID: "i-1"},
			Spec: v1alpha1.PluginInstallationSpec{
				PluginID: "kandev.standup", Version: "1.0.0",
				Manifest:          v1alpha1.PluginManifest{Capabilities: []v1alpha1.ManifestCapability{{ID: "host.v2.read:tasks"}, {ID: "host.v2.write:tasks"}}},
				ServiceAccountRef: v1alpha1.ServiceAccountReference{Namespace: "plugin-standup", Name: "standup"},
			},
			Status: v1alpha1.PluginInstallationStatus{InstallationID: "3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77", ServiceAccountUID: "s-1", NamespaceUID: "n-1"},
		},
		namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "payments", UID: "w-1", Labels: map[string]string{v1alpha1.LabelWorkspaceID: "payments"},
		}},
		principal: kinds.Principal{AccountUID: "s-1", NamespaceUID: "n-1"},
		policy:    authority.BuiltInPolicy(), checked: true,
	}
	parsed, _, err := kinds.InstallationOf(p.installation)
	if err != nil {
		t.Fatal(err)
	}
	p.approval = &v1alpha1.PluginCapabilityApproval{
		ObjectMeta: metav1.ObjectMeta{Name: "standup", Namespace: "payments", UID: "a-1", Generation: 1},
		Spec: v1alpha1.PluginCapabilityApprovalSpec{
			InstallationName: "standup", InstallationID: parsed.ID, ManifestDigest: parsed.ManifestDigest, WorkspaceID: "payments",
			Capabilities: []v1alpha1.CapabilityID{"host.v2.read:tasks"}, State: v1alpha1.StateActive, ApprovedBy: "ada@example.com",
		},
	}
	in, err := p.intent(p.key())
	if err != nil {
		t.Fatal(err)
	}
	row := authority.Compute(authority.Row{Key: p.key()}, in, noon, "k3v7qa").Next
	if row.Granted != contract.SetOf(contract.ReadTasks) || row.Act != "1-k3v7qa" {
		t.Fatalf("the grant is %+v", row)
	}
	return row, p
}

func TestEffectOf(t *testing.T) {
	read, write := "host.v2.read:tasks", "host.v2.write:tasks"
	edit := func(p *picture, change func(*v1alpha1.PluginCapabilityApprovalSpec)) {
		wanted := p.approval.DeepCopy()
		change(&wanted.Spec)
		p.approval, _ = applied(p.approval, wanted)
	}
	for name, c := range map[string]struct {
		change func(p *picture)
		edited bool
		want   change
	}{
		"nothing": {func(*picture) {}, false, change{Effect: effectNone}},
		"a capability under the act in force": {func(p *picture) {
			edit(p, func(s *v1alpha1.PluginCapabilityApprovalSpec) {
				s.Capabilities, s.SupersedesAct = append(s.Capabilities, "host.v2.write:tasks"), "1-k3v7qa"
			})
		}, true, change{Effect: effectWidens, Grants: []string{write}, Act: "1-k3v7qa"}},
		"a capability under a used act": {func(p *picture) {
			edit(p, func(s *v1alpha1.PluginCapabilityApprovalSpec) {
				s.Capabilities = append(s.Capabilities, "host.v2.write:tasks")
			})
		}, true, change{Effect: effectNoEffect, Asks: &asking{Reason: string(authority.ReviewActAlreadyUsed), Grants: []string{write}}}},
		"less and more at once, under a used act": {func(p *picture) {
			edit(p, func(s *v1alpha1.PluginCapabilityApprovalSpec) {
				s.Capabilities = []v1alpha1.CapabilityID{"host.v2.write:tasks"}
			})
		}, true, change{Effect: effectNoEffect, Takes: []string{read}, Asks: &asking{Reason: string(authority.ReviewActAlreadyUsed), Grants: []string{write}}}},
		"a reason": {func(p *picture) {
			edit(p, func(s *v1alpha1.PluginCapabilityApprovalSpec) { s.Reason = "Another reason" })
		}, true, change{Effect: effectNone}},
		"a deletion":   {func(p *picture) { p.approval = nil }, true, change{Effect: effectNarrows, Takes: []string{read}}},
		"an uninstall": {func(p *picture) { p.installation = nil }, false, change{Effect: effectNarrows, Takes: []string{read}}},
		"a label taken off": {func(p *picture) {
			p.namespace = p.namespace.DeepCopy()
			p.namespace.Labels = nil
		}, false, change{Effect: effectNarrows, Takes: []string{read}}},
		"another namespace of the same workspace": {func(p *picture) { p.conflict = true }, false,
			change{Effect: effectNarrows, Stops: []string{read}, GatesClosed: []string{"WorkspaceConflict"}}},
		"a suspension": {func(p *picture) {
			p.installation = p.installation.DeepCopy()
			p.installation.Spec.Suspend = true
		}, false, change{Effect: effectNarrows, Stops: []string{read}, GatesClosed: []string{"Suspended"}}},
		"another ServiceAccount": {func(p *picture) {
			p.installation = p.installation.DeepCopy()
			p.installation.Spec.ServiceAccountRef.Name = "other"
			p.principal.AccountUID = "s-2"
		}, false, change{Effect: effectNarrows, Stops: []string{read}, GatesClosed: []string{"PrincipalChanged"}}},
		"a policy": {func(p *picture) {
			p.policy = p.policy.Tighten("strict", []authority.Rule{{Class: authority.ClassReadProjections, Deny: true}}, false)
		}, false, change{Effect: effectNarrows, Takes: []string{read}}},
		"a required capability that nobody granted": {func(p *picture) {
			p.installation = p.installation.DeepCopy()
			p.installation.Spec.Manifest.Capabilities[1].Required = true
		}, false, change{Effect: effectNarrows, Stops: []string{read}, GatesClosed: []string{"RequiredCapabilityUnavailable"}}},
	} {
		t.Run(name, func(t *testing.T) {
			row, before := granted(t)
			after := before
			c.change(&after)
			got, err := effectOf(row, before, after, c.edited, noon.Add(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			if got.Effect != c.want.Effect || !slices.Equal(got.Grants, c.want.Grants) || !slices.Equal(got.Takes, c.want.Takes) ||
				!slices.Equal(got.Starts, c.want.Starts) || !slices.Equal(got.Stops, c.want.Stops) || got.Act != c.want.Act ||
				!slices.Equal(got.GatesClosed, c.want.GatesClosed) || len(got.Notes) != 0 {
				t.Errorf("got %+v\nwant %+v", got, c.want)
			}
			if (got.Asks == nil) != (c.want.Asks == nil) || got.Asks != nil && (got.Asks.Reason != c.want.Asks.Reason || !slices.Equal(got.Asks.Grants, c.want.Asks.Grants)) {
				t.Errorf("it asks for %+v, want %+v", got.Asks, c.want.Asks)
			}
		})
	}
	// What ends a block gives no grant, and is told all the same.
	row, open := granted(t)
	closed := open
	closed.installation = open.installation.DeepCopy()
	closed.installation.Spec.Suspend = true
	in, err := closed.intent(closed.key())
	if err != nil {
		t.Fatal(err)
	}
	suspended := authority.Compute(row, in, noon, "aaaaaa").Next
	got, err := effectOf(suspended, closed, open, false, noon)
	if err != nil || got.Effect != effectWidens || !slices.Equal(got.Starts, []string{read}) || !slices.Equal(got.GatesOpened, []string{"Suspended"}) {
		t.Errorf("the end of a suspension: %+v, %v", got, err)
	}
	// A row that is behind what the cluster shows is told.
	got, err = effectOf(row, closed, closed, false, noon)
	if err != nil || len(got.Notes) != 1 {
		t.Errorf("a row that is behind: %+v, %v", got, err)
	}
}
