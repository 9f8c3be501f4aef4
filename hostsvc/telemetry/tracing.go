package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// The variables of the OpenTelemetry specification that say whether anything is
// traced. Those that say where to, how and how much are read by the SDK.
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
)

// scope names this process's spans.
const scope = "github.com/kandev/plugin-host"

// Tracing is where spans go. No package has a tracer of its own accord: each is
// given one.
type Tracing struct {
	provider *sdktrace.TracerProvider
}

// NewTracing exports spans by OTLP over gRPC when the standard variables say so:
// an endpoint is named, or the exporter "otlp" is. Nothing is traced otherwise.
// It doesn't wait for a collector, and logs what can't be exported; getenv is
// os.Getenv.
func NewTracing(ctx context.Context, getenv func(string) string, log *slog.Logger) (*Tracing, error) {
	on, err := tracingWanted(getenv)
	if err != nil || !on {
		return &Tracing{}, err
	}
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("make the exporter of traces: %w", err)
	}
	// What the environment says comes later and wins.
	about, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "plugin-host")), resource.WithFromEnv())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("describe this process to the collector of traces: %w", err), exporter.Shutdown(ctx))
	}
	// The SDK tells its failures to the process as a whole, and by no other way.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("Spans are lost", "error", err) }))
	return &Tracing{provider: sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))}, nil
}

func tracingWanted(getenv func(string) string) (bool, error) {
	if strings.EqualFold(getenv(envDisabled), "true") {
		return false, nil
	}
	switch exporter := getenv(envExporter); exporter {
	case "none":
		return false, nil
	case "", "otlp":
		if exporter == "" && getenv(envEndpoint) == "" && getenv(envTracesEndpoint) == "" {
			return false, nil
		}
	default:
		return false, fmt.Errorf("%s: %q is neither \"otlp\" nor \"none\"", envExporter, exporter)
	}
	protocol, from := getenv(envTracesProtocol), envTracesProtocol
	if protocol == "" {
		protocol, from = getenv(envProtocol), envProtocol
	}
	if protocol != "" && protocol != "grpc" {
		return false, fmt.Errorf("%s: %q is not \"grpc\", the one protocol that is spoken", from, protocol)
	}
	return true, nil
}

// On tells whether anything is traced.
func (t *Tracing) On() bool { return t.provider != nil }

// Tracer opens spans; those of a process that traces nothing cost next to
// nothing.
func (t *Tracing) Tracer() trace.Tracer {
	if !t.On() {
		return noop.NewTracerProvider().Tracer(scope)
	}
	return t.provider.Tracer(scope)
}

// Calls is the tracer for the calls of plugins: nil when nothing is traced, so
// that no call pays for it.
func (t *Tracing) Calls() trace.Tracer {
	if !t.On() {
		return nil
	}
	return t.Tracer()
}

// Close exports what is left.
func (t *Tracing) Close(ctx context.Context) error {
	if !t.On() {
		return nil
	}
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("export the last spans: %w", err)
	}
	return nil
}
