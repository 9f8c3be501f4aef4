package authority

import (
	"fmt"
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
)

// The scenarios of the authority protocol: each forced a rule.

// An ID that was approved before it was declared must not start to work at an
// upgrade.
func TestI7_UndeclaredIDStaysOffAtTheUpgradeThatDeclaresIt(t *testing.T) {
	w := newWorld(t)
	w.manifest(digestOf(2))
	w.apply(w.spec(readTasks | inbox))
	w.settle()
	w.wantEffective(readTasks)
	w.manifest(digestOf(0))
	out := w.settle()
	w.wantEffective(readTasks)
	if out.Type != EventUpgradeReview || out.Next.Cause != CauseManifestChanged {
		t.Errorf("told as %s, %s", out.Type, out.Next.Cause)
	}
	if r := out.Review; r == nil || r.Widens != inbox || r.Reason != ReviewActAlreadyUsed {
		t.Errorf("review %+v", r)
	}
}

// Upgrade, rollback, policy and back: what shrank stays shrunk without an act.
func TestI7_RollbackNeverWidens(t *testing.T) {
	w := granted(t, allOfTest)
	act := w.row.Act
	for _, digest := range []string{digestOf(2), digestOf(0), digestOf(1), digestOf(0)} {
		w.manifest(digest)
		w.settle()
	}
	w.wantEffective(readTasks | sessions)
	w.policy = Policy{Version: "p2", Allowed: readTasks}
	w.settle()
	w.policy = Policy{Version: "p1", Allowed: contract.AllCapabilities}
	w.settle()
	w.wantEffective(readTasks)
	if w.row.Act != act {
		t.Errorf("machines moved the act from %s to %s", act, w.row.Act)
	}
}

// A typo in a ServiceAccount's name must not force new acts: closing and
// opening a gate is a revision each and no act.
func TestGates_OpeningOneIsNoActAndNoWidening(t *testing.T) {
	for name, gate := range map[string]struct {
		set    func(*world, bool)
		closed Gates
		causes [2]Cause
	}{
		"suspended": {func(w *world, on bool) { w.installation.Suspended = on }, GateSuspended, [2]Cause{CauseSuspended, CauseResumed}},
		"principal": {func(w *world, on bool) { w.installation.PrincipalChanged = on }, GatePrincipalChanged, [2]Cause{CausePrincipalChanged, CausePrincipalChanged}},
		"account":   {func(w *world, on bool) { w.installation.ServiceAccountConflict = on }, GateServiceAccountConflict, [2]Cause{CauseGateClosed, CauseGateOpened}},
		"version":   {func(w *world, on bool) { w.installation.HostVersionUnsupported = on }, GateHostVersionUnsupported, [2]Cause{CauseGateClosed, CauseGateOpened}},
		"workspace": {func(w *world, on bool) { w.workspace.Conflict = on }, GateWorkspaceConflict, [2]Cause{CauseGateClosed, CauseGateOpened}},
		"the rename": {func(w *world, on bool) {
			w.installation.PrincipalChanged = on
			w.installation.ServiceAccountName = fmt.Sprint("plugin", on)
		}, GatePrincipalChanged, [2]Cause{CausePrincipalChanged, CausePrincipalChanged}},
	} {
		t.Run(name, func(t *testing.T) {
			w := granted(t, readTasks)
			before := w.row
			gate.set(w, true)
			out := w.settle()
			w.wantEffective(0)
			if w.row.Gates != gate.closed || out.Type != EventNarrow || w.row.Cause != gate.causes[0] || w.row.Revision != before.Revision+1 {
				t.Errorf("closed: %s %+v", out.Type, w.row)
			}
			gate.set(w, false)
			out = w.settle()
			w.wantEffective(readTasks)
			if out.Type != EventUpgradeReview || w.row.Cause != gate.causes[1] || w.row.Act != before.Act || w.row.Revision != before.Revision+2 {
				t.Errorf("opened: %s %+v", out.Type, w.row)
			}
		})
	}
}

// The gate of a required capability is computed from the grant, other gates
// aside, or it would latch itself.
func TestGates_RequiredCapabilityDoesNotLatch(t *testing.T) {
	w := granted(t, readTasks)
	w.installation.Required, w.installation.Suspended = writeTasks, true
	w.settle()
	if w.row.Gates != GateSuspended|GateRequiredCapabilityUnavailable {
		t.Fatalf("gates %v", w.row.Gates.Names())
	}
	w.apply(w.spec(readTasks | writeTasks))
	w.settle()
	w.installation.Suspended = false
	w.settle()
	w.wantEffective(readTasks | writeTasks)
}

// With the namespace's label alone, relabelling would spend a used manifest in
// another workspace.
func TestI7_AnotherWorkspacesOrInstallationsManifestGrantsNothing(t *testing.T) {
	for name, change := range map[string]func(*Approval){
		"workspace":    func(a *Approval) { a.WorkspaceID = "ws-2" },
		"installation": func(a *Approval) { a.InstallationID = "inst-2" },
		"empty":        func(a *Approval) { a.WorkspaceID, a.InstallationID = "", "" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			spec := w.spec(readTasks)
			change(&spec)
			w.apply(spec)
			w.settle()
			if w.row.Revision != 0 || w.outcome.Review == nil || w.outcome.Review.Widens != readTasks {
				t.Errorf("row %+v, review %+v", w.row, w.outcome.Review)
			}

			w = granted(t, readTasks)
			act := w.row.Act
			w.edit(change)
			if w.row.Effective(w.now) != 0 {
				t.Error("not held")
			}
			w.settle()
			if w.row.State != StateRevoked || w.row.Act == act || w.row.Cause != CauseHuman {
				t.Errorf("an approval that names another key: %+v", w.row)
			}
		})
	}
}

// An act that widens nothing is spent all the same: else it stays armed, and a
// later rollback fires it.
func TestI7_AnActThatWidensNothingIsSpent(t *testing.T) {
	w := newWorld(t)
	w.manifest(digestOf(1)) // does not declare writeTasks
	w.apply(w.spec(readTasks))
	w.settle()
	w.apply(w.spec(readTasks | writeTasks))
	out := w.settle()
	if !out.Changed || out.Next.Act == out.Next.ApprovedBy || out.Next.Act != w.row.Act || w.row.Act == w.approval.SupersedesAct {
		t.Errorf("not spent: %+v", w.row)
	}
	w.manifest(digestOf(0))
	w.settle()
	w.manifest(digestOf(1))
	w.settle()
	w.wantEffective(readTasks)
}

// No manifest works twice, whoever applies it and however it comes back.
func TestI7_AUsedManifestNeverWorksAgain(t *testing.T) {
	for name, bringBack := range map[string]func(*world, Approval){
		"self-heal":           func(w *world, used Approval) { w.apply(used) },
		"delete and re-apply": func(w *world, used Approval) { w.remove(); w.settle(); w.apply(used) },
		"delete and re-apply at once": func(w *world, used Approval) {
			w.remove()
			w.apply(used)
		},
		"while the process is down": func(w *world, used Approval) { w.down(); w.apply(used); w.up() },
		"replaced while it is down": func(w *world, used Approval) { w.down(); w.remove(); w.apply(used); w.up() },
		"with another reason":       func(w *world, used Approval) { used.Reason = "again"; w.apply(used) },
		"by another human":          func(w *world, used Approval) { used.ApprovedBy = "mallory"; w.apply(used) },
		"after the store was lost":  func(w *world, used Approval) { w.settle(); w.rebuild(); w.apply(used) },
		"from an older cluster": func(w *world, used Approval) {
			used.UID, used.Generation = w.approval.UID, 1
			w.approval = &used
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := granted(t, readTasks)
			used := *w.approval
			w.edit(func(a *Approval) { a.Revoked = true })
			w.settle()
			bringBack(w, used)
			w.settle()
			w.wantEffective(0)
			if r := w.outcome.Review; r == nil || r.Reason != ReviewActAlreadyUsed || !r.Reactivates || r.Widens != readTasks {
				t.Errorf("review %+v", r)
			}
			w.checkReview()
		})
	}
}

// Names are unpredictable: a refused spec that carries a future one would lie
// in wait.
func TestI7_AFutureNameCantBeGuessed(t *testing.T) {
	w := granted(t, readTasks)
	for _, guess := range []string{"2", "2-", "2-aaaaaa", "1", "1-n1 ", "1-N1", "*"} {
		w.edit(func(a *Approval) { a.SupersedesAct, a.Capabilities = guess, readTasks|writeTasks })
		w.settle()
	}
	w.wantEffective(readTasks)
	fresh := newWorld(t)
	fresh.apply(fresh.spec(readTasks))
	a, b := Compute(fresh.row, fresh.intent(), epoch, "aaaaaa"), Compute(fresh.row, fresh.intent(), epoch, "bbbbbb")
	if !a.Changed || a.Next.Act == b.Next.Act {
		t.Errorf("the name %s does not depend on what was drawn", a.Next.Act)
	}
}

// A new generation is no act: reordering, a reason, the label of the act that
// is already used.
func TestI7_ANewGenerationIsNoAct(t *testing.T) {
	w := granted(t, readTasks)
	before := w.row
	w.edit(func(a *Approval) { a.Reason = "spelled better" })
	out := w.settle()
	if out.Changed || w.row.Revision != before.Revision || w.row.Act != before.Act || w.row.Seen.Generation != 2 {
		t.Errorf("a reason edit: %+v", w.row)
	}
}

// An upgrade and its approval can be merged in one commit, in any order.
func TestI7_UpgradeAndApprovalInAnyOrder(t *testing.T) {
	upgrade := func(w *world) { w.manifest(digestOf(0)) }
	approve := func(w *world) {
		spec := w.spec(readTasks | inbox)
		spec.ManifestDigest = digestOf(0)
		w.apply(spec)
	}
	for name, steps := range map[string][]func(*world){
		"upgrade first": {upgrade, approve}, "approval first": {approve, upgrade},
	} {
		for _, settleBetween := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, settled %v", name, settleBetween), func(t *testing.T) {
				w := newWorld(t)
				w.manifest(digestOf(2))
				w.apply(w.spec(readTasks))
				w.settle()
				for _, step := range steps {
					step(w)
					if settleBetween {
						w.settle()
						w.checkReview()
					}
				}
				w.settle()
				w.wantEffective(readTasks | inbox)
			})
		}
	}
}

// A spec whose digest is not in force narrows at once.
func TestI7_AWaitingSpecNarrowsAtOnce(t *testing.T) {
	w := granted(t, readTasks|writeTasks)
	spec := w.spec(readTasks | inbox)
	spec.ManifestDigest = digestOf(1)
	w.apply(spec)
	w.wantEffective(readTasks)
	w.settle()
	w.wantEffective(readTasks)
}

// A renewal opened before the instant of expiry and merged after it is
// routine.
func TestExpiry_LeavesTheActForTheRenewal(t *testing.T) {
	w := newWorld(t)
	spec := w.spec(readTasks)
	spec.ExpiresAt = w.now.Add(time.Hour)
	w.apply(spec)
	w.settle()
	renewal := w.spec(readTasks)
	renewal.ExpiresAt = w.now.Add(3 * time.Hour)
	w.now = spec.ExpiresAt
	w.wantEffective(0) // by the clock, before any pass
	out := w.settle()
	if out.Type != EventRevoke || w.row.State != StateExpired || w.row.Cause != CauseExpired || w.row.Act != renewal.SupersedesAct {
		t.Fatalf("expired as %s %+v", out.Type, w.row)
	}
	w.apply(renewal)
	w.settle()
	w.wantEffective(readTasks)
}

// One spec is processed in one revision: its own narrowing never spends the
// name that its widening uses.
func TestI7_ASpecThatNarrowsAndWidensIsOneAct(t *testing.T) {
	w := granted(t, readTasks|writeTasks)
	revision := w.row.Revision
	w.apply(w.spec(readTasks | sessions))
	if w.row.Hold == nil {
		t.Error("not held")
	}
	w.settle()
	w.wantEffective(readTasks | sessions)
	if w.row.Revision != revision+1 {
		t.Errorf("revision %d after %d", w.row.Revision, revision)
	}
}

// A revoked grant that was still waiting for its digest must not come back by
// self-heal; nor a deleted or a narrowed one.
func TestI7_AWaitingGrantThatWasTakenBackStaysBack(t *testing.T) {
	for name, takeBack := range map[string]func(*world){
		"revoked":  func(w *world) { w.edit(func(a *Approval) { a.Revoked = true }) },
		"deleted":  func(w *world) { w.remove() },
		"narrowed": func(w *world) { w.edit(func(a *Approval) { a.Capabilities = readTasks }) },
		"replaced": func(w *world) { w.remove(); w.apply(w.applied[len(w.applied)-1]) },
	} {
		for _, approvedBefore := range []bool{false, true} {
			for _, settled := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, approved before %v, settled %v", name, approvedBefore, settled), func(t *testing.T) {
					w := newWorld(t)
					if approvedBefore {
						w.apply(w.spec(sessions))
						w.settle()
					}
					waiting := w.spec(readTasks | writeTasks | sessions)
					waiting.ManifestDigest = digestOf(2)
					w.apply(waiting)
					if settled {
						w.settle()
					}
					takeBack(w)
					if settled {
						w.settle()
					}
					w.apply(waiting)
					w.manifest(digestOf(2))
					w.settle()
					if w.row.Granted&writeTasks != 0 {
						t.Errorf("came back: %+v", w.row)
					}
				})
			}
		}
	}
}

// What waits for its digest is nowhere but in the spec. Taken back while no process
// runs, by one version, it stays back when the one of before comes again: the row
// says what that asked for.
func TestI7_AWaitingGrantThatWasTakenBackUnwatchedStaysBack(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Approval)
		moves  bool
	}{
		"fewer capabilities": {func(a *Approval) { a.Capabilities = readTasks }, true},
		"another one":        {func(a *Approval) { a.Capabilities = readTasks | sessions }, true},
		"an earlier end":     {func(a *Approval) { a.ExpiresAt = a.ExpiresAt.Add(-time.Minute) }, true},
		"without the IDs that this Host doesn't know": {func(a *Approval) { a.Unknown = nil }, true},
		"an end that is the same instant":             {func(a *Approval) { a.ExpiresAt = a.ExpiresAt.In(time.FixedZone("", 3600)) }, false},
		"more":                                        {func(a *Approval) { a.Capabilities |= sessions; a.ExpiresAt = time.Time{} }, false},
		"another reason":                              {func(a *Approval) { a.Reason = "spelled better" }, false},
	} {
		for _, approvedBefore := range []bool{false, true} {
			for _, held := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, approved before %v, held %v", name, approvedBefore, held), func(t *testing.T) {
					w := newWorld(t)
					end := w.now.Add(time.Hour)
					if approvedBefore {
						spec := w.spec(readTasks)
						spec.ExpiresAt = end
						w.apply(spec)
						w.settle()
					}
					waits := w.spec(readTasks | writeTasks)
					waits.ManifestDigest, waits.ExpiresAt, waits.Unknown = digestOf(2), end, []string{"host.v2.read:moons"}
					w.apply(waits)
					w.settle()
					w.down()
					act := w.row.Act
					w.edit(c.change)
					if held {
						w.up()
					}
					// Without a hold, the next revision takes the name all the same.
					out := Compute(w.row, w.intent(), w.now, "x")
					if out.Changed != c.moves || (out.Next.Act != act) != c.moves {
						t.Errorf("computed %+v", out.Next)
					}
					if (w.row.Hold != nil) != (held && c.moves) {
						t.Errorf("held %+v", w.row.Hold)
					}
					if !held {
						w.up()
					}
					w.settle()
					if (w.row.Act != act) != c.moves {
						t.Errorf("the act was %q: %+v", act, w.row)
					}
					if c.moves {
						w.apply(waits)
					}
					w.manifest(digestOf(2))
					w.settle()
					if fires := w.row.Granted&writeTasks != 0; fires == c.moves {
						t.Errorf("it fires: %v; row %+v", fires, w.row)
					}
				})
			}
		}
	}
}

// Of a row or an event of before Seen.Asked, nobody knows whether what follows takes
// anything away: the name moves, and what is granted stays. Processing the same
// version again tells.
func TestI7_WhatIsNotRecordedCountsAsNarrowed(t *testing.T) {
	for _, again := range []bool{false, true} {
		w := granted(t, readTasks)
		act := w.row.Act
		w.down()
		w.row.Seen = w.row.Seen.Unrecorded()
		if again {
			w.up()
			w.settle()
			w.down()
		}
		w.edit(func(a *Approval) { a.Reason = "spelled better" })
		w.up()
		w.settle()
		w.wantEffective(readTasks)
		if moved := w.row.Act != act; moved == again {
			t.Errorf("processed again: %v, the act moved: %v", again, moved)
		}
	}
}

// A lagging view of an old revocation must not cost a fresh grant for good.
func TestHold_AnOldVersionHoldsNothing(t *testing.T) {
	w := granted(t, readTasks)
	w.edit(func(a *Approval) { a.Revoked = true })
	old := *w.approval
	w.settle()
	w.apply(w.spec(readTasks))
	w.settle()
	w.wantEffective(readTasks)
	before := old
	before.Generation, before.Revoked = 1, false
	for _, prev := range []*Approval{nil, &before} {
		if hold, ok := Narrowing(w.row, prev, &old); ok {
			t.Errorf("generation %d of %d holds %+v", old.Generation, w.row.Seen.Generation, hold)
		}
	}
}

// Power must stay gone and the revocation must be in the history: revoke, the
// event refused, then self-heal.
func TestHold_RevokeAndHealBeforeAnyRevision(t *testing.T) {
	w := granted(t, readTasks)
	used := *w.approval
	w.edit(func(a *Approval) { a.Revoked, a.ChangedBy, a.Reason = true, "bob", "incident" })
	w.wantEffective(0)
	w.apply(used)
	w.wantEffective(0)
	out := w.settle()
	w.wantEffective(0)
	if out.Type != EventRevoke || w.row.Cause != CauseHuman || w.row.Actor != (Actor{"bob", ActorVerified}) || w.row.Reason != "incident" {
		t.Errorf("the history does not tell who revoked: %s %+v", out.Type, w.row)
	}
}

// A machine's hold that is followed by a human's is told as the human's.
func TestHold_AHumansOutranksAMachines(t *testing.T) {
	w := granted(t, readTasks|writeTasks)
	w.manifest(digestOf(1))
	for _, hold := range Narrowings(w.row, w.intent()) {
		w.hold(hold)
	}
	w.edit(func(a *Approval) { a.Revoked = true })
	w.settle()
	if w.row.Cause != CauseHuman || w.row.State != StateRevoked {
		t.Errorf("told as %+v", w.row)
	}
}

// What nobody watched counts as revoked once; a human uses the new name.
func TestUnseenChange(t *testing.T) {
	for name, c := range map[string]struct {
		setUp   func(*world)
		revoked bool
	}{
		"revoked and healed while down": {func(w *world) {
			used := *w.approval
			w.down()
			w.edit(func(a *Approval) { a.Revoked = true })
			w.apply(used)
			w.up()
		}, true},
		"one reason edit while down": {func(w *world) {
			w.down()
			w.edit(func(a *Approval) { a.Reason = "x" })
			w.up()
		}, false},
		"nothing while down": {func(w *world) { w.down(); w.up() }, false},
		"the live read overtakes the watch": {func(w *world) {
			used := *w.approval
			w.lagging = true
			w.edit(func(a *Approval) { a.Revoked = true })
			w.apply(used)
		}, true},
		"the live read overtakes one edit": {func(w *world) {
			w.lagging = true
			w.edit(func(a *Approval) { a.Reason = "x" })
		}, false},
		"watched all along": {func(w *world) {
			w.edit(func(a *Approval) { a.Reason = "x" })
			w.edit(func(a *Approval) { a.Reason = "y" })
		}, false},
		"after the store is lost": {func(w *world) {
			w.edit(func(a *Approval) { a.Reason = "x" })
			w.edit(func(a *Approval) { a.Reason = "y" })
			w.settle()
			w.down()
			w.rebuild() // the newest event saw generation 1
			w.up()
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := granted(t, readTasks)
			act := w.row.Act
			c.setUp(w)
			if holds := Narrowings(w.row, w.intent()); c.revoked && !w.row.Starting && len(holds) == 0 {
				t.Error("not held")
			}
			w.settle()
			if !c.revoked {
				w.wantEffective(readTasks)
				if w.row.Act != act {
					t.Errorf("the act moved: %+v", w.row)
				}
				return
			}
			w.wantEffective(0)
			if w.row.Cause != CauseUnseenChange || w.row.Actor.Assurance != ActorUnknown || w.row.Act == act {
				t.Errorf("told as %+v", w.row)
			}
			w.catchUp()
			w.settle()
			w.checkReview()
		})
	}
	t.Run("first seen above generation 1", func(t *testing.T) {
		w := newWorld(t)
		w.down()
		w.apply(w.spec(readTasks))
		w.edit(func(a *Approval) { a.Reason = "x" })
		w.up()
		w.settle()
		if w.row.State != StateRevoked || w.row.Cause != CauseUnseenChange {
			t.Errorf("row %+v", w.row)
		}
		w.checkReview()
	})
}

// The mark of a rebuilt row is no hold and moves no act: a crash between event
// and fence must not cost the grant. A real hold set under it stays.
func TestStarting_IsNoHold(t *testing.T) {
	w := granted(t, readTasks)
	act, revision := w.row.Act, w.row.Revision
	w.down()
	w.rebuild()
	w.wantEffective(0)
	w.up()
	out := w.settle()
	w.wantEffective(readTasks)
	if w.row.Act != act || w.row.Revision != revision+1 || w.row.Cause != CauseStoreEpoch || out.Type != EventUpgradeReview {
		t.Errorf("lifted as %s %+v", out.Type, w.row)
	}

	w.rebuild()
	w.edit(func(a *Approval) { a.Revoked = true })
	if w.row.Hold == nil || !w.row.Starting {
		t.Fatalf("no hold under the mark: %+v", w.row)
	}
	w.settle()
	if w.row.State != StateRevoked || w.row.Act == act {
		t.Errorf("the hold was lost: %+v", w.row)
	}
}

// A deletion is told apart from what machines do, and moves the act.
func TestLosses(t *testing.T) {
	for name, c := range map[string]struct {
		lose  func(*world)
		cause Cause
		moves bool
	}{
		"approval deleted":  {func(w *world) { w.remove() }, CauseApprovalDeleted, true},
		"approval replaced": {func(w *world) { w.down(); spec := w.spec(readTasks); w.remove(); w.apply(spec); w.up() }, CauseApprovalDeleted, true},
		"workspace lost":    {func(w *world) { w.workspace = nil }, CauseWorkspaceRemoved, true},
		"namespace deleted": {func(w *world) { w.workspace = nil; w.remove() }, CauseApprovalDeleted, true},
		"bound elsewhere":   {func(w *world) { w.workspace.NamespaceUID = "ns-2" }, CauseWorkspaceRemoved, true},
		"uninstalled":       {func(w *world) { w.installation = nil }, CauseUninstalled, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := granted(t, readTasks)
			act := w.row.Act
			c.lose(w)
			for _, hold := range Narrowings(w.row, w.intent()) {
				w.hold(hold)
			}
			w.wantEffective(0)
			out := w.settle()
			if out.Type != EventRevoke || w.row.State != StateRevoked || w.row.Granted != 0 || w.row.Cause != c.cause {
				t.Errorf("told as %s %+v", out.Type, w.row)
			}
			if moved := w.row.Act != act; moved != c.moves {
				t.Errorf("the act moved: %v", moved)
			}
		})
	}
}

// A hold makes a narrowing come earlier, never in the first place: without one,
// the next revision takes the same away.
func TestCompute_NarrowsWithoutAHold(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world)
		want   contract.CapabilitySet
		cause  Cause
	}{
		"narrower":     {func(w *world) { w.edit(func(a *Approval) { a.Capabilities = readTasks }) }, readTasks, CauseHuman},
		"revoked":      {func(w *world) { w.edit(func(a *Approval) { a.Revoked = true }) }, 0, CauseHuman},
		"deleted":      {func(w *world) { w.remove() }, 0, CauseApprovalDeleted},
		"replaced":     {func(w *world) { spec := w.spec(readTasks); w.remove(); w.apply(spec) }, 0, CauseApprovalDeleted},
		"elsewhere":    {func(w *world) { w.edit(func(a *Approval) { a.WorkspaceID = "ws-2" }) }, 0, CauseHuman},
		"unseen":       {func(w *world) { w.edit(func(*Approval) {}); w.edit(func(*Approval) {}) }, 0, CauseUnseenChange},
		"manifest":     {func(w *world) { w.manifest(digestOf(1)) }, readTasks, CauseManifestChanged},
		"policy":       {func(w *world) { w.policy = Policy{Version: "p2", Allowed: writeTasks} }, writeTasks, CausePolicyChanged},
		"no workspace": {func(w *world) { w.workspace = nil }, 0, CauseWorkspaceRemoved},
		"rebound":      {func(w *world) { w.workspace.NamespaceUID = "ns-2" }, 0, CauseWorkspaceRemoved},
		"uninstalled":  {func(w *world) { w.installation = nil }, 0, CauseUninstalled},
	} {
		t.Run(name, func(t *testing.T) {
			w := granted(t, readTasks|writeTasks)
			w.down()
			c.change(w)
			out := Compute(w.row, w.intent(), w.now, "x")
			if !out.Changed || out.Next.Granted != c.want || out.Next.Cause != c.cause || (c.want == 0) != (out.Next.State == StateRevoked) {
				t.Errorf("computed %+v", out.Next)
			}
			var hold *Hold
			for _, h := range Narrowings(w.row, w.intent()) {
				hold = ptr(hold.Merge(h))
			}
			if hold == nil || hold.Cause != c.cause || hold.Granted != c.want && hold.State == StateActive {
				t.Errorf("held %+v", hold)
			}
		})
	}
}

// A grant that was armed for a manifest must not fire in a namespace that is
// labelled anew, however often the workspace is lost, nor when it was deleted
// or revoked meanwhile.
func TestI7_AnArmedGrantDoesNotSurviveTheLossOfTheWorkspace(t *testing.T) {
	lose := func(w *world) { w.workspace = nil }
	bind := func(w *world) {
		w.workspace = &Workspace{ID: testKey.WorkspaceID, Namespace: "team", NamespaceUID: "ns-2"}
	}
	arm := func(w *world) {
		spec := w.spec(readTasks | writeTasks)
		spec.ManifestDigest = digestOf(2)
		w.apply(spec)
	}
	again := func(w *world) {
		if w.approval != nil {
			w.remove()
		}
		w.apply(w.applied[1])
	}
	for name, steps := range map[string][]func(*world){
		"armed, lost, bound":                        {arm, lose, bind},
		"lost, bound, armed, lost, bound":           {lose, bind, arm, lose, bind},
		"lost, armed, deleted, bound, re-applied":   {lose, arm, func(w *world) { w.remove() }, bind, again},
		"lost, armed, revoked, re-applied, bound":   {lose, arm, func(w *world) { w.edit(func(a *Approval) { a.Revoked = true }) }, func(w *world) { w.apply(w.applied[1]) }, bind},
		"armed, bound elsewhere without being seen": {arm, bind},
	} {
		t.Run(name, func(t *testing.T) {
			w := granted(t, sessions)
			for _, step := range steps {
				step(w)
				w.settle()
			}
			w.manifest(digestOf(2))
			w.settle()
			w.wantEffective(0)
		})
	}
}

// A removal of one ID by edit is a narrowing with its own revision and name,
// and tells who did it where that write says so.
func TestNarrow_ByEdit(t *testing.T) {
	w := granted(t, readTasks|writeTasks)
	act := w.row.Act
	w.edit(func(a *Approval) { a.Capabilities = readTasks })
	out := w.settle()
	w.wantEffective(readTasks)
	if out.Type != EventNarrow || w.row.Act == act || w.row.Actor.Assurance != ActorUnknown || w.row.Cause != CauseHuman {
		t.Errorf("told as %s %+v", out.Type, w.row)
	}
	w.edit(func(a *Approval) { a.ExpiresAt, a.ChangedBy = w.now.Add(time.Hour), "bob" })
	if out = w.settle(); out.Type != EventNarrow || w.row.Actor != (Actor{"bob", ActorVerified}) {
		t.Errorf("told as %s %+v", out.Type, w.row)
	}
	w.edit(func(a *Approval) { a.Revoked = true })
	if out = w.settle(); out.Type != EventRevoke || w.row.Actor.Assurance != ActorUnknown {
		t.Errorf("changedBy of an older write counts: %+v", w.row)
	}
}

// Unknown IDs and a policy grant nothing, and the report says why.
func TestReport_SaysWhy(t *testing.T) {
	w := newWorld(t)
	w.policy = Policy{Version: "p", Allowed: contract.AllCapabilities &^ sessions}
	w.manifest(digestOf(2))
	spec := w.spec(readTasks | sessions | inbox)
	spec.Unknown = []string{"host.v2.read:moons"}
	w.apply(spec)
	w.settle()
	report := NewReport(w.row, w.intent(), w.outcome.Review, w.now)
	got := map[string]InactiveReason{}
	for _, i := range report.Inactive {
		got[i.ID] = i.Reason
	}
	want := map[string]InactiveReason{
		"host.v2.read:moons": InactiveUnknown, "host.v2.read:sessions": InactiveHumanReserved,
		"host.v2.read:task_inbox": InactiveNotDeclared, "host.v2.write:tasks": InactiveNotReviewed,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || report.Effective != readTasks || report.Generation != 1 {
		t.Errorf("inactive %v, effective %s", got, report.Effective)
	}
	w.edit(func(a *Approval) { a.Capabilities |= writeTasks })
	w.settle()
	report = NewReport(w.row, w.intent(), w.outcome.Review, w.now)
	for _, i := range report.Inactive {
		if i.ID == "host.v2.write:tasks" && i.Reason != InactiveActAlreadyUsed {
			t.Errorf("a used act is told as %s", i.Reason)
		}
	}
	w.installation, w.workspace = nil, nil
	if report = NewReport(w.row, w.intent(), nil, w.now); !report.InstallationMissing || !report.WorkspaceMissing {
		t.Errorf("nothing is missing in %+v", report)
	}
}
