package legacy

import (
	"context"
	"fmt"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

// SessionSnapshot is what v1 reads of sessions, in all workspaces.
type SessionSnapshot interface {
	// AllSessions lists at most limit sessions behind the first offset ones, the
	// newest start first and then by ID.
	AllSessions(filter SessionFilter, offset, limit int) ([]domain.Session, error)
	// SessionsByID finds the sessions of an ID: one at most in each workspace.
	SessionsByID(id string) ([]domain.Session, error)
	// SessionsOfTask finds the sessions of a task, in the order of AllSessions.
	SessionsOfTask(taskID string) ([]domain.Session, error)
	// CodeStatsOf reads the counts of sessions, in their order; of one that has none,
	// all are zero.
	CodeStatsOf(sessions []domain.Session) ([]domain.CodeStats, error)
}

// SessionFilter narrows a list of sessions: values of one field are alternatives,
// and every field that has any must match.
type SessionFilter struct {
	TaskIDs      []string
	WorkspaceIDs []string
	States       []string
}

// maxSessionValues bounds a session filter's values. The shipped Host has no bound;
// this one keeps a filter within what a database takes.
const maxSessionValues = 10_000

// ListSessions lists the sessions of the instance, those of archived and ephemeral
// tasks included.
func (h *Host) ListSessions(ctx context.Context, _ Caller, filter SessionFilter, page Page) (sessions []domain.Session, info PageInfo, err error) {
	err = h.Store.Read(ctx, func(s Snapshot) error {
		sessions, info, err = sessionPage(s, filter, page)
		return err
	})
	if err != nil {
		return nil, PageInfo{}, fmt.Errorf("list sessions: %w", err)
	}
	return sessions, info, nil
}

func sessionPage(s Snapshot, filter SessionFilter, page Page) ([]domain.Session, PageInfo, error) {
	if n := len(filter.TaskIDs) + len(filter.WorkspaceIDs) + len(filter.States); n > maxSessionValues {
		return nil, PageInfo{}, fail(InvalidArgument, "session filter has %d task/workspace/state values, max %d", n, maxSessionValues)
	}
	w := page.window()
	return paged(w, sizeOfSession, func(offset, limit int) ([]domain.Session, error) {
		return s.AllSessions(filter, offset, limit)
	})
}

// sizeOfSession counts what an agent and its profile say of themselves.
func sizeOfSession(s *domain.Session) int {
	return contract.MaxIdentifierBytes + len(s.AgentDisplayName()) + len(s.AgentProfileName()) + len(s.Model()) + len(s.ACPSessionID())
}
