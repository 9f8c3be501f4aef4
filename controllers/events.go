package controllers

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

// events implements fence.Events with immutable objects.
type events struct {
	live   client.Reader
	writer client.Client

	mu sync.Mutex
	// made are the newest events that this process created, by name, until they
	// are told of: telling needs no read then.
	made map[string]authority.Event
}

// made is bounded by what waits to be told.
func (e *events) keep(event authority.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.made == nil || len(e.made) >= maxNotes {
		e.made = map[string]authority.Event{}
	}
	e.made[event.Name()] = event
}

// take returns an event that this process created, once, and otherwise reads it.
func (e *events) take(ctx context.Context, key authority.Key, revision uint64) (authority.Event, error) {
	name := authority.EventName(key, revision)
	e.mu.Lock()
	event, ok := e.made[name]
	delete(e.made, name)
	e.mu.Unlock()
	if ok {
		return event, nil
	}
	return e.Get(ctx, key, revision)
}

// Create implements fence.Events.
func (e *events) Create(ctx context.Context, event authority.Event) error {
	err := e.writer.Create(ctx, kinds.EventObject(event), fieldOwner)
	if apierrors.IsAlreadyExists(err) {
		return fence.ErrEventExists
	}
	if err != nil {
		return fmt.Errorf("create event %s: %w", event.Name(), err)
	}
	e.keep(event)
	return nil
}

// Get implements fence.Events.
func (e *events) Get(ctx context.Context, key authority.Key, revision uint64) (authority.Event, error) {
	name := authority.EventName(key, revision)
	var object v1alpha1.PluginCapabilityApprovalEvent
	if err := e.live.Get(ctx, client.ObjectKey{Name: name}, &object); err != nil {
		return authority.Event{}, fmt.Errorf("read event %s: %w", name, err)
	}
	event, err := kinds.EventOf(&object)
	if err != nil {
		return authority.Event{}, err
	}
	if event.Name() != name {
		return authority.Event{}, fmt.Errorf("event %s records %s", name, event.Name())
	}
	return event, nil
}

// eventPage is how many events one request of the leader's list returns.
const eventPage = 500

// newest lists all events, uncached, and returns the newest of each sequence
// and the highest revision, also where that event can't be read; the error of
// such an event goes to broken.
func (e *events) newest(ctx context.Context, broken func(error)) (map[authority.Key]authority.Event, map[authority.Key]uint64, error) {
	found, highest := map[authority.Key]authority.Event{}, map[authority.Key]uint64{}
	for next := ""; ; {
		var page v1alpha1.PluginCapabilityApprovalEventList
		if err := e.live.List(ctx, &page, client.Limit(eventPage), client.Continue(next)); err != nil {
			return nil, nil, fmt.Errorf("list the events: %w", err)
		}
		for i := range page.Items {
			s := &page.Items[i].Spec
			key := authority.Key{InstallationID: s.InstallationID, WorkspaceID: s.WorkspaceID}
			if uint64(s.Revision) <= highest[key] {
				continue
			}
			highest[key] = uint64(s.Revision)
			delete(found, key)
			event, err := kinds.EventOf(&page.Items[i])
			if err == nil {
				err = event.Verify()
			}
			if err != nil {
				broken(err)
				continue
			}
			found[key] = event
		}
		if next = page.Continue; next == "" {
			return found, highest, nil
		}
	}
}
