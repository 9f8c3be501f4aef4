package telemetry

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

func TestTracingIsOffUntilTheStandardVariablesAskForIt(t *testing.T) {
	for _, test := range []struct {
		name string
		env  map[string]string
		on   bool
		err  string
	}{
		{name: "nothing said"},
		{name: "endpoint", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}, on: true},
		{name: "endpoint of traces", env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4317"}, on: true},
		{name: "exporter", env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, on: true},
		{name: "no exporter", env: map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}},
		{name: "disabled", env: map[string]string{"OTEL_SDK_DISABLED": "TRUE", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}},
		{name: "another exporter", env: map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, err: "OTEL_TRACES_EXPORTER"},
		{name: "another protocol", env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, err: "OTEL_EXPORTER_OTLP_PROTOCOL"},
		{name: "of traces", env: map[string]string{
			"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc",
		}, on: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			tracing, err := NewTracing(t.Context(), func(name string) string { return test.env[name] }, slog.New(slog.DiscardHandler))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want it to name %s", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tracing.On() != test.on || (tracing.Calls() != nil) != test.on || tracing.Tracer() == nil {
				t.Errorf("on is %v, want %v", tracing.On(), test.on)
			}
			if !test.on {
				if err := tracing.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// spans is a collector of OTLP over gRPC.
type spans struct {
	collector.UnimplementedTraceServiceServer

	mu    sync.Mutex
	names []string
	about map[string]string
}

func (s *spans) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		for _, attribute := range resource.GetResource().GetAttributes() {
			s.about[attribute.GetKey()] = attribute.GetValue().GetStringValue()
		}
		for _, scoped := range resource.GetScopeSpans() {
			for _, span := range scoped.GetSpans() {
				s.names = append(s.names, span.GetName())
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func TestSpansReachTheCollector(t *testing.T) {
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got := &spans{about: map[string]string{}}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, got)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	// The SDK reads where to, and more, from the process's environment.
	env := map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + listener.Addr().String(), "OTEL_RESOURCE_ATTRIBUTES": "k8s.pod.name=host-0",
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
	tracing, err := NewTracing(t.Context(), func(name string) string { return env[name] }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	_, span := tracing.Tracer().Start(t.Context(), "pass")
	span.End()
	if err := tracing.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	if len(got.names) != 1 || got.names[0] != "pass" || got.about["service.name"] != "plugin-host" || got.about["k8s.pod.name"] != "host-0" {
		t.Errorf("the collector got %v about %v", got.names, got.about)
	}
}
