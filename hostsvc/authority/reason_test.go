package authority

import "testing"

// A grant's reason must not read as the reason of the revocation that left it
// standing in the spec.
func TestNarrowing_ReasonIsTheWritesOwn(t *testing.T) {
	key := Key{InstallationID: "i", WorkspaceID: "w"}
	row := Row{
		Key: key, Revision: 1, State: StateActive, Granted: 3, Reason: "Reviewed.",
		Seen: Seen{UID: "u", Generation: 1},
	}
	approval := func(generation int64, reason string, revoked bool) *Approval {
		return &Approval{
			UID: "u", Generation: generation, InstallationID: "i", WorkspaceID: "w", Capabilities: 3,
			Reason: reason, Revoked: revoked,
		}
	}
	for _, c := range []struct {
		name       string
		prev       *Approval
		reason     string
		wantReason string
	}{
		{"left standing", approval(1, "Reviewed.", false), "Reviewed.", ""},
		{"left standing, the version before not watched", nil, "Reviewed.", ""},
		{"written with it", approval(1, "Reviewed.", false), "Incident 42.", "Incident 42."},
		{"written with it, the version before not watched", nil, "Incident 42.", "Incident 42."},
	} {
		t.Run(c.name, func(t *testing.T) {
			hold, ok := Narrowing(row, c.prev, approval(2, c.reason, true))
			if !ok || hold.Reason != c.wantReason {
				t.Errorf("held %t with reason %q, want %q", ok, hold.Reason, c.wantReason)
			}
		})
	}
}
