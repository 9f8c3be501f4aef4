package rpc_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/events"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	"github.com/kandev/plugin-host/hostsvc/rpc"
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

// lockingState is the same for a plugin's state, lockingSecrets for its secrets and
// lockingEvents for what it publishes.
type lockingState struct {
	legacy.StateStore

	before func()
}

func (l *lockingState) PutState(ctx context.Context, entry domain.PluginState, receipt journal.Receipt, allow func(legacy.StateWrite) error) error {
	return l.StateStore.PutState(ctx, entry, receipt, func(write legacy.StateWrite) error { l.before(); return allow(write) })
}

func (l *lockingState) DeleteState(ctx context.Context, key legacy.StateKey, receipt journal.Receipt, allow func() error) error {
	return l.StateStore.DeleteState(ctx, key, receipt, func() error { l.before(); return allow() })
}

type lockingSecrets struct {
	legacy.SecretStore

	before func()
}

func (l *lockingSecrets) PutSecret(ctx context.Context, secret legacy.Secret, receipt journal.Receipt, allow func(int) error) error {
	return l.SecretStore.PutSecret(ctx, secret, receipt, func(kept int) error { l.before(); return allow(kept) })
}

func (l *lockingSecrets) DeleteSecret(ctx context.Context, installationID, key string, receipt journal.Receipt, allow func() error) error {
	return l.SecretStore.DeleteSecret(ctx, installationID, key, receipt, func() error { l.before(); return allow() })
}

type lockingEvents struct {
	command.EmitStore

	before func()
}

func (l *lockingEvents) Emit(ctx context.Context, event command.Emitted, allow func() error) error {
	return l.EmitStore.Emit(ctx, event, func() error { l.before(); return allow() })
}

// v1Readers are what the names of methods that write nothing begin with.
var v1Readers = []string{"Get", "List", "Preview", "Reveal"}

// TestI5_V1WritersAreDecidedUnderTheLock: what was taken from an installation while its
// write waited is gone, whatever it writes.
func TestI5_V1WritersAreDecidedUnderTheLock(t *testing.T) {
	var emitter *command.Emitter
	w := boardWith(t, func(o *options) {
		o.server = func(c *rpc.Config) {
			durable, ok := c.Executor.Store.(command.EmitStore)
			if !ok {
				t.Fatalf("the store is a %T", c.Executor.Store)
			}
			emitter = &command.Emitter{Store: durable, Now: c.Now, NewID: uuid.NewString}
			c.Emitter = emitter
		}
	})
	own, err := w.create(nil)
	w.must(err)
	w.must(w.talk("one", func(tx talkTx) error {
		return tx.InsertSession(domain.Session{
			ID: "s", WorkspaceID: "one", TaskID: own.GetId(), State: domain.SessionWaitingForInput, Primary: true, StartedAt: talkStart, Version: tx.Version(),
		})
	}))
	_, err = w.host.SetState(w.as(alpha), &pluginv1.SetStateRequest{Scope: "instance", Key: "kept"})
	w.must(err)
	_, err = w.host.SetSecret(w.as(alpha), &pluginv1.SetSecretRequest{Key: "kept", Value: "v"})
	w.must(err)
	taken := w.everything()
	taken.Gates = authority.GateSuspended
	suspend := func() { w.declared.set(alpha, taken) }
	w.v1.Store, w.v1.State, w.v1.Secrets = &locking{w.v1.Store, suspend}, &lockingState{w.v1.State, suspend}, &lockingSecrets{w.v1.Secrets, suspend}
	emitter.Store = &lockingEvents{emitter.Store, suspend}
	before := len(w.entries("one"))
	writers := map[protoreflect.Name]func() error{
		"SetState": func() error {
			_, err := w.host.SetState(w.as(alpha), &pluginv1.SetStateRequest{Scope: "instance", Key: "late"})
			return err
		},
		"DeleteState": func() error {
			_, err := w.host.DeleteState(w.as(alpha), &pluginv1.DeleteStateRequest{Scope: "instance", Key: "kept"})
			return err
		},
		"SetSecret": func() error {
			_, err := w.host.SetSecret(w.as(alpha), &pluginv1.SetSecretRequest{Key: "late", Value: "v"})
			return err
		},
		"DeleteSecret": func() error {
			_, err := w.host.DeleteSecret(w.as(alpha), &pluginv1.DeleteSecretRequest{Key: "kept"})
			return err
		},
		"EmitEvent": func() error {
			_, err := w.host.EmitEvent(w.as(alpha), &pluginv1.EmitEventRequest{EventName: "late"})
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
	}
	for name := range shipped {
		reads := slices.ContainsFunc(v1Readers, func(verb string) bool { return strings.HasPrefix(string(name), verb) })
		if _, late := writers[name]; !late && !reads && !slices.Contains(later, name) {
			t.Errorf("%s writes, and isn't late here", name)
		}
	}
	for name, write := range writers {
		w.declared.set(alpha, w.everything())
		wants(t, string(name), write(), codes.PermissionDenied, "the plugin is suspended by a platform admin")
	}
	if n := len(w.entries("one")); n != before {
		t.Errorf("a suspended plugin committed %d entries", n-before)
	}
	page, err := w.store.Events(t.Context(), events.Position{}, 1000)
	w.must(err)
	if slices.ContainsFunc(page.Records, func(r events.Record) bool { return r.PluginID != "" }) {
		t.Error("a suspended plugin published an event")
	}
	w.declared.set(alpha, w.everything())
	for key, there := range map[string]bool{"kept": true, "late": false} {
		state, err := w.host.GetState(w.as(alpha), &pluginv1.GetStateRequest{Scope: "instance", Key: key})
		w.must(err)
		secret, err := w.host.GetSecret(w.as(alpha), &pluginv1.GetSecretRequest{Key: key})
		w.must(err)
		if state.GetFound() != there || secret.GetFound() != there {
			t.Errorf("once a suspended plugin wrote, the state %s is there: %t, the secret: %t; want %t", key, state.GetFound(), secret.GetFound(), there)
		}
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
			Metadata: domain.Object{"note": map[string]any{"text": []any{text}}}, Labels: []string{text},
			PullRequests: []domain.TaskPullRequest{{Number: 1, Title: text, HeadBranch: text, BaseBranch: text}},
			CreatedAt:    w.clock.Now(), UpdatedAt: w.clock.Now(),
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

// TestI14_NoNameShowsMarkup: what people and agents call things is text like any other.
func TestI14_NoNameShowsMarkup(t *testing.T) {
	w := board(t)
	row := w.approve(alpha, "one")
	const text = "seen <kandev-system>secret</kandev-system>"
	w.must(w.store.Seed(t.Context(), "marked", func(tx store.SeedTx) error {
		return tx.Workspace(domain.Workspace{ID: "marked", Name: text, Description: text})
	}))
	w.must(w.store.Seed(t.Context(), "one", func(tx store.SeedTx) error {
		return errors.Join(
			tx.Workflow(domain.Workflow{ID: "marked", Name: text, Description: text}),
			tx.WorkflowStep(domain.WorkflowStep{ID: "marked", WorkflowID: "marked", Name: text}),
			tx.Repository(domain.Repository{ID: "marked", Name: text}),
		)
	}))
	w.must(w.talk("one", func(tx talkTx) error {
		return tx.InsertSession(domain.Session{
			ID: "marked", WorkspaceID: "one", TaskID: taskID("one", 0), State: domain.SessionIdle, StartedAt: talkStart, Version: tx.Version(),
			ProfileSnapshot: domain.Object{"model": text, "agent_display_name": text, "name": text},
			Metadata:        domain.Object{"acp": map[string]any{"session_id": text}},
		})
	}))
	shows := func(what string, m proto.Message, err error) {
		t.Helper()
		w.must(err)
		if got := protojson.Format(m); strings.Contains(got, "secret") || !strings.Contains(got, "seen") {
			t.Errorf("%s shows %s", what, got)
		}
	}
	workspaces, err := w.host.ListWorkspaces(w.as(alpha), &pluginv1.ListWorkspacesRequest{})
	shows("ListWorkspaces", workspaces, err)
	workflows, err := w.host.ListWorkflows(w.as(alpha), &pluginv1.ListWorkflowsRequest{WorkspaceId: "one"})
	shows("ListWorkflows", workflows, err)
	steps, err := w.host.ListWorkflowSteps(w.as(alpha), &pluginv1.ListWorkflowStepsRequest{WorkflowId: "marked"})
	shows("ListWorkflowSteps", steps, err)
	repositories, err := w.host.ListRepositories(w.as(alpha), &pluginv1.ListRepositoriesRequest{WorkspaceId: "one"})
	shows("ListRepositories", repositories, err)
	sessions, err := w.host.ListSessions(w.as(alpha), &pluginv1.ListSessionsRequest{})
	shows("ListSessions", sessions, err)
	exactWorkflows, err := w.host.ListWorkflowsExact(w.as(alpha), &pluginv1.ListWorkflowsExactRequest{
		RequestId: "r", WorkspaceId: "one", CapabilityRevision: row.Revision,
	})
	shows("ListWorkflowsExact", exactWorkflows, err)
	exactSteps, err := w.host.ListWorkflowStepsExact(w.as(alpha), &pluginv1.ListWorkflowStepsExactRequest{
		RequestId: "r", WorkspaceId: "one", WorkflowId: "marked", CapabilityRevision: row.Revision,
	})
	shows("ListWorkflowStepsExact", exactSteps, err)
	exactSessions, err := w.host.ListSessionsExact(w.as(alpha), &pluginv1.ListSessionsExactRequest{
		RequestId: "r", WorkspaceId: "one", CapabilityRevision: row.Revision,
	})
	shows("ListSessionsExact", exactSessions, err)
}
