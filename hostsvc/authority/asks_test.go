package authority

import (
	"fmt"
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
)

// Rows of design/user-asks.md and of the upstream ledger's scenarios that rest on
// the pure rules alone.

// ending is a grant that ends an hour from now, in force.
func ending(t *testing.T) (w *world, end time.Time) {
	t.Helper()
	w = newWorld(t)
	spec := w.spec(readTasks | writeTasks)
	spec.ExpiresAt = w.now.Add(time.Hour)
	w.apply(spec)
	w.settle()
	w.wantEffective(readTasks | writeTasks)
	return w, spec.ExpiresAt
}

// The Host's clock and the controllers' are apart from the true one, each by up
// to two minutes: a grant ends by the first of the two that reaches the end, so
// never later than their lag, and nothing brings it back.
func TestUserAsk44_ClocksThatAreApartEndAGrantByTheFirst(t *testing.T) {
	const apart = 2 * time.Minute
	for _, host := range []time.Duration{-apart, 0, apart} {
		for _, controllers := range []time.Duration{-apart, 0, apart} {
			t.Run(fmt.Sprintf("Host %v, controllers %v", host, controllers), func(t *testing.T) {
				w, end := ending(t)
				over := end.Add(-max(host, controllers))
				for at := end.Add(-2 * apart); at.Before(end.Add(2 * apart)); at = at.Add(10 * time.Second) {
					w.now = at.Add(controllers)
					w.settle()
					seen := Observed{Synced: true, Vector: w.row.Sum}
					allowed := Decide(&w.row, &seen, true, Call{Capability: contract.WriteTasks}, at.Add(host)).Allowed()
					if allowed != at.Before(over) {
						t.Fatalf("%v from the end, the Host allows: %v", at.Sub(end), allowed)
					}
				}
			})
		}
	}
}

// A machine that slept, or whose clock is set back to before the end or before the
// grant, gets nothing again that has expired.
func TestUserAsk46_AClockSetBackBringsNothingBack(t *testing.T) {
	for _, back := range []time.Duration{time.Second, 30 * time.Minute, 24 * time.Hour} {
		t.Run(back.String(), func(t *testing.T) {
			w, end := ending(t)
			w.now = end
			w.settle()
			expired := w.row
			w.now = end.Add(-back)
			w.wantEffective(0)
			out := w.settle()
			w.wantEffective(0)
			if w.row.State != StateExpired || w.row.Revision != expired.Revision || w.row.Act != expired.Act {
				t.Errorf("%+v became %+v", expired, w.row)
			}
			if r := out.Review; r == nil || r.Reason != ReviewActAlreadyUsed || !r.Reactivates {
				t.Errorf("review %+v", r)
			}
		})
	}
}

// What is revoked is not revoked again: whoever writes it once more, with another
// name and reason, makes no revision, spends no name, and is not told as the one
// who did it.
func TestUpstream_ARevocationIsOneHoweverOftenItIsWritten(t *testing.T) {
	w := granted(t, readTasks|writeTasks)
	w.edit(func(a *Approval) { a.Revoked, a.ChangedBy, a.Reason = true, "bob", "incident" })
	w.settle()
	first := w.row
	for _, again := range []func(*Approval){
		func(a *Approval) { a.Reason = "another incident" },
		func(a *Approval) { a.ChangedBy, a.Reason = "carol", "me too" },
	} {
		w.edit(again)
		if out := w.settle(); out.Changed {
			t.Errorf("told as %s %+v", out.Type, w.row)
		}
	}
	w.wantEffective(0)
	if w.row.Actor != first.Actor || w.row.Revision != first.Revision || w.row.Act != first.Act {
		t.Errorf("%+v became %+v", first, w.row)
	}
}
