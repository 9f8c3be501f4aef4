package main

import (
	"context"
	"errors"

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
	}, ok
}
