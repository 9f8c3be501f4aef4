package domain

import (
	"slices"
	"time"

	"github.com/kandev/plugin-host/contract"
)

// TaskState is the state of a task.
type TaskState string

// The task states.
const (
	TaskTodo            TaskState = "TODO"
	TaskCreated         TaskState = "CREATED"
	TaskScheduling      TaskState = "SCHEDULING"
	TaskInProgress      TaskState = "IN_PROGRESS"
	TaskReview          TaskState = "REVIEW"
	TaskBlocked         TaskState = "BLOCKED"
	TaskWaitingForInput TaskState = "WAITING_FOR_INPUT"
	TaskCompleted       TaskState = "COMPLETED"
	TaskFailed          TaskState = "FAILED"
	TaskCancelled       TaskState = "CANCELLED"
)

var taskStates = []TaskState{
	TaskTodo, TaskCreated, TaskScheduling, TaskInProgress, TaskReview, TaskBlocked,
	TaskWaitingForInput, TaskCompleted, TaskFailed, TaskCancelled,
}

// Known tells whether it is a state of a task at all.
func (s TaskState) Known() bool { return slices.Contains(taskStates, s) }

// Terminal tells whether the state ends a task.
func (s TaskState) Terminal() bool {
	return s == TaskCompleted || s == TaskFailed || s == TaskCancelled
}

// TaskPriority is the priority of a task.
type TaskPriority string

// The task priorities; DefaultTaskPriority is used when none is named.
const (
	PriorityCritical    TaskPriority = "critical"
	PriorityHigh        TaskPriority = "high"
	PriorityMedium      TaskPriority = "medium"
	PriorityLow         TaskPriority = "low"
	DefaultTaskPriority              = PriorityMedium
)

var taskPriorities = []TaskPriority{PriorityCritical, PriorityHigh, PriorityMedium, PriorityLow}

// Known tells whether it is a priority of a task at all.
func (p TaskPriority) Known() bool { return slices.Contains(taskPriorities, p) }

// Task is a unit of work in a workspace.
type Task struct {
	ID             string
	WorkspaceID    string
	WorkflowID     string
	WorkflowStepID string
	// Position orders the tasks of a step; an arrival goes last.
	Position    int32
	Title       string
	Description string
	State       TaskState
	Priority    TaskPriority
	ParentID    string
	Labels      []string
	// ExternalID is the creator's own name of the task, unique among the
	// tasks of one source in a workspace.
	ExternalID string
	// Source says who created the task, see PluginSource. It is the "source" of
	// the task's metadata too, which Metadata doesn't repeat.
	Source string
	// CreatorInstallationID is the installation that created the task, "" for who
	// isn't one and where that isn't known. Nobody is told; see Owner.
	CreatorInstallationID string
	// Identifier is the task's short name for humans.
	Identifier string
	// Origin is the kind of who or what created the task, shown as created_by.
	Origin string
	// Ephemeral tasks belong to no workflow and hold no slot.
	Ephemeral bool
	// ConfigMode tasks configure the instance; no v1 list shows them.
	ConfigMode bool
	// Autopilot tasks go through their workflow without a human.
	Autopilot              bool
	ProjectID              string
	AssigneeUserID         string
	AssigneeAgentProfileID string
	// StartWhenUnblocked asks for a start when the last predecessor resolves.
	StartWhenUnblocked bool
	Repositories       []TaskRepository
	PullRequests       []TaskPullRequest
	Metadata           Object
	// WIPAdmitted tells whether the task holds a slot of the step where it
	// stands. QueuedForStepID names the step whose slot it waits for, if any:
	// its own when not admitted, another when it waits in a feeder.
	WIPAdmitted     bool
	QueuedForStepID string
	QueuedAt        time.Time
	CreatedAt       time.Time
	UpdatedAt       time.Time
	StartedAt       time.Time
	CompletedAt     time.Time
	ArchivedAt      time.Time
	Version         Version
}

// Size is about how many bytes the task takes, on the wire too.
func (t Task) Size() int {
	const others, perLabel, perRepository, perPullRequest = 2 << 10, 16, 128, 512
	n := others + len(t.Title) + len(t.Description) + t.Metadata.Size()
	for _, label := range t.Labels {
		n += perLabel + len(label)
	}
	for _, r := range t.Repositories {
		n += perRepository + len(r.RepositoryID) + len(r.BaseBranch) + len(r.CheckoutBranch)
	}
	for i := range t.PullRequests {
		p := &t.PullRequests[i]
		n += perPullRequest + len(p.URL) + len(p.Title) + len(p.HeadBranch) + len(p.BaseBranch) + len(p.AuthorLogin)
	}
	return n
}

// TaskRepository is a repository that a task works on.
type TaskRepository struct {
	ID             string
	RepositoryID   string
	BaseBranch     string
	CheckoutBranch string
	Position       int32
}

// TaskPullRequest is a change request of a task as its forge last told it.
type TaskPullRequest struct {
	Number int64
	URL    string
	Title  string
	// State is "open", "closed" or "merged".
	State      string
	HeadBranch string
	BaseBranch string
	Draft      bool
	// Provider is "github" or "gitlab".
	Provider string
	// ReviewState is "approved", "changes_requested", "pending" or "".
	ReviewState string
	// ChecksState is "success", "failure", "pending" or "".
	ChecksState string
	// MergeableState is "clean", "blocked", "behind", "dirty", "unstable",
	// "draft", "unknown" or "".
	MergeableState          string
	UnresolvedReviewThreads int32
	ChecksTotal             int32
	ChecksPassing           int32
	Additions               int32
	Deletions               int32
	AuthorLogin             string
	MergedAt                time.Time
	ClosedAt                time.Time
}

// PluginSource is the source of what a plugin creates: by v1 under its package's
// own ID, by the exact contract under the ID of its installation (domain facts,
// section 11). No package's ID reads as an installation's (contract.ReadsAsInstallationID).
func PluginSource(id string) string { return "plugin:" + id }

// sourceKey is the member of a task's metadata that holds its source.
const sourceKey = "source"

// PublicMetadata is the task's metadata as v1 shows it, with its source.
func (t Task) PublicMetadata() Object {
	if t.Source == "" {
		return t.Metadata
	}
	return t.Metadata.With(sourceKey, t.Source)
}

// PluginMetadata is what is stored of the metadata that a source gives a task it
// creates: all under the source's own name. An error is a *RuleError.
func PluginMetadata(source string, given Object) (Object, error) {
	if _, ok := given[sourceKey]; ok {
		return nil, &RuleError{FaultInvalid, "metadata.source is reserved"}
	}
	if len(given) == 0 {
		return nil, nil //nolint:nilnil // No metadata is an empty object.
	}
	return Object{source: map[string]any(given)}, nil
}

// TaskDraft is what a caller names when it creates a task.
type TaskDraft struct {
	Description    string
	ExternalID     string
	ParentID       string
	Priority       string
	Title          string
	WorkflowID     string
	WorkflowStepID string
}

// Check returns the first fault of the draft, with field names under prefix.
func (d TaskDraft) Check(prefix string) *contract.FieldError {
	if fault := contract.CheckIdentifier(prefix+"workflow_id", d.WorkflowID); fault != nil {
		return fault
	}
	if d.WorkflowStepID != "" {
		if fault := contract.CheckIdentifier(prefix+"workflow_step_id", d.WorkflowStepID); fault != nil {
			return fault
		}
	}
	if d.ParentID != "" {
		if fault := contract.CheckIdentifier(prefix+"parent_id", d.ParentID); fault != nil {
			return fault
		}
	}
	if fault := checkTitle(prefix+"title", d.Title); fault != nil {
		return fault
	}
	if fault := contract.CheckText(prefix+"description", d.Description, contract.MaxDescriptionBytes); fault != nil {
		return fault
	}
	if d.Priority != "" {
		return checkPriority(prefix+"priority", d.Priority)
	}
	return nil
}

// Placement is the outcome of WIP admission for a task that arrives at a step.
type Placement struct {
	// StepID is where the row stands.
	StepID          string
	Admitted        bool
	QueuedForStepID string
}

// StepLoad is a step with the number of tasks that hold its slots.
type StepLoad struct {
	Step    WorkflowStep
	Holders int
}

func (l StepLoad) full() bool { return l.Step.WIPLimit > 0 && l.Holders >= int(l.Step.WIPLimit) }

// PlaceNewTask decides where a new task goes: into target when it has a slot;
// otherwise into the feeder when there is one with a slot, queued for target;
// with no feeder it stands in target, not admitted. ok is false when target
// and its feeder are both full.
func PlaceNewTask(target StepLoad, feeder *StepLoad) (p Placement, ok bool) {
	switch {
	case !target.full():
		return Placement{StepID: target.Step.ID, Admitted: true}, true
	case feeder == nil:
		return Placement{StepID: target.Step.ID, QueuedForStepID: target.Step.ID}, true
	case !feeder.full():
		return Placement{StepID: feeder.Step.ID, Admitted: true, QueuedForStepID: target.Step.ID}, true
	default:
		return Placement{}, false
	}
}

// NewTask builds the task that a checked draft describes.
func NewTask(id, workspaceID, source string, d TaskDraft, p Placement, position int32, now time.Time) Task {
	priority := DefaultTaskPriority
	if d.Priority != "" {
		priority = TaskPriority(d.Priority)
	}
	t := Task{
		ID: id, WorkspaceID: workspaceID, WorkflowID: d.WorkflowID, WorkflowStepID: p.StepID, Position: position,
		Title: d.Title, Description: d.Description, State: TaskTodo, Priority: priority, ParentID: d.ParentID,
		ExternalID: d.ExternalID, Source: source, WIPAdmitted: p.Admitted, QueuedForStepID: p.QueuedForStepID,
		CreatedAt: now, UpdatedAt: now,
	}
	if p.QueuedForStepID != "" {
		t.QueuedAt = now
	}
	return t
}

// TaskPatch names the fields an update changes; nil leaves a field alone.
type TaskPatch struct {
	Description *string
	Priority    *string
	State       *string
	Title       *string
}

// Empty tells whether the patch names no field.
func (p TaskPatch) Empty() bool {
	return p.Title == nil && p.Description == nil && p.State == nil && p.Priority == nil
}

// Check returns the first fault of the patch. SCHEDULING is the scheduler's
// own state and can't be set by a caller.
func (p TaskPatch) Check() *contract.FieldError {
	if p.Empty() {
		return &contract.FieldError{
			Field: "title", Reason: contract.ReasonMissingExactField,
			Detail: "at least one of title, description, state and priority is required",
		}
	}
	if p.Title != nil {
		if fault := checkTitle("title", *p.Title); fault != nil {
			return fault
		}
	}
	if p.Description != nil {
		if fault := contract.CheckText("description", *p.Description, contract.MaxDescriptionBytes); fault != nil {
			return fault
		}
	}
	if p.State != nil {
		if state := TaskState(*p.State); !state.Known() || state == TaskScheduling {
			return malformed("state", "is not a state that a caller can set")
		}
	}
	if p.Priority != nil {
		return checkPriority("priority", *p.Priority)
	}
	return nil
}

// Apply returns the task with the patch applied; changed is false when the
// task already is as asked.
func (p TaskPatch) Apply(t Task, now time.Time) (patched Task, changed bool) {
	patched = t
	if p.Title != nil {
		patched.Title = *p.Title
	}
	if p.Description != nil {
		patched.Description = *p.Description
	}
	if p.Priority != nil {
		patched.Priority = TaskPriority(*p.Priority)
	}
	if p.State != nil {
		patched.State = TaskState(*p.State)
	}
	if patched.Title == t.Title && patched.Description == t.Description &&
		patched.Priority == t.Priority && patched.State == t.State {
		return t, false
	}
	if patched.State == TaskInProgress && patched.StartedAt.IsZero() {
		patched.StartedAt = now
	}
	switch {
	case patched.State.Terminal() && !t.State.Terminal():
		patched.CompletedAt = now
	case !patched.State.Terminal():
		patched.CompletedAt = time.Time{}
	}
	patched.UpdatedAt = now
	return patched, true
}

func checkTitle(field, title string) *contract.FieldError {
	if title == "" {
		return &contract.FieldError{Field: field, Reason: contract.ReasonMissingExactField, Detail: "is required"}
	}
	return contract.CheckText(field, title, contract.MaxTitleBytes)
}

func checkPriority(field, priority string) *contract.FieldError {
	if !TaskPriority(priority).Known() {
		return malformed(field, "is not one of critical, high, medium and low")
	}
	return nil
}

func malformed(field, detail string) *contract.FieldError {
	return &contract.FieldError{Field: field, Reason: contract.ReasonMalformedPrecondition, Detail: detail}
}
