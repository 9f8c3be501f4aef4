package events

import (
	"strings"
	"sync"
	"weak"

	"google.golang.org/protobuf/proto"
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

	mu sync.Mutex
	// decoded: schema and bare are known.
	decoded bool
	schema  uint32
	// bare: it has no payload.
	bare bool
	// payload is what the text says, as long as somebody sends it. It can take a hundred
	// times as much memory as the text, so that no ring keeps it: those who send the
	// event at the same time share it.
	payload weak.Pointer[structpb.Struct]
}

// eventBytes is what an event takes beside its text.
const eventBytes = 512

// size is how much memory an event takes, about.
func (r *Record) size() int { return eventBytes + len(r.Event) }

// Content returns the event's data, nil for none, without what is private (I14), and
// the version of its shape.
func (e *Event) Content() (schemaVersion uint32, payload *structpb.Struct) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.decoded {
		if payload := e.payload.Value(); e.bare || payload != nil {
			return e.schema, payload
		}
	}
	schema, data := journal.DecodeEvent(e.Event)
	e.decoded, e.schema, e.bare = true, schema, true
	if data == nil || e.class == classOwn {
		// What has changed of an installation's authority is read back.
		return schema, nil
	}
	shallow, _ := upTo(domain.MaxDepth, map[string]any(domain.Redact(data))).(map[string]any)
	payload, err := structpb.NewStruct(shallow)
	if err != nil || len(e.Event) > maxPayloadBytes/8 && proto.Size(payload) > maxPayloadBytes {
		return schema, nil
	}
	e.bare, e.payload = false, weak.Make(payload)
	return schema, payload
}

// maxPayloadBytes is how large a payload may be as a message, which has up to six times
// the bytes of its text: gRPC's clients take 4 MiB unless they are told otherwise, and
// would never get beyond a larger one.
const maxPayloadBytes = 3 << 20

// upTo is a value of JSON, with null for each object and list that is nested deeper than
// so many. It changes the value.
func upTo(depth int, value any) any {
	switch v := value.(type) {
	case map[string]any:
		if depth == 0 {
			return nil
		}
		for key := range v {
			v[key] = upTo(depth-1, v[key])
		}
	case []any:
		if depth == 0 {
			return nil
		}
		for i := range v {
			v[i] = upTo(depth-1, v[i])
		}
	}
	return value
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
	e := &Event{Record: r}
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
