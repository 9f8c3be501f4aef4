package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// stage prints the story. It is the world's narrator.
type stage struct {
	out    io.Writer
	began  time.Time
	checks int
}

// Title begins a step.
func (s *stage) Title(format string, args ...any) {
	fmt.Fprintf(s.out, "\n=== [%4.1f s] %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// say explains.
func (s *stage) say(format string, args ...any) {
	fmt.Fprintf(s.out, "    %s\n", fmt.Sprintf(format, args...))
}

// Show prints a command and what it wrote.
func (s *stage) Show(command, output string) {
	fmt.Fprintf(s.out, "  $ %s\n", command)
	for line := range strings.Lines(strings.TrimRight(output, "\n")) {
		fmt.Fprintf(s.out, "    %s\n", strings.TrimRight(line, "\n"))
	}
}

// check says what was shown to hold, or fails with what was seen instead.
func (s *stage) check(holds bool, claim string, seen any) error {
	if !holds {
		return fmt.Errorf("it is not so that %s; seen: %v", claim, seen)
	}
	s.Holds(claim)
	return nil
}

// Holds says a claim that was checked.
func (s *stage) Holds(claim string) {
	s.checks++
	fmt.Fprintf(s.out, "  ✓ %s\n", claim)
}
