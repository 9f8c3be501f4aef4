package wire_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// shipped is the whole shipped wire, of which a part is declared.
type shipped struct {
	methods  []shippedMethod
	enums    map[string]map[int]string
	messages map[string]*shippedMessage
}

type shippedMethod struct {
	service, name, request, response string
	streams                          bool
}

type shippedMessage struct {
	// part is "v1" or "exact", the two sets that were shipped.
	part   string
	fields []shippedField
}

type shippedField struct {
	number     int
	name, kind string
	// label is empty, "optional" (explicit presence), "repeated" or "oneof".
	label string
}

// readShipped reads the facts. Whatever it doesn't understand is an error, so
// that no fact is skipped.
func readShipped(t *testing.T) *shipped {
	t.Helper()
	content, err := os.ReadFile("testdata/shipped.txt")
	if err != nil {
		t.Fatalf("read the facts: %v", err)
	}
	s := &shipped{enums: map[string]map[int]string{}, messages: map[string]*shippedMessage{}}
	var enum map[int]string
	var message *shippedMessage
	for i, line := range strings.Split(string(content), "\n") {
		words := strings.Fields(line)
		fail := func(what string) { t.Fatalf("testdata/shipped.txt:%d: %s: %q", i+1, what, line) }
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		switch words[0] {
		case "rpc":
			streams := len(words) == 7 && words[5] == "stream"
			if len(words) != 6 && !streams || words[1] != "v1" && words[1] != "exact" {
				fail("no method")
			}
			s.methods = append(s.methods, shippedMethod{words[2], words[3], words[4], words[len(words)-1], streams})
			continue
		case "enum":
			if len(words) != 2 || s.enums[words[1]] != nil {
				fail("no new enum")
			}
			enum, message = map[int]string{}, nil
			s.enums[words[1]] = enum
			continue
		case "message":
			if len(words) != 3 || words[1] != "v1" && words[1] != "exact" || s.messages[words[2]] != nil {
				fail("no new message")
			}
			enum, message = nil, &shippedMessage{part: words[1]}
			s.messages[words[2]] = message
			continue
		}
		at, err := strconv.Atoi(words[0])
		switch {
		case err != nil:
			fail("neither a declaration nor a numbered line")
		case enum != nil && len(words) == 2 && enum[at] == "":
			enum[at] = words[1]
		case message != nil && (len(words) == 3 || len(words) == 4):
			field := shippedField{number: at, name: words[1], kind: words[2]}
			if len(words) == 4 {
				field.label = words[3]
			}
			for _, other := range message.fields {
				if other.number == at || other.name == field.name {
					fail("the message has it already")
				}
			}
			message.fields = append(message.fields, field)
		default:
			fail("belongs to nothing")
		}
	}
	for name, m := range s.messages {
		for _, field := range m.fields {
			if err := s.checkField(field); err != nil {
				t.Fatalf("testdata/shipped.txt: %s.%s: %v", name, field.name, err)
			}
		}
	}
	return s
}

// checkField tells whether the rest of this package can deal with a field.
func (s *shipped) checkField(field shippedField) error {
	scalar := false
	switch field.kind {
	case "string", "bytes":
	case "bool", "int32", "int64", "uint32", "uint64":
		scalar = true
	case "map<string,string>", "map<string,uint64>", "google.protobuf.Struct":
	default:
		if s.messages[field.kind] == nil && s.enums[field.kind] == nil {
			return fmt.Errorf("unknown type %s", field.kind)
		}
		scalar = s.enums[field.kind] != nil
	}
	switch field.label {
	case "", "optional", "oneof":
	case "repeated":
		if scalar {
			return fmt.Errorf("repeated numbers are packed, and nothing here packs")
		}
	default:
		return fmt.Errorf("unknown label %s", field.label)
	}
	return nil
}

// declared are those of the shipped messages that this project declares.
func (s *shipped) declared() map[string]*shippedMessage {
	found := map[string]*shippedMessage{}
	ours := declaredMessages()
	for name, message := range s.messages {
		if ours[name] != nil {
			found[name] = message
		}
	}
	return found
}

// ourName is the one renaming: on requests the contract's word is capability
// revision. Numbers decide on the wire, so it is compatible there.
func ourName(message, field string) string {
	if field == "approval_revision" && strings.HasSuffix(message, "ExactRequest") {
		return "capability_revision"
	}
	return field
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

// services are the two services, by name.
func services() map[string]protoreflect.ServiceDescriptor {
	return map[string]protoreflect.ServiceDescriptor{
		"Host":   pluginv1.File_kandev_plugin_v1_host_proto.Services().ByName("Host"),
		"Plugin": pluginv1.File_kandev_plugin_v1_plugin_proto.Services().ByName("Plugin"),
	}
}

func shortName(descriptor protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(descriptor.FullName()), "kandev.plugin.v1.")
}
