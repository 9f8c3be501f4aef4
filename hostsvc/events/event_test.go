package events

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/kandev/plugin-host/hostsvc/journal"
)

// list is a JSON list of as many items as fit into an event.
func list(item string) string {
	const room = 60 << 10
	return `{"l":[` + strings.TrimSuffix(strings.Repeat(item+",", room/(len(item)+1)), ",") + `]}`
}

// keys are as many members of an object.
func keys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"%x":1,`, i)
	}
	return b.String()
}

// What events take is bounded by what their sizes say, whatever a plugin publishes and
// whoever was sent it: JSON of a few bytes can become very many values.
func TestSize_IsWhatAnEventTakes(t *testing.T) {
	for name, data := range map[string]string{
		"nothing":         `{}`,
		"a task":          `{"task_id":"t","workspace_id":"w","title":"Title","description":"` + strings.Repeat("text, ", 100) + `","priority":1,"repositories":[{"id":"r"}]}`,
		"one text":        `{"text":"` + strings.Repeat("x", 60<<10) + `"}`,
		"numbers":         list(`1`),
		"truths":          list(`true`),
		"nulls":           list(`null`),
		"texts":           list(`""`),
		"lists":           list(`[]`),
		"objects":         list(`{}`),
		"objects of one":  list(`{"":1}`),
		"lists of a list": list(`[[]]`),
		"an object":       `{` + strings.TrimSuffix(keys(6000), ",") + `}`,
		"deep lists":      `{"l":` + strings.Repeat(`[`, 4000) + strings.Repeat(`]`, 4000) + `}`,
		"deep":            strings.Repeat(`{"":`, 2000) + `{}` + strings.Repeat(`}`, 2000),
	} {
		t.Run(name, func(t *testing.T) {
			text, err := journal.EncodeEvent(json.RawMessage(data))
			if err != nil {
				t.Fatal(err)
			}
			const n = 8
			kept := make([]*Event, n)
			before := heap()
			for i := range kept {
				kept[i] = newEvent(Record{Type: "plugin.p.e", Event: strings.Clone(text)})
				if _, payload := kept[i].Content(); payload == nil {
					t.Fatal("it has no payload")
				}
			}
			took := int(heap()-before) / n
			said := kept[0].size()
			t.Logf("%d bytes of JSON take %d and are said to take %d", len(text), took, said)
			if took > said+said/4 {
				t.Errorf("%d bytes of JSON take %d and are said to take %d", len(text), took, said)
			}
			runtime.KeepAlive(kept)
		})
	}
}

// Readers in other languages than Go refuse messages that are nested too deep: what any
// plugin may publish must not be such a message.
func TestContent_IsNotTooDeep(t *testing.T) {
	nested := func(n int, open, within, end string) string {
		return `{"a":` + strings.Repeat(open, n) + within + strings.Repeat(end, n) + `,"b":1}`
	}
	for name, c := range map[string]struct {
		data string
		deep bool
	}{
		"objects, as deep as may be": {nested(31, `{"x":`, `1`, `}`), false},
		"objects, one more":          {nested(32, `{"x":`, `1`, `}`), true},
		"lists, as deep as may be":   {nested(31, `[2,`, `1`, `]`), false},
		"very deep lists":            {nested(5000, `[`, `1`, `]`), true},
		"very deep objects":          {nested(5000, `{"x":`, `1`, `}`), true},
		"both":                       {nested(500, `[{"x":`, `1`, `}]`), true},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := journal.EncodeEvent(json.RawMessage(c.data))
			if err != nil {
				t.Fatal(err)
			}
			_, payload := newEvent(Record{Type: "plugin.p.e", Event: text}).Content()
			if deep := 1 + depthOf(payload); deep > 100 {
				t.Errorf("the message is nested %d deep", deep)
			}
			var want map[string]any
			if err := json.Unmarshal([]byte(c.data), &want); err != nil {
				t.Fatal(err)
			}
			if got := payload.AsMap(); got["b"] != 1.0 || reflect.DeepEqual(got, want) == c.deep {
				t.Error("the payload is another one")
			}
		})
	}
}

// The largest payloads are left out, as a client of gRPC takes no message of more than
// 4 MiB. Only v1's own writers can make them.
func TestContent_IsNotTooLarge(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		want bool
	}{
		"a text of 2 MiB": {`{"text":"` + strings.Repeat("x", 2<<20) + `"}`, true},
		"a text of 4 MiB": {`{"text":"` + strings.Repeat("x", 4<<20) + `"}`, false},
		"few numbers":     {`{"n":[1` + strings.Repeat(`,1`, 100<<10) + `]}`, true},
		"many numbers":    {`{"n":[1` + strings.Repeat(`,1`, 290<<10) + `]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := journal.EncodeEvent(json.RawMessage(c.data))
			if err != nil {
				t.Fatal(err)
			}
			_, payload := newEvent(Record{Type: taskUpdated, Event: text}).Content()
			if n := proto.Size(payload); n > maxPayloadBytes || (n > 0) != c.want {
				t.Errorf("the payload has %d bytes", n)
			}
		})
	}
}

// depthOf is how many messages are in each other, this one included.
func depthOf(s *structpb.Struct) int {
	deepest := 0
	for _, value := range s.GetFields() {
		deepest = max(deepest, depthOfValue(value))
	}
	return 2 + deepest // itself, and the entry of the map
}

func depthOfValue(v *structpb.Value) int {
	switch kind := v.GetKind().(type) {
	case *structpb.Value_StructValue:
		return 1 + depthOf(kind.StructValue)
	case *structpb.Value_ListValue:
		deepest := 0
		for _, value := range kind.ListValue.GetValues() {
			deepest = max(deepest, depthOfValue(value))
		}
		return 2 + deepest
	default:
		return 1
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// large are n records of that many bytes of JSON each.
func large(from, n, bytes int) []Record {
	records := make([]Record, n)
	for i := range records {
		records[i] = Record{Position: Position{Major: uint64(from + i)}, ID: fmt.Sprint(from + i), Type: "plugin.p.e", Event: strings.Repeat(" ", bytes)}
	}
	return records
}

// What a stream keeps in memory until its reader takes it is bounded, and nothing is
// left out for it.
func TestChunks_AreBounded(t *testing.T) {
	changed := Record{Position: Position{Major: 1}, ID: "1", Type: taskUpdated, Event: `{"data":{"new_state":"` + strings.Repeat("x", 1<<20) + `"}}`}
	f := &feed{ring: eventsOf(append([]Record{changed}, large(2, 500, 60<<10)...)), tail: Position{Major: 501}}
	seen := 0
	for at := (Position{}); ; {
		p, err := f.after(at)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.events) == 0 {
			break
		}
		bytes := 0
		for _, e := range p.events {
			bytes += e.size()
			if e != f.ring[seen] {
				t.Fatalf("%s comes in place of %s", e.ID, f.ring[seen].ID)
			}
			seen++
		}
		if bytes > chunkBytes && seen != 2 { // the two of one place stay together
			t.Errorf("a stream keeps %d events of %d bytes", len(p.events), bytes)
		}
		at = p.end
	}
	if seen != len(f.ring) {
		t.Errorf("%d events come of %d", seen, len(f.ring))
	}
}

// pages is a store of events.
type pages struct {
	Store
	records []Record
	asked   []int
}

func (s *pages) Events(_ context.Context, after Position, limit int) (Page, error) {
	s.asked = append(s.asked, limit)
	page := Page{Settled: s.records[len(s.records)-1].Position}
	page.End = page.Settled
	rest := s.records[after.Major:]
	if len(rest) >= limit {
		rest = rest[:limit]
		page.End = rest[limit-1].Position
	}
	page.Records = rest
	return page, nil
}

func TestCatchingUp_IsBounded(t *testing.T) {
	store := &pages{records: slices.Concat(large(1, 1000, 100), large(1001, 300, 60<<10), large(1301, 1, 3<<20), large(1302, 1000, 100))}
	h := NewHub(Config{Store: store})
	f := &feed{floor: Position{Major: 1 << 40}, hub: h} // the ring holds nothing of it
	s := &Stream{hub: h, feed: f, page: firstPage}
	seen := 0
	for seen < len(store.records) {
		if _, err := s.more(t.Context()); err != nil {
			t.Fatal(err)
		}
		bytes := 0
		for _, e := range s.pending {
			bytes += len(e.Event)
			if e.ID != store.records[seen].ID {
				t.Fatalf("%s comes in place of %s", e.ID, store.records[seen].ID)
			}
			seen++
		}
		if len(s.pending) == 0 || bytes > chunkBytes && len(s.pending) > 1 {
			t.Fatalf("a stream keeps %d events of %d bytes", len(s.pending), bytes)
		}
		s.mark = s.end
	}
	// What is read in vain is at most as much as what is kept, in the long run.
	if read := sum(store.asked); read > 3*len(store.records) || len(store.asked) > 70 {
		t.Errorf("%d reads ask for %d events: %v", len(store.asked), read, store.asked)
	}
}

func sum(all []int) (n int) {
	for _, one := range all {
		n += one
	}
	return n
}
