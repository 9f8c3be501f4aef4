package controllers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

const (
	// roundPage is the number of objects that one list call of a round asks for.
	roundPage = 500
	// roundReaders is how many calls of a round are made at once.
	roundReaders = 8
	// roundTries bounds how often a row that moves meanwhile is compared.
	roundTries = 8
	// movePoll is how often a round looks whether a pass has moved a row.
	movePoll = 20 * time.Millisecond
)

// comparison is one round's: every row with every object that it depends on, as
// the API server has them. In the steady state it costs a few lists, of metadata
// where that is enough, and one read for each installation's ServiceAccount.
type comparison struct {
	*rounds
	now time.Time
	// patience ends when the round no longer waits for the watch, or for a pass.
	patience time.Time

	policy        authority.Policy
	installations map[string]*authority.Installation // by ID
	namespaces    map[string]*metav1.PartialObjectMetadata
	// labelled counts the namespaces that bear the label of a workspace, by ID.
	labelled  map[string]int
	approvals map[view.Place]version

	mu         sync.Mutex
	fetched    map[view.Place]*authority.Approval
	unreadable map[view.Place]version
}

// compare holds, in every row, what it allows beyond what the objects ask for,
// and asks for the passes that are due. The rows are read first: what is read
// after them can't be older than what they were computed from.
func (r *rounds) compare(ctx context.Context) error {
	rows, err := r.store.Rows(ctx)
	if err != nil {
		return fmt.Errorf("list the rows: %w", err)
	}
	c := &comparison{
		rounds: r, now: r.now(), patience: time.Now().Add(min(historyWait, r.life/3)),
		fetched: map[view.Place]*authority.Approval{}, unreadable: map[view.Place]version{},
	}
	if err := c.read(ctx); err != nil {
		return err
	}
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(roundReaders)
	for i := range rows {
		row := &rows[i]
		in, place := c.intent(row)
		if c.settled(row, in, place) {
			continue
		}
		group.Go(func() error {
			if err := c.differs(running, *row, in, place); err != nil {
				return fmt.Errorf("compare installation %s in workspace %s: %w", row.Key.InstallationID, row.Key.WorkspaceID, err)
			}
			return nil
		})
	}
	err = group.Wait()
	r.fetched, r.unreadable = c.fetched, c.unreadable
	return err //nolint:wrapcheck // each of the group's errors says what it is of
}

// read reads every kind, past every cache.
func (c *comparison) read(ctx context.Context) error {
	var err error
	if c.policy, err = c.policies.inForce(ctx); err != nil {
		return err
	}
	c.namespaces, c.labelled = map[string]*metav1.PartialObjectMetadata{}, map[string]int{}
	err = c.list(ctx, corev1.SchemeGroupVersion.WithKind("NamespaceList"), func(o *metav1.PartialObjectMetadata) {
		c.namespaces[o.Name] = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: o.UID, Labels: o.Labels}}
		if id := o.Labels[v1alpha1.LabelWorkspaceID]; id != "" {
			c.labelled[id]++
		}
	})
	if err != nil {
		return err
	}
	if err := c.readInstallations(ctx); err != nil {
		return err
	}
	c.approvals = map[view.Place]version{}
	return c.list(ctx, v1alpha1.GroupVersion.WithKind("PluginCapabilityApprovalList"), func(o *metav1.PartialObjectMetadata) {
		c.approvals[placeOf(o)] = version{uid: string(o.UID), generation: o.Generation}
	})
}

// list calls fn with the metadata of every object that isn't being deleted: a
// deletion timestamp counts as absent.
func (c *comparison) list(ctx context.Context, kind schema.GroupVersionKind, fn func(*metav1.PartialObjectMetadata)) error {
	for next := ""; ; {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(kind)
		if err := c.live.List(ctx, page, client.Limit(roundPage), client.Continue(next)); err != nil {
			return fmt.Errorf("list for a %s: %w", kind.Kind, err)
		}
		for i := range page.Items {
			if page.Items[i].DeletionTimestamp == nil {
				fn(&page.Items[i])
			}
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}

func (c *comparison) readInstallations(ctx context.Context) error {
	var all v1alpha1.PluginInstallationList
	begun := c.rounds.now()
	if err := c.live.List(ctx, &all); err != nil {
		return fmt.Errorf("list the installations: %w", err)
	}
	c.refreshed(begun, all.Items)
	claims := map[v1alpha1.ServiceAccountReference][]v1alpha1.PluginInstallation{}
	account := func(o *v1alpha1.PluginInstallation) v1alpha1.ServiceAccountReference {
		return v1alpha1.ServiceAccountReference{Namespace: o.Spec.ServiceAccountRef.Namespace, Name: o.Spec.ServiceAccountRef.Name}
	}
	for _, o := range all.Items {
		claims[account(&o)] = append(claims[account(&o)], o)
	}
	c.installations = make(map[string]*authority.Installation, len(all.Items))
	var mu sync.Mutex
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(roundReaders)
	for i := range all.Items {
		o := &all.Items[i]
		if o.DeletionTimestamp != nil || o.Status.InstallationID == "" {
			continue
		}
		group.Go(func() error {
			if owns, err := c.cluster.owns(running, o, o.Status.InstallationID); err != nil || !owns {
				return err
			}
			ref := account(o)
			found, err := c.cluster.metadata(running, "ServiceAccount", client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name})
			if err != nil {
				return err
			}
			e, err := examinedOf(o, found, c.namespaces[ref.Namespace], claims[ref])
			if err != nil {
				c.log.Error(err, "An installation can't be understood; nothing of it works any more", "installation", o.Name)
				e.Installation = authority.Installation{UID: string(o.UID), ID: o.Status.InstallationID, Name: o.Name}
			}
			mu.Lock()
			defer mu.Unlock()
			c.installations[e.ID] = &e.Installation
			return nil
		})
	}
	return group.Wait() //nolint:wrapcheck // each of the group's errors says what it is of
}

// intent is what the lists say about a row, without its approval, and where that
// stands: nowhere when either end of it is gone.
func (c *comparison) intent(row *authority.Row) (authority.Intent, *view.Place) {
	in := authority.Intent{Policy: c.policy, Installation: c.installations[row.Key.InstallationID]}
	bound, ok := c.view.Binding(row.Key.WorkspaceID)
	if !ok {
		return in, nil
	}
	namespace := c.namespaces[bound.Namespace]
	if namespace == nil || string(namespace.UID) != bound.NamespaceUID {
		return in, nil
	}
	if namespace.Labels[v1alpha1.LabelWorkspaceID] == bound.ID {
		bound.Conflict = c.labelled[bound.ID] > 1
		in.Workspace = &bound
	}
	if in.Installation == nil {
		return in, nil
	}
	return in, &view.Place{Namespace: bound.Namespace, Name: in.Installation.Name}
}

// settled tells whether a row has taken in what the lists say. A wrong no costs
// a closer look.
func (c *comparison) settled(row *authority.Row, in authority.Intent, place *view.Place) bool {
	allows := row.State == authority.StateActive || row.State == authority.StateExpired
	switch {
	case row.Hold != nil || row.Starting || row.State == authority.StateActive && row.Expired(c.now):
		return false
	case in.Installation == nil:
		return !allows
	case place == nil || in.Workspace == nil:
		if allows || row.Vector.WorkspaceNamespaceUID != "" {
			return false
		}
	case differing(*row, in):
		return false
	}
	seen, present := version{}, false
	if place != nil {
		seen, present = c.approvals[*place]
	}
	if !present || c.speaksOfAnother(row.Key, *place, seen) {
		return row.Seen.UID == "" || row.Seen.Gone
	}
	return row.Seen.UID == seen.uid && row.Seen.Generation == seen.generation
}

// speaksOfAnother tells whether the version at a row's place is known to name
// another key: it will never be processed for this one.
func (c *comparison) speaksOfAnother(key authority.Key, place view.Place, seen version) bool {
	known := c.rounds.fetched[place]
	if known == nil || known.UID != seen.uid || known.Generation != seen.generation || keyOf(known) == key {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fetched[place] = known
	return true
}

// differs holds what the row allows beyond the objects, and asks for a pass.
func (c *comparison) differs(ctx context.Context, row authority.Row, in authority.Intent, place *view.Place) error {
	held, err := c.hold(ctx, row, in, place)
	if err != nil {
		return err
	}
	if held {
		c.passes.hurry(row.Key)
	} else {
		c.passes.add(row.Key)
	}
	if in.Installation == nil {
		c.uninstalls.add(row.Key.InstallationID)
	}
	return nil
}

func (c *comparison) hold(ctx context.Context, row authority.Row, in authority.Intent, place *view.Place) (bool, error) {
	if place == nil {
		// Where the approval stood, only a closer look tells.
		return c.look(ctx, row)
	}
	seen, present := c.approvals[*place]
	switch {
	case !present:
	case row.Seen.UID == seen.uid && row.Seen.Generation >= seen.generation:
		// The row has taken it in: what it asks for is known.
		in.Approval = &authority.Approval{
			UID: seen.uid, Generation: seen.generation, InstallationID: row.Key.InstallationID, WorkspaceID: row.Key.WorkspaceID,
		}
	default:
		err := c.fetch(ctx, &in, *place, seen, row.Seen)
		if poisonous(err) {
			return c.poisoned(ctx, row, *place, seen, err)
		}
		if err != nil {
			return false, err
		}
	}
	held, err := c.merge(ctx, row, in)
	if errors.Is(err, fence.ErrOvertaken) {
		return c.look(ctx, row)
	}
	return held, err
}

// fetch reads an approval that is newer than its row.
func (c *comparison) fetch(ctx context.Context, in *authority.Intent, place view.Place, seen version, processed authority.Seen) error {
	approval := c.rounds.fetched[place]
	if approval == nil || approval.UID != seen.uid || approval.Generation != seen.generation {
		// A generation is one content for ever: where the watch has delivered it, a
		// read would bring the same.
		approval = c.delivered(place, seen)
	}
	if approval == nil {
		var object v1alpha1.PluginCapabilityApproval
		err := c.live.Get(ctx, nameOf(place), &object)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read approval %s/%s: %w", place.Namespace, place.Name, err)
		}
		if approval = kinds.ApprovalOf(&object); approval == nil {
			return nil
		}
	}
	in.Approval = approval
	c.mu.Lock()
	c.fetched[place] = approval
	c.mu.Unlock()
	if gap(processed, approval) {
		in.WatchedFrom = c.watched(ctx, place, approval)
	}
	return nil
}

// gap tells whether other versions came between the processed one and this one.
func gap(processed authority.Seen, approval *authority.Approval) bool {
	before := int64(0)
	if processed.UID == approval.UID {
		before = processed.Generation
	}
	return approval.Generation > before+1
}

// watched is fence.History within the time that the whole round has for it.
func (c *comparison) watched(ctx context.Context, place view.Place, approval *authority.Approval) int64 {
	waiting, cancel := context.WithDeadline(ctx, c.patience)
	defer cancel()
	object := fence.Object{Namespace: place.Namespace, Name: place.Name, UID: approval.UID}
	from, err := c.history.WatchedFrom(waiting, object, approval.Generation)
	if err != nil {
		return 0 // the time is up
	}
	return from
}

// look compares one row with live reads of its own, as a pass does. A row that
// has moved twice since the round read it needs none: the pass that moved it last
// has read everything after the move before, so after the round began. Whoever
// edits an approval without end keeps no round from its end.
func (c *comparison) look(ctx context.Context, began authority.Row) (bool, error) {
	key := began.Key
	for range roundTries {
		row, err := c.store.Row(ctx, key)
		if err != nil {
			return false, fmt.Errorf("read the row: %w", err)
		}
		if row.Revision > began.Revision+1 {
			return row.Hold != nil, nil
		}
		read, err := c.cluster.read(ctx, key)
		if err != nil {
			return false, err
		}
		in := read.Intent
		if in.Approval != nil && read.place != nil && gap(row.Seen, in.Approval) {
			in.WatchedFrom = c.watched(ctx, *read.place, in.Approval)
		}
		held, err := c.merge(ctx, row, in)
		if !errors.Is(err, fence.ErrOvertaken) {
			return held, err
		}
	}
	return false, fmt.Errorf("%w while it was compared, %d times", fence.ErrOvertaken, roundTries)
}

// merge makes durable what the objects take away from a row, and where they take
// nothing away but differ, that they differ. The row must not have moved meanwhile:
// what was read may be older than that.
func (c *comparison) merge(ctx context.Context, row authority.Row, in authority.Intent) (bool, error) {
	unwatched := in.Unwatched(row)
	if unwatched {
		// Whether somebody has revoked in between, the process that leads may have
		// watched. A round of another one must not decide it: it would cost the grant.
		in.WatchedFrom = 1
	}
	holds := authority.Narrowings(row, in)
	if len(holds) == 0 && allows(row) && (unwatched || differing(row, in)) {
		moved, err := c.moves(ctx, row)
		if err != nil {
			return false, err
		}
		if moved {
			return false, fmt.Errorf("compare a row: %w", fence.ErrOvertaken)
		}
		if hold, ok := authority.Differing(row); ok {
			holds = append(holds, hold)
		}
	}
	for _, hold := range holds {
		held, err := c.store.Hold(ctx, row, hold)
		if err != nil {
			return false, fmt.Errorf("hold a narrowing: %w", err)
		}
		if held.Revision != row.Revision {
			return false, fmt.Errorf("hold a narrowing: %w", fence.ErrOvertaken)
		}
		row = held
	}
	return len(holds) > 0 || row.Hold != nil, nil
}

// allows tells whether calls may go on by a row, its expiry aside.
func allows(row authority.Row) bool {
	return row.State == authority.StateActive && row.Gates == 0 && !row.Starting && row.Hold == nil
}

// differing tells whether the objects around an approval are other ones than the
// row was computed from.
func differing(row authority.Row, in authority.Intent) bool {
	return in.Installation != nil && in.Workspace != nil && row.Revision > 0 &&
		(authority.VectorOf(in.Installation, in.Workspace, in.Policy).Sum() != row.Sum ||
			in.GatesAround() != row.Gates&^authority.GateRequiredCapabilityUnavailable)
}

// moves asks for the pass that takes in what differs, and waits for it in the time
// that a round has for that: a hold that is set while the pass is under way would
// cost the row a revision more.
func (c *comparison) moves(ctx context.Context, row authority.Row) (bool, error) {
	c.passes.hurry(row.Key)
	patience := time.NewTimer(time.Until(c.patience))
	defer patience.Stop()
	poll := time.NewTicker(movePoll)
	defer poll.Stop()
	for {
		now, err := c.store.Row(ctx, row.Key)
		if err != nil {
			return false, fmt.Errorf("read the row: %w", err)
		}
		if now.Revision != row.Revision || now.Seen != row.Seen || !now.Hold.Equal(row.Hold) {
			return true, nil
		}
		select {
		case <-poll.C:
		case <-patience.C:
			return false, nil
		case <-ctx.Done():
			return false, fmt.Errorf("wait for a pass: %w", ctx.Err())
		}
	}
}

// poisoned holds a row at nothing whose approval can't be read in two rounds,
// one after the other: what it asks for may be less than what the row allows,
// and a round that waits for it would stop everyone.
func (c *comparison) poisoned(ctx context.Context, row authority.Row, place view.Place, seen version, why error) (bool, error) {
	c.mu.Lock()
	c.unreadable[place] = seen
	c.mu.Unlock()
	if before, ok := c.rounds.unreadable[place]; !ok || before.uid != seen.uid || before.generation != seen.generation {
		return false, why
	}
	if row.Hold != nil && row.Hold.State == authority.StateRevoked {
		return true, nil
	}
	c.log.Error(why, "An approval can't be read; nothing of it works any more", "namespace", place.Namespace, "name", place.Name)
	_, err := c.store.Hold(ctx, row, authority.Hold{
		State: authority.StateRevoked, Cause: authority.CauseUnseenChange, Actor: authority.Actor{Assurance: authority.ActorUnknown},
		UID: seen.uid, Generation: seen.generation, Spent: true,
	})
	if err != nil {
		return false, fmt.Errorf("hold a row at nothing: %w", err)
	}
	return true, nil
}

// poisonous tells whether an error comes from an object's content, so that
// another try doesn't mend it: neither the API server's answer nor the way to it.
func poisonous(err error) bool {
	var answer apierrors.APIStatus
	var way net.Error
	return err != nil && !errors.As(err, &answer) && !errors.As(err, &way) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) &&
		!errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF)
}
