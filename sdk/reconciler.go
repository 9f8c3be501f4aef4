package sdk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

const (
	defaultResync = 10 * time.Minute
	// longestPause bounds the growing pauses between attempts of a Reconciler.
	longestPause = 30 * time.Second
	// settle is how long a kind without Changed waits after an event, so that many
	// events become one list.
	settle = 250 * time.Millisecond
)

// Reconciler keeps a plugin's view of kinds of resources as the Host has them,
// whatever is lost on the way. It opens the stream of events, lists every kind only
// then, so that nothing falls between list and stream, and tells each kind of the
// events about it. After a gap in the events, and when the plugin's authority in the
// workspace has changed, it lists again; so it does now and then anyway, because
// events are hints and reading is what counts (I15).
//
// What failed is tried again after growing pauses, up to 30 s. Calls of Sync and
// Changed never overlap, those of different kinds included: what only they touch
// needs no lock.
//
// The manifest must declare each pattern of the kinds' Events, and the approval grant
// what their List reads.
type Reconciler struct {
	Host *Host
	// Kinds are what is kept. At least one.
	Kinds []AnyKind
	// Resync is how long after a list of a kind the next one begins at the latest.
	// 0: 10 minutes. It bounds how long an event that never came can go unnoticed.
	Resync time.Duration
}

// AnyKind is a Kind of whatever resource.
type AnyKind interface {
	check() error
	about() (name, workspaceID string, patterns []string)
	sync(ctx context.Context, cause Cause) error
	// takesEvents is false where an event makes the kind be listed.
	takesEvents() bool
	changed(ctx context.Context, event Event) error
}

// Kind is one kind of resource of one workspace, as a plugin keeps it.
type Kind[T any] struct {
	// Name is for logs and errors. Required.
	Name string
	// WorkspaceID is the workspace. Required identifier.
	WorkspaceID string
	// Events are the types of the events about it, in the manifest's own words:
	// "task.*" where that is declared. None: it is listed now and then only.
	Events []string
	// List returns the list of all that is kept. Required.
	List func(ctx context.Context) Pages[T]
	// Sync makes the view what the snapshot holds: what is not in it is gone. After
	// an error it is called again, with a newer snapshot. Required.
	Sync func(ctx context.Context, snapshot Snapshot[T]) error
	// Changed is told that a resource may have changed, and reads it: what the Host
	// answers goes into the view, NOT_FOUND takes it out. After an error the kind is
	// listed again. It may be called for what did not change, and once for several
	// changes. Optional: without it, events make the kind be listed again.
	Changed func(ctx context.Context, event Event) error
}

// Snapshot is a whole list at one point in the workspace's order of commits.
type Snapshot[T any] struct {
	Items []T
	// Receipt is the one of the last page.
	Receipt *pluginv1.HostReadReceipt
	// Cause is why it was listed.
	Cause Cause
}

// Cause is why a Reconciler lists a kind.
type Cause string

const (
	// CauseStart is the first list.
	CauseStart Cause = "start"
	// CauseGap: the Host doesn't keep the place that was reached, or ended the stream of
	// events by a decision about the plugin, or more changed than was kept in memory.
	CauseGap Cause = "gap"
	// CauseAuthority: what the plugin may do in the workspace has changed.
	CauseAuthority Cause = "authority"
	// CauseEvent is an event about a kind without Changed.
	CauseEvent Cause = "event"
	// CauseFailed: List, Sync or Changed failed before.
	CauseFailed Cause = "failed"
	// CauseResync: the last list is old.
	CauseResync Cause = "resync"
)

// Event says that a resource may have changed. It doesn't say into what: events
// repeat and can be late, so that only reading tells.
type Event struct {
	// ID is the same in every delivery.
	ID string
	// Type is the subject, for example "task.updated".
	Type string
	// WorkspaceID is the kind's, or empty for an event of no workspace.
	WorkspaceID string
	// ResourceID is the resource; empty where the event names none.
	ResourceID string
	// ResourceVersion is the version that the change left; by now it may be another.
	ResourceVersion string
}

// Run keeps the view until ctx ends, and returns nil then. Otherwise it fails with
// ErrClosed after Close, and with what no repetition mends: a kind that is not well
// formed, a request that the Host finds INVALID (among them events that the manifest
// doesn't declare), a Host without events. While a human has suspended the plugin, or
// not granted what a List reads, it waits.
func (r *Reconciler) Run(ctx context.Context) error {
	resync, err := r.check()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	work := &agenda{resync: resync, wake: make(chan struct{}, 1)}
	watch := &watching{host: r.Host, work: work, gap: CauseStart, patterns: []string{contextChanged}, refresh: make(chan struct{}, 1)}
	// Before anything is read: a change from here on is noticed.
	changed, _ := r.Host.standing.waitFor(parkingSpace{})
	for _, k := range r.Kinds {
		_, workspaceID, patterns := k.about()
		work.duties = append(work.duties, &duty{kind: k, standing: r.Host.standing.of(workspaceID)})
		watch.patterns = union(watch.patterns, patterns)
	}
	ended := make(chan error, 3)
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{
		watch.run,
		func(ctx context.Context) error { return watch.authority(ctx, changed) },
		func(ctx context.Context) error { return r.work(ctx, work) },
	} {
		running.Go(func() { ended <- run(ctx) })
	}
	err = <-ended // each of them ends with ctx, or with what ends them all
	stop()
	running.Wait()
	return err
}

func (r *Reconciler) check() (resync time.Duration, err error) {
	switch {
	case r.Host == nil:
		return 0, errors.New("reconcile: there is no Host")
	case len(r.Kinds) == 0:
		return 0, errors.New("reconcile: there are no kinds")
	case r.Resync < 0:
		return 0, fmt.Errorf("reconcile: Resync %v is negative", r.Resync)
	}
	for i, k := range r.Kinds {
		if err := k.check(); err != nil {
			return 0, fmt.Errorf("reconcile: Kinds[%d]: %w", i, err)
		}
	}
	if r.Resync == 0 {
		return defaultResync, nil
	}
	return r.Resync, nil
}

// work does what is due, one after the other.
func (r *Reconciler) work(ctx context.Context, work *agenda) error {
	for {
		next, wait := work.take(time.Now())
		if next.duty == nil {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-work.wake:
			case <-r.Host.closed:
			case <-ctx.Done():
			}
			timer.Stop()
		}
		switch {
		case over(ctx):
			return nil
		case r.Host.isClosed():
			return fmt.Errorf("reconcile: %w", ErrClosed)
		case next.duty == nil:
			continue
		}
		err := next.do(ctx)
		if over(ctx) {
			return nil
		}
		if broken, ok := errors.AsType[*listError](err); ok && broken.answer.State == contract.StateInvalid {
			return fmt.Errorf("reconcile: %w", err)
		}
		if err != nil {
			name, workspaceID, _ := next.duty.kind.about()
			r.Host.log.Warn("A kind could not be reconciled; it is listed again.", "kind", name, "workspace", workspaceID, "error", err)
		}
		work.done(next, err, time.Now())
	}
}

// listError is a list that the Host answered with an error.
type listError struct{ answer *Error }

func (e *listError) Error() string { return e.answer.Error() }
func (e *listError) Unwrap() error { return e.answer }

func (k Kind[T]) check() error {
	if k.Name == "" {
		return errors.New("the name is required")
	}
	if err := contract.CheckIdentifier("WorkspaceID", k.WorkspaceID); err != nil {
		return err
	}
	for i, pattern := range k.Events {
		if err := contract.CheckEventPattern(fmt.Sprintf("Events[%d]", i), pattern); err != nil {
			return err
		}
	}
	if k.List == nil || k.Sync == nil {
		return errors.New("both List and Sync are required")
	}
	return nil
}

func (k Kind[T]) about() (name, workspaceID string, patterns []string) {
	return k.Name, k.WorkspaceID, k.Events
}

func (k Kind[T]) takesEvents() bool { return k.Changed != nil }

func (k Kind[T]) sync(ctx context.Context, cause Cause) error {
	snapshot := Snapshot[T]{Cause: cause}
	for page, err := range k.List(ctx) {
		if answer, ok := errors.AsType[*Error](err); ok {
			return fmt.Errorf("list %s: %w", k.Name, &listError{answer})
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", k.Name, err)
		}
		snapshot.Items, snapshot.Receipt = append(snapshot.Items, page.Items...), page.Receipt
	}
	if err := k.Sync(ctx, snapshot); err != nil {
		return fmt.Errorf("take over the list of %s: %w", k.Name, err)
	}
	return nil
}

func (k Kind[T]) changed(ctx context.Context, event Event) error {
	if err := k.Changed(ctx, event); err != nil {
		return fmt.Errorf("take over %s of %s %q: %w", event.Type, k.Name, event.ResourceID, err)
	}
	return nil
}

// over tells whether ctx has ended, which is no failure of what then ends.
func over(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// spread puts a pause into its upper half by chance, so that many plugins don't come
// back together.
func spread(pause time.Duration) time.Duration {
	return pause/2 + rand.N(pause/2) //nolint:gosec // no secret
}
