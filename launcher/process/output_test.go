package process

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type record struct {
	Message string `json:"msg"`
	Stream  string `json:"stream"`
	Line    string `json:"line"`
	Cut     bool   `json:"cut"`
	Lines   int    `json:"lines"`
}

func records(t *testing.T, text *bytes.Buffer) []record {
	t.Helper()
	var all []record
	for line := range strings.Lines(text.String()) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, r)
	}
	return all
}

func TestOutputIsLoggedByLinesThatAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		out := newOutput(slog.New(slog.NewJSONHandler(&log, nil)), func() []string { return nil })
		w := out.stream("stderr")
		fmt.Fprint(w, "one\ntwo\r\n\nth")
		fmt.Fprint(w, "ree\nbad \xff utf-8\n", strings.Repeat("l", 100_000), "\nlast")
		w.end()
		got := records(t, &log)
		want := []record{
			{Line: "one"}, {Line: "two"}, {Line: "three"}, {Line: "bad \uFFFD utf-8"},
			{Line: strings.Repeat("l", MaxLineBytes), Cut: true}, {Line: "last"},
		}
		if len(got) != len(want) {
			t.Fatalf("%d lines: %+v", len(got), got)
		}
		for i, r := range got {
			if r.Line != want[i].Line || r.Cut != want[i].Cut || r.Stream != "stderr" {
				t.Errorf("line %d is %.60q (cut %v, %s)", i, r.Line, r.Cut, r.Stream)
			}
		}
		if cap(w.held) > 4*(MaxLineBytes+maxSecretBytes) {
			t.Errorf("%d bytes are held for one line", cap(w.held))
		}
	})
}

func TestNoSecretIsLogged(t *testing.T) {
	secret := strings.Repeat("s3cret-", 200)
	for _, before := range []int{0, 10, MaxLineBytes - 700, MaxLineBytes - 1, MaxLineBytes} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			out := newOutput(slog.New(slog.NewJSONHandler(&log, nil)), func() []string { return []string{secret, "other"} })
			w := out.stream("stdout")
			line := strings.Repeat(".", before) + secret + " and other"
			for part := range strings.SplitSeq(line, "-") {
				fmt.Fprint(w, part)
				if part != " and other" {
					fmt.Fprint(w, "-")
				}
			}
			w.end()
			if strings.Contains(log.String(), "s3cret") || strings.Contains(log.String(), "other") {
				t.Errorf("after %d bytes the log holds a part of the secret", before)
			}
		})
	}
}

// What is cut off at a secret leaves nothing of it, however much shorter the line has
// become by then and however long the secret is.
func TestACutLeavesNothingOfASecret(t *testing.T) {
	for name, line := range map[string]func(secret string) string{
		"over and over":   func(secret string) string { return strings.Repeat(secret, 1+100_000/len(secret)) },
		"across the cut":  func(secret string) string { return strings.Repeat(".", MaxLineBytes-8) + secret },
		"across the hold": func(secret string) string { return strings.Repeat(".", MaxLineBytes+maxSecretBytes-8) + secret },
	} {
		for _, length := range []int{37, 1000, 5000, 16 << 10} {
			secret := strings.Repeat("é", (length+1)/2)[:length/2*2] + "end"
			t.Run(fmt.Sprint(name, " ", length), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var log bytes.Buffer
					out := newOutput(slog.New(slog.NewJSONHandler(&log, nil)), func() []string { return []string{secret} })
					w := out.stream("stdout")
					fmt.Fprintln(w, line(secret))
					if got := records(t, &log); len(got) != 1 || !got[0].Cut || strings.ContainsAny(got[0].Line, "é\uFFFD") {
						t.Errorf("the log holds a part of it: %.100q", log.String())
					}
				})
			})
		}
	}
}

func TestOutputIsBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		out := newOutput(slog.New(slog.NewJSONHandler(&log, nil)), func() []string { return nil })
		w := out.stream("stdout")
		for range linesAtOnce + 70 {
			fmt.Fprintln(w, "again")
		}
		time.Sleep(time.Second) //nolint:forbidigo // the bubble's time
		fmt.Fprintln(w, "later")
		for range linesPerSecond + 9 {
			fmt.Fprintln(w, "again")
		}
		out.end()
		var lines, dropped int
		for _, r := range records(t, &log) {
			dropped += r.Lines
			if r.Line != "" {
				lines++
			}
		}
		if lines != linesAtOnce+linesPerSecond || dropped != 70+10 {
			t.Errorf("%d lines were logged and %d told to be dropped", lines, dropped)
		}
	})
}

func TestEnvironment(t *testing.T) {
	got := Environment([]string{
		"PATH=/bin", "KANDEV_PLUGIN_TOKEN_FILE=/secret", "KANDEV_PLUGIN_HOST_ADDRESS=host:1", "KANDEV_PLUGIN_HOST_CA_FILE=/ca",
		"KANDEV_PLUGIN_DATA_DIR=/other", "PLUGIN_MULTIPLEX_GRPC=true", "PLUGIN_OWN=1", "KANDEV_LAUNCHER_X=1", "A=KANDEV_PLUGIN_TOKEN_FILE",
	}, "/data")
	if want := "PATH=/bin PLUGIN_OWN=1 A=KANDEV_PLUGIN_TOKEN_FILE KANDEV_PLUGIN_DATA_DIR=/data"; strings.Join(got, " ") != want {
		t.Errorf("the child gets %q", got)
	}
}
