package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kandev/plugin-host/contract"
)

// painter colours text, or leaves it as it is.
type painter struct{ on bool }

// paint returns the painter for a stream.
func (t *tool) paint(w io.Writer) painter {
	s, ok := w.(*screen)
	return painter{on: ok && s.colours}
}

func (p painter) in(code, text string) string {
	if !p.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p painter) red(text string) string    { return p.in("31", text) }
func (p painter) green(text string) string  { return p.in("32", text) }
func (p painter) yellow(text string) string { return p.in("33", text) }
func (p painter) bold(text string) string   { return p.in("1", text) }

// encode prints a value as -o asks. Both forms have the same fields.
func (t *tool) encode(output string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err == nil && output == "yaml" {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return fmt.Errorf("print as %s: %w", output, err)
	}
	fmt.Fprintln(t.Out, strings.TrimRight(string(text), "\n"))
	return nil
}

// table prints rows in columns. The first one is the header.
func table(w io.Writer, rows [][]string) {
	tab := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		shown := make([]string, len(row))
		for i, text := range row {
			shown[i] = visible(text)
		}
		fmt.Fprintln(tab, strings.Join(shown, "\t"))
	}
	_ = tab.Flush() // text for a person
}

// facts prints names with their values, aligned; those without a value are left
// out.
func facts(w io.Writer, pairs ...string) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(tab, "%s\t%s\n", pairs[i], visible(pairs[i+1]))
		}
	}
	_ = tab.Flush() // text for a person
}

func listed(set contract.CapabilitySet) string {
	if set == 0 {
		return "nothing"
	}
	return strings.Join(set.IDs(), ", ")
}

// instant prints a time for people, to the second.
func instant(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04:05 MST")
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
