package domain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// RelationKind is what an edge between two tasks means.
type RelationKind string

// The relation kinds.
const (
	// RelationParent: the target is part of the source.
	RelationParent RelationKind = "parent"
	// RelationDependency: the target waits until the source is resolved.
	RelationDependency RelationKind = "dependency"
)

// TaskRelation is an edge between two tasks of one workspace. Kind, source and
// target name it.
type TaskRelation struct {
	WorkspaceID  string
	Kind         RelationKind
	SourceTaskID string
	TargetTaskID string
	CreatedAt    time.Time
	Version      Version
}

// Known tells whether it is a relation kind at all.
func (k RelationKind) Known() bool { return k == RelationParent || k == RelationDependency }

// RelationsOf returns the relations that have one of the tasks as source or as
// target.
type RelationsOf func(taskIDs []string) ([]TaskRelation, error)

// MaxRelationSearch is the most tasks that a search for a cycle looks at.
const MaxRelationSearch = 1000

// ErrRelationSearch tells that more tasks are related than a search may look at.
var ErrRelationSearch = errors.New("too many related tasks")

// CycleError tells that a new relation would close a cycle.
type CycleError struct {
	Kind RelationKind
	// Path is the cycle in task IDs, each followed by the task that it waits
	// for or is part of. It begins and ends with the new relation's target.
	Path []string
}

func (e *CycleError) Error() string {
	return fmt.Sprintf("%s cycle: %s", e.Kind, strings.Join(e.Path, " -> "))
}

// CheckNewRelation refuses a relation that misses an end, leaves the workspace,
// or closes a cycle among the relations of its kind. An error is a *RuleError, a
// *CycleError, ErrRelationSearch when the search would look at more than
// MaxRelationSearch tasks, or what relations failed with.
func CheckNewRelation(kind RelationKind, source, target Task, relations RelationsOf) error {
	switch {
	case source.ID == "" || target.ID == "":
		if kind == RelationDependency {
			return &RuleError{FaultInvalid, "both task_id and depends_on_task_id are required"}
		}
		return &RuleError{FaultInvalid, "both task_id and parent_id are required"}
	case source.ID == target.ID:
		if kind == RelationDependency {
			return &RuleError{FaultInvalid, "a task cannot depend on itself"}
		}
		return &RuleError{FaultInvalid, "a task cannot be its own parent"}
	case source.WorkspaceID != target.WorkspaceID:
		return &RuleError{FaultInvalid, fmt.Sprintf("task %s belongs to a different workspace", source.ID)}
	}
	// before leads from a task to the one through which the search came to it.
	before := map[string]string{source.ID: target.ID}
	for level := []string{source.ID}; len(level) > 0; {
		found, err := relations(level)
		if err != nil {
			return fmt.Errorf("read the relations of %d tasks: %w", len(level), err)
		}
		sortRelations(found)
		var next []string
		for _, r := range found {
			if r.Kind != kind || !slices.Contains(level, r.TargetTaskID) {
				continue
			}
			if r.SourceTaskID == target.ID {
				path := []string{target.ID}
				for at := r.TargetTaskID; at != target.ID; at = before[at] {
					path = append(path, at)
				}
				path = append(path, target.ID)
				slices.Reverse(path)
				return &CycleError{Kind: kind, Path: path}
			}
			if _, seen := before[r.SourceTaskID]; seen {
				continue
			}
			if len(before) == MaxRelationSearch {
				return fmt.Errorf("search for a cycle from task %s: %w", source.ID, ErrRelationSearch)
			}
			before[r.SourceTaskID] = r.TargetTaskID
			next = append(next, r.SourceTaskID)
		}
		level = next
	}
	return nil
}

// RelationClosure returns every relation of the task, and those that lead from it
// to its children and to its predecessors, to theirs, and so on: all that it
// consists of or waits for. They come once each, by kind, source and target. An
// error is ErrRelationSearch when that is more than limit tasks, or what
// relations failed with.
func RelationClosure(taskID string, limit int, relations RelationsOf) ([]TaskRelation, error) {
	type edge struct {
		kind           RelationKind
		source, target string
	}
	var closure []TaskRelation
	has := map[edge]bool{}
	seen := map[string]bool{taskID: true}
	for level := []string{taskID}; len(level) > 0; {
		found, err := relations(level)
		if err != nil {
			return nil, fmt.Errorf("read the relations of %d tasks: %w", len(level), err)
		}
		from := map[string]bool{}
		for _, id := range level {
			from[id] = true
		}
		var next []string
		for _, r := range found {
			there := ""
			switch {
			case r.Kind == RelationParent && from[r.SourceTaskID]:
				there = r.TargetTaskID
			case r.Kind == RelationDependency && from[r.TargetTaskID]:
				there = r.SourceTaskID
			case r.SourceTaskID != taskID && r.TargetTaskID != taskID:
				continue
			}
			if e := (edge{r.Kind, r.SourceTaskID, r.TargetTaskID}); !has[e] {
				has[e] = true
				closure = append(closure, r)
			}
			if there == "" || seen[there] {
				continue
			}
			if len(seen) == limit {
				return nil, fmt.Errorf("close over the relations of task %s: %w", taskID, ErrRelationSearch)
			}
			seen[there] = true
			next = append(next, there)
		}
		level = next
	}
	sortRelations(closure)
	return closure, nil
}

func sortRelations(relations []TaskRelation) {
	slices.SortFunc(relations, func(a, b TaskRelation) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.SourceTaskID, b.SourceTaskID), cmp.Compare(a.TargetTaskID, b.TargetTaskID))
	})
}

// DependencyStatus is how a task stands for those that wait for it.
type DependencyStatus string

// The dependency statuses.
const (
	DependencyPending  DependencyStatus = "pending"
	DependencyResolved DependencyStatus = "resolved"
	DependencyFailed   DependencyStatus = "failed"
)

// DependencyStatus is how the task stands for those that wait for it. A completed
// task that was archived resolves nothing.
func (t Task) DependencyStatus() DependencyStatus {
	switch {
	case t.State == TaskFailed || t.State == TaskCancelled:
		return DependencyFailed
	case t.State == TaskCompleted && t.ArchivedAt.IsZero():
		return DependencyResolved
	default:
		return DependencyPending
	}
}

// BlockedReason is why a task can't begin; "" is that it can.
type BlockedReason string

// The reasons. BlockedUnknown stands for predecessors that can't be read.
const (
	BlockedNot     BlockedReason = ""
	BlockedPending BlockedReason = "pending"
	BlockedFailed  BlockedReason = "failed"
	BlockedUnknown BlockedReason = "unknown"
)

// BlockedBy derives what its predecessors make of a task: those that may still
// resolve come before those that failed. Of a predecessor, only what
// DependencyStatus reads matters. Predecessors that are gone are left out by the
// caller.
func BlockedBy(predecessors []Task) BlockedReason {
	reason := BlockedNot
	for _, p := range predecessors {
		switch p.DependencyStatus() {
		case DependencyPending:
			return BlockedPending
		case DependencyFailed:
			reason = BlockedFailed
		case DependencyResolved:
		}
	}
	return reason
}
