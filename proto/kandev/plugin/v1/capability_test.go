package pluginv1_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// TestI2_EveryMethodNamesItsCapability walks the whole service: a method
// without a requirement, with an empty one, or with another than its own fails.
func TestI2_EveryMethodNamesItsCapability(t *testing.T) {
	want := map[string]string{
		"GetCapabilityContext":   "",
		"ListWorkspacesExact":    "host.v2.read:workspaces",
		"ListWorkflowsExact":     "host.v2.read:workflows",
		"ListWorkflowStepsExact": "host.v2.read:workflows",
		"ListTasksExact":         "host.v2.read:tasks",
		"GetTaskExact":           "host.v2.read:tasks",
		"CreateTaskExact":        "host.v2.write:tasks",
		"UpdateTaskExact":        "host.v2.write:tasks",
	}
	methods := hostMethods(t)
	if methods.Len() != len(want) {
		t.Errorf("%d methods, %d known here", methods.Len(), len(want))
	}
	for i := range methods.Len() {
		method := methods.Get(i)
		name := string(method.Name())
		if !proto.HasExtension(method.Options(), pluginv1.E_Capability) {
			t.Errorf("%s has no capability option", name)
			continue
		}
		capability, ok := proto.GetExtension(method.Options(), pluginv1.E_Capability).(*pluginv1.Capability)
		if !ok {
			t.Errorf("%s: the option is no Capability", name)
			continue
		}
		wantID, known := want[name]
		if !known {
			t.Errorf("%s is not known here", name)
		}
		switch requirement := capability.GetRequirement().(type) {
		case *pluginv1.Capability_Id:
			if requirement.Id == "" || requirement.Id != wantID {
				t.Errorf("%s needs %q, want %q", name, requirement.Id, wantID)
			}
		case *pluginv1.Capability_NoneReason:
			if wantID != "" {
				t.Errorf("%s needs nothing, want %q", name, wantID)
			}
			if strings.TrimSpace(requirement.NoneReason) == "" {
				t.Errorf("%s needs nothing and doesn't say why", name)
			}
		default:
			t.Errorf("%s names neither a capability nor a reason for none", name)
		}
	}
}
