package contract

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const goldenFile = "testdata/golden.txt"

// vocabulary is everything of the contract that is permanent, one line each,
// by section.
func vocabulary() map[string][]string {
	lines := map[string][]string{}
	for i, c := range Capabilities() {
		lines["capability"] = append(lines["capability"], fmt.Sprintf("capability %d %s", i, c))
	}
	for _, s := range States() {
		lines["state"] = append(lines["state"], fmt.Sprintf("state %s", s))
	}
	for _, r := range Reasons() {
		lines["reason"] = append(lines["reason"], fmt.Sprintf("reason %s parent %s retry %s", r.Reason, r.Parent, r.Retry))
	}
	for i := range legacyCount {
		lines["legacy"] = append(lines["legacy"], fmt.Sprintf("legacy %s", i))
	}
	return lines
}

func golden(t *testing.T) map[string][]string {
	t.Helper()
	file, err := os.Open(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // only read
	lines := map[string][]string{}
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		line := scanner.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		section, _, _ := strings.Cut(line, " ")
		lines[section] = append(lines[section], line)
	}
	return lines
}

// What has shipped is never removed, moved, renamed or given another parent or
// retry model: the golden file is a prefix of every section.
func TestVocabulary_Permanent(t *testing.T) {
	have, want := vocabulary(), golden(t)
	for section := range have {
		if len(want[section]) == 0 {
			t.Errorf("%s has no %s", goldenFile, section)
		}
	}
	for section, lines := range want {
		for i, line := range lines {
			switch {
			case i >= len(have[section]):
				t.Errorf("removed: %q", line)
			case have[section][i] != line:
				t.Errorf("%s %d: have %q, shipped as %q", section, i, have[section][i], line)
			}
		}
	}
}

// What is appended is pinned at once, or it could still move before anybody
// notices.
func TestVocabulary_Pinned(t *testing.T) {
	want := golden(t)
	for section, lines := range vocabulary() {
		for _, line := range lines[min(len(want[section]), len(lines)):] {
			t.Errorf("append to %s: %s", goldenFile, line)
		}
	}
}

func TestVocabulary_Unique(t *testing.T) {
	used := map[string]bool{}
	for _, lines := range vocabulary() {
		for _, line := range lines {
			words := strings.Fields(line)
			name := words[0] + " " + words[1]
			if words[0] == "capability" {
				name = words[0] + " " + words[2]
			}
			if used[name] {
				t.Errorf("%s is used twice", name)
			}
			used[name] = true
		}
	}
}

// Every reason belongs to a state that is no success, has a retry model, and
// its row is the one that lookups return.
func TestReasons_Table(t *testing.T) {
	states := map[State]bool{}
	for _, s := range States() {
		states[s] = true
	}
	for _, row := range Reasons() {
		if !states[row.Parent] || row.Parent.Succeeded() {
			t.Errorf("%s: parent %q is no state of a refusal", row.Reason, row.Parent)
		}
		if row.Retry == "" || row.Retry == RetryNone {
			t.Errorf("%s: retry %q", row.Reason, row.Retry)
		}
		if got, ok := LookupReason(row.Reason); !ok || got != row || row.Reason.Parent() != row.Parent {
			t.Errorf("%s: looked up as %+v", row.Reason, got)
		}
	}
	if _, ok := LookupReason("NO_SUCH_REASON"); ok {
		t.Error("an unknown reason is looked up")
	}
	for _, unknown := range []Reason{"", "NO_SUCH_REASON", "applied", "capability_revoked"} {
		if got := unknown.Parent(); got != StateUnsupported {
			t.Errorf("unknown reason %q has parent %s", unknown, got)
		}
	}
}

func TestReasons_AreCopied(t *testing.T) {
	Reasons()[0].Parent = StateApplied
	if Reasons()[0].Parent == StateApplied {
		t.Error("a caller can change the table")
	}
}

func TestState_Succeeded(t *testing.T) {
	want := map[State]bool{StateApplied: true, StateAlreadyApplied: true, StateNoChange: true}
	for _, s := range append(States(), "", "applied", "SUCCESS") {
		if got := s.Succeeded(); got != want[s] {
			t.Errorf("%q succeeded: %v", s, got)
		}
	}
}

// The contract is generic: no product built on it has a place in it.
func TestContract_NamesNoProduct(t *testing.T) {
	banned := "co" + "ordinator"
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	if paths = append(paths, found...); len(paths) < 5 {
		t.Fatalf("only %v found", paths)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(strings.ToLower(string(text)), banned) {
			t.Errorf("%s names a product", path)
		}
	}
}
