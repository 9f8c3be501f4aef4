package main

import (
	"google.golang.org/protobuf/proto"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// classOf names the class of the human-reserved matrix that a capability is in.
func classOf(c contract.Capability) string {
	for _, row := range authority.Matrix() {
		if row.Capabilities.Has(c) {
			return string(row.Class)
		}
	}
	return ""
}

// grantableClasses are the classes that a human policy can name.
func grantableClasses() []string {
	var names []string
	for _, row := range authority.Matrix() {
		if !row.Reserved() {
			names = append(names, string(row.Class))
		}
	}
	return names
}

// hostMethod is one RPC of the Host with what it needs.
type hostMethod struct {
	name string
	// open says that it needs no capability.
	open       bool
	capability contract.Capability
}

// hostMethods are the RPCs as the proto declares them: the Host's registry is
// made from the same options.
func hostMethods() []hostMethod {
	service := pluginv1.File_kandev_plugin_v1_host_proto.Services().ByName("Host")
	var all []hostMethod
	for i := range service.Methods().Len() {
		descriptor := service.Methods().Get(i)
		option, _ := proto.GetExtension(descriptor.Options(), pluginv1.E_Capability).(*pluginv1.Capability)
		m := hostMethod{name: string(descriptor.Name()), open: option.GetNoneReason() != ""}
		if !m.open {
			c, err := contract.ParseCapability(option.GetId())
			if err != nil {
				continue // the Host doesn't serve it either
			}
			m.capability = c
		}
		all = append(all, m)
	}
	return all
}
