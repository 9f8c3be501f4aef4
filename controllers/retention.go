package controllers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

const (
	retentionEvery = time.Hour
	// keepNewest is how many of each sequence's newest events are never pruned:
	// the newest one rebuilds the row, the others are what people look at.
	keepNewest = 20
	// maxPerWorkspace is how many events of one workspace the API server has to
	// bear: beyond it the oldest go, however young they are.
	maxPerWorkspace = 1000
	// archiveStep is how many events are archived and then deleted at once.
	archiveStep = 50
)

// retention prunes the history from the API server once the store has it. What
// goes is always the beginning of a sequence, and only as far as it is an
// unbroken chain up to the oldest event that is left: that one's previous hash is
// the hash of the newest in the archive, so the history stays provable across the
// cut. A crash leaves events in both places, which harms nobody.
type retention struct {
	live   client.Reader
	writer client.Client
	store  Store
	leader *leader
	// keep is how old an event must be to go for its age; zero: none does.
	keep time.Duration
	now  func() time.Time
	log  logr.Logger
}

// stored is an event in the API server, as far as its metadata says.
type stored struct {
	name     string
	uid      types.UID
	created  time.Time
	revision uint64
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (r *retention) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (r *retention) Start(ctx context.Context) error {
	ticker := time.NewTicker(retentionEvery)
	defer ticker.Stop()
	for {
		if _, err := r.leader.wait(ctx); err != nil {
			return nil
		}
		err := r.leader.current(ctx)
		if err == nil {
			err = r.once(ctx)
		}
		if err != nil && ctx.Err() == nil {
			r.log.Error(err, "Pruning the history failed; the next time is due", "after", retentionEvery)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// once prunes what is due.
func (r *retention) once(ctx context.Context) error {
	sequences, err := r.sequences(ctx)
	if err != nil {
		return err
	}
	due, keys := r.due(sequences), make([]authority.Key, 0, len(sequences))
	for key := range due {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b authority.Key) int {
		return strings.Compare(a.WorkspaceID+"/"+a.InstallationID, b.WorkspaceID+"/"+b.InstallationID)
	})
	for _, key := range keys {
		if err := r.prune(ctx, sequences[key], due[key]); err != nil {
			if ctx.Err() != nil {
				return err
			}
			// Another sequence may be whole.
			r.log.Error(err, "The history can't be pruned", "installation", key.InstallationID, "workspace", key.WorkspaceID)
		}
	}
	return nil
}

// sequences lists the events that there are, by key and by revision.
func (r *retention) sequences(ctx context.Context) (map[authority.Key][]stored, error) {
	all := map[authority.Key][]stored{}
	for next := ""; ; {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("PluginCapabilityApprovalEventList"))
		if err := r.live.List(ctx, page, client.Limit(eventPage), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("list the events: %w", err)
		}
		for i := range page.Items {
			o := &page.Items[i]
			// One of another name records no revision, and is nobody's to delete.
			if key, revision, ok := parseEventName(o.Name); ok && o.DeletionTimestamp == nil {
				all[key] = append(all[key], stored{o.Name, o.UID, o.CreationTimestamp.Time, revision})
			}
		}
		if next = page.Continue; next == "" {
			break
		}
	}
	for _, sequence := range all {
		slices.SortFunc(sequence, func(a, b stored) int {
			if a.revision < b.revision {
				return -1
			}
			return 1
		})
	}
	return all, nil
}

// parseEventName is the inverse of authority.EventName.
func parseEventName(name string) (key authority.Key, revision uint64, ok bool) {
	parts := strings.Split(name, ".")
	if len(parts) != 3 || !strings.HasPrefix(parts[2], "r") {
		return key, 0, false
	}
	revision, err := strconv.ParseUint(parts[2][1:], 10, 63)
	key = authority.Key{InstallationID: parts[0], WorkspaceID: parts[1]}
	return key, revision, err == nil && authority.EventName(key, revision) == name
}

// due tells how many of the oldest events of each sequence are to go.
func (r *retention) due(sequences map[authority.Key][]stored) map[authority.Key]int {
	due, load := map[authority.Key]int{}, map[string]int{}
	before := r.now().Add(-r.keep)
	for key, sequence := range sequences {
		n := 0
		for r.keep > 0 && n < len(sequence)-keepNewest && sequence[n].created.Before(before) {
			n++
		}
		if n > 0 {
			due[key] = n
		}
		load[key.WorkspaceID] += len(sequence) - n
	}
	for workspace, left := range load {
		if left > maxPerWorkspace {
			r.relieve(workspace, left-maxPerWorkspace, sequences, due)
		}
	}
	return due
}

// relieve adds the oldest events of a workspace to what is due, as far as they
// may go at all.
func (r *retention) relieve(workspace string, n int, sequences map[authority.Key][]stored, due map[authority.Key]int) {
	for ; n > 0; n-- {
		var oldest authority.Key
		var at time.Time
		for key, sequence := range sequences {
			if key.WorkspaceID != workspace || due[key] >= len(sequence)-keepNewest {
				continue
			}
			if created := sequence[due[key]].created; at.IsZero() || created.Before(at) {
				oldest, at = key, created
			}
		}
		if at.IsZero() {
			return
		}
		due[oldest]++
	}
}

// prune archives and deletes the n oldest events of a sequence, in steps.
func (r *retention) prune(ctx context.Context, sequence []stored, n int) error {
	var last *authority.Event
	for from := 0; from < n; from += archiveStep {
		end := min(from+archiveStep, n)
		chain, err := r.chain(ctx, last, sequence[from:end+1])
		if err != nil {
			return err
		}
		// The first event that stays is only what the others must lead up to.
		chain = chain[:end-from]
		last = &chain[len(chain)-1]
		if err := r.store.Archive(ctx, chain); err != nil {
			return fmt.Errorf("archive %d events up to %s: %w", len(chain), last.Name(), err)
		}
		for _, one := range sequence[from:end] {
			if err := r.delete(ctx, one); err != nil {
				return err
			}
		}
	}
	if last != nil {
		r.log.Info("Pruned the history; the store has it", "events", n, "upTo", last.Name())
	}
	return nil
}

// chain reads events that follow last, nil for nothing before, and one another.
func (r *retention) chain(ctx context.Context, last *authority.Event, sequence []stored) ([]authority.Event, error) {
	chain := make([]authority.Event, 0, len(sequence))
	for _, one := range sequence {
		event, err := r.read(ctx, one)
		if err != nil {
			return nil, err
		}
		if last != nil && (event.PreviousHash != last.Row.EventHash || event.BeforeRevision != last.Row.Revision) {
			return nil, fmt.Errorf("event %s doesn't follow %s: the history has a gap or was changed", one.name, last.Name())
		}
		chain = append(chain, event)
		last = &chain[len(chain)-1]
	}
	return chain, nil
}

// delete removes the very object that was archived.
func (r *retention) delete(ctx context.Context, one stored) error {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("PluginCapabilityApprovalEvent"))
	object.SetName(one.name)
	err := r.writer.Delete(ctx, object, client.Preconditions{UID: &one.uid})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete event %s, which is archived: %w", one.name, err)
	}
	return nil
}

// read returns an event that can be trusted to say what was recorded.
func (r *retention) read(ctx context.Context, one stored) (authority.Event, error) {
	var object v1alpha1.PluginCapabilityApprovalEvent
	if err := r.live.Get(ctx, client.ObjectKey{Name: one.name}, &object); err != nil {
		return authority.Event{}, fmt.Errorf("read event %s: %w", one.name, err)
	}
	if object.UID != one.uid {
		return authority.Event{}, fmt.Errorf("event %s is another object than before", one.name)
	}
	event, err := kinds.EventOf(&object)
	if err == nil {
		err = event.Verify()
	}
	if err == nil && event.Name() != one.name {
		err = fmt.Errorf("event %s records %s", one.name, event.Name())
	}
	return event, err
}
