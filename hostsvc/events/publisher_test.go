package events_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/events"
)

// The events b.c of the plugin a and c of the plugin a.b have one type. Who follows one
// plugin by its ID gets none of the other's, whichever of them are installed.
func TestDottedPluginIDs(t *testing.T) {
	onBoth(t, func(d database) {
		w := d.world(limits)
		emitter := &command.Emitter{Store: w.store, Now: w.clock.Now, NewID: uuid.NewString}
		for _, c := range []struct {
			installed []string
			// want are the publishers whose events come, by pattern.
			want map[string][]string
		}{
			{[]string{"a", "a.b", "p"}, map[string][]string{
				"plugin.a.b.c": {"a.b"}, "plugin.a.b.*": {"a.b"}, "plugin.a.*.c": {"a"}, "plugin.a.*.*": {"a"},
				"plugin.*.b.c": {"a", "a.b"}, "plugin.*.*.*": {"a", "a.b"}, "*.a.b.c": {"a", "a.b"}, "plugin.a.*": nil,
			}},
			{[]string{"a"}, map[string][]string{"plugin.a.b.c": {"a"}, "plugin.a.*.*": {"a"}, "plugin.*.*.*": {"a", "a.b"}}},
			{[]string{"a.b"}, map[string][]string{"plugin.a.b.c": {"a.b"}, "plugin.a.b.*": {"a.b"}, "plugin.a.*.*": {"a", "a.b"}}},
			{nil, map[string][]string{"plugin.a.b.c": {"a", "a.b"}}},
		} {
			w.seen.install(c.installed...)
			for _, pattern := range slices.Sorted(maps.Keys(c.want)) {
				w.seen.declare(alpha, pattern)
				declared, err := w.open(alpha, events.Watch{})
				w.must(err)
				narrowed, err := w.open(alpha, events.Watch{Patterns: []string{pattern}})
				w.must(err)
				w.event(declared) // its own news
				w.must(emitter.Emit(w.Context(), beta, "a", "b.c", nil, allowed))
				w.must(emitter.Emit(w.Context(), beta, "a.b", "c", nil, allowed))
				for which, s := range map[string]*events.Stream{"all that is declared": declared, "a narrowed stream": narrowed} {
					for _, want := range c.want[pattern] {
						if e := w.event(s).Event; e.Type != "plugin.a.b.c" || e.PluginID != want {
							w.Errorf("with %q installed, %s of %s has %s of %q, want it of %q", c.installed, which, pattern, e.Type, e.PluginID, want)
						}
					}
					w.silent(s)
					s.Close()
				}
			}
		}
	})
}
