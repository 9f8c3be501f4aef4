package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/identity"
	"github.com/kandev/plugin-host/hostsvc/rpc"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// TestI1_NothingWithoutAnIdentity: whoever proves no installation learns one
// text, and nothing in a request or its metadata makes up for it.
func TestI1_NothingWithoutAnIdentity(t *testing.T) {
	w := newWorld(t)
	w.seed("ws", 1)
	w.approve(alpha, "ws")
	request := &pluginv1.GetTaskExactRequest{RequestId: "r", WorkspaceId: "ws", TaskId: taskID("ws", 0)}
	for _, test := range []struct {
		name  string
		pairs []string
	}{
		{"no metadata", nil},
		{"no bearer", []string{"authorization", "token-of-" + alpha}},
		{"another scheme", []string{"authorization", "Basic token-of-" + alpha}},
		{"empty bearer", []string{"authorization", "Bearer "}},
		{"two tokens", []string{"authorization", "Bearer token-of-" + alpha, "authorization", "Bearer token-of-" + beta}},
		{"bad token", []string{"authorization", "Bearer forged"}},
		{"named installation", []string{"installation-id", alpha, "x-installation", alpha}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx := metadata.AppendToOutgoingContext(t.Context(), test.pairs...)
			_, readErr := w.host.GetTaskExact(ctx, request)
			_, writeErr := w.host.UpdateTaskExact(ctx, &pluginv1.UpdateTaskExactRequest{})
			_, contextErr := w.host.GetCapabilityContext(ctx, &pluginv1.GetCapabilityContextRequest{})
			for _, err := range []error{readErr, writeErr, contextErr} {
				got := status.Convert(err)
				if got.Code() != codes.Unauthenticated || len(got.Details()) != 0 ||
					got.Message() != "a bearer token of a plugin's pod is required" {
					t.Errorf("got %v with %v", got, got.Details())
				}
			}
		})
	}
	if strings.Contains(w.log.String(), "forged") && strings.Contains(w.log.String(), "level=WARN") {
		t.Error("a caller without an identity can fill the log of warnings")
	}
	// The principal is the token's, whatever else the caller says.
	ctx := metadata.AppendToOutgoingContext(w.as(beta), "installation-id", alpha)
	if _, err := w.host.GetTaskExact(ctx, request); status.Code(err) != codes.PermissionDenied {
		t.Errorf("beta in a workspace of alpha: %v", err)
	}
}

func TestI6_IdentityThatCannotBeCheckedIsUnavailable(t *testing.T) {
	w := newWorld(t, func(o *options) {
		o.identity = tokens{err: fmt.Errorf("%w: dial tcp 10.0.0.1:443: refused", identity.ErrUnavailable)}
	})
	_, err := w.host.GetTaskExact(w.as(alpha), &pluginv1.GetTaskExactRequest{})
	if got := status.Convert(err); got.Code() != codes.Unavailable || got.Message() != "identities can't be checked now" || len(got.Details()) != 0 {
		t.Errorf("got %v", err)
	}
}

// TestI8_NoReceiptNoData: a read whose receipt can't be written shows nothing;
// a refusal that can't be written is no refusal yet.
func TestI8_NoReceiptNoData(t *testing.T) {
	w := newWorld(t)
	s := w.play("ws")
	w.receipts.broken.Store(true)
	response, err := w.host.GetTaskExact(w.as(alpha), s.get)
	if got := detail(t, err); response != nil || got.GetReason() != "DEPENDENCY_UNAVAILABLE" || got.GetAuditId() != "" {
		t.Errorf("got %v, %v", response, got)
	}
	s.update.CapabilityRevision = 1
	refused, err := w.host.UpdateTaskExact(w.as(alpha), s.update)
	w.must(err)
	if got := refused.GetResult(); got.GetReason() != "DEPENDENCY_UNAVAILABLE" || strings.Contains(got.String(), "secret") {
		t.Errorf("got %v", got)
	}
	w.receipts.broken.Store(false)
	if _, err := w.host.GetTaskExact(w.as(alpha), s.get); err != nil {
		t.Errorf("and again: %v", err)
	}
}

// TestI8_DeniedCallLeavesTheStoreUntouched compares everything that a plugin or
// an auditor of the workspace can see.
func TestI8_DeniedCallLeavesTheStoreUntouched(t *testing.T) {
	w := newWorld(t)
	s := w.play("ws")
	s.list.CapabilityRevision = 0
	tasks := func() []*pluginv1.ExactTaskObservation {
		list, err := w.host.ListTasksExact(w.as(alpha), s.list)
		w.must(err)
		return list.GetItems()
	}
	entries, before := w.entries("ws"), tasks()
	for _, change := range []func(*pluginv1.UpdateTaskExactRequest){
		func(r *pluginv1.UpdateTaskExactRequest) { r.CapabilityRevision = 7 },
		func(r *pluginv1.UpdateTaskExactRequest) { r.ExpectedResourceVersion = "1.999" },
		func(r *pluginv1.UpdateTaskExactRequest) { r.Guard = namedGuard("move", "1.1") },
		func(r *pluginv1.UpdateTaskExactRequest) { r.State = ptr("SCHEDULING") },
		func(r *pluginv1.UpdateTaskExactRequest) {
			r.Provenance = &pluginv1.ManagedExecutionProvenance{ConversationId: "c", SessionId: "s", ExecutionGenerationToken: "g"}
		},
	} {
		request := proto.CloneOf(s.update)
		change(request)
		response, err := w.host.UpdateTaskExact(w.as(alpha), request)
		w.must(err)
		if response.GetResult().GetReceipt() != nil || response.GetResult().GetAuditId() == "" {
			t.Errorf("got %v", response.GetResult())
		}
	}
	if _, err := w.host.UpdateTaskExact(w.as(beta), s.update); err != nil {
		t.Errorf("a writer that is not approved: %v, want a typed result", err)
	}
	if got := w.entries("ws"); len(got) != len(entries) {
		t.Errorf("%d entries became %d", len(entries), len(got))
	}
	after := tasks()
	for i := range before {
		before[i].ObservedAt, after[i].ObservedAt = "", ""
		sameBytes(t, before[i], after[i])
	}
}

// TestI9_IdempotencyIsExact: the first result comes back, whatever has moved
// since; another command under the key is told apart.
func TestI9_IdempotencyIsExact(t *testing.T) {
	w := newWorld(t)
	s := w.play("ws")
	first, err := w.host.UpdateTaskExact(w.as(alpha), s.update)
	w.must(err)
	// Somebody else moves the task, and authority moves on.
	other := proto.CloneOf(s.update)
	other.IdempotencyKey, other.Title, other.ExpectedResourceVersion = "other", ptr("third"), first.GetTask().GetResourceVersion()
	third, err := w.host.UpdateTaskExact(w.as(alpha), other)
	w.must(err)
	w.fence(s.row)
	entries := len(w.entries("ws"))

	again := proto.CloneOf(s.update)
	again.RequestId, again.CapabilityRevision, again.ManifestDigest = "a retry", 3, ""
	replay, err := w.host.UpdateTaskExact(w.as(alpha), again)
	w.must(err)
	got := replay.GetResult()
	if got.GetStatus() != pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_ALREADY_APPLIED || got.GetReason() != "" {
		t.Fatalf("a retry answers %v", got)
	}
	sameBytes(t, got.GetReceipt(), first.GetResult().GetReceipt())
	if got.GetResultResourceVersion() != first.GetResult().GetResultResourceVersion() {
		t.Errorf("the first result left version %s, the replay says %s", first.GetResult().GetResultResourceVersion(), got.GetResultResourceVersion())
	}
	if got.GetAuditId() == first.GetResult().GetAuditId() || w.receipt(got.GetAuditId()).Result != contract.StateAlreadyApplied {
		t.Error("the replay has no audit record of its own")
	}
	if replay.GetTask().GetTitle() != "third" || replay.GetTask().GetResourceVersion() != third.GetTask().GetResourceVersion() {
		t.Errorf("the readback is not today's: %v", replay.GetTask())
	}
	if n := len(w.entries("ws")); n != entries {
		t.Errorf("a replay committed: %d entries became %d", entries, n)
	}

	for name, change := range map[string]func(*pluginv1.UpdateTaskExactRequest){
		"payload": func(r *pluginv1.UpdateTaskExactRequest) { r.Title = ptr("another") },
		"version": func(r *pluginv1.UpdateTaskExactRequest) { r.ExpectedResourceVersion = "1.2" },
		"guard":   func(r *pluginv1.UpdateTaskExactRequest) { r.Guard = namedGuard("m", "1.1") },
	} {
		changed := proto.CloneOf(again)
		change(changed)
		response, err := w.host.UpdateTaskExact(w.as(alpha), changed)
		w.must(err)
		if response.GetResult().GetReason() != "IDEMPOTENCY_MISMATCH" {
			t.Errorf("the key with another %s answers %v", name, response.GetResult())
		}
	}
	create := w.createRequest("ws", "new")
	create.IdempotencyKey, create.CapabilityRevision = "fresh", 3
	created, err := w.host.CreateTaskExact(w.as(alpha), create)
	w.must(err)
	if created.GetResult().GetReason() != "IDEMPOTENCY_MISMATCH" {
		t.Errorf("the key with another method answers %v", created.GetResult())
	}
	// Another installation's key is another key.
	w.approve(beta, "ws")
	theirs := proto.CloneOf(other)
	theirs.IdempotencyKey, theirs.CapabilityRevision, theirs.Title = "fresh", 1, ptr("fourth")
	theirs.ExpectedResourceVersion = third.GetTask().GetResourceVersion()
	fourth, err := w.host.UpdateTaskExact(w.as(beta), theirs)
	w.must(err)
	if fourth.GetResult().GetStatus() != pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_APPLIED {
		t.Errorf("beta's first use of the key answers %v", fourth.GetResult())
	}
}

// createRequest is a good request in a seeded workspace without a parent.
func (w *world) createRequest(workspace, external string) *pluginv1.CreateTaskExactRequest {
	w.Helper()
	return &pluginv1.CreateTaskExactRequest{
		RequestId: "create-" + external, WorkspaceId: workspace, IdempotencyKey: "create-" + external, ExternalId: external,
		CapabilityRevision: 1, Guard: noGuard(),
		Task: &pluginv1.CreateTaskRequest{
			WorkspaceId: workspace, WorkflowId: workspace + "-flow", WorkflowStepId: ptr(workspace + "-todo"), Title: "New",
		},
		ExpectedWorkflowResourceVersion: w.seededVersion(), ExpectedWorkflowStepResourceVersion: w.seededVersion(),
	}
}

// seededVersion is the version of all that seed inserts.
func (w *world) seededVersion() string { return fmt.Sprintf("%d.1", w.term.StoreEpoch) }

// TestI10_PagesShowOneWorld: whatever is written meanwhile, the pages of a list
// show what its first page saw.
func TestI10_PagesShowOneWorld(t *testing.T) {
	w := newWorld(t)
	s := w.play("ws")
	for i := range 5 {
		request := w.createRequest("ws", fmt.Sprintf("more-%d", i))
		request.CapabilityRevision = 2
		response, err := w.host.CreateTaskExact(w.as(alpha), request)
		w.must(err)
		if response.GetResult().GetStatus() != pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_APPLIED {
			t.Fatalf("create: %v", response.GetResult())
		}
	}
	whole, err := w.host.ListTasksExact(w.as(alpha), s.list)
	w.must(err)
	request := proto.CloneOf(s.list)
	request.Page = &pluginv1.ExactReadPage{Limit: 2}
	versions := map[int]string{0: whole.GetItems()[0].GetResourceVersion(), 5: whole.GetItems()[5].GetResourceVersion()}
	var paged []*pluginv1.ExactTaskObservation
	for pages := 1; ; pages++ {
		page, err := w.host.ListTasksExact(w.as(alpha), request)
		w.must(err)
		info := page.GetPageInfo()
		if info.GetSnapshotVersion() != whole.GetPageInfo().GetSnapshotVersion() ||
			info.GetReceipt().GetSnapshotVersion() != info.GetSnapshotVersion() || info.GetHasMore() != (info.GetNextCursor() != "") {
			t.Fatalf("page %d: %v", pages, info)
		}
		w.receipt(info.GetReceipt().GetAuditId())
		paged = append(paged, page.GetItems()...)
		if !info.GetHasMore() {
			break
		}
		// Change a task that was shown, and one that was not.
		for _, i := range []int{0, 5} {
			id := whole.GetItems()[i].GetTask().GetId()
			changed, err := w.host.UpdateTaskExact(w.as(alpha), &pluginv1.UpdateTaskExactRequest{
				RequestId: "r", WorkspaceId: "ws", TaskId: id, IdempotencyKey: fmt.Sprintf("change-%d-%d", i, pages),
				CapabilityRevision: 2, ExpectedResourceVersion: versions[i], Title: ptr(fmt.Sprintf("changed %d", pages)), Guard: noGuard(),
			})
			w.must(err)
			if changed.GetResult().GetStatus() != pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_APPLIED {
				t.Fatalf("a change between the pages: %v", changed.GetResult())
			}
			versions[i] = changed.GetTask().GetResourceVersion()
		}
		request.Page = &pluginv1.ExactReadPage{Limit: 2, Cursor: info.GetNextCursor(), SnapshotVersion: info.GetSnapshotVersion()}
	}
	if len(paged) != 6 || len(whole.GetItems()) != 6 {
		t.Fatalf("%d tasks in pages, %d at once, want 6", len(paged), len(whole.GetItems()))
	}
	for i := range paged {
		sameBytes(t, paged[i], whole.GetItems()[i])
	}
}

// TestI10_CursorIsGoodForItsListOnly alters every bit of a cursor, and uses it
// everywhere else.
func TestI10_CursorIsGoodForItsListOnly(t *testing.T) {
	w := newWorld(t)
	for _, workspace := range []string{"ws", "elsewhere"} {
		w.seed(workspace, 5)
		w.approve(alpha, workspace)
		w.approve(beta, workspace)
	}
	request := func() *pluginv1.ListTasksExactRequest {
		return &pluginv1.ListTasksExactRequest{RequestId: "r", WorkspaceId: "ws", Page: &pluginv1.ExactReadPage{Limit: 2}}
	}
	first, err := w.host.ListTasksExact(w.as(alpha), request())
	w.must(err)
	cursor, snapshot := first.GetPageInfo().GetNextCursor(), first.GetPageInfo().GetSnapshotVersion()
	next := func() *pluginv1.ListTasksExactRequest {
		r := request()
		r.Page = &pluginv1.ExactReadPage{Limit: 2, Cursor: cursor, SnapshotVersion: snapshot}
		return r
	}
	if _, err := w.host.ListTasksExact(w.as(alpha), next()); err != nil {
		t.Fatalf("the cursor itself: %v", err)
	}
	refused := func(what, field string, reason contract.Reason, err error) {
		t.Helper()
		if err == nil {
			t.Fatalf("%s was answered", what)
		}
		if got := detail(t, err); got.GetReason() != string(reason) || got.GetField() != field {
			t.Errorf("%s: %v, want %s of %s", what, got, reason, field)
		}
	}
	for i := range len(cursor) {
		for bit := range 8 {
			altered := []byte(cursor)
			altered[i] ^= 1 << bit
			if altered[i] >= 0x80 {
				continue // no protobuf text
			}
			r := next()
			r.Page.Cursor = string(altered)
			_, err := w.host.ListTasksExact(w.as(alpha), r)
			refused(fmt.Sprintf("bit %d of byte %d", bit, i), "page.cursor", contract.ReasonMalformedPrecondition, err)
		}
	}
	malformed := contract.ReasonMalformedPrecondition
	_, err = w.host.ListTasksExact(w.as(beta), next())
	refused("another installation", "page.cursor", malformed, err)
	r := next()
	r.WorkspaceId = "elsewhere"
	_, err = w.host.ListTasksExact(w.as(alpha), r)
	refused("another workspace", "page.cursor", malformed, err)
	r = next()
	r.Filter = &pluginv1.TaskFilter{States: []string{"TODO"}}
	_, err = w.host.ListTasksExact(w.as(alpha), r)
	refused("another filter", "page.cursor", malformed, err)
	_, err = w.host.ListWorkflowsExact(w.as(alpha), &pluginv1.ListWorkflowsExactRequest{RequestId: "r", WorkspaceId: "ws", Page: next().GetPage()})
	refused("another method", "page.cursor", malformed, err)
	r = next()
	r.Page.SnapshotVersion = ""
	_, err = w.host.ListTasksExact(w.as(alpha), r)
	refused("no snapshot", "page.snapshot_version", contract.ReasonMissingExactField, err)
	r = next()
	r.Page.SnapshotVersion = "1.1"
	_, err = w.host.ListTasksExact(w.as(alpha), r)
	refused("another snapshot", "page.snapshot_version", malformed, err)
	r = request()
	r.Page.SnapshotVersion = snapshot
	_, err = w.host.ListTasksExact(w.as(alpha), r)
	refused("a snapshot without a cursor", "page.snapshot_version", malformed, err)
	r = next()
	r.Page.Cursor = strings.Repeat("A", contract.MaxCursorBytes+1)
	_, err = w.host.ListTasksExact(w.as(alpha), r)
	refused("an oversized cursor", "page.cursor", malformed, err)
	r = next()
	r.Page.Limit = -1
	_, err = w.host.ListTasksExact(w.as(alpha), r)
	refused("a negative limit", "page.limit", malformed, err)

	w.fence(approved(authority.Key{InstallationID: alpha, WorkspaceID: "ws"}))
	_, err = w.host.ListTasksExact(w.as(alpha), next())
	refused("another revision", "page.cursor", contract.ReasonStaleResourceVersion, err)
	if got := status.Convert(err); got.Code() != codes.FailedPrecondition || got.Message() != "exact read snapshot is stale; start a new query" {
		t.Errorf("a stale cursor answers %v", err)
	}
}

// TestI12_WhatIsNotDeclaredIsNotServed: no method of either shipped part that
// is not declared can be reached, so none can lead into an exact writer.
func TestI12_WhatIsNotDeclaredIsNotServed(t *testing.T) {
	w := newWorld(t)
	names := []string{
		"InvokeUtilityAgent", "InvokeUtilityAgentWithOptions", "RespondToPermission", "AnswerClarification", "CancelClarification",
		"EnsureAgentConversation", "DispatchAgentConversation", "DeleteAgentConversation",
		"CheckpointExecutorResource", "ReportExecutorProgress", "ReadExecutorRuntimeArtifact",
		"MoveTaskExact", "ArchiveTaskExact", "SetTaskLabelsExact", "AddTaskRelationExact", "IssueTaskDirectiveExact",
		"EnsureTaskRunExact", "CancelPendingTaskTransitionExact", "updateTaskExact", "UpdateTaskExact/",
	}
	for _, name := range names {
		for _, ctx := range []context.Context{t.Context(), w.as(alpha)} {
			err := w.conn.Invoke(ctx, "/kandev.plugin.v1.Host/"+name, &emptypb.Empty{}, &emptypb.Empty{})
			if status.Code(err) != codes.Unimplemented {
				t.Errorf("%s answers %v, want Unimplemented", name, err)
			}
		}
	}
	if err := w.conn.Invoke(w.as(alpha), "/kandev.plugin.v2.Host/UpdateTaskExact", &emptypb.Empty{}, &emptypb.Empty{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("another service answers %v", err)
	}
}

// TestI14_UnknownAndUnapprovedAreTheSameBytes asks every method about a
// workspace that does not exist, one that approved somebody else, and one that
// holds a row that was never a revision.
func TestI14_UnknownAndUnapprovedAreTheSameBytes(t *testing.T) {
	w := newWorld(t)
	w.seed("private", 1)
	w.converse("private")
	w.approve(beta, "private")
	w.seed("pending", 1)
	_, err := w.store.Hold(t.Context(), authority.Row{Key: authority.Key{InstallationID: alpha, WorkspaceID: "pending"}}, authority.Hold{
		State: authority.StateRevoked, Cause: authority.CauseHuman, UID: "u", Generation: 1,
	})
	w.must(err)
	calls := map[string]func(workspace string) proto.Message{
		"GetTaskExact": func(ws string) proto.Message {
			_, err := w.host.GetTaskExact(w.as(alpha), &pluginv1.GetTaskExactRequest{RequestId: "r", WorkspaceId: ws, TaskId: taskID("private", 0), CapabilityRevision: 1})
			return w.failure(err)
		},
		"ListTasksExact": func(ws string) proto.Message {
			_, err := w.host.ListTasksExact(w.as(alpha), &pluginv1.ListTasksExactRequest{RequestId: "r", WorkspaceId: ws})
			return w.failure(err)
		},
		"ListWorkspacesExact": func(ws string) proto.Message {
			_, err := w.host.ListWorkspacesExact(w.as(alpha), &pluginv1.ListWorkspacesExactRequest{RequestId: "r", WorkspaceId: ws})
			return w.failure(err)
		},
		"ListWorkflowsExact": func(ws string) proto.Message {
			_, err := w.host.ListWorkflowsExact(w.as(alpha), &pluginv1.ListWorkflowsExactRequest{RequestId: "r", WorkspaceId: ws})
			return w.failure(err)
		},
		"ListWorkflowStepsExact": func(ws string) proto.Message {
			_, err := w.host.ListWorkflowStepsExact(w.as(alpha), &pluginv1.ListWorkflowStepsExactRequest{RequestId: "r", WorkspaceId: ws, WorkflowId: "private-flow"})
			return w.failure(err)
		},
		"ListSessionsExact": func(ws string) proto.Message {
			_, err := w.host.ListSessionsExact(w.as(alpha), &pluginv1.ListSessionsExactRequest{
				RequestId: "r", WorkspaceId: ws, Filter: &pluginv1.SessionFilter{TaskIds: []string{taskID("private", 0)}},
			})
			return w.failure(err)
		},
		"ListPendingInteractionsExact": func(ws string) proto.Message {
			_, err := w.host.ListPendingInteractionsExact(w.as(alpha), &pluginv1.ListPendingInteractionsExactRequest{RequestId: "r", WorkspaceId: ws})
			return w.failure(err)
		},
		"GetInteractionExact": func(ws string) proto.Message {
			_, err := w.host.GetInteractionExact(w.as(alpha), &pluginv1.GetInteractionExactRequest{RequestId: "r", WorkspaceId: ws, InteractionId: "private-permission"})
			return w.failure(err)
		},
		"ListSanitizedMessagesExact": func(ws string) proto.Message {
			_, err := w.host.ListSanitizedMessagesExact(w.as(alpha), &pluginv1.ListSanitizedMessagesExactRequest{
				RequestId: "r", WorkspaceId: ws, Filter: &pluginv1.MessageFilter{SessionIds: []string{"private-session"}},
			})
			return w.failure(err)
		},
		"GetTaskRelationsExact": func(ws string) proto.Message {
			_, err := w.host.GetTaskRelationsExact(w.as(alpha), &pluginv1.GetTaskRelationsExactRequest{RequestId: "r", WorkspaceId: ws, TaskId: taskID("private", 0)})
			return w.failure(err)
		},
		"ListTaskRelationsExact": func(ws string) proto.Message {
			_, err := w.host.ListTaskRelationsExact(w.as(alpha), &pluginv1.ListTaskRelationsExactRequest{RequestId: "r", WorkspaceId: ws, TaskId: taskID("private", 0)})
			return w.failure(err)
		},
		"ListPendingTaskTransitionsExact": func(ws string) proto.Message {
			_, err := w.host.ListPendingTaskTransitionsExact(w.as(alpha), &pluginv1.ListPendingTaskTransitionsExactRequest{RequestId: "r", WorkspaceId: ws, TaskId: taskID("private", 0)})
			return w.failure(err)
		},
		"ListTaskInboxExact": func(ws string) proto.Message {
			_, err := w.host.ListTaskInboxExact(w.as(alpha), &pluginv1.ListTaskInboxExactRequest{RequestId: "r", WorkspaceId: ws, TaskId: taskID("private", 0)})
			return w.failure(err)
		},
		"UpdateTaskExact": func(ws string) proto.Message {
			response, err := w.host.UpdateTaskExact(w.as(alpha), &pluginv1.UpdateTaskExactRequest{
				RequestId: "r", WorkspaceId: ws, TaskId: taskID("private", 0), IdempotencyKey: "k", ExpectedResourceVersion: "1.1",
				Title: ptr("t"), CapabilityRevision: 1, Guard: noGuard(),
			})
			w.must(err)
			return anonymous(response.GetResult())
		},
		"CreateTaskExact": func(ws string) proto.Message {
			request := w.createRequest("private", "x")
			request.WorkspaceId, request.Task.WorkspaceId = ws, ws
			response, err := w.host.CreateTaskExact(w.as(alpha), request)
			w.must(err)
			return anonymous(response.GetResult())
		},
		"GetCapabilityContext": func(ws string) proto.Message {
			response, err := w.host.GetCapabilityContext(w.as(alpha), &pluginv1.GetCapabilityContextRequest{RequestId: "r", WorkspaceId: ws})
			w.must(err)
			if response.GetContext().GetWorkspaceId() != ws {
				t.Errorf("the context is of workspace %q", response.GetContext().GetWorkspaceId())
			}
			response.Context.WorkspaceId, response.AuditId = "", ""
			return response
		},
	}
	for _, method := range rpc.Exact() {
		name := string(method.Name())
		call, ok := calls[name]
		if !ok {
			t.Errorf("%s is not compared", name)
			continue
		}
		unknown := call("nowhere")
		if result, ok := unknown.(*pluginv1.HostCommandResult); ok && result.GetAuditId() == "" {
			t.Errorf("%s is not audited: %v", name, result)
		}
		sameBytes(t, call("private"), unknown)
		sameBytes(t, call("pending"), unknown)
		sameBytes(t, call("nowhere"), unknown)
	}
	list, err := w.host.GetCapabilityContext(w.as(alpha), &pluginv1.GetCapabilityContextRequest{RequestId: "r"})
	w.must(err)
	if len(list.GetWorkspaces()) != 0 {
		t.Errorf("workspaces %v, want none", list.GetWorkspaces())
	}
}

// anonymous is a result without its audit ID, which it must have.
func anonymous(result *pluginv1.HostCommandResult) *pluginv1.HostCommandResult {
	if result.GetAuditId() != "" {
		result.AuditId = "some"
	}
	return result
}

// failure is a reader's error without what differs between any two calls: its
// status as a message, whose detail has no audit ID.
func (w *world) failure(err error) proto.Message {
	w.Helper()
	if err == nil {
		w.Fatal("a workspace that never approved was read")
	}
	result := anonymous(detail(w.T, err))
	bare := status.New(status.Code(err), status.Convert(err).Message())
	detailed, err := bare.WithDetails(result)
	w.must(err)
	return detailed.Proto()
}

// TestI14_InternalsStayInside: what fails inside is told as unavailable, in the
// same words whatever it was.
func TestI14_InternalsStayInside(t *testing.T) {
	broken := &failing{}
	w := newWorld(t, func(o *options) { o.failing, o.panics = broken, true })
	s := w.play("ws")
	secret := "SELECT secret FROM tasks: /var/lib/host.db: eyJhbGciOi"
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New(secret) },
		"panic": func() error { panic(secret) },
	} {
		t.Run(name, func(t *testing.T) {
			broken.set(fail)
			defer broken.set(nil)
			_, err := w.host.GetTaskExact(w.as(alpha), s.get)
			if got := detail(t, err); got.GetReason() != "DEPENDENCY_UNAVAILABLE" || got.GetRetryAfterMs() == 0 || status.Code(err) != codes.Unavailable {
				t.Errorf("a read answers %v", err)
			}
			_, listErr := w.host.GetCapabilityContext(w.as(alpha), &pluginv1.GetCapabilityContextRequest{RequestId: "r"})
			if got := detail(t, listErr); got.GetReason() != "DEPENDENCY_UNAVAILABLE" {
				t.Errorf("the context answers %v", listErr)
			}
			response, err := w.host.UpdateTaskExact(w.as(alpha), s.update)
			w.must(err)
			if got := response.GetResult(); got.GetReason() != "DEPENDENCY_UNAVAILABLE" || got.GetRetryAfterMs() == 0 {
				t.Errorf("a write answers %v", got)
			}
			for _, text := range []string{status.Convert(listErr).String(), detail(t, listErr).String(), response.String()} {
				if strings.Contains(text, "SELECT") || strings.Contains(text, "/var") || strings.Contains(text, "eyJ") {
					t.Errorf("it tells of its inside: %s", text)
				}
			}
		})
	}
	if _, err := w.host.GetTaskExact(w.as(alpha), s.get); err != nil {
		t.Errorf("and again: %v", err)
	}
}
