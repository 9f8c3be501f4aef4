package contract

import (
	"errors"
	"strings"
	"testing"
	"testing/quick"
)

func TestParseCapability(t *testing.T) {
	for _, c := range Capabilities() {
		if got, err := ParseCapability(c.String()); err != nil || got != c {
			t.Errorf("%s parses as %v, %v", c, got, err)
		}
	}
	for id, reason := range map[string]string{
		"":                                  "empty",
		"host.v2.read:*":                    "wildcard",
		"*":                                 "wildcard",
		"host.v2.read:task?":                "wildcard",
		"host.v2.read:":                     "malformed",
		"host.v2.read":                      "malformed",
		"host.v1.read:tasks":                "malformed",
		"tasks":                             "malformed",
		"host.v2.read:Tasks":                "malformed",
		"HOST.V2.READ:tasks":                "malformed",
		" host.v2.read:tasks":               "malformed",
		"host.v2.read:tasks ":               "malformed",
		"host.v2.read:tasks\n":              "malformed",
		"host.v2.read:tasks\x00":            "malformed",
		"host.v2.read:täsks":                "malformed",
		"host.v2.admin:tasks":               "malformed",
		"host.v2.write:merge":               "human-reserved",
		"host.v2.read:merge":                "human-reserved",
		"host.v2.write:deploy":              "human-reserved",
		"host.v2.write:release":             "human-reserved",
		"host.v2.write:rewrite_history":     "human-reserved",
		"host.v2.write:cross_workspace":     "human-reserved",
		"host.v2.write:secret_scope_expand": "human-reserved",
		"host.v2.read:nothing":              "unknown",
		"host.v2.write:workspaces":          "unknown",
		"host.v2.read:task":                 "unknown",
		ReadPrefix + strings.Repeat("a", MaxCapabilityIDBytes):                 "too long",
		ReadPrefix + strings.Repeat("a", MaxCapabilityIDBytes-len(ReadPrefix)): "unknown",
		strings.Repeat("ä", MaxCapabilityIDBytes):                              "too long",
	} {
		_, err := ParseCapability(id)
		var refused *CapabilityIDError
		if !errors.As(err, &refused) || refused.Reason != reason {
			t.Errorf("%q: %v, want %s", id, err, reason)
		}
	}
}

func TestCapability_StringOfUnknown(t *testing.T) {
	if got := capabilityCount.String(); got != "capability(21)" {
		t.Errorf("an unknown index reads %q", got)
	}
	if AllCapabilities.Has(capabilityCount) || CapabilitySet(1<<63).Has(63) {
		t.Error("an index beyond the contract is in a set")
	}
}

func TestParseCapabilities(t *testing.T) {
	set, err := ParseCapabilities([]string{"host.v2.write:tasks", "host.v2.read:tasks"})
	if err != nil || set != SetOf(ReadTasks, WriteTasks) {
		t.Errorf("got %v, %v", set, err)
	}
	if set, err := ParseCapabilities(nil); err != nil || set != 0 {
		t.Errorf("nothing parses as %v, %v", set, err)
	}
	for _, bad := range []struct {
		ids  []string
		want string
	}{
		{[]string{"host.v2.read:tasks", "host.v2.read:tasks"}, `capabilities[1]: capability ID "host.v2.read:tasks" is duplicate`},
		{[]string{"host.v2.read:tasks", "host.v2.read:*"}, `capabilities[1]: capability ID "host.v2.read:*" is wildcard`},
	} {
		if set, err := ParseCapabilities(bad.ids); err == nil || err.Error() != bad.want || set != 0 {
			t.Errorf("%v: %v, %v", bad.ids, set, err)
		}
	}
}

func TestCapabilitySet(t *testing.T) {
	if AllCapabilities.Len() != len(Capabilities()) || SetOf(Capabilities()...) != AllCapabilities {
		t.Error("AllCapabilities is not all capabilities")
	}
	if CapabilitySet(0).IDs() == nil {
		t.Error("no IDs is nil")
	}
	if got := SetOf(WriteTasks, ReadTasks).String(); got != "host.v2.read:tasks,host.v2.write:tasks" {
		t.Errorf("not in index order: %s", got)
	}
	roundTrip := func(bits uint64) bool {
		set := CapabilitySet(bits) & AllCapabilities
		back, err := ParseCapabilities(set.IDs())
		n := 0
		for c := range set.All() {
			if !set.Has(c) {
				return false
			}
			n++
		}
		return err == nil && back == set && n == set.Len()
	}
	if err := quick.Check(roundTrip, nil); err != nil {
		t.Error(err)
	}
	covers := func(a, b uint64) bool {
		x, y := CapabilitySet(a), CapabilitySet(b)
		return x.Covers(y) == (x|y == x)
	}
	if err := quick.Check(covers, nil); err != nil {
		t.Error(err)
	}
	for c := range AllCapabilities.All() { // stops when told to
		if c == ReadTasks {
			break
		}
	}
}

func FuzzParseCapability(f *testing.F) {
	for _, c := range Capabilities() {
		f.Add(c.String())
	}
	f.Add("host.v2.write:merge")
	f.Add("host.v2.*")
	f.Add(strings.Repeat("x", MaxCapabilityIDBytes+1))
	f.Fuzz(func(t *testing.T, id string) {
		c, err := ParseCapability(id)
		if err == nil {
			if c.String() != id {
				t.Errorf("%q parses as %s", id, c)
			}
			return
		}
		var refused *CapabilityIDError
		if !errors.As(err, &refused) || refused.Reason == "" || len(refused.ID) > MaxCapabilityIDBytes {
			t.Errorf("%q: %#v", id, err)
		}
	})
}
