package rpc

import (
	"context"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// GetConfig reads what the caller's operator configured.
func (h *host) GetConfig(ctx context.Context, _ *pluginv1.GetConfigRequest) (*pluginv1.GetConfigResponse, error) {
	values, err := h.v1.GetConfig(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	config, err := structOf(values)
	return &pluginv1.GetConfigResponse{Config: config}, err
}
