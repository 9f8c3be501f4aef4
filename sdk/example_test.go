package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
	"github.com/kandev/plugin-host/sdk"
)

// A plugin that asks for a review of every task that is done.
func review(ctx context.Context, workspaceID string) error {
	host, err := sdk.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = host.Close() }()

	filter := &pluginv1.TaskFilter{States: []string{"COMPLETED"}}
	for item, err := range host.Tasks().List(ctx, workspaceID, filter, sdk.ListOptions{}).Items() {
		if err != nil {
			return err
		}
		op := sdk.NewOperation("review-"+item.GetTask().GetId(), sdk.ExpectNone())
		done, err := host.Tasks().Update(ctx, workspaceID, op,
			item.GetTask().GetId(), item.GetResourceVersion(), sdk.TaskChange{State: new("REVIEW")})
		if err != nil {
			return err
		}
		fmt.Println(done.Task.GetTitle(), done.State)
	}
	return nil
}

// A plugin that keeps the titles of all tasks.
func follow(ctx context.Context, host *sdk.Host, workspaceID string) error {
	titles := map[string]string{}
	tasks := sdk.Kind[*pluginv1.ExactTaskObservation]{
		Name: "tasks", WorkspaceID: workspaceID, Events: []string{"task.*"},
		List: func(ctx context.Context) sdk.Pages[*pluginv1.ExactTaskObservation] {
			return host.Tasks().List(ctx, workspaceID, nil, sdk.ListOptions{})
		},
		Sync: func(_ context.Context, snapshot sdk.Snapshot[*pluginv1.ExactTaskObservation]) error {
			clear(titles) // what is not in the snapshot is gone
			for _, item := range snapshot.Items {
				titles[item.GetTask().GetId()] = item.GetTask().GetTitle()
			}
			return nil
		},
		Changed: func(ctx context.Context, event sdk.Event) error {
			item, _, err := host.Tasks().Get(ctx, workspaceID, event.ResourceID)
			var answer *sdk.Error
			switch {
			case err == nil:
				titles[event.ResourceID] = item.GetTask().GetTitle()
			case errors.As(err, &answer) && answer.State == contract.StateNotFound:
				delete(titles, event.ResourceID)
			default:
				return err // the list is read again
			}
			return nil
		},
	}
	r := sdk.Reconciler{Host: host, Kinds: []sdk.AnyKind{tasks}}
	return r.Run(ctx)
}

// The how-to shows the plugins above as they are.
func TestTheHowToShowsTheExample(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.FromSlash("../docs/howto/write-a-plugin.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"review", "follow"} {
		_, plugin, _ := strings.Cut(string(source), "\nfunc "+name+"(")
		plugin, _, found := strings.Cut(plugin, "\n}\n")
		if !found || !strings.Contains(string(page), "func "+name+"("+plugin+"\n}\n") {
			t.Errorf("docs/howto/write-a-plugin.md shows another %s than sdk/example_test.go", name)
		}
	}
}

func Example() {
	stop, err := runInAPod(&board{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	fmt.Println("team-a:", review(context.Background(), "team-a"))

	// Nobody approved it in team-b. It learns so from a typed answer.
	err = review(context.Background(), "team-b")
	if answer, ok := errors.AsType[*sdk.Error](err); ok && answer.Retry() == contract.RetryPark {
		fmt.Println("team-b:", answer.State, answer.Reason)
	}
	// Output:
	// Pay the invoice APPLIED
	// team-a: <nil>
	// team-b: DENIED MISSING_CAPABILITY_APPROVAL
}

// board answers as a Host does that approved the plugin in team-a alone.
type board struct {
	pluginv1.UnimplementedHostServer
}

func (*board) GetCapabilityContext(
	context.Context, *pluginv1.GetCapabilityContextRequest,
) (*pluginv1.GetCapabilityContextResponse, error) {
	return &pluginv1.GetCapabilityContextResponse{
		ContractVersion: contract.ContractVersion, ContextRevision: 1,
		Workspaces: []*pluginv1.WorkspaceCapabilityContext{{
			WorkspaceId: "team-a", State: "active", CapabilityRevision: 3,
			CapabilityIds: []string{"host.v2.read:tasks", "host.v2.write:tasks"},
		}},
	}, nil
}

func (*board) ListTasksExact(
	_ context.Context, r *pluginv1.ListTasksExactRequest,
) (*pluginv1.ListTasksExactResponse, error) {
	if r.GetWorkspaceId() != "team-a" {
		denied, err := status.New(codes.PermissionDenied, "denied").WithDetails(
			result(wireStates[contract.StateDenied], contract.ReasonMissingCapabilityApproval))
		return nil, errors.Join(err, denied.Err())
	}
	return &pluginv1.ListTasksExactResponse{
		Items: []*pluginv1.ExactTaskObservation{{
			Task: &pluginv1.Task{Id: "t1", Title: "Pay the invoice", State: "COMPLETED"}, ResourceVersion: "v1",
		}},
		PageInfo: &pluginv1.ExactReadPageInfo{SnapshotVersion: "s1", Receipt: &pluginv1.HostReadReceipt{}},
	}, nil
}

func (*board) UpdateTaskExact(
	_ context.Context, r *pluginv1.UpdateTaskExactRequest,
) (*pluginv1.UpdateTaskExactResponse, error) {
	return &pluginv1.UpdateTaskExactResponse{
		Result: result(wireStates[contract.StateApplied], ""),
		Task:   &pluginv1.Task{Id: r.GetTaskId(), Title: "Pay the invoice", State: r.GetState()},
	}, nil
}

// runInAPod serves h over TLS on this machine and sets the environment that a
// plugin's pod has.
func runInAPod(h pluginv1.HostServer) (stop func(), err error) {
	dir, err := os.MkdirTemp("", "pod")
	if err != nil {
		return nil, err
	}
	certificate, err := newCertificate(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("a.projected.token"), 0o600); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&certificate)))
	pluginv1.RegisterHostServer(server, h)
	go func() { _ = server.Serve(listener) }()
	for name, value := range map[string]string{
		sdk.EnvAddress: listener.Addr().String(), sdk.EnvCAFile: filepath.Join(dir, "ca.crt"),
		sdk.EnvTokenFile: filepath.Join(dir, "token"),
	} {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	return func() {
		server.Stop()
		_ = os.RemoveAll(dir)
		for _, name := range []string{sdk.EnvAddress, sdk.EnvCAFile, sdk.EnvTokenFile} {
			_ = os.Unsetenv(name)
		}
	}, nil
}
