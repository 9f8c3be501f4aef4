package main

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

const deniedMissing = "DENIED/MISSING_CAPABILITY_APPROVAL"

// access makes the cases of who may call the method.
func (p *probe) access(ctx context.Context) {
	message := p.base(p.given.Workspace)
	for _, bad := range []struct{ name, header string }{
		{"no token", ""}, {"a token of nobody", "Bearer nonsense"}, {"another scheme", "Basic " + p.first().token},
		{"a token cut short", "Bearer " + p.first().token[:len(p.first().token)-3]},
	} {
		ctx := ctx
		if bad.header != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", bad.header)
		}
		a := p.call(ctx, p.method, message)
		problem := ""
		if a.code() != codes.Unauthenticated || len(status.Convert(a.err).Details()) != 0 {
			problem = "want Unauthenticated, and no details"
		}
		p.holds(bad.name, a, problem)
	}
	if p.exact() {
		p.exactAccess(ctx)
		return
	}
	need := needOf(p)
	for i := range p.given.Installations {
		of := &p.given.Installations[i]
		// Nothing in it is valid: who may call comes first.
		a := p.call(as(ctx, of.token), p.method, request(p.method))
		if refusal := of.refusalOfV1(need); refusal != "" {
			p.status("called by "+of.Name, a, codes.PermissionDenied, refusal)
			continue
		}
		problem := ""
		if a.code() == codes.Unauthenticated || a.code() == codes.Unimplemented ||
			a.code() == codes.PermissionDenied && !strings.Contains(a.text(), "plugin_owned_tasks") {
			problem = "it may call this method"
		}
		p.holds("called by "+of.Name, a, problem)
	}
}

func needOf(p *probe) []string {
	legacy, _ := proto.GetExtension(p.method.Options(), pluginv1.E_Legacy).(*pluginv1.Legacy)
	return legacy.GetDeclarations()
}

func capabilityOf(p *probe) string {
	c, _ := proto.GetExtension(p.method.Options(), pluginv1.E_Capability).(*pluginv1.Capability)
	return c.GetId()
}

func (p *probe) exactAccess(ctx context.Context) {
	capability := capabilityOf(p)
	if capability == "" {
		for i := range p.given.Installations {
			of := &p.given.Installations[i]
			p.ok("called by "+of.Name, p.call(as(ctx, of.token), p.method, message(p)), nil)
		}
		return
	}
	for i := range p.given.Installations {
		of := &p.given.Installations[i]
		for _, workspace := range []string{p.given.Workspace, p.given.ForeignWorkspace} {
			name := fmt.Sprintf("called by %s in %s", of.Name, workspace)
			a := p.call(as(ctx, of.token), p.method, p.base(workspace))
			if !of.approved(workspace, capability) {
				text := ""
				if a.err != nil {
					text = "missing_capability_approval"
				}
				p.typed(name, a, deniedMissing, "", text)
				continue
			}
			problem := ""
			if result := a.result(); result != nil && result.GetStatus() == pluginv1.HostCommandStatus_HOST_COMMAND_STATUS_DENIED &&
				result.GetReason() != "STALE_CAPABILITY_REVISION" || a.code() == codes.Unimplemented || a.code() == codes.Unauthenticated {
				problem = "it may call this method"
			}
			p.holds(name, a, problem)
		}
	}
	unknown := unknownLike(p.given.ForeignWorkspace)
	a, b := p.ask(ctx, p.base(p.given.ForeignWorkspace)), p.ask(ctx, p.base(unknown))
	p.same("a workspace that never approved, and one that isn't there: the same bytes", a, p.given.ForeignWorkspace, b, unknown)
}

// message is the base request in the workspace.
func message(p *probe) proto.Message { return p.base(p.given.Workspace) }

// unknownLike is a name that nothing has, as long as a name.
func unknownLike(name string) string { return strings.Repeat("z", len(name)) }
