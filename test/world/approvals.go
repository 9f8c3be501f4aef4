package world

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

// Installation waits until the controllers have processed it as it is now.
func (w *World) Installation(ctx context.Context) (*v1alpha1.PluginInstallation, error) {
	var o v1alpha1.PluginInstallation
	err := Await(ctx, "the installation is ready", func() (bool, string, error) {
		if err := w.API.Get(ctx, client.ObjectKey{Name: Plugin}, &o); err != nil {
			return false, "", fmt.Errorf("read the installation: %w", err)
		}
		ready := Condition(o.Status.Conditions, v1alpha1.ConditionReady, o.Generation)
		return o.Status.ObservedGeneration == o.Generation && ready.Status == metav1.ConditionTrue,
			Describe(o.Status.Conditions), nil
	})
	return &o, err
}

// Settled waits until what is in force follows from Workspace's approval as it is now, is
// fenced, and holds says so.
func (w *World) Settled(
	ctx context.Context, what string, holds func(*v1alpha1.PluginCapabilityApproval) bool,
) (*v1alpha1.PluginCapabilityApproval, error) {
	return w.Observed(ctx, what, func(o *v1alpha1.PluginCapabilityApproval) bool {
		return Condition(o.Status.Conditions, v1alpha1.ConditionFenced, o.Generation).Status == metav1.ConditionTrue && holds(o)
	})
}

// Observed waits until the status speaks of the approval as it is now and holds says
// so.
func (w *World) Observed(
	ctx context.Context, what string, holds func(*v1alpha1.PluginCapabilityApproval) bool,
) (*v1alpha1.PluginCapabilityApproval, error) {
	var o v1alpha1.PluginCapabilityApproval
	err := Await(ctx, what, func() (bool, string, error) {
		if err := w.API.Get(ctx, client.ObjectKey{Namespace: Workspace, Name: Plugin}, &o); err != nil {
			return false, "", fmt.Errorf("read the approval: %w", err)
		}
		return o.Status.ObservedGeneration == o.Generation && holds(&o),
			fmt.Sprintf("state %s, revision %d, effective %s; %s",
				o.Status.State, o.Status.Revision, o.Status.EffectiveSummary, Describe(o.Status.Conditions)), nil
	})
	return &o, err
}

// InForce says that an approval is active with an effective summary such as "2/3".
func InForce(effective string) func(*v1alpha1.PluginCapabilityApproval) bool {
	return func(o *v1alpha1.PluginCapabilityApproval) bool {
		return o.Status.State == v1alpha1.StateActive && o.Status.EffectiveSummary == effective
	}
}

// Describe tells conditions in one line.
func Describe(conditions []metav1.Condition) string {
	text := ""
	for _, c := range conditions {
		text += fmt.Sprintf("%s=%s/%s: %s; ", c.Type, c.Status, c.Reason, c.Message)
	}
	return text
}

// Condition returns a condition that speaks for the generation, or an empty one.
func Condition(conditions []metav1.Condition, kind string, generation int64) metav1.Condition {
	if c := meta.FindStatusCondition(conditions, kind); c != nil && c.ObservedGeneration == generation {
		return *c
	}
	return metav1.Condition{}
}

// Draft is an approval as a human commits it to Git after a look at the installation.
func Draft(
	o *v1alpha1.PluginInstallation, act, reason string, grants ...v1alpha1.CapabilityID,
) v1alpha1.PluginCapabilityApprovalSpec {
	return v1alpha1.PluginCapabilityApprovalSpec{
		InstallationName: Plugin, InstallationID: o.Status.InstallationID, ManifestDigest: o.Status.ManifestDigest,
		WorkspaceID: Workspace, SupersedesAct: act, Capabilities: grants, State: v1alpha1.StateActive,
		ApprovedBy: Ada, Reason: reason,
	}
}
