package rpc

import (
	"context"
	"math"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// GetState reads one entry of the caller's state.
func (h *host) GetState(ctx context.Context, message *pluginv1.GetStateRequest) (*pluginv1.GetStateResponse, error) {
	entry, found, err := h.v1.GetState(ctx, callerOf(ctx), message.GetScope(), message.GetScopeId(), message.GetKey())
	if err != nil || !found {
		return &pluginv1.GetStateResponse{}, err
	}
	value, err := structOf(entry.Value)
	return &pluginv1.GetStateResponse{Found: true, Value: value}, err
}

// ListState lists the entries of one scope.
func (h *host) ListState(ctx context.Context, message *pluginv1.ListStateRequest) (*pluginv1.ListStateResponse, error) {
	entries, err := h.v1.ListState(ctx, callerOf(ctx), message.GetScope(), message.GetScopeId())
	if err != nil {
		return nil, err
	}
	response := &pluginv1.ListStateResponse{Entries: make([]*pluginv1.StateEntry, len(entries))}
	for i, entry := range entries {
		value, err := structOf(entry.Value)
		if err != nil {
			return nil, err
		}
		response.Entries[i] = &pluginv1.StateEntry{Key: entry.Key, Value: value, UpdatedAt: wholeSecond(entry.UpdatedAt)}
	}
	return response, nil
}

// SetState writes one entry.
func (h *host) SetState(ctx context.Context, message *pluginv1.SetStateRequest) (*pluginv1.SetStateResponse, error) {
	value, err := objectOf("value", message.GetValue())
	if err != nil {
		return nil, err
	}
	return &pluginv1.SetStateResponse{}, h.v1.SetState(ctx, callerOf(ctx), message.GetScope(), message.GetScopeId(), message.GetKey(), value)
}

// DeleteState removes one entry.
func (h *host) DeleteState(ctx context.Context, message *pluginv1.DeleteStateRequest) (*pluginv1.DeleteStateResponse, error) {
	return &pluginv1.DeleteStateResponse{}, h.v1.DeleteState(ctx, callerOf(ctx), message.GetScope(), message.GetScopeId(), message.GetKey())
}

// structOf writes a JSON object.
func structOf(object domain.Object) (*structpb.Struct, error) {
	return structpb.NewStruct(object) //nolint:wrapcheck // a fault, whose text stays here
}

// objectOf reads a JSON object. Of what a message can hold and JSON can't, it names
// the field.
func objectOf(field string, message *structpb.Struct) (domain.Object, error) {
	if !finite(structpb.NewStructValue(message)) {
		return nil, &legacy.Failure{Kind: legacy.InvalidArgument, Text: field + " holds a number that JSON doesn't have"}
	}
	return message.AsMap(), nil
}

func finite(value *structpb.Value) bool {
	switch value.GetKind().(type) {
	case *structpb.Value_NumberValue:
		return !math.IsNaN(value.GetNumberValue()) && !math.IsInf(value.GetNumberValue(), 0)
	case *structpb.Value_StructValue:
		for _, member := range value.GetStructValue().GetFields() {
			if !finite(member) {
				return false
			}
		}
	case *structpb.Value_ListValue:
		for _, item := range value.GetListValue().GetValues() {
			if !finite(item) {
				return false
			}
		}
	}
	return true
}
