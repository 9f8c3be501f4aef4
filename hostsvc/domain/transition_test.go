package domain

import (
	"testing"
	"time"
)

func TestWireMoves_placement(t *testing.T) {
	load := func(id string, limit int32, holders int) StepLoad {
		return StepLoad{Step: WorkflowStep{ID: id, WorkflowID: "f2", WIPLimit: limit}, Holders: holders}
	}
	standing := Task{ID: "t", WorkflowID: "f", WorkflowStepID: "a", Position: 4, WIPAdmitted: true}
	waiting := Task{ID: "t", WorkflowID: "f", WorkflowStepID: "a", Position: 4, QueuedForStepID: "a", QueuedAt: created}
	for _, c := range []struct {
		name    string
		task    Task
		target  StepLoad
		want    Placement
		arrives bool
	}{
		{"room", standing, load("b", 2, 1), Placement{StepID: "b", Admitted: true}, true},
		{"no limit", standing, load("b", 0, 99), Placement{StepID: "b", Admitted: true}, true},
		{"full: placed and queued", standing, load("b", 2, 2), Placement{StepID: "b", QueuedForStepID: "b"}, true},
		{"the same step", standing, load("a", 1, 1), Placement{StepID: "a", Admitted: true}, false},
		{"the same step, waiting", waiting, load("a", 1, 0), Placement{StepID: "a", QueuedForStepID: "a"}, false},
		{"out of a queue", waiting, load("b", 1, 0), Placement{StepID: "b", Admitted: true}, true},
		{"ephemeral", Task{Ephemeral: true}, load("b", 1, 1), Placement{StepID: "b"}, true},
	} {
		if got, arrives := PlaceMove(c.task, c.target); got != c.want || arrives != c.arrives {
			t.Errorf("%s: %+v, %v", c.name, got, arrives)
		}
	}
	step := load("b", 1, 1).Step
	moved := standing.Moved(step, Placement{StepID: "b", QueuedForStepID: "b"}, 9, later)
	if moved.WorkflowID != "f2" || moved.WorkflowStepID != "b" || moved.Position != 9 || moved.WIPAdmitted || moved.QueuedForStepID != "b" ||
		!moved.QueuedAt.Equal(later) || !moved.UpdatedAt.Equal(later) {
		t.Errorf("moved: %+v", moved)
	}
	moved = waiting.Moved(step, Placement{StepID: "b", Admitted: true}, 9, later)
	if !moved.WIPAdmitted || moved.QueuedForStepID != "" || !moved.QueuedAt.IsZero() {
		t.Errorf("moved out of a queue: %+v", moved)
	}
}

func TestWireMoves_promotion(t *testing.T) {
	step := StepLoad{Step: WorkflowStep{ID: "b", WorkflowID: "f", WIPLimit: 1}}
	queued := func(id, queuedFor string, at time.Time) Task {
		return Task{ID: id, WorkflowStepID: "b", QueuedForStepID: queuedFor, QueuedAt: at}
	}
	archived, ephemeral := queued("archived", "b", created), queued("ephemeral", "b", created)
	archived.ArchivedAt, ephemeral.Ephemeral = later, true
	tasks := []Task{
		archived, ephemeral, queued("elsewhere", "c", created), queued("none", "", time.Time{}),
		queued("late", "b", later.Add(1)), queued("y", "b", later), queued("x", "b", later),
	}
	if next, ok := NextPromotion(step, tasks); !ok || next.ID != "x" {
		t.Errorf("%q, %v", next.ID, ok)
	}
	if _, ok := NextPromotion(step, tasks[:4]); ok {
		t.Error("a task is promoted that doesn't wait")
	}
	step.Holders = 1
	if _, ok := NextPromotion(step, tasks); ok {
		t.Error("a task is promoted into a full step")
	}
	here := Task{WorkflowStepID: "b", Position: 3, QueuedForStepID: "b", QueuedAt: created}.Promoted(step.Step, 9, later)
	if here.Position != 3 || !here.WIPAdmitted || here.QueuedForStepID != "" || !here.QueuedAt.IsZero() || !here.UpdatedAt.Equal(later) {
		t.Errorf("in the step: %+v", here)
	}
	feeder := Task{WorkflowStepID: "a", Position: 3, WIPAdmitted: true, QueuedForStepID: "b", QueuedAt: created}.Promoted(step.Step, 9, later)
	if feeder.WorkflowStepID != "b" || feeder.Position != 9 || !feeder.WIPAdmitted || feeder.QueuedForStepID != "" {
		t.Errorf("in the feeder: %+v", feeder)
	}
}

func TestWireMoves_slotHolders(t *testing.T) {
	for name, c := range map[string]struct {
		task Task
		want bool
	}{
		"admitted":   {Task{WIPAdmitted: true}, true},
		"waiting":    {Task{}, false},
		"archived":   {Task{WIPAdmitted: true, ArchivedAt: later}, false},
		"ephemeral":  {Task{WIPAdmitted: true, Ephemeral: true}, false},
		"automation": {Task{WIPAdmitted: true, Origin: "automation"}, false},
		"completed":  {Task{WIPAdmitted: true, State: TaskCompleted}, true},
	} {
		if got := c.task.HoldsSlot(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestH2c_PendingTransition_sweep(t *testing.T) {
	p := PendingTransition{FromStepID: "a", ToStepID: "b", Predicate: PredicateTurnEnd}
	if p.Expired(later) {
		t.Error("one that never expires is expired")
	}
	p.ExpiresAt = later
	if p.Expired(later.Add(-1)) || !p.Expired(later) {
		t.Error("expiry isn't at its instant")
	}
	task, session, target := &Task{WorkflowStepID: "a"}, &Session{State: SessionRunning}, &WorkflowStep{ID: "b"}
	slot := p
	slot.Predicate = PredicateSlot
	for _, c := range []struct {
		name    string
		p       PendingTransition
		task    *Task
		session *Session
		target  *WorkflowStep
		want    bool
	}{
		{"whole", p, task, session, target, false},
		{"no task", p, nil, session, target, true},
		{"archived", p, &Task{WorkflowStepID: "a", ArchivedAt: later}, session, target, true},
		{"moved meanwhile", p, &Task{WorkflowStepID: "c"}, session, target, true},
		{"no step", p, task, session, nil, true},
		{"no session", p, task, nil, target, true},
		{"session over", p, task, &Session{State: SessionFailed}, target, true},
		{"for a slot, no session", slot, &Task{WorkflowStepID: "a", QueuedForStepID: "b"}, nil, target, false},
		{"for a slot, moved", slot, &Task{WorkflowStepID: "c", QueuedForStepID: "b"}, nil, target, true},
		{"for a slot, not queued", slot, task, nil, target, true},
		{"for a slot, queued for another", slot, &Task{WorkflowStepID: "a", QueuedForStepID: "c"}, nil, target, true},
	} {
		if got := c.p.Orphaned(c.task, c.session, c.target); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestC2_SlotMove(t *testing.T) {
	task := Task{
		ID: "t", WorkspaceID: "w", WorkflowID: "f", WorkflowStepID: "a", WIPAdmitted: true, QueuedForStepID: "b", QueuedAt: created,
	}
	move, queued := task.SlotMove()
	want := PendingTransition{
		WorkspaceID: "w", TaskID: "t", FromWorkflowID: "f", FromStepID: "a", ToWorkflowID: "f", ToStepID: "b",
		Predicate: PredicateSlot, QueuedAt: created,
	}
	if !queued || move != want || !move.Takes(task) {
		t.Errorf("%v, %+v", queued, move)
	}
	for name, change := range map[string]func(*Task){
		"queued for nothing":     func(t *Task) { t.QueuedForStepID = "" },
		"queued where it stands": func(t *Task) { t.WorkflowStepID = "b" },
		"archived":               func(t *Task) { t.ArchivedAt = later },
		"ephemeral":              func(t *Task) { t.Ephemeral = true },
		"taken out of its queue": func(t *Task) { *t = t.Unqueued(later) },
		"promoted":               func(t *Task) { *t = t.Promoted(WorkflowStep{ID: "b"}, 1, later) },
		"moved to where it is full": func(t *Task) {
			*t = t.Moved(WorkflowStep{ID: "b"}, Placement{StepID: "b", QueuedForStepID: "b"}, 1, later)
		},
	} {
		other := task
		change(&other)
		if got, queued := other.SlotMove(); queued || move.Takes(other) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for name, change := range map[string]func(*PendingTransition){
		"of another task": func(p *PendingTransition) { p.TaskID = "u" },
		"at a turn's end": func(p *PendingTransition) { p.Predicate = PredicateTurnEnd },
		"from elsewhere":  func(p *PendingTransition) { p.FromStepID = "c" },
		"to elsewhere":    func(p *PendingTransition) { p.ToStepID = "c" },
	} {
		other := move
		change(&other)
		if other.Takes(task) {
			t.Errorf("a move %s takes the task", name)
		}
	}
	left := task.Unqueued(later)
	if left.WorkflowStepID != "a" || !left.WIPAdmitted || left.QueuedForStepID != "" || !left.QueuedAt.IsZero() || !left.UpdatedAt.Equal(later) {
		t.Errorf("out of its queue: %+v", left)
	}
}

func TestTransition_known(t *testing.T) {
	for _, trigger := range triggers {
		if !trigger.Known() {
			t.Errorf("%q is unknown", trigger)
		}
	}
	if len(triggers) != 7 || TransitionTrigger("magic").Known() || Actor("plugin").Known() || !ActorHuman.Known() || !ActorAgent.Known() ||
		!ActorSystem.Known() || TransitionPredicate("").Known() || !PredicateSlot.Known() || !PredicateTurnEnd.Known() {
		t.Error("a text that is unknown is known, or the other way round")
	}
}
