package importer

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kandev/plugin-host/hostsvc/domain"
)

// Scratch is a memory that is not the process's: what a dry run has read may be more
// than fits.
type Scratch interface {
	Put(values map[string]string) error
	// Get returns those of keys that were put.
	Get(keys []string) (map[string]string, error)
}

// rehearse checks a batch without importing it, and remembers what it would add.
func (r *run) rehearse(ctx context.Context, b *batch) error {
	check := func(there Lookup) error {
		w, err := look(&rehearsed{r.o.Scratch, there, b.workspace}, b.workspace, b.documents)
		if err != nil {
			return err
		}
		faults, err := w.check(b.documents, r.o.SkipExisting)
		if err != nil {
			return err
		}
		for _, fault := range faults {
			if len(r.told) == maxFaults {
				r.more = true
				break
			}
			r.told = append(r.told, fault)
		}
		return remember(r.o.Scratch, w)
	}
	var err error
	if r.store == nil {
		err = check(nothing{})
	} else {
		err = r.store.Look(ctx, b.workspace, check)
	}
	if err != nil {
		return fmt.Errorf("%s: check lines %d to %d: %w", r.source.Name, r.done.Line, b.end.line-1, err)
	}
	return nil
}

// nothing is a store that has nothing.
type nothing struct{}

// Find implements Lookup.
func (nothing) Find(Space, []string) (map[string]Known, error) { return map[string]Known{}, nil }

// Predecessors implements Lookup.
func (nothing) Predecessors([]string) ([]domain.TaskRelation, error) { return nil, nil }

// rehearsed is what is there as if the batches before had been imported.
type rehearsed struct {
	scratch   Scratch
	there     Lookup
	workspace string
}

// beforeSpace has, by task, the tasks that it waits for.
const beforeSpace Space = "before"

func scratchKey(space Space, workspace, id string) string {
	return string(space) + "\x00" + workspace + "\x00" + id
}

// Find implements Lookup.
func (r *rehearsed) Find(space Space, ids []string) (map[string]Known, error) {
	found, err := r.there.Find(space, ids)
	if err != nil {
		return nil, err
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = scratchKey(space, r.workspace, id)
	}
	values, err := r.scratch.Get(keys)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		if text, ok := values[keys[i]]; ok {
			var known Known
			if err := json.Unmarshal([]byte(text), &known); err != nil {
				return nil, fmt.Errorf("decode what was read: %w", err)
			}
			found[id] = known
		}
	}
	return found, nil
}

// Predecessors implements Lookup.
func (r *rehearsed) Predecessors(taskIDs []string) ([]domain.TaskRelation, error) {
	edges, err := r.there.Predecessors(taskIDs)
	if err != nil {
		return nil, err
	}
	for _, id := range taskIDs {
		sources, err := before(r.scratch, r.workspace, id)
		if err != nil {
			return nil, err
		}
		for _, source := range sources {
			edges = append(edges, domain.TaskRelation{Kind: domain.RelationDependency, SourceTaskID: source, TargetTaskID: id})
		}
	}
	return edges, nil
}

func before(scratch Scratch, workspace, task string) (sources []string, err error) {
	key := scratchKey(beforeSpace, workspace, task)
	values, err := scratch.Get([]string{key})
	if err != nil {
		return nil, err
	}
	if text, ok := values[key]; ok {
		if err := json.Unmarshal([]byte(text), &sources); err != nil {
			return nil, fmt.Errorf("decode what was read: %w", err)
		}
	}
	return sources, nil
}

func remember(scratch Scratch, w *world) error {
	values := map[string]string{}
	put := func(key string, value any) error {
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("encode what was read: %w", err)
		}
		values[key] = string(text)
		return nil
	}
	for _, a := range w.added {
		if err := put(scratchKey(a.space, w.workspace, a.id), a.known); err != nil {
			return err
		}
	}
	sources := map[string][]string{}
	for _, edge := range w.edges {
		target := edge.TargetTaskID
		if sources[target] == nil {
			have, err := before(scratch, w.workspace, target)
			if err != nil {
				return err
			}
			sources[target] = have
		}
		sources[target] = append(sources[target], edge.SourceTaskID)
	}
	for target, list := range sources {
		if err := put(scratchKey(beforeSpace, w.workspace, target), list); err != nil {
			return err
		}
	}
	return scratch.Put(values)
}
