package authority

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kandev/plugin-host/contract"
)

// Event is the immutable record of one revision. It exists before the revision
// has effect (I4), carries everything that rebuilds the row, and is chained to
// the event before it.
type Event struct {
	Type EventType
	// InstallationName is for readers; InstallationID is the identity.
	InstallationName string
	BeforeRevision   uint64
	BeforeDigest     string
	// Row is the row as of the event's revision. Its Hold and Starting are
	// not part of the record: a recorded revision has neither.
	Row Row
	// Applied is the hold that this revision applied, if any.
	Applied *Hold
	// Effective is what works at this revision, at its own time.
	Effective contract.CapabilitySet
	// DecisionDigest covers everything above, PreviousHash the history.
	DecisionDigest string
	PreviousHash   string
}

// NewEvent records the outcome of Compute on row. The row in it has its audit
// ID and its event hash set.
func NewEvent(row Row, out Outcome, installationName string) (Event, error) {
	e := Event{
		Type: out.Type, InstallationName: installationName,
		BeforeRevision: row.Revision, BeforeDigest: row.Vector.ManifestDigest,
		Row: out.Next, Applied: row.Hold, Effective: out.Next.Effective(out.Next.UpdatedAt),
		PreviousHash: row.EventHash,
	}
	e.Row.AuditID = AuditID(row.Key, out.Next.Revision)
	digest, err := e.decisionDigest()
	if err != nil {
		return Event{}, fmt.Errorf("digest the event of revision %d: %w", out.Next.Revision, err)
	}
	e.DecisionDigest = digest
	e.Row.EventHash = e.Hash()
	return e, nil
}

// Name is the event's deterministic object name: one name for each revision,
// so that a second event of a revision can't exist.
func (e Event) Name() string { return EventName(e.Row.Key, e.Row.Revision) }

// EventName is the object name of the event of a key's revision.
func EventName(key Key, revision uint64) string {
	return key.InstallationID + "." + key.WorkspaceID + ".r" + strconv.FormatUint(revision, 10)
}

// AuditID is the audit ID of a key's revision, the same whoever computes it.
func AuditID(key Key, revision uint64) string {
	digest, err := contract.CanonicalDigest([]string{
		"authority-event", key.InstallationID, key.WorkspaceID, strconv.FormatUint(revision, 10),
	})
	if err != nil { // strings always encode
		panic(fmt.Sprintf("digest an audit ID: %v", err))
	}
	return "ae-" + hex.EncodeToString(digest[:16])
}

// Hash is the event's link in the chain of its key.
func (e Event) Hash() string {
	digest, err := contract.CanonicalDigest([]string{e.PreviousHash, e.DecisionDigest})
	if err != nil { // strings always encode
		panic(fmt.Sprintf("digest a chain link: %v", err))
	}
	return digest.String()
}

// Verify checks the event against itself: its digest over its content. The
// link to the event before it is the caller's to check.
func (e Event) Verify() error {
	digest, err := e.decisionDigest()
	if err != nil {
		return fmt.Errorf("digest event %s: %w", e.Name(), err)
	}
	if digest != e.DecisionDigest {
		return fmt.Errorf("event %s: its content does not match its decision digest", e.Name())
	}
	return nil
}

// Rebuilt is the row as of the event's revision, with what follows from it.
func (e Event) Rebuilt() Row {
	row := e.Row
	row.Hold, row.Starting = nil, false
	row.Sum, row.EventHash = row.Vector.Sum(), e.Hash()
	return row
}

// Remaining is what stays of a row's hold when the row goes to this event: all
// of it, unless it is the very hold that the event applied, or speaks of the
// very version that the event processed as an act, and of nothing else. It would
// else take away what that version granted, as an act, by what it left out
// compared with the version before. A hold of an earlier version stays: the event
// may have been computed before it was set. So does one of a version that the
// event processed without an act, for a gate or a manifest: the hold is what moves
// the act.
func (e Event) Remaining(hold *Hold) *Hold {
	if hold == nil || hold.Equal(e.Applied) {
		return nil
	}
	if e.acts() && !hold.Spent && !hold.Mixed && hold.speaksOf(e.Row.Seen) {
		return nil
	}
	return hold
}

// acts tells whether the event's own revision moved the act.
func (e Event) acts() bool {
	return strings.HasPrefix(e.Row.Act, ActName(e.Row.Revision, ""))
}

// record is the digested form of an event: strings and numbers only, so that
// it survives every encoding it travels through.
type record struct {
	Type             EventType   `json:"type"`
	AuditID          string      `json:"auditID"`
	InstallationID   string      `json:"installationID"`
	InstallationName string      `json:"installationName"`
	WorkspaceID      string      `json:"workspaceID"`
	BeforeRevision   string      `json:"beforeRevision"`
	Revision         string      `json:"revision"`
	BeforeDigest     string      `json:"beforeManifestDigest"`
	Act              string      `json:"act"`
	State            string      `json:"state"`
	Granted          []string    `json:"granted"`
	Declared         []string    `json:"declared"`
	Required         []string    `json:"required"`
	Allowed          []string    `json:"allowed"`
	Effective        []string    `json:"effective"`
	ExpiresAt        string      `json:"expiresAt"`
	Gates            []string    `json:"gates"`
	Hold             *heldRecord `json:"hold"`
	Vector           Vector      `json:"vector"`
	Seen             seenRecord  `json:"seen"`
	Actor            Actor       `json:"actor"`
	Cause            Cause       `json:"cause"`
	Reason           string      `json:"reason"`
	ApprovedBy       string      `json:"approvedBy"`
	// Absent where empty: events of before these fields keep their digest.
	ApprovedVia string `json:"approvedVia,omitempty"`
	ConfirmedBy string `json:"confirmedBy,omitempty"`
	IssuedAt    string `json:"issuedAt"`
	Time        string `json:"time"`
	Unproven    bool   `json:"unproven"`
}

type heldRecord struct {
	State      string   `json:"state"`
	Granted    []string `json:"granted"`
	ExpiresAt  string   `json:"expiresAt"`
	Cause      Cause    `json:"cause"`
	Actor      Actor    `json:"actor"`
	Reason     string   `json:"reason"`
	UID        string   `json:"uid"`
	Generation string   `json:"generation"`
	Spent      bool     `json:"spent"`
	// Absent where empty: events of before these fields keep their digest.
	ThroughUID string `json:"throughUID,omitempty"`
	Through    string `json:"through,omitempty"`
}

type seenRecord struct {
	UID        string `json:"uid"`
	Generation string `json:"generation"`
	Gone       bool   `json:"gone"`
	Revoked    bool   `json:"revoked"`
	// Absent where unknown: events of before this field keep their digest.
	Asked *askedRecord `json:"asked,omitempty"`
}

type askedRecord struct {
	Capabilities []string `json:"capabilities"`
	ExpiresAt    string   `json:"expiresAt"`
}

func (e Event) decisionDigest() (string, error) {
	r := e.Row
	rec := record{
		Type: e.Type, AuditID: r.AuditID, InstallationID: r.Key.InstallationID, InstallationName: e.InstallationName,
		WorkspaceID: r.Key.WorkspaceID, BeforeRevision: strconv.FormatUint(e.BeforeRevision, 10),
		Revision: strconv.FormatUint(r.Revision, 10), BeforeDigest: e.BeforeDigest, Act: r.Act, State: r.State.String(),
		Granted: r.Granted.IDs(), Declared: r.Declared.IDs(), Required: r.Required.IDs(), Allowed: r.Allowed.IDs(),
		Effective: e.Effective.IDs(), ExpiresAt: Timestamp(r.ExpiresAt), Gates: r.Gates.Names(), Vector: r.Vector,
		Seen: seenRecord{
			UID: r.Seen.UID, Generation: strconv.FormatInt(r.Seen.Generation, 10), Gone: r.Seen.Gone, Revoked: r.Seen.Revoked,
		},
		Actor: r.Actor, Cause: r.Cause, Reason: r.Reason,
		ApprovedBy: r.ApprovedBy, ApprovedVia: r.ApprovedVia, ConfirmedBy: r.ConfirmedBy,
		IssuedAt: Timestamp(r.IssuedAt), Time: Timestamp(r.UpdatedAt), Unproven: r.Unproven,
	}
	if r.Seen.Recorded() {
		rec.Seen.Asked = &askedRecord{r.Seen.Asked.IDs(), Timestamp(r.Seen.Until)}
	}
	if h := e.Applied; h != nil {
		rec.Hold = &heldRecord{
			State: h.State.String(), Granted: h.Granted.IDs(), ExpiresAt: Timestamp(h.ExpiresAt), Cause: h.Cause,
			Actor: h.Actor, Reason: h.Reason, UID: h.UID, Generation: strconv.FormatInt(h.Generation, 10), Spent: h.Spent,
			ThroughUID: h.ThroughUID,
		}
	}
	if h := e.Applied; h != nil && h.Through != 0 {
		rec.Hold.Through = strconv.FormatInt(h.Through, 10)
	}
	digest, err := contract.CanonicalDigest(rec)
	if err != nil {
		return "", err
	}
	return digest.String(), nil
}

// Timestamp is the one text form of an instant in events: RFC 3339 in UTC with
// microseconds, "" for no instant.
func Timestamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000Z")
}
