package pluginv1_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// shippedWire is what plugins in the field already speak, for the methods and
// messages declared here. A message that a later change declares is added to
// testdata/shipped-wire.json with every field the shipped wire gives it.
type shippedWire struct {
	Methods  []shippedMethod           `json:"methods"`
	Enums    map[string]map[string]int `json:"enums"`
	Messages map[string]shippedMessage `json:"messages"`
}

type shippedMethod struct {
	Name     string `json:"name"`
	Request  string `json:"request"`
	Response string `json:"response"`
}

type shippedMessage struct {
	// Part is "v1" or "exact", the two sets that were shipped.
	Part   string         `json:"part"`
	Fields []shippedField `json:"fields"`
}

type shippedField struct {
	Name   string `json:"name"`
	Number int    `json:"number"`
	Type   string `json:"type"`
	// Label is empty, "optional" (explicit presence) or "repeated".
	Label string `json:"label"`
}

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
	"HostCommandResult.audit_id = 103 string",
	"HostCommandResult.field = 105 string",
	"HostCommandResult.message = 106 string",
	"HostCommandResult.result_resource_version = 107 string",
	"HostCommandResult.retry_after_ms = 104 uint32",
	"HostReadReceipt.audit_id = 103 string",
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
	"PendingTaskTransition.expires_at = 113 string optional",
	"PendingTaskTransition.predicate = 110 string",
	"PendingTaskTransition.requester = 112 string",
	"PendingTaskTransition.session_id = 111 string",
	"PendingTransitionGuard.NamedTransition.pending_transition_id = 1 string",
	"PendingTransitionGuard.NamedTransition.resource_version = 2 string",
	"PendingTransitionGuard.expect_none = 1 PendingTransitionGuard.NoTransition oneof",
	"PendingTransitionGuard.pending_transition = 2 PendingTransitionGuard.NamedTransition oneof",
	"TaskInboxItem.canonical_digest = 110 string",
	"TaskRelation.depth = 110 uint32",
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

func TestShippedFieldsKeepNumberTypeAndLabel(t *testing.T) {
	wire := loadShippedWire(t)
	declared := declaredMessages()
	for name, shipped := range wire.Messages {
		message, ok := declared[name]
		if !ok {
			t.Errorf("%s is shipped and no longer declared", name)
			continue
		}
		for _, want := range shipped.Fields {
			field := message.Fields().ByNumber(protoreflect.FieldNumber(want.Number))
			if field == nil {
				t.Errorf("%s: shipped field %d (%s) is missing", name, want.Number, want.Name)
				continue
			}
			wantText := describe(name, ourName(name, want.Name), want.Number, want.Type, want.Label)
			if got := describeField(name, field); got != wantText {
				t.Errorf("shipped field changed:\n got %s\nwant %s", got, wantText)
			}
		}
	}
}

func TestAddedFieldsAreTheKnownOnes(t *testing.T) {
	wire := loadShippedWire(t)
	var got []string
	for name, message := range declaredMessages() {
		shipped := map[int]bool{}
		for _, field := range wire.Messages[name].Fields {
			shipped[field.Number] = true
		}
		_, isShipped := wire.Messages[name]
		for i := range message.Fields().Len() {
			field := message.Fields().Get(i)
			number := int(field.Number())
			if shipped[number] {
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
	wire := loadShippedWire(t)
	seen := 0
	eachFile(func(file protoreflect.FileDescriptor) {
		for i := range file.Enums().Len() {
			seen++
			enum := file.Enums().Get(i)
			want, ok := wire.Enums[string(enum.Name())]
			if !ok {
				t.Errorf("enum %s is not in the fixture", enum.Name())
				continue
			}
			if enum.Values().Len() != len(want) {
				t.Errorf("enum %s has %d values, shipped %d", enum.Name(), enum.Values().Len(), len(want))
			}
			for name, number := range want {
				value := enum.Values().ByName(protoreflect.Name(name))
				if value == nil || int(value.Number()) != number {
					t.Errorf("%s: got %v, shipped as %d", name, value, number)
				}
			}
		}
	})
	if seen != len(wire.Enums) {
		t.Errorf("%d enums declared, %d in the fixture", seen, len(wire.Enums))
	}
}

func TestMethodsAreShippedOnes(t *testing.T) {
	wire := loadShippedWire(t)
	methods := hostMethods(t)
	if methods.Len() != len(wire.Methods)+1 || methods.ByName("WatchEvents") == nil {
		t.Errorf("%d methods declared, WatchEvents and %d in the fixture", methods.Len(), len(wire.Methods))
	}
	for _, want := range wire.Methods {
		method := methods.ByName(protoreflect.Name(want.Name))
		if method == nil {
			t.Errorf("method %s is missing", want.Name)
			continue
		}
		if method.IsStreamingClient() || method.IsStreamingServer() {
			t.Errorf("%s streams; the shipped one is unary", want.Name)
		}
		if got := string(method.Input().Name()); got != want.Request {
			t.Errorf("%s takes %s, shipped %s", want.Name, got, want.Request)
		}
		if got := string(method.Output().Name()); got != want.Response {
			t.Errorf("%s returns %s, shipped %s", want.Name, got, want.Response)
		}
	}
	const path = "/kandev.plugin.v1.Host/GetTaskExact"
	if pluginv1.Host_GetTaskExact_FullMethodName != path {
		t.Errorf("full method name %q, shipped %q", pluginv1.Host_GetTaskExact_FullMethodName, path)
	}
}

// TestProductNamesStayOut reads the sources, so that names and comments are
// both covered.
func TestProductNamesStayOut(t *testing.T) {
	banned := "coord" + "inator" // whole, this file would be one more place that holds it
	files := 0
	eachFile(func(file protoreflect.FileDescriptor) {
		files++
		name := file.Path()[strings.LastIndex(file.Path(), "/")+1:]
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
	entries, err := os.ReadDir(".")
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

// ourName is the one renaming: on requests the contract's word is capability
// revision. Numbers decide on the wire, so it is compatible there.
func ourName(message, field string) string {
	if field == "approval_revision" && strings.HasSuffix(message, "ExactRequest") {
		return "capability_revision"
	}
	return field
}

func loadShippedWire(t *testing.T) shippedWire {
	t.Helper()
	text, err := os.ReadFile("testdata/shipped-wire.json")
	if err != nil {
		t.Fatalf("read fixture: %v", err)
	}
	var wire shippedWire
	if err := json.Unmarshal(text, &wire); err != nil {
		t.Fatalf("parse fixture: %v", err)
	}
	if len(wire.Messages) == 0 || len(wire.Methods) == 0 {
		t.Fatal("the fixture is empty")
	}
	return wire
}

func eachFile(visit func(protoreflect.FileDescriptor)) {
	protoregistry.GlobalFiles.RangeFilesByPackage("kandev.plugin.v1", func(file protoreflect.FileDescriptor) bool {
		visit(file)
		return true
	})
}

// declaredMessages maps each message of the package by its name inside it;
// entries of map fields are part of their field.
func declaredMessages() map[string]protoreflect.MessageDescriptor {
	found := map[string]protoreflect.MessageDescriptor{}
	var walk func(protoreflect.MessageDescriptors)
	walk = func(messages protoreflect.MessageDescriptors) {
		for i := range messages.Len() {
			message := messages.Get(i)
			if message.IsMapEntry() {
				continue
			}
			found[shortName(message)] = message
			walk(message.Messages())
		}
	}
	eachFile(func(file protoreflect.FileDescriptor) { walk(file.Messages()) })
	return found
}

func hostMethods(t *testing.T) protoreflect.MethodDescriptors {
	t.Helper()
	found, err := protoregistry.GlobalFiles.FindDescriptorByName("kandev.plugin.v1.Host")
	if err != nil {
		t.Fatalf("find service: %v", err)
	}
	service, ok := found.(protoreflect.ServiceDescriptor)
	if !ok {
		t.Fatalf("kandev.plugin.v1.Host is a %T", found)
	}
	return service.Methods()
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

func shortName(descriptor protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(descriptor.FullName()), "kandev.plugin.v1.")
}
