package journal

import (
	"fmt"
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
)

// Entry is one commit in a workspace's order.
type Entry struct {
	WorkspaceID string `json:"workspace_id"`
	// Version is the entry's place in the workspace's commit order, from 1
	// without gaps, assigned by the store.
	Version        domain.Version `json:"version"`
	Kind           Kind           `json:"kind"`
	AuditID        string         `json:"audit_id"`
	InstallationID string         `json:"installation_id"`
	// Revision is the capability revision that authorised a command, or that
	// a fence put in force.
	Revision       uint64          `json:"revision"`
	Method         string          `json:"method"`
	Capability     string          `json:"capability,omitempty"`
	RequestID      string          `json:"request_id,omitempty"`
	IdempotencyKey string          `json:"idempotency_key,omitempty"`
	CommandDigest  contract.Digest `json:"-"`
	Result         contract.State  `json:"result"`
	TargetID       string          `json:"target_id,omitempty"`
	// Before and After are the target's resource versions.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// EventType and Event are the outbox event, "" and nil for none. Event is
	// JSON.
	EventType string    `json:"event_type,omitempty"`
	Event     string    `json:"event,omitempty"`
	At        time.Time `json:"-"`
	// PreviousHash and Hash chain the entry.
	PreviousHash string `json:"-"`
	Hash         string `json:"-"`
}

// Link returns the entry chained after the entry with hash previous.
func (e Entry) Link(previous string) (Entry, error) {
	e.PreviousHash = previous
	digest, err := contract.CanonicalDigest(struct {
		Entry
		Digest   string `json:"command_digest"`
		At       string `json:"at"`
		Previous string `json:"previous_hash"`
	}{e, e.CommandDigest.String(), e.At.UTC().Format(time.RFC3339Nano), previous})
	if err != nil {
		return Entry{}, fmt.Errorf("chain entry %d of workspace %s: %w", e.Version, e.WorkspaceID, err)
	}
	e.Hash = digest.String()
	return e, nil
}
