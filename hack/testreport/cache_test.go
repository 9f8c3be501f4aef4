package main

import (
	"os/exec"
	"regexp"
	"testing"
)

// The cache of results doesn't see the binaries and charts that suites drive: `make test`
// must not answer from it, whichever packages and flags it is given.
func TestMakeTestIsNeverCached(t *testing.T) {
	for _, args := range [][]string{nil, {"PACKAGES=./test/conformance"}, {"PACKAGES=./a ./b", "TESTFLAGS=-run I5"}} {
		cmd := exec.CommandContext(t.Context(), "make", append([]string{"--dry-run", "test"}, args...)...)
		cmd.Dir = "../.."
		text, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		runs := regexp.MustCompile(`\bgo test\b[^|]*`).FindAllString(string(text), -1)
		if len(runs) != 1 || !regexp.MustCompile(` -count=1 `).MatchString(runs[0]) {
			t.Errorf("make test %q runs %q", args, runs)
		}
	}
}
