package simulation

import (
	"fmt"
	"strings"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// watched is a kind of object that has its own watch; the order between two
// watches is nobody's.
type watched int

const (
	approvals watched = iota
	installations
	namespaces
	policies
	pods

	kinds
)

func (k watched) String() string {
	return [...]string{"approvals", "installations", "namespaces", "policies", "pods"}[k]
}

// change is one version of an object as a watch delivers it.
type change struct {
	approval     *authority.Approval
	gone         *authority.Approval // of a deletion, what was deleted
	status       status
	installation *authority.Installation
	removed      string // of an uninstalled installation, its uid
	namespace    namespaceState
	policy       authority.Policy
	pod          podState
}

type status struct {
	installationID string
	revision       uint64
	act            string
	waiting        bool
}

type namespaceState struct {
	uid      string
	labelled bool
}

type podState struct {
	uid      string
	deleting bool
}

type beat struct {
	storeID string
	beat    uint64
}

// cluster is the API server: the present objects, and per kind what their
// watches have to tell.
type cluster struct {
	w    *world
	logs [kinds][]change

	approval     *authority.Approval
	version      int
	status       status
	installation *authority.Installation
	namespace    namespaceState
	policy       authority.Policy
	pod          podState
	events       map[string]authority.Event
	newest       map[authority.Key]uint64
	keys         []authority.Key
	beat         beat
	// proven: the admission policies are in force.
	proven       bool
	refuseEvents bool

	uids          int
	installedOnce int
}

func newCluster(w *world) *cluster {
	return &cluster{
		w: w, events: map[string]authority.Event{}, newest: map[authority.Key]uint64{}, proven: true,
		policy: authority.Policy{Version: "p0", Allowed: contract.AllCapabilities},
	}
}

func (c *cluster) begin() {
	c.namespace = namespaceState{uid: "ns-1", labelled: true}
	c.tell(namespaces, change{namespace: c.namespace})
	c.tell(policies, change{policy: c.policy})
	c.install(packages[0])
	c.pod = podState{uid: "pod-1"}
	c.tell(pods, change{pod: c.pod})
	c.tell(approvals, change{})
	c.w.db.bound = authority.Workspace{ID: workspaceID, Namespace: namespace, NamespaceUID: "ns-1"}
}

func (c *cluster) tell(kind watched, ch change) { c.logs[kind] = append(c.logs[kind], ch) }

func (c *cluster) uid(prefix string) string {
	c.uids++
	return fmt.Sprintf("%s-%d", prefix, c.uids)
}

// put applies an approval manifest.
func (c *cluster) put(spec authority.Approval) {
	spec.Checked = c.proven
	if c.approval == nil {
		if c.namespace.uid == "" {
			return
		}
		spec.UID, spec.Generation = c.uid("approval"), 1
		c.status = status{}
	} else {
		if sameSpec(*c.approval, spec) {
			return
		}
		spec.UID, spec.Generation = c.approval.UID, c.approval.Generation+1
	}
	c.version++
	c.w.log("api", "approval %s generation %d: {%s} revoked %t, supersedes %q, digest %s, expires %s, checked %t",
		spec.UID, spec.Generation, spec.Capabilities, spec.Revoked, spec.SupersedesAct, spec.ManifestDigest[:5], until(spec.ExpiresAt), spec.Checked)
	before := c.approval
	c.approval = &spec
	c.w.truth.applied(before, &spec)
	c.tell(approvals, change{approval: &spec, status: c.status})
}

func until(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Sub(epoch).String()
}

func (c *cluster) remove() {
	if c.approval == nil {
		return
	}
	c.version++
	c.w.log("api", "approval %s is deleted", c.approval.UID)
	gone := c.approval
	c.approval = nil
	c.w.truth.deleted(gone)
	c.tell(approvals, change{gone: gone})
	c.status = status{}
}

// packages are what the plugin's installation may be.
var packages = []authority.Installation{
	{Version: "1", ManifestDigest: digest('0'), Declared: readTasks | writeTasks | readInbox},
	{Version: "2", ManifestDigest: digest('1'), Declared: readTasks | readInbox},
	{Version: "3", ManifestDigest: digest('2'), Declared: readTasks | writeTasks | readInbox | sessions},
}

func digest(c byte) string { return contract.ManifestDigestPrefix + strings.Repeat(string(c), 64) }

func (c *cluster) install(p authority.Installation) {
	if c.installation == nil {
		c.installedOnce++
		p.UID, p.ID = c.uid("installation"), fmt.Sprintf("plugin-%d", c.installedOnce)
	} else {
		p.UID, p.ID, p.Suspended = c.installation.UID, c.installation.ID, c.installation.Suspended
	}
	p.Name = pluginName
	p.ServiceAccountNamespace, p.ServiceAccountName = "plugins", "standup"
	p.ServiceAccountUID, p.ServiceAccountNamespaceUID = "sa-1", "ns-plugins"
	c.setInstallation(&p)
}

func (c *cluster) setInstallation(p *authority.Installation) {
	if p == nil {
		if c.installation == nil {
			return
		}
		c.w.log("api", "installation %s is removed", c.installation.ID)
		c.tell(installations, change{removed: c.installation.UID})
	} else {
		c.w.log("api", "installation %s: version %s declares {%s}, suspended %t", p.ID, p.Version, p.Declared, p.Suspended)
		c.tell(installations, change{installation: p})
	}
	c.installation = p
	c.w.truth.installation()
}

func (c *cluster) setNamespace(n namespaceState) {
	c.w.log("api", "namespace %+v", n)
	if n.uid != c.namespace.uid {
		c.remove()
	}
	c.namespace = n
	c.tell(namespaces, change{namespace: n})
	c.w.truth.workspace()
}

func (c *cluster) setPolicy(p authority.Policy) {
	c.w.log("api", "policy %s: allows {%s}, four eyes for {%s}", p.Version, p.Allowed, p.FourEyes)
	c.policy = p
	c.tell(policies, change{policy: p})
	c.w.truth.policy()
}

func (c *cluster) setPod(p podState) {
	c.w.log("api", "pod %+v", p)
	if p.uid != "" {
		c.w.truth.pod = p.uid
	}
	c.pod = p
	c.tell(pods, change{pod: p})
}

// create stores an event unless its name is taken.
func (c *cluster) create(e authority.Event) bool {
	name := e.Name()
	if _, exists := c.events[name]; exists {
		return false
	}
	c.events[name] = e
	if _, known := c.newest[e.Row.Key]; !known {
		c.keys = append(c.keys, e.Row.Key)
	}
	c.newest[e.Row.Key] = max(c.newest[e.Row.Key], e.Row.Revision)
	return true
}

func (c *cluster) event(key authority.Key, revision uint64) (authority.Event, bool) {
	e, ok := c.events[authority.EventName(key, revision)]
	return e, ok
}

// sameSpec compares what a manifest says: applying it again changes nothing.
func sameSpec(a, b authority.Approval) bool { return manifestOf(a) == manifestOf(b) }

// manifest is the content of an approval manifest that authority depends on, and
// its reason.
type manifest struct {
	installationID, workspaceID, digest, supersedes string
	capabilities                                    contract.CapabilitySet
	revoked                                         bool
	expires                                         time.Time
	by, via, confirmed, reason                      string
}

func manifestOf(a authority.Approval) manifest {
	return manifest{
		a.InstallationID, a.WorkspaceID, a.ManifestDigest, a.SupersedesAct, a.Capabilities, a.Revoked, a.ExpiresAt,
		a.ApprovedBy, a.ApprovedVia, a.ConfirmedBy, a.Reason,
	}
}

// grantOf is the manifest without what is no part of the act.
func grantOf(a authority.Approval) manifest {
	m := manifestOf(a)
	m.reason = ""
	return m
}
