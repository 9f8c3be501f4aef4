package domain

import (
	"strings"
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
)

var (
	created = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	later   = created.Add(time.Hour)
)

func TestPlaceNewTask(t *testing.T) {
	step := func(id string, limit int32, holders int) StepLoad {
		return StepLoad{Step: WorkflowStep{ID: id, WIPLimit: limit}, Holders: holders}
	}
	feeder := func(limit int32, holders int) *StepLoad {
		load := step("feeder", limit, holders)
		return &load
	}
	for _, c := range []struct {
		name   string
		target StepLoad
		feeder *StepLoad
		want   Placement
		full   bool
	}{
		{"no limit", step("s", 0, 1000), nil, Placement{StepID: "s", Admitted: true}, false},
		{"room", step("s", 2, 1), nil, Placement{StepID: "s", Admitted: true}, false},
		{"room, full feeder", step("s", 2, 1), feeder(1, 1), Placement{StepID: "s", Admitted: true}, false},
		{"at the limit", step("s", 2, 2), nil, Placement{StepID: "s", QueuedForStepID: "s"}, false},
		{"beyond the limit", step("s", 2, 5), nil, Placement{StepID: "s", QueuedForStepID: "s"}, false},
		{"at the limit, feeder with room", step("s", 1, 1), feeder(2, 1), Placement{StepID: "feeder", Admitted: true, QueuedForStepID: "s"}, false},
		{"at the limit, feeder without limit", step("s", 1, 1), feeder(0, 9), Placement{StepID: "feeder", Admitted: true, QueuedForStepID: "s"}, false},
		{"both full", step("s", 1, 1), feeder(1, 1), Placement{}, true},
	} {
		if got, ok := PlaceNewTask(c.target, c.feeder); got != c.want || ok == c.full {
			t.Errorf("%s: %+v, %v", c.name, got, ok)
		}
	}
}

func TestNewTask(t *testing.T) {
	draft := TaskDraft{WorkflowID: "w", WorkflowStepID: "s", Title: "t", Description: "d", ParentID: "p", ExternalID: "e"}
	got := NewTask("id", "ws", PluginSource("i"), draft, Placement{StepID: "s", Admitted: true}, 3, created)
	if got.ID != "id" || got.WorkspaceID != "ws" || got.Source != "plugin:i" || got.WorkflowStepID != "s" || got.Position != 3 ||
		got.State != TaskTodo || got.Priority != DefaultTaskPriority || got.ParentID != "p" || got.ExternalID != "e" ||
		!got.WIPAdmitted || !got.QueuedAt.IsZero() || !got.CreatedAt.Equal(created) || !got.UpdatedAt.Equal(created) ||
		!got.StartedAt.IsZero() || !got.CompletedAt.IsZero() || got.Version != 0 {
		t.Errorf("admitted: %+v", got)
	}
	draft.Priority = "critical"
	got = NewTask("id", "ws", "x", draft, Placement{StepID: "feeder", Admitted: true, QueuedForStepID: "s"}, 0, created)
	if got.WorkflowStepID != "feeder" || got.QueuedForStepID != "s" || !got.QueuedAt.Equal(created) || got.Priority != PriorityCritical {
		t.Errorf("in the feeder: %+v", got)
	}
	got = NewTask("id", "ws", "x", draft, Placement{StepID: "s", QueuedForStepID: "s"}, 0, created)
	if got.WIPAdmitted || !got.QueuedAt.Equal(created) {
		t.Errorf("queued: %+v", got)
	}
}

func TestTaskDraft_Check(t *testing.T) {
	good := TaskDraft{WorkflowID: "w", Title: "t"}
	for name, change := range map[string]func(*TaskDraft){
		"least": func(*TaskDraft) {},
		"all": func(d *TaskDraft) {
			d.WorkflowStepID, d.ParentID, d.Description, d.Priority = "s", "p", "d\n", "low"
		},
		"bounds": func(d *TaskDraft) {
			d.Title = strings.Repeat("t", contract.MaxTitleBytes)
			d.Description = strings.Repeat("d", contract.MaxDescriptionBytes)
			d.WorkflowID = strings.Repeat("w", contract.MaxIdentifierBytes)
		},
	} {
		d := good
		change(&d)
		if fault := d.Check(""); fault != nil {
			t.Errorf("%s: %v", name, fault)
		}
	}
	for _, c := range []struct {
		name   string
		change func(*TaskDraft)
		field  string
		reason contract.Reason
	}{
		{"no workflow", func(d *TaskDraft) { d.WorkflowID = "" }, "workflow_id", contract.ReasonMissingExactField},
		{"long workflow", func(d *TaskDraft) { d.WorkflowID = strings.Repeat("w", contract.MaxIdentifierBytes+1) }, "workflow_id", contract.ReasonMalformedPrecondition},
		{"bad step", func(d *TaskDraft) { d.WorkflowStepID = " s" }, "workflow_step_id", contract.ReasonMalformedPrecondition},
		{"bad parent", func(d *TaskDraft) { d.ParentID = "p\x00" }, "parent_id", contract.ReasonMalformedPrecondition},
		{"no title", func(d *TaskDraft) { d.Title = "" }, "title", contract.ReasonMissingExactField},
		{"long title", func(d *TaskDraft) { d.Title = strings.Repeat("t", contract.MaxTitleBytes+1) }, "title", contract.ReasonMalformedPrecondition},
		{"NUL in title", func(d *TaskDraft) { d.Title = "t\x00" }, "title", contract.ReasonMalformedPrecondition},
		{"long description", func(d *TaskDraft) { d.Description = strings.Repeat("d", contract.MaxDescriptionBytes+1) }, "description", contract.ReasonMalformedPrecondition},
		{"not UTF-8", func(d *TaskDraft) { d.Description = "\xff" }, "description", contract.ReasonMalformedPrecondition},
		{"priority", func(d *TaskDraft) { d.Priority = "High" }, "priority", contract.ReasonMalformedPrecondition},
	} {
		d := good
		c.change(&d)
		fault := d.Check("task.")
		if fault == nil || fault.Field != "task."+c.field || fault.Reason != c.reason {
			t.Errorf("%s: %+v", c.name, fault)
		}
	}
}

func ptr(s string) *string { return &s }

func TestTaskPatch_Check(t *testing.T) {
	for _, s := range taskStates {
		fault := TaskPatch{State: ptr(string(s))}.Check()
		if (fault != nil) != (s == TaskScheduling) {
			t.Errorf("%s: %v", s, fault)
		}
	}
	for _, p := range taskPriorities {
		if fault := (TaskPatch{Priority: ptr(string(p))}).Check(); fault != nil {
			t.Errorf("%s: %v", p, fault)
		}
	}
	if fault := (TaskPatch{Title: ptr("t"), Description: ptr("")}).Check(); fault != nil {
		t.Errorf("an empty description: %v", fault)
	}
	for _, c := range []struct {
		patch  TaskPatch
		field  string
		reason contract.Reason
	}{
		{TaskPatch{}, "title", contract.ReasonMissingExactField},
		{TaskPatch{Title: ptr("")}, "title", contract.ReasonMissingExactField},
		{TaskPatch{Title: ptr(strings.Repeat("t", contract.MaxTitleBytes+1))}, "title", contract.ReasonMalformedPrecondition},
		{TaskPatch{Description: ptr("\x00")}, "description", contract.ReasonMalformedPrecondition},
		{TaskPatch{State: ptr("")}, "state", contract.ReasonMalformedPrecondition},
		{TaskPatch{State: ptr("todo")}, "state", contract.ReasonMalformedPrecondition},
		{TaskPatch{State: ptr("SCHEDULING")}, "state", contract.ReasonMalformedPrecondition},
		{TaskPatch{Priority: ptr("")}, "priority", contract.ReasonMalformedPrecondition},
	} {
		if fault := c.patch.Check(); fault == nil || fault.Field != c.field || fault.Reason != c.reason {
			t.Errorf("%+v: %+v", c.patch, fault)
		}
	}
}

func TestTaskPatch_Apply(t *testing.T) {
	base := Task{ID: "id", Title: "t", Description: "d", State: TaskTodo, Priority: PriorityLow, CreatedAt: created, UpdatedAt: created, Version: 4}
	started := base
	started.State, started.StartedAt = TaskInProgress, created
	done := started
	done.State, done.CompletedAt = TaskCompleted, created
	for _, c := range []struct {
		name  string
		task  Task
		patch TaskPatch
		want  func(*Task) // nil: nothing changes
	}{
		{"the same title", base, TaskPatch{Title: ptr("t")}, nil},
		{"all the same", base, TaskPatch{Title: ptr("t"), Description: ptr("d"), State: ptr("TODO"), Priority: ptr("low")}, nil},
		{"title", base, TaskPatch{Title: ptr("u")}, func(t *Task) { t.Title = "u" }},
		{"no description", base, TaskPatch{Description: ptr("")}, func(t *Task) { t.Description = "" }},
		{"priority", base, TaskPatch{Priority: ptr("high")}, func(t *Task) { t.Priority = PriorityHigh }},
		{"start", base, TaskPatch{State: ptr("IN_PROGRESS")}, func(t *Task) { t.State, t.StartedAt = TaskInProgress, later }},
		{"complete", started, TaskPatch{State: ptr("COMPLETED")}, func(t *Task) { t.State, t.CompletedAt = TaskCompleted, later }},
		{"another end", done, TaskPatch{State: ptr("FAILED")}, func(t *Task) { t.State = TaskFailed }},
		{"reopen", done, TaskPatch{State: ptr("IN_PROGRESS")}, func(t *Task) { t.State, t.CompletedAt = TaskInProgress, time.Time{} }},
		{"edit what is done", done, TaskPatch{Title: ptr("u")}, func(t *Task) { t.Title = "u" }},
	} {
		got, changed := c.patch.Apply(c.task, later)
		want := c.task
		if c.want != nil {
			c.want(&want)
			want.UpdatedAt = later
		}
		if changed != (c.want != nil) || !sameTask(got, want) {
			t.Errorf("%s: %v\n%+v\n%+v", c.name, changed, got, want)
		}
	}
}

func sameTask(a, b Task) bool {
	return a.ID == b.ID && a.Title == b.Title && a.Description == b.Description && a.State == b.State && a.Priority == b.Priority &&
		a.CreatedAt.Equal(b.CreatedAt) && a.UpdatedAt.Equal(b.UpdatedAt) && a.StartedAt.Equal(b.StartedAt) &&
		a.CompletedAt.Equal(b.CompletedAt) && a.Version == b.Version
}

func TestResourceVersion(t *testing.T) {
	seen := map[string]bool{}
	for _, epoch := range []uint64{1, 2, 11} {
		for _, version := range []Version{0, 1, 11, 111} {
			text := ResourceVersion(epoch, version)
			if seen[text] || contract.CheckIdentifier("v", text) != nil {
				t.Errorf("%d of %d reads %q", version, epoch, text)
			}
			seen[text] = true
		}
	}
}
