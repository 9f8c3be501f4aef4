package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// Store is the part of the store that commands run on.
type Store interface {
	// AuthorityRow reads one row outside any lock; nil when there is none, or none that
	// was ever in force: the two must take the same way (I14).
	AuthorityRow(ctx context.Context, key authority.Key) (*authority.Row, error)
	// Write runs fn under the exclusive lock of a workspace, in a transaction
	// that it may share with other commands of the same workspace, and returns
	// nil only after that transaction is durable. An error of fn undoes what
	// fn did, and only that, and is returned as it is. fn may run more than
	// once and must not keep anything from a run that was not the last. It
	// runs under the store's context, never the caller's: a caller that goes
	// away changes nothing for its neighbours.
	Write(ctx context.Context, workspaceID string, fn func(Tx) error) error
}

// Tx is one command's view of a write transaction, under the workspace's lock.
type Tx interface {
	// AuthorityRow reads the row by a statement after the lock.
	AuthorityRow(key authority.Key) (*authority.Row, error)
	// Current tells whether the store vouches for its rows: its lease has not
	// run out by its own clock, and its epoch's comparison with the history is
	// complete. A commit after the lease has run out fails.
	Current() bool
	// Recorded returns the entry committed under an idempotency key by an
	// installation in this workspace.
	Recorded(installationID, idempotencyKey string) (entry journal.Entry, found bool, err error)
	// Version is the version that this command commits.
	Version() domain.Version
	// StoreEpoch is part of every resource version.
	StoreEpoch() uint64
	// Append adds the command's entry to the workspace's chain. The store
	// assigns Version and the hashes.
	Append(entry journal.Entry) error
	// FollowUp begins what the command that has appended its entry brings about, see
	// board.Tx.
	FollowUp() error
	TaskTx
	RelationTx
	TransitionTx
}

// Command is one domain command with its payload.
type Command interface {
	// Check returns the first fault of the payload, or nil.
	Check() *admission.Refusal
	// Canonical is the value whose canonical digest identifies the command,
	// together with the method, the workspace and the guard. It holds the
	// targets, the expected versions and the payload, nothing else.
	Canonical() any
	// Targets are the tasks that the command changes, and whose pending transitions
	// the guard is about; none where it makes one.
	Targets() []string
	// Prepare reads the targets and checks that they are in the workspace and
	// at the expected versions. The guard is checked next, and then the
	// returned function makes the effect. A *admission.Refusal from either
	// undoes everything.
	Prepare(tx Tx, at Commit) (func() (Effect, error), error)
	// ReadBack returns the target as it stands in tx, for a replay; nil when it isn't
	// there any more.
	ReadBack(tx Tx, targetID string) (any, error)
}

// Commit is what an effect may depend on besides its payload.
type Commit struct {
	InstallationID string
	WorkspaceID    string
	Now            time.Time
	NewID          func() string
	NewAuditID     func() string
}

// Effect is what a command did.
type Effect struct {
	// State is StateApplied or StateNoChange.
	State    contract.State
	TargetID string
	// Before and After are resource versions; Before is "" for a creation.
	Before, After string
	// ReadBack is the target as of this commit.
	ReadBack  any
	EventType string
	Event     any
	// FollowUp does what the effect brings about behind its entry, see
	// board.Tx.FollowUp; nil for nothing.
	FollowUp func() error
}

// Result is the outcome of a command that was not refused.
type Result struct {
	State contract.State
	// AuditID identifies this call's own audit record.
	AuditID string
	// Entry is the committed entry; on a replay, the first one.
	Entry journal.Entry
	// ReadBack is the target, read in the transaction that answered; nil when it was
	// deleted before a replay.
	ReadBack any
	// StoreEpoch is part of the resource versions in ReadBack.
	StoreEpoch uint64
}

// Executor runs commands.
type Executor struct {
	Store    Store
	View     admission.View
	Receipts admission.Receipts
	Now      func() time.Time
	// NewID returns a fresh, time-ordered identifier.
	NewID func() string
	// NewAuditID returns a random audit ID.
	NewAuditID func() string
}

// Run executes cmd for the installation. A refusal is in the audit before it
// is returned.
func (x *Executor) Run(ctx context.Context, installationID string, m admission.Method, env admission.Envelope, cmd Command) (Result, *admission.Refusal) {
	digest, refusal := x.check(m, env, cmd)
	if refusal == nil {
		result, err := x.run(ctx, installationID, m, env, cmd, digest)
		if err == nil {
			return result, nil
		}
		refusal = admission.AsRefusal(err)
	}
	return Result{}, admission.RecordRefusal(ctx, x.Receipts, x.receipt(installationID, m, env, digest), env, refusal)
}

func (x *Executor) check(m admission.Method, env admission.Envelope, cmd Command) (contract.Digest, *admission.Refusal) {
	if refusal := env.CheckShape(m); refusal != nil {
		return contract.Digest{}, refusal
	}
	if refusal := env.OfItsShape(m, cmd.Check()); refusal != nil {
		return contract.Digest{}, refusal
	}
	digest, err := contract.CanonicalDigest(struct {
		Command   any              `json:"command"`
		Guard     *admission.Guard `json:"guard"`
		Method    string           `json:"method"`
		Workspace string           `json:"workspace"`
	}{cmd.Canonical(), env.Guard, m.Name, env.WorkspaceID})
	if err != nil {
		return contract.Digest{}, admission.RefuseField(&contract.FieldError{
			Field: "request", Reason: contract.ReasonMalformedPrecondition, Detail: "has no canonical form",
		})
	}
	return digest, nil
}

func (x *Executor) receipt(installationID string, m admission.Method, env admission.Envelope, digest contract.Digest) journal.Receipt {
	return journal.Receipt{
		AuditID: x.NewAuditID(), InstallationID: installationID, WorkspaceID: env.WorkspaceID, Method: m.Name,
		Capability: m.Capability.String(), RequestID: env.RequestID, IdempotencyKey: env.IdempotencyKey,
		RequestDigest: digest.String(), Provenance: env.Provenance.Record(), Implicit: env.Implicit(), At: x.Now(),
	}
}

func (x *Executor) run(ctx context.Context, installationID string, m admission.Method, env admission.Envelope, cmd Command, digest contract.Digest) (Result, error) {
	key := authority.Key{InstallationID: installationID, WorkspaceID: env.WorkspaceID}
	row, err := x.Store.AuthorityRow(ctx, key)
	if err != nil {
		return Result{}, fmt.Errorf("read authority before the lock: %w", err)
	}
	if refusal := admission.Authorise(row, true, x.View, key, env.Call(m), x.Now()); refusal != nil {
		return Result{}, refusal
	}
	var result Result
	err = x.Store.Write(ctx, env.WorkspaceID, func(tx Tx) error {
		result = Result{}
		return x.commit(tx, key, m, env, cmd, digest, &result)
	})
	var replayed *replay
	if errors.As(err, &replayed) {
		return x.replay(ctx, m, env, installationID, digest, replayed)
	}
	if err != nil {
		// result may still be written by a transaction that the caller has
		// stopped waiting for.
		return Result{}, err
	}
	return result, nil
}

// replay ends a transaction that found its own work done: nothing is to be
// committed.
type replay struct {
	entry      journal.Entry
	readBack   any
	revision   uint64
	storeEpoch uint64
}

func (*replay) Error() string { return "the command was committed before" }

func (x *Executor) commit(tx Tx, key authority.Key, m admission.Method, env admission.Envelope, cmd Command, digest contract.Digest, result *Result) error {
	if refusal := env.CheckImplicit(); refusal != nil {
		return refusal
	}
	row, err := tx.AuthorityRow(key)
	if err != nil {
		return fmt.Errorf("read authority under the lock: %w", err)
	}
	now := x.Now()
	if refusal := admission.Authorise(row, tx.Current(), x.View, key, env.Call(m), now); refusal != nil {
		return refusal
	}
	entry, found, err := tx.Recorded(key.InstallationID, env.IdempotencyKey)
	if err != nil {
		return fmt.Errorf("look up the idempotency key: %w", err)
	}
	if found {
		if entry.CommandDigest != digest {
			return refuse(row, contract.ReasonIdempotencyMismatch, "the idempotency key was used for another command")
		}
		readBack, err := cmd.ReadBack(tx, entry.TargetID)
		if err != nil {
			return fmt.Errorf("read back the first result: %w", err)
		}
		return &replay{entry: entry, readBack: readBack, revision: row.Revision, storeEpoch: tx.StoreEpoch()}
	}
	if env.Provenance != nil {
		return refuse(row, contract.ReasonProvenanceRejected, "this Host can't verify the execution that the call claims to come from")
	}
	effect, err := x.apply(tx, row, env, cmd, Commit{
		InstallationID: key.InstallationID, WorkspaceID: env.WorkspaceID, Now: now, NewID: x.NewID, NewAuditID: x.NewAuditID,
	})
	if err != nil {
		return err
	}
	*result = Result{
		State: effect.State, AuditID: x.NewAuditID(), ReadBack: effect.ReadBack, StoreEpoch: tx.StoreEpoch(),
	}
	result.Entry = journal.Entry{
		WorkspaceID: env.WorkspaceID, Version: tx.Version(), Kind: journal.KindCommand, AuditID: result.AuditID,
		InstallationID: key.InstallationID, Revision: row.Revision, Method: m.Name, Capability: m.Capability.String(),
		RequestID: env.RequestID, IdempotencyKey: env.IdempotencyKey, CommandDigest: digest, Result: effect.State,
		TargetID: effect.TargetID, Before: effect.Before, After: effect.After, Implicit: env.Implicit(), At: now,
	}
	if effect.EventType != "" {
		if err := describe(&result.Entry, effect); err != nil {
			return err
		}
	}
	if err := tx.Append(result.Entry); err != nil {
		return fmt.Errorf("append the journal entry: %w", err)
	}
	if effect.FollowUp == nil {
		return nil
	}
	if err := effect.FollowUp(); err != nil {
		return fmt.Errorf("follow up the command: %w", err)
	}
	return nil
}

// apply runs the effect behind its guard.
func (x *Executor) apply(tx Tx, row *authority.Row, env admission.Envelope, cmd Command, at Commit) (Effect, error) {
	effect, err := func() (Effect, error) {
		makeEffect, err := cmd.Prepare(tx, at)
		if err != nil {
			return Effect{}, err
		}
		if err := checkGuard(tx, env.Guard, cmd.Targets()); err != nil {
			return Effect{}, err
		}
		return makeEffect()
	}()
	var refusal *admission.Refusal
	if errors.As(err, &refusal) {
		refusal.Revision = row.Revision
		return Effect{}, refusal
	}
	if err != nil {
		return Effect{}, fmt.Errorf("apply the command: %w", err)
	}
	return effect, nil
}

func (x *Executor) replay(ctx context.Context, m admission.Method, env admission.Envelope, installationID string, digest contract.Digest, found *replay) (Result, error) {
	receipt := x.receipt(installationID, m, env, digest)
	receipt.Result, receipt.Revision = contract.StateAlreadyApplied, found.revision
	if err := x.Receipts.Append(ctx, receipt); err != nil {
		return Result{}, fmt.Errorf("record the replay: %w", err)
	}
	return Result{
		State: contract.StateAlreadyApplied, AuditID: receipt.AuditID, Entry: found.entry, ReadBack: found.readBack,
		StoreEpoch: found.storeEpoch,
	}, nil
}

func refuse(row *authority.Row, reason contract.Reason, message string) *admission.Refusal {
	refusal := admission.Refuse(reason, message)
	refusal.Revision = row.Revision
	return refusal
}
