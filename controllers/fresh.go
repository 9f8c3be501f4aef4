package controllers

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

// refresh reads which installations there are, past every cache, for the view to
// know how fresh its own are. Every replica does with each turn, whoever makes the
// round: v1 calls have no row and no lease, and depend on what this replica sees.
func (r *rounds) refresh(ctx context.Context) error {
	begun, live := r.now(), map[string]int64{}
	c := comparison{rounds: r}
	err := c.list(ctx, v1alpha1.GroupVersion.WithKind("PluginInstallationList"), func(o *metav1.PartialObjectMetadata) {
		live[string(o.UID)] = o.Generation
	})
	if err != nil {
		return err
	}
	r.view.InstallationsRead(begun, r.life, live)
	return nil
}
