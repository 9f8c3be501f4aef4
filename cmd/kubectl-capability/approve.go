package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
)

// pollEvery is how often a status is looked at while waiting for it.
const pollEvery = 100 * time.Millisecond

type approveOptions struct {
	capabilities []string
	allDeclared  bool
	only         bool
	expiresIn    string
	noExpiry     bool
	reason       string
	yes          bool
	timeout      time.Duration
}

func (t *tool) approveCommand() *cobra.Command {
	var o approveOptions
	cmd := &cobra.Command{
		Use:   "approve NAME (--capability ID... | --all-declared)",
		Short: "Grant capabilities to a plugin in a workspace",
		Long: `Grant capabilities to a plugin in a workspace, as yourself.

It adds to what is granted now; with --only the list is the whole grant. It shows
the change and asks, writes the approval, and waits until the Host says what became
of it. An expiry that is there stays, unless --expires-in or --no-expiry says
otherwise.

Where Git is the truth, commit what ` + "`kubectl capability review -o yaml`" + ` prints
instead: the next apply from Git takes over what is written here.

Exit codes: 0 granted, 1 failed, 2 written and not (all) granted.`,
		Example: `  kubectl capability approve standup -n payments --capability host.v2.read:tasks --reason "Reviewed in PR 118"

  # Everything that it declares, for a month
  kubectl capability approve standup -n payments --all-declared --expires-in 30d --reason "Trial"

  # Exactly this, without a question
  kubectl capability approve standup -n payments --only --capability host.v2.read:tasks --reason "Reads only" --yes`,
		Args:              oneName,
		ValidArgsFunction: t.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.approve(cmd.Context(), o, args[0])
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.capabilities, "capability", nil, "capability to grant; may be repeated")
	f.BoolVar(&o.allDeclared, "all-declared", false, "grant everything that the plugin declares")
	f.BoolVar(&o.only, "only", false, "grant nothing else, instead of adding")
	f.StringVar(&o.expiresIn, "expires-in", "", "end the grant after this time, such as 12h or 30d")
	f.BoolVar(&o.noExpiry, "no-expiry", false, "let the grant last until it is revoked")
	f.StringVar(&o.reason, "reason", "", "why, for those who read the history")
	addYes(cmd, &o.yes)
	addTimeout(cmd, &o.timeout)
	completeCapabilities(cmd, "capability")
	return cmd
}

func addYes(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "don't ask")
}

func addTimeout(cmd *cobra.Command, timeout *time.Duration) {
	cmd.Flags().DurationVar(timeout, "timeout", 30*time.Second, "how long to wait for the Host")
}

func (t *tool) approve(ctx context.Context, o approveOptions, name string) error {
	switch {
	case len(o.capabilities) == 0 && !o.allDeclared:
		return problem{what: "what is to be granted? Give --capability, or --all-declared", hint: "`kubectl capability review " + name + "`, with the same -n, shows what the plugin asks for"}
	case o.expiresIn != "" && o.noExpiry:
		return problem{what: "--expires-in and --no-expiry contradict each other"}
	}
	c, err := t.connect()
	if err != nil {
		return err
	}
	s, err := c.subject(ctx, name)
	if err != nil {
		return err
	}
	me, err := c.whoami(ctx)
	if err != nil {
		return err
	}
	p, err := t.propose(s, o, me)
	if err != nil {
		return err
	}
	t.preview(s, p)
	if err := t.ask(ctx, "Grant this?", o.yes); err != nil {
		return err
	}
	written, err := c.grant(ctx, s, p)
	if err != nil {
		return err
	}
	settled, err := c.settled(ctx, written, o.timeout)
	if err != nil {
		return t.unsettled(written, err)
	}
	return t.granted(settled, p.capabilities)
}

// propose is what the options ask for, on top of what is granted now.
func (t *tool) propose(s subject, o approveOptions, me string) (proposal, error) {
	p := proposal{approvedBy: me, reason: o.reason}
	var err error
	if p.capabilities, err = s.choose(o.capabilities); err != nil {
		return p, err
	}
	if o.allDeclared {
		p.capabilities = s.declared
	}
	if !o.only {
		p.capabilities |= s.granted() & s.declared
	}
	if p.expiresAt, err = t.expiry(o.expiresIn); err != nil {
		return p, err
	}
	if s.approval == nil || o.expiresIn != "" || o.noExpiry || s.approval.Spec.ExpiresAt == nil {
		return p, nil
	}
	p.expiresAt = s.approval.Spec.ExpiresAt.Time
	if !p.expiresAt.After(t.now()) {
		return p, problem{what: "the grant ended at " + instant(p.expiresAt) + ", so it needs another end", hint: "add --expires-in TIME, or --no-expiry"}
	}
	return p, nil
}

// preview shows what a proposal changes.
func (t *tool) preview(s subject, p proposal) {
	paint := t.paint(t.Out)
	fmt.Fprintf(t.Out, "%s %s in %s, as %s\n", paint.bold(s.name), s.installation.Spec.Version, s.namespace, p.approvedBy)
	was := s.granted()
	for c := range (was | p.capabilities).All() {
		line := fmt.Sprintf("%s  (%s)%s", c, classOf(c), behind(" ", s.remark(c.String())))
		switch {
		case !was.Has(c):
			fmt.Fprintln(t.Out, paint.green("  + "+line))
		case !p.capabilities.Has(c):
			fmt.Fprintln(t.Out, paint.red("  - "+line))
		default:
			fmt.Fprintln(t.Out, "    "+line)
		}
	}
	if missing := s.required &^ p.capabilities; missing != 0 {
		fmt.Fprintln(t.Out, paint.yellow("  ! the plugin requires "+listed(missing)+" too, and gets nothing without"))
	}
	fmt.Fprintln(t.Out, "    expires:", instant(p.expiresAt))
	if s.approval != nil && s.approval.Spec.ApprovedVia != "" {
		fmt.Fprintln(t.Out, paint.yellow("  ! "+s.approval.Spec.ApprovedVia+" applies this approval from Git, and will apply it again: commit the change there"))
	}
}

// ask wants a yes from a human.
func (t *tool) ask(ctx context.Context, question string, yes bool) error {
	if yes {
		return nil
	}
	file, ok := t.In.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return problem{what: "there is no terminal to ask on", hint: "add --yes once you have seen what it does"}
	}
	return t.question(ctx, question)
}

func (t *tool) question(ctx context.Context, question string) error {
	fmt.Fprintf(t.Out, "%s [y/N] ", question)
	answered := make(chan string, 1)
	go func() {
		line, err := bufio.NewReader(t.In).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			line = ""
		}
		answered <- line
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case line := <-answered:
		if word := strings.ToLower(strings.TrimSpace(line)); word != "y" && word != "yes" {
			return problem{what: "nothing was changed"}
		}
		return nil
	}
}

// grant writes the approval. An update, not an apply: what others have put into
// the list must not stay in it.
func (c *cluster) grant(ctx context.Context, s subject, p proposal) (*v1alpha1.PluginCapabilityApproval, error) {
	doing := "write the approval " + s.namespace + "/" + s.name
	if s.approval == nil {
		o := &v1alpha1.PluginCapabilityApproval{
			ObjectMeta: metav1.ObjectMeta{Name: s.name, Namespace: s.namespace}, Spec: s.draft(p),
		}
		if err := c.api.Create(ctx, o, fieldOwner); err != nil {
			return nil, reading{doing: doing, role: roleApprover, err: err}
		}
		return o, nil
	}
	o := s.approval.DeepCopy()
	if o.Spec.WorkspaceID != s.workspaceID {
		return nil, problem{
			what: fmt.Sprintf("the approval is for workspace %q, and its namespace is workspace %q", o.Spec.WorkspaceID, s.workspaceID),
			hint: "delete it and approve again: `kubectl -n " + s.namespace + " delete pca " + s.name + "`",
		}
	}
	o.Spec = s.draft(p)
	if err := c.api.Update(ctx, o, fieldOwner); err != nil {
		return nil, reading{doing: doing, role: roleApprover, err: err}
	}
	return o, nil
}

// settled waits until the Host has said what became of a version of an approval,
// and everything older is fenced.
func (c *cluster) settled(ctx context.Context, written *v1alpha1.PluginCapabilityApproval, timeout time.Duration) (*v1alpha1.PluginCapabilityApproval, error) {
	now := written
	err := wait.PollUntilContextTimeout(ctx, pollEvery, timeout, true, func(ctx context.Context) (bool, error) {
		var o v1alpha1.PluginCapabilityApproval
		err := c.api.Get(ctx, client.ObjectKeyFromObject(written), &o)
		if apierrors.IsNotFound(err) {
			return false, problem{what: "the approval was deleted meanwhile, which revokes it", hint: "`kubectl capability audit` shows what happened"}
		}
		if err != nil {
			return false, reading{doing: "read the approval " + written.Namespace + "/" + written.Name, role: roleViewer, err: err}
		}
		now = &o
		return o.Status.ObservedGeneration >= written.Generation && answered(&o), nil
	})
	return now, err //nolint:wrapcheck // it is the condition's, or says that the time is over
}

// answered tells whether the conditions speak of the version that is there, and
// no revision is on its way.
func answered(o *v1alpha1.PluginCapabilityApproval) bool {
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionFenced)
	return c != nil && c.ObservedGeneration == o.Generation &&
		(c.Status == metav1.ConditionTrue || c.Reason == v1alpha1.ReasonNothingGranted)
}

// unsettled says that nobody knows yet what became of a write.
func (t *tool) unsettled(written *v1alpha1.PluginCapabilityApproval, err error) error {
	if !wait.Interrupted(err) {
		return err
	}
	fmt.Fprintln(t.ErrOut, "Written, and the Host has not said what became of it.")
	fmt.Fprintf(t.ErrOut, "hint: is it running? `kubectl -n %s describe pca %s` shows its conditions; --timeout waits longer\n", written.Namespace, written.Name)
	return answer(exitNo)
}

// granted says what became of a grant.
func (t *tool) granted(o *v1alpha1.PluginCapabilityApproval, wanted contract.CapabilitySet) error {
	paint := t.paint(t.Out)
	effective := setOf(o.Status.EffectiveCapabilities)
	if effective.Covers(wanted) && wanted != 0 {
		fmt.Fprintf(t.Out, "%s: revision %d is in force, act %s. %s declared capabilities work.\n", paint.green("Granted"),
			o.Status.Revision, o.Status.Act, strings.Replace(o.Status.EffectiveSummary, "/", " of ", 1))
		return nil
	}
	fmt.Fprintf(t.Out, "%s: revision %d, %s.\n", paint.yellow("Written, and not all of it works"), o.Status.Revision, strings.ToLower(string(o.Status.State)))
	for _, inactive := range o.Status.InactiveCapabilities {
		if slices.Contains(wanted.IDs(), inactive.ID) {
			fmt.Fprintf(t.Out, "  %s: %s\n", inactive.ID, inactive.Reason)
		}
	}
	gates := map[string]bool{}
	for _, gate := range o.Status.Gates {
		gates[string(gate.Type)] = true
		fmt.Fprintf(t.Out, "  gate %s: %s\n", gate.Type, gate.Message)
	}
	for _, kind := range []string{v1alpha1.ConditionReviewRequired, v1alpha1.ConditionReady} {
		c := meta.FindStatusCondition(o.Status.Conditions, kind)
		bad := metav1.ConditionTrue
		if kind == v1alpha1.ConditionReady {
			bad = metav1.ConditionFalse
		}
		// Ready names the gate that is closed, which was just said.
		if c != nil && c.Status == bad && c.ObservedGeneration == o.Generation && !gates[c.Reason] {
			fmt.Fprintf(t.Out, "  %s: %s\n", c.Reason, c.Message)
			break
		}
	}
	return answer(exitNo)
}
