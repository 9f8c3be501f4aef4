package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/test/world"
)

// commit writes an approval's manifest into the demo's Git folder and returns its path.
func (w *demo) commit(name string, spec v1alpha1.PluginCapabilityApprovalSpec) (string, error) {
	manifest := map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "PluginCapabilityApproval",
		"metadata": map[string]any{"name": world.Plugin, "namespace": spec.WorkspaceID}, "spec": spec,
	}
	text, err := yaml.Marshal(manifest)
	if err != nil {
		return "", fmt.Errorf("write the approval: %w", err)
	}
	path := w.Path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("make the Git folder: %w", err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return "", fmt.Errorf("write the approval: %w", err)
	}
	return path, nil
}

// apply applies a manifest as a GitOps tool does: as it stands, whoever else wrote.
func (w *demo) apply(ctx context.Context, path string) error {
	return w.Kube(ctx, "apply", "--server-side", "--force-conflicts", "-f", path)
}

// approve applies an approval as the human who may.
func (w *demo) approve(ctx context.Context, path string) error {
	return w.Kube(ctx, "apply", "--server-side", "--force-conflicts", "--as", world.Ada, "-f", path)
}

// watchRevocation tells the instant at which the API server showed the approval as
// revoked. It must be started before the revocation.
func (w *demo) watchRevocation(ctx context.Context, namespace string) (<-chan time.Time, error) {
	watcher, err := w.API.Watch(ctx, &v1alpha1.PluginCapabilityApprovalList{}, client.InNamespace(namespace))
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
