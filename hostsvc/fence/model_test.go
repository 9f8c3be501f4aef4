package fence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

const (
	readTasks  = contract.CapabilitySet(1 << contract.ReadTasks)
	writeTasks = contract.CapabilitySet(1 << contract.WriteTasks)
	sessions   = contract.CapabilitySet(1 << contract.ReadSessions)
	inbox      = contract.CapabilitySet(1 << contract.ReadTaskInbox)
)

var (
	epoch   = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	testKey = authority.Key{InstallationID: "inst-1", WorkspaceID: "ws-1"}

	errCrashed = errors.New("the process was killed")
	errRefused = errors.New("a third party's webhook refused the event")
)

func digestOf(i int) string { return contract.ManifestDigestPrefix + strings.Repeat(fmt.Sprint(i), 64) }

var manifests = map[string]contract.CapabilitySet{
	digestOf(0): readTasks | writeTasks | sessions | inbox,
	digestOf(1): readTasks | sessions,
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// model is a cluster and a store in memory, with any number of controllers. It
// runs in one goroutine: before and after each port call a controller gives
// way to hook, which may edit, run other controllers, or kill this one. Every
// write is checked against the invariants when it happens.
type model struct {
	t    fataler
	hook func(c *controller, point string) error

	// The cluster.
	approval     *authority.Approval
	version      int
	installation authority.Installation
	workspace    *authority.Workspace
	status       map[string]uint64
	events       map[uint64]authority.Event
	madeFrom     map[uint64]authority.Approval
	refuseEvents bool
	now          time.Time

	// The store.
	row         authority.Row
	leaderEpoch uint64

	controllers []*controller
	objects     int
	applied     []authority.Approval
	// waiting is what the status said last of it.
	waiting *authority.Waiting
	tick    int
	// firstApplied and heldAt are ticks: of a manifest's first appearance, and
	// of the last hold that is a human's.
	firstApplied map[string]int
	heldAt       int
	processed    map[string]int64
	// tookAt are the ticks at which a human took a capability out of the spec, and
	// madeAt those at which the objects of a revision were read.
	tookAt map[contract.Capability][]int
	madeAt map[uint64]int
	names  names
	// asked, when set, is what the store answers for what it was told to have seen.
	asked func(authority.Seen) authority.Seen
}

func newModel(t fataler) *model {
	return &model{
		t: t, hook: func(*controller, string) error { return nil }, now: epoch, row: authority.Row{Key: testKey},
		installation: authority.Installation{
			UID: "i", ID: testKey.InstallationID, Name: "plugin", Version: "1", ManifestDigest: digestOf(0),
			Declared: manifests[digestOf(0)], ServiceAccountUID: "sa",
		},
		workspace: &authority.Workspace{ID: testKey.WorkspaceID, Namespace: "team", NamespaceUID: "ns"},
		status:    map[string]uint64{}, events: map[uint64]authority.Event{}, madeFrom: map[uint64]authority.Approval{},
		firstApplied: map[string]int{}, processed: map[string]int64{}, tookAt: map[contract.Capability][]int{}, madeAt: map[uint64]int{},
	}
}

// controller is one process: its watch, and a term if it ever led.
type controller struct {
	m    *model
	name string
	term Term
	dead bool
	// queue holds the versions that the watch has not handled yet; nil is a
	// deletion. handled is the last one, and from the first that the later ones were
	// compared with.
	queue   []*authority.Approval
	handled *authority.Approval
	from    int64
	// slow: the watch does not catch up in time.
	slow bool
	// A process runs one pass of a key and one watch handler at a time.
	running, handling bool
	read              Reading
	readAt            int
}

// start is a process that begins to watch.
func (m *model) start(name string) *controller {
	c := &controller{m: m, name: name}
	m.controllers = append(m.controllers, c)
	if m.approval != nil {
		c.queue = append(c.queue, m.approval)
	}
	return c
}

// lead makes c the leader, with what a leader does first: it takes a row that
// is behind its newest event straight to it, under a mark.
func (m *model) lead(c *controller) {
	m.leaderEpoch++
	c.term = Term{StoreEpoch: 1, LeaderEpoch: m.leaderEpoch}
	newest := m.row.Revision
	for revision := range m.events {
		newest = max(newest, revision)
	}
	if newest == m.row.Revision {
		return
	}
	event := m.events[newest]
	row := event.Rebuilt()
	row.Starting, row.Hold = true, event.Remaining(m.row.Hold)
	row.Seen = m.row.Seen.Later(row.Seen)
	m.store(row)
}

func (m *model) kill(c *controller) {
	c.dead = true
	m.controllers = slices.DeleteFunc(m.controllers, func(other *controller) bool { return other == c })
}

func (c *controller) run() error {
	c.running = true
	defer func() { c.running = false }()
	_, err := (&Pass{
		Intent: c, History: c, Events: c, Ledger: c, Status: c, Now: func() time.Time { return c.m.now }, Random: &c.m.names,
	}).Run(context.Background(), c.term, testKey)
	if errors.Is(err, ErrHistoryLost) && c.m.approval != nil && c.m.status[c.m.approval.UID] <= c.m.row.Revision {
		c.m.t.Fatalf("nothing is lost: the status is at %d and the row at %d", c.m.status[c.m.approval.UID], c.m.row.Revision)
	}
	return err
}

func (c *controller) at(point string) error {
	if c.dead {
		return errCrashed
	}
	if err := c.m.hook(c, point); err != nil {
		return err
	}
	if c.dead {
		return errCrashed
	}
	return nil
}

// names draws act names that never repeat.
type names uint32

func (n *names) Read(p []byte) (int, error) {
	*n++
	for i := range p {
		p[i] = byte(*n >> (8 * (i % 4)))
	}
	return len(p), nil
}

// Humans and machines.

func (m *model) spec(caps contract.CapabilitySet) authority.Approval {
	return authority.Approval{
		InstallationID: testKey.InstallationID, WorkspaceID: testKey.WorkspaceID, ManifestDigest: m.installation.ManifestDigest,
		SupersedesAct: m.row.Act, Capabilities: caps, ApprovedBy: "alice", Checked: true,
	}
}

func manifestOf(a authority.Approval) string {
	a.UID, a.Generation, a.Reason = "", 0, ""
	return fmt.Sprintf("%+v", a)
}

func (m *model) apply(spec authority.Approval) {
	m.tick++
	m.version++
	if m.approval == nil {
		m.objects++
		spec.UID, spec.Generation = fmt.Sprintf("uid-%d", m.objects), 1
	} else {
		spec.UID, spec.Generation = m.approval.UID, m.approval.Generation+1
	}
	if _, known := m.firstApplied[manifestOf(spec)]; !known {
		m.firstApplied[manifestOf(spec)] = m.tick
	}
	if before := m.approval; before != nil {
		m.took(wanted(before) &^ wanted(&spec))
	}
	m.applied = append(m.applied, spec)
	m.approval = &spec
	for _, c := range m.controllers {
		c.queue = append(c.queue, &spec)
	}
}

// wanted is what a spec asks for.
func wanted(a *authority.Approval) contract.CapabilitySet {
	if a.Revoked {
		return 0
	}
	return a.Capabilities
}

func (m *model) took(set contract.CapabilitySet) {
	for capability := range set.All() {
		m.tookAt[capability] = append(m.tookAt[capability], m.tick)
	}
}

func (m *model) edit(change func(*authority.Approval)) {
	spec := *m.approval
	change(&spec)
	m.apply(spec)
}

func (m *model) remove() {
	m.tick++
	m.version++
	if m.row.Seen.UID != m.approval.UID {
		// What no rule closes: nobody need ever have seen this one.
		clear(m.tookAt)
	}
	m.approval = nil
	for _, c := range m.controllers {
		c.queue = append(c.queue, nil)
	}
}

func (m *model) manifest(digest string) {
	m.installation.ManifestDigest, m.installation.Declared = digest, manifests[digest]
}

// handle is the watch handler: every version, and of another object than the
// processed one only what is so still.
func (c *controller) handle() error {
	if c.handling {
		return nil
	}
	c.handling = true
	defer func() { c.handling = false }()
	for len(c.queue) > 0 {
		cur, prev := c.queue[0], c.handled
		live := c.m.approval
		confirmed := live == nil || prev != nil && prev.UID == c.m.row.Seen.UID
		if cur != nil {
			if prev == nil || prev.UID != cur.UID {
				c.from = cur.Generation
				if seen := c.m.row.Seen; seen.UID == cur.UID && seen.Generation+1 == cur.Generation {
					c.from = seen.Generation
				}
			}
			confirmed = live != nil && live.UID == cur.UID || cur.UID == c.m.row.Seen.UID
		}
		if confirmed {
			if hold, ok := authority.Narrowing(c.m.told(), prev, cur); ok {
				if _, err := c.Hold(context.Background(), c.m.row, hold); err != nil {
					return err
				}
			}
		}
		c.handled, c.queue = cur, c.queue[1:]
	}
	return nil
}

// The ports.

func (c *controller) Read(context.Context, authority.Key) (Reading, error) {
	if err := c.at("read"); err != nil {
		return Reading{}, err
	}
	m, installation := c.m, c.m.installation
	r := Reading{InstallationName: installation.Name, Intent: authority.Intent{
		Installation: &installation, Policy: authority.Policy{Version: "p", Allowed: contract.AllCapabilities},
	}}
	if m.workspace != nil {
		workspace := *m.workspace
		r.Intent.Workspace = &workspace
	}
	if m.approval != nil {
		approval := *m.approval
		r.Intent.Approval = &approval
		r.Object = &Object{Namespace: "team", Name: "plugin", UID: approval.UID, ResourceVersion: fmt.Sprint(m.version)}
		r.Published = m.status[approval.UID]
	}
	c.read, c.readAt = r, m.tick
	return r, c.at("have read")
}

func (c *controller) WatchedFrom(_ context.Context, object Object, generation int64) (int64, error) {
	if err := c.at("watched from"); err != nil {
		return 0, err
	}
	if !c.slow {
		if err := c.handle(); err != nil {
			return 0, err
		}
	}
	if c.handled == nil || c.handled.UID != object.UID || c.handled.Generation < generation {
		return 0, nil
	}
	return c.from, nil
}

func (c *controller) Create(_ context.Context, event authority.Event) error {
	if err := c.at("create"); err != nil {
		return err
	}
	m, revision := c.m, event.Row.Revision
	if m.refuseEvents {
		return errRefused
	}
	if _, exists := m.events[revision]; exists {
		return ErrEventExists
	}
	if err := event.Verify(); err != nil {
		m.t.Fatalf("%v", err)
	}
	if event.BeforeRevision != revision-1 || event.PreviousHash != m.events[revision-1].Row.EventHash || revision > m.row.Revision+1 {
		m.t.Fatalf("I3: event %s does not follow its sequence, the row is at %d", event.Name(), m.row.Revision)
	}
	m.events[revision] = event
	if a := c.read.Intent.Approval; a != nil {
		m.madeFrom[revision], m.madeAt[revision] = *a, c.readAt
	}
	return c.at("created")
}

func (c *controller) Get(_ context.Context, _ authority.Key, revision uint64) (authority.Event, error) {
	if err := c.at("get"); err != nil {
		return authority.Event{}, err
	}
	event, ok := c.m.events[revision]
	if !ok {
		return authority.Event{}, errors.Join(errors.New("no such event"), c.at("got"))
	}
	return event, c.at("got")
}

func (c *controller) Row(context.Context, authority.Key) (authority.Row, error) {
	if err := c.at("row"); err != nil {
		return authority.Row{}, err
	}
	return c.m.told(), c.at("have the row")
}

// told is the row as the store answers it.
func (m *model) told() authority.Row {
	row := m.row
	if m.asked != nil {
		row.Seen = m.asked(row.Seen)
	}
	return row
}

func (c *controller) Hold(_ context.Context, from authority.Row, hold authority.Hold) (authority.Row, error) {
	if err := c.at("hold"); err != nil {
		return authority.Row{}, err
	}
	m := c.m
	seen := m.row.Seen
	done := hold.UID != "" && hold.UID == seen.UID && (seen.Generation >= hold.Generation ||
		seen.Gone && hold.Cause == authority.CauseApprovalDeleted && seen.Generation+1 >= hold.Generation)
	if (hold.UID == "" || hold.UID != seen.UID) && m.row.Revision != from.Revision {
		return authority.Row{}, ErrOvertaken
	}
	if !done {
		merged := m.row.Hold.Merge(hold)
		if !merged.Equal(m.row.Hold) {
			m.row.Hold = &merged
			if isAct(merged.Cause) {
				m.tick++
				m.heldAt = m.tick
			}
		}
	}
	return m.row, c.at("held")
}

func isAct(cause authority.Cause) bool {
	return cause == authority.CauseHuman || cause == authority.CauseApprovalDeleted ||
		cause == authority.CauseWorkspaceRemoved || cause == authority.CauseUnseenChange
}

func (m *model) overtaken(c *controller, from authority.Row) error {
	switch {
	case c.term != Term{StoreEpoch: 1, LeaderEpoch: m.leaderEpoch}:
		return ErrDeposed
	case m.row.Revision != from.Revision || !m.row.Hold.Equal(from.Hold):
		return ErrOvertaken
	default:
		return nil
	}
}

func (c *controller) Fence(_ context.Context, _ Term, from, to authority.Row) error {
	if err := c.at("fence"); err != nil {
		return err
	}
	if err := c.m.overtaken(c, from); err != nil {
		return err
	}
	if to.Revision != c.m.row.Revision+1 {
		c.m.t.Fatalf("I3: fence from %d to %d", c.m.row.Revision, to.Revision)
	}
	c.m.store(to)
	return c.at("fenced")
}

// ofVersion tells whether a hold was set for the version that an event processed
// as an act, and for nothing else: the event has taken in all that the hold says.
func (m *model) ofVersion(h authority.Hold, event authority.Event) bool {
	seen := event.Row.Seen
	if h.Mixed || event.Row.Act == m.events[event.Row.Revision-1].Row.Act {
		return false
	}
	if h.Cause == authority.CauseApprovalDeleted {
		seen.Generation++
	}
	return !h.Spent && h.UID == seen.UID && h.Generation == seen.Generation && seen.Gone == (h.Cause == authority.CauseApprovalDeleted)
}

// Distrust is never called: every version of the model is checked.
func (*controller) Distrust(context.Context, string, int64) error {
	return errors.New("a checked version is distrusted")
}

func (c *controller) MarkSeen(_ context.Context, _ Term, from authority.Row, seen authority.Seen) error {
	if err := c.at("mark"); err != nil {
		return err
	}
	if err := c.m.overtaken(c, from); err != nil {
		return err
	}
	c.m.row.Seen = c.m.row.Seen.Later(seen)
	c.m.checkSeen()
	return c.at("marked")
}

func (c *controller) Apply(_ context.Context, object Object, report authority.Report) error {
	if err := c.at("apply"); err != nil {
		return err
	}
	m := c.m
	if m.approval == nil || m.approval.UID != object.UID || object.ResourceVersion != fmt.Sprint(m.version) {
		return ErrConflict
	}
	m.waiting = report.Waiting
	revision := report.Row.Revision
	if revision < m.status[object.UID] {
		// A deposed leader's late write: the API's rule refuses it.
		return ErrConflict
	}
	if _, exists := m.events[revision]; revision > 0 && !exists {
		m.t.Fatalf("I4: the status shows revision %d, which has no event", revision)
	}
	if revision > m.row.Revision {
		m.t.Fatalf("the status shows revision %d, the row is at %d", revision, m.row.Revision)
	}
	if revision != m.status[object.UID] {
		m.version++
		m.status[object.UID] = revision
	}
	return c.at("applied")
}

// store replaces the row, and checks what must be true of every new row.
func (m *model) store(to authority.Row) {
	m.t.Helper()
	was := m.row
	event, exists := m.events[to.Revision]
	if !exists {
		m.t.Fatalf("I4: revision %d is in force before its event exists", to.Revision)
	}
	plain, recorded := to, event.Rebuilt()
	plain.Hold, plain.Starting, plain.Seen, recorded.Seen = nil, false, authority.Seen{}, authority.Seen{}
	if plain != recorded {
		m.t.Fatalf("the row is not its event:\n%+v\n%+v", plain, recorded)
	}
	if h := was.Hold; h != nil && !h.Equal(event.Applied) && !m.ofVersion(*h, event) {
		switch kept := to.Hold; {
		case kept == nil:
			m.t.Fatalf("revision %d cleared the hold %+v that its event did not apply", to.Revision, *h)
		case !h.Granted.Covers(kept.Granted), h.State != authority.StateActive && kept.State == authority.StateActive,
			isAct(h.Cause) && (kept.Cause != h.Cause || kept.UID != h.UID || kept.Generation != h.Generation):
			m.t.Fatalf("revision %d replaced the hold %+v by %+v", to.Revision, *h, *kept)
		}
	}
	before, now := was, to
	before.Gates, now.Gates = 0, 0
	before.Starting = false
	if gained := now.Effective(m.now) &^ before.Effective(m.now); gained != 0 {
		a, ok := m.madeFrom[to.Revision]
		h := was.Hold
		own := h != nil && h.UID == a.UID && h.Generation == a.Generation
		if !ok || a.Revoked || event.Row.Act == m.events[to.Revision-1].Row.Act || a.SupersedesAct != m.events[to.Revision-1].Row.Act {
			m.t.Fatalf("I7: revision %d gained {%s} without an act: %+v", to.Revision, gained, a)
		}
		for capability := range gained.All() {
			for _, at := range m.tookAt[capability] {
				if m.firstApplied[manifestOf(a)] < at && at <= m.madeAt[to.Revision] {
					m.t.Fatalf("I7: %s came back by a manifest from before a human took it away", capability)
				}
			}
		}
		if m.firstApplied[manifestOf(a)] <= m.heldAt && !own && h != nil {
			m.t.Fatalf("I7: {%s} came back by a manifest from before the hold %+v", gained, *h)
		}
	}
	m.row = to
	m.checkSeen()
}

func (m *model) checkSeen() {
	m.t.Helper()
	seen := m.row.Seen
	if last := m.processed[seen.UID]; seen.Generation < last {
		m.t.Fatalf("seen went back to %d of %s, was %d", seen.Generation, seen.UID, last)
	}
	m.processed[seen.UID] = seen.Generation
}

// converges: with one healthy leader and nobody else, the pass ends, and what
// is in force is what the objects ask for, with its whole history.
func (m *model) converges() {
	m.t.Helper()
	m.hook = func(*controller, string) error { return nil }
	m.refuseEvents = false
	for _, c := range slices.Clone(m.controllers) {
		m.kill(c)
	}
	c := m.start("last")
	m.lead(c)
	if err := c.handle(); err != nil {
		m.t.Fatalf("%v", err)
	}
	if err := c.run(); err != nil {
		m.t.Fatalf("no convergence: %v; row %+v", err, m.row)
	}
	if m.row.Hold != nil || m.row.Starting {
		m.t.Fatalf("settled with a mark: %+v", m.row)
	}
	in := c.read.Intent
	in.WatchedFrom = c.from
	if out := authority.Compute(m.row, in, m.now, "x"); out.Changed || out.Next.Seen != m.row.Seen {
		m.t.Fatalf("not steady: %+v", m.row)
	}
	if a := m.approval; a != nil && m.status[a.UID] != m.row.Revision {
		m.t.Fatalf("the status shows %d, in force is %d", m.status[a.UID], m.row.Revision)
	}
	if uint64(len(m.events)) != m.row.Revision {
		m.t.Fatalf("I3: %d events for %d revisions", len(m.events), m.row.Revision)
	}
	hash := ""
	for revision := uint64(1); revision <= m.row.Revision; revision++ {
		event := m.events[revision]
		if err := event.Verify(); err != nil || event.PreviousHash != hash {
			m.t.Fatalf("the chain breaks at %d: %v", revision, err)
		}
		hash = event.Hash()
	}
	var asked contract.CapabilitySet
	if a := m.approval; a != nil && !a.Revoked && a.WorkspaceID == testKey.WorkspaceID {
		asked = a.Capabilities & m.installation.Declared
	}
	if effective := m.row.Effective(m.now); !asked.Covers(effective) {
		m.t.Fatalf("I2: effective {%s}, asked {%s}", effective, asked)
	}
}
