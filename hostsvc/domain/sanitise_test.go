package domain

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// shipped is the pattern that v1 removes (domain facts, section 6).
var shipped = regexp.MustCompile(`(?s)<kandev-system>.*?</kandev-system>\s*`)

func stripShipped(text string) string {
	return strings.TrimSpace(shipped.ReplaceAllString(text, ""))
}

// anyTag finds what a reader may take for system markup.
var anyTag = regexp.MustCompile(`(?i)<[\s\p{Cf}\p{Cc}]*/?[\s\p{Cf}\p{Cc}]*kandev-system([^\p{L}\p{N}._:-]|$)`)

func TestI14_Strip_asShippedWhereWellFormed(t *testing.T) {
	for _, text := range []string{
		"", " ", "plain", "  trimmed\n\n", "a < b > c", "<b>bold</b>", "a <- b", "<<<<<<< HEAD\nx",
		"<kandev-system>h</kandev-system>", "a<kandev-system>h</kandev-system>b",
		"a <kandev-system>h\nh</kandev-system>\n\t b", "<kandev-system></kandev-system>\n\nhello ",
		"a<kandev-system>1</kandev-system> b <kandev-system>2</kandev-system>\v c",
		"1 < <kandev-system>h</kandev-system> 2", "<kandev-systems>not a tag</kandev-systems>",
		"<kandev-system-x>neither</kandev-system-x>", "<kandev", "ends with <", "é<kandev-system>ü</kandev-system>ö",
	} {
		if got, after := MarkupState("").Strip(text); got != stripShipped(text) {
			t.Errorf("%q: %q, shipped %q", text, got, stripShipped(text))
		} else if strings.Contains(text, "</kandev-system>") && after != "" {
			t.Errorf("%q leaves %q open", text, after)
		}
	}
}

func TestI14_Strip_wherePrivacyWins(t *testing.T) {
	for text, want := range map[string]string{
		"a<kandev-system>1<kandev-system>2</kandev-system>3</kandev-system>b": "ab",
		"a<kandev-system>hidden":                                                                   "a",
		"a<kandev-system>1</kandev-system>b<kandev-system>2":                                       "ab",
		"a</kandev-system>b":                                                                       "ab",
		"a</kandev-system> b</kandev-system>":                                                      "ab",
		"a<KANDEV-System>h</kanDEV-system>b":                                                       "ab",
		"a<kandev-system id=\"1\">h</kandev-system>b":                                              "ab",
		"a<kandev-system\n>h</kandev-system\t>b":                                                   "ab",
		"a< kandev-system >h< / kandev-system >b":                                                  "ab",
		"a<kandev-system/>h</kandev-system>b":                                                      "ab",
		"a<kandev-system id=2>h</kandev-system id=2>b":                                             "ab",
		"a<\u200bkandev-\u00adsystem>h</kandev-system>b":                                           "ab",
		"a<\u212aandev-\u017fystem>h</kandev-system>b":                                             "ab",
		"a<kandev-\xffsystem>h</kandev-system>b":                                                   "ab",
		"a<kandev-system":                                                                          "a",
		"a<kandev-system id=":                                                                      "a",
		"a<kandev-system <kandev-system>h</kandev-system>h":                                        "a",
		"a</kandev-system <kandev-system>h</kandev-system>b":                                       "ab",
		"a<kandev-<kandev-system>h</kandev-system>system>h</kandev-system>b":                       "ab",
		"a<kandev-<kandev-system>h<x></kandev-system>system>h</kandev-system>b":                    "ab",
		"a<<kandev-system>h</kandev-system>kandev-system>h</kandev-system>b":                       "ab",
		"a</kandev-<kandev-system>h</kandev-system>system>b":                                       "ab",
		"a<kandev-</kandev-system>system>h</kandev-system>b":                                       "ab",
		"a<kandev-system>h</kandev-systems>h</kandev-system>b":                                     "ab",
		"a<kandev-system>h</kandev-<x>system>h</kandev-system>b":                                   "ab",
		"a<kandev-system>h</kandev-system <b>h</kandev-system>b":                                   "ab",
		"<kandev-system><kandev-system><kandev-system>h</kandev-system></kandev-system>h":          "",
		"x <kandev-system>a</kandev-system> y </kandev-system> z <kandev-system>h</kandev-system>": "x y z",
	} {
		if got, _ := MarkupState("").Strip(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		if got := StripMarkup(text); got != want {
			t.Errorf("StripMarkup %q: %q, want %q", text, got, want)
		}
	}
}

func TestI14_Strip_overRows(t *testing.T) {
	for _, c := range []struct {
		name       string
		rows, want []string
		open       bool
	}{
		{"a block", []string{"a<kandev-system>h", "h", "h</kandev-system>b", "c"}, []string{"a", "", "b", "c"}, false},
		{"nested", []string{"a<kandev-system>h<kandev-system>", "h</kandev-system>h", "</kandev-system>b"}, []string{"a", "", "b"}, false},
		{"an opening tag", []string{"a <kandev-", "system>h</kandev-system>b"}, []string{"a <kandev-", "b"}, false},
		{"at its first character", []string{"a <", "kandev-system>h</kandev-system>b"}, []string{"a <", "b"}, false},
		{"behind its name", []string{"a<kandev-system", ">h</kandev-system>b"}, []string{"a", "b"}, false},
		{"in its attributes", []string{"a<kandev-system id", "=2>h</kandev-system>b"}, []string{"a", "b"}, false},
		{"a closing tag", []string{"<kandev-system>h</kan", "dev-system>b"}, []string{"", "b"}, false},
		{"over an empty row", []string{"a<kandev-", "", "system>h", "", "</kandev-system>b"}, []string{"a<kandev-", "", "", "", "b"}, false},
		{"another name", []string{"a<kandev-system", "s>b"}, []string{"a", "s>b"}, false},
		{"plain", []string{"a <", "b"}, []string{"a <", "b"}, false},
		{"joined over rows", []string{"<kandev-<kandev-system>h", "</kandev-system>system>h", "</kandev-system>b"}, []string{"<kandev-", "", "b"}, false},
		{"never closed", []string{"a<kandev-system>", "h", "h"}, []string{"a", "", ""}, true},
		{"a closing tag of nothing", []string{"a</kandev-system", "b"}, []string{"a", "b"}, false},
	} {
		var state MarkupState
		for i, row := range c.rows {
			var got string
			if got, state = state.Strip(row); got != c.want[i] {
				t.Errorf("%s: row %d is %q, want %q", c.name, i, got, c.want[i])
			}
		}
		if (state != "") != c.open {
			t.Errorf("%s: ends in %q", c.name, state)
		}
	}
}

func TestI14_Strip_unknownStateHides(t *testing.T) {
	for _, state := range []MarkupState{"?", "0", "-1", "1?", "1AA", "A1_", "_", "1A1", "99999999999999999999", "é"} {
		if got, after := state.Strip("text</kandev-system>text"); got != "" || after != state {
			t.Errorf("%q: %q, %q", state, got, after)
		}
	}
}

func TestStripMarkup_leavesOtherTextAlone(t *testing.T) {
	for _, text := range []string{"", "  indented\n", " <b> ", "\t<kandev", "<"} {
		if got := StripMarkup(text); got != text {
			t.Errorf("%q: %q", text, got)
		}
	}
	if got := StripMarkup("  a <kandev-system>h</kandev-system>\n"); got != "a" {
		t.Errorf("markup: %q", got)
	}
}

func TestMarkupState_isBounded(t *testing.T) {
	_, after := MarkupState("").Strip(strings.Repeat("<", 100_000))
	if len(after) != maxHalfTags {
		t.Errorf("state of %d bytes", len(after))
	}
	if got, _ := after.Strip("kandev-system>h"); got != "" {
		t.Errorf("after it: %q", got)
	}
}

// Text that stands within markup is made of §, all else of w, so that a test can
// tell them apart wherever rows are cut.
func drawMarkup(t *rapid.T, depth int) string {
	tag := func(slash string) string {
		gap := func() string {
			return rapid.SampledFrom([]string{"", "", "", " ", "\n", "\u200b"}).Draw(t, "gap")
		}
		name := rapid.SampledFrom([]string{"kandev-system", "kandev-system", "KANDEV-SYSTEM", "Kandev-System"}).Draw(t, "name")
		attribute := rapid.SampledFrom([]string{"", "", " a=1", "\ta='§'"}).Draw(t, "attribute")
		return "<" + gap() + slash + gap() + name + attribute + gap() + ">"
	}
	var b strings.Builder
	for range rapid.IntRange(0, 4).Draw(t, "parts") {
		text := "w"
		if depth > 0 {
			text = "§"
		}
		b.WriteString(strings.Repeat(text, rapid.IntRange(0, 3).Draw(t, "letters")))
		if depth < 4 && rapid.Bool().Draw(t, "block") {
			b.WriteString(tag("") + drawMarkup(t, depth+1) + tag("/"))
		}
		b.WriteString(rapid.SampledFrom([]string{"", " ", "\n", "<", "</", "<b>", "<kandev-x>", ">"}).Draw(t, "noise"))
	}
	return b.String()
}

func cutRows(t *rapid.T, text string) []string {
	var rows []string
	for text != "" {
		n := rapid.IntRange(1, max(1, len(text))).Draw(t, "cut")
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n++
		}
		rows, text = append(rows, text[:n]), text[n:]
	}
	return rows
}

func TestI14_Strip_properties(t *testing.T) {
	t.Run("nothing within markup is seen, all else is", rapid.MakeCheck(func(t *rapid.T) {
		text := drawMarkup(t, 0)
		var state MarkupState
		var seen strings.Builder
		for _, row := range cutRows(t, text) {
			var visible string
			visible, state = state.Strip(row)
			if again, _ := MarkupState("").Strip(visible); again != visible {
				t.Fatalf("%q isn't stable: %q", visible, again)
			}
			seen.WriteString(visible)
		}
		if strings.Contains(seen.String(), "§") {
			t.Fatalf("%q discloses %q", text, seen.String())
		}
		if got, want := strings.Count(seen.String(), "w"), strings.Count(text, "w"); got != want {
			t.Fatalf("%q shows %q", text, seen.String())
		}
		if state != "" && strings.ContainsAny(string(state), "0123456789") {
			t.Fatalf("%q leaves %q", text, state)
		}
	}))
	t.Run("no pieces join to a tag", rapid.MakeCheck(func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
			"<", "</", ">", "/", "kandev-system", "kandev-", "system", "<kandev-system>", "</kandev-system>", " ", "x", "s", "=", "\u200b", "\xff",
		}), 0, 24).Draw(t, "pieces"), "")
		checkStripped(t, text)
	}))
	t.Run("as shipped without nesting", rapid.MakeCheck(func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
			"word", " ", "\n", "\v", "a < b", "<b>", "<kandev-system>h</kandev-system>", "<kandev-system>h\n<i>h</i></kandev-system>\n", "é",
		}), 0, 12).Draw(t, "pieces"), "")
		if got, _ := MarkupState("").Strip(text); got != stripShipped(text) {
			t.Fatalf("%q: %q, shipped %q", text, got, stripShipped(text))
		}
	}))
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkStripped holds for every text: what is seen holds no tag, is stable, and
// is not more than what the shipped pattern lets through.
func checkStripped(t fataler, text string) {
	t.Helper()
	visible, after := MarkupState("").Strip(text)
	if anyTag.MatchString(visible) {
		t.Fatalf("%q shows a tag: %q", text, visible)
	}
	if again, _ := MarkupState("").Strip(visible); again != visible {
		t.Fatalf("%q: %q isn't stable: %q", text, visible, again)
	}
	if !isSubsequence(visible, stripShipped(text)) {
		t.Fatalf("%q shows %q, shipped only %q", text, visible, stripShipped(text))
	}
	if _, ok := after.resume(); !ok {
		t.Fatalf("%q ends in %q, which is no state", text, after)
	}
	if _, next := after.Strip(""); next != after {
		t.Fatalf("%q: an empty row turns %q into %q", text, after, next)
	}
}

func isSubsequence(short, long string) bool {
	for i := 0; i < len(long) && short != ""; i++ {
		if long[i] == short[0] {
			short = short[1:]
		}
	}
	return short == ""
}

func FuzzSanitise(f *testing.F) {
	for _, text := range []string{
		"", "a<kandev-system>h</kandev-system> b", "<kandev-<kandev-system>h</kandev-system>system>h", "</kandev-system <kandev-system>",
		"<KANDEV-SYSTEM a=1>", "<kandev-system</kandev-system>", "<\u212aandev-system>\xff", strings.Repeat("<", 40),
	} {
		f.Add(text, len(text)/2)
	}
	f.Fuzz(func(t *testing.T, text string, cut int) {
		checkStripped(t, text)
		if cut < 0 || cut > len(text) {
			return
		}
		_, state := MarkupState("").Strip(text[:cut])
		if _, ok := state.resume(); !ok {
			t.Fatalf("%q at %d: %q is no state", text, cut, state)
		}
		if visible, _ := state.Strip(text[cut:]); anyTag.MatchString(visible) {
			t.Fatalf("%q cut at %d shows a tag: %q", text, cut, visible)
		}
	})
}

// What a plugin says must not hide what is said after it.
func TestI14_NothingSpokenLeavesATagOpen(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                          "plain",
		" kept as it is ":                " kept as it is ",
		"a < b":                          "a < b",
		"hello <kandev-syste":            "hello",
		"hello <":                        "hello",
		"<kandev-system>hidden":          "",
		"a <kandev-system>b":             "a",
		"a <kandev-system>b</kandev-sys": "a",
		"a <<kandev-system":              "a",
	} {
		got := StripSpoken(text)
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		for _, next := range []string{"m a question", "m> a question", "> a question", "kandev-system> a question", "/kandev-system> a question"} {
			_, after := MarkupState("").Strip(got)
			if visible, _ := after.Strip(next); visible != next {
				t.Errorf("%q hides %q: %q", text, next, visible)
			}
		}
	}
}
