package simulation

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/test/lifecycle"
)

// lifecycleSeeds is how many orders each story is played in.
const lifecycleSeeds = 40

// TestLifecycle plays the table of lifecycles, which also the real API server
// plays: each story in many orders of watches, passes, rounds and commits.
func TestLifecycle(t *testing.T) {
	for _, row := range lifecycle.Table() {
		t.Run(row.Name, func(t *testing.T) {
			ts := &threads{}
			defer ts.stop()
			for seed := uint64(1); seed <= lifecycleSeeds && !t.Failed(); seed++ {
				story := newStory(seed, ts)
				err := story.guard(func() {
					lifecycle.Run(story, row, func(step lifecycle.Step, what string) {
						t.Errorf("seed %d, after %q: %s\n%s", seed, step.Does, what, story.w.story(true))
					})
				})
				if err != nil {
					t.Errorf("seed %d: %v\n%s", seed, err, story.w.story(true))
				}
			}
		})
	}
}

// story is a world without faults, as the lifecycle table wants it.
type story struct {
	w *world
	// tightened numbers the policies, base is the one without any.
	tightened int
	base      authority.Policy
	account   int
}

func newStory(seed uint64, ts *threads) *story {
	w := worldFor(seed, "", ts)
	w.tracing, w.calm = true, true
	w.profile = profile{pace: time.Millisecond, leap: time.Millisecond}
	w.api.namespace = namespaceState{uid: "ns-1", labelled: true}
	w.api.tell(namespaces, change{namespace: w.api.namespace})
	w.api.tell(policies, change{policy: w.api.policy})
	w.api.tell(installations, change{})
	w.api.tell(approvals, change{})
	w.api.tell(pods, change{})
	w.db.bound = authority.Workspace{ID: workspaceID, Namespace: namespace, NamespaceUID: "ns-1"}
	s := &story{w: w, base: w.api.policy, account: 1}
	for i := range 2 {
		w.procs = append(w.procs, newProcess(w, i))
	}
	s.Start()
	return s
}

// guard ends the world, and returns the rule that it broke.
func (s *story) guard(play func()) (failed *failure) {
	defer func() {
		if value := recover(); value != nil {
			f, ok := value.(*failure)
			if !ok {
				panic(value)
			}
			failed = f
		}
		for _, a := range s.w.actors {
			a.end()
		}
	}()
	play()
	return nil
}

// rest lets everything follow from what was done.
func (s *story) rest() {
	w := s.w
	w.rest()
	for _, p := range w.procs {
		p.rounds++
	}
	w.rest()
	if l := w.leader(); l != nil {
		l.sweep()
	}
	w.rest()
}

func (s *story) packageOf(p lifecycle.Package) authority.Installation {
	sum := sha256.Sum256(fmt.Appendf(nil, "%+v", p))
	return authority.Installation{
		Version: p.Version, ManifestDigest: contract.ManifestDigestPrefix + hex.EncodeToString(sum[:]),
		Declared: p.Declared, Required: p.Required, HostVersionUnsupported: p.MinHostVersion != "",
	}
}

// Install implements lifecycle.World, as do the methods below.
func (s *story) Install(p lifecycle.Package) { s.w.api.install(s.packageOf(p)) }

// Edit replaces the package.
func (s *story) Edit(p lifecycle.Package) { s.w.api.install(s.packageOf(p)) }

func (s *story) change(edit func(*authority.Installation)) {
	next := *s.w.api.installation
	edit(&next)
	s.w.api.setInstallation(&next)
}

// Suspend suspends or resumes the installation.
func (s *story) Suspend(suspended bool) {
	s.change(func(i *authority.Installation) { i.Suspended = suspended })
}

// Uninstall removes it.
func (s *story) Uninstall() { s.w.api.setInstallation(nil) }

// RecreateServiceAccount leaves the installation pinned to an account that is gone.
func (s *story) RecreateServiceAccount() {
	s.account++
	s.change(func(i *authority.Installation) { i.PrincipalChanged = true })
}

// MoveServiceAccount names another account.
func (s *story) MoveServiceAccount() {
	s.account++
	s.change(func(i *authority.Installation) {
		i.ServiceAccountName, i.PrincipalChanged = fmt.Sprint("moved-", s.account), true
	})
}

// AcceptServiceAccount pins the account that is there.
func (s *story) AcceptServiceAccount() {
	s.change(func(i *authority.Installation) {
		i.ServiceAccountUID, i.PrincipalChanged = fmt.Sprint("sa-", s.account), false
	})
}

// Tighten puts a policy in force.
func (s *story) Tighten(rules ...authority.Rule) {
	s.tightened++
	s.w.api.setPolicy(s.base.Tighten(fmt.Sprint("policy@", s.tightened), rules, false))
}

// Loosen deletes it.
func (s *story) Loosen() { s.w.api.setPolicy(s.base) }

// Apply writes a manifest.
func (s *story) Apply(manifest authority.Approval) { s.w.api.put(manifest) }

// Delete removes the approval.
func (s *story) Delete() { s.w.api.remove() }

// Label makes the namespace the workspace, or no longer.
func (s *story) Label(on bool) {
	s.w.api.setNamespace(namespaceState{uid: s.w.api.namespace.uid, labelled: on})
}

// MoveLabel gives the label to a namespace that nothing here knows of.
func (s *story) MoveLabel() { s.Label(false) }

// ReturnLabel takes it back.
func (s *story) ReturnLabel() { s.Label(true) }

// DeleteNamespace makes the namespace absent; its approval can't be read any more.
func (s *story) DeleteNamespace() {
	api := s.w.api
	if api.approval != nil {
		s.w.truth.deleted(api.approval)
	}
	api.namespace = namespaceState{}
	api.tell(namespaces, change{})
	s.w.truth.workspace()
}

// Rebind passes the workspace on to another namespace, in which no approval is.
func (s *story) Rebind() {
	w, api := s.w, s.w.api
	gone := api.approval
	api.approval, api.status = nil, status{}
	api.tell(approvals, change{gone: gone})
	w.db.bound.NamespaceUID = api.uid("ns")
	for _, p := range w.procs {
		p.view.SetBinding(w.db.bound)
	}
	api.setNamespace(namespaceState{uid: w.db.bound.NamespaceUID, labelled: true})
}

// Advance moves every clock.
func (s *story) Advance(d time.Duration) { s.w.pass(d) }

// Stop ends every process.
func (s *story) Stop() {
	w := s.w
	s.rest()
	for _, p := range w.procs {
		w.kill(p, nil)
		w.db.abort(p)
		p.alive = false
	}
}

// Start begins new ones.
func (s *story) Start() {
	for _, p := range s.w.procs {
		p.start()
	}
	s.w.procs[s.w.rng.IntN(len(s.w.procs))].elect()
}

// LoseStore replaces the store by an empty one.
func (s *story) LoseStore() {
	s.w.replaceStore(newDatabase(s.w, "store-2"))
}

// RestoreCluster replaces every object by one of another uid without a status.
func (s *story) RestoreCluster() {
	api := s.w.api
	approval, installed := *api.approval, *api.installation
	api.remove()
	api.setInstallation(nil)
	api.install(installed)
	api.put(approval)
}

// Now is every clock.
func (s *story) Now() time.Time { return epoch.Add(s.w.now) }

// observeTries is how often the world may come to rest before it must be as the
// table says.
const observeTries = 3

// Observe waits until everything has followed.
func (s *story) Observe(installationID string, until func(lifecycle.Observation) string) lifecycle.Observation {
	var seen lifecycle.Observation
	for range observeTries {
		s.rest()
		if seen = s.observe(installationID); until(seen) == "" {
			break
		}
	}
	return seen
}

func (s *story) observe(installationID string) lifecycle.Observation {
	w, api := s.w, s.w.api
	seen := lifecycle.Observation{InstallationID: installationID, WorkspaceID: workspaceID}
	if i := api.installation; i != nil {
		seen.Digest = i.ManifestDigest
		if installationID == "" {
			seen.InstallationID = i.ID
		}
	}
	key := keyOf(seen.InstallationID)
	row := w.db.row(key)
	seen.Revision, seen.Act, seen.ExpiresAt, seen.Effective = row.Revision, row.Act, row.ExpiresAt, row.Effective(s.Now())
	if row.Gates != 0 {
		seen.Gates = row.Gates.Names()
	}
	for revision := uint64(1); revision <= api.newest[key]; revision++ {
		e, _ := api.event(key, revision)
		seen.Story = append(seen.Story, fmt.Sprintf("%s %s", e.Type, e.Row.Cause))
	}
	switch {
	case row.Revision > 0:
		seen.State = row.State.String()
	case api.approval != nil:
		seen.State = "Pending"
	}
	in := w.truth.intent(key)
	if out := authority.Compute(row, in, s.Now(), "x"); out.Review != nil && in.Approval != nil {
		seen.Review = string(out.Review.Reason)
	}
	return seen
}
