package hostlink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// Server returns a gRPC server that passes calls of the Host service on. The
// options are those that the plugin's own connection needs; its messages are
// bounded as gRPC's default has it, 4 MiB, which is what a Host in the plugin's
// parent process had.
func (l *Link) Server(options ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append(options,
		grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(l.pass))...)
}

// pass is the handler of every method.
func (l *Link) pass(_ any, plugin grpc.ServerStream) error {
	method, ok := grpc.MethodFromServerStream(plugin)
	if !ok || !strings.HasPrefix(method, "/"+pluginv1.Host_ServiceDesc.ServiceName+"/") {
		return status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	l.reach(plugin.Context())
	// The deadline and the cancellation go along, the metadata doesn't.
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(plugin.Context(), nil))
	defer cancel()
	host, err := l.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.ForceCodecV2(raw{}))
	if err != nil {
		return err //nolint:wrapcheck // the status is the answer
	}
	go func() {
		if err := forward(plugin, host); err != nil {
			// The plugin broke off, or its message can't be passed on.
			cancel()
		}
	}()
	return answer(host, plugin)
}

// forward sends what the plugin sends.
func forward(plugin grpc.ServerStream, host grpc.ClientStream) error {
	for {
		var message frame
		err := plugin.RecvMsg(&message)
		if errors.Is(err, io.EOF) {
			return host.CloseSend() //nolint:wrapcheck // nobody reads it
		}
		if err != nil {
			return err //nolint:wrapcheck // nobody reads it
		}
		err = host.SendMsg(&message)
		if errors.Is(err, io.EOF) {
			return nil // the Host has answered already; why, answer finds out
		}
		if err != nil {
			return err //nolint:wrapcheck // nobody reads it
		}
	}
}

// answer sends what the Host sends, and returns its status.
func answer(host grpc.ClientStream, plugin grpc.ServerStream) error {
	header, err := host.Header()
	if err == nil {
		err = plugin.SetHeader(header)
	}
	for err == nil {
		var message frame
		if err = host.RecvMsg(&message); err == nil {
			err = plugin.SendMsg(&message)
		}
	}
	plugin.SetTrailer(host.Trailer())
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err //nolint:wrapcheck // the status is the answer, details included
}

// frame is a message as it came.
type frame struct{ data mem.BufferSlice }

// raw is a codec that leaves messages as they are. Its name is that of
// protobuf's: that is what the bytes are.
type raw struct{}

// Name implements encoding.CodecV2.
func (raw) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("a %T is no frame", v)
	}
	// gRPC frees what it is given once it is sent; this is its only use.
	return message.data, nil
}

// Unmarshal implements encoding.CodecV2.
func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	message, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("a %T is no frame", v)
	}
	data.Ref() // gRPC frees its own reference when this returns
	message.data = data
	return nil
}
