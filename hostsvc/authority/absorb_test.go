package authority

import (
	"testing"

	"github.com/kandev/plugin-host/contract"
)

// A revocation that takes nothing more away, because an equal hold stands
// already, is in no event that applied that hold: obeying the event must not
// lose it.
func TestI7_ARevocationThatAHoldAbsorbedOutlivesTheEventOfThatHold(t *testing.T) {
	w := granted(t, readTasks)
	row, installation, workspace := w.row, *w.installation, *w.workspace
	version := func(generation int64, act string, revoked bool) *Approval {
		a := w.spec(readTasks)
		a.UID, a.Generation, a.SupersedesAct, a.Revoked = row.Seen.UID, row.Seen.Generation+generation, act, revoked
		return &a
	}
	from := row.Seen.Generation
	reading := func(a *Approval, watched int64) Intent {
		return Intent{Approval: a, Installation: &installation, Workspace: &workspace, Policy: w.policy, WatchedFrom: from + watched}
	}
	hold := func(r *Row, h Hold, ok bool) {
		if !ok {
			t.Fatal("nothing is held")
		}
		merged := r.Hold.Merge(h)
		r.Hold = &merged
	}
	// An unwatched history is held, and its event made: the answer is lost.
	for _, h := range Narrowings(row, reading(version(3, "", false), 3)) {
		hold(&row, h, true)
	}
	out := Compute(row, reading(version(3, "", false), 3), epoch, "aaaaaa")
	event, err := NewEvent(row, out, "plugin")
	if err != nil {
		t.Fatal(err)
	}
	// A human names the act that the event shows; another revokes; a tool heals.
	grant, revocation := version(4, event.Row.Act, false), version(5, event.Row.Act, true)
	h, ok := Narrowing(row, grant, revocation)
	hold(&row, h, ok)
	if again, ok := Narrowing(row, grant, revocation); ok {
		t.Errorf("the same version is held twice: %+v", again)
	}
	to := event.Rebuilt()
	to.Hold = event.Remaining(row.Hold)
	healed := reading(version(6, event.Row.Act, false), 3)
	for _, h := range Narrowings(to, healed) {
		merged := to.Hold.Merge(h)
		to.Hold = &merged
	}
	if out := Compute(to, healed, epoch, "bbbbbb"); out.Next.State != StateRevoked || out.Type != EventRevoke {
		t.Errorf("the healed manifest got %s %+v", out.Type, out.Next)
	}
}

// A row that differs from its objects allows nothing, loses nothing, and its
// next revision says what it was.
func TestDiffering_StopsAndTakesNothing(t *testing.T) {
	w := granted(t, readTasks|writeTasks)
	before := w.row
	hold, ok := Differing(w.row)
	if !ok {
		t.Fatal("nothing is held")
	}
	merged := w.row.Hold.Merge(hold)
	w.row.Hold = &merged
	if _, again := Differing(w.row); again {
		t.Error("held twice")
	}
	seen := Observed{Synced: true, Vector: w.row.Sum}
	seen.Approval = ObservedApproval{UID: w.row.Seen.UID, Generation: w.row.Seen.Generation, Capabilities: w.row.Granted}
	call := Call{Capability: contract.WriteTasks}
	if v := Decide(&w.row, &seen, true, call, w.now); v.Reason != contract.ReasonDependencyUnavailable {
		t.Errorf("a row that differs answers %+v", v)
	}
	w.installation.Suspended = true
	out := w.settle()
	if w.row.Hold != nil || w.row.Granted != before.Granted || w.row.Act != before.Act || w.row.Cause != CauseSuspended || out.Type != EventNarrow {
		t.Errorf("%s %+v", out.Type, w.row)
	}
	w.installation.Suspended = false
	w.settle()
	// What differed is as it was before anybody could fence.
	hold, _ = Differing(w.row)
	w.row.Hold = &hold
	w.settle()
	if w.row.Cause != CauseGateOpened || w.row.Effective(w.now) != before.Granted || w.row.Hold != nil {
		t.Errorf("row %+v", w.row)
	}
	// A hold of before that takes away is not lifted by it.
	revoked := Hold{State: StateRevoked, Cause: CauseHuman, UID: "u", Generation: 9}
	if merged := revoked.Merge(hold); merged.State != StateRevoked || !merged.Cause.movesAct() {
		t.Errorf("merged %+v", merged)
	}
}
