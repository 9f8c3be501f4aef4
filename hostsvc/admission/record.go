package admission

import (
	"context"

	"github.com/kandev/plugin-host/hostsvc/journal"
)

// Receipts records calls that commit nothing: reads, refusals, replays. Append
// returns nil only after the receipt is durable.
type Receipts interface {
	Append(ctx context.Context, receipt journal.Receipt) error
}

// RecordRefusal makes a refusal durable in the audit before anyone learns of
// it, and returns it with its audit ID. Without a record there is no answer
// but UNAVAILABLE. receipt is what is known of the call so far.
func RecordRefusal(ctx context.Context, receipts Receipts, receipt journal.Receipt, env Envelope, refusal *Refusal) *Refusal {
	env = env.Recordable()
	receipt.RequestID, receipt.WorkspaceID, receipt.IdempotencyKey = env.RequestID, env.WorkspaceID, env.IdempotencyKey
	receipt.Provenance = env.Provenance.Record()
	receipt.Result, receipt.Reason = refusal.State, refusal.Reason
	receipt.Revision = max(receipt.Revision, refusal.Revision)
	if err := receipts.Append(ctx, receipt); err != nil {
		return Unavailable()
	}
	recorded := *refusal
	recorded.AuditID = receipt.AuditID
	return &recorded
}
