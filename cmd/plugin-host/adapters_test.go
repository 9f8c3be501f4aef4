package main

import (
	"testing"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	"github.com/kandev/plugin-host/hostsvc/identity"
)

// TestDirectory: a process that hasn't seen all installations doesn't know whose a
// ServiceAccount is, not even that it is nobody's.
func TestDirectory(t *testing.T) {
	account := identity.Account{Namespace: "plugin-standup", Name: "standup"}
	v := view.New(authority.BuiltInPolicy())
	d := directory{v}
	if got, ok := d.Registration(account); ok || !got.Unknown {
		t.Errorf("before everything is seen: %+v, %v", got, ok)
	}
	v.SetInstallation(view.Installation{
		Installation: authority.Installation{
			UID: "uid", ID: "id", Name: "standup", ServiceAccountNamespace: account.Namespace, ServiceAccountName: account.Name, ServiceAccountUID: "pinned",
		},
		PluginID: "kandev.standup", Workload: true,
	})
	v.MarkComplete(view.SourceInstallations | view.SourceNamespaces)
	want := identity.Registration{
		InstallationID: "id", InstallationName: "standup", PluginID: "kandev.standup", ServiceAccountUID: "pinned", WorkloadOf: "uid",
	}
	if got, ok := d.Registration(account); !ok || got != want {
		t.Errorf("got %+v, %v", got, ok)
	}
	if got, ok := d.Registration(identity.Account{Namespace: account.Namespace, Name: "other"}); ok || got.Unknown {
		t.Errorf("of nobody: %+v, %v", got, ok)
	}
}
