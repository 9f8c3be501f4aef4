package fence

import (
	"context"
	"testing"
	"time"

	"github.com/kandev/plugin-host/hostsvc/authority"
)

// doubting is a controller whose store records what nobody has checked.
type doubting struct {
	*controller
	distrusted map[string]int64
}

func (d *doubting) Distrust(_ context.Context, uid string, generation int64) error {
	d.distrusted[uid] = max(d.distrusted[uid], generation)
	return nil
}

func (d *doubting) Fence(ctx context.Context, term Term, from, to authority.Row) error {
	d.mustDistrust(to.Seen)
	return d.controller.Fence(ctx, term, from, to)
}

func (d *doubting) MarkSeen(ctx context.Context, term Term, from authority.Row, seen authority.Seen) error {
	d.mustDistrust(seen)
	return d.controller.MarkSeen(ctx, term, from, seen)
}

// mustDistrust: once a version is seen, nothing tells any more when it came.
func (d *doubting) mustDistrust(seen authority.Seen) {
	d.m.t.Helper()
	if a := d.m.approval; a != nil && !a.Checked && seen.UID == a.UID && seen.Generation == a.Generation && d.distrusted[a.UID] < a.Generation {
		d.m.t.Fatalf("generation %d is seen and not distrusted", a.Generation)
	}
}

func TestI7_AVersionThatNobodyCheckedIsDistrustedBeforeItIsSeen(t *testing.T) {
	for name, meanwhile := range map[string]func(*model){
		"by no revision":                    func(*model) {},
		"by the revision of a gate":         func(m *model) { m.installation.Suspended = true },
		"by the revision of a manifest":     func(m *model) { m.installation.Version = "2" },
		"by the revision of its narrowing":  func(m *model) { m.edit(func(a *authority.Approval) { a.Capabilities = sessions }) },
		"by the revision of its revocation": func(m *model) { m.edit(func(a *authority.Approval) { a.Revoked = true }) },
	} {
		t.Run(name, func(t *testing.T) {
			m, c := leading(t, readTasks|writeTasks)
			forged := m.spec(readTasks | writeTasks | sessions)
			forged.Checked = false
			m.apply(forged)
			meanwhile(m)
			d := &doubting{controller: c, distrusted: map[string]int64{}}
			pass := &Pass{Intent: c, History: c, Events: c, Ledger: d, Status: c, Now: func() time.Time { return m.now }, Random: &m.names}
			if _, err := pass.Run(context.Background(), c.term, testKey); err != nil {
				t.Fatal(err)
			}
			if got := d.distrusted[m.approval.UID]; got != m.approval.Generation {
				t.Errorf("distrusted up to generation %d, want %d", got, m.approval.Generation)
			}
			if m.row.Granted&sessions != 0 {
				t.Errorf("an act that nobody checked was admitted: %+v", m.row)
			}
		})
	}
}

// A row of before the store kept what a version asked for gets it with the next
// pass. The version was seen long ago: whether it was checked was settled then, and
// is not asked again while the policies happen not to be proven.
func TestI7_AVersionThatWasSeenIsNotDistrustedLater(t *testing.T) {
	m, c := leading(t, readTasks)
	waits := m.spec(readTasks | sessions)
	waits.ManifestDigest = digestOf(1)
	m.apply(waits)
	m.runs(c)
	seen := m.row.Seen
	m.row.Seen = seen.Unrecorded()
	m.approval.Checked = false
	m.runs(c) // the model refuses to distrust
	if m.row.Seen != seen {
		t.Errorf("the row has seen %+v, want %+v", m.row.Seen, seen)
	}
}
