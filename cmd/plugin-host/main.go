// Command plugin-host is the Host: it authorises plugins' calls over gRPC and
// runs the controllers that move authority. It is the one place that knows
// every package, and does nothing but wire them together.
//
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	os.Exit(start(os.Args[1:]))
}

// commands are what the program does besides serving.
var commands = map[string]func(ctx context.Context, args []string, out, errOut io.Writer) error{
	"import": importCommand,
	"seed":   seedCommand,
}

func start(args []string) int {
	// The second signal ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	defer stop()
	if len(args) > 0 {
		if execute, ok := commands[args[0]]; ok {
			return code(execute(ctx, args[1:], os.Stdout, os.Stderr))
		}
	}
	settings, err := parse(args, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "plugin-host:", err)
		return 2
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	klog.SetLogger(logr.FromSlogHandler(log.Handler()))
	if err := run(ctx, settings, log); err != nil {
		log.Error("The process ends", "error", err)
		return 1
	}
	return 0
}

// code is the exit code of a command, whose error it tells.
func code(err error) int {
	var usage usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, "plugin-host:", err)
		return 2
	default:
		fmt.Fprintln(os.Stderr, "plugin-host:", err)
		return 1
	}
}
