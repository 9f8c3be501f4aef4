package legacy

import (
	"context"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// Caller is who calls. Nothing in a request can change it (I1).
type Caller struct {
	InstallationID string
	// PluginID is the package's own ID: what v1 stamps what a plugin makes with.
	PluginID string
	// Declared is what its manifest declares: some answers say more to who may read
	// more.
	Declared contract.LegacySet
	// Still returns nil while the call is allowed. Whoever writes asks it under the
	// lock of what it writes, which it may have waited for (I5). It must not block; nil
	// is for callers that nothing can be taken from.
	Still func() error
	// AuditID names the receipt of what it writes of its own; "" is one that the Host
	// makes.
	AuditID string
}

// still asks Still.
func (c Caller) still() error {
	if c.Still == nil {
		return nil
	}
	return c.Still()
}

// source is what v1 stamps what a plugin makes with (domain facts, section 11).
func (c Caller) source() string { return domain.PluginSource(c.PluginID) }

// owner is the caller as v1's owner of what it made.
func (c Caller) owner() domain.Owner {
	return domain.Owner{InstallationID: c.InstallationID, PluginID: c.PluginID}
}

// Host serves v1. Its methods are in the files of their aggregates.
type Host struct {
	Store Store
	// State and Secrets keep what is the plugins' own, Vault seals it; nil is a Host
	// that keeps no secrets. Config knows what operators configured.
	State   StateStore
	Secrets SecretStore
	Vault   Vault
	Config  ConfigSource
	Now     func() time.Time
	// NewID returns a fresh, time-ordered identifier, NewAuditID a random one.
	NewID, NewAuditID func() string
}

// receipt is of a write of the caller's own: it is in no workspace and has no entry, so
// that its receipt is what commits with it.
func (h *Host) receipt(caller Caller, method string, need contract.LegacyCapability) journal.Receipt {
	receipt := journal.Receipt{
		AuditID: caller.AuditID, InstallationID: caller.InstallationID, Method: method, Capability: need.String(),
		Result: contract.StateApplied, At: h.Now(),
	}
	if receipt.AuditID == "" {
		receipt.AuditID = h.NewAuditID()
	}
	return receipt
}

// write runs fn under the lock of a workspace, for a caller who may call still.
func (h *Host) write(ctx context.Context, caller Caller, workspaceID string, fn func(Tx) error) error {
	return h.Store.Write(ctx, workspaceID, func(tx Tx) error {
		if err := caller.still(); err != nil {
			return err
		}
		return fn(tx)
	})
}

// Store is the part of the store that v1 runs on.
type Store interface {
	// Read runs fn on one consistent snapshot of the whole store, which begins after
	// every commit that was durable before the call.
	Read(ctx context.Context, fn func(Snapshot) error) error
	// Write runs fn under the exclusive lock of a workspace, as command.Store does.
	Write(ctx context.Context, workspaceID string, fn func(Tx) error) error
}

// Snapshot is one consistent state of the store, of all workspaces. It is valid
// inside the function it was passed to only. Each aggregate's file declares its part.
type Snapshot interface {
	StoreEpoch() uint64
	TopologySnapshot
	TaskSnapshot
	TransitionSnapshot
	RepositorySnapshot
	ProfileSnapshot
	SessionSnapshot
	MessageSnapshot
	InteractionSnapshot
}

// Tx is one command's view of a write transaction, under the workspace's lock and
// bound to the workspace. Each aggregate's file declares its part.
type Tx interface {
	// Version is the version that this command commits.
	Version() domain.Version
	// StoreEpoch is part of every resource version.
	StoreEpoch() uint64
	// Append adds the command's entry to the workspace's chain. The store assigns
	// Version and the hashes.
	Append(entry journal.Entry) error
	TaskTx
	MessageTx
}
