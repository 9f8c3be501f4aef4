package process

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"

	"golang.org/x/time/rate"
)

const (
	// MaxLineBytes is where a line of the child's output is cut.
	MaxLineBytes = 8 << 10
	// linesPerSecond and linesAtOnce bound how much of it is logged.
	linesPerSecond = 100
	linesAtOnce    = 500
	// maxSecretBytes is read beyond the cut, so that most secrets across it are seen
	// whole, and told to be redacted.
	maxSecretBytes = 4 << 10
)

// output writes what a child says to the log: line by line, cut, at a bounded
// rate, and without the values of secrets. One output serves all streams of a
// child; each stream is a writer of its own.
type output struct {
	log *slog.Logger
	// secrets returns the values that must not be written.
	secrets func() []string
	limit   *rate.Limiter

	mu      sync.Mutex
	dropped int
}

func newOutput(log *slog.Logger, secrets func() []string) *output {
	return &output{log: log, secrets: secrets, limit: rate.NewLimiter(linesPerSecond, linesAtOnce)}
}

// stream returns a writer for one stream.
func (o *output) stream(name string) *lines { return &lines{to: o, name: name} }

func (o *output) line(stream string, text []byte, cut bool) {
	if len(text) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.limit.Allow() {
		o.dropped++
		return
	}
	o.tellDropped()
	line := strings.ToValidUTF8(redacted(string(text), o.secrets(), cut), "\uFFFD")
	if len(line) > MaxLineBytes {
		line, cut = strings.ToValidUTF8(line[:MaxLineBytes], ""), true
	}
	attributes := []slog.Attr{slog.String("stream", stream), slog.String("line", line)}
	if cut {
		attributes = append(attributes, slog.Bool("cut", true))
	}
	o.log.LogAttrs(context.Background(), slog.LevelInfo, "The plugin writes", attributes...)
}

// redacted takes secrets out of a line, and out of the end of one that was cut what
// may have begun a secret.
func redacted(line string, secrets []string, cut bool) string {
	for _, secret := range secrets {
		line = strings.ReplaceAll(line, secret, "[redacted]")
	}
	if !cut {
		return line
	}
	for _, secret := range secrets {
		for n := min(len(secret)-1, len(line)); n > 0; n-- {
			if strings.HasSuffix(line, secret[:n]) {
				line = line[:len(line)-n]
				break
			}
		}
	}
	return line
}

func (o *output) tellDropped() {
	if o.dropped > 0 {
		o.log.Warn("The plugin writes too much; lines were dropped", "lines", o.dropped)
		o.dropped = 0
	}
}

// end tells what is still untold.
func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tellDropped()
}

// lines is one stream.
type lines struct {
	to   *output
	name string

	mu   sync.Mutex
	held []byte
	cut  bool // the rest of the line is thrown away
}

// Write implements io.Writer. It never fails: a child isn't stopped by its log.
func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(text)
	for len(text) > 0 {
		line, rest, ends := bytes.Cut(text, []byte{'\n'})
		l.hold(line)
		if ends {
			l.flush()
		}
		text = rest
	}
	return n, nil
}

func (l *lines) hold(part []byte) {
	room := MaxLineBytes + maxSecretBytes - len(l.held)
	if len(part) > room {
		part, l.cut = part[:room], true
	}
	l.held = append(l.held, part...)
}

func (l *lines) flush() {
	l.to.line(l.name, bytes.TrimSuffix(l.held, []byte{'\r'}), l.cut)
	l.held, l.cut = l.held[:0], false
}

// end writes a last line that has no end.
func (l *lines) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
}
