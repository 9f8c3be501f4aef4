// Package docs_test holds the documentation to the code: the table of results, the
// links, and the files and names of the page that shows the way of one call. It
// imports contract and reads files, nothing else of this module.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kandev/plugin-host/contract"
)

const root = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// rows returns the cells of the first table below a heading of a page, without its
// header; code marks are taken off.
func rows(t *testing.T, page, heading string) [][]string {
	t.Helper()
	_, section, found := strings.Cut(page, "\n"+heading+"\n")
	if !found {
		t.Fatalf("no heading %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n#")
	var table [][]string
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		table = append(table, cells)
	}
	if len(table) < 3 {
		t.Fatalf("no table below %q", heading)
	}
	return table[2:]
}

func TestResultsPageIsTheContract(t *testing.T) {
	page := read(t, "docs/reference/results.md")

	var states []contract.State
	for _, row := range rows(t, page, "## States") {
		states = append(states, contract.State(row[0]))
	}
	if !slices.Equal(states, contract.States()) {
		t.Errorf("states\npage:     %v\ncontract: %v", states, contract.States())
	}

	var reasons []contract.ReasonInfo
	for _, row := range rows(t, page, "## Reasons") {
		if len(row) != 4 || row[3] == "" {
			t.Errorf("the row of %s doesn't say when", row[0])
			continue
		}
		reasons = append(reasons, contract.ReasonInfo{
			Reason: contract.Reason(row[0]), Parent: contract.State(row[1]), Retry: contract.Retry(row[2]),
		})
	}
	if !slices.Equal(reasons, contract.Reasons()) {
		t.Errorf("reasons\npage:     %v\ncontract: %v", reasons, contract.Reasons())
	}

	explained := map[string]bool{}
	for _, row := range rows(t, page, "## Retries") {
		explained[row[0]] = true
	}
	for _, info := range contract.Reasons() {
		if !explained[string(info.Retry)] {
			t.Errorf("the retry %s isn't explained", info.Retry)
		}
	}
}

// pages lists every Markdown file that a reader can reach.
func pages(t *testing.T) []string {
	t.Helper()
	found := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.HasSuffix(path, ".md") {
			relative, relErr := filepath.Rel(root, path)
			found = append(found, relative)
			return relErr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestLinksLeadSomewhere(t *testing.T) {
	for _, page := range pages(t) {
		for _, match := range link.FindAllStringSubmatch(read(t, page), -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := page
			if target != "" {
				file = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s links to %s: %v", page, match[1], err)
			} else if anchor != "" && !slices.Contains(anchors(read(t, file)), anchor) {
				t.Errorf("%s links to %s, which has no such heading", page, match[1])
			}
		}
	}
}

var notInAnchor = regexp.MustCompile(`[^a-z0-9 _-]`)

// anchors are the names that a page's headings get.
func anchors(page string) []string {
	var names []string
	for line := range strings.Lines(page) {
		if heading := strings.TrimLeft(line, "#"); heading != line {
			name := notInAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			names = append(names, strings.ReplaceAll(name, " ", "-"))
		}
	}
	return names
}

// TestTheWayOfOneCallExists: the page names a file and what to look for in it, and
// both are there.
func TestTheWayOfOneCallExists(t *testing.T) {
	page := read(t, "docs/way-of-one-call.md")
	for _, heading := range []string{"## A write", "## A read", "## A change of authority"} {
		for _, row := range rows(t, page, heading) {
			if len(row) != 4 {
				t.Fatalf("%s: the row %v has %d cells, want 4", heading, row, len(row))
			}
			file, name := row[1], row[2]
			declared := regexp.MustCompile(`(?m)^\s*(func (\([^)]*\) )?|type |rpc )` + regexp.QuoteMeta(name) + `\b`)
			if !declared.MatchString(read(t, file)) {
				t.Errorf("%s: %s declares no %s", heading, file, name)
			}
		}
	}
}
