package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// service is the service as this suite knows it.
var service = pluginv1.File_kandev_plugin_v1_host_proto.Services().ByName("Host")

// dial connects to a Host.
func dial(address, caFile string) (*grpc.ClientConn, error) {
	text, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("read the CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read the CA: %s has no certificate", caFile)
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: roots, MinVersion: tls.VersionTLS12,
	})))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	return conn, nil
}

// answer is what came of a call.
type answer struct {
	message proto.Message
	err     error
}

func (a answer) code() codes.Code { return status.Code(a.err) }

func (a answer) text() string {
	if a.err == nil {
		return ""
	}
	return status.Convert(a.err).Message()
}

// result is the typed result: a writer's own, or the one detail of a reader's
// failure. It is nil where there is none.
func (a answer) result() *pluginv1.HostCommandResult {
	if a.err == nil {
		if writer, ok := a.message.(interface {
			GetResult() *pluginv1.HostCommandResult
		}); ok {
			return writer.GetResult()
		}
		return nil
	}
	details := status.Convert(a.err).Details()
	if len(details) != 1 {
		return nil
	}
	result, _ := details[0].(*pluginv1.HostCommandResult)
	return result
}

// bytes are what the caller got, without what is new in each answer.
func (a answer) bytes() string {
	if a.err != nil {
		result := a.result()
		text := fmt.Sprintf("%s\x00%s\x00%d", a.code(), a.text(), len(status.Convert(a.err).Details()))
		if result != nil {
			text += string(plainBytes(result))
		}
		return text
	}
	return string(plainBytes(a.message))
}

// volatile are the fields that differ between two answers to one question.
var volatile = []protoreflect.Name{"audit_id", "observed_at"}

func plainBytes(m proto.Message) []byte {
	m = proto.Clone(m)
	clearVolatile(m.ProtoReflect())
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return []byte(err.Error())
	}
	return text
}

func clearVolatile(m protoreflect.Message) {
	for _, name := range volatile {
		if f := m.Descriptor().Fields().ByName(name); f != nil {
			m.Clear(f)
		}
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() || f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				clearVolatile(v.List().Get(i).Message())
			}
		default:
			clearVolatile(v.Message())
		}
		return true
	})
}

// as is a context that sends a token; "" sends none.
func as(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// call calls a method with any message. A stream is opened, and its first message read.
func (s *suite) call(ctx context.Context, method protoreflect.MethodDescriptor, request proto.Message) answer {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
	if err != nil {
		return answer{err: fmt.Errorf("find the answer of %s: %w", method.Name(), err)}
	}
	response := kind.New().Interface()
	path := "/" + string(service.FullName()) + "/" + string(method.Name())
	if !method.IsStreamingServer() {
		return answer{response, s.conn.Invoke(ctx, path, request, response)}
	}
	stream, err := s.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path)
	if err == nil {
		err = stream.SendMsg(request)
	}
	if err == nil {
		err = stream.CloseSend()
	}
	if err == nil {
		err = stream.RecvMsg(response)
	}
	return answer{response, err}
}

// request is an empty message of a method.
func request(method protoreflect.MethodDescriptor) proto.Message {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
	if err != nil {
		return nil
	}
	return kind.New().Interface()
}

// served asks the Host by reflection which methods it has.
func (s *suite) served(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(as(ctx, s.first().token), patience)
	defer cancel()
	stream, err := reflectionpb.NewServerReflectionClient(s.conn).ServerReflectionInfo(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask by reflection: %w", err)
	}
	err = stream.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: string(service.FullName())},
	})
	if err != nil {
		return nil, fmt.Errorf("ask by reflection: %w", err)
	}
	response, err := stream.Recv()
	if err != nil {
		return nil, fmt.Errorf("ask by reflection: %w", err)
	}
	if failure := response.GetErrorResponse(); failure != nil {
		return nil, errors.New("ask by reflection: " + failure.GetErrorMessage())
	}
	for _, text := range response.GetFileDescriptorResponse().GetFileDescriptorProto() {
		file := &descriptorpb.FileDescriptorProto{}
		if err := proto.Unmarshal(text, file); err != nil {
			return nil, fmt.Errorf("read the Host's descriptor: %w", err)
		}
		for _, of := range file.GetService() {
			if file.GetPackage()+"."+of.GetName() != string(service.FullName()) {
				continue
			}
			var names []string
			for _, method := range of.GetMethod() {
				names = append(names, method.GetName())
			}
			return names, nil
		}
	}
	return nil, errors.New("ask by reflection: the Host doesn't describe " + string(service.FullName()))
}

// known are the names of this suite's methods.
func knownMethods() []string {
	var names []string
	for _, method := range protodesc.ToServiceDescriptorProto(service).GetMethod() {
		names = append(names, method.GetName())
	}
	return names
}
