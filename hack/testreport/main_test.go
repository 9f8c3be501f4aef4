package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReport runs real packages, so that it holds for the go command in use.
func TestReport(t *testing.T) {
	for _, test := range []struct {
		name, source string
		each, ok     bool
		want, not    []string
	}{
		{name: "passing", ok: true,
			source: `func TestA(t *testing.T) { t.Log("quiet"); t.Run("sub", func(t *testing.T) {}) }
func TestB(t *testing.T) { t.Skip("because") }`,
			want: []string{"ok  \texample.test/sample", "--- SKIP: TestB", "1 tests passed, 0 failed, 1 skipped, in 1 packages"},
			not:  []string{"quiet", "--- PASS"}},
		{name: "each", each: true, ok: true,
			source: `func TestA(t *testing.T) { t.Run("sub", func(t *testing.T) {}) }`,
			want:   []string{"--- PASS: TestA (", "--- PASS: TestA/sub (", "1 tests passed"}},
		{name: "failing",
			source: `func TestA(t *testing.T) {}
func TestB(t *testing.T) { t.Error("loud") }`,
			want: []string{"loud", "--- FAIL: TestB", "FAIL\texample.test/sample", "1 tests passed, 1 failed"}},
		{name: "failing early", each: true,
			source: `func TestA(t *testing.T) { t.Log("of it:\n{a log}"); t.Error("loud") }
func TestB(t *testing.T) {}`,
			want: []string{"{a log}", "--- PASS: TestB", "sample_test.go:13: loud\n--- FAIL: TestA (0.00s)\n\n1 tests passed, 1 failed"}},
		{name: "panicking",
			source: `func TestA(t *testing.T) {}
func TestB(t *testing.T) { panic("boom") }`,
			want: []string{"boom", "FAIL\texample.test/sample"}},
		{name: "exiting",
			source: `func TestA(t *testing.T) {}
func TestMain(m *testing.M) { m.Run(); println("gone"); os.Exit(3) }`,
			want: []string{"gone", "FAIL\texample.test/sample"}},
		{name: "not compiling",
			source: `func TestA(t *testing.T) { undefined() }`,
			want:   []string{"undefined: undefined", "FAIL"}},
		{name: "no test", source: ``, want: []string{"FAIL: no test ran"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{
				"go.mod":         "module example.test/sample\n\ngo 1.26.0\n",
				"sample_test.go": "package sample\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nvar (\n\t_ = os.Exit\n\t_ *testing.T\n)\n\n" + test.source + "\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), "go", "test", "-json", "./...")
			cmd.Dir = dir
			events, _ := cmd.CombinedOutput() // it fails where the sample does
			var out bytes.Buffer
			ok, err := report(bytes.NewReader(events), &out, test.each)
			if err != nil || ok != test.ok {
				t.Errorf("got %v, %v; want %v", ok, err, test.ok)
			}
			for _, want := range test.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in:\n%s", want, &out)
				}
			}
			for _, not := range test.not {
				if strings.Contains(out.String(), not) {
					t.Errorf("%q in:\n%s", not, &out)
				}
			}
		})
	}
}
