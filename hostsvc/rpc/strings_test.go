package rpc_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/rpc"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// leaf is one text field of a request, at any depth, and how to set it.
type leaf struct {
	path string
	set  func(root protoreflect.Message, value string)
}

// leaves are the text fields of a message type. A list has one element then.
func leaves(of protoreflect.MessageDescriptor, path string, into func(protoreflect.Message) protoreflect.Message) (all []leaf) {
	for i := range of.Fields().Len() {
		field := of.Fields().Get(i)
		name := path + string(field.Name())
		switch {
		case field.IsMap():
		case field.Kind() == protoreflect.StringKind && field.IsList():
			all = append(all, leaf{name + "[0]", func(root protoreflect.Message, value string) {
				list := into(root).Mutable(field).List()
				list.Truncate(0)
				list.Append(protoreflect.ValueOfString(value))
			}})
		case field.Kind() == protoreflect.StringKind:
			all = append(all, leaf{name, func(root protoreflect.Message, value string) {
				into(root).Set(field, protoreflect.ValueOfString(value))
			}})
		case field.Kind() == protoreflect.MessageKind && field.IsList():
			all = append(all, leaves(field.Message(), name+"[0].", func(root protoreflect.Message) protoreflect.Message {
				list := into(root).Mutable(field).List()
				if list.Len() == 0 {
					list.AppendMutable()
				}
				return list.Get(0).Message()
			})...)
		case field.Kind() == protoreflect.MessageKind:
			all = append(all, leaves(field.Message(), name+".", func(root protoreflect.Message) protoreflect.Message {
				return into(root).Mutable(field).Message()
			})...)
		}
	}
	return all
}

// hostileTexts are values that no identifier may have. What is not UTF-8 the
// transport refuses before.
var hostileTexts = map[string]string{
	"NUL":                "a\x00b",
	"NUL alone":          "\x00",
	"white space first":  " a",
	"white space last":   "a\n",
	"no-break space":     "a\u00a0",
	"line separator":     "\u2028a",
	"white space alone":  "\t",
	"one byte too many":  strings.Repeat("x", contract.MaxIdentifierBytes+1),
	"multi-byte, beyond": strings.Repeat("é", contract.MaxIdentifierBytes/2+1),
	"half a megabyte":    strings.Repeat("x", 512<<10),
}

// freeTexts are the fields for people: white space and length are theirs.
var freeTexts = []string{"task.title", "task.description", "title", "description"}

// neighbours are the fields that must be there where another one of their
// message is.
var neighbours = map[string][]string{
	"guard.pending_transition": {"guard.pending_transition.pending_transition_id", "guard.pending_transition.resource_version"},
	"provenance":               {"provenance.conversation_id", "provenance.session_id", "provenance.execution_generation_token"},
	"page":                     {"page.snapshot_version"},
}

// goodRequests are a request of each exact method that does no more than it says, in
// the workspace of a scene that has spoken. Each is well formed.
func (w *world) goodRequests(s scene) map[string]proto.Message {
	w.Helper()
	create := w.createRequest("ws", "new")
	create.CapabilityRevision = 2
	return map[string]proto.Message{
		"CreateTaskExact": create, "UpdateTaskExact": s.update, "GetTaskExact": s.get, "ListTasksExact": s.list,
		"ListWorkspacesExact":    &pluginv1.ListWorkspacesExactRequest{RequestId: "r", WorkspaceId: "ws"},
		"ListWorkflowsExact":     &pluginv1.ListWorkflowsExactRequest{RequestId: "r", WorkspaceId: "ws"},
		"ListWorkflowStepsExact": &pluginv1.ListWorkflowStepsExactRequest{RequestId: "r", WorkspaceId: "ws", WorkflowId: "ws-flow"},
		"GetCapabilityContext":   &pluginv1.GetCapabilityContextRequest{RequestId: "r"},

		"ListSessionsExact":            &pluginv1.ListSessionsExactRequest{RequestId: "r", WorkspaceId: "ws"},
		"ListPendingInteractionsExact": &pluginv1.ListPendingInteractionsExactRequest{RequestId: "r", WorkspaceId: "ws"},
		"GetInteractionExact":          &pluginv1.GetInteractionExactRequest{RequestId: "r", WorkspaceId: "ws", InteractionId: "ws-permission"},
		"ListSanitizedMessagesExact":   &pluginv1.ListSanitizedMessagesExactRequest{RequestId: "r", WorkspaceId: "ws"},
		"GetTaskRelationsExact":        &pluginv1.GetTaskRelationsExactRequest{RequestId: "r", WorkspaceId: "ws", TaskId: taskID("ws", 0)},
		"ListTaskRelationsExact":       &pluginv1.ListTaskRelationsExactRequest{RequestId: "r", WorkspaceId: "ws"},

		"ListPendingTaskTransitionsExact": &pluginv1.ListPendingTaskTransitionsExactRequest{RequestId: "r", WorkspaceId: "ws"},
		"ListTaskInboxExact":              &pluginv1.ListTaskInboxExactRequest{RequestId: "r", WorkspaceId: "ws"},
	}
}

// TestEveryTextFieldIsChecked gives every text field of every request each
// hostile value. It is refused as INVALID or UNSUPPORTED, names the field or
// what it is part of, and changes nothing; nothing hostile reaches the store,
// where it would be UNAVAILABLE.
func TestEveryTextFieldIsChecked(t *testing.T) {
	w := newWorld(t)
	s := w.play("ws")
	w.converse("ws")
	good := w.goodRequests(s)
	head := w.head("ws")
	fields := 0
	for _, method := range rpc.Exact() {
		name := string(method.Name())
		if good[name] == nil {
			t.Errorf("%s has no request here", name)
			continue
		}
		fieldsOf := leaves(method.Input(), "", func(root protoreflect.Message) protoreflect.Message { return root })
		for _, field := range fieldsOf {
			fields++
			for _, what := range slices.Sorted(maps.Keys(hostileTexts)) {
				hostile := hostileTexts[what]
				if slices.Contains(freeTexts, field.path) && !strings.Contains(hostile, "\x00") && len(hostile) < 100_000 {
					continue
				}
				request := proto.Clone(good[name])
				for _, sibling := range fieldsOf {
					if slices.Contains(neighbours[parent(field.path)], sibling.path) {
						sibling.set(request.ProtoReflect(), "x") // so that it is this field's turn
					}
				}
				field.set(request.ProtoReflect(), hostile)
				got := w.invoke(name, request)
				switch {
				case got == nil:
					t.Errorf("%s: %s of %s was taken", name, what, field.path)
				case got.GetStatus() != pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_INVALID && got.GetStatus() != pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_UNSUPPORTED:
					t.Errorf("%s: %s of %s answers %v", name, what, field.path, got)
				case got.GetField() != "request" && !names(got.GetField(), field.path):
					t.Errorf("%s: %s of %s blames %q", name, what, field.path, got.GetField())
				case strings.Contains(got.GetMessage(), "\x00") || len(got.GetMessage()) > 200:
					t.Errorf("%s: %s of %s is told back: %q", name, what, field.path, got.GetMessage())
				}
				if w.head("ws") != head {
					t.Fatalf("%s: %s of %s committed", name, what, field.path)
				}
			}
		}
	}
	if fields < 40 {
		t.Errorf("only %d fields were tried", fields)
	}
}

// names tells whether a blamed field is the one at path, or what it is part of.
func names(blamed, path string) bool {
	path = strings.TrimSuffix(path, "[0]")
	blamed = strings.TrimSuffix(blamed, "[0]")
	return blamed != "" && (blamed == path || strings.HasPrefix(path, blamed+".") || strings.HasPrefix(path, blamed+"["))
}

// parent is the path of what a field is part of, "" for the request.
func parent(path string) string {
	last := strings.LastIndexByte(path, '.')
	return path[:max(last, 0)]
}

// invoke makes a call and returns why it failed, nil when it did not.
func (w *world) invoke(name string, request proto.Message) *pluginv1.HostCommandResult {
	w.Helper()
	method := pluginv1.File_kandev_plugin_v1_host_proto.Services().ByName("Host").Methods().ByName(protoreflect.Name(name))
	response := newMessage(w.T, method.Output())
	err := w.conn.Invoke(w.as(alpha), fmt.Sprintf("/kandev.plugin.v1.Host/%s", name), request, response)
	if err != nil {
		if len(status.Convert(err).Details()) == 0 {
			w.Fatalf("%s: %v", name, err)
		}
		return detail(w.T, err)
	}
	if answer, ok := response.(interface {
		GetResult() *pluginv1.HostCommandResult
	}); ok && answer.GetResult().GetReason() != "" {
		return answer.GetResult()
	}
	return nil
}

func newMessage(t *testing.T, of protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	found, err := protoregistry.GlobalTypes.FindMessageByName(of.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return found.New().Interface()
}
