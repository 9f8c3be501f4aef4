package command

import (
	"errors"
	"fmt"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/board"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

// TaskTx is what task commands need of a transaction. Every method is bound to
// the transaction's workspace.
type TaskTx interface {
	Task(id string) (task domain.Task, found bool, err error)
	// TaskThatWaits reads a task. waits tells whether it has predecessors at all: most
	// have none, and who writes one need not ask for them.
	TaskThatWaits(id string) (task domain.Task, waits, found bool, err error)
	// TaskByExternalID finds a task by its creator's own name for it.
	TaskByExternalID(source, externalID string) (task domain.Task, found bool, err error)
	// InsertTask adds a task at the transaction's version.
	InsertTask(task domain.Task) error
	// UpdateTask replaces the current row and closes the version before it.
	UpdateTask(task domain.Task) error
	Workflow(id string) (workflow domain.Workflow, found bool, err error)
	WorkflowStep(id string) (step domain.WorkflowStep, found bool, err error)
	// SlotHolders counts the tasks that hold a slot of a step: admitted and
	// not archived.
	SlotHolders(stepID string) (int, error)
	// LastPosition is the highest position among a step's tasks, -1 for none.
	LastPosition(stepID string) (int32, error)
	// QueuedTasks lists the tasks that wait for a slot of a step, those that wait
	// longest first, at most limit.
	QueuedTasks(stepID string, limit int) ([]domain.Task, error)
}

// TaskReadBack is the readback of the commands of a task: the task with what its
// predecessors make of it in the transaction that answered. A read right behind it
// says the same.
type TaskReadBack struct {
	domain.Task

	Blocked domain.BlockedReason
}

// The outbox events of tasks.
const (
	EventTaskCreated = "task.created"
	EventTaskUpdated = "task.updated"
)

// CreateTask places a new task at the end of a step. Its members, and those of
// every command, are in the order of their names, which is the canonical one:
// sorting them costs more than digesting them.
type CreateTask struct {
	Draft domain.TaskDraft
	// ExpectedParentVersion is the resource version of the parent when the
	// draft names one, the others are those of the placement's targets.
	ExpectedParentVersion   string
	ExpectedStepVersion     string
	ExpectedWorkflowVersion string
}

// Check implements Command.
func (c CreateTask) Check() *admission.Refusal {
	if fault := contract.CheckIdentifier("external_id", c.Draft.ExternalID); fault != nil {
		return admission.RefuseField(fault)
	}
	if fault := c.Draft.Check("task."); fault != nil {
		return admission.RefuseField(fault)
	}
	expected := []struct{ field, value string }{
		{"task.workflow_step_id", c.Draft.WorkflowStepID},
		{"expected_workflow_resource_version", c.ExpectedWorkflowVersion},
		{"expected_workflow_step_resource_version", c.ExpectedStepVersion},
	}
	if c.Draft.ParentID == "" && c.ExpectedParentVersion != "" {
		return admission.RefuseField(&contract.FieldError{
			Field: "expected_parent_resource_version", Reason: contract.ReasonMalformedPrecondition,
			Detail: "is given without task.parent_id",
		})
	}
	if c.Draft.ParentID != "" {
		expected = append(expected, struct{ field, value string }{"expected_parent_resource_version", c.ExpectedParentVersion})
	}
	for _, id := range expected {
		if fault := contract.CheckIdentifier(id.field, id.value); fault != nil {
			return admission.RefuseField(fault)
		}
	}
	return nil
}

// Canonical implements Command.
func (c CreateTask) Canonical() any { return c }

// Targets implements Command.
func (c CreateTask) Targets() []string { return nil }

// Prepare implements Command.
func (c CreateTask) Prepare(tx Tx, at Commit) (func() (Effect, error), error) {
	target, feeder, err := c.targets(tx)
	if err != nil {
		return nil, err
	}
	return func() (Effect, error) { return c.create(tx, at, target, feeder) }, nil
}

func (c CreateTask) create(tx Tx, at Commit, target domain.StepLoad, feeder *domain.StepLoad) (Effect, error) {
	source := domain.PluginSource(at.InstallationID)
	if _, taken, err := tx.TaskByExternalID(source, c.Draft.ExternalID); err != nil {
		return Effect{}, fmt.Errorf("look up the external ID: %w", err)
	} else if taken {
		return Effect{}, admission.RefuseField(&contract.FieldError{
			Field: "external_id", Reason: contract.ReasonMalformedPrecondition, Detail: "names a task that exists already",
		})
	}
	placement, ok := domain.PlaceNewTask(target, feeder)
	if !ok {
		return Effect{}, admission.RefuseField(&contract.FieldError{
			Field: "task.workflow_step_id", Reason: contract.ReasonMalformedPrecondition,
			Detail: "workflow step WIP limit exceeded",
		})
	}
	position, err := board.Next(tx, placement.StepID)
	if errors.Is(err, board.ErrStepFull) {
		return Effect{}, admission.RefuseField(&contract.FieldError{
			Field: "task.workflow_step_id", Reason: contract.ReasonMalformedPrecondition,
			Detail: "has a task at the last position there is",
		})
	}
	if err != nil {
		return Effect{}, err
	}
	task := domain.NewTask(at.NewID(), at.WorkspaceID, source, c.Draft, placement, position, at.Now)
	task.CreatorInstallationID, task.Version = at.InstallationID, tx.Version()
	if err := tx.InsertTask(task); err != nil {
		return Effect{}, fmt.Errorf("insert the task: %w", err)
	}
	err = board.Created(tx, task, board.Mover{
		Trigger: domain.TriggerManual, Actor: domain.ActorSystem, Requester: source, Now: at.Now, NewID: at.NewID,
	})
	if err != nil {
		return Effect{}, err
	}
	return Effect{
		State: contract.StateApplied, TargetID: task.ID, After: domain.ResourceVersion(tx.StoreEpoch(), task.Version),
		// Nothing can be meant to come before a task that nobody knew.
		ReadBack: TaskReadBack{task, domain.BlockedNot}, EventType: EventTaskCreated, Event: domain.NewTaskPayload(&task),
	}, nil
}

// targets reads the placement's targets, lock order first: workflow, step,
// feeder, parent.
func (c CreateTask) targets(tx Tx) (target domain.StepLoad, feeder *domain.StepLoad, err error) {
	workflow, found, err := tx.Workflow(c.Draft.WorkflowID)
	if err != nil {
		return target, nil, fmt.Errorf("read the workflow: %w", err)
	}
	if err := current(tx, found, workflow.Version, "task.workflow_id", c.ExpectedWorkflowVersion); err != nil {
		return target, nil, err
	}
	step, found, err := tx.WorkflowStep(c.Draft.WorkflowStepID)
	if err != nil {
		return target, nil, fmt.Errorf("read the workflow step: %w", err)
	}
	found = found && step.WorkflowID == workflow.ID
	if err := current(tx, found, step.Version, "task.workflow_step_id", c.ExpectedStepVersion); err != nil {
		return target, nil, err
	}
	if target, err = board.Load(tx, step); err != nil {
		return target, nil, err
	}
	if step.PullFromStepID != "" {
		from, found, err := tx.WorkflowStep(step.PullFromStepID)
		if err != nil {
			return target, nil, fmt.Errorf("read the feeder step: %w", err)
		}
		if found {
			loaded, err := board.Load(tx, from)
			if err != nil {
				return target, nil, err
			}
			feeder = &loaded
		}
	}
	if c.Draft.ParentID == "" {
		return target, feeder, nil
	}
	parent, found, err := tx.Task(c.Draft.ParentID)
	if err != nil {
		return target, nil, fmt.Errorf("read the parent task: %w", err)
	}
	return target, feeder, current(tx, found, parent.Version, "task.parent_id", c.ExpectedParentVersion)
}

// current refuses a target that is not in the workspace, or not at the version
// that the caller expects.
func current(tx Tx, found bool, version domain.Version, field, expected string) error {
	if !found {
		refusal := admission.Refuse(contract.ReasonWorkspaceTargetNotFound, "no such target in this workspace")
		refusal.Field = field
		return refusal
	}
	if domain.ResourceVersion(tx.StoreEpoch(), version) != expected {
		refusal := admission.Refuse(contract.ReasonStaleResourceVersion, "the target has another resource version")
		refusal.Field = field
		return refusal
	}
	return nil
}

// ReadBack implements Command.
func (c CreateTask) ReadBack(tx Tx, targetID string) (any, error) { return readTask(tx, targetID) }

// UpdateTask changes fields of a task.
type UpdateTask struct {
	ExpectedVersion string
	Patch           domain.TaskPatch
	TaskID          string
}

// Check implements Command.
func (c UpdateTask) Check() *admission.Refusal {
	for _, id := range []struct{ field, value string }{
		{"task_id", c.TaskID}, {"expected_resource_version", c.ExpectedVersion},
	} {
		if fault := contract.CheckIdentifier(id.field, id.value); fault != nil {
			return admission.RefuseField(fault)
		}
	}
	if fault := c.Patch.Check(); fault != nil {
		return admission.RefuseField(fault)
	}
	return nil
}

// Canonical implements Command.
func (c UpdateTask) Canonical() any { return c }

// Targets implements Command.
func (c UpdateTask) Targets() []string { return []string{c.TaskID} }

// Prepare implements Command.
func (c UpdateTask) Prepare(tx Tx, at Commit) (func() (Effect, error), error) {
	task, waits, found, err := tx.TaskThatWaits(c.TaskID)
	if err != nil {
		return nil, fmt.Errorf("read the task: %w", err)
	}
	if err := current(tx, found, task.Version, "task_id", c.ExpectedVersion); err != nil {
		return nil, err
	}
	return func() (Effect, error) { return c.update(tx, at, task, waits) }, nil
}

func (c UpdateTask) update(tx Tx, at Commit, task domain.Task, waits bool) (Effect, error) {
	blocked, err := blockedBy(tx, task.ID, waits)
	if err != nil {
		return Effect{}, err
	}
	before := domain.ResourceVersion(tx.StoreEpoch(), task.Version)
	patched, changed := c.Patch.Apply(task, at.Now)
	if !changed {
		return Effect{State: contract.StateNoChange, TargetID: task.ID, Before: before, After: before, ReadBack: TaskReadBack{task, blocked}}, nil
	}
	patched.Version = tx.Version()
	if err := tx.UpdateTask(patched); err != nil {
		return Effect{}, fmt.Errorf("update the task: %w", err)
	}
	return Effect{
		State: contract.StateApplied, TargetID: task.ID, Before: before,
		After: domain.ResourceVersion(tx.StoreEpoch(), patched.Version), ReadBack: TaskReadBack{patched, blocked}, EventType: EventTaskUpdated,
		Event: domain.ChangedTaskPayload(&task, &patched),
		FollowUp: func() error {
			return board.Settled(tx, task, patched, board.Mover{Now: at.Now, NewAuditID: at.NewAuditID})
		},
	}, nil
}

// ReadBack implements Command.
func (c UpdateTask) ReadBack(tx Tx, targetID string) (any, error) { return readTask(tx, targetID) }

// readTask reads what a committed command wrote, as it is now; nil when it has been
// deleted since. That takes nothing back: a replay still tells that it was applied.
func readTask(tx Tx, id string) (any, error) {
	task, waits, found, err := tx.TaskThatWaits(id)
	if err != nil {
		return nil, fmt.Errorf("read the task: %w", err)
	}
	if !found {
		return nil, nil //nolint:nilnil // there is nothing to read back
	}
	blocked, err := blockedBy(tx, id, waits)
	if err != nil {
		return nil, err
	}
	return TaskReadBack{task, blocked}, nil
}

// blockedBy derives what its predecessors make of a task, which no write of the task
// itself changes (domain facts, section 9).
func blockedBy(tx Tx, id string, waits bool) (domain.BlockedReason, error) {
	if !waits {
		return domain.BlockedNot, nil
	}
	predecessors, err := tx.Predecessors([]string{id})
	if err != nil {
		return domain.BlockedUnknown, fmt.Errorf("read what the task waits for: %w", err)
	}
	return domain.BlockedBy(predecessors[id]), nil
}
