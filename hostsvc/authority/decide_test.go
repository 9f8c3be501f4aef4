package authority

import (
	"fmt"
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
)

// decision is everything that one call is decided on.
type decision struct {
	row  *Row
	seen Observed
	call Call
	now  time.Time
	// stale: the store doesn't vouch for its rows.
	stale bool
}

// allowed is a call that is allowed.
func allowed() decision {
	vector := Vector{InstallationUID: "i", ManifestDigest: digestOf(0), WorkspaceNamespaceUID: "ns", PolicyVersion: "p1"}
	row := &Row{
		Key: testKey, Revision: 7, Act: "6-abcdef", State: StateActive, Granted: readTasks | writeTasks,
		Declared: allOfTest, Allowed: contract.AllCapabilities &^ inbox, ExpiresAt: epoch.Add(time.Hour),
		Vector: vector, Sum: vector.Sum(), Seen: Seen{UID: "u", Generation: 3},
	}
	return decision{
		row: row, now: epoch, call: Call{Capability: contract.WriteTasks, Revision: 7, ManifestDigest: digestOf(0)},
		seen: Observed{Synced: true, Vector: row.Sum, Revision: 7, Approval: ObservedApproval{
			UID: "u", Generation: 3, Capabilities: row.Granted, ExpiresAt: row.ExpiresAt,
		}},
	}
}

func (d *decision) decide() Verdict { return Decide(d.row, &d.seen, !d.stale, d.call, d.now) }

// checks are the rows of the contract's table that authority answers, in its
// order: the answer, and every way to fail it. Each way leaves the others'
// conditions alone, so that any two can be combined.
var checks = []struct {
	name     string
	reason   contract.Reason
	hidden   bool // the revision is not told
	failures map[string]func(*decision)
}{
	{"host version", contract.ReasonHostVersionUnsupported, false, map[string]func(*decision){
		"seen": func(d *decision) { d.seen.HostVersionUnsupported = true },
		"gate": func(d *decision) { d.row.Gates |= GateHostVersionUnsupported },
	}},
	{"never approved", contract.ReasonMissingCapabilityApproval, true, map[string]func(*decision){
		"revision 0": func(d *decision) { d.row.Revision = 0 },
	}},
	{"over", contract.ReasonCapabilityRevoked, false, map[string]func(*decision){
		"revoked":            func(d *decision) { d.row.State = StateRevoked },
		"expired":            func(d *decision) { d.row.State = StateExpired },
		"no state":           func(d *decision) { d.row.State = StateNone },
		"expires now":        func(d *decision) { d.row.ExpiresAt = d.now },
		"expired by hold":    func(d *decision) { held(d.row).ExpiresAt = d.now },
		"revoked by hold":    func(d *decision) { held(d.row).State = StateRevoked },
		"suspended":          func(d *decision) { d.row.Gates |= GateSuspended },
		"principal changed":  func(d *decision) { d.row.Gates |= GatePrincipalChanged },
		"workspace conflict": func(d *decision) { d.row.Gates |= GateWorkspaceConflict },
		"account conflict":   func(d *decision) { d.row.Gates |= GateServiceAccountConflict },
		"newer is revoked":   func(d *decision) { d.seen.Approval.Generation, d.seen.Approval.Revoked = 4, true },
		"newer is expired":   func(d *decision) { d.seen.Approval.Generation, d.seen.Approval.ExpiresAt = 4, d.now },
		"deleted":            func(d *decision) { d.seen.Approval.Gone = true },
		"newer is elsewhere": func(d *decision) { d.seen.Approval.Generation, d.seen.Approval.Gone = 4, true },
		"another and revoked": func(d *decision) {
			d.seen.Approval = ObservedApproval{UID: "v", Generation: 1, Revoked: true, Confirmed: true}
		},
		"another and deleted": func(d *decision) {
			d.seen.Approval = ObservedApproval{UID: "v", Generation: 1, Gone: true, Confirmed: true}
		},
		"confirmed to be gone": func(d *decision) { d.seen.Approval = ObservedApproval{Gone: true, Confirmed: true} },
	}},
	{"required capability", contract.ReasonMissingCapabilityApproval, false, map[string]func(*decision){
		"gate": func(d *decision) { d.row.Gates |= GateRequiredCapabilityUnavailable },
	}},
	{"unsettled", contract.ReasonDependencyUnavailable, false, map[string]func(*decision){
		"not synced":          func(d *decision) { d.seen.Synced = false },
		"starting":            func(d *decision) { d.row.Starting = true },
		"uncompared":          func(d *decision) { d.row.Uncompared = true },
		"lease run out":       func(d *decision) { d.stale = true },
		"held":                func(d *decision) { held(d.row) },
		"row of an old store": func(d *decision) { d.seen.Revision = d.row.Revision + 1 },
		"vector":              func(d *decision) { d.seen.Vector[0] ^= 1 },
		"vector unknown":      func(d *decision) { d.seen.Vector = VectorSum{} },
		"newer grants less":   func(d *decision) { d.seen.Approval.Generation, d.seen.Approval.Capabilities = 4, writeTasks },
		"newer ends earlier":  func(d *decision) { d.seen.Approval.Generation, d.seen.Approval.ExpiresAt = 4, d.now.Add(time.Minute) },
		"another, unconfirmed": func(d *decision) {
			d.seen.Approval = ObservedApproval{UID: "v", Generation: 9, Revoked: true, Capabilities: allOfTest}
		},
		"another, the same":   func(d *decision) { d.seen.Approval.UID, d.seen.Approval.Confirmed = "v", true },
		"absent, unconfirmed": func(d *decision) { d.seen.Approval = ObservedApproval{Gone: true} },
		"older was elsewhere": func(d *decision) { d.seen.Approval.Generation, d.seen.Approval.Gone = 2, true },
	}},
	{"stale", contract.ReasonStaleCapabilityRevision, false, map[string]func(*decision){
		"older revision": func(d *decision) { d.call.Revision = 6 },
		"newer revision": func(d *decision) { d.call.Revision = 8 },
		"digest":         func(d *decision) { d.call.ManifestDigest = digestOf(1) },
	}},
	{"reserved", contract.ReasonHumanReserved, false, map[string]func(*decision){
		"policy":             func(d *decision) { d.row.Allowed = 0 },
		"unknown capability": func(d *decision) { d.call.Capability = 63 },
	}},
	{"not effective", contract.ReasonMissingCapabilityApproval, false, map[string]func(*decision){
		"not granted":  func(d *decision) { d.row.Granted, d.seen.Approval.Capabilities = readTasks, readTasks },
		"not declared": func(d *decision) { d.row.Declared = readTasks },
	}},
}

// held puts a hold on the row that takes nothing away.
func held(row *Row) *Hold {
	if row.Hold == nil {
		row.Hold = &Hold{State: StateActive, Granted: row.Granted, ExpiresAt: row.ExpiresAt}
	}
	return row.Hold
}

func TestDecide_Allows(t *testing.T) {
	for name, change := range map[string]func(*decision){
		"as it is":               func(*decision) {},
		"without revision":       func(d *decision) { d.call.Revision, d.call.ManifestDigest = 0, "" },
		"a moment before expiry": func(d *decision) { d.now = d.row.ExpiresAt.Add(-time.Nanosecond) },
		"no expiry":              func(d *decision) { d.row.ExpiresAt, d.seen.Approval.ExpiresAt = time.Time{}, time.Time{} },
		"newer grants the same":  func(d *decision) { d.seen.Approval.Generation = 4 },
		"newer grants more": func(d *decision) {
			d.seen.Approval.Generation, d.seen.Approval.Capabilities = 4, contract.AllCapabilities
		},
		"newer ends later":          func(d *decision) { d.seen.Approval.Generation, d.seen.Approval.ExpiresAt = 4, time.Time{} },
		"older is revoked":          func(d *decision) { d.seen.Approval.Generation, d.seen.Approval.Revoked = 2, true },
		"older is expired":          func(d *decision) { d.seen.Approval.Generation, d.seen.Approval.ExpiresAt = 2, d.now },
		"older grants less":         func(d *decision) { d.seen.Approval.Generation, d.seen.Approval.Capabilities = 2, 0 },
		"the approval not watched":  func(d *decision) { d.seen.Approval = ObservedApproval{} },
		"status lags":               func(d *decision) { d.seen.Revision = 5 },
		"another one not effective": func(d *decision) { d.row.Declared &^= readTasks },
	} {
		d := allowed()
		change(&d)
		if got, want := d.decide(), (Verdict{State: contract.StateApplied, Revision: 7}); got != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Each check answers alone, and before every later one (contract, "Order of
// checks").
func TestDecide_FirstFailureAnswers(t *testing.T) {
	for i, first := range checks {
		for name, fail := range first.failures {
			d := allowed()
			fail(&d)
			wantVerdict(t, fmt.Sprintf("%s (%s)", first.name, name), d, first.reason, first.hidden)
			for _, second := range checks[i+1:] {
				for other, failToo := range second.failures {
					if observesAnother(fail) && observesAnother(failToo) {
						continue // one process sees one version of an object
					}
					d := allowed()
					// The later first, so that it can't overwrite the earlier.
					failToo(&d)
					fail(&d)
					wantVerdict(t, fmt.Sprintf("%s (%s) and %s (%s)", first.name, name, second.name, other), d, first.reason, first.hidden || d.row.Revision == 0)
				}
			}
		}
	}
}

func observesAnother(fail func(*decision)) bool {
	d, was := allowed(), allowed()
	fail(&d)
	return d.seen.Approval != was.seen.Approval
}

func wantVerdict(t *testing.T, name string, d decision, reason contract.Reason, hidden bool) {
	t.Helper()
	revision := uint64(7)
	if hidden {
		revision = 0
	}
	if (!d.seen.Synced || d.stale) && d.row.Revision == 0 && reason == contract.ReasonMissingCapabilityApproval {
		reason = contract.ReasonDependencyUnavailable // nothing is known to be unapproved before everything is seen
	}
	got := d.decide()
	if got.Reason != reason || got.State != reason.Parent() || got.Revision != revision || got.Allowed() {
		t.Errorf("%s: %+v, want %s/%s at %d", name, got, reason.Parent(), reason, revision)
	}
}

// An unknown workspace and an unapproved one answer the same, and only once
// everything has been seen.
func TestI14_UnknownAndUnapprovedAnswerTheSame(t *testing.T) {
	unapproved := &Row{Key: testKey, Hold: &Hold{State: StateRevoked}, Seen: Seen{UID: "u", Generation: 3}}
	for _, seen := range []Observed{
		{Synced: true}, {}, {Synced: true, Revision: 3}, {Synced: true, Approval: ObservedApproval{UID: "u", Revoked: true}},
		{Synced: true, HostVersionUnsupported: true},
	} {
		for _, call := range []Call{{}, {Revision: 1}, {Capability: 63, ManifestDigest: "x"}} {
			a, b := Decide(nil, &seen, true, call, epoch), Decide(unapproved, &seen, true, call, epoch)
			if a != b || a.Allowed() || a.Revision != 0 {
				t.Errorf("%+v: %+v and %+v", seen, a, b)
			}
		}
	}
}

// Decide allows exactly what is effective, whatever the row and the view hold.
func TestI2_DecideNeverAllowsWhatIsNotEffective(t *testing.T) {
	for i := range checks {
		for name, fail := range checks[i].failures {
			d := allowed()
			fail(&d)
			for _, c := range contract.Capabilities() {
				d.call.Capability = c
				if d.decide().Allowed() && !d.row.Effective(d.now).Has(c) {
					t.Errorf("%s: %s is allowed and not effective", name, c)
				}
			}
		}
	}
	d := allowed()
	for _, c := range contract.Capabilities() {
		d.call.Capability = c
		if d.decide().Allowed() != d.row.Effective(d.now).Has(c) {
			t.Errorf("%s is decided other than effective", c)
		}
	}
}

func TestDecide_DoesNotAllocate(t *testing.T) {
	d, denied := allowed(), allowed()
	denied.row.State = StateRevoked
	for name, one := range map[string]decision{"allow": d, "deny": denied} {
		if n := testing.AllocsPerRun(100, func() { one.decide() }); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	d := allowed()
	b.ReportAllocs()
	for b.Loop() {
		if !d.decide().Allowed() {
			b.Fatal("denied")
		}
	}
}
