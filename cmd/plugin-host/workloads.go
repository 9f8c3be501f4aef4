package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"path/filepath"

	"github.com/kandev/plugin-host/controllers"
)

// workloadSettings are the flags about plugins that the Host runs.
type workloadSettings struct {
	hostAddress    string
	caFile         string
	launcherImage  string
	userNamespaces string
}

// What --workload-user-namespaces says.
const (
	userNamespacesAuto   = "auto"
	userNamespacesAlways = "always"
	userNamespacesNever  = "never"
)

func (w *workloadSettings) register(flags *flag.FlagSet) {
	flags.StringVar(&w.hostAddress, "workload-host-address", "", "`address` that the plugins dial which the Host runs, host:port; empty: the Service plugin-host in --namespace, port 8443")
	flags.StringVar(&w.caFile, "workload-ca-file", "", "`file` with the authorities that they verify the Host by, PEM; empty: ca.crt beside --tls-cert-file")
	flags.StringVar(&w.launcherImage, "launcher-image", "", "`image` of plugin-launcher that runs a plugin whose spec.workload names none; best by its digest")
	flags.StringVar(&w.userNamespaces, "workload-user-namespaces", userNamespacesAuto, "`whether` their pods get users of their own: always, never, or auto, which is with an API server of 1.36 or later")
}

func (w *workloadSettings) check() error {
	switch w.userNamespaces {
	case userNamespacesAuto, userNamespacesAlways, userNamespacesNever:
	default:
		return fmt.Errorf("--workload-user-namespaces: %q is none of auto, always, never", w.userNamespaces)
	}
	if _, _, err := net.SplitHostPort(w.hostAddress); w.hostAddress != "" && err != nil {
		return fmt.Errorf("--workload-host-address: %w", err)
	}
	return nil
}

// workloads are how plugins run that the Host runs.
func (s *settings) workloads(ctx context.Context) (controllers.Workloads, error) {
	_, served, err := net.SplitHostPort(s.grpcListen)
	if err != nil {
		return controllers.Workloads{}, fmt.Errorf("--grpc-listen: %w", err)
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", served)
	if err != nil {
		return controllers.Workloads{}, fmt.Errorf("--grpc-listen: %w", err)
	}
	w := controllers.Workloads{
		HostAddress: s.workload.hostAddress, CAFile: s.workload.caFile, LauncherImage: s.workload.launcherImage,
		HostPort: int32(port),
		// As every way to install the Host labels its pods.
		HostLabels: map[string]string{"app.kubernetes.io/name": "plugin-host", "app.kubernetes.io/component": "host"},
	}
	if w.HostAddress == "" {
		w.HostAddress = "plugin-host." + s.namespace + ".svc:8443"
	}
	if w.CAFile == "" {
		w.CAFile = filepath.Join(filepath.Dir(s.tlsCertFile), "ca.crt")
	}
	if s.workload.userNamespaces != userNamespacesAuto {
		w.UserNamespaces = new(s.workload.userNamespaces == userNamespacesAlways)
	}
	return w, nil
}
