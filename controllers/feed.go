package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
)

// feed fills the view from the watches, on every replica.
type feed struct {
	view       *view.View
	bindings   *bindings
	log        logr.Logger
	uninstalls *requests[string]
	builtIn    authority.Policy

	// grants knows which grants of compatibility count.
	grants *proof

	complete []completion
	// policies are the human policies, by name; one handler calls after the other.
	policies map[string]v1alpha1.HumanPolicy

	mu sync.Mutex
	// granting are the installations with grants of compatibility, by name.
	granting map[string]granting
}

// granting is an installation as the watch has shown it, with its grants.
type granting struct {
	view.Installation
	grants []authority.LegacyGrant
}

// completion tells when a handler has been given a watch's initial state.
type completion struct {
	source view.Source
	done   func() bool
}

// register adds the handlers to the informers of a cache.
func (f *feed) register(ctx context.Context, informers cache.Cache, approvals toolscache.ResourceEventHandler) error {
	for _, kind := range []struct {
		source  view.Source
		object  client.Object
		handler toolscache.ResourceEventHandler
	}{
		{view.SourceApprovals, &v1alpha1.PluginCapabilityApproval{}, approvals},
		{view.SourceInstallations, &v1alpha1.PluginInstallation{}, handlerOf(f.installation)},
		{view.SourceNamespaces, metadataOf("Namespace"), handlerOf(f.namespace)},
		{view.SourcePolicies, &v1alpha1.HumanPolicy{}, handlerOf(f.policy)},
	} {
		informer, err := informers.GetInformer(ctx, kind.object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind.object, err)
		}
		registration, err := informer.AddEventHandler(kind.handler)
		if err != nil {
			return fmt.Errorf("handle %T: %w", kind.object, err)
		}
		f.complete = append(f.complete, completion{kind.source, registration.HasSynced})
	}
	return nil
}

// Start implements manager.Runnable.
func (f *feed) Start(ctx context.Context) error {
	if err := retry(ctx, f.log, "Loading the bindings", f.bindings.load); err != nil {
		return nil //nolint:nilerr // the context ended
	}
	for _, c := range f.complete {
		if !toolscache.WaitForCacheSync(ctx.Done(), c.done) {
			return nil
		}
		f.view.MarkComplete(c.source)
	}
	<-ctx.Done()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (f *feed) NeedLeaderElection() bool { return false }

func (f *feed) installation(object client.Object, deleted bool) {
	o, ok := object.(*v1alpha1.PluginInstallation)
	if !ok {
		return
	}
	if deleted || o.DeletionTimestamp != nil {
		f.mu.Lock()
		if f.granting[o.Name].UID == string(o.UID) {
			delete(f.granting, o.Name)
		}
		f.mu.Unlock()
		f.grants.forget(string(o.UID))
		f.view.RemoveInstallation(o.Name, string(o.UID))
		if o.Status.InstallationID != "" {
			f.uninstalls.add(o.Status.InstallationID)
		}
		return
	}
	installation, _, err := kinds.InstallationOf(o)
	if err != nil {
		// Without a digest its vector equals no row's.
		f.log.Error(err, "An installation can't be read", "installation", o.Name)
	}
	seen := view.Installation{Installation: installation, PluginID: o.Spec.PluginID, Generation: o.Generation, Workload: o.Spec.Workload != nil}
	if err == nil {
		seen.Legacy = kinds.LegacyOf(o)
	}
	grants := kinds.GrantsOf(o)
	f.grants.observe(string(o.UID), o.Generation, grants)
	if err != nil {
		grants = nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.granting, o.Name)
	if len(grants) > 0 {
		f.granting[o.Name] = granting{seen, grants}
	}
	f.show(granting{seen, grants})
}

// show puts an installation into the view, with those of its grants that count. f.mu
// is held.
func (f *feed) show(of granting) {
	of.Legacy = of.Legacy.Granting(of.grants, func(g authority.LegacyGrant) bool {
		return f.grants.stands(g, of.Generation) == authority.GrantChecked
	})
	f.view.SetInstallation(of.Installation)
}

// regrant has the view show what of the grants counts by now.
func (f *feed) regrant() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, of := range f.granting {
		f.show(of)
	}
}

// granted lists the installations with grants of compatibility.
func (f *feed) granted() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.granting))
}

// unsettled tells whether any grant waits for the leader to look at it.
func (f *feed) unsettled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, of := range f.granting {
		for _, g := range of.grants {
			if f.grants.stands(g, of.Generation) == authority.GrantUnknown {
				return true
			}
		}
	}
	return false
}

func (f *feed) namespace(object client.Object, deleted bool) {
	o, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	if deleted || o.DeletionTimestamp != nil {
		f.view.RemoveNamespace(o.Name)
		return
	}
	f.view.SetNamespace(o.Name, view.Namespace{UID: string(o.UID), WorkspaceID: o.Labels[v1alpha1.LabelWorkspaceID]})
}

func (f *feed) policy(object client.Object, deleted bool) {
	o, ok := object.(*v1alpha1.HumanPolicy)
	if !ok {
		return
	}
	if deleted {
		delete(f.policies, o.Name)
	} else {
		f.policies[o.Name] = *o
	}
	policy, _, err := kinds.PolicyOf(f.builtIn, slices.Collect(maps.Values(f.policies)))
	if err != nil {
		f.log.Error(err, "A human policy can't be understood; nothing works meanwhile", "policy", o.Name)
		policy = unknownPolicy()
	}
	f.view.SetPolicy(policy)
}

// handlerOf calls fn with the newest state of an object.
func handlerOf(fn func(object client.Object, deleted bool)) toolscache.ResourceEventHandler {
	call := func(object any, deleted bool) {
		if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = unknown.Obj
		}
		if o, ok := object.(client.Object); ok {
			fn(o, deleted)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { call(object, false) },
		UpdateFunc: func(_, object any) { call(object, false) },
		DeleteFunc: func(object any) { call(object, true) },
	}
}
