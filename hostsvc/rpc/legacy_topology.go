package rpc

import (
	"context"

	"github.com/kandev/plugin-host/hostsvc/domain"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// ListWorkspaces lists the workspaces of the instance.
func (h *host) ListWorkspaces(ctx context.Context, message *pluginv1.ListWorkspacesRequest) (*pluginv1.ListWorkspacesResponse, error) {
	workspaces, info, err := h.v1.ListWorkspaces(ctx, callerOf(ctx), v1Page(message.GetPage()))
	if err != nil {
		return nil, err
	}
	response := &pluginv1.ListWorkspacesResponse{PageInfo: v1PageInfo(info)}
	for i := range workspaces {
		response.Workspaces = append(response.Workspaces, workspaceDTO(&workspaces[i]))
	}
	return response, nil
}

// ListWorkflows lists the workflows of a workspace that aren't hidden.
func (h *host) ListWorkflows(ctx context.Context, message *pluginv1.ListWorkflowsRequest) (*pluginv1.ListWorkflowsResponse, error) {
	workflows, info, err := h.v1.ListWorkflows(ctx, callerOf(ctx), message.GetWorkspaceId(), v1Page(message.GetPage()))
	if err != nil {
		return nil, err
	}
	response := &pluginv1.ListWorkflowsResponse{PageInfo: v1PageInfo(info)}
	for i := range workflows {
		response.Workflows = append(response.Workflows, workflowDTO(&workflows[i]))
	}
	return response, nil
}

// ListWorkflowSteps lists the steps of a workflow.
func (h *host) ListWorkflowSteps(ctx context.Context, message *pluginv1.ListWorkflowStepsRequest) (*pluginv1.ListWorkflowStepsResponse, error) {
	steps, err := h.v1.ListWorkflowSteps(ctx, callerOf(ctx), message.GetWorkflowId())
	if err != nil {
		return nil, err
	}
	response := &pluginv1.ListWorkflowStepsResponse{}
	for i := range steps {
		response.Steps = append(response.Steps, stepDTO(&steps[i]))
	}
	return response, nil
}

func workspaceDTO(w *domain.Workspace) *pluginv1.Workspace {
	return &pluginv1.Workspace{
		Id: w.ID, Name: domain.StripMarkup(w.Name), Description: optionalText(domain.StripMarkup(w.Description)), OwnerId: w.OwnerID,
		DefaultExecutorId: optionalText(w.DefaultExecutorID), DefaultAgentProfileId: optionalText(w.DefaultAgentProfileID),
		CreatedAt: wholeSecond(w.CreatedAt), UpdatedAt: wholeSecond(w.UpdatedAt),
	}
}

func workflowDTO(w *domain.Workflow) *pluginv1.Workflow {
	return &pluginv1.Workflow{
		Id: w.ID, WorkspaceId: w.WorkspaceID, Name: domain.StripMarkup(w.Name), Description: optionalText(domain.StripMarkup(w.Description)),
		SortOrder: w.SortOrder, CreatedAt: wholeSecond(w.CreatedAt), UpdatedAt: wholeSecond(w.UpdatedAt),
	}
}

func stepDTO(s *domain.WorkflowStep) *pluginv1.WorkflowStep {
	return &pluginv1.WorkflowStep{
		Id: s.ID, WorkflowId: s.WorkflowID, Name: domain.StripMarkup(s.Name), Position: s.Position, StageType: s.StageType,
		Color: s.Color, IsStartStep: s.Start, WipLimit: s.WIPLimit, AgentProfileId: s.AgentProfileID,
		OnEnterActionTypes: s.OnEnterActionTypes,
	}
}
