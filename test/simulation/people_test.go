package simulation

import (
	"fmt"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// draft is the manifest that a human would write now: with the name of the act in
// force, as a status shows it, on the digest in force.
func (w *world) draft(caps contract.CapabilitySet) authority.Approval {
	a := authority.Approval{
		InstallationID: "plugin-0", WorkspaceID: workspaceID, ManifestDigest: packages[0].ManifestDigest,
		Capabilities: caps, ApprovedBy: "alice",
	}
	if i := w.api.installation; i != nil {
		a.InstallationID, a.ManifestDigest = i.ID, i.ManifestDigest
	}
	key := keyOf(a.InstallationID)
	if e, ok := w.api.event(key, w.db.row(key).Revision); ok {
		a.SupersedesAct = e.Row.Act
	}
	return a
}

func (w *world) someCapabilities() contract.CapabilitySet {
	caps := readTasks
	for _, c := range []contract.CapabilitySet{writeTasks, readInbox, sessions} {
		if w.rng.IntN(2) == 0 {
			caps |= c
		}
	}
	return caps
}

func (w *world) edit(change func(a *authority.Approval)) {
	if w.api.approval == nil {
		return
	}
	a := *w.api.approval
	change(&a)
	w.api.put(a)
}

// somebody does something: a human, or an agent that keeps the cluster as Git has
// it.
func (w *world) somebody() {
	api := w.api
	does := w.rng.IntN(34)
	if w.profile.harsh {
		does = [...]int{6, 11, 15}[does%3]
	}
	if w.profile.stuck {
		does = 25
	}
	if w.profile.copies {
		does = [...]int{6, 13, 17, 18}[does%4]
	}
	switch does {
	case 0, 1, 2, 3:
		w.api.put(w.draft(readTasks | writeTasks))
	case 4, 5:
		w.api.put(w.draft(w.someCapabilities()))
	case 6, 7, 8:
		w.edit(func(a *authority.Approval) { a.Revoked = true })
	case 9:
		w.edit(func(a *authority.Approval) { a.Revoked = false })
	case 10, 11:
		w.edit(func(a *authority.Approval) { a.Capabilities &= w.someCapabilities() })
	case 12:
		w.edit(func(a *authority.Approval) { a.Capabilities |= w.someCapabilities() })
	case 13:
		w.edit(func(a *authority.Approval) { a.Reason = fmt.Sprint("reason ", w.rng.IntN(5)) })
	case 14:
		at := epoch.Add(w.now + time.Duration(1+w.rng.IntN(20))*time.Second).Truncate(time.Microsecond)
		w.edit(func(a *authority.Approval) { a.ExpiresAt = at })
	case 15, 16:
		api.remove()
	case 17, 18, 19, 20:
		// A revert, a restore, a copied folder: a manifest from before.
		if old := w.truth.versions; len(old) > 0 {
			w.heal(*old[w.rng.IntN(len(old))].spec)
		}
	case 21:
		// An approval and its upgrade are merged in any order.
		a := w.draft(w.someCapabilities())
		a.ManifestDigest = packages[w.rng.IntN(len(packages))].ManifestDigest
		api.put(a)
	case 22, 23, 24:
		if api.installation != nil {
			api.install(packages[w.rng.IntN(len(packages))])
		}
	case 25:
		if i := api.installation; i != nil {
			next := *i
			next.Suspended = !next.Suspended
			api.setInstallation(&next)
		}
	case 26:
		if api.installation != nil {
			api.setInstallation(nil)
		} else {
			api.install(packages[w.rng.IntN(len(packages))])
		}
	case 27:
		if n := api.namespace; n.uid != "" {
			n.labelled = !n.labelled
			api.setNamespace(n)
		}
	case 28:
		if w.rng.IntN(4) == 0 {
			api.setNamespace(namespaceState{})
			api.setNamespace(namespaceState{uid: api.uid("ns"), labelled: true})
		}
	case 29:
		p := authority.Policy{Version: fmt.Sprint("p", w.rng.IntN(4)), Allowed: contract.AllCapabilities}
		switch p.Version {
		case "p1":
			p.Allowed &^= writeTasks
		case "p2":
			p.FourEyes = writeTasks
		}
		api.setPolicy(p)
	case 30:
		w.edit(func(a *authority.Approval) { a.ConfirmedBy = "bob" })
	case 31:
		w.guess()
	case 32:
		api.proven = !api.proven
		w.log("api", "the admission policies are in force: %t", api.proven)
		if api.proven {
			w.prove()
		}
	case 33:
		switch pod := api.pod; {
		case pod.uid == "":
			api.setPod(podState{uid: api.uid("pod")})
		case !pod.deleting:
			api.setPod(podState{uid: pod.uid, deleting: true})
		default:
			api.setPod(podState{})
		}
	}
}

// heal applies a manifest as Git has it.
func (w *world) heal(a authority.Approval) {
	w.api.put(a)
}

// guess is somebody who may edit and not approve, and whose refused or harmless
// edit lies in wait under a name that might come.
func (w *world) guess() {
	a := w.draft(readTasks | writeTasks | readInbox)
	revision := w.api.newest[keyOf(a.InstallationID)] + 1 + uint64(w.rng.IntN(2))
	suffix, err := authority.NewActSuffix(zeros{})
	if err != nil {
		panic(err)
	}
	a.SupersedesAct, a.ApprovedBy = authority.ActName(revision, suffix), "mallory"
	w.api.put(a)
}

// prove is the proof that the policies are in force again: what nobody has
// processed by then came while nobody checked it.
func (w *world) prove() {
	a := w.api.approval
	if a == nil {
		return
	}
	if seen := w.db.rows[keyOf(a.InstallationID)].Seen; seen.UID != a.UID || seen.Generation < a.Generation {
		w.db.distrust(a.UID, a.Generation)
	}
}
