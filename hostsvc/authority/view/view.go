package view

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kandev/plugin-host/hostsvc/authority"
)

// Source is a watch, or another source, that has to be complete before
// anything can be decided.
type Source uint8

// The sources. SourceLedger is complete once the rows have been compared with
// the newest events: only then does "no row" mean "never approved".
const (
	SourceApprovals Source = 1 << iota
	SourceInstallations
	SourceNamespaces
	SourcePolicies
	SourceLedger

	allSources = SourceApprovals | SourceInstallations | SourceNamespaces | SourcePolicies | SourceLedger
)

var sourceNames = [...]struct {
	source Source
	name   string
}{
	{SourceApprovals, "approvals"},
	{SourceInstallations, "installations"},
	{SourceNamespaces, "namespaces"},
	{SourcePolicies, "policies"},
	{SourceLedger, "ledger"},
}

// Installation is a watched installation with what only callers are told.
type Installation struct {
	authority.Installation
	PluginID string
	// Generation is that of the object.
	Generation int64
	// Workload: the controllers run the plugin.
	Workload bool
	Legacy   authority.LegacyTerms
}

func (i Installation) equal(other Installation) bool {
	return i.Installation == other.Installation && i.PluginID == other.PluginID && i.Generation == other.Generation && i.Workload == other.Workload &&
		i.Legacy.Equal(other.Legacy)
}

// Namespace is a watched namespace.
type Namespace struct {
	UID string
	// WorkspaceID is the value of the workspace label, "" for none.
	WorkspaceID string
}

// Place is where an approval object stands.
type Place struct {
	Namespace string
	Name      string
}

// View is safe for concurrent use. Readers never wait for writers.
type View struct {
	// cells, principals, legacy and plugins are what readers use; they are replaced,
	// never changed.
	cells      atomic.Pointer[map[string]*installationCells]
	unknown    atomic.Pointer[authority.Observed]
	principals atomic.Pointer[map[serviceAccount]Principal]
	legacy     atomic.Pointer[map[string]*authority.Legacy] // by installation ID
	plugins    atomic.Pointer[map[string]bool]              // by plugin ID
	freshUntil atomic.Pointer[time.Time]
	complete   atomic.Uint32

	mu            sync.Mutex
	policy        authority.Policy
	installations map[string]Installation // by object name
	namesByID     map[string]string       // of every installation seen, uninstalled ones too
	namespaces    map[string]Namespace    // by name
	workspaces    map[string]authority.Workspace
	bound         map[string][]string // workspace IDs by the name of the namespace that they are bound to
	approvals     map[Place]approval
	revisions     map[authority.Key]uint64
	// reading is a live read that the watch has not caught up with, nil for none.
	reading *reading
}

// installationCells holds the cells of one installation, so that a change
// copies no more than that.
type installationCells struct {
	byWorkspace atomic.Pointer[map[string]*atomic.Pointer[authority.Observed]]
	// other answers for workspaces without a cell.
	other atomic.Pointer[authority.Observed]
}

// SetPolicy records the human policy in force.
func (v *View) SetPolicy(policy authority.Policy) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.policy.Equal(policy) {
		return
	}
	v.policy = policy
	for id := range *v.cells.Load() {
		v.renewInstallation(id)
	}
}

// Approval is a watched version of an approval object.
type Approval struct {
	UID        string
	Generation int64
	// Spec is nil when the object is gone or being deleted.
	Spec *authority.Approval
	// Revision is what the status says is in force of Installation, an ID.
	Installation string
	Revision     uint64
}

type approval struct {
	Approval
	confirmed bool
}

// New returns a view that has seen nothing.
func New(policy authority.Policy) *View {
	v := &View{
		policy:        policy,
		installations: map[string]Installation{},
		namesByID:     map[string]string{},
		namespaces:    map[string]Namespace{},
		workspaces:    map[string]authority.Workspace{},
		bound:         map[string][]string{},
		approvals:     map[Place]approval{},
		revisions:     map[authority.Key]uint64{},
	}
	v.cells.Store(&map[string]*installationCells{})
	v.principals.Store(&map[serviceAccount]Principal{})
	v.legacy.Store(&map[string]*authority.Legacy{})
	v.plugins.Store(&map[string]bool{})
	v.freshUntil.Store(&time.Time{})
	v.unknown.Store(&authority.Observed{})
	return v
}

// Observe returns what is seen about key. It neither blocks nor allocates; the
// result must not be changed. A key that nothing is known about has the zero
// vector, which no row has.
func (v *View) Observe(key authority.Key) *authority.Observed {
	cells, ok := (*v.cells.Load())[key.InstallationID]
	if !ok {
		return v.unknown.Load()
	}
	cell, ok := (*cells.byWorkspace.Load())[key.WorkspaceID]
	if !ok {
		return cells.other.Load()
	}
	return cell.Load()
}

// MarkComplete records that a source has delivered its initial state.
func (v *View) MarkComplete(source Source) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.complete.Store(v.complete.Load() | uint32(source))
	v.catchUp()
	v.unknown.Store(&authority.Observed{Synced: v.synced()})
	for id := range *v.cells.Load() {
		v.renewInstallation(id)
	}
}

// Missing names the sources that are not complete yet, in a fixed order.
func (v *View) Missing() []string {
	var names []string
	for _, s := range sourceNames {
		if Source(v.complete.Load())&s.source == 0 {
			names = append(names, s.name)
		}
	}
	return names
}

func (v *View) synced() bool { return Source(v.complete.Load()) == allSources }

// SetInstallation records the present state of an installation object.
// Without an installation ID it is known by its ServiceAccount only.
func (v *View) SetInstallation(installation Installation) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, known := v.installations[installation.Name]
	if known && before.equal(installation) {
		return
	}
	defer v.catchUp()
	if other, taken := v.namesByID[installation.ID]; taken && other != installation.Name && v.installations[other].ID == installation.ID {
		// The ID is minted once for each object; a second object has none.
		installation.ID = ""
	}
	v.installations[installation.Name] = installation
	if installation.ID != "" {
		v.namesByID[installation.ID] = installation.Name
		v.ensureCells(installation.ID)
	}
	v.renewName(installation.Name)
	if known && before.ID != "" && before.ID != installation.ID {
		v.renewInstallation(before.ID)
	}
	v.renewPrincipals()
}

// RemoveInstallation records that the installation object of this name and UID
// is gone or being deleted. Another object of the name stays.
func (v *View) RemoveInstallation(name, uid string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, ok := v.installations[name]
	if !ok || before.UID != uid {
		return
	}
	defer v.catchUp()
	delete(v.installations, name)
	if before.ID != "" {
		v.renewInstallation(before.ID)
	}
	v.renewPrincipals()
}

// InstallationName returns the object name of an installation ID, also of one
// that was uninstalled while this process watched.
func (v *View) InstallationName(id string) (string, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	name, ok := v.namesByID[id]
	return name, ok
}

// AccountOf returns the ServiceAccount that an installation ID's object names.
func (v *View) AccountOf(id string) (namespace, name string, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	installation := v.present(id)
	if installation == nil {
		return "", "", false
	}
	return installation.ServiceAccountNamespace, installation.ServiceAccountName, true
}

// Installed tells whether an installation of this ID is there.
func (v *View) Installed(id string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.present(id) != nil
}

// SetNamespace records the present state of a namespace.
func (v *View) SetNamespace(name string, namespace Namespace) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if before, ok := v.namespaces[name]; ok && before == namespace {
		return
	}
	v.namespaces[name] = namespace
	v.renewNamespace(name)
}

// RemoveNamespace records that a namespace is gone or being deleted.
func (v *View) RemoveNamespace(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.namespaces, name)
	v.renewNamespace(name)
}

// SetBinding records the durable binding of a workspace to a namespace.
func (v *View) SetBinding(workspace authority.Workspace) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, ok := v.workspaces[workspace.ID]
	if ok && before == workspace {
		return
	}
	if ok {
		v.bound[before.Namespace] = slices.DeleteFunc(v.bound[before.Namespace], func(id string) bool { return id == workspace.ID })
	}
	v.workspaces[workspace.ID] = workspace
	v.bound[workspace.Namespace] = append(v.bound[workspace.Namespace], workspace.ID)
	v.renewNamespace(workspace.Namespace)
}

// Binding returns a workspace's durable binding as far as this process knows.
func (v *View) Binding(workspaceID string) (authority.Workspace, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	workspace, ok := v.workspaces[workspaceID]
	return workspace, ok
}

// KeysAt returns the keys whose approval stands at place: those of the installation
// of that name in the workspaces that the namespace is bound to. A namespace whose
// label was changed is bound to several, and bears the label of one at most.
func (v *View) KeysAt(place Place) []authority.Key {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.keysAt(place)
}

func (v *View) keysAt(place Place) []authority.Key {
	installation := v.installations[place.Name]
	if installation.ID == "" {
		return nil
	}
	var keys []authority.Key
	for _, workspaceID := range v.bound[place.Namespace] {
		keys = append(keys, authority.Key{InstallationID: installation.ID, WorkspaceID: workspaceID})
	}
	return keys
}

// StandsAt returns the one of KeysAt whose workspace's bound namespace lives and
// bears its label.
func (v *View) StandsAt(place Place) (authority.Key, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, key := range v.keysAt(place) {
		if v.live(key.WorkspaceID) != nil {
			return key, true
		}
	}
	return authority.Key{}, false
}

// SetApproval records the newest watched version of an approval object.
func (v *View) SetApproval(place Place, seen Approval) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before := v.approvals[place]
	v.approvals[place] = approval{Approval: seen, confirmed: before.confirmed && before.UID == seen.UID}
	v.renewPlace(place)
}

// Confirm records that a live read agreed with the watch about the object that
// stands, or stood last, at place.
func (v *View) Confirm(place Place, uid string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	seen, ok := v.approvals[place]
	if !ok || seen.UID != uid || seen.confirmed {
		return
	}
	seen.confirmed = true
	v.approvals[place] = seen
	v.renewPlace(place)
}

// SetRevision records that a revision of key was seen in an event. It never
// goes back.
func (v *View) SetRevision(key authority.Key, revision uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if revision <= v.revisions[key] {
		return
	}
	v.revisions[key] = revision
	v.ensureCells(key.InstallationID)
	v.renew(key)
}

// The renew functions rebuild what readers see. They are called with mu held.

func (v *View) ensureCells(id string) *installationCells {
	if cells, ok := (*v.cells.Load())[id]; ok {
		return cells
	}
	cells := &installationCells{}
	cells.byWorkspace.Store(&map[string]*atomic.Pointer[authority.Observed]{})
	cells.other.Store(&authority.Observed{Synced: v.synced()})
	all := maps.Clone(*v.cells.Load())
	all[id] = cells
	v.cells.Store(&all)
	return cells
}

// renewName rebuilds everything about the installation of that name, and gives
// a cell to each approval that already waits under it.
func (v *View) renewName(name string) {
	installation := v.installations[name]
	if installation.ID == "" {
		return
	}
	for workspaceID, workspace := range v.workspaces {
		if _, ok := v.approvals[Place{Namespace: workspace.Namespace, Name: name}]; ok {
			v.renew(authority.Key{InstallationID: installation.ID, WorkspaceID: workspaceID})
		}
	}
	v.renewInstallation(installation.ID)
}

func (v *View) renewInstallation(id string) {
	cells, ok := (*v.cells.Load())[id]
	if !ok {
		return
	}
	other := &authority.Observed{Synced: v.synced()}
	if installation := v.present(id); installation != nil {
		other.HostVersionUnsupported = installation.HostVersionUnsupported
	}
	cells.other.Store(other)
	for workspaceID, cell := range *cells.byWorkspace.Load() {
		cell.Store(v.observed(authority.Key{InstallationID: id, WorkspaceID: workspaceID}))
	}
}

func (v *View) renewNamespace(name string) {
	v.renewPrincipals()
	if len(v.bound[name]) == 0 {
		return
	}
	for installationName := range v.installations {
		place := Place{Namespace: name, Name: installationName}
		if _, ok := v.approvals[place]; ok {
			v.renewPlace(place)
		}
	}
	for id, cells := range *v.cells.Load() {
		for _, workspaceID := range v.bound[name] {
			if _, ok := (*cells.byWorkspace.Load())[workspaceID]; ok {
				v.renew(authority.Key{InstallationID: id, WorkspaceID: workspaceID})
			}
		}
	}
}

func (v *View) renewPlace(place Place) {
	for _, key := range v.keysAt(place) {
		v.renew(key)
	}
}

// renew rebuilds one cell and makes it if need be.
func (v *View) renew(key authority.Key) {
	cells := v.ensureCells(key.InstallationID)
	cell, ok := (*cells.byWorkspace.Load())[key.WorkspaceID]
	if !ok {
		cell = &atomic.Pointer[authority.Observed]{}
	}
	cell.Store(v.observed(key))
	if !ok {
		all := maps.Clone(*cells.byWorkspace.Load())
		all[key.WorkspaceID] = cell
		cells.byWorkspace.Store(&all)
	}
}

// present returns the installation of an ID while it is installed.
func (v *View) present(id string) *authority.Installation {
	installation, ok := v.installations[v.namesByID[id]]
	if !ok || installation.ID != id {
		return nil
	}
	return &installation.Installation
}

// live returns a workspace while its bound namespace lives and bears its label.
func (v *View) live(id string) *authority.Workspace {
	workspace, ok := v.workspaces[id]
	if !ok {
		return nil
	}
	namespace, ok := v.namespaces[workspace.Namespace]
	if !ok || namespace.UID != workspace.NamespaceUID || namespace.WorkspaceID != id {
		return nil
	}
	return &workspace
}

func (v *View) observed(key authority.Key) *authority.Observed {
	o := &authority.Observed{Synced: v.synced(), Revision: v.revisions[key]}
	installation := v.present(key.InstallationID)
	if installation != nil {
		o.HostVersionUnsupported = installation.HostVersionUnsupported
	}
	o.Vector = authority.VectorOf(installation, v.live(key.WorkspaceID), v.policy).Sum()
	bound, ok := v.workspaces[key.WorkspaceID]
	if !ok {
		return o
	}
	seen, ok := v.approvals[Place{Namespace: bound.Namespace, Name: v.namesByID[key.InstallationID]}]
	if !ok {
		o.Approval.Gone = Source(v.complete.Load())&SourceApprovals != 0
		return o
	}
	if seen.Spec != nil && seen.Installation == key.InstallationID {
		// Only of the object that stands for the key: whoever may write a status
		// somewhere else says nothing about it.
		o.Revision = max(o.Revision, seen.Revision)
	}
	o.Approval = authority.ObservedApproval{UID: seen.UID, Generation: seen.Generation, Confirmed: seen.confirmed}
	spec := seen.Spec
	if spec == nil || spec.InstallationID != key.InstallationID || spec.WorkspaceID != key.WorkspaceID {
		o.Approval.Gone = true
		return o
	}
	o.Approval.Revoked, o.Approval.Capabilities, o.Approval.ExpiresAt = spec.Revoked, spec.Capabilities, spec.ExpiresAt
	return o
}
