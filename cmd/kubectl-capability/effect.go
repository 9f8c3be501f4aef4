package main

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kandev/plugin-host/api/v1alpha1"
	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/controllers/kinds"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// picture is what the cluster shows about one approval, or would show once
// manifests are applied. What isn't there is nil.
type picture struct {
	approval     *v1alpha1.PluginCapabilityApproval
	installation *v1alpha1.PluginInstallation
	namespace    *corev1.Namespace
	principal    kinds.Principal
	policy       authority.Policy
	// conflict: another namespace claims the same workspace.
	conflict bool
	// checked: admission has verified this version, or will.
	checked bool
}

// key is the row that the picture is about: of the installation of that name in
// the workspace of the namespace. Without either it is the one that the approval
// spoke for.
func (p picture) key() authority.Key {
	var key authority.Key
	if p.approval != nil {
		key = authority.Key{InstallationID: p.approval.Spec.InstallationID, WorkspaceID: p.approval.Spec.WorkspaceID}
	}
	if p.installation != nil && p.installation.Status.InstallationID != "" {
		key.InstallationID = p.installation.Status.InstallationID
	}
	if id := p.workspaceID(); id != "" {
		key.WorkspaceID = id
	}
	return key
}

func (p picture) workspaceID() string {
	if p.namespace == nil {
		return ""
	}
	return p.namespace.Labels[v1alpha1.LabelWorkspaceID]
}

// intent is the picture as Compute wants it.
func (p picture) intent(key authority.Key) (authority.Intent, error) {
	in := authority.Intent{Policy: p.policy}
	if p.installation != nil {
		installation, _, err := kinds.InstallationOf(p.installation)
		if err != nil {
			return in, err
		}
		p.principal.Judge(&installation)
		in.Installation = &installation
	}
	if p.namespace != nil && p.workspaceID() == key.WorkspaceID {
		in.Workspace = &authority.Workspace{
			ID: key.WorkspaceID, Namespace: p.namespace.Name, NamespaceUID: string(p.namespace.UID), Conflict: p.conflict,
		}
	}
	if p.approval != nil {
		if in.Approval = kinds.ApprovalOf(p.approval); in.Approval != nil {
			in.Approval.Checked = p.checked
			in.WatchedFrom = 1 // whoever applies it does so while the Host runs
		}
	}
	return in, nil
}

// Effect classifies what manifests do to one approval.
type effect string

const (
	effectNone     effect = "NoChange"
	effectNarrows  effect = "Narrows"
	effectWidens   effect = "Widens"
	effectNoEffect effect = "NoEffect"
)

// change is what manifests do to one approval.
type change struct {
	Namespace      string `json:"namespace"`
	Name           string `json:"name"`
	WorkspaceID    string `json:"workspaceID,omitempty"`
	InstallationID string `json:"installationID,omitempty"`
	// File and Line are of the approval's own manifest; empty where only what it
	// depends on changes.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`

	Effect effect `json:"effect"`
	// Grants and Takes compare what is granted, Starts and Stops what works.
	Grants []string `json:"grants,omitempty"`
	Takes  []string `json:"takes,omitempty"`
	Starts []string `json:"starts,omitempty"`
	Stops  []string `json:"stops,omitempty"`

	State       *transition `json:"state,omitempty"`
	ExpiresAt   *transition `json:"expiresAt,omitempty"`
	GatesClosed []string    `json:"gatesClosed,omitempty"`
	GatesOpened []string    `json:"gatesOpened,omitempty"`

	// Act is the name that this uses up.
	Act string `json:"usesAct,omitempty"`
	// Asks is what the approval asks for and does not get, with the reason.
	Asks *asking `json:"asks,omitempty"`
	// Notes say what else there is to know, and what could not be seen.
	Notes []string `json:"notes,omitempty"`
}

type transition struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type asking struct {
	Reason         string   `json:"reason"`
	Grants         []string `json:"grants,omitempty"`
	Reactivates    bool     `json:"reactivates,omitempty"`
	Extends        bool     `json:"extends,omitempty"`
	SupersedesAct  string   `json:"supersedesAct"`
	ManifestDigest string   `json:"manifestDigest"`
}

// futureAct stands for the random part of an act's name that nobody knows yet.
const futureAct = "??????"

// effectOf compares what is in force with what will be. edited says that the
// approval's own manifest changes.
func effectOf(row authority.Row, before, after picture, edited bool, now time.Time) (change, error) {
	key := row.Key
	c := change{WorkspaceID: key.WorkspaceID, InstallationID: key.InstallationID, Effect: effectNone}
	is, err := before.intent(key)
	if err != nil {
		return c, err
	}
	will, err := after.intent(key)
	if err != nil {
		return c, err
	}
	settled := authority.Compute(row, is, now, futureAct)
	if settled.Changed {
		c.Notes = append(c.Notes, "the Host has not taken in yet what the cluster shows now; this is computed from what it will")
	}
	out := authority.Compute(settled.Next, will, now, futureAct)
	c.compare(settled.Next, out, now)
	if edited && out.Review != nil {
		c.ask(out.Review)
	}
	switch {
	case len(c.Grants) > 0, len(c.Starts) > 0, c.extends(settled.Next, out.Next):
		c.Effect = effectWidens
	case c.Asks != nil:
		c.Effect = effectNoEffect
	case len(c.Takes) > 0, len(c.Stops) > 0, c.State != nil, c.ExpiresAt != nil:
		c.Effect = effectNarrows
	}
	if edited && out.Changed && out.Next.Act != settled.Next.Act && out.Next.Cause == authority.CauseHuman &&
		will.Approval != nil && will.Approval.SupersedesAct == settled.Next.Act {
		c.Act = settled.Next.Act
	}
	return c, nil
}

// grantedIn is what a row grants, gates aside.
func grantedIn(row authority.Row, now time.Time) contract.CapabilitySet {
	if row.State != authority.StateActive || row.Expired(now) {
		return 0
	}
	return row.Granted
}

func (c *change) compare(was authority.Row, out authority.Outcome, now time.Time) {
	next := out.Next
	c.Grants = ids(grantedIn(next, now) &^ grantedIn(was, now))
	c.Takes = ids(grantedIn(was, now) &^ grantedIn(next, now))
	c.Starts = ids(next.Effective(now) &^ was.Effective(now) &^ (grantedIn(next, now) &^ grantedIn(was, now)))
	c.Stops = ids(was.Effective(now) &^ next.Effective(now) &^ (grantedIn(was, now) &^ grantedIn(next, now)))
	if was.State != next.State {
		c.State = &transition{stateOf(was), stateOf(next)}
	}
	if !was.ExpiresAt.Equal(next.ExpiresAt) && next.State == authority.StateActive {
		c.ExpiresAt = &transition{instant(was.ExpiresAt), instant(next.ExpiresAt)}
	}
	c.GatesClosed = (next.Gates &^ was.Gates).Names()
	c.GatesOpened = (was.Gates &^ next.Gates).Names()
}

// extends tells whether an active grant lasts longer than before.
func (c *change) extends(was, next authority.Row) bool {
	return c.ExpiresAt != nil && was.State == authority.StateActive &&
		!was.ExpiresAt.IsZero() && (next.ExpiresAt.IsZero() || next.ExpiresAt.After(was.ExpiresAt))
}

func (c *change) ask(review *authority.Review) {
	c.Asks = &asking{
		Reason: string(review.Reason), Grants: ids(review.Widens), Reactivates: review.Reactivates, Extends: review.Extends,
		SupersedesAct: review.Act, ManifestDigest: review.Digest,
	}
}

// stateOf is the word of a status.
func stateOf(row authority.Row) string {
	if row.State == authority.StateNone {
		return string(v1alpha1.StatePending)
	}
	return row.State.String()
}

func ids(set contract.CapabilitySet) []string {
	if set == 0 {
		return nil
	}
	return set.IDs()
}

// sentence says why an approval doesn't get what it asks for, and what to do.
func (a asking) sentence() string {
	act := fmt.Sprintf("spec.supersedesAct: %q and spec.manifestDigest: %s", a.SupersedesAct, a.ManifestDigest)
	switch authority.ReviewReason(a.Reason) {
	case authority.ReviewActAlreadyUsed:
		return "it names an act that is used, or not the last one; whoever wants it writes " + act
	case authority.ReviewDigestNotInForce:
		return "it names another manifest than the one in force; it takes effect when that one is installed, or with " + act
	case authority.ReviewWorkspaceMismatch:
		return "spec.workspaceID isn't the workspace of its namespace"
	case authority.ReviewInstallationMismatch:
		return "spec.installationID isn't the ID of the installation of this name; `kubectl capability review -f` puts the right one in"
	case authority.ReviewNotVerified:
		return "it came while the admission policies were not proven in force, so nobody checked who wrote it; another human approves it, or the same one revokes it first"
	case authority.ReviewConfirmationRequired:
		return "the human policy asks for a second human; `kubectl capability confirm` is theirs to run"
	default:
		return a.Reason
	}
}
