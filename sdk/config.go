package sdk

import (
	"context"

	"google.golang.org/grpc"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// Config returns what the operator configured, with secrets in clear text: don't log
// it. Without a configuration it is empty. A secret that the Host can't have is an
// error of the whole. It needs no declaration.
func (h *Host) Config(ctx context.Context) (map[string]any, error) {
	var answer *pluginv1.GetConfigResponse
	err := h.legacy(ctx, "GetConfig", func(ctx context.Context, opts ...grpc.CallOption) (err error) {
		answer, err = h.client.GetConfig(ctx, &pluginv1.GetConfigRequest{}, opts...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answer.GetConfig().AsMap(), nil
}
