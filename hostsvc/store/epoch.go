package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

// ours refuses a store that another cluster has claimed since this process did.
func (s *Store) ours(cluster string) error {
	if claimed := s.cluster.Load(); claimed != nil && *claimed != cluster {
		return fmt.Errorf("the store is cluster %s's: %w", cluster, ErrOtherCluster)
	}
	return nil
}

// Claim makes the store this cluster's, by the uid of its kube-system
// namespace, or confirms that it is. The error is ErrOtherCluster, and names the
// other cluster, when it is another's, unless adoptFrom is that cluster's uid:
// then a new store epoch begins, every row is held at nothing with an entry in
// the journal, and every installation is tombstoned; tasks and bindings stay.
// What a crash interrupts, the next Claim ends.
func (s *Store) Claim(ctx context.Context, clusterUID, adoptFrom string) error {
	if clusterUID == "" {
		return fmt.Errorf("claim the store for a cluster without a uid: %w", ErrOtherCluster)
	}
	adopting := false
	err := s.run(ctx, lockName{name: leaderLock}, true, func(t *tx) error {
		var owner string
		err := t.query("read whose the store is", `SELECT cluster_uid, adopting FROM store`, func(r Row) error {
			owner, adopting = r.Text(0), r.Int(1) != 0
			return nil
		})
		switch {
		case err != nil || owner == clusterUID:
			return err
		case owner == "":
			_, err = t.exec("claim the store", `UPDATE store SET cluster_uid = $1`, clusterUID)
			return err
		case owner != adoptFrom:
			return fmt.Errorf("the store is cluster %s's: %w", owner, ErrOtherCluster)
		}
		adopting = true
		if err := t.beginEpoch(); err != nil {
			return err
		}
		_, err = t.exec("adopt the store", `UPDATE store SET cluster_uid = $1, adopting = 1`, clusterUID)
		return err
	})
	if err != nil {
		return err
	}
	if adopting {
		if err := s.adopt(ctx, clusterUID); err != nil {
			return fmt.Errorf("adopt the store: %w", err)
		}
	}
	s.cluster.Store(&clusterUID)
	return nil
}

// adopt retires what another cluster's humans have approved. It may run again.
func (s *Store) adopt(ctx context.Context, clusterUID string) error {
	if err := s.awaitWriters(ctx); err != nil {
		return err
	}
	var installations []string
	err := s.read(ctx, "list the installations", func(c Conn) error {
		return c.Query(`SELECT installation_id FROM installations UNION SELECT installation_id FROM authority`, func(r Row) error {
			installations = append(installations, r.Text(0))
			return nil
		})
	})
	if err != nil {
		return err
	}
	for _, id := range installations {
		if err := s.Tombstone(ctx, id); err != nil {
			return err
		}
	}
	rows, err := s.Rows(ctx)
	if err != nil {
		return err
	}
	nothing := authority.Hold{
		State: authority.StateRevoked, Cause: authority.CauseStoreEpoch, Actor: authority.Actor{Assurance: authority.ActorSystem},
	}
	for _, row := range rows {
		err := s.run(ctx, workspaceLock(row.Key.WorkspaceID), true, func(t *tx) error {
			current, err := t.record(row.Key)
			if err != nil {
				return err
			}
			_, err = t.hold(current, nothing)
			return err
		})
		if err != nil {
			return err
		}
	}
	return s.run(ctx, lockName{name: leaderLock}, true, func(t *tx) error {
		_, err := t.exec("end the adoption", `UPDATE store SET adopting = 0 WHERE cluster_uid = $1`, clusterUID)
		return err
	})
}

// BeginEpoch starts a new store epoch, for a store that turned out to be older
// than what was published, or another one. A row is Starting until it has been
// written as computed in the present epoch, so that this is one small write
// however many there are; the term, the lease and the epoch's completeness end
// with the old epoch. Once it has returned, no transaction that began in the
// old epoch is open.
func (s *Store) BeginEpoch(ctx context.Context) error {
	err := s.run(ctx, lockName{name: leaderLock}, true, func(t *tx) error { return t.beginEpoch() })
	if err != nil {
		return err
	}
	return s.awaitWriters(ctx)
}

// beginEpoch runs under the leader's lock. The epoch is later than any that this
// process has seen of the store, which an older copy may be behind.
func (t *tx) beginEpoch() error {
	t.movedAll = true
	seen := t.store.progress.Load()
	if seen == nil {
		seen = &progress{}
	}
	_, err := t.exec("begin a store epoch",
		`UPDATE store SET store_epoch = 1 + CASE WHEN store_id = $1 AND store_epoch < $2 THEN $2 ELSE store_epoch END,
			leader_epoch = leader_epoch + 1, lease_from = 0, lease_until = 0, lease_beat = 0`,
		seen.storeID, int64(seen.epoch))
	return err
}

// progress is how far a store is. Its epochs, and its beats within an epoch, only
// go on: what is behind another moment of the same store is an older copy of it.
type progress struct {
	storeID     string
	epoch, beat uint64
}

// behind compares with what had been seen before p was asked for. What is seen
// meanwhile, by another goroutine, may be later than p in a store that is whole.
func (p progress) behind(seen *progress) bool {
	return seen != nil && p.storeID == seen.storeID && (p.epoch < seen.epoch || p.epoch == seen.epoch && p.beat < seen.beat)
}

// sees remembers what is committed of the store. It never goes back, for one
// store.
func (s *Store) sees(now progress) {
	for {
		seen := s.progress.Load()
		if seen != nil && (now == *seen || now.behind(seen)) || s.progress.CompareAndSwap(seen, &now) {
			return
		}
	}
}

// awaitWriters returns when every transaction of a workspace that was open when
// it was called has ended. A transaction that takes no workspace's lock, or
// takes the leader's as well, is ordered by that.
func (s *Store) awaitWriters(ctx context.Context) error {
	if s.engine.Sole() {
		return nil // one transaction at a time
	}
	var ids []string
	err := s.read(ctx, "list the workspaces", func(c Conn) error {
		return c.Query(`SELECT workspace_id FROM heads`, func(r Row) error {
			ids = append(ids, r.Text(0))
			return nil
		})
	})
	if err != nil {
		return err
	}
	var wait sync.WaitGroup
	var next atomic.Int64
	errs := make([]error, s.engine.Writers())
	for i := range errs {
		wait.Go(func() {
			for errs[i] == nil {
				n := next.Add(1) - 1
				if n >= int64(len(ids)) {
					return
				}
				errs[i] = s.run(ctx, workspaceLock(ids[n]), true, func(*tx) error { return nil })
			}
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("wait for the writers of the old epoch: %w", err)
	}
	return nil
}

// stateLock orders what changes the row of the store under a leader's term.
const stateLock = "state"

// Complete records that the rows of the term's store epoch have been compared
// with the history: from then on, no row means "never approved".
func (s *Store) Complete(ctx context.Context, term fence.Term) error {
	return s.run(ctx, lockName{name: stateLock}, true, func(t *tx) error {
		if err := t.checkTerm(term); err != nil {
			return err
		}
		_, err := t.exec("complete the store epoch",
			`UPDATE store SET complete_epoch = store_epoch WHERE complete_epoch <> store_epoch AND store_epoch = $1`,
			int64(term.StoreEpoch))
		return err
	})
}
