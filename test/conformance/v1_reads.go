package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// maxValues is how many values a v1 filter of messages or interactions may have.
const maxValues = 400

// v1Reads are the cases of v1's readers (host-v1 facts, sections 2.2 to 2.4).
func v1Reads() map[string]methodCases {
	return map[string]methodCases{
		"ListTasks": {
			list: &listCases{count: func(k *known) int { return len(k.taskIDs(plain)) }}, run: listTasks,
		},
		"GetTask": {run: getTask},
		"ListTaskStepTransitions": {
			base: always(&pluginv1.ListTaskStepTransitionsRequest{TaskId: moved}),
			list: &listCases{count: of(many), strict: true}, run: listTaskStepTransitions,
		},
		"ListWorkspaces": {list: &listCases{count: of(62)}},
		"ListWorkflows": {
			base: func(_ *suite, workspace string) proto.Message {
				return &pluginv1.ListWorkflowsRequest{WorkspaceId: workspace}
			},
			list: &listCases{count: func(k *known) int { return len(k.workflows) }}, run: listWorkflows,
		},
		"ListWorkflowSteps": {run: listWorkflowSteps},
		"ListWorkflowTransitionGroups": {
			base: always(&pluginv1.ListWorkflowTransitionGroupsRequest{WorkflowId: flow}),
			list: &listCases{count: of(2), strict: true}, run: listWorkflowTransitionGroups,
		},
		"ListAgentProfiles":    {list: &listCases{count: of(many)}},
		"ListExecutorProfiles": {list: &listCases{count: of(many)}},
		"ListRepositories": {
			base: func(_ *suite, workspace string) proto.Message {
				return &pluginv1.ListRepositoriesRequest{WorkspaceId: workspace}
			},
			list: &listCases{count: of(many)}, run: listRepositories,
		},
		"ListSessions": {list: &listCases{count: func(k *known) int { return len(k.sessions) }}, run: listSessions},
		"ListSessionCodeStats": {
			list: &listCases{count: func(k *known) int { return len(k.sessions) }}, run: listSessionCodeStats,
		},
		"ListMessages": {list: &listCases{count: func(k *known) int { return len(k.messages) }}, run: listMessages},
		"ListPendingInteractions": {
			list: &listCases{count: func(k *known) int { return len(k.asked) }}, run: listPendingInteractions,
		},
		"GetInteraction": {run: getInteraction},
	}
}

// all reads a whole v1 list, page by page.
func all[T any](ctx context.Context, p *probe, read func(*pluginv1.Page) (proto.Message, []T, error), id func(T) string) (a answer, got []string) {
	for cursor := ""; ; {
		m, page, err := read(&pluginv1.Page{Limit: largestPage, Cursor: cursor})
		if err != nil {
			return answer{m, err}, nil
		}
		for _, item := range page {
			got = append(got, id(item))
		}
		info := child(m, "page_info").(*pluginv1.PageInfo) //nolint:forcetypeassert,errcheck // each v1 list has it
		if cursor = info.GetNextCursor(); cursor == "" {
			return answer{m, nil}, got
		}
		if len(got) > 100*largestPage || ctx.Err() != nil {
			p.enter("pages end", failed, answer{m, nil}, "the list has no end")
			return answer{m, nil}, got
		}
	}
}

// ordered demands IDs in an order.
func (p *probe) ordered(name string, a answer, got, want []string) {
	p.ok(name, a, func() string {
		if slices.Equal(got, want) {
			return ""
		}
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				return fmt.Sprintf("%d items, want %d; item %d is %q, want %q", len(got), len(want), i, got[i], want[i])
			}
		}
		return fmt.Sprintf("%d items, want %d", len(got), len(want))
	})
}

func (p *probe) caller(ctx context.Context) context.Context { return as(ctx, p.first().token) }

func listTasks(ctx context.Context, p *probe) {
	list := func(filter *pluginv1.TaskFilter) (answer, []string) {
		return all(ctx, p, func(page *pluginv1.Page) (proto.Message, []*pluginv1.Task, error) {
			r, err := p.host.ListTasks(p.caller(ctx), &pluginv1.ListTasksRequest{Filter: filter, Page: page})
			rows := r.GetTasks()
			return r, rows, err
		}, (*pluginv1.Task).GetId)
	}
	where := p.content.taskIDs
	for _, c := range []struct {
		name   string
		filter *pluginv1.TaskFilter
		want   []string
	}{
		{"the newest first, then by ID; archived, ephemeral and config-mode ones left out", nil, where(plain)},
		{"of a workspace", &pluginv1.TaskFilter{WorkspaceIds: []string{p.content.foreign}}, where(func(t knownTask) bool { return plain(t) && t.workspace == p.content.foreign })},
		{"of two workspaces", &pluginv1.TaskFilter{WorkspaceIds: []string{p.content.foreign, p.content.workspace}}, where(plain)},
		{"of no workspace that is there", &pluginv1.TaskFilter{WorkspaceIds: []string{"cf-nowhere"}}, nil},
		{"of a workflow and a state", &pluginv1.TaskFilter{WorkflowIds: []string{flow}, States: []string{"IN_PROGRESS"}}, where(func(t knownTask) bool {
			return plain(t) && t.workflow == flow && t.state == "IN_PROGRESS"
		})},
		{"states match exactly", &pluginv1.TaskFilter{States: []string{"in_progress"}}, nil},
		{"of a parent", &pluginv1.TaskFilter{ParentId: proto.String(parent)}, where(func(t knownTask) bool { return t.parent == parent })},
		{"an empty parent: the roots", &pluginv1.TaskFilter{ParentId: proto.String("")}, where(func(t knownTask) bool { return plain(t) && t.parent == "" })},
		{"with ephemeral ones", &pluginv1.TaskFilter{IncludeEphemeral: true}, where(func(t knownTask) bool { return !t.archived && !t.configs })},
		{"with archived ones", &pluginv1.TaskFilter{IncludeArchived: true}, where(func(t knownTask) bool { return !t.ephemeral && !t.configs })},
	} {
		a, got := list(c.filter)
		p.ordered(c.name, a, got, c.want)
	}
}

func getTask(ctx context.Context, p *probe) {
	for _, id := range []string{parent, archived, ephemeral, foreignTask} {
		r, err := p.host.GetTask(p.caller(ctx), &pluginv1.GetTaskRequest{Id: id})
		p.ok(id, answer{r, err}, func() string {
			if r.GetTask().GetId() != id {
				return "another task: " + r.GetTask().GetId()
			}
			return ""
		})
	}
	for _, id := range []string{"cf-nothing", ""} {
		r, err := p.host.GetTask(p.caller(ctx), &pluginv1.GetTaskRequest{Id: id})
		p.status(fmt.Sprintf("an unknown ID: %q", id), answer{r, err}, codes.NotFound, fmt.Sprintf("task %q not found", id))
	}
	r, err := p.host.GetTask(p.caller(ctx), &pluginv1.GetTaskRequest{Id: chained})
	p.ok("its dependencies", answer{r, err}, func() string {
		t := r.GetTask()
		if !t.GetBlocked() || len(t.GetDependsOn()) != 1 || t.GetDependsOn()[0].GetId() != "cf-task-099" || len(t.GetBlocks()) != 1 || t.GetBlocks()[0].GetId() != "cf-task-101" {
			return fmt.Sprintf("blocked %t, depends_on %v, blocks %v", t.GetBlocked(), t.GetDependsOn(), t.GetBlocks())
		}
		return ""
	})
}

func listTaskStepTransitions(ctx context.Context, p *probe) {
	r, err := p.host.ListTaskStepTransitions(p.caller(ctx), &pluginv1.ListTaskStepTransitionsRequest{TaskId: moved, Page: &pluginv1.Page{Limit: largestPage}})
	p.ok("in the order of the ledger, with decimal IDs", answer{r, err}, func() string {
		for i, move := range r.GetItems() {
			if strings.Trim(move.GetId(), "0123456789") != "" || move.GetId() == "" {
				return "the ID is " + move.GetId()
			}
			if move.GetTrigger() != "manual" {
				return "the trigger is " + move.GetTrigger()
			}
			if want := instant(began.Add(time.Duration(i) * time.Second)); move.GetOccurredAt() != want {
				return fmt.Sprintf("item %d is of %s, want %s", i, move.GetOccurredAt(), want)
			}
		}
		return ""
	})
	r, err = p.host.ListTaskStepTransitions(p.caller(ctx), &pluginv1.ListTaskStepTransitionsRequest{TaskId: "cf-nothing"})
	p.ok("of no task that is there", answer{r, err}, func() string {
		if len(r.GetItems()) != 0 {
			return "there are some"
		}
		return ""
	})
}

func listWorkflows(ctx context.Context, p *probe) {
	list := func(workspace string) (answer, []string) {
		return all(ctx, p, func(page *pluginv1.Page) (proto.Message, []*pluginv1.Workflow, error) {
			r, err := p.host.ListWorkflows(p.caller(ctx), &pluginv1.ListWorkflowsRequest{WorkspaceId: workspace, Page: page})
			rows := r.GetWorkflows()
			return r, rows, err
		}, (*pluginv1.Workflow).GetId)
	}
	a, got := list(p.content.workspace)
	p.ordered("in the workspace's order, hidden ones left out", a, got, p.content.workflows)
	a, got = list(p.content.foreign)
	p.ordered("of another workspace: v1 sees the instance", a, got, []string{foreignFlow})
	a, got = list("cf-nowhere")
	p.ordered("of no workspace that is there", a, got, nil)
}

func listWorkflowSteps(ctx context.Context, p *probe) {
	list := func(workflow string) (answer, []string) {
		r, err := p.host.ListWorkflowSteps(p.caller(ctx), &pluginv1.ListWorkflowStepsRequest{WorkflowId: workflow})
		var got []string
		for _, step := range r.GetSteps() {
			got = append(got, step.GetId())
		}
		return answer{r, err}, got
	}
	a, got := list(flow)
	p.ordered("by position", a, got, []string{stepTodo, stepDoing, stepDone})
	var steps []string
	for i := range many {
		steps = append(steps, numbered("step", i))
	}
	a, got = list(firstFlow)
	p.ordered("all of them: it has no pages", a, got, steps)
	a, got = list("cf-nothing")
	p.ordered("of no workflow that is there", a, got, nil)
}

func listWorkflowTransitionGroups(ctx context.Context, p *probe) {
	r, err := p.host.ListWorkflowTransitionGroups(p.caller(ctx), &pluginv1.ListWorkflowTransitionGroupsRequest{WorkflowId: flow})
	p.ok("counts the moves between steps", answer{r, err}, func() string {
		got := map[string]int64{}
		for _, g := range r.GetItems() {
			got[g.GetKind()+" "+g.GetFromStepId()+" "+g.GetToStepId()] = g.GetCount()
		}
		there, back := got["within "+stepTodo+" "+stepDoing], got["within "+stepDoing+" "+stepTodo]
		if there != (many+1)/2 || back != many/2 { //nolint:mnd // every other one
			return fmt.Sprint(got)
		}
		return ""
	})
}

func listRepositories(ctx context.Context, p *probe) {
	r, err := p.host.ListRepositories(p.caller(ctx), &pluginv1.ListRepositoriesRequest{WorkspaceId: p.content.workspace})
	p.ok("no user and password in URLs", answer{r, err}, func() string {
		for _, repository := range r.GetRepositories() {
			if repository.GetRemoteUrl() != "https://git.example/cf/repository.git" {
				return "remote_url is " + repository.GetRemoteUrl()
			}
		}
		return ""
	})
}

// sessionFilters are filters of sessions with what they select.
func (p *probe) sessionFilters() []struct {
	name   string
	filter *pluginv1.SessionFilter
	want   []string
} {
	some := func(keep func(knownRow) bool) []string { return ids(p.content.sessions, true, keep) }
	return []struct {
		name   string
		filter *pluginv1.SessionFilter
		want   []string
	}{
		{"the newest start first, then by ID", nil, some(nil)},
		{"of a workspace", &pluginv1.SessionFilter{WorkspaceIds: []string{p.content.foreign}}, []string{foreignSession}},
		{"of tasks, unknown ones skipped", &pluginv1.SessionFilter{TaskIds: []string{foreignTask, "cf-nothing", "cf-task-010"}}, []string{spoken, foreignSession}},
		{"of a task and a workspace: both", &pluginv1.SessionFilter{TaskIds: []string{foreignTask, "cf-task-010"}, WorkspaceIds: []string{p.content.foreign}}, []string{foreignSession}},
		{"of a state", &pluginv1.SessionFilter{States: []string{"FAILED"}}, []string{ended}},
		{"states match exactly", &pluginv1.SessionFilter{States: []string{"failed"}}, nil},
	}
}

func listSessions(ctx context.Context, p *probe) {
	for _, c := range p.sessionFilters() {
		a, got := all(ctx, p, func(page *pluginv1.Page) (proto.Message, []*pluginv1.Session, error) {
			r, err := p.host.ListSessions(p.caller(ctx), &pluginv1.ListSessionsRequest{Filter: c.filter, Page: page})
			rows := r.GetSessions()
			return r, rows, err
		}, (*pluginv1.Session).GetId)
		p.ordered(c.name, a, got, c.want)
	}
}

func listSessionCodeStats(ctx context.Context, p *probe) {
	for _, c := range p.sessionFilters() {
		a, got := all(ctx, p, func(page *pluginv1.Page) (proto.Message, []*pluginv1.SessionCodeStats, error) {
			r, err := p.host.ListSessionCodeStats(p.caller(ctx), &pluginv1.ListSessionCodeStatsRequest{Filter: c.filter, Page: page})
			rows := r.GetStats()
			return r, rows, err
		}, (*pluginv1.SessionCodeStats).GetSessionId)
		p.ordered(c.name, a, got, c.want)
	}
	r, err := p.host.ListSessionCodeStats(p.caller(ctx), &pluginv1.ListSessionCodeStatsRequest{Filter: &pluginv1.SessionFilter{TaskIds: []string{"cf-task-010", "cf-task-011"}}})
	p.ok("counted, and not counted", answer{r, err}, func() string {
		for _, s := range r.GetStats() {
			want := &pluginv1.SessionCodeStats{SessionId: s.GetSessionId()}
			if s.GetSessionId() == spoken {
				want = &pluginv1.SessionCodeStats{
					SessionId: spoken, LinesAddedCommitted: 3, LinesDeletedCommitted: 2, LinesAddedPeakPending: 1, CommittedLinesAvailable: true,
				}
			}
			if !proto.Equal(s, want) {
				return fmt.Sprintf("%v, want %v", s, want)
			}
		}
		return ""
	})
}

// nobodies are IDs of nothing.
func nobodies(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint("cf-nothing-", i)
	}
	return out
}

func listMessages(ctx context.Context, p *probe) {
	list := func(filter *pluginv1.MessageFilter) (answer, []string) {
		return all(ctx, p, func(page *pluginv1.Page) (proto.Message, []*pluginv1.Message, error) {
			r, err := p.host.ListMessages(p.caller(ctx), &pluginv1.ListMessagesRequest{Filter: filter, Page: page})
			rows := r.GetMessages()
			return r, rows, err
		}, (*pluginv1.Message).GetId)
	}
	some := func(keep func(knownRow) bool) []string { return ids(p.content.messages, false, keep) }
	from, to := began.Add(24*time.Hour+5*time.Second), began.Add(24*time.Hour+9*time.Second)
	for _, c := range []struct {
		name   string
		filter *pluginv1.MessageFilter
		want   []string
	}{
		{"the oldest first, then by ID", nil, some(nil)},
		{"of sessions, unknown ones skipped", &pluginv1.MessageFilter{SessionIds: []string{foreignSession, ended, "cf-nothing"}}, some(func(m knownRow) bool {
			return m.session == foreignSession || m.session == ended
		})},
		{"of a task and a type: both", &pluginv1.MessageFilter{TaskIds: []string{"cf-task-010"}, Types: []string{"permission_request"}}, some(func(m knownRow) bool {
			return m.task == "cf-task-010" && m.kind == "permission_request"
		})},
		{"of a session and another's task: none", &pluginv1.MessageFilter{SessionIds: []string{foreignSession}, TaskIds: []string{"cf-task-010"}}, nil},
		{"since and until: the first is in, the last isn't", &pluginv1.MessageFilter{
			SessionIds: []string{spoken}, Since: proto.String(instant(from)), Until: proto.String(instant(to)),
		}, some(func(m knownRow) bool { return m.session == spoken && !m.at.Before(from) && m.at.Before(to) })},
		{"400 values", &pluginv1.MessageFilter{SessionIds: append(nobodies(maxValues-1), foreignSession)}, some(func(m knownRow) bool { return m.session == foreignSession })},
	} {
		a, got := list(c.filter)
		p.ordered(c.name, a, got, c.want)
	}
	a, _ := list(&pluginv1.MessageFilter{SessionIds: nobodies(200), TaskIds: nobodies(200), Types: []string{"message"}})
	p.status("401 values", a, codes.InvalidArgument, "message filter has 401 session/task/type values, max 400")
	a, _ = list(&pluginv1.MessageFilter{Since: proto.String("yesterday")})
	p.begins("a malformed since", a, codes.InvalidArgument, "since must be RFC3339: ")
	a, _ = list(&pluginv1.MessageFilter{Until: proto.String("")})
	p.begins("a malformed until", a, codes.InvalidArgument, "until must be RFC3339: ")
	r, err := p.host.ListMessages(p.caller(ctx), &pluginv1.ListMessagesRequest{Filter: &pluginv1.MessageFilter{SessionIds: []string{spoken}, Types: []string{"message"}}})
	p.ok("without system markup", answer{r, err}, func() string {
		for _, m := range r.GetMessages() {
			if strings.Contains(m.GetContent(), "hush-hush") || !strings.HasPrefix(m.GetContent(), "seen ") {
				return fmt.Sprintf("%s says %q", m.GetId(), m.GetContent())
			}
		}
		return ""
	})
}

func listPendingInteractions(ctx context.Context, p *probe) {
	list := func(filter *pluginv1.InteractionFilter) (answer, []string) {
		return all(ctx, p, func(page *pluginv1.Page) (proto.Message, []*pluginv1.Interaction, error) {
			r, err := p.host.ListPendingInteractions(p.caller(ctx), &pluginv1.ListPendingInteractionsRequest{Filter: filter, Page: page})
			rows := r.GetInteractions()
			return r, rows, err
		}, (*pluginv1.Interaction).GetId)
	}
	for _, c := range []struct {
		name   string
		filter *pluginv1.InteractionFilter
		want   []string
	}{
		{"the oldest first", nil, ids(p.content.asked, false, nil)},
		{"of a kind", &pluginv1.InteractionFilter{Kinds: []string{"clarification"}}, []string{asked}},
		{"of a session, unknown ones skipped", &pluginv1.InteractionFilter{SessionIds: []string{foreignSession, "cf-nothing"}}, []string{foreignInteraction}},
		{"of a session and another's task: none", &pluginv1.InteractionFilter{SessionIds: []string{foreignSession}, TaskIds: []string{"cf-task-010"}}, nil},
		{"400 values", &pluginv1.InteractionFilter{SessionIds: append(nobodies(maxValues-1), foreignSession)}, []string{foreignInteraction}},
	} {
		a, got := list(c.filter)
		p.ordered(c.name, a, got, c.want)
	}
	a, _ := list(&pluginv1.InteractionFilter{Kinds: []string{"permission", "nonsense"}})
	p.status("an unknown kind", a, codes.InvalidArgument, `unknown interaction kind "nonsense"`)
	a, _ = list(&pluginv1.InteractionFilter{SessionIds: nobodies(maxValues), Kinds: []string{"permission"}})
	p.status("401 values", a, codes.InvalidArgument, "interaction filter has 401 session/task/kind values, max 400")
}

func getInteraction(ctx context.Context, p *probe) {
	get := func(id string) (*pluginv1.Interaction, answer) {
		r, err := p.host.GetInteraction(p.caller(ctx), &pluginv1.GetInteractionRequest{Id: id})
		return r.GetInteraction(), answer{r, err}
	}
	for _, c := range []struct{ id, kind, status string }{
		{numbered("permission", 0), "permission", "pending"}, {asked, "clarification", "pending"}, {answered, "permission", "approved"},
	} {
		got, a := get(c.id)
		p.ok(c.id, a, func() string {
			if got.GetId() != c.id || got.GetKind() != c.kind || got.GetStatus() != c.status {
				return fmt.Sprintf("%s %s %s, want %s %s", got.GetKind(), got.GetId(), got.GetStatus(), c.kind, c.status)
			}
			return ""
		})
	}
	_, a := get("")
	p.status("no ID", a, codes.InvalidArgument, "id is required")
	_, a = get("cf-nothing")
	p.status("an unknown ID", a, codes.NotFound, `interaction "cf-nothing" not found`)
}
