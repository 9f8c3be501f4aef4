package lifecycle

import (
	"fmt"
	"slices"
)

// Run plays a row in a world and tells each step that left something else
// behind than the table says.
func Run(w World, row Row, failed func(step Step, what string)) {
	p := Begin(w)
	previous := map[string]Observation{p.First: p.Seen}
	for _, step := range row.Steps {
		of := ""
		if step.Want.First {
			of = p.First
		}
		step.Do(p)
		// What is to be expected of a key that was never seen is that nothing
		// happened to it before.
		got := w.Observe(of, func(o Observation) string { return step.Want.differs(previous[o.InstallationID], o) })
		if what := step.Want.differs(previous[got.InstallationID], got); what != "" {
			failed(step, what)
			return
		}
		previous[got.InstallationID] = got
		p.Seen = got
	}
}

// differs says what of an observation isn't as it should be, "" if everything
// is.
func (want Want) differs(before, got Observation) string {
	story := slices.Concat(before.Story, want.Events)
	switch {
	case !slices.Equal(got.Story, story):
		return fmt.Sprintf("events are %q, want %q", got.Story, story)
	case got.Revision != uint64(len(story)):
		return fmt.Sprintf("revision %d after %d events", got.Revision, len(story))
	case got.State != want.State:
		return fmt.Sprintf("state %s, want %s", got.State, want.State)
	case got.Effective != want.Effective:
		return fmt.Sprintf("effective %s, want %s", got.Effective, want.Effective)
	case !slices.Equal(got.Gates, want.Gates):
		return fmt.Sprintf("gates %q, want %q", got.Gates, want.Gates)
	case got.Review != want.Review:
		return fmt.Sprintf("review %q, want %q", got.Review, want.Review)
	case (got.Act != before.Act) != want.Renamed:
		return fmt.Sprintf("the act was %q and is %q", before.Act, got.Act)
	}
	return ""
}
