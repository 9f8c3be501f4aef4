package rpc_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/identity"
	"github.com/kandev/plugin-host/hostsvc/store"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// called are tokens of installations of plugins that a test names.
type called struct {
	tokens
	plugins map[string]string
}

func (c called) Authenticate(ctx context.Context, bearer string) (identity.Principal, error) {
	principal, err := c.tokens.Authenticate(ctx, bearer)
	principal.PluginID = c.plugins[principal.InstallationID]
	return principal, err
}

// TestI12_V1OwnsWhatThisInstallationMadeByV1: neither another installation of the
// plugin, nor its reinstall, nor a plugin that is called like an installation, nor who
// made a task by the exact contract can look at a tree of it or delete it.
func TestI12_V1OwnsWhatThisInstallationMadeByV1(t *testing.T) {
	const (
		twin, anew = "installation-twin", "installation-anew"
		namesake   = "installation-namesake"
		notOwned   = "capability 'plugin_owned_tasks' not declared"
		notAlone   = "plugin-owned task tree contains adopted or user-owned children; detach them before deleting"
	)
	w := newV1World(t, func(o *options) {
		o.identity = called{plugins: map[string]string{alpha: "p", twin: "p", anew: "p", namesake: alpha, beta: "p.q"}}
	})
	w.seed("one", 0)
	w.approve(alpha, "one")
	for _, id := range []string{twin, anew, namesake} {
		w.declared.set(id, w.everything())
	}
	create := func(as, parent string) string {
		t.Helper()
		request := &pluginv1.CreateTaskRequest{WorkspaceId: "one", WorkflowId: "one-flow", Title: "T"}
		if parent != "" {
			request.ParentId = &parent
		}
		response, err := w.host.CreateTask(w.as(as), request)
		w.must(err)
		return response.GetTask().GetId()
	}
	preview := func(as, root string) error {
		_, err := w.host.PreviewPluginOwnedTaskTree(w.as(as), &pluginv1.PreviewPluginOwnedTaskTreeRequest{RootTaskId: root})
		return err
	}
	remove := func(as, root string) error {
		_, err := w.host.DeletePluginOwnedTaskTree(w.as(as), &pluginv1.DeletePluginOwnedTaskTreeRequest{RootTaskId: root})
		return err
	}
	denied := func(what, as, root string) {
		t.Helper()
		wants(t, "preview "+what, preview(as, root), codes.PermissionDenied, notOwned)
		wants(t, "delete "+what, remove(as, root), codes.PermissionDenied, notOwned)
	}
	root := create(alpha, "")
	child := create(alpha, root)
	denied("what another installation of the plugin made", twin, root)
	denied("what the installation of before made", anew, root)
	denied("what a plugin made whose ID begins this one's", beta, root)

	// What another installation of the plugin puts into the tree isn't the root's.
	adopted := create(twin, child)
	wants(t, "a tree with a task of another installation", remove(alpha, root), codes.FailedPrecondition, notAlone)
	w.must(remove(twin, adopted))

	// The exact contract stamps the installation's own ID.
	exact, err := w.host.CreateTaskExact(w.as(alpha), w.createRequest("one", "exact"))
	w.must(err)
	made := exact.GetTask().GetId()
	shown, err := w.host.GetTask(w.as(alpha), &pluginv1.GetTaskRequest{Id: made})
	w.must(err)
	if source := shown.GetTask().GetMetadata().AsMap()["source"]; source != domain.PluginSource(alpha) {
		t.Errorf("the source of an exact task is %v", source)
	}
	denied("what it made by the exact contract", alpha, made)
	denied("what an installation of that name made by the exact contract", namesake, made)
	denied("a task of v1 whose plugin is called like this installation", alpha, create(namesake, ""))
	below := w.createRequest("one", "below")
	parent, err := w.host.GetTaskExact(w.as(alpha), &pluginv1.GetTaskExactRequest{
		RequestId: "r", WorkspaceId: "one", TaskId: child, CapabilityRevision: 1,
	})
	w.must(err)
	below.Task.ParentId, below.ExpectedParentResourceVersion = &child, parent.GetItem().GetResourceVersion()
	created, err := w.host.CreateTaskExact(w.as(alpha), below)
	w.must(err)
	if created.GetTask().GetParentId() != child {
		t.Fatalf("below a task of v1, the exact contract made %v", created)
	}
	wants(t, "a tree with a task of the exact contract", remove(alpha, root), codes.FailedPrecondition, notAlone)

	// What bears its source and nobody made is nobody's.
	w.must(w.store.Seed(t.Context(), "one", func(tx store.SeedTx) error {
		return tx.Task(domain.Task{
			ID: "imported", WorkflowID: "one-flow", WorkflowStepID: "one-todo", Title: "I", State: domain.TaskTodo, Source: domain.PluginSource("p"),
			CreatedAt: w.clock.Now(),
		})
	}))
	denied("what was imported", alpha, "imported")

	// A change by others, and a move, leave a task whose it is.
	lone := create(alpha, "")
	title := "Changed"
	_, err = w.host.UpdateTask(w.as(twin), &pluginv1.UpdateTaskRequest{Id: lone, Title: &title})
	w.must(err)
	_, err = w.host.MoveTask(w.as(beta), &pluginv1.MoveTaskRequest{TaskId: lone, WorkflowStepId: "one-doing"})
	w.must(err)
	denied("what it changed and another made", twin, lone)
	w.must(preview(alpha, lone))
	w.must(remove(alpha, lone))
}
