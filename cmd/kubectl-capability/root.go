package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// The exit codes. docs/reference/kubectl-capability.md lists them; a test holds
// the page to them.
const (
	exitDone = 0
	// exitFailed: the command could not do its work, or was not asked well.
	exitFailed = 1
	// exitNo is the answer "no" of approve, confirm, revoke, explain, audit and
	// review --unproven: what was asked does not hold.
	exitNo = 2

	// The codes of diff beyond exitDone and exitFailed. The highest that applies
	// to any manifest is the code.
	exitNarrows  = 2
	exitWidens   = 3
	exitNoEffect = 4
	exitInvalid  = 5
)

// tool is what every command has.
type tool struct {
	genericiooptions.IOStreams
	flags *genericclioptions.ConfigFlags
	now   func() time.Time
}

// answer is an outcome that is no failure, with its exit code. Whoever returns it
// has printed everything.
type answer int

func (a answer) Error() string { return fmt.Sprintf("exit code %d", int(a)) }

// run is the whole program: it prints what went wrong and returns the exit code.
func run(ctx context.Context, args []string, streams genericiooptions.IOStreams, now func() time.Time) int {
	streams.Out, streams.ErrOut = screenOf(streams.Out), screenOf(streams.ErrOut)
	t := &tool{IOStreams: streams, flags: genericclioptions.NewConfigFlags(true), now: now}
	root := t.root() //nolint:contextcheck // cobra hands the context to each command
	root.SetArgs(args)
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	if code, ok := errors.AsType[answer](err); ok {
		return int(code)
	}
	p := explainError(err)
	fmt.Fprintln(streams.ErrOut, t.paint(streams.ErrOut).red("error:"), p.what)
	for hint := range strings.Lines(p.hint) {
		fmt.Fprintln(streams.ErrOut, "hint:", strings.TrimSpace(hint))
	}
	return exitFailed
}

func (t *tool) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-capability",
		Short: "Decide what plugins may do, and see why",
		Long: `Decide what plugins may do in a workspace, and see why.

A plugin declares capabilities, a human grants some of them in a workspace (a
namespace), and the Host lets through what is both declared and granted. A grant
is a PluginCapabilityApproval of the installation's name.`,
		Example: `  # What does the plugin "standup" ask for, and what has it got?
  kubectl capability review standup -n payments

  # Grant it, and take it away again
  kubectl capability approve standup -n payments --capability host.v2.read:tasks --reason "Reviewed in PR 118"
  kubectl capability revoke standup -n payments --reason "Incident 42"

  # What would this pull request change?
  kubectl capability diff --git origin/main..HEAD clusters/prod`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl capability"},
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			p := problem{what: fmt.Sprintf("there is no command %q", args[0]), hint: "`kubectl capability --help` lists the commands"}
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				p.hint = "is it " + strings.Join(near, " or ") + "?"
			}
			return p
		},
		SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return problem{what: err.Error(), hint: "`" + cmd.CommandPath() + " --help` lists the flags"}
	})
	t.flags.AddFlags(root.PersistentFlags())
	root.AddCommand(t.reviewCommand(), t.approveCommand(), t.confirmCommand(), t.revokeCommand(),
		t.diffCommand(), t.explainCommand(), t.auditCommand(), t.installCommand())
	return root
}

// oneName wants the name of an installation.
func oneName(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	what := "which plugin? Give the name of one installation"
	if len(args) > 1 {
		what = fmt.Sprintf("one installation at a time, not %d: %s", len(args), strings.Join(args, ", "))
	}
	return problem{what: what, hint: "`kubectl get plugininstallations` lists them\n`" + cmd.CommandPath() + " --help` has examples"}
}

// oneOf checks --output, which has a closed set of values.
func oneOf(output string, values ...string) error {
	if slices.Contains(values, output) {
		return nil
	}
	return problem{what: fmt.Sprintf("--output is %q; it is one of %s", output, strings.Join(values, ", "))}
}
