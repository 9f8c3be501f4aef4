package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	"github.com/kandev/plugin-host/hostsvc/query"
)

var (
	taskNames = []string{
		"workspace_id", "id", "workflow_id", "workflow_step_id", "position", "title", "description", "state",
		"priority", "parent_id", "labels", "external_id", "source", "wip_admitted", "queued_for_step_id", "queued_at",
		"created_at", "updated_at", "started_at", "completed_at", "archived_at", "version", "ephemeral", "config_mode",
		"origin", "slot", "details", "creator_installation_id",
	}
	taskColumns = strings.Join(taskNames[1:], ", ")
	taskTable   = newVersioned("task", "tasks", taskNames, 2)

	// contentNames are the columns that no index but the key covers: writing
	// another one rewrites its index, changed or not.
	contentNames = []string{
		"workspace_id", "id", "title", "description", "state", "priority", "labels", "updated_at", "started_at",
		"completed_at", "version", "details",
	}
	updateTaskContent = update("tasks", contentNames, 2)

	selectTask = `SELECT ` + taskColumns + ` FROM tasks WHERE workspace_id = $1 AND id = $2`
	// selectTaskThatWaits also tells whether the task has predecessors.
	selectTaskThatWaits = `SELECT ` + taskColumns + `, CAST(CASE WHEN EXISTS
		(SELECT 1 FROM task_relations WHERE workspace_id = $1 AND target_task_id = $2) THEN 1 ELSE 0 END AS bigint)
		FROM tasks WHERE workspace_id = $1 AND id = $2`
	selectTaskExternal = `SELECT ` + taskColumns + ` FROM tasks
		WHERE workspace_id = $1 AND source = $2 AND external_id = $3 AND external_id <> ''`
)

func scanTask(r Row, workspaceID string) (domain.Task, error) {
	t := domain.Task{
		ID: r.Text(0), WorkspaceID: workspaceID, WorkflowID: r.Text(1), WorkflowStepID: r.Text(2),
		Position: int32(r.Int(3)), Title: r.Text(4), Description: r.Text(5), State: domain.TaskState(r.Text(6)),
		Priority: domain.TaskPriority(r.Text(7)), ParentID: r.Text(8), ExternalID: r.Text(10), Source: r.Text(11),
		WIPAdmitted: r.Int(12) != 0, QueuedForStepID: r.Text(13), QueuedAt: nanoTime(r, 14), CreatedAt: nanoTime(r, 15),
		UpdatedAt: nanoTime(r, 16), StartedAt: nanoTime(r, 17), CompletedAt: nanoTime(r, 18), ArchivedAt: nanoTime(r, 19),
		Version: domain.Version(r.Int(20)), Ephemeral: r.Int(21) != 0, ConfigMode: r.Int(22) != 0, Origin: r.Text(23),
	}
	if labels := r.Text(9); labels != "" {
		if err := json.Unmarshal([]byte(labels), &t.Labels); err != nil {
			return domain.Task{}, fmt.Errorf("decode the labels of task %s: %w", t.ID, err)
		}
	}
	var d taskDetails
	if err := decodeDetails(r, 25, &d); err != nil {
		return domain.Task{}, fmt.Errorf("decode the details of task %s: %w", t.ID, err)
	}
	d.fill(&t)
	t.CreatorInstallationID = r.Text(26)
	return t, nil
}

// taskDetails are the fields of a task that nothing is selected by.
type taskDetails struct {
	Identifier             string                   `json:"identifier,omitempty"`
	Autopilot              bool                     `json:"autopilot,omitempty"`
	ProjectID              string                   `json:"project_id,omitempty"`
	AssigneeUserID         string                   `json:"assignee_user_id,omitempty"`
	AssigneeAgentProfileID string                   `json:"assignee_agent_profile_id,omitempty"`
	StartWhenUnblocked     bool                     `json:"start_when_unblocked,omitempty"`
	Repositories           []domain.TaskRepository  `json:"repositories,omitempty"`
	PullRequests           []domain.TaskPullRequest `json:"pull_requests,omitempty"`
	Metadata               domain.Object            `json:"metadata,omitempty"`
}

func (d taskDetails) fill(t *domain.Task) {
	t.Identifier, t.Autopilot, t.ProjectID, t.StartWhenUnblocked = d.Identifier, d.Autopilot, d.ProjectID, d.StartWhenUnblocked
	t.AssigneeUserID, t.AssigneeAgentProfileID = d.AssigneeUserID, d.AssigneeAgentProfileID
	t.Repositories, t.PullRequests, t.Metadata = d.Repositories, d.PullRequests, d.Metadata
}

func detailsOfTask(t domain.Task) (string, error) {
	if t.Identifier == "" && !t.Autopilot && t.ProjectID == "" && t.AssigneeUserID == "" && t.AssigneeAgentProfileID == "" &&
		!t.StartWhenUnblocked && len(t.Repositories) == 0 && len(t.PullRequests) == 0 && len(t.Metadata) == 0 {
		return "", nil // most of them, and encoding costs as much as a statement
	}
	text, err := encodeDetails(taskDetails{
		Identifier: t.Identifier, Autopilot: t.Autopilot, ProjectID: t.ProjectID, AssigneeUserID: t.AssigneeUserID,
		AssigneeAgentProfileID: t.AssigneeAgentProfileID, StartWhenUnblocked: t.StartWhenUnblocked,
		Repositories: t.Repositories, PullRequests: t.PullRequests, Metadata: t.Metadata,
	})
	if err != nil {
		return "", fmt.Errorf("encode the details of task %s: %w", t.ID, err)
	}
	return text, nil
}

func labelsText(t domain.Task) (string, error) {
	if len(t.Labels) == 0 {
		return "", nil
	}
	text, err := json.Marshal(t.Labels)
	if err != nil {
		return "", fmt.Errorf("encode the labels of task %s: %w", t.ID, err)
	}
	return string(text), nil
}

// placedAlike tells whether two versions of a task differ in content columns
// only.
func placedAlike(a, b domain.Task) bool {
	return a.ID == b.ID && a.WorkflowID == b.WorkflowID && a.WorkflowStepID == b.WorkflowStepID && a.Position == b.Position &&
		a.ExternalID == b.ExternalID && a.Source == b.Source && a.WIPAdmitted == b.WIPAdmitted &&
		a.QueuedForStepID == b.QueuedForStepID && a.QueuedAt.Equal(b.QueuedAt) && a.CreatedAt.Equal(b.CreatedAt) &&
		a.ArchivedAt.Equal(b.ArchivedAt) && a.Ephemeral == b.Ephemeral && a.ConfigMode == b.ConfigMode &&
		a.Origin == b.Origin && a.ParentID == b.ParentID && a.CreatorInstallationID == b.CreatorInstallationID
}

func taskArgs(t domain.Task) ([]any, error) {
	labels, err := labelsText(t)
	if err != nil {
		return nil, err
	}
	details, err := detailsOfTask(t)
	if err != nil {
		return nil, err
	}
	return []any{
		t.WorkspaceID, t.ID, t.WorkflowID, t.WorkflowStepID, int64(t.Position), t.Title, t.Description, string(t.State),
		string(t.Priority), t.ParentID, labels, t.ExternalID, t.Source, flag(t.WIPAdmitted), t.QueuedForStepID,
		nanos(t.QueuedAt), nanos(t.CreatedAt), nanos(t.UpdatedAt), nanos(t.StartedAt), nanos(t.CompletedAt),
		nanos(t.ArchivedAt), int64(t.Version), flag(t.Ephemeral), flag(t.ConfigMode), t.Origin, flag(t.HoldsSlot()), details,
		t.CreatorInstallationID,
	}, nil
}

// Task implements command.TaskTx.
func (t *tx) Task(id string) (task domain.Task, found bool, err error) {
	err = t.query("read a task", selectTask, t.taskRow(&task, &found), t.workspace, id)
	t.read = task
	return task, found, err
}

// TaskThatWaits implements command.TaskTx.
func (t *tx) TaskThatWaits(id string) (task domain.Task, waits, found bool, err error) {
	task, waits, found, err = taskThatWaits(t.query, t.workspace, id)
	t.read = task
	return task, waits, found, err
}

// asking is how a statement that reads is run, in a snapshot or a transaction.
type asking func(doing, statement string, row func(Row) error, args ...any) error

func taskThatWaits(ask asking, workspaceID, id string) (task domain.Task, waits, found bool, err error) {
	err = ask("read a task", selectTaskThatWaits, func(r Row) (err error) {
		task, err = scanTask(r, workspaceID)
		waits, found = r.Int(len(taskNames)-1) != 0, true
		return err
	}, workspaceID, id)
	return task, waits, found, err
}

// TaskByExternalID implements command.TaskTx.
func (t *tx) TaskByExternalID(source, externalID string) (task domain.Task, found bool, err error) {
	err = t.query("look up an external ID", selectTaskExternal, t.taskRow(&task, &found), t.workspace, source, externalID)
	return task, found, err
}

func (t *tx) taskRow(task *domain.Task, found *bool) func(Row) error {
	return func(r Row) (err error) {
		*task, err = scanTask(r, t.workspace)
		*found = true
		return err
	}
}

// InsertTask implements command.TaskTx.
func (t *tx) InsertTask(task domain.Task) error {
	if err := t.own("task", task.ID, task.WorkspaceID, task.Version); err != nil {
		return err
	}
	args, err := taskArgs(task)
	if err != nil {
		return err
	}
	return t.later(nil, "insert a task", taskTable.insert, args...)
}

// UpdateTask implements command.TaskTx.
func (t *tx) UpdateTask(task domain.Task) error {
	if err := t.own("task", task.ID, task.WorkspaceID, task.Version); err != nil {
		return err
	}
	err := t.later(nil, "close a version of a task", taskTable.close, task.WorkspaceID, task.ID, int64(task.Version))
	if err != nil {
		return err
	}
	one := t.one("task")
	if t.read.Version != 0 && placedAlike(t.read, task) {
		labels, err := labelsText(task)
		if err != nil {
			return err
		}
		details, err := detailsOfTask(task)
		if err != nil {
			return err
		}
		return t.later(one, "update a task", updateTaskContent, task.WorkspaceID, task.ID, task.Title, task.Description,
			string(task.State), string(task.Priority), labels, nanos(task.UpdatedAt), nanos(task.StartedAt),
			nanos(task.CompletedAt), int64(task.Version), details)
	}
	args, err := taskArgs(task)
	if err != nil {
		return err
	}
	t.read = domain.Task{}
	return t.later(one, "update a task", taskTable.update, args...)
}

// SlotHolders implements command.TaskTx.
func (t *tx) SlotHolders(stepID string) (n int, err error) {
	err = t.query("count the slots of a step", `SELECT count(*) FROM tasks
		WHERE workspace_id = $1 AND workflow_step_id = $2 AND slot = 1`,
		func(r Row) error { n = int(r.Int(0)); return nil }, t.workspace, stepID)
	return n, err
}

// LastPosition implements command.TaskTx.
func (t *tx) LastPosition(stepID string) (position int32, err error) {
	err = t.query("find the last position of a step", `SELECT COALESCE(max(position), -1) FROM tasks
		WHERE workspace_id = $1 AND workflow_step_id = $2`,
		func(r Row) error { position = int32(r.Int(0)); return nil }, t.workspace, stepID)
	return position, err
}

// Task implements query.TaskSnapshot.
func (s *snapshot) Task(workspaceID, id string) (task domain.Task, waits, found bool, err error) {
	return taskThatWaits(s.query, workspaceID, id)
}

// Tasks implements query.TaskSnapshot.
func (s *snapshot) Tasks(workspaceID string, filter query.TaskFilter, asOf domain.Version, after string, limit int) ([]domain.Task, error) {
	where, args := taskFilter(filter, []any{workspaceID, int64(asOf), after, int64(limit)})
	where = ` WHERE workspace_id = $1 AND version <= $2 AND id > $3` + where
	return listAsOf(s, workspaceID, asOf, limit,
		`SELECT `+taskColumns+` FROM tasks`+where+` ORDER BY id LIMIT $4`,
		`SELECT `+taskColumns+` FROM tasks_closed`+where+` AND valid_to > $2 ORDER BY id LIMIT $4`,
		func(r Row) (domain.Task, error) { return scanTask(r, workspaceID) },
		func(t domain.Task) string { return t.ID }, args...)
}

// taskFilter appends the filter's conditions and arguments.
func taskFilter(filter query.TaskFilter, args []any) (string, []any) {
	var b strings.Builder
	args = writeIn(&b, args, "workflow_id", filter.WorkflowIDs)
	args = writeIn(&b, args, "state", filter.States)
	if filter.Parent != nil {
		args = writeIn(&b, args, "parent_id", []string{*filter.Parent})
	}
	b.WriteString(" AND config_mode = 0")
	if !filter.IncludeEphemeral {
		b.WriteString(" AND ephemeral = 0")
	}
	if !filter.IncludeArchived {
		b.WriteString(" AND archived_at IS NULL")
	}
	return b.String(), args
}

// DeleteTask implements legacy.TaskTx.
func (t *tx) DeleteTask(task domain.Task) error {
	if err := t.own("task", task.ID, task.WorkspaceID, t.Version()); err != nil {
		return err
	}
	t.read = domain.Task{}
	return t.removeOne(taskTable, task.WorkspaceID, task.ID)
}

const selectQueued = ` FROM tasks WHERE workspace_id = $1 AND queued_for_step_id = $2 AND queued_for_step_id <> ''
	AND archived_at IS NULL AND ephemeral = 0 ORDER BY COALESCE(queued_at, 0), id LIMIT $3`

// QueuedTasks implements command.TaskTx.
func (t *tx) QueuedTasks(stepID string, limit int) (tasks []domain.Task, err error) {
	err = t.query("list the tasks that wait for a step", `SELECT `+taskColumns+selectQueued, t.taskRows(&tasks), t.workspace, stepID, int64(limit))
	return tasks, err
}

func (t *tx) taskRows(tasks *[]domain.Task) func(Row) error {
	return func(r Row) error {
		task, err := scanTask(r, t.workspace)
		*tasks = append(*tasks, task)
		return err
	}
}

// ChildTasks implements legacy.TaskTx.
func (t *tx) ChildTasks(parentIDs []string, limit, maxBytes int) ([]domain.Task, bool, error) {
	return childTasks(t.query, t.workspace, parentIDs, limit, maxBytes)
}

// childTasks holds no more tasks at a time than it returns.
func childTasks(ask asking, workspaceID string, parentIDs []string, limit, maxBytes int) (tasks []domain.Task, complete bool, err error) {
	complete = true
	bytes := 0
	row := func(r Row) error {
		if !complete {
			return nil
		}
		task, err := scanTask(r, workspaceID)
		bytes += task.Size()
		if complete = len(tasks) < limit && bytes <= maxBytes; complete {
			tasks = append(tasks, task)
		}
		return err
	}
	for part := range slices.Chunk(parentIDs, idsAtOnce) {
		var b strings.Builder
		args := writeIn(&b, []any{workspaceID}, "parent_id", part)
		statement := fmt.Sprintf(`SELECT %s FROM tasks WHERE workspace_id = $1 AND parent_id <> ''%s LIMIT $%d`, taskColumns, b.String(), len(args)+1)
		err = ask("list the children of tasks", statement, row, append(args, int64(limit+1-len(tasks)))...)
		if err != nil || !complete {
			return nil, false, err
		}
	}
	return tasks, true, nil
}

// idsAtOnce is how many IDs one statement asks for at most.
const idsAtOnce = 256

// AllTasks implements legacy.TaskSnapshot.
func (s *snapshot) AllTasks(filter legacy.TaskFilter, offset, limit int) (tasks []domain.Task, err error) {
	var b strings.Builder
	args := writeIn(&b, nil, "workspace_id", filter.WorkspaceIDs)
	args = writeIn(&b, args, "workflow_id", filter.WorkflowIDs)
	args = writeIn(&b, args, "state", filter.States)
	if filter.ParentID != nil {
		args = writeIn(&b, args, "parent_id", []string{*filter.ParentID})
	}
	if !filter.IncludeEphemeral {
		b.WriteString(" AND ephemeral = 0")
	}
	if !filter.IncludeArchived {
		b.WriteString(" AND archived_at IS NULL")
	}
	statement := fmt.Sprintf(`SELECT %s, workspace_id FROM tasks WHERE config_mode = 0%s
		ORDER BY COALESCE(created_at, 0) DESC, id, workspace_id LIMIT $%d OFFSET $%d`, taskColumns, b.String(), len(args)+1, len(args)+2)
	err = s.query("list the tasks of the instance", statement, s.tasksAnywhere(&tasks), append(args, int64(limit), int64(offset))...)
	return tasks, err
}

func (s *snapshot) tasksAnywhere(tasks *[]domain.Task) func(Row) error {
	return func(r Row) error {
		task, err := scanTask(r, r.Text(len(taskNames)-1))
		*tasks = append(*tasks, task)
		return err
	}
}

// TasksByID implements legacy.TaskSnapshot.
func (s *snapshot) TasksByID(id string) (tasks []domain.Task, err error) {
	err = s.query("find a task", `SELECT `+taskColumns+`, workspace_id FROM tasks WHERE id = $1 ORDER BY workspace_id`,
		s.tasksAnywhere(&tasks), clean(id))
	return tasks, err
}

// TasksOf implements legacy.TaskSnapshot.
func (s *snapshot) TasksOf(workspaceID string, ids []string) (tasks []domain.Task, err error) {
	for part := range slices.Chunk(ids, idsAtOnce) {
		var b strings.Builder
		args := writeIn(&b, []any{workspaceID}, "id", part)
		err = s.query("read tasks", `SELECT `+taskColumns+`, workspace_id FROM tasks WHERE workspace_id = $1`+b.String(),
			s.tasksAnywhere(&tasks), args...)
		if err != nil {
			return nil, err
		}
	}
	return tasks, nil
}

// ChildTasksOf implements legacy.TaskSnapshot.
func (s *snapshot) ChildTasksOf(workspaceID string, parentIDs []string, limit, maxBytes int) ([]domain.Task, bool, error) {
	return childTasks(s.query, workspaceID, parentIDs, limit, maxBytes)
}
