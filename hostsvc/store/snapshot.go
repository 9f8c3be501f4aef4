package store

import (
	"context"
	"time"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/query"
)

// snapshot is one read transaction.
type snapshot struct {
	store *Store
	conn  Conn
	// epoch and vouch come with the first statement that can carry them.
	epoch uint64
	vouch vouch
	// workspace is the one whose head was read last.
	workspace      string
	newest, oldest domain.Version
	// failure is the first failed statement. It fails the whole read, also
	// where a method has no error to return.
	failure error
}

// Read implements query.Store. Once fn runs, Read waits for its end, whatever
// becomes of ctx.
func (s *Store) Read(ctx context.Context, fn func(query.Snapshot) error) error {
	return s.readSnapshot(ctx, func(snap *snapshot) error { return fn(snap) })
}

// readSnapshot is Read for whoever sees a snapshot through another port.
func (s *Store) readSnapshot(ctx context.Context, fn func(*snapshot) error) error {
	var answer error
	err := s.engine.Read(ctx, func(c Conn) error {
		snap := &snapshot{store: s, conn: c}
		answer = fn(snap)
		return snap.failure
	})
	if err != nil {
		return failed("read a snapshot", err)
	}
	return answer
}

func (s *snapshot) query(doing, statement string, row func(Row) error, args ...any) error {
	if s.failure == nil {
		s.failure = failed(doing, s.conn.Query(statement, row, args...))
	}
	return s.failure
}

// AuthorityRow implements query.Snapshot. The row holds what a decision needs.
func (s *snapshot) AuthorityRow(key authority.Key) (*authority.Row, error) {
	var row *authority.Row
	asked := s.store.asked()
	err := s.query("read an authority row", s.store.vouchedDecision, func(r Row) error {
		s.epoch, s.vouch = uint64(r.Int(0)), scanVouch(r, 1, asked)
		if r.Null(1 + vouchWidth) {
			return nil
		}
		row = &authority.Row{Key: key}
		s.compare(row, r, 1+vouchWidth+decisionWidth, asked)
		return scanDecision(r, 1+vouchWidth, s.epoch, row)
	}, key.InstallationID, key.WorkspaceID)
	if err == nil && s.epoch == 0 {
		s.failure = failed("read an authority row", errNoStoreRow)
	}
	return row, s.failure
}

// compare tells a row whether the lease extends to it.
func (s *snapshot) compare(row *authority.Row, r Row, at int, asked time.Time) {
	_, vouched := s.vouch.row(scanReading(r, at, asked), s.store.clock())
	row.Uncompared = !vouched
}

// Current implements query.Snapshot.
func (s *snapshot) Current() bool { return s.StoreEpoch() != 0 && s.vouch.at(s.store.clock()) }

// StoreEpoch implements query.Snapshot.
func (s *snapshot) StoreEpoch() uint64 {
	if s.epoch == 0 {
		// A failure is remembered as the read's.
		_, _ = s.AuthorityRow(authority.Key{})
	}
	return s.epoch
}

// Head implements query.Snapshot.
func (s *snapshot) Head(workspaceID string) (newest, oldest domain.Version, err error) {
	if s.workspace != workspaceID {
		s.workspace, s.newest, s.oldest = workspaceID, 0, 0
		err = s.query("read the head of the workspace", `SELECT version, oldest FROM heads WHERE workspace_id = $1`,
			func(r Row) error {
				s.newest, s.oldest = domain.Version(r.Int(0)), domain.Version(r.Int(1))
				return nil
			}, workspaceID)
	}
	return s.newest, s.oldest, err
}

// AuthorityRows implements query.ContextSnapshot. The rows hold what a
// decision needs.
func (s *snapshot) AuthorityRows(installationID string) ([]authority.Row, error) {
	if s.StoreEpoch() == 0 {
		return nil, s.failure
	}
	var rows []authority.Row
	asked := s.store.asked()
	err := s.query("list the authority rows", s.store.decisions, func(r Row) error {
		row := authority.Row{Key: authority.Key{InstallationID: installationID, WorkspaceID: r.Text(decisionWidth + readingWidth)}}
		s.compare(&row, r, decisionWidth, asked)
		if err := scanDecision(r, 0, s.epoch, &row); err != nil {
			return err
		}
		rows = append(rows, row)
		return nil
	}, installationID)
	return rows, err
}

// ContextRevision implements query.ContextSnapshot. It is a sum over the rows,
// which are never deleted: no counter that fences of different workspaces
// would wait for.
func (s *snapshot) ContextRevision(installationID string) (revision uint64, err error) {
	err = s.query("read the context revision",
		`SELECT CAST(COALESCE(sum(changes), 0) AS bigint) FROM authority WHERE installation_id = $1`,
		func(r Row) error { revision = uint64(r.Int(0)); return nil }, installationID)
	return revision, err
}

// listAsOf merges the current rows and the closed versions of a list by key,
// as of a version. At most one version of a key is valid at a time, so a key
// is in one of the two only. As of the newest version, no closed one is.
func listAsOf[T any](s *snapshot, workspaceID string, asOf domain.Version, limit int, current, closed string, scan func(Row) (T, error), key func(T) string, args ...any) ([]T, error) {
	var lists [2][]T
	collect := func(into *[]T) func(Row) error {
		return func(r Row) error {
			item, err := scan(r)
			*into = append(*into, item)
			return err
		}
	}
	newest, _, err := s.Head(workspaceID)
	if err != nil {
		return nil, err
	}
	if err := s.query("list", current, collect(&lists[0]), args...); err != nil || asOf >= newest {
		return lists[0], err
	}
	if err := s.query("list closed versions", closed, collect(&lists[1]), args...); err != nil {
		return nil, err
	}
	if len(lists[1]) == 0 {
		return lists[0], nil
	}
	merged := make([]T, 0, min(limit, len(lists[0])+len(lists[1])))
	for len(merged) < limit && len(lists[0])+len(lists[1]) > 0 {
		next := &lists[0]
		if len(lists[0]) == 0 || (len(lists[1]) > 0 && key(lists[1][0]) < key(lists[0][0])) {
			next = &lists[1]
		}
		merged = append(merged, (*next)[0])
		*next = (*next)[1:]
	}
	return merged, nil
}
