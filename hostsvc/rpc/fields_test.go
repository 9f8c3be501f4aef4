package rpc_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/store"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// unknownField is a field from a newer peer.
func unknownField() []byte {
	return protowire.AppendString(protowire.AppendTag(nil, 1900, protowire.BytesType), "a precondition from the future")
}

// TestFieldsOfCreateTask: each fault names its field, nothing is created, and
// the request is good without it.
func TestFieldsOfCreateTask(t *testing.T) {
	w := newWorld(t)
	w.seed("ws", 1)
	w.seed("elsewhere", 1)
	w.approve(alpha, "ws")
	long := strings.Repeat("x", contract.MaxIdentifierBytes+1)
	type request = pluginv1.CreateTaskExactRequest
	missing, malformed, unsupported := contract.ReasonMissingExactField, contract.ReasonMalformedPrecondition, contract.ReasonProviderContractUnsupported
	for _, test := range []struct {
		name   string
		reason contract.Reason
		field  string
		change func(*request)
	}{
		{"no request ID", missing, "request_id", func(r *request) { r.RequestId = "" }},
		{"no workspace", missing, "workspace_id", func(r *request) { r.WorkspaceId = "" }},
		{"no revision", missing, "capability_revision", func(r *request) { r.CapabilityRevision = 0 }},
		{"no idempotency key", missing, "idempotency_key", func(r *request) { r.IdempotencyKey = "" }},
		{"no guard", missing, "guard", func(r *request) { r.Guard = nil }},
		{"guard of nothing", missing, "guard", func(r *request) { r.Guard = &pluginv1.PendingTransitionGuard{} }},
		{"guard without ID", missing, "guard.pending_transition.pending_transition_id", func(r *request) { r.Guard = namedGuard("", "1.1") }},
		{"guard without version", missing, "guard.pending_transition.resource_version", func(r *request) { r.Guard = namedGuard("m", "") }},
		{"provenance without session", missing, "provenance.session_id", func(r *request) {
			r.Provenance = &pluginv1.ManagedExecutionProvenance{ConversationId: "c", ExecutionGenerationToken: "g"}
		}},
		{"no external ID", missing, "external_id", func(r *request) { r.ExternalId = "" }},
		{"no task", missing, "task", func(r *request) { r.Task = nil }},
		{"no workflow", missing, "task.workflow_id", func(r *request) { r.Task.WorkflowId = "" }},
		{"no step", missing, "task.workflow_step_id", func(r *request) { r.Task.WorkflowStepId = nil }},
		{"no title", missing, "task.title", func(r *request) { r.Task.Title = "" }},
		{"no workflow version", missing, "expected_workflow_resource_version", func(r *request) { r.ExpectedWorkflowResourceVersion = "" }},
		{"no step version", missing, "expected_workflow_step_resource_version", func(r *request) { r.ExpectedWorkflowStepResourceVersion = "" }},
		{"parent without version", missing, "expected_parent_resource_version", func(r *request) { r.Task.ParentId = ptr(taskID("ws", 0)) }},

		{"white space at an edge", malformed, "idempotency_key", func(r *request) { r.IdempotencyKey = "key " }},
		{"NUL", malformed, "request_id", func(r *request) { r.RequestId = "a\x00b" }},
		{"long external ID", malformed, "external_id", func(r *request) { r.ExternalId = long }},
		{"long title", malformed, "task.title", func(r *request) { r.Task.Title = long }},
		{"long description", malformed, "task.description", func(r *request) { r.Task.Description = strings.Repeat("x", contract.MaxDescriptionBytes+1) }},
		{"parent's version without a parent", malformed, "expected_parent_resource_version", func(r *request) { r.ExpectedParentResourceVersion = "1.1" }},
		{"unknown priority", malformed, "task.priority", func(r *request) { r.Task.Priority = "urgent" }},
		{"manifest digest of another form", malformed, "manifest_digest", func(r *request) { r.ManifestDigest = "sha256:00" }},
		{"task for another workspace", malformed, "task.workspace_id", func(r *request) { r.Task.WorkspaceId = "elsewhere" }},
		{"oversized request", malformed, "request", func(r *request) {
			r.Task.Description = strings.Repeat("x", contract.MaxDescriptionBytes)
			r.Task.Title = strings.Repeat("y", contract.MaxCommandBytes)
		}},

		{"start of an agent", unsupported, "task.start_agent", func(r *request) { r.Task.StartAgent = true }},
		{"repositories", unsupported, "task.repositories", func(r *request) { r.Task.Repositories = []*pluginv1.PluginTaskRepository{{}} }},
		{"launch", unsupported, "task.launch", func(r *request) { r.Task.Launch = &pluginv1.PluginTaskLaunchOptions{} }},
		{"metadata", unsupported, "task.metadata", func(r *request) {
			r.Task.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewNumberValue(1)}}
		}},
		{"continuation token", unsupported, "continuation_token", func(r *request) { r.ContinuationToken = "t" }},
		{"unknown field", unsupported, "request", func(r *request) { r.ProtoReflect().SetUnknown(unknownField()) }},
		{"unknown field of the task", unsupported, "task", func(r *request) { r.Task.ProtoReflect().SetUnknown(unknownField()) }},
		{"unknown field of the guard", unsupported, "guard", func(r *request) { r.Guard.ProtoReflect().SetUnknown(unknownField()) }},
		{"unknown expectation", unsupported, "guard.expect_none", func(r *request) { r.Guard.GetExpectNone().ProtoReflect().SetUnknown(unknownField()) }},
		{"unknown field in a list", unsupported, "task.repositories[1]", func(r *request) {
			r.Task.Repositories = []*pluginv1.PluginTaskRepository{{}, {}}
			r.Task.Repositories[1].ProtoReflect().SetUnknown(unknownField())
		}},
		{"unknown field in a map", unsupported, "task.metadata.fields", func(r *request) {
			value := structpb.NewNullValue()
			value.ProtoReflect().SetUnknown(unknownField())
			r.Task.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"a": value}}
		}},

		{"workflow of another workspace", contract.ReasonWorkspaceTargetNotFound, "task.workflow_id", func(r *request) { r.Task.WorkflowId = "elsewhere-flow" }},
		{"step of another workspace", contract.ReasonWorkspaceTargetNotFound, "task.workflow_step_id", func(r *request) { r.Task.WorkflowStepId = ptr("elsewhere-todo") }},
		{"parent of another workspace", contract.ReasonWorkspaceTargetNotFound, "task.parent_id", func(r *request) {
			r.Task.ParentId, r.ExpectedParentResourceVersion = ptr(taskID("elsewhere", 0)), "1.1"
		}},
		{"other workflow version", contract.ReasonStaleResourceVersion, "task.workflow_id", func(r *request) { r.ExpectedWorkflowResourceVersion = "1.9" }},
		{"other step version", contract.ReasonStaleResourceVersion, "task.workflow_step_id", func(r *request) { r.ExpectedWorkflowStepResourceVersion = "1.9" }},
		{"other parent version", contract.ReasonStaleResourceVersion, "task.parent_id", func(r *request) {
			r.Task.ParentId, r.ExpectedParentResourceVersion = ptr(taskID("ws", 0)), "1.9"
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := w.in(t)
			head := w.head("ws")
			r := w.createRequest("ws", "x")
			test.change(r)
			response, err := w.host.CreateTaskExact(w.as(alpha), r)
			w.must(err)
			got := response.GetResult()
			if got.GetReason() != string(test.reason) || got.GetField() != test.field || response.GetTask() != nil {
				t.Errorf("got %v, want %s of %s", got, test.reason, test.field)
			}
			if record := w.receipt(got.GetAuditId()); len(record.RequestID) > contract.MaxIdentifierBytes || strings.Contains(record.RequestID, "\x00") {
				t.Errorf("the audit holds %q", record.RequestID)
			}
			if w.head("ws") != head {
				t.Error("something was committed")
			}
		})
	}

	r := w.createRequest("ws", "x")
	r.Task.WorkspaceId, r.Task.ParentId, r.ExpectedParentResourceVersion = "", ptr(taskID("ws", 0)), w.seededVersion()
	r.Task.Metadata = &structpb.Struct{}
	created, err := w.host.CreateTaskExact(w.as(alpha), r)
	w.must(err)
	want := &pluginv1.Task{
		Id: created.GetTask().GetId(), WorkspaceId: "ws", WorkflowId: "ws-flow", WorkflowStepId: "ws-todo", Title: "New",
		State: "TODO", Priority: "medium", CreatedBy: "plugin:" + alpha, ParentId: ptr(taskID("ws", 0)), Position: 1,
		CreatedAt: "2026-05-04T03:02:01Z", UpdatedAt: "2026-05-04T03:02:01Z", ExternalId: "x", WipAdmitted: true,
		ResourceVersion: created.GetResult().GetResultResourceVersion(),
	}
	sameBytes(t, created.GetTask(), want)
	if created.GetTask().GetId() == "" || created.GetResult().GetReceipt().GetTargetId() != created.GetTask().GetId() {
		t.Errorf("created %v", created)
	}
}

func TestFieldsOfUpdateTask(t *testing.T) {
	w := newWorld(t)
	w.seed("ws", 1)
	w.approve(alpha, "ws")
	type request = pluginv1.UpdateTaskExactRequest
	missing, malformed, unsupported := contract.ReasonMissingExactField, contract.ReasonMalformedPrecondition, contract.ReasonProviderContractUnsupported
	good := func() *request {
		return &request{
			RequestId: "r", WorkspaceId: "ws", TaskId: taskID("ws", 0), IdempotencyKey: "k", CapabilityRevision: 1,
			ExpectedResourceVersion: w.seededVersion(), Title: ptr("t"), Guard: noGuard(),
		}
	}
	for _, test := range []struct {
		name   string
		reason contract.Reason
		field  string
		change func(*request)
	}{
		{"no request ID", missing, "request_id", func(r *request) { r.RequestId = "" }},
		{"no workspace", missing, "workspace_id", func(r *request) { r.WorkspaceId = "" }},
		{"no revision", missing, "capability_revision", func(r *request) { r.CapabilityRevision = 0 }},
		{"no idempotency key", missing, "idempotency_key", func(r *request) { r.IdempotencyKey = "" }},
		{"no guard", missing, "guard", func(r *request) { r.Guard = nil }},
		{"no task", missing, "task_id", func(r *request) { r.TaskId = "" }},
		{"no version", missing, "expected_resource_version", func(r *request) { r.ExpectedResourceVersion = "" }},
		{"no change", missing, "title", func(r *request) { r.Title = nil }},
		{"empty title", missing, "title", func(r *request) { r.Title = ptr("") }},
		{"the scheduler's state", malformed, "state", func(r *request) { r.State = ptr("SCHEDULING") }},
		{"unknown state", malformed, "state", func(r *request) { r.State = ptr("DONE") }},
		{"unknown priority", malformed, "priority", func(r *request) { r.Priority = ptr("") }},
		{"long description", malformed, "description", func(r *request) { r.Description = ptr(strings.Repeat("x", contract.MaxDescriptionBytes+1)) }},
		{"oversized request", malformed, "request", func(r *request) { r.Description = ptr(strings.Repeat("x", contract.MaxCommandBytes)) }},
		{"claim", unsupported, "management_instance_key", func(r *request) { r.ManagementInstanceKey = "k" }},
		{"claim's generation", unsupported, "expected_claim_generation", func(r *request) { r.ExpectedClaimGeneration = 1 }},
		{"continuation token", unsupported, "continuation_token", func(r *request) { r.ContinuationToken = "t" }},
		{"unknown field", unsupported, "request", func(r *request) { r.ProtoReflect().SetUnknown(unknownField()) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := good()
			test.change(r)
			response, err := w.host.UpdateTaskExact(w.as(alpha), r)
			if err != nil {
				t.Fatal(err)
			}
			if got := response.GetResult(); got.GetReason() != string(test.reason) || got.GetField() != test.field {
				t.Errorf("got %v, want %s of %s", got, test.reason, test.field)
			}
		})
	}
	response, err := w.host.UpdateTaskExact(w.as(alpha), good())
	w.must(err)
	if response.GetTask().GetTitle() != "t" {
		t.Errorf("the good request answers %v", response)
	}
}

func TestFieldsOfReads(t *testing.T) {
	w := newWorld(t)
	w.seed("ws", 3)
	w.seed("elsewhere", 1)
	w.approve(alpha, "ws")
	list := func(filter *pluginv1.TaskFilter, page *pluginv1.ExactReadPage) error {
		_, err := w.host.ListTasksExact(w.as(alpha), &pluginv1.ListTasksExactRequest{RequestId: "r", WorkspaceId: "ws", Filter: filter, Page: page})
		return err
	}
	steps := func(workflow string) error {
		_, err := w.host.ListWorkflowStepsExact(w.as(alpha), &pluginv1.ListWorkflowStepsExactRequest{RequestId: "r", WorkspaceId: "ws", WorkflowId: workflow})
		return err
	}
	many := make([]string, contract.MaxFilterValues+1)
	for i := range many {
		many[i] = fmt.Sprint("w", i)
	}
	unknownFilter, unknownPage := &pluginv1.TaskFilter{}, &pluginv1.ExactReadPage{}
	unknownFilter.ProtoReflect().SetUnknown(unknownField())
	unknownPage.ProtoReflect().SetUnknown(unknownField())
	get := func() error {
		request := &pluginv1.GetTaskExactRequest{RequestId: "r", WorkspaceId: "ws", TaskId: taskID("ws", 0)}
		request.ProtoReflect().SetUnknown(unknownField())
		_, err := w.host.GetTaskExact(w.as(alpha), request)
		return err
	}
	unsupported := contract.ReasonProviderContractUnsupported
	missing, malformed, notFound := contract.ReasonMissingExactField, contract.ReasonMalformedPrecondition, contract.ReasonWorkspaceTargetNotFound
	for _, test := range []struct {
		name   string
		reason contract.Reason
		field  string
		err    error
	}{
		{"too many filter values", malformed, "filter", list(&pluginv1.TaskFilter{WorkflowIds: many}, nil)},
		{"empty filter value", missing, "filter.states[1]", list(&pluginv1.TaskFilter{States: []string{"TODO", ""}}, nil)},
		{"malformed parent", malformed, "filter.parent_id", list(&pluginv1.TaskFilter{ParentId: ptr(" x")}, nil)},
		{"filter of another workspace", malformed, "filter.workspace_ids", list(&pluginv1.TaskFilter{WorkspaceIds: []string{"elsewhere"}}, nil)},
		{"unknown state", malformed, "filter.states[1]", list(&pluginv1.TaskFilter{States: []string{"TODO", "DONE"}}, nil)},
		{"unknown field of the filter", unsupported, "filter", list(unknownFilter, nil)},
		{"unknown field of the page", unsupported, "page", list(nil, unknownPage)},
		{"unknown field of a read", unsupported, "request", get()},
		{"negative limit", malformed, "page.limit", list(nil, &pluginv1.ExactReadPage{Limit: -5})},
		{"no workflow", missing, "workflow_id", steps("")},
		{"unknown workflow", notFound, "workflow_id", steps("nothing")},
		{"workflow of another workspace", notFound, "workflow_id", steps("elsewhere-flow")},
	} {
		if test.err == nil {
			t.Errorf("%s was answered", test.name)
			continue
		}
		if got := detail(t, test.err); got.GetReason() != string(test.reason) || got.GetField() != test.field || got.GetAuditId() == "" {
			t.Errorf("%s: %v, want %s of %s", test.name, got, test.reason, test.field)
		}
	}

	// Far beyond every bound the transport itself refuses, before anything of
	// the request is read.
	huge := &pluginv1.GetTaskExactRequest{RequestId: strings.Repeat("x", 2<<20)}
	if _, err := w.host.GetTaskExact(w.as(alpha), huge); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("two megabytes answer %v", err)
	}
}

// What a newer plugin asks first is answered by every Host, whatever it says
// besides.
func TestContextSparesWhatItDoesNotKnow(t *testing.T) {
	w := newWorld(t)
	request := &pluginv1.GetCapabilityContextRequest{RequestId: "r"}
	request.ProtoReflect().SetUnknown(unknownField())
	if _, err := w.host.GetCapabilityContext(w.as(alpha), request); err != nil {
		t.Error(err)
	}
}

// The audit tells which task was read, and tells two reads apart.
func TestAuditNamesWhatWasRead(t *testing.T) {
	w := newWorld(t)
	w.seed("ws", 2)
	w.approve(alpha, "ws")
	read := func(task string) string {
		got, err := w.host.GetTaskExact(w.as(alpha), &pluginv1.GetTaskExactRequest{RequestId: "r", WorkspaceId: "ws", TaskId: task})
		if err != nil {
			return w.receipt(detail(t, err).GetAuditId()).RequestDigest
		}
		return w.receipt(got.GetReceipt().GetAuditId()).RequestDigest
	}
	first, second, nothing := read(taskID("ws", 0)), read(taskID("ws", 1)), read("nothing")
	if first == "" || second == "" || nothing == "" || first == second || nothing == first {
		t.Errorf("digests %q, %q and %q", first, second, nothing)
	}
	if again := read(taskID("ws", 0)); again != first {
		t.Errorf("the same read has digests %q and %q", first, again)
	}
}

// A page of the longest tasks is one that a client with gRPC's own bound can
// take, and the pages together show all of them once.
func TestPagesFitTheClient(t *testing.T) {
	w := newWorld(t)
	w.seed("ws", 0)
	const n = contract.MaxPageSize
	w.must(w.store.Seed(w.Context(), "ws-large", func(tx store.SeedTx) error {
		if err := tx.Workflow(domain.Workflow{ID: "flow", Name: "Flow"}); err != nil {
			return err
		}
		if err := tx.WorkflowStep(domain.WorkflowStep{ID: "todo", WorkflowID: "flow", Name: "todo", StageType: "work"}); err != nil {
			return err
		}
		for i := range n {
			task := domain.NewTask(taskID("ws-large", i), "ws-large", "human:ann", domain.TaskDraft{
				WorkflowID: "flow", WorkflowStepID: "todo", Title: "t", Description: strings.Repeat("x", contract.MaxDescriptionBytes),
			}, domain.Placement{StepID: "todo", Admitted: true}, int32(i), w.clock.Now())
			if err := tx.Task(task); err != nil {
				return err
			}
		}
		return nil
	}))
	w.approve(alpha, "ws-large")
	request := &pluginv1.ListTasksExactRequest{RequestId: "r", WorkspaceId: "ws-large", Page: &pluginv1.ExactReadPage{Limit: n}}
	var ids []string
	for pages := 1; ; pages++ {
		page, err := w.host.ListTasksExact(w.as(alpha), request)
		w.must(err)
		if size := proto.Size(page); size > 2<<20 || len(page.GetItems()) == 0 {
			t.Fatalf("page %d has %d items and %d bytes", pages, len(page.GetItems()), size)
		}
		for _, item := range page.GetItems() {
			ids = append(ids, item.GetTask().GetId())
		}
		info := page.GetPageInfo()
		if !info.GetHasMore() {
			break
		}
		request.Page.Cursor, request.Page.SnapshotVersion = info.GetNextCursor(), info.GetSnapshotVersion()
	}
	if len(ids) != n || !slices.IsSorted(ids) || len(slices.Compact(ids)) != n {
		t.Errorf("%d tasks in pages, want %d, each once and in order", len(ids), n)
	}
}

// TestListsShowTheTopology reads a workspace down to its tasks.
func TestListsShowTheTopology(t *testing.T) {
	w := newWorld(t)
	version := w.seed("ws", 3)
	w.approve(alpha, "ws")
	workspaces, err := w.host.ListWorkspacesExact(w.as(alpha), &pluginv1.ListWorkspacesExactRequest{RequestId: "r", WorkspaceId: "ws"})
	w.must(err)
	at := "2026-05-04T03:02:01Z"
	observed := "2026-05-04T03:02:01.123456Z"
	if len(workspaces.GetItems()) != 1 {
		t.Fatalf("%d workspaces", len(workspaces.GetItems()))
	}
	sameBytes(t, workspaces.GetItems()[0], &pluginv1.ExactWorkspaceObservation{
		Workspace:       &pluginv1.Workspace{Id: "ws", Name: "The ws", CreatedAt: at, UpdatedAt: at},
		ResourceVersion: version, ObservedAt: observed,
	})
	workflows, err := w.host.ListWorkflowsExact(w.as(alpha), &pluginv1.ListWorkflowsExactRequest{RequestId: "r", WorkspaceId: "ws"})
	w.must(err)
	if len(workflows.GetItems()) != 1 {
		t.Fatalf("%d workflows", len(workflows.GetItems()))
	}
	sameBytes(t, workflows.GetItems()[0], &pluginv1.ExactWorkflowObservation{
		Workflow:        &pluginv1.Workflow{Id: "ws-flow", WorkspaceId: "ws", Name: "Flow", CreatedAt: at, UpdatedAt: at},
		ResourceVersion: version, ObservedAt: observed,
	})
	request := &pluginv1.ListWorkflowStepsExactRequest{RequestId: "r", WorkspaceId: "ws", WorkflowId: "ws-flow", Page: &pluginv1.ExactReadPage{Limit: 1}}
	first, err := w.host.ListWorkflowStepsExact(w.as(alpha), request)
	w.must(err)
	request.Page.Cursor, request.Page.SnapshotVersion = first.GetPageInfo().GetNextCursor(), first.GetPageInfo().GetSnapshotVersion()
	second, err := w.host.ListWorkflowStepsExact(w.as(alpha), request)
	w.must(err)
	if len(first.GetItems()) != 1 || len(second.GetItems()) != 1 || second.GetPageInfo().GetHasMore() {
		t.Fatalf("pages %v and %v", first, second)
	}
	sameBytes(t, second.GetItems()[0], &pluginv1.ExactWorkflowStepObservation{
		Step:            &pluginv1.WorkflowStep{Id: "ws-doing", WorkflowId: "ws-flow", Name: "doing", Position: 1, StageType: "work"},
		ResourceVersion: version, ObservedAt: observed,
	})
	for _, test := range []struct {
		filter *pluginv1.TaskFilter
		want   int
	}{
		{nil, 3},
		{&pluginv1.TaskFilter{}, 3},
		{&pluginv1.TaskFilter{WorkspaceIds: []string{"ws"}, WorkflowIds: []string{"ws-flow"}, States: []string{"TODO", "REVIEW"}}, 3},
		{&pluginv1.TaskFilter{States: []string{"REVIEW"}}, 0},
		{&pluginv1.TaskFilter{ParentId: ptr("")}, 3},
		{&pluginv1.TaskFilter{ParentId: ptr(taskID("ws", 0))}, 0},
	} {
		tasks, err := w.host.ListTasksExact(w.as(alpha), &pluginv1.ListTasksExactRequest{RequestId: "r", WorkspaceId: "ws", Filter: test.filter})
		w.must(err)
		if len(tasks.GetItems()) != test.want {
			t.Errorf("filter %v: %d tasks, want %d", test.filter, len(tasks.GetItems()), test.want)
		}
	}
}
