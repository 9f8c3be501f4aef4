package rpc_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// TestI11_ReplayAfterItsTaskIsDeleted: v1 deletes tasks that exact commands have
// written. Who repeats such a command is told that it was applied, and not to try
// again for ever.
func TestI11_ReplayAfterItsTaskIsDeleted(t *testing.T) {
	w := board(t)
	row := w.approve(alpha, "one")
	task, err := w.create(nil)
	w.must(err)
	request := &pluginv1.UpdateTaskExactRequest{
		RequestId: "r", WorkspaceId: "one", TaskId: task.GetId(), IdempotencyKey: "once", CapabilityRevision: row.Revision,
		ExpectedResourceVersion: task.GetResourceVersion(), Title: ptr("Changed"), Guard: noGuard(),
	}
	first, err := w.host.UpdateTaskExact(w.as(alpha), request)
	w.must(err)
	if first.GetResult().GetStatus() != pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_APPLIED {
		t.Fatalf("the command is answered %v", first)
	}
	_, err = w.host.DeletePluginOwnedTaskTree(w.as(alpha), &pluginv1.DeletePluginOwnedTaskTreeRequest{RootTaskId: task.GetId()})
	w.must(err)
	entries := len(w.entries("one"))
	again, err := w.host.UpdateTaskExact(w.as(alpha), request)
	w.must(err)
	if got := again.GetResult(); got.GetStatus() != pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_ALREADY_APPLIED ||
		got.GetResultResourceVersion() != first.GetResult().GetResultResourceVersion() || again.GetTask() != nil {
		t.Errorf("repeated, it is answered %v", again)
	}
	other := proto.CloneOf(request)
	other.Title = ptr("Another")
	mismatch, err := w.host.UpdateTaskExact(w.as(alpha), other)
	w.must(err)
	if got := mismatch.GetResult().GetReason(); got != "IDEMPOTENCY_MISMATCH" {
		t.Errorf("another command under its key is answered %v", mismatch)
	}
	if n := len(w.entries("one")); n != entries {
		t.Errorf("repeating committed %d entries", n-entries)
	}
}
