package legacy

import (
	"context"
	"fmt"
	"slices"

	"github.com/kandev/plugin-host/hostsvc/board"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

// The bounds of a tree that is shown or deleted at once. The shipped Host has none;
// these keep a workspace from waiting for one transaction, and this Host within its
// memory.
const (
	maxTree      = 2_000
	maxTreeBytes = 32 << 20
)

// PreviewPluginOwnedTaskTree lists what DeletePluginOwnedTaskTree would delete: each
// parent before its children.
func (h *Host) PreviewPluginOwnedTaskTree(ctx context.Context, caller Caller, rootID string) (tasks []TaskView, err error) {
	err = h.Store.Read(ctx, func(s Snapshot) error {
		root, err := findTask(s, rootID)
		if err != nil {
			return err
		}
		tree, err := ownedTree(root, caller, func(ids []string, limit, maxBytes int) ([]domain.Task, bool, error) {
			return s.ChildTasksOf(root.WorkspaceID, ids, limit, maxBytes)
		})
		if err != nil {
			return err
		}
		tasks, err = views(s, caller, tree.Tasks)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("preview the task tree: %w", ruled(err))
	}
	return tasks, nil
}

// ownedTree reads a tree level by level.
func ownedTree(root domain.Task, caller Caller, children func(ids []string, limit, maxBytes int) ([]domain.Task, bool, error)) (domain.OwnedTree, error) {
	owner := caller.owner()
	if !owner.Owns(root) {
		return domain.OwnedTreeOf(root, nil, owner) // nothing below is looked at
	}
	var below []domain.Task
	seen := map[string]bool{root.ID: true}
	bytes := root.Size()
	for level := []string{root.ID}; len(level) > 0; {
		found, complete, err := children(level, maxTree-1-len(below), maxTreeBytes-bytes)
		switch {
		case err != nil:
			return domain.OwnedTree{}, fmt.Errorf("read the children: %w", err)
		case !complete:
			return domain.OwnedTree{}, fail(ResourceExhausted, "the task tree has more than %d tasks or %d bytes", maxTree, maxTreeBytes)
		}
		level = nil
		for _, t := range found {
			if seen[t.ID] {
				continue
			}
			seen[t.ID] = true
			below = append(below, t)
			bytes += t.Size()
			if owner.Owns(t) {
				level = append(level, t.ID)
			}
		}
	}
	return domain.OwnedTreeOf(root, below, owner)
}

// DeletePluginOwnedTaskTree deletes a task that the plugin created with all that it
// created below it, leaves first, and everything that was said and asked there: all
// or nothing. A root that isn't there is deleted already.
func (h *Host) DeletePluginOwnedTaskTree(ctx context.Context, caller Caller, rootID string) ([]string, error) {
	var roots []domain.Task
	err := h.Store.Read(ctx, func(s Snapshot) (err error) {
		roots, err = s.TasksByID(rootID)
		return err
	})
	if err != nil || len(roots) == 0 {
		return nil, wrapped("find the task tree", err)
	}
	var deleted []string
	err = h.write(ctx, caller, roots[0].WorkspaceID, func(tx Tx) error {
		deleted = nil
		root, there, err := tx.Task(rootID)
		if err != nil || !there {
			return wrapped("read the root", err)
		}
		tree, err := ownedTree(root, caller, tx.ChildTasks)
		if err != nil {
			return err
		}
		tasks, err := tree.Deletion()
		if err != nil {
			return err
		}
		var freed []string
		var waits []board.Wait
		for i, task := range tasks {
			if i > 0 {
				if err := tx.FollowUp(); err != nil {
					return fmt.Errorf("go on to task %s: %w", task.ID, err)
				}
			}
			held, err := h.remove(tx, caller, task)
			if err != nil {
				return fmt.Errorf("delete task %s: %w", task.ID, err)
			}
			waits = append(waits, held...)
			deleted = append(deleted, task.ID)
			freed = append(freed, board.Freed(task, domain.Task{})...)
		}
		// Before tasks are promoted, which changes them.
		if err := board.Released(tx, waits, deleted, h.mover(caller)); err != nil {
			return fmt.Errorf("tell who waited: %w", err)
		}
		slices.Sort(freed)
		return board.Promote(tx, slices.Compact(freed), h.mover(caller))
	})
	if err != nil {
		return nil, fmt.Errorf("delete the task tree: %w", ruled(err))
	}
	return deleted, nil
}

func wrapped(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// remove deletes one task with all that belongs to it, and returns whom it kept
// waiting.
func (h *Host) remove(tx Tx, caller Caller, task domain.Task) (waits []board.Wait, err error) {
	if err := tx.DeleteSessions(task.ID); err != nil {
		return nil, fmt.Errorf("delete its sessions: %w", err)
	}
	edges, err := tx.Relations([]string{task.ID})
	if err != nil {
		return nil, fmt.Errorf("read its relations: %w", err)
	}
	edges = slices.DeleteFunc(edges, func(e domain.TaskRelation) bool { return e.Kind != domain.RelationDependency }) // the child's own
	if slices.ContainsFunc(edges, func(e domain.TaskRelation) bool { return e.SourceTaskID == task.ID }) {
		if waits, err = board.Waits(tx, task); err != nil {
			return nil, err
		}
	}
	for _, e := range edges {
		if err := tx.DeleteRelation(e); err != nil {
			return nil, fmt.Errorf("delete its relations: %w", err)
		}
	}
	if err := board.Gone(tx, task, h.mover(caller)); err != nil {
		return nil, err
	}
	if err := tx.DeleteTask(task); err != nil {
		return nil, fmt.Errorf("delete its row: %w", err)
	}
	gone := domain.Task{ID: task.ID, WorkspaceID: task.WorkspaceID}
	return waits, h.append(tx, caller, "DeletePluginOwnedTaskTree", task, gone, eventTaskDeleted, domain.NewTaskPayload(&task))
}
