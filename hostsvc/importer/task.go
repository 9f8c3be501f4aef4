package importer

import (
	"errors"
	"math"
	"time"

	"github.com/kandev/plugin-host/hostsvc/domain"
)

type taskItem struct {
	domain.Task
	// placed: the document says at which position.
	placed bool
}

func taskStates() []string {
	return texts(domain.TaskTodo, domain.TaskCreated, domain.TaskScheduling, domain.TaskInProgress, domain.TaskReview,
		domain.TaskBlocked, domain.TaskWaitingForInput, domain.TaskCompleted, domain.TaskFailed, domain.TaskCancelled)
}

func texts[T ~string](words ...T) []string {
	list := make([]string, len(words))
	for i, word := range words {
		list[i] = string(word)
	}
	return list
}

func readTask(f *fields, id string, now time.Time) item {
	t := &taskItem{Task: domain.Task{
		ID: id, Title: f.title("title"), Description: f.prose("description"), Ephemeral: f.flag("is_ephemeral", false),
		WorkflowID: f.ref("workflow_id"), WorkflowStepID: f.ref("workflow_step_id"), ParentID: f.ref("parent_id"),
		State: domain.TaskState(f.word("state", string(domain.TaskTodo), taskStates()...)),
		Priority: domain.TaskPriority(f.word("priority", string(domain.DefaultTaskPriority),
			texts(domain.PriorityCritical, domain.PriorityHigh, domain.PriorityMedium, domain.PriorityLow)...)),
		Labels: f.names("labels"), ExternalID: f.ref("external_id"), Source: f.ref("source"), Identifier: f.name("identifier"),
		CreatorInstallationID: f.ref("creator_installation_id"), Origin: f.name("created_by"),
		ConfigMode: f.flag("is_config_mode", false), Autopilot: f.flag("autopilot", false),
		ProjectID: f.ref("project_id"), AssigneeUserID: f.ref("assignee_user_id"),
		AssigneeAgentProfileID: f.ref("assignee_agent_profile_id"), StartWhenUnblocked: f.flag("start_when_unblocked", false),
		QueuedForStepID: f.ref("queued_for_step_id"), QueuedAt: f.instant("queued_at"), Metadata: f.object("metadata"),
		StartedAt: f.instant("started_at"), CompletedAt: f.instant("completed_at"), ArchivedAt: f.instant("archived_at"),
	}}
	t.CreatedAt, t.UpdatedAt = f.stamps(now)
	var position int64
	position, t.placed = f.number("position", 0, math.MaxInt32)
	t.Position = int32(position)
	// A feeder's task holds a slot there; one that waits in the step itself has none.
	waits := t.QueuedForStepID != "" && t.QueuedForStepID == t.WorkflowStepID
	t.WIPAdmitted = f.flag("wip_admitted", !t.Ephemeral && !waits)
	f.objects("repositories", func(in *fields) { t.Repositories = append(t.Repositories, readTaskRepository(in)) })
	f.objects("pull_requests", func(in *fields) { t.PullRequests = append(t.PullRequests, readPullRequest(in)) })
	if _, there := t.Metadata["source"]; there {
		f.fault("metadata", "has a member source; write the field source instead")
	}
	switch {
	case t.Ephemeral && (t.WorkflowID != "" || t.WorkflowStepID != ""):
		f.fault("is_ephemeral", "an ephemeral task is in no workflow; leave workflow_id and workflow_step_id out")
	case !t.Ephemeral && t.WorkflowStepID == "" && !f.faulty("workflow_step_id"):
		f.fault("workflow_step_id", "is required, unless is_ephemeral is true")
	}
	if t.QueuedForStepID != "" && t.QueuedAt.IsZero() {
		t.QueuedAt = t.CreatedAt
	}
	if t.QueuedForStepID == "" && !t.QueuedAt.IsZero() {
		f.fault("queued_at", "needs queued_for_step_id")
	}
	if waits && t.WIPAdmitted {
		f.fault("wip_admitted", "the task waits for a slot of the step where it stands; leave one of the two out")
	}
	return t
}

func readTaskRepository(f *fields) domain.TaskRepository {
	return domain.TaskRepository{
		ID: f.ref("id"), RepositoryID: f.id("repository_id"), BaseBranch: f.name("base_branch"),
		CheckoutBranch: f.name("checkout_branch"), Position: f.small("position"),
	}
}

func readPullRequest(f *fields) domain.TaskPullRequest {
	return domain.TaskPullRequest{
		Number: f.count("number"), URL: f.prose("url"), Title: f.prose("title"),
		State: f.word("state", "open", "open", "closed", "merged"), HeadBranch: f.name("head_branch"), BaseBranch: f.name("base_branch"),
		Draft: f.flag("is_draft", false), Provider: f.word("provider", "github", "github", "gitlab"),
		ReviewState: f.word("review_state", "", "", "approved", "changes_requested", "pending"),
		ChecksState: f.word("checks_state", "", "", "success", "failure", "pending"),
		MergeableState: f.word("mergeable_state", "", "", "clean", "blocked", "behind", "dirty", "unstable", "draft",
			"unknown"),
		UnresolvedReviewThreads: f.small("unresolved_review_threads"), ChecksTotal: f.small("checks_total"),
		ChecksPassing: f.small("checks_passing"), Additions: f.small("additions"), Deletions: f.small("deletions"),
		AuthorLogin: f.name("author_login"), MergedAt: f.instant("merged_at"), ClosedAt: f.instant("closed_at"),
	}
}

func (t *taskItem) place() (Space, string) { return SpaceTask, t.ID }

func (t *taskItem) needs(need func(Space, string)) {
	need(SpaceStep, t.WorkflowStepID)
	need(SpaceStep, t.QueuedForStepID)
	need(SpaceTask, t.ParentID)
	need(SpaceTransition, t.slotMoveID())
	if t.ExternalID != "" {
		need(SpaceExternal, ExternalID(t.Source, t.ExternalID))
	}
	for _, r := range t.Repositories {
		need(SpaceRepository, r.RepositoryID)
	}
}

// slotMoveID is the ID of the move that the task is queued for, "" for none.
func (t *taskItem) slotMoveID() string {
	if _, queued := t.SlotMove(); !queued {
		return ""
	}
	return t.ID
}

const noStep = "is no step of the workspace that is above or in the store; put its document first"

func (t *taskItem) check(w *world, d *document) {
	workflow := t.WorkflowID
	if t.WorkflowStepID != "" {
		step, there := w.find(SpaceStep, t.WorkflowStepID)
		switch {
		case !there:
			d.fault("workflow_step_id", noStep)
		case t.WorkflowID != "" && t.WorkflowID != step.In:
			d.fault("workflow_id", "is not the workflow of workflow_step_id; correct one of them")
		default:
			workflow = step.In
		}
	}
	if t.QueuedForStepID != "" {
		t.checkQueue(w, d, workflow)
	}
	if _, there := w.find(SpaceTask, t.ParentID); t.ParentID != "" && !there {
		d.fault("parent_id", noTask)
	}
	if t.ExternalID != "" {
		external := ExternalID(t.Source, t.ExternalID)
		if _, taken := w.find(SpaceExternal, external); taken {
			d.fault("external_id", "another task of the same source has it; correct one of them")
		}
		w.add(SpaceExternal, external, Known{})
	}
	for _, r := range t.Repositories {
		if _, there := w.find(SpaceRepository, r.RepositoryID); !there {
			d.fault("repositories", "one is no repository of the workspace that is above or in the store; put its document first")
			break
		}
	}
	t.WorkflowID = workflow
	w.add(SpaceTask, t.ID, Known{In: t.WorkflowStepID, As: workflow})
}

// checkQueue checks the queue that the task waits in, and adds the move that it waits
// to make.
func (t *taskItem) checkQueue(w *world, d *document, workflow string) {
	step, there := w.find(SpaceStep, t.QueuedForStepID)
	switch {
	case !there:
		d.fault("queued_for_step_id", noStep)
	case workflow != "" && step.In != workflow:
		d.fault("queued_for_step_id", "is a step of another workflow; name one of the workflow where the task stands")
	}
	id := t.slotMoveID()
	if id == "" {
		return
	}
	if _, taken := w.find(SpaceTransition, id); taken {
		d.fault("queued_for_step_id", "a transition has the task's ID already, which the move that it waits to make gets; give that one another")
	}
	w.add(SpaceTransition, id, Known{})
	w.add(SpaceSlot, t.ID, Known{In: t.QueuedForStepID, As: id})
}

const noTask = "is no task of the workspace that is above or in the store; put its document first"

var errLastPosition = errors.New("position: the step has a task at the last position there is; write which one this has")

func (t *taskItem) insert(tx Tx) error {
	task := t.Task
	if !t.placed && !task.Ephemeral {
		last, err := tx.LastPosition(task.WorkflowStepID)
		if err != nil {
			return err
		}
		if last == math.MaxInt32 {
			return errLastPosition
		}
		task.Position = last + 1
	}
	return tx.Task(task)
}

type relationItem struct{ domain.TaskRelation }

// A parent is named by its child, so a relation is a dependency.
func readRelation(f *fields, _ string, now time.Time) item {
	r := &relationItem{domain.TaskRelation{
		Kind: domain.RelationDependency, SourceTaskID: f.id("source_task_id"), TargetTaskID: f.id("target_task_id"),
		CreatedAt: f.instant("created_at"),
	}}
	if r.CreatedAt.IsZero() {
		r.CreatedAt = now
	}
	return r
}

func (r *relationItem) place() (Space, string) {
	if r.SourceTaskID == "" || r.TargetTaskID == "" {
		return SpaceRelation, ""
	}
	return SpaceRelation, RelationID(r.SourceTaskID, r.TargetTaskID)
}

func (r *relationItem) insert(tx Tx) error { return tx.Relation(r.TaskRelation) }

func (r *relationItem) needs(need func(Space, string)) {
	need(SpaceTask, r.SourceTaskID)
	need(SpaceTask, r.TargetTaskID)
}

func (r *relationItem) check(w *world, d *document) {
	_, source := w.find(SpaceTask, r.SourceTaskID)
	_, target := w.find(SpaceTask, r.TargetTaskID)
	if !source {
		d.fault("source_task_id", noTask)
	}
	if !target {
		d.fault("target_task_id", noTask)
	}
	if !source || !target {
		return
	}
	err := domain.CheckNewRelation(domain.RelationDependency, domain.Task{ID: r.SourceTaskID}, domain.Task{ID: r.TargetTaskID}, w.predecessors)
	var rule *domain.RuleError
	var cycle *domain.CycleError
	switch {
	case err == nil:
		edge := r.TaskRelation
		w.relate(edge)
		w.add(SpaceRelation, RelationID(r.SourceTaskID, r.TargetTaskID), Known{})
	case errors.As(err, &cycle):
		d.fault("source_task_id", "closes a cycle of dependencies; leave the relation out, or another one of the cycle")
	case errors.As(err, &rule):
		d.fault("target_task_id", "%s", rule.Text)
	case errors.Is(err, domain.ErrRelationSearch):
		d.fault("source_task_id", "has more than %d tasks before it, too many to rule a cycle out", domain.MaxRelationSearch)
	default:
		w.fail(err)
	}
}

type stepTransitionItem struct{ domain.StepTransition }

func triggerWords() []string {
	return texts(domain.TriggerManual, domain.TriggerAutoComplete, domain.TriggerApproval, domain.TriggerOnTurnStart,
		domain.TriggerOnChildrenCompleted, domain.TriggerTaskUpdate, domain.TriggerQueuePromotion)
}

func actorWords() []string { return texts(domain.ActorHuman, domain.ActorAgent, domain.ActorSystem) }

func readStepTransition(f *fields, _ string, _ time.Time) item {
	return &stepTransitionItem{domain.StepTransition{
		TaskID: f.id("task_id"), FromWorkflowID: f.ref("from_workflow_id"), FromStepID: f.ref("from_workflow_step_id"),
		ToWorkflowID: f.ref("to_workflow_id"), ToStepID: f.ref("to_workflow_step_id"),
		Trigger:    domain.TransitionTrigger(f.word("trigger", string(domain.TriggerManual), triggerWords()...)),
		Actor:      domain.Actor(f.word("actor", string(domain.ActorHuman), actorWords()...)),
		OccurredAt: f.required("occurred_at"),
	}}
}

func (s *stepTransitionItem) place() (Space, string)         { return "", "" }
func (s *stepTransitionItem) needs(need func(Space, string)) { need(SpaceTask, s.TaskID) }
func (s *stepTransitionItem) insert(tx Tx) error             { return tx.StepTransition(s.StepTransition) }

// The steps may be gone by now.
func (s *stepTransitionItem) check(w *world, d *document) {
	if _, there := w.find(SpaceTask, s.TaskID); !there {
		d.fault("task_id", noTask)
	}
}

type transitionItem struct{ domain.PendingTransition }

func readTransition(f *fields, id string, now time.Time) item {
	p := &transitionItem{domain.PendingTransition{
		ID: id, TaskID: f.id("task_id"), ToStepID: f.id("to_step_id"), Position: f.small("position"),
		Predicate: domain.TransitionPredicate(f.word("predicate", string(domain.PredicateTurnEnd),
			texts(domain.PredicateTurnEnd, domain.PredicateSlot)...)),
		SessionID: f.ref("session_id"), Actor: domain.Actor(f.word("actor", string(domain.ActorHuman), actorWords()...)),
		Requester: f.name("requester"), SenderSessionID: f.ref("sender_session_id"), QueuedAt: f.instant("created_at"),
		ExpiresAt: f.instant("expires_at"),
	}}
	if p.QueuedAt.IsZero() && p.Predicate != domain.PredicateSlot { // which waits since the task is queued
		p.QueuedAt = now
	}
	switch ends := p.Predicate == domain.PredicateTurnEnd; {
	case ends && p.SessionID == "":
		f.fault("session_id", "is required: the move waits for the end of its turn")
	case !ends && p.SessionID != "":
		f.fault("session_id", "belongs to predicate turn_end; leave it out")
	}
	if p.Expired(now) {
		f.fault("expires_at", "is over; leave the document out")
	}
	return p
}

func (p *transitionItem) place() (Space, string) { return SpaceTransition, p.ID }
func (p *transitionItem) insert(tx Tx) error     { return tx.PendingTransition(p.PendingTransition) }

func (p *transitionItem) needs(need func(Space, string)) {
	need(SpaceTask, p.TaskID)
	need(SpaceStep, p.ToStepID)
	need(SpaceSession, p.SessionID)
	need(SpaceWaiting, p.SessionID)
	if p.Predicate == domain.PredicateSlot {
		need(SpaceSlot, p.TaskID)
	}
}

func (p *transitionItem) check(w *world, d *document) {
	task, there := w.find(SpaceTask, p.TaskID)
	if !there {
		d.fault("task_id", noTask)
	}
	to, there := w.find(SpaceStep, p.ToStepID)
	if !there {
		d.fault("to_step_id", noStep)
	}
	p.FromStepID, p.FromWorkflowID, p.ToWorkflowID = task.In, task.As, to.In
	if p.Predicate == domain.PredicateSlot {
		p.checkSlot(w, d)
	}
	if p.SessionID != "" {
		session, there := w.find(SpaceSession, p.SessionID)
		switch {
		case !there || session.In != p.TaskID:
			d.fault("session_id", "is no session of the task that is above or in the store; put its document first")
		case domain.SessionState(session.As).Terminal():
			d.fault("session_id", "is over, so that its turn never ends; leave the document out")
		}
		if _, waits := w.find(SpaceWaiting, p.SessionID); waits {
			d.fault("session_id", "has a pending transition already; leave one of them out")
		}
		w.add(SpaceWaiting, p.SessionID, Known{})
	}
	w.add(SpaceTransition, p.ID, Known{})
}

// checkSlot checks a move for a slot: it takes the place of the one that its task got
// with its document.
func (p *transitionItem) checkSlot(w *world, d *document) {
	slot, queued := w.find(SpaceSlot, p.TaskID)
	_, task := w.find(SpaceTask, p.TaskID)
	_, step := w.find(SpaceStep, p.ToStepID)
	if !task || !step {
		return // which is a fault already
	}
	switch {
	case !queued || slot.In != p.ToStepID:
		d.fault("to_step_id", "is not the step whose slot the task waits for elsewhere; name it as queued_for_step_id of the task")
	case slot.As != p.TaskID:
		d.fault("task_id", "has a pending transition for a slot already; leave one of them out")
	}
	w.add(SpaceSlot, p.TaskID, Known{In: p.ToStepID, As: p.ID})
}

// RelationID is the ID in SpaceRelation of a dependency.
func RelationID(sourceTaskID, targetTaskID string) string {
	return sourceTaskID + "\x00" + targetTaskID
}
