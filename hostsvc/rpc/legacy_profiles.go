package rpc

import (
	"context"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// ListAgentProfiles lists the agent profiles of the instance.
func (h *host) ListAgentProfiles(ctx context.Context, message *pluginv1.ListAgentProfilesRequest) (*pluginv1.ListAgentProfilesResponse, error) {
	profiles, info, err := h.v1.ListAgentProfiles(ctx, callerOf(ctx), v1Page(message.GetPage()))
	if err != nil {
		return nil, err
	}
	response := &pluginv1.ListAgentProfilesResponse{PageInfo: v1PageInfo(info)}
	for _, p := range profiles {
		response.Profiles = append(response.Profiles, &pluginv1.AgentProfile{
			Id: p.ID, AgentId: p.AgentID, DisplayName: p.DisplayName, Name: p.Name, Model: p.Model, Mode: p.Mode,
		})
	}
	return response, nil
}

// ListExecutorProfiles lists the executor profiles of the instance.
func (h *host) ListExecutorProfiles(ctx context.Context, message *pluginv1.ListExecutorProfilesRequest) (*pluginv1.ListExecutorProfilesResponse, error) {
	profiles, info, err := h.v1.ListExecutorProfiles(ctx, callerOf(ctx), v1Page(message.GetPage()))
	if err != nil {
		return nil, err
	}
	response := &pluginv1.ListExecutorProfilesResponse{PageInfo: v1PageInfo(info)}
	for _, p := range profiles {
		response.Profiles = append(response.Profiles, &pluginv1.ExecutorProfile{
			Id: p.ID, DisplayName: p.DisplayName, ExecutorType: p.ExecutorType,
		})
	}
	return response, nil
}
