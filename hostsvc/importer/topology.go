package importer

import (
	"math"
	"time"

	"github.com/kandev/plugin-host/hostsvc/domain"
)

type workspaceItem struct{ domain.Workspace }

func readWorkspace(f *fields, id string, now time.Time) item {
	w := &workspaceItem{domain.Workspace{
		ID: id, Name: f.title("name"), Description: f.prose("description"), OwnerID: f.ref("owner_id"),
		DefaultExecutorID: f.ref("default_executor_id"), DefaultAgentProfileID: f.ref("default_agent_profile_id"),
		SortOrder: f.small("sort_order"),
	}}
	w.CreatedAt, w.UpdatedAt = f.stamps(now)
	return w
}

func (w *workspaceItem) place() (Space, string)    { return SpaceWorkspace, w.ID }
func (w *workspaceItem) needs(func(Space, string)) {}
func (w *workspaceItem) insert(tx Tx) error        { return tx.Workspace(w.Workspace) }
func (w *workspaceItem) check(in *world, _ *document) {
	in.add(SpaceWorkspace, w.ID, Known{As: Described})
}

type workflowItem struct{ domain.Workflow }

func readWorkflow(f *fields, id string, now time.Time) item {
	w := &workflowItem{domain.Workflow{
		ID: id, Name: f.title("name"), Description: f.prose("description"), SortOrder: f.small("sort_order"),
		Hidden: f.flag("hidden", false), Prompt: f.prose("prompt"), AgentProfileID: f.ref("agent_profile_id"),
	}}
	w.CreatedAt, w.UpdatedAt = f.stamps(now)
	return w
}

func (w *workflowItem) place() (Space, string)       { return SpaceWorkflow, w.ID }
func (w *workflowItem) needs(func(Space, string))    {}
func (w *workflowItem) insert(tx Tx) error           { return tx.Workflow(w.Workflow) }
func (w *workflowItem) check(in *world, _ *document) { in.add(SpaceWorkflow, w.ID, Known{}) }

type stepItem struct{ domain.WorkflowStep }

func readStep(f *fields, id string, _ time.Time) item {
	position, _ := f.number("position", math.MinInt32, math.MaxInt32)
	return &stepItem{domain.WorkflowStep{
		ID: id, WorkflowID: f.id("workflow_id"), Name: f.title("name"), Position: int32(position),
		StageType: f.word("stage_type", "custom", "work", "review", "approval", "custom"),
		Color:     f.name("color"), Start: f.flag("is_start_step", false), WIPLimit: f.small("wip_limit"),
		PullFromStepID: f.ref("pull_from_step_id"), Prompt: f.prose("prompt"), AgentProfileID: f.ref("agent_profile_id"),
		OnEnterActionTypes: f.names("on_enter_action_types"), AllowManualMove: f.flag("allow_manual_move", false),
		ShowInCommandPanel: f.flag("show_in_command_panel", false), AutoArchiveAfterHours: f.small("auto_archive_after_hours"),
		AutoAdvanceRequiresSignal:  f.flag("auto_advance_requires_signal", false),
		CancelTriggersTurnComplete: f.flag("cancel_triggers_turn_complete", false),
	}}
}

func (s *stepItem) place() (Space, string) { return SpaceStep, s.ID }
func (s *stepItem) insert(tx Tx) error     { return tx.WorkflowStep(s.WorkflowStep) }

func (s *stepItem) needs(need func(Space, string)) {
	need(SpaceWorkflow, s.WorkflowID)
	need(SpaceStep, s.PullFromStepID)
}

func (s *stepItem) check(w *world, d *document) {
	if _, there := w.find(SpaceWorkflow, s.WorkflowID); !there {
		d.fault("workflow_id", "is no workflow of the workspace that is above or in the store; put its document first")
	}
	if feeder, there := w.find(SpaceStep, s.PullFromStepID); s.PullFromStepID != "" && (!there || feeder.In != s.WorkflowID) {
		d.fault("pull_from_step_id", "is no step of the same workflow that is above or in the store; put its document first")
	}
	w.add(SpaceStep, s.ID, Known{In: s.WorkflowID})
}

type repositoryItem struct{ domain.Repository }

func readRepository(f *fields, id string, now time.Time) item {
	r := &repositoryItem{domain.Repository{
		ID: id, Name: f.title("name"), DefaultBranch: f.name("default_branch"), SourceType: f.name("source_type"),
		Provider: f.name("provider_id"), ProviderRepositoryID: f.name("provider_repository_id"),
		ProviderHost: f.name("provider_host"), ProviderOwner: f.name("owner_or_project"), ProviderName: f.name("provider_name"),
		ProviderScope: f.name("provider_scope"), RemoteURL: f.prose("remote_url"),
	}}
	r.CreatedAt, r.UpdatedAt = f.stamps(now)
	return r
}

func (r *repositoryItem) place() (Space, string)       { return SpaceRepository, r.ID }
func (r *repositoryItem) needs(func(Space, string))    {}
func (r *repositoryItem) insert(tx Tx) error           { return tx.Repository(r.Repository) }
func (r *repositoryItem) check(in *world, _ *document) { in.add(SpaceRepository, r.ID, Known{}) }

type agentProfileItem struct{ domain.AgentProfile }

func readAgentProfile(f *fields, id string, now time.Time) item {
	p := &agentProfileItem{domain.AgentProfile{
		ID: id, AgentID: f.ref("agent_id"), DisplayName: f.name("display_name"), Name: f.title("name"),
		Model: f.name("model"), Mode: f.name("mode"),
	}}
	p.CreatedAt, p.UpdatedAt = f.stamps(now)
	return p
}

func (p *agentProfileItem) place() (Space, string)       { return SpaceAgentProfile, p.ID }
func (p *agentProfileItem) needs(func(Space, string))    {}
func (p *agentProfileItem) insert(tx Tx) error           { return tx.AgentProfile(p.AgentProfile) }
func (p *agentProfileItem) check(in *world, _ *document) { in.add(SpaceAgentProfile, p.ID, Known{}) }

type executorProfileItem struct{ domain.ExecutorProfile }

func readExecutorProfile(f *fields, id string, now time.Time) item {
	p := &executorProfileItem{domain.ExecutorProfile{
		ID: id, DisplayName: f.title("display_name"), ExecutorType: f.name("executor_type"),
	}}
	p.CreatedAt, p.UpdatedAt = f.stamps(now)
	return p
}

func (p *executorProfileItem) place() (Space, string)    { return SpaceExecutorProfile, p.ID }
func (p *executorProfileItem) needs(func(Space, string)) {}
func (p *executorProfileItem) insert(tx Tx) error        { return tx.ExecutorProfile(p.ExecutorProfile) }
func (p *executorProfileItem) check(in *world, _ *document) {
	in.add(SpaceExecutorProfile, p.ID, Known{})
}
