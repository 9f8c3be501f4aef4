package board

import (
	"fmt"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// The outbox events of tasks that wait for others (domain facts, section 9).
const (
	// EventDependenciesResolved: the last task that a task waited for has resolved.
	EventDependenciesResolved = "task.dependencies_resolved"
	// EventDependencyFailed: a task that a task waits for has failed.
	EventDependencyFailed = "task.dependency_failed"
)

// Settled tells those that wait for a task what has become of it, once the command
// that changed it has appended its entry: each is a commit of the Host's own behind
// the command's. It starts nothing.
func Settled(tx Tx, before, after domain.Task, by Mover) error {
	status := after.DependencyStatus()
	if status == before.DependencyStatus() || status == domain.DependencyPending {
		return nil
	}
	waiting, err := tx.Dependents(after.ID)
	if err != nil {
		return fmt.Errorf("list who waits for task %s: %w", after.ID, err)
	}
	if len(waiting) == 0 {
		return nil
	}
	event := EventDependencyFailed
	if status == domain.DependencyResolved {
		event = EventDependenciesResolved
		if waiting, err = released(tx, waiting); err != nil {
			return err
		}
	}
	for i := range waiting {
		task := &waiting[i]
		if err := tx.FollowUp(); err != nil {
			return err
		}
		err := tell(tx, by, journal.Entry{
			WorkspaceID: task.WorkspaceID, TargetID: task.ID, After: domain.ResourceVersion(tx.StoreEpoch(), task.Version), EventType: event,
		}, domain.NewDependencyPayload(task, &after))
		if err != nil {
			return err
		}
	}
	return nil
}

// released are those of tasks that nothing blocks any more.
func released(tx Tx, tasks []domain.Task) (free []domain.Task, err error) {
	ids := make([]string, len(tasks))
	for i := range tasks {
		ids[i] = tasks[i].ID
	}
	predecessors, err := tx.Predecessors(ids)
	if err != nil {
		return nil, fmt.Errorf("read what %d tasks wait for: %w", len(tasks), err)
	}
	for _, t := range tasks {
		if domain.BlockedBy(predecessors[t.ID]) == domain.BlockedNot {
			free = append(free, t)
		}
	}
	return free, nil
}
