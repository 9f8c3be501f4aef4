package controllers

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
)

// What v1 calls may do is fresh only as far as a live read and the watch agree, on
// every replica by itself.
func TestI6_V1IsFreshOnceAReadAndTheWatchAgree(t *testing.T) {
	for name, read := range map[string]func(*rounds, context.Context) error{
		"a read of its own": (*rounds).refresh, "a whole round": (*rounds).compare,
	} {
		t.Run(name, func(t *testing.T) { freshBy(t, read) })
	}
}

func freshBy(t *testing.T, read func(*rounds, context.Context) error) {
	t.Helper()
	w := newWorld(t)
	w.installation.Generation = 1
	w.installation.Spec.Manifest.Legacy = &v1alpha1.LegacyManifest{APIRead: []v1alpha1.LegacyReadResource{"tasks"}}
	r := w.rounds(1)
	fed := &feed{view: r.view, log: logr.Discard(), uninstalls: newRequests[string](), grants: &proof{}}
	r.view.MarkComplete(view.SourceInstallations | view.SourceNamespaces)
	fed.installation(w.installation.DeepCopy(), false)

	fresh := func() bool {
		t.Helper()
		if err := read(r, t.Context()); err != nil {
			t.Fatal(err)
		}
		legacy := r.view.Legacy("i")
		return legacy.Fresh(r.now())
	}
	if !fresh() {
		t.Error("not fresh though nothing differs")
	}
	if legacy := r.view.Legacy("i"); legacy.Declared != contract.LegacySetOf(contract.LegacyReadTasks) {
		t.Errorf("declared %v", legacy.Declared.Names())
	}
	r.now = func() time.Time { return roundAt.Add(r.life) }
	w.installation.Generation, w.installation.Spec.Suspend = 2, true
	if fresh() {
		t.Error("fresh before the watch has shown the suspension")
	}
	fed.installation(w.installation.DeepCopy(), false)
	if legacy := r.view.Legacy("i"); !legacy.Fresh(r.now()) || legacy.Declared != 0 {
		t.Errorf("after it has: %+v", legacy)
	}
	// One that is being deleted counts as absent, in the read and in the watch.
	r.now = func() time.Time { return roundAt.Add(2 * r.life) }
	w.installation.DeletionTimestamp, w.installation.Generation = new(metav1.Now()), 3
	if fresh() {
		t.Error("fresh before the watch has shown the deletion")
	}
	fed.installation(w.installation.DeepCopy(), false)
	if legacy := r.view.Legacy("i"); !legacy.Fresh(r.now()) || legacy.Installed {
		t.Errorf("after it has: %+v", legacy)
	}
}
