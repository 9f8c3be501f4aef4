package rpc_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/rpc"
	"github.com/kandev/plugin-host/hostsvc/store"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// compatible is an installation with the grant to leave out what the first plugins
// didn't send, and with nothing of v1.
func (w *v1World) compatible() authority.Legacy {
	seen := w.everything()
	seen.LegacyTerms = authority.LegacyTerms{ImplicitExpectNone: true}
	return seen
}

// withoutFields is a request without some of its fields.
func withoutFields(request proto.Message, names ...string) proto.Message {
	shorter := proto.Clone(request)
	reflected := shorter.ProtoReflect()
	for _, name := range names {
		reflected.Clear(reflected.Descriptor().Fields().ByName(protoreflect.Name(name)))
	}
	return shorter
}

// exactWriters are the exact writers that are served.
func exactWriters(t *testing.T) (writers []protoreflect.MethodDescriptor) {
	t.Helper()
	for _, method := range rpc.Exact() {
		option, _ := proto.GetExtension(method.Options(), pluginv1.E_Capability).(*pluginv1.Capability)
		if strings.HasPrefix(option.GetId(), contract.WritePrefix) {
			writers = append(writers, method)
		}
	}
	if len(writers) == 0 {
		t.Fatal("no exact writer is served")
	}
	return writers
}

func (w *world) write(method protoreflect.MethodDescriptor, request proto.Message) *pluginv1.HostCommandResult {
	w.Helper()
	response, err := w.send(w.as(alpha), method, request)
	w.must(err)
	answer, ok := response.(interface {
		GetResult() *pluginv1.HostCommandResult
	})
	if !ok {
		w.Fatalf("%s answers %v", method.Name(), response)
	}
	return answer.GetResult()
}

// named is a result in short.
func named(r *pluginv1.HostCommandResult) string {
	return strings.TrimSpace(fmt.Sprint(strings.TrimPrefix(r.GetStatus().String(), "HOST_COMMAND_STATUS_"), " ", r.GetReason(), " ", r.GetField()))
}

// entryOf finds the entry of an audit ID.
func (w *world) entryOf(workspace, auditID string) journal.Entry {
	w.Helper()
	for _, entry := range w.entries(workspace) {
		if entry.AuditID == auditID {
			return entry
		}
	}
	w.Fatalf("no entry of %s has the audit ID %q", workspace, auditID)
	return journal.Entry{}
}

// TestImplicitExpectNone: every exact writer demands a guard and a request ID of an
// installation without the grant. With it, an absent guard is the strictest one, the
// Host makes the request ID, and the record says what it filled in.
func TestImplicitExpectNone(t *testing.T) {
	w := newV1World(t)
	s := w.play("ws")
	w.converse("ws")
	good := w.goodRequests(s)
	for _, method := range exactWriters(t) {
		request := good[string(method.Name())]
		bare := withoutFields(request, "guard", "request_id")
		empty := withoutFields(request, "request_id")
		empty.ProtoReflect().Set(method.Input().Fields().ByName("guard"), protoreflect.ValueOfMessage((&pluginv1.PendingTransitionGuard{}).ProtoReflect()))

		stale := w.compatible()
		stale.FreshUntil = w.clock.Now()
		for what, seen := range map[string]authority.Legacy{"everything of v1": w.everything(), "nothing": {}, "a grant that isn't fresh": stale} {
			w.declared.set(alpha, seen)
			for want, lacks := range map[string]proto.Message{
				"INVALID MISSING_EXACT_FIELD guard": withoutFields(request, "guard"), "INVALID MISSING_EXACT_FIELD request_id": bare,
			} {
				result := w.write(method, lacks)
				if named(result) != want {
					t.Errorf("%s with %s: %s, want %s", method.Name(), what, named(result), want)
				}
				if receipt := w.receipt(result.GetAuditId()); receipt.Implicit != "" {
					t.Errorf("%s with %s: the record says %+v", method.Name(), what, receipt)
				}
			}
		}

		w.declared.set(alpha, w.compatible())
		result := w.write(method, bare)
		if named(result) != "APPLIED" {
			t.Fatalf("%s with the grant: %s", method.Name(), result)
		}
		entry := w.entryOf("ws", result.GetAuditId())
		if entry.Implicit != "request_id,guard" || entry.RequestID == "" || !slices.Equal(result.GetReceipt().GetImplicitFields(), []string{"request_id", "guard"}) {
			t.Errorf("%s: the entry says %+v, the receipt %v", method.Name(), entry, result.GetReceipt())
		}
		// What was left out and what was said is one command.
		for what, again := range map[string]struct {
			request  proto.Message
			implicit string
		}{
			"left out again": {bare, "request_id,guard"}, "a guard that says nothing": {empty, "request_id,guard"},
			"said": {request, ""}, "the guard left out": {withoutFields(request, "guard"), "guard"},
		} {
			replay := w.write(method, again.request)
			receipt := w.receipt(replay.GetAuditId())
			if named(replay) != "ALREADY_APPLIED" || receipt.Implicit != again.implicit || receipt.RequestID == "" {
				t.Errorf("%s, %s: %s and %+v", method.Name(), what, named(replay), receipt)
			}
			sameBytes(t, replay.GetReceipt(), result.GetReceipt())
		}
	}
	if _, err := journal.VerifyWorkspace(t.Context(), w.store, "ws"); err != nil {
		t.Error(err)
	}
}

// TestImplicitExpectNone_IsAGuard: what the Host fills in is checked like what a plugin
// says, and what a plugin says is left as it is.
func TestImplicitExpectNone_IsAGuard(t *testing.T) {
	w := newV1World(t)
	s := w.play("ws")
	w.declared.set(alpha, w.compatible())
	w.must(w.store.Seed(t.Context(), "ws", func(tx store.SeedTx) error {
		return tx.PendingTransition(domain.PendingTransition{
			ID: "move", TaskID: taskID("ws", 0), SessionID: "s", FromStepID: "ws-todo", ToStepID: "ws-doing",
			Predicate: domain.PredicateTurnEnd, QueuedAt: w.clock.Now(),
		})
	}))
	update := s.update
	update.Guard = nil
	response, err := w.host.UpdateTaskExact(w.as(alpha), update)
	w.must(err)
	if got := named(response.GetResult()); got != "CONFLICT PENDING_TRANSITION_CONFLICT" {
		t.Errorf("with a move that waits: %s", got)
	}
	if receipt := w.receipt(response.GetResult().GetAuditId()); receipt.Implicit != "guard" {
		t.Errorf("the record says %+v", receipt)
	}
	update.Guard = namedGuard("move", "")
	response, err = w.host.UpdateTaskExact(w.as(alpha), update)
	w.must(err)
	if got := named(response.GetResult()); got != "INVALID MISSING_EXACT_FIELD guard.pending_transition.resource_version" {
		t.Errorf("with half a guard: %s", got)
	}
}

// TestImplicitExpectNone_StandsForNothingElse: what else is absent is refused, by the
// reason that says whether the shipped request has such a field at all.
func TestImplicitExpectNone_StandsForNothingElse(t *testing.T) {
	w := newV1World(t)
	s := w.play("ws")
	good := w.goodRequests(s)
	for _, test := range []struct {
		method, field string
		added         bool
	}{
		{"CreateTaskExact", "expected_workflow_resource_version", true}, {"CreateTaskExact", "expected_workflow_step_resource_version", true},
		{"CreateTaskExact", "idempotency_key", false}, {"CreateTaskExact", "external_id", false}, {"CreateTaskExact", "task", false},
		{"CreateTaskExact", "capability_revision", false}, {"UpdateTaskExact", "capability_revision", false},
		{"UpdateTaskExact", "expected_resource_version", false}, {"UpdateTaskExact", "idempotency_key", false},
		{"UpdateTaskExact", "workspace_id", false},
	} {
		method := pluginv1.File_kandev_plugin_v1_host_proto.Services().ByName("Host").Methods().ByName(protoreflect.Name(test.method))
		request := withoutFields(good[test.method], test.field)
		for _, granted := range []bool{false, true} {
			seen, reason := w.everything(), contract.ReasonMissingExactField
			if granted {
				seen = w.compatible()
			}
			if granted && test.added {
				reason = contract.ReasonUnsupportedLegacyShape
			}
			w.declared.set(alpha, seen)
			result := w.write(method, request)
			if want := fmt.Sprint("INVALID ", reason, " ", test.field); named(result) != want {
				t.Errorf("%s, granted %t: %s, want %s", test.method, granted, named(result), want)
			}
			if receipt := w.receipt(result.GetAuditId()); receipt.Reason != reason {
				t.Errorf("%s, granted %t: the record says %+v", test.method, granted, receipt)
			}
		}
	}
}

// TestImplicitExpectNone_OfReads: a reader asks for no guard; its request ID is made
// where the installation has the grant, the capability context's too, which the first
// plugins ask for without one.
func TestImplicitExpectNone_OfReads(t *testing.T) {
	w := newV1World(t)
	w.seed("ws", 1)
	w.approve(alpha, "ws")
	standing := func() (*pluginv1.GetCapabilityContextResponse, error) {
		return w.host.GetCapabilityContext(w.as(alpha), &pluginv1.GetCapabilityContextRequest{WorkspaceId: "ws"})
	}
	get := func() (*pluginv1.GetTaskExactResponse, error) {
		return w.host.GetTaskExact(w.as(alpha), &pluginv1.GetTaskExactRequest{WorkspaceId: "ws", TaskId: taskID("ws", 0)})
	}
	_, standingErr := standing()
	_, getErr := get()
	for _, err := range []error{standingErr, getErr} {
		if status.Code(err) != codes.InvalidArgument || named(detail(t, err)) != "INVALID MISSING_EXACT_FIELD request_id" {
			t.Errorf("without the grant: %v", err)
		}
	}
	w.declared.set(alpha, w.compatible())
	standingNow, err := standing()
	w.must(err)
	task, err := get()
	w.must(err)
	for _, id := range []string{standingNow.GetAuditId(), task.GetReceipt().GetAuditId()} {
		receipt := w.receipt(id)
		if receipt.Implicit != "request_id" || receipt.RequestID == "" {
			t.Errorf("the record says %+v", receipt)
		}
	}
	if got := task.GetReceipt().GetImplicitFields(); !slices.Equal(got, []string{"request_id"}) {
		t.Errorf("the receipt says %q", got)
	}
	if made := w.receipt(task.GetReceipt().GetAuditId()).RequestID; task.GetReceipt().GetRequestId() != made {
		t.Errorf("the receipt is of request %q, the record of %q", task.GetReceipt().GetRequestId(), made)
	}
}

// delayed is a store of commands where something happens while a command waits for
// its lock.
type delayed struct {
	command.Store
	meanwhile func()
}

func (s *delayed) Write(ctx context.Context, workspaceID string, fn func(command.Tx) error) error {
	return s.Store.Write(ctx, workspaceID, func(tx command.Tx) error {
		s.meanwhile()
		return fn(tx)
	})
}

// TestI5_ImplicitExpectNoneIsDecidedUnderTheLock: a grant that was taken while the
// write waited stands for nothing, a replay included.
func TestI5_ImplicitExpectNoneIsDecidedUnderTheLock(t *testing.T) {
	late := &delayed{meanwhile: func() {}}
	w := newV1World(t, func(o *options) {
		o.server = func(c *rpc.Config) { late.Store, c.Executor.Store = c.Executor.Store, late }
	})
	s := w.play("ws")
	for field, leaveOut := range map[string]func(*pluginv1.UpdateTaskExactRequest){
		"guard": func(r *pluginv1.UpdateTaskExactRequest) { r.Guard = nil }, "request_id": func(r *pluginv1.UpdateTaskExactRequest) { r.RequestId = "" },
	} {
		request := proto.CloneOf(s.update)
		leaveOut(request)
		w.declared.set(alpha, w.compatible())
		late.meanwhile = func() { w.declared.set(alpha, w.everything()) }
		head := w.head("ws")
		response, err := w.host.UpdateTaskExact(w.as(alpha), request)
		w.must(err)
		if got := named(response.GetResult()); got != "INVALID MISSING_EXACT_FIELD "+field {
			t.Errorf("without its %s: %s", field, got)
		}
		if receipt := w.receipt(response.GetResult().GetAuditId()); receipt.Implicit != field || receipt.Reason != contract.ReasonMissingExactField {
			t.Errorf("the record says %+v", receipt)
		}
		if w.head("ws") != head {
			t.Error("it was committed")
		}
	}
	late.meanwhile = func() {}
	w.declared.set(alpha, w.compatible())
	request := proto.CloneOf(s.update)
	request.Guard = nil
	response, err := w.host.UpdateTaskExact(w.as(alpha), request)
	w.must(err)
	if named(response.GetResult()) != "APPLIED" {
		t.Fatalf("with the grant: %v", response)
	}
	late.meanwhile = func() { w.declared.set(alpha, w.everything()) }
	response, err = w.host.UpdateTaskExact(w.as(alpha), request)
	w.must(err)
	if got := named(response.GetResult()); got != "INVALID MISSING_EXACT_FIELD guard" {
		t.Errorf("repeated without the grant: %s", got)
	}
}
