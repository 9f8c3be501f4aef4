package journal

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

// Kind says what an entry records.
type Kind string

// The kinds of entry.
const (
	KindCommand Kind = "command"
	KindFence   Kind = "fence"
	KindHold    Kind = "hold"
	// KindBinding binds the workspace's ID to a namespace, KindImport inserts
	// what a workspace starts with.
	KindBinding Kind = "binding"
	KindImport  Kind = "import"
	// KindSystem is what the Host does by itself.
	KindSystem Kind = "system"
)

// Entry is one commit in a workspace's order.
type Entry struct {
	WorkspaceID string
	// Version is the entry's place in the workspace's commit order, from 1
	// without gaps, assigned by the store.
	Version        domain.Version
	Kind           Kind
	AuditID        string
	InstallationID string
	// Revision is the capability revision that authorised a command, or that
	// a fence put in force.
	Revision       uint64
	Method         string
	Capability     string
	RequestID      string
	IdempotencyKey string
	CommandDigest  contract.Digest
	Result         contract.State
	TargetID       string
	// Before and After are the target's resource versions; of a binding, the
	// UIDs of its namespace, Before "" for the first.
	Before string
	After  string
	// EventType and Event are the outbox event, "" and nil for none. Event is
	// JSON.
	EventType string
	Event     string
	// Implicit names the fields of a command that the caller left out and the Host
	// filled in, with a comma between them; "" for none, as in every entry of before
	// there were any.
	Implicit string
	At       time.Time
	// PreviousHash and Hash chain the entry.
	PreviousHash string
	Hash         string
}

// Link returns the entry chained after the entry with hash previous. The hash
// is SHA-256 over previous and every field, each with its length: it is made
// under the workspace's lock, where canonical JSON would cost as much as the
// command's own statements.
func (e Entry) Link(previous string) Entry {
	e.PreviousHash = previous
	sum := digester{sha256.New()}
	for _, field := range []string{
		previous, e.WorkspaceID, string(e.Kind), e.AuditID, e.InstallationID, e.Method, e.Capability, e.RequestID,
		e.IdempotencyKey, string(e.CommandDigest[:]), string(e.Result), e.TargetID, e.Before, e.After, e.EventType, e.Event,
	} {
		sum.text(field)
	}
	sum.number(uint64(e.Version))
	sum.number(e.Revision)
	sum.number(uint64(e.At.UnixNano())) // any bijection will do
	if e.Implicit != "" {
		// The others hash as they did before there was this field: no two entries read
		// the same, because this one is longer.
		sum.text(e.Implicit)
	}
	e.Hash = sum.hex()
	return e
}

// digester hashes fields so that no two sequences of fields read the same.
type digester struct{ hash.Hash }

func (d digester) number(n uint64) {
	var bytes [8]byte
	binary.BigEndian.PutUint64(bytes[:], n)
	d.Write(bytes[:])
}

func (d digester) text(text string) {
	d.number(uint64(len(text)))
	_, _ = io.WriteString(d, text) // a hash never fails
}

func (d digester) hex() string { return hex.EncodeToString(d.Sum(nil)) }
