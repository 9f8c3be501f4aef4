package admission

import (
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

var at = time.Date(2027, 1, 1, 9, 0, 0, 0, time.UTC)

// The v1 methods with what each needs, as plugins know them.
var legacyNeeds = map[string]LegacyNeed{
	"GetState": {contract.LegacyState}, "SetState": {contract.LegacyState}, "DeleteState": {contract.LegacyState},
	"ListState": {contract.LegacyState}, "RevealSecret": {contract.LegacySecrets}, "GetSecret": {contract.LegacySecrets},
	"SetSecret": {contract.LegacySecrets}, "DeleteSecret": {contract.LegacySecrets}, "EmitEvent": {}, "GetConfig": {},
	"ListTasks": {contract.LegacyReadTasks}, "GetTask": {contract.LegacyReadTasks},
	"ListTaskStepTransitions": {contract.LegacyReadTasks}, "ListWorkspaces": {contract.LegacyReadWorkspaces},
	"ListWorkflows": {contract.LegacyReadWorkflows}, "ListWorkflowSteps": {contract.LegacyReadWorkflows},
	"ListWorkflowTransitionGroups": {contract.LegacyReadWorkflows, contract.LegacyReadTasks},
	"ListAgentProfiles":            {contract.LegacyReadAgentProfiles}, "ListExecutorProfiles": {contract.LegacyReadExecutorProfiles},
	"ListRepositories": {contract.LegacyReadRepositories}, "ListSessions": {contract.LegacyReadSessions},
	"ListSessionCodeStats": {contract.LegacyReadSessions}, "ListMessages": {contract.LegacyReadMessages},
	"ListPendingInteractions": {contract.LegacyReadInteractions}, "GetInteraction": {contract.LegacyReadInteractions},
	"InvokeUtilityAgent": {contract.LegacyAgentInvoke}, "InvokeUtilityAgentWithOptions": {contract.LegacyAgentInvoke},
	"CreateTask": {contract.LegacyWriteTasks}, "UpdateTask": {contract.LegacyWriteTasks}, "MoveTask": {contract.LegacyWriteTasks},
	"SendMessage": {contract.LegacyWriteMessages}, "PreviewPluginOwnedTaskTree": {contract.LegacyWriteTasks},
	"DeletePluginOwnedTaskTree": {contract.LegacyWriteTasks}, "RespondToPermission": {contract.LegacyWriteInteractions},
	"AnswerClarification": {contract.LegacyWriteInteractions}, "CancelClarification": {contract.LegacyWriteInteractions},
	"EnsureAgentConversation": {contract.LegacyAgentConversation}, "DispatchAgentConversation": {contract.LegacyAgentConversation},
	"DeleteAgentConversation": {contract.LegacyAgentConversation}, "CheckpointExecutorResource": {contract.LegacyExecutorProvider},
	"ReportExecutorProgress": {contract.LegacyExecutorProvider}, "ReadExecutorRuntimeArtifact": {contract.LegacyExecutorProvider},
}

func legacyWith(declared, writers contract.LegacySet) authority.Legacy {
	return authority.Legacy{
		Installed: true, FreshUntil: at.Add(time.Second), LegacyTerms: authority.LegacyTerms{Declared: declared, Writers: writers},
	}
}

func TestI12_EveryV1MethodTakesWhatItsManifestDeclares(t *testing.T) {
	for method, need := range legacyNeeds {
		all := contract.LegacySetOf(need...)
		writers := all & contract.LegacyWriters
		if refusal := AuthoriseLegacy(legacyWith(all, writers), need, at); refusal != nil {
			t.Errorf("%s with all that it needs: %v", method, refusal)
		}
		for _, missing := range need {
			without := contract.LegacySetOf(missing)
			// Whatever else is declared and granted.
			refusal := AuthoriseLegacy(legacyWith(^contract.LegacySet(0)&^without, contract.LegacyWriters), need, at)
			if want := "capability '" + missing.String() + "' not declared"; refusal == nil || refusal.Unavailable || refusal.Message != want {
				t.Errorf("%s without %s: %v, want %s", method, missing, refusal, want)
			}
		}
		if writers == 0 {
			continue
		}
		name := writers.Names()[0]
		refusal := AuthoriseLegacy(legacyWith(all, contract.LegacyWriters&^writers), need, at)
		want := "capability '" + name + "' not granted: a platform admin has to grant it to this installation in spec.compatibility.legacyWriters"
		if refusal == nil || refusal.Unavailable || refusal.Message != want {
			t.Errorf("%s without its grant: %v", method, refusal)
		}
	}
}

func TestI12_OnlyWritersNeedAGrant(t *testing.T) {
	granted := map[string]bool{
		"CreateTask": true, "UpdateTask": true, "MoveTask": true, "SendMessage": true, "PreviewPluginOwnedTaskTree": true,
		"DeletePluginOwnedTaskTree": true, "RespondToPermission": true, "AnswerClarification": true, "CancelClarification": true,
	}
	for method, need := range legacyNeeds {
		refusal := AuthoriseLegacy(legacyWith(^contract.LegacySet(0), 0), need, at)
		if (refusal != nil) != granted[method] {
			t.Errorf("%s without any grant: %v", method, refusal)
		}
	}
}

// The first thing that is missing answers, in the method's order.
func TestLegacyRefusalsComeInOrder(t *testing.T) {
	both := LegacyNeed{contract.LegacyReadWorkflows, contract.LegacyReadTasks}
	writer := LegacyNeed{contract.LegacyWriteTasks}
	blocked := func(gates authority.Gates) authority.Legacy {
		l := legacyWith(0, 0)
		l.Gates = gates
		return l
	}
	stale := legacyWith(contract.LegacyDeclarable, contract.LegacyWriters)
	stale.FreshUntil = at
	gone := legacyWith(contract.LegacyDeclarable, contract.LegacyWriters)
	gone.Installed = false
	for name, c := range map[string]struct {
		legacy      authority.Legacy
		need        LegacyNeed
		unavailable bool
		message     string
	}{
		"nothing seen":          {authority.Legacy{}, both, true, "what this plugin may do isn't known at the moment; try the same again"},
		"fresh no longer":       {stale, both, true, "what this plugin may do isn't known at the moment; try the same again"},
		"stale, nothing needed": {stale, LegacyNeed{}, true, "what this plugin may do isn't known at the moment; try the same again"},
		"uninstalled":           {gone, nil, false, "the plugin is not installed"},
		"suspended":             {blocked(authority.GateSuspended | authority.GateServiceAccountConflict), nil, false, "the plugin is suspended by a platform admin"},
		"a Host too old":        {blocked(authority.GateHostVersionUnsupported), both, false, "the plugin's manifest asks for a newer Host"},
		"a conflict":            {blocked(authority.GateServiceAccountConflict), both, false, "the plugin's ServiceAccount is not accepted; the installation's Accepted condition says why"},
		"a gate of tomorrow":    {blocked(1 << 7), nil, false, "the plugin's ServiceAccount is not accepted; the installation's Accepted condition says why"},
		"neither of two":        {legacyWith(0, 0), both, false, "capability 'api_read:workflows' not declared"},
		"the first of two":      {legacyWith(contract.LegacySetOf(contract.LegacyReadWorkflows), 0), both, false, "capability 'api_read:tasks' not declared"},
		"undeclared, granted":   {legacyWith(0, contract.LegacyWriters), writer, false, "capability 'api_write:tasks' not declared"},
		"what no build knows":   {legacyWith(^contract.LegacySet(0), ^contract.LegacySet(0)), LegacyNeed{31}, false, "capability 'legacy(31)' not declared"},
	} {
		refusal := AuthoriseLegacy(c.legacy, c.need, at)
		if refusal == nil || refusal.Unavailable != c.unavailable || refusal.Message != c.message {
			t.Errorf("%s: %+v", name, refusal)
		}
	}
}

func TestImplicitExpectNone(t *testing.T) {
	with := legacyWith(0, 0)
	with.ImplicitExpectNone = true
	if !ImplicitExpectNone(with, at) {
		t.Error("granted, and no")
	}
	if ImplicitExpectNone(with, with.FreshUntil) || ImplicitExpectNone(legacyWith(^contract.LegacySet(0), ^contract.LegacySet(0)), at) ||
		ImplicitExpectNone(authority.Legacy{}, at) {
		t.Error("not granted, or not known any more, and yes")
	}
}
