package journal_test

import (
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// The hash of an entry covers what the Host filled in, and is what it was before there
// was anything to fill in: chains of then go on. Both were computed elsewhere.
func TestEntryHash(t *testing.T) {
	e := journal.Entry{
		WorkspaceID: "w", Version: 2, Kind: journal.KindCommand, AuditID: "audit", InstallationID: "i", Revision: 3, Method: "UpdateTaskExact",
		Capability: "host.v2.write:tasks", RequestID: "r", IdempotencyKey: "k", Result: contract.StateApplied, TargetID: "t", Before: "1.1",
		After: "1.2", EventType: "task.updated", Event: "{}", At: time.Unix(1767225600, 7),
	}
	for i := range e.CommandDigest {
		e.CommandDigest[i] = byte(i)
	}
	for implicit, want := range map[string]string{
		"":      "05488fa756491ae221d368428d4af80b165e68601457fa899911e01b5dca7036",
		"guard": "c39c5f942a8f616e581c06bec2fbcef64d89912ac15491ae4e3c050ed761449b",
	} {
		e.Implicit = implicit
		if got := e.Link("before").Hash; got != want {
			t.Errorf("implicit %q: %s, want %s", implicit, got, want)
		}
	}
}
