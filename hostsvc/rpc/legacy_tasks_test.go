package rpc_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/store"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// board is a world with two workspaces, profiles and a repository.
func board(t *testing.T) *v1World {
	t.Helper()
	return boardWith(t)
}

func boardWith(t *testing.T, change ...func(*options)) *v1World {
	t.Helper()
	w := newV1World(t, append(change, func(o *options) { o.identity = plugins{} })...)
	w.seed("one", 3)
	w.seed("two", 1)
	now := w.clock.Now()
	w.must(w.store.SaveProfiles(t.Context(), []domain.AgentProfile{
		{ID: "agent-b", AgentID: "a", DisplayName: "Agent", Name: "fast", Model: "m", Mode: "plan", CreatedAt: now},
		{ID: "agent-a", CreatedAt: now.Add(time.Second)},
	}, []domain.ExecutorProfile{{ID: "executor", DisplayName: "Here", ExecutorType: "local", CreatedAt: now}}))
	w.must(w.store.Seed(t.Context(), "one", func(tx store.SeedTx) error {
		return errors.Join(
			tx.Repository(domain.Repository{
				ID: "repo", Name: "Repo", DefaultBranch: "trunk", SourceType: "provider", Provider: "github", ProviderOwner: "acme",
				RemoteURL: "https://user:hunter2@example.com/acme/repo.git?token=x", CreatedAt: now,
			}),
			tx.Workflow(domain.Workflow{ID: "hidden", Name: "Hidden", Hidden: true, SortOrder: -1, CreatedAt: now, UpdatedAt: now}),
			tx.Workflow(domain.Workflow{ID: "bare", Name: "Bare", Hidden: true, SortOrder: -1, CreatedAt: now, UpdatedAt: now}),
			tx.WorkflowStep(domain.WorkflowStep{ID: "hidden-step", WorkflowID: "hidden", Name: "S", Position: 1}),
			tx.WorkflowStep(domain.WorkflowStep{
				ID: "limited", WorkflowID: "one-flow", Name: "Limited", Position: 5, WIPLimit: 1, StageType: "review", Color: "red",
				AgentProfileID: "agent-a", OnEnterActionTypes: []string{"auto_start_agent"},
			}),
			tx.WorkflowStep(domain.WorkflowStep{ID: "fed", WorkflowID: "one-flow", Name: "Fed", Position: 6, WIPLimit: 1, PullFromStepID: "limited"}),
			tx.Task(domain.Task{ID: "config", WorkflowID: "one-flow", Title: "C", State: domain.TaskTodo, ConfigMode: true, CreatedAt: now}),
			tx.Task(domain.Task{ID: "ephemeral", Title: "E", State: domain.TaskTodo, Ephemeral: true, CreatedAt: now}),
			tx.Task(domain.Task{
				ID: "archived", WorkflowID: "one-flow", WorkflowStepID: "one-todo", Title: "A", State: domain.TaskCompleted, ArchivedAt: now,
				CreatedAt: now.Add(-time.Hour), ParentID: taskID("one", 0),
			}),
		)
	}))
	return w
}

func (w *v1World) create(change func(*pluginv1.CreateTaskRequest)) (*pluginv1.Task, error) {
	request := &pluginv1.CreateTaskRequest{WorkspaceId: "one", WorkflowId: "one-flow", Title: "New"}
	if change != nil {
		change(request)
	}
	response, err := w.host.CreateTask(w.as(alpha), request)
	return response.GetTask(), err
}

// TestV1TaskTexts plays every refusal that the facts list.
func TestV1TaskTexts(t *testing.T) {
	w := board(t)
	remote := func(change func(*pluginv1.RemoteRepositoryDescriptor)) func(*pluginv1.CreateTaskRequest) {
		return func(r *pluginv1.CreateTaskRequest) {
			d := &pluginv1.RemoteRepositoryDescriptor{
				ProviderId: "forge", ProviderHost: "forge.example", OwnerOrProject: "acme", ProviderRepositoryId: "7", Name: "repo",
				CloneUrl: "https://forge.example/acme/repo.git",
			}
			change(d)
			r.Repositories = []*pluginv1.PluginTaskRepository{{Remote: d}}
		}
	}
	launch := func(start bool, l *pluginv1.PluginTaskLaunchOptions) func(*pluginv1.CreateTaskRequest) {
		return func(r *pluginv1.CreateTaskRequest) { r.StartAgent, r.Launch = start, l }
	}
	const origin = "remote repository clone_url must match its credential-free HTTPS provider origin"
	const foreign = "capability 'repository_provider:forge' not declared"
	for _, test := range []struct {
		text   string
		code   codes.Code
		change func(*pluginv1.CreateTaskRequest)
	}{
		{"title is required", codes.InvalidArgument, func(r *pluginv1.CreateTaskRequest) { r.Title = "" }},
		{"metadata.source is reserved", codes.InvalidArgument, func(r *pluginv1.CreateTaskRequest) { r.Metadata = object(t, map[string]any{"source": "me"}) }},
		{`invalid task priority "urgent"`, codes.InvalidArgument, func(r *pluginv1.CreateTaskRequest) { r.Priority = "urgent" }},
		{"workspace_id is required: cannot resolve a default among the instance's workspaces", codes.InvalidArgument, func(r *pluginv1.CreateTaskRequest) { r.WorkspaceId = "" }},
		{"workflow_id is required: workspace has no workflow to default to", codes.InvalidArgument, func(r *pluginv1.CreateTaskRequest) { r.WorkspaceId, r.WorkflowId = "nowhere", "" }},
		{"invalid workflow: workflow not found", codes.Unknown, func(r *pluginv1.CreateTaskRequest) { r.WorkflowId = "two-flow" }},
		{"invalid workflow: workflow step not found: two-todo", codes.Unknown, func(r *pluginv1.CreateTaskRequest) { r.WorkflowStepId = ptr("two-todo") }},
		{"invalid workflow: workflow has no steps", codes.Unknown, func(r *pluginv1.CreateTaskRequest) { r.WorkflowId, r.WorkflowStepId = "bare", ptr("") }},
		{"parent task not found: " + taskID("two", 0), codes.Unknown, func(r *pluginv1.CreateTaskRequest) { r.ParentId = ptr(taskID("two", 0)) }},
		{"repository_id or remote descriptor is required", codes.InvalidArgument, func(r *pluginv1.CreateTaskRequest) { r.Repositories = []*pluginv1.PluginTaskRepository{{}} }},
		{"repository_id and remote descriptor are mutually exclusive", codes.InvalidArgument, func(r *pluginv1.CreateTaskRequest) {
			r.Repositories = []*pluginv1.PluginTaskRepository{{RepositoryId: "repo", Remote: &pluginv1.RemoteRepositoryDescriptor{}}}
		}},
		{"repository not found: other", codes.Unknown, func(r *pluginv1.CreateTaskRequest) {
			r.Repositories = []*pluginv1.PluginTaskRepository{{RepositoryId: "other"}}
		}},
		{"remote repository descriptor is incomplete", codes.InvalidArgument, remote(func(d *pluginv1.RemoteRepositoryDescriptor) { d.Name = "" })},
		{"remote repository descriptor is incomplete", codes.InvalidArgument, remote(func(d *pluginv1.RemoteRepositoryDescriptor) { d.ProviderRepositoryId = " " })},
		{origin, codes.InvalidArgument, remote(func(d *pluginv1.RemoteRepositoryDescriptor) { d.CloneUrl = "http://forge.example/r" })},
		{origin, codes.InvalidArgument, remote(func(d *pluginv1.RemoteRepositoryDescriptor) { d.CloneUrl = "https://u:p@forge.example/r" })},
		{origin, codes.InvalidArgument, remote(func(d *pluginv1.RemoteRepositoryDescriptor) { d.CloneUrl = "https://forge.example.evil/r" })},
		{origin, codes.InvalidArgument, remote(func(d *pluginv1.RemoteRepositoryDescriptor) { d.CloneUrl = "https://forge.example/r?token=x" })},
		{foreign, codes.PermissionDenied, remote(func(*pluginv1.RemoteRepositoryDescriptor) {})},
		{"launch.plan_mode must be one of: off, on, replace", codes.InvalidArgument, launch(false, &pluginv1.PluginTaskLaunchOptions{PlanMode: ptr("maybe")})},
		{"launch.agent_profile_id is not available", codes.InvalidArgument, launch(true, &pluginv1.PluginTaskLaunchOptions{AgentProfileId: ptr("none")})},
		{"launch.executor_profile_id is not available", codes.InvalidArgument, launch(true, &pluginv1.PluginTaskLaunchOptions{ExecutorProfileId: ptr("none")})},
		{"title holds a NUL byte", codes.InvalidArgument, func(r *pluginv1.CreateTaskRequest) { r.Title = "a\x00" }},
	} {
		_, err := w.create(test.change)
		wants(t, test.text, err, test.code, test.text)
	}
	missing := `task "nothing" not found`
	for _, test := range []struct {
		text string
		code codes.Code
		call func() error
	}{
		{missing, codes.NotFound, func() error {
			_, err := w.host.GetTask(w.as(alpha), &pluginv1.GetTaskRequest{Id: "nothing"})
			return err
		}},
		{"id is required", codes.InvalidArgument, func() error { _, err := w.host.UpdateTask(w.as(alpha), &pluginv1.UpdateTaskRequest{}); return err }},
		{missing, codes.NotFound, func() error {
			_, err := w.host.UpdateTask(w.as(alpha), &pluginv1.UpdateTaskRequest{Id: "nothing"})
			return err
		}},
		{"workflow_step_id cannot be set via UpdateTask: use MoveTask to transition a task between workflow steps", codes.InvalidArgument, func() error {
			_, err := w.host.UpdateTask(w.as(alpha), &pluginv1.UpdateTaskRequest{Id: taskID("one", 0), WorkflowStepId: ptr("")})
			return err
		}},
		{`invalid task priority ""`, codes.InvalidArgument, func() error {
			_, err := w.host.UpdateTask(w.as(alpha), &pluginv1.UpdateTaskRequest{Id: taskID("one", 0), Priority: ptr("")})
			return err
		}},
		{`invalid task state "SCHEDULING"`, codes.InvalidArgument, func() error {
			_, err := w.host.UpdateTask(w.as(alpha), &pluginv1.UpdateTaskRequest{Id: taskID("one", 0), State: ptr("SCHEDULING")})
			return err
		}},
		{"task_id is required", codes.InvalidArgument, func() error { _, err := w.host.MoveTask(w.as(alpha), &pluginv1.MoveTaskRequest{}); return err }},
		{"workflow_step_id is required", codes.InvalidArgument, func() error {
			_, err := w.host.MoveTask(w.as(alpha), &pluginv1.MoveTaskRequest{TaskId: "nothing"})
			return err
		}},
		{"workflow_id must not be empty when present", codes.InvalidArgument, func() error {
			_, err := w.host.MoveTask(w.as(alpha), &pluginv1.MoveTaskRequest{TaskId: "nothing", WorkflowStepId: "s", WorkflowId: ptr("")})
			return err
		}},
		{"position must not be negative", codes.InvalidArgument, func() error {
			_, err := w.host.MoveTask(w.as(alpha), &pluginv1.MoveTaskRequest{TaskId: "nothing", WorkflowStepId: "s", Position: -1})
			return err
		}},
		{missing, codes.NotFound, func() error {
			_, err := w.host.MoveTask(w.as(alpha), &pluginv1.MoveTaskRequest{TaskId: "nothing", WorkflowStepId: "s"})
			return err
		}},
		{"invalid workflow: workflow step not found: two-todo", codes.Unknown, func() error {
			_, err := w.host.MoveTask(w.as(alpha), &pluginv1.MoveTaskRequest{TaskId: taskID("one", 0), WorkflowStepId: "two-todo"})
			return err
		}},
		{"invalid workflow: workflow step not found: one-doing", codes.Unknown, func() error {
			_, err := w.host.MoveTask(w.as(alpha), &pluginv1.MoveTaskRequest{TaskId: taskID("one", 0), WorkflowStepId: "one-doing", WorkflowId: ptr("hidden")})
			return err
		}},
		{missing, codes.NotFound, func() error {
			_, err := w.host.PreviewPluginOwnedTaskTree(w.as(alpha), &pluginv1.PreviewPluginOwnedTaskTreeRequest{RootTaskId: "nothing"})
			return err
		}},
		{"capability 'plugin_owned_tasks' not declared", codes.PermissionDenied, func() error {
			_, err := w.host.PreviewPluginOwnedTaskTree(w.as(alpha), &pluginv1.PreviewPluginOwnedTaskTreeRequest{RootTaskId: taskID("one", 0)})
			return err
		}},
		{"capability 'plugin_owned_tasks' not declared", codes.PermissionDenied, func() error {
			_, err := w.host.DeletePluginOwnedTaskTree(w.as(alpha), &pluginv1.DeletePluginOwnedTaskTreeRequest{RootTaskId: taskID("one", 0)})
			return err
		}},
		{"invalid transition cursor", codes.InvalidArgument, func() error {
			_, err := w.host.ListTaskStepTransitions(w.as(alpha), &pluginv1.ListTaskStepTransitionsRequest{Page: &pluginv1.Page{Cursor: "-1"}})
			return err
		}},
		{"invalid transition cursor", codes.InvalidArgument, func() error {
			_, err := w.host.ListWorkflowTransitionGroups(w.as(alpha), &pluginv1.ListWorkflowTransitionGroupsRequest{Page: &pluginv1.Page{Cursor: "x"}})
			return err
		}},
	} {
		wants(t, test.text, test.call(), test.code, test.text)
	}
	if n := len(w.entries("one")); n != 2 {
		t.Errorf("%d entries after refusals only, want the seeds' two", n)
	}
}

// TestV1CreatedTask: what a plugin creates is stamped as its own, told and recorded.
func TestV1CreatedTask(t *testing.T) {
	w := board(t)
	source := "plugin:plugin-of-" + alpha
	parent, err := w.create(func(r *pluginv1.CreateTaskRequest) {
		r.Description, r.Priority, r.Metadata = "Why", "high", object(t, map[string]any{"k": "v"})
		r.Repositories = []*pluginv1.PluginTaskRepository{{RepositoryId: "repo", CheckoutBranch: ptr("b")}}
		r.StartAgent, r.Launch = true, &pluginv1.PluginTaskLaunchOptions{AgentProfileId: ptr("agent-a"), ExecutorProfileId: ptr("executor"), PlanMode: ptr("ON")}
	})
	w.must(err)
	want := object(t, map[string]any{"source": source, source: map[string]any{"k": "v"}})
	if !proto.Equal(parent.GetMetadata(), want) || parent.GetCreatedBy() != source || parent.GetPriority() != "high" || parent.GetState() != "TODO" ||
		parent.GetWorkflowStepId() != "one-todo" || parent.GetPosition() != 3 || !parent.GetWipAdmitted() || parent.GetBlocked() {
		t.Errorf("the task is %v", parent)
	}
	if r := parent.GetRepositories(); len(r) != 1 || r[0].GetRepositoryId() != "repo" || r[0].GetBaseBranch() != "trunk" || r[0].GetCheckoutBranch() != "b" || r[0].GetId() == "" {
		t.Errorf("its repositories are %v", r)
	}
	child, err := w.create(func(r *pluginv1.CreateTaskRequest) { r.WorkflowId, r.ParentId = "", ptr(parent.GetId()) })
	w.must(err)
	if r := child.GetRepositories(); child.GetWorkflowId() != "one-flow" || len(r) != 1 || r[0].GetRepositoryId() != "repo" || r[0].GetId() == parent.GetRepositories()[0].GetId() ||
		child.GetPriority() != "medium" || !proto.Equal(child.GetMetadata(), object(t, map[string]any{"source": source})) {
		t.Errorf("the child is %v", child)
	}
	entries := w.entries("one")
	created := entries[len(entries)-2]
	_, payload := journal.DecodeEvent(created.Event)
	if created.Kind != journal.KindCommand || created.Method != "CreateTask" || created.InstallationID != alpha || created.EventType != "task.created" ||
		created.TargetID != parent.GetId() || created.After != parent.GetResourceVersion() || created.Revision != 0 || created.IdempotencyKey != "" ||
		payload["task_id"] != parent.GetId() || payload["title"] != "New" || created.Capability != "api_write:tasks" {
		t.Errorf("the entry is %+v", created)
	}
	read, err := w.host.GetTask(w.as(beta), &pluginv1.GetTaskRequest{Id: parent.GetId()})
	w.must(err)
	sameBytes(t, read.GetTask(), parent)
	updated, err := w.host.UpdateTask(w.as(alpha), &pluginv1.UpdateTaskRequest{Id: child.GetId(), State: ptr("COMPLETED"), Title: ptr("Done")})
	w.must(err)
	if got := updated.GetTask(); got.GetState() != "COMPLETED" || got.GetTitle() != "Done" || got.CompletedAt == nil {
		t.Errorf("the updated task is %v", got)
	}
	before := len(w.entries("one"))
	_, err = w.host.UpdateTask(w.as(alpha), &pluginv1.UpdateTaskRequest{Id: child.GetId(), Title: ptr("Done")})
	w.must(err)
	if len(w.entries("one")) != before {
		t.Error("an update that changes nothing is recorded")
	}
}

// TestV1WriterSeesLessThanReader: to a plugin that may not read tasks, it is unknown
// what they wait for.
func TestV1WriterSeesLessThanReader(t *testing.T) {
	w := board(t)
	w.must(w.store.Seed(t.Context(), "one", func(tx store.SeedTx) error {
		return errors.Join(
			tx.Relation(domain.TaskRelation{Kind: domain.RelationDependency, SourceTaskID: taskID("one", 1), TargetTaskID: taskID("one", 0)}),
			tx.Relation(domain.TaskRelation{Kind: domain.RelationDependency, SourceTaskID: "gone", TargetTaskID: taskID("one", 2)}),
		)
	}))
	get := func(i int) *pluginv1.Task {
		t.Helper()
		response, err := w.host.GetTask(w.as(alpha), &pluginv1.GetTaskRequest{Id: taskID("one", i)})
		w.must(err)
		return response.GetTask()
	}
	update := func(i int, state string) *pluginv1.Task {
		t.Helper()
		response, err := w.host.UpdateTask(w.as(alpha), &pluginv1.UpdateTaskRequest{Id: taskID("one", i), State: &state})
		w.must(err)
		return response.GetTask()
	}
	for _, test := range []struct{ state, status, reason string }{
		{"IN_PROGRESS", "pending", "pending"}, {"FAILED", "failed", "failed"}, {"COMPLETED", "resolved", ""},
	} {
		source := update(1, test.state)
		if refs := source.GetBlocks(); len(refs) != 1 || refs[0].GetId() != taskID("one", 0) || refs[0].GetStatus() != "" {
			t.Errorf("the predecessor blocks %v", refs)
		}
		waits := get(0)
		if refs := waits.GetDependsOn(); waits.GetBlockedReason() != test.reason || waits.GetBlocked() != (test.reason != "") || len(refs) != 1 ||
			refs[0].GetStatus() != test.status || refs[0].GetState() != test.state || refs[0].GetTitle() != "Task 1" {
			t.Errorf("%s: %v", test.state, waits)
		}
	}
	if orphan := get(2); orphan.GetBlocked() || len(orphan.GetDependsOn()) != 0 {
		t.Errorf("an edge to a task that isn't there: %v", orphan)
	}
	seen := w.everything()
	seen.Declared &^= contract.LegacySetOf(contract.LegacyReadTasks)
	w.declared.set(alpha, seen)
	if blind := update(0, "REVIEW"); !blind.GetBlocked() || blind.GetBlockedReason() != "unknown" || len(blind.GetDependsOn())+len(blind.GetBlocks()) != 0 {
		t.Errorf("to who may not read tasks: %v", blind)
	}
}

func TestV1DependenciesAreCut(t *testing.T) {
	w := board(t)
	w.must(w.store.Seed(t.Context(), "one", func(tx store.SeedTx) (err error) {
		for i := range 51 {
			id := fmt.Sprintf("before-%02d", i)
			err = errors.Join(err, tx.Task(domain.Task{ID: id, WorkflowID: "one-flow", Title: id, State: domain.TaskCompleted, CreatedAt: w.clock.Now()}),
				tx.Relation(domain.TaskRelation{Kind: domain.RelationDependency, SourceTaskID: id, TargetTaskID: taskID("one", 0)}))
		}
		return err
	}))
	response, err := w.host.GetTask(w.as(alpha), &pluginv1.GetTaskRequest{Id: taskID("one", 0)})
	w.must(err)
	if got := response.GetTask(); len(got.GetDependsOn()) != 50 || !got.GetDependsOnTruncated() || got.GetBlocksTruncated() || got.GetBlocked() {
		t.Errorf("%d predecessors are shown, cut %t", len(got.GetDependsOn()), got.GetDependsOnTruncated())
	}
}

func TestV1ListTasks(t *testing.T) {
	w := board(t)
	w.clock.advance(time.Minute)
	newest, err := w.create(nil)
	w.must(err)
	list := func(filter *pluginv1.TaskFilter, page *pluginv1.Page) (string, *pluginv1.PageInfo) {
		t.Helper()
		response, err := w.host.ListTasks(w.as(alpha), &pluginv1.ListTasksRequest{Filter: filter, Page: page})
		w.must(err)
		var ids []string
		for _, task := range response.GetTasks() {
			ids = append(ids, strings.ReplaceAll(task.GetId(), newest.GetId(), "newest"))
		}
		return strings.Join(ids, " "), response.GetPageInfo()
	}
	one := "one-task-0000 one-task-0001 one-task-0002"
	for _, test := range []struct {
		filter *pluginv1.TaskFilter
		page   *pluginv1.Page
		want   string
		next   string
	}{
		{nil, nil, "newest " + one + " two-task-0000", ""},
		{&pluginv1.TaskFilter{WorkspaceIds: []string{"one", "nowhere"}}, nil, "newest " + one, ""},
		{&pluginv1.TaskFilter{IncludeEphemeral: true, WorkspaceIds: []string{"one"}}, nil, "newest ephemeral " + one, ""},
		{&pluginv1.TaskFilter{IncludeArchived: true, WorkspaceIds: []string{"one"}}, nil, "newest " + one + " archived", ""},
		{&pluginv1.TaskFilter{IncludeArchived: true, ParentId: ptr(taskID("one", 0))}, nil, "archived", ""},
		{&pluginv1.TaskFilter{ParentId: ptr(""), WorkspaceIds: []string{"two"}}, nil, "two-task-0000", ""},
		{&pluginv1.TaskFilter{WorkflowIds: []string{"two-flow"}}, nil, "two-task-0000", ""},
		{&pluginv1.TaskFilter{States: []string{"todo"}}, nil, "", ""},
		{&pluginv1.TaskFilter{States: []string{"TODO", "REVIEW"}, WorkspaceIds: []string{"two"}}, nil, "two-task-0000", ""},
		{&pluginv1.TaskFilter{WorkspaceIds: []string{"a\x00"}}, nil, "", ""},
		{nil, &pluginv1.Page{Limit: 2}, "newest one-task-0000", "2"},
		{nil, &pluginv1.Page{Limit: 2, Cursor: "2"}, "one-task-0001 one-task-0002", "4"},
		{nil, &pluginv1.Page{Limit: 2, Cursor: "4"}, "two-task-0000", ""},
		{nil, &pluginv1.Page{Limit: 2, Cursor: "99"}, "", ""},
		{nil, &pluginv1.Page{Limit: 1, Cursor: "x"}, "newest", "1"},
	} {
		got, info := list(test.filter, test.page)
		if got != test.want || info.GetNextCursor() != test.next || info.GetHasMore() != (test.next != "") {
			t.Errorf("%v %v: %q, %v, want %q", test.filter, test.page, got, info, test.want)
		}
	}
	_, err = w.host.ListTasks(w.as(alpha), &pluginv1.ListTasksRequest{Filter: &pluginv1.TaskFilter{States: manyIDs(10_001)}})
	wants(t, "too many values", err, codes.InvalidArgument, "task filter has 10001 workspace/workflow/state values, max 10000")
}

func TestV1Topology(t *testing.T) {
	w := board(t)
	workspaces, err := w.host.ListWorkspaces(w.as(alpha), &pluginv1.ListWorkspacesRequest{Page: &pluginv1.Page{Limit: 1}})
	w.must(err)
	if got := workspaces.GetWorkspaces(); len(got) != 1 || got[0].GetId() != "one" || workspaces.GetPageInfo().GetNextCursor() != "1" {
		t.Errorf("the workspaces are %v", workspaces)
	}
	flows, err := w.host.ListWorkflows(w.as(alpha), &pluginv1.ListWorkflowsRequest{WorkspaceId: "one"})
	w.must(err)
	if got := flows.GetWorkflows(); len(got) != 1 || got[0].GetId() != "one-flow" {
		t.Errorf("the workflows are %v", flows)
	}
	steps, err := w.host.ListWorkflowSteps(w.as(alpha), &pluginv1.ListWorkflowStepsRequest{WorkflowId: "one-flow"})
	w.must(err)
	var ids []string
	for _, s := range steps.GetSteps() {
		ids = append(ids, s.GetId())
	}
	limited := steps.GetSteps()[2]
	if !slices.Equal(ids, []string{"one-todo", "one-doing", "limited", "fed"}) || limited.GetWipLimit() != 1 || limited.GetColor() != "red" ||
		limited.GetAgentProfileId() != "agent-a" || !slices.Equal(limited.GetOnEnterActionTypes(), []string{"auto_start_agent"}) {
		t.Errorf("the steps are %v", steps)
	}
	agents, err := w.host.ListAgentProfiles(w.as(alpha), &pluginv1.ListAgentProfilesRequest{})
	w.must(err)
	executors, err := w.host.ListExecutorProfiles(w.as(alpha), &pluginv1.ListExecutorProfilesRequest{})
	w.must(err)
	if a := agents.GetProfiles(); len(a) != 2 || a[0].GetId() != "agent-b" || a[0].GetMode() != "plan" || len(executors.GetProfiles()) != 1 || executors.GetProfiles()[0].GetExecutorType() != "local" {
		t.Errorf("the profiles are %v and %v", agents, executors)
	}
	repositories, err := w.host.ListRepositories(w.as(alpha), &pluginv1.ListRepositoriesRequest{WorkspaceId: "one"})
	w.must(err)
	if r := repositories.GetRepositories(); len(r) != 1 || r[0].GetRemoteUrl() != "https://example.com/acme/repo.git" || r[0].GetOwnerOrProject() != "acme" ||
		strings.Contains(repositories.String(), "hunter2") {
		t.Errorf("the repositories are %v", repositories)
	}
}

func TestV1Moves(t *testing.T) {
	w := board(t)
	move := func(id, step string) *pluginv1.MoveTaskResponse {
		t.Helper()
		response, err := w.host.MoveTask(w.as(alpha), &pluginv1.MoveTaskRequest{TaskId: id, WorkflowStepId: step, Position: 7})
		w.must(err)
		return response
	}
	first := move(taskID("one", 0), "limited")
	if first.QueuedForStepId != nil || !first.GetTransitioned() || first.GetFromStepId() != "one-todo" || !first.GetTask().GetWipAdmitted() || first.GetTask().GetPosition() != 0 {
		t.Errorf("into a step with room: %v", first)
	}
	second := move(taskID("one", 1), "limited")
	if second.GetQueuedForStepId() != "limited" || !second.GetTransitioned() || second.GetTask().GetWipAdmitted() || second.GetTask().GetPosition() != 1 {
		t.Errorf("into a full step: %v", second)
	}
	if again := move(taskID("one", 1), "limited"); again.GetTransitioned() || again.GetTask().GetPosition() != 1 || again.GetQueuedForStepId() != "limited" {
		t.Errorf("where it stands: %v", again)
	}
	_, err := w.create(func(r *pluginv1.CreateTaskRequest) { r.WorkflowStepId = ptr("fed") })
	w.must(err)
	_, err = w.create(func(r *pluginv1.CreateTaskRequest) { r.WorkflowStepId = ptr("fed") })
	wants(t, "target and feeder are full", err, codes.Unknown, "workflow step WIP limit exceeded")
	move(taskID("one", 0), "one-doing")
	promoted, err := w.host.GetTask(w.as(alpha), &pluginv1.GetTaskRequest{Id: taskID("one", 1)})
	w.must(err)
	if got := promoted.GetTask(); !got.GetWipAdmitted() || got.GetQueuedForStepId() != "" || got.QueuedAt != nil {
		t.Errorf("who waited is %v", got)
	}
	moves, err := w.host.ListTaskStepTransitions(w.as(alpha), &pluginv1.ListTaskStepTransitionsRequest{TaskId: taskID("one", 0), Page: &pluginv1.Page{Limit: 1}})
	w.must(err)
	if m := moves.GetItems(); len(m) != 1 || m[0].GetTrigger() != "manual" || m[0].GetToWorkflowStepId() != "limited" || m[0].GetFromWorkflowStepId() != "one-todo" ||
		m[0].GetId() == "" || moves.GetPageInfo().GetNextCursor() != "1" {
		t.Errorf("the moves are %v", moves)
	}
	groups, err := w.host.ListWorkflowTransitionGroups(w.as(alpha), &pluginv1.ListWorkflowTransitionGroupsRequest{WorkflowId: "one-flow"})
	w.must(err)
	var told []string
	for _, g := range groups.GetItems() {
		told = append(told, fmt.Sprintf("%s %s>%s %d", g.GetKind(), g.GetFromStepId(), g.GetToStepId(), g.GetCount()))
	}
	if want := []string{"entry >fed 1", "within limited>one-doing 1", "within one-todo>limited 2"}; !slices.Equal(told, want) {
		t.Errorf("the moves count %q, want %q", told, want)
	}
}

func TestV1OwnedTree(t *testing.T) {
	w := board(t)
	child := func(parent string, as string) string {
		t.Helper()
		response, err := w.host.CreateTask(w.as(as), &pluginv1.CreateTaskRequest{WorkspaceId: "one", WorkflowId: "one-flow", Title: "T", ParentId: &parent})
		w.must(err)
		w.clock.advance(time.Second)
		return response.GetTask().GetId()
	}
	root, err := w.create(nil)
	w.must(err)
	left := child(root.GetId(), alpha)
	leaf := child(left, alpha)
	right := child(root.GetId(), alpha)
	w.must(w.store.Seed(t.Context(), "one", func(tx store.SeedTx) error {
		return tx.Relation(domain.TaskRelation{Kind: domain.RelationDependency, SourceTaskID: leaf, TargetTaskID: taskID("one", 0)})
	}))
	preview, err := w.host.PreviewPluginOwnedTaskTree(w.as(alpha), &pluginv1.PreviewPluginOwnedTaskTreeRequest{RootTaskId: root.GetId()})
	w.must(err)
	var ids []string
	for _, task := range preview.GetTasks() {
		ids = append(ids, task.GetId())
	}
	if want := []string{root.GetId(), left, leaf, right}; !slices.Equal(ids, want) {
		t.Errorf("the preview is %q, want %q", ids, want)
	}
	adopted := child(right, beta)
	remove := func() (*pluginv1.DeletePluginOwnedTaskTreeResponse, error) {
		return w.host.DeletePluginOwnedTaskTree(w.as(alpha), &pluginv1.DeletePluginOwnedTaskTreeRequest{RootTaskId: root.GetId()})
	}
	_, err = remove()
	wants(t, "with an adopted child", err, codes.FailedPrecondition,
		"plugin-owned task tree contains adopted or user-owned children; detach them before deleting")
	if _, err := w.host.GetTask(w.as(alpha), &pluginv1.GetTaskRequest{Id: leaf}); err != nil {
		t.Errorf("something of a refused tree is gone: %v", err)
	}
	_, err = w.host.DeletePluginOwnedTaskTree(w.as(beta), &pluginv1.DeletePluginOwnedTaskTreeRequest{RootTaskId: adopted})
	w.must(err)
	before := len(w.entries("one"))
	deleted, err := remove()
	w.must(err)
	if want := []string{right, leaf, left, root.GetId()}; !slices.Equal(deleted.GetDeletedTaskIds(), want) {
		t.Errorf("deleted %q, want %q", deleted.GetDeletedTaskIds(), want)
	}
	entries := w.entries("one")[before:]
	if n := len(deleted.GetDeletedTaskIds()); len(entries) != n+1 || entries[n].EventType != "task.dependencies_resolved" || entries[n].TargetID != taskID("one", 0) {
		t.Fatalf("the deletion has %d entries, and ends with %+v", len(entries), entries[len(entries)-1])
	}
	for i, e := range entries[:len(entries)-1] {
		if e.EventType != "task.deleted" || e.TargetID != deleted.GetDeletedTaskIds()[i] || e.InstallationID != alpha || e.After != "" || e.Before == "" {
			t.Errorf("entry %d of the deletion is %+v", i, e)
		}
	}
	waits, err := w.host.GetTask(w.as(alpha), &pluginv1.GetTaskRequest{Id: taskID("one", 0)})
	w.must(err)
	if len(waits.GetTask().GetDependsOn()) != 0 {
		t.Errorf("it still waits for a task that is gone: %v", waits)
	}
	again, err := remove()
	w.must(err)
	if len(again.GetDeletedTaskIds()) != 0 {
		t.Errorf("deleted twice: %v", again)
	}
}
