package store

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/query"
)

var (
	taskNames = []string{
		"workspace_id", "id", "workflow_id", "workflow_step_id", "position", "title", "description", "state",
		"priority", "parent_id", "labels", "external_id", "source", "wip_admitted", "queued_for_step_id", "queued_at",
		"created_at", "updated_at", "started_at", "completed_at", "archived_at", "version",
	}
	taskColumns   = strings.Join(taskNames[1:], ", ")
	insertTaskRow = insert("tasks", taskNames)
	updateTaskRow = update("tasks", taskNames, 2)
	closeTaskRow  = closeVersion("tasks", taskNames, 2)

	// contentNames are the columns that no index but the key covers: writing
	// another one rewrites its index, changed or not.
	contentNames = []string{
		"workspace_id", "id", "title", "description", "state", "priority", "parent_id", "labels", "updated_at",
		"started_at", "completed_at", "version",
	}
	updateTaskContent = update("tasks", contentNames, 2)

	selectTask         = `SELECT ` + taskColumns + ` FROM tasks WHERE workspace_id = $1 AND id = $2`
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
		Version: domain.Version(r.Int(20)),
	}
	if labels := r.Text(9); labels != "" {
		if err := json.Unmarshal([]byte(labels), &t.Labels); err != nil {
			return domain.Task{}, fmt.Errorf("decode the labels of task %s: %w", t.ID, err)
		}
	}
	return t, nil
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
		a.ArchivedAt.Equal(b.ArchivedAt)
}

func taskArgs(t domain.Task) ([]any, error) {
	labels, err := labelsText(t)
	if err != nil {
		return nil, err
	}
	return []any{
		t.WorkspaceID, t.ID, t.WorkflowID, t.WorkflowStepID, int64(t.Position), t.Title, t.Description, string(t.State),
		string(t.Priority), t.ParentID, labels, t.ExternalID, t.Source, flag(t.WIPAdmitted), t.QueuedForStepID,
		nanos(t.QueuedAt), nanos(t.CreatedAt), nanos(t.UpdatedAt), nanos(t.StartedAt), nanos(t.CompletedAt),
		nanos(t.ArchivedAt), int64(t.Version),
	}, nil
}

// Task implements command.TaskTx.
func (t *tx) Task(id string) (task domain.Task, found bool, err error) {
	err = t.query("read a task", selectTask, t.taskRow(&task, &found), t.workspace, id)
	t.read = task
	return task, found, err
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
	return t.later(nil, "insert a task", insertTaskRow, args...)
}

// UpdateTask implements command.TaskTx.
func (t *tx) UpdateTask(task domain.Task) error {
	if err := t.own("task", task.ID, task.WorkspaceID, task.Version); err != nil {
		return err
	}
	err := t.later(nil, "close a version of a task", closeTaskRow, task.WorkspaceID, task.ID, int64(task.Version))
	if err != nil {
		return err
	}
	id := task.ID // all that check keeps of it
	one := func(rows int64) error {
		if rows != 1 {
			return fmt.Errorf("update task %s: it has %d current rows: %w", id, rows, ErrWorkspaceBound)
		}
		return nil
	}
	if t.read.Version != 0 && placedAlike(t.read, task) {
		labels, err := labelsText(task)
		if err != nil {
			return err
		}
		return t.later(one, "update a task", updateTaskContent, task.WorkspaceID, task.ID, task.Title, task.Description,
			string(task.State), string(task.Priority), task.ParentID, labels, nanos(task.UpdatedAt), nanos(task.StartedAt),
			nanos(task.CompletedAt), int64(task.Version))
	}
	args, err := taskArgs(task)
	if err != nil {
		return err
	}
	t.read = domain.Task{}
	return t.later(one, "update a task", updateTaskRow, args...)
}

// SlotHolders implements command.TaskTx.
func (t *tx) SlotHolders(stepID string) (n int, err error) {
	err = t.query("count the slots of a step", `SELECT count(*) FROM tasks
		WHERE workspace_id = $1 AND workflow_step_id = $2 AND wip_admitted = 1 AND archived_at IS NULL`,
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
func (s *snapshot) Task(workspaceID, id string) (task domain.Task, found bool, err error) {
	err = s.query("read a task", selectTask, func(r Row) (err error) {
		task, err = scanTask(r, workspaceID)
		found = true
		return err
	}, workspaceID, id)
	return task, found, err
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

// taskFilter appends the filter's conditions and arguments. A list of values
// is padded to a power of two by repeating its last one, so that few different
// statements are ever prepared.
func taskFilter(filter query.TaskFilter, args []any) (string, []any) {
	var b strings.Builder
	in := func(column string, values []string) {
		if len(values) == 0 {
			return
		}
		size := 1
		for size < len(values) {
			size *= 2
		}
		b.WriteString(" AND " + column + " IN (")
		writeParameters(&b, len(args)+1, size)
		b.WriteString(")")
		for i := range size {
			args = append(args, values[min(i, len(values)-1)])
		}
	}
	in("workflow_id", filter.WorkflowIDs)
	in("state", filter.States)
	if filter.Parent != nil {
		in("parent_id", []string{*filter.Parent})
	}
	if !filter.IncludeArchived {
		b.WriteString(" AND archived_at IS NULL")
	}
	return b.String(), args
}
