package importer

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// item is what a document adds.
type item interface {
	// place is where the item is known by its ID; a Space of "" is that it has none.
	place() (Space, string)
	// needs names everything that check asks the world for.
	needs(need func(Space, string))
	// check compares the item with what is there, and completes it.
	check(w *world, d *document)
	insert(tx Tx) error
}

// document is a document that was read.
type document struct {
	item
	kind, id, workspace string
	line                int64
	lines               map[string]int64
	faults              []Fault
	// skip: it is there already and left alone.
	skip bool
}

func (d *document) fault(field, format string, args ...any) {
	line := d.line
	if at, ok := d.lines[field]; ok {
		line = at
	}
	d.faults = append(d.faults, Fault{Line: line, Kind: d.kind, ID: d.id, Field: field, Problem: fmt.Sprintf(format, args...)})
}

// kind says how a document of a kind is read.
type kind struct {
	name string
	// shared kinds are of the instance and have no workspace.
	shared bool
	read   func(f *fields, id string, now time.Time) item
	// key is the field that names the item, "" for none.
	key string
}

// kinds are all kinds, in the order in which a workspace's documents may stand.
var kinds = []kind{
	{"agent_profile", true, readAgentProfile, "id"},
	{"executor_profile", true, readExecutorProfile, "id"},
	{"workspace", false, readWorkspace, "id"},
	{"repository", false, readRepository, "id"},
	{"workflow", false, readWorkflow, "id"},
	{"step", false, readStep, "id"},
	{"task", false, readTask, "id"},
	{"relation", false, readRelation, ""},
	{"step_transition", false, readStepTransition, ""},
	{"session", false, readSession, "id"},
	{"turn", false, readTurn, "id"},
	{"message", false, readMessage, "id"},
	{"code_stats", false, readCodeStats, "session_id"},
	{"transition", false, readTransition, "id"},
}

func kindNamed(name string) (kind, bool) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		return kind{}, false
	}
	return kinds[i], true
}

// document reads what a text says. One that can't be read has faults and no item.
func (r *reader) document(doc raw, now time.Time) *document {
	d := &document{line: doc.line}
	values, lines, err := r.parse(doc)
	if err != nil {
		var fault *syntaxError
		if !errors.As(err, &fault) {
			fault = &syntaxError{problem: err.Error()}
		}
		if fault.line > 0 {
			d.line = fault.line
		}
		d.fault(fault.field, "%s", fault.problem)
		return d
	}
	if line, ok := lines[""]; ok {
		d.line = line
	}
	d.lines = lines
	in := &gathered{}
	f := &fields{values: values, lines: lines, line: d.line, in: in}
	k, ok := kindNamed(firstText(f, "kind"))
	if !ok {
		if len(in.faults) == 0 {
			f.fault("kind", "is no kind of document; docs/reference/import-format.md lists them")
		}
		d.faults = in.faults
		return d
	}
	k.fill(d, f, now)
	return d
}

func firstText(f *fields, name string) string {
	text, _ := f.string(name)
	return text
}

// fill reads the fields of a kind.
func (k kind) fill(d *document, f *fields, now time.Time) {
	f.in.kind = k.name
	id := ""
	if k.key != "" {
		if text, ok := f.values[k.key].(string); ok {
			f.in.id = shownID(text)
		}
		id = f.id(k.key)
	}
	d.kind, d.id = k.name, f.in.id
	switch {
	case k.shared:
	case k.name == string(SpaceWorkspace):
		d.workspace = id
	default:
		d.workspace = f.id("workspace_id")
	}
	d.item = k.read(f, id, now)
	f.left()
	d.faults = f.in.faults
}

// shownID is an ID as a fault shows it.
func shownID(id string) string {
	const most = 128
	if len(id) > most {
		return id[:most] + "…"
	}
	return id
}
