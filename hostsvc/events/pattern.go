package events

import (
	"slices"
	"strings"
)

// matches tells whether a pattern is for an event type: both have the same number
// of segments between dots, and each segment of the pattern is the type's or "*"
// (plugin runtime facts, section 6).
func matches(pattern, eventType string) bool {
	for {
		p, morePattern, inPattern := strings.Cut(pattern, ".")
		e, moreType, inType := strings.Cut(eventType, ".")
		if inPattern != inType || p != "*" && p != e {
			return false
		}
		if !inPattern {
			return true
		}
		pattern, eventType = morePattern, moreType
	}
}

func matchesAny(patterns []string, eventType string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, eventType) })
}

// Plugins is what this process sees of installed plugins.
type Plugins interface {
	// InstalledPlugin returns the longest ID of an installed plugin that name is, or
	// begins with before a dot; "" for none. It must not block or allocate.
	InstalledPlugin(name string) (pluginID string)
}

// wants tells whether one of the patterns is for an event. A plugin's ID may have
// dots, and so may its events' names: "plugin.a.b.c" is c of the plugin a.b as well as
// b.c of the plugin a. So a pattern that begins with the ID of an installed plugin is
// for that plugin's events alone, and the longest such ID is what it begins with. One
// that begins with none is for whatever has its segments.
func (h *Hub) wants(patterns []string, e *Event) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if !matches(pattern, e.Type) {
			return false
		}
		if e.PluginID == "" {
			return true
		}
		of := h.config.Plugins.InstalledPlugin(publisher(pattern))
		return of == "" || of == e.PluginID
	})
}

// publisher is what a pattern says of whose events it is for, a plugin's ID or more:
// its segments behind the first one and before the last, as far as they are literal.
func publisher(pattern string) string {
	name, ok := strings.CutPrefix(pattern, published)
	if !ok {
		return ""
	}
	segments := strings.Split(name, ".")
	segments = segments[:len(segments)-1]
	if wild := slices.Index(segments, "*"); wild >= 0 {
		segments = segments[:wild]
	}
	return strings.Join(segments, ".")
}
