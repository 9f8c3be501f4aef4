package main

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// exactWrites are the cases of the exact writers.
func exactWrites() map[string]methodCases {
	return map[string]methodCases{
		"CreateTaskExact": {writes: true, base: func(s *suite, workspace string) proto.Message {
			return &pluginv1.CreateTaskExactRequest{
				RequestId: requestID, WorkspaceId: workspace, IdempotencyKey: "cf-access", ExternalId: "cf-access", CapabilityRevision: s.revisionOf(workspace),
				Guard: expectNone(), ExpectedWorkflowResourceVersion: "1.1", ExpectedWorkflowStepResourceVersion: "1.1",
				Task: &pluginv1.CreateTaskRequest{WorkflowId: flow, WorkflowStepId: proto.String(stepTodo), Title: "Made by the suite"},
			}
		}, run: createTaskExact},
		"UpdateTaskExact": {writes: true, base: func(s *suite, workspace string) proto.Message {
			return &pluginv1.UpdateTaskExactRequest{
				RequestId: requestID, WorkspaceId: workspace, IdempotencyKey: "cf-access", CapabilityRevision: s.revisionOf(workspace),
				TaskId: "cf-nothing", ExpectedResourceVersion: "1.1", Guard: expectNone(), Title: proto.String("Written exactly"),
			}
		}, run: updateTaskExact},
	}
}

// revisionOf is the first installation's revision in a workspace; any where it has none.
func (s *suite) revisionOf(workspace string) uint64 { return max(s.revisions[workspace], 1) }

func expectNone() *pluginv1.PendingTransitionGuard {
	return &pluginv1.PendingTransitionGuard{Expectation: &pluginv1.PendingTransitionGuard_ExpectNone{
		ExpectNone: &pluginv1.PendingTransitionGuard_NoTransition{},
	}}
}

// writerEnvelope makes the cases of what every exact writer asks.
func (p *probe) writerEnvelope(ctx context.Context) {
	with := func(change func(proto.Message)) answer {
		m := message(p)
		change(m)
		return p.ask(ctx, m)
	}
	for _, field := range []string{"request_id", "workspace_id", "idempotency_key"} {
		for _, bad := range []struct{ name, value, want string }{
			{"absent", "", "INVALID/MISSING_EXACT_FIELD"}, {"with white space at its edge", " x", "INVALID/MALFORMED_PRECONDITION"},
			{"of 1025 bytes", strings.Repeat("x", 1025), "INVALID/MALFORMED_PRECONDITION"},
		} {
			name := protoreflect.Name(field)
			p.typed(field+" "+bad.name, with(func(m proto.Message) { setText(m, name, bad.value) }), bad.want, field, "")
		}
	}
	p.typed("capability_revision absent", with(func(m proto.Message) { setRevision(m, 0) }), "INVALID/MISSING_EXACT_FIELD", "capability_revision", "")
	p.typed("guard absent", with(func(m proto.Message) {
		r := m.ProtoReflect()
		r.Clear(r.Descriptor().Fields().ByName("guard"))
	}), "INVALID/MISSING_EXACT_FIELD", "guard", "")
	p.typed("another revision", with(func(m proto.Message) { setRevision(m, p.revisionOf(p.given.Workspace)+1000) }), "DENIED/STALE_CAPABILITY_REVISION", "", "")
	p.typed("another manifest digest", with(func(m proto.Message) {
		setText(m, "manifest_digest", "v1:"+strings.Repeat("0", 64))
	}), "DENIED/STALE_CAPABILITY_REVISION", "", "")
	p.typed("a provenance that can't be verified", with(func(m proto.Message) {
		provenance := child(m, "provenance").(*pluginv1.ManagedExecutionProvenance) //nolint:forcetypeassert,errcheck // each writer has it
		provenance.ConversationId, provenance.SessionId, provenance.ExecutionGenerationToken = "c", "s", "g"
	}), "DENIED/PROVENANCE_REJECTED", "", "")
}

// receiptOfWrite finds what isn't right in what a writer answers.
func (p *probe) receiptOfWrite(result *pluginv1.HostCommandResult, target, version string) string {
	receipt := result.GetReceipt()
	switch {
	case result.GetAuditId() == "" || receipt.GetReceiptId() == "" || receipt.GetOperationId() == "":
		return "audit_id, receipt_id and operation_id are required"
	case receipt.GetTargetId() != target || receipt.GetResourceVersion() != version || result.GetResultResourceVersion() != version:
		return fmt.Sprintf("the receipt is %v, want of %s at %s", receipt, target, version)
	case receipt.GetApprovalRevision() != p.revisions[p.given.Workspace] || receipt.GetCreatedAt() == "" || receipt.GetUpdatedAt() == "":
		return fmt.Sprint("the receipt is ", receipt)
	}
	return ""
}

// taskNow reads a task exactly.
func (p *probe) taskNow(ctx context.Context, id string) (*pluginv1.ExactTaskObservation, error) {
	r, err := p.host.GetTaskExact(p.caller(ctx), &pluginv1.GetTaskExactRequest{RequestId: requestID, WorkspaceId: p.given.Workspace, TaskId: id})
	return r.GetItem(), err
}

func updateTaskExact(ctx context.Context, p *probe) {
	p.writerEnvelope(ctx)
	const target = "cf-task-007"
	before, err := p.taskNow(ctx, target)
	if err != nil {
		p.holds("reads the task to write", answer{before, err}, "it can't be read")
		return
	}
	ask := func(change func(*pluginv1.UpdateTaskExactRequest)) answer {
		m := message(p).(*pluginv1.UpdateTaskExactRequest) //nolint:forcetypeassert,errcheck // it is the method's
		m.TaskId, m.ExpectedResourceVersion = target, before.GetResourceVersion()
		change(m)
		return p.ask(ctx, m)
	}
	key := func(m *pluginv1.UpdateTaskExactRequest, key string) { m.IdempotencyKey = key }
	p.typed("no task", ask(func(m *pluginv1.UpdateTaskExactRequest) { m.TaskId = "" }), "INVALID/MISSING_EXACT_FIELD", "task_id", "")
	p.typed("no version", ask(func(m *pluginv1.UpdateTaskExactRequest) { m.ExpectedResourceVersion = "" }), "INVALID/MISSING_EXACT_FIELD", "expected_resource_version", "")
	p.typed("a claim: not served", ask(func(m *pluginv1.UpdateTaskExactRequest) { m.ManagementInstanceKey = "k" }),
		"UNSUPPORTED/PROVIDER_CONTRACT_UNSUPPORTED", "management_instance_key", "")
	p.typed("another version", ask(func(m *pluginv1.UpdateTaskExactRequest) { m.ExpectedResourceVersion = "1.999999" }), "CONFLICT/STALE_RESOURCE_VERSION", "", "")
	p.typed("a transition that isn't pending", ask(func(m *pluginv1.UpdateTaskExactRequest) {
		m.Guard = &pluginv1.PendingTransitionGuard{Expectation: &pluginv1.PendingTransitionGuard_PendingTransition{
			PendingTransition: &pluginv1.PendingTransitionGuard_NamedTransition{PendingTransitionId: "cf-nothing", ResourceVersion: "1.1"},
		}}
	}), "CONFLICT/PENDING_TRANSITION_CONFLICT", "", "")
	pending, err := p.taskNow(ctx, "cf-task-010")
	if err == nil {
		p.typed("none expected, one pending", ask(func(m *pluginv1.UpdateTaskExactRequest) {
			m.TaskId, m.ExpectedResourceVersion = "cf-task-010", pending.GetResourceVersion()
		}), "CONFLICT/PENDING_TRANSITION_CONFLICT", "", "")
	}
	foreign := ask(func(m *pluginv1.UpdateTaskExactRequest) { m.TaskId = foreignTask })
	p.typed("a task of another workspace", foreign, "NOT_FOUND/WORKSPACE_TARGET_NOT_FOUND", "task_id", "")
	nothing := unknownLike(foreignTask)
	p.same("a task of another workspace, and none: the same bytes", foreign, foreignTask,
		ask(func(m *pluginv1.UpdateTaskExactRequest) { m.TaskId = nothing }), nothing)

	// A list that began before the write goes on showing what was then.
	first, list, snapshot := p.beginList(ctx)
	once := ask(func(m *pluginv1.UpdateTaskExactRequest) { key(m, "cf-update") })
	written, _ := once.message.(*pluginv1.UpdateTaskExactResponse)
	p.typed("is applied", once, "APPLIED", "", "")
	p.ok("with a receipt and readback", once, func() string {
		if written.GetTask().GetTitle() != "Written exactly" || written.GetTask().GetResourceVersion() == before.GetResourceVersion() {
			return written.GetTask().String()
		}
		return p.receiptOfWrite(written.GetResult(), target, written.GetTask().GetResourceVersion())
	})
	again := ask(func(m *pluginv1.UpdateTaskExactRequest) { key(m, "cf-update"); m.RequestId = "another" })
	repeated, _ := again.message.(*pluginv1.UpdateTaskExactResponse)
	p.typed("the same again is applied already", again, "ALREADY_APPLIED", "", "")
	p.ok("with the first receipt", again, func() string {
		if !proto.Equal(repeated.GetResult().GetReceipt(), written.GetResult().GetReceipt()) {
			return repeated.GetResult().GetReceipt().String()
		}
		return ""
	})
	p.typed("the key for another write", ask(func(m *pluginv1.UpdateTaskExactRequest) {
		key(m, "cf-update")
		m.Title = proto.String("Something else")
	}), "CONFLICT/IDEMPOTENCY_MISMATCH", "", "")
	p.typed("the version of before", ask(func(m *pluginv1.UpdateTaskExactRequest) { key(m, "cf-update-2") }), "CONFLICT/STALE_RESOURCE_VERSION", "", "")
	p.typed("what is so already", ask(func(m *pluginv1.UpdateTaskExactRequest) {
		key(m, "cf-update-3")
		m.ExpectedResourceVersion = written.GetTask().GetResourceVersion()
	}), "NO_CHANGE", "", "")
	p.endList(ctx, first, list, snapshot)
}

// beginList reads the first page of the tasks, and all of them as they are.
func (p *probe) beginList(ctx context.Context) (first *probe, want []string, snapshot *pluginv1.ExactReadPageInfo) {
	method := service.Methods().ByName("ListTasksExact")
	first = &probe{suite: p.suite, method: method, own: p.suite.cases[string(method.Name())]}
	_, want, _ = first.walk(ctx, largestPage, 100)
	return first, want, infoOf(first.ask(ctx, exactPage(message(first), 1, "", "")))
}

// endList demands that the list that began goes on as it was then.
func (p *probe) endList(ctx context.Context, first *probe, want []string, info *pluginv1.ExactReadPageInfo) {
	var got []string
	var a answer
	for cursor := info.GetNextCursor(); cursor != ""; cursor = infoOf(a).GetNextCursor() {
		a = first.ask(ctx, exactPage(message(first), largestPage, cursor, info.GetSnapshotVersion()))
		got = append(got, items(a.message)...)
	}
	p.ok("a list that began before shows what was then", a, func() string {
		if len(want) == 0 || strings.Join(got, "\x00") != strings.Join(want[1:], "\x00") {
			return fmt.Sprintf("%d items, want %d, or others than then", len(got), len(want)-1)
		}
		return ""
	})
}

// placeExactly reads the versions of the workflow and the step to create tasks at, ""
// where it can't.
func (p *probe) placeExactly(ctx context.Context) (flowVersion, stepVersion string, a answer) {
	flows, err := p.host.ListWorkflowsExact(p.caller(ctx), &pluginv1.ListWorkflowsExactRequest{
		RequestId: requestID, WorkspaceId: p.given.Workspace, Page: &pluginv1.ExactReadPage{Limit: largestPage},
	})
	for err == nil && flowVersion == "" {
		for _, w := range flows.GetItems() {
			if w.GetWorkflow().GetId() == flow {
				flowVersion = w.GetResourceVersion()
			}
		}
		if !flows.GetPageInfo().GetHasMore() {
			break
		}
		flows, err = p.host.ListWorkflowsExact(p.caller(ctx), &pluginv1.ListWorkflowsExactRequest{RequestId: requestID, WorkspaceId: p.given.Workspace, Page: &pluginv1.ExactReadPage{
			Limit: largestPage, Cursor: flows.GetPageInfo().GetNextCursor(), SnapshotVersion: flows.GetPageInfo().GetSnapshotVersion(),
		}})
	}
	if err != nil {
		return "", "", answer{flows, err}
	}
	steps, err := p.host.ListWorkflowStepsExact(p.caller(ctx), &pluginv1.ListWorkflowStepsExactRequest{
		RequestId: requestID, WorkspaceId: p.given.Workspace, WorkflowId: flow,
	})
	for _, step := range steps.GetItems() {
		if step.GetStep().GetId() == stepTodo {
			stepVersion = step.GetResourceVersion()
		}
	}
	return flowVersion, stepVersion, answer{steps, err}
}

// createExactly creates a task by the exact contract as the first installation, below a
// parent unless that is "". The ID is "" where it wasn't created.
func (p *probe) createExactly(ctx context.Context, key, parentID string) (id string, a answer) {
	m := p.cases["CreateTaskExact"].base(p.suite, p.given.Workspace).(*pluginv1.CreateTaskExactRequest) //nolint:forcetypeassert,errcheck // it is the method's
	m.IdempotencyKey, m.ExternalId = key, key
	m.ExpectedWorkflowResourceVersion, m.ExpectedWorkflowStepResourceVersion, a = p.placeExactly(ctx)
	if a.err != nil {
		return "", a
	}
	if parentID != "" {
		now, err := p.taskNow(ctx, parentID)
		if err != nil {
			return "", answer{now, err}
		}
		m.Task.ParentId, m.ExpectedParentResourceVersion = &parentID, now.GetResourceVersion()
	}
	r, err := p.host.CreateTaskExact(p.caller(ctx), m)
	return r.GetTask().GetId(), answer{r, err}
}

func createTaskExact(ctx context.Context, p *probe) {
	p.writerEnvelope(ctx)
	flowVersion, stepVersion, read := p.placeExactly(ctx)
	if flowVersion == "" || stepVersion == "" {
		p.holds("reads the place to create at", read, fmt.Sprintf("workflow %q, step %q", flowVersion, stepVersion))
		return
	}
	ask := func(change func(*pluginv1.CreateTaskExactRequest)) answer {
		m := message(p).(*pluginv1.CreateTaskExactRequest) //nolint:forcetypeassert,errcheck // it is the method's
		m.ExpectedWorkflowResourceVersion, m.ExpectedWorkflowStepResourceVersion = flowVersion, stepVersion
		change(m)
		return p.ask(ctx, m)
	}
	p.typed("no task", ask(func(m *pluginv1.CreateTaskExactRequest) { m.Task = nil }), "INVALID/MISSING_EXACT_FIELD", "task", "")
	p.typed("no title", ask(func(m *pluginv1.CreateTaskExactRequest) { m.Task.Title = "" }), "INVALID/MISSING_EXACT_FIELD", "task.title", "")
	p.typed("no external ID", ask(func(m *pluginv1.CreateTaskExactRequest) { m.ExternalId = "" }), "INVALID/MISSING_EXACT_FIELD", "external_id", "")
	p.typed("another workspace in the task", ask(func(m *pluginv1.CreateTaskExactRequest) { m.Task.WorkspaceId = p.given.ForeignWorkspace }),
		"INVALID/MALFORMED_PRECONDITION", "task.workspace_id", "")
	p.typed("start_agent: not served", ask(func(m *pluginv1.CreateTaskExactRequest) { m.Task.StartAgent = true }),
		"UNSUPPORTED/PROVIDER_CONTRACT_UNSUPPORTED", "task.start_agent", "")
	p.typed("another version of the workflow", ask(func(m *pluginv1.CreateTaskExactRequest) { m.ExpectedWorkflowResourceVersion = "1.999999" }),
		"CONFLICT/STALE_RESOURCE_VERSION", "", "")
	for _, c := range []struct {
		field, name string
		set         func(*pluginv1.CreateTaskExactRequest, string)
	}{
		{"task.workflow_id", foreignFlow, func(m *pluginv1.CreateTaskExactRequest, name string) { m.Task.WorkflowId = name }},
		{"task.workflow_step_id", "cf-b-todo", func(m *pluginv1.CreateTaskExactRequest, name string) { m.Task.WorkflowStepId = &name }},
		{"task.parent_id", foreignTask, func(m *pluginv1.CreateTaskExactRequest, name string) {
			m.Task.ParentId, m.ExpectedParentResourceVersion = &name, "1.1"
		}},
	} {
		named := func(name string) answer {
			return ask(func(m *pluginv1.CreateTaskExactRequest) { c.set(m, name) })
		}
		nothing := unknownLike(c.name)
		p.typed(c.field+" of another workspace", named(c.name), "NOT_FOUND/WORKSPACE_TARGET_NOT_FOUND", c.field, "")
		p.same(c.field+" of another workspace, and of nothing: the same bytes", named(c.name), c.name, named(nothing), nothing)
	}
	once := ask(func(m *pluginv1.CreateTaskExactRequest) { m.IdempotencyKey, m.ExternalId = "cf-create", "cf-create" })
	created, _ := once.message.(*pluginv1.CreateTaskExactResponse)
	p.typed("is applied", once, "APPLIED", "", "")
	p.ok("with a receipt and readback", once, func() string {
		if created.GetTask().GetWorkflowStepId() != stepTodo || created.GetTask().GetWorkspaceId() != p.given.Workspace {
			return created.GetTask().String()
		}
		return p.receiptOfWrite(created.GetResult(), created.GetTask().GetId(), created.GetTask().GetResourceVersion())
	})
	again := ask(func(m *pluginv1.CreateTaskExactRequest) { m.IdempotencyKey, m.ExternalId = "cf-create", "cf-create" })
	repeated, _ := again.message.(*pluginv1.CreateTaskExactResponse)
	p.typed("the same again is applied already", again, "ALREADY_APPLIED", "", "")
	p.ok("with the first receipt and task", again, func() string {
		if !proto.Equal(repeated.GetResult().GetReceipt(), created.GetResult().GetReceipt()) || repeated.GetTask().GetId() != created.GetTask().GetId() {
			return repeated.String()
		}
		return ""
	})
	p.typed("the key for another task", ask(func(m *pluginv1.CreateTaskExactRequest) {
		m.IdempotencyKey, m.ExternalId, m.Task.Title = "cf-create", "cf-create", "Something else"
	}), "CONFLICT/IDEMPOTENCY_MISMATCH", "", "")
}
