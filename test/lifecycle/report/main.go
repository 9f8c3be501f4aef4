// Command report writes the table of lifecycles as a page of the reference, so
// that what people read is what the tests demand.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/kandev/plugin-host/test/lifecycle"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: report FILE")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], []byte(page()), 0o644); err != nil { //nolint:gosec // a page of the docs
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

const intro = `# What happens to a grant

Every lifecycle of a grant, step by step. The tests play this very table, on a real API server with the real controllers (` + "`test/controllers`" + `) and in the simulation (` + "`test/simulation`" + `); the page is made from it (` + "`make generate`" + `).

Each story begins with a plugin that is installed, declares ` + "`read:tasks` and `write:tasks`" + `, and was never granted anything. *Events* are those that the step adds, one for each new revision, with type and cause. *New act* says that the act has another name afterwards, so that no manifest of before widens anything. *Review* is the reason of the condition ReviewRequired: what the manifest asks for and doesn't get.
`

func page() string {
	var b strings.Builder
	b.WriteString(intro)
	for _, row := range lifecycle.Table() {
		fmt.Fprintf(&b, "\n## %s\nRule: %s.\n\n", strings.ToUpper(row.Name[:1])+row.Name[1:], row.Source)
		b.WriteString("| step | events | state | effective | gates | review | new act |\n|---|---|---|---|---|---|---|\n")
		for _, step := range row.Steps {
			w := step.Want
			var effective []string
			for _, id := range w.Effective.IDs() {
				effective = append(effective, "`"+strings.TrimPrefix(id, "host.v2.")+"`")
			}
			renamed := ""
			if w.Renamed {
				renamed = "yes"
			}
			state := w.State
			if w.First {
				state += " (the first installation)"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", step.Does, orNone(w.Events), state,
				orNone(effective), orNone(w.Gates), orNone([]string{w.Review}), orNone([]string{renamed}))
		}
	}
	return b.String()
}

func orNone(list []string) string {
	if text := strings.Join(list, ", "); text != "" {
		return text
	}
	return "-"
}
