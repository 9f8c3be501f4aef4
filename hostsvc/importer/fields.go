package importer

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

// maxContent is the most bytes of a message's text: what a client takes of one page
// must hold it.
const maxContent = 1 << 20

// fields are the members of a document, or of an object in it, on their way into an
// entity. Each is taken once, by its name; what is left is unknown.
type fields struct {
	values map[string]any
	lines  map[string]int64
	line   int64
	// prefix is the path of an object in its document.
	prefix string
	// in is the document's: where faults go.
	in *gathered
}

// gathered is what is told of a document.
type gathered struct {
	kind, id string
	faults   []Fault
	// names, when set, gets every name that was asked for.
	names *[]string
}

// fault takes down what is wrong with a field.
func (f *fields) fault(name, format string, args ...any) {
	line := f.line
	if at, ok := f.lines[name]; ok {
		line = at
	}
	f.in.faults = append(f.in.faults, Fault{
		Line: line, Kind: f.in.kind, ID: f.in.id, Field: f.prefix + name, Problem: fmt.Sprintf(format, args...),
	})
}

// check takes down a fault that a rule of the contract found.
func (f *fields) check(name string, fault *contract.FieldError) {
	if fault != nil {
		f.fault(name, "%s", fault.Detail)
	}
}

// take returns a member; null is as good as none.
func (f *fields) take(name string) (value any, there bool) {
	if f.in.names != nil {
		*f.in.names = append(*f.in.names, f.prefix+name)
	}
	value = f.values[name]
	delete(f.values, name)
	return value, value != nil
}

// left faults every member that nothing has taken.
func (f *fields) left() {
	unknown := make([]string, 0, len(f.values))
	for name := range f.values {
		unknown = append(unknown, name)
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		line := f.line
		if at, ok := f.lines[name]; ok {
			line = at
		}
		f.in.faults = append(f.in.faults, Fault{
			Line: line, Kind: f.in.kind, ID: f.in.id, Field: f.prefix + shown(name),
			Problem: "is no field of this kind; correct its name or leave it out",
		})
	}
}

// string returns a text that the caller checks.
func (f *fields) string(name string) (text string, there bool) {
	value, there := f.take(name)
	if !there {
		return "", false
	}
	text, ok := value.(string)
	if !ok {
		f.fault(name, "is not a text; put it into quotes")
		return "", false
	}
	return text, true
}

// id returns a required identifier.
func (f *fields) id(name string) string {
	text, there := f.string(name)
	if there || !f.faulty(name) {
		f.check(name, contract.CheckIdentifier(name, text))
	}
	return text
}

// ref returns an identifier, "" for none.
func (f *fields) ref(name string) string {
	text, _ := f.string(name)
	if text != "" {
		f.check(name, contract.CheckIdentifier(name, text))
	}
	return text
}

// faulty tells whether a field has a fault already.
func (f *fields) faulty(name string) bool {
	return slices.ContainsFunc(f.in.faults, func(fault Fault) bool { return fault.Field == f.prefix+name })
}

// text returns a text with a bound in bytes, "" for none.
func (f *fields) text(name string, most int) string {
	text, _ := f.string(name)
	f.check(name, contract.CheckText(name, text, most))
	return text
}

// name returns a short text.
func (f *fields) name(name string) string { return f.text(name, contract.MaxTitleBytes) }

// title returns a short text that is required.
func (f *fields) title(name string) string {
	text := f.name(name)
	if text == "" && !f.faulty(name) {
		f.fault(name, "is required")
	}
	return text
}

// prose returns a long text.
func (f *fields) prose(name string) string { return f.text(name, contract.MaxDescriptionBytes) }

// word returns one of the words of a list, otherwise when there is none.
func (f *fields) word(name, otherwise string, words ...string) string {
	text, there := f.string(name)
	if !there {
		return otherwise
	}
	if !slices.Contains(words, text) {
		known := slices.DeleteFunc(slices.Clone(words), func(word string) bool { return word == "" })
		f.fault(name, "is none of %s", strings.Join(known, ", "))
	}
	return text
}

// flag returns a boolean.
func (f *fields) flag(name string, otherwise bool) bool {
	value, there := f.take(name)
	if !there {
		return otherwise
	}
	flag, ok := value.(bool)
	if !ok {
		f.fault(name, "is neither true nor false")
	}
	return flag
}

// number returns a whole number between bounds.
func (f *fields) number(name string, least, most int64) (n int64, there bool) {
	value, there := f.take(name)
	if !there {
		return 0, false
	}
	number, ok := value.(float64)
	if !ok || number != math.Trunc(number) || number < float64(least) || number > float64(most) {
		f.fault(name, "is no whole number from %d to %d", least, most)
		return 0, false
	}
	return int64(number), true
}

// maxCount is the largest number that every JSON has exactly.
const maxCount = 1<<53 - 1

func (f *fields) count(name string) int64 {
	n, _ := f.number(name, 0, maxCount)
	return n
}

func (f *fields) small(name string) int32 {
	n, _ := f.number(name, 0, math.MaxInt32)
	return int32(n)
}

// The instants that the store can hold.
var firstInstant, lastInstant = time.Unix(0, math.MinInt64), time.Unix(0, math.MaxInt64)

// instant returns an instant, zero for none.
func (f *fields) instant(name string) time.Time {
	text, there := f.string(name)
	if !there {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	switch {
	case err != nil:
		f.fault(name, "is no instant; write it like 2026-01-31T12:00:00Z")
	case at.Before(firstInstant) || at.After(lastInstant):
		f.fault(name, "is not between the years 1678 and 2262")
	default:
		return at.UTC()
	}
	return time.Time{}
}

// required returns an instant that must be there.
func (f *fields) required(name string) time.Time {
	at := f.instant(name)
	if at.IsZero() && !f.faulty(name) {
		f.fault(name, "is required; write it like 2026-01-31T12:00:00Z")
	}
	return at
}

// stamps returns when something was created and last changed: now where the document
// doesn't say.
func (f *fields) stamps(now time.Time) (created, updated time.Time) {
	created = f.instant("created_at")
	if created.IsZero() {
		created = now
	}
	return created, f.updated(created)
}

// updated returns when something last changed; nothing changes before it is there.
func (f *fields) updated(created time.Time) time.Time {
	at := f.instant("updated_at")
	if at.IsZero() {
		return created
	}
	if at.Before(created) {
		f.fault("updated_at", "is before created_at")
	}
	return at
}

// object returns a JSON object.
func (f *fields) object(name string) domain.Object {
	value, there := f.take(name)
	if !there {
		return nil
	}
	object, ok := value.(map[string]any)
	if !ok {
		f.fault(name, "is no object")
	}
	return object
}

// maxItems is the most items of a list in a document.
const maxItems = 1000

// list returns the items of a list.
func (f *fields) list(name string) []any {
	value, there := f.take(name)
	if !there {
		return nil
	}
	list, ok := value.([]any)
	switch {
	case !ok:
		f.fault(name, "is no list")
	case len(list) > maxItems:
		f.fault(name, "has more than %d items", maxItems)
		return nil
	}
	return list
}

// names returns a list of short texts.
func (f *fields) names(name string) []string {
	var texts []string
	for i, item := range f.list(name) {
		text, ok := item.(string)
		if !ok || text == "" {
			f.fault(name, "item %d is no text", i)
			continue
		}
		f.check(name, contract.CheckText(name, text, contract.MaxTitleBytes))
		texts = append(texts, text)
	}
	return texts
}

// objects calls each for the objects of a list.
func (f *fields) objects(name string, each func(*fields)) {
	line := cmp.Or(f.lines[name], f.line)
	if f.in.names != nil {
		each(&fields{line: line, prefix: name + "[].", in: f.in})
	}
	for i, item := range f.list(name) {
		object, ok := item.(map[string]any)
		if !ok {
			f.fault(name, "item %d is no object", i)
			continue
		}
		inner := &fields{values: object, line: line, prefix: fmt.Sprintf("%s%s[%d].", f.prefix, name, i), in: f.in}
		each(inner)
		inner.left()
	}
}
