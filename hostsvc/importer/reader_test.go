package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// all reads a stream from a place on, with the text and the place of each document.
func all(tb testing.TB, stream []byte, from position) (texts []string, ends []position) {
	tb.Helper()
	r, err := newReader(bytes.NewReader(stream), from)
	if err != nil {
		tb.Fatal(err)
	}
	for {
		doc, err := r.next()
		if errors.Is(err, io.EOF) {
			return texts, ends
		}
		if err != nil {
			tb.Fatal(err)
		}
		texts = append(texts, fmt.Sprintf("%d %v %q", doc.line, doc.long, doc.text))
		ends = append(ends, doc.end)
	}
}

func TestReader_SplitsDocuments(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		want   []string
	}{
		"nothing":               {"", nil},
		"white space":           {" \n\t\n", nil},
		"lines":                 {"{\"a\":1}\n{\"b\":2}\n", []string{`1 false "{\"a\":1}"`, `2 false "{\"b\":2}"`}},
		"no end, carriages":     {"\n{\"a\":1}\r\n\r\n{\"b\":2}", []string{`2 false "{\"a\":1}"`, `4 false "{\"b\":2}"`}},
		"YAML":                  {"a: 1\n---\nb: 2\n", []string{`1 false "a: 1\n"`, `2 false "\nb: 2\n"`}},
		"YAML with a beginning": {"# c\n---\na: 1\n--- \n---\n...\n---\n# nothing\n", []string{`2 false "\na: 1\n"`}},
		"YAML on its separator": {"--- {a: 1}\n--- # c\nb: 2", []string{`1 false " {a: 1}\n"`, `2 false " # c\nb: 2\n"`}},
		"lines with a mark":     {"\uFEFF{\"a\":1}\n{\"b\":2}\n", []string{`1 false "{\"a\":1}"`, `2 false "{\"b\":2}"`}},
		"YAML with a mark":      {"\uFEFF---\na: 1\n---\nb: 2\n", []string{`1 false "\na: 1\n"`, `3 false "\nb: 2\n"`}},
		"a mark alone":          {"\uFEFF", nil},
		"no separator":          {"a: ----\n----\n --- x\n", []string{`1 false "a: ----\n----\n --- x\n"`}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := all(t, []byte(c.stream), position{0, 1}); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestReader_CutsWhatIsTooLong(t *testing.T) {
	long := strings.Repeat("x", maxDocument+1)
	for name, stream := range map[string]string{
		"a line":                 `{"a":"` + long + `"}` + "\n{}",
		"a line of YAML":         "a: " + long + "\n--- {}",
		"many lines of YAML":     "a: |\n" + strings.Repeat("  xxxxxxxxxxxxxxxxxxxxxxxxxxx\n", maxDocument/30+1000) + "--- {}",
		"a line without its end": `{"a":"` + long,
	} {
		t.Run(name, func(t *testing.T) {
			texts, _ := all(t, []byte(stream), position{0, 1})
			if len(texts) == 0 || !strings.HasPrefix(texts[0], "1 true ") || len(texts[0]) > 2*maxDocument {
				t.Fatalf("the first of %d documents is not told to be long, or is kept whole", len(texts))
			}
			if name != "a line without its end" && (len(texts) != 2 || !strings.Contains(texts[1], "{}")) {
				t.Errorf("the document behind it is lost: %d documents", len(texts))
			}
		})
	}
}

// errReader fails behind its text.
type errReader struct{ io.Reader }

func (r errReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

func TestReader_TellsAFailureOfItsStream(t *testing.T) {
	for _, text := range []string{"", "{", "{\"a\":1}\n{\"b", "a: 1\n---\nb: "} {
		r, err := newReader(errReader{strings.NewReader(text)}, position{0, 1})
		for err == nil {
			_, err = r.next()
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

// Whatever a stream says: reading ends, documents stand in order, reading from the
// end of any of them finds exactly those behind it, and no document breaks what reads
// it or is told about with its own words.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "{\"kind\":\"task\"}\n\n{", "--- {kind: workspace, id: w, name: W}\n---\nkind: task\n", "a: &x [1]\nb: *x", "...\n---\n%YAML 1.2",
		"kind: message\nid: m\ncreated_at: 2026-01-01T00:00:00Z\nmetadata: {a: 1e400, b: .inf, c: !!binary eA==}",
		"{\"kind\":\"relation\",\"source_task_id\":[],\"x\\u0000\":1,\"x\\u0000\":2}", "{\"kind\":\"step\",\"position\":1e9,\"wip_limit\":-0.5}\r",
		strings.Repeat("[", 100), "{\"a\":" + strings.Repeat("[", 100) + "}", "\xff\xfe{", "? a\n: b", "<<: {a: 1}\nkind: x",
	} {
		f.Add([]byte(seed))
	}
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, stream []byte) {
		texts, ends := all(t, stream, position{0, 1})
		last := position{0, 1}
		for i, end := range ends {
			if end.offset < last.offset || end.line < last.line || end.offset > int64(len(stream)) {
				t.Fatalf("document %d ends at %v, the one before at %v of %d bytes", i, end, last, len(stream))
			}
			last = end
			if i%(1+len(ends)/8) > 0 {
				continue // some of many
			}
			if rest, _ := all(t, stream, end); !slices.Equal(rest, texts[i+1:]) {
				t.Fatalf("behind document %d: got %q, want %q", i, rest, texts[i+1:])
			}
		}
		r, err := newReader(bytes.NewReader(stream), position{0, 1})
		if err != nil {
			t.Fatal(err)
		}
		for {
			doc, err := r.next()
			if err != nil {
				break
			}
			d := r.document(doc, now)
			if d.item == nil && len(d.faults) == 0 {
				t.Fatalf("line %d is neither read nor faulted", doc.line)
			}
			for _, fault := range d.faults {
				if fault.Line < doc.line || fault.Problem == "" || len(fault.Field) > 256 {
					t.Errorf("a fault of line %d: %+v", doc.line, fault)
				}
			}
			if d.item != nil {
				d.needs(func(Space, string) {})
				d.place()
			}
		}
	})
}
