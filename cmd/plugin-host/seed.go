package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/query"
	"github.com/kandev/plugin-host/hostsvc/store"
)

// seedFile is what --seed-file holds: workspaces with what is in them. Lists
// are in display order. Example:
//
//	workspaces:
//	- id: payments
//	  name: Payments
//	  workflows:
//	  - id: delivery
//	    name: Delivery
//	    steps:
//	    - {id: todo, name: To do, start: true}
//	    - {id: doing, name: Doing, wipLimit: 3}
//	  tasks:
//	  - {id: t-1, step: todo, title: Rotate the signing key, priority: high}
//
// IDs of workflows, steps and tasks are unique within their workspace.
type seedFile struct {
	Workspaces []seedWorkspace `json:"workspaces"`
}

type seedWorkspace struct {
	ID          string         `json:"id"`
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Workflows   []seedWorkflow `json:"workflows"`
	Tasks       []seedTask     `json:"tasks"`
}

type seedWorkflow struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	Description string     `json:"description"`
	Steps       []seedStep `json:"steps"`
}

type seedStep struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	StageType string `json:"stageType"`
	Color     string `json:"color"`
	Start     bool   `json:"start"`
	WIPLimit  int32  `json:"wipLimit"`
}

type seedTask struct {
	ID          string   `json:"id"`
	Step        string   `json:"step"`
	Title       string   `json:"title"`
	Description string   `json:"description"`
	Priority    string   `json:"priority"`
	Parent      string   `json:"parent"`
	Labels      []string `json:"labels"`
}

// seed inserts the workspaces of a file that the store doesn't have yet, each
// in one commit.
func seed(ctx context.Context, durable *store.Store, path string, log *slog.Logger) error {
	text, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return fmt.Errorf("read it: %w", err)
	}
	var file seedFile
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	plans := make([]seedPlan, len(file.Workspaces))
	for i, workspace := range file.Workspaces {
		if plans[i], err = workspace.plan(fmt.Sprintf("workspaces[%d].", i), time.Now().UTC()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, plan := range plans {
		id := plan.workspace.ID
		exists := false
		err := durable.Read(ctx, func(snapshot query.Snapshot) error {
			newest, _, err := snapshot.Head(id)
			exists = newest > 0
			return err
		})
		if err != nil {
			return fmt.Errorf("look for workspace %s: %w", id, err)
		}
		if exists {
			log.Info("The workspace exists and is left alone", "workspace", id)
			continue
		}
		if err := durable.Seed(ctx, id, plan.insert); err != nil {
			return fmt.Errorf("insert workspace %s: %w", id, err)
		}
		log.Info("Inserted a workspace", "workspace", id, "tasks", len(plan.tasks))
	}
	return nil
}

// seedPlan is a checked workspace.
type seedPlan struct {
	workspace domain.Workspace
	workflows []domain.Workflow
	steps     []domain.WorkflowStep
	tasks     []domain.Task
}

func (p seedPlan) insert(tx store.SeedTx) error {
	if err := tx.Workspace(p.workspace); err != nil {
		return err
	}
	for _, workflow := range p.workflows {
		if err := tx.Workflow(workflow); err != nil {
			return err
		}
	}
	for _, step := range p.steps {
		if err := tx.WorkflowStep(step); err != nil {
			return err
		}
	}
	for _, task := range p.tasks {
		if err := tx.Task(task); err != nil {
			return err
		}
	}
	return nil
}

// plan checks a workspace; an error names the field.
func (w seedWorkspace) plan(field string, now time.Time) (seedPlan, error) {
	p := seedPlan{workspace: domain.Workspace{
		ID: w.ID, Name: w.Name, Description: w.Description, CreatedAt: now, UpdatedAt: now,
	}}
	ids := map[string]string{}
	claim := func(field, kind, id string) error {
		if fault := contract.CheckIdentifier(field, id); fault != nil {
			return fault
		}
		if other, taken := ids[kind+"/"+id]; taken {
			return &contract.FieldError{Field: field, Reason: contract.ReasonMalformedPrecondition, Detail: "is used by " + other + " too"}
		}
		ids[kind+"/"+id] = field
		return nil
	}
	if fault := contract.CheckIdentifier(field+"id", w.ID); fault != nil {
		return p, fault
	}
	steps := map[string]domain.WorkflowStep{}
	for i, flow := range w.Workflows {
		at := fmt.Sprintf("%sworkflows[%d].", field, i)
		if err := claim(at+"id", "workflow", flow.ID); err != nil {
			return p, err
		}
		p.workflows = append(p.workflows, domain.Workflow{
			ID: flow.ID, Name: flow.Name, Description: flow.Description, SortOrder: int32(i),
			CreatedAt: now, UpdatedAt: now,
		})
		for j, s := range flow.Steps {
			at := fmt.Sprintf("%ssteps[%d].", at, j)
			if err := claim(at+"id", "step", s.ID); err != nil {
				return p, err
			}
			step := domain.WorkflowStep{
				ID: s.ID, WorkflowID: flow.ID, Name: s.Name, Position: int32(j),
				StageType: s.StageType, Color: s.Color, Start: s.Start, WIPLimit: s.WIPLimit,
			}
			if step.StageType == "" {
				step.StageType = "custom"
			}
			steps[s.ID] = step
			p.steps = append(p.steps, step)
		}
	}
	inStep := map[string]int32{}
	for i, t := range w.Tasks {
		at := fmt.Sprintf("%stasks[%d].", field, i)
		if err := claim(at+"id", "task", t.ID); err != nil {
			return p, err
		}
		step, ok := steps[t.Step]
		if !ok {
			return p, &contract.FieldError{Field: at + "step", Reason: contract.ReasonMalformedPrecondition, Detail: fmt.Sprintf("%q is no step of this workspace", t.Step)}
		}
		if step.WIPLimit > 0 && inStep[t.Step] >= step.WIPLimit {
			return p, &contract.FieldError{Field: at + "step", Reason: contract.ReasonMalformedPrecondition, Detail: fmt.Sprintf("%q admits %d tasks at once", t.Step, step.WIPLimit)}
		}
		draft := domain.TaskDraft{
			WorkflowID: step.WorkflowID, WorkflowStepID: t.Step, Title: t.Title, Description: t.Description,
			Priority: t.Priority, ParentID: t.Parent,
		}
		if fault := draft.Check(at); fault != nil {
			return p, fault
		}
		if _, ok := ids["task/"+t.Parent]; t.Parent != "" && !ok {
			return p, &contract.FieldError{Field: at + "parent", Reason: contract.ReasonMalformedPrecondition, Detail: "is no task above this one"}
		}
		priority := domain.TaskPriority(t.Priority)
		if priority == "" {
			priority = domain.DefaultTaskPriority
		}
		p.tasks = append(p.tasks, domain.Task{
			ID: t.ID, WorkflowID: step.WorkflowID, WorkflowStepID: t.Step, Position: inStep[t.Step],
			Title: t.Title, Description: t.Description, State: domain.TaskTodo, Priority: priority,
			ParentID: t.Parent, Labels: t.Labels, WIPAdmitted: true, CreatedAt: now, UpdatedAt: now,
		})
		inStep[t.Step]++
	}
	return p, nil
}
