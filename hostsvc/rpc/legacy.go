package rpc

import (
	"context"
	"errors"
	"log/slog"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// The adapters of v1 are in the files legacy_*.go. Each reads its request, calls the
// method of legacy.Host of its own name and writes the answer; the door has decided
// before that the call is allowed, and turns every failure into a status.

// v1Codes are the codes of v1's failures.
var v1Codes = map[legacy.Kind]codes.Code{
	legacy.Unknown:            codes.Unknown,
	legacy.InvalidArgument:    codes.InvalidArgument,
	legacy.NotFound:           codes.NotFound,
	legacy.FailedPrecondition: codes.FailedPrecondition,
	legacy.PermissionDenied:   codes.PermissionDenied,
	legacy.ResourceExhausted:  codes.ResourceExhausted,
	legacy.Unimplemented:      codes.Unimplemented,
	legacy.Unavailable:        codes.Unavailable,
}

// noLegacy sees nothing, so that nothing of v1 is allowed.
type noLegacy struct{}

// Legacy implements admission.LegacyView.
func (noLegacy) Legacy(string) authority.Legacy { return authority.Legacy{} }

// callerOf reads the v1 caller that the door put into ctx. It panics where there is
// none, like requestOf.
func callerOf(ctx context.Context) legacy.Caller {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok || !c.method.legacy {
		panic("a v1 call came past the door")
	}
	return legacy.Caller{
		InstallationID: c.principal.InstallationID, PluginID: c.principal.PluginID, Declared: c.declared, Still: c.still,
		AuditID: c.ownAuditID,
	}
}

// v1 runs a v1 call that has come in: it decides, and turns what comes back into
// what v1 answers.
func (d *door) v1(ctx context.Context, c *call, call func() (any, error)) (response any, err error) {
	if c.crowded {
		c.outcome.State, c.outcome.Reason = contract.StateUnavailable, contract.ReasonDependencyUnavailable
		return nil, status.Errorf(codes.Unavailable, "too many calls of this plugin are in flight; try the same again")
	}
	defer func() { response, err = d.recordedV1(ctx, c, response, err) }()
	seen := d.legacy.Legacy(c.principal.InstallationID)
	if refusal := admission.AuthoriseLegacy(seen, c.method.need, d.now()); refusal != nil {
		return nil, c.v1Refused(refusal)
	}
	c.declared = seen.Declared
	if ownWriters[c.method.Name] {
		c.ownAuditID = uuid.NewString()
	}
	c.still = func() error {
		if refusal := admission.AuthoriseLegacy(d.legacy.Legacy(c.principal.InstallationID), c.method.need, d.now()); refusal != nil {
			return refusal
		}
		return nil
	}
	defer func() {
		if cause := recover(); cause != nil {
			d.logPanic(c, cause)
			response, err = nil, c.v1Fault()
		}
	}()
	response, err = call()
	if err == nil {
		c.outcome.State = contract.StateApplied
		return response, nil
	}
	var failure *legacy.Failure
	var refusal *admission.LegacyRefusal
	switch {
	case errors.As(err, &failure):
		c.outcome.State, c.outcome.Reason = v1State(failure.Kind), ""
		return nil, status.Errorf(v1Codes[failure.Kind], "%s", failure.Text)
	case errors.As(err, &refusal):
		return nil, c.v1Refused(refusal)
	case status.Code(err) == codes.Unimplemented:
		// The method is declared and has no adapter.
		c.outcome.State = contract.StateUnsupported
		return nil, err
	}
	if ctx.Err() == nil {
		d.log.LogAttrs(ctx, slog.LevelError, "a v1 call failed", slog.String("method", c.method.Name), slog.Any("error", err))
	}
	return nil, c.v1Fault()
}

func (c *call) v1Refused(refusal *admission.LegacyRefusal) error {
	if refusal.Unavailable {
		c.outcome.State, c.outcome.Reason = contract.StateUnavailable, contract.ReasonDependencyUnavailable
		return status.Errorf(codes.Unavailable, "%s", refusal.Message)
	}
	c.outcome.State, c.outcome.Reason = contract.StateDenied, contract.ReasonMissingCapabilityApproval
	return status.Errorf(codes.PermissionDenied, "%s", refusal.Message)
}

// v1Fault is the answer to a call that met a fault of this Host: no text of it
// leaves (I14).
func (c *call) v1Fault() error {
	c.outcome.State, c.outcome.Reason = contract.StateUnavailable, contract.ReasonDependencyUnavailable
	return status.Errorf(codes.Unavailable, "the Host can't serve this call now; try the same again")
}

// v1State is a failure in the words that calls are observed by.
func v1State(kind legacy.Kind) contract.State {
	switch kind {
	case legacy.NotFound:
		return contract.StateNotFound
	case legacy.InvalidArgument, legacy.Unknown:
		// v1 has no better word for some requests that can't be answered.
		return contract.StateInvalid
	case legacy.FailedPrecondition:
		return contract.StateConflict
	case legacy.PermissionDenied:
		return contract.StateDenied
	case legacy.ResourceExhausted:
		return contract.StateRateLimited
	case legacy.Unimplemented:
		return contract.StateUnsupported
	case legacy.Unavailable:
	}
	return contract.StateUnavailable
}

// v1Page reads a v1 page.
func v1Page(page *pluginv1.Page) legacy.Page {
	return legacy.Page{Limit: page.GetLimit(), Cursor: page.GetCursor()}
}

// v1PageInfo writes what follows a v1 page.
func v1PageInfo(info legacy.PageInfo) *pluginv1.PageInfo {
	return &pluginv1.PageInfo{NextCursor: info.NextCursor, HasMore: info.HasMore}
}
