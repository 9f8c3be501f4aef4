package rpc

import (
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/command"
	"github.com/kandev/plugin-host/hostsvc/query"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// Every outcome becomes wire here and nowhere else: a writer's is gRPC OK with
// a result, a reader's failure a gRPC status with exactly one result as detail
// (host contract, "Transport and identity").

// resultField is where every writer's response holds its result.
const resultField protoreflect.Name = "result"

var resultMessage = (*pluginv1.HostCommandResult)(nil).ProtoReflect().Descriptor().FullName()

// wireStates maps a state to its number on the wire and to the code of a
// reader that failed so.
var wireStates = map[contract.State]struct {
	status pluginv1.HostCommandStatus
	code   codes.Code
}{
	contract.StateApplied:        {pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_APPLIED, codes.OK},
	contract.StateAlreadyApplied: {pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_ALREADY_APPLIED, codes.OK},
	contract.StateNoChange:       {pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_NO_CHANGE, codes.OK},
	contract.StateConflict:       {pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_CONFLICT, codes.FailedPrecondition},
	contract.StateDenied:         {pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_DENIED, codes.PermissionDenied},
	contract.StateNotFound:       {pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_NOT_FOUND, codes.NotFound},
	contract.StateInvalid:        {pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_INVALID, codes.InvalidArgument},
	contract.StateUnsupported:    {pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_UNSUPPORTED, codes.Unimplemented},
	contract.StateRateLimited:    {pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_RATE_LIMITED, codes.ResourceExhausted},
	contract.StateUnavailable:    {pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_UNAVAILABLE, codes.Unavailable},
}

// wireState returns the row of a state; one that is not to be sent is answered
// as UNAVAILABLE, never as anything better.
func wireState(state contract.State) (pluginv1.HostCommandStatus, codes.Code) {
	row, ok := wireStates[state]
	if !ok {
		row = wireStates[contract.StateUnavailable]
	}
	return row.status, row.code
}

// refusalResult is the result of a call that did not do what it asked.
func refusalResult(refusal *admission.Refusal) *pluginv1.HostCommandResult {
	state, _ := wireState(refusal.State)
	return &pluginv1.HostCommandResult{
		Status: state, Reason: string(refusal.Reason), AuditId: refusal.AuditID,
		RetryAfterMs: milliseconds(refusal.RetryAfter), Field: refusal.Field, Message: refusal.Message,
	}
}

// commandResult is the result of a command that is committed, now or before.
func commandResult(result command.Result) *pluginv1.HostCommandResult {
	entry := &result.Entry
	state, _ := wireState(result.State)
	first, _ := wireState(entry.Result)
	at := timestamp(entry.At)
	return &pluginv1.HostCommandResult{
		Status: state, AuditId: result.AuditID, ResultResourceVersion: entry.After,
		Receipt: &pluginv1.HostCommandReceipt{
			// One journal row is the receipt and the record of the operation.
			ReceiptId: entry.AuditID, OperationId: entry.AuditID, Status: first, TargetId: entry.TargetID,
			ResourceVersion: entry.After, ApprovalRevision: entry.Revision, CreatedAt: at, UpdatedAt: at,
			ImplicitFields: implicitFields(entry.Implicit),
		},
	}
}

// readFailure is the error of a reader that was refused. texts are the shipped
// texts of its namespace.
func readFailure(refusal *admission.Refusal, texts shippedTexts) error {
	_, code := wireState(refusal.State)
	plain := status.New(code, texts.of(refusal))
	detailed, err := plain.WithDetails(refusalResult(refusal))
	if err != nil {
		return plain.Err()
	}
	return detailed.Err()
}

// writeFailure is a writer's response that says only why not, for a method
// whose adapter did not get to answer.
func (m *method) writeFailure(refusal *admission.Refusal) proto.Message {
	response := m.response.New()
	field := m.response.Descriptor().Fields().ByName(resultField)
	response.Set(field, protoreflect.ValueOfMessage(refusalResult(refusal).ProtoReflect()))
	return response.Interface()
}

// receipt is the receipt of a read that was allowed.
func (r request) receipt(receipt query.Receipt, observedAt string) *pluginv1.HostReadReceipt {
	r.served(receipt)
	return &pluginv1.HostReadReceipt{
		InstallationId: r.installationID, WorkspaceId: receipt.WorkspaceID, CapabilityRevision: receipt.Revision,
		RequestId: receipt.RequestID, SnapshotVersion: receipt.Snapshot, ObservedAt: observedAt,
		AuditId: receipt.AuditID, ImplicitFields: implicitFields(r.envelope.Implicit()),
	}
}

// implicitFields are the fields of a record's text, nil for none.
func implicitFields(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// shippedTexts are the status texts that plugins in the field know, where they
// depend on the namespace.
type shippedTexts struct {
	// identifiers is for a faulty request_id or workspace_id.
	identifiers string
	notFound    string
	unavailable string
	// widened is for a filter that names another workspace, and filter is what the
	// list calls its filter. Lists without one have none.
	widened, filter string
}

// filtering are the texts of a list that has a filter.
func (texts shippedTexts) filtering(filter, widened string) shippedTexts {
	texts.filter, texts.widened = filter, widened
	return texts
}

// of returns the shipped text of a refusal where there is one, and otherwise
// what the refusal says for people.
func (texts shippedTexts) of(refusal *admission.Refusal) string {
	switch refusal.State {
	case contract.StateDenied:
		return denyText(refusal.Reason)
	case contract.StateNotFound:
		if refusal.Field == "session_id" {
			return "session was not found"
		}
		return texts.notFound
	case contract.StateUnavailable:
		return texts.unavailable
	case contract.StateConflict:
		return "exact read snapshot is stale; start a new query"
	default:
		return texts.ofField(refusal)
	}
}

// ofField is the text for a request that is at fault itself.
func (texts shippedTexts) ofField(refusal *admission.Refusal) string {
	if refusal.Message == query.TaskOutside || refusal.Message == query.SessionOutside {
		return texts.filter + " " + refusal.Message
	}
	switch refusal.Field {
	case "request_id", "workspace_id":
		return texts.identifiers
	case "page.cursor":
		return "exact read cursor is invalid"
	case "page.snapshot_version":
		if refusal.Reason == contract.ReasonMissingExactField {
			return "exact read cursor requires a snapshot version"
		}
		return "exact read snapshot does not match this query"
	case widenedFilter:
		return texts.widened
	case "":
		return refusal.Message
	}
	return fmt.Sprintf("%s %s", refusal.Field, refusal.Message)
}

// bothIdentifiers is what the shipped reads say of a faulty identifier.
const bothIdentifiers = "request_id and workspace_id are required bounded identifiers"

// denyText is a reason as the shipped wire spells it.
func denyText(reason contract.Reason) string { return strings.ToLower(string(reason)) }

func milliseconds(d time.Duration) uint32 {
	return uint32(min(max(d.Milliseconds(), 0), math.MaxUint32))
}
