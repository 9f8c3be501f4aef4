package rpc

import (
	"context"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// GetSecret reads one of the caller's own secrets.
func (h *host) GetSecret(ctx context.Context, message *pluginv1.GetSecretRequest) (*pluginv1.GetSecretResponse, error) {
	value, found, err := h.v1.GetSecret(ctx, callerOf(ctx), message.GetKey())
	return &pluginv1.GetSecretResponse{Found: found, Value: value}, err
}

// SetSecret writes one of the caller's own secrets.
func (h *host) SetSecret(ctx context.Context, message *pluginv1.SetSecretRequest) (*pluginv1.SetSecretResponse, error) {
	return &pluginv1.SetSecretResponse{}, h.v1.SetSecret(ctx, callerOf(ctx), message.GetKey(), message.GetValue())
}

// DeleteSecret removes one of the caller's own secrets.
func (h *host) DeleteSecret(ctx context.Context, message *pluginv1.DeleteSecretRequest) (*pluginv1.DeleteSecretResponse, error) {
	return &pluginv1.DeleteSecretResponse{}, h.v1.DeleteSecret(ctx, callerOf(ctx), message.GetKey())
}

// RevealSecret reads what the caller's operator gave to it by reference.
func (h *host) RevealSecret(ctx context.Context, message *pluginv1.RevealSecretRequest) (*pluginv1.RevealSecretResponse, error) {
	value, err := h.v1.RevealSecret(ctx, callerOf(ctx), message.GetRef())
	return &pluginv1.RevealSecretResponse{Value: value}, err
}
