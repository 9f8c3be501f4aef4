package controllers

import (
	"context"
	"errors"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

// ErrInstallationKnown is returned by Store.AdoptInstallation.
var ErrInstallationKnown = errors.New("the installation is recorded otherwise")

// Store is what the controllers need of the store.
type Store interface {
	fence.Ledger

	// Lead starts a new term in office; fences of every earlier term are
	// refused from then on.
	Lead(ctx context.Context) (fence.Term, error)
	// Term is the term in force: another process's, once this one is deposed.
	Term(ctx context.Context) (fence.Term, error)
	// FenceStart takes a row that is behind its newest event straight to it,
	// under the mark Starting, creating it if need be. A hold of the row stays,
	// unless the event applied it.
	FenceStart(ctx context.Context, term fence.Term, event authority.Event) error
	// Rows lists every row.
	Rows(ctx context.Context) ([]authority.Row, error)
	// RowsOfInstallation lists the rows of one installation, by workspace.
	RowsOfInstallation(ctx context.Context, installationID string) ([]authority.Row, error)

	// RecordInstallation returns the installation ID of an installation object,
	// minting it for a UID that is not known yet. It is durable on return.
	RecordInstallation(ctx context.Context, objectUID, name string) (installationID string, err error)
	// AdoptInstallation records the ID that an object's status has had since
	// before the store was lost. It does nothing when that is recorded, and
	// returns ErrInstallationKnown when either is recorded otherwise.
	AdoptInstallation(ctx context.Context, objectUID, name, installationID string) error
	// Tombstone retires an installation ID for ever.
	Tombstone(ctx context.Context, installationID string) error

	// Bind binds a workspace to a namespace if it was never bound, and returns
	// the binding in force: the first wins, and a binding never passes on.
	Bind(ctx context.Context, workspaceID, namespace, namespaceUID string) (authority.Workspace, error)
	// Bindings lists every binding.
	Bindings(ctx context.Context) ([]authority.Workspace, error)
}
