package events

import (
	"strings"
	"sync"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// Event is one event as it may be sent. It is shared by all streams and must not be
// changed.
type Event struct {
	Record

	class      class
	capability contract.Capability
	// more: another event of the same place comes behind it, so that a cursor of this
	// place would leave that one out.
	more bool

	// size is how much memory the event takes, about: its text, and what is made of it.
	size int

	content sync.Once
	schema  uint32
	payload *structpb.Struct
}

// What an event takes beside its text, and what each value of its payload takes, by the
// sign that JSON has for it: two bytes of text can become a list, which takes a hundred
// times as much.
const (
	eventBytes  = 512
	memberBytes = 96
	listBytes   = 160
	objectBytes = 288
)

// sizeOf counts signs within texts too: an event may take less than it says, not more.
func sizeOf(event string) int {
	return eventBytes + 2*len(event) + memberBytes*(strings.Count(event, ",")+strings.Count(event, `":`)) +
		listBytes*strings.Count(event, "[") + objectBytes*strings.Count(event, "{")
}

// Content returns the event's data, nil for none, without what is private (I14), and
// the version of its shape.
func (e *Event) Content() (schemaVersion uint32, payload *structpb.Struct) {
	e.content.Do(func() {
		schema, data := journal.DecodeEvent(e.Event)
		e.schema = schema
		if data == nil || e.class == classOwn {
			// What has changed of an installation's authority is read back.
			return
		}
		if payload, err := structpb.NewStruct(domain.Redact(data)); err == nil {
			e.payload = payload
		}
	})
	return e.schema, e.payload
}

// eventsOf makes the events of records. A change of a task's state has two: v1 has a
// type for it, and whoever follows all changes of a task follows this one.
func eventsOf(records []Record) []*Event {
	all := make([]*Event, 0, len(records))
	for i := range records {
		e := newEvent(records[i])
		all = append(all, e)
		if e.Type == taskUpdated && stateChanged(e.Event) {
			e.more = true
			second := records[i]
			second.Type, second.ID = taskStateChanged, second.ID+"/"+taskStateChanged
			all = append(all, newEvent(second))
		}
	}
	return all
}

func newEvent(r Record) *Event {
	e := &Event{Record: r, size: sizeOf(r.Event)}
	e.class, e.capability = classify(r.Type)
	if e.class == classOwn {
		// Of its own authority an installation is told that it changed, and reads back
		// where.
		e.WorkspaceID, e.ResourceID, e.ResourceVersion = "", "", ""
	}
	return e
}

func stateChanged(event string) bool {
	if !strings.Contains(event, `"new_state"`) { // decoding costs more
		return false
	}
	_, data := journal.DecodeEvent(event)
	_, changed := data["new_state"]
	return changed
}
