// Command devtools builds and finds the developer tools that hack/tools pins.
//
//	go run ./hack/devtools build [tool...]   build what is missing; no name: everything
//	go run ./hack/devtools control-plane     build kube-apiserver, etcd and kubectl
//	go run ./hack/devtools path <tool>       print where a built tool is
//	go run ./hack/devtools env               print shell settings: eval "$(... env)"
//	go run ./hack/devtools list              name every tool
//
// Tools go to a folder outside the working tree that KANDEV_TOOLS_DIR moves; a
// usable KUBEBUILDER_ASSETS is respected. It imports package toolbox only.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/kandev/plugin-host/hack/toolbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "devtools:", err)
		os.Exit(1) //nolint:gocritic // nothing is left for the deferred stop to do
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("say build, control-plane, path, env or list")
	}
	box, err := toolbox.Here()
	if err != nil {
		return err
	}
	switch verb, names := args[0], args[1:]; verb {
	case "build":
		if len(names) == 0 {
			names = box.Names()
		}
		return box.Build(ctx, os.Stderr, names...)
	case "control-plane":
		return box.Build(ctx, os.Stderr, toolbox.ControlPlane()...)
	case "path":
		if len(names) != 1 {
			return errors.New("path takes the name of one tool")
		}
		path, err := box.Path(names[0])
		if err != nil {
			return err
		}
		fmt.Println(path)
	case "env":
		assets, front := box.Env()
		fmt.Printf("export %s=%s\n", toolbox.AssetsVar, quote(assets))
		fmt.Printf("export PATH=%s:\"$PATH\"\n", quote(strings.Join(front, ":")))
	case "list":
		fmt.Println(strings.Join(box.Names(), "\n"))
	default:
		return fmt.Errorf("unknown verb %q: say build, control-plane, path, env or list", verb)
	}
	return nil
}

// quote makes a string one word of a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
