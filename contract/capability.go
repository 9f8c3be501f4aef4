package contract

import (
	"fmt"
	"iter"
	"math/bits"
	"strings"
)

// Capability is the index of one capability. Indexes are dense, start at zero
// and are permanent: rows in the store hold sets of them as bits.
type Capability uint8

// The capabilities of the ADR's surface inventory. The order is the index;
// append only.
const (
	ReadManagedAgentConversations Capability = iota
	ReadWorkspaces
	ReadWorkflows
	ReadTasks
	ReadSessions
	ReadInteractions
	ReadMessages
	ReadTaskInbox
	ReadTaskDirectives
	ReadTaskRelations
	ReadTaskTransitions
	ReadChangeRequests
	ReadTerminalResources
	WriteManagedAgentConversations
	WriteMessages
	WriteTaskDirectives
	WriteTasks
	WriteTaskRelations
	WriteTaskRuns
	WriteSessions
	WriteTaskTransitions

	capabilityCount
)

// The two prefixes of every capability ID.
const (
	ReadPrefix  = "host.v2.read:"
	WritePrefix = "host.v2.write:"
)

// MaxCapabilityIDBytes bounds a capability ID.
const MaxCapabilityIDBytes = 256

var capabilityIDs = [capabilityCount]string{
	ReadManagedAgentConversations:  "host.v2.read:managed_agent_conversations",
	ReadWorkspaces:                 "host.v2.read:workspaces",
	ReadWorkflows:                  "host.v2.read:workflows",
	ReadTasks:                      "host.v2.read:tasks",
	ReadSessions:                   "host.v2.read:sessions",
	ReadInteractions:               "host.v2.read:interactions",
	ReadMessages:                   "host.v2.read:messages",
	ReadTaskInbox:                  "host.v2.read:task_inbox",
	ReadTaskDirectives:             "host.v2.read:task_directives",
	ReadTaskRelations:              "host.v2.read:task_relations",
	ReadTaskTransitions:            "host.v2.read:task_transitions",
	ReadChangeRequests:             "host.v2.read:change_requests",
	ReadTerminalResources:          "host.v2.read:terminal_resources",
	WriteManagedAgentConversations: "host.v2.write:managed_agent_conversations",
	WriteMessages:                  "host.v2.write:messages",
	WriteTaskDirectives:            "host.v2.write:task_directives",
	WriteTasks:                     "host.v2.write:tasks",
	WriteTaskRelations:             "host.v2.write:task_relations",
	WriteTaskRuns:                  "host.v2.write:task_runs",
	WriteSessions:                  "host.v2.write:sessions",
	WriteTaskTransitions:           "host.v2.write:task_transitions",
}

// humanReserved are the resource names that no approval can ever grant: the
// ADR's human-reserved classes. They have no Capability; asking for one is
// told apart from an unknown ID so that the answer can say why.
var humanReserved = [...]string{
	"merge", "deploy", "release", "rewrite_history", "cross_workspace", "secret_scope_expand",
}

// String returns the capability's ID, for example "host.v2.read:tasks".
func (c Capability) String() string {
	if c >= capabilityCount {
		return fmt.Sprintf("capability(%d)", uint8(c))
	}
	return capabilityIDs[c]
}

// Capabilities lists every capability in index order.
func Capabilities() []Capability {
	all := make([]Capability, capabilityCount)
	for i := range all {
		all[i] = Capability(i)
	}
	return all
}

// CapabilityIDError says why a string is not a capability ID.
type CapabilityIDError struct {
	// ID is the offending string, cut to a printable length.
	ID string
	// Reason is one of "empty", "too long", "malformed", "wildcard",
	// "human-reserved" or "unknown".
	Reason string
}

func (e *CapabilityIDError) Error() string {
	return fmt.Sprintf("capability ID %q is %s", e.ID, e.Reason)
}

// ParseCapability returns the capability that id names. The comparison is
// exact: no trimming, no folding, no wildcard. The error is a
// *CapabilityIDError.
func ParseCapability(id string) (Capability, error) {
	switch {
	case id == "":
		return 0, &CapabilityIDError{ID: id, Reason: "empty"}
	case len(id) > MaxCapabilityIDBytes:
		return 0, &CapabilityIDError{ID: id[:32] + "...", Reason: "too long"}
	}
	for i, known := range capabilityIDs {
		if id == known {
			return Capability(i), nil
		}
	}
	return 0, &CapabilityIDError{ID: id, Reason: whyUnknown(id)}
}

func whyUnknown(id string) string {
	if strings.ContainsAny(id, "*?") {
		return "wildcard"
	}
	resource, isRead := strings.CutPrefix(id, ReadPrefix)
	if !isRead {
		var isWrite bool
		if resource, isWrite = strings.CutPrefix(id, WritePrefix); !isWrite {
			return "malformed"
		}
	}
	if resource == "" || strings.Trim(resource, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return "malformed"
	}
	for _, reserved := range humanReserved {
		if resource == reserved {
			return "human-reserved"
		}
	}
	return "unknown"
}

// CapabilitySet is a set of capabilities, one bit for each index. The zero
// value is the empty set.
type CapabilitySet uint64

// AllCapabilities holds every capability of the contract.
const AllCapabilities CapabilitySet = 1<<capabilityCount - 1

// SetOf returns the set of the given capabilities.
func SetOf(cs ...Capability) CapabilitySet {
	var s CapabilitySet
	for _, c := range cs {
		s |= 1 << c
	}
	return s
}

// ParseCapabilities returns the set that ids name. Duplicates are an error, as
// is any ID that ParseCapability refuses; the error says which element.
func ParseCapabilities(ids []string) (CapabilitySet, error) {
	var s CapabilitySet
	for i, id := range ids {
		c, err := ParseCapability(id)
		if err != nil {
			return 0, fmt.Errorf("capabilities[%d]: %w", i, err)
		}
		if s.Has(c) {
			return 0, fmt.Errorf("capabilities[%d]: %w", i, &CapabilityIDError{ID: id, Reason: "duplicate"})
		}
		s |= 1 << c
	}
	return s, nil
}

// Has tells whether c is in the set.
func (s CapabilitySet) Has(c Capability) bool { return c < capabilityCount && s&(1<<c) != 0 }

// Covers tells whether every capability of other is in the set.
func (s CapabilitySet) Covers(other CapabilitySet) bool { return other&^s == 0 }

// Len counts the capabilities in the set.
func (s CapabilitySet) Len() int { return bits.OnesCount64(uint64(s)) }

// All yields the capabilities of the set in index order.
func (s CapabilitySet) All() iter.Seq[Capability] {
	return func(yield func(Capability) bool) {
		for rest := uint64(s & AllCapabilities); rest != 0; rest &= rest - 1 {
			if !yield(Capability(bits.TrailingZeros64(rest))) {
				return
			}
		}
	}
}

// IDs lists the capability IDs of the set in index order; never nil.
func (s CapabilitySet) IDs() []string {
	ids := make([]string, 0, s.Len())
	for c := range s.All() {
		ids = append(ids, c.String())
	}
	return ids
}

func (s CapabilitySet) String() string { return strings.Join(s.IDs(), ",") }
