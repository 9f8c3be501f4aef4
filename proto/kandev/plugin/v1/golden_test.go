package pluginv1_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// TestShippedBytesRoundTrip encodes every shipped message by the fixture alone,
// all fields set and nested to the bottom, and demands that our types know every
// field of it and give the same bytes back.
func TestShippedBytesRoundTrip(t *testing.T) {
	wire := loadShippedWire(t)
	for name, shipped := range wire.Messages {
		t.Run(shipped.Part+"/"+name, func(t *testing.T) {
			encoder := fixtureEncoder{wire: wire}
			golden := encoder.message(t, name)
			if (len(golden) == 0) != (len(shipped.Fields) == 0) {
				t.Fatal("the fixture gives no bytes")
			}
			message := newMessage(t, name)
			if err := proto.Unmarshal(golden, message); err != nil {
				t.Fatalf("decode: %v", err)
			}
			if unknown := unknownFields(message.ProtoReflect()); len(unknown) > 0 {
				t.Errorf("shipped fields not known to our type: %v", unknown)
			}
			if got := set(message.ProtoReflect()); got != len(shipped.Fields) {
				t.Errorf("%d fields set, %d sent", got, len(shipped.Fields))
			}
			again, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
			if err != nil {
				t.Fatalf("encode: %v", err)
			}
			if !bytes.Equal(again, golden) {
				t.Errorf("bytes changed:\n got %x\nwant %x", again, golden)
			}
		})
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

// fixtureEncoder writes messages by the fixture's numbers and types, without
// our descriptors. Each value differs from every other, so that two swapped
// fields can't give the same bytes.
type fixtureEncoder struct {
	wire shippedWire
	next uint64
}

func (e *fixtureEncoder) message(t *testing.T, name string) []byte {
	t.Helper()
	shipped, ok := e.wire.Messages[name]
	if !ok {
		t.Fatalf("the fixture has no message %s", name)
	}
	fields := slices.Clone(shipped.Fields)
	slices.SortFunc(fields, func(a, b shippedField) int { return a.Number - b.Number })
	var out []byte
	for _, field := range fields {
		times := 1
		if field.Label == "repeated" {
			times = 2
		}
		for range times {
			out = append(out, e.field(t, field)...)
		}
	}
	return out
}

func (e *fixtureEncoder) field(t *testing.T, field shippedField) []byte {
	t.Helper()
	e.next++
	at := protowire.Number(field.Number)
	switch field.Type {
	case "string":
		return text(at, fmt.Sprintf("text %d", e.next))
	case "bool":
		return number(at, 1)
	case "bytes":
		return text(at, fmt.Sprintf("bytes %d", e.next))
	case "int32", "int64", "uint32", "uint64":
		return number(at, e.next)
	case "map<string,string>":
		return nested(at, text(1, fmt.Sprintf("key %d", e.next)), text(2, fmt.Sprintf("text %d", e.next)))
	case "map<string,uint64>":
		return nested(at, text(1, fmt.Sprintf("key %d", e.next)), number(2, e.next))
	case "google.protobuf.Struct":
		return nested(at, structKV("key", fmt.Sprintf("value %d", e.next)))
	}
	if values, ok := e.wire.Enums[field.Type]; ok {
		return number(at, 1+e.next%uint64(len(values)-1))
	}
	return nested(at, e.message(t, field.Type))
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

func set(message protoreflect.Message) int {
	count := 0
	message.Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool {
		count++
		return true
	})
	return count
}

// unknownFields names the messages below and including this one that hold
// bytes their type doesn't know.
func unknownFields(message protoreflect.Message) []string {
	var found []string
	if len(message.GetUnknown()) > 0 {
		found = append(found, string(message.Descriptor().Name()))
	}
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap() || field.Message() == nil:
		case field.IsList():
			for i := range value.List().Len() {
				found = append(found, unknownFields(value.List().Get(i).Message())...)
			}
		default:
			found = append(found, unknownFields(value.Message())...)
		}
		return true
	})
	return found
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func text(at protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, at, protowire.BytesType), value)
}

func number(at protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, at, protowire.VarintType), value)
}

// negative writes a negative int32 or int64: ten bytes, two's complement.
func negative(at protowire.Number, value int64) []byte { return number(at, uint64(value)) }

func nested(at protowire.Number, parts ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, at, protowire.BytesType), join(parts...))
}

// structKV is a google.protobuf.Struct with one text: field 1 is the map, its
// entry holds the key as 1 and the value as 2, whose string is 3.
func structKV(key, value string) []byte {
	return nested(1, text(1, key), nested(2, text(3, value)))
}
