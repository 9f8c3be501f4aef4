package wire_test

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// addedMethods are the RPCs that are ours, with their request and response.
var addedMethods = []shippedMethod{
	{"Host", "WatchEvents", "WatchEventsRequest", "WatchEventsResponse", true},
}

// TestMethodsAreShippedOnes: whatever is declared is a shipped RPC with its own
// messages, or one that is known to be ours. The service of the plugin is
// declared whole: the other side of it is in the field.
func TestMethodsAreShippedOnes(t *testing.T) {
	s := readShipped(t)
	for _, ours := range addedMethods {
		if slices.ContainsFunc(s.methods, func(m shippedMethod) bool { return m.service == ours.service && m.name == ours.name }) {
			t.Errorf("%s.%s is ours and shipped", ours.service, ours.name)
		}
	}
	known := slices.Concat(s.methods, addedMethods)
	found := 0
	for service, descriptor := range services() {
		for i := range descriptor.Methods().Len() {
			method := descriptor.Methods().Get(i)
			got := shippedMethod{
				service, string(method.Name()), shortName(method.Input()), shortName(method.Output()), method.IsStreamingServer(),
			}
			if method.IsStreamingClient() || !slices.Contains(known, got) {
				t.Errorf("no such RPC is known: %+v", got)
				continue
			}
			found++
		}
	}
	for _, want := range known {
		if (want.service == "Plugin" || slices.Contains(addedMethods, want)) && services()[want.service].Methods().ByName(protoreflect.Name(want.name)) == nil {
			t.Errorf("%s.%s is not declared", want.service, want.name)
		}
	}
	if found < 60 {
		t.Errorf("only %d RPCs were compared", found)
	}
}

// TestFullMethodNames: what is put on the wire is the shipped path of each RPC.
func TestFullMethodNames(t *testing.T) {
	s := readShipped(t)
	path := func(service *grpc.ServiceDesc, name string) string {
		return fmt.Sprintf("/%s/%s", service.ServiceName, name)
	}
	for short, service := range map[string]*grpc.ServiceDesc{"Host": &pluginv1.Host_ServiceDesc, "Plugin": &pluginv1.Plugin_ServiceDesc} {
		var paths []string
		for _, method := range service.Methods {
			paths = append(paths, path(service, method.MethodName))
		}
		for _, stream := range service.Streams {
			paths = append(paths, path(service, stream.StreamName))
		}
		if len(paths) != services()[short].Methods().Len() {
			t.Errorf("%s registers %d RPCs and declares %d", short, len(paths), services()[short].Methods().Len())
		}
		for _, got := range paths {
			if !slices.ContainsFunc(slices.Concat(s.methods, addedMethods), func(m shippedMethod) bool {
				return got == "/kandev.plugin.v1."+m.service+"/"+m.name
			}) {
				t.Errorf("%s is no path of a known RPC", got)
			}
		}
	}
	for got, want := range map[string]string{
		pluginv1.Host_GetTask_FullMethodName:        "/kandev.plugin.v1.Host/GetTask",
		pluginv1.Host_GetTaskExact_FullMethodName:   "/kandev.plugin.v1.Host/GetTaskExact",
		pluginv1.Plugin_DeliverEvent_FullMethodName: "/kandev.plugin.v1.Plugin/DeliverEvent",
	} {
		if got != want {
			t.Errorf("clients call %s, shipped is %s", got, want)
		}
	}
}
