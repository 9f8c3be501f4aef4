package events

import (
	"testing"

	"github.com/kandev/plugin-host/contract"
)

// What a pattern is said to need is what its types are decided by.
func TestNeeds(t *testing.T) {
	relations := contract.SetOf(contract.ReadTaskRelations)
	var exact contract.CapabilitySet
	for _, capability := range exactFamilies {
		exact |= contract.SetOf(capability)
	}
	for pattern, want := range map[string]struct {
		declaration  bool
		capabilities contract.CapabilitySet
	}{
		"task.*":                         {true, 0},
		"task.created":                   {true, 0},
		"task.*.*":                       {true, 0},
		"task.never":                     {false, 0},
		"shell.output.*":                 {true, 0},
		"shell.output.s-1":               {true, 0},
		"shell.output":                   {false, 0},
		"plugin.*.*":                     {true, 0},
		"plugin.a.b.c":                   {true, 0},
		"plugin":                         {false, 0},
		"task_relation.*":                {false, relations},
		"task_relation.created":          {false, relations},
		"*.created":                      {true, exact},
		"*.*":                            {true, exact},
		"nothing.ever":                   {false, 0},
		"nothing.*":                      {false, 0},
		"permission_request.received.*":  {true, 0},
		"permission_request.received.s1": {true, 0},
	} {
		declaration, capabilities := Needs(pattern)
		if declaration != want.declaration || capabilities != want.capabilities {
			t.Errorf("%s needs %t, %v", pattern, declaration, capabilities.IDs())
		}
	}
	for eventType := range legacyTypes {
		class, _ := classify(eventType)
		if declaration, capabilities := Needs(eventType); class != classLegacy || !declaration || capabilities != 0 {
			t.Errorf("%s needs %t, %v", eventType, declaration, capabilities.IDs())
		}
	}
	for family, capability := range exactFamilies {
		class, needed := classify(family + ".changed")
		if declaration, capabilities := Needs(family + ".changed"); class != classExact || needed != capability || declaration || capabilities != contract.SetOf(needed) {
			t.Errorf("%s needs %t, %v", family, declaration, capabilities.IDs())
		}
	}
}
