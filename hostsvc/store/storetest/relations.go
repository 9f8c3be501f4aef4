package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/store"
)

func at(seconds int) time.Time { return time.Date(2026, 2, 1, 0, 0, seconds, 7, time.UTC) }

// fullTask has a value in every field.
func fullTask(workspace string) domain.Task {
	return domain.Task{
		ID: "full", WorkspaceID: workspace, WorkflowID: "flow-1", WorkflowStepID: step, Position: 3, Title: "T", Description: "D",
		State: domain.TaskReview, Priority: domain.PriorityHigh, ParentID: taskID(0), Labels: []string{"l"}, ExternalID: "e",
		Source: "plugin:p", CreatorInstallationID: installation, Identifier: "K-1", Origin: "user", Ephemeral: true, ConfigMode: true, Autopilot: true, ProjectID: "proj",
		AssigneeUserID: "u", AssigneeAgentProfileID: "a", StartWhenUnblocked: true,
		Repositories: []domain.TaskRepository{{ID: "tr", RepositoryID: "r", BaseBranch: "main", CheckoutBranch: "b", Position: 1}},
		PullRequests: []domain.TaskPullRequest{{
			Number: 7, URL: "u", Title: "t", State: "open", HeadBranch: "h", BaseBranch: "b", Draft: true, Provider: "github",
			ReviewState: "approved", ChecksState: "success", MergeableState: "clean", UnresolvedReviewThreads: 1, ChecksTotal: 2,
			ChecksPassing: 3, Additions: 4, Deletions: 5, AuthorLogin: "ann", MergedAt: at(1), ClosedAt: at(2),
		}},
		Metadata:    domain.Object{"plugin:p": map[string]any{"k": []any{"v", 1.5, true, nil}}},
		WIPAdmitted: true, QueuedForStepID: "other", QueuedAt: at(3), CreatedAt: at(4), UpdatedAt: at(5), StartedAt: at(6),
		CompletedAt: at(7), ArchivedAt: at(8),
	}
}

// filled fails where a field of a value is not set: a field that a test forgets is
// one that the store may lose.
func filled(t testing.TB, value any, but ...string) {
	t.Helper()
	v := reflect.ValueOf(value)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() && name != "Version" && name != "WorkspaceID" && !slices.Contains(but, name) {
			t.Errorf("the test sets no %T.%s", value, name)
		}
	}
}

func testRowsKeepEveryField(t *testing.T, d Database) {
	w := open(t, d)
	workspace := domain.Workspace{
		ID: "w", Name: "n", Description: "d", OwnerID: "o", DefaultExecutorID: "e", DefaultAgentProfileID: "a", SortOrder: 4,
		CreatedAt: at(1), UpdatedAt: at(2),
	}
	workflow := domain.Workflow{
		ID: "flow-1", Name: "n", Description: "d", SortOrder: 3, Hidden: true, Prompt: "p", AgentProfileID: "a",
		CreatedAt: at(1), UpdatedAt: at(2),
	}
	column := domain.WorkflowStep{
		ID: step, WorkflowID: "flow-1", Name: "n", Position: 2, StageType: "work", Color: "c", Start: true, WIPLimit: 5,
		PullFromStepID: "from", Prompt: "p", AgentProfileID: "a", OnEnterActionTypes: []string{"auto_start_agent", "queue_run"},
		AllowManualMove: true, ShowInCommandPanel: true, AutoArchiveAfterHours: 6, AutoAdvanceRequiresSignal: true,
		CancelTriggersTurnComplete: true,
	}
	task := fullTask("w")
	pending := domain.PendingTransition{
		ID: "move", TaskID: "full", SessionID: "s", FromWorkflowID: "flow-1", FromStepID: step, ToWorkflowID: "flow-2",
		ToStepID: "to", Position: 1, Predicate: domain.PredicateTurnEnd, Actor: domain.ActorAgent, Requester: "plugin:p",
		SenderSessionID: "s2", QueuedAt: at(1), ExpiresAt: at(2),
	}
	relation := domain.TaskRelation{
		Kind: domain.RelationDependency, SourceTaskID: taskID(0), TargetTaskID: "full", CreatedAt: at(1),
	}
	for _, value := range []any{workspace, workflow, column, task, task.Repositories[0], task.PullRequests[0], pending, relation} {
		filled(t, value)
	}
	w.must(w.Seed(t.Context(), "w", func(tx store.SeedTx) error {
		return errors.Join(tx.Workspace(workspace), tx.Workflow(workflow), tx.WorkflowStep(column), tx.Task(task),
			tx.PendingTransition(pending), tx.Relation(relation))
	}))
	check := func(when string, asOf domain.Version) {
		t.Helper()
		w.must(w.Read(t.Context(), func(s query.Snapshot) error {
			gotWorkspace, _, err := s.Workspace("w", asOf)
			flows, err2 := s.Workflows("w", asOf, "", 9)
			steps, err3 := s.WorkflowSteps("w", "flow-1", asOf, "", 9)
			moves, err4 := s.PendingTransitions("w", "", asOf, "", 9)
			edges, err5 := s.Relations("w", asOf, "", 9)
			want := relation
			want.WorkspaceID, want.Version = "w", 1
			wantPending := pending
			wantPending.WorkspaceID, wantPending.Version = "w", 1
			wantWorkspace, wantFlow, wantStep := workspace, workflow, column
			wantWorkspace.Version, wantFlow.Version, wantStep.Version = 1, 1, 1
			wantFlow.WorkspaceID, wantStep.WorkspaceID = "w", "w"
			for _, c := range []struct{ got, want any }{
				{gotWorkspace, wantWorkspace}, {flows, []domain.Workflow{wantFlow}}, {steps, []domain.WorkflowStep{wantStep}},
				{moves, []domain.PendingTransition{wantPending}}, {edges[:1], []domain.TaskRelation{want}},
			} {
				if !reflect.DeepEqual(c.got, c.want) {
					t.Errorf("%s:\n%+v, want\n%+v", when, c.got, c.want)
				}
			}
			return errors.Join(err, err2, err3, err4, err5)
		}))
	}
	check("as written", 1)
	wantTask := task
	wantTask.Version = 1
	if got, _ := w.readTask("w", "full"); !reflect.DeepEqual(got, wantTask) {
		t.Errorf("the task is\n%+v, want\n%+v", got, wantTask)
	}
	// What only the content statement writes keeps the rest.
	w.must(w.Write(t.Context(), "w", func(tx command.Tx) error {
		got, _, err := tx.Task("full")
		got.Title, got.Metadata, got.Version = "other", domain.Object{"a": "b"}, tx.Version()
		moves, err2 := tx.PendingTransitions("full")
		return errors.Join(err, err2, tx.UpdateTask(got), tx.DeletePendingTransition(moves[0]), tx.DeleteRelation(relation2(relation)),
			tx.Append(entry("w", "k", "full")))
	}))
	wantTask.Title, wantTask.Metadata, wantTask.Version = "other", domain.Object{"a": "b"}, 2
	if got, _ := w.readTask("w", "full"); !reflect.DeepEqual(got, wantTask) {
		t.Errorf("the updated task is\n%+v, want\n%+v", got, wantTask)
	}
	check("the closed versions", 1)
	w.must(w.Read(t.Context(), func(s query.Snapshot) error {
		moves, err := s.PendingTransitions("w", "", 2, "", 9)
		edges, err2 := s.Relations("w", 2, "", 9)
		if len(moves) != 0 || len(edges) != 1 || edges[0].Kind != domain.RelationParent || edges[0].Version != 2 {
			t.Errorf("left are %+v and %+v", moves, edges)
		}
		return errors.Join(err, err2)
	}))
}

func relation2(r domain.TaskRelation) domain.TaskRelation { r.WorkspaceID = "w"; return r }

// graphWorld is the edges and tasks of a workspace at one version.
type graphWorld struct {
	tasks map[string]domain.Task
	edges map[string]domain.TaskRelation
}

func (g graphWorld) all() []domain.TaskRelation {
	var out []domain.TaskRelation
	for _, e := range g.edges {
		out = append(out, e)
	}
	for _, task := range g.tasks {
		if task.ParentID != "" {
			out = append(out, domain.TaskRelation{
				WorkspaceID: task.WorkspaceID, Kind: domain.RelationParent, SourceTaskID: task.ParentID, TargetTaskID: task.ID,
				CreatedAt: task.CreatedAt, Version: task.Version,
			})
		}
	}
	slices.SortFunc(out, func(a, b domain.TaskRelation) int {
		return strings.Compare(query.RelationOrder(a), query.RelationOrder(b))
	})
	return out
}

// blocked is what the predecessors that are there make of a task.
func (g graphWorld) blocked(id string) domain.BlockedReason {
	var before []domain.Task
	for _, e := range g.edges {
		if source, there := g.tasks[e.SourceTaskID]; there && e.TargetTaskID == id {
			before = append(before, source)
		}
	}
	return domain.BlockedBy(before)
}

func (g graphWorld) clone() graphWorld {
	next := graphWorld{map[string]domain.Task{}, map[string]domain.TaskRelation{}}
	for id, task := range g.tasks {
		next.tasks[id] = task
	}
	for id, e := range g.edges {
		next.edges[id] = e
	}
	return next
}

// I10: the edges of every version are those that a model holds.
func testRelations(t *testing.T, d Database) {
	w := open(t, d)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		workspace := fmt.Sprintf("w%d", round)
		worlds := map[domain.Version]graphWorld{0: {map[string]domain.Task{}, map[string]domain.TaskRelation{}}}
		var newest domain.Version
		id := func(rt *rapid.T, label string) string { return taskID(rapid.IntRange(0, 5).Draw(rt, label)) }
		commit := func(rt *rapid.T, next graphWorld, change func(command.Tx) error) {
			var version domain.Version
			err := w.Write(context.Background(), workspace, func(tx command.Tx) error {
				version = tx.Version()
				return errors.Join(change(tx), tx.Append(entry(workspace, fmt.Sprint(version), "x")))
			})
			if err != nil {
				rt.Fatal(err)
			}
			newest = version
			worlds[newest] = next
		}
		putTask := func(rt *rapid.T) {
			next := worlds[newest].clone()
			changed := task(workspace, id(rt, "task"), 0)
			changed.Labels, changed.Version = nil, newest+1
			changed.State = rapid.SampledFrom([]domain.TaskState{domain.TaskTodo, domain.TaskCompleted, domain.TaskFailed}).Draw(rt, "state")
			if rapid.Bool().Draw(rt, "archived") {
				changed.ArchivedAt = at(1)
			}
			if rapid.Bool().Draw(rt, "is a child") {
				changed.ParentID = id(rt, "parent")
			}
			_, exists := next.tasks[changed.ID]
			next.tasks[changed.ID] = changed
			commit(rt, next, func(tx command.Tx) error {
				if exists {
					return tx.UpdateTask(changed)
				}
				return tx.InsertTask(changed)
			})
		}
		toggleEdge := func(rt *rapid.T) {
			next := worlds[newest].clone()
			edge := domain.TaskRelation{
				WorkspaceID: workspace, Kind: domain.RelationDependency, SourceTaskID: id(rt, "source"), TargetTaskID: id(rt, "target"),
				CreatedAt: at(int(newest)), Version: newest + 1,
			}
			key := query.RelationKey(edge)
			old, exists := next.edges[key]
			if exists {
				delete(next.edges, key)
			} else {
				next.edges[key] = edge
			}
			commit(rt, next, func(tx command.Tx) error {
				if exists {
					return tx.DeleteRelation(old)
				}
				return tx.InsertRelation(edge)
			})
		}
		read := func(rt *rapid.T) {
			asOf := domain.Version(rapid.Uint64Range(0, uint64(newest)).Draw(rt, "as of"))
			limit := rapid.IntRange(1, 5).Draw(rt, "limit")
			ids := []string{id(rt, "of"), id(rt, "and of")}
			var listed, of []domain.TaskRelation
			var versions map[string]domain.Version
			var waits map[string][]domain.Task
			every := []string{taskID(0), taskID(1), taskID(2), taskID(3), taskID(4), taskID(5), "nothing"}
			err := w.Read(context.Background(), func(s query.Snapshot) (err error) {
				for after := ""; ; {
					page, err := s.Relations(workspace, asOf, after, limit)
					if err != nil {
						return err
					}
					listed = append(listed, page...)
					if len(page) < limit {
						break
					}
					after = query.RelationKey(page[len(page)-1])
				}
				if of, err = s.RelationsOf(workspace, ids, asOf); err != nil {
					return err
				}
				known := asOf
				if asOf == newest && rapid.Bool().Draw(rt, "latest") {
					known = query.Latest
				}
				if waits, err = s.Predecessors(workspace, every, known); err != nil {
					return err
				}
				versions, err = s.TaskVersions(workspace, ids, asOf)
				return err
			})
			if err != nil {
				rt.Fatal(err)
			}
			for _, id := range every {
				if got, want := domain.BlockedBy(waits[id]), worlds[asOf].blocked(id); got != want {
					rt.Fatalf("as of %d of %d, task %s is blocked by %q, want %q: %+v", asOf, newest, id, got, want, waits[id])
				}
			}
			want := worlds[asOf].all()
			if !slices.Equal(listed, want) {
				rt.Fatalf("as of %d of %d: listed\n%+v, want\n%+v", asOf, newest, listed, want)
			}
			want = slices.DeleteFunc(want, func(e domain.TaskRelation) bool {
				return !slices.Contains(ids, e.SourceTaskID) && !slices.Contains(ids, e.TargetTaskID)
			})
			if !slices.Equal(of, want) {
				rt.Fatalf("as of %d of %d, of %s: got\n%+v, want\n%+v", asOf, newest, ids, of, want)
			}
			for _, id := range ids {
				if versions[id] != worlds[asOf].tasks[id].Version {
					rt.Fatalf("as of %d task %s has version %d, want %d", asOf, id, versions[id], worlds[asOf].tasks[id].Version)
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){"task": putTask, "edge": toggleEdge, "read": read})
	})
}

func testPendingTransitions(t *testing.T, d Database) {
	w := open(t, d)
	w.seed("w", 2)
	pending := func(id, session string, queued int) domain.PendingTransition {
		return domain.PendingTransition{
			ID: id, WorkspaceID: "w", TaskID: taskID(0), SessionID: session, FromStepID: step, ToStepID: "to",
			Predicate: domain.PredicateTurnEnd, QueuedAt: at(queued),
		}
	}
	put := func(moves ...domain.PendingTransition) error {
		return w.Write(t.Context(), "w", func(tx command.Tx) error {
			for _, p := range moves {
				p.Version = tx.Version()
				if err := tx.InsertPendingTransition(p); err != nil {
					return err
				}
			}
			return tx.Append(entry("w", "", "x"))
		})
	}
	late, early := pending("a", "s1", 9), pending("b", "s2", 1)
	slot := pending("c", "", 5)
	slot.Predicate, slot.TaskID = domain.PredicateSlot, taskID(1)
	w.must(put(late, early, slot))
	if err := put(pending("d", "s1", 3)); err == nil {
		t.Error("a session has two pending transitions")
	}
	list := func(taskID string, asOf domain.Version, after string, limit int) (ids []string) {
		t.Helper()
		w.must(w.Read(t.Context(), func(s query.Snapshot) error {
			moves, err := s.PendingTransitions("w", taskID, asOf, after, limit)
			for _, p := range moves {
				ids = append(ids, p.ID)
			}
			return err
		}))
		return ids
	}
	for _, c := range []struct {
		task, after string
		limit       int
		want        string
	}{
		{"", "", 9, "[b c a]"}, {"", "", 2, "[b c]"}, {"", query.TransitionKey(slot), 9, "[a]"}, {taskID(0), "", 9, "[b a]"},
		{"nothing", "", 9, "[]"},
	} {
		if got := fmt.Sprint(list(c.task, 2, c.after, c.limit)); got != c.want {
			t.Errorf("of %q after %q: %s, want %s", c.task, c.after, got, c.want)
		}
	}
	w.must(w.Write(t.Context(), "w", func(tx command.Tx) error {
		got, found, err := tx.PendingTransition("b")
		if !found || got.TaskID != taskID(0) || got.Version != 2 {
			t.Errorf("the pending transition is %+v", got)
		}
		_, there, err2 := tx.PendingTransition("nothing")
		if there {
			t.Error("found what there isn't")
		}
		return errors.Join(err, err2, tx.DeletePendingTransition(got), tx.Append(entry("w", "", "x")))
	}))
	if got, before := fmt.Sprint(list("", 3, "", 9)), fmt.Sprint(list("", 2, "", 9)); got != "[c a]" || before != "[b c a]" {
		t.Errorf("after one is gone: %s, and before: %s", got, before)
	}
	if err := w.Write(t.Context(), "w", func(tx command.Tx) error {
		return errors.Join(tx.DeletePendingTransition(early), tx.Append(entry("w", "", "x")))
	}); !errors.Is(err, store.ErrWorkspaceBound) {
		t.Errorf("it was removed twice: %v", err)
	}
	var all []string
	w.must(w.AllPendingTransitions(t.Context(), func(p domain.PendingTransition) error {
		all = append(all, p.WorkspaceID+"/"+p.ID)
		return nil
	}))
	if fmt.Sprint(all) != "[w/c w/a]" {
		t.Errorf("pending are %s", all)
	}
}
