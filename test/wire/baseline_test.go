package wire_test

import (
	"os"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// TestBaselineIsAWire: an empty baseline would break nothing and so allow
// everything. What it holds is still declared; that it is unchanged is what
// `make lint` asks buf.
func TestBaselineIsAWire(t *testing.T) {
	content, err := os.ReadFile("../../proto/baseline.binpb")
	if err != nil {
		t.Fatalf("read the baseline: %v", err)
	}
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(content, set); err != nil {
		t.Fatalf("parse the baseline: %v", err)
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatalf("link the baseline: %v", err)
	}
	found, err := files.FindDescriptorByName("kandev.plugin.v1.Host")
	if err != nil {
		t.Fatalf("find the service: %v", err)
	}
	service, ok := found.(protoreflect.ServiceDescriptor)
	if !ok || service.Methods().Len() < 8 {
		t.Fatalf("the baseline's Host is %v", found)
	}
	for i := range service.Methods().Len() {
		if name := service.Methods().Get(i).Name(); services()["Host"].Methods().ByName(name) == nil {
			t.Errorf("%s was released and is not declared", name)
		}
	}
	ours, fields := declaredMessages(), 0
	files.RangeFilesByPackage("kandev.plugin.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Messages().Len() {
			released := file.Messages().Get(i)
			declared := ours[shortName(released)]
			if declared == nil {
				t.Errorf("%s was released and is not declared", released.Name())
				continue
			}
			for j := range released.Fields().Len() {
				fields++
				field := released.Fields().Get(j)
				now := declared.Fields().ByNumber(field.Number())
				if now == nil || describeField(shortName(declared), now) != describeField(shortName(released), field) {
					t.Errorf("%s was released and is now %v", describeField(shortName(released), field), now)
				}
			}
		}
		return true
	})
	if fields < 250 {
		t.Errorf("the baseline has %d fields", fields)
	}
}
