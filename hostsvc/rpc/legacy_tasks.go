package rpc

import (
	"context"
	"strconv"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// ListTasks lists the tasks of the instance.
func (h *host) ListTasks(ctx context.Context, message *pluginv1.ListTasksRequest) (*pluginv1.ListTasksResponse, error) {
	filter := legacy.TaskFilter{
		WorkspaceIDs: message.GetFilter().GetWorkspaceIds(), WorkflowIDs: message.GetFilter().GetWorkflowIds(),
		States: message.GetFilter().GetStates(), IncludeEphemeral: message.GetFilter().GetIncludeEphemeral(),
		IncludeArchived: message.GetFilter().GetIncludeArchived(),
	}
	if message.GetFilter() != nil {
		filter.ParentID = message.GetFilter().ParentId
	}
	tasks, info, err := h.v1.ListTasks(ctx, callerOf(ctx), filter, v1Page(message.GetPage()))
	if err != nil {
		return nil, err
	}
	dtos, err := v1Tasks(tasks)
	return &pluginv1.ListTasksResponse{Tasks: dtos, PageInfo: v1PageInfo(info)}, err
}

// GetTask reads one task.
func (h *host) GetTask(ctx context.Context, message *pluginv1.GetTaskRequest) (*pluginv1.GetTaskResponse, error) {
	task, err := h.v1.GetTask(ctx, callerOf(ctx), message.GetId())
	if err != nil {
		return nil, err
	}
	dto, err := v1Task(task)
	return &pluginv1.GetTaskResponse{Task: dto}, err
}

// CreateTask creates a task.
func (h *host) CreateTask(ctx context.Context, message *pluginv1.CreateTaskRequest) (*pluginv1.CreateTaskResponse, error) {
	metadata, err := objectOf("metadata", message.GetMetadata())
	if err != nil {
		return nil, err
	}
	asked := legacy.NewTask{
		WorkspaceID: message.GetWorkspaceId(), WorkflowID: message.GetWorkflowId(), WorkflowStepID: message.GetWorkflowStepId(),
		Title: message.GetTitle(), Description: message.GetDescription(), ParentID: message.GetParentId(),
		Priority: message.GetPriority(), StartAgent: message.GetStartAgent(), Metadata: metadata,
	}
	if launch := message.GetLaunch(); launch != nil {
		asked.Launch = &legacy.Launch{
			AgentProfileID: launch.GetAgentProfileId(), ExecutorProfileID: launch.GetExecutorProfileId(), PlanMode: launch.GetPlanMode(),
		}
	}
	for _, r := range message.GetRepositories() {
		asked.Repositories = append(asked.Repositories, v1TaskRepository(r))
	}
	task, err := h.v1.CreateTask(ctx, callerOf(ctx), asked)
	if err != nil {
		return nil, err
	}
	dto, err := v1Task(task)
	return &pluginv1.CreateTaskResponse{Task: dto}, err
}

func v1TaskRepository(r *pluginv1.PluginTaskRepository) legacy.TaskRepository {
	asked := legacy.TaskRepository{
		RepositoryID: r.GetRepositoryId(), BaseBranch: r.GetBaseBranch(), CheckoutBranch: r.GetCheckoutBranch(),
	}
	if remote := r.GetRemote(); remote != nil {
		asked.Remote = &legacy.RemoteRepository{
			ProviderID: remote.GetProviderId(), ProviderHost: remote.GetProviderHost(), OwnerOrProject: remote.GetOwnerOrProject(),
			ProviderRepositoryID: remote.GetProviderRepositoryId(), Name: remote.GetName(), CloneURL: remote.GetCloneUrl(),
		}
	}
	return asked
}

// UpdateTask changes fields of a task.
func (h *host) UpdateTask(ctx context.Context, message *pluginv1.UpdateTaskRequest) (*pluginv1.UpdateTaskResponse, error) {
	task, err := h.v1.UpdateTask(ctx, callerOf(ctx), legacy.TaskUpdate{
		ID: message.GetId(), Title: message.Title, Description: message.Description, State: message.State,
		Priority: message.Priority, WorkflowStepID: message.WorkflowStepId,
	})
	if err != nil {
		return nil, err
	}
	dto, err := v1Task(task)
	return &pluginv1.UpdateTaskResponse{Task: dto}, err
}

// MoveTask moves a task to a step.
func (h *host) MoveTask(ctx context.Context, message *pluginv1.MoveTaskRequest) (*pluginv1.MoveTaskResponse, error) {
	moved, err := h.v1.MoveTask(ctx, callerOf(ctx), legacy.TaskMove{
		TaskID: message.GetTaskId(), WorkflowStepID: message.GetWorkflowStepId(), WorkflowID: message.WorkflowId,
		Position: message.GetPosition(),
	})
	if err != nil {
		return nil, err
	}
	dto, err := v1Task(moved.Task)
	return &pluginv1.MoveTaskResponse{
		Task: dto, Transitioned: moved.Transitioned, QueuedForStepId: optionalText(moved.Task.QueuedForStepID),
		FromStepId: moved.FromStepID,
	}, err
}

// PreviewPluginOwnedTaskTree lists what DeletePluginOwnedTaskTree would delete.
func (h *host) PreviewPluginOwnedTaskTree(ctx context.Context, message *pluginv1.PreviewPluginOwnedTaskTreeRequest) (*pluginv1.PreviewPluginOwnedTaskTreeResponse, error) {
	tasks, err := h.v1.PreviewPluginOwnedTaskTree(ctx, callerOf(ctx), message.GetRootTaskId())
	if err != nil {
		return nil, err
	}
	dtos, err := v1Tasks(tasks)
	return &pluginv1.PreviewPluginOwnedTaskTreeResponse{Tasks: dtos}, err
}

// DeletePluginOwnedTaskTree deletes a task that the plugin created with all below it.
func (h *host) DeletePluginOwnedTaskTree(ctx context.Context, message *pluginv1.DeletePluginOwnedTaskTreeRequest) (*pluginv1.DeletePluginOwnedTaskTreeResponse, error) {
	deleted, err := h.v1.DeletePluginOwnedTaskTree(ctx, callerOf(ctx), message.GetRootTaskId())
	if err != nil {
		return nil, err
	}
	return &pluginv1.DeletePluginOwnedTaskTreeResponse{DeletedTaskIds: deleted}, nil
}

// ListTaskStepTransitions lists the moves of a task.
func (h *host) ListTaskStepTransitions(ctx context.Context, message *pluginv1.ListTaskStepTransitionsRequest) (*pluginv1.ListTaskStepTransitionsResponse, error) {
	moves, info, err := h.v1.ListTaskStepTransitions(ctx, callerOf(ctx), message.GetTaskId(), v1Page(message.GetPage()))
	if err != nil {
		return nil, err
	}
	response := &pluginv1.ListTaskStepTransitionsResponse{PageInfo: v1PageInfo(info)}
	for _, m := range moves {
		response.Items = append(response.Items, &pluginv1.TaskStepTransition{
			Id: strconv.FormatInt(m.ID, 10), FromWorkflowId: optionalText(m.FromWorkflowID), FromWorkflowStepId: optionalText(m.FromStepID),
			ToWorkflowId: optionalText(m.ToWorkflowID), ToWorkflowStepId: optionalText(m.ToStepID), Trigger: string(m.Trigger),
			OccurredAt: wholeSecond(m.OccurredAt),
		})
	}
	return response, nil
}

// ListWorkflowTransitionGroups counts the moves of a workflow.
func (h *host) ListWorkflowTransitionGroups(ctx context.Context, message *pluginv1.ListWorkflowTransitionGroupsRequest) (*pluginv1.ListWorkflowTransitionGroupsResponse, error) {
	groups, info, err := h.v1.ListWorkflowTransitionGroups(ctx, callerOf(ctx), message.GetWorkflowId(), v1Page(message.GetPage()))
	if err != nil {
		return nil, err
	}
	response := &pluginv1.ListWorkflowTransitionGroupsResponse{PageInfo: v1PageInfo(info)}
	for _, g := range groups {
		response.Items = append(response.Items, &pluginv1.WorkflowTransitionGroup{
			Kind: g.Kind, FromStepId: optionalText(g.FromStepID), ToStepId: optionalText(g.ToStepID), Count: g.Count,
		})
	}
	return response, nil
}

func v1Tasks(tasks []legacy.TaskView) ([]*pluginv1.Task, error) {
	dtos := make([]*pluginv1.Task, len(tasks))
	for i := range tasks {
		var err error
		if dtos[i], err = v1Task(tasks[i]); err != nil {
			return nil, err
		}
	}
	return dtos, nil
}

// v1Task is a task as v1 shows it: whole, with its dependencies.
func v1Task(view legacy.TaskView) (*pluginv1.Task, error) {
	t := &view.Task
	dto := taskDTO(t, view.StoreEpoch)
	if metadata := domain.Redact(t.PublicMetadata()); len(metadata) > 0 {
		var err error
		if dto.Metadata, err = structOf(metadata); err != nil {
			return nil, err
		}
	}
	showBlocked(dto, view.Blocked)
	dto.DependsOn, dto.Blocks = dependencyDTOs(view.DependsOn), dependencyDTOs(view.Blocks)
	dto.DependsOnTruncated, dto.BlocksTruncated = view.DependsOnCut, view.BlocksCut
	dto.StartWhenUnblocked = view.StartWhenUnblocked
	return dto, nil
}

func dependencyDTOs(refs []legacy.DependencyRef) []*pluginv1.TaskDependencyRef {
	dtos := make([]*pluginv1.TaskDependencyRef, 0, len(refs))
	for _, r := range refs {
		dtos = append(dtos, &pluginv1.TaskDependencyRef{Id: r.ID, Title: domain.StripMarkup(r.Title), State: string(r.State), Status: string(r.Status)})
	}
	return dtos
}

func pullRequestDTO(p *domain.TaskPullRequest) *pluginv1.TaskPullRequest {
	return &pluginv1.TaskPullRequest{
		Number: p.Number, Url: p.URL, Title: domain.StripMarkup(p.Title), State: p.State, HeadBranch: domain.StripMarkup(p.HeadBranch),
		BaseBranch: domain.StripMarkup(p.BaseBranch),
		IsDraft:    p.Draft, Provider: p.Provider, MergedAt: optionalSecond(p.MergedAt), ReviewState: p.ReviewState,
		ChecksState: p.ChecksState, MergeableState: p.MergeableState, UnresolvedReviewThreads: p.UnresolvedReviewThreads,
		ChecksTotal: p.ChecksTotal, ChecksPassing: p.ChecksPassing, Additions: p.Additions, Deletions: p.Deletions,
		AuthorLogin: p.AuthorLogin, ClosedAt: optionalSecond(p.ClosedAt),
	}
}
