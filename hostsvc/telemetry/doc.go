// Package telemetry is what operators see: metrics, traces, readiness with named
// causes, and the HTTPS server that shows metrics and the archived history to
// whoever may read them. It implements the Observers that other packages
// declare, and wraps the ports that others use; nothing imports it but cmd.
package telemetry
