package controllers

import (
	"context"
	"errors"
	"time"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

// ErrInstallationKnown is returned by Store.AdoptInstallation.
var ErrInstallationKnown = errors.New("the installation is recorded otherwise")

// ErrOtherCluster is returned by Store.Claim.
var ErrOtherCluster = errors.New("the store belongs to another cluster")

// Round is the start of one round of freshness, as the store saw it.
type Round struct {
	StoreID    string
	StoreEpoch uint64
	// Complete: the epoch's rows have been compared with the history.
	Complete bool
	// Begun is the store's clock, and LeasedUntil the lease, by the same clock.
	Begun       time.Time
	LeasedUntil time.Time
	// Beat is how often the lease has been renewed.
	Beat uint64
	// Older: this process has seen the store further on, so it is an older copy.
	Older bool
}

// ConfigSecrets knows what the Secrets hold that configurations name.
type ConfigSecrets interface {
	// Unresolved lists why references of spec.secretRefs have no value; known is false
	// until the Secrets of this version were read.
	Unresolved(o *v1alpha1.PluginInstallation) (why []string, known bool)
	// Follow has turned called with the name of each installation for which Unresolved
	// answers otherwise than before. It is called before the manager starts.
	Follow(turned func(name string))
}

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

	// Claim makes the store this cluster's, by the uid of its kube-system
	// namespace, or confirms that it is. ErrOtherCluster when it is another's,
	// unless adoptFrom names that other: then a new store epoch begins, every
	// row is held at nothing, and every installation is tombstoned.
	Claim(ctx context.Context, clusterUID, adoptFrom string) error
	// BeginEpoch starts a new store epoch, for a store that turned out to be
	// older than what was published, or another one: no row is effective until
	// it has been computed from live objects, and whatever carries an epoch is
	// fenced. The present term ends.
	BeginEpoch(ctx context.Context) error
	// Complete records that the rows of the term's store epoch have been
	// compared with the history: from then on, no row means "never approved".
	Complete(ctx context.Context, term fence.Term) error
	// BeginRound returns what a round of freshness starts from.
	BeginRound(ctx context.Context) (Round, error)
	// RenewLease lets commands commit until life after the round began, by the
	// store's clock, and returns how often the lease has been renewed. It needs
	// no leader and never shortens the lease. ErrDeposed when the round began in
	// another store or store epoch, or at a later beat.
	RenewLease(ctx context.Context, round Round, life time.Duration) (beat uint64, err error)

	// Proof returns the pins of the last proof that the admission policies are
	// in force, "" for none, and the versions that are distrusted, by the uid of
	// their object. A grant of compatibility is an object of its own there, by its ID;
	// those that were checked stand with the pins.
	Proof(ctx context.Context) (pins string, distrusted map[string]int64, err error)
	// Prove records another proof, and with it the versions that came while
	// nobody had one, in one transaction.
	Prove(ctx context.Context, term fence.Term, pins string, distrusted map[string]int64) error

	// Archive stores events that are about to be pruned from the API. It is
	// durable on return, and does nothing for those it has.
	Archive(ctx context.Context, events []authority.Event) error

	// Rebind passes a workspace that is bound to the namespace of the uid from on
	// to another namespace, and returns the binding in force, which is the old
	// one when from isn't its uid. What was granted there is not passed on.
	Rebind(ctx context.Context, workspaceID, from, namespace, namespaceUID string) (authority.Workspace, error)
	// Bind binds a workspace to a namespace if it was never bound, and returns
	// the binding in force: the first wins, and a binding never passes on.
	Bind(ctx context.Context, workspaceID, namespace, namespaceUID string) (authority.Workspace, error)
	// Bindings lists every binding.
	Bindings(ctx context.Context) ([]authority.Workspace, error)
}
