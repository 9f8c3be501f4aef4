package rpc

import (
	"context"

	"github.com/kandev/plugin-host/hostsvc/domain"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// ListRepositories lists the repositories of a workspace.
func (h *host) ListRepositories(ctx context.Context, message *pluginv1.ListRepositoriesRequest) (*pluginv1.ListRepositoriesResponse, error) {
	repositories, info, err := h.v1.ListRepositories(ctx, callerOf(ctx), message.GetWorkspaceId(), v1Page(message.GetPage()))
	if err != nil {
		return nil, err
	}
	response := &pluginv1.ListRepositoriesResponse{PageInfo: v1PageInfo(info)}
	for i := range repositories {
		r := &repositories[i]
		response.Repositories = append(response.Repositories, &pluginv1.Repository{
			Id: r.ID, WorkspaceId: r.WorkspaceID, Name: domain.StripMarkup(r.Name), DefaultBranch: optionalText(r.DefaultBranch), SourceType: r.SourceType,
			ProviderId: r.Provider, ProviderRepositoryId: r.ProviderRepositoryID, ProviderHost: r.ProviderHost,
			OwnerOrProject: r.ProviderOwner, ProviderName: r.ProviderName, RemoteUrl: r.PublicRemoteURL(), ProviderScope: r.ProviderScope,
		})
	}
	return response, nil
}
