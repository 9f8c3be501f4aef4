// Package pluginv1 is the wire between plugins and the Host: the service
// kandev.plugin.v1.Host and its messages, generated from the .proto files
// beside it. The .proto files are the documentation; the tests here hold them
// to the wire that plugins already speak (testdata/shipped-wire.json).
//
// It imports protobuf and gRPC and nothing of this project. Run `buf generate`
// in proto/ after a change.
package pluginv1
