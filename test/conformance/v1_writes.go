package main

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// v1Writes are the cases of v1's writers (host-v1 facts, section 2.4).
func v1Writes() map[string]methodCases {
	return map[string]methodCases{
		"CreateTask":                 {writes: true, run: createTask},
		"UpdateTask":                 {writes: true, run: updateTask},
		"MoveTask":                   {writes: true, run: moveTask},
		"SendMessage":                {writes: true, run: sendMessage},
		"PreviewPluginOwnedTaskTree": {writes: true, run: previewTree},
		"DeletePluginOwnedTaskTree":  {writes: true, run: deleteTree},
	}
}

// newTask is a task that can be created.
func (p *probe) newTask(change func(*pluginv1.CreateTaskRequest)) *pluginv1.CreateTaskRequest {
	m := &pluginv1.CreateTaskRequest{WorkspaceId: p.content.workspace, WorkflowId: flow, Title: "Made by the suite"}
	if change != nil {
		change(m)
	}
	return m
}

func (p *probe) create(ctx context.Context, change func(*pluginv1.CreateTaskRequest)) (*pluginv1.Task, answer) {
	r, err := p.host.CreateTask(p.caller(ctx), p.newTask(change))
	return r.GetTask(), answer{r, err}
}

func createTask(ctx context.Context, p *probe) {
	remote := func(change func(*pluginv1.RemoteRepositoryDescriptor)) []*pluginv1.PluginTaskRepository {
		r := &pluginv1.RemoteRepositoryDescriptor{
			ProviderId: "github", ProviderHost: "git.example", OwnerOrProject: "cf", ProviderRepositoryId: "1", Name: "repository",
			CloneUrl: "https://git.example/cf/repository.git",
		}
		change(r)
		return []*pluginv1.PluginTaskRepository{{Remote: r}}
	}
	for _, c := range []struct {
		name   string
		change func(*pluginv1.CreateTaskRequest)
		text   string
	}{
		{"no title", func(m *pluginv1.CreateTaskRequest) { m.Title = "" }, "title is required"},
		{"metadata.source", func(m *pluginv1.CreateTaskRequest) {
			m.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"source": structpb.NewStringValue("me")}}
		}, "metadata.source is reserved"},
		{"an unknown priority", func(m *pluginv1.CreateTaskRequest) { m.Priority = "urgent" }, `invalid task priority "urgent"`},
		{"no workspace of many", func(m *pluginv1.CreateTaskRequest) { m.WorkspaceId = "" },
			"workspace_id is required: cannot resolve a default among the instance's workspaces"},
		{"a workspace without workflows", func(m *pluginv1.CreateTaskRequest) { m.WorkspaceId, m.WorkflowId = numbered("workspace", 0), "" },
			"workflow_id is required: workspace has no workflow to default to"},
		{"a repository and a descriptor", func(m *pluginv1.CreateTaskRequest) {
			m.Repositories = remote(func(*pluginv1.RemoteRepositoryDescriptor) {})
			m.Repositories[0].RepositoryId = numbered("repository", 0)
		}, "repository_id and remote descriptor are mutually exclusive"},
		{"neither a repository nor a descriptor", func(m *pluginv1.CreateTaskRequest) { m.Repositories = []*pluginv1.PluginTaskRepository{{}} },
			"repository_id or remote descriptor is required"},
		{"an unknown plan mode", func(m *pluginv1.CreateTaskRequest) {
			m.Launch = &pluginv1.PluginTaskLaunchOptions{PlanMode: proto.String("always")}
		}, "launch.plan_mode must be one of: off, on, replace"},
		{"an unknown agent profile", func(m *pluginv1.CreateTaskRequest) {
			m.StartAgent, m.Launch = true, &pluginv1.PluginTaskLaunchOptions{AgentProfileId: proto.String("cf-nothing")}
		}, "launch.agent_profile_id is not available"},
		{"an unknown executor profile", func(m *pluginv1.CreateTaskRequest) {
			m.StartAgent, m.Launch = true, &pluginv1.PluginTaskLaunchOptions{ExecutorProfileId: proto.String("cf-nothing")}
		}, "launch.executor_profile_id is not available"},
	} {
		_, a := p.create(ctx, c.change)
		p.status(c.name, a, codes.InvalidArgument, c.text)
	}
	_, a := p.create(ctx, func(m *pluginv1.CreateTaskRequest) {
		m.Repositories = remote(func(r *pluginv1.RemoteRepositoryDescriptor) { r.ProviderId = "cf-foreign" })
	})
	p.status("a repository of a provider that it doesn't declare", a, codes.PermissionDenied, "capability 'repository_provider:cf-foreign' not declared")

	task, a := p.create(ctx, func(m *pluginv1.CreateTaskRequest) {
		m.WorkflowId = flow
		m.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"k": structpb.NewStringValue("v")}}
	})
	p.ok("a task, at the workflow's first step, of priority medium", a, func() string {
		source := "plugin:" + p.first().PluginID
		metadata := task.GetMetadata().AsMap()
		own, _ := metadata[source].(map[string]any)
		if task.GetWorkflowStepId() != stepTodo || task.GetPriority() != "medium" || task.GetWorkspaceId() != p.content.workspace ||
			metadata["source"] != source || own["k"] != "v" {
			return task.String()
		}
		return ""
	})
	task, a = p.create(ctx, func(m *pluginv1.CreateTaskRequest) { m.WorkflowId = "" })
	p.ok("no workflow: the first one", a, func() string {
		if task.GetWorkflowId() != p.content.workflows[0] {
			return "the workflow is " + task.GetWorkflowId()
		}
		return ""
	})
	task, a = p.create(ctx, func(m *pluginv1.CreateTaskRequest) {
		m.Launch = &pluginv1.PluginTaskLaunchOptions{PlanMode: proto.String("REPLACE"), AgentProfileId: proto.String("cf-nothing")}
	})
	p.ok("a profile is looked at with start_agent only, a plan mode in any case", a, nil)
}

func updateTask(ctx context.Context, p *probe) {
	update := func(m *pluginv1.UpdateTaskRequest) (*pluginv1.Task, answer) {
		r, err := p.host.UpdateTask(p.caller(ctx), m)
		return r.GetTask(), answer{r, err}
	}
	_, a := update(&pluginv1.UpdateTaskRequest{Title: proto.String("x")})
	p.status("no ID", a, codes.InvalidArgument, "id is required")
	_, a = update(&pluginv1.UpdateTaskRequest{Id: "cf-nothing", Title: proto.String("x")})
	p.status("an unknown ID", a, codes.NotFound, `task "cf-nothing" not found`)
	_, a = update(&pluginv1.UpdateTaskRequest{Id: written, WorkflowStepId: proto.String(stepDone)})
	p.status("a step", a, codes.InvalidArgument, "workflow_step_id cannot be set via UpdateTask: use MoveTask to transition a task between workflow steps")
	_, a = update(&pluginv1.UpdateTaskRequest{Id: written, Priority: proto.String("urgent")})
	p.status("an unknown priority", a, codes.InvalidArgument, `invalid task priority "urgent"`)
	for _, state := range []string{"NO_STATE", "SCHEDULING", "todo"} {
		_, a = update(&pluginv1.UpdateTaskRequest{Id: written, State: proto.String(state)})
		problem := ""
		if a.code() != codes.InvalidArgument {
			problem = "want InvalidArgument"
		}
		p.holds("the state "+state, a, problem)
	}
	task, a := update(&pluginv1.UpdateTaskRequest{Id: written, Title: proto.String("Written"), State: proto.String("REVIEW"), Priority: proto.String("high")})
	p.ok("fields that are set change", a, func() string {
		if task.GetTitle() != "Written" || task.GetState() != "REVIEW" || task.GetPriority() != "high" || task.GetDescription() != "" {
			return task.String()
		}
		return ""
	})
	task, a = update(&pluginv1.UpdateTaskRequest{Id: foreignTask, Description: proto.String("Written")})
	p.ok("a task of another workspace: v1 sees the instance", a, func() string {
		if task.GetDescription() != "Written" || task.GetWorkspaceId() != p.content.foreign {
			return task.String()
		}
		return ""
	})
}

func moveTask(ctx context.Context, p *probe) {
	move := func(m *pluginv1.MoveTaskRequest) (*pluginv1.MoveTaskResponse, answer) {
		r, err := p.host.MoveTask(p.caller(ctx), m)
		return r, answer{r, err}
	}
	for _, c := range []struct {
		name string
		m    *pluginv1.MoveTaskRequest
		text string
	}{
		{"no task", &pluginv1.MoveTaskRequest{WorkflowStepId: stepDone}, "task_id is required"},
		{"no step", &pluginv1.MoveTaskRequest{TaskId: written}, "workflow_step_id is required"},
		{"an empty workflow", &pluginv1.MoveTaskRequest{TaskId: written, WorkflowStepId: stepDone, WorkflowId: proto.String("")}, "workflow_id must not be empty when present"},
		{"a negative position", &pluginv1.MoveTaskRequest{TaskId: written, WorkflowStepId: stepDone, Position: -1}, "position must not be negative"},
	} {
		_, a := move(c.m)
		p.status(c.name, a, codes.InvalidArgument, c.text)
	}
	_, a := move(&pluginv1.MoveTaskRequest{TaskId: "cf-nothing", WorkflowStepId: stepDone})
	p.status("an unknown task", a, codes.NotFound, `task "cf-nothing" not found`)
	r, a := move(&pluginv1.MoveTaskRequest{TaskId: written, WorkflowStepId: stepTodo, Position: 3})
	p.ok("to where it stands", a, func() string {
		if r.GetTransitioned() || r.GetFromStepId() != stepTodo || r.GetTask().GetWorkflowStepId() != stepTodo {
			return r.String()
		}
		return ""
	})
	r, a = move(&pluginv1.MoveTaskRequest{TaskId: written, WorkflowStepId: stepDoing, Position: 3})
	p.ok("to another step", a, func() string {
		if !r.GetTransitioned() || r.GetFromStepId() != stepTodo || r.GetTask().GetWorkflowStepId() != stepDoing || r.QueuedForStepId != nil {
			return r.String()
		}
		return ""
	})
	r, a = move(&pluginv1.MoveTaskRequest{TaskId: written, WorkflowStepId: stepTodo, WorkflowId: proto.String(flow)})
	p.ok("and back, its workflow named", a, func() string {
		if !r.GetTransitioned() || r.GetFromStepId() != stepDoing {
			return r.String()
		}
		return ""
	})
}

func sendMessage(ctx context.Context, p *probe) {
	send := func(task, session, text string) (*pluginv1.SendMessageResponse, answer) {
		r, err := p.host.SendMessage(p.caller(ctx), &pluginv1.SendMessageRequest{TaskId: task, SessionId: session, Text: text})
		return r, answer{r, err}
	}
	const task, endedTask, quiet = "cf-task-010", "cf-task-008", "cf-task-007"
	for _, c := range []struct {
		name, task, session, text string
		code                      codes.Code
		want                      string
	}{
		{"no task", "", "", "hello", codes.InvalidArgument, "task_id is required"},
		{"no text", task, "", "", codes.InvalidArgument, "text is required"},
		{"an unknown session", task, "cf-nothing", "hello", codes.NotFound, `session "cf-nothing" not found`},
		{"a session of another task", task, foreignSession, "hello", codes.NotFound, fmt.Sprintf("session %q does not belong to task %q", foreignSession, task)},
		{"a task without a session", quiet, "", "hello", codes.NotFound, fmt.Sprintf("task %q has no active session to message", quiet)},
		{"a session that failed", endedTask, ended, "hello", codes.FailedPrecondition, "session is FAILED — cannot send message"},
	} {
		_, a := send(c.task, c.session, c.text)
		p.status(c.name, a, c.code, c.want)
	}
	for _, c := range []struct{ name, task, session, to, want string }{
		{"to the task's session that runs", task, "", spoken, "queued"},
		{"to one that waits and was never launched", "cf-task-009", waiting, waiting, "started"},
		{"to one that completed", parent, finished, finished, "sent"},
	} {
		r, a := send(c.task, c.session, "hello")
		p.ok(c.name, a, func() string {
			if r.GetSessionId() != c.to || r.GetStatus() != c.want {
				return r.String()
			}
			return ""
		})
	}
}

// tree makes a task with a child, both an installation's own.
func (p *probe) tree(ctx context.Context, of *installation) (root, leaf string, a answer) {
	task, err := p.host.CreateTask(as(ctx, of.token), p.newTask(nil))
	if err != nil {
		return "", "", answer{task, err}
	}
	root = task.GetTask().GetId()
	below, err := p.host.CreateTask(as(ctx, of.token), p.newTask(func(m *pluginv1.CreateTaskRequest) { m.ParentId = &root }))
	return root, below.GetTask().GetId(), answer{below, err}
}

// twin is another installation of the first one's plugin that may write tasks, nil for
// none.
func (s *suite) twin() *installation {
	for i := range s.given.Installations[1:] {
		of := &s.given.Installations[1+i]
		if of.PluginID == s.first().PluginID && of.refusalOfV1([]string{"api_write:tasks"}) == "" {
			return of
		}
	}
	return nil
}

const notOwned = "capability 'plugin_owned_tasks' not declared"

// others makes the cases of roots that aren't the first installation's own in v1,
// though most bear a source of it.
func (p *probe) others(ctx context.Context, ask func(root string) answer) {
	p.status("a root of somebody else", ask(parent), codes.PermissionDenied, notOwned)
	p.status("a root that bears its source and that it didn't create", ask(bearing), codes.PermissionDenied, notOwned)
	const theirs, exact = "a root of another installation of the plugin", "a root that it created by the exact contract"
	if twin := p.twin(); twin == nil {
		p.enter(theirs, skipped, answer{}, "the description has no other installation of the plugin that may write tasks")
	} else if root, _, a := p.tree(ctx, twin); a.err != nil {
		p.holds(theirs, a, "no tree could be made")
	} else {
		p.status(theirs, ask(root), codes.PermissionDenied, notOwned)
	}
	if !p.serves("CreateTaskExact") {
		p.enter(exact, skipped, answer{}, "the Host doesn't declare CreateTaskExact")
		return
	}
	made, a := p.createExactly(ctx, "cf-root-"+string(p.method.Name()), "")
	if a.err != nil || made == "" {
		p.holds(exact, a, "no task could be made exactly")
		return
	}
	p.status(exact, ask(made), codes.PermissionDenied, notOwned)
}

func previewTree(ctx context.Context, p *probe) {
	preview := func(root string) (*pluginv1.PreviewPluginOwnedTaskTreeResponse, answer) {
		r, err := p.host.PreviewPluginOwnedTaskTree(p.caller(ctx), &pluginv1.PreviewPluginOwnedTaskTreeRequest{RootTaskId: root})
		return r, answer{r, err}
	}
	_, a := preview("cf-nothing")
	p.status("an unknown root", a, codes.NotFound, `task "cf-nothing" not found`)
	p.others(ctx, func(root string) answer { _, a := preview(root); return a })
	root, leaf, a := p.tree(ctx, p.first())
	if a.err == nil {
		var r *pluginv1.PreviewPluginOwnedTaskTreeResponse
		r, a = preview(root)
		p.ok("its own tree, parents first", a, func() string {
			if len(r.GetTasks()) != 2 || r.GetTasks()[0].GetId() != root || r.GetTasks()[1].GetId() != leaf {
				return r.String()
			}
			return ""
		})
		return
	}
	p.holds("its own tree, parents first", a, "no tree could be made")
}

// notAlone makes the cases of its own trees that hold what isn't its own.
func (p *probe) notAlone(ctx context.Context, remove func(root string) answer) {
	const text = "plugin-owned task tree contains adopted or user-owned children; detach them before deleting"
	const theirs, exact = "its own tree with a task of another installation of the plugin", "its own tree with a task that it created by the exact contract"
	if twin := p.twin(); twin == nil {
		p.enter(theirs, skipped, answer{}, "the description has no other installation of the plugin that may write tasks")
	} else if root, leaf, a := p.tree(ctx, p.first()); a.err != nil {
		p.holds(theirs, a, "no tree could be made")
	} else {
		below, err := p.host.CreateTask(as(ctx, twin.token), p.newTask(func(m *pluginv1.CreateTaskRequest) { m.ParentId = &leaf }))
		if err != nil {
			p.holds(theirs, answer{below, err}, "no task could be made below it")
		} else {
			p.status(theirs, remove(root), codes.FailedPrecondition, text)
		}
	}
	if !p.serves("CreateTaskExact") {
		p.enter(exact, skipped, answer{}, "the Host doesn't declare CreateTaskExact")
		return
	}
	root, leaf, a := p.tree(ctx, p.first())
	if a.err != nil {
		p.holds(exact, a, "no tree could be made")
		return
	}
	if made, a := p.createExactly(ctx, "cf-below", leaf); a.err != nil || made == "" {
		p.holds(exact, a, "no task could be made exactly below it")
		return
	}
	p.status(exact, remove(root), codes.FailedPrecondition, text)
}

func deleteTree(ctx context.Context, p *probe) {
	remove := func(root string) (*pluginv1.DeletePluginOwnedTaskTreeResponse, answer) {
		r, err := p.host.DeletePluginOwnedTaskTree(p.caller(ctx), &pluginv1.DeletePluginOwnedTaskTreeRequest{RootTaskId: root})
		return r, answer{r, err}
	}
	r, a := remove("cf-nothing")
	p.ok("an unknown root is gone already", a, func() string {
		if len(r.GetDeletedTaskIds()) != 0 {
			return r.String()
		}
		return ""
	})
	p.others(ctx, func(root string) answer { _, a := remove(root); return a })
	p.notAlone(ctx, func(root string) answer { _, a := remove(root); return a })
	root, leaf, a := p.tree(ctx, p.first())
	if a.err != nil {
		p.holds("its own tree, leaves first", a, "no tree could be made")
		return
	}
	r, a = remove(root)
	p.ok("its own tree, leaves first", a, func() string {
		if len(r.GetDeletedTaskIds()) != 2 || r.GetDeletedTaskIds()[0] != leaf || r.GetDeletedTaskIds()[1] != root {
			return r.String()
		}
		return ""
	})
	gone, err := p.host.GetTask(p.caller(ctx), &pluginv1.GetTaskRequest{Id: root})
	problem := ""
	if got := (answer{gone, err}); got.code() != codes.NotFound {
		problem = "it is still there"
	}
	p.holds("and it is gone", answer{}, problem)
}
