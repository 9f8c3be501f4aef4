package rpc

import (
	"context"
	"errors"
	"log/slog"

	"github.com/google/uuid"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// What v1 leaves in the audit is decided here: the contract demands a record of every
// exact call, and says nothing of v1's. What a v1 writer commits in a workspace has its
// entry in the workspace's chain, in the same transaction, with audit ID, installation,
// method and result, and what it writes of the plugin's own has its receipt there. Every
// other outcome of a v1 writer, which committed nothing, leaves a receipt behind it. What
// only reads is counted, and an event that a plugin publishes is a record by itself.

// ownWriters write what is the plugin's own: it is in no workspace, and its receipt
// commits with it.
var ownWriters = map[string]bool{"SetState": true, "DeleteState": true, "SetSecret": true, "DeleteSecret": true}

// recordedV1 is a v1 answer once it is recorded. Without a record there is none.
func (d *door) recordedV1(ctx context.Context, c *call, response any, err error) (any, error) {
	failure := d.recordV1(ctx, c)
	if failure == nil {
		return response, err
	}
	if ctx.Err() == nil {
		d.log.LogAttrs(ctx, slog.LevelError, "a v1 call could not be recorded", slog.String("method", c.method.Name), slog.Any("error", failure))
	}
	return nil, c.v1Fault()
}

func (d *door) recordV1(ctx context.Context, c *call) error {
	o, own := &c.outcome, ownWriters[c.method.Name]
	if o.State.Succeeded() {
		if own {
			o.AuditID = c.ownAuditID
		}
		return nil
	}
	writes, capability := own, ""
	for _, need := range c.method.need {
		writes = writes || contract.LegacyWriters.Has(need)
		capability = need.String()
	}
	if !writes {
		return nil
	}
	if d.receipts == nil {
		return errors.New("nobody records")
	}
	receipt := journal.Receipt{
		AuditID: uuid.NewString(), InstallationID: c.principal.InstallationID, Method: c.method.Name, Capability: capability,
		Result: o.State, Reason: o.Reason, At: d.now(),
	}
	if err := d.receipts.Append(ctx, receipt); err != nil {
		return err
	}
	o.AuditID = receipt.AuditID
	return nil
}
