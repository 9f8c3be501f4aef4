package simulation

import (
	"context"
	"errors"
	"fmt"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

// job is one command in the queue of a process's store.
type job struct {
	fn   func(*txn) error
	err  error
	done bool
	// gone: its caller has gone away.
	gone bool
}

// do queues fn and waits until its transaction has ended.
func (p *process) do(a *actor, urgent bool, fn func(*txn) error) error {
	j := &job{fn: fn}
	if urgent {
		p.urgent = append(p.urgent, j)
	} else {
		p.jobs = append(p.jobs, j)
	}
	a.until(func() bool { return j.done })
	return j.err
}

// maxBatch is how many commands share a commit here.
const maxBatch = 4

// work runs the transactions of one process: a fence alone and first, commands
// together.
func (p *process) work(a *actor) {
	waiting := func() bool { return len(p.urgent)+len(p.jobs) > 0 }
	for {
		a.until(waiting)
		var batch []*job
		urgent := len(p.urgent) > 0
		if urgent {
			batch, p.urgent = p.urgent[:1:1], p.urgent[1:]
		} else {
			n := min(len(p.jobs), maxBatch)
			batch, p.jobs = p.jobs[:n:n], p.jobs[n:]
		}
		if !p.attempt(a, urgent, batch) {
			// Nothing of it happened: one by one.
			for _, j := range batch {
				p.attempt(a, urgent, []*job{j})
			}
		}
		for _, j := range batch {
			j.done = true
		}
	}
}

func failAll(jobs []*job, err error) {
	for _, j := range jobs {
		j.err = err
	}
}

// attempt runs jobs in one transaction; it returns false when the database ended
// it and they are to be run one by one.
func (p *process) attempt(a *actor, urgent bool, jobs []*job) bool {
	w := p.w
	a.at("BEGIN")
	if p.noStore {
		failAll(jobs, errNoStore)
		return true
	}
	t := w.db.begin(p, a, urgent)
	defer t.end()
	t.shared = !urgent && w.mutant == mutantForShare
	if !urgent && (w.mutant == mutantRepeatableRead || w.mutant == mutantSerializable) {
		// The first statement, which takes the snapshot, is the one that waits.
		t.snapshot = w.db.clone()
	}
	if urgent || w.mutant != mutantSerializable {
		if err := t.acquire(); err != nil {
			failAll(jobs, err)
			return true
		}
		w.log(a.name, "has the lock")
	}
	for i, j := range jobs {
		if err := t.at("a command"); err != nil {
			failAll(jobs, err)
			return len(jobs) == 1
		}
		if w.mutant == mutantCallerContext && j.gone && !urgent {
			// The driver rolls the transaction back, and the connection goes on
			// without one.
			t.undo(mark{})
			t.end()
			t.autocommit = true
			j.err = context.Canceled
			continue
		}
		m := t.savepoint()
		jobs[i].err = j.fn(t)
		if errors.Is(j.err, errEnded) {
			failAll(jobs, errEnded)
			return len(jobs) == 1
		}
		if j.err != nil && !t.autocommit {
			t.undo(m)
		}
	}
	if !t.wrote() {
		return true
	}
	if err := t.commit(); err != nil {
		if !errors.Is(err, errUnknown) && len(jobs) > 1 {
			return false
		}
		failAll(jobs, err)
	}
	return true
}

// ports are the fence's ports, as one actor of a process uses them.
type ports struct {
	p *process
	a *actor

	// read is what the actor read last, early what the mutant reads too soon.
	read  *fence.Reading
	early *fence.Reading
	// believed is the row that the mutant without a fence believes in.
	believed map[authority.Key]authority.Row
	// rewritten is the event that a mutant has put in the place of another.
	rewritten *authority.Event
	row       authority.Row
	// dropped: a narrowing has no row yet (controllers' link of that name).
	dropped bool
}

func (c *ports) Read(_ context.Context, key authority.Key) (fence.Reading, error) {
	if early := c.early; early != nil {
		c.early, c.read = nil, early
		return *early, nil
	}
	w, api := c.p.w, c.p.w.api
	r := fence.Reading{InstallationName: pluginName}
	// The approval first: if the namespace that is read after it is the bound one,
	// it was when the approval was read.
	c.a.at("reads the approval")
	if c.p.noAPI {
		return r, errNoAPI
	}
	object, version, published := api.approval, api.version, api.status
	if w.tracing && object != nil {
		w.log(c.a.name, "has read %s generation %d", object.UID, object.Generation)
	}
	c.a.at("reads the installation")
	if c.p.noAPI {
		return r, errNoAPI
	}
	installed := api.installation
	if installed != nil && installed.ID == key.InstallationID {
		installation := *installed
		r.Intent.Installation = &installation
	}
	c.a.at("reads the namespace and the policy")
	if c.p.noAPI {
		return r, errNoAPI
	}
	r.Intent.Policy = api.policy
	c.read = &r
	if n := api.namespace; w.db.bound.ID == "" && n.labelled && !c.p.noStore {
		// A store that was lost knows no bindings; the approval's controller binds a
		// workspace that nothing is known of.
		w.db.bound = authority.Workspace{ID: workspaceID, Namespace: namespace, NamespaceUID: n.uid}
		c.p.view.SetBinding(w.db.bound)
		w.truth.workspace()
	}
	bound := w.db.bound
	if bound.ID == "" || api.namespace.uid != bound.NamespaceUID {
		return r, nil
	}
	if api.namespace.labelled {
		r.Intent.Workspace = &bound
	}
	if object == nil {
		return r, nil
	}
	approval := *object
	approval.Checked = object.Checked && api.proven && w.db.distrusted[object.UID] < object.Generation
	r.Intent.Approval = &approval
	if r.Intent.Installation != nil || installed == nil && object.InstallationID == key.InstallationID {
		r.Object = &fence.Object{Namespace: namespace, Name: pluginName, UID: object.UID, ResourceVersion: fmt.Sprint(version)}
		if published.installationID == key.InstallationID {
			r.Published = published.revision
		}
	}
	w.mutant.misread(c, &r)
	return r, nil
}

// readEarly is the read of the mutant that reads the objects before the row.
func (c *ports) readEarly(key authority.Key) {
	if r, err := c.Read(context.Background(), key); err == nil {
		c.early = &r
	}
}

func (c *ports) WatchedFrom(_ context.Context, object fence.Object, generation int64) (int64, error) {
	p := c.p
	if p.w.mutant == mutantOvertakes {
		return 1, nil
	}
	late := p.w.now + historyWait
	handled := func() bool {
		last := p.watch.last
		return last.uid == object.UID && last.generation >= generation
	}
	if !handled() {
		c.a.until(func() bool { return handled() || p.w.now >= late })
	}
	if !handled() {
		p.w.log(c.a.name, "its watch has not shown generation %d in time", generation)
		return 0, nil
	}
	return p.watch.from, nil
}

func (c *ports) Create(_ context.Context, e authority.Event) error {
	w := c.p.w
	c.rewritten = nil
	if changed, ok := w.mutant.rewrite(c, e); ok {
		e, c.rewritten = changed, &changed
	}
	c.a.at("creates the event of revision " + revisionText(w, e.Row.Revision))
	switch {
	case c.p.noAPI:
		return errNoAPI
	case w.api.refuseEvents:
		return errRefused
	}
	w.truth.creates(e, c.read)
	if !w.api.create(e) {
		c.rewritten = nil
		if w.mutant == mutantEventCompared {
			if existing, _ := w.api.event(e.Row.Key, e.Row.Revision); existing.DecisionDigest != e.DecisionDigest {
				return errors.New("the event of this revision has another content")
			}
			return nil
		}
		return fence.ErrEventExists
	}
	if w.chance(15) {
		w.log(c.a.name, "the answer is lost")
		return errNoAPI
	}
	return nil
}

func revisionText(w *world, revision uint64) string {
	if !w.tracing {
		return ""
	}
	return fmt.Sprint(revision)
}

func (c *ports) Get(_ context.Context, key authority.Key, revision uint64) (authority.Event, error) {
	c.a.at("reads the event that exists")
	if c.p.noAPI {
		return authority.Event{}, errNoAPI
	}
	if c.p.w.mutant == mutantEventCompared {
		return authority.Event{}, errors.New("an event with another content is not obeyed")
	}
	e, ok := c.p.w.api.event(key, revision)
	if !ok {
		return e, errors.New("no such event")
	}
	return e, nil
}

func (c *ports) Row(_ context.Context, key authority.Key) (authority.Row, error) {
	w := c.p.w
	if w.mutant == mutantObjectsFirst && c.early == nil {
		c.readEarly(key)
	}
	c.a.at("reads the row")
	if c.p.noStore {
		return authority.Row{}, errNoStore
	}
	row := w.db.row(key)
	if believed, ok := c.believed[key]; ok && believed.Revision > row.Revision {
		row = believed
	}
	row = w.mutant.misreadRow(c, row)
	row.ReadAt = epoch.Add(w.db.clock())
	c.row = row
	return row, nil
}

// processed tells whether the row has taken in the version that a hold speaks of.
func processed(seen authority.Seen, hold authority.Hold) bool {
	if hold.UID == "" || hold.UID != seen.UID {
		return false
	}
	return seen.Generation >= hold.Generation ||
		(seen.Gone && hold.Cause == authority.CauseApprovalDeleted && seen.Generation+1 >= hold.Generation)
}

func (c *ports) Hold(_ context.Context, from authority.Row, hold authority.Hold) (held authority.Row, err error) {
	w := c.p.w
	err = c.p.do(c.a, true, func(t *txn) error {
		if err := t.at("the row to hold"); err != nil {
			return err
		}
		row := t.row(from.Key)
		held = row
		if processed(row.Seen, hold) {
			return nil
		}
		if row.Revision != from.Revision || row.Seen != from.Seen {
			return fmt.Errorf("the row is at revision %d: %w", row.Revision, fence.ErrOvertaken)
		}
		merged := row.Hold.Merge(hold)
		if merged.Equal(row.Hold) {
			return nil
		}
		if w.mutant == mutantHoldIsFlag {
			if row.Starting {
				return nil
			}
			row.Starting, held = true, row
			held.Starting = true
			t.started = true
			t.put(row)
			return nil
		}
		row.Hold = &merged
		held = row
		t.put(row)
		w.truth.holds(t, row, hold)
		return nil
	})
	if err != nil {
		return authority.Row{}, err
	}
	held.ReadAt = from.ReadAt
	return held, nil
}

// Check is a fence's checks, without the locks.
func (c *ports) Check(_ context.Context, term fence.Term, from authority.Row) error {
	w := c.p.w
	switch w.mutant {
	case mutantEventUnchecked, mutantFenceSkipped, mutantRevisionFromStatus, mutantHoldNotCompared:
		return nil
	default:
	}
	c.a.at("checks the row")
	if c.p.noStore {
		return errNoStore
	}
	if err := w.db.serves(c.p, term); err != nil {
		return err
	}
	if row := w.db.row(from.Key); row.Revision != from.Revision || !row.Hold.Equal(from.Hold) {
		return fmt.Errorf("the row is at revision %d: %w", row.Revision, fence.ErrOvertaken)
	}
	return nil
}

func (c *ports) Fence(ctx context.Context, term fence.Term, from, to authority.Row) error {
	w := c.p.w
	if c.rewritten != nil && c.rewritten.Row.Revision == to.Revision {
		hold := to.Hold
		to = c.rewritten.Rebuilt()
		to.Hold = hold
	}
	switch w.mutant {
	case mutantFenceSkipped:
		if c.believed == nil {
			c.believed = map[authority.Key]authority.Row{}
		}
		c.believed[to.Key] = to
		return nil
	case mutantStatusFirst:
		if c.read != nil && c.read.Object != nil {
			if err := c.Apply(ctx, *c.read.Object, authority.NewReport(to, c.read.Intent, nil, c.p.clock())); err != nil {
				return err
			}
		}
	case mutantRowNarrower:
		if h := to.Hold; h != nil {
			to.Granted &= h.Granted
			if h.State == authority.StateRevoked {
				to.State, to.Granted = authority.StateRevoked, 0
			}
			to.Hold = nil
		}
	default:
	}
	if w.profile.stalls && w.chance(300) {
		for _, p := range w.procs {
			p.frozen[approvals] = true
		}
		w.edit(func(a *authority.Approval) { a.Revoked = true })
		w.log(c.a.name, "stands still")
		again := w.now + lease + slack
		c.a.until(func() bool { return w.calm || w.now >= again })
	}
	return c.p.do(c.a, true, func(t *txn) error {
		current, err := t.overtake(term, from)
		if err != nil {
			return err
		}
		if err := t.checkTombstone(to); err != nil {
			return err
		}
		next := to
		next.Seen = current.Seen.Later(to.Seen)
		t.fences = true
		t.put(next)
		t.reads(next.Key, from.ReadAt)
		w.truth.fences(t, term)
		return nil
	})
}

func (c *ports) MarkSeen(_ context.Context, term fence.Term, from authority.Row, seen authority.Seen) error {
	return c.p.do(c.a, true, func(t *txn) error {
		current, err := t.overtake(term, from)
		if err != nil {
			return err
		}
		next := current
		next.Seen = current.Seen.Later(seen)
		if next.Seen == current.Seen {
			return nil
		}
		t.put(next)
		c.p.w.truth.fences(t, term)
		c.p.w.truth.marks(t, c.read, next.Key)
		return nil
	})
}

func (c *ports) Distrust(_ context.Context, uid string, generation int64) error {
	return c.p.do(c.a, true, func(t *txn) error {
		db := t.db
		t.others = append(t.others, func() { db.distrust(uid, generation) })
		return nil
	})
}

func (c *ports) Apply(_ context.Context, object fence.Object, report authority.Report) error {
	w, api := c.p.w, c.p.w.api
	c.a.at("applies the status")
	if c.p.noAPI {
		return errNoAPI
	}
	if api.approval == nil || api.approval.UID != object.UID || object.ResourceVersion != fmt.Sprint(api.version) {
		return fence.ErrConflict
	}
	key := report.Row.Key
	next := status{installationID: key.InstallationID, revision: report.Row.Revision, act: report.Row.Act, waiting: report.Waiting != nil}
	if next.installationID == api.status.installationID && next.revision < api.status.revision {
		// The API server's rule: a revision never decreases.
		return fence.ErrConflict
	}
	if next == api.status {
		return nil
	}
	w.truth.published(key, next.revision)
	api.status = next
	api.version++
	w.log(c.a.name, "status at revision %d", next.revision)
	api.tell(approvals, change{approval: api.approval, status: api.status})
	if w.chance(15) {
		return errNoAPI
	}
	return nil
}
