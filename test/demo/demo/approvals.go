package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

// installation waits until the controllers have processed it as it is now.
func (w *world) installation(ctx context.Context) (*v1alpha1.PluginInstallation, error) {
	var o v1alpha1.PluginInstallation
	err := await(ctx, "the installation is ready", func() (bool, string, error) {
		if err := w.api.Get(ctx, client.ObjectKey{Name: plugin}, &o); err != nil {
			return false, "", fmt.Errorf("read the installation: %w", err)
		}
		ready := condition(o.Status.Conditions, v1alpha1.ConditionReady, o.Generation)
		return o.Status.ObservedGeneration == o.Generation && ready.Status == metav1.ConditionTrue,
			describe(o.Status.Conditions), nil
	})
	return &o, err
}

// settled waits until what is in force follows from team-a's approval as it is now, is
// fenced, and holds says so.
func (w *world) settled(
	ctx context.Context, what string, holds func(*v1alpha1.PluginCapabilityApproval) bool,
) (*v1alpha1.PluginCapabilityApproval, error) {
	return w.observed(ctx, what, func(o *v1alpha1.PluginCapabilityApproval) bool {
		return condition(o.Status.Conditions, v1alpha1.ConditionFenced, o.Generation).Status == metav1.ConditionTrue && holds(o)
	})
}

// observed waits until the status speaks of the approval as it is now and holds says
// so.
func (w *world) observed(
	ctx context.Context, what string, holds func(*v1alpha1.PluginCapabilityApproval) bool,
) (*v1alpha1.PluginCapabilityApproval, error) {
	var o v1alpha1.PluginCapabilityApproval
	err := await(ctx, what, func() (bool, string, error) {
		if err := w.api.Get(ctx, client.ObjectKey{Namespace: "team-a", Name: plugin}, &o); err != nil {
			return false, "", fmt.Errorf("read the approval: %w", err)
		}
		return o.Status.ObservedGeneration == o.Generation && holds(&o),
			fmt.Sprintf("state %s, revision %d, effective %s; %s",
				o.Status.State, o.Status.Revision, o.Status.EffectiveSummary, describe(o.Status.Conditions)), nil
	})
	return &o, err
}

func inForce(effective string) func(*v1alpha1.PluginCapabilityApproval) bool {
	return func(o *v1alpha1.PluginCapabilityApproval) bool {
		return o.Status.State == v1alpha1.StateActive && o.Status.EffectiveSummary == effective
	}
}

func describe(conditions []metav1.Condition) string {
	text := ""
	for _, c := range conditions {
		text += fmt.Sprintf("%s=%s/%s: %s; ", c.Type, c.Status, c.Reason, c.Message)
	}
	return text
}

// condition returns a condition that speaks for the generation, or an empty one.
func condition(conditions []metav1.Condition, kind string, generation int64) metav1.Condition {
	if c := meta.FindStatusCondition(conditions, kind); c != nil && c.ObservedGeneration == generation {
		return *c
	}
	return metav1.Condition{}
}

// draft is an approval as a human commits it to Git after a look at the installation.
func draft(
	o *v1alpha1.PluginInstallation, act, reason string, grants ...v1alpha1.CapabilityID,
) v1alpha1.PluginCapabilityApprovalSpec {
	return v1alpha1.PluginCapabilityApprovalSpec{
		InstallationName: plugin, InstallationID: o.Status.InstallationID, ManifestDigest: o.Status.ManifestDigest,
		WorkspaceID: "team-a", SupersedesAct: act, Capabilities: grants, State: v1alpha1.StateActive,
		ApprovedBy: "ada@example.com", Reason: reason,
	}
}

// commit writes an approval's manifest into the demo's Git folder and returns its path.
func (w *world) commit(name string, spec v1alpha1.PluginCapabilityApprovalSpec) (string, error) {
	manifest := map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "PluginCapabilityApproval",
		"metadata": map[string]any{"name": plugin, "namespace": spec.WorkspaceID}, "spec": spec,
	}
	text, err := yaml.Marshal(manifest)
	if err != nil {
		return "", fmt.Errorf("write the approval: %w", err)
	}
	path := w.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("make the Git folder: %w", err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return "", fmt.Errorf("write the approval: %w", err)
	}
	return path, nil
}

// apply applies a manifest as a GitOps tool does: as it stands, whoever else wrote.
func (w *world) apply(ctx context.Context, path string) error {
	return w.kube(ctx, "apply", "--server-side", "--force-conflicts", "-f", path)
}

// watchRevocation tells the instant at which the API server showed the approval as
// revoked. It must be started before the revocation.
func (w *world) watchRevocation(ctx context.Context, namespace string) (<-chan time.Time, error) {
	watcher, err := w.api.Watch(ctx, &v1alpha1.PluginCapabilityApprovalList{}, client.InNamespace(namespace))
	if err != nil {
		return nil, fmt.Errorf("watch the approvals of %s: %w", namespace, err)
	}
	shown := make(chan time.Time, 1)
	go func() {
		defer watcher.Stop()
		for event := range watcher.ResultChan() {
			now := time.Now()
			if o, ok := event.Object.(*v1alpha1.PluginCapabilityApproval); ok && o.Spec.State == v1alpha1.StateRevoked {
				shown <- now
				return
			}
		}
	}()
	return shown, nil
}
