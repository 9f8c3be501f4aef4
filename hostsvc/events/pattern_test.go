package events

import (
	"slices"
	"testing"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
)

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, eventType string
		want               bool
	}{
		{"task.created", "task.created", true},
		{"task.*", "task.created", true},
		{"*.created", "task.created", true},
		{"*.*", "task.created", true},
		{"*", "capability-context-changed", true},
		{"*", "task.created", false},
		{"task.*", "task", false},
		{"task", "task.created", false},
		{"task.*", "task.status_summary.updated", false},
		{"task.*.*", "task.status_summary.updated", true},
		{"task.*", "task.", true},
		{"task.cre*", "task.created", false},
		{"session_prompt_usage.updated", "session_prompt_usage.updated.s-1", false},
		{"session_prompt_usage.updated.*", "session_prompt_usage.updated.s-1", true},
		{"session_prompt_usage.updated.*", "session_prompt_usage.updated.s.1", false},
		{"plugin.p.*", "plugin.p.said", true},
		{"plugin.p.*", "plugin.q.said", false},
		{"task.>", "task.created", false},
		{"", "task.created", false},
	} {
		if got := matches(c.pattern, c.eventType); got != c.want {
			t.Errorf("%q for %q: %t", c.pattern, c.eventType, got)
		}
	}
}

// What a pattern says of whose events it is for.
func TestPublisher(t *testing.T) {
	for pattern, want := range map[string]string{
		"plugin.a.said": "a", "plugin.a.b.c": "a.b", "plugin.a.b.*": "a.b", "plugin.a.*.c": "a", "plugin.a.*.*": "a",
		"plugin.*.said": "", "plugin.*.*": "", "plugin.*.b.c": "", "plugin.a": "", "plugin.*": "", "plugin.": "", "plugin": "",
		"*.a.said": "", "plugins.a.b": "", "task.updated": "", "plugin.a..*": "a.", "plugin.a.b.*.d.e": "a.b", "plugin.a*.b": "a*",
	} {
		if got := publisher(pattern); got != want {
			t.Errorf("%q is for %q, want %q", pattern, got, want)
		}
	}
}

// named are installed plugins.
type named []string

// InstalledPlugin implements Plugins.
func (n named) InstalledPlugin(name string) string {
	v := view.New(authority.Policy{})
	for _, id := range n {
		v.SetInstallation(view.Installation{Installation: authority.Installation{Name: id, UID: id}, PluginID: id})
	}
	return v.InstalledPlugin(name)
}

// The events b.c of the plugin a and c of the plugin a.b have one type. A pattern that
// names one of them is not for the other's.
func TestWants_DottedPluginIDs(t *testing.T) {
	for _, c := range []struct {
		installed named
		// want are the publishers that a pattern is for.
		want map[string][]string
	}{
		{named{"a", "a.b", "p"}, map[string][]string{
			"plugin.a.b.c": {"a.b"}, "plugin.a.b.*": {"a.b"}, "plugin.a.*.c": {"a"}, "plugin.a.*.*": {"a"},
			"plugin.*.b.c": {"a", "a.b"}, "plugin.*.*.*": {"a", "a.b"}, "*.a.b.c": {"a", "a.b"}, "plugin.a.*": nil,
		}},
		{named{"a"}, map[string][]string{"plugin.a.b.c": {"a"}, "plugin.a.*.*": {"a"}, "plugin.*.*.*": {"a", "a.b"}}},
		{named{"a.b"}, map[string][]string{"plugin.a.b.c": {"a.b"}, "plugin.a.b.*": {"a.b"}, "plugin.a.*.*": {"a", "a.b"}}},
		{named{"a.b.c"}, map[string][]string{"plugin.a.b.c": {"a", "a.b"}}}, // no event of it has that type
		{nil, map[string][]string{"plugin.a.b.c": {"a", "a.b"}}},
	} {
		hub := &Hub{config: Config{Plugins: c.installed}}
		for pattern, want := range c.want {
			var got []string
			for _, publisher := range []string{"a", "a.b"} {
				if hub.wants([]string{pattern, "task.*"}, &Event{Record: Record{Type: "plugin.a.b.c", PluginID: publisher}}) {
					got = append(got, publisher)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("with %q installed, %q is for %q, want %q", c.installed, pattern, got, want)
			}
		}
		if !hub.wants([]string{"task.*"}, &Event{Record: Record{Type: "task.created"}}) {
			t.Errorf("with %q installed, a task's event is for nobody", c.installed)
		}
	}
}

// What v1 has needs no approval; everything else has a capability, or goes nowhere
// (I6, I12).
func TestI12_Classes(t *testing.T) {
	for _, c := range []struct {
		eventType  string
		class      class
		capability contract.Capability
	}{
		{"task.created", classLegacy, 0},
		{"task.status_summary.updated", classLegacy, 0},
		{"message.added", classLegacy, 0},
		{"plugin.p.anything.at.all", classLegacy, 0},
		{"permission_request.received.s-1", classLegacy, 0},
		{"permission_request.received", classUnknown, 0},
		{"agent.stream", classUnknown, 0},
		{"agent.stream.s", classLegacy, 0},
		{"agent.stream.s.t", classUnknown, 0},
		{"office.run.event_appended.r", classLegacy, 0},
		{ContextChanged, classOwn, 0},
		{"task_directive.resolved", classExact, contract.ReadTaskDirectives},
		{"task_relation.created", classExact, contract.ReadTaskRelations},
		{"task.unheard_of", classUnknown, 0},
		{"", classUnknown, 0},
		{"plugins.p.x", classUnknown, 0},
	} {
		class, capability := classify(c.eventType)
		if class != c.class || capability != c.capability {
			t.Errorf("%q is of class %d with %s", c.eventType, class, capability)
		}
	}
	for _, legacy := range append(legacyNames, suffixedNames...) {
		if capability, ok := exactFamilies[legacy.name]; ok {
			t.Errorf("%s is both of v1 and exact, by %s", legacy.name, capability)
		}
	}
}
