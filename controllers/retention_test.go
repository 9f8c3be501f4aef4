package controllers

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kandev/plugin-host/hostsvc/authority"
)

func TestParseEventName(t *testing.T) {
	key := authority.Key{InstallationID: "3f0c9c1e-5a0e-4c53-8a6f-2f4b8f9d1c77", WorkspaceID: "payments"}
	got, revision, ok := parseEventName(authority.EventName(key, 17))
	if !ok || got != key || revision != 17 {
		t.Errorf("got %v, %d, %v", got, revision, ok)
	}
	for _, name := range []string{
		"", "a.b", "a.b.17", "a.b.r", "a.b.r017", "a.b.r-1", "a.b.r1.c", "a.b.rx", "a.b.r99999999999999999999",
	} {
		if _, _, ok := parseEventName(name); ok {
			t.Errorf("%q passes for the name of an event", name)
		}
	}
}

var pruned = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// aged is a sequence whose events are so many days old, the oldest first.
func aged(workspace string, days ...int) []stored {
	sequence := make([]stored, len(days))
	for i, d := range days {
		sequence[i] = stored{name: fmt.Sprintf("%s.r%d", workspace, i+1), created: pruned.Add(-time.Duration(d) * 24 * time.Hour), revision: uint64(i + 1)}
	}
	return sequence
}

func repeat(n, day int) []int {
	days := make([]int, n)
	for i := range days {
		days[i] = day
	}
	return days
}

func keyIn(workspace string, n int) authority.Key {
	return authority.Key{InstallationID: fmt.Sprintf("i-%d", n), WorkspaceID: workspace}
}

func TestRetention_Due(t *testing.T) {
	r := &retention{keep: 90 * 24 * time.Hour, now: func() time.Time { return pruned }}
	for name, c := range map[string]struct {
		sequence []stored
		want     int
	}{
		"nothing is old":                       {aged("w", repeat(50, 89)...), 0},
		"all is old, the newest stay":          {aged("w", repeat(50, 91)...), 30},
		"old, but no more than what stays":     {aged("w", repeat(keepNewest, 900)...), 0},
		"the beginning is old":                 {aged("w", append(repeat(7, 91), repeat(50, 1)...)...), 7},
		"a clock that jumped leaves no hole":   {aged("w", append(append(repeat(3, 91), 1), repeat(50, 91)...)...), 3},
		"as old as the limit is not older":     {aged("w", repeat(50, 90)...), 0},
		"a sequence that begins in the middle": {aged("w", repeat(30, 91)...)[5:], 5},
	} {
		t.Run(name, func(t *testing.T) {
			key := keyIn("w", 1)
			if got := r.due(map[authority.Key][]stored{key: c.sequence})[key]; got != c.want {
				t.Errorf("%d are due, want %d", got, c.want)
			}
		})
	}
}

func TestRetention_AWorkspaceHasABound(t *testing.T) {
	r := &retention{now: func() time.Time { return pruned }}
	sequences := map[authority.Key][]stored{
		keyIn("crowded", 1): aged("crowded", repeat(900, 5)...),
		keyIn("crowded", 2): aged("crowded", append(repeat(100, 9), repeat(200, 1)...)...),
		keyIn("quiet", 1):   aged("quiet", repeat(maxPerWorkspace, 5)...),
	}
	due := r.due(sequences)
	if due[keyIn("crowded", 2)] != 100 || due[keyIn("crowded", 1)] != 100 || due[keyIn("quiet", 1)] != 0 {
		t.Errorf("due: %v; want the 100 oldest of one, then 100 of the other, and none of the workspace at its bound", due)
	}
}

// Whatever there is: the newest of each sequence stay, and where a workspace has
// too many, no more is left than must stay.
func TestRetention_AnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &retention{
			keep: time.Duration(rapid.IntRange(0, 100).Draw(t, "keep")) * 24 * time.Hour, now: func() time.Time { return pruned },
		}
		sequences, total := map[authority.Key][]stored{}, 0
		for i := range rapid.IntRange(1, 6).Draw(t, "sequences") {
			days := rapid.SliceOfN(rapid.IntRange(0, 200), 1, 400).Draw(t, "days")
			sequences[keyIn("w", i)] = aged("w", days...)
			total += len(days)
		}
		due, left, must := r.due(sequences), 0, 0
		for key, sequence := range sequences {
			if n := due[key]; n < 0 || n > max(0, len(sequence)-keepNewest) {
				t.Fatalf("%d of %d are due", n, len(sequence))
			}
			left += len(sequence) - due[key]
			must += min(len(sequence), keepNewest)
		}
		if left > max(maxPerWorkspace, must) {
			t.Errorf("%d of %d are left", left, total)
		}
	})
}
