package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

const (
	// watchWorkers handle versions at once, those of one object in order.
	watchWorkers = 16
	// maxPending bounds the versions of one object that wait for the store.
	// What is dropped beyond it shows as a gap in the history, which counts as
	// revoked.
	maxPending = 256
	// historyWait bounds how long a pass waits for the watch.
	historyWait = 2 * time.Second
	// retryLeast and retryMost bound the wait before a version is tried again.
	retryLeast = 10 * time.Millisecond
	retryMost  = 5 * time.Second
)

// watch is the handler of the approvals' watch, on every replica, leader or
// not. It looks at every version: what narrows becomes a hold at once, and only
// then counts as handled. It implements fence.History.
type watch struct {
	view     *view.View
	ledger   fence.Ledger
	cluster  *cluster
	bindings *bindings
	log      logr.Logger
	// believed tells whether somebody has checked a version, as far as is known at
	// once.
	believed func(uid string, generation int64) bool
	// narrowed is told each key whose row got a hold, or whose approval is gone. What is
	// gone without a hold took nothing away: whoever made it chose the key.
	narrowed func(key authority.Key, held bool)

	queue workqueue.TypedRateLimitingInterface[view.Place]

	mu      sync.Mutex
	objects map[view.Place]*watched
	// holds is the store and its epoch that the holds of what was handled are in.
	holds storeEpoch
	// handled is closed and replaced whenever a version has been handled.
	handled chan struct{}
}

// watched is what this process knows of the approval object at one place.
type watched struct {
	// newest is the version that the watch delivered last.
	newest version
	// pending are the versions to handle, in order.
	pending []version
	// last was handled last; from is the generation of its object from which on
	// every later version was compared with the one before it.
	last version
	from int64
	// anew is the newest generation that was handled and is of a write that does
	// more than narrow or confirm, as far as the one before it was handled too.
	anew int64
}

// storeEpoch names an epoch of a store.
type storeEpoch struct {
	storeID string
	epoch   uint64
}

// version is one version of an approval object; spec is nil when it is gone.
type version struct {
	uid        string
	generation int64
	spec       *authority.Approval
}

func newWatch(v *view.View, ledger fence.Ledger, c *cluster, b *bindings, log logr.Logger) *watch {
	return &watch{
		view: v, ledger: ledger, cluster: c, bindings: b, log: log,
		believed: func(string, int64) bool { return false },
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[view.Place](retryLeast, retryMost)),
		objects: map[view.Place]*watched{}, handled: make(chan struct{}),
	}
}

// The handler's functions take the view along and queue the version; nothing
// in them waits, or one object would delay all others.

// OnAdd implements cache.ResourceEventHandler.
func (w *watch) OnAdd(object any, _ bool) { w.observe(object, false) }

// OnUpdate implements cache.ResourceEventHandler.
func (w *watch) OnUpdate(_, object any) { w.observe(object, false) }

// OnDelete implements cache.ResourceEventHandler.
func (w *watch) OnDelete(object any) {
	if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	w.observe(object, true)
}

func (w *watch) observe(object any, deleted bool) {
	approval, ok := object.(*v1alpha1.PluginCapabilityApproval)
	if !ok {
		return
	}
	place := placeOf(approval)
	seen := version{uid: string(approval.UID), generation: approval.Generation, spec: kinds.ApprovalOf(approval)}
	if deleted {
		seen.spec = nil
	}
	w.view.SetApproval(place, view.Approval{
		UID: seen.uid, Generation: seen.generation, Spec: seen.spec,
		Installation: approval.Status.InstallationID, Revision: uint64(approval.Status.Revision),
	})
	if seen.spec != nil {
		if _, bound := w.view.Binding(seen.spec.WorkspaceID); !bound {
			// The view can't place it without; the process that leads may have
			// bound its workspace meanwhile.
			defer w.queue.Add(place)
		}
	}
	if w.append(place, seen) {
		w.queue.Add(place)
	}
}

// append queues a version unless it is the one that was delivered last.
func (w *watch) append(place view.Place, seen version) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	object := w.objects[place]
	if object == nil {
		object = &watched{}
		w.objects[place] = object
	}
	newest := object.newest
	if newest.uid == seen.uid && newest.generation == seen.generation && (newest.spec == nil) == (seen.spec == nil) {
		return false
	}
	if newest.uid != "" && newest.uid != seen.uid && newest.spec != nil {
		// Another UID is a deletion followed by a creation.
		object.pending = append(object.pending, version{uid: newest.uid, generation: newest.generation})
	}
	object.pending = append(object.pending, seen)
	if beyond := len(object.pending) - maxPending; beyond > 0 {
		object.pending = slices.Delete(object.pending, 0, beyond)
	}
	object.newest = seen
	return true
}

// beginIn makes the history begin anew unless it is of this very epoch of the
// store: in another store the holds of what was handled are gone, so nothing counts
// as handled but, once it is handled again, what stands there now.
func (w *watch) beginIn(in storeEpoch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holds == in {
		return
	}
	w.holds = in
	for place, object := range w.objects {
		w.objects[place] = &watched{newest: object.newest, pending: []version{object.newest}}
		w.queue.Add(place)
	}
}

// Start handles versions until ctx ends; it implements manager.Runnable.
func (w *watch) Start(ctx context.Context) error {
	if err := retry(ctx, w.log, "Reading which store holds what is handled", func(ctx context.Context) error {
		round, err := w.cluster.store.BeginRound(ctx)
		if err == nil {
			w.beginIn(storeEpoch{round.StoreID, round.StoreEpoch})
		}
		return err
	}); err != nil && ctx.Err() == nil {
		return err
	}
	var workers sync.WaitGroup
	for range watchWorkers {
		workers.Go(func() {
			for w.handleNext(ctx) {
			}
		})
	}
	<-ctx.Done()
	w.queue.ShutDown()
	workers.Wait()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (w *watch) NeedLeaderElection() bool { return false }

func (w *watch) handleNext(ctx context.Context) bool {
	place, shutDown := w.queue.Get()
	if shutDown {
		return false
	}
	defer w.queue.Done(place)
	if err := w.findBinding(ctx, place); err != nil {
		if ctx.Err() == nil {
			w.log.Error(err, "The binding of an approval's workspace is not known", "namespace", place.Namespace, "name", place.Name)
		}
		w.queue.AddRateLimited(place)
		return true
	}
	for {
		object, cur, ok := w.next(place)
		if !ok {
			w.queue.Forget(place)
			return true
		}
		link, err := w.handle(ctx, place, object.last, cur)
		if err != nil {
			if ctx.Err() == nil {
				w.log.Error(err, "A version of an approval waits", "namespace", place.Namespace, "name", place.Name, "generation", cur.generation)
			}
			w.queue.AddRateLimited(place)
			return true
		}
		w.done(place, object, cur, link)
	}
}

// findBinding looks up the binding that the view needs to place an approval.
func (w *watch) findBinding(ctx context.Context, place view.Place) error {
	w.mu.Lock()
	var newest *authority.Approval
	if object := w.objects[place]; object != nil {
		newest = object.newest.spec
	}
	w.mu.Unlock()
	if newest == nil {
		return nil
	}
	_, _, err := w.bindings.lookUp(ctx, newest.WorkspaceID)
	return err
}

// next returns the version of a place to handle, and what is known of its object.
// Only who handles a place changes what was handled last.
func (w *watch) next(place view.Place) (object *watched, cur version, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	object = w.objects[place]
	if object == nil || len(object.pending) == 0 {
		return nil, version{}, false
	}
	return object, object.pending[0], true
}

// link is how a version that was handled joins the history before it.
type link int

const (
	// compared: with the version that the watch had handled before.
	compared link = iota
	// follows: it was compared with what its row had processed, the version before.
	follows
	// dropped: it takes something away from the row that it names and that has
	// processed nothing, and as far as is known it doesn't stand at that row's place.
	// In a store that was lost the binding that says so may come back later, and the
	// row with it: that this version took away is in no hold, and must not be
	// forgotten (I7).
	dropped
)

// delivered returns the content of a version, nil where the watch hasn't delivered
// it or has delivered a later one.
func (w *watch) delivered(place view.Place, v version) *authority.Approval {
	w.mu.Lock()
	defer w.mu.Unlock()
	object := w.objects[place]
	if object == nil || object.newest.uid != v.uid || object.newest.generation != v.generation {
		return nil
	}
	return object.newest.spec
}

// done records that cur was handled, which is what fence.History speaks of. It
// doesn't count where the history has begun anew meanwhile.
func (w *watch) done(place view.Place, object *watched, cur version, joins link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.objects[place] != object {
		return
	}
	if i := slices.Index(object.pending, cur); i >= 0 {
		// Versions before it were dropped for want of room, or it is the first.
		object.pending = slices.Delete(object.pending, 0, i+1)
	}
	if joins == dropped || object.last.uid != cur.uid || cur.generation > object.last.generation+1 {
		if object.from = cur.generation; joins == follows {
			object.from--
		}
	}
	switch before := object.last; {
	case before.uid != cur.uid && cur.generation == 1:
		object.anew = 1
	case before.uid != cur.uid:
		object.anew = 0
	case cur.generation != before.generation+1:
		// Of a write that was compared with another version than the one that it
		// replaced, nobody knows what the policies made of it.
	case before.spec != nil && cur.spec != nil && !narrowsOrConfirms(before.spec, cur.spec):
		object.anew = cur.generation
	}
	object.last = cur
	if cur.spec == nil && len(object.pending) == 0 && object.newest == cur {
		delete(w.objects, place)
	}
	close(w.handled)
	w.handled = make(chan struct{})
}

// WatchedFrom implements fence.History.
func (w *watch) WatchedFrom(ctx context.Context, object fence.Object, generation int64) (int64, error) {
	timeout := time.NewTimer(historyWait)
	defer timeout.Stop()
	place := view.Place{Namespace: object.Namespace, Name: object.Name}
	for {
		w.mu.Lock()
		var last version
		var from int64
		if known := w.objects[place]; known != nil {
			last, from = known.last, known.from
		}
		handled := w.handled
		w.mu.Unlock()
		if last.uid == object.UID && last.generation >= generation {
			return from, nil
		}
		select {
		case <-handled:
		case <-timeout.C:
			return 0, nil
		case <-ctx.Done():
			return 0, fmt.Errorf("wait for the watch of approval %s/%s: %w", object.Namespace, object.Name, ctx.Err())
		}
	}
}

// writtenAnew tells whether this process has handled a version of an object, after
// since and up to generation, of a write that the admission policies check whole.
// The answer is no where it hasn't handled exactly up to generation.
func (w *watch) writtenAnew(ctx context.Context, object fence.Object, since, generation int64) (bool, error) {
	from, err := w.WatchedFrom(ctx, object, generation)
	if err != nil || from == 0 {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.objects[view.Place{Namespace: object.Namespace, Name: object.Name}]
	return known != nil && known.last.uid == object.UID && known.last.generation == generation && known.anew > since, nil
}

// narrowsOrConfirms tells whether a write needs nobody's right to approve, by the
// admission policies: it takes away, or adds the second human.
func narrowsOrConfirms(before, after *authority.Approval) bool {
	for _, id := range after.Unknown {
		if !slices.Contains(before.Unknown, id) {
			return false
		}
	}
	return before.InstallationID == after.InstallationID && before.WorkspaceID == after.WorkspaceID &&
		before.ManifestDigest == after.ManifestDigest && before.SupersedesAct == after.SupersedesAct &&
		before.ApprovedBy == after.ApprovedBy && before.ApprovedVia == after.ApprovedVia &&
		before.Capabilities.Covers(after.Capabilities) && (after.Revoked || !before.Revoked) &&
		(before.ExpiresAt.IsZero() || !after.ExpiresAt.IsZero() && !after.ExpiresAt.After(before.ExpiresAt))
}

// handle makes what a version takes away durable, in every row that it may
// concern.
func (w *watch) handle(ctx context.Context, place view.Place, prev, cur version) (joins link, err error) {
	for _, key := range w.concerned(place, prev, cur) {
		row, held, err := w.handleFor(ctx, key, place, prev, cur)
		if errors.Is(err, errUnplaced) {
			if err = nil; cur.spec != nil && keyOf(cur.spec) == key {
				joins = dropped
			}
		}
		if err != nil {
			return joins, fmt.Errorf("handle generation %d for installation %s in workspace %s: %w",
				cur.generation, key.InstallationID, key.WorkspaceID, err)
		}
		// Another replica's watch may have been first.
		held = held || row.Hold != nil && row.Hold.UID == cur.uid && row.Hold.Generation == cur.generation
		if held || cur.spec == nil {
			w.narrowed(key, held)
		}
		if joins != dropped && cur.spec != nil && keyOf(cur.spec) == key &&
			row.Seen.UID == cur.uid && row.Seen.Generation+1 == cur.generation {
			joins = follows
		}
	}
	return joins, nil
}

var errUnplaced = errors.New("a version takes away where no row is known to stand")

// handleFor handles a version for one row, which it returns as it was compared.
func (w *watch) handleFor(ctx context.Context, key authority.Key, place view.Place, prev, cur version) (row authority.Row, held bool, err error) {
	for {
		if row, err = w.ledger.Row(ctx, key); err != nil {
			return row, false, fmt.Errorf("read the row: %w", err)
		}
		held, err = w.hold(ctx, row, place, prev, cur)
		if !errors.Is(err, fence.ErrOvertaken) {
			return row, held, err
		}
	}
}

// concerned lists the keys that a version may concern: those it and the version
// before name, and those whose place it stands at.
func (w *watch) concerned(place view.Place, prev, cur version) []authority.Key {
	var keys []authority.Key
	add := func(key authority.Key) {
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	for _, v := range []version{prev, cur} {
		if v.spec != nil {
			add(keyOf(v.spec))
		}
	}
	for _, key := range w.view.KeysAt(place) {
		add(key)
	}
	return keys
}

// hold holds what cur takes away from one row. A version of the object that the
// row has processed speaks for itself, and so does any version at the row's place
// where it has processed none: nothing can be newer. Of any other object a lagging
// watch says nothing, so a live read has to agree (authority.Narrowing).
func (w *watch) hold(ctx context.Context, row authority.Row, place view.Place, prev, cur version) (held bool, err error) {
	before := prev.spec
	if prev.uid != cur.uid {
		before = nil
	}
	after := cur.spec
	if after != nil {
		after = new(*cur.spec)
		after.Checked = w.believed(cur.uid, cur.generation)
	}
	// Most versions narrow nothing; those need no read.
	hold, narrows := authority.Narrowing(row, before, after)
	if !narrows {
		return false, nil
	}
	other := row.Seen.UID != cur.uid
	if other {
		// Before anything is read live: whoever writes an approval chooses the key in it.
		stands, err := w.cluster.standsAt(ctx, row.Key, place)
		if err != nil {
			return false, err
		}
		if !stands && row.Seen.UID == "" {
			return false, errUnplaced
		}
		if !stands {
			return false, nil
		}
	}
	if other = other && row.Seen.UID != ""; other {
		live, err := w.cluster.read(ctx, row.Key)
		if err != nil {
			return false, err
		}
		present := live.Intent.Approval
		switch {
		case live.place == nil || *live.place != place || live.Intent.Installation == nil:
			// It doesn't stand where the row's approval stands, or nothing can ever
			// stand there again.
			return false, nil
		case present != nil && present.UID == row.Seen.UID:
			// What the row has processed is there: this version is older.
			return false, nil
		case present == nil && after != nil:
			// It is gone by now. Its deletion is the next version.
			return false, nil
		case present != nil && after != nil && present.UID != after.UID:
			if hold, narrows = authority.Narrowing(row, nil, present); !narrows {
				return false, nil
			}
		}
	}
	if _, err := w.ledger.Hold(ctx, row, hold); err != nil {
		return false, fmt.Errorf("hold a narrowing: %w", err)
	}
	if other {
		w.view.Confirm(place, cur.uid)
	}
	return true, nil
}
