package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/kandev/plugin-host/hostsvc/auditlog"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// Whoever hands over an archive can make a history up that is whole in itself. It
// is not proven unless the cluster has its newest event.
func TestAnArchiveProvesNothingByItself(t *testing.T) {
	key := authority.Key{InstallationID: "3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77", WorkspaceID: "payments"}
	event, err := authority.NewEvent(authority.Row{Key: key}, authority.Outcome{
		Next: authority.Row{Key: key, Revision: 1, State: authority.StateActive}, Type: authority.EventGrant,
	}, "standup")
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := auditlog.Encode(&archive, event); err != nil {
		t.Fatal(err)
	}
	for _, output := range []string{"table", "json", "jsonl"} {
		for name, live := range map[string][]authority.Event{"the cluster has it": {event}, "the cluster has nothing": nil} {
			tool, out, errOut := newTool("")
			h := history{tool: tool, events: live}
			if err := h.decode("made-up.jsonl", bytes.NewReader(archive.Bytes()), func(authority.Event) bool { return true }); err != nil {
				t.Fatal(err)
			}
			err := h.tell(auditOptions{archive: "made-up.jsonl", output: output})
			said := out.String() + errOut.String()
			if live != nil && err != nil || live == nil && (!errors.Is(err, answer(exitNo)) || !strings.Contains(said, "Unwitnessed") || strings.Contains(said, "  Proven")) {
				t.Errorf("%s, %s: %v\n%s", output, name, err, said)
			}
		}
	}
}
