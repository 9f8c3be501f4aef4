package rpc_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// scene is one call in a workspace of its own: the row, what is seen beside
// it, and the requests. Faults change it.
type scene struct {
	row    authority.Row
	seen   *authority.Observed // nil: in step with the row
	update *pluginv1.UpdateTaskExactRequest
	get    *pluginv1.GetTaskExactRequest
	list   *pluginv1.ListTasksExactRequest
	// prior was committed before; its title is "first".
	prior *pluginv1.UpdateTaskExactRequest
}

// fault is one row of the contract's table of checks.
type fault struct {
	name   string
	state  contract.State
	reason contract.Reason
	field  string
	// writer and reader say whom it concerns.
	writer, reader bool
	apply          func(*scene)
}

// see changes what is observed beside the row as it is by then.
func (s *scene) see(change func(*authority.Observed)) {
	if s.seen == nil {
		seen := inStep(s.row)
		seen.Revision = 0
		s.seen = &seen
	}
	change(s.seen)
}

const both, writers = true, false

// faults are the contract's checks in their order (host contract, "Order of
// checks"), each with every way it can fail that is reachable.
func faults() []fault {
	row := func(change func(*authority.Row)) func(*scene) { return func(s *scene) { change(&s.row) } }
	seen := func(change func(*authority.Observed)) func(*scene) {
		return func(s *scene) { s.see(change) }
	}
	all := []struct {
		name   string
		reason contract.Reason
		field  string
		reader bool
		apply  func(*scene)
	}{
		{"absent request ID", contract.ReasonMissingExactField, "request_id", both, func(s *scene) {
			s.update.RequestId, s.get.RequestId, s.list.RequestId = "", "", ""
		}},
		{"oversized workspace ID", contract.ReasonMalformedPrecondition, "workspace_id", both, func(s *scene) {
			long := strings.Repeat("w", contract.MaxIdentifierBytes+1)
			s.update.WorkspaceId, s.get.WorkspaceId, s.list.WorkspaceId = long, long, long
		}},
		{"absent guard", contract.ReasonMissingExactField, "guard", writers, func(s *scene) { s.update.Guard = nil }},
		{"feature not served", contract.ReasonProviderContractUnsupported, "management_instance_key", writers, func(s *scene) {
			s.update.ManagementInstanceKey = "claim"
		}},
		{"absent target", contract.ReasonMissingExactField, "task_id", writers, func(s *scene) { s.update.TaskId = "" }},

		{"Host too old, as seen", contract.ReasonHostVersionUnsupported, "", both, seen(func(o *authority.Observed) { o.HostVersionUnsupported = true })},

		{"unknown workspace", contract.ReasonMissingCapabilityApproval, "", both, func(s *scene) {
			s.update.WorkspaceId, s.get.WorkspaceId, s.list.WorkspaceId = "nowhere", "nowhere", "nowhere"
		}},
		// Of a workspace that does not exist there is no row to say so.
		{"Host too old, as fenced", contract.ReasonHostVersionUnsupported, "", both, row(func(r *authority.Row) { r.Gates |= authority.GateHostVersionUnsupported })},

		{"revoked", contract.ReasonCapabilityRevoked, "", both, row(func(r *authority.Row) { r.State = authority.StateRevoked })},
		{"expired row", contract.ReasonCapabilityRevoked, "", both, row(func(r *authority.Row) { r.State = authority.StateExpired })},
		{"expiry passed", contract.ReasonCapabilityRevoked, "", both, row(func(r *authority.Row) { r.ExpiresAt = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC) })},
		{"suspended", contract.ReasonCapabilityRevoked, "", both, row(func(r *authority.Row) { r.Gates |= authority.GateSuspended })},
		{"principal changed", contract.ReasonCapabilityRevoked, "", both, row(func(r *authority.Row) { r.Gates |= authority.GatePrincipalChanged })},
		{"workspace conflict", contract.ReasonCapabilityRevoked, "", both, row(func(r *authority.Row) { r.Gates |= authority.GateWorkspaceConflict })},
		{"revoked by hold", contract.ReasonCapabilityRevoked, "", both, row(func(r *authority.Row) {
			r.Hold = &authority.Hold{State: authority.StateRevoked, Cause: authority.CauseHuman, UID: r.Seen.UID, Generation: r.Seen.Generation + 1}
		})},
		{"newer version seen revoked", contract.ReasonCapabilityRevoked, "", both, seen(func(o *authority.Observed) {
			o.Approval.Generation++
			o.Approval.Revoked = true
		})},
		{"newer version seen expired", contract.ReasonCapabilityRevoked, "", both, seen(func(o *authority.Observed) {
			o.Approval.Generation++
			o.Approval.ExpiresAt = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
		})},
		{"seen deleted", contract.ReasonCapabilityRevoked, "", both, seen(func(o *authority.Observed) { o.Approval.Gone = true })},

		{"required capability unavailable", contract.ReasonMissingCapabilityApproval, "", both, row(func(r *authority.Row) { r.Gates |= authority.GateRequiredCapabilityUnavailable })},

		{"narrowed by hold", contract.ReasonDependencyUnavailable, "", both, row(func(r *authority.Row) {
			r.Hold = &authority.Hold{
				State: authority.StateActive, Granted: contract.SetOf(contract.ReadTasks, contract.WriteTasks),
				Cause: authority.CauseHuman, UID: r.Seen.UID, Generation: r.Seen.Generation + 1,
			}
		})},
		{"watches not synced", contract.ReasonDependencyUnavailable, "", both, seen(func(o *authority.Observed) { o.Synced = false })},
		{"vector differs", contract.ReasonDependencyUnavailable, "", both, seen(func(o *authority.Observed) { o.Vector[0]++ })},
		{"row behind a revision that was seen", contract.ReasonDependencyUnavailable, "", both, seen(func(o *authority.Observed) { o.Revision = 1_000 })},
		{"newer version seen grants less", contract.ReasonDependencyUnavailable, "", both, seen(func(o *authority.Observed) {
			o.Approval.Generation++
			o.Approval.Capabilities = contract.SetOf(contract.ReadTasks, contract.WriteTasks)
		})},

		{"other revision", contract.ReasonStaleCapabilityRevision, "", both, func(s *scene) {
			s.update.CapabilityRevision, s.get.CapabilityRevision, s.list.CapabilityRevision = 99, 99, 99
		}},
		{"other manifest digest", contract.ReasonStaleCapabilityRevision, "", writers, func(s *scene) {
			s.update.ManifestDigest = strings.Replace(digest, "0", "f", 1)
		}},

		{"taken by human policy", contract.ReasonHumanReserved, "", both, row(func(r *authority.Row) {
			r.Allowed &^= contract.SetOf(contract.ReadTasks, contract.WriteTasks)
		})},

		{"not granted", contract.ReasonMissingCapabilityApproval, "", both, row(func(r *authority.Row) {
			r.Granted &^= contract.SetOf(contract.ReadTasks, contract.WriteTasks)
		})},
		{"not declared", contract.ReasonMissingCapabilityApproval, "", both, row(func(r *authority.Row) {
			r.Declared &^= contract.SetOf(contract.ReadTasks, contract.WriteTasks)
		})},

		{"key used for another command", contract.ReasonIdempotencyMismatch, "", writers, func(s *scene) {
			s.update.IdempotencyKey = s.prior.GetIdempotencyKey()
		}},
		{"provenance", contract.ReasonProvenanceRejected, "", writers, func(s *scene) {
			s.update.Provenance = &pluginv1.ManagedExecutionProvenance{
				ConversationId: "c", SessionId: "s", ExecutionGenerationToken: "g",
			}
		}},
		{"target not there", contract.ReasonWorkspaceTargetNotFound, "task_id", both, func(s *scene) {
			s.update.TaskId, s.get.TaskId = "nothing", "nothing"
		}},
		{"other resource version", contract.ReasonStaleResourceVersion, "task_id", writers, func(s *scene) {
			s.update.ExpectedResourceVersion = s.prior.GetExpectedResourceVersion()
		}},
		{"transition that is not pending", contract.ReasonPendingTransitionConflict, "", writers, func(s *scene) {
			s.update.Guard = namedGuard("move-1", "1.1")
		}},
	}
	out := make([]fault, 0, len(all))
	for _, f := range all {
		out = append(out, fault{
			name: f.name, state: f.reason.Parent(), reason: f.reason, field: f.field, writer: true, reader: f.reader, apply: f.apply,
		})
	}
	return out
}

// play makes a workspace, commits the scene's prior command in it, applies the
// given faults and returns the scene.
func (w *world) play(workspace string, faults ...fault) scene {
	w.Helper()
	first := w.seed(workspace, 1)
	key := authority.Key{InstallationID: alpha, WorkspaceID: workspace}
	w.fence(approved(key))
	prior := &pluginv1.UpdateTaskExactRequest{
		RequestId: "prior", WorkspaceId: workspace, TaskId: taskID(workspace, 0), IdempotencyKey: "used",
		ExpectedResourceVersion: first, Title: ptr("first"), CapabilityRevision: 1, Guard: noGuard(),
	}
	committed, err := w.host.UpdateTaskExact(w.as(alpha), prior)
	w.must(err)
	if committed.GetResult().GetStatus() != pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_APPLIED {
		w.Fatalf("the prior command: %v", committed.GetResult())
	}
	s := scene{
		row: approved(key), prior: prior,
		update: &pluginv1.UpdateTaskExactRequest{
			RequestId: "now", WorkspaceId: workspace, TaskId: taskID(workspace, 0), IdempotencyKey: "fresh",
			ExpectedResourceVersion: committed.GetTask().GetResourceVersion(), Title: ptr("second"),
			CapabilityRevision: 2, ManifestDigest: digest, Guard: noGuard(),
		},
		get:  &pluginv1.GetTaskExactRequest{RequestId: "now", WorkspaceId: workspace, TaskId: taskID(workspace, 0), CapabilityRevision: 2},
		list: &pluginv1.ListTasksExactRequest{RequestId: "now", WorkspaceId: workspace, CapabilityRevision: 2},
	}
	// The last first, so that what comes earlier has the last word.
	for i := len(faults) - 1; i >= 0; i-- {
		faults[i].apply(&s)
	}
	w.fence(s.row)
	// What is seen of an installation itself, is seen wherever it calls.
	elsewhere := authority.Observed{Synced: true}
	if s.seen != nil {
		w.view.set(key, *s.seen)
		elsewhere.HostVersionUnsupported = s.seen.HostVersionUnsupported
	}
	w.view.set(authority.Key{InstallationID: alpha, WorkspaceID: "nowhere"}, elsewhere)
	return s
}

func ptr[T any](v T) *T { return &v }

func (w *world) expectWriter(s scene, f fault) {
	w.Helper()
	response, err := w.host.UpdateTaskExact(w.as(alpha), s.update)
	w.must(err)
	w.expect(response.GetResult(), f, s.update.GetWorkspaceId())
	if response.GetTask() != nil {
		w.Error("a refused command shows a task")
	}
}

func (w *world) expectReader(s scene, f fault) {
	w.Helper()
	response, err := w.host.GetTaskExact(w.as(alpha), s.get)
	if err == nil {
		w.Fatalf("answered %v, want %s/%s", response, f.state, f.reason)
	}
	if got := status.Code(err); got != codeOf[f.state] {
		w.Errorf("code %v, want %v", got, codeOf[f.state])
	}
	w.expect(detail(w.T, err), f, s.get.GetWorkspaceId())
	if f.field == "task_id" {
		return // a list names no task
	}
	_, err = w.host.ListTasksExact(w.as(alpha), s.list)
	if got := status.Code(err); got != codeOf[f.state] {
		w.Errorf("a list answers %v, want %v", err, codeOf[f.state])
	}
	w.expect(detail(w.T, err), f, s.get.GetWorkspaceId())
}

var codeOf = map[contract.State]codes.Code{
	contract.StateDenied: codes.PermissionDenied, contract.StateConflict: codes.FailedPrecondition,
	contract.StateNotFound: codes.NotFound, contract.StateInvalid: codes.InvalidArgument,
	contract.StateUnsupported: codes.Unimplemented, contract.StateRateLimited: codes.ResourceExhausted,
	contract.StateUnavailable: codes.Unavailable,
}

// expect checks a refusal and its audit record.
func (w *world) expect(got *pluginv1.HostCommandResult, f fault, workspace string) {
	w.Helper()
	wantStatus := pluginv1.HostCommandStatus(pluginv1.HostCommandStatus_value["HOST_COMMAND_STATUS_"+string(f.state)])
	if got.GetStatus() != wantStatus || got.GetReason() != string(f.reason) || got.GetField() != f.field {
		w.Fatalf("got %v, want %s/%s of field %q", got, f.state, f.reason, f.field)
	}
	if (got.GetRetryAfterMs() > 0) != (f.state == contract.StateUnavailable) {
		w.Errorf("retry_after_ms is %d for %s", got.GetRetryAfterMs(), f.state)
	}
	if got.GetMessage() == "" || got.GetReceipt() != nil || got.GetResultResourceVersion() != "" {
		w.Errorf("a refusal with a receipt, or without a message: %v", got)
	}
	receipt := w.receipt(got.GetAuditId())
	if receipt.InstallationID != alpha || receipt.Result != f.state || receipt.Reason != f.reason {
		w.Errorf("the audit says %+v", receipt)
	}
	if len(workspace) <= contract.MaxIdentifierBytes && receipt.WorkspaceID != workspace {
		w.Errorf("the audit names workspace %q", receipt.WorkspaceID)
	}
	if len(receipt.WorkspaceID) > contract.MaxIdentifierBytes {
		w.Error("the audit holds an oversized text of the caller")
	}
}

// TestContractTable walks every check of the contract, for a writer and for
// readers.
func TestContractTable(t *testing.T) {
	w := newWorld(t)
	for i, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			w := w.in(t)
			s := w.play(fmt.Sprintf("table-%02d", i), f)
			before := w.head(s.row.Key.WorkspaceID)
			if f.writer {
				w.expectWriter(s, f)
			}
			if f.reader {
				w.expectReader(s, f)
			}
			if after := w.head(s.row.Key.WorkspaceID); after != before {
				t.Errorf("a refused call committed: version %d became %d", before, after)
			}
		})
	}
}

// TestContractOrder applies every fault from the i-th on at once: the first
// one answers.
func TestContractOrder(t *testing.T) {
	w := newWorld(t)
	all := faults()
	for i := range all {
		t.Run(all[i].name, func(t *testing.T) {
			w := w.in(t)
			s := w.play(fmt.Sprintf("order-%02d", i), all[i:]...)
			// Where two ways to fail answer the same, which of them it was
			// can't be told.
			w.expectWriter(s, all[i])
			if all[i].reader && all[i].field != "task_id" {
				readers := []fault{}
				for _, f := range all[i:] {
					if f.reader {
						readers = append(readers, f)
					}
				}
				w.expectReader(w.play(fmt.Sprintf("order-reader-%02d", i), readers...), all[i])
			}
		})
	}
}

// in is the world for a subtest.
func (w *world) in(t *testing.T) *world {
	t.Helper()
	sub := *w
	sub.T = t
	return &sub
}

// TestContractSuccess: the three ways to succeed, after which a caller holds
// everything that the next call needs.
func TestContractSuccess(t *testing.T) {
	w := newWorld(t)
	s := w.play("success")

	response, err := w.host.UpdateTaskExact(w.as(alpha), s.update)
	w.must(err)
	result, task := response.GetResult(), response.GetTask()
	entry := w.entries("success")[len(w.entries("success"))-1]
	if result.GetStatus() != pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_APPLIED || result.GetReason() != "" ||
		result.GetField() != "" || result.GetAuditId() != entry.AuditID {
		t.Fatalf("result %v of entry %+v", result, entry)
	}
	if task.GetTitle() != "second" || task.GetResourceVersion() != result.GetResultResourceVersion() ||
		task.GetResourceVersion() == s.update.GetExpectedResourceVersion() || task.GetUpdatedAt() != "2026-05-04T03:02:01Z" {
		t.Errorf("readback %v", task)
	}
	receipt := result.GetReceipt()
	if receipt.GetReceiptId() == "" || receipt.GetOperationId() == "" || receipt.GetStatus() != result.GetStatus() ||
		receipt.GetTargetId() != task.GetId() || receipt.GetResourceVersion() != task.GetResourceVersion() ||
		receipt.GetApprovalRevision() != 2 || receipt.GetCreatedAt() != "2026-05-04T03:02:01.123456Z" {
		t.Errorf("receipt %v", receipt)
	}
	if entry.Before != s.update.GetExpectedResourceVersion() || entry.After != task.GetResourceVersion() || entry.RequestID != "now" ||
		entry.Capability != "host.v2.write:tasks" || entry.InstallationID != alpha || entry.IdempotencyKey != "fresh" {
		t.Errorf("entry %+v", entry)
	}

	s.update.IdempotencyKey, s.update.ExpectedResourceVersion = "another", task.GetResourceVersion()
	unchanged, err := w.host.UpdateTaskExact(w.as(alpha), s.update)
	w.must(err)
	if got := unchanged.GetResult(); got.GetStatus() != pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_NO_CHANGE ||
		got.GetResultResourceVersion() != task.GetResourceVersion() ||
		got.GetReceipt().GetStatus() != got.GetStatus() || unchanged.GetTask().GetTitle() != "second" {
		t.Errorf("the same again answers %v", unchanged)
	}

	read, err := w.host.GetTaskExact(w.as(alpha), s.get)
	w.must(err)
	item := read.GetItem()
	if item.GetResourceVersion() != task.GetResourceVersion() || item.GetTask().GetResourceVersion() != task.GetResourceVersion() ||
		item.GetCanonicalStatus() != "TODO" || item.GetSemanticActivity() != "unknown" || item.GetExecutionState() != "unknown" ||
		item.GetStatusKnown() || len(item.GetBlockingReasons()) != 0 || item.LastMeaningfulActivityAt != nil {
		t.Errorf("observation %v", item)
	}
	got := read.GetReceipt()
	want := &pluginv1.HostReadReceipt{
		InstallationId: alpha, WorkspaceId: "success", CapabilityRevision: 2, RequestId: "now",
		SnapshotVersion: got.GetSnapshotVersion(), ObservedAt: "2026-05-04T03:02:01.123456Z", AuditId: got.GetAuditId(),
	}
	sameBytes(t, got, want)
	if record := w.receipt(got.GetAuditId()); record.Result != contract.StateApplied || record.Snapshot != got.GetSnapshotVersion() {
		t.Errorf("the audit of the read says %+v", record)
	}
}

// TestShippedTexts: plugins in the field know these texts.
func TestShippedTexts(t *testing.T) {
	w := newWorld(t)
	s := w.play("texts")
	for _, test := range []struct {
		want string
		call func() error
	}{
		{"request_id and workspace_id are required bounded identifiers", func() error {
			_, err := w.host.ListWorkflowsExact(w.as(alpha), &pluginv1.ListWorkflowsExactRequest{WorkspaceId: "texts"})
			return err
		}},
		{"missing_capability_approval", func() error {
			_, err := w.host.GetTaskExact(w.as(beta), s.get)
			return err
		}},
		{"stale_capability_revision", func() error {
			_, err := w.host.ListTasksExact(w.as(alpha), &pluginv1.ListTasksExactRequest{RequestId: "r", WorkspaceId: "texts", CapabilityRevision: 1})
			return err
		}},
		{"exact task filters cannot widen workspace scope", func() error {
			_, err := w.host.ListTasksExact(w.as(alpha), &pluginv1.ListTasksExactRequest{
				RequestId: "r", WorkspaceId: "texts", Filter: &pluginv1.TaskFilter{WorkspaceIds: []string{"texts", "elsewhere"}},
			})
			return err
		}},
		{"exact session filters cannot widen workspace scope", func() error {
			_, err := w.host.ListSessionsExact(w.as(alpha), &pluginv1.ListSessionsExactRequest{
				RequestId: "r", WorkspaceId: "texts", Filter: &pluginv1.SessionFilter{WorkspaceIds: []string{"elsewhere"}},
			})
			return err
		}},
		{"session filter contains a task outside the workspace", func() error {
			_, err := w.host.ListSessionsExact(w.as(alpha), &pluginv1.ListSessionsExactRequest{
				RequestId: "r", WorkspaceId: "texts", Filter: &pluginv1.SessionFilter{TaskIds: []string{"nothing"}},
			})
			return err
		}},
		{"message filter contains a session outside the workspace", func() error {
			_, err := w.host.ListSanitizedMessagesExact(w.as(alpha), &pluginv1.ListSanitizedMessagesExactRequest{
				RequestId: "r", WorkspaceId: "texts", Filter: &pluginv1.MessageFilter{SessionIds: []string{"nothing"}},
			})
			return err
		}},
		{"interaction filter contains a task outside the workspace", func() error {
			_, err := w.host.ListPendingInteractionsExact(w.as(alpha), &pluginv1.ListPendingInteractionsExactRequest{
				RequestId: "r", WorkspaceId: "texts", Filter: &pluginv1.InteractionFilter{TaskIds: []string{"nothing"}},
			})
			return err
		}},
		{"task was not found", func() error {
			_, err := w.host.ListTaskInboxExact(w.as(alpha), &pluginv1.ListTaskInboxExactRequest{RequestId: "r", WorkspaceId: "texts", TaskId: "nothing"})
			return err
		}},
		{"session was not found", func() error {
			_, err := w.host.ListTaskInboxExact(w.as(alpha), &pluginv1.ListTaskInboxExactRequest{RequestId: "r", WorkspaceId: "texts", SessionId: "nothing"})
			return err
		}},
		{"exact read snapshot does not match this query", func() error {
			_, err := w.host.ListTasksExact(w.as(alpha), &pluginv1.ListTasksExactRequest{
				RequestId: "r", WorkspaceId: "texts", Page: &pluginv1.ExactReadPage{SnapshotVersion: "1.1"},
			})
			return err
		}},
		{"exact read cursor is invalid", func() error {
			_, err := w.host.ListTasksExact(w.as(alpha), &pluginv1.ListTasksExactRequest{
				RequestId: "r", WorkspaceId: "texts", Page: &pluginv1.ExactReadPage{Cursor: "x", SnapshotVersion: "1.1"},
			})
			return err
		}},
		{"exact read cursor requires a snapshot version", func() error {
			_, err := w.host.ListTasksExact(w.as(alpha), &pluginv1.ListTasksExactRequest{
				RequestId: "r", WorkspaceId: "texts", Page: &pluginv1.ExactReadPage{Cursor: "x"},
			})
			return err
		}},
	} {
		if got := status.Convert(test.call()).Message(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}
