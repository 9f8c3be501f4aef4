package fence

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// Two controllers of which one may be deposed, edits and kills between any two
// steps: the checks are those of model. A failure prints the seed that
// reproduces it.
func TestPass_AnyInterleaving(t *testing.T) {
	for range 10 { // ten times the default number of runs
		rapid.Check(t, anyInterleaving)
	}
}

func anyInterleaving(rt *rapid.T) {
	m := newModel(rt)
	for i := range 2 {
		m.start(fmt.Sprintf("c%d", i))
	}
	m.lead(m.controllers[0])
	budget, depth := 12, 0
	var disturb func()
	m.hook = func(c *controller, _ string) error {
		if budget == 0 || rapid.IntRange(0, 7).Draw(rt, "disturbed") != 0 {
			return nil
		}
		budget--
		if rapid.IntRange(0, 3).Draw(rt, "killed") == 0 {
			m.kill(c)
			return errCrashed
		}
		disturb()
		return nil
	}
	pick := func(what string) *controller {
		return m.controllers[rapid.IntRange(0, len(m.controllers)-1).Draw(rt, what)]
	}
	runOne := func() {
		if len(m.controllers) == 0 || depth > 2 {
			return
		}
		depth++
		defer func() { depth-- }()
		c := pick("controller")
		if c.running {
			return
		}
		c.slow = rapid.IntRange(0, 5).Draw(rt, "slow") == 0
		_ = c.run() // whether it succeeds is not the point here
	}
	disturb = func() {
		switch rapid.IntRange(0, 13).Draw(rt, "what") {
		case 0, 1:
			caps := contract.SetOf(rapid.SliceOf(rapid.SampledFrom([]contract.Capability{
				contract.ReadTasks, contract.WriteTasks, contract.ReadSessions, contract.ReadTaskInbox,
			})).Draw(rt, "caps")...)
			m.apply(m.spec(caps))
		case 2:
			if m.approval != nil {
				m.edit(func(a *authority.Approval) { a.Revoked = true })
			}
		case 3:
			if m.approval != nil {
				m.edit(func(a *authority.Approval) { a.Capabilities &= readTasks | sessions })
			}
		case 4:
			if m.approval != nil {
				m.edit(func(a *authority.Approval) { a.Reason += "." })
			}
		case 5:
			if m.approval != nil {
				m.remove()
			}
		case 6:
			if len(m.applied) > 0 {
				m.apply(rapid.SampledFrom(m.applied).Draw(rt, "old"))
			}
		case 7:
			m.manifest(digestOf(rapid.IntRange(0, 1).Draw(rt, "digest")))
		case 8:
			m.installation.Suspended = !m.installation.Suspended
		case 9:
			m.refuseEvents = rapid.IntRange(0, 2).Draw(rt, "refused") == 0
		case 10:
			m.lead(m.start("new"))
		case 11:
			if len(m.controllers) > 0 {
				m.lead(pick("leader"))
			}
		case 12:
			if len(m.controllers) > 0 {
				_ = pick("handler").handle()
			}
		case 13: // waits for a manifest
			spec := m.spec(readTasks | writeTasks | sessions)
			spec.ManifestDigest = digestOf(rapid.IntRange(0, 1).Draw(rt, "awaited"))
			m.apply(spec)
		}
		runOne()
	}
	for range rapid.IntRange(1, 12).Draw(rt, "steps") {
		disturb()
	}
	m.converges()
}

// leading is a model with a leader and an approval of caps in force.
func leading(t *testing.T, caps contract.CapabilitySet) (*model, *controller) {
	t.Helper()
	m := newModel(t)
	c := m.granted(caps)
	return m, c
}

// granted starts a leader and puts an approval of caps in force.
func (m *model) granted(caps contract.CapabilitySet) *controller {
	m.t.Helper()
	c := m.start("leader")
	m.lead(c)
	m.apply(m.spec(caps))
	m.runs(c)
	if m.row.Effective(m.now) != caps {
		m.t.Fatalf("not granted: %+v", m.row)
	}
	return c
}

func (m *model) runs(c *controller) {
	m.t.Helper()
	if err := c.run(); err != nil {
		m.t.Fatalf("%v", err)
	}
}

// before runs do once, before the named point.
func before(m *model, point string, do func(c *controller) error) {
	m.hook = func(c *controller, at string) error {
		if at != point {
			return nil
		}
		m.hook = func(*controller, string) error { return nil }
		return do(c)
	}
}

// Revoke, kill the leader between hold and event, apply the used manifest
// again, start anew: revoked, and the history says so.
func TestI7_RevocationSurvivesTheKillAndTheSelfHeal(t *testing.T) {
	for _, healed := range []string{"before the start", "after the start", "deleted and re-created"} {
		t.Run(healed, func(t *testing.T) {
			m, c := leading(t, readTasks)
			used := *m.approval
			m.edit(func(a *authority.Approval) { a.Revoked = true })
			before(m, "create", func(c *controller) error { m.kill(c); return errCrashed })
			if err := c.run(); !errors.Is(err, errCrashed) {
				t.Fatal(err)
			}
			if m.row.Hold == nil || m.row.Effective(m.now) != 0 || len(m.events) != 1 {
				t.Fatalf("power is not held: %+v", m.row)
			}
			var next *controller
			if healed == "after the start" {
				next = m.start("next")
			}
			if healed == "deleted and re-created" {
				m.remove()
			}
			m.apply(used)
			if next == nil {
				next = m.start("next")
			}
			m.lead(next)
			if err := next.run(); err != nil {
				t.Fatal(err)
			}
			if m.row.State != authority.StateRevoked || m.row.Effective(m.now) != 0 || m.row.Act == used.SupersedesAct {
				t.Errorf("row %+v", m.row)
			}
			if e := m.events[2]; e.Type != authority.EventRevoke || e.Row.Cause != authority.CauseHuman || e.Applied == nil {
				t.Errorf("the history says %s, %s", e.Type, e.Row.Cause)
			}
			m.converges()
		})
	}
}

// A crash between event and fence costs nothing of the act, also where it takes
// away and grants at once, and whoever finds the event.
func TestStart_ACrashBetweenEventAndFenceCostsNoGrant(t *testing.T) {
	for name, listed := range map[string]bool{"found by the list": true, "found by the pass": false} {
		t.Run(name, func(t *testing.T) {
			m, c := leading(t, readTasks|writeTasks)
			m.apply(m.spec(readTasks | sessions))
			before(m, "created", func(c *controller) error { m.kill(c); return errCrashed })
			if err := c.run(); !errors.Is(err, errCrashed) {
				t.Fatal(err)
			}
			next := m.start("next")
			if listed {
				m.lead(next)
				if m.row.Effective(m.now) != 0 || !m.row.Starting {
					t.Errorf("effective before it was computed: %+v", m.row)
				}
			} else {
				m.leaderEpoch++
				next.term = Term{StoreEpoch: 1, LeaderEpoch: m.leaderEpoch}
			}
			if err := next.run(); err != nil {
				t.Fatal(err)
			}
			if m.row.Effective(m.now) != readTasks|sessions || m.row.Act != m.events[2].Row.Act {
				t.Errorf("row %+v", m.row)
			}
			m.converges()
		})
	}
}

// While a third party refuses events, power stays gone and nothing new is in
// force; afterwards the revocation is in the history, whatever is applied.
func TestPass_EventRefused(t *testing.T) {
	m, c := leading(t, readTasks)
	used := *m.approval
	m.refuseEvents = true
	m.edit(func(a *authority.Approval) { a.Revoked = true })
	if err := c.run(); !errors.Is(err, errRefused) {
		t.Fatal(err)
	}
	m.apply(used)
	if err := c.run(); !errors.Is(err, errRefused) || m.row.Effective(m.now) != 0 || m.row.Revision != 1 {
		t.Fatalf("%v, row %+v", err, m.row)
	}
	if m.waiting == nil || m.waiting.Reason != authority.WaitingFence || !strings.Contains(m.waiting.Message, errRefused.Error()) {
		t.Errorf("the status says %+v", m.waiting)
	}
	m.converges()
	if m.row.State != authority.StateRevoked || m.waiting != nil {
		t.Errorf("row %+v, status says %+v", m.row, m.waiting)
	}
}

// The answer to a creation is lost, and by the next round nothing is to be
// changed any more: the event is obeyed all the same, or it would lie in wait.
func TestObey_AnEventWhoseAnswerWasLost(t *testing.T) {
	m, c := leading(t, readTasks|writeTasks)
	m.edit(func(a *authority.Approval) {
		a.SupersedesAct, a.Capabilities = m.row.Act, readTasks|writeTasks|sessions
	})
	before(m, "created", func(*controller) error { return errors.New("the answer is lost") })
	if err := c.run(); err != nil {
		t.Fatal(err)
	}
	if m.row.Revision != 2 || m.row.Effective(m.now) != readTasks|writeTasks|sessions {
		t.Errorf("row %+v", m.row)
	}
	m.converges()
}

// A status that knows a later revision than the store stops the sequence (I3),
// and what is taken away is held all the same.
func TestI3_PassGoesOnFromNoLostRevision(t *testing.T) {
	m, c := leading(t, readTasks)
	m.status[m.approval.UID] = 7
	m.edit(func(a *authority.Approval) { a.Revoked = true })
	if err := c.run(); !errors.Is(err, ErrHistoryLost) {
		t.Fatal(err)
	}
	if m.row.Revision != 1 || m.row.Effective(m.now) != 0 {
		t.Errorf("row %+v", m.row)
	}
}

// A row that was read before another process fenced and published is only old.
func TestPass_AnOldRowIsNoLostHistory(t *testing.T) {
	m, old := leading(t, readTasks)
	m.edit(func(a *authority.Approval) { a.Capabilities, a.SupersedesAct = readTasks|writeTasks, m.row.Act })
	before(m, "read", func(*controller) error {
		next := m.start("next")
		m.lead(next)
		return next.run()
	})
	if err := old.run(); errors.Is(err, ErrHistoryLost) {
		t.Fatal(err)
	}
	if m.waiting != nil {
		t.Errorf("the status says %+v", m.waiting)
	}
}

// A leader that was deposed while it was paused can't fence, and neither can
// one that never led.
func TestFence_DeposedLeaderCantFence(t *testing.T) {
	for _, point := range []string{"row", "read", "create", "created", "fence", "mark"} {
		t.Run(point, func(t *testing.T) {
			m, old := leading(t, readTasks)
			m.edit(func(a *authority.Approval) {
				if a.Reason = "x"; point != "mark" {
					a.Capabilities, a.SupersedesAct = readTasks|writeTasks, m.row.Act
				}
			})
			before(m, point, func(*controller) error { m.lead(m.start("new")); return nil })
			if err := old.run(); !errors.Is(err, ErrDeposed) {
				t.Errorf("a deposed leader's pass: %v", err)
			}
			if m.row.Revision > 1 && !m.row.Starting {
				t.Errorf("fenced: %+v", m.row)
			}
			m.converges()
			if m.row.Granted != readTasks|map[bool]contract.CapabilitySet{true: 0, false: writeTasks}[point == "mark"] {
				t.Errorf("the act was lost: %+v", m.row)
			}
		})
	}
}

// A hold that comes while the pass computes makes the fence fail, and the next
// round records it.
func TestFence_HoldDuringComputeIsRecomputed(t *testing.T) {
	for _, point := range []string{"create", "fence"} {
		t.Run(point, func(t *testing.T) {
			m, c := leading(t, readTasks|writeTasks)
			m.apply(m.spec(readTasks | writeTasks | sessions))
			replica := m.start("replica")
			before(m, point, func(*controller) error {
				m.edit(func(a *authority.Approval) { a.Capabilities = readTasks })
				return replica.handle()
			})
			if err := c.run(); err != nil {
				t.Fatal(err)
			}
			if m.row.Effective(m.now) != readTasks || m.row.Hold != nil {
				t.Errorf("row %+v", m.row)
			}
			if m.row.Revision != 3 || m.events[3].Applied == nil || m.events[3].Row.Cause != authority.CauseHuman {
				t.Errorf("the narrowing has no revision of its own: %+v", m.events[3])
			}
			m.converges()
		})
	}
}

// An existing event is the truth of its revision, whatever would be computed
// now; what is desired now and is narrower is a hold from the start.
func TestObey_TheExistingEventIsTheTruth(t *testing.T) {
	for name, change := range map[string]struct {
		edit func(*model)
		want contract.CapabilitySet
	}{
		"nothing changed":      {func(*model) {}, readTasks | writeTasks},
		"narrowed":             {func(m *model) { m.edit(func(a *authority.Approval) { a.Capabilities = readTasks }) }, readTasks},
		"revoked":              {func(m *model) { m.edit(func(a *authority.Approval) { a.Revoked = true }) }, 0},
		"deleted":              {func(m *model) { m.remove() }, 0},
		"the manifest is back": {func(m *model) { m.manifest(digestOf(1)) }, readTasks},
		"nobody watched": {func(m *model) {
			m.edit(func(a *authority.Approval) { a.Revoked = true })
			m.edit(func(a *authority.Approval) { a.Revoked = false })
		}, 0},
		"the workspace is lost": {func(m *model) { m.workspace = nil }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m, c := leading(t, readTasks)
			m.apply(m.spec(readTasks | writeTasks))
			before(m, "created", func(c *controller) error { m.kill(c); return errCrashed })
			if err := c.run(); !errors.Is(err, errCrashed) {
				t.Fatal(err)
			}
			event := m.events[2]
			next := m.start("next")
			change.edit(m)
			if name == "nobody watched" {
				m.kill(next)
				next = m.start("next")
			}
			m.leaderEpoch++ // a leader whose list of events came before this one
			next.term = Term{StoreEpoch: 1, LeaderEpoch: m.leaderEpoch}
			fences := 0
			m.hook = func(_ *controller, point string) error {
				if point == "fenced" {
					fences++
					if fences == 1 {
						if m.row.Revision != 2 || m.row.EventHash != event.Hash() {
							t.Errorf("not the event: %+v", m.row)
						}
						if got := m.row.Effective(m.now); !change.want.Covers(got) {
							t.Errorf("wider than desired in between: {%s}", got)
						}
					}
				}
				return nil
			}
			if err := next.run(); err != nil {
				t.Fatal(err)
			}
			if got := m.row.Effective(m.now); got != change.want {
				t.Errorf("effective {%s}, want {%s}", got, change.want)
			}
			m.converges()
		})
	}
}

// The row's own hold stays, with its cause and version, when the event that is
// obeyed did not apply it.
func TestObey_AnOlderHoldStays(t *testing.T) {
	m, c := leading(t, readTasks|writeTasks)
	m.apply(m.spec(readTasks | writeTasks | sessions))
	before(m, "created", func(c *controller) error { m.kill(c); return errCrashed })
	_ = c.run()
	replica := m.start("replica")
	m.edit(func(a *authority.Approval) { a.Revoked, a.ChangedBy = true, "bob" })
	if err := replica.handle(); err != nil {
		t.Fatal(err)
	}
	hold := *m.row.Hold
	next := m.start("next")
	m.leaderEpoch++
	next.term = Term{StoreEpoch: 1, LeaderEpoch: m.leaderEpoch}
	before(m, "fenced", func(*controller) error {
		if h := m.row.Hold; h == nil || h.Cause != hold.Cause || h.UID != hold.UID || h.Generation != hold.Generation || h.Actor != hold.Actor {
			t.Errorf("the hold %+v became %+v", hold, h)
		}
		return nil
	})
	if err := next.run(); err != nil {
		t.Fatal(err)
	}
	if e := m.events[3]; e.Row.State != authority.StateRevoked || e.Row.Actor.Name != "bob" {
		t.Errorf("told as %+v", e.Row)
	}
}

// A grant of fewer capabilities than the version before asked for is a narrowing
// for whoever compares versions, and an act for who processes it. A replica that
// holds it between the leader's reads and its fence takes nothing from the act.
func TestI7_AGrantIsNotTakenBackByAHoldOfItsOwnVersion(t *testing.T) {
	for _, point := range []string{"create", "created", "fence"} {
		t.Run(point, func(t *testing.T) {
			m, c := leading(t, readTasks|writeTasks)
			m.edit(func(a *authority.Approval) { a.Revoked = true })
			if err := c.run(); err != nil {
				t.Fatal(err)
			}
			m.edit(func(a *authority.Approval) { a.Revoked = false }) // self-heal
			if err := c.run(); err != nil {
				t.Fatal(err)
			}
			replica := m.start("replica")
			if err := replica.handle(); err != nil {
				t.Fatal(err)
			}
			before(m, point, func(*controller) error { return replica.handle() })
			m.apply(m.spec(readTasks))
			if err := c.run(); err != nil {
				t.Fatal(err)
			}
			if m.row.Effective(m.now) != readTasks || m.row.Hold != nil {
				t.Errorf("row %+v", m.row)
			}
			m.converges()
		})
	}
}

// A grant that waits for its manifest is narrowed while a gate closes: the event
// of the gate has processed the narrowing version, and is no act. What was taken
// away must not come back by the manifest of before.
func TestI7_ANarrowingOfWhatWaitsOutlivesAnEventThatIsNoAct(t *testing.T) {
	m, c := leading(t, readTasks|writeTasks)
	waiting := m.spec(readTasks | writeTasks | sessions)
	waiting.ManifestDigest = digestOf(1)
	m.apply(waiting)
	if err := c.run(); err != nil {
		t.Fatal(err)
	}
	m.edit(func(a *authority.Approval) { a.Capabilities &^= sessions })
	m.installation.Suspended = true
	if err := c.run(); err != nil {
		t.Fatal(err)
	}
	m.edit(func(a *authority.Approval) { a.Capabilities |= sessions }) // self-heal
	m.installation.Suspended = false
	if err := c.run(); err != nil {
		t.Fatal(err)
	}
	m.manifest(digestOf(1))
	if err := c.run(); err != nil {
		t.Fatal(err)
	}
	if got := m.row.Effective(m.now); got != readTasks {
		t.Errorf("effective {%s}, row %+v", got, m.row)
	}
	m.converges()
}

// What a machine took away with a human's narrowing ends for good, also where the
// event that is obeyed grants the human's version.
func TestI7_WhatAManifestTookOutlivesTheEventOfTheSameVersionAsTheHold(t *testing.T) {
	m, c := leading(t, readTasks|writeTasks)
	m.edit(func(a *authority.Approval) { // to have a version before that asks for more
		a.Capabilities = readTasks | writeTasks | sessions
	})
	if err := c.run(); err != nil {
		t.Fatal(err)
	}
	replica := m.start("replica")
	if err := replica.handle(); err != nil {
		t.Fatal(err)
	}
	m.apply(m.spec(readTasks | writeTasks | inbox))
	before(m, "created", func(c *controller) error { m.kill(c); return errCrashed })
	_ = c.run()
	m.manifest(digestOf(1)) // declares neither writeTasks nor inbox
	if _, err := replica.Hold(t.Context(), m.row, func() authority.Hold {
		hold, ok := authority.Shrunk(m.row, m.installation.Declared, time.Time{}, authority.CauseManifestChanged)
		if !ok {
			t.Fatal("nothing is held")
		}
		return hold
	}()); err != nil {
		t.Fatal(err)
	}
	if err := replica.handle(); err != nil {
		t.Fatal(err)
	}
	if m.row.Hold == nil || m.row.Hold.Cause != authority.CauseHuman {
		t.Fatalf("the hold is %+v", m.row.Hold)
	}
	m.manifest(digestOf(0))
	next := m.start("next")
	m.leaderEpoch++
	next.term = Term{StoreEpoch: 1, LeaderEpoch: m.leaderEpoch}
	if err := next.run(); err != nil {
		t.Fatal(err)
	}
	if m.row.Effective(m.now)&writeTasks != 0 {
		t.Errorf("what the manifest took came back: %+v", m.row)
	}
	m.converges()
}

// An event does not lower what the row has seen.
func TestObey_SeenNeverGoesBack(t *testing.T) {
	m, old := leading(t, readTasks)
	m.manifest(digestOf(1))
	m.apply(m.spec(readTasks | sessions))
	armed := m.approval.Generation
	before(m, "create", func(*controller) error {
		// The old leader pauses before its event; the manifest is rolled back, the
		// grant waits again, is processed, and is edited while nobody watches.
		m.manifest(digestOf(0))
		next := m.start("next")
		m.lead(next)
		if err := next.run(); err != nil {
			t.Fatal(err)
		}
		if m.row.Revision != 1 || m.row.Seen.Generation != armed {
			t.Fatalf("not marked: %+v", m.row)
		}
		m.kill(next)
		m.edit(func(a *authority.Approval) { a.Reason = "spelled better" })
		last := m.start("last")
		m.lead(last)
		if err := last.run(); err != nil {
			t.Fatal(err)
		}
		return nil
	})
	if err := old.run(); !errors.Is(err, ErrDeposed) {
		t.Fatal(err)
	}
	if m.row.Revision != 1 || m.row.Seen.Generation != armed+1 || len(m.events) != 2 {
		t.Fatalf("not what this test is about: %+v", m.row)
	}
	// The event of revision 2 is the act of the version before.
	m.manifest(digestOf(1))
	if err := m.controllers[len(m.controllers)-1].run(); err != nil {
		t.Fatal(err)
	}
	if m.row.Effective(m.now) != readTasks|sessions || m.row.Act != m.events[2].Row.Act || m.row.Seen.Generation != armed+1 {
		t.Errorf("row %+v", m.row)
	}
	m.converges()
}

// An event that is altered, or does not follow the row, is not obeyed.
func TestObey_RefusesWhatDoesNotFollow(t *testing.T) {
	for name, spoil := range map[string]func(*authority.Event){
		"altered":        func(e *authority.Event) { e.Row.Granted |= inbox },
		"another chain":  func(e *authority.Event) { e.PreviousHash = "other" },
		"another key":    func(e *authority.Event) { e.Row.Key.WorkspaceID = "ws-2"; redigest(e) },
		"another number": func(e *authority.Event) { e.Row.Revision = 9; redigest(e) },
	} {
		t.Run(name, func(t *testing.T) {
			m, c := leading(t, readTasks)
			m.apply(m.spec(readTasks | writeTasks))
			before(m, "created", func(c *controller) error { m.kill(c); return errCrashed })
			_ = c.run()
			event := m.events[2]
			spoil(&event)
			m.events[2] = event
			next := m.start("next")
			m.leaderEpoch++
			next.term = Term{StoreEpoch: 1, LeaderEpoch: m.leaderEpoch}
			if err := next.run(); err == nil || m.row.Revision != 1 {
				t.Errorf("obeyed: %v, %+v", err, m.row)
			}
			m.edit(func(a *authority.Approval) { a.Revoked = true })
			_ = next.run()
			if m.row.Effective(m.now) != 0 {
				t.Error("revoking depends on the event")
			}
		})
	}
}

// redigest makes an event consistent in itself again.
func redigest(e *authority.Event) {
	out := authority.Outcome{Changed: true, Next: e.Row, Type: e.Type}
	row := authority.Row{Key: e.Row.Key, Revision: e.BeforeRevision, EventHash: e.PreviousHash, Hold: e.Applied}
	row.Vector.ManifestDigest = e.BeforeDigest
	again, err := authority.NewEvent(row, out, e.InstallationName)
	if err != nil {
		panic(err)
	}
	*e = again
}

// A status write that meets a changed object is a new pass, and nothing is
// forced.
func TestStatus_ConflictIsANewPass(t *testing.T) {
	m, c := leading(t, readTasks|writeTasks)
	m.edit(func(a *authority.Approval) { a.Reason = "x" })
	before(m, "apply", func(*controller) error {
		m.edit(func(a *authority.Approval) { a.Capabilities = readTasks })
		return nil
	})
	if err := c.run(); err != nil {
		t.Fatal(err)
	}
	if m.row.Effective(m.now) != readTasks || m.status[m.approval.UID] != m.row.Revision {
		t.Errorf("row %+v, status %v", m.row, m.status)
	}
}

// A row that got a revision between the reads, from objects that are newer
// than what was read, makes no event of a mixture.
func TestHold_RowThatMovedMeanwhileStartsOver(t *testing.T) {
	m, old := leading(t, readTasks|writeTasks)
	m.edit(func(a *authority.Approval) { a.Capabilities = readTasks })
	before(m, "watched from", func(*controller) error {
		next := m.start("next")
		m.lead(next)
		m.manifest(digestOf(1))
		return next.run()
	})
	if err := old.run(); err != nil {
		t.Errorf("pass: %v", err)
	}
	if m.row.Vector.ManifestDigest != digestOf(1) || m.row.Revision != 2 || len(m.events) != 2 {
		t.Errorf("%d events, row %+v", len(m.events), m.row)
	}
	m.converges()
}

func TestRun_GivesUpOnAnObjectThatNeverRests(t *testing.T) {
	m, c := leading(t, readTasks)
	m.hook = func(_ *controller, point string) error {
		if point == "apply" {
			m.edit(func(a *authority.Approval) { a.Reason += "." })
		}
		return nil
	}
	if err := c.run(); !errors.Is(err, ErrOvertaken) {
		t.Errorf("pass: %v", err)
	}
	m.converges()
}

// The caller learns when the clock alone changes the row.
func TestRun_WakesAtExpiry(t *testing.T) {
	m := newModel(t)
	c := m.start("leader")
	m.lead(c)
	spec := m.spec(readTasks)
	spec.ExpiresAt = epoch.Add(time.Hour)
	m.apply(spec)
	p := &Pass{Intent: c, History: c, Events: c, Ledger: c, Status: c, Now: func() time.Time { return m.now }, Random: &m.names}
	result, err := p.Run(context.Background(), c.term, testKey)
	if err != nil || !result.Wake.Equal(spec.ExpiresAt) || result.Row != m.row {
		t.Errorf("%+v, %v", result, err)
	}
	m.now = spec.ExpiresAt
	result, err = p.Run(context.Background(), c.term, testKey)
	if err != nil || !result.Wake.IsZero() || result.Row.State != authority.StateExpired {
		t.Errorf("%+v, %v", result, err)
	}
}
