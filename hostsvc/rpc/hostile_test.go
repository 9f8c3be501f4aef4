package rpc_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/store"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
	"github.com/kandev/plugin-host/sdk"
)

// TestI9_OneKeyOneEffect: however many callers use one key at once, one of them
// has the effect and the others find it.
func TestI9_OneKeyOneEffect(t *testing.T) {
	w := newWorld(t)
	w.seed("ws", 0)
	w.approve(alpha, "ws")
	const callers = 16
	answers := make([]*pluginv1.CreateTaskExactResponse, callers)
	var calls sync.WaitGroup
	for i := range callers {
		calls.Go(func() {
			request := w.createRequest("ws", "once")
			request.RequestId = fmt.Sprint("caller-", i)
			var err error
			if answers[i], err = w.host.CreateTaskExact(w.as(alpha), request); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	applied := 0
	audits := map[string]bool{}
	for i, answer := range answers {
		switch answer.GetResult().GetStatus() {
		case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_APPLIED:
			applied++
		case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_ALREADY_APPLIED:
		default:
			t.Errorf("caller %d: %v", i, answer.GetResult())
		}
		sameBytes(t, answer.GetResult().GetReceipt(), answers[0].GetResult().GetReceipt())
		sameBytes(t, answer.GetTask(), answers[0].GetTask())
		audits[answer.GetResult().GetAuditId()] = true
	}
	if applied != 1 || len(audits) != callers {
		t.Errorf("%d callers applied, with %d audit IDs, want 1 with %d", applied, len(audits), callers)
	}
	if n := w.commands("ws"); n != 1 {
		t.Errorf("%d commands were committed, want 1", n)
	}
}

// commands counts the committed commands of a workspace.
func (w *world) commands(workspace string) (n int) {
	w.Helper()
	for _, entry := range w.entries(workspace) {
		if entry.Kind == journal.KindCommand {
			n++
		}
	}
	return n
}

// TestI9_KeysAndNamesAreTheirOwners: an idempotency key belongs to one
// installation in one workspace, and so does an external ID.
func TestI9_KeysAndNamesAreTheirOwners(t *testing.T) {
	w := newWorld(t)
	targets := map[string]bool{}
	for _, workspace := range []string{"ws-1", "ws-2"} {
		w.seed(workspace, 0)
		for _, installation := range []string{alpha, beta} {
			w.approve(installation, workspace)
			for i, want := range []pluginv1.HostCommandStatus{
				pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_APPLIED, pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_ALREADY_APPLIED,
			} {
				response, err := w.host.CreateTaskExact(w.as(installation), w.createRequest(workspace, "shared"))
				w.must(err)
				if got := response.GetResult(); got.GetStatus() != want {
					t.Errorf("call %d of %s in %s: %v", i, installation, workspace, got)
				}
				if response.GetTask().GetCreatedBy() != "plugin:"+installation || response.GetTask().GetWorkspaceId() != workspace {
					t.Errorf("%s in %s was shown %v", installation, workspace, response.GetTask())
				}
				targets[response.GetResult().GetReceipt().GetTargetId()] = true
			}
		}
	}
	if len(targets) != 4 {
		t.Errorf("%d tasks, want one for each installation in each workspace", len(targets))
	}
}

// TestI8_CallersThatGoAwayChangeNothingForNeighbours: one plugin's callers
// cancel at any moment, before their turn, in the middle of a shared commit or
// after it. The other's calls all succeed; each cancelled command happened once
// or not at all, and its key tells which.
func TestI8_CallersThatGoAwayChangeNothingForNeighbours(t *testing.T) {
	w := newWorld(t)
	w.seed("ws", 0)
	w.approve(alpha, "ws")
	w.approve(beta, "ws")
	const callers, each = 16, 12
	var calls sync.WaitGroup
	for c := range callers {
		calls.Go(func() {
			for i := range each {
				ctx, cancel := context.WithTimeout(w.as(alpha), time.Duration((c*each+i)%24)*250*time.Microsecond)
				_, err := w.host.CreateTaskExact(ctx, w.createRequest("ws", fmt.Sprintf("gone-%d-%d", c, i)))
				cancel()
				if err != nil && status.Code(err) != codes.DeadlineExceeded {
					t.Errorf("a caller that went away: %v", err)
				}
			}
		})
		calls.Go(func() {
			for i := range each {
				response, err := w.host.CreateTaskExact(w.as(beta), w.createRequest("ws", fmt.Sprintf("stays-%d-%d", c, i)))
				if err != nil || response.GetResult().GetStatus() != pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_APPLIED {
					t.Errorf("a neighbour: %v, %v", response.GetResult(), err)
				}
			}
		})
	}
	calls.Wait()
	targets := map[string]bool{}
	for c := range callers {
		for i := range each {
			response, err := w.host.CreateTaskExact(w.as(alpha), w.createRequest("ws", fmt.Sprintf("gone-%d-%d", c, i)))
			w.must(err)
			if response.GetResult().GetReceipt() == nil {
				t.Errorf("asked again: %v", response.GetResult())
			}
			targets[response.GetResult().GetReceipt().GetTargetId()] = true
		}
	}
	if n := w.commands("ws"); n != 2*callers*each || len(targets) != callers*each {
		t.Errorf("%d commands were committed with %d targets, want %d and %d", n, len(targets), 2*callers*each, callers*each)
	}
	if _, err := journal.VerifyWorkspace(t.Context(), w.store, "ws"); err != nil {
		t.Error(err)
	}
	if n := w.store.Waiting(); n != 0 {
		t.Errorf("%d commands still wait", n)
	}
}

// TestI9_ReplayNeedsAuthority: what was committed is shown again only to those
// who may still do it.
func TestI9_ReplayNeedsAuthority(t *testing.T) {
	w := newWorld(t)
	w.seed("ws", 0)
	row := w.approve(alpha, "ws")
	request := w.createRequest("ws", "x")
	created, err := w.host.CreateTaskExact(w.as(alpha), request)
	w.must(err)
	if created.GetTask() == nil {
		t.Fatalf("created %v", created)
	}
	row.Granted &^= contract.SetOf(contract.WriteTasks)
	w.fence(row)
	request.CapabilityRevision = 2
	replay, err := w.host.CreateTaskExact(w.as(alpha), request)
	w.must(err)
	if got := replay.GetResult(); got.GetReason() != string(contract.ReasonMissingCapabilityApproval) || got.GetReceipt() != nil || replay.GetTask() != nil {
		t.Errorf("a replay without the capability answers %v", replay)
	}
}

// TestI9_NoChangeIsRecorded: a key that changed nothing is spent all the same.
func TestI9_NoChangeIsRecorded(t *testing.T) {
	w := newWorld(t)
	s := w.play("ws")
	same := proto.CloneOf(s.update)
	same.Title = ptr("first")
	first, err := w.host.UpdateTaskExact(w.as(alpha), same)
	w.must(err)
	again, err := w.host.UpdateTaskExact(w.as(alpha), same)
	w.must(err)
	if first.GetResult().GetStatus() != pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_NO_CHANGE ||
		again.GetResult().GetStatus() != pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_ALREADY_APPLIED {
		t.Errorf("answers %v, then %v", first.GetResult(), again.GetResult())
	}
	sameBytes(t, again.GetResult().GetReceipt(), first.GetResult().GetReceipt())
	s.update.IdempotencyKey = same.GetIdempotencyKey()
	other, err := w.host.UpdateTaskExact(w.as(alpha), s.update)
	w.must(err)
	if other.GetResult().GetReason() != string(contract.ReasonIdempotencyMismatch) {
		t.Errorf("the key with a change answers %v", other.GetResult())
	}
}

// wire forwards connections to the Host, until they are cut.
type wire struct {
	address string
	mu      sync.Mutex
	conns   []net.Conn
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := &wire{address: listener.Addr().String()}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			v.mu.Lock()
			v.conns = append(v.conns, near, far)
			v.mu.Unlock()
			running.Go(func() { _, _ = io.Copy(far, near) })
			running.Go(func() { _, _ = io.Copy(near, far) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		v.cut()
		running.Wait()
	})
	return v
}

// cut ends every connection; what was on its way is lost.
func (v *wire) cut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, conn := range v.conns {
		_ = conn.Close()
	}
	v.conns = nil
}

// TestI9_LostResponseAndNewRevision: the task is committed, the answer is lost
// with its connection, and authority has moved on when the SDK asks again. The
// retry finds the first result; there is no second task.
func TestI9_LostResponseAndNewRevision(t *testing.T) {
	slow := &failing{}
	w := newWorld(t, func(o *options) { o.failing = slow })
	w.seed("ws", 0)
	row := w.approve(alpha, "ws")
	connection := newWire(t, w.address)
	var once sync.Once
	slow.written = func() {
		once.Do(func() {
			connection.cut()
			w.fence(row)
		})
	}
	token := filepath.Join(t.TempDir(), "token")
	w.must(os.WriteFile(token, []byte("token-of-"+alpha), 0o600))
	host, err := sdk.Connect(t.Context(), sdk.WithAddress(connection.address), sdk.WithCAFile(w.certFile), sdk.WithTokenFile(token))
	w.must(err)
	defer func() { w.must(host.Close()) }()

	result, err := host.Tasks().Create(t.Context(), "ws", sdk.NewOperation("durable-key", sdk.ExpectNone()), sdk.NewTask{
		ExternalID: "x", WorkflowID: "ws-flow", WorkflowVersion: w.seededVersion(), StepID: "ws-todo", StepVersion: w.seededVersion(),
		Title: "New",
	})
	w.must(err)
	if result.State != contract.StateAlreadyApplied || result.Receipt.GetApprovalRevision() != 1 || result.Task.GetTitle() != "New" {
		t.Errorf("the retry answers %+v, want the first result of revision 1", result)
	}
	if n := w.commands("ws"); n != 1 {
		t.Errorf("%d commands were committed, want 1", n)
	}
	list, err := w.host.ListTasksExact(w.as(alpha), &pluginv1.ListTasksExactRequest{RequestId: "r", WorkspaceId: "ws"})
	w.must(err)
	if n := len(list.GetItems()); n != 1 || list.GetItems()[0].GetTask().GetId() != result.Receipt.GetTargetId() {
		t.Errorf("%d tasks, want the one that the receipt names", n)
	}
}

// A step whose last task stands at the last position there is takes no other;
// a task must not come first because a number ran over.
func TestLastPositionDoesNotRunOver(t *testing.T) {
	w := newWorld(t)
	w.seed("ws", 0)
	w.must(w.store.Seed(t.Context(), "ws", func(tx store.SeedTx) error {
		return tx.Task(domain.NewTask("last", "ws", "human:ann", domain.TaskDraft{
			WorkflowID: "ws-flow", WorkflowStepID: "ws-todo", Title: "Always last",
		}, domain.Placement{StepID: "ws-todo", Admitted: true}, math.MaxInt32, w.clock.Now()))
	}))
	w.approve(alpha, "ws")
	created, err := w.host.CreateTaskExact(w.as(alpha), w.createRequest("ws", "x"))
	w.must(err)
	if got := created.GetResult(); got.GetReason() != string(contract.ReasonMalformedPrecondition) || got.GetField() != "task.workflow_step_id" {
		t.Errorf("got %v", created)
	}
}

// chainEnds are the ends of all chains of receipts.
func (w *world) chainEnds() map[string]string {
	w.Helper()
	chains, err := w.store.Chains(w.Context())
	w.must(err)
	ends := map[string]string{}
	for _, chain := range chains {
		ends[chain.Name] = fmt.Sprint(chain.Index, " ", chain.Hash)
	}
	return ends
}

// TestI14_HammeringAnotherWorkspaceMovesNothing: a plugin that is approved
// nowhere calls for another's workspace as fast as it can. It never takes the
// workspace's lock, only its own chain of refusals moves, and it is told to the
// byte what it is told of a workspace that does not exist.
func TestI14_HammeringAnotherWorkspaceMovesNothing(t *testing.T) {
	counted := &failing{}
	w := newWorld(t, func(o *options) { o.failing = counted })
	w.seed("private", 1)
	w.approve(beta, "private")
	if _, err := w.host.GetTaskExact(w.as(beta), &pluginv1.GetTaskExactRequest{RequestId: "r", WorkspaceId: "private", TaskId: taskID("private", 0)}); err != nil {
		t.Fatal(err)
	}
	version, hash, err := w.store.Head(t.Context(), "private")
	w.must(err)
	before, writes := w.chainEnds(), counted.writes.Load()

	calls := []func(workspace string) proto.Message{
		func(ws string) proto.Message {
			_, err := w.host.GetTaskExact(w.as(alpha), &pluginv1.GetTaskExactRequest{RequestId: "r", WorkspaceId: ws, TaskId: taskID("private", 0), CapabilityRevision: 1})
			return w.failure(err)
		},
		func(ws string) proto.Message {
			_, err := w.host.ListTasksExact(w.as(alpha), &pluginv1.ListTasksExactRequest{RequestId: "r", WorkspaceId: ws})
			return w.failure(err)
		},
		func(ws string) proto.Message {
			request := w.createRequest("private", "x")
			request.WorkspaceId, request.Task.WorkspaceId = ws, ws
			response, err := w.host.CreateTaskExact(w.as(alpha), request)
			w.must(err)
			return anonymous(response.GetResult())
		},
		func(ws string) proto.Message {
			response, err := w.host.UpdateTaskExact(w.as(alpha), &pluginv1.UpdateTaskExactRequest{
				RequestId: "r", WorkspaceId: ws, TaskId: taskID("private", 0), IdempotencyKey: "k", CapabilityRevision: 1,
				ExpectedResourceVersion: w.seededVersion(), Title: ptr("mine"), Guard: noGuard(),
			})
			w.must(err)
			return anonymous(response.GetResult())
		},
	}
	want := make([]proto.Message, len(calls))
	for i, call := range calls {
		want[i] = call("nowhere")
	}
	var hammers sync.WaitGroup
	for range 16 {
		hammers.Go(func() {
			for round := range 10 {
				for i, call := range calls {
					sameBytes(t, call("private"), want[i])
					sameBytes(t, call(fmt.Sprint("nowhere-", round)), want[i])
				}
			}
		})
	}
	hammers.Wait()

	if n := counted.writes.Load() - writes; n != 0 {
		t.Errorf("it asked for a workspace's lock %d times", n)
	}
	afterVersion, afterHash, err := w.store.Head(t.Context(), "private")
	w.must(err)
	if afterVersion != version || afterHash != hash {
		t.Errorf("the workspace's chain moved from %d to %d", version, afterVersion)
	}
	after := w.chainEnds()
	maps.DeleteFunc(after, func(name, _ string) bool {
		return strings.HasPrefix(name, "refusals/") && strings.HasSuffix(name, "/"+alpha)
	})
	if !maps.Equal(before, after) {
		t.Errorf("other chains moved: %v became %v", before, after)
	}
	for _, chain := range []string{"private", "nowhere", "nowhere-1"} {
		if _, err := journal.VerifyWorkspace(t.Context(), w.store, chain); err != nil {
			t.Error(err)
		}
	}
}
