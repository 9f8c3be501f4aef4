package journal

import (
	"time"

	"github.com/kandev/plugin-host/contract"
)

// Receipt records one authenticated exact call that committed nothing: a read,
// a refusal, a replay.
type Receipt struct {
	AuditID        string          `json:"audit_id"`
	InstallationID string          `json:"installation_id"`
	WorkspaceID    string          `json:"workspace_id"`
	Revision       uint64          `json:"revision"`
	Method         string          `json:"method"`
	Capability     string          `json:"capability,omitempty"`
	RequestID      string          `json:"request_id,omitempty"`
	IdempotencyKey string          `json:"idempotency_key,omitempty"`
	RequestDigest  string          `json:"request_digest,omitempty"`
	Result         contract.State  `json:"result"`
	Reason         contract.Reason `json:"reason,omitempty"`
	// Snapshot is the version of the world that a read saw.
	Snapshot string `json:"snapshot,omitempty"`
	// Provenance is set for a call that claimed an agent's execution.
	Provenance *Provenance `json:"provenance,omitempty"`
	// Implicit names the fields that the caller left out and the Host filled in,
	// with a comma between them.
	Implicit string    `json:"implicit,omitempty"`
	At       time.Time `json:"at"`
}

// Provenance is the managed execution that a call claims to come from. The
// generation token is a secret and is recorded as a digest.
type Provenance struct {
	ConversationID        string `json:"conversation_id"`
	SessionID             string `json:"session_id"`
	GenerationTokenDigest string `json:"generation_token_digest"`
}

// Refused tells whether the receipt belongs to its installation's chain of
// refusals rather than to the process's chain of reads.
func (r *Receipt) Refused() bool { return !r.Result.Succeeded() }

// Segment is a run of receipts of one chain, appended and made durable
// together. Hash covers Previous, Chain, Index, At and Body, which Count follows from.
type Segment struct {
	// Chain names the chain: the Host process, and for refusals the
	// installation.
	Chain string
	// Index is the segment's place in its chain, from 1 without gaps.
	Index uint64
	Count int
	// Body is the receipts as JSON lines.
	Body     []byte
	Previous string
	Hash     string
	At       time.Time
}
