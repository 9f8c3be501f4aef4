package rpc_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	"github.com/kandev/plugin-host/hostsvc/store"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// locking does something between a call's decision at the door and its turn at the
// workspace's lock.
type locking struct {
	legacy.Store

	before func()
}

func (l *locking) Write(ctx context.Context, workspaceID string, fn func(legacy.Tx) error) error {
	return l.Store.Write(ctx, workspaceID, func(tx legacy.Tx) error {
		l.before()
		return fn(tx)
	})
}

// TestI5_V1WritersAreDecidedUnderTheLock: what was taken from an installation while its
// write waited is gone.
// lockingState is the same for a plugin's state.
type lockingState struct {
	legacy.StateStore
	waited func()
}

func (l *lockingState) PutState(ctx context.Context, entry domain.PluginState, allow func(legacy.StateWrite) error) error {
	l.waited()
	return l.StateStore.PutState(ctx, entry, allow)
}

func TestI5_V1WritersAreDecidedUnderTheLock(t *testing.T) {
	w := board(t)
	own, err := w.create(nil)
	w.must(err)
	w.must(w.talk("one", func(tx talkTx) error {
		return tx.InsertSession(domain.Session{
			ID: "s", WorkspaceID: "one", TaskID: own.GetId(), State: domain.SessionWaitingForInput, Primary: true, StartedAt: talkStart, Version: tx.Version(),
		})
	}))
	taken := w.everything()
	taken.Gates = authority.GateSuspended
	w.v1.Store = &locking{w.v1.Store, func() { w.declared.set(alpha, taken) }}
	w.v1.State = &lockingState{w.v1.State, func() { w.declared.set(alpha, taken) }}
	before := len(w.entries("one"))
	for name, write := range map[string]func() error{
		"SetState": func() error {
			_, err := w.host.SetState(w.as(alpha), &pluginv1.SetStateRequest{Scope: "instance", Key: "late"})
			return err
		},
		"CreateTask": func() error { _, err := w.create(nil); return err },
		"UpdateTask": func() error {
			_, err := w.host.UpdateTask(w.as(alpha), &pluginv1.UpdateTaskRequest{Id: own.GetId(), Title: ptr("Late")})
			return err
		},
		"MoveTask": func() error {
			_, err := w.host.MoveTask(w.as(alpha), &pluginv1.MoveTaskRequest{TaskId: own.GetId(), WorkflowStepId: "one-doing"})
			return err
		},
		"SendMessage": func() error {
			_, err := w.host.SendMessage(w.as(alpha), &pluginv1.SendMessageRequest{TaskId: own.GetId(), Text: "Late"})
			return err
		},
		"DeletePluginOwnedTaskTree": func() error {
			_, err := w.host.DeletePluginOwnedTaskTree(w.as(alpha), &pluginv1.DeletePluginOwnedTaskTreeRequest{RootTaskId: own.GetId()})
			return err
		},
	} {
		w.declared.set(alpha, w.everything())
		wants(t, name, write(), codes.PermissionDenied, "the plugin is suspended by a platform admin")
	}
	if n := len(w.entries("one")); n != before {
		t.Errorf("a suspended plugin committed %d entries", n-before)
	}
}

// TestI14_NoTaskShowsMarkup: neither world shows what system markup hides in a task, as
// no event does.
func TestI14_NoTaskShowsMarkup(t *testing.T) {
	w := board(t)
	row := w.approve(alpha, "one")
	const text = "seen <kandev-system>secret</kandev-system>"
	w.must(w.store.Seed(t.Context(), "one", func(tx store.SeedTx) error {
		task := domain.Task{
			ID: "marked", WorkflowID: "one-flow", WorkflowStepID: "one-todo", Title: text, Description: text, State: domain.TaskTodo,
			Metadata: domain.Object{"note": map[string]any{"text": []any{text}}}, PullRequests: []domain.TaskPullRequest{{Number: 1, Title: text}},
			CreatedAt: w.clock.Now(), UpdatedAt: w.clock.Now(),
		}
		if err := tx.Task(task); err != nil {
			return err
		}
		return tx.Relation(domain.TaskRelation{Kind: domain.RelationDependency, SourceTaskID: "marked", TargetTaskID: taskID("one", 0)})
	}))
	shows := func(what string, m proto.Message, err error) {
		t.Helper()
		w.must(err)
		if got := protojson.Format(m); strings.Contains(got, "secret") || !strings.Contains(got, "seen") {
			t.Errorf("%s shows %s", what, got)
		}
	}
	v1, err := w.host.GetTask(w.as(alpha), &pluginv1.GetTaskRequest{Id: "marked"})
	shows("GetTask", v1, err)
	list, err := w.host.ListTasks(w.as(alpha), &pluginv1.ListTasksRequest{})
	shows("ListTasks", list, err)
	waits, err := w.host.GetTask(w.as(alpha), &pluginv1.GetTaskRequest{Id: taskID("one", 0)})
	shows("GetTask of who waits", waits, err)
	changed, err := w.host.UpdateTask(w.as(alpha), &pluginv1.UpdateTaskRequest{Id: "marked", Priority: ptr("high")})
	shows("UpdateTask", changed, err)
	exact, err := w.host.GetTaskExact(w.as(alpha), &pluginv1.GetTaskExactRequest{
		RequestId: "r", WorkspaceId: "one", TaskId: "marked", CapabilityRevision: row.Revision,
	})
	shows("GetTaskExact", exact, err)
	exactList, err := w.host.ListTasksExact(w.as(alpha), &pluginv1.ListTasksExactRequest{
		RequestId: "r", WorkspaceId: "one", CapabilityRevision: row.Revision,
	})
	shows("ListTasksExact", exactList, err)
}
