package kinds

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// EventObject is the object of an event. EventOf returns the same event from
// it: nothing is lost on the way.
func EventObject(e authority.Event) *v1alpha1.PluginCapabilityApprovalEvent {
	r := e.Row
	object := &v1alpha1.PluginCapabilityApprovalEvent{
		ObjectMeta: metav1.ObjectMeta{
			Name: e.Name(),
			Labels: map[string]string{
				v1alpha1.LabelInstallationID: r.Key.InstallationID,
				v1alpha1.LabelWorkspaceID:    r.Key.WorkspaceID,
			},
		},
		Spec: v1alpha1.PluginCapabilityApprovalEventSpec{
			AuditID: r.AuditID, Type: v1alpha1.EventType(e.Type),
			InstallationID: r.Key.InstallationID, InstallationName: e.InstallationName, WorkspaceID: r.Key.WorkspaceID,
			BeforeRevision: int64(e.BeforeRevision), Revision: int64(r.Revision),
			BeforeManifestDigest: e.BeforeDigest, ManifestDigest: r.Vector.ManifestDigest,
			Granted: IDsOf(r.Granted), Effective: IDsOf(e.Effective), Declared: IDsOf(r.Declared),
			Required: IDsOf(r.Required), Allowed: IDsOf(r.Allowed),
			State: v1alpha1.State(r.State.String()), ExpiresAt: MicroTime(r.ExpiresAt), Act: r.Act,
			ApprovedBy: r.ApprovedBy, ApprovedVia: r.ApprovedVia, ConfirmedBy: r.ConfirmedBy, IssuedAt: MicroTime(r.IssuedAt),
			Actor: actorObject(r.Actor), Cause: v1alpha1.EventCause(r.Cause), Reason: r.Reason,
			Time: metav1.NewMicroTime(r.UpdatedAt), Vector: vectorObject(r.Vector),
			Seen:               seenObject(r.Seen),
			HumanPolicyVersion: r.Vector.PolicyVersion, Unproven: r.Unproven,
			DecisionDigest: e.DecisionDigest, PreviousHash: e.PreviousHash,
		},
	}
	for _, gate := range r.Gates.Names() {
		object.Spec.Gates = append(object.Spec.Gates, v1alpha1.GateType(gate))
	}
	if h := e.Applied; h != nil {
		object.Spec.Hold = &v1alpha1.AppliedHold{
			Granted: IDsOf(h.Granted), State: v1alpha1.State(h.State.String()), ExpiresAt: MicroTime(h.ExpiresAt),
			Cause: v1alpha1.EventCause(h.Cause), Actor: actorObject(h.Actor), Reason: h.Reason,
			UID: types.UID(h.UID), Generation: h.Generation, Spent: h.Spent,
			ThroughUID: types.UID(h.ThroughUID), ThroughGeneration: h.Through,
		}
	}
	return object
}

// EventOf reads an event back. An ID, a state or a gate that this build doesn't
// know is an error: the row can't be rebuilt from what isn't understood.
func EventOf(object *v1alpha1.PluginCapabilityApprovalEvent) (authority.Event, error) {
	s := &object.Spec
	failed := func(field string, err error) (authority.Event, error) {
		return authority.Event{}, fmt.Errorf("event %s: spec.%s: %w", object.Name, field, err)
	}
	row := authority.Row{
		Key:      authority.Key{InstallationID: s.InstallationID, WorkspaceID: s.WorkspaceID},
		Revision: uint64(s.Revision),
		Act:      s.Act, ExpiresAt: timeOf(s.ExpiresAt), Vector: vectorOf(s.Vector),
		Actor: actorOf(s.Actor), Cause: authority.Cause(s.Cause), Reason: s.Reason,
		ApprovedBy: s.ApprovedBy, ApprovedVia: s.ApprovedVia, ConfirmedBy: s.ConfirmedBy, IssuedAt: timeOf(s.IssuedAt), UpdatedAt: timeOf(&s.Time),
		AuditID: s.AuditID, Unproven: s.Unproven,
	}
	row.Sum = row.Vector.Sum()
	event := authority.Event{
		Type: authority.EventType(s.Type), InstallationName: s.InstallationName,
		BeforeRevision: uint64(s.BeforeRevision), BeforeDigest: s.BeforeManifestDigest,
		DecisionDigest: s.DecisionDigest, PreviousHash: s.PreviousHash,
	}
	for _, list := range []struct {
		field string
		ids   []v1alpha1.CapabilityID
		set   *contract.CapabilitySet
	}{
		{"granted", s.Granted, &row.Granted},
		{"declared", s.Declared, &row.Declared},
		{"required", s.Required, &row.Required},
		{"allowed", s.Allowed, &row.Allowed},
		{"effective", s.Effective, &event.Effective},
	} {
		set, err := setOf(list.ids)
		if err != nil {
			return failed(list.field, err)
		}
		*list.set = set
	}
	var ok bool
	if row.State, ok = authority.ParseState(string(s.State)); !ok {
		return failed("state", fmt.Errorf("unknown state %q", s.State))
	}
	names := make([]string, len(s.Gates))
	for i, gate := range s.Gates {
		names[i] = string(gate)
	}
	if row.Gates, ok = authority.ParseGates(names); !ok {
		return failed("gates", fmt.Errorf("unknown gate in %q", names))
	}
	var err error
	if row.Seen, err = seenOf(s.Seen); err != nil {
		return failed("seen", err)
	}
	if s.Hold != nil {
		hold, err := holdOf(s.Hold)
		if err != nil {
			return failed("hold", err)
		}
		event.Applied = hold
	}
	if s.ManifestDigest != s.Vector.ManifestDigest || s.HumanPolicyVersion != s.Vector.HumanPolicyVersion {
		return failed("vector", fmt.Errorf("differs from manifestDigest or humanPolicyVersion"))
	}
	event.Row = row
	event.Row.EventHash = event.Hash()
	return event, nil
}

func holdOf(h *v1alpha1.AppliedHold) (*authority.Hold, error) {
	granted, err := setOf(h.Granted)
	if err != nil {
		return nil, fmt.Errorf("granted: %w", err)
	}
	state, ok := authority.ParseState(string(h.State))
	if !ok {
		return nil, fmt.Errorf("unknown state %q", h.State)
	}
	return &authority.Hold{
		State: state, Granted: granted, ExpiresAt: timeOf(h.ExpiresAt), Cause: authority.Cause(h.Cause),
		Actor: actorOf(h.Actor), Reason: h.Reason, UID: string(h.UID), Generation: h.Generation, Spent: h.Spent,
		ThroughUID: string(h.ThroughUID), Through: h.ThroughGeneration,
	}, nil
}

func seenObject(s authority.Seen) v1alpha1.SeenVersion {
	object := v1alpha1.SeenVersion{UID: types.UID(s.UID), Generation: s.Generation, Gone: s.Gone, Revoked: s.Revoked}
	if s.Recorded() {
		object.Asked = &v1alpha1.AskedFor{Capabilities: IDsOf(s.Asked), ExpiresAt: MicroTime(s.Until)}
	}
	return object
}

func seenOf(o v1alpha1.SeenVersion) (authority.Seen, error) {
	s := authority.Seen{UID: string(o.UID), Generation: o.Generation, Gone: o.Gone, Revoked: o.Revoked}
	if o.Asked == nil {
		return s.Unrecorded(), nil
	}
	asked, err := setOf(o.Asked.Capabilities)
	if err != nil {
		return s, fmt.Errorf("asked.capabilities: %w", err)
	}
	s.Asked, s.Until = asked, timeOf(o.Asked.ExpiresAt)
	return s, nil
}

func vectorObject(v authority.Vector) v1alpha1.AuthorityVector {
	return v1alpha1.AuthorityVector{
		ApprovalUID: types.UID(v.ApprovalUID), InstallationUID: types.UID(v.InstallationUID), Version: v.Version,
		ManifestDigest: v.ManifestDigest, Suspended: v.Suspended,
		ServiceAccountNamespace: v.ServiceAccountNamespace, ServiceAccountName: v.ServiceAccountName,
		ServiceAccountUID: types.UID(v.ServiceAccountUID), NamespaceUID: types.UID(v.ServiceAccountNamespaceUID),
		WorkspaceNamespace: v.WorkspaceNamespace, WorkspaceNamespaceUID: types.UID(v.WorkspaceNamespaceUID),
		WorkspaceID: v.WorkspaceID, HumanPolicyVersion: v.PolicyVersion,
	}
}

func vectorOf(o v1alpha1.AuthorityVector) authority.Vector {
	return authority.Vector{
		ApprovalUID: string(o.ApprovalUID), InstallationUID: string(o.InstallationUID), Version: o.Version,
		ManifestDigest: o.ManifestDigest, Suspended: o.Suspended,
		ServiceAccountNamespace: o.ServiceAccountNamespace, ServiceAccountName: o.ServiceAccountName,
		ServiceAccountUID: string(o.ServiceAccountUID), ServiceAccountNamespaceUID: string(o.NamespaceUID),
		WorkspaceNamespace: o.WorkspaceNamespace, WorkspaceNamespaceUID: string(o.WorkspaceNamespaceUID),
		WorkspaceID: o.WorkspaceID, PolicyVersion: o.HumanPolicyVersion,
	}
}

func actorObject(a authority.Actor) v1alpha1.Actor {
	return v1alpha1.Actor{Name: a.Name, Assurance: v1alpha1.Assurance(a.Assurance)}
}

func actorOf(o v1alpha1.Actor) authority.Actor {
	return authority.Actor{Name: o.Name, Assurance: authority.Assurance(o.Assurance)}
}

// IDsOf lists a set's IDs as the API's; nil for none.
func IDsOf(set contract.CapabilitySet) []v1alpha1.CapabilityID {
	var ids []v1alpha1.CapabilityID
	for c := range set.All() {
		ids = append(ids, v1alpha1.CapabilityID(c.String()))
	}
	return ids
}

func setOf(ids []v1alpha1.CapabilityID) (contract.CapabilitySet, error) {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = string(id)
	}
	set, err := contract.ParseCapabilities(texts)
	if err != nil {
		return 0, fmt.Errorf("read capability IDs: %w", err)
	}
	return set, nil
}

// MicroTime is an instant as the API's; nil for none.
func MicroTime(t time.Time) *metav1.MicroTime {
	if t.IsZero() {
		return nil
	}
	micro := metav1.NewMicroTime(t.UTC())
	return &micro
}

func timeOf(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
