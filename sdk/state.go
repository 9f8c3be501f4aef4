package sdk

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// State is what the plugin keeps with the Host: JSON objects by key, in scopes. It
// is of this installation; an uninstall removes it. All of it needs `state` in the
// manifest's legacy declarations.
type State struct {
	host *Host
	// scope is meant to be instance, workspace, task or agent.
	scope, scopeID string
}

// State returns the state of a scope: "instance", or of one "workspace", "task" or
// "agent" by its ID. The Host keeps whatever scope it is given, of at most 256
// bytes.
func (h *Host) State(scope, scopeID string) State { return State{h, scope, scopeID} }

// StateEntry is one entry of a scope.
type StateEntry struct {
	Key   string
	Value map[string]any
	// UpdatedAt is exact to the second.
	UpdatedAt time.Time
}

// Get returns the value at key. found is false where there is none.
func (s State) Get(ctx context.Context, key string) (value map[string]any, found bool, err error) {
	var answer *pluginv1.GetStateResponse
	err = s.host.legacy(ctx, "GetState", func(ctx context.Context, opts ...grpc.CallOption) (err error) {
		answer, err = s.host.client.GetState(ctx, &pluginv1.GetStateRequest{Scope: s.scope, ScopeId: s.scopeID, Key: key}, opts...)
		return err
	})
	if err != nil || !answer.GetFound() {
		return nil, false, err
	}
	return answer.GetValue().AsMap(), true, nil
}

// Set writes the value at key, of at most 256 KiB as JSON, over the one that is
// there.
func (s State) Set(ctx context.Context, key string, value map[string]any) error {
	object, err := structpb.NewStruct(value)
	if err != nil {
		return fmt.Errorf("SetState: the value at %q is no JSON object: %w", key, err)
	}
	return s.host.legacy(ctx, "SetState", func(ctx context.Context, opts ...grpc.CallOption) error {
		_, err := s.host.client.SetState(ctx, &pluginv1.SetStateRequest{Scope: s.scope, ScopeId: s.scopeID, Key: key, Value: object}, opts...)
		return err
	})
}

// Delete removes the value at key. It succeeds where there is none.
func (s State) Delete(ctx context.Context, key string) error {
	return s.host.legacy(ctx, "DeleteState", func(ctx context.Context, opts ...grpc.CallOption) error {
		_, err := s.host.client.DeleteState(ctx, &pluginv1.DeleteStateRequest{Scope: s.scope, ScopeId: s.scopeID, Key: key}, opts...)
		return err
	})
}

// List returns all entries of the scope, by key. A scope of more than 3 MiB can't be
// listed; its entries can still be read one by one.
func (s State) List(ctx context.Context) ([]StateEntry, error) {
	var answer *pluginv1.ListStateResponse
	err := s.host.legacy(ctx, "ListState", func(ctx context.Context, opts ...grpc.CallOption) (err error) {
		answer, err = s.host.client.ListState(ctx, &pluginv1.ListStateRequest{Scope: s.scope, ScopeId: s.scopeID}, opts...)
		return err
	})
	if err != nil {
		return nil, err
	}
	entries := make([]StateEntry, len(answer.GetEntries()))
	for i, entry := range answer.GetEntries() {
		at, err := time.Parse(time.RFC3339, entry.GetUpdatedAt())
		if err != nil {
			return nil, fmt.Errorf("ListState: the entry %q has no time: %w", entry.GetKey(), err)
		}
		entries[i] = StateEntry{Key: entry.GetKey(), Value: entry.GetValue().AsMap(), UpdatedAt: at}
	}
	return entries, nil
}
