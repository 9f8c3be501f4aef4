// Command testreport turns the output of `go test -json` on its input into what a
// person reads: one line per package, everything a failed test said, and totals; last,
// the end of what each failed test said once more, for who sees only the end of a log. With
// -each it also prints the result line of every test, as `go test -v` does, so that a
// log shows which tests ran. It exits 1 when anything failed or nothing ran.
//
// It imports the standard library only.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	each := flag.Bool("each", false, "print the result of every test")
	flag.Parse()
	ok, err := report(os.Stdin, os.Stdout, *each)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	if !ok {
		os.Exit(1)
	}
}

// event is one line of `go test -json`, as documented by `go doc test2json`.
type event struct {
	Action  string  `json:"Action"`
	Package string  `json:"Package"`
	Test    string  `json:"Test"`
	Output  string  `json:"Output"`
	Elapsed float64 `json:"Elapsed"`
}

type test struct{ pkg, name string }

// totals counts tests without their subtests.
type totals struct {
	packages, passed, failed, skipped int
	// again is what a reader of the log's end is told of the failures.
	again []string
}

// lastWords is how many lines of a failed test are repeated at the end.
const lastWords = 40

// remember keeps the end of what a failed test said, without the structured logs of the
// programs that it ran.
func (s *totals) remember(name string, said []string) {
	var plain []string
	for _, line := range strings.SplitAfter(strings.Join(said, ""), "\n") {
		if text := strings.TrimSpace(line); text != "" && !strings.HasPrefix(text, "{") {
			plain = append(plain, line)
		}
	}
	s.again = append(s.again, "\nOf "+name+":\n")
	s.again = append(s.again, plain[max(0, len(plain)-lastWords):]...)
}

// report reads events until the end and reports whether everything passed.
func report(in io.Reader, out io.Writer, each bool) (ok bool, err error) {
	var sum totals
	failedPackages := 0
	said := map[test][]string{}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			switch plain := json.Unmarshal(line, &e) != nil; {
			case plain: // the go command itself
				fmt.Fprint(out, string(line))
			case e.Test == "":
				failedPackages += packageEvent(out, e, said, &sum)
			default:
				testEvent(out, e, said, &sum, each)
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return false, fmt.Errorf("read the output of go test: %w", err)
		}
	}
	fmt.Fprint(out, strings.Join(sum.again, ""))
	fmt.Fprintf(out, "\n%d tests passed, %d failed, %d skipped, in %d packages\n",
		sum.passed, sum.failed, sum.skipped, sum.packages)
	if sum.passed == 0 {
		fmt.Fprintln(out, "FAIL: no test ran")
	}
	return sum.failed == 0 && failedPackages == 0 && sum.passed > 0, nil
}

// packageEvent handles what belongs to a package as a whole: its build, what it
// printed outside tests (a panic, TestMain), and its end. It returns 1 for a
// package that failed.
func packageEvent(out io.Writer, e event, said map[test][]string, sum *totals) (failed int) {
	whole := test{pkg: e.Package}
	switch e.Action {
	case "build-output":
		fmt.Fprint(out, e.Output)
	case "output":
		said[whole] = append(said[whole], e.Output)
	case "pass":
		sum.packages++
		fmt.Fprintf(out, "ok  \t%s\t%.3fs\n", e.Package, e.Elapsed)
		delete(said, whole)
	case "fail":
		sum.packages++
		// A package that died in a test has tests without an end.
		for t, output := range said {
			if t.pkg == e.Package && t.name != "" {
				fmt.Fprint(out, strings.Join(output, ""))
				sum.remember(t.name, output)
				delete(said, t)
			}
		}
		fmt.Fprint(out, strings.Join(said[whole], "")) // its last line is go test's own FAIL line
		delete(said, whole)
		return 1
	}
	return 0
}

// testEvent keeps what a test says until it is known whether it failed.
func testEvent(out io.Writer, e event, said map[test][]string, sum *totals, each bool) {
	t := test{e.Package, e.Test}
	top := !strings.Contains(e.Test, "/")
	switch e.Action {
	case "output":
		said[t] = append(said[t], e.Output)
	case "pass", "skip", "fail":
		switch {
		case e.Action == "fail":
			fmt.Fprint(out, strings.Join(said[t], ""))
			sum.remember(e.Test, said[t])
		case each || e.Action == "skip":
			fmt.Fprintf(out, "--- %s: %s (%.2fs)\n", strings.ToUpper(e.Action), e.Test, e.Elapsed)
		}
		delete(said, t)
		if !top {
			return
		}
		switch e.Action {
		case "pass":
			sum.passed++
		case "skip":
			sum.skipped++
		case "fail":
			sum.failed++
		}
	}
}
