package simulation

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/fence"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

var (
	errNoStore   = errors.New("the store can't be reached")
	errEnded     = errors.New("the database has ended the transaction")
	errNotInTime = errors.New("the lease ran out before the commit")
	errSerialize = errors.New("could not serialize access")
	errUnknown   = errors.New("the outcome of the commit is unknown")
)

// database is the store: what is committed, the workspace's lock, and the
// transactions that are open.
type database struct {
	w  *world
	id string

	rows       map[authority.Key]authority.Row
	keys       []authority.Key
	bound      authority.Workspace
	dead       map[string]bool // tombstones
	distrusted map[string]int64
	// written are the store epochs in which a row was written as computed: an
	// older one is Starting.
	written map[authority.Key]uint64
	// fenced is when each row was fenced, and read for it.
	fenced  map[authority.Key]reading
	journal []entry

	storeEpoch, leaderEpoch, completeEpoch uint64
	leaseFrom, leaseUntil                  time.Duration
	beat, leaseBeat                        uint64
	offset                                 time.Duration

	lock locks
	open []*txn
}

// reading is the beat at which a row was fenced, and the store's clock when it was
// read for that.
type reading struct {
	beat uint64
	at   time.Duration
}

// entry is what the journal says of one command.
type entry struct {
	key      authority.Key
	revision uint64
	idem     string
	journal  journal.Entry
}

// locks is the exclusive lock of the workspace, and the shared one of rows that
// the mutant takes instead.
type locks struct {
	holders []*txn
	queue   []*txn
}

func newDatabase(w *world, id string) *database {
	return &database{
		w: w, id: id, rows: map[authority.Key]authority.Row{}, dead: map[string]bool{}, distrusted: map[string]int64{},
		written: map[authority.Key]uint64{}, fenced: map[authority.Key]reading{}, storeEpoch: 1,
	}
}

func (d *database) clone() *database {
	c := *d
	c.rows, c.dead = maps.Clone(d.rows), maps.Clone(d.dead)
	c.distrusted, c.written, c.fenced = maps.Clone(d.distrusted), maps.Clone(d.written), maps.Clone(d.fenced)
	c.keys, c.journal = slices.Clone(d.keys), slices.Clone(d.journal)
	c.lock, c.open = locks{}, nil
	return &c
}

func (d *database) clock() time.Duration { return d.w.now + d.offset }

func (d *database) term() fence.Term {
	return fence.Term{StoreEpoch: d.storeEpoch, LeaderEpoch: d.leaderEpoch}
}

// current is what the store says about its rows.
func (d *database) current() bool {
	now := d.clock()
	return d.completeEpoch == d.storeEpoch && now >= d.leaseFrom && now < d.leaseUntil
}

// vouched is until when the lease vouches for a row: to its end once a round has
// compared it, and until then as long as one that began when the row was read.
func (d *database) vouched(key authority.Key) (until time.Duration, ok bool) {
	r, fenced := d.fenced[key]
	if !fenced || r.beat < d.leaseBeat || d.w.mutant == mutantUncompared {
		return d.leaseUntil, true
	}
	until = r.at + d.leaseUntil - d.leaseFrom
	return until, d.clock() >= r.at && d.clock() < until
}

// leased tells whether a fence is under way, which renewals wait for.
func (d *database) leased() bool {
	return slices.ContainsFunc(d.open, func(t *txn) bool { return t.fences })
}

// row is a committed row as it is read: one that has not been written in this
// epoch has yet to be computed.
func (d *database) row(key authority.Key) authority.Row {
	row, ok := d.rows[key]
	if !ok {
		return authority.Row{Key: key}
	}
	if d.written[key] != d.storeEpoch {
		row.Starting = true
	}
	return row
}

func (d *database) distrust(uid string, generation int64) {
	d.distrusted[uid] = max(d.distrusted[uid], generation)
}

// txn is one transaction. Its statements see what is committed and what it
// wrote, or, under another isolation, what was committed when it began.
type txn struct {
	p  *process
	a  *actor
	db *database

	snapshot *database
	rows     map[authority.Key]authority.Row
	order    []authority.Key
	started  bool // its rows are under the mark
	entries  []entry
	others   []func()
	commands bool
	shared   bool
	term     bool // it holds the leader's lock, shared
	fences   bool // it holds the lease's lock, shared
	// until is when what its commands rely on ends.
	until      time.Duration
	dead       bool
	autocommit bool
	// overtaken counts the commands that got the lock while this waited for it.
	overtaken int
	statement time.Duration
	urgent    bool
	begun     int64
}

func (d *database) begin(p *process, a *actor, urgent bool) *txn {
	t := &txn{p: p, a: a, db: d, until: math.MaxInt64, statement: d.w.now, urgent: urgent, begun: d.w.truth.tick()}
	d.open = append(d.open, t)
	return t
}

// acquire takes the workspace's lock in the order in which it was asked for.
func (t *txn) acquire() error {
	d := t.db
	d.lock.queue = append(d.lock.queue, t)
	t.a.until(func() bool {
		t.statement = d.w.now
		if t.dead {
			return true
		}
		if t.shared {
			return !slices.ContainsFunc(d.lock.holders, func(h *txn) bool { return !h.shared })
		}
		return len(d.lock.holders) == 0 && (d.w.mutant == mutantForShare || d.lock.queue[0] == t)
	})
	d.lock.queue = slices.DeleteFunc(d.lock.queue, func(o *txn) bool { return o == t })
	if t.dead {
		return errEnded
	}
	d.lock.holders = append(d.lock.holders, t)
	if !t.urgent {
		for _, waits := range d.lock.queue {
			if waits.urgent && !waits.p.paused {
				waits.overtaken++
				if waits.overtaken > maxOvertaken {
					d.w.fail("liveness", "a fence waits for the lock while %d transactions of writers pass it", waits.overtaken)
				}
			}
		}
	}
	return nil
}

// maxOvertaken is how many transactions may get a lock before a fence that waits
// for it: the one that holds it, and the one of each process that asked before.
const maxOvertaken = 4

// end releases what the transaction holds.
func (t *txn) end() {
	d := t.db
	same := func(o *txn) bool { return o == t }
	d.lock.holders = slices.DeleteFunc(d.lock.holders, same)
	d.lock.queue = slices.DeleteFunc(d.lock.queue, same)
	d.open = slices.DeleteFunc(d.open, same)
}

// timeOut ends transactions that have been idle for too long.
func (d *database) timeOut() {
	for i := 0; i < len(d.open); i++ {
		if t := d.open[i]; d.w.now-t.statement > slack && !slices.Contains(d.lock.queue, t) {
			t.dead = true
			t.end()
			i--
		}
	}
}

// abort ends the transactions of a process that died.
func (d *database) abort(p *process) {
	for i := 0; i < len(d.open); i++ {
		if t := d.open[i]; t.p == p {
			t.dead = true
			t.end()
			i--
		}
	}
}

// at is one statement.
func (t *txn) at(point string) error {
	t.a.at(point)
	if t.dead {
		return errEnded
	}
	t.statement = t.db.w.now
	return nil
}

func (t *txn) source() *database {
	if t.snapshot != nil {
		return t.snapshot
	}
	return t.db
}

func (t *txn) row(key authority.Key) authority.Row {
	if row, ok := t.rows[key]; ok {
		return row
	}
	return t.source().row(key)
}

func (t *txn) put(row authority.Row) {
	if t.rows == nil {
		t.rows = map[authority.Key]authority.Row{}
	}
	if _, ok := t.rows[row.Key]; !ok {
		t.order = append(t.order, row.Key)
	}
	row.Sum, row.ReadAt = row.Vector.Sum(), time.Time{}
	t.rows[row.Key] = row
}

// reads notes when a row that is fenced had been read.
func (t *txn) reads(key authority.Key, at time.Time) {
	db, r := t.db, reading{t.db.beat, at.Sub(epoch)}
	t.others = append(t.others, func() { db.fenced[key] = r })
}

func (t *txn) checkTerm(term fence.Term) error {
	if err := t.at("the store row"); err != nil {
		return err
	}
	t.term = true
	return t.db.serves(t.p, term)
}

// serves refuses a process that no longer leads, and one that has seen the store
// further on.
func (d *database) serves(p *process, term fence.Term) error {
	now := d.term()
	switch d.w.mutant {
	case mutantNoLeaderEpoch:
		now.LeaderEpoch = term.LeaderEpoch
	case mutantNoStoreEpoch:
		now.StoreEpoch = term.StoreEpoch
	}
	if p.sees(d) && d.w.mutant != mutantTermBeatless {
		return fmt.Errorf("beat %d of epoch %d, after %+v: %w", d.beat, d.storeEpoch, p.progress, fence.ErrOlderStore)
	}
	if now != term {
		return fmt.Errorf("term %+v, now %+v: %w", term, now, fence.ErrDeposed)
	}
	return nil
}

func (t *txn) overtake(term fence.Term, from authority.Row) (authority.Row, error) {
	if err := t.checkTerm(term); err != nil {
		return authority.Row{}, err
	}
	if err := t.at("the row"); err != nil {
		return authority.Row{}, err
	}
	current := t.row(from.Key)
	same := current.Revision == from.Revision
	if t.db.w.mutant == mutantHoldNotCompared {
		if !same {
			return current, fence.ErrOvertaken
		}
		return current, nil
	}
	if t.db.w.mutant == mutantRevisionFromStatus {
		same = true
	}
	if !same || !current.Hold.Equal(from.Hold) {
		return current, fmt.Errorf("the row is at revision %d: %w", current.Revision, fence.ErrOvertaken)
	}
	return current, nil
}

// checkTombstone refuses what would give an uninstalled plugin authority.
func (t *txn) checkTombstone(to authority.Row) error {
	if to.State != authority.StateActive || to.Starting || (to.Hold != nil && to.Hold.State == authority.StateRevoked) {
		return nil
	}
	if t.db.dead[to.Key.InstallationID] {
		return errors.New("the installation is uninstalled")
	}
	return nil
}

// commit makes the transaction durable, and checks what it does.
func (t *txn) commit() error {
	d := t.db
	if t.commands && d.w.mutant != mutantLeaseUnchecked {
		if err := t.at("the lease, before COMMIT"); err != nil {
			return err
		}
		if !d.current() || d.clock() >= t.until {
			return errNotInTime
		}
	}
	if err := t.at("COMMIT"); err != nil {
		return err
	}
	if t.snapshot != nil {
		for _, key := range t.order {
			if d.rows[key].Revision != t.snapshot.rows[key].Revision {
				return errSerialize
			}
		}
	}
	t.apply()
	t.end()
	if d.w.chance(15) {
		d.w.log(t.a.name, "the answer to COMMIT is lost")
		return errUnknown
	}
	return nil
}

// apply is the commit itself.
func (t *txn) apply() {
	d := t.db
	for _, key := range t.order {
		before, after := d.row(key), t.rows[key]
		if _, known := d.rows[key]; !known {
			d.keys = append(d.keys, key)
		}
		d.w.truth.stored(t, before, after)
		d.rows[key], d.written[key] = after, d.storeEpoch
	}
	for _, other := range t.others {
		other()
	}
	for _, e := range t.entries {
		d.journal = append(d.journal, e)
		d.w.truth.committed(e)
	}
	t.rows, t.order, t.entries, t.others = nil, nil, nil, nil
}

// mark is how far a savepoint goes back.
type mark struct{ entries, others, order int }

func (t *txn) savepoint() mark { return mark{len(t.entries), len(t.others), len(t.order)} }

func (t *txn) undo(m mark) {
	t.entries, t.others = t.entries[:m.entries], t.others[:m.others]
	for _, key := range t.order[m.order:] {
		delete(t.rows, key)
	}
	t.order = t.order[:m.order]
}

func (t *txn) wrote() bool { return len(t.entries)+len(t.others)+len(t.order) > 0 }

// commandTx is the transaction as one command sees it.
type commandTx struct {
	command.Tx // its command touches nothing else
	t          *txn
}

func (c *commandTx) AuthorityRow(key authority.Key) (*authority.Row, error) {
	if err := c.t.at("the authority row"); err != nil {
		return nil, err
	}
	row := c.t.row(key)
	if c.t.db.w.mutant == mutantCachedAllow {
		if cached, ok := c.t.p.cache[key]; ok {
			return &cached, nil
		}
		if row.Effective(c.t.p.clock()) != 0 {
			c.t.p.cache[key] = row
		}
	}
	if row.Revision == 0 {
		return nil, nil //nolint:nilnil // the port's "no row"
	}
	until, vouched := c.t.db.vouched(key)
	if row.Uncompared = !vouched; vouched {
		c.t.until = min(c.t.until, until)
	}
	return &row, nil
}

func (c *commandTx) Current() bool { return c.t.db.current() }

func (c *commandTx) Recorded(_, idem string) (journal.Entry, bool, error) {
	for _, list := range [][]entry{c.t.entries, c.t.source().journal} {
		for _, e := range list {
			if e.idem == idem {
				return e.journal, true, nil
			}
		}
	}
	return journal.Entry{}, false, nil
}

func (c *commandTx) Version() domain.Version {
	return domain.Version(len(c.t.source().journal) + len(c.t.entries) + 1)
}

func (c *commandTx) StoreEpoch() uint64 { return c.t.db.storeEpoch }

func (c *commandTx) Append(e journal.Entry) error {
	key := authority.Key{InstallationID: e.InstallationID, WorkspaceID: e.WorkspaceID}
	c.t.entries = append(c.t.entries, entry{key: key, revision: e.Revision, idem: e.IdempotencyKey, journal: e})
	c.t.commands = true
	if c.t.autocommit {
		c.t.apply()
	}
	return nil
}

// touch is a command without a target.
type touch struct{}

func (touch) Check() *admission.Refusal { return nil }
func (touch) Canonical() any            { return "touch" }
func (touch) Targets() []string         { return nil }
func (touch) Prepare(command.Tx, command.Commit) (func() (command.Effect, error), error) {
	return func() (command.Effect, error) {
		return command.Effect{State: contract.StateApplied, TargetID: "task"}, nil
	}, nil
}
func (touch) ReadBack(command.Tx, string) (any, error) { return nil, nil } //nolint:nilnil // there is nothing to read
