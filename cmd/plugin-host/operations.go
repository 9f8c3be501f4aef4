package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kandev/plugin-host/hostsvc/certificate"
	"github.com/kandev/plugin-host/hostsvc/identity"
	"github.com/kandev/plugin-host/hostsvc/store"
	"github.com/kandev/plugin-host/hostsvc/telemetry"
)

// certificateMargin is how long before its certificate's end this process is
// not ready any more.
const certificateMargin = time.Minute

// operations is what operators see of this process.
type operations struct {
	metrics     *telemetry.Metrics
	tracing     *telemetry.Tracing
	readiness   *telemetry.Readiness
	certificate *certificate.Files

	registry *prometheus.Registry
}

func newOperations(ctx context.Context, s settings, log *slog.Logger) (*operations, error) {
	files, err := certificate.Load(s.tlsCertFile, s.tlsKeyFile, time.Now, log)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file and --tls-key-file: %w", err)
	}
	registry := prometheus.NewRegistry()
	measured, err := telemetry.NewMetrics(registry, time.Now)
	if err != nil {
		return nil, fmt.Errorf("make the metrics: %w", err)
	}
	tracing, err := telemetry.NewTracing(ctx, os.Getenv, log)
	if err != nil {
		return nil, fmt.Errorf("set up traces: %w", err)
	}
	return &operations{
		metrics: measured, tracing: tracing, readiness: telemetry.NewReadiness(measured), certificate: files, registry: registry,
	}, nil
}

// close takes the metrics back and exports the last spans.
func (o *operations) close(ctx context.Context, log *slog.Logger) {
	metrics.Registry.Unregister(o.registry)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	if err := o.tracing.Close(last); err != nil {
		log.Error("Spans are lost", "error", err)
	}
}

// server is the manager's server of metrics and history.
func (o *operations) server(s settings, durable *store.Store, log *slog.Logger) metricsserver.Options {
	return telemetry.Server(telemetry.ServerConfig{
		Listen: s.metricsListen, GetCertificate: o.certificate.Get, Archive: durable, Log: log,
	})
}

// follow shows the figures of the parts, once all of them are made, beside the
// manager's own.
func (o *operations) follow(mgr manager.Manager, durable *store.Store, authenticator *identity.Authenticator) error {
	if err := mgr.AddReadyzCheck("certificate", func(*http.Request) error {
		return o.certificate.Check(certificateMargin)
	}); err != nil {
		return fmt.Errorf("add the readiness check certificate: %w", err)
	}
	err := errors.Join(
		o.metrics.Follow(telemetry.Figures{
			QueueWaiting: durable.Waiting, ReviewsInFlight: authenticator.InFlight, Principals: authenticator.Watched,
			CertificateEnds: o.certificate.Ends,
		}),
		metrics.Registry.Register(o.registry))
	if err != nil {
		return fmt.Errorf("show the metrics: %w", err)
	}
	return nil
}
