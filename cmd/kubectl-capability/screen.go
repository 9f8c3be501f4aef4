package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// screen is a stream that people read. Names, reasons, file names and messages can
// be a stranger's: what would move the cursor, change the order of the letters or
// begin a command of the terminal is written out as \uXXXX, which JSON reads back
// as it was. Only the painter's colours pass, and only to a terminal.
type screen struct {
	io.Writer
	colours bool
}

// screenOf wraps a stream: colours are for terminals, and not for those who set
// NO_COLOR or a dumb one.
func screenOf(w io.Writer) *screen {
	file, ok := w.(*os.File)
	_, refused := os.LookupEnv("NO_COLOR")
	return &screen{w, ok && !refused && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(file.Fd()))}
}

// Write implements io.Writer.
func (s *screen) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.Writer, s.harmless(string(p))); err != nil {
		return 0, err //nolint:wrapcheck // as io.Writer has it
	}
	return len(p), nil
}

func (s *screen) harmless(text string) string {
	var b strings.Builder
	for i, r := range text {
		rest := text[i:]
		switch {
		case r == '\n', r == '\t', r == '\r' && strings.HasPrefix(rest, "\r\n"), r == '\x1b' && s.colours && isColour(rest), !commands(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// isColour tells one of the painter's codes, or the one that ends them.
func isColour(text string) bool {
	for _, code := range []string{"0", "1", "31", "32", "33"} {
		if strings.HasPrefix(text, "\x1b["+code+"m") {
			return true
		}
	}
	return false
}

// commands tells a character that a terminal obeys instead of showing it: the
// control characters, line separators, and those that turn the direction.
func commands(r rune) bool {
	return r < 0x20 || r >= 0x7f && r <= 0x9f || r == 0x061c || r == 0x200e || r == 0x200f ||
		r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// visible keeps a text on one line, and in its column.
func visible(text string) string {
	if strings.IndexFunc(text, commands) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if commands(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
