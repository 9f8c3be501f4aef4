// Package pluginv1 is the wire between plugins and the Host: the services
// kandev.plugin.v1.Host and kandev.plugin.v1.Plugin and their messages, generated
// from the .proto files beside it. The .proto files are the documentation;
// test/wire holds them to the wire that plugins already speak.
//
// It imports protobuf and gRPC and nothing of this project. Run `make generate`
// after a change.
package pluginv1
