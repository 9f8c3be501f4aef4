package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
)

type revokeOptions struct {
	capabilities []string
	reason       string
	timeout      time.Duration
}

func (t *tool) revokeCommand() *cobra.Command {
	var o revokeOptions
	cmd := &cobra.Command{
		Use:   "revoke NAME --reason TEXT [--capability ID...]",
		Short: "Take a grant away, in whole or in part",
		Long: `Take a plugin's grant in a workspace away, in whole, or with --capability in part.

It doesn't ask: what takes away must be quick. It records you and the reason, and
returns once everything older is fenced: from then on no write under the old grant
can commit any more. Granting again takes a new approval; applying the old manifest
again gives nothing back.

It needs only the right to update the approval. Deleting the approval revokes too,
but can't say who did it.

Exit codes: 0 revoked and fenced, 1 failed, 2 written and not known to be fenced.`,
		Example: `  kubectl capability revoke standup -n payments --reason "Incident 42"

  # Only the writes
  kubectl capability revoke standup -n payments --capability host.v2.write:tasks --reason "Reads only until the review"`,
		Args:              oneName,
		ValidArgsFunction: t.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.revoke(cmd.Context(), o, args[0])
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.capabilities, "capability", nil, "take away only this capability; may be repeated")
	f.StringVar(&o.reason, "reason", "", "why, for those who read the history")
	addTimeout(cmd, &o.timeout)
	completeCapabilities(cmd, "capability")
	return cmd
}

func (t *tool) revoke(ctx context.Context, o revokeOptions, name string) error {
	if o.reason == "" {
		return problem{what: "why? Give --reason, for those who read the history"}
	}
	take, err := contract.ParseCapabilities(o.capabilities)
	if err != nil {
		return problem{what: "--capability: " + err.Error()}
	}
	c, err := t.connect()
	if err != nil {
		return err
	}
	me, err := c.whoami(ctx)
	if err != nil {
		return err
	}
	before, err := c.approval(ctx, c.namespace, name)
	if err != nil {
		return err
	}
	if before == nil {
		return missing("approval", c.namespace+"/"+name, "nothing is granted without one; is it another namespace? `kubectl get pca -A` lists them")
	}
	if take == 0 && before.Spec.State == v1alpha1.StateRevoked && before.Status.ObservedGeneration == before.Generation && before.Status.State == v1alpha1.StateRevoked {
		fmt.Fprintf(t.Out, "It is revoked already, as of revision %d.\n", before.Status.Revision)
		return nil
	}
	var written *v1alpha1.PluginCapabilityApproval
	if take == 0 {
		written, err = c.revokeAll(ctx, before, me, o.reason)
	} else {
		written, err = c.narrow(ctx, before, take, me, o.reason)
	}
	if err != nil {
		return err
	}
	settled, err := c.settled(ctx, written, o.timeout)
	if err != nil {
		return t.unsettled(written, err)
	}
	return t.revoked(settled, before, take, me)
}

// revokeAll revokes whatever version is there. Nothing may stand in its way, so it
// names no resourceVersion.
func (c *cluster) revokeAll(ctx context.Context, o *v1alpha1.PluginCapabilityApproval, me, reason string) (*v1alpha1.PluginCapabilityApproval, error) {
	fields := map[string]any{"state": v1alpha1.StateRevoked, "changedBy": me, "reason": reason}
	if o.Spec.ChangedBy == me {
		// The history names whoever a write puts into changedBy. The name stands
		// there from an earlier change, so it goes first.
		if err := c.patchSpec(ctx, o.DeepCopy(), map[string]any{"changedBy": ""}); err != nil {
			delete(fields, "changedBy")
		}
	}
	written := o.DeepCopy()
	return written, c.patchSpec(ctx, written, fields)
}

func (c *cluster) patchSpec(ctx context.Context, o *v1alpha1.PluginCapabilityApproval, fields map[string]any) error {
	patch, err := json.Marshal(map[string]any{"spec": fields})
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	if err := c.api.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), fieldOwner); err != nil {
		return reading{doing: "change the approval " + o.Namespace + "/" + o.Name, role: roleRevoker, err: err}
	}
	return nil
}

// narrow takes capabilities off the list.
func (c *cluster) narrow(ctx context.Context, o *v1alpha1.PluginCapabilityApproval, take contract.CapabilitySet, me, reason string) (*v1alpha1.PluginCapabilityApproval, error) {
	var written *v1alpha1.PluginCapabilityApproval
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := c.approval(ctx, o.Namespace, o.Name)
		if err != nil {
			return err
		}
		if now == nil {
			return missing("approval", o.Namespace+"/"+o.Name, "it was deleted meanwhile, which revokes everything")
		}
		kept := slices.DeleteFunc(slices.Clone(now.Spec.Capabilities), func(id v1alpha1.CapabilityID) bool {
			return setOf([]v1alpha1.CapabilityID{id})&take != 0
		})
		if len(kept) == len(now.Spec.Capabilities) {
			return problem{what: "the approval lists none of " + listed(take), hint: "it lists " + listed(setOf(now.Spec.Capabilities))}
		}
		written = now.DeepCopy()
		written.Spec.Capabilities, written.Spec.ChangedBy, written.Spec.Reason = kept, me, reason
		err = c.api.Patch(ctx, written, client.MergeFromWithOptions(now, client.MergeFromWithOptimisticLock{}), fieldOwner)
		if apierrors.IsConflict(err) {
			return err //nolint:wrapcheck // tried again
		}
		if err != nil {
			return reading{doing: "change the approval " + o.Namespace + "/" + o.Name, role: roleRevoker, err: err}
		}
		return nil
	})
	return written, err //nolint:wrapcheck // it is the function's
}

// revoked says what became of it.
func (t *tool) revoked(o, before *v1alpha1.PluginCapabilityApproval, take contract.CapabilitySet, me string) error {
	paint := t.paint(t.Out)
	still := setOf(o.Status.EffectiveCapabilities)
	if take == 0 && o.Status.State != v1alpha1.StateRevoked && o.Status.State != v1alpha1.StatePending || still&take != 0 {
		fmt.Fprintf(t.Out, "%s: it is %s, revision %d. Somebody granted it anew meanwhile.\n", paint.yellow("Written"), o.Status.State, o.Status.Revision)
		return answer(exitNo)
	}
	if take == 0 {
		fmt.Fprintf(t.Out, "%s: revision %d is fenced. Nothing under an older one can commit any more.\n", paint.green("Revoked"), o.Status.Revision)
	} else {
		fmt.Fprintf(t.Out, "%s: revision %d is fenced. What works now: %s.\n", paint.green("Taken away"), o.Status.Revision, listed(still))
		for _, gate := range o.Status.Gates {
			fmt.Fprintf(t.Out, "  gate %s: %s\n", gate.Type, gate.Message)
		}
		if before.Spec.ChangedBy == me {
			fmt.Fprintln(t.Out, "  The history can't name you: the change before was yours too, and a name counts only where a write changes it.")
		}
	}
	if o.Spec.ApprovedVia != "" {
		fmt.Fprintf(t.Out, "  %s will apply the manifest in Git again. That gives nothing back; revoke it there as well.\n", o.Spec.ApprovedVia)
	}
	return nil
}
