package query

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

// SessionSnapshot is what session queries need of a snapshot.
type SessionSnapshot interface {
	// Sessions lists at most limit sessions of a workspace with a key above after,
	// in the order of SessionKey, as they were at version asOf.
	Sessions(workspaceID string, filter SessionFilter, asOf domain.Version, after string, limit int) ([]domain.Session, error)
	// MissingSession and MissingTask return the index of the first ID that the
	// workspace has no such row of now, -1 for none.
	MissingSession(workspaceID string, ids []string) (int, error)
	MissingTask(workspaceID string, ids []string) (int, error)
}

// SessionFilter narrows a list of sessions. Every given part must match; an empty
// part matches everything.
type SessionFilter struct {
	TaskIDs []string
	States  []string
}

// Check returns the first fault of the filter.
func (f SessionFilter) Check() *admission.Refusal {
	if refusal := checkValues(
		filterValues{"filter.task_ids", f.TaskIDs}, filterValues{"filter.states", f.States},
	); refusal != nil {
		return refusal
	}
	for i, state := range f.States {
		// A list of nothing would read as "there is none".
		if !domain.SessionState(state).Known() {
			return malformedPage(fmt.Sprintf("filter.states[%d]", i), "is no state of a session")
		}
	}
	return nil
}

// Sessions lists the sessions of a workspace, snapshot-bound, the newest start
// first and then by ID (ListSessionsExact).
func (r *Reader) Sessions(ctx context.Context, installationID string, m admission.Method, env admission.Envelope, filter SessionFilter, page Page) (List[domain.Session], Receipt, *admission.Refusal) {
	return list(ctx, r, installationID, m, env, page, filter, filter.Check(), sessions,
		func(s Snapshot, asOf domain.Version, after string, limit int) ([]domain.Session, error) {
			if err := requireWithin(s, env.WorkspaceID, after, nil, filter.TaskIDs); err != nil {
				return nil, err
			}
			return s.Sessions(env.WorkspaceID, filter, asOf, after, limit)
		})
}

var sessions = kind[domain.Session]{
	key: SessionKey,
	size: func(s domain.Session) int {
		return len(s.ID) + len(s.TaskID) + len(s.AgentProfileID) + len(s.AgentDisplayName()) + len(s.AgentProfileName()) +
			len(s.Model()) + len(s.ACPSessionID()) + len(s.ExecutionID)
	},
}

// SessionKey orders sessions from the newest start to the oldest and then by ID,
// as a text that sorts the same. One that has not started comes last.
func SessionKey(s domain.Session) string {
	return fmt.Sprintf("%016x/%s", ^instantBits(s.StartedAt), s.ID)
}

// InstantKey is an instant as a text that sorts in the order of time: what every
// key of a list by time begins with. No instant comes first; what lies beyond the
// years 1678 to 2262 stands at their end.
func InstantKey(t time.Time) string { return fmt.Sprintf("%016x", instantBits(t)) }

func instantBits(t time.Time) uint64 {
	const bias = 1 << 63 // preserves the order
	switch {
	case t.IsZero(), t.Before(time.Unix(0, math.MinInt64)):
		return 0
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxUint64
	default:
		return uint64(t.UnixNano()) ^ bias
	}
}

// filterValues are the values of one field of a filter.
type filterValues struct {
	field  string
	values []string
}

// checkValues returns the first fault of a filter's values: too many, or one that
// is no identifier.
func checkValues(lists ...filterValues) *admission.Refusal {
	n := 0
	for _, list := range lists {
		n += len(list.values)
	}
	if n > contract.MaxFilterValues {
		return malformedPage("filter", fmt.Sprintf("has %d values, at most %d are allowed", n, contract.MaxFilterValues))
	}
	for _, list := range lists {
		for i, value := range list.values {
			if fault := contract.CheckIdentifier(fmt.Sprintf("%s[%d]", list.field, i), value); fault != nil {
				return admission.RefuseField(fault)
			}
		}
	}
	return nil
}

// What is said of a filter that names something which the workspace doesn't have.
const (
	TaskOutside    = "contains a task outside the workspace"
	SessionOutside = "contains a session outside the workspace"
)

// requireWithin refuses a filter that names what the workspace doesn't have: such a
// list would read as "there is none". What another workspace has is answered like
// what nobody has. It is asked once, before the first page: a cursor proves that it
// was.
func requireWithin(s Snapshot, workspaceID, after string, sessionIDs, taskIDs []string) error {
	if after != "" {
		return nil
	}
	for _, part := range []struct {
		field, outside string
		ids            []string
		missing        func(workspaceID string, ids []string) (int, error)
	}{
		{"filter.session_ids", SessionOutside, sessionIDs, s.MissingSession},
		{"filter.task_ids", TaskOutside, taskIDs, s.MissingTask},
	} {
		if len(part.ids) == 0 {
			continue
		}
		at, err := part.missing(workspaceID, part.ids)
		if err != nil {
			return fmt.Errorf("look for the values of %s: %w", part.field, err)
		}
		if at >= 0 {
			return malformedPage(fmt.Sprintf("%s[%d]", part.field, at), part.outside)
		}
	}
	return nil
}

// requireTarget refuses a list of one target that the workspace doesn't have.
func requireTarget(field, workspaceID, id string, missing func(workspaceID string, ids []string) (int, error)) error {
	if id == "" {
		return nil
	}
	at, err := missing(workspaceID, []string{id})
	if err != nil {
		return fmt.Errorf("look for the target: %w", err)
	}
	if at >= 0 {
		return notHere(field)
	}
	return nil
}
