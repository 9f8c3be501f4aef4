package simulation

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

// truth sees everything, in the order in which it happened, and holds what the
// replicas do against it.
type truth struct {
	w *world
	// index counts what humans did to approvals.
	index     int
	versions  []*applied
	byName    map[versionName]*applied
	first     map[manifest]int
	deletedAt map[string]int
	narrowed  []narrowing
	// changed is the index when the installation, the workspace or the policy
	// changed last.
	changed int
	pod     string

	// The level-based losses, each since when; negative for none.
	uninstalledAt, lostAt time.Duration
	// suspendedAt is since when the installation is suspended.
	suspendedAt time.Duration
	lacks       map[contract.Capability]time.Duration

	made map[string]made
	// actAt is the index when an act's name could be read, actFrom that of the
	// version it was minted for.
	actAt, actFrom map[string]int
	used           map[manifest]bool
	seen           map[seenName]int64
	inForce        map[revisionName]string
	highest        map[authority.Key]uint64
	shown          map[authority.Key]uint64
	ops            []*operation
	committedOps   map[string]int
}

type (
	versionName struct {
		uid        string
		generation int64
	}
	seenName struct {
		key authority.Key
		uid string
	}
	revisionName struct {
		key      authority.Key
		revision uint64
	}
)

// applied is one version of an approval.
type applied struct {
	index  int
	spec   *authority.Approval
	proven bool
}

// narrowing is what a human took away.
type narrowing struct {
	index int
	at    time.Duration
	key   authority.Key
	uid   string
	// generation is that of the version that took it, 0 for a deletion.
	generation int64
	// handled: some replica's watch has handled it, so it is held or moot.
	handled bool
	// left is what remained.
	left contract.CapabilitySet
	what string
}

// made is what an event was made from.
type made struct {
	from    *applied
	reading fence.Reading
	// grant is the index of the version that the power of the revision comes from.
	grant *applied
}

func newTruth(w *world) truth {
	return truth{
		w: w, byName: map[versionName]*applied{}, first: map[manifest]int{}, deletedAt: map[string]int{},
		uninstalledAt: -1, lostAt: -1, suspendedAt: -1, lacks: map[contract.Capability]time.Duration{},
		made: map[string]made{}, actAt: map[string]int{"": 0}, actFrom: map[string]int{}, used: map[manifest]bool{}, seen: map[seenName]int64{},
		inForce: map[revisionName]string{}, highest: map[authority.Key]uint64{}, shown: map[authority.Key]uint64{},
		committedOps: map[string]int{}, pod: "pod-1",
	}
}

func keyFor(a *authority.Approval) authority.Key {
	return authority.Key{InstallationID: a.InstallationID, WorkspaceID: a.WorkspaceID}
}

// What humans do.

func (h *truth) applied(before, spec *authority.Approval) {
	h.index++
	v := &applied{index: h.index, spec: spec, proven: spec.Checked}
	h.versions = append(h.versions, v)
	h.byName[versionName{spec.UID, spec.Generation}] = v
	if _, known := h.first[grantOf(*spec)]; !known {
		h.first[grantOf(*spec)] = h.index
	}
	if before == nil {
		return
	}
	if keyFor(before) != keyFor(spec) {
		h.narrow(keyFor(before), before.UID, spec.Generation, 0, "it names another installation")
		return
	}
	row := h.w.db.row(keyFor(spec))
	switch {
	case spec.Revoked && !before.Revoked:
		h.narrow(keyFor(spec), spec.UID, spec.Generation, 0, "a revocation")
	case row.State == authority.StateActive && (row.Hold == nil || row.Hold.State == authority.StateActive):
		granted := row.Granted
		if row.Hold != nil {
			granted &= row.Hold.Granted
		}
		if !spec.Capabilities.Covers(granted) && !spec.Revoked {
			h.narrow(keyFor(spec), spec.UID, spec.Generation, spec.Capabilities, "an edit")
		}
	}
}

func (h *truth) deleted(a *authority.Approval) {
	h.index++
	h.deletedAt[a.UID] = h.index
	h.narrow(keyFor(a), a.UID, 0, 0, "a deletion")
}

func (h *truth) narrow(key authority.Key, uid string, generation int64, left contract.CapabilitySet, what string) {
	h.narrowed = append(h.narrowed, narrowing{
		index: h.index, at: h.w.now, key: key, uid: uid, generation: generation, left: left, what: what,
	})
	h.w.deafen()
}

func (h *truth) installation() {
	h.changed = h.index
	i := h.w.api.installation
	if i == nil {
		h.uninstalledAt = h.w.now
		return
	}
	h.uninstalledAt = -1
	switch {
	case !i.Suspended:
		h.suspendedAt = -1
	case h.suspendedAt < 0:
		h.suspendedAt = h.w.now
	}
	h.lack()
}

func (h *truth) policy() { h.changed = h.index; h.lack() }

// lack notes since when the manifest or the policy leaves a capability out.
func (h *truth) lack() {
	i := h.w.api.installation
	if i == nil {
		return
	}
	for _, c := range []contract.Capability{contract.ReadTasks, contract.WriteTasks} {
		if _, lacks := h.lacks[c]; (i.Declared & h.w.api.policy.Allowed).Has(c) {
			delete(h.lacks, c)
		} else if !lacks {
			h.lacks[c] = h.w.now
		}
	}
}

func (h *truth) workspace() {
	h.changed = h.index
	n := h.w.api.namespace
	switch lost := n.uid != h.w.db.bound.NamespaceUID || !n.labelled; {
	case !lost:
		h.lostAt = -1
	case h.lostAt < 0:
		h.lostAt = h.w.now
	}
}

// handled is told of a version that a replica has handled, and of the one before.
// What it took away must be durable by then, unless the row has processed what came
// later.
func (h *truth) handled(prev, cur version) {
	for i := range h.narrowed {
		n := &h.narrowed[i]
		if n.uid != cur.uid || prev.uid != cur.uid || cur.spec == nil != (n.generation == 0) ||
			cur.spec != nil && n.generation != cur.generation {
			continue
		}
		seen := h.w.db.row(n.key).Seen
		v := h.byName[versionName{seen.UID, seen.Generation}]
		n.handled = n.handled || h.w.db.bound.ID != "" && (v == nil || v.index < n.index)
	}
}

// storeReplaced forgets what the rows of another store had seen, and what was held
// in them.
func (h *truth) storeReplaced() {
	clear(h.seen)
	for i := range h.narrowed {
		h.narrowed[i].handled = false
	}
	for _, key := range h.w.db.keys {
		h.sees(key, h.w.db.rows[key].Seen)
	}
	for _, e := range h.w.api.events {
		h.sees(e.Row.Key, e.Row.Seen)
	}
}

func (h *truth) sees(key authority.Key, seen authority.Seen) {
	if seen.UID != "" {
		name := seenName{key, seen.UID}
		h.seen[name] = max(h.seen[name], seen.Generation)
	}
}

// counts tells whether a narrowing is one that the protocol must not miss: of an
// object that a row has processed, or that a replica has handled. What no process
// ever saw, no rule closes.
func (h *truth) counts(n narrowing, uid string) bool {
	_, seen := h.seen[seenName{n.key, n.uid}]
	return seen || n.handled || n.uid == uid
}

// What the replicas do.

// creates is told before an event is tried.
func (h *truth) creates(e authority.Event, read *fence.Reading) {
	key, revision := e.Row.Key, e.Row.Revision
	if _, exists := h.w.api.event(key, revision); exists {
		return
	}
	previous, ok := h.w.api.event(key, revision-1)
	if revision != 1 && !ok || e.BeforeRevision != revision-1 || e.PreviousHash != previous.Row.EventHash {
		h.w.fail("I3", "event %s does not follow its sequence", e.Name())
	}
	m := made{grant: h.made[authority.EventName(key, revision-1)].grant}
	if read != nil {
		m.reading = *read
		if a := read.Intent.Approval; a != nil {
			m.from = h.byName[versionName{a.UID, a.Generation}]
		}
	}
	if m.from != nil && e.Row.Act != previous.Row.Act && e.Row.IssuedAt.Equal(e.Row.UpdatedAt) {
		m.grant = m.from
	}
	h.made[e.Name()] = m
	if _, known := h.actAt[e.Row.Act]; !known {
		h.actAt[e.Row.Act] = h.index
		if m.from != nil {
			h.actFrom[e.Row.Act] = m.from.index
		}
	}
}

// fences is told of a transaction that only the leader may commit.
func (h *truth) fences(t *txn, term fence.Term) {
	t.others = append(t.others, func() {
		if now := t.db.term(); now != term {
			h.w.fail("term", "a fence of term %+v commits in term %+v", term, now)
		}
	})
}

// marks is told of a version that is processed without a revision.
func (h *truth) marks(t *txn, read *fence.Reading, key authority.Key) {
	if read == nil {
		return
	}
	r := *read
	t.others = append(t.others, func() { h.processes(key, r) })
}

// processes notes that a manifest was processed while its digest was in force:
// it can't be used any more.
func (h *truth) processes(key authority.Key, r fence.Reading) {
	a, in := r.Intent.Approval, r.Intent
	if a == nil || keyFor(a) != key || in.Installation == nil || in.Workspace == nil || in.Policy.FourEyes != 0 {
		return
	}
	v := h.byName[versionName{a.UID, a.Generation}]
	if v != nil && v.spec.ManifestDigest == in.Installation.ManifestDigest && a.Checked {
		h.used[grantOf(*v.spec)] = true
	}
}

// holds is told of a hold under the lock.
func (h *truth) holds(_ *txn, row authority.Row, hold authority.Hold) {
	if hold.UID == "" || h.w.db.bound.ID == "" || row.Seen.Gone && hold.Cause == authority.CauseApprovalDeleted {
		// Whether an object that is gone is newer than another one that is, nobody can
		// tell: an act's name may be spent for nothing.
		return
	}
	processed := 0
	if v := h.byName[versionName{row.Seen.UID, row.Seen.Generation}]; v != nil {
		processed = v.index
	}
	switch hold.Cause {
	case authority.CauseApprovalDeleted:
		gone, ok := h.deletedAt[hold.UID]
		if !ok {
			h.w.fail("hold", "object %s is held as deleted, and is not", hold.UID)
		}
		if _, too := h.deletedAt[row.Seen.UID]; gone < processed && !too {
			h.w.fail("hold", "the deletion of %s is held, and the row has processed the later %+v", hold.UID, row.Seen)
		}
	case authority.CauseHuman:
		if v := h.byName[versionName{hold.UID, hold.Generation}]; v == nil || v.index <= processed && row.Seen.UID != hold.UID {
			h.w.fail("hold", "generation %d of %s is held, and the row has processed the later %+v", hold.Generation, hold.UID, row.Seen)
		}
	default:
	}
}

// stored is told of a row that is committed.
func (h *truth) stored(t *txn, before, after authority.Row) {
	key := after.Key
	if before.Seen.UID == after.Seen.UID && after.Seen.Generation < before.Seen.Generation {
		h.w.fail("seen", "it goes back from %+v to %+v", before.Seen, after.Seen)
	}
	defer h.sees(key, after.Seen)
	if after.Revision == before.Revision {
		return
	}
	w := h.w
	w.log(t.a.name, "the row goes from revision %d to %d: %s {%s} gates %v hold %t starting %t act %q",
		before.Revision, after.Revision, after.State, after.Granted, after.Gates.Names(), after.Hold != nil, after.Starting, after.Act)
	event, exists := w.api.event(key, after.Revision)
	if !exists {
		w.fail("I4", "revision %d is in force before its event exists", after.Revision)
	}
	plain, recorded := after, event.Row
	plain.Hold, plain.Starting, plain.Seen, plain.Sum = nil, false, authority.Seen{}, authority.VectorSum{}
	recorded.ReadAt = time.Time{}
	recorded.Hold, recorded.Starting, recorded.Seen, recorded.Sum = nil, false, authority.Seen{}, authority.VectorSum{}
	if plain != recorded {
		w.fail("event", "the row of revision %d is not its event:\n%+v\n%+v", after.Revision, plain, recorded)
	}
	name := revisionName{key, after.Revision}
	hash, known := h.inForce[name]
	switch {
	case known && hash != after.EventHash:
		w.fail("I3", "revision %d is used twice", after.Revision)
	case !known && after.Revision <= h.highest[key]:
		w.fail("I3", "revision %d comes after %d", after.Revision, h.highest[key])
	case !t.started && after.Revision != before.Revision+1:
		w.fail("I3", "a fence from revision %d to %d", before.Revision, after.Revision)
	}
	h.inForce[name] = after.EventHash
	h.highest[key] = max(h.highest[key], after.Revision)
	h.keepsHold(before, after, event)
	if !t.started {
		h.gains(before, after, event)
		h.processes(key, h.made[event.Name()].reading)
	}
	h.ops = append(h.ops, &operation{kind: opFence, key: key, revision: after.Revision, call: t.begun, answer: h.tick(), done: true})
}

// keepsHold demands that a hold which its event did not apply stays, unless it is
// of the very version that the event processed.
func (h *truth) keepsHold(before, after authority.Row, event authority.Event) {
	was, kept := before.Hold, after.Hold
	if was == nil || was.Equal(event.Applied) {
		return
	}
	if seen := event.Row.Seen; !was.Spent && was.UID != "" && was.UID == seen.UID && (was.Generation == seen.Generation ||
		seen.Gone && was.Cause == authority.CauseApprovalDeleted && was.Generation == seen.Generation+1) {
		return
	}
	switch {
	case kept == nil:
		h.w.fail("hold", "revision %d clears the hold %+v that its event did not apply", after.Revision, *was)
	case !was.Granted.Covers(kept.Granted), was.State != authority.StateActive && kept.State == authority.StateActive:
		h.w.fail("hold", "revision %d widens the hold %+v to %+v", after.Revision, *was, *kept)
	}
}

// gains demands an act of whatever a revision adds.
func (h *truth) gains(before, after authority.Row, event authority.Event) {
	was, now := before, after
	was.Gates, now.Gates, was.Starting, now.Starting = 0, 0, false, false
	at := after.UpdatedAt
	had, has := was.Effective(at), now.Effective(at)
	gained := has &^ had
	extended := had != 0 && has != 0 && !before.ExpiresAt.IsZero() && (after.ExpiresAt.IsZero() || after.ExpiresAt.After(before.ExpiresAt))
	if gained == 0 && !extended {
		return
	}
	w, m := h.w, h.made[event.Name()]
	if m.from == nil {
		w.fail("I7", "revision %d gains {%s} without an approval", after.Revision, gained)
	}
	a := m.from.spec
	what := fmt.Sprintf("revision %d gains {%s} from %s generation %d", after.Revision, gained, a.UID, a.Generation)
	in := m.reading.Intent
	switch {
	case a.Revoked, after.Act == before.Act:
		w.fail("I7", "%s, which is no act", what)
	case a.SupersedesAct != before.Act:
		w.fail("I7", "%s, which supersedes %q and not %q", what, a.SupersedesAct, before.Act)
	case in.Installation == nil || in.Workspace == nil || a.ManifestDigest != in.Installation.ManifestDigest:
		w.fail("I7", "%s, whose digest is not in force", what)
	case !m.from.proven:
		w.fail("I7", "%s, which nobody has checked", what)
	case h.used[grantOf(*a)]:
		w.fail("I7", "%s, whose manifest was processed before", what)
	case in.Policy.FourEyes&gained != 0 && (a.ConfirmedBy == "" || a.ConfirmedBy == a.ApprovedBy):
		w.fail("I7", "%s, which no second human has confirmed", what)
	case !a.Capabilities.Covers(gained), !in.Installation.Declared.Covers(gained), !in.Policy.Allowed.Covers(gained):
		w.fail("I2", "%s, beyond what was approved, declared or allowed", what)
	case !in.Installation.Declared.Covers(after.Granted):
		w.fail("I2", "revision %d grants {%s}, more than is declared", after.Revision, after.Granted&^in.Installation.Declared)
	}
	first := h.first[grantOf(*a)]
	if named, ok := h.actAt[a.SupersedesAct]; !ok || named > first {
		w.fail("I7", "%s, whose manifest lay in wait for the name %q", what, a.SupersedesAct)
	}
	for _, n := range h.narrowed {
		if n.key == after.Key && n.index > first && n.index <= m.from.index && h.counts(n, a.UID) && gained&^n.left != 0 {
			w.fail("I7", "%s by a manifest from before %s of %s", what, n.what, n.uid)
		}
	}
}

// published is told of a status before it is written.
func (h *truth) published(key authority.Key, revision uint64) {
	if revision == 0 {
		return
	}
	if _, exists := h.w.api.event(key, revision); !exists {
		h.w.fail("I4", "the status shows revision %d, which has no event", revision)
	}
	if _, ok := h.inForce[revisionName{key, revision}]; !ok {
		h.w.fail("I5", "the status shows revision %d, which is not in force", revision)
	}
	h.shown[key] = max(h.shown[key], revision)
	now := h.tick()
	h.ops = append(h.ops, &operation{kind: opShown, key: key, revision: revision, call: now, answer: now, done: true})
}

// committed is told of a command's entry in the transaction that commits it.
func (h *truth) committed(e entry) {
	w := h.w
	row := w.db.row(e.key)
	h.committedOps[e.idem]++
	if h.committedOps[e.idem] > 1 && !w.restored {
		w.fail("I9", "a command commits twice")
	}
	h.allowed(row, e.revision, contract.WriteTasks, e.journal.At, "a write commits")
	if e.revision < h.shown[e.key] {
		w.fail("I5", "a write commits under revision %d, and the status shows %d", e.revision, h.shown[e.key])
	}
}

// allowed demands that what happens now under a revision may happen now.
func (h *truth) allowed(row authority.Row, revision uint64, c contract.Capability, at time.Time, what string) {
	w := h.w
	if row.Revision != revision {
		w.fail("I5", "%s under revision %d, and %d is in force", what, revision, row.Revision)
	}
	if !row.Effective(at).Has(c) {
		w.fail("I5", "%s under revision %d, by which it is not effective: %s {%s} hold %t", what, revision, row.State, row.Granted, row.Hold != nil)
	}
	grant := h.made[authority.EventName(row.Key, revision)].grant
	if grant == nil {
		w.fail("I7", "%s under revision %d, which nobody granted", what, revision)
	}
	late := func(since time.Duration) bool { return since >= 0 && w.now > since+lease+slack }
	for _, n := range h.narrowed {
		if n.key == row.Key && n.index > grant.index && !n.left.Has(c) && h.counts(n, "") && late(n.at) {
			w.fail("latency", "%s %s after %s of %s", what, w.now-n.at, n.what, n.uid)
		}
	}
	if since, lacks := h.lacks[c]; lacks && late(since) {
		w.fail("latency", "%s %s after the manifest or the policy left it out", what, w.now-since)
	}
	if late(h.lostAt) || late(h.uninstalledAt) {
		w.fail("latency", "%s long after the workspace or the installation is gone", what)
	}
	if late(h.suspendedAt) {
		w.fail("latency", "%s %s after the installation was suspended", what, w.now-h.suspendedAt)
	}
}

// The history of calls.

type operationKind uint8

const (
	opFence operationKind = iota
	opShown
	opWrite
	opRead
)

type operation struct {
	kind         operationKind
	key          authority.Key
	revision     uint64
	call, answer int64
	idem         string
	done         bool
	row          authority.Row
	shown        uint64
}

func (h *truth) tick() int64 { h.w.tick++; return h.w.tick }

func (h *truth) call(_ *actor, kind operationKind, key authority.Key, revision uint64, idem string) *operation {
	if idem != "" {
		for _, op := range h.ops {
			if op.idem == idem {
				return op
			}
		}
	}
	op := &operation{kind: kind, key: key, revision: revision, call: h.tick(), idem: idem, row: h.w.db.row(key), shown: h.shown[key]}
	if kind == opWrite {
		h.ops = append(h.ops, op)
	}
	return op
}

func (h *truth) crashed(*process) {}

func (h *truth) answered(op *operation, result command.Result, refusal *admission.Refusal) {
	w := h.w
	if refusal != nil {
		h.refused(op, refusal)
		return
	}
	op.done, op.answer = true, h.tick()
	if w.restored {
		return
	}
	n := 0
	for _, e := range w.db.journal {
		if e.idem == op.idem {
			n++
		}
	}
	if n != 1 {
		w.fail("I8", "a command is answered %s and is %d times in the journal", result.State, n)
	}
}

// refused demands that a final answer is about something final.
func (h *truth) refused(op *operation, refusal *admission.Refusal) {
	w, row := h.w, op.row
	now := w.db.row(op.key)
	if refusal.Reason != contract.ReasonCapabilityRevoked || w.restored || row.State != authority.StateActive || row.Gates != 0 ||
		row.Hold != nil || now.Hold != nil || now.Revision != row.Revision || !row.ExpiresAt.IsZero() {
		return
	}
	processed := 0
	if v := h.byName[versionName{row.Seen.UID, row.Seen.Generation}]; v != nil {
		processed = v.index
	}
	for _, index := range h.deletedAt {
		if index > processed {
			return
		}
	}
	for _, v := range h.versions {
		if v.index > processed && (v.spec.Revoked || keyFor(v.spec) != op.key || !v.spec.ExpiresAt.IsZero()) {
			return
		}
	}
	w.fail("I6", "a call is refused for good under revision %d, and nothing newer is revoked", row.Revision)
}

func (h *truth) readDone(op *operation, revision uint64, refusal *admission.Refusal) {
	if refusal != nil {
		h.refused(op, refusal)
		return
	}
	op.revision, op.done, op.answer = revision, true, h.tick()
	h.ops = append(h.ops, op)
	if revision < op.shown {
		h.w.fail("I5", "a read that began when the status showed %d sees %d", op.shown, revision)
	}
	h.allowed(h.w.db.row(op.key), revision, contract.ReadTasks, h.w.procs[0].clock().Add(-time.Hour), "a read answers")
}

// register is the row as I5 promises it: a write commits under exactly the
// revision in force, a read sees it, a fence moves it on, and what a status shows
// is in force by then.
var register = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, _ any) (bool, any) {
		now, op := state.(uint64), input.(*operation)
		switch op.kind {
		case opFence:
			return op.revision > now, op.revision
		case opShown:
			return now >= op.revision, now
		default:
			return op.revision == now, now
		}
	},
}

// linear demands one order of all fences, writes, reads and statuses of a row
// that explains every answer. A history in which nothing overlapped a fence has
// been checked as it happened.
func (h *truth) linear() {
	if h.w.restored {
		return
	}
	histories := map[authority.Key][]porcupine.Operation{}
	var keys []authority.Key
	overlaps := false
	for i, op := range h.ops {
		if op.kind == opWrite && h.committedOps[op.idem] == 0 {
			continue
		}
		answer := op.answer
		if !op.done {
			answer = math.MaxInt64
		}
		if _, known := histories[op.key]; !known {
			keys = append(keys, op.key)
		}
		histories[op.key] = append(histories[op.key], porcupine.Operation{ClientId: i, Input: op, Call: op.call, Return: answer})
		if op.kind >= opWrite && !overlaps {
			for _, f := range h.ops {
				overlaps = overlaps || f.kind == opFence && f.call < answer && op.call < f.answer
			}
		}
	}
	if !overlaps {
		return
	}
	for _, key := range keys {
		if !porcupine.CheckOperations(register, histories[key]) {
			h.w.fail("linearizability", "no order explains the history of %d fences, writes and reads", len(histories[key]))
		}
	}
}

// converged demands that a world at rest is as its objects ask.
func (h *truth) converged() {
	w := h.w
	if w.db.leaseUntil == 0 || w.db.completeEpoch != w.db.storeEpoch {
		w.fail("liveness", "nothing vouches for the rows")
	}
	keys := append([]authority.Key(nil), w.db.keys...)
	for _, key := range keys {
		h.convergedRow(key)
	}
}

// intent is what the objects ask for now, all of it watched.
func (h *truth) intent(key authority.Key) authority.Intent {
	w, api := h.w, h.w.api
	in := authority.Intent{Policy: api.policy, WatchedFrom: 1}
	if i := api.installation; i != nil && i.ID == key.InstallationID {
		in.Installation = i
	}
	here := w.db.bound.ID != "" && api.namespace.uid == w.db.bound.NamespaceUID
	if bound := w.db.bound; here && api.namespace.labelled {
		in.Workspace = &bound
	}
	if a := api.approval; a != nil && here {
		approval := *a
		approval.Checked = a.Checked && w.db.distrusted[a.UID] < a.Generation
		in.Approval = &approval
	}
	return in
}

func (h *truth) convergedRow(key authority.Key) {
	w, api := h.w, h.w.api
	row := w.db.row(key)
	in := h.intent(key)
	now := epoch.Add(w.now).Truncate(time.Microsecond)
	if row.Hold != nil || row.Starting {
		w.fail("liveness", "the row of %s stays held or under a mark at revision %d", key.InstallationID, row.Revision)
	}
	if out := authority.Compute(row, in, now, "x"); out.Changed || out.Next.Seen != row.Seen {
		w.fail("liveness", "the row of %s is not what the objects ask for: revision %d %s {%s}, seen %+v, due %+v",
			key.InstallationID, row.Revision, row.State, row.Granted, row.Seen, out.Next)
	}
	// An event whose author never learnt that it exists waits for the next change,
	// or the next leader.
	if newest := api.newest[key]; newest != row.Revision && newest != row.Revision+1 {
		w.fail("I3", "the row is at revision %d and the history at %d", row.Revision, newest)
	}
	hash := ""
	for revision := uint64(1); revision <= row.Revision; revision++ {
		e, ok := api.event(key, revision)
		if !ok || e.PreviousHash != hash {
			w.fail("I3", "the history breaks at revision %d", revision)
		}
		hash = e.Row.EventHash
	}
	effective := row.Effective(now)
	h.keepsNothing(row, in, effective)
	h.losesNothing(row)
	if in.Installation == nil || in.Workspace == nil {
		return
	}
	if a := in.Approval; a != nil && keyFor(a) == key {
		if s := api.status; s.installationID != key.InstallationID || s.revision != row.Revision || s.waiting {
			w.fail("liveness", "the status shows %+v, in force is %d", s, row.Revision)
		}
	}
	if row.Revision == 0 {
		return
	}
	for _, p := range w.procs {
		verdict := authority.Decide(&row, p.view.Observe(key), true, authority.Call{Capability: contract.ReadTasks}, now)
		if verdict.Allowed() != effective.Has(contract.ReadTasks) || verdict.State == contract.StateUnavailable {
			w.fail("liveness", "%s answers %s/%s at revision %d, effective {%s}; it sees %+v, the row has %+v",
				p.name, verdict.State, verdict.Reason, row.Revision, effective, *p.view.Observe(key), row.Seen)
		}
	}
}

// keepsNothing demands that nothing is effective which was taken away, or which
// nobody asks for.
func (h *truth) keepsNothing(row authority.Row, in authority.Intent, effective contract.CapabilitySet) {
	w := h.w
	if effective == 0 {
		return
	}
	a := in.Approval
	if a == nil || keyFor(a) != row.Key || in.Installation == nil || in.Workspace == nil || a.Revoked ||
		!a.Capabilities.Covers(effective) || !in.Installation.Declared.Covers(effective) || !in.Policy.Allowed.Covers(effective) {
		w.fail("I2", "effective is {%s}, beyond what is asked, declared or allowed", effective)
	}
	grant := h.made[authority.EventName(row.Key, row.Revision)].grant
	if grant == nil {
		w.fail("I7", "{%s} is effective and nobody granted it", effective)
	}
	first := h.first[grantOf(*grant.spec)]
	for _, n := range h.narrowed {
		if n.key == row.Key && n.index > first && effective&^n.left != 0 && h.counts(n, a.UID) {
			w.fail("I7", "{%s} is effective by %s generation %d from before %s of %s",
				effective&^n.left, grant.spec.UID, grant.spec.Generation, n.what, n.uid)
		}
	}
}

// losesNothing demands that a grant which nobody took back is still there.
func (h *truth) losesNothing(row authority.Row) {
	w := h.w
	newest := h.made[authority.EventName(row.Key, row.Revision)].grant
	if newest == nil || w.restored || h.changed >= newest.index || h.index > newest.index+1 ||
		!newest.spec.ExpiresAt.IsZero() || newest.spec.Revoked {
		return
	}
	for _, v := range h.versions {
		if v.index > newest.index && (v.spec.Revoked || !v.spec.ExpiresAt.IsZero() || v.spec.UID != newest.spec.UID ||
			!v.spec.Capabilities.Covers(newest.spec.Capabilities) || keyFor(v.spec) != row.Key) {
			return
		}
	}
	if _, gone := h.deletedAt[newest.spec.UID]; gone {
		return
	}
	for _, n := range h.narrowed {
		// It may have spent the name before the manifest was written.
		if n.key == row.Key && n.index > h.actFrom[newest.spec.SupersedesAct] {
			return
		}
	}
	if h.unlucky(row, newest) {
		return
	}
	if i := w.api.installation; i == nil || row.State != authority.StateActive ||
		!row.Granted.Covers(newest.spec.Capabilities&i.Declared&w.api.policy.Allowed) && w.api.policy.FourEyes == 0 {
		w.fail("lost", "the grant of %s generation %d is gone and nobody took it back: %s {%s}",
			newest.spec.UID, newest.spec.Generation, row.State, row.Granted)
	}
}

// unlucky tells whether a revision since the grant took it away by a rule that
// rather loses a grant than a revocation: a hold of the version that granted, or of
// one before it, that was set between the grant's event and its fence; or a leader
// that had not watched two edits.
func (h *truth) unlucky(row authority.Row, grant *applied) bool {
	for revision := row.Revision; revision > 0; revision-- {
		e, _ := h.w.api.event(row.Key, revision)
		if hold := e.Applied; hold != nil && hold.UID == grant.spec.UID && hold.Generation <= grant.spec.Generation ||
			e.Row.Cause == authority.CauseUnseenChange {
			return true
		}
	}
	return false
}
