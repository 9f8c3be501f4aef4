package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
)

// The grant that is decided on.
const (
	installationID = "3f0c8f0e-6f0b-4d7c-9b1e-0a4b7a0d7f11"
	workspaceID    = "bench"
	manifestDigest = "v1:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// grant returns the row of an approval of everything, in step with the view.
func grant() (authority.Row, *view.View) {
	policy := authority.BuiltInPolicy()
	installation := approved.installation()
	workspace := authority.Workspace{ID: workspaceID, Namespace: "workspace-bench", NamespaceUID: "workspace-uid"}
	row := authority.Row{
		Key:   authority.Key{InstallationID: installationID, WorkspaceID: workspaceID},
		State: authority.StateActive, Granted: contract.AllCapabilities, Declared: contract.AllCapabilities,
		Allowed: policy.Allowed, Vector: authority.VectorOf(&installation, &workspace, policy),
		Seen: authority.Seen{UID: "approval-uid", Generation: 1}, ExpiresAt: time.Now().Add(24 * time.Hour),
		Actor: authority.Actor{Name: "bench", Assurance: authority.ActorClaimed}, Cause: authority.CauseHuman,
	}
	row.Sum = row.Vector.Sum()

	v := view.New(policy)
	v.SetNamespace(workspace.Namespace, view.Namespace{UID: workspace.NamespaceUID, WorkspaceID: workspaceID})
	v.SetBinding(workspace)
	for _, p := range []plugin{approved, stranger} {
		v.SetNamespace(p.namespace, view.Namespace{UID: "namespace-uid"})
		v.SetInstallation(view.Installation{Installation: p.installation(), PluginID: "kandev." + p.name})
	}
	v.SetApproval(view.Place{Namespace: workspace.Namespace, Name: installation.Name}, view.Approval{
		UID: row.Seen.UID, Generation: row.Seen.Generation, Spec: &authority.Approval{
			UID: row.Seen.UID, Generation: row.Seen.Generation, InstallationID: installationID, WorkspaceID: workspaceID,
			ManifestDigest: manifestDigest, Capabilities: contract.AllCapabilities, ExpiresAt: row.ExpiresAt,
		},
	})
	for _, source := range []view.Source{view.SourceApprovals, view.SourceInstallations, view.SourceNamespaces, view.SourcePolicies, view.SourceLedger} {
		v.MarkComplete(source)
	}
	return row, v
}

// installation is the plugin as installed. It declares everything.
func (p plugin) installation() authority.Installation {
	return authority.Installation{
		UID: "uid-of-" + p.name, ID: p.installationID, Name: p.name, Version: "1.0.0", ManifestDigest: manifestDigest,
		Declared: contract.AllCapabilities, ServiceAccountNamespace: p.namespace, ServiceAccountName: p.account,
		ServiceAccountUID: p.accountUID, ServiceAccountNamespaceUID: "namespace-uid",
	}
}

// measureDecision decides an allowed call: the view's entry of the key, and the
// decision on a row in hand.
func measureDecision(_ context.Context, m *measurement) error {
	row, v := grant()
	row.Revision = 7
	call := authority.Call{Capability: contract.WriteTasks, Revision: 7, ManifestDigest: manifestDigest}
	now := time.Now()
	if verdict := authority.Decide(&row, v.Observe(row.Key), true, call, now); !verdict.Allowed() {
		return fmt.Errorf("the call to be measured is refused: %s/%s", verdict.State, verdict.Reason)
	}
	refused := 0
	result := testing.Benchmark(func(b *testing.B) {
		b.Helper()
		b.ReportAllocs()
		for range b.N {
			if !authority.Decide(&row, v.Observe(row.Key), true, call, now).Allowed() {
				refused++
			}
		}
	})
	if refused > 0 {
		return fmt.Errorf("%d decisions refused", refused)
	}
	m.report(figure{name: "authority_decision", value: float64(result.T.Nanoseconds()) / float64(result.N), unit: "ns", atMost: bar(200)})
	m.report(figure{name: "authority_decision_allocs", value: float64(result.AllocsPerOp()), unit: "allocs", atMost: bar(0)})
	return nil
}
