package main

import (
	"testing"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// An approval that is left over from a former installation was processed for the
// present one's row, and never spoke for it: its absence is no news.
func TestSeenIsOnlyWhatSpokeForTheRow(t *testing.T) {
	row := authority.Row{Key: authority.Key{InstallationID: "new", WorkspaceID: "payments"}}
	o := &v1alpha1.PluginCapabilityApproval{}
	o.UID, o.Generation = "uid", 2
	o.Spec.InstallationID, o.Spec.WorkspaceID = "old", "payments"
	o.Status.InstallationID, o.Status.ObservedGeneration = "new", 2
	if got := seen(row, o).Seen; got != (authority.Seen{}) {
		t.Errorf("of another installation's approval it has seen %+v", got)
	}
	o.Spec.InstallationID = "new"
	if got := seen(row, o).Seen; got.UID != "uid" || got.Generation != 2 {
		t.Errorf("of its own approval it has seen %+v", got)
	}
}
