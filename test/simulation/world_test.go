package simulation

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

const (
	workspaceID = "payments"
	namespace   = "team-payments"
	pluginName  = "standup"

	// lease is how long a round vouches for the rows, slack what a transaction may
	// take on top: together the promise of how long a revocation can take.
	lease = 15 * time.Second
	slack = 2 * time.Second
	// historyWait is how long a pass waits for its own watch.
	historyWait = 2 * time.Second
	// settleTurns bounds how long a healthy world may take to come to rest.
	settleTurns = 20_000
	// roundTurns is how many turns of a calm world pass between two rounds.
	roundTurns = 1_000
	// settleRounds is how often the leader may change, or a store epoch begin,
	// before a healthy world must be at rest.
	settleRounds = 4
	// keptLines is how much of a failure's story is told.
	keptLines = 60
)

var epoch = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// failure is a rule that did not hold.
type failure struct{ rule, what string }

func (f *failure) Error() string { return f.rule + ": " + f.what }

// killed unwinds an actor whose process was killed.
type killed struct{}

// profile is how a schedule is disturbed, drawn from its seed.
type profile struct {
	turns int
	// Of a hundred turns.
	people, faults, watches int
	// grants: it begins with a grant in force.
	grants bool
	// settled: it begins with everything at rest.
	settled bool
	// writers call without a pause.
	writers bool
	// tokens: the plugin's calls carry tokens, and its pods come and go.
	tokens bool
	// restores: the store may be lost or come back older. often: mostly that.
	restores, often bool
	// copies: the store is never lost, and older copies of it are put back, while
	// humans revoke and what keeps the cluster as Git has it heals.
	copies bool
	// harsh: humans only take away.
	harsh bool
	// deaf: the API server goes away as soon as a human has narrowed something.
	deaf bool
	// stuck: once it is at rest no event can be made and no watch shows anything, and
	// humans suspend.
	stuck bool
	// stalls: a pass may stand still before its fence, longer than a lease lasts,
	// while its approval is revoked and no watch shows it.
	stalls bool
	// clients is how many plugins call each replica, calls how often each does.
	clients, calls int
	// pace is how long a turn takes at most, leap how far time goes on in a turn
	// that lets it.
	pace, leap time.Duration
}

func draw(rng *rand.Rand) profile {
	p := profile{
		turns: 30 + rng.IntN(120), people: 2 + rng.IntN(12), faults: rng.IntN(8), watches: 10 + rng.IntN(25),
		grants: rng.IntN(4) > 0, writers: rng.IntN(8) == 0, tokens: rng.IntN(12) == 0, restores: rng.IntN(6) == 0,
		deaf:    rng.IntN(8) == 0,
		settled: rng.IntN(2) == 0, clients: 2, calls: 1 + rng.IntN(4), leap: 300 * time.Millisecond, pace: 20 * time.Millisecond,
	}
	if rng.IntN(10) == 0 {
		p.pace = 1200 * time.Millisecond
	}
	if rng.IntN(3) == 0 {
		p.leap = 8 * time.Second
	}
	if p.writers {
		p.calls = 12
	}
	return p
}

// copying is the profile with older copies of the store under a grant that is revoked
// and healed.
func (p profile) copying() profile {
	p.copies, p.restores, p.often, p.grants, p.settled, p.deaf = true, true, true, true, true, false
	p.people, p.faults = 6, 10
	return p
}

// world is one schedule.
type world struct {
	seed    uint64
	rng     *rand.Rand
	profile profile
	mutant  mutant

	// now is the true time since the epoch, tick the order of what is recorded.
	now  time.Duration
	tick int64
	api  *cluster
	db   *database
	// backup is an older copy of the store.
	backup *database
	procs  []*process
	actors []*actor
	last   *actor
	// calm: there are no faults. closed: nobody calls yet.
	calm, closed bool
	// restored: the store has lost commits.
	restored bool
	truth    truth

	// unclipped is what the mutant has granted beyond what is declared.
	unclipped map[authority.Key]contract.CapabilitySet

	threads *threads
	tracing bool
	lines   []string
	calls   int
}

// newWorld is the schedule of a seed with a mistake in it, of the kind that the
// mistake needs to matter.
func newWorld(seed uint64, m mutant, ts *threads) *world {
	w := worldFor(seed, m, ts)
	w.mutant = m
	return w
}

// worldFor is the kind of schedule in which a mutant would matter, without it.
func worldFor(seed uint64, m mutant, ts *threads) *world {
	w := &world{threads: ts, seed: seed, rng: rand.New(rand.NewPCG(seed, 0x5eed))}
	w.profile = draw(w.rng)
	w.profile.stalls = m == "" && seed%12 == 0
	if m == "" && seed%12 == 6 {
		w.profile = w.profile.copying()
	}
	if m != "" {
		w.profile = m.adjust(w.profile, w.rng)
	}
	w.unclipped = map[authority.Key]contract.CapabilitySet{}
	w.truth = newTruth(w)
	w.api = newCluster(w)
	w.db = newDatabase(w, "store-1")
	return w
}

// run plays the schedule and returns the first rule that it broke, or nil.
func (w *world) run() (failed *failure) {
	defer func() {
		if value := recover(); value != nil {
			f, ok := value.(*failure)
			if !ok {
				panic(value)
			}
			failed = f
		}
		w.tracing = false
		for _, a := range w.actors {
			a.end()
		}
	}()
	w.begin()
	for range w.profile.turns {
		w.turn()
	}
	w.settle()
	w.truth.linear()
	return nil
}

func (w *world) fail(rule, format string, args ...any) {
	panic(&failure{rule, fmt.Sprintf(format, args...)})
}

// log tells what happens; it costs nothing unless the story is wanted.
func (w *world) log(who, format string, args ...any) {
	if !w.tracing {
		return
	}
	line := fmt.Sprintf("%9.3fs %-11s %s", w.now.Seconds(), who, fmt.Sprintf(format, args...))
	w.lines = append(w.lines, line)
}

func (w *world) story(all bool) string {
	lines := w.lines
	if !all && len(lines) > keptLines {
		lines = lines[len(lines)-keptLines:]
	}
	return strings.Join(lines, "\n")
}

// chance is true in n of a thousand cases, and never in a calm world.
func (w *world) chance(n int) bool { return !w.calm && w.rng.IntN(1000) < n }

// actor is one thread of a process. It runs until it gives way, and its process
// may be killed or stopped whenever it does.
type actor struct {
	w      *world
	p      *process
	name   string
	thread *thread

	// wait is what it waits for, nil for its turn.
	wait func() bool
	over bool
}

// thread is what actors run on, one after the other: a new one for each would
// have to grow its stack again.
type thread struct {
	next func() (struct{}, bool)
	stop func()

	yield func(struct{}) bool
	run   func(*actor)
	actor *actor
	// ending: the actor is to unwind where it is.
	ending bool
}

// threads are those of one goroutine that have no actor.
type threads struct{ idle []*thread }

func (ts *threads) take() *thread {
	if n := len(ts.idle); n > 0 {
		t := ts.idle[n-1]
		ts.idle = ts.idle[:n-1]
		return t
	}
	t := &thread{}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		for yield(struct{}{}) {
			t.work()
		}
	})
	t.next()
	return t
}

// work runs one actor to its end.
func (t *thread) work() {
	defer func() {
		t.actor.over = true
		if value := recover(); value != nil {
			if _, ok := value.(killed); !ok {
				panic(value)
			}
		}
	}()
	if !t.ending {
		t.run(t.actor)
	}
}

func (ts *threads) stop() {
	for _, t := range ts.idle {
		t.stop()
	}
}

func (w *world) spawn(p *process, name string, run func(*actor)) {
	t := w.threads.take()
	a := &actor{w: w, p: p, name: name, thread: t}
	t.actor, t.run, t.ending = a, run, false
	w.actors = append(w.actors, a)
}

// at gives way before a step.
func (a *actor) at(point string) {
	a.pause()
	if a.w.tracing {
		a.w.log(a.name, "%s", point)
	}
}

func (a *actor) pause() {
	if !a.thread.yield(struct{}{}) || a.thread.ending {
		panic(killed{})
	}
}

// until gives way until something is so.
func (a *actor) until(so func() bool) {
	for !so() {
		a.wait = so
		a.pause()
	}
	a.wait = nil
}

func (a *actor) ready() bool {
	return !a.over && (a.p == nil || !a.p.paused) && (a.wait == nil || a.wait())
}

func (a *actor) resume() {
	a.thread.next()
	if a.over {
		a.w.threads.idle = append(a.w.threads.idle, a.thread)
	}
}

// end unwinds the actor where it is.
func (a *actor) end() {
	if a.over {
		return
	}
	a.thread.ending = true
	a.thread.next()
	a.w.threads.idle = append(a.w.threads.idle, a.thread)
}

// kill ends the actors of a process where they are.
func (w *world) kill(p *process, running *actor) {
	for _, a := range w.actors {
		if a.p == p && a != running {
			a.end()
		}
	}
	w.actors = slices.DeleteFunc(w.actors, func(a *actor) bool { return a.over || a == running })
}

// turn lets one thing happen.
func (w *world) turn() {
	w.pass(time.Duration(w.rng.Int64N(int64(w.profile.pace))))
	n := w.rng.IntN(100)
	switch p := &w.profile; {
	case n < p.people:
		w.somebody()
	case n < p.people+p.faults:
		w.disturb()
	case n < p.people+p.faults+p.watches:
		w.deliver()
	default:
		if w.resume() {
			return
		}
		if !w.deliver() {
			w.pass(time.Duration(w.rng.Int64N(int64(w.profile.leap))))
		}
	}
}

// pass lets time go on, and the database end what takes too long.
func (w *world) pass(d time.Duration) {
	w.now += d
	w.db.timeOut()
}

// resume gives one actor its turn; often the one that had it before.
func (w *world) resume() bool {
	if w.last != nil && w.rng.IntN(2) == 0 && w.last.ready() {
		w.last.resume()
		return true
	}
	n, from := len(w.actors), 0
	if n > 0 {
		from = w.rng.IntN(n)
	}
	for i := range n {
		if a := w.actors[(from+i)%n]; a.ready() {
			w.last = a
			a.resume()
			if len(w.actors) > 24 {
				w.actors = slices.DeleteFunc(w.actors, func(a *actor) bool { return a.over })
			}
			return true
		}
	}
	return false
}

// deliver lets one watch of one process show its next change.
func (w *world) deliver() bool {
	from := w.rng.IntN(len(w.procs))
	for i := range w.procs {
		p := w.procs[(from+i)%len(w.procs)]
		if p.paused || !p.alive {
			continue
		}
		first := w.rng.IntN(int(kinds))
		for k := range kinds {
			kind := (watched(first) + k) % kinds
			if p.frozen[kind] || (p.noAPI && p.cursor[kind] >= 0) {
				continue
			}
			if p.cursor[kind]+1 < len(w.api.logs[kind]) || p.cursor[kind] < 0 {
				p.see(kind)
				return true
			}
		}
	}
	return false
}

// begin starts the processes and makes one lead.
func (w *world) begin() {
	w.api.begin()
	for i := range 2 {
		p := newProcess(w, i)
		w.procs = append(w.procs, p)
		p.start()
	}
	if w.profile.grants {
		w.api.put(w.draft(readTasks | writeTasks))
	}
	w.procs[0].elect()
	if w.profile.settled {
		w.calm, w.closed = true, true
		for _, p := range w.procs {
			p.rounds++
		}
		w.rest()
		for _, p := range w.procs {
			p.rounds++
		}
		w.rest()
		w.calm, w.closed = false, false
	}
	if w.profile.stuck {
		w.api.refuseEvents = true
		for _, p := range w.procs {
			p.frozen = [kinds]bool{true, true, true, true, true}
		}
	}
}

// disturb makes one fault.
func (w *world) disturb() {
	if w.profile.often && w.rng.IntN(2) == 0 {
		w.restore()
		return
	}
	p := w.procs[w.rng.IntN(len(w.procs))]
	switch w.rng.IntN(17) {
	case 0, 1:
		p.crash("is killed")
	case 2, 3:
		if !p.paused && p.alive {
			w.log(p.name, "is stopped")
			p.paused = true
		}
	case 4, 5:
		if p.paused {
			w.log(p.name, "goes on")
			p.paused = false
		}
	case 6:
		p.noAPI = !p.noAPI
		w.log(p.name, "API server out of reach: %t", p.noAPI)
	case 7:
		p.noStore = !p.noStore
		w.log(p.name, "store out of reach: %t", p.noStore)
	case 8, 9:
		kind := watched(w.rng.IntN(int(kinds)))
		p.frozen[kind] = !p.frozen[kind]
		w.log(p.name, "watch of %s frozen: %t", kind, p.frozen[kind])
	case 10:
		kind := watched(w.rng.IntN(int(kinds)))
		if !p.paused && p.alive && !p.noAPI {
			p.relist(kind)
		}
	case 11:
		p.offset += time.Duration(w.rng.IntN(7)-3) * time.Second
		w.log(p.name, "its clock is off by %s", p.offset)
	case 12:
		// Forward only: what a lease is worth after a step back is the store's own
		// business, and its tests'.
		w.db.offset += time.Duration(w.rng.IntN(3)) * time.Second
		w.log("store", "its clock is off by %s", w.db.offset)
	case 13:
		w.api.refuseEvents = !w.api.refuseEvents
		w.log("api", "a webhook refuses events: %t", w.api.refuseEvents)
	case 14:
		w.electSomebody()
	case 15:
		w.restore()
	case 16:
		w.pass(time.Duration(w.rng.Int64N(int64(w.profile.leap) + 1)))
	}
}

// deafen takes the API server out of every replica's reach.
func (w *world) deafen() {
	if !w.profile.deaf || w.calm || !w.profile.harsh && w.rng.IntN(2) == 0 {
		return
	}
	w.log("api", "goes out of everybody's reach")
	for _, p := range w.procs {
		p.noAPI = true
	}
}

// electSomebody makes another process the leader: the one that led has lost its
// lease, whether or not it knows.
func (w *world) electSomebody() {
	for _, p := range w.procs {
		if p.alive && !p.paused && !p.noAPI && !p.elected {
			p.elect()
			return
		}
	}
}

// restore takes a copy of the store, puts the copy back, or loses the store.
func (w *world) restore() {
	if !w.profile.restores {
		return
	}
	n := w.rng.IntN(5)
	if w.profile.copies {
		n = w.rng.IntN(4)
	}
	switch {
	case n < 2 || w.backup == nil:
		w.backup = w.db.clone()
		w.log("store", "a copy is taken at beat %d", w.db.beat)
	case n < 4:
		if !w.tellable(w.backup) {
			return
		}
		w.log("store", "a copy of beat %d is put back", w.backup.beat)
		w.replaceStore(w.backup.clone())
	default:
		w.log("store", "is lost")
		w.replaceStore(newDatabase(w, "store-"+fmt.Sprint(w.rng.IntN(1<<30))))
	}
}

// tellable tells whether a copy can be told from the store: the cluster knows a later
// beat, and so does each process that knows the store at all.
func (w *world) tellable(db *database) bool {
	for _, p := range w.procs {
		if seen := p.progress; seen.id == db.id && seen.epoch == db.storeEpoch && seen.beat <= db.beat {
			return false
		}
	}
	return w.api.beat.storeID == db.id && w.api.beat.beat > db.beat
}

// replaceStore takes longer than any lease.
func (w *world) replaceStore(db *database) {
	for _, t := range w.db.open {
		t.dead = true
	}
	db.offset, db.open, db.lock = max(db.offset, w.db.offset), nil, locks{}
	w.pass(lease + slack)
	w.db, w.restored = db, true
	w.truth.storeReplaced()
}

// settle stops every fault, and demands that the world comes to rest as it should.
func (w *world) settle() {
	w.log("world", "the faults stop")
	w.calm = true
	w.api.refuseEvents = false
	w.api.proven = true
	for _, p := range w.procs {
		p.offset = 0
		p.noAPI, p.noStore, p.frozen = false, false, [kinds]bool{}
		if p.paused && w.rng.IntN(2) == 0 {
			p.paused = false
		} else if p.paused {
			p.crash("is killed")
		}
	}
	for range settleRounds {
		w.rest()
		if w.leader() == nil {
			w.procs[w.rng.IntN(len(w.procs))].elect()
			w.rest()
		}
		for _, p := range w.procs {
			p.rounds++
		}
		w.rest()
		if l := w.leader(); l != nil && w.db.current() {
			l.sweep()
			w.rest()
		}
		if w.healthy() {
			break
		}
	}
	w.truth.converged()
}

// healthy tells whether somebody leads and every replica has seen everything.
func (w *world) healthy() bool {
	for _, p := range w.procs {
		if len(p.view.Missing()) > 0 {
			return false
		}
	}
	return w.leader() != nil && w.db.leaseUntil > 0
}

func (w *world) leader() *process {
	for _, p := range w.procs {
		if p.alive && p.elected && p.leading && (p.term == w.db.term()) {
			return p
		}
	}
	return nil
}

// rest plays until nothing is left to do.
func (w *world) rest() {
	idle := 0
	for i := range settleTurns {
		if i%roundTurns == roundTurns-1 {
			for _, p := range w.procs {
				p.rounds++
			}
		}
		w.pass(time.Millisecond)
		if w.rng.IntN(3) > 0 && w.resume() || w.deliver() || w.resume() {
			idle = 0
			continue
		}
		// Nothing but time is waited for.
		idle++
		if idle > 5 {
			return
		}
		w.pass(500 * time.Millisecond)
	}
	w.fail("liveness", "the world doesn't come to rest")
}

const (
	readTasks  = contract.CapabilitySet(1 << contract.ReadTasks)
	writeTasks = contract.CapabilitySet(1 << contract.WriteTasks)
	readInbox  = contract.CapabilitySet(1 << contract.ReadTaskInbox)
	sessions   = contract.CapabilitySet(1 << contract.WriteSessions)
)

// nameSource draws the random part of act names.
type nameSource struct{ rng *rand.Rand }

func (n nameSource) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(n.rng.Uint32())
	}
	return len(p), nil
}

// zeros is what draws the names of the mutant that can be predicted.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func keyOf(installationID string) authority.Key {
	return authority.Key{InstallationID: installationID, WorkspaceID: workspaceID}
}
