package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
	"github.com/kandev/plugin-host/sdk"
)

func showContext(ctx context.Context, host *sdk.Host, _ arguments, r *report) error {
	standing, err := host.Context(ctx)
	if err != nil {
		return err
	}
	r.context(standing)
	return nil
}

func listTasks(ctx context.Context, host *sdk.Host, a arguments, r *report) error {
	filter := &pluginv1.TaskFilter{}
	if a.state != "" {
		filter.States = []string{a.state}
	}
	var tasks []*pluginv1.Task
	for item, err := range host.Tasks().List(ctx, a.workspace, filter, sdk.ListOptions{}).Items() {
		if err != nil {
			return err
		}
		tasks = append(tasks, item.GetTask())
	}
	r.tasks(tasks)
	return nil
}

func listWorkflows(ctx context.Context, host *sdk.Host, a arguments, r *report) error {
	for workflow, err := range host.Workflows().List(ctx, a.workspace, sdk.ListOptions{}).Items() {
		if err != nil {
			return err
		}
		id := workflow.GetWorkflow().GetId()
		for step, err := range host.Workflows().Steps(ctx, a.workspace, id, sdk.ListOptions{}).Items() {
			if err != nil {
				return err
			}
			r.step(workflow.GetWorkflow(), step.GetStep())
		}
	}
	return nil
}

func showWorkspace(ctx context.Context, host *sdk.Host, a arguments, r *report) error {
	for item, err := range host.Workspaces().List(ctx, a.workspace, sdk.ListOptions{}).Items() {
		if err != nil {
			return err
		}
		r.workspace(item)
	}
	return nil
}

// createTask reads the versions of workflow and step first: an exact write names
// the state that it was decided on.
func createTask(ctx context.Context, host *sdk.Host, a arguments, r *report) error {
	task := sdk.NewTask{ExternalID: a.key, WorkflowID: a.workflow, StepID: a.step, Title: a.title}
	for item, err := range host.Workflows().List(ctx, a.workspace, sdk.ListOptions{}).Items() {
		if err != nil {
			return err
		}
		if item.GetWorkflow().GetId() == a.workflow {
			task.WorkflowVersion = item.GetResourceVersion()
		}
	}
	if task.WorkflowVersion == "" {
		return fmt.Errorf("workspace %s has no workflow %s", a.workspace, a.workflow)
	}
	for item, err := range host.Workflows().Steps(ctx, a.workspace, a.workflow, sdk.ListOptions{}).Items() {
		if err != nil {
			return err
		}
		if item.GetStep().GetId() == a.step {
			task.StepVersion = item.GetResourceVersion()
		}
	}
	if task.StepVersion == "" {
		return fmt.Errorf("workflow %s has no step %s", a.workflow, a.step)
	}
	done, err := host.Tasks().Create(ctx, a.workspace, sdk.NewOperation(a.key, sdk.ExpectNone()), task)
	if err != nil {
		return err
	}
	r.written(done)
	return nil
}

// updateTask changes the task at the version given. Repeating an update under its
// key means the version of the first time too: it is part of what was asked.
func updateTask(ctx context.Context, host *sdk.Host, a arguments, r *report) error {
	if a.version == "" {
		item, _, err := host.Tasks().Get(ctx, a.workspace, a.task)
		if err != nil {
			return err
		}
		a.version = item.GetResourceVersion()
	}
	var change sdk.TaskChange
	if a.title != "" {
		change.Title = &a.title
	}
	if a.state != "" {
		change.State = &a.state
	}
	op := sdk.NewOperation(a.key, sdk.ExpectNone())
	done, err := host.Tasks().Update(ctx, a.workspace, op, a.task, a.version, change)
	if err != nil {
		return err
	}
	r.written(done)
	return nil
}

// hammer writes one task again and again, each time at the version that the last
// write left, and reports the instants of the last success and of the denial.
func hammer(ctx context.Context, host *sdk.Host, a arguments, r *report) error {
	item, _, err := host.Tasks().Get(ctx, a.workspace, a.task)
	if err != nil {
		return err
	}
	version, run := item.GetResourceVersion(), uuid.NewString()
	var last time.Time
	for n := 1; ; n++ {
		description := strconv.Itoa(n)
		done, err := host.Tasks().Update(ctx, a.workspace, sdk.NewOperation(run+"-"+description, sdk.ExpectNone()),
			a.task, version, sdk.TaskChange{Description: &description})
		now := time.Now()
		if answer, ok := errors.AsType[*sdk.Error](err); ok && answer.Retry() == contract.RetryPark && !last.IsZero() {
			r.hammered(n-1, last, now, answer)
			return nil
		}
		if err != nil {
			return err
		}
		if last.IsZero() {
			r.hammering()
		}
		version, last = done.Task.GetResourceVersion(), now
	}
}
