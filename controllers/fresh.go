package controllers

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

// refresh reads which installations there are, past every cache, for the view to
// know how fresh its own are. Every replica does with each turn: v1 calls have no row
// and no lease, and depend on what this replica sees. Who makes the round reads them
// for that, and needs no second list.
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

// refreshed is refresh by a list that was begun at a time.
func (r *rounds) refreshed(begun time.Time, all []v1alpha1.PluginInstallation) {
	live := make(map[string]int64, len(all))
	for i := range all {
		if all[i].DeletionTimestamp == nil {
			live[string(all[i].UID)] = all[i].Generation
		}
	}
	r.view.InstallationsRead(begun, r.life, live)
}
