// Command kubectl-capability is the kubectl plugin for the people who decide what
// plugins may do: `kubectl capability review`, `approve`, `confirm`, `revoke`,
// `diff`, `explain`, `audit` and `install`, one file each.
//
// It decides nothing itself. What a manifest would change is authority.Compute on
// the row that the newest event rebuilds, why a call is allowed is
// authority.Explain, and objects are understood as the controllers understand them
// (package kinds). It may import those, auditlog, contract, the API's kinds, the
// proto's method options, cobra, cli-runtime and Kubernetes' clients; nothing of
// the Host's store, adapters or controllers.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	// Libraries log into the middle of what people read; every error that
	// matters is returned.
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, time.Now)
	stop()
	os.Exit(code)
}
