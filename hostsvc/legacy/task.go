package legacy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/board"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// TaskSnapshot is what v1 reads of tasks, in all workspaces.
type TaskSnapshot interface {
	// AllTasks lists at most limit tasks behind the first offset ones, the newest
	// first and then by ID. Tasks of the config mode are in no list.
	AllTasks(filter TaskFilter, offset, limit int) ([]domain.Task, error)
	// TasksByID finds the tasks of an ID: one at most in each workspace.
	TasksByID(id string) ([]domain.Task, error)
	// TasksOf reads those of the tasks that the workspace has.
	TasksOf(workspaceID string, ids []string) ([]domain.Task, error)
	// ChildTasksOf lists the children of tasks as TaskTx.ChildTasks does.
	ChildTasksOf(workspaceID string, parentIDs []string, limit, maxBytes int) (tasks []domain.Task, complete bool, err error)
	// Head is a workspace's newest version.
	Head(workspaceID string) (newest, oldest domain.Version, err error)
	// RelationsOf lists the edges that have one of the tasks at either end, each
	// once, as they were at version asOf.
	RelationsOf(workspaceID string, taskIDs []string, asOf domain.Version) ([]domain.TaskRelation, error)
}

// TaskTx is what v1 writers need of a transaction.
type TaskTx interface {
	board.Tx
	RepositoryTx
	Task(id string) (task domain.Task, found bool, err error)
	InsertTask(task domain.Task) error
	// DeleteTask ends a task. What belongs to it is ended before.
	DeleteTask(task domain.Task) error
	// ChildTasks lists the children of tasks. complete is false where that would be
	// more than limit tasks, or where their sizes come to more than maxBytes.
	ChildTasks(parentIDs []string, limit, maxBytes int) (tasks []domain.Task, complete bool, err error)
	Workflow(id string) (workflow domain.Workflow, found bool, err error)
	// StepsOf lists the steps of a workflow by position.
	StepsOf(workflowID string) ([]domain.WorkflowStep, error)
	Relations(taskIDs []string) ([]domain.TaskRelation, error)
	DeleteRelation(relation domain.TaskRelation) error
	// DeleteSessions removes all sessions of a task with everything in them.
	DeleteSessions(taskID string) error
}

// TaskFilter narrows a list of tasks: values of one field are alternatives, and
// every field that has any must match.
type TaskFilter struct {
	WorkspaceIDs, WorkflowIDs, States []string
	// ParentID selects the children of one task, "" those without a parent; nil all.
	ParentID                          *string
	IncludeEphemeral, IncludeArchived bool
}

// maxTaskValues bounds a task filter's values. The shipped Host has no bound; this
// one keeps a filter within what a database takes.
const maxTaskValues = 10_000

// The outbox events of tasks.
const (
	eventTaskCreated = "task.created"
	eventTaskUpdated = "task.updated"
	eventTaskMoved   = "task.moved"
	eventTaskDeleted = "task.deleted"
)

// ListTasks lists the tasks of the instance.
func (h *Host) ListTasks(ctx context.Context, caller Caller, filter TaskFilter, page Page) (tasks []TaskView, info PageInfo, err error) {
	if n := len(filter.WorkspaceIDs) + len(filter.WorkflowIDs) + len(filter.States); n > maxTaskValues {
		return nil, PageInfo{}, fail(InvalidArgument, "task filter has %d workspace/workflow/state values, max %d", n, maxTaskValues)
	}
	w := page.window()
	err = h.Store.Read(ctx, func(s Snapshot) error {
		found, whole, err := paged(w, (*domain.Task).Size, func(offset, limit int) ([]domain.Task, error) {
			return s.AllTasks(filter, offset, limit)
		})
		if err != nil {
			return err
		}
		if tasks, err = views(s, caller, found); err != nil {
			return err
		}
		// What tasks depend on can be more than they are.
		if tasks, info = cut(tasks, w, sizeOfView); !info.HasMore {
			info = whole
		}
		return nil
	})
	if err != nil {
		return nil, PageInfo{}, fmt.Errorf("list tasks: %w", err)
	}
	return tasks, info, nil
}

// GetTask reads one task, archived and ephemeral ones included.
func (h *Host) GetTask(ctx context.Context, caller Caller, id string) (TaskView, error) {
	var view TaskView
	err := h.Store.Read(ctx, func(s Snapshot) error {
		task, err := findTask(s, id)
		if err != nil {
			return err
		}
		shown, err := views(s, caller, []domain.Task{task})
		if err != nil {
			return err
		}
		view = shown[0]
		return nil
	})
	if err != nil {
		return TaskView{}, fmt.Errorf("read the task: %w", err)
	}
	return view, nil
}

// findTask finds a task by its ID alone. An ID that several workspaces have, which
// only imports can make, is the first one's.
func findTask(s Snapshot, id string) (domain.Task, error) {
	tasks, err := s.TasksByID(id)
	if err != nil {
		return domain.Task{}, fmt.Errorf("find the task: %w", err)
	}
	if len(tasks) == 0 {
		return domain.Task{}, noTask(id)
	}
	return tasks[0], nil
}

func noTask(id string) *Failure { return fail(NotFound, "task %q not found", id) }

// NewTask is what CreateTask is asked for.
type NewTask struct {
	WorkspaceID, WorkflowID, WorkflowStepID string
	Title, Description, ParentID, Priority  string
	Repositories                            []TaskRepository
	// StartAgent asks for a run. A run that doesn't start is no failure of the call.
	StartAgent bool
	// Launch says how; nil is as configured.
	Launch   *Launch
	Metadata domain.Object
}

// Launch is how a new task's run starts.
type Launch struct{ AgentProfileID, ExecutorProfileID, PlanMode string }

// CreateTask creates a task in the plugin's name.
//
// This Host runs no agents yet: a task that asks for one is created, and no run
// starts, as where a launch fails. What only a run would use, the launch's prompt and a
// repository's pull_request_number, isn't kept: no v1 message shows either.
func (h *Host) CreateTask(ctx context.Context, caller Caller, asked NewTask) (TaskView, error) {
	metadata, err := asked.check(caller)
	if err != nil {
		return TaskView{}, ruled(err)
	}
	err = h.Store.Read(ctx, func(s Snapshot) (err error) {
		asked, err = asked.completed(s)
		return err
	})
	if err != nil {
		return TaskView{}, fmt.Errorf("read what the task names: %w", err)
	}
	var created TaskView
	err = h.write(ctx, caller, asked.WorkspaceID, func(tx Tx) error {
		task, err := h.create(tx, caller, asked, metadata)
		created = TaskView{Task: task, StoreEpoch: tx.StoreEpoch()}
		return err
	})
	if err != nil {
		return TaskView{}, fmt.Errorf("create the task: %w", err)
	}
	return h.view(ctx, caller, created), nil
}

// check refuses what can't be right whatever the state, and returns the metadata to
// be stored.
func (n NewTask) check(caller Caller) (domain.Object, error) {
	if n.Title == "" {
		return nil, fail(InvalidArgument, "title is required")
	}
	metadata, err := domain.PluginMetadata(caller.source(), n.Metadata)
	if err != nil {
		return nil, err
	}
	if metadata.Deeper(domain.MaxDepth) { // with the source's own name around it
		return nil, fail(InvalidArgument, "metadata has more than %d objects and lists in each other", domain.MaxDepth-1)
	}
	if failure := checkPriority(n.Priority, true); failure != nil {
		return nil, failure
	}
	for _, text := range []struct{ field, value string }{
		{"title", n.Title}, {"description", n.Description}, {"workspace_id", n.WorkspaceID}, {"workflow_id", n.WorkflowID},
		{"workflow_step_id", n.WorkflowStepID}, {"parent_id", n.ParentID},
	} {
		if failure := checkText(text.field, text.value); failure != nil {
			return nil, failure
		}
	}
	for _, r := range n.Repositories {
		for _, text := range []struct{ field, value string }{
			{"repository_id", r.RepositoryID}, {"base_branch", r.BaseBranch}, {"checkout_branch", r.CheckoutBranch},
		} {
			if failure := checkText(text.field, text.value); failure != nil {
				return nil, failure
			}
		}
		if err := r.check(); err != nil {
			return nil, err
		}
	}
	if n.Launch != nil && !slices.Contains([]string{"", "off", "on", "replace"}, strings.ToLower(n.Launch.PlanMode)) {
		return nil, fail(InvalidArgument, "launch.plan_mode must be one of: off, on, replace")
	}
	return metadata, nil
}

func checkPriority(priority string, optional bool) *Failure {
	if optional && priority == "" || domain.TaskPriority(priority).Known() {
		return nil
	}
	return fail(InvalidArgument, "invalid task priority %q", priority)
}

// checkText refuses what no database takes. The shipped Host has no bounds; the
// transport has one.
func checkText(field, value string) *Failure {
	if strings.IndexByte(value, 0) >= 0 {
		return fail(InvalidArgument, "%s holds a NUL byte", field)
	}
	return nil
}

// completed fills in what the request leaves to the Host.
func (n NewTask) completed(s Snapshot) (NewTask, error) {
	if n.WorkspaceID == "" {
		workspaces, err := s.AllWorkspaces(0, 2)
		if err != nil {
			return n, fmt.Errorf("look for the workspace: %w", err)
		}
		if len(workspaces) != 1 {
			return n, fail(InvalidArgument, "workspace_id is required: cannot resolve a default among the instance's workspaces")
		}
		n.WorkspaceID = workspaces[0].ID
	}
	if n.WorkflowID == "" {
		workflows, err := s.VisibleWorkflows(n.WorkspaceID, 0, 1)
		if err != nil {
			return n, fmt.Errorf("look for the workflow: %w", err)
		}
		if len(workflows) == 0 {
			return n, fail(InvalidArgument, "workflow_id is required: workspace has no workflow to default to")
		}
		n.WorkflowID = workflows[0].ID
	}
	if !n.StartAgent || n.Launch == nil {
		return n, nil
	}
	if id := n.Launch.AgentProfileID; id != "" {
		if has, err := s.HasAgentProfile(id); err != nil || !has {
			return n, cmpError(err, fail(InvalidArgument, "launch.agent_profile_id is not available"))
		}
	}
	if id := n.Launch.ExecutorProfileID; id != "" {
		if has, err := s.HasExecutorProfile(id); err != nil || !has {
			return n, cmpError(err, fail(InvalidArgument, "launch.executor_profile_id is not available"))
		}
	}
	return n, nil
}

// cmpError returns a fault before a failure.
func cmpError(fault error, failure *Failure) error {
	if fault != nil {
		return fault
	}
	return failure
}

// create places and inserts the task.
func (h *Host) create(tx Tx, caller Caller, asked NewTask, metadata domain.Object) (domain.Task, error) {
	now := h.Now()
	target, feeder, err := targets(tx, asked.WorkflowID, asked.WorkflowStepID)
	if err != nil {
		return domain.Task{}, err
	}
	var parent *domain.Task
	if asked.ParentID != "" {
		found, ok, err := tx.Task(asked.ParentID)
		if err != nil {
			return domain.Task{}, fmt.Errorf("read the parent task: %w", err)
		}
		if !ok {
			return domain.Task{}, fail(Unknown, "parent task not found: %s", asked.ParentID)
		}
		parent = &found
	}
	placement, ok := domain.PlaceNewTask(target, feeder)
	if !ok {
		return domain.Task{}, fail(Unknown, "workflow step WIP limit exceeded")
	}
	position, err := next(tx, placement.StepID)
	if err != nil {
		return domain.Task{}, err
	}
	task := domain.NewTask(h.NewID(), asked.WorkspaceID, caller.source(), domain.TaskDraft{
		Title: asked.Title, Description: asked.Description, ParentID: asked.ParentID, Priority: asked.Priority,
		WorkflowID: asked.WorkflowID, WorkflowStepID: asked.WorkflowStepID,
	}, placement, position, now)
	task.CreatorInstallationID = caller.InstallationID
	task.Origin, task.Metadata, task.Version = caller.source(), metadata, tx.Version()
	if parent != nil {
		task.ProjectID = parent.ProjectID
	}
	if task.Repositories, err = h.repositoriesOf(tx, asked.Repositories, parent); err != nil {
		return domain.Task{}, err
	}
	if err := tx.InsertTask(task); err != nil {
		return domain.Task{}, fmt.Errorf("insert the task: %w", err)
	}
	if err := board.Created(tx, task, h.mover(caller)); err != nil {
		return domain.Task{}, err
	}
	err = h.append(tx, caller, "CreateTask", domain.Task{}, task, eventTaskCreated, domain.NewTaskPayload(&task))
	return task, err
}

func (h *Host) mover(caller Caller) board.Mover {
	return board.Mover{
		Trigger: domain.TriggerManual, Actor: domain.ActorSystem, Requester: caller.source(), Now: h.Now(), NewID: h.NewID,
		NewAuditID: h.NewAuditID,
	}
}

func next(tx Tx, stepID string) (int32, error) {
	position, err := board.Next(tx, stepID)
	if errors.Is(err, board.ErrStepFull) {
		return 0, fail(Unknown, "%s", board.ErrStepFull)
	}
	return position, err
}

// targets reads where a new task is to go: the step that is named, or the one where
// the workflow starts.
func targets(tx Tx, workflowID, stepID string) (target domain.StepLoad, feeder *domain.StepLoad, err error) {
	steps, err := tx.StepsOf(workflowID)
	if err != nil {
		return target, nil, fmt.Errorf("read the steps of the workflow: %w", err)
	}
	if _, found, err := tx.Workflow(workflowID); err != nil {
		return target, nil, fmt.Errorf("read the workflow: %w", err)
	} else if !found {
		return target, nil, invalidWorkflow("workflow not found")
	}
	at := slices.IndexFunc(steps, func(s domain.WorkflowStep) bool { return s.ID == stepID || stepID == "" && s.Start })
	switch {
	case at >= 0:
	case stepID != "":
		return target, nil, invalidWorkflow("workflow step not found: " + stepID)
	case len(steps) == 0:
		return target, nil, invalidWorkflow("workflow has no steps")
	default:
		at = 0
	}
	if target, err = board.Load(tx, steps[at]); err != nil {
		return target, nil, err
	}
	from := slices.IndexFunc(steps, func(s domain.WorkflowStep) bool { return s.ID == steps[at].PullFromStepID })
	if from < 0 {
		return target, nil, nil
	}
	loaded, err := board.Load(tx, steps[from])
	return target, &loaded, err
}

// invalidWorkflow is a failure that v1 has no code for.
func invalidWorkflow(text string) *Failure { return fail(Unknown, "invalid workflow: %s", text) }

// append adds the entry of a write of one task.
func (h *Host) append(tx Tx, caller Caller, method string, before, after domain.Task, eventType string, payload any) error {
	event, err := journal.EncodeEvent(payload)
	if err != nil {
		return err
	}
	entry := journal.Entry{
		WorkspaceID: after.WorkspaceID, Kind: journal.KindCommand, AuditID: h.NewAuditID(), InstallationID: caller.InstallationID,
		Method: method, Capability: contract.LegacyWriteTasks.String(), Result: contract.StateApplied, TargetID: after.ID,
		EventType: eventType, Event: event, At: h.Now(),
	}
	if before.Version != 0 {
		entry.Before = domain.ResourceVersion(tx.StoreEpoch(), before.Version)
	}
	if after.Version != 0 {
		entry.After = domain.ResourceVersion(tx.StoreEpoch(), after.Version)
	}
	if err := tx.Append(entry); err != nil {
		return fmt.Errorf("append the entry: %w", err)
	}
	return nil
}

// TaskUpdate is what UpdateTask is asked for; nil leaves a field alone.
type TaskUpdate struct {
	ID                                                  string
	Title, Description, State, Priority, WorkflowStepID *string
}

func (u TaskUpdate) check() *Failure {
	switch {
	case u.ID == "":
		return fail(InvalidArgument, "id is required")
	case u.WorkflowStepID != nil:
		return fail(InvalidArgument, "workflow_step_id cannot be set via UpdateTask: use MoveTask to transition a task between workflow steps")
	}
	if u.Priority != nil {
		if failure := checkPriority(*u.Priority, false); failure != nil {
			return failure
		}
	}
	if u.State != nil {
		if state := domain.TaskState(*u.State); !state.Known() || state == domain.TaskScheduling {
			return fail(InvalidArgument, "invalid task state %q", *u.State)
		}
	}
	for _, text := range []struct {
		field string
		value *string
	}{{"title", u.Title}, {"description", u.Description}} {
		if text.value != nil {
			if failure := checkText(text.field, *text.value); failure != nil {
				return failure
			}
		}
	}
	return nil
}

// UpdateTask changes fields of a task.
func (h *Host) UpdateTask(ctx context.Context, caller Caller, update TaskUpdate) (TaskView, error) {
	if failure := update.check(); failure != nil {
		return TaskView{}, failure
	}
	written, err := h.writeTask(ctx, caller, update.ID, func(tx Tx, task domain.Task) (domain.Task, error) {
		patch := domain.TaskPatch{Title: update.Title, Description: update.Description, State: update.State, Priority: update.Priority}
		patched, changed := patch.Apply(task, h.Now())
		if !changed {
			return task, nil
		}
		patched.Version = tx.Version()
		if err := tx.UpdateTask(patched); err != nil {
			return task, fmt.Errorf("update the task: %w", err)
		}
		if err := h.append(tx, caller, "UpdateTask", task, patched, eventTaskUpdated, domain.ChangedTaskPayload(&task, &patched)); err != nil {
			return task, err
		}
		return patched, board.Settled(tx, task, patched, h.mover(caller))
	})
	if err != nil {
		return TaskView{}, fmt.Errorf("update the task: %w", err)
	}
	return h.view(ctx, caller, written), nil
}

// writeTask finds a task by its ID and writes it in its workspace.
func (h *Host) writeTask(ctx context.Context, caller Caller, id string, write func(Tx, domain.Task) (domain.Task, error)) (TaskView, error) {
	var found domain.Task
	var written TaskView
	err := h.Store.Read(ctx, func(s Snapshot) (err error) {
		found, err = findTask(s, id)
		return err
	})
	if err != nil {
		return TaskView{}, err
	}
	err = h.write(ctx, caller, found.WorkspaceID, func(tx Tx) error {
		task, there, err := tx.Task(id) // it may be gone since
		switch {
		case err != nil:
			return fmt.Errorf("read the task: %w", err)
		case !there:
			return noTask(id)
		}
		task, err = write(tx, task)
		written = TaskView{Task: task, StoreEpoch: tx.StoreEpoch()}
		return err
	})
	if err != nil {
		// written may still be written by a transaction that nobody waits for.
		return TaskView{}, err
	}
	return written, nil
}

// TaskMove is what MoveTask is asked for.
type TaskMove struct {
	TaskID, WorkflowStepID string
	WorkflowID             *string
	Position               int32
}

func (m TaskMove) check() *Failure {
	switch {
	case m.TaskID == "":
		return fail(InvalidArgument, "task_id is required")
	case m.WorkflowStepID == "":
		return fail(InvalidArgument, "workflow_step_id is required")
	case m.WorkflowID != nil && *m.WorkflowID == "":
		return fail(InvalidArgument, "workflow_id must not be empty when present")
	case m.Position < 0:
		return fail(InvalidArgument, "position must not be negative")
	default:
		return nil
	}
}

// Moved is what MoveTask did.
type Moved struct {
	Task TaskView
	// Transitioned: the task stands in another step now, maybe without a slot. It
	// doesn't yet where its agent's turn runs: the move waits for the end of that.
	Transitioned bool
	FromStepID   string
}

// MoveTask moves a task to a step, behind all that stand there, whatever position is
// asked for.
func (h *Host) MoveTask(ctx context.Context, caller Caller, move TaskMove) (Moved, error) {
	if failure := move.check(); failure != nil {
		return Moved{}, failure
	}
	var out Moved
	written, err := h.writeTask(ctx, caller, move.TaskID, func(tx Tx, task domain.Task) (domain.Task, error) {
		out = Moved{FromStepID: task.WorkflowStepID}
		if failure := checkText("workflow_step_id", move.WorkflowStepID); failure != nil {
			return task, failure
		}
		target, found, err := tx.WorkflowStep(move.WorkflowStepID)
		if err != nil {
			return task, fmt.Errorf("read the step: %w", err)
		}
		if !found || move.WorkflowID != nil && *move.WorkflowID != target.WorkflowID {
			return task, invalidWorkflow("workflow step not found: " + move.WorkflowStepID)
		}
		by := h.mover(caller)
		if target.ID != task.WorkflowStepID {
			session, runs, err := runningSession(tx, task.ID)
			if err != nil {
				return task, err
			}
			if runs {
				return task, h.moveLater(tx, caller, task, target, session, move.Position, by)
			}
		}
		moved, arrived, err := board.Move(tx, task, target, by)
		switch {
		case errors.Is(err, board.ErrStepFull):
			return task, fail(Unknown, "%s", board.ErrStepFull)
		case err != nil || !arrived:
			return task, err
		}
		out.Transitioned = true
		if err := h.append(tx, caller, "MoveTask", task, moved, eventTaskMoved, domain.NewTaskMovedPayload(&task, &moved, false)); err != nil {
			return task, err
		}
		return moved, board.Promote(tx, board.Freed(task, moved), by)
	})
	if err != nil {
		return Moved{}, fmt.Errorf("move the task: %w", err)
	}
	out.Task = h.view(ctx, caller, written)
	return out, nil
}

// runningSession finds the session of a task whose agent's turn runs.
func runningSession(tx Tx, taskID string) (domain.Session, bool, error) {
	sessions, err := tx.SessionsOf(taskID)
	if err != nil {
		return domain.Session{}, false, fmt.Errorf("read the sessions of the task: %w", err)
	}
	for _, s := range sessions {
		if s.State == domain.SessionRunning {
			return s, true, nil
		}
	}
	return domain.Session{}, false, nil
}

// moveLater makes the move wait for the end of the turn that runs in a session, in
// the place of one that waits there already.
func (h *Host) moveLater(tx Tx, caller Caller, task domain.Task, target domain.WorkflowStep, session domain.Session, position int32, by board.Mover) error {
	pending := domain.PendingTransition{
		ID: h.NewID(), WorkspaceID: task.WorkspaceID, TaskID: task.ID, SessionID: session.ID, FromWorkflowID: task.WorkflowID,
		FromStepID: task.WorkflowStepID, ToWorkflowID: target.WorkflowID, ToStepID: target.ID, Position: position,
		Predicate: domain.PredicateTurnEnd, Actor: by.Actor, Requester: by.Requester, QueuedAt: by.Now, Version: tx.Version(),
	}
	if err := board.MoveLater(tx, pending); err != nil {
		return err
	}
	entry := journal.Entry{
		WorkspaceID: task.WorkspaceID, Kind: journal.KindCommand, AuditID: h.NewAuditID(), InstallationID: caller.InstallationID,
		Method: "MoveTask", Capability: contract.LegacyWriteTasks.String(), Result: contract.StateApplied, TargetID: pending.ID,
		After: domain.ResourceVersion(tx.StoreEpoch(), pending.Version), At: by.Now,
	}
	if err := tx.Append(entry); err != nil {
		return fmt.Errorf("append the entry: %w", err)
	}
	return nil
}
