package contract

import (
	"cmp"
	"fmt"
	"math/bits"
	"regexp"
	"slices"
)

// LegacyCapability is what one v1 method asks of a plugin's manifest. It is no
// Capability and never becomes one (I12): no approval grants it, and it has no
// revision. Its name is the word that plugins are refused with.
type LegacyCapability uint8

// The declarations of the v1 service.
const (
	LegacyState LegacyCapability = iota
	LegacySecrets
	LegacyAgentInvoke
	LegacyReadTasks
	LegacyReadSessions
	LegacyReadWorkspaces
	LegacyReadWorkflows
	LegacyReadAgentProfiles
	LegacyReadExecutorProfiles
	LegacyReadRepositories
	LegacyReadMessages
	LegacyReadInteractions
	LegacyWriteTasks
	LegacyWriteMessages
	LegacyWriteInteractions
	// LegacyAgentConversation and LegacyExecutorProvider are asked for by methods
	// that this Host doesn't serve. No manifest can declare them here.
	LegacyAgentConversation
	LegacyExecutorProvider

	legacyCount
)

// The prefixes of the declarations that name a resource.
const (
	LegacyReadPrefix  = "api_read:"
	LegacyWritePrefix = "api_write:"
)

var legacyNames = [legacyCount]string{
	LegacyState:                "state",
	LegacySecrets:              "secrets",
	LegacyAgentInvoke:          "agent_invoke",
	LegacyReadTasks:            "api_read:tasks",
	LegacyReadSessions:         "api_read:sessions",
	LegacyReadWorkspaces:       "api_read:workspaces",
	LegacyReadWorkflows:        "api_read:workflows",
	LegacyReadAgentProfiles:    "api_read:agent_profiles",
	LegacyReadExecutorProfiles: "api_read:executor_profiles",
	LegacyReadRepositories:     "api_read:repositories",
	LegacyReadMessages:         "api_read:messages",
	LegacyReadInteractions:     "api_read:interactions",
	LegacyWriteTasks:           "api_write:tasks",
	LegacyWriteMessages:        "api_write:messages",
	LegacyWriteInteractions:    "api_write:interactions",
	LegacyAgentConversation:    "agent_conversation",
	LegacyExecutorProvider:     "executor_provider",
}

// LegacyWriters holds the declarations that change what isn't the plugin's own.
// They alone need a compatibility grant besides.
const LegacyWriters LegacySet = 1<<LegacyWriteTasks | 1<<LegacyWriteMessages | 1<<LegacyWriteInteractions

// LegacyDeclarable holds the declarations that a manifest can make here.
const LegacyDeclarable LegacySet = 1<<LegacyAgentConversation - 1

// String returns the declaration's name, for example "api_read:tasks".
func (c LegacyCapability) String() string {
	if c >= legacyCount {
		return fmt.Sprintf("legacy(%d)", uint8(c))
	}
	return legacyNames[c]
}

// ParseLegacyCapability returns the declaration of that exact name.
func ParseLegacyCapability(name string) (LegacyCapability, bool) {
	i := slices.Index(legacyNames[:], name)
	if i < 0 {
		return 0, false
	}
	return LegacyCapability(i), true
}

// LegacySet is a set of declarations, one bit for each. The zero value is the
// empty set.
type LegacySet uint32

// LegacySetOf returns the set of the given declarations.
func LegacySetOf(cs ...LegacyCapability) LegacySet {
	var s LegacySet
	for _, c := range cs {
		s |= 1 << c
	}
	return s
}

// Has tells whether c is in the set.
func (s LegacySet) Has(c LegacyCapability) bool { return c < legacyCount && s&(1<<c) != 0 }

// Names lists the names of the set, in a fixed order; never nil.
func (s LegacySet) Names() []string {
	names := make([]string, 0, bits.OnesCount32(uint32(s)))
	for c := range legacyCount {
		if s.Has(c) {
			names = append(names, c.String())
		}
	}
	return names
}

// The bounds of the events that a manifest subscribes to.
const (
	// MaxEventPatterns bounds their number.
	MaxEventPatterns = 64
	// MaxEventPatternBytes bounds each one.
	MaxEventPatternBytes = 256
)

var eventPattern = regexp.MustCompile(`^([A-Za-z0-9_-]+|\*)(\.([A-Za-z0-9_-]+|\*))*$`)

// CheckEventPattern returns nil for a pattern of event subjects: segments between
// dots, each of letters, digits, `_` and `-`, or `*` for any one segment.
func CheckEventPattern(field, pattern string) *FieldError {
	switch {
	case len(pattern) > MaxEventPatternBytes:
		return malformed(field, "is longer than %d bytes", MaxEventPatternBytes)
	case !eventPattern.MatchString(pattern):
		return malformed(field, "is no pattern of event subjects, such as task.* or session_prompt_usage.updated.*")
	}
	return nil
}

// LegacyDeclaration is the v1 part of a manifest, as digested. Its lists are sets.
type LegacyDeclaration struct {
	APIRead     []string `json:"apiRead,omitempty"`
	APIWrite    []string `json:"apiWrite,omitempty"`
	Events      []string `json:"events,omitempty"`
	State       bool     `json:"state,omitempty"`
	Secrets     bool     `json:"secrets,omitempty"`
	AgentInvoke bool     `json:"agentInvoke,omitempty"`
}

// Set returns what is declared. unknown lists the resources that the v1 service
// doesn't have, by the names that they would have.
func (d *LegacyDeclaration) Set() (set LegacySet, unknown []string) {
	if d == nil {
		return 0, nil
	}
	for _, list := range []struct {
		prefix    string
		resources []string
	}{{LegacyReadPrefix, d.APIRead}, {LegacyWritePrefix, d.APIWrite}} {
		for _, resource := range list.resources {
			c, ok := ParseLegacyCapability(list.prefix + resource)
			if !ok {
				unknown = append(unknown, list.prefix+resource)
				continue
			}
			set |= LegacySetOf(c)
		}
	}
	for _, flag := range []struct {
		declared   bool
		capability LegacyCapability
	}{{d.State, LegacyState}, {d.Secrets, LegacySecrets}, {d.AgentInvoke, LegacyAgentInvoke}} {
		if flag.declared {
			set |= LegacySetOf(flag.capability)
		}
	}
	return set, unknown
}

// canonical returns the declaration with its lists as sets, nil where it declares
// nothing: that is the same as none.
func (d *LegacyDeclaration) canonical() *LegacyDeclaration {
	if d == nil {
		return nil
	}
	sorted := *d
	for _, list := range []*[]string{&sorted.APIRead, &sorted.APIWrite, &sorted.Events} {
		*list = slices.Compact(slices.SortedFunc(slices.Values(*list), cmp.Compare[string]))
	}
	if len(sorted.APIRead)+len(sorted.APIWrite)+len(sorted.Events) == 0 && !sorted.State && !sorted.Secrets && !sorted.AgentInvoke {
		return nil
	}
	return &sorted
}
