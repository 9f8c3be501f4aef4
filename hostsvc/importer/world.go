package importer

import (
	"fmt"

	"github.com/kandev/plugin-host/hostsvc/domain"
)

// world is what is there for the documents of one batch: what the lookup has, and
// what the documents before in the batch add.
type world struct {
	workspace string
	lookup    Lookup
	// known has everything that the batch needs, found or added.
	known map[Space]map[string]Known
	// added is what the batch adds, and edges its dependencies.
	added []addition
	edges []domain.TaskRelation
	// err is what kept the world from being looked at.
	err error
}

type addition struct {
	space Space
	id    string
	known Known
}

// look looks up everything that documents need, kind by kind.
func look(lookup Lookup, workspace string, documents []*document) (*world, error) {
	w := &world{workspace: workspace, lookup: lookup, known: map[Space]map[string]Known{}}
	asked := map[Space]map[string]bool{}
	var order []Space
	need := func(space Space, id string) {
		if space == "" || id == "" {
			return
		}
		if asked[space] == nil {
			asked[space] = map[string]bool{}
			order = append(order, space)
		}
		asked[space][id] = true
	}
	need(SpaceWorkspace, workspace)
	for _, d := range documents {
		if d.item == nil {
			continue
		}
		need(d.place())
		d.needs(need)
	}
	for _, space := range order {
		ids := make([]string, 0, len(asked[space]))
		for id := range asked[space] {
			ids = append(ids, id)
		}
		found, err := lookup.Find(space, ids)
		if err != nil {
			return nil, fmt.Errorf("look for what is there of %s: %w", space, err)
		}
		w.known[space] = found
	}
	return w, nil
}

func (w *world) find(space Space, id string) (Known, bool) {
	known, ok := w.known[space][id]
	return known, ok
}

func (w *world) add(space Space, id string, known Known) {
	if w.known[space] == nil {
		w.known[space] = map[string]Known{}
	}
	w.known[space][id] = known
	w.added = append(w.added, addition{space, id, known})
}

func (w *world) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// relate adds a dependency.
func (w *world) relate(edge domain.TaskRelation) { w.edges = append(w.edges, edge) }

// predecessors implements domain.RelationsOf.
func (w *world) predecessors(taskIDs []string) ([]domain.TaskRelation, error) {
	found, err := w.lookup.Predecessors(taskIDs)
	if err != nil {
		return nil, fmt.Errorf("look for dependencies: %w", err)
	}
	return append(found, w.edges...), nil
}

// check compares documents with the world, in their order, and returns their
// faults. With leave, what is there already is left alone and no fault.
func (w *world) check(documents []*document, leave bool) ([]Fault, error) {
	var faults []Fault
	for _, d := range documents {
		read := len(d.faults)
		if d.item != nil {
			d.skip = false
			w.checkOne(d, leave)
		}
		// One that couldn't be read whole adds to the world, so that what refers to it
		// isn't faulted too; what else is wrong with it shows when it is mended.
		if read > 0 {
			d.faults = d.faults[:read]
		}
		faults = append(faults, d.faults...)
		d.faults = d.faults[:read]
	}
	return faults, w.err
}

func (w *world) checkOne(d *document, leave bool) {
	if d.workspace != "" && d.kind != string(SpaceWorkspace) {
		if _, there := w.find(SpaceWorkspace, d.workspace); !there {
			d.fault("workspace_id", "is no workspace that is above or in the store; put its document first")
			return
		}
	}
	space, id := d.place()
	if known, there := w.find(space, id); there && (space != SpaceWorkspace || known.As == Described) {
		if d.skip = leave; !leave {
			d.fault(keyOf(d.kind), "is there already, above or in the store; leave the document out, or import with --skip-existing")
		}
		return
	}
	if leave && space == "" {
		d.fault("kind", "can't be told from one that is there; leave it out, or import without --skip-existing")
		return
	}
	d.item.check(w, d)
}

func keyOf(name string) string {
	k, _ := kindNamed(name)
	return k.key
}
