package sdk

import (
	"context"

	"google.golang.org/grpc"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// Secrets are the plugin's own, which the Host keeps encrypted, and those that its
// operator gave to it by reference. Its own are of this installation; an uninstall
// removes them. All of it needs `secrets` in the manifest's legacy declarations.
type Secrets struct{ host *Host }

// Secrets returns the calls about secrets.
func (h *Host) Secrets() Secrets { return Secrets{h} }

// Get returns the plugin's own secret at key. found is false where there is none.
func (s Secrets) Get(ctx context.Context, key string) (value string, found bool, err error) {
	var answer *pluginv1.GetSecretResponse
	err = s.host.legacy(ctx, "GetSecret", func(ctx context.Context, opts ...grpc.CallOption) (err error) {
		answer, err = s.host.client.GetSecret(ctx, &pluginv1.GetSecretRequest{Key: key}, opts...)
		return err
	})
	return answer.GetValue(), answer.GetFound(), err
}

// Set writes the plugin's own secret at key, of at most 64 KiB, over the one that is
// there. A key has 1 to 128 letters, digits, `.`, `_` and `-`, and begins with a
// letter or a digit.
func (s Secrets) Set(ctx context.Context, key, value string) error {
	return s.host.legacy(ctx, "SetSecret", func(ctx context.Context, opts ...grpc.CallOption) error {
		_, err := s.host.client.SetSecret(ctx, &pluginv1.SetSecretRequest{Key: key, Value: value}, opts...)
		return err
	})
}

// Delete removes the plugin's own secret at key. It succeeds where there is none.
func (s Secrets) Delete(ctx context.Context, key string) error {
	return s.host.legacy(ctx, "DeleteSecret", func(ctx context.Context, opts ...grpc.CallOption) error {
		_, err := s.host.client.DeleteSecret(ctx, &pluginv1.DeleteSecretRequest{Key: key}, opts...)
		return err
	})
}

// Given returns the secret that the operator gave for a property of the
// configuration, in spec.secretRefs of the installation. GetConfig holds it as well.
func (s Secrets) Given(ctx context.Context, property string) (string, error) {
	var answer *pluginv1.RevealSecretResponse
	err := s.host.legacy(ctx, "RevealSecret", func(ctx context.Context, opts ...grpc.CallOption) (err error) {
		answer, err = s.host.client.RevealSecret(ctx, &pluginv1.RevealSecretRequest{Ref: "secretRefs/" + property}, opts...)
		return err
	})
	return answer.GetValue(), err
}
