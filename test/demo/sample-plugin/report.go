package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
	"github.com/kandev/plugin-host/sdk"
)

// report tells what happened: to people, and as JSON if that is wanted.
type report struct {
	people io.Writer
	json   io.Writer // nil: not wanted
}

// line is one JSON object; what doesn't apply is left out.
type line struct {
	State           contract.State   `json:"state,omitempty"`
	Reason          contract.Reason  `json:"reason,omitempty"`
	Field           string           `json:"field,omitempty"`
	Message         string           `json:"message,omitempty"`
	AuditID         string           `json:"auditID,omitempty"`
	Local           bool             `json:"local,omitempty"`
	Task            *task            `json:"task,omitempty"`
	Tasks           *[]task          `json:"tasks,omitempty"`
	Workspaces      *[]workspaceLine `json:"workspaces,omitempty"`
	Workspace       string           `json:"workspace,omitempty"`
	ContextRevision uint64           `json:"contextRevision,omitempty"`
	Workflow        string           `json:"workflow,omitempty"`
	Step            string           `json:"step,omitempty"`
	Hammering       bool             `json:"hammering,omitempty"`
	Writes          int              `json:"writes,omitempty"`
	LastSuccess     *time.Time       `json:"lastSuccess,omitempty"`
	Denied          *time.Time       `json:"denied,omitempty"`
}

type task struct {
	ID      string `json:"id"`
	Title   string `json:"title"`
	State   string `json:"state"`
	Version string `json:"resourceVersion"`
}

type workspaceLine struct {
	ID           string   `json:"id"`
	State        string   `json:"state"`
	Revision     uint64   `json:"capabilityRevision"`
	Capabilities []string `json:"capabilities"`
}

func (r *report) print(l line, format string, args ...any) {
	fmt.Fprintf(r.people, format+"\n", args...)
	if r.json == nil {
		return
	}
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	fmt.Fprintf(r.json, "%s\n", text)
}

func (r *report) refused(e *sdk.Error) {
	r.print(line{
		State: e.State, Reason: e.Reason, Field: e.Field, Message: e.Message, AuditID: e.AuditID, Local: e.Local,
	}, "%v", e)
}

func taskOf(t *pluginv1.Task) task {
	return task{ID: t.GetId(), Title: t.GetTitle(), State: t.GetState(), Version: t.GetResourceVersion()}
}

func (r *report) tasks(tasks []*pluginv1.Task) {
	shown := make([]task, 0, len(tasks))
	var text strings.Builder
	fmt.Fprintf(&text, "%d tasks", len(tasks))
	for _, t := range tasks {
		shown = append(shown, taskOf(t))
		fmt.Fprintf(&text, "\n  %-12s %s  %s", t.GetState(), t.GetId(), t.GetTitle())
	}
	r.print(line{Tasks: &shown}, "%s", text.String())
}

func (r *report) written(done sdk.TaskResult) {
	t := taskOf(done.Task)
	r.print(line{State: done.State, AuditID: done.AuditID, Task: &t},
		"%s: task %s %q at version %s (audit ID %s)", done.State, t.ID, t.Title, t.Version, done.AuditID)
}

func (r *report) step(workflow *pluginv1.Workflow, step *pluginv1.WorkflowStep) {
	r.print(line{Workflow: workflow.GetId(), Step: step.GetId()},
		"workflow %s (%s), step %s (%s)", workflow.GetId(), workflow.GetName(), step.GetId(), step.GetName())
}

func (r *report) workspace(item *pluginv1.ExactWorkspaceObservation) {
	w := item.GetWorkspace()
	r.print(line{Workspace: w.GetId()}, "workspace %s (%s) at version %s", w.GetId(), w.GetName(), item.GetResourceVersion())
}

func (r *report) context(standing *pluginv1.GetCapabilityContextResponse) {
	shown := make([]workspaceLine, 0, len(standing.GetWorkspaces()))
	var text strings.Builder
	fmt.Fprintf(&text, "context revision %d, %d workspaces", standing.GetContextRevision(), len(standing.GetWorkspaces()))
	for _, w := range standing.GetWorkspaces() {
		shown = append(shown, workspaceLine{
			ID: w.GetWorkspaceId(), State: w.GetState(), Revision: w.GetCapabilityRevision(), Capabilities: w.GetCapabilityIds(),
		})
		fmt.Fprintf(&text, "\n  %s: %s at revision %d: %s",
			w.GetWorkspaceId(), w.GetState(), w.GetCapabilityRevision(), strings.Join(w.GetCapabilityIds(), " "))
	}
	r.print(line{ContextRevision: standing.GetContextRevision(), Workspaces: &shown}, "%s", text.String())
}

func (r *report) hammering() {
	r.print(line{Hammering: true}, "the first write was done; writing until denied")
}

func (r *report) hammered(writes int, last, denied time.Time, e *sdk.Error) {
	r.print(line{
		State: e.State, Reason: e.Reason, Message: e.Message, AuditID: e.AuditID,
		Writes: writes, LastSuccess: &last, Denied: &denied,
	}, "%d writes; the last one answered %s, the denial %s; %v apart\n%v",
		writes, last.Format(time.RFC3339Nano), denied.Format(time.RFC3339Nano), denied.Sub(last), e)
}
