package main

import (
	"context"
	"fmt"
	"time"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	"github.com/kandev/plugin-host/hostsvc/events"
)

// eventNeed is what a plugin needs to be sent some events, and whether it is.
type eventNeed struct {
	// Pattern is one that the manifest declares, or the type of an installation's own
	// news.
	Pattern string `json:"pattern"`
	// Capability is what the event's workspace has to grant besides, "" for nothing.
	Capability string `json:"capability,omitempty"`
	Sent       bool   `json:"sent"`
	// State and Reason are the decision where an approval is asked.
	State  string `json:"state,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Unknown: no event has such a type.
	Unknown bool `json:"unknown,omitempty"`
}

func (n eventNeed) needs() string {
	switch {
	case n.Pattern == events.ContextChanged:
		return "nothing"
	case n.Unknown:
		return "no event has such a type"
	case n.Capability != "":
		return "the declaration and " + n.Capability
	default:
		return "the declaration"
	}
}

func (n eventNeed) shown(namespace string) string {
	switch {
	case n.Sent && n.Capability != "":
		return "yes, of " + namespace
	case n.Sent:
		return "yes"
	case n.Reason != "":
		return "no, of " + namespace + ": " + n.State + "/" + n.Reason
	default:
		return "no"
	}
}

// explainEvents answers for WatchEvents, which is decided by what the Host sees of the
// installation as a whole, and then for each event.
func (t *tool) explainEvents(ctx context.Context, c *cluster, name string, o explainOptions) (explanation, error) {
	if o.revision != 0 {
		return explanation{}, problem{what: "--revision: a call of " + events.Method + " carries none"}
	}
	s, err := c.subject(ctx, name)
	if err != nil {
		return explanation{}, err
	}
	refusal, unseen, err := t.mayWatch(ctx, c, s.installation)
	if err != nil {
		return explanation{}, err
	}
	e := explanation{
		Plugin: name, Namespace: s.namespace, WorkspaceID: s.workspaceID, Method: o.method, State: string(contract.StateApplied),
		Allowed: refusal == nil, Notes: notesOn(s.installation),
		Events: []eventNeed{{Pattern: events.ContextChanged, Sent: refusal == nil}},
		NotSeen: append([]string{
			"holds and the lease, as for any capability: they can only keep an event back",
			"what the plugin asks for: its request may name some of the declared patterns",
			"the plugin's token and pod, which are checked before all of this and while it watches",
		}, unseen...),
	}
	if refusal != nil {
		e.State, e.Reason, e.Why = string(refusal.State), string(refusal.Reason), []string{refusal.Message}
		if info, ok := contract.LookupReason(refusal.Reason); ok {
			e.Retry = string(info.Retry)
		}
	}
	terms := kinds.LegacyOf(s.installation)
	decided := map[contract.Capability]explanation{}
	for _, pattern := range terms.Events {
		declaration, capabilities := events.Needs(pattern)
		if declaration || capabilities == 0 {
			e.Events = append(e.Events, eventNeed{Pattern: pattern, Sent: declaration && e.Allowed, Unknown: !declaration})
		}
		for capability := range capabilities.All() {
			if !e.Allowed { // no approval is asked
				e.Events = append(e.Events, eventNeed{Pattern: pattern, Capability: capability.String()})
				continue
			}
			of, known := decided[capability]
			if !known {
				if of, err = t.explainCall(ctx, c, name, capability, explainOptions{}); err != nil {
					return explanation{}, err
				}
				decided[capability] = of
			}
			need := eventNeed{Pattern: pattern, Capability: capability.String(), Sent: of.Allowed}
			if !of.Allowed {
				need.State, need.Reason = of.State, of.Reason
				for _, why := range of.Why {
					e.Why = appendNew(e.Why, why)
				}
			}
			e.Events = append(e.Events, need)
		}
	}
	if len(terms.Events) == 0 {
		e.Why = append(e.Why, "the manifest in force declares no events: a package does in capabilities.events, which is spec.manifest.legacy.events of the installation")
	}
	return e, nil
}

// mayWatch decides as the Host does whether an installation may watch events at all,
// by the objects as they are now. unseen is what the user may not read of them.
func (t *tool) mayWatch(ctx context.Context, c *cluster, o *v1alpha1.PluginInstallation) (refusal *admission.Refusal, unseen []string, err error) {
	all, err := c.installations(ctx)
	if err != nil {
		return nil, nil, err
	}
	principal, unseen, err := c.principal(ctx, o, all)
	if err != nil {
		return nil, nil, err
	}
	v := view.New(authority.Policy{})
	live := map[string]int64{}
	for i := range all {
		one := &all[i]
		if one.DeletionTimestamp != nil {
			continue
		}
		installation, _, err := kinds.InstallationOf(one)
		if err != nil {
			return nil, nil, err
		}
		if one.UID == o.UID {
			principal.Judge(&installation)
		}
		v.SetInstallation(view.Installation{
			Installation: installation, PluginID: one.Spec.PluginID, Generation: one.Generation, Legacy: kinds.LegacyOf(one),
		})
		live[string(one.UID)] = one.Generation
	}
	v.SetNamespace(o.Spec.ServiceAccountRef.Namespace, view.Namespace{UID: principal.NamespaceUID, WorkspaceID: principal.InWorkspace})
	v.MarkComplete(view.SourceInstallations)
	v.MarkComplete(view.SourceNamespaces)
	now := t.now()
	v.InstallationsRead(now, time.Minute, live)
	return events.Standing(v.Legacy(o.Status.InstallationID), now), unseen, nil
}

// printEvents says of each pattern what it needs and whether its events are sent.
func (t *tool) printEvents(e explanation) {
	if len(e.Events) == 0 {
		return
	}
	fmt.Fprintln(t.Out, "It needs no capability: it is sent the events that the manifest declares.")
	rows := [][]string{{"EVENTS", "NEED", "SENT"}}
	for _, need := range e.Events {
		rows = append(rows, []string{need.Pattern, need.needs(), need.shown(e.Namespace)})
	}
	table(t.Out, rows)
}
