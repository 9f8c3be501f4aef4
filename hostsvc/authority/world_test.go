package authority

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
)

const (
	readTasks  = contract.CapabilitySet(1 << contract.ReadTasks)
	writeTasks = contract.CapabilitySet(1 << contract.WriteTasks)
	sessions   = contract.CapabilitySet(1 << contract.ReadSessions)
	inbox      = contract.CapabilitySet(1 << contract.ReadTaskInbox)
	allOfTest  = readTasks | writeTasks | sessions | inbox
)

var (
	epoch   = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	testKey = Key{InstallationID: "inst-1", WorkspaceID: "ws-1"}
)

// manifests of the test's plugin, by digest.
var manifests = map[string]contract.CapabilitySet{
	digestOf(0): allOfTest,
	digestOf(1): readTasks | sessions,
	digestOf(2): allOfTest &^ inbox,
}

func digestOf(i int) string { return contract.ManifestDigestPrefix + strings.Repeat(fmt.Sprint(i), 64) }

// fataler is testing.T or rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// world is one key with the objects it depends on and one process that
// watches them: humans edit, the watch handler holds, settle makes passes.
// Whatever happens in it is checked against the invariants.
type world struct {
	t   fataler
	row Row

	approval     *Approval
	installation *Installation
	workspace    *Workspace
	policy       Policy
	now          time.Time

	// watching: the process is up. handled is the version it handled last and
	// watchedFrom the first of its object.
	watching    bool
	handled     *Approval
	watchedFrom int64
	// lagging: the watch delivers later; pending are the versions on their way.
	lagging bool
	pending []*Approval
	// generations are those that this process has handled, by UID.
	generations map[string]map[int64]bool
	// spoke are the objects of which it has handled a version that names the key.
	spoke map[string]bool

	objects int
	names   int
	events  []Event
	// applied holds every spec that was ever in the API.
	applied []Approval
	// acts holds every act name that ever was current.
	acts map[string]bool
	// firstApplied and narrowed are ticks: when a manifest was applied first,
	// and when a human last took something away.
	tick         int
	firstApplied map[string]int
	narrowed     int
	// narrowedBy is the version that did, and before when one did before it:
	// the narrowing of a version does not spend the name it uses itself.
	narrowedBy Seen
	before     int
	// beforeObject is what narrowed and before were when the object was created.
	beforeObject [2]int

	outcome Outcome
}

func newWorld(t fataler) *world {
	w := &world{
		t: t, now: epoch, watching: true, policy: Policy{Version: "p1", Allowed: contract.AllCapabilities},
		workspace: &Workspace{ID: testKey.WorkspaceID, Namespace: "team", NamespaceUID: "ns-1"},
		acts:      map[string]bool{"": true}, firstApplied: map[string]int{}, generations: map[string]map[int64]bool{},
		spoke: map[string]bool{},
		row:   Row{Key: testKey},
	}
	w.installation = &Installation{
		UID: "inst-uid", ID: testKey.InstallationID, Name: "plugin", Version: "1",
		ServiceAccountNamespace: "plugins", ServiceAccountName: "plugin",
		ServiceAccountUID: "sa-1", ServiceAccountNamespaceUID: "sans-1",
	}
	w.manifest(digestOf(0))
	return w
}

func (w *world) manifest(digest string) {
	w.installation.ManifestDigest, w.installation.Declared = digest, manifests[digest]
	w.installation.Required = 0
}

func (w *world) intent() Intent {
	in := Intent{Policy: w.policy}
	if w.approval != nil {
		a := *w.approval
		in.Approval = &a
	}
	if w.installation != nil {
		i := *w.installation
		in.Installation = &i
	}
	if w.workspace != nil {
		ws := *w.workspace
		in.Workspace = &ws
	}
	if w.watching && in.Approval != nil && len(w.pending) == 0 {
		in.WatchedFrom = w.watchedFrom
	}
	return in
}

// spec is a manifest that grants caps and names the current act and digest.
func (w *world) spec(caps contract.CapabilitySet) Approval {
	return Approval{
		InstallationID: testKey.InstallationID, WorkspaceID: testKey.WorkspaceID, ManifestDigest: w.installation.ManifestDigest,
		SupersedesAct: w.row.Act, Capabilities: caps, ApprovedBy: "alice", Reason: "because", Checked: true,
	}
}

func manifestKey(a Approval) string {
	a.UID, a.Generation, a.Reason, a.ChangedBy = "", 0, "", ""
	return fmt.Sprintf("%+v", a)
}

// apply is "kubectl apply" of a manifest: it creates or edits.
func (w *world) apply(spec Approval) {
	w.tick++
	before := w.approval
	if before == nil {
		w.objects++
		spec.UID, spec.Generation = fmt.Sprintf("uid-%d", w.objects), 1
	} else {
		spec.UID, spec.Generation = before.UID, before.Generation+1
	}
	w.applied = append(w.applied, spec)
	if before == nil {
		w.beforeObject = [2]int{w.narrowed, w.before}
	} else if humanNarrowed(before, &spec) {
		w.humanNarrows(spec.UID, spec.Generation)
	}
	if _, known := w.firstApplied[manifestKey(spec)]; !known {
		w.firstApplied[manifestKey(spec)] = w.tick
	}
	w.approval = &spec
	w.deliver(&spec)
}

func (w *world) humanNarrows(uid string, generation int64) {
	w.before, w.narrowed, w.narrowedBy = w.narrowed, w.tick, Seen{UID: uid, Generation: generation}
}

// humanNarrowed is the test's own idea of a narrowing edit.
func humanNarrowed(before, after *Approval) bool {
	if before.mismatch(testKey) != MismatchNone {
		return false
	}
	ends := func(a *Approval) time.Time {
		if a.ExpiresAt.IsZero() {
			return epoch.AddDate(1000, 0, 0)
		}
		return a.ExpiresAt
	}
	return after.mismatch(testKey) != MismatchNone || after.Revoked && !before.Revoked ||
		before.Capabilities&^after.Capabilities != 0 || ends(after).Before(ends(before))
}

func (w *world) edit(change func(*Approval)) {
	spec := *w.approval
	change(&spec)
	w.apply(spec)
}

func (w *world) remove() {
	w.tick++
	// An object that no pass and no handler ever saw speak for the key can't be missed,
	// nor what humans took away from it: that hole is told in the docs.
	uid := w.approval.UID
	switch known := w.watching && !w.lagging && w.spoke[uid] || w.row.Seen.UID == uid && !w.row.Seen.Gone; {
	case !known:
		w.narrowed, w.before, w.narrowedBy = w.beforeObject[0], w.beforeObject[1], Seen{}
	case w.approval.mismatch(testKey) == MismatchNone:
		w.humanNarrows("", 0)
	}
	w.approval = nil
	w.deliver(nil)
}

// deliver is the watch: now, or when the process catches up.
func (w *world) deliver(cur *Approval) {
	if !w.watching {
		return
	}
	if w.pending = append(w.pending, cur); !w.lagging {
		w.catchUp()
	}
}

func (w *world) catchUp() {
	w.lagging = false
	for _, cur := range w.pending {
		if cur != nil && cur.Generation == 1 {
			w.watchedFrom = 1
		}
		w.handle(cur)
	}
	w.pending = nil
}

// handle is the watch handler: it sees every version, and takes what is about
// another object than the processed one only when it still is so.
func (w *world) handle(cur *Approval) {
	prev := w.handled
	var confirmed bool
	switch w.handled = cur; {
	case cur == nil:
		confirmed = w.approval == nil || prev != nil && prev.UID == w.row.Seen.UID
	default:
		confirmed = w.approval != nil && w.approval.UID == cur.UID || cur.UID == w.row.Seen.UID
		if w.generations[cur.UID] == nil {
			w.generations[cur.UID] = map[int64]bool{}
		}
		w.generations[cur.UID][cur.Generation] = true
		w.spoke[cur.UID] = w.spoke[cur.UID] || cur.mismatch(testKey) == MismatchNone
	}
	if !confirmed {
		return
	}
	if hold, ok := Narrowing(w.row, prev, cur); ok {
		w.hold(hold)
	}
}

// hold merges as the store does.
func (w *world) hold(hold Hold) {
	before := w.row
	if w.row.Seen.UID == hold.UID && hold.UID != "" && hold.Generation <= w.row.Seen.Generation {
		return
	}
	merged := w.row.Hold.Merge(hold)
	w.row.Hold = &merged
	if w.row.Effective(w.now)&^before.Effective(w.now) != 0 {
		w.t.Fatalf("a hold widened: %+v on %+v", hold, before)
	}
	if again := merged; !(&again).Equal(ptr((&again).Merge(hold))) {
		w.t.Fatalf("the same narrowing again changes the hold: %+v", merged)
	}
}

func ptr[T any](v T) *T { return &v }

// down stops the process; up starts one that knows nothing but the row.
func (w *world) down() {
	w.watching, w.handled, w.watchedFrom, w.lagging, w.pending = false, nil, 0, false, nil
	w.generations, w.spoke = map[string]map[int64]bool{}, map[string]bool{}
}

func (w *world) up() {
	w.tick++
	w.watching = true
	if a := w.approval; a != nil {
		w.watchedFrom = a.Generation
		w.handle(a)
	}
}

// settle makes passes until nothing is left to do, and returns the last
// outcome that changed something, or the only one.
func (w *world) settle() Outcome {
	w.t.Helper()
	var changed *Outcome
	for range 5 {
		out := w.pass()
		if !out.Changed {
			w.settled()
			w.outcome = out
			if changed != nil {
				changed.Review = out.Review
				return *changed
			}
			return out
		}
		changed = &out
	}
	w.t.Fatalf("no steady state: %+v", w.row)
	panic("unreachable")
}

// pass is hold, compute, event and fence, without anything in between.
func (w *world) pass() Outcome {
	w.t.Helper()
	w.tick++
	in := w.intent()
	if w.row.rebound(in) || in.Workspace == nil && w.row.Vector.WorkspaceNamespaceUID != "" {
		w.humanNarrows("", 0)
	}
	if a := in.Approval; a != nil && a.mismatch(testKey) == MismatchNone {
		processed := int64(0)
		if w.row.Seen.UID == a.UID {
			processed = w.row.Seen.Generation
		}
		for g := processed + 1; g < a.Generation; g++ {
			if !w.generations[a.UID][g] {
				w.humanNarrows("", 0) // something nobody saw
			}
		}
	}
	for _, hold := range Narrowings(w.row, in) {
		w.hold(hold)
	}
	w.names++
	out := Compute(w.row, in, w.now, fmt.Sprintf("n%d", w.names))
	w.check(in, out)
	if out.Changed {
		event, err := NewEvent(w.row, out, "plugin")
		if err != nil {
			w.t.Fatalf("%v", err)
		}
		if err := event.Verify(); err != nil {
			w.t.Fatalf("%v", err)
		}
		if !event.Applied.Equal(w.row.Hold) || event.PreviousHash != w.row.EventHash {
			w.t.Fatalf("the event is not about the row: %+v", event)
		}
		w.events = append(w.events, event)
		w.row = event.Row
	}
	w.row.Seen = out.Next.Seen
	return out
}

func (w *world) narrowedBefore(a *Approval) int {
	if w.narrowedBy == (Seen{UID: a.UID, Generation: a.Generation}) {
		return w.before
	}
	return w.narrowed
}

func widens(row, next Row) bool {
	return next.State == StateActive && (row.State != StateActive || !row.Granted.Covers(next.Granted) || later(next.ExpiresAt, row.ExpiresAt))
}

// check holds one outcome against the invariants, without looking at how it
// was computed.
func (w *world) check(in Intent, out Outcome) {
	w.t.Helper()
	row, next := w.row, out.Next
	if !out.Changed {
		if next.Seen = row.Seen; !sameRow(next, row) {
			w.t.Fatalf("I3: changed without a revision:\n%+v\n%+v", row, next)
		}
		return
	}
	if next.Revision != row.Revision+1 {
		w.t.Fatalf("I3: revision %d after %d", next.Revision, row.Revision)
	}
	if next.Hold != nil || next.Starting || next.State == StateNone {
		w.t.Fatalf("a revision with a mark or without a state: %+v", next)
	}
	if out.Type == "" || next.Cause == "" || next.Actor.Assurance == "" {
		w.t.Fatalf("a revision that does not say why: %s %+v", out.Type, next)
	}
	if next.Cause == CauseStoreEpoch && !row.Starting {
		w.t.Fatalf("a revision with a made-up cause:\n%+v\n%+v", row, next)
	}
	if next.Act != row.Act {
		if w.acts[next.Act] {
			w.t.Fatalf("I7: act %q again", next.Act)
		}
		w.acts[next.Act] = true
	}
	if next.State != StateActive && next.Effective(w.now) != 0 {
		w.t.Fatalf("I2: inactive and effective")
	}
	if seen := row.Seen; seen.UID != "" && next.Seen.UID == seen.UID && next.Seen.Generation < seen.Generation {
		w.t.Fatalf("seen went back from %+v to %+v", seen, next.Seen)
	}
	a := in.Approval
	if widens(row, next) {
		switch {
		case a == nil || a.Revoked || a.mismatch(testKey) != MismatchNone:
			w.t.Fatalf("I2: widened without an approval: %+v", next)
		case a.SupersedesAct != row.Act || next.Act == row.Act:
			w.t.Fatalf("I7: widened by %q while the act was %q, now %q", a.SupersedesAct, row.Act, next.Act)
		case in.Installation == nil || in.Workspace == nil || a.ManifestDigest != in.Installation.ManifestDigest:
			w.t.Fatalf("I7: widened on a digest that is not in force")
		case w.firstApplied[manifestKey(*a)] < w.narrowedBefore(a):
			w.t.Fatalf("I7: a manifest from before a narrowing widened: %+v", *a)
		case out.Type != EventGrant && next.State == StateActive && next.Granted != 0:
			w.t.Fatalf("a widening is told as %s", out.Type)
		}
	}
	if h := row.Hold; h != nil && (a == nil || h.Spent || h.UID != a.UID || h.Generation != a.Generation) && h.Cause.movesAct() {
		if !h.Granted.Covers(next.Granted) || h.State == StateRevoked && next.State == StateActive || later(next.ExpiresAt, h.ExpiresAt) && next.State == StateActive {
			w.t.Fatalf("the hold %+v is not in the revision %+v", *h, next)
		}
		if next.Act == row.Act {
			w.t.Fatalf("a held act did not move the name")
		}
		if next.Cause != h.Cause {
			w.t.Fatalf("the history says %s, the hold %s", next.Cause, h.Cause)
		}
	}
	w.checkHoldsCover(in, out)
}

// checkHoldsCover: what a revision takes away was in effect before it, by a
// hold or by the clock.
func (w *world) checkHoldsCover(in Intent, out Outcome) {
	w.t.Helper()
	row, next := w.row, out.Next
	granted := row.Granted
	active := row.State == StateActive && !row.Expired(w.now)
	if h := row.Hold; h != nil {
		granted &= h.Granted
		active = active && h.State == StateActive
	}
	actAdmitted := in.Approval != nil && in.Approval.SupersedesAct == row.Act && next.Act != row.Act && next.State == StateActive
	if active && !actAdmitted && (next.State != StateActive || !next.Granted.Covers(granted)) {
		w.t.Fatalf("not held: %+v becomes %+v", row, next)
	}
}

func sameRow(a, b Row) bool {
	a.Vector.ApprovalUID, b.Vector.ApprovalUID = "", ""
	if !a.ExpiresAt.Equal(b.ExpiresAt) || !a.Hold.Equal(b.Hold) {
		return false
	}
	a.ExpiresAt, b.ExpiresAt, a.Hold, b.Hold = time.Time{}, time.Time{}, nil, nil
	return a == b
}

// settled checks a steady state against the objects themselves.
func (w *world) settled() {
	w.t.Helper()
	row, in := w.row, w.intent()
	again := Compute(row, in, w.now, "again")
	if again.Changed || again.Next.Seen != row.Seen {
		w.t.Fatalf("not steady: %+v", again.Next)
	}
	if holds := Narrowings(row, in); len(holds) != 0 {
		w.t.Fatalf("held again in a steady state: %+v on %+v", holds, row)
	}
	effective := row.Effective(w.now)
	if effective == 0 {
		return
	}
	a, i := in.Approval, in.Installation
	switch {
	case a == nil || i == nil || in.Workspace == nil || a.mismatch(testKey) != MismatchNone,
		a.Revoked, reached(a.ExpiresAt, w.now),
		i.Suspended, i.PrincipalChanged, i.ServiceAccountConflict, i.HostVersionUnsupported, in.Workspace.Conflict:
		w.t.Fatalf("I2: effective %s with %+v %+v", effective, in, row)
	case !(a.Capabilities & i.Declared & in.Policy.Allowed).Covers(effective):
		w.t.Fatalf("I2: effective %s beyond spec, manifest or policy", effective)
	case !effective.Covers(i.Required):
		w.t.Fatalf("a required capability is missing from %s", effective)
	}
	if row.Sum != VectorOf(i, in.Workspace, in.Policy).Sum() {
		w.t.Fatalf("the vector in force is not the one of the objects")
	}
}

// checkReview: the review tells the truth. What it says is missing is missing,
// and applying exactly what it says makes it work.
func (w *world) checkReview() {
	w.t.Helper()
	row, in, review := w.row, w.intent(), w.outcome.Review
	a := in.Approval
	if a == nil || in.Installation == nil || in.Workspace == nil {
		return
	}
	if a.mismatch(testKey) != MismatchNone {
		if review == nil || review.Reason != ReviewWorkspaceMismatch && review.Reason != ReviewInstallationMismatch {
			w.t.Fatalf("a mismatch is reviewed as %+v", review)
		}
		return
	}
	if a.Revoked {
		return
	}
	asked := a.Capabilities & in.Installation.Declared & in.Policy.Allowed
	if review == nil {
		if row.State == StateActive && row.Granted == asked || row.State == StateExpired && reached(a.ExpiresAt, w.now) {
			return
		}
		w.t.Fatalf("nothing to review, but %s of %s granted, %s", row.Granted, asked, row.State)
	}
	if review.Act != row.Act || review.Digest != in.Installation.ManifestDigest {
		w.t.Fatalf("the review names act %q and digest %q, in force are %q and %q", review.Act, review.Digest, row.Act, in.Installation.ManifestDigest)
	}
	fork := w.fork()
	fork.edit(func(a *Approval) { a.SupersedesAct, a.ManifestDigest = review.Act, review.Digest })
	fork.settle()
	switch got := fork.row; {
	case reached(a.ExpiresAt, w.now):
		if got.State == StateActive {
			w.t.Fatalf("an expired approval is active")
		}
	case got.State != StateActive || got.Granted != asked || !got.ExpiresAt.Equal(a.ExpiresAt):
		w.t.Fatalf("applying the review %+v gives %+v, not %s", review, got, asked)
	}
}

func (w *world) fork() *world {
	c := *w
	if w.installation != nil {
		c.installation = ptr(*w.installation)
	}
	if w.workspace != nil {
		c.workspace = ptr(*w.workspace)
	}
	c.events, c.applied = slices.Clone(w.events), slices.Clone(w.applied)
	c.pending = slices.Clone(w.pending)
	c.generations, c.spoke = map[string]map[int64]bool{}, maps.Clone(w.spoke)
	for uid, known := range w.generations {
		c.generations[uid] = map[int64]bool{}
		for g := range known {
			c.generations[uid][g] = true
		}
	}
	c.acts, c.firstApplied = map[string]bool{}, map[string]int{}
	for k := range w.acts {
		c.acts[k] = true
	}
	for k, v := range w.firstApplied {
		c.firstApplied[k] = v
	}
	return &c
}

// rebuild loses the store and rebuilds the row from the newest event.
func (w *world) rebuild() {
	w.tick++
	if len(w.events) == 0 {
		w.row = Row{Key: testKey}
		return
	}
	w.row = w.events[len(w.events)-1].Rebuilt()
	w.row.Starting = true
}

// granted is a world with an approval of caps in force.
func granted(t *testing.T, caps contract.CapabilitySet) *world {
	t.Helper()
	w := newWorld(t)
	w.apply(w.spec(caps))
	w.settle()
	w.wantEffective(caps & w.installation.Declared)
	return w
}

func (w *world) wantEffective(want contract.CapabilitySet) {
	w.t.Helper()
	if got := w.row.Effective(w.now); got != want {
		w.t.Fatalf("effective is {%s}, want {%s}; row %+v", got, want, w.row)
	}
}
