package rpc

import (
	"context"

	"github.com/kandev/plugin-host/hostsvc/legacy"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// ListSessions lists the sessions of the instance.
func (h *host) ListSessions(ctx context.Context, message *pluginv1.ListSessionsRequest) (*pluginv1.ListSessionsResponse, error) {
	sessions, info, err := h.v1.ListSessions(ctx, callerOf(ctx), v1SessionFilter(message.GetFilter()), v1Page(message.GetPage()))
	if err != nil {
		return nil, err
	}
	response := &pluginv1.ListSessionsResponse{PageInfo: v1PageInfo(info)}
	for i := range sessions {
		response.Sessions = append(response.Sessions, sessionDTO(&sessions[i]))
	}
	return response, nil
}

// ListSessionCodeStats counts the lines that sessions changed.
func (h *host) ListSessionCodeStats(ctx context.Context, message *pluginv1.ListSessionCodeStatsRequest) (*pluginv1.ListSessionCodeStatsResponse, error) {
	stats, info, err := h.v1.ListSessionCodeStats(ctx, callerOf(ctx), v1SessionFilter(message.GetFilter()), v1Page(message.GetPage()))
	if err != nil {
		return nil, err
	}
	response := &pluginv1.ListSessionCodeStatsResponse{PageInfo: v1PageInfo(info)}
	for _, s := range stats {
		dto := &pluginv1.SessionCodeStats{
			SessionId: s.SessionID, LinesAddedPeakPending: s.AddedPeakPending, LinesDeletedPeakPending: s.DeletedPeakPending,
			CommittedLinesAvailable: s.CommittedAvailable,
		}
		if s.CommittedAvailable {
			dto.LinesAddedCommitted, dto.LinesDeletedCommitted = s.AddedCommitted, s.DeletedCommitted
		}
		response.Stats = append(response.Stats, dto)
	}
	return response, nil
}

func v1SessionFilter(filter *pluginv1.SessionFilter) legacy.SessionFilter {
	return legacy.SessionFilter{TaskIDs: filter.GetTaskIds(), WorkspaceIDs: filter.GetWorkspaceIds(), States: filter.GetStates()}
}
