package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/controllers/kinds"
)

func (t *tool) confirmCommand() *cobra.Command {
	var yes bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "confirm NAME",
		Short: "Confirm, as the second human, what somebody else approved",
		Long: `Confirm, as the second human, what somebody else approved.

A human policy can demand two humans for some classes of capabilities. What one
approved then waits until another one confirms it. This shows what you confirm,
asks, writes your name into spec.confirmedBy and nothing else, and waits for the
Host. You need the right to approve every capability of it, too.

Exit codes: 0 granted, 1 failed, 2 written and not (all) granted.`,
		Example: `  kubectl capability confirm standup -n payments`,
		Args:    oneName, ValidArgsFunction: t.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.confirm(cmd.Context(), args[0], yes, timeout)
		},
	}
	addYes(cmd, &yes)
	addTimeout(cmd, &timeout)
	return cmd
}

func (t *tool) confirm(ctx context.Context, name string, yes bool, timeout time.Duration) error {
	c, err := t.connect()
	if err != nil {
		return err
	}
	s, err := c.subject(ctx, name)
	if err != nil {
		return err
	}
	if s.approval == nil {
		return missing("approval", s.namespace+"/"+name, "somebody approves first: `kubectl capability approve`")
	}
	me, err := c.whoami(ctx)
	if err != nil {
		return err
	}
	policy, err := c.policy(ctx)
	if err != nil {
		return err
	}
	spec := s.approval.Spec
	switch {
	case spec.ApprovedBy == me:
		return problem{what: "you approved it yourself; the second human is another one"}
	case spec.ConfirmedBy == me:
		return problem{what: "you have confirmed it already", hint: "`kubectl capability review " + name + " -n " + s.namespace + "` shows what became of it"}
	case spec.ApprovedVia != "" && !policy.AcceptClaimed:
		return problem{
			what: spec.ApprovedVia + " applied it, and the human policy takes its word for nobody",
			hint: "a human approves in the cluster first: `kubectl capability approve`",
		}
	case spec.SupersedesAct != s.act():
		return problem{what: "there is nothing to confirm: the approval names an act that is used", hint: "somebody approves anew first: `kubectl capability approve`"}
	case spec.ManifestDigest != s.installation.Status.ManifestDigest:
		return problem{what: "another manifest is installed than the one that " + spec.ApprovedBy + " reviewed", hint: "somebody approves anew first: `kubectl capability approve`"}
	}
	asked := kinds.ApprovalOf(s.approval)
	fmt.Fprintf(t.Out, "%s approved for %s %s in %s:\n", spec.ApprovedBy, name, s.installation.Spec.Version, s.namespace)
	for capability := range asked.Capabilities.All() {
		sign := "  + "
		if s.granted().Has(capability) {
			sign = "    "
		}
		fmt.Fprintf(t.Out, "%s%s  (%s)%s\n", sign, capability, classOf(capability), behind(" ", s.remark(capability.String())))
	}
	facts(t.Out, "    expires:", instant(asked.ExpiresAt), "    reason:", strings.TrimSpace(spec.Reason))
	if err := t.ask(ctx, "Confirm this, as "+me+"?", yes); err != nil {
		return err
	}
	// Exactly the version that was shown: what somebody slips in meanwhile is not
	// what was confirmed.
	confirmed := s.approval.DeepCopy()
	confirmed.Spec.ConfirmedBy = me
	patch := client.MergeFromWithOptions(s.approval, client.MergeFromWithOptimisticLock{})
	if err := c.api.Patch(ctx, confirmed, patch, fieldOwner); err != nil {
		return reading{doing: "confirm the approval " + s.namespace + "/" + name, role: roleApprover, err: err}
	}
	settled, err := c.settled(ctx, confirmed, timeout)
	if err != nil {
		return t.unsettled(confirmed, err)
	}
	return t.granted(settled, asked.Capabilities&s.declared)
}
