package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/identity"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	"github.com/kandev/plugin-host/hostsvc/rpc"
	"github.com/kandev/plugin-host/hostsvc/store"
	"github.com/kandev/plugin-host/hostsvc/vault"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
	"github.com/kandev/plugin-host/sdk"
)

// shipped is what each v1 method needs declared, from the facts of the shipped wire
// (host-v1 facts, section 2), in the order in which it is asked for.
var shipped = map[protoreflect.Name][]string{
	"GetState": {"state"}, "SetState": {"state"}, "DeleteState": {"state"}, "ListState": {"state"},
	"RevealSecret": {"secrets"}, "GetSecret": {"secrets"}, "SetSecret": {"secrets"}, "DeleteSecret": {"secrets"},
	"EmitEvent": nil, "GetConfig": nil,
	"ListTasks": {"api_read:tasks"}, "GetTask": {"api_read:tasks"}, "ListTaskStepTransitions": {"api_read:tasks"},
	"ListWorkspaces": {"api_read:workspaces"}, "ListWorkflows": {"api_read:workflows"}, "ListWorkflowSteps": {"api_read:workflows"},
	"ListWorkflowTransitionGroups": {"api_read:workflows", "api_read:tasks"},
	"ListAgentProfiles":            {"api_read:agent_profiles"}, "ListExecutorProfiles": {"api_read:executor_profiles"},
	"ListRepositories": {"api_read:repositories"}, "ListSessions": {"api_read:sessions"}, "ListSessionCodeStats": {"api_read:sessions"},
	"ListMessages": {"api_read:messages"}, "ListPendingInteractions": {"api_read:interactions"}, "GetInteraction": {"api_read:interactions"},
	"InvokeUtilityAgent": {"agent_invoke"}, "InvokeUtilityAgentWithOptions": {"agent_invoke"},
	"CreateTask": {"api_write:tasks"}, "UpdateTask": {"api_write:tasks"}, "MoveTask": {"api_write:tasks"},
	"SendMessage": {"api_write:messages"}, "PreviewPluginOwnedTaskTree": {"api_write:tasks"},
	"DeletePluginOwnedTaskTree": {"api_write:tasks"}, "RespondToPermission": {"api_write:interactions"},
	"AnswerClarification": {"api_write:interactions"}, "CancelClarification": {"api_write:interactions"},
	"EnsureAgentConversation": {"agent_conversation"}, "DispatchAgentConversation": {"agent_conversation"},
	"DeleteAgentConversation": {"agent_conversation"}, "CheckpointExecutorResource": {"executor_provider"},
	"ReportExecutorProgress": {"executor_provider"},
}

// later are the methods that this Host doesn't have yet.
var later = []protoreflect.Name{
	"InvokeUtilityAgent", "InvokeUtilityAgentWithOptions", "RespondToPermission", "AnswerClarification", "CancelClarification",
	"EnsureAgentConversation", "DispatchAgentConversation", "DeleteAgentConversation", "CheckpointExecutorResource", "ReportExecutorProgress",
}

// v1Declarations is a fixed view of what installations declare.
type v1Declarations struct {
	mu   sync.Mutex
	seen map[string]authority.Legacy
}

func (d *v1Declarations) Legacy(installationID string) authority.Legacy {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen[installationID]
}

func (d *v1Declarations) set(installationID string, seen authority.Legacy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen[installationID] = seen
}

// configured is what operators configured; the cluster's part of it is package
// plugindata's to show, on a real API server.
type configured struct {
	mu   sync.Mutex
	seen map[string]legacy.Config
}

func (c *configured) Config(installationID string) legacy.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[installationID]
}

func (c *configured) set(installationID string, config legacy.Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[installationID] = config
}

// plugins are tokens whose plugins have a name besides.
type plugins struct{ tokens }

func (p plugins) Authenticate(ctx context.Context, bearer string) (identity.Principal, error) {
	principal, err := p.tokens.Authenticate(ctx, bearer)
	principal.PluginID = "plugin-of-" + principal.InstallationID
	return principal, err
}

// v1World is a world whose installations declare everything, unless told otherwise.
type v1World struct {
	*world
	declared *v1Declarations
	config   *configured
	v1       *legacy.Host
}

func (w *v1World) everything() authority.Legacy {
	return authority.Legacy{
		FreshUntil: w.clock.Now().Add(time.Hour), Installed: true,
		LegacyTerms: authority.LegacyTerms{Declared: contract.LegacyDeclarable, Writers: contract.LegacyWriters},
	}
}

func newV1World(t *testing.T, change ...func(*options)) *v1World {
	t.Helper()
	w := &v1World{declared: &v1Declarations{seen: map[string]authority.Legacy{}}, config: &configured{seen: map[string]legacy.Config{}}}
	serve := func(o *options) {
		server := o.server
		o.server = func(c *rpc.Config) {
			durable, ok := c.Executor.Store.(*store.Store)
			if !ok {
				t.Fatalf("the store is a %T", c.Executor.Store)
			}
			sealed, err := vault.New(bytes.Repeat([]byte{7}, vault.KeySize))
			if err != nil {
				t.Fatal(err)
			}
			w.v1 = &legacy.Host{
				Store: durable.Legacy(), State: durable, Secrets: durable, Vault: sealed, Config: w.config,
				Now: c.Now, NewID: c.Executor.NewID, NewAuditID: c.Executor.NewAuditID,
			}
			c.Legacy, c.V1 = w.declared, w.v1
			if server != nil {
				server(c)
			}
		}
	}
	w.world = newWorld(t, append(change, serve)...)
	w.declared.set(alpha, w.everything())
	w.declared.set(beta, w.everything())
	return w
}

// v1Methods are the methods of the service that are v1's.
func v1Methods(t *testing.T) []protoreflect.MethodDescriptor {
	t.Helper()
	methods := pluginv1.File_kandev_plugin_v1_host_proto.Services().ByName("Host").Methods()
	var all []protoreflect.MethodDescriptor
	for i := range methods.Len() {
		if proto.HasExtension(methods.Get(i).Options(), pluginv1.E_Legacy) {
			all = append(all, methods.Get(i))
		}
	}
	return all
}

// send calls a method with a request, or with an empty one of its type.
func (w *world) send(ctx context.Context, method protoreflect.MethodDescriptor, request proto.Message) (proto.Message, error) {
	w.Helper()
	if request == nil {
		request = w.newMessage(method.Input())
	}
	response := w.newMessage(method.Output())
	err := w.conn.Invoke(ctx, fmt.Sprintf("/kandev.plugin.v1.Host/%s", method.Name()), request, response)
	return response, err
}

func (w *world) newMessage(descriptor protoreflect.MessageDescriptor) proto.Message {
	w.Helper()
	found, err := protoregistry.GlobalTypes.FindMessageByName(descriptor.FullName())
	w.must(err)
	return found.New().Interface()
}

// wants checks a status.
func wants(t *testing.T, what string, err error, code codes.Code, text string) {
	t.Helper()
	if status.Code(err) != code || status.Convert(err).Message() != text {
		t.Errorf("%s: got %v, want %s %q", what, err, code, text)
	}
}

// TestI12_DeclarationsAreTheOnlyAuthority asks for every v1 method of the service
// with each thing that can be wrong.
func TestI12_DeclarationsAreTheOnlyAuthority(t *testing.T) {
	w := newV1World(t)
	// An approval of everything is worth nothing here.
	w.seed("ws", 1)
	w.approve(alpha, "ws")
	methods := v1Methods(t)
	for _, method := range methods {
		needed, known := shipped[method.Name()]
		if !known {
			t.Errorf("%s is v1's and not in the table", method.Name())
			continue
		}
		ask := func(seen authority.Legacy) error {
			w.declared.set(alpha, seen)
			_, err := w.send(w.as(alpha), method, nil)
			return err
		}
		t.Run(string(method.Name()), func(t *testing.T) {
			all := w.everything()
			for _, name := range needed {
				declaration, ok := contract.ParseLegacyCapability(name)
				if !ok {
					t.Fatalf("%s is no declaration", name)
				}
				without := all
				without.Declared &^= contract.LegacySetOf(declaration)
				wants(t, "undeclared", ask(without), codes.PermissionDenied, fmt.Sprintf("capability '%s' not declared", name))
				if contract.LegacyWriters.Has(declaration) {
					ungranted := all
					ungranted.Writers &^= contract.LegacySetOf(declaration)
					wants(t, "ungranted", ask(ungranted), codes.PermissionDenied, fmt.Sprintf(
						"capability '%s' not granted: a platform admin has to grant it to this installation in spec.compatibility.legacyWriters", name))
				}
			}
			if len(needed) > 0 {
				none := all
				none.LegacyTerms = authority.LegacyTerms{}
				wants(t, "nothing declared", ask(none), codes.PermissionDenied, fmt.Sprintf("capability '%s' not declared", needed[0]))
			}
			stale := all
			stale.FreshUntil = w.clock.Now()
			wants(t, "not fresh", ask(stale), codes.Unavailable, "what this plugin may do isn't known at the moment; try the same again")
			wants(t, "never seen", ask(authority.Legacy{}), codes.Unavailable, "what this plugin may do isn't known at the moment; try the same again")
			gone := authority.Legacy{FreshUntil: all.FreshUntil}
			wants(t, "uninstalled", ask(gone), codes.PermissionDenied, "the plugin is not installed")
			for gate, text := range map[authority.Gates]string{
				authority.GateSuspended:              "the plugin is suspended by a platform admin",
				authority.GateHostVersionUnsupported: "the plugin's manifest asks for a newer Host",
				authority.GatePrincipalChanged:       "the plugin's ServiceAccount is not accepted; the installation's Accepted condition says why",
			} {
				// Also where its terms were still there.
				blocked := all
				blocked.Gates = gate
				wants(t, text, ask(blocked), codes.PermissionDenied, text)
			}
			// Allowed, it comes to its adapter, or to none.
			if err := ask(all); status.Code(err) == codes.PermissionDenied || status.Code(err) == codes.Unauthenticated {
				t.Errorf("declared and granted, it is answered %v", err)
			}
		})
	}
	if len(methods)+len(later) != len(shipped) {
		t.Errorf("%d methods are v1's and %d come later, %d are in the table", len(methods), len(later), len(shipped))
	}
	for _, name := range later {
		err := w.conn.Invoke(w.as(alpha), "/kandev.plugin.v1.Host/"+string(name), &pluginv1.GetTaskRequest{}, &pluginv1.GetTaskResponse{})
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("%s comes later and is answered %v", name, err)
		}
	}
}

// TestI12_NeitherWorldReachesTheOther: no request of v1 has an envelope, the bytes
// of an exact one are no authority in v1, and declarations are none for what is
// exact.
func TestI12_NeitherWorldReachesTheOther(t *testing.T) {
	w := newV1World(t)
	w.seed("ws", 1)
	exact := w.createRequest("ws", "key")
	exact.CapabilityRevision = w.approve(alpha, "ws").Revision
	envelope, err := proto.Marshal(exact)
	w.must(err)
	before := w.head("ws")
	nothing := w.everything()
	nothing.LegacyTerms = authority.LegacyTerms{}
	w.declared.set(alpha, nothing)
	for _, method := range v1Methods(t) {
		for _, name := range []protoreflect.Name{
			"request_id", "capability_revision", "idempotency_key", "manifest_digest", "guard", "provenance", "expected_resource_version",
		} {
			if method.Input().Fields().ByName(name) != nil {
				t.Errorf("the request of %s has a %s", method.Name(), name)
			}
		}
		request := w.newMessage(method.Input())
		request.ProtoReflect().SetUnknown(unknownTo(t, method.Input(), envelope))
		if _, err := w.send(w.as(alpha), method, request); len(shipped[method.Name()]) > 0 && status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s, undeclared, with an exact envelope: %v", method.Name(), err)
		}
	}
	if after := w.head("ws"); after != before {
		t.Errorf("the workspace moved from version %d to %d", before, after)
	}

	// The other way about: beta declares and is granted all of v1, and was approved
	// of by nobody.
	create := w.createRequest("ws", "another key")
	create.CapabilityRevision = 1
	writers := map[protoreflect.Name]proto.Message{
		"CreateTaskExact": create,
		"UpdateTaskExact": &pluginv1.UpdateTaskExactRequest{
			RequestId: "r", WorkspaceId: "ws", TaskId: taskID("ws", 0), IdempotencyKey: "key", Guard: noGuard(),
			CapabilityRevision: 1, ExpectedResourceVersion: w.seededVersion(), Title: ptr("changed"),
		},
	}
	for _, method := range rpc.Exact() {
		request := writers[method.Name()]
		if request == nil {
			request = w.newMessage(method.Input())
			fill(request.ProtoReflect())
		}
		response, err := w.send(w.as(beta), method, request)
		if method.Name() == "GetCapabilityContext" {
			standing, ok := response.(*pluginv1.GetCapabilityContextResponse)
			if err != nil || !ok || len(standing.GetWorkspaces()) != 0 {
				t.Errorf("the context of nothing approved is %v, %v", response, err)
			}
			continue
		}
		var result *pluginv1.HostCommandResult
		if writer, ok := response.(interface {
			GetResult() *pluginv1.HostCommandResult
		}); ok {
			w.must(err)
			result = writer.GetResult()
		} else {
			result = detail(t, err)
		}
		if result.GetReason() != string(contract.ReasonMissingCapabilityApproval) {
			t.Errorf("%s by declarations alone: %v", method.Name(), result)
		}
	}
	if after := w.head("ws"); after != before {
		t.Errorf("the workspace moved from version %d to %d", before, after)
	}
}

// unknownTo leaves out of a message's bytes the fields whose numbers another message
// has.
func unknownTo(t *testing.T, other protoreflect.MessageDescriptor, message []byte) (rest []byte) {
	t.Helper()
	for len(message) > 0 {
		number, _, length := protowire.ConsumeField(message)
		if length < 0 {
			t.Fatal(protowire.ParseError(length))
		}
		if other.Fields().ByNumber(number) == nil {
			rest = append(rest, message[:length]...)
		}
		message = message[length:]
	}
	return rest
}

// fill puts something into each plain field of a reader's request, the workspace's
// name into its own.
func fill(message protoreflect.Message) {
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch {
		case field.Name() == "workspace_id":
			message.Set(field, protoreflect.ValueOfString("ws"))
		case field.IsList(), field.Message() != nil, field.Name() == "sanitization":
		case field.Kind() == protoreflect.StringKind:
			message.Set(field, protoreflect.ValueOfString("x"))
		case field.Kind() == protoreflect.Uint64Kind:
			message.Set(field, protoreflect.ValueOfUint64(1))
		}
	}
}

func object(t *testing.T, members map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(members)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestV1State(t *testing.T) {
	w := newV1World(t)
	get := func(as, scope, scopeID, key string) *pluginv1.GetStateResponse {
		t.Helper()
		response, err := w.host.GetState(w.as(as), &pluginv1.GetStateRequest{Scope: scope, ScopeId: scopeID, Key: key})
		w.must(err)
		return response
	}
	set := func(as, scope, scopeID, key string, value *structpb.Struct) error {
		_, err := w.host.SetState(w.as(as), &pluginv1.SetStateRequest{Scope: scope, ScopeId: scopeID, Key: key, Value: value})
		return err
	}
	sameBytes(t, get(alpha, "instance", "", "k"), &pluginv1.GetStateResponse{})
	first := object(t, map[string]any{"n": 1, "list": []any{nil, true, "ä\u2028\x00", map[string]any{}}})
	second := object(t, map[string]any{"n": 2})
	w.must(set(alpha, "instance", "", "k", first))
	w.must(set(alpha, "no scope that is known", "x", "k", second))
	sameBytes(t, get(alpha, "instance", "", "k"), &pluginv1.GetStateResponse{Found: true, Value: first})
	sameBytes(t, get(alpha, "no scope that is known", "x", "k"), &pluginv1.GetStateResponse{Found: true, Value: second})
	sameBytes(t, get(alpha, "instance", "x", "k"), &pluginv1.GetStateResponse{})
	// Another installation, of the same plugin or not, has its own.
	sameBytes(t, get(beta, "instance", "", "k"), &pluginv1.GetStateResponse{})
	w.must(set(beta, "instance", "", "k", second))
	w.must(set(alpha, "instance", "", "a", nil))
	w.clock.advance(90 * time.Second)
	w.must(set(alpha, "instance", "", "k", second))
	sameBytes(t, get(alpha, "instance", "", "a"), &pluginv1.GetStateResponse{Found: true, Value: &structpb.Struct{}})
	list, err := w.host.ListState(w.as(alpha), &pluginv1.ListStateRequest{Scope: "instance"})
	w.must(err)
	sameBytes(t, list, &pluginv1.ListStateResponse{Entries: []*pluginv1.StateEntry{
		{Key: "a", Value: &structpb.Struct{}, UpdatedAt: "2026-05-04T03:02:01Z"},
		{Key: "k", Value: second, UpdatedAt: "2026-05-04T03:03:31Z"},
	}})
	for range 2 {
		_, err = w.host.DeleteState(w.as(alpha), &pluginv1.DeleteStateRequest{Scope: "instance", Key: "k"})
		w.must(err)
	}
	sameBytes(t, get(alpha, "instance", "", "k"), &pluginv1.GetStateResponse{})
	sameBytes(t, get(beta, "instance", "", "k"), &pluginv1.GetStateResponse{Found: true, Value: second})

	long := strings.Repeat("x", 2000)
	big := object(t, map[string]any{"v": strings.Repeat("x", legacy.MaxStateValueBytes-len(`{"v":""}`))})
	w.must(set(alpha, strings.Repeat("s", legacy.MaxStateScopeBytes), strings.Repeat("i", legacy.MaxStateNameBytes), strings.Repeat("k", legacy.MaxStateNameBytes), big))
	for _, c := range []struct {
		scope, scopeID, key string
		value               *structpb.Struct
		text                string
	}{
		{long, "", "k", nil, "scope is longer than 256 bytes"},
		{"s", long, "k", nil, "scope_id is longer than 1024 bytes"},
		{"s", "", long, nil, "key is longer than 1024 bytes"},
		{"s\x00", "", "k", nil, "scope holds a NUL byte"},
		{"s", "\x00", "k", nil, "scope_id holds a NUL byte"},
		{"s", "", "\x00k", nil, "key holds a NUL byte"},
		{"s", "", "k", object(t, map[string]any{"v": strings.Repeat("x", legacy.MaxStateValueBytes)}), "value is longer than 262144 bytes as JSON"},
		{"s", "", "k", object(t, map[string]any{"v": []any{map[string]any{"v": math.NaN()}}}), "value holds a number that JSON doesn't have"},
		{"s", "", "k", object(t, map[string]any{"v": math.Inf(-1)}), "value holds a number that JSON doesn't have"},
	} {
		wants(t, c.text, set(alpha, c.scope, c.scopeID, c.key, c.value), codes.InvalidArgument, c.text)
	}
	_, err = w.host.GetState(w.as(alpha), &pluginv1.GetStateRequest{Key: long})
	wants(t, "get", err, codes.InvalidArgument, "key is longer than 1024 bytes")
	_, err = w.host.DeleteState(w.as(alpha), &pluginv1.DeleteStateRequest{ScopeId: long})
	wants(t, "delete", err, codes.InvalidArgument, "scope_id is longer than 1024 bytes")
	_, err = w.host.ListState(w.as(alpha), &pluginv1.ListStateRequest{Scope: long})
	wants(t, "list", err, codes.InvalidArgument, "scope is longer than 256 bytes")

	for n := range 13 {
		w.must(set(alpha, "big", "", fmt.Sprint(n), big))
		_, err = w.host.ListState(w.as(alpha), &pluginv1.ListStateRequest{Scope: "big"})
		if n < 11 {
			w.must(err)
		}
	}
	wants(t, "a list beyond one answer", err, codes.ResourceExhausted, "the state of this scope is longer than the 3145728 bytes of one answer; read its entries one by one")
	err = nil
	for n := 13; n < 200 && err == nil; n++ {
		err = set(alpha, "big", "", fmt.Sprint(n), big)
	}
	wants(t, "state beyond all", err, codes.ResourceExhausted, "the state of this installation would be longer than 33554432 bytes")
	w.must(set(alpha, "big", "", "0", second))
}

func TestV1StateEntriesAreBounded(t *testing.T) {
	w := newV1World(t)
	var writers sync.WaitGroup
	const each = legacy.MaxStateEntries / 16
	for n := range 16 {
		writers.Go(func() {
			for i := range each {
				if err := w.v1.SetState(context.Background(), legacy.Caller{InstallationID: alpha}, "s", "", fmt.Sprintf("%d-%d", n, i), nil); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	set := func(key string) error {
		_, err := w.host.SetState(w.as(alpha), &pluginv1.SetStateRequest{Scope: "s", Key: key})
		return err
	}
	w.must(set("0-0"))
	wants(t, "one too many", set("new"), codes.ResourceExhausted, "this installation keeps 10000 entries of state, which is all that it may")
	_, err := w.host.DeleteState(w.as(alpha), &pluginv1.DeleteStateRequest{Scope: "s", Key: "1-1"})
	w.must(err)
	w.must(set("new"))
	_, err = w.host.SetState(w.as(beta), &pluginv1.SetStateRequest{Scope: "s", Key: "new"})
	w.must(err)
}

func TestV1Secrets(t *testing.T) {
	w := newV1World(t)
	get := func(as, key string) *pluginv1.GetSecretResponse {
		t.Helper()
		response, err := w.host.GetSecret(w.as(as), &pluginv1.GetSecretRequest{Key: key})
		w.must(err)
		return response
	}
	set := func(as, key, value string) error {
		_, err := w.host.SetSecret(w.as(as), &pluginv1.SetSecretRequest{Key: key, Value: value})
		return err
	}
	sameBytes(t, get(alpha, "token"), &pluginv1.GetSecretResponse{})
	w.must(set(alpha, "token", "first"))
	w.must(set(alpha, "token", "second ä"))
	w.must(set(alpha, "empty", ""))
	w.must(set(beta, "token", "beta's"))
	sameBytes(t, get(alpha, "token"), &pluginv1.GetSecretResponse{Found: true, Value: "second ä"})
	sameBytes(t, get(alpha, "empty"), &pluginv1.GetSecretResponse{Found: true})
	sameBytes(t, get(beta, "token"), &pluginv1.GetSecretResponse{Found: true, Value: "beta's"})
	for range 2 {
		_, err := w.host.DeleteSecret(w.as(alpha), &pluginv1.DeleteSecretRequest{Key: "token"})
		w.must(err)
	}
	sameBytes(t, get(alpha, "token"), &pluginv1.GetSecretResponse{})
	sameBytes(t, get(beta, "token"), &pluginv1.GetSecretResponse{Found: true, Value: "beta's"})

	for _, key := range []string{"", "-a", ".a", "a b", "ä", "a/b", "a\n", strings.Repeat("k", 129)} {
		text := fmt.Sprintf("invalid secret key %q", key)
		wants(t, "set", set(alpha, key, "v"), codes.InvalidArgument, text)
		_, err := w.host.GetSecret(w.as(alpha), &pluginv1.GetSecretRequest{Key: key})
		wants(t, "get", err, codes.InvalidArgument, text)
		_, err = w.host.DeleteSecret(w.as(alpha), &pluginv1.DeleteSecretRequest{Key: key})
		wants(t, "delete", err, codes.InvalidArgument, text)
	}
	w.must(set(alpha, strings.Repeat("k", 128), strings.Repeat("v", legacy.MaxSecretBytes)))
	wants(t, "a long value", set(alpha, "k", strings.Repeat("v", legacy.MaxSecretBytes+1)), codes.InvalidArgument, "value is longer than 65536 bytes")
	for n := range legacy.MaxSecrets - 2 {
		w.must(set(alpha, fmt.Sprint(n), "v"))
	}
	wants(t, "one too many", set(alpha, "new", "v"), codes.ResourceExhausted, "this installation keeps 256 secrets, which is all that it may")
	w.must(set(alpha, "0", "w"))
}

// TestV1UninstalledUnderTheCall: what the view allows and the store knows better.
func TestV1UninstalledUnderTheCall(t *testing.T) {
	w := newV1World(t)
	w.must(w.store.Tombstone(t.Context(), alpha))
	_, err := w.host.SetState(w.as(alpha), &pluginv1.SetStateRequest{Key: "k"})
	wants(t, "state", err, codes.PermissionDenied, "the plugin is not installed")
	_, err = w.host.SetSecret(w.as(alpha), &pluginv1.SetSecretRequest{Key: "k"})
	wants(t, "secret", err, codes.PermissionDenied, "the plugin is not installed")
}

func TestV1SecretsWithoutAVault(t *testing.T) {
	w := newV1World(t, func(o *options) { o.server = func(c *rpc.Config) { c.V1.Vault = nil } })
	const text = "plugins: secret vault not configured"
	_, err := w.host.GetSecret(w.as(alpha), &pluginv1.GetSecretRequest{Key: "k"})
	wants(t, "get", err, codes.Unknown, text)
	_, err = w.host.SetSecret(w.as(alpha), &pluginv1.SetSecretRequest{Key: "k", Value: "v"})
	wants(t, "set", err, codes.Unknown, text)
	_, err = w.host.DeleteSecret(w.as(alpha), &pluginv1.DeleteSecretRequest{Key: "k"})
	wants(t, "delete", err, codes.Unknown, text)
	// What operators give by reference is in no vault of ours.
	w.config.set(alpha, legacy.Config{Standing: legacy.ConfigAccepted, Secrets: map[string]legacy.ConfigSecret{"token": {Value: "v"}}})
	revealed, err := w.host.RevealSecret(w.as(alpha), &pluginv1.RevealSecretRequest{Ref: "secretRefs/token"})
	if err != nil || revealed.GetValue() != "v" {
		t.Errorf("revealed %v, %v", revealed, err)
	}
}

// TestI14_SecretsAreNowhereElse: not in the database, not in a log, a receipt or an
// error, whatever happens to the row.
func TestI14_SecretsAreNowhereElse(t *testing.T) {
	const secret = "s3cr3t-of-the-plugin"
	w := newV1World(t)
	for _, key := range []string{"token", "other"} {
		_, err := w.host.SetSecret(w.as(alpha), &pluginv1.SetSecretRequest{Key: key, Value: secret + key})
		w.must(err)
	}
	token, _, err := w.store.Secret(t.Context(), alpha, "token")
	w.must(err)
	// Whoever can write the database puts one row into the place of another.
	for _, c := range []struct{ installation, key string }{{alpha, "other"}, {beta, "token"}} {
		swapped := token
		swapped.InstallationID, swapped.Key = c.installation, c.key
		w.must(w.store.PutSecret(t.Context(), swapped, ownReceipt(swapped.InstallationID), func(int) error { return nil }))
		_, err = w.host.GetSecret(w.as(c.installation), &pluginv1.GetSecretRequest{Key: c.key})
		wants(t, "a swapped row", err, codes.Unavailable, "the Host can't serve this call now; try the same again")
	}
	// A value that is refused, and one that isn't.
	_, err = w.host.SetSecret(w.as(alpha), &pluginv1.SetSecretRequest{Key: "token", Value: strings.Repeat(secret, 10_000)})
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("a long value is answered %v", err)
	}
	if strings.Contains(w.log.String(), secret) {
		t.Errorf("the log holds the secret: %s", w.log)
	}
	if !strings.Contains(w.log.String(), "open a secret of installation "+alpha) {
		t.Errorf("the log doesn't say whose secret doesn't open: %s", w.log)
	}
	// The database is in a folder beside this one.
	found := 0
	w.must(filepath.WalkDir(filepath.Dir(t.TempDir()), func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("%s holds the secret", entry.Name())
		}
		if bytes.Contains(text, []byte("plugin_secrets")) {
			found++
		}
		return err
	}))
	if found == 0 {
		t.Error("no file is the database's")
	}
}

// TestV1SecretsAreResealed: after a rotation the key of before can go.
func TestV1SecretsAreResealed(t *testing.T) {
	w := newV1World(t)
	ring := func(keys ...byte) *vault.Vault {
		t.Helper()
		var all [][]byte
		for _, key := range keys {
			all = append(all, bytes.Repeat([]byte{key}, vault.KeySize))
		}
		v, err := vault.New(all...)
		w.must(err)
		return v
	}
	const kept = 150 // more than two pages
	for n := range kept {
		w.must(w.v1.SetSecret(t.Context(), legacy.Caller{InstallationID: []string{alpha, beta}[n%2]}, fmt.Sprint(n), fmt.Sprint("value ", n)))
	}
	foreign := ring(9).Seal(alpha, "foreign", []byte("x"))
	w.must(w.store.PutSecret(t.Context(), legacy.Secret{InstallationID: alpha, Key: "foreign", Sealed: foreign}, ownReceipt(alpha), func(int) error { return nil }))
	for _, want := range []int{kept, 0} {
		resealed, lost, err := legacy.Reseal(t.Context(), w.store, ring(8, 7))
		if resealed != want || lost != 1 || err != nil {
			t.Errorf("%d are sealed anew, %d lost, %v; want %d", resealed, lost, err, want)
		}
	}
	w.v1.Vault = ring(8)
	for n := range kept {
		value, found, err := w.v1.GetSecret(t.Context(), legacy.Caller{InstallationID: []string{alpha, beta}[n%2]}, fmt.Sprint(n))
		if value != fmt.Sprint("value ", n) || !found || err != nil {
			t.Errorf("%d opens as %q, %t, %v", n, value, found, err)
		}
	}
	if _, _, err := w.v1.GetSecret(t.Context(), legacy.Caller{InstallationID: alpha}, "foreign"); !errors.Is(err, vault.ErrKey) {
		t.Errorf("a secret of another key opens with %v", err)
	}
}

func TestV1Config(t *testing.T) {
	w := newV1World(t)
	get := func(as string) (*structpb.Struct, error) {
		response, err := w.host.GetConfig(w.as(as), &pluginv1.GetConfigRequest{})
		return response.GetConfig(), err
	}
	// Of everything else nothing needs to be declared.
	bare := w.everything()
	bare.LegacyTerms = authority.LegacyTerms{}
	w.declared.set(alpha, bare)
	values := domain.Object{"channel": "standup", "days": 2.0, "nested": map[string]any{"list": []any{"a", nil}}, "token": "left in the clear"}
	for _, c := range []struct {
		name   string
		config legacy.Config
		want   map[string]any
		code   codes.Code
		text   string
	}{
		{"none", legacy.Config{Standing: legacy.ConfigAccepted}, map[string]any{}, codes.OK, ""},
		{"plain", legacy.Config{Standing: legacy.ConfigAccepted, Values: values}, values, codes.OK, ""},
		{
			"with secrets", legacy.Config{Standing: legacy.ConfigAccepted, Values: values, Secrets: map[string]legacy.ConfigSecret{
				"token": {Value: "s3cr3t"}, "more": {},
			}},
			map[string]any{"channel": "standup", "days": 2.0, "nested": values["nested"], "token": "s3cr3t", "more": ""}, codes.OK, "",
		},
		{
			"a secret that isn't there", legacy.Config{Standing: legacy.ConfigAccepted, Values: values, Secrets: map[string]legacy.ConfigSecret{
				"token": {Value: "s3cr3t"}, "more": {Fault: "its Secret isn't there"},
			}},
			nil, codes.Unknown, `plugins: the secret of config property "more" can't be resolved: its Secret isn't there`,
		},
		{"unknown", legacy.Config{Values: values}, nil, codes.Unavailable, "the configuration of this plugin isn't known at the moment; try the same again"},
		{
			"refused", legacy.Config{Standing: legacy.ConfigRefused, Values: values}, nil, codes.FailedPrecondition,
			"the configuration of this plugin isn't accepted; the installation's Accepted condition says why",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.config.set(alpha, c.config)
			before := maps.Clone(values)
			got, err := get(alpha)
			wants(t, "config", err, c.code, c.text)
			if err == nil {
				sameBytes(t, got, object(t, c.want))
			}
			if !maps.EqualFunc(before, values, func(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
				t.Errorf("what is configured was changed to %v", values)
			}
		})
	}
	// Nobody has another one's.
	w.config.set(alpha, legacy.Config{Standing: legacy.ConfigAccepted, Values: values})
	_, err := get(beta)
	wants(t, "another's", err, codes.Unavailable, "the configuration of this plugin isn't known at the moment; try the same again")
}

// TestI14_RevealSecretRevealsWhatWasGiven and answers everything else alike.
func TestI14_RevealSecretRevealsWhatWasGiven(t *testing.T) {
	w := newV1World(t, func(o *options) { o.identity = plugins{} })
	accepted := func(value string) legacy.Config {
		return legacy.Config{
			Standing: legacy.ConfigAccepted, Values: domain.Object{"plain": "value"},
			Secrets: map[string]legacy.ConfigSecret{"token": {Value: value}, "broken": {Fault: "its Secret isn't there"}},
		}
	}
	w.config.set(alpha, accepted("alpha's"))
	w.config.set(beta, accepted("beta's"))
	_, err := w.host.SetSecret(w.as(alpha), &pluginv1.SetSecretRequest{Key: "own", Value: "own"})
	w.must(err)
	reveal := func(as, ref string) (string, error) {
		response, err := w.host.RevealSecret(w.as(as), &pluginv1.RevealSecretRequest{Ref: ref})
		return response.GetValue(), err
	}
	for ref, want := range map[string]string{
		"plugin:plugin-of-" + alpha + ":config:token": "alpha's", "secretRefs/token": "alpha's",
	} {
		if got, err := reveal(alpha, ref); err != nil || got != want {
			t.Errorf("%s is %q, %v", ref, got, err)
		}
	}
	for _, ref := range []string{
		"", "token", "plugin:plugin-of-" + alpha + ":config:", "plugin:plugin-of-" + alpha + ":config:plain", "secretRefs/", "secretRefs/plain",
		"plugin:plugin-of-" + alpha + ":secret:own", "plugin:plugin-of-" + beta + ":config:token", "plugin::config:token",
		"vault:plugin:plugin-of-" + alpha + ":config:token", "secretRefs/token/", "secretRefs/../token", "SecretRefs/token",
	} {
		_, err := reveal(alpha, ref)
		wants(t, ref, err, codes.Unknown, "plugins: secret not found")
	}
	_, err = reveal(alpha, "secretRefs/broken")
	wants(t, "unresolved", err, codes.Unknown, `plugins: the secret of config property "broken" can't be resolved: its Secret isn't there`)
	w.config.set(alpha, legacy.Config{Standing: legacy.ConfigRefused})
	_, err = reveal(alpha, "secretRefs/token")
	wants(t, "refused", err, codes.FailedPrecondition, "the configuration of this plugin isn't accepted; the installation's Accepted condition says why")
}

// TestV1BySDK plays state, secrets and configuration as a plugin has them.
func TestV1BySDK(t *testing.T) {
	w := newV1World(t)
	token := filepath.Join(t.TempDir(), "token")
	w.must(os.WriteFile(token, []byte("token-of-"+alpha), 0o600))
	connect := func(options ...sdk.Option) *sdk.Host {
		t.Helper()
		host, err := sdk.Connect(t.Context(), append([]sdk.Option{
			sdk.WithAddress(w.address), sdk.WithCAFile(w.certFile), sdk.WithTokenFile(token), sdk.WithPollInterval(time.Hour),
		}, options...)...)
		w.must(err)
		t.Cleanup(func() { w.must(host.Close()) })
		return host
	}
	host := connect()
	state := host.State("task", "t-1")
	if value, found, err := state.Get(t.Context(), "k"); value != nil || found || err != nil {
		t.Errorf("nothing is %v, %t, %v", value, found, err)
	}
	w.must(state.Set(t.Context(), "k", map[string]any{"n": 1.0}))
	if value, found, err := state.Get(t.Context(), "k"); value["n"] != 1.0 || !found || err != nil {
		t.Errorf("the value is %v, %t, %v", value, found, err)
	}
	entries, err := state.List(t.Context())
	if len(entries) != 1 || entries[0].Key != "k" || entries[0].Value["n"] != 1.0 || !entries[0].UpdatedAt.Equal(w.clock.Now().Truncate(time.Second)) || err != nil {
		t.Errorf("the list is %v, %v", entries, err)
	}
	w.must(state.Delete(t.Context(), "k"))
	if err := state.Set(t.Context(), "k", map[string]any{"n": func() {}}); err == nil {
		t.Error("what is no JSON was sent")
	}
	secrets := host.Secrets()
	w.must(secrets.Set(t.Context(), "k", "v"))
	if value, found, err := secrets.Get(t.Context(), "k"); value != "v" || !found || err != nil {
		t.Errorf("the secret is %q, %t, %v", value, found, err)
	}
	w.must(secrets.Delete(t.Context(), "k"))
	if _, found, err := secrets.Get(t.Context(), "k"); found || err != nil {
		t.Errorf("a removed secret is there: %t, %v", found, err)
	}
	w.config.set(alpha, legacy.Config{
		Standing: legacy.ConfigAccepted, Values: domain.Object{"days": 2.0}, Secrets: map[string]legacy.ConfigSecret{"token": {Value: "given"}},
	})
	if config, err := host.Config(t.Context()); config["days"] != 2.0 || config["token"] != "given" || err != nil {
		t.Errorf("the configuration is %v, %v", config, err)
	}
	if value, err := secrets.Given(t.Context(), "token"); value != "given" || err != nil {
		t.Errorf("the operator gave %q, %v", value, err)
	}

	refused := func(what string, err error, code codes.Code, text string) {
		t.Helper()
		var answer *sdk.LegacyError
		if !errors.As(err, &answer) || answer.Code != code || answer.Message != text {
			t.Errorf("%s: %v, want %s %q", what, err, code, text)
		}
	}
	_, _, err = secrets.Get(t.Context(), "no key")
	refused("no key", err, codes.InvalidArgument, `invalid secret key "no key"`)
	undeclared := w.everything()
	undeclared.Declared = 0
	w.declared.set(alpha, undeclared)
	refused("undeclared", state.Set(t.Context(), "k", nil), codes.PermissionDenied, "capability 'state' not declared")
	// What isn't known at the moment is asked for again.
	w.declared.set(alpha, authority.Legacy{})
	refused("not known", connect(sdk.WithAttempts(1)).State("instance", "").Set(t.Context(), "k", nil), codes.Unavailable,
		"what this plugin may do isn't known at the moment; try the same again")
	time.AfterFunc(50*time.Millisecond, func() { w.declared.set(alpha, w.everything()) })
	w.must(state.Set(t.Context(), "k", nil))
}
