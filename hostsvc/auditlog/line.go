package auditlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// Format is in every line. A reader refuses a line of another format instead of
// guessing at it.
const Format = "plugins.kandev.ai/audit/v1"

const (
	// ContentType is what a server calls a stream of lines.
	ContentType = "application/jsonl"
	// Path is where a Host's metrics server serves its archive.
	Path = "/audit/v1/events"
)

// MaxLineBytes bounds one line, its end included. The largest event that the
// API's schema allows is a tenth of it.
const MaxLineBytes = 1 << 20

// LineError says which line of an archive can't be read, and why.
type LineError struct {
	// Line counts from 1.
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns the cause.
func (e *LineError) Unwrap() error { return e.Err }

// line is an event as the API names its fields, so that the same filters work on
// both.
type line struct {
	Format               string   `json:"format"`
	AuditID              string   `json:"auditID"`
	Type                 string   `json:"type"`
	InstallationID       string   `json:"installationID"`
	InstallationName     string   `json:"installationName"`
	WorkspaceID          string   `json:"workspaceID"`
	BeforeRevision       uint64   `json:"beforeRevision"`
	Revision             uint64   `json:"revision"`
	BeforeManifestDigest string   `json:"beforeManifestDigest,omitempty"`
	Act                  string   `json:"act,omitempty"`
	State                string   `json:"state"`
	Granted              []string `json:"granted"`
	Declared             []string `json:"declared"`
	Required             []string `json:"required"`
	Allowed              []string `json:"allowed"`
	Effective            []string `json:"effective"`
	ExpiresAt            string   `json:"expiresAt,omitempty"`
	Gates                []string `json:"gates"`
	Hold                 *hold    `json:"hold,omitempty"`
	Vector               vector   `json:"vector"`
	Seen                 seen     `json:"seen"`
	Actor                actor    `json:"actor"`
	Cause                string   `json:"cause"`
	Reason               string   `json:"reason,omitempty"`
	ApprovedBy           string   `json:"approvedBy,omitempty"`
	ApprovedVia          string   `json:"approvedVia,omitempty"`
	ConfirmedBy          string   `json:"confirmedBy,omitempty"`
	IssuedAt             string   `json:"issuedAt,omitempty"`
	Time                 string   `json:"time"`
	Unproven             bool     `json:"unproven,omitempty"`
	DecisionDigest       string   `json:"decisionDigest"`
	PreviousHash         string   `json:"previousHash,omitempty"`
}

type hold struct {
	State      string   `json:"state"`
	Granted    []string `json:"granted"`
	ExpiresAt  string   `json:"expiresAt,omitempty"`
	Cause      string   `json:"cause"`
	Actor      actor    `json:"actor"`
	Reason     string   `json:"reason,omitempty"`
	UID        string   `json:"uid,omitempty"`
	Generation int64    `json:"generation,omitempty"`
	Spent      bool     `json:"spent,omitempty"`
	ThroughUID string   `json:"throughUID,omitempty"`
	Through    int64    `json:"through,omitempty"`
}

type vector struct {
	ApprovalUID                string `json:"approvalUID,omitempty"`
	InstallationUID            string `json:"installationUID,omitempty"`
	Version                    string `json:"version,omitempty"`
	ManifestDigest             string `json:"manifestDigest,omitempty"`
	Suspended                  bool   `json:"suspended,omitempty"`
	ServiceAccountNamespace    string `json:"serviceAccountNamespace,omitempty"`
	ServiceAccountName         string `json:"serviceAccountName,omitempty"`
	ServiceAccountUID          string `json:"serviceAccountUID,omitempty"`
	ServiceAccountNamespaceUID string `json:"namespaceUID,omitempty"`
	WorkspaceNamespace         string `json:"workspaceNamespace,omitempty"`
	WorkspaceNamespaceUID      string `json:"workspaceNamespaceUID,omitempty"`
	WorkspaceID                string `json:"workspaceID,omitempty"`
	HumanPolicyVersion         string `json:"humanPolicyVersion,omitempty"`
}

type seen struct {
	UID        string `json:"uid,omitempty"`
	Generation int64  `json:"generation,omitempty"`
	Gone       bool   `json:"gone,omitempty"`
	Revoked    bool   `json:"revoked,omitempty"`
	// Asked is absent where it isn't known.
	Asked *asked `json:"asked,omitempty"`
}

type asked struct {
	Capabilities []string `json:"capabilities"`
	ExpiresAt    string   `json:"expiresAt,omitempty"`
}

type actor struct {
	Name      string `json:"name,omitempty"`
	Assurance string `json:"assurance"`
}

// Encode writes an event as one line, with its end. Decode returns the same
// event.
func Encode(w io.Writer, e authority.Event) error {
	text, err := json.Marshal(lineOf(e))
	if err != nil {
		return fmt.Errorf("encode event %s: %w", e.Name(), err)
	}
	if _, err := w.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("write event %s: %w", e.Name(), err)
	}
	return nil
}

// Decode yields the events of a stream, in its order. Empty lines are skipped.
// A line that can't be understood is yielded as a *LineError, and the next one is
// read: one bad line must not hide the rest. What stops the stream itself is
// yielded last.
func Decode(r io.Reader) iter.Seq2[authority.Event, error] {
	return func(yield func(authority.Event, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(make([]byte, 0, 16<<10), MaxLineBytes)
		n := 0
		for lines.Scan() {
			n++
			text := bytes.TrimSpace(lines.Bytes())
			if len(text) == 0 {
				continue
			}
			event, err := parse(text)
			if err != nil {
				err = &LineError{Line: n, Err: err}
			}
			if !yield(event, err) {
				return
			}
		}
		err := lines.Err()
		switch {
		case errors.Is(err, bufio.ErrTooLong):
			yield(authority.Event{}, &LineError{Line: n + 1, Err: fmt.Errorf("is longer than %d bytes; nothing behind it was read", MaxLineBytes)})
		case err != nil:
			yield(authority.Event{}, fmt.Errorf("read behind line %d: %w", n, err))
		}
	}
}

func lineOf(e authority.Event) line {
	r := e.Row
	l := line{
		Format: Format, AuditID: r.AuditID, Type: string(e.Type),
		InstallationID: r.Key.InstallationID, InstallationName: e.InstallationName, WorkspaceID: r.Key.WorkspaceID,
		BeforeRevision: e.BeforeRevision, Revision: r.Revision, BeforeManifestDigest: e.BeforeDigest,
		Act: r.Act, State: r.State.String(), Granted: r.Granted.IDs(), Declared: r.Declared.IDs(),
		Required: r.Required.IDs(), Allowed: r.Allowed.IDs(), Effective: e.Effective.IDs(),
		ExpiresAt: authority.Timestamp(r.ExpiresAt), Gates: r.Gates.Names(), Vector: vectorOf(r.Vector),
		Seen:  seen{UID: r.Seen.UID, Generation: r.Seen.Generation, Gone: r.Seen.Gone, Revoked: r.Seen.Revoked},
		Actor: actor{r.Actor.Name, string(r.Actor.Assurance)}, Cause: string(r.Cause), Reason: r.Reason,
		ApprovedBy: r.ApprovedBy, ApprovedVia: r.ApprovedVia, ConfirmedBy: r.ConfirmedBy,
		IssuedAt: authority.Timestamp(r.IssuedAt), Time: authority.Timestamp(r.UpdatedAt), Unproven: r.Unproven,
		DecisionDigest: e.DecisionDigest, PreviousHash: e.PreviousHash,
	}
	if r.Seen.Recorded() {
		l.Seen.Asked = &asked{r.Seen.Asked.IDs(), authority.Timestamp(r.Seen.Until)}
	}
	if h := e.Applied; h != nil {
		l.Hold = &hold{
			State: h.State.String(), Granted: h.Granted.IDs(), ExpiresAt: authority.Timestamp(h.ExpiresAt),
			Cause: string(h.Cause), Actor: actor{h.Actor.Name, string(h.Actor.Assurance)}, Reason: h.Reason,
			UID: h.UID, Generation: h.Generation, Spent: h.Spent, ThroughUID: h.ThroughUID, Through: h.Through,
		}
	}
	return l
}

func vectorOf(v authority.Vector) vector {
	return vector{
		ApprovalUID: v.ApprovalUID, InstallationUID: v.InstallationUID, Version: v.Version, ManifestDigest: v.ManifestDigest,
		Suspended: v.Suspended, ServiceAccountNamespace: v.ServiceAccountNamespace, ServiceAccountName: v.ServiceAccountName,
		ServiceAccountUID: v.ServiceAccountUID, ServiceAccountNamespaceUID: v.ServiceAccountNamespaceUID,
		WorkspaceNamespace: v.WorkspaceNamespace, WorkspaceNamespaceUID: v.WorkspaceNamespaceUID,
		WorkspaceID: v.WorkspaceID, HumanPolicyVersion: v.PolicyVersion,
	}
}

func (v vector) authority() authority.Vector {
	return authority.Vector{
		ApprovalUID: v.ApprovalUID, InstallationUID: v.InstallationUID, Version: v.Version, ManifestDigest: v.ManifestDigest,
		Suspended: v.Suspended, ServiceAccountNamespace: v.ServiceAccountNamespace, ServiceAccountName: v.ServiceAccountName,
		ServiceAccountUID: v.ServiceAccountUID, ServiceAccountNamespaceUID: v.ServiceAccountNamespaceUID,
		WorkspaceNamespace: v.WorkspaceNamespace, WorkspaceNamespaceUID: v.WorkspaceNamespaceUID,
		WorkspaceID: v.WorkspaceID, PolicyVersion: v.HumanPolicyVersion,
	}
}

func (a actor) authority() authority.Actor {
	return authority.Actor{Name: a.Name, Assurance: authority.Assurance(a.Assurance)}
}

// parse reads one line. A field that isn't known is an error: what it says is not
// in the digest that this build computes.
func parse(text []byte) (authority.Event, error) {
	var l line
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&l); err != nil {
		return authority.Event{}, fmt.Errorf("read JSON: %w", err)
	}
	if decoder.More() {
		return authority.Event{}, errors.New("holds more than one JSON value")
	}
	if l.Format != Format {
		return authority.Event{}, fmt.Errorf("format is %q, this reader knows %q", l.Format, Format)
	}
	return l.event()
}

func (l line) event() (authority.Event, error) {
	p := parser{}
	r := authority.Row{
		Key:      authority.Key{InstallationID: l.InstallationID, WorkspaceID: l.WorkspaceID},
		Revision: l.Revision, Act: l.Act, State: p.state("state", l.State),
		Granted: p.set("granted", l.Granted), Declared: p.set("declared", l.Declared),
		Required: p.set("required", l.Required), Allowed: p.set("allowed", l.Allowed),
		ExpiresAt: p.instant("expiresAt", l.ExpiresAt), Gates: p.gates(l.Gates), Vector: l.Vector.authority(),
		Seen:  p.seen(l.Seen),
		Actor: l.Actor.authority(), Cause: authority.Cause(l.Cause), Reason: l.Reason,
		ApprovedBy: l.ApprovedBy, ApprovedVia: l.ApprovedVia, ConfirmedBy: l.ConfirmedBy,
		IssuedAt: p.instant("issuedAt", l.IssuedAt), UpdatedAt: p.instant("time", l.Time),
		AuditID: l.AuditID, Unproven: l.Unproven,
	}
	r.Sum = r.Vector.Sum()
	e := authority.Event{
		Type: authority.EventType(l.Type), InstallationName: l.InstallationName,
		BeforeRevision: l.BeforeRevision, BeforeDigest: l.BeforeManifestDigest, Row: r,
		Effective: p.set("effective", l.Effective), DecisionDigest: l.DecisionDigest, PreviousHash: l.PreviousHash,
	}
	if h := l.Hold; h != nil {
		e.Applied = &authority.Hold{
			State: p.state("hold.state", h.State), Granted: p.set("hold.granted", h.Granted),
			ExpiresAt: p.instant("hold.expiresAt", h.ExpiresAt), Cause: authority.Cause(h.Cause), Actor: h.Actor.authority(),
			Reason: h.Reason, UID: h.UID, Generation: h.Generation, Spent: h.Spent,
			ThroughUID: h.ThroughUID, Through: h.Through,
		}
	}
	if p.err != nil {
		return authority.Event{}, p.err
	}
	e.Row.EventHash = e.Hash()
	return e, nil
}

// parser keeps the first error, with its field.
type parser struct{ err error }

func (p *parser) failed(field string, err error) {
	if p.err == nil {
		p.err = fmt.Errorf("%s: %w", field, err)
	}
}

func (p *parser) set(field string, ids []string) contract.CapabilitySet {
	set, err := contract.ParseCapabilities(ids)
	if err != nil {
		p.failed(field, err)
	}
	return set
}

func (p *parser) seen(l seen) authority.Seen {
	s := authority.Seen{UID: l.UID, Generation: l.Generation, Gone: l.Gone, Revoked: l.Revoked}
	if l.Asked == nil {
		return s.Unrecorded()
	}
	s.Asked, s.Until = p.set("seen.asked.capabilities", l.Asked.Capabilities), p.instant("seen.asked.expiresAt", l.Asked.ExpiresAt)
	return s
}

func (p *parser) state(field, text string) authority.State {
	state, ok := authority.ParseState(text)
	if !ok {
		p.failed(field, fmt.Errorf("unknown state %q", text))
	}
	return state
}

func (p *parser) gates(names []string) authority.Gates {
	gates, ok := authority.ParseGates(names)
	if !ok {
		p.failed("gates", fmt.Errorf("unknown gate in %q", names))
	}
	return gates
}

// instant is the inverse of authority.Timestamp, and takes no other spelling.
func (p *parser) instant(field, text string) time.Time {
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err == nil && authority.Timestamp(t) != text {
		err = fmt.Errorf("%q isn't in UTC with microseconds", text)
	}
	if err != nil {
		p.failed(field, err)
		return time.Time{}
	}
	return t.UTC()
}
