package main

import (
	"context"
	"errors"
	"time"

	"github.com/kandev/plugin-host/controllers"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	"github.com/kandev/plugin-host/hostsvc/fence"
	"github.com/kandev/plugin-host/hostsvc/identity"
	"github.com/kandev/plugin-host/hostsvc/store"
)

// ledger is the store as the controllers want it.
type ledger struct{ *store.Store }

var _ controllers.Store = ledger{}

// Term implements controllers.Store.
func (l ledger) Term(ctx context.Context) (fence.Term, error) {
	epochs, err := l.Epochs(ctx)
	return epochs.Term, err
}

// Bind implements controllers.Store.
func (l ledger) Bind(ctx context.Context, workspaceID, namespace, namespaceUID string) (authority.Workspace, error) {
	bound, err := l.Store.Bind(ctx, workspaceID, namespace, namespaceUID)
	return workspaceOf(bound), err
}

// Bindings implements controllers.Store.
func (l ledger) Bindings(ctx context.Context) ([]authority.Workspace, error) {
	bindings, err := l.Store.Bindings(ctx)
	all := make([]authority.Workspace, len(bindings))
	for i, bound := range bindings {
		all[i] = workspaceOf(bound)
	}
	return all, err
}

// Rebind implements controllers.Store.
func (l ledger) Rebind(ctx context.Context, workspaceID, from, namespace, namespaceUID string) (authority.Workspace, error) {
	bound, err := l.Store.Rebind(ctx, workspaceID, from, namespace, namespaceUID)
	return workspaceOf(bound), err
}

// Claim implements controllers.Store.
func (l ledger) Claim(ctx context.Context, clusterUID, adoptFrom string) error {
	return otherCluster(l.Store.Claim(ctx, clusterUID, adoptFrom))
}

// BeginRound implements controllers.Store.
func (l ledger) BeginRound(ctx context.Context) (controllers.Round, error) {
	round, err := l.Store.BeginRound(ctx)
	return controllers.Round(round), otherCluster(err)
}

// RenewLease implements controllers.Store.
func (l ledger) RenewLease(ctx context.Context, round controllers.Round, life time.Duration) (beat uint64, err error) {
	beat, err = l.Store.RenewLease(ctx, store.Round(round), life)
	return beat, otherCluster(err)
}

func otherCluster(err error) error {
	if errors.Is(err, store.ErrOtherCluster) {
		return errors.Join(controllers.ErrOtherCluster, err)
	}
	return err
}

func workspaceOf(b store.Binding) authority.Workspace {
	return authority.Workspace{ID: b.WorkspaceID, Namespace: b.Namespace, NamespaceUID: b.NamespaceUID}
}

// AdoptInstallation implements controllers.Store.
func (l ledger) AdoptInstallation(ctx context.Context, objectUID, name, installationID string) error {
	err := l.Store.AdoptInstallation(ctx, objectUID, name, installationID)
	if errors.Is(err, store.ErrInstallationKnown) {
		return errors.Join(controllers.ErrInstallationKnown, err)
	}
	return err
}

// directory is the view as the authenticator wants it.
type directory struct{ view *view.View }

var _ identity.Directory = directory{}

// Registration implements identity.Directory.
func (d directory) Registration(account identity.Account) (identity.Registration, bool) {
	principal, ok := d.view.Principal(account.Namespace, account.Name)
	return identity.Registration{
		InstallationID: principal.InstallationID, InstallationName: principal.InstallationName, PluginID: principal.PluginID,
		ServiceAccountUID: principal.ServiceAccountUID, Conflict: principal.Conflict,
		WorkloadOf: principal.WorkloadOf, Unknown: principal.Unknown,
	}, ok
}
