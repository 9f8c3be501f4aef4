package rpc_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// trouble is the store of v1 with what a test has happen before a write, and with reads
// that fail behind one.
type trouble struct {
	legacy.Store

	before  func()
	written bool
}

func (s *trouble) Read(ctx context.Context, fn func(legacy.Snapshot) error) error {
	if s.written && s.before == nil {
		return errors.New("the disk is on fire")
	}
	return s.Store.Read(ctx, fn)
}

func (s *trouble) Write(ctx context.Context, workspaceID string, fn func(legacy.Tx) error) error {
	if s.before != nil {
		s.before()
	}
	err := s.Store.Write(ctx, workspaceID, fn)
	s.written = err == nil
	return err
}

// TestI9_V1TellsOfWhatItWrote: a write that was committed is answered as one, whatever
// becomes of the read behind it. Otherwise a plugin would create its task again.
func TestI9_V1TellsOfWhatItWrote(t *testing.T) {
	w := board(t)
	whole := w.v1.Store
	check := func(what string, task *pluginv1.Task, err error) {
		t.Helper()
		w.v1.Store = whole
		w.must(err)
		shown, err := w.host.GetTask(w.as(alpha), &pluginv1.GetTaskRequest{Id: task.GetId()})
		w.must(err)
		if !task.GetBlocked() || task.GetBlockedReason() != "unknown" || task.GetStartWhenUnblocked() || shown.GetTask().GetBlocked() {
			t.Errorf("%s: %v, later %v", what, task, shown.GetTask())
		}
		task.Blocked, task.BlockedReason = false, ""
		sameBytes(t, task, shown.GetTask())
		w.v1.Store = &trouble{Store: whole}
	}
	w.v1.Store = &trouble{Store: whole}
	created, err := w.create(nil)
	check("CreateTask", created, err)
	updated, err := w.host.UpdateTask(w.as(alpha), &pluginv1.UpdateTaskRequest{Id: created.GetId(), Priority: ptr("high")})
	check("UpdateTask", updated.GetTask(), err)
	moved, err := w.host.MoveTask(w.as(alpha), &pluginv1.MoveTaskRequest{TaskId: created.GetId(), WorkflowStepId: "one-doing"})
	check("MoveTask", moved.GetTask(), err)
	if !moved.GetTransitioned() || moved.GetFromStepId() != "one-todo" {
		t.Errorf("it moved: %v", moved)
	}
}

// TestV1SendMessage_NoSessionNamed: a message that names no session goes to the one that
// stands for the task when it is written, which may be another one than when it came.
func TestV1SendMessage_NoSessionNamed(t *testing.T) {
	w := board(t)
	session := func(id string, state domain.SessionState, primary bool) domain.Session {
		return domain.Session{
			ID: id, WorkspaceID: "one", TaskID: taskID("one", 0), State: state, Primary: primary, ExecutionID: "e", StartedAt: talkStart,
		}
	}
	insert := func(s domain.Session) {
		w.must(w.talk("one", func(tx talkTx) error {
			s.Version = tx.Version()
			return tx.InsertSession(s)
		}))
	}
	insert(session("first", domain.SessionIdle, true))
	w.v1.Store = &trouble{Store: w.v1.Store, before: func() {
		w.must(w.talk("one", func(tx talkTx) error {
			s := session("first", domain.SessionFailed, false)
			s.Version = tx.Version()
			return tx.UpdateSession(s)
		}))
		insert(session("second", domain.SessionIdle, true))
	}}
	got, err := w.host.SendMessage(w.as(alpha), &pluginv1.SendMessageRequest{TaskId: taskID("one", 0), Text: "hello"})
	w.must(err)
	sameBytes(t, got, &pluginv1.SendMessageResponse{SessionId: "second", Status: "sent"})
}
