package rpc_test

import (
	"fmt"
	"testing"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/rpc"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// TestI2_EachMethodTakesItsOwnCapability: with every other one it is denied, and
// with that alone it is served.
func TestI2_EachMethodTakesItsOwnCapability(t *testing.T) {
	w := newWorld(t)
	w.seed("ws", 1)
	w.converse("ws")
	key := authority.Key{InstallationID: alpha, WorkspaceID: "ws"}
	revision := uint64(0)
	reader := func(_ any, err error) string {
		if err == nil {
			return ""
		}
		return detail(t, err).GetReason()
	}
	writer := func(result *pluginv1.HostCommandResult, err error) string { w.must(err); return result.GetReason() }
	for name, method := range map[string]struct {
		capability contract.Capability
		call       func(n int) string
	}{
		"ListWorkspacesExact": {contract.ReadWorkspaces, func(int) string {
			return reader(w.host.ListWorkspacesExact(w.as(alpha), &pluginv1.ListWorkspacesExactRequest{RequestId: "r", WorkspaceId: "ws"}))
		}},
		"ListWorkflowsExact": {contract.ReadWorkflows, func(int) string {
			return reader(w.host.ListWorkflowsExact(w.as(alpha), &pluginv1.ListWorkflowsExactRequest{RequestId: "r", WorkspaceId: "ws"}))
		}},
		"ListWorkflowStepsExact": {contract.ReadWorkflows, func(int) string {
			return reader(w.host.ListWorkflowStepsExact(w.as(alpha), &pluginv1.ListWorkflowStepsExactRequest{RequestId: "r", WorkspaceId: "ws", WorkflowId: "ws-flow"}))
		}},
		"ListTasksExact": {contract.ReadTasks, func(int) string {
			return reader(w.host.ListTasksExact(w.as(alpha), &pluginv1.ListTasksExactRequest{RequestId: "r", WorkspaceId: "ws"}))
		}},
		"GetTaskExact": {contract.ReadTasks, func(int) string {
			return reader(w.host.GetTaskExact(w.as(alpha), &pluginv1.GetTaskExactRequest{RequestId: "r", WorkspaceId: "ws", TaskId: taskID("ws", 0)}))
		}},
		"ListSessionsExact": {contract.ReadSessions, func(int) string {
			return reader(w.host.ListSessionsExact(w.as(alpha), &pluginv1.ListSessionsExactRequest{RequestId: "r", WorkspaceId: "ws"}))
		}},
		"ListPendingInteractionsExact": {contract.ReadInteractions, func(int) string {
			return reader(w.host.ListPendingInteractionsExact(w.as(alpha), &pluginv1.ListPendingInteractionsExactRequest{RequestId: "r", WorkspaceId: "ws"}))
		}},
		"GetInteractionExact": {contract.ReadInteractions, func(int) string {
			return reader(w.host.GetInteractionExact(w.as(alpha), &pluginv1.GetInteractionExactRequest{RequestId: "r", WorkspaceId: "ws", InteractionId: "ws-permission"}))
		}},
		"ListSanitizedMessagesExact": {contract.ReadMessages, func(int) string {
			return reader(w.host.ListSanitizedMessagesExact(w.as(alpha), &pluginv1.ListSanitizedMessagesExactRequest{RequestId: "r", WorkspaceId: "ws"}))
		}},
		"GetTaskRelationsExact": {contract.ReadTaskRelations, func(int) string {
			return reader(w.host.GetTaskRelationsExact(w.as(alpha), &pluginv1.GetTaskRelationsExactRequest{RequestId: "r", WorkspaceId: "ws", TaskId: taskID("ws", 0)}))
		}},
		"ListTaskRelationsExact": {contract.ReadTaskRelations, func(int) string {
			return reader(w.host.ListTaskRelationsExact(w.as(alpha), &pluginv1.ListTaskRelationsExactRequest{RequestId: "r", WorkspaceId: "ws"}))
		}},
		"ListPendingTaskTransitionsExact": {contract.ReadTaskTransitions, func(int) string {
			return reader(w.host.ListPendingTaskTransitionsExact(w.as(alpha), &pluginv1.ListPendingTaskTransitionsExactRequest{RequestId: "r", WorkspaceId: "ws"}))
		}},
		"ListTaskInboxExact": {contract.ReadTaskInbox, func(int) string {
			return reader(w.host.ListTaskInboxExact(w.as(alpha), &pluginv1.ListTaskInboxExactRequest{RequestId: "r", WorkspaceId: "ws"}))
		}},
		"CreateTaskExact": {contract.WriteTasks, func(n int) string {
			request := w.createRequest("ws", fmt.Sprint("new-", n))
			request.CapabilityRevision = revision
			response, err := w.host.CreateTaskExact(w.as(alpha), request)
			return writer(response.GetResult(), err)
		}},
		"UpdateTaskExact": {contract.WriteTasks, func(n int) string {
			response, err := w.host.UpdateTaskExact(w.as(alpha), &pluginv1.UpdateTaskExactRequest{
				RequestId: "r", WorkspaceId: "ws", TaskId: taskID("ws", 0), IdempotencyKey: fmt.Sprint("key-", n), Guard: noGuard(),
				CapabilityRevision: revision, ExpectedResourceVersion: w.seededVersion(), Title: ptr("changed"),
			})
			return writer(response.GetResult(), err)
		}},
	} {
		for n, granted := range []contract.CapabilitySet{contract.AllCapabilities &^ contract.SetOf(method.capability), contract.SetOf(method.capability)} {
			row := approved(key)
			row.Granted = granted
			revision = w.fence(row).Revision
			want := []string{string(contract.ReasonMissingCapabilityApproval), ""}[n]
			if got := method.call(n); got != want {
				t.Errorf("%s, granted %s: %q, want %q", name, granted, got, want)
			}
		}
	}
	if served := len(rpc.Exact()); served != 16 {
		t.Errorf("%d methods are served; one is not in this table", served)
	}
}
