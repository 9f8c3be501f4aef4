package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// many is how many there are of what has pages: more than the largest page has.
const many = 205

// The known content. Names begin with cf-, those of the foreign workspace with cf-b-.
const (
	flow        = "cf-flow"
	firstFlow   = "cf-flow-204"
	foreignFlow = "cf-b-flow"
	stepTodo    = "cf-todo"
	stepDoing   = "cf-doing"
	stepDone    = "cf-done"

	// parent has two children; both are roots of nothing else.
	parent = "cf-task-000"
	// archived, ephemeral and configuring are left out of plain lists.
	archived    = "cf-task-002"
	ephemeral   = "cf-task-003"
	configuring = "cf-task-004"
	// moved has many moves behind it.
	moved = "cf-task-005"
	// written is the one that the writers write.
	written = "cf-task-006"
	// chained is in the middle of a chain of dependencies. upstream are the edges to
	// all that it waits for, and the one to what waits for it.
	chained  = "cf-task-100"
	upstream = 81
	// bearing bears the first plugin's source, and no installation created it.
	bearing = "cf-bearing"

	foreignTask        = "cf-b-task-000"
	foreignSession     = "cf-b-session"
	foreignInteraction = "cf-b-permission"

	// spoken is the session with many messages, ended one that failed, finished one
	// that completed, waiting one that waits for a human.
	spoken   = "cf-session-000"
	ended    = "cf-session-ended"
	finished = "cf-session-finished"
	waiting  = "cf-session-waiting"
	// answered is an interaction that is over, asked the clarification.
	answered = "cf-permission-answered"
	asked    = "cf-clarification"
)

// began is when the first thing of the content happened.
var began = time.Date(2026, time.January, 5, 9, 0, 0, 0, time.UTC)

// known is the content as expectations need it.
type known struct {
	workspace, foreign string
	// source is who made what is the first plugin's.
	source    string
	documents []map[string]any

	tasks    []knownTask
	sessions []knownRow
	messages []knownRow
	asked    []knownRow
	// workflows of the workspace in its order, the hidden one left out.
	workflows []string
}

// knownRow is a row that is ordered by an instant and an ID.
type knownRow struct {
	id, task, session, workspace, kind string
	at                                 time.Time
}

type knownTask struct {
	knownRow
	parent, state, workflow      string
	archived, ephemeral, configs bool
}

func instant(at time.Time) string { return at.Format(time.RFC3339) }

func numbered(what string, i int) string { return fmt.Sprintf("cf-%s-%03d", what, i) }

func (k *known) add(kind, workspace string, fields map[string]any) {
	fields["kind"] = kind
	if workspace != "" {
		fields["workspace_id"] = workspace
	}
	k.documents = append(k.documents, fields)
}

// knownContent is the content of two workspaces, where one task is a plugin's.
func knownContent(workspace, foreign, pluginID string) *known {
	k := &known{workspace: workspace, foreign: foreign, source: "plugin:" + pluginID}
	for i := range many {
		k.add("agent_profile", "", map[string]any{"id": numbered("agent", i), "agent_id": "claude", "name": "Agent"})
		k.add("executor_profile", "", map[string]any{"id": numbered("executor", i), "display_name": "Executor", "executor_type": "worktree"})
	}
	k.topology()
	k.board()
	k.conversations()
	k.elsewhere()
	return k
}

func (k *known) topology() {
	k.add("workspace", "", map[string]any{"id": k.workspace, "name": "Conformance", "created_at": instant(began)})
	for i := range many {
		k.add("repository", k.workspace, map[string]any{ //nolint:gosec // a URL whose password must not be shown
			"id": numbered("repository", i), "name": "Repository", "source_type": "provider", "provider_id": "github",
			"remote_url": "https://user:hush-hush@git.example/cf/repository.git",
		})
	}
	// Their order is none of their IDs'.
	for i := range many {
		id := numbered("flow", i)
		k.add("workflow", k.workspace, map[string]any{"id": id, "name": "Flow", "sort_order": many - i, "created_at": instant(began)})
		k.workflows = append(k.workflows, id)
	}
	slices.Reverse(k.workflows)
	k.workflows = append(k.workflows, flow)
	k.add("workflow", k.workspace, map[string]any{"id": flow, "name": "Flow", "sort_order": many + 1, "created_at": instant(began)})
	k.add("workflow", k.workspace, map[string]any{"id": "cf-hidden", "name": "Hidden", "hidden": true, "created_at": instant(began)})
	k.add("step", k.workspace, map[string]any{"id": stepTodo, "workflow_id": flow, "name": "To do", "position": 0, "is_start_step": true})
	k.add("step", k.workspace, map[string]any{"id": stepDone, "workflow_id": flow, "name": "Done", "position": 9, "stage_type": "approval"})
	k.add("step", k.workspace, map[string]any{"id": stepDoing, "workflow_id": flow, "name": "Doing", "position": 4, "stage_type": "work"})
	for i := range many {
		k.add("step", k.workspace, map[string]any{"id": numbered("step", i), "workflow_id": firstFlow, "name": "Step", "position": i})
	}
}

func (k *known) task(t knownTask, fields map[string]any) {
	fields["id"], fields["title"], fields["state"] = t.id, "Task "+t.id, t.state
	fields["created_at"] = instant(t.at)
	if t.parent != "" {
		fields["parent_id"] = t.parent
	}
	k.add("task", t.workspace, fields)
	k.tasks = append(k.tasks, t)
}

func (k *known) board() {
	const tasks = many + 25
	for i := range tasks {
		// Two of each instant, so that the ID decides between them.
		t := knownTask{
			knownRow: knownRow{id: numbered("task", i), workspace: k.workspace, at: began.Add(time.Duration(i/2) * time.Minute)},
			state:    "TODO", workflow: flow,
		}
		fields := map[string]any{"workflow_step_id": stepTodo}
		if i%3 == 0 {
			t.state = "IN_PROGRESS"
		}
		switch t.id {
		case numbered("task", 1), numbered("task", 7):
			t.parent = parent
		case archived:
			t.archived = true
			fields["archived_at"] = instant(began.Add(time.Hour))
		case ephemeral:
			t.ephemeral, t.workflow = true, ""
			fields = map[string]any{"is_ephemeral": true}
		case configuring:
			t.configs = true
			fields["is_config_mode"] = true
		}
		k.task(t, fields)
	}
	k.task(knownTask{knownRow: knownRow{id: bearing, workspace: k.workspace, at: began}, state: "TODO", workflow: flow},
		map[string]any{"workflow_step_id": stepTodo, "source": k.source})
	const chain = 20
	for i := chain; i < tasks-1; i++ {
		k.add("relation", k.workspace, map[string]any{"source_task_id": numbered("task", i), "target_task_id": numbered("task", i+1)})
	}
	for i := range many {
		at := began.Add(time.Duration(i) * time.Second)
		move := map[string]any{
			"task_id": moved, "from_workflow_id": flow, "to_workflow_id": flow, "from_workflow_step_id": stepTodo,
			"to_workflow_step_id": stepDoing, "occurred_at": instant(at),
		}
		if i%2 == 1 {
			move["from_workflow_step_id"], move["to_workflow_step_id"] = stepDoing, stepTodo
		}
		k.add("step_transition", k.workspace, move)
	}
}

func (k *known) session(workspace, id, task, state string, at time.Time) {
	fields := map[string]any{"id": id, "task_id": task, "state": state, "is_primary": true, "started_at": instant(at)}
	if state == "FAILED" || state == "COMPLETED" {
		fields["ended_at"] = instant(at.Add(time.Hour))
	}
	k.add("session", workspace, fields)
	k.sessions = append(k.sessions, knownRow{id: id, task: task, workspace: workspace, kind: state, at: at})
}

func (k *known) message(workspace, id, session, task string, at time.Time, fields map[string]any) {
	fields["id"], fields["session_id"], fields["created_at"] = id, session, instant(at)
	kind, _ := fields["type"].(string)
	if kind == "" {
		kind = "message"
	}
	k.add("message", workspace, fields)
	k.messages = append(k.messages, knownRow{id: id, session: session, task: task, workspace: workspace, kind: kind, at: at})
}

// ask has an agent wait for a human.
func (k *known) ask(workspace, id, session, task string, at time.Time, metadata map[string]any) {
	metadata["pending_id"] = id
	metadata["options"] = []any{
		map[string]any{"option_id": "yes", "name": "Allow", "kind": "allow_once"}, map[string]any{"option_id": "no", "name": "Reject", "kind": "reject_once"},
	}
	k.message(workspace, id+"-message", session, task, at, map[string]any{
		"turn_id": session + "-turn", "author_type": "agent", "type": "permission_request", "content": "May I?", "metadata": metadata,
	})
	if metadata["status"] == nil {
		k.asked = append(k.asked, knownRow{id: id, session: session, task: task, workspace: workspace, kind: "permission", at: at})
	}
}

func (k *known) turn(workspace, session string, at time.Time) {
	k.add("turn", workspace, map[string]any{"id": session + "-turn", "session_id": session, "started_at": instant(at)})
}

// firstTalk is the first task with a session.
const firstTalk = 10

func (k *known) conversations() {
	at := began.Add(24 * time.Hour)
	for i := range many {
		session, task := numbered("session", i), numbered("task", firstTalk+i)
		start := at.Add(time.Duration(i/2) * time.Minute)
		k.session(k.workspace, session, task, "RUNNING", start)
		k.turn(k.workspace, session, start)
		if session == spoken {
			for j := range many {
				author := "user"
				if j%2 == 1 {
					author = "agent"
				}
				k.message(k.workspace, numbered("message", j), session, task, start.Add(time.Duration(j)*time.Second), map[string]any{
					"turn_id": session + "-turn", "author_type": author,
					"content": fmt.Sprintf("seen %d <kandev-system>hush-hush</kandev-system>", j),
				})
			}
		}
		k.ask(k.workspace, numbered("permission", i), session, task, start.Add(time.Hour), map[string]any{})
		k.add("transition", k.workspace, map[string]any{
			"id": numbered("transition", i), "task_id": task, "to_step_id": stepDone, "session_id": session, "created_at": instant(start),
		})
	}
	k.add("code_stats", k.workspace, map[string]any{
		"session_id": spoken, "lines_added_committed": 3, "lines_deleted_committed": 2, "lines_added_peak_pending": 1,
	})
	over := at.Add(48 * time.Hour)
	k.session(k.workspace, ended, numbered("task", 8), "FAILED", over)
	k.turn(k.workspace, ended, over)
	k.ask(k.workspace, answered, ended, numbered("task", 8), over.Add(time.Minute), map[string]any{"status": "approved"})
	k.session(k.workspace, finished, parent, "COMPLETED", over)
	k.session(k.workspace, waiting, numbered("task", 9), "WAITING_FOR_INPUT", over)
	k.turn(k.workspace, waiting, over)
	k.message(k.workspace, asked+"-message", waiting, numbered("task", 9), over.Add(time.Minute), map[string]any{
		"turn_id": waiting + "-turn", "author_type": "agent", "type": "clarification_request", "content": "Which?",
		"metadata": map[string]any{
			"pending_id": asked, "question_id": "q", "question": map[string]any{
				"id": "q", "title": "Which", "prompt": "Which?", "options": []any{map[string]any{"option_id": "o", "label": "This"}},
			},
		},
	})
	k.asked = append(k.asked, knownRow{
		id: asked, session: waiting, task: numbered("task", 9), workspace: k.workspace, kind: "clarification", at: over.Add(time.Minute),
	})
}

// elsewhere is the foreign workspace.
func (k *known) elsewhere() {
	at := began.Add(12 * time.Hour)
	k.add("workspace", "", map[string]any{"id": k.foreign, "name": "Elsewhere", "sort_order": 1, "created_at": instant(at)})
	k.add("repository", k.foreign, map[string]any{"id": "cf-b-repository", "name": "Repository"})
	k.add("workflow", k.foreign, map[string]any{"id": foreignFlow, "name": "Flow", "created_at": instant(at)})
	k.add("step", k.foreign, map[string]any{"id": "cf-b-todo", "workflow_id": foreignFlow, "name": "To do", "is_start_step": true})
	k.add("step", k.foreign, map[string]any{"id": "cf-b-done", "workflow_id": foreignFlow, "name": "Done", "position": 1})
	for i := range 3 {
		id := fmt.Sprintf("cf-b-task-%03d", i)
		t := knownTask{knownRow: knownRow{id: id, workspace: k.foreign, at: at.Add(time.Duration(i) * time.Minute)}, state: "TODO", workflow: foreignFlow}
		if i == 1 {
			t.parent = foreignTask
		}
		k.task(t, map[string]any{"workflow_step_id": "cf-b-todo"})
	}
	k.add("relation", k.foreign, map[string]any{"source_task_id": foreignTask, "target_task_id": "cf-b-task-002"})
	k.session(k.foreign, foreignSession, foreignTask, "RUNNING", at)
	k.turn(k.foreign, foreignSession, at)
	k.ask(k.foreign, foreignInteraction, foreignSession, foreignTask, at.Add(time.Minute), map[string]any{})
	k.add("transition", k.foreign, map[string]any{
		"id": "cf-b-transition", "task_id": foreignTask, "to_step_id": "cf-b-done", "session_id": foreignSession, "created_at": instant(at),
	})
	// More workspaces than a page has when nobody says how long it is.
	for i := range 60 {
		k.add("workspace", "", map[string]any{"id": numbered("workspace", i), "name": "Empty", "sort_order": i + 2, "created_at": instant(at)})
	}
}

// write writes the content in the format of imports, as JSON lines: the documents of
// the kinds that are wanted, nil for all.
func (k *known) write(out io.Writer, wanted func(kind string) bool) error {
	buffer := bufio.NewWriter(out)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	for _, document := range k.documents {
		if kind, _ := document["kind"].(string); wanted != nil && !wanted(kind) {
			continue
		}
		if err := encoder.Encode(document); err != nil {
			return fmt.Errorf("write the content: %w", err)
		}
	}
	if err := buffer.Flush(); err != nil {
		return fmt.Errorf("write the content: %w", err)
	}
	return nil
}

// ids are the IDs of rows in the order of v1: by their instant, then by ID.
func ids(rows []knownRow, newestFirst bool, keep func(knownRow) bool) []string {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r knownRow) bool { return keep != nil && !keep(r) })
	slices.SortFunc(rows, func(a, b knownRow) int {
		by := a.at.Compare(b.at)
		if newestFirst {
			by = -by
		}
		if by == 0 {
			by = strings.Compare(a.id, b.id)
		}
		return by
	})
	var out []string
	for _, r := range rows {
		out = append(out, r.id)
	}
	return out
}

// taskIDs are tasks in the order of v1's list.
func (k *known) taskIDs(keep func(knownTask) bool) []string {
	var rows []knownRow
	for _, t := range k.tasks {
		if keep(t) {
			rows = append(rows, t.knownRow)
		}
	}
	return ids(rows, true, nil)
}

// plain tells whether a list shows a task when nothing else is asked for.
func plain(t knownTask) bool { return !t.archived && !t.ephemeral && !t.configs }
