package store

import (
	"context"
	"fmt"
	"time"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/events"
)

const (
	// SnapshotLife is how long a list's snapshot can be continued at least.
	SnapshotLife = 15 * time.Minute
	// commitTime bounds how much later than its entry's time a commit is
	// visible.
	commitTime = 10 * time.Second
	// pruneStep is how many closed versions one transaction looks at, so that a
	// fence never waits long.
	pruneStep = 512
)

// prunedTables are the tables of closed versions with the column that they are
// walked by, which their key has next to the workspace.
var prunedTables = []struct{ table, key string }{
	{"tasks_closed", "id"}, {"workflow_steps_closed", "workflow_id"}, {"workflows_closed", "id"},
	{"workspaces_closed", "workspace_id"}, {"sessions_closed", "id"}, {"messages_closed", "id"}, {"interactions_closed", "id"},
	{"inbox_closed", "item"}, {"task_relations_closed", "name"}, {"pending_transitions_closed", "sort_key"},
	{"repositories_closed", "id"},
}

// Prune removes the closed versions that only lists begun before olderThan can
// show, and raises the oldest version of each workspace accordingly. It never
// touches what a list younger than SnapshotLife needs. Events that plugins have
// published go when nobody can resume before them any more.
func (s *Store) Prune(ctx context.Context, olderThan time.Time) error {
	if err := s.PruneEmitted(ctx, s.now().Add(-2*events.Kept)); err != nil {
		return err
	}
	if latest := s.now().Add(-SnapshotLife); olderThan.After(latest) {
		olderThan = latest
	}
	type span struct {
		workspace      string
		oldest, newest domain.Version
	}
	var spans []span
	err := s.read(ctx, "list the heads of the workspaces", func(c Conn) error {
		return c.Query(`SELECT workspace_id, oldest, version FROM heads WHERE version > oldest`, func(r Row) error {
			spans = append(spans, span{r.Text(0), domain.Version(r.Int(1)), domain.Version(r.Int(2))})
			return nil
		})
	})
	if err != nil {
		return err
	}
	for _, w := range spans {
		target, err := s.versionAt(ctx, w.workspace, w.oldest, w.newest, olderThan.Add(-commitTime))
		if err != nil {
			return err
		}
		if target == w.oldest {
			continue
		}
		if err := s.prune(ctx, w.workspace, target); err != nil {
			return fmt.Errorf("prune workspace %s to version %d: %w", w.workspace, target, err)
		}
	}
	return nil
}

// versionAt returns the newest version from low to high that was committed
// before an instant, or low. Entries are in the order of time but for the
// drift of a clock, which commitTime covers.
func (s *Store) versionAt(ctx context.Context, workspaceID string, low, high domain.Version, at time.Time) (domain.Version, error) {
	err := s.read(ctx, "search the journal by time", func(c Conn) error {
		for low < high {
			middle := low + (high-low+1)/2
			before := false
			err := c.Query(`SELECT at FROM journal WHERE workspace_id = $1 AND version = $2`, func(r Row) error {
				before = r.Int(0) < at.UnixNano()
				return nil
			}, workspaceID, int64(middle))
			switch {
			case err != nil:
				return err
			case before:
				low = middle
			default:
				high = middle - 1
			}
		}
		return nil
	})
	return low, err
}

// prune raises the oldest version first: from then on no list needs what is
// removed. Closed versions that a crash leaves behind go the next time.
func (s *Store) prune(ctx context.Context, workspaceID string, oldest domain.Version) error {
	err := s.run(ctx, workspaceLock(workspaceID), false, func(t *tx) error {
		_, err := t.exec("raise the oldest version", `UPDATE heads SET oldest = $2 WHERE workspace_id = $1 AND oldest < $2`,
			workspaceID, int64(oldest))
		return err
	})
	if err != nil {
		return err
	}
	for _, p := range prunedTables {
		after, more := closedKey{}, true
		for more && err == nil {
			after, more, err = s.pruneFrom(ctx, workspaceID, p.table, p.key, after, oldest)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// closedKey is where the walk through a table of closed versions stands.
type closedKey struct {
	key     string
	version int64
}

// pruneFrom removes what lists no longer need among the next pruneStep closed
// versions.
func (s *Store) pruneFrom(ctx context.Context, workspaceID, table, key string, after closedKey, oldest domain.Version) (last closedKey, more bool, err error) {
	row := `(` + key + `, version)`
	seen := 0
	err = s.read(ctx, "look for closed versions", func(c Conn) error {
		return c.Query(`SELECT `+key+`, version FROM `+table+` WHERE workspace_id = $1 AND `+row+` > ($2, $3)
			ORDER BY `+key+`, version LIMIT $4`, func(r Row) error {
			last = closedKey{r.Text(0), r.Int(1)}
			seen++
			return nil
		}, workspaceID, after.key, after.version, int64(pruneStep))
	})
	if err != nil || seen == 0 {
		return last, false, err
	}
	err = s.run(ctx, workspaceLock(workspaceID), false, func(t *tx) error {
		_, err := t.exec("prune closed versions", `DELETE FROM `+table+` WHERE workspace_id = $1
			AND `+row+` > ($2, $3) AND `+row+` <= ($4, $5) AND valid_to <= $6`,
			workspaceID, after.key, after.version, last.key, last.version, int64(oldest))
		return err
	})
	return last, seen == pruneStep, err
}
