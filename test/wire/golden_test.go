package wire_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// TestShippedBytes encodes every declared shipped message by the facts alone,
// all fields set and nested to the bottom, and demands that our type reads the
// value of every field under its name and writes the same bytes.
func TestShippedBytes(t *testing.T) {
	s := readShipped(t)
	for name, message := range s.declared() {
		t.Run(message.part+"/"+name, func(t *testing.T) {
			golden, want := (&sampler{shipped: s}).message(name)
			got := newMessage(t, name)
			roundTrip(t, golden, got)
			compare(t, name, want, got.ProtoReflect())
		})
	}
}

// TestShippedDefaults: a field with presence keeps it when its value is the
// default one; a field without presence isn't written then.
func TestShippedDefaults(t *testing.T) {
	s := readShipped(t)
	present := 0
	for name, message := range s.declared() {
		for _, field := range message.fields {
			var golden []byte
			switch {
			case field.label == "repeated" || strings.HasPrefix(field.kind, "map<"):
				continue
			case field.kind == "bool" || strings.HasPrefix(field.kind, "int") || strings.HasPrefix(field.kind, "uint") || s.enums[field.kind] != nil:
				golden = number(field.number, 0)
			default:
				golden = nested(field.number)
			}
			got := newMessage(t, name)
			if err := proto.Unmarshal(golden, got); err != nil {
				t.Fatalf("%s.%s: decode: %v", name, field.name, err)
			}
			hasPresence := field.label == "optional" || field.label == "oneof" || s.messages[field.kind] != nil || field.kind == "google.protobuf.Struct"
			if !hasPresence {
				golden = nil
			} else {
				present++
			}
			again, err := proto.Marshal(got)
			if err != nil {
				t.Fatalf("%s.%s: encode: %v", name, field.name, err)
			}
			if !bytes.Equal(again, golden) {
				t.Errorf("%s.%s with its default is written as %x, want %x", name, field.name, again, golden)
			}
		}
	}
	if present < 100 {
		t.Errorf("only %d fields with presence were seen", present)
	}
}

// TestShippedBytesMeanTheSame writes bytes by hand, as a plugin built for each
// shipped part sends or expects them, and reads them through the getters.
func TestShippedBytesMeanTheSame(t *testing.T) {
	t.Run("exact/UpdateTaskExactRequest", func(t *testing.T) {
		golden := join(text(1, "req-1"), text(2, "ws-1"), text(3, "task-1"), text(4, "key-1"), text(5, "v7"),
			text(6, "New title"), text(7, ""), text(8, "IN_PROGRESS"), text(9, "high"),
			number(10, 12), text(11, strings.Repeat("ab", 32)), text(12, "inst"), number(13, 3))
		got := &pluginv1.UpdateTaskExactRequest{}
		roundTrip(t, golden, got)
		equal(t, "request_id", got.GetRequestId(), "req-1")
		equal(t, "workspace_id", got.GetWorkspaceId(), "ws-1")
		equal(t, "task_id", got.GetTaskId(), "task-1")
		equal(t, "idempotency_key", got.GetIdempotencyKey(), "key-1")
		equal(t, "expected_resource_version", got.GetExpectedResourceVersion(), "v7")
		equal(t, "title", got.GetTitle(), "New title")
		equal(t, "description is present", got.Description != nil, true)
		equal(t, "description", got.GetDescription(), "")
		equal(t, "state", got.GetState(), "IN_PROGRESS")
		equal(t, "priority", got.GetPriority(), "high")
		equal(t, "capability_revision", got.GetCapabilityRevision(), 12)
		equal(t, "manifest_digest", got.GetManifestDigest(), strings.Repeat("ab", 32))
		equal(t, "management_instance_key", got.GetManagementInstanceKey(), "inst")
		equal(t, "expected_claim_generation", got.GetExpectedClaimGeneration(), 3)
		equal(t, "guard is present", got.GetGuard() != nil, false)
	})
	t.Run("exact/CreateTaskExactRequest with a v1 body", func(t *testing.T) {
		body := join(text(1, "ws-1"), text(2, "wf-1"), text(3, "step-1"), text(4, "Title"), text(5, "What to do"),
			text(6, "parent-1"), number(7, 1), nested(8, text(1, "repo-1"), text(3, "main"), number(5, 41)),
			nested(9, text(1, "profile-1"), text(4, "on")), nested(10, structKV("origin", "inbox")), text(11, "low"))
		golden := join(text(1, "req-1"), text(2, "ws-1"), text(3, "key-1"), text(4, "ext-1"), number(5, 12),
			text(6, "digest"), nested(7, body))
		got := &pluginv1.CreateTaskExactRequest{}
		roundTrip(t, golden, got)
		equal(t, "external_id", got.GetExternalId(), "ext-1")
		equal(t, "capability_revision", got.GetCapabilityRevision(), 12)
		equal(t, "manifest_digest", got.GetManifestDigest(), "digest")
		task := got.GetTask()
		equal(t, "workflow_step_id", task.GetWorkflowStepId(), "step-1")
		equal(t, "parent_id", task.GetParentId(), "parent-1")
		equal(t, "start_agent", task.GetStartAgent(), true)
		equal(t, "repository_id", task.GetRepositories()[0].GetRepositoryId(), "repo-1")
		equal(t, "base_branch", task.GetRepositories()[0].GetBaseBranch(), "main")
		equal(t, "pull_request_number", task.GetRepositories()[0].GetPullRequestNumber(), 41)
		equal(t, "agent_profile_id", task.GetLaunch().GetAgentProfileId(), "profile-1")
		equal(t, "plan_mode", task.GetLaunch().GetPlanMode(), "on")
		equal(t, "metadata", task.GetMetadata().GetFields()["origin"].GetStringValue(), "inbox")
		equal(t, "priority", task.GetPriority(), "low")
	})
	t.Run("exact/UpdateTaskExactResponse", func(t *testing.T) {
		receipt := join(text(1, "rcpt"), text(2, "op"), number(3, 1), text(4, "task-1"), text(5, "v8"), number(6, 12),
			text(7, "2026-01-02T03:04:05Z"), text(8, "2026-01-02T03:04:06Z"))
		golden := join(nested(1, number(1, 4), text(2, "STALE_RESOURCE_VERSION"), nested(3, receipt)),
			nested(2, text(1, "task-1"), text(37, "v8")))
		got := &pluginv1.UpdateTaskExactResponse{}
		roundTrip(t, golden, got)
		equal(t, "status", got.GetResult().GetStatus(), pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_CONFLICT)
		equal(t, "reason", got.GetResult().GetReason(), "STALE_RESOURCE_VERSION")
		equal(t, "receipt_id", got.GetResult().GetReceipt().GetReceiptId(), "rcpt")
		equal(t, "operation_id", got.GetResult().GetReceipt().GetOperationId(), "op")
		equal(t, "approval_revision", got.GetResult().GetReceipt().GetApprovalRevision(), 12)
		equal(t, "updated_at", got.GetResult().GetReceipt().GetUpdatedAt(), "2026-01-02T03:04:06Z")
		equal(t, "task.resource_version", got.GetTask().GetResourceVersion(), "v8")
	})
	t.Run("exact/ListTasksExactRequest with a v1 filter", func(t *testing.T) {
		golden := join(text(1, "req-1"), text(2, "ws-1"),
			nested(3, text(1, "ws-1"), text(2, "wf-1"), text(2, "wf-2"), text(3, "TODO"), text(4, ""), number(5, 1), number(6, 1)),
			nested(4, number(1, 20), text(2, "cursor"), text(3, "snap")))
		got := &pluginv1.ListTasksExactRequest{}
		roundTrip(t, golden, got)
		equal(t, "workflow_ids", strings.Join(got.GetFilter().GetWorkflowIds(), " "), "wf-1 wf-2")
		equal(t, "parent_id is present", got.GetFilter().ParentId != nil, true)
		equal(t, "include_archived", got.GetFilter().GetIncludeArchived(), true)
		equal(t, "limit", got.GetPage().GetLimit(), 20)
		equal(t, "cursor", got.GetPage().GetCursor(), "cursor")
		equal(t, "snapshot_version", got.GetPage().GetSnapshotVersion(), "snap")
		equal(t, "capability_revision", got.GetCapabilityRevision(), 0)
	})
	t.Run("exact/GetCapabilityContextResponse", func(t *testing.T) {
		operation := join(text(1, "GetTaskExact"), text(2, "host.v2.read:tasks"), text(3, "One task"), number(4, 1), number(5, 1))
		limit := join(text(1, "page_size"), number(2, 200))
		golden := nested(1, text(1, "inst-1"), text(2, "ws-1"), text(3, "digest"), number(4, 12), text(5, "active"),
			nested(6, operation), nested(7, limit), text(8, "provider"))
		got := &pluginv1.GetCapabilityContextResponse{}
		roundTrip(t, golden, got)
		context := got.GetContext()
		equal(t, "approval_revision", context.GetApprovalRevision(), 12)
		equal(t, "approval_state", context.GetApprovalState(), "active")
		equal(t, "operation", context.GetOperations()[0].GetCapabilityId(), "host.v2.read:tasks")
		equal(t, "authorized", context.GetOperations()[0].GetAuthorized(), true)
		equal(t, "limit", context.GetLimits()["page_size"], 200)
	})
	t.Run("v1/Task", func(t *testing.T) {
		golden := join(text(1, "task-1"), text(2, "ws-1"), text(3, "wf-1"), text(4, "Title"), text(6, "TODO"),
			text(13, "parent-1"), number(15, 1), nested(16, text(1, "link"), text(2, "repo-1"), number(4, 2)),
			nested(17, structKV("k", "v")), text(20, "step-1"), negative(21, -1), text(23, "a"), text(23, "b"),
			nested(32, text(1, "task-2"), text(4, "pending")), text(37, "v7"))
		got := &pluginv1.Task{}
		roundTrip(t, golden, got)
		equal(t, "workflow_id", got.GetWorkflowId(), "wf-1")
		equal(t, "started_at is present", got.StartedAt != nil, false)
		equal(t, "parent_id", got.GetParentId(), "parent-1")
		equal(t, "is_ephemeral", got.GetIsEphemeral(), true)
		equal(t, "repository", got.GetRepositories()[0].GetRepositoryId(), "repo-1")
		equal(t, "metadata", got.GetMetadata().GetFields()["k"].GetStringValue(), "v")
		equal(t, "workflow_step_id", got.GetWorkflowStepId(), "step-1")
		equal(t, "position", got.GetPosition(), -1)
		equal(t, "labels", strings.Join(got.GetLabels(), " "), "a b")
		equal(t, "depends_on", got.GetDependsOn()[0].GetStatus(), "pending")
		equal(t, "resource_version", got.GetResourceVersion(), "v7")
	})
	t.Run("v1/Interaction", func(t *testing.T) {
		option := join(text(1, "yes"), text(2, "Yes"), text(3, "allow_once"))
		question := join(text(1, "q1"), text(2, "Where"), text(3, "Where to?"), nested(4, text(1, "a"), text(2, "Here"), text(4, "Right here")))
		golden := nested(1, text(1, "p-1"), text(2, "clarification"), text(3, "task-1"), text(4, "session-1"), text(5, "turn-1"),
			text(6, "pending"), text(7, "Title"), text(8, "Why"), text(9, "call-1"), text(10, "execute"),
			nested(11, option), nested(12, question), number(13, 1), text(14, "2026-01-02T03:04:05Z"), text(15, "2026-01-02T03:04:06Z"))
		got := &pluginv1.GetInteractionResponse{}
		roundTrip(t, golden, got)
		interaction := got.GetInteraction()
		equal(t, "status", interaction.GetStatus(), "pending")
		equal(t, "context", interaction.GetContext(), "Why")
		equal(t, "option", interaction.GetOptions()[0].GetKind(), "allow_once")
		equal(t, "prompt", interaction.GetQuestions()[0].GetPrompt(), "Where to?")
		equal(t, "description", interaction.GetQuestions()[0].GetOptions()[0].GetDescription(), "Right here")
		equal(t, "agent_disconnected", interaction.GetAgentDisconnected(), true)
		equal(t, "updated_at", interaction.GetUpdatedAt(), "2026-01-02T03:04:06Z")
	})
	t.Run("v1/MoveTaskResponse", func(t *testing.T) {
		golden := join(nested(1, text(1, "task-1")), text(3, "step-2"), text(4, "step-1"))
		got := &pluginv1.MoveTaskResponse{}
		roundTrip(t, golden, got)
		equal(t, "task", got.GetTask().GetId(), "task-1")
		equal(t, "transitioned", got.GetTransitioned(), false)
		equal(t, "queued_for_step_id is present", got.QueuedForStepId != nil, true)
		equal(t, "from_step_id", got.GetFromStepId(), "step-1")
	})
	t.Run("v1/Event", func(t *testing.T) {
		golden := join(text(1, "ev-1"), text(2, "task.updated"), text(3, "2026-01-02T03:04:05Z"), text(4, "ws-1"), nested(5, structKV("task_id", "task-1")))
		got := &pluginv1.Event{}
		roundTrip(t, golden, got)
		equal(t, "event_type", got.GetEventType(), "task.updated")
		equal(t, "workspace_id", got.GetWorkspaceId(), "ws-1")
		equal(t, "payload", got.GetPayload().GetFields()["task_id"].GetStringValue(), "task-1")
	})
	t.Run("v1/WebhookRequest and WebhookResponse", func(t *testing.T) {
		request := &pluginv1.WebhookRequest{}
		roundTrip(t, join(text(1, "hook"), text(2, "POST"), text(4, "a=b"), nested(5, text(1, "X-A"), text(2, "1, 2")), text(6, "\x00\xff")), request)
		equal(t, "headers", request.GetHeaders()["X-A"], "1, 2")
		equal(t, "body", string(request.GetBody()), "\x00\xff")
		response := &pluginv1.WebhookResponse{}
		roundTrip(t, join(number(1, 204), nested(2, text(1, "X-B"), text(2, "3")), text(3, "ok")), response)
		equal(t, "status", response.GetStatus(), 204)
		equal(t, "headers", response.GetHeaders()["X-B"], "3")
	})
	t.Run("exact/ListSessionsExactResponse", func(t *testing.T) {
		session := join(text(1, "session-1"), text(2, "task-1"), text(7, "RUNNING"), text(8, "2026-01-02T03:04:05Z"), text(10, "Fast"))
		golden := nested(1, nested(1, session), text(2, "RUNNING"), text(3, "v1"), text(4, "2026-01-02T03:04:06Z"), text(5, "exec-1"))
		got := &pluginv1.ListSessionsExactResponse{}
		roundTrip(t, golden, got)
		item := got.GetItems()[0]
		equal(t, "ended_at is present", item.GetSession().EndedAt != nil, false)
		equal(t, "agent_profile_name", item.GetSession().GetAgentProfileName(), "Fast")
		equal(t, "execution_state", item.GetExecutionState(), "RUNNING")
		equal(t, "execution_id", item.GetExecutionId(), "exec-1")
	})
	t.Run("v1/WorkflowStep", func(t *testing.T) {
		golden := join(text(1, "step-1"), text(2, "wf-1"), text(3, "Review"), number(4, 3), text(5, "review"),
			number(7, 1), number(8, 5), text(10, "auto_start"))
		got := &pluginv1.WorkflowStep{}
		roundTrip(t, golden, got)
		equal(t, "position", got.GetPosition(), 3)
		equal(t, "stage_type", got.GetStageType(), "review")
		equal(t, "is_start_step", got.GetIsStartStep(), true)
		equal(t, "wip_limit", got.GetWipLimit(), 5)
		equal(t, "on_enter_action_types", got.GetOnEnterActionTypes()[0], "auto_start")
	})
}

// TestAddedBytesKeepTheirNumbers reads what this contract adds from bytes
// written by hand.
func TestAddedBytesKeepTheirNumbers(t *testing.T) {
	t.Run("guard expects none", func(t *testing.T) {
		golden := nested(101, nested(1))
		got := &pluginv1.UpdateTaskExactRequest{}
		roundTrip(t, golden, got)
		equal(t, "expect_none is set", got.GetGuard().GetExpectNone() != nil, true)
		equal(t, "pending_transition is set", got.GetGuard().GetPendingTransition() != nil, false)
	})
	t.Run("guard names a transition", func(t *testing.T) {
		golden := nested(101, nested(2, text(1, "move-1"), text(2, "v3")))
		got := &pluginv1.CreateTaskExactRequest{}
		roundTrip(t, golden, got)
		equal(t, "expect_none is set", got.GetGuard().GetExpectNone() != nil, false)
		equal(t, "pending_transition_id", got.GetGuard().GetPendingTransition().GetPendingTransitionId(), "move-1")
		equal(t, "resource_version", got.GetGuard().GetPendingTransition().GetResourceVersion(), "v3")
	})
	t.Run("guard states nothing", func(t *testing.T) {
		golden := nested(101)
		got := &pluginv1.CreateTaskExactRequest{}
		roundTrip(t, golden, got)
		equal(t, "guard is present", got.GetGuard() != nil, true)
		equal(t, "expectation is set", got.GetGuard().GetExpectation() != nil, false)
	})
	t.Run("writer", func(t *testing.T) {
		golden := join(nested(102, text(1, "conv"), text(2, "sess"), text(3, "gen")), text(108, "token"),
			text(110, "wf-v1"), text(111, "step-v1"), text(112, "parent-v1"))
		got := &pluginv1.CreateTaskExactRequest{}
		roundTrip(t, golden, got)
		equal(t, "conversation_id", got.GetProvenance().GetConversationId(), "conv")
		equal(t, "session_id", got.GetProvenance().GetSessionId(), "sess")
		equal(t, "execution_generation_token", got.GetProvenance().GetExecutionGenerationToken(), "gen")
		equal(t, "continuation_token", got.GetContinuationToken(), "token")
		equal(t, "workflow version", got.GetExpectedWorkflowResourceVersion(), "wf-v1")
		equal(t, "step version", got.GetExpectedWorkflowStepResourceVersion(), "step-v1")
		equal(t, "parent version", got.GetExpectedParentResourceVersion(), "parent-v1")
	})
	t.Run("result", func(t *testing.T) {
		golden := join(number(1, 10), text(103, "audit"), number(104, 1500), text(105, "page.cursor"), text(106, "Later."), text(107, "v9"))
		got := &pluginv1.HostCommandResult{}
		roundTrip(t, golden, got)
		equal(t, "status", got.GetStatus(), pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_UNAVAILABLE)
		equal(t, "audit_id", got.GetAuditId(), "audit")
		equal(t, "retry_after_ms", got.GetRetryAfterMs(), 1500)
		equal(t, "field", got.GetField(), "page.cursor")
		equal(t, "message", got.GetMessage(), "Later.")
		equal(t, "result_resource_version", got.GetResultResourceVersion(), "v9")
	})
	t.Run("receipts", func(t *testing.T) {
		golden := join(text(110, "request_id"), text(110, "guard"))
		written := &pluginv1.HostCommandReceipt{}
		roundTrip(t, golden, written)
		equal(t, "implicit_fields", strings.Join(written.GetImplicitFields(), " "), "request_id guard")
		read := &pluginv1.HostReadReceipt{}
		roundTrip(t, golden, read)
		equal(t, "implicit_fields", strings.Join(read.GetImplicitFields(), " "), "request_id guard")
	})
	t.Run("context", func(t *testing.T) {
		golden := join(text(103, "audit"), nested(110, text(1, "ws-1"), text(2, "host.v2.read:tasks"), text(3, "digest"), text(4, "active"), number(100, 12)),
			text(111, "2"), number(112, 77))
		got := &pluginv1.GetCapabilityContextResponse{}
		roundTrip(t, golden, got)
		equal(t, "workspace_id", got.GetWorkspaces()[0].GetWorkspaceId(), "ws-1")
		equal(t, "capability_ids", got.GetWorkspaces()[0].GetCapabilityIds()[0], "host.v2.read:tasks")
		equal(t, "capability_revision", got.GetWorkspaces()[0].GetCapabilityRevision(), 12)
		equal(t, "audit_id", got.GetAuditId(), "audit")
		equal(t, "contract_version", got.GetContractVersion(), "2")
		equal(t, "context_revision", got.GetContextRevision(), 77)
	})
	t.Run("exact reads", func(t *testing.T) {
		message := &pluginv1.ExactMessageObservation{}
		roundTrip(t, join(text(4, "content_removed"), text(110, "digest")), message)
		equal(t, "sanitization", message.GetSanitization(), "content_removed")
		equal(t, "canonical_digest", message.GetCanonicalDigest(), "digest")
		item := &pluginv1.TaskInboxItem{}
		roundTrip(t, text(110, "digest"), item)
		equal(t, "canonical_digest", item.GetCanonicalDigest(), "digest")
		request := &pluginv1.ListSanitizedMessagesExactRequest{}
		roundTrip(t, join(number(100, 12), text(110, "content_removed")), request)
		equal(t, "capability_revision", request.GetCapabilityRevision(), 12)
		equal(t, "sanitization", request.GetSanitization(), "content_removed")
		session := &pluginv1.ExactSessionObservation{}
		roundTrip(t, join(number(110, 1), number(111, 1)), session)
		equal(t, "is_primary", session.GetIsPrimary(), true)
		equal(t, "is_terminal", session.GetIsTerminal(), true)
		move := &pluginv1.PendingTaskTransition{}
		roundTrip(t, join(text(110, "turn_end"), text(111, "session-1"), text(112, "plugin:p"), text(113, ""), text(114, "agent")), move)
		equal(t, "predicate", move.GetPredicate(), "turn_end")
		equal(t, "session_id", move.GetSessionId(), "session-1")
		equal(t, "requester", move.GetRequester(), "plugin:p")
		equal(t, "actor", move.GetActor(), "agent")
		equal(t, "expires_at is present", move.ExpiresAt != nil, true)
	})
	t.Run("events", func(t *testing.T) {
		request := &pluginv1.WatchEventsRequest{}
		roundTrip(t, join(text(1, "cursor"), number(2, 1), text(3, "task.*"), text(3, "message.added"), text(109, "req-1")), request)
		equal(t, "cursor", request.GetCursor(), "cursor")
		equal(t, "from_start", request.GetFromStart(), true)
		equal(t, "patterns", strings.Join(request.GetPatterns(), " "), "task.* message.added")
		equal(t, "request_id", request.GetRequestId(), "req-1")
		event := &pluginv1.WatchEventsResponse{}
		roundTrip(t, join(text(1, "ev-1"), text(2, "task.updated"), text(3, "2026-01-02T03:04:05Z"), text(4, "ws-1"),
			nested(5, structKV("task_id", "task-1")), number(6, 1), text(7, "task-1"), text(8, "v7"), text(9, "next"), number(100, 12), text(103, "audit")), event)
		equal(t, "event_id", event.GetEventId(), "ev-1")
		equal(t, "event_type", event.GetEventType(), "task.updated")
		equal(t, "workspace_id", event.GetWorkspaceId(), "ws-1")
		equal(t, "payload", event.GetPayload().GetFields()["task_id"].GetStringValue(), "task-1")
		equal(t, "event_schema_version", event.GetEventSchemaVersion(), 1)
		equal(t, "resource_id", event.GetResourceId(), "task-1")
		equal(t, "resource_version", event.GetResourceVersion(), "v7")
		equal(t, "cursor", event.GetCursor(), "next")
		equal(t, "capability_revision", event.GetCapabilityRevision(), 12)
		equal(t, "audit_id", event.GetAuditId(), "audit")
	})
}

// TestUnknownIsKept: a newer peer's fields and values survive a round trip
// through every message (additive evolution).
func TestUnknownIsKept(t *testing.T) {
	for name := range declaredMessages() {
		golden := join(text(1_900, "from a newer peer"), number(1_901, 1))
		message := newMessage(t, name)
		roundTrip(t, golden, message)
		if !bytes.Equal(message.ProtoReflect().GetUnknown(), golden) {
			t.Errorf("%s knows field 1900 or 1901", name)
		}
	}
	got := &pluginv1.HostCommandResult{}
	roundTrip(t, number(1, 99), got)
	if got.GetStatus() != 99 {
		t.Errorf("unknown status read as %v", got.GetStatus())
	}
}

// sampler makes messages by the facts: their bytes, and what must be read from
// them. Each value differs from every other, so that two swapped fields can't
// give the same bytes.
type sampler struct {
	shipped *shipped
	next    uint64
}

// A read is what a field must be read as: a string, a bool, a uint64, a
// map[string]any, a reads for a message, or a []any for a repeated field.
type reads map[string]any

func (s *sampler) message(name string) ([]byte, reads) {
	fields := slices.Clone(s.shipped.messages[name].fields)
	slices.SortFunc(fields, func(a, b shippedField) int { return a.number - b.number })
	var out []byte
	want := reads{}
	oneof := false
	for _, field := range fields {
		if field.label == "oneof" {
			if oneof {
				continue // one of them can be set
			}
			oneof = true
		}
		encoded, value := s.value(field)
		out = append(out, encoded...)
		if field.label == "repeated" {
			more, second := s.value(field)
			out = append(out, more...)
			want[ourName(name, field.name)] = []any{value, second}
			continue
		}
		want[ourName(name, field.name)] = value
	}
	return out, want
}

func (s *sampler) value(field shippedField) ([]byte, any) {
	s.next++
	said := fmt.Sprintf("%s %d", field.name, s.next)
	key := fmt.Sprintf("key %d", s.next)
	switch field.kind {
	case "string", "bytes":
		return text(field.number, said), said
	case "bool":
		return number(field.number, 1), true
	case "int32", "uint32":
		return number(field.number, s.next<<8), s.next << 8
	case "int64", "uint64":
		return number(field.number, s.next<<40), s.next << 40
	case "map<string,string>":
		return nested(field.number, text(1, key), text(2, said)), map[string]any{key: said}
	case "map<string,uint64>":
		return nested(field.number, text(1, key), number(2, s.next)), map[string]any{key: s.next}
	case "google.protobuf.Struct":
		return nested(field.number, structKV(key, said)), reads{"fields": map[string]any{key: reads{"string_value": said}}}
	}
	if values := s.shipped.enums[field.kind]; values != nil {
		value := 1 + s.next%uint64(len(values)-1)
		return number(field.number, value), value
	}
	encoded, want := s.message(field.kind)
	return nested(field.number, encoded), want
}

// compare demands that a message holds what is wanted and nothing else.
func compare(t *testing.T, path string, want reads, got protoreflect.Message) {
	t.Helper()
	if len(got.GetUnknown()) > 0 {
		t.Errorf("%s: bytes that the type doesn't know: %x", path, got.GetUnknown())
	}
	set := 0
	got.Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool {
		set++
		return true
	})
	if set != len(want) {
		t.Errorf("%s: %d fields set, %d sent", path, set, len(want))
	}
	for name, value := range want {
		field := got.Descriptor().Fields().ByName(protoreflect.Name(name))
		if field == nil {
			t.Errorf("%s has no field %s", path, name)
			continue
		}
		at := path + "." + name
		switch list := value.(type) {
		case []any:
			if !field.IsList() || got.Get(field).List().Len() != len(list) {
				t.Errorf("%s is not a list of %d", at, len(list))
				continue
			}
			for i, one := range list {
				compareValue(t, fmt.Sprintf("%s[%d]", at, i), one, field, got.Get(field).List().Get(i))
			}
		case map[string]any:
			if !field.IsMap() || got.Get(field).Map().Len() != len(list) {
				t.Errorf("%s is not a map of %d", at, len(list))
				continue
			}
			for key, one := range list {
				held := got.Get(field).Map().Get(protoreflect.ValueOfString(key).MapKey())
				if !held.IsValid() {
					t.Errorf("%s has no %s", at, key)
					continue
				}
				compareValue(t, at+"["+key+"]", one, field.MapValue(), held)
			}
		default:
			compareValue(t, at, value, field, got.Get(field))
		}
	}
}

func compareValue(t *testing.T, at string, want any, field protoreflect.FieldDescriptor, got protoreflect.Value) {
	t.Helper()
	var read any
	switch field.Kind() {
	case protoreflect.MessageKind:
		message, ok := want.(reads)
		if !ok {
			t.Errorf("%s is a message, want %v", at, want)
			return
		}
		compare(t, at, message, got.Message())
		return
	case protoreflect.StringKind:
		read = got.String()
	case protoreflect.BytesKind:
		read = string(got.Bytes())
	case protoreflect.BoolKind:
		read = got.Bool()
	case protoreflect.EnumKind:
		read = uint64(got.Enum())
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		read = uint64(got.Int())
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		read = got.Uint()
	default:
		t.Errorf("%s is of a kind that isn't shipped: %s", at, field.Kind())
		return
	}
	if read != want {
		t.Errorf("%s is %v, want %v", at, read, want)
	}
}

func newMessage(t *testing.T, name string) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("kandev.plugin.v1." + name))
	if err != nil {
		t.Fatalf("find message %s: %v", name, err)
	}
	return kind.New().Interface()
}

func roundTrip(t *testing.T, golden []byte, message proto.Message) {
	t.Helper()
	if err := proto.Unmarshal(golden, message); err != nil {
		t.Fatalf("decode: %v", err)
	}
	again, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	if !bytes.Equal(again, golden) {
		t.Errorf("bytes changed:\n got %x\nwant %x", again, golden)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
