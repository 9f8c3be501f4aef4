// Command demo shows the main job on real parts: a human grants a capability with
// kubectl, a plugin uses it, the human takes it away. It starts etcd and
// kube-apiserver, installs the release's own manifests, runs bin/plugin-host under
// its own ServiceAccount and bin/sample-plugin with a pod-bound token, and checks
// every step it tells. It exits with 1 at the first one that isn't so.
//
// With -keep the world stays up afterwards, until the command is interrupted.
//
// It drives kubectl and the two binaries; from this module it imports the API types,
// contract, the SDK's names of the environment, and the packages that start a control
// plane. The human reads what the program checks: the same output.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kandev/plugin-host/hack/toolbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil && interrupted:
		fmt.Fprintln(os.Stderr, "demo: interrupted")
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "\ndemo: FAILED:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	keep := flags.Bool("keep", false, "leave everything running at the end, until interrupted")
	bin := flags.String("bin", "", "folder of plugin-host and sample-plugin (default: bin of the working tree)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	root, err := toolbox.Root()
	if err != nil {
		return err
	}
	if *bin == "" {
		*bin = filepath.Join(root, "bin")
	}
	w := &world{root: root, bin: *bin, stage: stage{out: os.Stdout, began: time.Now()}}
	if *keep {
		w.tokenLife = 24 * time.Hour
	} else {
		w.tokenLife = time.Hour
	}
	defer func() { err = errors.Join(err, w.end()) }()
	if err := w.start(ctx); err != nil {
		return err
	}
	if err := tell(ctx, w); err != nil {
		return errors.Join(err, w.host.lastWords())
	}
	if !*keep {
		return nil
	}
	w.handOver()
	select {
	case <-ctx.Done():
		return nil
	case <-w.host.ended:
		return errors.Join(errors.New("plugin-host ended by itself"), w.host.lastWords())
	}
}
