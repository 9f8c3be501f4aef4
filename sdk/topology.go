package sdk

import (
	"context"

	"google.golang.org/grpc"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// Workspaces is the namespace Host.Workspaces of the contract.
type Workspaces struct{ host *Host }

// Workspaces returns the calls about workspaces.
func (h *Host) Workspaces() Workspaces { return Workspaces{h} }

// List yields the one workspace that it names. Needs host.v2.read:workspaces.
func (w Workspaces) List(
	ctx context.Context, workspaceID string, options ListOptions,
) Pages[*pluginv1.ExactWorkspaceObservation] {
	c := call{method: "ListWorkspacesExact", workspaceID: workspaceID, capability: contract.ReadWorkspaces}
	return pages(ctx, w.host, c, options, func(
		ctx context.Context, requestID string, page *pluginv1.ExactReadPage, opts ...grpc.CallOption,
	) ([]*pluginv1.ExactWorkspaceObservation, *pluginv1.ExactReadPageInfo, error) {
		answer, err := w.host.client.ListWorkspacesExact(ctx, &pluginv1.ListWorkspacesExactRequest{
			RequestId: requestID, WorkspaceId: workspaceID, Page: page,
		}, opts...)
		return answer.GetItems(), answer.GetPageInfo(), err
	})
}

// Workflows is the namespace Host.Workflows of the contract.
type Workflows struct{ host *Host }

// Workflows returns the calls about workflows and their steps.
func (h *Host) Workflows() Workflows { return Workflows{h} }

// List yields a workspace's workflows. Needs host.v2.read:workflows.
func (w Workflows) List(
	ctx context.Context, workspaceID string, options ListOptions,
) Pages[*pluginv1.ExactWorkflowObservation] {
	c := call{method: "ListWorkflowsExact", workspaceID: workspaceID, capability: contract.ReadWorkflows}
	return pages(ctx, w.host, c, options, func(
		ctx context.Context, requestID string, page *pluginv1.ExactReadPage, opts ...grpc.CallOption,
	) ([]*pluginv1.ExactWorkflowObservation, *pluginv1.ExactReadPageInfo, error) {
		answer, err := w.host.client.ListWorkflowsExact(ctx, &pluginv1.ListWorkflowsExactRequest{
			RequestId: requestID, WorkspaceId: workspaceID, Page: page,
		}, opts...)
		return answer.GetItems(), answer.GetPageInfo(), err
	})
}

// Steps yields the steps of a workflow. Needs host.v2.read:workflows.
func (w Workflows) Steps(
	ctx context.Context, workspaceID, workflowID string, options ListOptions,
) Pages[*pluginv1.ExactWorkflowStepObservation] {
	c := call{method: "ListWorkflowStepsExact", workspaceID: workspaceID, capability: contract.ReadWorkflows}
	return pages(ctx, w.host, c, options, func(
		ctx context.Context, requestID string, page *pluginv1.ExactReadPage, opts ...grpc.CallOption,
	) ([]*pluginv1.ExactWorkflowStepObservation, *pluginv1.ExactReadPageInfo, error) {
		answer, err := w.host.client.ListWorkflowStepsExact(ctx, &pluginv1.ListWorkflowStepsExactRequest{
			RequestId: requestID, WorkspaceId: workspaceID, WorkflowId: workflowID, Page: page,
		}, opts...)
		return answer.GetItems(), answer.GetPageInfo(), err
	})
}
