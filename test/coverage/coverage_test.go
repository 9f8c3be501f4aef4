// Package coverage keeps the table of scenarios honest: each row of the documents
// that speak of authority is there, and each test that it names exists. It reads
// Go files as text and runs nothing.
package coverage

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The states of a row.
const (
	covered = "covered"
	partly  = "partly"
	not     = "not"
)

// maxAbout bounds a description: a row is named here, not repeated.
const maxAbout = 120

type table struct {
	Documents []document `yaml:"documents"`
}

type document struct {
	// Name is the document's, with its folder.
	Name string `yaml:"name"`
	Rows []row  `yaml:"rows"`
}

// row is one scenario. ID is its number in the document, or its heading and its
// place below that.
type row struct {
	ID    string `yaml:"id"`
	About string `yaml:"about"`
	State string `yaml:"state"`
	// Why says what is missing, where the state isn't covered.
	Why string `yaml:"why"`
	// Tests are "folder: name": a function, "function/text" for a part of it that has
	// this text, or the beginning of one Ginkgo text.
	Tests []string `yaml:"tests"`
}

// headings are a document's, each with the number of its scenarios.
type headings []struct {
	name string
	rows int
}

// The documents' rows, by which the table is complete. Numbers of user-asks have
// gaps; every row is listed, those that don't touch authority too. Scenarios of
// authority are what stands in brackets below a heading, and its rules of
// restores and copies.
var (
	userAsks = []int{
		1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29, 31, 32, 34, 35, 37, 38, 40, 41, 43, 44, 46, 47,
		49, 50, 52, 53, 55, 56, 58, 59, 61, 62, 64, 65, 67, 68, 70, 71, 73, 74, 76, 77, 79, 80, 82, 83, 85, 86, 88, 89, 91, 92, 94, 95,
		97, 98, 100, 101,
	}
	approvals = headings{
		{"revision rules", 7}, {"race guard", 4}, {"ledger", 11}, {"authorization", 4}, {"digest", 2}, {"http", 3}, {"host", 10},
	}
	protocol = headings{
		{"the row", 2}, {"human act", 6}, {"one pass", 8}, {"locks", 2}, {"what the Host sees", 3}, {"freshness", 1}, {"restores", 6}, {"whose pod", 1},
	}
)

func (h headings) ids() (ids []string) {
	for _, heading := range h {
		for i := range heading.rows {
			ids = append(ids, fmt.Sprintf("%s %d", heading.name, i+1))
		}
	}
	return ids
}

func numbers(rows []int) (ids []string) {
	for _, n := range rows {
		ids = append(ids, strconv.Itoa(n))
	}
	return ids
}

// read parses the table, in which no field is unknown.
func read(text []byte) (table, error) {
	var t table
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&t); err != nil {
		return t, fmt.Errorf("read the table: %w", err)
	}
	return t, nil
}

// faults are what is wrong with the table.
func faults(t table, tests index) (found []string) {
	want := []struct {
		name string
		ids  []string
	}{
		{"design/user-asks", numbers(userAsks)}, {"wire/upstream-approvals", approvals.ids()}, {"design/authority", protocol.ids()},
	}
	if len(t.Documents) != len(want) {
		return []string{fmt.Sprintf("%d documents, want %d", len(t.Documents), len(want))}
	}
	for i, d := range t.Documents {
		var ids []string
		for _, r := range d.Rows {
			ids = append(ids, r.ID)
			for _, fault := range r.faults(tests) {
				found = append(found, fmt.Sprintf("%s, row %s: %s", d.Name, r.ID, fault))
			}
		}
		if d.Name != want[i].name || !slices.Equal(ids, want[i].ids) {
			found = append(found, fmt.Sprintf("%s has rows\n%q, want of %s\n%q", d.Name, ids, want[i].name, want[i].ids))
		}
	}
	return found
}

func (r row) faults(tests index) (found []string) {
	if r.About == "" || len(r.About) > maxAbout {
		found = append(found, fmt.Sprintf("about has %d bytes, want 1 to %d", len(r.About), maxAbout))
	}
	switch r.State {
	case covered, partly:
		if len(r.Tests) == 0 {
			found = append(found, r.State+" by no test")
		}
	case not:
		if len(r.Tests) > 0 {
			found = append(found, "not covered, and yet by a test")
		}
	default:
		found = append(found, fmt.Sprintf("state %q", r.State))
	}
	if (r.State == covered) != (r.Why == "") {
		found = append(found, "a row says why it isn't covered, and only then")
	}
	for i, name := range r.Tests {
		if slices.Contains(r.Tests[:i], name) {
			found = append(found, "twice: "+name)
		}
		if err := tests.find(name); err != nil {
			found = append(found, err.Error())
		}
	}
	return found
}

// index holds what can be named: by folder, each function with the texts in it,
// and what Ginkgo's containers and specs are called.
type index map[string]*folder

type folder struct {
	functions map[string][]string
	texts     []string
}

// newIndex reads the files that hold tests below a root.
func newIndex(root string) (index, error) {
	tests := index{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && name != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "bin") {
			return filepath.SkipDir
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		if !strings.HasSuffix(relative, ".go") || !holdsTests(relative) {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		tests.add(path.Dir(relative), file)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the tests: %w", err)
	}
	return tests, nil
}

// holdsTests: a test file, or one of a package that tests share.
func holdsTests(name string) bool {
	return strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "hostsvc/store/storetest/") ||
		strings.HasPrefix(name, "test/lifecycle/") || strings.HasPrefix(name, "test/bench/")
}

// ginkgo are the functions whose first argument names a test.
var ginkgo = []string{"Describe", "DescribeTable", "Context", "When", "It", "Specify", "Entry"}

func (tests index) add(dir string, file *ast.File) {
	f := tests[dir]
	if f == nil {
		f = &folder{functions: map[string][]string{}}
		tests[dir] = f
	}
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if ok && function.Recv == nil {
			f.functions[function.Name.Name] = texts(declaration)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		if name, ok := call.Fun.(*ast.Ident); ok && slices.Contains(ginkgo, name.Name) {
			if found := texts(call.Args[0]); len(found) > 0 && !slices.Contains(f.texts, found[0]) {
				f.texts = append(f.texts, found[0])
			}
		}
		return true
	})
}

// texts are the string literals below a node, in their order.
func texts(n ast.Node) (found []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				found = append(found, text)
			}
		}
		return true
	})
	return found
}

// find says why a name is none of exactly one test.
func (tests index) find(name string) error {
	dir, test, ok := strings.Cut(name, ": ")
	f := tests[dir]
	if !ok || test == "" || f == nil {
		return fmt.Errorf("%q: no folder with tests, or no test, is named", name)
	}
	function, part, parted := strings.Cut(test, "/")
	if within, ok := f.functions[function]; ok {
		if parted && !slices.Contains(within, part) {
			return fmt.Errorf("%q: %s has no such part", name, function)
		}
		return nil
	}
	var begin []string
	for _, text := range f.texts {
		if text == test {
			return nil
		}
		if strings.HasPrefix(text, test) {
			begin = append(begin, text)
		}
	}
	if len(begin) != 1 {
		return fmt.Errorf("%q: %d tests begin so, want one", name, len(begin))
	}
	return nil
}

func load(t *testing.T) table {
	t.Helper()
	text, err := os.ReadFile("scenarios.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := read(text)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func indexed(t *testing.T) index {
	t.Helper()
	tests, err := newIndex(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

// TestEveryScenarioNamesItsTests compares the table with the documents' rows and
// with the tests that there are, and tells the totals.
func TestEveryScenarioNamesItsTests(t *testing.T) {
	rows := load(t)
	for _, fault := range faults(rows, indexed(t)) {
		t.Error(fault)
	}
	for _, d := range rows.Documents {
		states := map[string]int{}
		for _, r := range d.Rows {
			states[r.State]++
		}
		t.Logf("%s: %d rows, %d covered, %d partly, %d not", d.Name, len(d.Rows), states[covered], states[partly], states[not])
	}
}

// TestFaultsAreFound breaks the table in each way that it can rot.
func TestFaultsAreFound(t *testing.T) {
	const sound = "test/coverage: TestFaultsAreFound"
	tests := indexed(t)
	for name, c := range map[string]struct {
		change func(*table)
		want   string
	}{
		"a row is missing":           {func(t *table) { t.Documents[0].Rows = t.Documents[0].Rows[1:] }, "has rows"},
		"a row is there twice":       {func(t *table) { t.Documents[1].Rows = append(t.Documents[1].Rows, t.Documents[1].Rows[0]) }, "has rows"},
		"a document is missing":      {func(t *table) { t.Documents = t.Documents[1:] }, "documents"},
		"covered by nothing":         {func(t *table) { t.Documents[0].Rows[0] = row{ID: "1", About: "a", State: covered} }, "by no test"},
		"a state that isn't one":     {func(t *table) { t.Documents[0].Rows[0] = row{ID: "1", About: "a", State: "done"} }, "state"},
		"not covered without reason": {func(t *table) { t.Documents[0].Rows[0] = row{ID: "1", About: "a", State: not} }, "says why"},
		"a test that is gone": {func(t *table) {
			t.Documents[0].Rows[0] = row{ID: "1", About: "a", State: covered, Tests: []string{sound + "Not"}}
		}, "0 tests begin so"},
		"a part that is gone": {func(t *table) {
			t.Documents[0].Rows[0] = row{ID: "1", About: "a", State: covered, Tests: []string{sound + "/" + strings.Repeat("x", 3)}}
		}, "no such part"},
		"a folder that is gone": {func(t *table) {
			t.Documents[0].Rows[0] = row{ID: "1", About: "a", State: covered, Tests: []string{"test/nowhere: TestX"}}
		}, "no folder"},
		"a text that two tests begin with": {func(t *table) {
			t.Documents[0].Rows[0] = row{ID: "1", About: "a", State: covered, Tests: []string{"test/controllers: I"}}
		}, "want one"},
	} {
		t.Run(name, func(t *testing.T) {
			rows := load(t)
			c.change(&rows)
			found := faults(rows, tests)
			if !slices.ContainsFunc(found, func(fault string) bool { return strings.Contains(fault, c.want) }) {
				t.Errorf("found %q, want one of %q", found, c.want)
			}
		})
	}
}
