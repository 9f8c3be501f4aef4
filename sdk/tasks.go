package sdk

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// Tasks is the namespace Host.Tasks of the contract.
type Tasks struct{ host *Host }

// Tasks returns the calls about tasks.
func (h *Host) Tasks() Tasks { return Tasks{h} }

// List yields a workspace's tasks; a nil filter all but ephemeral and archived
// ones. Needs host.v2.read:tasks.
func (t Tasks) List(
	ctx context.Context, workspaceID string, filter *pluginv1.TaskFilter, options ListOptions,
) Pages[*pluginv1.ExactTaskObservation] {
	c := call{method: "ListTasksExact", workspaceID: workspaceID, capability: contract.ReadTasks}
	return pages(ctx, t.host, c, options, func(
		ctx context.Context, requestID string, page *pluginv1.ExactReadPage, opts ...grpc.CallOption,
	) ([]*pluginv1.ExactTaskObservation, *pluginv1.ExactReadPageInfo, error) {
		answer, err := t.host.client.ListTasksExact(ctx, &pluginv1.ListTasksExactRequest{
			RequestId: requestID, WorkspaceId: workspaceID, Filter: filter, Page: page,
		}, opts...)
		return answer.GetItems(), answer.GetPageInfo(), err
	})
}

// Get returns one task at its current version. Needs host.v2.read:tasks.
func (t Tasks) Get(
	ctx context.Context, workspaceID, taskID string,
) (*pluginv1.ExactTaskObservation, *pluginv1.HostReadReceipt, error) {
	c := call{method: "GetTaskExact", workspaceID: workspaceID, capability: contract.ReadTasks}
	var answer *pluginv1.GetTaskExactResponse
	sent, err := t.host.exact(ctx, c,
		func(ctx context.Context, r request, opts ...grpc.CallOption) (*pluginv1.HostCommandResult, error) {
			var err error
			answer, err = t.host.client.GetTaskExact(ctx, &pluginv1.GetTaskExactRequest{
				RequestId: r.id, WorkspaceId: workspaceID, TaskId: taskID,
			}, opts...)
			return nil, err
		})
	if err != nil {
		return nil, nil, err
	}
	if answer.GetItem().GetTask() == nil || answer.GetReceipt() == nil {
		return nil, nil, c.denied(unknownResult("the Host answered without the task or its read receipt"), sent.request)
	}
	return answer.GetItem(), answer.GetReceipt(), nil
}

// NewTask describes a task to create. Everything is required but what says
// otherwise.
type NewTask struct {
	// ExternalID is the plugin's own name for the task.
	ExternalID string
	// WorkflowID and WorkflowVersion name the workflow at the version read.
	WorkflowID, WorkflowVersion string
	// StepID and StepVersion name the step at the version read.
	StepID, StepVersion string
	// Title has at most contract.MaxTitleBytes.
	Title string
	// Description has at most contract.MaxDescriptionBytes. Optional.
	Description string
	// ParentID is the task that it becomes part of. Optional.
	ParentID string
	// Priority is "critical", "high", "medium" or "low". Optional; "medium".
	Priority string
	// Metadata is free-form; the key "source" is reserved. Optional.
	Metadata *structpb.Struct
}

// TaskResult is a write that succeeded.
type TaskResult struct {
	// State is APPLIED, ALREADY_APPLIED or NO_CHANGE.
	State contract.State
	// Task is the Host's readback. After ALREADY_APPLIED it is today's, nil when the
	// task was deleted since, while Receipt and ResourceVersion are those of the first
	// time.
	Task            *pluginv1.Task
	Receipt         *pluginv1.HostCommandReceipt
	ResourceVersion string
	// AuditID identifies the audit record of this answer.
	AuditID string
	// RequestID is the request's that succeeded.
	RequestID string
}

// Create creates a task. Needs host.v2.write:tasks.
func (t Tasks) Create(ctx context.Context, workspaceID string, op Operation, task NewTask) (TaskResult, error) {
	c := call{method: "CreateTaskExact", workspaceID: workspaceID, capability: contract.WriteTasks, op: &op}
	var readback *pluginv1.Task
	sent, err := t.host.exact(ctx, c,
		func(ctx context.Context, r request, opts ...grpc.CallOption) (*pluginv1.HostCommandResult, error) {
			answer, err := t.host.client.CreateTaskExact(ctx, &pluginv1.CreateTaskExactRequest{
				RequestId: r.id, WorkspaceId: workspaceID, IdempotencyKey: r.key, CapabilityRevision: r.revision,
				Guard: op.guard.message, Provenance: op.provenance,
				ExternalId:                          task.ExternalID,
				ExpectedWorkflowResourceVersion:     task.WorkflowVersion,
				ExpectedWorkflowStepResourceVersion: task.StepVersion,
				Task: &pluginv1.CreateTaskRequest{
					WorkspaceId: workspaceID, WorkflowId: task.WorkflowID, WorkflowStepId: &task.StepID,
					Title: task.Title, Description: task.Description, ParentId: optional(task.ParentID),
					Priority: task.Priority, Metadata: task.Metadata,
				},
			}, opts...)
			readback = answer.GetTask()
			return answer.GetResult(), err
		})
	return taskResult(c, sent, readback, err)
}

// TaskChange is what to change of a task; nil fields stay. At least one must be
// set.
type TaskChange struct {
	Title       *string
	Description *string
	// State is one of the task states of the contract, not SCHEDULING.
	State *string
	// Priority is "critical", "high", "medium" or "low".
	Priority *string
}

// Update changes a task that is still at the version read. Needs
// host.v2.write:tasks.
func (t Tasks) Update(
	ctx context.Context, workspaceID string, op Operation, taskID, resourceVersion string, change TaskChange,
) (TaskResult, error) {
	c := call{method: "UpdateTaskExact", workspaceID: workspaceID, capability: contract.WriteTasks, op: &op}
	var readback *pluginv1.Task
	sent, err := t.host.exact(ctx, c,
		func(ctx context.Context, r request, opts ...grpc.CallOption) (*pluginv1.HostCommandResult, error) {
			answer, err := t.host.client.UpdateTaskExact(ctx, &pluginv1.UpdateTaskExactRequest{
				RequestId: r.id, WorkspaceId: workspaceID, IdempotencyKey: r.key, CapabilityRevision: r.revision,
				Guard: op.guard.message, Provenance: op.provenance,
				TaskId: taskID, ExpectedResourceVersion: resourceVersion,
				Title: change.Title, Description: change.Description, State: change.State, Priority: change.Priority,
			}, opts...)
			readback = answer.GetTask()
			return answer.GetResult(), err
		})
	return taskResult(c, sent, readback, err)
}

func taskResult(c call, s sent, readback *pluginv1.Task, err error) (TaskResult, error) {
	if err != nil {
		return TaskResult{}, err
	}
	state, _ := readState(s.result.GetStatus()) // known: it is a success
	if readback == nil && state != contract.StateAlreadyApplied {
		return TaskResult{}, c.denied(unknownResult("the Host answered %v without the task", s.result.GetStatus()), s.request)
	}
	return TaskResult{
		State: state, Task: readback, Receipt: s.result.GetReceipt(),
		ResourceVersion: s.result.GetResultResourceVersion(),
		AuditID:         s.result.GetAuditId(), RequestID: s.request.id,
	}, nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
