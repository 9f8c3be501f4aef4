package rpc

import (
	"context"

	"github.com/kandev/plugin-host/hostsvc/query"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// dataTexts are the shipped texts of reads.
var dataTexts = shippedTexts{
	identifiers: bothIdentifiers,
	notFound:    "workspace was not found",
	unavailable: "workspace data service is unavailable",
}

// ListWorkspacesExact reads the workspace that it names.
func (h *host) ListWorkspacesExact(ctx context.Context, message *pluginv1.ListWorkspacesExactRequest) (*pluginv1.ListWorkspacesExactResponse, error) {
	r := requestOf(ctx, message)
	list, receipt, refusal := h.reader.Workspaces(ctx, r.installationID, r.method, r.envelope, pageOf(message.GetPage()))
	if refusal != nil {
		return nil, r.failure(refusal, dataTexts)
	}
	response := &pluginv1.ListWorkspacesExactResponse{PageInfo: r.pageInfo(list.NextCursor, list.SnapshotVersion, receipt)}
	for i := range list.Items {
		response.Items = append(response.Items, workspaceObservation(&list.Items[i], receipt.StoreEpoch, response.PageInfo.ObservedAt))
	}
	return response, nil
}

// ListWorkflowsExact lists the workflows of a workspace.
func (h *host) ListWorkflowsExact(ctx context.Context, message *pluginv1.ListWorkflowsExactRequest) (*pluginv1.ListWorkflowsExactResponse, error) {
	r := requestOf(ctx, message)
	list, receipt, refusal := h.reader.Workflows(ctx, r.installationID, r.method, r.envelope, pageOf(message.GetPage()))
	if refusal != nil {
		return nil, r.failure(refusal, dataTexts)
	}
	response := &pluginv1.ListWorkflowsExactResponse{PageInfo: r.pageInfo(list.NextCursor, list.SnapshotVersion, receipt)}
	for i := range list.Items {
		response.Items = append(response.Items, workflowObservation(&list.Items[i], receipt.StoreEpoch, response.PageInfo.ObservedAt))
	}
	return response, nil
}

// ListWorkflowStepsExact lists the steps of a workflow.
func (h *host) ListWorkflowStepsExact(ctx context.Context, message *pluginv1.ListWorkflowStepsExactRequest) (*pluginv1.ListWorkflowStepsExactResponse, error) {
	r := requestOf(ctx, message)
	list, receipt, refusal := h.reader.WorkflowSteps(ctx, r.installationID, r.method, r.envelope, message.GetWorkflowId(), pageOf(message.GetPage()))
	if refusal != nil {
		return nil, r.failure(refusal, dataTexts)
	}
	response := &pluginv1.ListWorkflowStepsExactResponse{PageInfo: r.pageInfo(list.NextCursor, list.SnapshotVersion, receipt)}
	for i := range list.Items {
		response.Items = append(response.Items, stepObservation(&list.Items[i], receipt.StoreEpoch, response.PageInfo.ObservedAt))
	}
	return response, nil
}

func pageOf(page *pluginv1.ExactReadPage) query.Page {
	return query.Page{Limit: page.GetLimit(), Cursor: page.GetCursor(), SnapshotVersion: page.GetSnapshotVersion()}
}

func (r request) pageInfo(nextCursor, snapshotVersion string, receipt query.Receipt) *pluginv1.ExactReadPageInfo {
	observedAt := timestamp(receipt.ObservedAt)
	return &pluginv1.ExactReadPageInfo{
		NextCursor: nextCursor, HasMore: nextCursor != "", SnapshotVersion: snapshotVersion, ObservedAt: observedAt,
		Receipt: r.receipt(receipt, observedAt),
	}
}
