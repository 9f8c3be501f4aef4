package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// patience bounds every call.
const patience = 20 * time.Second

// declaredContract is the contract version that the cases are made for.
const declaredContract = "2"

// suite is one run against one Host.
type suite struct {
	conn    *grpc.ClientConn
	host    pluginv1.HostClient
	given   *description
	content *known
	record  *record
	cases   map[string]methodCases
	// revisions are the first installation's capability revisions, by workspace.
	revisions map[string]uint64
	// id is the first installation's.
	id string
}

// run drives a Host and returns what it found. An error is that it couldn't be driven.
func run(ctx context.Context, conn *grpc.ClientConn, given *description, own build) (*record, error) {
	s := &suite{
		conn: conn, host: pluginv1.NewHostClient(conn), given: given, content: knownContent(given.Workspace, given.ForeignWorkspace, given.Installations[0].PluginID), cases: allCases(),
		record: &record{Suite: own, Host: given.Host, Contract: contractVersions{Declared: declaredContract}}, revisions: map[string]uint64{},
	}
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	s.record.Methods.Known = knownMethods()
	for _, name := range s.record.Methods.Served {
		if !slices.Contains(s.record.Methods.Known, name) {
			s.record.add(entry{Method: name, Name: "is known to the suite", Result: failed, Problem: "the Host serves a method that the suite has no cases of"})
		}
	}
	// The readers come first: the writers change what they expect.
	for _, writes := range []bool{false, true} {
		for i := range service.Methods().Len() {
			method := service.Methods().Get(i)
			if c, ok := s.cases[string(method.Name())]; ok && c.writes == writes || !ok && !writes {
				s.method(ctx, method)
			}
		}
	}
	return s.record, nil
}

// begin learns what the Host says of itself.
func (s *suite) begin(ctx context.Context) error {
	served, err := s.served(ctx)
	if err != nil {
		return err
	}
	s.record.Methods.Served = served
	for i := range s.given.Installations {
		of := &s.given.Installations[i]
		standing, err := s.host.GetCapabilityContext(as(ctx, of.token), &pluginv1.GetCapabilityContextRequest{RequestId: "begin"})
		if err != nil {
			return fmt.Errorf("ask what installation %q may do: %w", of.Name, err)
		}
		s.record.Contract.Actual = standing.GetContractVersion()
		for _, w := range standing.GetWorkspaces() {
			s.record.Revisions = append(s.record.Revisions, revision{of.Name, w.GetWorkspaceId(), w.GetState(), w.GetCapabilityRevision()})
			if i == 0 {
				s.revisions[w.GetWorkspaceId()] = w.GetCapabilityRevision()
			}
		}
	}
	one, err := s.host.GetCapabilityContext(as(ctx, s.first().token), &pluginv1.GetCapabilityContextRequest{RequestId: "begin", WorkspaceId: s.given.Workspace})
	if err != nil {
		return fmt.Errorf("ask what the first installation may do in %s: %w", s.given.Workspace, err)
	}
	s.id = one.GetContext().GetInstallationId()
	return nil
}

func (s *suite) first() *installation  { return &s.given.Installations[0] }
func (s *suite) second() *installation { return &s.given.Installations[1] }

// methodCases are the cases of one method, beside who may call it.
type methodCases struct {
	writes bool
	// base is a request that is well formed and means no harm; nil is an empty one.
	base func(s *suite, workspace string) proto.Message
	// list is set for what has pages.
	list *listCases
	run  func(context.Context, *probe)
}

// probe makes the cases of one method.
type probe struct {
	*suite
	method protoreflect.MethodDescriptor
	own    methodCases
}

func (s *suite) method(ctx context.Context, method protoreflect.MethodDescriptor) {
	p := &probe{suite: s, method: method, own: s.cases[string(method.Name())]}
	if _, ok := s.cases[string(method.Name())]; !ok {
		p.enter("has cases", failed, answer{}, "no case is written for this method")
		return
	}
	if !s.serves(string(method.Name())) {
		p.enter("is served", skipped, answer{}, "the Host doesn't declare this method")
		return
	}
	p.access(ctx)
	if p.own.list != nil {
		if p.exact() {
			p.exactList(ctx)
		} else {
			p.v1List(ctx)
		}
	}
	if p.own.run != nil {
		p.own.run(ctx, p)
	}
}

// serves tells whether the Host declares a method.
func (s *suite) serves(method string) bool { return slices.Contains(s.record.Methods.Served, method) }

// exact tells whether the method is of the exact contract.
func (p *probe) exact() bool { return proto.HasExtension(p.method.Options(), pluginv1.E_Capability) }

// base is a request that is well formed in a workspace.
func (p *probe) base(workspace string) proto.Message {
	if p.own.base == nil {
		return request(p.method)
	}
	return p.own.base(p.suite, workspace)
}

// ask calls the method as the first installation.
func (p *probe) ask(ctx context.Context, message proto.Message) answer {
	return p.call(as(ctx, p.first().token), p.method, message)
}

func (p *probe) enter(name, result string, a answer, problem string) {
	e := entry{Method: string(p.method.Name()), Name: name, Result: result, Code: a.code().String(), Text: a.text(), Problem: problem}
	if typed := a.result(); typed != nil && a.err == nil {
		e.Text = resultName(typed)
	}
	p.record.add(e)
}

// resultName is a result as STATE or STATE/REASON.
func resultName(result *pluginv1.HostCommandResult) string {
	name := strings.TrimPrefix(result.GetStatus().String(), "HOST_COMMAND_STATUS_")
	if result.GetReason() != "" {
		name += "/" + result.GetReason()
	}
	return name
}

// status demands a code and a whole text.
func (p *probe) status(name string, a answer, code codes.Code, text string) {
	problem := ""
	if a.code() != code || a.text() != text {
		problem = fmt.Sprintf("want %s %q", code, text)
	}
	p.holds(name, a, problem)
}

// begins demands a code, and how the text begins.
func (p *probe) begins(name string, a answer, code codes.Code, text string) {
	problem := ""
	if a.code() != code || !strings.HasPrefix(a.text(), text) {
		problem = fmt.Sprintf("want %s %q and so on", code, text)
	}
	p.holds(name, a, problem)
}

// holds enters a case that holds unless a problem is named.
func (p *probe) holds(name string, a answer, problem string) {
	result := passed
	if problem != "" {
		result = failed
	}
	p.enter(name, result, a, problem)
}

// ok demands a success of which a check finds no problem.
func (p *probe) ok(name string, a answer, check func() string) {
	problem := ""
	switch {
	case a.err != nil:
		problem = "want a success"
	case check != nil:
		problem = check()
	}
	p.holds(name, a, problem)
}

// typed demands an exact result: what a reader fails with, or a writer answers.
// A text other than "" is that of the status.
func (p *probe) typed(name string, a answer, want, field, text string) {
	result := a.result()
	problem := ""
	switch {
	case result == nil:
		problem = "want the result " + want + ", and there is none"
	case resultName(result) != want || field != "" && result.GetField() != field:
		problem = fmt.Sprintf("want %s of field %q, got %s of field %q: %s", want, field, resultName(result), result.GetField(), result.GetMessage())
	case result.GetAuditId() == "":
		problem = "the result has no audit_id"
	case a.err != nil && a.code() != codeOf(result.GetStatus()):
		problem = fmt.Sprintf("want the code %s of %s", codeOf(result.GetStatus()), want)
	case text != "" && a.text() != text:
		problem = fmt.Sprintf("want the text %q", text)
	}
	p.holds(name, a, problem)
}

// codeOf is the code of a reader that fails with a state.
func codeOf(state pluginv1.HostCommandStatus) codes.Code {
	switch state {
	case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_DENIED:
		return codes.PermissionDenied
	case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_CONFLICT:
		return codes.FailedPrecondition
	case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_NOT_FOUND:
		return codes.NotFound
	case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_INVALID:
		return codes.InvalidArgument
	case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_UNSUPPORTED:
		return codes.Unimplemented
	case pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_RATE_LIMITED:
		return codes.ResourceExhausted
	default:
		return codes.Unavailable
	}
}

// same demands that two questions have the same answer in bytes. The names that the
// questions have in them, each of its own, count as one.
func (p *probe) same(name string, a answer, aName string, b answer, bName string) {
	problem := ""
	x, y := strings.ReplaceAll(a.bytes(), aName, "*"), strings.ReplaceAll(b.bytes(), bName, "*")
	if len(aName) != len(bName) {
		problem = "the names in the questions must be of one length"
	} else if x != y {
		problem = fmt.Sprintf("the answers differ: %s %q and %s %q", a.code(), a.text(), b.code(), b.text())
	}
	p.holds(name, a, problem)
}
