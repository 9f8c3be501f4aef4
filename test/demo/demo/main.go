// Command demo shows the main job on real parts: a human grants a capability with
// kubectl, a plugin uses it, the human takes it away. It starts etcd and
// kube-apiserver, installs the release's own manifests, runs bin/plugin-host under
// its own ServiceAccount and bin/sample-plugin with a pod-bound token, runs a plugin
// that was written for Kandev through bin/plugin-launcher, and checks every step it
// tells. It exits with 1 at the first one that isn't so.
//
// With -keep the world stays up afterwards, until the command is interrupted.
//
// It drives kubectl and these binaries; from this module it imports the API types,
// contract, the SDK's names of the environment, and test/world, which starts it all.
// The human reads what the program checks: the same output.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/kandev/plugin-host/test/world"
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
	bin := flags.String("bin", "", "folder of the binaries it runs (default: bin of the working tree)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	began := &stage{out: os.Stdout, began: time.Now()}
	life := time.Hour
	if *keep {
		life = 24 * time.Hour
	}
	started, err := world.Start(ctx, world.Options{Bin: *bin, TokenLife: life, Narrator: began})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, started.Stop()) }()
	d := &demo{stage: began, World: started}
	if err := tell(ctx, d); err != nil {
		return errors.Join(err, d.Host.LastWords())
	}
	if !*keep {
		return nil
	}
	d.handOver()
	select {
	case <-ctx.Done():
		return nil
	case <-d.Host.Ended:
		return errors.Join(errors.New("plugin-host ended by itself"), d.Host.LastWords())
	}
}

// demo is a story in a world.
type demo struct {
	*stage
	*world.World
}

// handOver says how to go on by hand.
func (w *demo) handOver() {
	w.Title("Everything is left running. In another terminal, from the top of the tree:")
	fmt.Fprintf(w.out, `
  export KUBECONFIG=%s
  alias kubectl=%s
  kubectl get plugins -A                      # installations, approvals, their history
  kubectl get pca -n team-a %s -o yaml
  kubectl get pcae --sort-by=.spec.revision

  # the plugin, as its pod would run it
  export %s
  bin/sample-plugin context
  bin/sample-plugin list --workspace team-a

  # what the installation of now asks for, granted by Ada, and taken away by Grace
  export PATH=$PWD/bin:$PATH                  # kubectl capability, and its help
  kubectl capability review %s -n team-a --as %s
  kubectl apply --server-side --force-conflicts --as %s -f %s
  kubectl capability revoke %s -n team-a --as %s --reason 'Tried it.'

The log of plugin-host: %s
Ctrl-C ends and removes everything.
`, w.Kubeconfig, w.Kubectl, world.Plugin, strings.Join(w.PluginEnv(), " "), world.Plugin, world.Ada, world.Ada, w.Path("next-approval.yaml"),
		world.Plugin, world.Grace, w.Host.Log)
}
