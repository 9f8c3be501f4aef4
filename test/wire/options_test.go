package wire_test

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

		"ListSessionsExact":               "host.v2.read:sessions",
		"ListPendingInteractionsExact":    "host.v2.read:interactions",
		"GetInteractionExact":             "host.v2.read:interactions",
		"ListSanitizedMessagesExact":      "host.v2.read:messages",
		"ListTaskInboxExact":              "host.v2.read:task_inbox",
		"GetTaskRelationsExact":           "host.v2.read:task_relations",
		"ListTaskRelationsExact":          "host.v2.read:task_relations",
		"ListPendingTaskTransitionsExact": "host.v2.read:task_transitions",
		"WatchEvents":                     "",
	}
	methods := services()["Host"].Methods()
	exact := 0
	for i := range methods.Len() {
		method := methods.Get(i)
		name := string(method.Name())
		if proto.HasExtension(method.Options(), pluginv1.E_Legacy) {
			if proto.HasExtension(method.Options(), pluginv1.E_Capability) {
				t.Errorf("%s is of v1 and has a capability option", name)
			}
			continue
		}
		exact++
		if !proto.HasExtension(method.Options(), pluginv1.E_Capability) {
			t.Errorf("%s has no option", name)
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
	if exact != len(want) {
		t.Errorf("%d exact methods, %d known here", exact, len(want))
	}
}

// TestI12_EveryLegacyMethodNamesItsDeclarations: a v1 method asks for what its
// shipped denial names, and for nothing of v2.
func TestI12_EveryLegacyMethodNamesItsDeclarations(t *testing.T) {
	want := map[string]string{
		"GetState": "state", "SetState": "state", "DeleteState": "state", "ListState": "state",
		"RevealSecret": "secrets", "GetSecret": "secrets", "SetSecret": "secrets", "DeleteSecret": "secrets",
		"EmitEvent": "", "GetConfig": "",
		"ListTasks": "api_read:tasks", "GetTask": "api_read:tasks", "ListTaskStepTransitions": "api_read:tasks",
		"ListWorkspaces": "api_read:workspaces", "ListWorkflows": "api_read:workflows", "ListWorkflowSteps": "api_read:workflows",
		"ListWorkflowTransitionGroups": "api_read:workflows api_read:tasks",
		"ListAgentProfiles":            "api_read:agent_profiles", "ListExecutorProfiles": "api_read:executor_profiles",
		"ListRepositories": "api_read:repositories",
		"ListSessions":     "api_read:sessions", "ListSessionCodeStats": "api_read:sessions", "ListMessages": "api_read:messages",
		"ListPendingInteractions": "api_read:interactions", "GetInteraction": "api_read:interactions",
		"CreateTask": "api_write:tasks", "UpdateTask": "api_write:tasks", "MoveTask": "api_write:tasks",
		"SendMessage": "api_write:messages", "PreviewPluginOwnedTaskTree": "api_write:tasks", "DeletePluginOwnedTaskTree": "api_write:tasks",
	}
	methods := services()["Host"].Methods()
	found := 0
	for i := range methods.Len() {
		method := methods.Get(i)
		name := string(method.Name())
		if !proto.HasExtension(method.Options(), pluginv1.E_Legacy) {
			continue
		}
		found++
		legacy, ok := proto.GetExtension(method.Options(), pluginv1.E_Legacy).(*pluginv1.Legacy)
		if !ok {
			t.Errorf("%s: the option is no Legacy", name)
			continue
		}
		declarations, known := want[name]
		if got := strings.Join(legacy.GetDeclarations(), " "); !known || got != declarations {
			t.Errorf("%s needs %q declared, want %q", name, got, declarations)
		}
		if (declarations == "") != (strings.TrimSpace(legacy.GetNoneReason()) != "") {
			t.Errorf("%s: the reason to need nothing is %q", name, legacy.GetNoneReason())
		}
	}
	if found != len(want) {
		t.Errorf("%d v1 methods, %d known here", found, len(want))
	}
}
