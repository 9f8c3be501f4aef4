package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/fence"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// Epochs identifies the store and its present term.
type Epochs struct {
	// StoreID is random and minted with the database.
	StoreID string
	fence.Term
}

// Epochs reads the store's identity and epochs.
func (s *Store) Epochs(ctx context.Context) (Epochs, error) {
	var e Epochs
	err := s.read(ctx, "read the epochs", func(c Conn) error {
		return c.Query(`SELECT store_id, store_epoch, leader_epoch FROM store`, func(r Row) error {
			e = Epochs{StoreID: r.Text(0), Term: fence.Term{StoreEpoch: uint64(r.Int(1)), LeaderEpoch: uint64(r.Int(2))}}
			return nil
		})
	})
	if err == nil && e.StoreEpoch == 0 {
		err = failed("read the epochs", errNoStoreRow)
	}
	return e, err
}

// Lead begins a new term. From its return on, fences of every earlier term are
// refused; those that had passed their check are durable.
func (s *Store) Lead(ctx context.Context) (fence.Term, error) {
	var term fence.Term
	err := s.run(ctx, lockName{name: leaderLock}, true, func(t *tx) error {
		var cluster string
		if _, err := t.exec("begin a term", `UPDATE store SET leader_epoch = leader_epoch + 1`); err != nil {
			return err
		}
		err := t.query("read the leader's epoch", `SELECT store_epoch, leader_epoch, cluster_uid FROM store`, func(r Row) error {
			term, cluster = fence.Term{StoreEpoch: uint64(r.Int(0)), LeaderEpoch: uint64(r.Int(1))}, r.Text(2)
			return nil
		})
		if err != nil {
			return err
		}
		return s.ours(cluster)
	})
	if err != nil {
		return fence.Term{}, err
	}
	return term, nil
}

// RecordInstallation returns the installation ID of an object, and mints it,
// a random UUID, the first time. A crash between this and the object's status
// therefore changes nothing: the ID is minted once per object.
func (s *Store) RecordInstallation(ctx context.Context, objectUID, name string) (installationID string, err error) {
	var id string
	err = s.run(ctx, lockName{name: installationsLock}, false, func(t *tx) error {
		known, err := t.installation(objectUID)
		if err != nil || known != "" {
			id = known
			return err
		}
		id = uuid.NewString()
		return t.insertInstallation(objectUID, id, name)
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

// AdoptInstallation records an ID that was minted before the store was lost,
// as the object's status has it. It does nothing when that is recorded, and
// returns ErrInstallationKnown when either is recorded otherwise.
func (s *Store) AdoptInstallation(ctx context.Context, objectUID, name, installationID string) error {
	return s.run(ctx, lockName{name: installationsLock}, false, func(t *tx) error {
		known, err := t.installation(objectUID)
		if err != nil {
			return err
		}
		taken := false
		err = t.query("look up an installation ID", `SELECT 1 FROM installations WHERE installation_id = $1`,
			func(Row) error { taken = true; return nil }, installationID)
		switch {
		case err != nil:
			return err
		case known == installationID:
			return nil
		case known != "" || taken:
			return fmt.Errorf("adopt installation %s for object %s: %w", installationID, objectUID, ErrInstallationKnown)
		}
		return t.insertInstallation(objectUID, installationID, name)
	})
}

func (t *tx) installation(objectUID string) (id string, err error) {
	err = t.query("look up an installation", `SELECT installation_id FROM installations WHERE object_uid = $1`,
		func(r Row) error { id = r.Text(0); return nil }, objectUID)
	return id, err
}

func (t *tx) insertInstallation(objectUID, id, name string) error {
	_, err := t.exec("record an installation",
		`INSERT INTO installations (object_uid, installation_id, name, recorded_at) VALUES ($1, $2, $3, $4)`,
		objectUID, id, name, t.store.now().UnixNano())
	return err
}

const selectTombstone = `SELECT 1 FROM tombstones WHERE installation_id = $1`

func tombstoned(query func(row func(Row) error, args ...any) error, installationID string) (dead bool, err error) {
	err = query(func(Row) error { dead = true; return nil }, installationID)
	return dead, err
}

// Tombstone marks an installation as uninstalled, for ever: no fence makes a
// row of it Active again, and what it kept is gone. It does nothing the second
// time.
func (s *Store) Tombstone(ctx context.Context, installationID string) error {
	return s.run(ctx, installationLock(installationID), true, func(t *tx) error {
		_, err := t.exec("tombstone an installation",
			`INSERT INTO tombstones (installation_id, at) VALUES ($1, $2) ON CONFLICT (installation_id) DO NOTHING`,
			installationID, t.store.now().UnixNano())
		if err != nil {
			return err
		}
		return t.purge(installationID)
	})
}

// Tombstoned tells whether an installation was uninstalled.
func (s *Store) Tombstoned(ctx context.Context, installationID string) (bool, error) {
	var dead bool
	err := s.read(ctx, "look for a tombstone", func(c Conn) (err error) {
		dead, err = tombstoned(func(row func(Row) error, args ...any) error {
			return c.Query(selectTombstone, row, args...)
		}, installationID)
		return err
	})
	return dead, err
}

// Binding says which namespace a workspace ID stands for.
type Binding struct {
	WorkspaceID  string
	Namespace    string
	NamespaceUID string
	BoundAt      time.Time
}

const bindingColumns = `workspace_id, namespace, namespace_uid, bound_at`

func scanBinding(r Row) Binding {
	return Binding{WorkspaceID: r.Text(0), Namespace: r.Text(1), NamespaceUID: r.Text(2), BoundAt: nanoTime(r, 3)}
}

// Bind binds a workspace ID to a namespace if it was never bound, and returns
// the binding in force, which may be to another namespace: the first wins, and
// a binding never passes on. A workspace that does not exist yet is created
// with its ID as its name.
func (s *Store) Bind(ctx context.Context, workspaceID, namespace, namespaceUID string) (Binding, error) {
	var bound Binding
	err := s.run(ctx, workspaceLock(workspaceID), false, func(t *tx) error {
		bound = Binding{}
		err := t.query("look up a binding", `SELECT `+bindingColumns+` FROM bindings WHERE workspace_id = $1`,
			func(r Row) error { bound = scanBinding(r); return nil }, workspaceID)
		if err != nil || bound.WorkspaceID != "" {
			return err
		}
		now := t.store.now()
		bound = Binding{WorkspaceID: workspaceID, Namespace: namespace, NamespaceUID: namespaceUID, BoundAt: now.UTC()}
		_, err = t.exec("bind a workspace",
			`INSERT INTO bindings (`+bindingColumns+`) VALUES ($1, $2, $3, $4)`,
			workspaceID, namespace, namespaceUID, now.UnixNano())
		if err != nil {
			return err
		}
		exists, err := t.workspaceExists()
		if err != nil {
			return err
		}
		if !exists {
			err = t.insertWorkspace(domain.Workspace{
				ID: workspaceID, Name: workspaceID, CreatedAt: now, UpdatedAt: now, Version: t.Version(),
			})
			if err != nil {
				return err
			}
		}
		return t.Append(journal.Entry{
			WorkspaceID: workspaceID, Kind: journal.KindBinding, AuditID: t.store.newAuditID(),
			Result: contract.StateApplied, TargetID: namespaceUID, At: now,
		})
	})
	if err != nil {
		return Binding{}, err
	}
	return bound, nil
}

// Rebind passes a workspace that is bound to the namespace of the uid from on to
// another namespace, with an entry in the journal, and returns the binding in
// force: the old one when from isn't its uid, the zero binding when there is
// none. What was granted there is not passed on.
func (s *Store) Rebind(ctx context.Context, workspaceID, from, namespace, namespaceUID string) (Binding, error) {
	var bound Binding
	err := s.run(ctx, workspaceLock(workspaceID), false, func(t *tx) error {
		bound = Binding{}
		err := t.query("look up a binding", `SELECT `+bindingColumns+` FROM bindings WHERE workspace_id = $1`,
			func(r Row) error { bound = scanBinding(r); return nil }, workspaceID)
		if err != nil || bound.WorkspaceID == "" || bound.NamespaceUID != from || from == namespaceUID {
			return err
		}
		now := t.store.now()
		bound = Binding{WorkspaceID: workspaceID, Namespace: namespace, NamespaceUID: namespaceUID, BoundAt: now.UTC()}
		_, err = t.exec("bind a workspace again",
			`UPDATE bindings SET namespace = $2, namespace_uid = $3, bound_at = $4 WHERE workspace_id = $1`,
			workspaceID, namespace, namespaceUID, now.UnixNano())
		if err != nil {
			return err
		}
		return t.Append(journal.Entry{
			WorkspaceID: workspaceID, Kind: journal.KindBinding, AuditID: t.store.newAuditID(),
			Result: contract.StateApplied, TargetID: namespaceUID, Before: from, After: namespaceUID, At: now,
		})
	})
	if err != nil {
		return Binding{}, err
	}
	return bound, nil
}

// Bindings lists every binding, by workspace ID.
func (s *Store) Bindings(ctx context.Context) ([]Binding, error) {
	var all []Binding
	err := s.read(ctx, "list the bindings", func(c Conn) error {
		return c.Query(`SELECT `+bindingColumns+` FROM bindings ORDER BY workspace_id`, func(r Row) error {
			all = append(all, scanBinding(r))
			return nil
		})
	})
	return all, err
}
