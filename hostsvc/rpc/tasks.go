package rpc

import (
	"context"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/query"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

var taskTexts = shippedTexts{
	identifiers: bothIdentifiers,
	notFound:    "task was not found",
	unavailable: "workspace data service is unavailable",
	widened:     "exact task filters cannot widen workspace scope",
}

// GetTaskExact reads one task.
func (h *host) GetTaskExact(ctx context.Context, message *pluginv1.GetTaskExactRequest) (*pluginv1.GetTaskExactResponse, error) {
	r := requestOf(ctx, message)
	task, receipt, refusal := h.reader.Task(ctx, r.installationID, r.method, r.envelope, message.GetTaskId())
	if refusal != nil {
		return nil, r.failure(refusal, taskTexts)
	}
	observedAt := timestamp(receipt.ObservedAt)
	return &pluginv1.GetTaskExactResponse{
		Item:    taskObservation(task, receipt.StoreEpoch, observedAt),
		Receipt: r.receipt(receipt, observedAt),
	}, nil
}

// ListTasksExact lists the tasks of a workspace.
func (h *host) ListTasksExact(ctx context.Context, message *pluginv1.ListTasksExactRequest) (*pluginv1.ListTasksExactResponse, error) {
	r := requestOf(ctx, message)
	if r.envelope.Fault == nil {
		r.envelope.Fault = checkFilterScope(message)
	}
	list, receipt, refusal := h.reader.Tasks(ctx, r.installationID, r.method, r.envelope, filterOf(message.GetFilter()), pageOf(message.GetPage()))
	if refusal != nil {
		return nil, r.failure(refusal, taskTexts)
	}
	response := &pluginv1.ListTasksExactResponse{PageInfo: r.pageInfo(list.NextCursor, list.SnapshotVersion, receipt)}
	response.Items = make([]*pluginv1.ExactTaskObservation, len(list.Items))
	for i := range list.Items {
		response.Items[i] = taskObservation(&list.Items[i], receipt.StoreEpoch, response.PageInfo.ObservedAt)
	}
	return response, nil
}

func filterOf(filter *pluginv1.TaskFilter) query.TaskFilter {
	if filter == nil {
		return query.TaskFilter{}
	}
	return query.TaskFilter{
		WorkflowIDs: filter.GetWorkflowIds(), States: filter.GetStates(), Parent: filter.ParentId,
		IncludeEphemeral: filter.GetIncludeEphemeral(), IncludeArchived: filter.GetIncludeArchived(),
	}
}

// widenedFilter is the field of a filter that names another workspace.
const widenedFilter = "filter.workspace_ids"

// checkFilterScope refuses a filter that names any workspace but the request's
// own.
func checkFilterScope(message *pluginv1.ListTasksExactRequest) *admission.Refusal {
	for _, id := range message.GetFilter().GetWorkspaceIds() {
		if id != message.GetWorkspaceId() {
			return malformed(widenedFilter, "names another workspace than the request")
		}
	}
	return nil
}

// CreateTaskExact creates a task.
func (h *host) CreateTaskExact(ctx context.Context, message *pluginv1.CreateTaskExactRequest) (*pluginv1.CreateTaskExactResponse, error) {
	r := requestOf(ctx, message)
	if r.envelope.Fault == nil {
		r.envelope.Fault = checkCreateTask(message)
	}
	task := message.GetTask()
	result, refusal := h.executor.Run(ctx, r.installationID, r.method, r.envelope, command.CreateTask{
		Draft: domain.TaskDraft{
			WorkflowID: task.GetWorkflowId(), WorkflowStepID: task.GetWorkflowStepId(), Title: task.GetTitle(),
			Description: task.GetDescription(), Priority: task.GetPriority(), ParentID: task.GetParentId(),
			ExternalID: message.GetExternalId(),
		},
		ExpectedWorkflowVersion: message.GetExpectedWorkflowResourceVersion(),
		ExpectedStepVersion:     message.GetExpectedWorkflowStepResourceVersion(),
		ExpectedParentVersion:   message.GetExpectedParentResourceVersion(),
	})
	if refusal != nil {
		return &pluginv1.CreateTaskExactResponse{Result: r.refusal(refusal)}, nil
	}
	return &pluginv1.CreateTaskExactResponse{Result: r.result(result), Task: readBackTask(result)}, nil
}

// checkCreateTask refuses what a shipped request can say and this Host does not
// do yet, and a task for another workspace.
func checkCreateTask(message *pluginv1.CreateTaskExactRequest) *admission.Refusal {
	task := message.GetTask()
	switch {
	case message.GetContinuationToken() != "":
		return unsupported("continuation_token")
	case task == nil:
		return admission.RefuseField(&contract.FieldError{
			Field: "task", Reason: contract.ReasonMissingExactField, Detail: "is required",
		})
	case task.GetStartAgent():
		return unsupported("task.start_agent")
	case len(task.GetRepositories()) > 0:
		return unsupported("task.repositories")
	case task.Launch != nil:
		return unsupported("task.launch")
	case len(task.GetMetadata().GetFields()) > 0:
		return unsupported("task.metadata")
	case task.GetWorkspaceId() != "" && task.GetWorkspaceId() != message.GetWorkspaceId():
		return malformed("task.workspace_id", "is not the workspace of the request")
	}
	return nil
}

// UpdateTaskExact changes fields of a task.
func (h *host) UpdateTaskExact(ctx context.Context, message *pluginv1.UpdateTaskExactRequest) (*pluginv1.UpdateTaskExactResponse, error) {
	r := requestOf(ctx, message)
	if r.envelope.Fault == nil {
		r.envelope.Fault = checkUpdateTask(message)
	}
	result, refusal := h.executor.Run(ctx, r.installationID, r.method, r.envelope, command.UpdateTask{
		TaskID: message.GetTaskId(), ExpectedVersion: message.GetExpectedResourceVersion(),
		Patch: domain.TaskPatch{
			Title: message.Title, Description: message.Description, State: message.State, Priority: message.Priority,
		},
	})
	if refusal != nil {
		return &pluginv1.UpdateTaskExactResponse{Result: r.refusal(refusal)}, nil
	}
	return &pluginv1.UpdateTaskExactResponse{Result: r.result(result), Task: readBackTask(result)}, nil
}

func checkUpdateTask(message *pluginv1.UpdateTaskExactRequest) *admission.Refusal {
	switch {
	case message.GetContinuationToken() != "":
		return unsupported("continuation_token")
	case message.GetManagementInstanceKey() != "":
		return unsupported("management_instance_key")
	case message.GetExpectedClaimGeneration() != 0:
		return unsupported("expected_claim_generation")
	}
	return nil
}

// readBackTask is the task of a committed command, as the transaction that
// answered saw it.
func readBackTask(result command.Result) *pluginv1.Task {
	task, ok := result.ReadBack.(command.TaskReadBack)
	if !ok {
		return nil
	}
	dto := taskDTO(&task.Task, result.StoreEpoch)
	showBlocked(dto, task.Blocked)
	return dto
}

func malformed(field, detail string) *admission.Refusal {
	return admission.RefuseField(&contract.FieldError{
		Field: field, Reason: contract.ReasonMalformedPrecondition, Detail: detail,
	})
}
