package rpc

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// method is the registry's row of one RPC.
type method struct {
	admission.Method
	// open: it needs no capability, and says why in the proto.
	open bool
	// legacy: it is of v1, and needs what need says and nothing else (I12).
	legacy bool
	need   admission.LegacyNeed
	// streams: it answers with a stream.
	streams bool
	// envelope reads the envelope from a request of this RPC.
	envelope func(request any) admission.Envelope
	// nested: its request has messages inside.
	nested bool
	// response is the type of the answer.
	response protoreflect.MessageType
}

// firstAdded is the first number of a field that this contract adds to a shipped
// message (host contract, "One wire for three worlds").
const firstAdded = 100

// registry knows every RPC of a service by its full method, "/service/name".
type registry struct {
	methods map[string]*method
	// order is the service's own, of the exact operations that are described:
	// what else is declared is not served yet.
	order []*method
}

// newRegistry makes the registry of a service from its declaration: the method
// option says which capability an RPC needs, or what a v1 RPC must find
// declared, or why nothing. An RPC without a usable entry is an error, so it
// can't be served (I2).
func newRegistry(service protoreflect.ServiceDescriptor) (*registry, error) {
	r := &registry{methods: map[string]*method{}}
	for i := range service.Methods().Len() {
		descriptor := service.Methods().Get(i)
		row, err := newMethod(descriptor)
		if err != nil {
			return nil, fmt.Errorf("register %s: %w", descriptor.FullName(), err)
		}
		r.methods[fmt.Sprintf("/%s/%s", service.FullName(), descriptor.Name())] = row
		if !row.legacy && !row.streams && descriptions[row.Name] != "" {
			r.order = append(r.order, row)
		}
	}
	return r, nil
}

func newMethod(descriptor protoreflect.MethodDescriptor) (*method, error) {
	row := &method{
		Method: admission.Method{Name: string(descriptor.Name())}, envelope: envelopeOf, streams: descriptor.IsStreamingServer(),
	}
	exact, legacy := proto.HasExtension(descriptor.Options(), pluginv1.E_Capability), proto.HasExtension(descriptor.Options(), pluginv1.E_Legacy)
	switch {
	case exact && legacy:
		return nil, fmt.Errorf("it is of v1 and names a capability")
	case legacy:
		if err := row.requireDeclarations(descriptor); err != nil {
			return nil, err
		}
		return row, nil
	}
	if err := row.require(descriptor); err != nil {
		return nil, err
	}
	if descriptor.IsStreamingClient() || row.streams && !row.open {
		return nil, fmt.Errorf("it streams, and what it needs can't be checked once for all messages")
	}
	if row.streams {
		return row, nil
	}
	request, err := protoregistry.GlobalTypes.FindMessageByName(descriptor.Input().FullName())
	if err != nil {
		return nil, fmt.Errorf("find the type of its request: %w", err)
	}
	for i := range descriptor.Input().Fields().Len() {
		field := descriptor.Input().Fields().Get(i)
		row.nested = row.nested || field.Message() != nil
		if field.Number() >= firstAdded {
			row.Added = append(row.Added, string(field.Name()))
		}
	}
	if err := row.checkRequest(request.New().Interface()); err != nil {
		return nil, err
	}
	if row.response, err = protoregistry.GlobalTypes.FindMessageByName(descriptor.Output().FullName()); err != nil {
		return nil, fmt.Errorf("find the type of its response: %w", err)
	}
	if field := row.response.Descriptor().Fields().ByName(resultField); row.Writer &&
		(field == nil || field.Message() == nil || field.Message().FullName() != resultMessage) {
		return nil, fmt.Errorf("its response has no %s of type %s", resultField, resultMessage)
	}
	return row, nil
}

// require reads the option. A writer is what needs a capability to write.
func (m *method) require(descriptor protoreflect.MethodDescriptor) error {
	if !proto.HasExtension(descriptor.Options(), pluginv1.E_Capability) {
		return fmt.Errorf("it names no capability, and no reason to need none")
	}
	option, _ := proto.GetExtension(descriptor.Options(), pluginv1.E_Capability).(*pluginv1.Capability)
	switch requirement := option.GetRequirement().(type) {
	case *pluginv1.Capability_NoneReason:
		if strings.TrimSpace(requirement.NoneReason) == "" {
			return fmt.Errorf("it needs no capability and does not say why")
		}
		m.open = true
		return nil
	case *pluginv1.Capability_Id:
		capability, err := contract.ParseCapability(requirement.Id)
		if err != nil {
			return fmt.Errorf("read its capability: %w", err)
		}
		m.Capability = capability
		m.Writer = strings.HasPrefix(requirement.Id, contract.WritePrefix)
		return nil
	default:
		return fmt.Errorf("it names neither a capability nor a reason to need none")
	}
}

// requireDeclarations reads the option of a v1 RPC.
func (m *method) requireDeclarations(descriptor protoreflect.MethodDescriptor) error {
	if descriptor.IsStreamingClient() || descriptor.IsStreamingServer() {
		return fmt.Errorf("it is of v1 and streams")
	}
	option, _ := proto.GetExtension(descriptor.Options(), pluginv1.E_Legacy).(*pluginv1.Legacy)
	if (len(option.GetDeclarations()) == 0) == (strings.TrimSpace(option.GetNoneReason()) == "") {
		return fmt.Errorf("it names neither declarations nor a reason to need none, or both")
	}
	m.legacy = true
	for _, name := range option.GetDeclarations() {
		declaration, ok := contract.ParseLegacyCapability(name)
		if !ok || !contract.LegacyDeclarable.Has(declaration) {
			return fmt.Errorf("it needs a declaration %q that no manifest can make", name)
		}
		m.need = append(m.need, declaration)
	}
	return nil
}

// The getters that protoc generates for the parts of an envelope.
type (
	exactRequest interface {
		GetRequestId() string
		GetWorkspaceId() string
	}
	revisedRequest interface{ GetCapabilityRevision() uint64 }
	writerRequest  interface {
		GetIdempotencyKey() string
		GetManifestDigest() string
		GetGuard() *pluginv1.PendingTransitionGuard
		GetProvenance() *pluginv1.ManagedExecutionProvenance
	}
)

// checkRequest says what a request lacks for its envelope to be read.
func (m *method) checkRequest(request any) error {
	if _, ok := request.(exactRequest); !ok {
		return fmt.Errorf("its request has no request_id and workspace_id")
	}
	if _, ok := request.(revisedRequest); !ok && !m.open {
		return fmt.Errorf("its request has no capability_revision")
	}
	if _, ok := request.(writerRequest); !ok && m.Writer {
		return fmt.Errorf("its request lacks one of idempotency_key, manifest_digest, guard and provenance")
	}
	return nil
}

// envelopeOf reads an envelope by the generated getters.
func envelopeOf(request any) admission.Envelope {
	var env admission.Envelope
	if r, ok := request.(exactRequest); ok {
		env.RequestID, env.WorkspaceID = r.GetRequestId(), r.GetWorkspaceId()
	}
	if r, ok := request.(revisedRequest); ok {
		env.Revision = r.GetCapabilityRevision()
	}
	if r, ok := request.(writerRequest); ok {
		env.IdempotencyKey, env.ManifestDigest = r.GetIdempotencyKey(), r.GetManifestDigest()
		env.Guard, env.Provenance = guardOf(r.GetGuard()), provenanceOf(r.GetProvenance())
	}
	return env
}

func guardOf(guard *pluginv1.PendingTransitionGuard) *admission.Guard {
	switch expectation := guard.GetExpectation().(type) {
	case *pluginv1.PendingTransitionGuard_ExpectNone:
		return &admission.Guard{ExpectNone: true}
	case *pluginv1.PendingTransitionGuard_PendingTransition:
		return &admission.Guard{Named: &admission.NamedTransition{
			ID:              expectation.PendingTransition.GetPendingTransitionId(),
			ResourceVersion: expectation.PendingTransition.GetResourceVersion(),
		}}
	default:
		return nil
	}
}

func provenanceOf(provenance *pluginv1.ManagedExecutionProvenance) *admission.Provenance {
	if provenance == nil {
		return nil
	}
	return &admission.Provenance{
		ConversationID: provenance.GetConversationId(), SessionID: provenance.GetSessionId(),
		GenerationToken: provenance.GetExecutionGenerationToken(),
	}
}
