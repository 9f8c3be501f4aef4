package simulation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

var (
	errNoAPI   = errors.New("the API server can't be reached")
	errRefused = errors.New("a third party's webhook refused the event")
)

var place = view.Place{Namespace: namespace, Name: pluginName}

// process is one replica: its watches and view, its controllers, which lead or
// not, its connection to the store, and its Host.
type process struct {
	w    *world
	id   int
	name string

	alive  bool
	paused bool
	// noAPI, noStore: partitions. frozen: watches that deliver nothing.
	noAPI, noStore bool
	frozen         [kinds]bool
	offset         time.Duration

	view   *view.View
	cursor [kinds]int
	listed [kinds]bool
	watch  watch
	// history is the store and its epoch for which the watch's history counts.
	history string
	// progress is how far the process has seen the store.
	progress progress
	pod      podState
	// goneUID is the last pod that the watch has shown to be gone, tokens the
	// reviewed ones and how long they are remembered.
	goneUID string
	tokens  map[string]time.Duration
	// cache, admitted and processed are what mutants remember.
	cache               map[authority.Key]authority.Row
	admitted, processed map[versionName]bool

	// elected: it believes to lead. leading: its rows have been compared.
	// again: it is to begin another term.
	elected, leading, again bool
	term                    fence.Term
	queue                   []request
	rounds                  int

	urgent, jobs []*job
}

// request is a pass that is due.
type request struct {
	key authority.Key
	at  time.Duration
}

// watch is what the approvals' watch has shown, and how much of it was handled.
type watch struct {
	newest  version
	pending []version
	last    version
	from    int64
	// begun counts how often it has begun.
	begun int
}

type version struct {
	uid        string
	generation int64
	spec       *authority.Approval
}

func newProcess(w *world, id int) *process {
	return &process{w: w, id: id, name: fmt.Sprintf("host-%d", id)}
}

func (p *process) clock() time.Time { return epoch.Add(p.w.now + p.offset) }

// start is a process that remembers nothing.
func (p *process) start() {
	p.alive, p.paused, p.elected, p.leading, p.again = true, false, false, false, false
	p.view = view.New(p.w.api.policy)
	p.cursor, p.listed = [kinds]int{-1, -1, -1, -1, -1}, [kinds]bool{}
	p.watch, p.pod, p.goneUID, p.tokens = watch{}, podState{}, "", map[string]time.Duration{}
	p.queue, p.urgent, p.jobs, p.rounds = nil, nil, nil, 0
	p.history, p.progress = p.w.db.id+fmt.Sprint(p.w.db.storeEpoch), progress{}
	p.cache = map[authority.Key]authority.Row{}
	p.admitted, p.processed = map[versionName]bool{}, map[versionName]bool{}
	if p.w.db.bound.ID != "" {
		p.view.SetBinding(p.w.db.bound)
	}
	w := p.w
	w.spawn(p, p.name+" store", p.work)
	w.spawn(p, p.name+" watch", p.handleAll)
	w.spawn(p, p.name+" pass", p.passes)
	w.spawn(p, p.name+" round", p.freshen)
	for i := range w.profile.clients {
		w.spawn(p, fmt.Sprintf("%s call%d", p.name, i), p.client)
	}
}

// crash kills the process and starts it again.
func (p *process) crash(why string) {
	p.w.log(p.name, "%s", why)
	p.w.kill(p, nil)
	p.w.db.abort(p)
	p.w.truth.crashed(p)
	p.start()
}

// see delivers the next change of a watch; the first time, the present state.
func (p *process) see(kind watched) {
	log := p.w.api.logs[kind]
	switch {
	case p.cursor[kind] < 0:
		p.cursor[kind] = len(log) - 1
	case p.w.chance(30):
		// The same once more.
	default:
		p.cursor[kind]++
	}
	p.show(kind, log[p.cursor[kind]])
}

// relist is a watch that broke: what happened meanwhile shows as its outcome.
func (p *process) relist(kind watched) {
	p.w.log(p.name, "the watch of %s breaks", kind)
	log := p.w.api.logs[kind]
	p.cursor[kind] = len(log) - 1
	p.show(kind, log[p.cursor[kind]])
}

var sources = map[watched]view.Source{
	approvals: view.SourceApprovals, installations: view.SourceInstallations,
	namespaces: view.SourceNamespaces, policies: view.SourcePolicies,
}

func (p *process) show(kind watched, c change) {
	if p.w.tracing {
		p.w.log(p.name, "its watch shows %s %d of %d", kind, p.cursor[kind]+1, len(p.w.api.logs[kind]))
	}
	switch kind {
	case approvals:
		p.showApproval(c)
	case installations:
		if c.installation != nil {
			p.view.SetInstallation(view.Installation{Installation: *c.installation})
		} else if c.removed != "" {
			p.view.RemoveInstallation(pluginName, c.removed)
		}
	case namespaces:
		if c.namespace.uid == "" {
			p.view.RemoveNamespace(namespace)
		} else {
			n := view.Namespace{UID: c.namespace.uid}
			if c.namespace.labelled {
				n.WorkspaceID = workspaceID
			}
			p.view.SetNamespace(namespace, n)
		}
	case policies:
		p.view.SetPolicy(c.policy)
	case pods:
		p.showPod(c.pod)
	}
	if kind == pods {
		return
	}
	if !p.listed[kind] {
		p.listed[kind] = true
		p.view.MarkComplete(sources[kind])
	}
	p.ask()
}

// ask asks for passes of everything that a change may concern.
func (p *process) ask() {
	if i := p.w.api.installation; i != nil {
		p.request(keyOf(i.ID), 0)
	}
	for _, key := range p.w.db.keys {
		p.request(key, 0)
	}
}

func (p *process) request(key authority.Key, at time.Duration) {
	for i := range p.queue {
		if p.queue[i].key == key {
			p.queue[i].at = min(p.queue[i].at, at)
			return
		}
	}
	p.queue = append(p.queue, request{key, at})
}

func (p *process) sweep() { p.ask() }

// showApproval is the approvals' handler: it takes the view along and queues
// the version.
func (p *process) showApproval(c change) {
	seen := version{spec: c.approval}
	switch {
	case c.approval != nil:
		seen.uid, seen.generation = c.approval.UID, c.approval.Generation
	case p.watch.newest.uid != "":
		// Of a deletion that was missed, the last version known.
		seen.uid, seen.generation = p.watch.newest.uid, p.watch.newest.generation
		if c.gone != nil && c.gone.UID == seen.uid {
			seen.generation = c.gone.Generation
		}
	default:
		return
	}
	p.view.SetApproval(place, view.Approval{
		UID: seen.uid, Generation: seen.generation, Spec: seen.spec,
		Installation: c.status.installationID, Revision: c.status.revision,
	})
	w := &p.watch
	newest := w.newest
	if newest.uid == seen.uid && newest.generation == seen.generation && (newest.spec == nil) == (seen.spec == nil) {
		return
	}
	if newest.uid != "" && newest.uid != seen.uid && newest.spec != nil {
		w.pending = append(w.pending, version{uid: newest.uid, generation: newest.generation})
	}
	w.pending = append(w.pending, seen)
	w.newest = seen
}

// handleAll handles versions in order, whether the process leads or not.
func (p *process) handleAll(a *actor) {
	port := &ports{p: p, a: a}
	waiting := func() bool { return len(p.watch.pending) > 0 }
	for {
		a.until(waiting)
		prev, cur, begun := p.watch.last, p.watch.pending[0], p.watch.begun
		a.at("handles a version")
		port.dropped = false
		follows, err := port.handle(prev, cur)
		if err != nil {
			p.w.log(a.name, "can't: %v", err)
			again := p.w.now + 50*time.Millisecond
			a.until(func() bool { return p.w.now >= again })
			continue
		}
		w := &p.watch
		if w.begun != begun {
			continue
		}
		p.w.truth.handled(prev, cur)
		if i := slices.Index(w.pending, cur); i >= 0 {
			w.pending = slices.Delete(w.pending, 0, i+1)
		}
		if w.last.uid != cur.uid || cur.generation > w.last.generation+1 || port.dropped {
			if w.from = cur.generation; follows {
				w.from--
			}
		}
		w.last = cur
	}
}

// handle returns whether the row that cur speaks for had processed the version
// before, and was compared with it.
func (c *ports) handle(prev, cur version) (follows bool, err error) {
	for _, key := range c.p.concerned(prev, cur) {
		row, held, err := c.handleFor(key, prev, cur)
		if err != nil {
			return false, err
		}
		if held || cur.spec == nil {
			c.p.request(key, 0)
		}
		if cur.spec != nil && keyFor(cur.spec) == key {
			follows = row.Seen.UID == cur.uid && row.Seen.Generation+1 == cur.generation
		}
	}
	return follows, nil
}

// handleFor handles a version for one row, which it returns as it was compared.
func (c *ports) handleFor(key authority.Key, prev, cur version) (row authority.Row, held bool, err error) {
	for {
		if row, err = c.Row(context.Background(), key); err != nil {
			return row, false, err
		}
		held, err = c.holdFor(row, prev, cur)
		if !errors.Is(err, fence.ErrOvertaken) {
			return row, held, err
		}
	}
}

func (p *process) concerned(prev, cur version) []authority.Key {
	var keys []authority.Key
	add := func(key authority.Key) {
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	for _, v := range []version{prev, cur} {
		if v.spec != nil {
			add(keyOf(v.spec.InstallationID))
		}
	}
	for _, key := range p.view.KeysAt(place) {
		add(key)
	}
	return keys
}

// holdFor holds what a version takes away from one row.
func (c *ports) holdFor(row authority.Row, prev, cur version) (held bool, err error) {
	ctx := context.Background()
	before := prev.spec
	if prev.uid != cur.uid {
		before = nil
	}
	after := cur.spec
	hold, narrows := authority.Narrowing(row, before, after)
	if !narrows {
		return false, nil
	}
	other := row.Seen.UID != cur.uid && c.p.w.mutant != mutantLaggingHold
	if row.Seen.UID == "" {
		// A row that has processed nothing knows of nothing newer; where it stands,
		// the binding says.
		if c.p.w.db.bound.ID == "" {
			c.dropped = true
			return false, nil
		}
		other = false
	}
	if other {
		live, err := c.Read(ctx, row.Key)
		if err != nil {
			return false, err
		}
		present := live.Intent.Approval
		switch {
		case live.Intent.Installation == nil || c.p.w.db.bound.ID == "" || c.p.w.api.namespace.uid != c.p.w.db.bound.NamespaceUID:
			return false, nil
		case present != nil && present.UID == row.Seen.UID:
			return false, nil
		case present == nil && after != nil:
			return false, nil
		case present != nil && after != nil && present.UID != after.UID:
			if hold, narrows = authority.Narrowing(row, nil, present); !narrows {
				return false, nil
			}
		}
	}
	if _, err := c.Hold(ctx, row, hold); err != nil {
		return false, err
	}
	if other {
		c.p.view.Confirm(place, cur.uid)
	}
	return true, nil
}

// elect makes the process lead, as far as it knows.
func (p *process) elect() {
	for _, other := range p.w.procs {
		if other != p && other.elected && other.alive && !other.paused && !other.noAPI {
			// It learns that its lease is gone, and ends.
			other.crash("has lost its lease and ends")
		}
	}
	p.w.log(p.name, "is elected")
	p.elected = true
	p.w.spawn(p, p.name+" lead", p.lead)
}

// lead begins a term, and another one where the store turns out not to be what
// the cluster knows.
func (p *process) lead(a *actor) {
	w := p.w
	for {
		for !p.beginEpoch(a) {
			a.at("compares the store's beat again")
		}
		for {
			a.at("begins a term")
			if !p.noStore && !w.db.locked() {
				break
			}
		}
		w.db.leaderEpoch++
		p.forget()
		p.term, p.again = w.db.term(), false
		for !p.again && !p.compare(a) {
			a.at("compares again")
		}
		if p.again {
			continue
		}
		p.view.MarkComplete(view.SourceLedger)
		p.leading = true
		p.ask()
		a.until(func() bool { return p.again || w.db.term() != p.term && w.rng.IntN(8) == 0 })
		if !p.again {
			// Something told it that another one leads.
			p.depose(a)
		}
		p.leading = false
	}
}

// forget makes the watch begin anew in another store, or in another epoch of it:
// what was held before is gone, so nothing counts as handled but what stands there
// now.
func (p *process) forget() {
	epoch := p.w.db.id + fmt.Sprint(p.w.db.storeEpoch)
	if p.history == epoch {
		return
	}
	p.history = epoch
	newest := p.watch.newest
	p.watch = watch{newest: newest, begun: p.watch.begun + 1}
	if newest.uid != "" {
		p.watch.pending = []version{newest}
	}
}

// beginEpoch begins a store epoch where the store isn't what the cluster knows.
func (p *process) beginEpoch(a *actor) bool {
	w := p.w
	a.at("reads the beat")
	if p.noAPI {
		return false
	}
	known := w.api.beat
	a.at("reads the store's beat")
	if p.noStore {
		return false
	}
	db := w.db
	older := p.sees(db)
	if !older && !known.ahead(db) || w.mutant == mutantNoBeat {
		return true
	}
	a.at("begins a store epoch")
	a.until(func() bool { return !w.db.locked() })
	if p.noStore {
		return false
	}
	from := progress{db.id, db.storeEpoch, db.beat}
	db = w.db
	if p.progress.id == db.id {
		db.storeEpoch = max(db.storeEpoch, p.progress.epoch)
	}
	db.storeEpoch++
	db.leaderEpoch++
	db.leaseFrom, db.leaseUntil, db.leaseBeat = 0, 0, 0
	w.log(a.name, "store epoch %d", db.storeEpoch)
	// What began in the old epoch ends first.
	old := slices.Clone(db.open)
	a.until(func() bool {
		return !slices.ContainsFunc(old, func(t *txn) bool { return slices.Contains(db.open, t) })
	})
	a.at("reads the store's beat again")
	if p.noStore {
		return false
	}
	db = w.db
	if p.sees(db) || db.id != from.id || db.storeEpoch <= from.epoch {
		return false
	}
	a.at("writes the beat")
	if p.noAPI {
		return false
	}
	if w.api.beat == known {
		w.api.beat = beat{db.id, db.beat}
	}
	return true
}

// progress is how far a store is.
type progress struct {
	id          string
	epoch, beat uint64
}

// sees tells whether the process has seen the store further on, and remembers how
// far it is.
func (p *process) sees(db *database) (older bool) {
	now, seen := progress{db.id, db.storeEpoch, db.beat}, p.progress
	if now.id == seen.id && (now.epoch < seen.epoch || now.epoch == seen.epoch && now.beat < seen.beat) {
		return true
	}
	p.progress = now
	return false
}

// ahead tells whether a store is not what the cluster knows, or older.
func (b beat) ahead(db *database) bool {
	return b.storeID != "" && (b.storeID != db.id || b.beat > db.beat)
}

func (p *process) compare(a *actor) bool {
	w := p.w
	a.at("lists the events")
	if p.noAPI {
		return false
	}
	keys := slices.Clone(w.api.keys)
	newest := make([]authority.Event, len(keys))
	for i, key := range keys {
		newest[i], _ = w.api.event(key, w.api.newest[key])
	}
	for i, key := range keys {
		event := newest[i]
		p.view.SetRevision(key, event.Row.Revision)
		a.at("reads the row to compare")
		if p.noStore {
			return false
		}
		if w.db.row(key).Revision >= event.Row.Revision {
			continue
		}
		if v := event.Row.Vector; v.WorkspaceNamespaceUID != "" && w.db.bound.ID == "" {
			w.db.bound = authority.Workspace{ID: v.WorkspaceID, Namespace: v.WorkspaceNamespace, NamespaceUID: v.WorkspaceNamespaceUID}
			p.view.SetBinding(w.db.bound)
		}
		if err := p.fenceStart(a, event); err != nil {
			switch {
			case errors.Is(err, fence.ErrOlderStore):
				p.again = true
			case errors.Is(err, fence.ErrDeposed):
				p.depose(a)
			}
			return false
		}
	}
	a.at("completes the epoch")
	if p.noStore {
		return false
	}
	switch err := w.db.serves(p, p.term); {
	case errors.Is(err, fence.ErrOlderStore):
		p.again = true
		return false
	case err != nil:
		p.depose(a)
	}
	w.db.completeEpoch = w.db.storeEpoch
	return true
}

// depose ends the process: another one leads.
func (p *process) depose(a *actor) {
	p.w.log(p.name, "is deposed and ends")
	p.elected, p.leading = false, false
	w := p.w
	w.kill(p, a)
	w.db.abort(p)
	w.truth.crashed(p)
	p.start()
	panic(killed{})
}

// fenceStart takes a row that is behind its newest event straight to it.
func (p *process) fenceStart(a *actor, event authority.Event) error {
	row := event.Rebuilt()
	return p.do(a, true, func(t *txn) error {
		if err := t.checkTerm(p.term); err != nil {
			return err
		}
		if err := t.at("the row"); err != nil {
			return err
		}
		current := t.row(row.Key)
		if current.Revision >= row.Revision {
			return nil
		}
		next := row
		next.Hold = event.Remaining(current.Hold)
		next.Starting = true
		if p.w.mutant == mutantStartIsAct {
			next.Starting = false
			merged := next.Hold.Merge(authority.Hold{
				State: authority.StateRevoked, Cause: authority.CauseWorkspaceRemoved,
			})
			next.Hold = &merged
		}
		next.Seen = current.Seen.Later(row.Seen)
		t.started, t.fences = true, true
		t.put(next)
		t.reads(next.Key, epoch)
		return nil
	})
}

// passes runs the passes that are due, one after the other.
func (p *process) passes(a *actor) {
	w := p.w
	port := &ports{p: p, a: a}
	pass := &fence.Pass{Intent: port, History: port, Events: port, Ledger: port, Status: port, Now: p.clock, Random: w.random()}
	due := -1
	ready := func() bool {
		due = -1
		if !p.leading {
			return false
		}
		for i, r := range p.queue {
			if r.at <= w.now {
				due = i
				return true
			}
		}
		return false
	}
	for {
		a.until(ready)
		key := p.queue[due].key
		p.queue = slices.Delete(p.queue, due, due+1)
		a.at("begins a pass")
		term := p.term
		result, err := p.pass(port, pass, term, key)
		switch {
		case errors.Is(err, fence.ErrDeposed) && term != p.term:
			// It has ended that term itself.
			p.request(key, w.now+100*time.Millisecond)
		case errors.Is(err, fence.ErrOlderStore):
			w.log(a.name, "%v", err)
			p.again = p.leading
		case errors.Is(err, fence.ErrDeposed):
			p.depose(a)
		case err != nil:
			w.log(a.name, "%v", err)
			p.request(key, w.now+100*time.Millisecond)
		case !result.Wake.IsZero():
			p.request(key, max(result.Wake.Sub(epoch)-p.offset, w.now+time.Millisecond))
		}
	}
}

func (p *process) pass(port *ports, pass *fence.Pass, term fence.Term, key authority.Key) (fence.Result, error) {
	ctx := context.Background()
	row, err := port.Row(ctx, key)
	if err != nil {
		return fence.Result{}, err
	}
	if seen := p.view.Observe(key).Revision; seen > row.Revision {
		err := fmt.Errorf("revision %d was published and the store is at %d: %w", seen, row.Revision, fence.ErrHistoryLost)
		return fence.Result{}, errors.Join(err, pass.Tell(ctx, key, err))
	}
	return pass.Run(ctx, term, key)
}

// freshen runs rounds.
func (p *process) freshen(a *actor) {
	port := &ports{p: p, a: a}
	next := time.Duration(0)
	due := func() bool { return p.rounds > 0 || !p.w.calm && p.w.now >= next }
	for {
		a.until(due)
		p.rounds = max(p.rounds-1, 0)
		next = p.w.now + 5*time.Second
		if err := port.round(); err != nil {
			p.w.log(a.name, "no lease: %v", err)
			again := p.w.now + 200*time.Millisecond
			a.until(func() bool { return p.w.now >= again })
		}
	}
}

// round is one round of freshness: the store's clock, then what is live, then
// holds, then the lease.
func (c *ports) round() error {
	w, p := c.p.w, c.p
	// The published beat first: it never is ahead of the store that wrote it.
	c.a.at("reads the beat")
	if p.noAPI {
		return errNoAPI
	}
	last := w.api.beat
	if w.mutant == mutantRoundReadsFirst {
		if err := c.compareAll(); err != nil {
			return err
		}
	}
	c.a.at("begins a round")
	if p.noStore {
		return errNoStore
	}
	db, begun, storeEpoch, beats := w.db, w.db.clock(), w.db.storeEpoch, w.db.beat
	if older := p.sees(db); (older || last.ahead(db)) && w.mutant != mutantNoBeat {
		p.again = p.leading
		return errors.New("the store is not what it was")
	}
	if db.completeEpoch == storeEpoch {
		p.view.MarkComplete(view.SourceLedger)
	}
	if db.bound.ID != "" {
		p.view.SetBinding(db.bound)
	}
	if w.mutant != mutantRoundReadsFirst {
		if err := c.compareAll(); err != nil {
			return err
		}
	}
	c.a.at("renews the lease")
	c.a.until(func() bool { return p.noStore || !w.db.leased() })
	id := db.id
	db = w.db
	least := beats
	if p.progress.id == id && p.progress.epoch == storeEpoch {
		least = max(least, p.progress.beat)
	}
	switch {
	case p.noStore:
		return errNoStore
	case db.storeEpoch != storeEpoch || db.id != id:
		return fence.ErrDeposed
	case db.beat < least && w.mutant != mutantOlderRenewed:
		return fence.ErrOlderStore
	}
	if db.leaseUntil > begun+lease {
		return nil
	}
	db.leaseFrom, db.leaseUntil, db.leaseBeat = begun, begun+lease, beats
	db.beat++
	beats = db.beat
	p.sees(db)
	c.a.at("writes the beat")
	if p.noAPI {
		return errNoAPI
	}
	if w.api.beat == last {
		// Where somebody else has written meanwhile, theirs is newer.
		w.api.beat = beat{db.id, beats}
	}
	return nil
}

// compareAll holds, in every row, what its objects take away from it.
func (c *ports) compareAll() error {
	for _, key := range slices.Clone(c.p.w.db.keys) {
		err := c.compareLive(key)
		for errors.Is(err, fence.ErrOvertaken) {
			err = c.compareLive(key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *ports) compareLive(key authority.Key) error {
	ctx := context.Background()
	if c.p.w.mutant == mutantObjectsFirst {
		c.readEarly(key)
	}
	row, err := c.Row(ctx, key)
	if err != nil {
		return err
	}
	reading, err := c.Read(ctx, key)
	if err != nil {
		return err
	}
	if w := c.p.w; w.profile.harsh && w.chance(250) {
		// Just after it was read: a round that sees nothing vouches longest.
		w.edit(func(a *authority.Approval) { a.Revoked = true })
	}
	if a := reading.Intent.Approval; a != nil && reading.Object != nil {
		if reading.Intent.WatchedFrom, err = c.WatchedFrom(ctx, *reading.Object, a.Generation); err != nil {
			return err
		}
	}
	in := reading.Intent
	unwatched := in.Unwatched(row)
	if unwatched {
		// Whether somebody has revoked in between, the process that leads may have
		// watched.
		in.WatchedFrom = 1
	}
	holds := authority.Narrowings(row, in)
	if len(holds) == 0 && row.State == authority.StateActive && row.Gates == 0 && !row.Starting && row.Hold == nil &&
		(unwatched || differing(row, in)) && c.p.w.mutant != mutantDiffersUnheld {
		// A row that differs is held, also where a gate closes and nothing narrows: a
		// hold that takes nothing away stops its calls until the next fence. One that
		// a pass is about to move is compared again.
		if c.moves(row) {
			return fence.ErrOvertaken
		}
		if hold, ok := authority.Differing(row); ok {
			holds = append(holds, hold)
		}
	}
	for _, hold := range holds {
		held, err := c.Hold(ctx, row, hold)
		if err != nil {
			return err
		}
		if held.Revision != row.Revision {
			return fence.ErrOvertaken
		}
		row = held
	}
	return nil
}

// differing tells whether the objects around an approval are other ones than the
// row was computed from.
func differing(row authority.Row, in authority.Intent) bool {
	if in.Installation == nil || in.Workspace == nil {
		return false
	}
	return authority.VectorOf(in.Installation, in.Workspace, in.Policy).Sum() != row.Sum ||
		in.Installation.Suspended != (row.Gates&authority.GateSuspended != 0)
}

// moves asks for the pass that is due, and waits for it for a while.
func (c *ports) moves(row authority.Row) bool {
	w := c.p.w
	c.p.request(row.Key, 0)
	late := w.now + historyWait
	moved := func() bool {
		now := w.db.row(row.Key)
		return now.Revision != row.Revision || now.Seen != row.Seen || !now.Hold.Equal(row.Hold)
	}
	c.a.until(func() bool { return moved() || w.now >= late })
	return moved()
}

func (w *world) random() io.Reader {
	if w.mutant == mutantPredictable {
		return zeros{}
	}
	return nameSource{w.rng}
}

// locked tells whether a fence holds the leader's lock, which a new leader waits
// for.
func (d *database) locked() bool {
	return slices.ContainsFunc(d.open, func(t *txn) bool { return t.term })
}
