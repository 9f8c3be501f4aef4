// Command plugin-launcher runs an unmodified Kandev plugin in its pod: it opens
// and checks the package, starts the plugin as it expects it, passes its calls
// on to the Host under the pod's token, delivers the Host's events to it, serves
// its webhooks and actions over HTTP, and starts it again when it fails.
//
// It ends with status 0 when it is told to (SIGTERM), 1 when the plugin doesn't
// stay up or can't be run, and 2 when its flags are wrong.
//
// It wires the packages below launcher together, and imports nothing of the
// Host.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(start(os.Args[1:]))
}

func start(args []string) int {
	settings, err := parse(args, os.Getenv, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "plugin-launcher:", err)
		return 2
	}
	secrets := secretsOf(&settings)
	log := newLog(os.Stderr, secrets.values)
	// What go-plugin tells by the standard library's log.
	slog.SetDefault(log)

	// The second signal ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, func() {
		stop()
		log.Info("The process was told to end; told again, it ends at once")
	})()
	if err := run(ctx, &settings, secrets, log); err != nil {
		log.Error("The process ends", "error", err)
		return 1
	}
	log.Info("The process ends as it was told to")
	return 0
}
