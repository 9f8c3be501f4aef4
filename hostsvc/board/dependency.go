package board

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// The outbox events of tasks that wait for others (domain facts, section 9).
const (
	// EventDependenciesResolved: the last task that a task waited for has resolved, or
	// is gone.
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
		if err := tellWaiting(tx, &waiting[i], &after, event, by); err != nil {
			return err
		}
	}
	return nil
}

// Wait is a task that another one keeps waiting.
type Wait struct{ Task, For domain.Task }

// Waits lists whom a task keeps waiting, before it is deleted with its edges: nobody
// where it has resolved.
func Waits(tx Tx, task domain.Task) ([]Wait, error) {
	if task.DependencyStatus() == domain.DependencyResolved {
		return nil, nil
	}
	tasks, err := tx.Dependents(task.ID)
	if err != nil {
		return nil, fmt.Errorf("list who waits for task %s: %w", task.ID, err)
	}
	waits := make([]Wait, len(tasks))
	for i, t := range tasks {
		waits[i] = Wait{Task: t, For: task}
	}
	return waits, nil
}

// Released tells those that nothing blocks any more, now that what they waited for is
// gone, as Settled does: each once, of the last one that held it up. Who went with what
// it waited for is told nothing. No task of waits may have changed since they were
// listed.
func Released(tx Tx, waits []Wait, gone []string, by Mover) error {
	last := map[string]Wait{}
	for _, w := range waits {
		last[w.Task.ID] = w
	}
	for _, id := range gone {
		delete(last, id)
	}
	if len(last) == 0 {
		return nil
	}
	waiting := make([]domain.Task, 0, len(last))
	for _, w := range last {
		waiting = append(waiting, w.Task)
	}
	slices.SortFunc(waiting, func(a, b domain.Task) int { return strings.Compare(a.ID, b.ID) })
	free, err := released(tx, waiting)
	if err != nil {
		return err
	}
	for i := range free {
		predecessor := last[free[i].ID].For
		if err := tellWaiting(tx, &free[i], &predecessor, EventDependenciesResolved, by); err != nil {
			return err
		}
	}
	return nil
}

// tellWaiting tells a task of one that it waited for, in a commit of its own.
func tellWaiting(tx Tx, task, predecessor *domain.Task, event string, by Mover) error {
	if err := tx.FollowUp(); err != nil {
		return err
	}
	return tell(tx, by, journal.Entry{
		WorkspaceID: task.WorkspaceID, TargetID: task.ID, After: domain.ResourceVersion(tx.StoreEpoch(), task.Version), EventType: event,
	}, domain.NewDependencyPayload(task, predecessor))
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
