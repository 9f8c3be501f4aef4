package authority

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kandev/plugin-host/contract"
)

// Humans, machines and crashes in any order: I2, I3 and I7 hold, every state
// is steady after a few passes, and what people are told is true. The checks
// are those of world.
func TestModel_AnyHistory(t *testing.T) {
	for range 10 { // ten times the default number of histories
		rapid.Check(t, anyHistory)
	}
}

func anyHistory(rt *rapid.T) {
	w := newWorld(rt)
	caps := func() contract.CapabilitySet {
		return contract.SetOf(rapid.SliceOf(rapid.SampledFrom([]contract.Capability{
			contract.ReadTasks, contract.WriteTasks, contract.ReadSessions, contract.ReadTaskInbox,
		})).Draw(rt, "caps")...)
	}
	digest := func() string { return digestOf(rapid.IntRange(0, 2).Draw(rt, "digest")) }
	expiry := func() time.Time {
		if hours := rapid.IntRange(0, 4).Draw(rt, "hours"); hours > 0 {
			return w.now.Add(time.Duration(hours) * time.Hour)
		}
		return time.Time{}
	}
	needsApproval := func() {
		if w.approval == nil {
			rt.Skip("no approval")
		}
	}
	needsInstallation := func() {
		if w.installation == nil {
			rt.Skip("uninstalled")
		}
	}
	maybeSettle := func() {
		if rapid.Bool().Draw(rt, "settle") && w.watching {
			w.settle()
			w.checkReview()
		}
	}
	actions := map[string]func(*rapid.T){
		"grant": func(*rapid.T) {
			needsInstallation()
			spec := w.spec(caps())
			spec.ExpiresAt = expiry()
			if rapid.IntRange(0, 3).Draw(rt, "other digest") == 0 {
				spec.ManifestDigest = digest()
			}
			w.apply(spec)
		},
		"edit": func(*rapid.T) {
			needsApproval()
			w.edit(func(a *Approval) { a.Capabilities = caps() })
		},
		"edit expiry": func(*rapid.T) { needsApproval(); w.edit(func(a *Approval) { a.ExpiresAt = expiry() }) },
		"revoke":      func(*rapid.T) { needsApproval(); w.edit(func(a *Approval) { a.Revoked = true }) },
		"unrevoke":    func(*rapid.T) { needsApproval(); w.edit(func(a *Approval) { a.Revoked = false }) },
		"reason":      func(*rapid.T) { needsApproval(); w.edit(func(a *Approval) { a.Reason += "." }) },
		"guess act": func(*rapid.T) {
			needsApproval()
			w.edit(func(a *Approval) { a.SupersedesAct = fmt.Sprintf("%d-n0", w.row.Revision+1) })
		},
		"mismatch": func(*rapid.T) {
			needsApproval()
			w.edit(func(a *Approval) {
				a.WorkspaceID = rapid.SampledFrom([]string{testKey.WorkspaceID, "ws-2"}).Draw(rt, "workspace")
			})
		},
		"delete": func(*rapid.T) { needsApproval(); w.remove() },
		"re-apply": func(*rapid.T) {
			if len(w.applied) == 0 {
				rt.Skip("nothing to re-apply")
			}
			w.apply(rapid.SampledFrom(w.applied).Draw(rt, "old"))
		},
		"self-heal": func(*rapid.T) {
			if len(w.applied) < 2 {
				rt.Skip("nothing to heal")
			}
			w.apply(w.applied[len(w.applied)-2])
		},
		"replace": func(*rapid.T) {
			needsApproval()
			spec := *w.approval
			w.remove()
			w.apply(spec)
		},
		"manifest": func(*rapid.T) { needsInstallation(); w.manifest(digest()) },
		"required": func(*rapid.T) {
			needsInstallation()
			w.installation.Required = caps() & w.installation.Declared
		},
		"gates": func(*rapid.T) {
			needsInstallation()
			w.installation.Suspended = rapid.Bool().Draw(rt, "suspended")
			w.installation.PrincipalChanged = rapid.Bool().Draw(rt, "principal changed")
			w.installation.HostVersionUnsupported = rapid.Bool().Draw(rt, "host too old")
			w.installation.ServiceAccountConflict = rapid.Bool().Draw(rt, "conflict")
			if w.workspace != nil {
				w.workspace.Conflict = rapid.Bool().Draw(rt, "workspace conflict")
			}
		},
		"open gates": func(*rapid.T) {
			needsInstallation()
			i := w.installation
			i.Suspended, i.PrincipalChanged, i.HostVersionUnsupported, i.ServiceAccountConflict = false, false, false, false
			if w.workspace != nil {
				w.workspace.Conflict = false
			}
		},
		"acknowledge principal": func(*rapid.T) {
			needsInstallation()
			w.installation.PrincipalChanged = false
			w.installation.ServiceAccountUID = fmt.Sprintf("sa-%d", rapid.IntRange(1, 3).Draw(rt, "sa"))
		},
		"policy": func(*rapid.T) {
			w.policy.Version = fmt.Sprintf("p%d", rapid.IntRange(1, 3).Draw(rt, "policy"))
			w.policy.Allowed = map[string]contract.CapabilitySet{
				"p1": contract.AllCapabilities, "p2": readTasks | writeTasks, "p3": allOfTest,
			}[w.policy.Version]
		},
		"lose workspace": func(*rapid.T) {
			w.workspace = nil
			if w.approval != nil && rapid.Bool().Draw(rt, "with its objects") {
				w.remove()
			}
		},
		"bind workspace": func(*rapid.T) {
			w.workspace = &Workspace{
				ID: testKey.WorkspaceID, Namespace: "team",
				NamespaceUID: fmt.Sprintf("ns-%d", rapid.IntRange(1, 2).Draw(rt, "namespace")),
			}
		},
		"uninstall": func(*rapid.T) {
			if rapid.IntRange(0, 5).Draw(rt, "really") == 0 {
				w.installation = nil
			}
		},
		"time": func(*rapid.T) {
			w.now = w.now.Add(time.Duration(rapid.IntRange(1, 180).Draw(rt, "minutes")) * time.Minute)
		},
		"lag":      func(*rapid.T) { w.lagging = w.watching },
		"catch up": func(*rapid.T) { w.catchUp() },
		"crash":    func(*rapid.T) { w.down() },
		"start": func(*rapid.T) {
			if w.watching {
				rt.Skip("running")
			}
			w.up()
		},
		"lose the store": func(*rapid.T) {
			// A loss is at rest: what was not yet a revision is in no event.
			w.down()
			w.up()
			w.settle()
			w.down()
			w.rebuild()
			w.up()
		},
		"pass": func(*rapid.T) {
			if w.watching {
				w.pass()
			}
		},
	}
	wrapped := map[string]func(*rapid.T){}
	for name, action := range actions {
		wrapped[name] = func(t *rapid.T) { action(t); maybeSettle() }
	}
	rt.Repeat(wrapped)
}

// Holds only ever intersect, whatever merges into whatever.
func TestHold_MergeOnlyIntersects(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(name string) Hold {
			h := Hold{
				State:   rapid.SampledFrom([]State{StateActive, StateRevoked}).Draw(rt, name+" state"),
				Granted: contract.CapabilitySet(rapid.Uint64().Draw(rt, name)) & contract.AllCapabilities,
				Cause:   rapid.SampledFrom([]Cause{CauseHuman, CauseManifestChanged, CauseWorkspaceRemoved, CauseUninstalled}).Draw(rt, name+" cause"),
				UID:     rapid.SampledFrom([]string{"u1", "u2"}).Draw(rt, name+" uid"), Generation: rapid.Int64Range(1, 3).Draw(rt, name+" generation"),
				Spent: rapid.Bool().Draw(rt, name+" spent"),
			}
			if minutes := rapid.IntRange(0, 3).Draw(rt, name+" expiry"); minutes > 0 {
				h.ExpiresAt = epoch.Add(time.Duration(minutes) * time.Minute)
			}
			return h
		}
		a, b := draw("a"), draw("b")
		m := (&a).Merge(b)
		for _, h := range []Hold{a, b} {
			if !h.Granted.Covers(m.Granted) || h.State == StateRevoked && m.State != StateRevoked || later(m.ExpiresAt, h.ExpiresAt) {
				rt.Fatalf("%+v merged with %+v is %+v", a, b, m)
			}
			if h.Cause.movesAct() && !m.Cause.movesAct() {
				rt.Fatalf("a human's narrowing is lost in %+v", m)
			}
		}
		if a.Cause.movesAct() {
			if m.UID != a.UID || m.Generation != a.Generation || m.Cause != a.Cause || a.Spent && !m.Spent {
				rt.Fatalf("the first version is lost: %+v became %+v", a, m)
			}
			if b.Cause.movesAct() && (b.UID != a.UID || b.Generation != a.Generation) && !m.Spent {
				rt.Fatalf("two versions narrowed and the name is not spent: %+v", m)
			}
		}
		if again := (&m).Merge(b); !(&again).Equal(&m) {
			rt.Fatalf("merging %+v twice: %+v, then %+v", b, m, again)
		}
	})
}
