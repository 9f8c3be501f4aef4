package rpc

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// TestI2_EveryMethodIsInTheRegistry walks the whole service, as it is
// registered with gRPC.
func TestI2_EveryMethodIsInTheRegistry(t *testing.T) {
	r, err := newRegistry(pluginv1.File_kandev_plugin_v1_host_proto.Services().ByName("Host"))
	if err != nil {
		t.Fatal(err)
	}
	for _, served := range Exact() {
		name := string(served.Name())
		row := r.methods["/kandev.plugin.v1.Host/"+name]
		if row == nil {
			t.Errorf("%s is served and has no entry", name)
			continue
		}
		switch {
		case row.open != (name == "GetCapabilityContext"):
			t.Errorf("%s: open is %v", name, row.open)
		case row.Writer != (name == "CreateTaskExact" || name == "UpdateTaskExact"):
			t.Errorf("%s: writer is %v", name, row.Writer)
		case row.Writer && row.Capability != contract.WriteTasks:
			t.Errorf("%s needs %s", name, row.Capability)
		}
		if descriptions[name] == "" {
			t.Errorf("%s has no description", name)
		}
	}
	if len(descriptions) != len(Exact()) || len(r.order) != len(descriptions) {
		t.Errorf("%d operations, %d descriptions, %d exact methods", len(r.order), len(descriptions), len(Exact()))
	}
	service := pluginv1.Host_ServiceDesc
	for _, served := range service.Methods {
		if r.methods["/kandev.plugin.v1.Host/"+served.MethodName] == nil {
			t.Errorf("%s is registered and has no entry", served.MethodName)
		}
	}
	for _, served := range service.Streams {
		if r.methods["/kandev.plugin.v1.Host/"+served.StreamName] == nil {
			t.Errorf("%s is registered and has no entry", served.StreamName)
		}
	}
	if len(r.methods) != len(service.Methods)+len(service.Streams) {
		t.Errorf("%d entries, %d methods and %d streams", len(r.methods), len(service.Methods), len(service.Streams))
	}
}

// TestI2_MethodWithoutEntryIsRefused declares RPCs that must never be served.
func TestI2_MethodWithoutEntryIsRefused(t *testing.T) {
	const read, write = "GetTaskExactRequest", "UpdateTaskExactRequest"
	id := func(id string) *pluginv1.Capability {
		return &pluginv1.Capability{Requirement: &pluginv1.Capability_Id{Id: id}}
	}
	for _, test := range []struct {
		name            string
		capability      *pluginv1.Capability
		request, answer string
		streams         bool
		want            string
	}{
		{"no option", nil, read, "GetTaskExactResponse", false, "names no capability"},
		{"empty option", &pluginv1.Capability{}, read, "GetTaskExactResponse", false, "neither a capability nor a reason"},
		{"no reason", &pluginv1.Capability{Requirement: &pluginv1.Capability_NoneReason{NoneReason: " "}}, read, "GetTaskExactResponse", false, "does not say why"},
		{"unknown ID", id("host.v2.read:everything"), read, "GetTaskExactResponse", false, "unknown"},
		{"wildcard", id("host.v2.read:*"), read, "GetTaskExactResponse", false, "wildcard"},
		{"human-reserved", id("host.v2.write:merge"), write, "UpdateTaskExactResponse", false, "human-reserved"},
		{"empty ID", id(""), read, "GetTaskExactResponse", false, "empty"},
		{"reader without revision", id("host.v2.read:tasks"), "GetCapabilityContextRequest", "GetTaskExactResponse", false, "capability_revision"},
		{"writer without guard", id("host.v2.write:tasks"), read, "UpdateTaskExactResponse", false, "guard"},
		{"request without envelope", id("host.v2.read:tasks"), "Task", "GetTaskExactResponse", false, "request_id"},
		{"writer without result", id("host.v2.write:tasks"), write, "GetTaskExactResponse", false, "result"},
		{"stream", id("host.v2.read:tasks"), read, "GetTaskExactResponse", true, "streams"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := newRegistry(serviceWith(t, test.capability, nil, test.request, test.answer, test.streams))
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "Probe.Call") {
				t.Errorf("got %v, want an error about %q that names the method", err, test.want)
			}
		})
	}
	if r, err := newRegistry(serviceWith(t, id("host.v2.write:tasks"), nil, write, "UpdateTaskExactResponse", false)); err != nil || !r.methods["/probe.Probe/Call"].Writer {
		t.Errorf("a method that is right: %v", err)
	}
}

// TestI12_LegacyMethodNamesItsDeclarations: what no manifest can declare, and
// an RPC of both worlds, keep the Host from being made.
func TestI12_LegacyMethodNamesItsDeclarations(t *testing.T) {
	declared := func(declarations ...string) *pluginv1.Legacy { return &pluginv1.Legacy{Declarations: declarations} }
	task := &pluginv1.Capability{Requirement: &pluginv1.Capability_Id{Id: "host.v2.read:tasks"}}
	for _, test := range []struct {
		name       string
		capability *pluginv1.Capability
		legacy     *pluginv1.Legacy
		streams    bool
		want       string
	}{
		{"empty option", nil, &pluginv1.Legacy{}, false, "neither declarations nor a reason"},
		{"blank reason", nil, &pluginv1.Legacy{NoneReason: " "}, false, "neither declarations nor a reason"},
		{"reason and declarations", nil, &pluginv1.Legacy{NoneReason: "r", Declarations: []string{"state"}}, false, "or both"},
		{"empty declaration", nil, declared("state", ""), false, "no manifest can make"},
		{"no resource", nil, declared("api_read:"), false, "no manifest can make"},
		{"a method that comes later", nil, declared("agent_conversation"), false, "no manifest can make"},
		{"a capability's ID", nil, declared("host.v2.read:tasks"), false, "no manifest can make"},
		{"stream", nil, declared("state"), true, "streams"},
		{"of both worlds", task, declared("api_read:tasks"), false, "is of v1 and names a capability"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := newRegistry(serviceWith(t, test.capability, test.legacy, "GetTaskRequest", "GetTaskResponse", test.streams))
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "Probe.Call") {
				t.Errorf("got %v, want an error about %q that names the method", err, test.want)
			}
		})
	}
	r, err := newRegistry(serviceWith(t, nil, declared("api_read:workflows", "api_read:tasks"), "GetTaskRequest", "GetTaskResponse", false))
	if err != nil {
		t.Fatal(err)
	}
	if row := r.methods["/probe.Probe/Call"]; !row.legacy || row.open || row.Writer || !slices.Equal(row.need, admission.LegacyNeed{contract.LegacyReadWorkflows, contract.LegacyReadTasks}) || len(r.order) != 0 {
		t.Errorf("a v1 method is %+v, of %d exact operations", row, len(r.order))
	}
}

// serviceWith declares a service of one method.
func serviceWith(t *testing.T, capability *pluginv1.Capability, legacy *pluginv1.Legacy, request, answer string, streams bool) protoreflect.ServiceDescriptor {
	t.Helper()
	options := &descriptorpb.MethodOptions{}
	if capability != nil {
		proto.SetExtension(options, pluginv1.E_Capability, capability)
	}
	if legacy != nil {
		proto.SetExtension(options, pluginv1.E_Legacy, legacy)
	}
	host := protodesc.ToFileDescriptorProto(pluginv1.File_kandev_plugin_v1_host_proto)
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("probe.proto"), Package: proto.String("probe"), Syntax: proto.String("proto3"),
		Dependency: host.GetDependency(),
		Service: []*descriptorpb.ServiceDescriptorProto{{
			Name: proto.String("Probe"),
			Method: []*descriptorpb.MethodDescriptorProto{{
				Name: proto.String("Call"), InputType: proto.String(".kandev.plugin.v1." + request),
				OutputType: proto.String(".kandev.plugin.v1." + answer), Options: options, ServerStreaming: proto.Bool(streams),
			}},
		}},
	}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	return file.Services().Get(0)
}

// TestEveryStateHasItsWire: no state of the contract is sent as another one,
// and what must not be sent is not.
func TestEveryStateHasItsWire(t *testing.T) {
	for _, state := range contract.States() {
		got, code := wireState(state)
		want := "HOST_COMMAND_STATUS_" + string(state)
		if state == contract.StatePartial {
			want = "HOST_COMMAND_STATUS_UNAVAILABLE"
		}
		if got.String() != want {
			t.Errorf("%s is sent as %s", state, got)
		}
		if (code == 0) != state.Succeeded() {
			t.Errorf("%s has code %s", state, code)
		}
	}
}
