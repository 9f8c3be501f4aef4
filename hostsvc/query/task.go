package query

import (
	"context"
	"fmt"
	"math"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

// TaskSnapshot is what task queries need of a snapshot.
type TaskSnapshot interface {
	// Task reads a task as it is. waits tells whether it has predecessors at all: most
	// have none, and a read of one task need not ask for them.
	Task(workspaceID, id string) (task domain.Task, waits, found bool, err error)
	// Tasks lists at most limit tasks with an ID above after, in the order of
	// their IDs, as they were at version asOf.
	Tasks(workspaceID string, filter TaskFilter, asOf domain.Version, after string, limit int) ([]domain.Task, error)
	// Predecessors returns what each of the tasks waits for, by the task's ID, as it
	// was at version asOf, or as it is at Latest: of each predecessor that is there,
	// State and whether ArchivedAt is zero, alike ones once. It is one statement for
	// a page of tasks.
	Predecessors(workspaceID string, taskIDs []string, asOf domain.Version) (map[string][]domain.Task, error)
}

// Latest is behind every version: the world as it is.
const Latest = domain.Version(math.MaxInt64)

// Task is a task with what its predecessors made of it in the same snapshot. That
// changes without a new version of the task.
type Task struct {
	domain.Task

	Blocked domain.BlockedReason
}

// TaskFilter narrows a list of tasks. Every given part must match; an empty
// part matches everything. Tasks of the config mode are in no list.
type TaskFilter struct {
	WorkflowIDs []string
	States      []string
	// Parent selects the children of one task; a pointer to "" selects tasks
	// without a parent.
	Parent           *string
	IncludeEphemeral bool
	IncludeArchived  bool
}

// Check returns the first fault of the filter.
func (f TaskFilter) Check() *admission.Refusal {
	if n := len(f.WorkflowIDs) + len(f.States); n > contract.MaxFilterValues {
		return admission.RefuseField(&contract.FieldError{
			Field: "filter", Reason: contract.ReasonMalformedPrecondition,
			Detail: fmt.Sprintf("has %d values, at most %d are allowed", n, contract.MaxFilterValues),
		})
	}
	for _, list := range []struct {
		field  string
		values []string
	}{{"filter.workflow_ids", f.WorkflowIDs}, {"filter.states", f.States}} {
		for i, value := range list.values {
			if fault := contract.CheckIdentifier(fmt.Sprintf("%s[%d]", list.field, i), value); fault != nil {
				return admission.RefuseField(fault)
			}
		}
	}
	for i, state := range f.States {
		// A list of nothing would read as "there is none".
		if !domain.TaskState(state).Known() {
			return malformedPage(fmt.Sprintf("filter.states[%d]", i), "is no state of a task")
		}
	}
	if f.Parent != nil && *f.Parent != "" {
		if fault := contract.CheckIdentifier("filter.parent_id", *f.Parent); fault != nil {
			return admission.RefuseField(fault)
		}
	}
	return nil
}

// Task reads one task of a workspace (GetTaskExact), nil where it is refused. It is
// passed on by its pointer: each copy of a task makes the stack of every call larger.
func (r *Reader) Task(ctx context.Context, installationID string, m admission.Method, env admission.Envelope, taskID string) (*Task, Receipt, *admission.Refusal) {
	digest, check := targetDigest("task_id", taskID)
	return read(ctx, r, installationID, m, env, check, digest, func(s Snapshot, _ *authority.Row) (*Task, domain.Version, error) {
		task, waits, found, err := s.Task(env.WorkspaceID, taskID)
		if err != nil {
			return nil, 0, fmt.Errorf("read the task: %w", err)
		}
		if !found {
			return nil, 0, notHere("task_id")
		}
		one := []Task{{Task: task, Blocked: domain.BlockedNot}}
		if waits {
			err = deriveBlocked(s, env.WorkspaceID, Latest, one)
		}
		return &one[0], task.Version, err
	})
}

// Tasks lists the tasks of a workspace, snapshot-bound (ListTasksExact).
func (r *Reader) Tasks(ctx context.Context, installationID string, m admission.Method, env admission.Envelope, filter TaskFilter, page Page) (List[Task], Receipt, *admission.Refusal) {
	return list(ctx, r, installationID, m, env, page, filter, filter.Check(), tasks,
		func(s Snapshot, asOf domain.Version, after string, limit int) ([]Task, error) {
			found, err := s.Tasks(env.WorkspaceID, filter, asOf, after, limit)
			items := make([]Task, len(found))
			for i, t := range found {
				items[i].Task = t
			}
			return items, err
		})
}

// deriveBlocked fills in what the predecessors of tasks make of them (domain facts,
// section 9).
func deriveBlocked(s Snapshot, workspaceID string, asOf domain.Version, tasks []Task) error {
	if len(tasks) == 0 {
		return nil
	}
	ids := make([]string, len(tasks))
	for i := range tasks {
		ids[i] = tasks[i].ID
	}
	predecessors, err := s.Predecessors(workspaceID, ids, asOf)
	if err != nil {
		return fmt.Errorf("read what the tasks wait for: %w", err)
	}
	for i := range tasks {
		tasks[i].Blocked = domain.BlockedBy(predecessors[tasks[i].ID])
	}
	return nil
}

var tasks = kind[Task]{
	key:      func(t Task) string { return t.ID },
	complete: deriveBlocked,
	size:     func(t Task) int { return t.Size() },
}

// targetDigest is the digest of a read of one target, so that the audit says
// what was read.
func targetDigest(field, id string) (string, *admission.Refusal) {
	if fault := contract.CheckIdentifier(field, id); fault != nil {
		return "", admission.RefuseField(fault)
	}
	digest, err := contract.CanonicalDigestOfText(field, id)
	if err != nil {
		return "", malformedPage(field, "has no canonical form")
	}
	return digest.String(), nil
}
