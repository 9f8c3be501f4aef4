package lifecycle

import (
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// Package is what an installation object names of a plugin's package.
type Package struct {
	Version        string
	Declared       contract.CapabilitySet
	Required       contract.CapabilitySet
	MinHostVersion string
}

// World is a cluster with one plugin, one workspace and our controllers. Its
// methods return when the cluster has accepted the change, not when anything
// has followed from it. A world fails its own test.
type World interface {
	Install(p Package)
	// Edit replaces the package, as an upgrade or a rollback does.
	Edit(p Package)
	Suspend(suspended bool)
	Uninstall()

	// RecreateServiceAccount replaces the plugin's ServiceAccount by another one
	// of its name, MoveServiceAccount names another one, and
	// AcceptServiceAccount acknowledges the one that is there.
	RecreateServiceAccount()
	MoveServiceAccount()
	AcceptServiceAccount()

	// Tighten puts a human policy of these rules in force, and Loosen deletes
	// every one.
	Tighten(rules ...authority.Rule)
	Loosen()

	// Apply writes a manifest as it is, whatever is there, as a GitOps tool
	// does: UID and Generation are the cluster's. Delete removes the approval.
	Apply(manifest authority.Approval)
	Delete()

	// Label makes the workspace's namespace the workspace, or no longer one.
	// MoveLabel gives its label to another namespace, and ReturnLabel takes it
	// back from there. DeleteNamespace begins the namespace's deletion, and Rebind
	// passes the workspace on to another one that names the former.
	Label(on bool)
	MoveLabel()
	ReturnLabel()
	DeleteNamespace()
	Rebind()

	// Advance moves the clocks.
	Advance(d time.Duration)
	// Stop ends every process of ours, and Start begins new ones.
	Stop()
	Start()
	// LoseStore replaces the store by an empty one, while the processes are
	// down; RestoreCluster replaces every object by one of another uid without a
	// status, as a backup tool does.
	LoseStore()
	RestoreCluster()

	// Now is the clock that expiries are measured by.
	Now() time.Time
	// Observe waits until everything has been processed and returns what is in
	// force, of the installation of an ID, or of the present one for "".
	Observe(installationID string, until func(Observation) string) Observation
}

// Observation is what people and plugins see of one key.
type Observation struct {
	InstallationID string
	WorkspaceID    string
	Digest         string // in force, of the installation
	Act            string
	Revision       uint64
	State          string // "" while there is no approval object and no row
	Effective      contract.CapabilitySet
	Gates          []string
	// Review is the reason of ReviewRequired, "" when it is not True.
	Review string
	// Story has a line for each event: its type and its cause.
	Story []string
	// ExpiresAt is what is in force.
	ExpiresAt time.Time
}

// Play is a story in a world, with what a human at the keyboard remembers.
type Play struct {
	World
	// Seen is what the last step left behind, Last the manifest that was applied
	// last, and First the installation ID of the beginning.
	Seen  Observation
	Last  authority.Approval
	First string
}

// Draft is what `kubectl capability review` would print now: a grant that names
// the act, the digest and the installation in force.
func (p *Play) Draft(grants ...contract.Capability) authority.Approval {
	return authority.Approval{
		InstallationID: p.Seen.InstallationID, WorkspaceID: p.Seen.WorkspaceID, ManifestDigest: p.Seen.Digest,
		SupersedesAct: p.Seen.Act, Capabilities: contract.SetOf(grants...), ApprovedBy: "ada@example.com",
	}
}

// Put applies a manifest and remembers it.
func (p *Play) Put(manifest authority.Approval) {
	p.Last = manifest
	p.Apply(manifest)
}

// Grant applies a fresh draft.
func (p *Play) Grant(grants ...contract.Capability) { p.Put(p.Draft(grants...)) }

// Change edits the manifest that was applied last, as a commit does.
func (p *Play) Change(edit func(*authority.Approval)) {
	manifest := p.Last
	edit(&manifest)
	p.Put(manifest)
}

// Again applies the manifest that was applied last once more.
func (p *Play) Again() { p.Apply(p.Last) }
