package rpc

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/identity"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// somebody is always the same installation.
type somebody struct{ nobody }

func (somebody) Authenticate(context.Context, string) (identity.Principal, error) {
	return identity.Principal{InstallationID: "installation", PluginID: "standup"}, nil
}

// declares is a view of one installation that declares everything.
type declares struct{ until time.Time }

func (d declares) Legacy(string) authority.Legacy {
	return authority.Legacy{FreshUntil: d.until, Installed: true, LegacyTerms: authority.LegacyTerms{Declared: contract.LegacyDeclarable}}
}

// outcomes keeps what is observed.
type outcomes struct{ all []Outcome }

func (o *outcomes) Called(outcome Outcome) { o.all = append(o.all, outcome) }

// v1Door is a door that serves one installation, with what it logs and observes.
func v1Door(t *testing.T) (d *door, log *strings.Builder, seen *outcomes) {
	t.Helper()
	d = newDoor(t)
	log, seen = &strings.Builder{}, &outcomes{}
	d.identity, d.observer = somebody{}, seen
	d.legacy = declares{until: d.now().Add(time.Hour)}
	d.log = slog.New(slog.NewTextHandler(log, nil))
	return d, log, seen
}

func (d *door) ask(t *testing.T, method string, answer func(context.Context) (any, error)) (any, error) {
	t.Helper()
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer token"))
	return d.unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/kandev.plugin.v1.Host/" + method},
		func(ctx context.Context, _ any) (any, error) { return answer(ctx) })
}

// TestV1FailuresAreStatuses: each kind has its code and its whole text, and what is
// no failure of v1 has neither (I14).
func TestV1FailuresAreStatuses(t *testing.T) {
	const private = "pq: password of /var/lib/secret"
	const fault = "the Host can't serve this call now; try the same again"
	failure := func(kind legacy.Kind) error { return &legacy.Failure{Kind: kind, Text: "shipped text"} }
	for name, c := range map[string]struct {
		err   error
		code  codes.Code
		text  string
		state contract.State
	}{
		"unknown":             {failure(legacy.Unknown), codes.Unknown, "shipped text", contract.StateInvalid},
		"invalid":             {failure(legacy.InvalidArgument), codes.InvalidArgument, "shipped text", contract.StateInvalid},
		"not found":           {failure(legacy.NotFound), codes.NotFound, "shipped text", contract.StateNotFound},
		"failed precondition": {failure(legacy.FailedPrecondition), codes.FailedPrecondition, "shipped text", contract.StateConflict},
		"denied":              {failure(legacy.PermissionDenied), codes.PermissionDenied, "shipped text", contract.StateDenied},
		"exhausted":           {failure(legacy.ResourceExhausted), codes.ResourceExhausted, "shipped text", contract.StateRateLimited},
		"unimplemented":       {failure(legacy.Unimplemented), codes.Unimplemented, "shipped text", contract.StateUnsupported},
		"unavailable":         {failure(legacy.Unavailable), codes.Unavailable, "shipped text", contract.StateUnavailable},
		"wrapped":             {errors.Join(errors.New(private), failure(legacy.NotFound)), codes.NotFound, "shipped text", contract.StateNotFound},
		"late refusal": {
			admission.LegacyNotDeclared("plugin_owned_tasks"), codes.PermissionDenied,
			"capability 'plugin_owned_tasks' not declared", contract.StateDenied,
		},
		"no adapter": {status.Error(codes.Unimplemented, "method GetState not implemented"), codes.Unimplemented, "method GetState not implemented", contract.StateUnsupported},
		"fault":      {errors.New(private), codes.Unavailable, fault, contract.StateUnavailable},
		"a status from within": {
			status.Error(codes.PermissionDenied, private), codes.Unavailable, fault, contract.StateUnavailable,
		},
		"nothing": {nil, codes.OK, "", contract.StateApplied},
	} {
		t.Run(name, func(t *testing.T) {
			d, log, seen := v1Door(t)
			answer, err := d.ask(t, "GetState", func(context.Context) (any, error) { return "answer", c.err })
			if status.Code(err) != c.code || status.Convert(err).Message() != c.text || len(status.Convert(err).Details()) != 0 {
				t.Errorf("got %v, want %s %q", err, c.code, c.text)
			}
			if (answer == "answer") != (c.err == nil) {
				t.Errorf("the answer is %v with %v", answer, err)
			}
			if len(seen.all) != 1 || seen.all[0].State != c.state || seen.all[0].Method != "GetState" {
				t.Errorf("observed: %+v, want %s", seen.all, c.state)
			}
			// The cause of a fault is for the operator.
			if isFault := c.text == fault; strings.Contains(log.String(), private) != isFault {
				t.Errorf("the log is %q", log)
			}
		})
	}
}

func TestV1PanicIsAFault(t *testing.T) {
	d, log, seen := v1Door(t)
	answer, err := d.ask(t, "SetSecret", func(context.Context) (any, error) { panic("of a private value") })
	if answer != nil || status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "private") {
		t.Errorf("got %v, %v", answer, err)
	}
	if len(seen.all) != 1 || seen.all[0].State != contract.StateUnavailable || !strings.Contains(log.String(), "panicked") {
		t.Errorf("observed %+v, logged %q", seen.all, log)
	}
	// The door still serves.
	if _, err := d.ask(t, "SetSecret", func(context.Context) (any, error) { return "answer", nil }); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// TestV1Crowd: the door's limit is one call in flight, and v1 calls count like
// exact ones.
func TestV1Crowd(t *testing.T) {
	d, _, seen := v1Door(t)
	reached := false
	_, err := d.ask(t, "ListTasks", func(context.Context) (any, error) {
		return d.ask(t, "GetConfig", func(context.Context) (any, error) {
			reached = true
			return "answer", nil
		})
	})
	if len(seen.all) != 2 || seen.all[0].Method != "GetConfig" || seen.all[0].State != contract.StateUnavailable ||
		seen.all[0].Reason != contract.ReasonDependencyUnavailable {
		t.Errorf("observed %+v, %v", seen.all, err)
	}
	if reached {
		t.Error("a call beyond the limit was served")
	}
	if _, err := d.ask(t, "GetConfig", func(context.Context) (any, error) { return "answer", nil }); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// TestI12_AdaptersKnowTheirWorld: an adapter of one world can't be reached by a
// call of the other, nor past the door.
func TestI12_AdaptersKnowTheirWorld(t *testing.T) {
	panics := func(fn func()) (did bool) {
		defer func() { did = recover() != nil }()
		fn()
		return false
	}
	d, _, _ := v1Door(t)
	if !panics(func() { callerOf(t.Context()) }) {
		t.Error("a v1 adapter answers past the door")
	}
	exact := context.WithValue(t.Context(), callKey{}, &call{method: d.registry.methods["/kandev.plugin.v1.Host/GetTaskExact"]})
	if !panics(func() { callerOf(exact) }) {
		t.Error("a v1 adapter answers an exact call")
	}
	_, err := d.ask(t, "GetTask", func(ctx context.Context) (any, error) {
		if caller := callerOf(ctx); caller.InstallationID != "installation" || caller.PluginID != "standup" || !caller.Declared.Has(contract.LegacyReadTasks) {
			t.Errorf("the caller is %+v", caller)
		}
		if !panics(func() { requestOf(ctx, &pluginv1.GetTaskExactRequest{}) }) {
			t.Error("an exact adapter answers a v1 call")
		}
		return "answer", nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestI12_NoViewAllowsNothing: a server that is given no view of declarations.
func TestI12_NoViewAllowsNothing(t *testing.T) {
	d, _, _ := v1Door(t)
	d.legacy = noLegacy{}
	for name, row := range d.registry.methods {
		if !row.legacy {
			continue
		}
		_, err := d.ask(t, strings.TrimPrefix(name, "/kandev.plugin.v1.Host/"), func(context.Context) (any, error) { return "answer", nil })
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}
