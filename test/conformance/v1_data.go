package main

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// v1Data are the cases of what a plugin keeps: state, secrets, configuration, events.
func v1Data() map[string]methodCases {
	return map[string]methodCases{
		"GetState":     {run: getState},
		"SetState":     {run: setState},
		"DeleteState":  {run: deleteState},
		"ListState":    {run: listState},
		"RevealSecret": {run: revealSecret},
		"GetSecret":    {run: getSecret},
		"SetSecret":    {run: setSecret},
		"DeleteSecret": {run: deleteSecret},
		"EmitEvent":    {run: emitEvent},
		"GetConfig":    {run: getConfig},
	}
}

// scope is the suite's own in each plugin's state.
const scope = "conformance"

func object(text string) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{"k": structpb.NewStringValue(text)}}
}

func (p *probe) setState(ctx context.Context, of *installation, id, key string, value *structpb.Struct) answer {
	r, err := p.host.SetState(as(ctx, of.token), &pluginv1.SetStateRequest{Scope: scope, ScopeId: id, Key: key, Value: value})
	return answer{r, err}
}

func (p *probe) getState(ctx context.Context, of *installation, id, key string) (*pluginv1.GetStateResponse, answer) {
	r, err := p.host.GetState(as(ctx, of.token), &pluginv1.GetStateRequest{Scope: scope, ScopeId: id, Key: key})
	return r, answer{r, err}
}

// finds demands what is found of a state: "" is nothing.
func (p *probe) finds(ctx context.Context, name string, of *installation, id, key, want string) {
	r, a := p.getState(ctx, of, id, key)
	p.ok(name, a, func() string {
		got := r.GetValue().GetFields()["k"].GetStringValue()
		if r.GetFound() != (want != "") || got != want {
			return fmt.Sprintf("found %t: %q, want %q", r.GetFound(), got, want)
		}
		return ""
	})
}

func getState(ctx context.Context, p *probe) {
	p.finds(ctx, "a key that isn't there is no error", p.first(), "", "cf-nothing", "")
	p.setState(ctx, p.second(), "", "cf-theirs", object("theirs"))
	p.finds(ctx, "another plugin's key isn't there", p.first(), "", "cf-theirs", "")
}

func setState(ctx context.Context, p *probe) {
	p.ok("a value", p.setState(ctx, p.first(), "", "cf-set", object("one")), nil)
	p.finds(ctx, "is found", p.first(), "", "cf-set", "one")
	p.ok("over it", p.setState(ctx, p.first(), "", "cf-set", object("two")), nil)
	p.finds(ctx, "is found, the last one", p.first(), "", "cf-set", "two")
	p.finds(ctx, "of another scope ID isn't there", p.first(), "x", "cf-set", "")
	r, err := p.host.SetState(p.caller(ctx), &pluginv1.SetStateRequest{Scope: "cf any scope", Key: "k", Value: object("v")})
	p.ok("a scope may be any text", answer{r, err}, nil)
}

func deleteState(ctx context.Context, p *probe) {
	remove := func() answer {
		r, err := p.host.DeleteState(p.caller(ctx), &pluginv1.DeleteStateRequest{Scope: scope, Key: "cf-delete"})
		return answer{r, err}
	}
	p.ok("a key that isn't there", remove(), nil)
	p.setState(ctx, p.first(), "", "cf-delete", object("one"))
	p.ok("one that is", remove(), nil)
	p.finds(ctx, "and it is gone", p.first(), "", "cf-delete", "")
}

func listState(ctx context.Context, p *probe) {
	for _, key := range []string{"b", "a"} {
		p.setState(ctx, p.first(), "cf-list", key, object(key))
	}
	p.setState(ctx, p.second(), "cf-list", "c", object("c"))
	r, err := p.host.ListState(p.caller(ctx), &pluginv1.ListStateRequest{Scope: scope, ScopeId: "cf-list"})
	p.ok("its own of the scope, with the time in RFC 3339", answer{r, err}, func() string {
		var keys []string
		for _, e := range r.GetEntries() {
			keys = append(keys, e.GetKey())
			if _, err := time.Parse(time.RFC3339, e.GetUpdatedAt()); err != nil || !strings.HasSuffix(e.GetUpdatedAt(), "Z") {
				return "updated_at is " + e.GetUpdatedAt()
			}
			if e.GetValue().GetFields()["k"].GetStringValue() != e.GetKey() {
				return e.String()
			}
		}
		slices.Sort(keys)
		if !slices.Equal(keys, []string{"a", "b"}) {
			return fmt.Sprint(keys)
		}
		return ""
	})
	r, err = p.host.ListState(p.caller(ctx), &pluginv1.ListStateRequest{Scope: scope, ScopeId: "cf-nothing"})
	p.ok("of a scope that has none", answer{r, err}, func() string {
		if len(r.GetEntries()) != 0 {
			return r.String()
		}
		return ""
	})
}

func revealSecret(ctx context.Context, p *probe) {
	reveal := func(of *installation, ref string) (*pluginv1.RevealSecretResponse, answer) {
		r, err := p.host.RevealSecret(as(ctx, of.token), &pluginv1.RevealSecretRequest{Ref: ref})
		return r, answer{r, err}
	}
	unknown := func(name string, a answer) {
		problem := ""
		if a.code() != codes.Unknown {
			problem = "want Unknown"
		}
		p.holds(name, a, problem)
	}
	_, a := reveal(p.first(), "cf-nothing")
	unknown("what isn't there", a)
	_, a = reveal(p.first(), "")
	unknown("no reference", a)
	for _, ref := range sorted(p.first().Secrets) {
		r, a := reveal(p.first(), ref)
		p.ok("given to it: "+ref, a, func() string {
			if r.GetValue() != p.first().Secrets[ref] {
				return "another value"
			}
			return ""
		})
		_, theirs := reveal(p.second(), ref)
		_, nothing := reveal(p.second(), unknownLike(ref))
		p.same("given to another: as if it weren't there: "+ref, theirs, ref, nothing, unknownLike(ref))
	}
}

func sorted[V any](m map[string]V) []string {
	var keys []string
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// badSecretKeys are refused.
var badSecretKeys = []string{"", "-x", ".x", "a b", "a/b", "é", strings.Repeat("x", 129)}

// secretKeys makes the cases of keys, of a method.
func (p *probe) secretKeys(call func(key string) answer) {
	if !p.given.Vault {
		p.status("no vault", call("cf-key"), codes.Unknown, "plugins: secret vault not configured")
		return
	}
	for _, key := range badSecretKeys {
		p.status(fmt.Sprintf("the key %q", key), call(key), codes.InvalidArgument, fmt.Sprintf("invalid secret key %q", key))
	}
	p.ok("a key of 128 characters", call("a"+strings.Repeat("-", 127)), nil)
}

func (p *probe) getSecret(ctx context.Context, of *installation, key string) (*pluginv1.GetSecretResponse, answer) {
	r, err := p.host.GetSecret(as(ctx, of.token), &pluginv1.GetSecretRequest{Key: key})
	return r, answer{r, err}
}

func (p *probe) setSecret(ctx context.Context, of *installation, key, value string) answer {
	r, err := p.host.SetSecret(as(ctx, of.token), &pluginv1.SetSecretRequest{Key: key, Value: value})
	return answer{r, err}
}

// opens demands what is found of a secret: "" is nothing.
func (p *probe) opens(ctx context.Context, name string, of *installation, key, want string) {
	if !p.given.Vault {
		return
	}
	r, a := p.getSecret(ctx, of, key)
	p.ok(name, a, func() string {
		if r.GetFound() != (want != "") || r.GetValue() != want {
			return fmt.Sprintf("found %t, or another value", r.GetFound())
		}
		return ""
	})
}

func getSecret(ctx context.Context, p *probe) {
	p.secretKeys(func(key string) answer {
		_, a := p.getSecret(ctx, p.first(), key)
		return a
	})
	p.opens(ctx, "a key that isn't there is no error", p.first(), "cf-nothing", "")
	p.setSecret(ctx, p.second(), "cf-theirs", "theirs")
	p.opens(ctx, "another plugin's key isn't there", p.first(), "cf-theirs", "")
}

func setSecret(ctx context.Context, p *probe) {
	p.secretKeys(func(key string) answer { return p.setSecret(ctx, p.first(), key, "value") })
	if !p.given.Vault {
		return
	}
	p.ok("a value", p.setSecret(ctx, p.first(), "cf-set", "one"), nil)
	p.opens(ctx, "is found", p.first(), "cf-set", "one")
	p.ok("over it", p.setSecret(ctx, p.first(), "cf-set", "two"), nil)
	p.opens(ctx, "is found, the last one", p.first(), "cf-set", "two")
}

func deleteSecret(ctx context.Context, p *probe) {
	remove := func(key string) answer {
		r, err := p.host.DeleteSecret(p.caller(ctx), &pluginv1.DeleteSecretRequest{Key: key})
		return answer{r, err}
	}
	p.secretKeys(remove)
	if !p.given.Vault {
		return
	}
	p.ok("a key that isn't there", remove("cf-delete"), nil)
	p.setSecret(ctx, p.first(), "cf-delete", "one")
	p.ok("one that is", remove("cf-delete"), nil)
	p.opens(ctx, "and it is gone", p.first(), "cf-delete", "")
}

func emitEvent(ctx context.Context, p *probe) {
	for _, name := range []string{"cf", "Any name: ü", ""} {
		r, err := p.host.EmitEvent(p.caller(ctx), &pluginv1.EmitEventRequest{EventName: name, Payload: object("v")})
		p.ok(fmt.Sprintf("the name %q", name), answer{r, err}, nil)
	}
	r, err := p.host.EmitEvent(p.caller(ctx), &pluginv1.EmitEventRequest{EventName: "cf"})
	p.ok("no payload", answer{r, err}, nil)
}

func getConfig(ctx context.Context, p *probe) {
	for i := range p.given.Installations {
		of := &p.given.Installations[i]
		r, err := p.host.GetConfig(as(ctx, of.token), &pluginv1.GetConfigRequest{})
		p.ok("of "+of.Name, answer{r, err}, func() string {
			got := r.GetConfig().AsMap()
			if r.GetConfig() == nil || len(got) != len(of.Config) || len(got) > 0 && !reflect.DeepEqual(got, of.Config) {
				return "another configuration"
			}
			return ""
		})
	}
}
