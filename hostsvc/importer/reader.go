package importer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxDocument is the most bytes of one document.
const maxDocument = 2 << 20

// position is a place in a stream: bytes before it, and its line from 1.
type position struct{ offset, line int64 }

// raw is one document as it stands in the stream.
type raw struct {
	text []byte
	// line is where text begins.
	line int64
	// long: the document has more than maxDocument bytes, and text is cut.
	long bool
	// end is where the next document begins.
	end position
}

// reader splits a stream into documents: lines of JSON, or YAML between its
// separators. It holds one document at a time.
type reader struct {
	in   *bufio.Reader
	at   position
	yaml bool
	// rest is what stands behind the separator of the document that comes next.
	rest     []byte
	restLine int64
	text     []byte
}

const readerBuffer = 64 << 10

// newReader reads a stream from where an import of it is. Whether it is YAML shows
// at its beginning: JSON lines begin with a brace.
func newReader(in io.Reader, from position) (*reader, error) {
	r := &reader{in: bufio.NewReaderSize(in, readerBuffer), at: from}
	marked, err := begins(r.in, byteOrderMark)
	if err != nil {
		return nil, err
	}
	skip := 0
	if marked {
		skip = len(byteOrderMark)
	}
	if r.yaml, err = isYAML(r.in, skip); err != nil {
		return nil, err
	}
	if marked && from.offset == 0 {
		if _, err := r.in.Discard(skip); err != nil {
			return nil, fmt.Errorf("read the beginning: %w", err)
		}
		r.at.offset = int64(skip)
	}
	if from.offset > 0 {
		if _, err := io.CopyN(io.Discard, r.in, from.offset); err != nil {
			return nil, fmt.Errorf("skip what is imported already: %w", err)
		}
	}
	return r, nil
}

// byteOrderMark is what some editors begin a file with. It is no part of it.
const byteOrderMark = "\uFEFF"

// begins looks whether the stream begins with a text, without reading it.
func begins(in *bufio.Reader, with string) (bool, error) {
	head, err := in.Peek(len(with))
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read the beginning: %w", err)
	}
	return string(head) == with, nil
}

// isYAML looks at the beginning behind skip bytes without reading it.
func isYAML(in *bufio.Reader, skip int) (bool, error) {
	for n := skip + 1; n <= readerBuffer; n++ {
		head, err := in.Peek(n)
		if errors.Is(err, io.EOF) {
			return false, nil // nothing, or nothing but white space
		}
		if err != nil {
			return false, fmt.Errorf("read the beginning: %w", err)
		}
		switch head[n-1] {
		case ' ', '\t', '\r', '\n':
		default:
			return head[n-1] != '{', nil
		}
	}
	return true, nil
}

// next returns the next document, io.EOF behind the last. What it returns is valid
// until the next call.
func (r *reader) next() (raw, error) {
	if r.yaml {
		return r.nextYAML()
	}
	for {
		line := r.at.line
		text, long, err := r.line()
		if err != nil {
			return raw{}, err
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			return raw{text, line, long, r.at}, nil
		}
	}
}

// nextYAML gathers lines up to a separator. Lines that begin with one are separators
// wherever they stand, also within a text.
func (r *reader) nextYAML() (raw, error) {
	for {
		doc := raw{line: r.at.line}
		r.text = r.text[:0]
		if r.rest != nil {
			doc.line, r.text, r.rest = r.restLine, append(r.text, r.rest...), nil
		}
		ended := false
		for !ended {
			before := r.at
			line, long, err := r.line()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return raw{}, err
			}
			if rest, ok := separator(line); ok {
				// What is behind it belongs to the next document, which therefore begins
				// with the separator.
				r.rest, r.restLine, doc.end, ended = bytes.Clone(rest), before.line, before, true
				break
			}
			if doc.long = doc.long || long || len(r.text)+len(line) > maxDocument; !doc.long {
				r.text = append(append(r.text, line...), '\n')
			}
		}
		doc.text = r.text
		if !ended {
			doc.end = r.at
		}
		if doc.long || !blank(doc.text) {
			return doc, nil
		}
		if !ended {
			return raw{}, io.EOF
		}
	}
}

// separator tells whether a line ends a YAML document, and what stands behind it.
func separator(line []byte) (rest []byte, ok bool) {
	if !bytes.HasPrefix(line, []byte("---")) && !bytes.HasPrefix(line, []byte("...")) {
		return nil, false
	}
	rest = line[3:]
	if len(rest) > 0 && rest[0] != ' ' && rest[0] != '\t' {
		return nil, false
	}
	return append(bytes.Clone(rest), '\n'), true
}

// blank tells whether a YAML text has nothing but comments.
func blank(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// line reads a line without its end. A longer one than maxDocument is cut.
func (r *reader) line() (text []byte, long bool, err error) {
	first := true
	for {
		part, err := r.in.ReadSlice('\n')
		r.at.offset += int64(len(part))
		done := !errors.Is(err, bufio.ErrBufferFull)
		switch {
		case err != nil && done && !errors.Is(err, io.EOF):
			return nil, false, fmt.Errorf("read line %d: %w", r.at.line, err)
		case first && done && len(part) == 0:
			return nil, false, io.EOF
		case first && done:
			r.at.line++
			return bytes.TrimRight(part, "\r\n"), long, nil
		}
		// A line that doesn't fit into the buffer.
		if first {
			text, first = nil, false
		}
		if long = long || len(text)+len(part) > maxDocument+2; !long {
			text = append(text, part...)
		}
		if done {
			r.at.line++
			return bytes.TrimRight(text, "\r\n"), long || len(text) > maxDocument, nil
		}
	}
}
