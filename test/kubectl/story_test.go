package kubectl_test

import (
	"testing"

	"github.com/kandev/plugin-host/test/world"
)

// A new user's way, from the help alone: install, review, approve, break, explain,
// revoke, audit.
func TestTheWayOfANewUser(t *testing.T) {
	golden(t, "help", must(t, 0, "").Stdout)

	// Install: the words of the package are translated in front of the human.
	r := must(t, 1, "", "install", "-f", "test/kubectl/testdata/manifest.yaml")
	golden(t, "install-no-account", both(r))
	r = must(t, 1, "", "install", "-f", "test/kubectl/testdata/manifest.yaml", "--service-account", "plugin-sample/sample")
	golden(t, "install-no-terminal", both(r))
	r = must(t, 0, "", "install", "-f", "test/kubectl/testdata/manifest.yaml", "--service-account", "plugin-sample/sample",
		"--require", "host.v2.read:tasks", "--yes")
	golden(t, "install", both(r))

	// Review: nothing is granted yet.
	golden(t, "review-nothing", must(t, 0, world.Ada, "review", "sample", "-n", "team-a").Stdout)
	golden(t, "explain-nothing", must(t, 2, world.Ada, "explain", "sample", "-n", "team-a", "--method", "UpdateTaskExact").Stdout)

	// Approve.
	r = must(t, 0, world.Ada, "approve", "sample", "-n", "team-a", "--capability", "host.v2.read:tasks,host.v2.write:tasks",
		"--reason", "Reviewed in PR 118", "--yes")
	golden(t, "approve", both(r))
	golden(t, "explain-allowed", must(t, 0, world.Ada, "explain", "sample", "-n", "team-a", "--method", "UpdateTaskExact").Stdout)
	golden(t, "review-granted", must(t, 0, world.Ada, "review", "sample", "-n", "team-a").Stdout)

	// Break it: the required one goes, and nothing works.
	r = must(t, 0, world.Grace, "revoke", "sample", "-n", "team-a", "--capability", "host.v2.read:tasks", "--reason", "Too curious")
	golden(t, "narrow", both(r))
	golden(t, "explain-gate", must(t, 2, world.Ada, "explain", "sample", "-n", "team-a", "--capability", "host.v2.write:tasks").Stdout)

	// Grant it again, and revoke.
	must(t, 0, world.Ada, "approve", "sample", "-n", "team-a", "--capability", "host.v2.read:tasks", "--reason", "It has to", "--yes")
	r = must(t, 0, world.Grace, "revoke", "sample", "-n", "team-a", "--reason", "Incident 42")
	golden(t, "revoke", both(r))
	golden(t, "revoke-again", both(must(t, 0, world.Grace, "revoke", "sample", "-n", "team-a", "--reason", "Incident 42")))
	golden(t, "explain-revoked", must(t, 2, world.Ada, "explain", "sample", "-n", "team-a", "--method", "ListTasksExact").Stdout)

	// The history, with everybody's name.
	golden(t, "audit", must(t, 0, world.Ada, "audit", "sample", "-n", "team-a").Stdout)

	// An upgrade says what it changes besides: the package can't say what is required.
	must(t, 0, world.Ada, "approve", "sample", "-n", "team-a", "--only", "--capability", "host.v2.read:tasks", "--expires-in", "1d", "--yes")
	must(t, 0, world.Grace, "revoke", "sample", "-n", "team-a", "--capability", "host.v2.read:tasks", "--reason", "Too curious")
	r = must(t, 2, world.Ada, "approve", "sample", "-n", "team-a", "--only", "--capability", "host.v2.write:tasks", "--no-expiry", "--yes")
	golden(t, "approve-gate", both(r))
	golden(t, "install-upgrade", both(must(t, 0, "", "install", "-f", "test/kubectl/testdata/manifest.yaml", "--yes")))
	settled(t, "team-a", "sample", "the upgrade", works("host.v2.write:tasks"))
	golden(t, "explain-not-reviewed", must(t, 2, world.Ada, "explain", "sample", "-n", "team-a", "--method", "ListTasksExact").Stdout)
	golden(t, "audit-upgrade", must(t, 0, world.Ada, "audit", "sample", "-n", "team-a").Stdout)
	r = must(t, 2, "", "install", "-f", "test/kubectl/testdata/manifest.yaml", "--service-account", "plugin-sample/another", "--yes")
	golden(t, "install-other-account", both(r))
}
