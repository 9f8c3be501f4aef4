package wire_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// fixedNumbers are the numbers of what this contract adds, the same in every
// message. 110 and up belong to one message each.
var fixedNumbers = map[string]int{
	"capability_revision":     100,
	"guard":                   101,
	"provenance":              102,
	"audit_id":                103,
	"retry_after_ms":          104,
	"field":                   105,
	"message":                 106,
	"result_resource_version": 107,
	"continuation_token":      108,
	"request_id":              109,
}

// added is every field that isn't shipped. Once released, a line changes never
// and goes only with a new protocol version.
var added = []string{
	"Capability.id = 1 string oneof",
	"Capability.none_reason = 2 string oneof",
	"CreateTaskExactRequest.continuation_token = 108 string",
	"CreateTaskExactRequest.expected_parent_resource_version = 112 string",
	"CreateTaskExactRequest.expected_workflow_resource_version = 110 string",
	"CreateTaskExactRequest.expected_workflow_step_resource_version = 111 string",
	"CreateTaskExactRequest.guard = 101 PendingTransitionGuard",
	"CreateTaskExactRequest.provenance = 102 ManagedExecutionProvenance",
	"ExactMessageObservation.canonical_digest = 110 string",
	"ExactSessionObservation.is_primary = 110 bool",
	"ExactSessionObservation.is_terminal = 111 bool",
	"GetCapabilityContextRequest.request_id = 109 string",
	"GetCapabilityContextResponse.audit_id = 103 string",
	"GetCapabilityContextResponse.context_revision = 112 uint64",
	"GetCapabilityContextResponse.contract_version = 111 string",
	"GetCapabilityContextResponse.workspaces = 110 WorkspaceCapabilityContext repeated",
	"GetInteractionExactRequest.capability_revision = 100 uint64",
	"GetTaskExactRequest.capability_revision = 100 uint64",
	"GetTaskRelationsExactRequest.capability_revision = 100 uint64",
	"HostCommandReceipt.implicit_fields = 110 string repeated",
	"HostCommandResult.audit_id = 103 string",
	"HostCommandResult.field = 105 string",
	"HostCommandResult.message = 106 string",
	"HostCommandResult.result_resource_version = 107 string",
	"HostCommandResult.retry_after_ms = 104 uint32",
	"HostReadReceipt.audit_id = 103 string",
	"HostReadReceipt.implicit_fields = 110 string repeated",
	"Legacy.declarations = 1 string repeated",
	"Legacy.none_reason = 2 string",
	"ListPendingInteractionsExactRequest.capability_revision = 100 uint64",
	"ListPendingTaskTransitionsExactRequest.capability_revision = 100 uint64",
	"ListSanitizedMessagesExactRequest.capability_revision = 100 uint64",
	"ListSanitizedMessagesExactRequest.sanitization = 110 string",
	"ListSessionsExactRequest.capability_revision = 100 uint64",
	"ListTaskInboxExactRequest.capability_revision = 100 uint64",
	"ListTaskRelationsExactRequest.capability_revision = 100 uint64",
	"ListTasksExactRequest.capability_revision = 100 uint64",
	"ListWorkflowStepsExactRequest.capability_revision = 100 uint64",
	"ListWorkflowsExactRequest.capability_revision = 100 uint64",
	"ListWorkspacesExactRequest.capability_revision = 100 uint64",
	"ManagedExecutionProvenance.conversation_id = 1 string",
	"ManagedExecutionProvenance.execution_generation_token = 3 string",
	"ManagedExecutionProvenance.session_id = 2 string",
	"PendingTaskTransition.actor = 114 string",
	"PendingTaskTransition.expires_at = 113 string optional",
	"PendingTaskTransition.predicate = 110 string",
	"PendingTaskTransition.requester = 112 string",
	"PendingTaskTransition.session_id = 111 string",
	"PendingTransitionGuard.NamedTransition.pending_transition_id = 1 string",
	"PendingTransitionGuard.NamedTransition.resource_version = 2 string",
	"PendingTransitionGuard.expect_none = 1 PendingTransitionGuard.NoTransition oneof",
	"PendingTransitionGuard.pending_transition = 2 PendingTransitionGuard.NamedTransition oneof",
	"TaskInboxItem.canonical_digest = 110 string",
	"UpdateTaskExactRequest.continuation_token = 108 string",
	"UpdateTaskExactRequest.guard = 101 PendingTransitionGuard",
	"UpdateTaskExactRequest.provenance = 102 ManagedExecutionProvenance",
	"WatchEventsRequest.cursor = 1 string",
	"WatchEventsRequest.from_start = 2 bool",
	"WatchEventsRequest.patterns = 3 string repeated",
	"WatchEventsRequest.request_id = 109 string",
	"WatchEventsResponse.audit_id = 103 string",
	"WatchEventsResponse.capability_revision = 100 uint64",
	"WatchEventsResponse.cursor = 9 string",
	"WatchEventsResponse.event_id = 1 string",
	"WatchEventsResponse.event_schema_version = 6 uint32",
	"WatchEventsResponse.event_type = 2 string",
	"WatchEventsResponse.occurred_at = 3 string",
	"WatchEventsResponse.payload = 5 google.protobuf.Struct",
	"WatchEventsResponse.resource_id = 7 string",
	"WatchEventsResponse.resource_version = 8 string",
	"WatchEventsResponse.workspace_id = 4 string",
	"WorkspaceCapabilityContext.capability_ids = 2 string repeated",
	"WorkspaceCapabilityContext.capability_revision = 100 uint64",
	"WorkspaceCapabilityContext.manifest_digest = 3 string",
	"WorkspaceCapabilityContext.state = 4 string",
	"WorkspaceCapabilityContext.workspace_id = 1 string",
}

// TestShippedFieldsKeepNumberTypeAndLabel: a shipped message is declared with
// every field that the facts give it, later ones included, or not at all.
func TestShippedFieldsKeepNumberTypeAndLabel(t *testing.T) {
	s := readShipped(t)
	declared := declaredMessages()
	v1 := 0
	for name, message := range s.messages {
		ours, ok := declared[name]
		if !ok {
			if message.part == "v1" {
				t.Errorf("v1 message %s is not declared", name)
			}
			continue
		}
		if message.part == "v1" {
			v1++
		}
		for _, want := range message.fields {
			if want.number >= 100 {
				t.Errorf("%s.%s = %d: shipped, and in the range of what this contract adds", name, want.name, want.number)
			}
			field := ours.Fields().ByNumber(protoreflect.FieldNumber(want.number))
			if field == nil {
				t.Errorf("%s: shipped field %d (%s) is missing", name, want.number, want.name)
				continue
			}
			wantText := describe(name, ourName(name, want.name), want.number, want.kind, want.label)
			if got := describeField(name, field); got != wantText {
				t.Errorf("shipped field changed:\n got %s\nwant %s", got, wantText)
			}
		}
	}
	if v1 != 159 {
		t.Errorf("%d v1 messages, shipped are 159", v1)
	}
}

// TestAddedFieldsAreTheKnownOnes: what is added to a shipped message has a
// number from 100 on, and a word of the contract has the same one everywhere.
func TestAddedFieldsAreTheKnownOnes(t *testing.T) {
	s := readShipped(t)
	var got []string
	for name, message := range declaredMessages() {
		theirs, isShipped := s.messages[name]
		for i := range message.Fields().Len() {
			field := message.Fields().Get(i)
			number := int(field.Number())
			if isShipped && slices.ContainsFunc(theirs.fields, func(f shippedField) bool { return f.number == number }) {
				continue
			}
			got = append(got, describeField(name, field))
			if isShipped && number < 100 {
				t.Errorf("%s.%s = %d: below 100 belongs to the shipped wire", name, field.Name(), number)
			}
			want, isFixed := fixedNumbers[string(field.Name())]
			if isFixed && number != want {
				t.Errorf("%s.%s = %d: its number is %d everywhere", name, field.Name(), number, want)
			}
			if !isFixed && number >= 100 && number < 110 {
				t.Errorf("%s.%s = %d: the number belongs to another word", name, field.Name(), number)
			}
		}
	}
	slices.Sort(got)
	for _, line := range got {
		if !slices.Contains(added, line) {
			t.Errorf("unknown or changed field: %s", line)
		}
	}
	for _, line := range added {
		if !slices.Contains(got, line) {
			t.Errorf("missing or changed field: %s", line)
		}
	}
}

func TestShippedEnumsAreUnchanged(t *testing.T) {
	s := readShipped(t)
	eachFile(func(file protoreflect.FileDescriptor) {
		for i := range file.Enums().Len() {
			enum := file.Enums().Get(i)
			want, ok := s.enums[string(enum.Name())]
			if !ok {
				t.Errorf("enum %s is not a shipped one", enum.Name())
				continue
			}
			if enum.Values().Len() != len(want) {
				t.Errorf("enum %s has %d values, shipped %d", enum.Name(), enum.Values().Len(), len(want))
			}
			for number, name := range want {
				value := enum.Values().ByNumber(protoreflect.EnumNumber(number))
				if value == nil || string(value.Name()) != name {
					t.Errorf("%s %d is %v, shipped as %s", enum.Name(), number, value, name)
				}
			}
		}
	})
}

// TestProductNamesStayOut reads the sources, so that names and comments are
// both covered.
func TestProductNamesStayOut(t *testing.T) {
	banned := "coord" + "inator" // whole, this file would be one more place that holds it
	const protos = "../../proto/kandev/plugin/v1/"
	files := 0
	eachFile(func(file protoreflect.FileDescriptor) {
		files++
		name := protos + file.Path()[strings.LastIndex(file.Path(), "/")+1:]
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatalf("read source of %s: %v", file.Path(), err)
		}
		for i, line := range strings.Split(strings.ToLower(string(source)), "\n") {
			if strings.Contains(line, banned) {
				t.Errorf("%s:%d holds a product's name", name, i+1)
			}
		}
	})
	entries, err := os.ReadDir(protos)
	if err != nil {
		t.Fatalf("read directory: %v", err)
	}
	sources := 0
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".proto") {
			sources++
		}
	}
	if files == 0 || sources != files {
		t.Errorf("%d .proto files, %d of them compiled in", sources, files)
	}
}

func describe(message, field string, number int, kind, label string) string {
	return strings.TrimSuffix(fmt.Sprintf("%s.%s = %d %s %s", message, field, number, kind, label), " ")
}

func describeField(message string, field protoreflect.FieldDescriptor) string {
	label := ""
	switch {
	case field.IsList():
		label = "repeated"
	case field.HasOptionalKeyword():
		label = "optional"
	case field.ContainingOneof() != nil:
		label = "oneof"
	}
	kind := typeName(field)
	if field.IsMap() {
		kind = fmt.Sprintf("map<%s,%s>", typeName(field.MapKey()), typeName(field.MapValue()))
	}
	return describe(message, string(field.Name()), int(field.Number()), kind, label)
}

func typeName(field protoreflect.FieldDescriptor) string {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return shortName(field.Message())
	case protoreflect.EnumKind:
		return shortName(field.Enum())
	default:
		return field.Kind().String()
	}
}
