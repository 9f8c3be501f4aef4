package legacy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

// TaskView is a task as v1 shows it, with what its dependencies make of it.
type TaskView struct {
	domain.Task

	StoreEpoch              uint64
	Blocked                 domain.BlockedReason
	DependsOn, Blocks       []DependencyRef
	DependsOnCut, BlocksCut bool
}

// DependencyRef is the other end of a dependency.
type DependencyRef struct {
	ID, Title string
	State     domain.TaskState
	// Status is how it stands for the task that waits for it, "" for one that waits.
	Status domain.DependencyStatus
}

// The bounds of what is shown of dependencies.
const (
	// maxDependencyRefs is how many a task shows in each direction.
	maxDependencyRefs = 50
	// maxDependencyEdges is how many the tasks of one answer may have together.
	maxDependencyEdges = 10_000
)

// view shows one task that was just written. That was done, whatever becomes of this
// read: where it can't be told what the task depends on, that is unknown.
func (h *Host) view(ctx context.Context, caller Caller, written TaskView) TaskView {
	var shown []TaskView
	err := h.Store.Read(ctx, func(s Snapshot) (err error) {
		shown, err = views(s, caller, []domain.Task{written.Task})
		return err
	})
	if err != nil {
		return written.unknown()
	}
	return shown[0]
}

// unknown is the view of a task of which isn't known what it depends on.
func (v TaskView) unknown() TaskView {
	v.Blocked, v.StartWhenUnblocked = domain.BlockedUnknown, false
	return v
}

// views shows tasks. To who may not read tasks, whatever they depend on is unknown.
func views(s Snapshot, caller Caller, tasks []domain.Task) ([]TaskView, error) {
	shown := make([]TaskView, len(tasks))
	ids := map[string][]string{}
	for i, t := range tasks {
		shown[i] = TaskView{Task: t, StoreEpoch: s.StoreEpoch()}
		ids[t.WorkspaceID] = append(ids[t.WorkspaceID], t.ID)
	}
	if !caller.Declared.Has(contract.LegacyReadTasks) {
		for i := range shown {
			shown[i] = shown[i].unknown()
		}
		return shown, nil
	}
	edges, left := map[string]graph{}, maxDependencyEdges
	for workspaceID, of := range ids {
		g, err := graphOf(s, workspaceID, of, &left)
		if err != nil {
			return nil, err
		}
		edges[workspaceID] = g
	}
	for i := range shown {
		edges[shown[i].WorkspaceID].show(&shown[i])
	}
	return shown, nil
}

// graph is what the tasks of a workspace wait for and who waits for them.
type graph struct {
	ends           map[string]domain.Task
	before, behind map[string][]string
}

func graphOf(s Snapshot, workspaceID string, ids []string, left *int) (graph, error) {
	newest, _, err := s.Head(workspaceID)
	if err != nil {
		return graph{}, fmt.Errorf("read the head of the workspace: %w", err)
	}
	edges, err := s.RelationsOf(workspaceID, ids, newest)
	if err != nil {
		return graph{}, fmt.Errorf("read the dependencies: %w", err)
	}
	g := graph{map[string]domain.Task{}, map[string][]string{}, map[string][]string{}}
	var ends []string
	for _, e := range edges {
		if e.Kind != domain.RelationDependency {
			continue
		}
		*left--
		if *left < 0 {
			return graph{}, fail(ResourceExhausted, "task dependencies exceed the bound of %d edges", maxDependencyEdges)
		}
		g.before[e.TargetTaskID] = append(g.before[e.TargetTaskID], e.SourceTaskID)
		g.behind[e.SourceTaskID] = append(g.behind[e.SourceTaskID], e.TargetTaskID)
		ends = append(ends, e.SourceTaskID, e.TargetTaskID)
	}
	slices.Sort(ends)
	tasks, err := s.TasksOf(workspaceID, slices.Compact(ends))
	if err != nil {
		return graph{}, fmt.Errorf("read the tasks that others depend on: %w", err)
	}
	for _, t := range tasks {
		g.ends[t.ID] = t
	}
	return g, nil
}

// show fills in what a task waits for. An edge to a task that isn't there is none.
func (g graph) show(view *TaskView) {
	before, behind := g.tasks(g.before[view.ID]), g.tasks(g.behind[view.ID])
	view.Blocked = domain.BlockedBy(before)
	view.DependsOn, view.DependsOnCut = refs(before, true)
	view.Blocks, view.BlocksCut = refs(behind, false)
}

func (g graph) tasks(ids []string) (tasks []domain.Task) {
	for _, id := range ids {
		if t, there := g.ends[id]; there {
			tasks = append(tasks, t)
		}
	}
	slices.SortFunc(tasks, func(a, b domain.Task) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return tasks
}

// sizeOfView is a task's Size with what the task depends on.
func sizeOfView(v *TaskView) int {
	const others = 128
	n := v.Size()
	for _, list := range [][]DependencyRef{v.DependsOn, v.Blocks} {
		for _, ref := range list {
			n += others + len(ref.Title)
		}
	}
	return n
}

func refs(tasks []domain.Task, status bool) (shown []DependencyRef, cutOff bool) {
	for _, t := range tasks[:min(len(tasks), maxDependencyRefs)] {
		ref := DependencyRef{ID: t.ID, Title: t.Title, State: t.State}
		if len(t.Title) > contract.MaxTitleBytes {
			ref.Title = "" // a long one would be shown with each task that has to do with this
		}
		if status {
			ref.Status = t.DependencyStatus()
		}
		shown = append(shown, ref)
	}
	return shown, len(tasks) > maxDependencyRefs
}
