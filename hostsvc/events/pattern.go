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
