// Command sample-plugin is a small plugin: it reads, creates and changes tasks of
// a workspace through the SDK and reports what it was answered. Each run makes one
// thing and ends, so that a person or the demo can look at every step. It finds
// the Host in the environment as every plugin does, see sdk.Connect.
//
// It exits with 0 on success, with 3 when the Host answered with a typed result
// that is no success, with 2 for wrong usage and with 1 for everything else.
//
// It imports the SDK, contract and the generated protocol.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kandev/plugin-host/sdk"
)

const (
	exitFailed = 1
	exitUsage  = 2
	exitDenied = 3
)

// connectTimeout bounds the wait for a Host that doesn't answer.
const connectTimeout = 30 * time.Second

// command is one thing that the plugin can do.
type command struct {
	name, about string
	// needs names the flags that must be given.
	needs []string
	run   func(ctx context.Context, host *sdk.Host, a arguments, r *report) error
}

var commands = []command{
	{"context", "what may it do, and where", nil, showContext},
	{"list", "the tasks of a workspace", []string{"workspace"}, listTasks},
	{"workflows", "the workflows of a workspace and their steps", []string{"workspace"}, listWorkflows},
	{"workspace", "the workspace itself", []string{"workspace"}, showWorkspace},
	{"create", "create a task", []string{"workspace", "workflow", "step", "key", "title"}, createTask},
	{"update", "change a task", []string{"workspace", "task", "key"}, updateTask},
	{"hammer", "change a task without pause until that is denied", []string{"workspace", "task"}, hammer},
}

// arguments are the flags of all commands.
type arguments struct {
	workspace, workflow, step, task, version, key, title, state string
	json                                                        bool
}

func (a *arguments) register(flags *flag.FlagSet) {
	flags.StringVar(&a.workspace, "workspace", "", "ID of the workspace")
	flags.StringVar(&a.workflow, "workflow", "", "ID of the workflow for a new task")
	flags.StringVar(&a.step, "step", "", "ID of the step for a new task")
	flags.StringVar(&a.task, "task", "", "ID of the task to change")
	flags.StringVar(&a.version, "version", "", "resource version that the task must be at; empty: the one it has now")
	flags.StringVar(&a.key, "key", "", "idempotency key of the write")
	flags.StringVar(&a.title, "title", "", "title of the task")
	flags.StringVar(&a.state, "state", "", "list: only tasks in this state; update: the new state")
	flags.BoolVar(&a.json, "json", false, "print JSON, one object a line, and the text for people to stderr")
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return exitUsage
	}
	if slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		usage(stdout)
		return 0
	}
	at := slices.IndexFunc(commands, func(c command) bool { return c.name == args[0] })
	if at < 0 {
		fmt.Fprintf(stderr, "sample-plugin: %q is no command\n", args[0])
		usage(stderr)
		return exitUsage
	}
	cmd := commands[at]
	var a arguments
	flags := flag.NewFlagSet("sample-plugin "+cmd.name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	a.register(flags)
	if err := flags.Parse(args[1:]); err != nil {
		return exitUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "sample-plugin %s: unexpected %q\n", cmd.name, flags.Arg(0))
		return exitUsage
	}
	for _, name := range cmd.needs {
		if flags.Lookup(name).Value.String() == "" {
			fmt.Fprintf(stderr, "sample-plugin %s: --%s is required\n", cmd.name, name)
			return exitUsage
		}
	}

	r := &report{people: stdout}
	if a.json {
		r.people, r.json = stderr, stdout
	}
	err := connectAndRun(ctx, cmd, a, r)
	if err == nil {
		return 0
	}
	if answer, ok := errors.AsType[*sdk.Error](err); ok {
		r.refused(answer)
		return exitDenied
	}
	fmt.Fprintln(stderr, "sample-plugin:", err)
	return exitFailed
}

func connectAndRun(ctx context.Context, cmd command, a arguments, r *report) error {
	connecting, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	host, err := sdk.Connect(connecting)
	if err != nil {
		return err
	}
	return errors.Join(cmd.run(ctx, host, a, r), host.Close())
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "usage: sample-plugin COMMAND [flags]")
	for _, c := range commands {
		var needs strings.Builder
		for _, name := range c.needs {
			fmt.Fprintf(&needs, " --%s", name)
		}
		fmt.Fprintf(w, "  %-10s %s%s\n", c.name, c.about, map[bool]string{true: ";" + needs.String()}[needs.Len() > 0])
	}
}
