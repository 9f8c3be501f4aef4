package events

import (
	"testing"

	"github.com/kandev/plugin-host/contract"
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
