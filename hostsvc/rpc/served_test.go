package rpc

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// unserved are the exact methods that are declared and not served yet. Serving
// one takes its name out of here, and then every table of this package asks for
// it.
var unserved []protoreflect.Name

// Exact are the exact methods that are served and don't stream.
func Exact() []protoreflect.MethodDescriptor {
	methods := pluginv1.File_kandev_plugin_v1_host_proto.Services().ByName("Host").Methods()
	var served []protoreflect.MethodDescriptor
	for i := range methods.Len() {
		method := methods.Get(i)
		if proto.HasExtension(method.Options(), pluginv1.E_Capability) && !method.IsStreamingServer() &&
			!slices.Contains(unserved, method.Name()) {
			served = append(served, method)
		}
	}
	return served
}

// TestUnservedMethodsAnswerUnimplemented, so that the list above is true.
func TestUnservedMethodsAnswerUnimplemented(t *testing.T) {
	for _, served := range pluginv1.Host_ServiceDesc.Methods {
		if !slices.Contains(unserved, protoreflect.Name(served.MethodName)) {
			continue
		}
		if descriptions[served.MethodName] != "" {
			t.Errorf("%s has a description and is listed as not served", served.MethodName)
		}
		_, err := served.Handler(&host{}, t.Context(), func(any) error { return nil }, nil)
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("%s is listed as not served and answers %v", served.MethodName, err)
		}
	}
}
