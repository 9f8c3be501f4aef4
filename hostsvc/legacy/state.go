package legacy

import (
	"context"
	"errors"
	"strings"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// The bounds of what one installation keeps as state, in bytes unless said
// otherwise. The shipped Host has none; these keep one plugin from taking the
// store of all.
const (
	// MaxStateScopeBytes bounds a scope.
	MaxStateScopeBytes = 256
	// MaxStateNameBytes bounds a scope's ID, and a key.
	MaxStateNameBytes = contract.MaxIdentifierBytes
	// MaxStateValueBytes bounds a value as JSON.
	MaxStateValueBytes = 256 << 10
	// MaxStateEntries is how many entries it may keep.
	MaxStateEntries = 10_000
	// MaxStateBytes bounds all that it keeps together, names included.
	MaxStateBytes = 32 << 20
	// MaxStateListBytes bounds what ListState answers, names included: shipped
	// clients take no answer above 4 MiB.
	MaxStateListBytes = 3 << 20
)

// ErrUninstalled is the store's answer to a write for an installation that was
// uninstalled since the call came in.
var ErrUninstalled = errors.New("the installation was uninstalled")

// StateKey names one entry of an installation's state.
type StateKey struct {
	InstallationID      string
	Scope, ScopeID, Key string
}

// StateWrite is what a write comes to.
type StateWrite struct {
	// ValueBytes are those of the value as JSON.
	ValueBytes int
	// Entries and Bytes are what the installation keeps with it.
	Entries int
	Bytes   int64
}

// StateStore keeps plugins' state. What it keeps ends with the installation.
type StateStore interface {
	// State returns one entry.
	State(ctx context.Context, key StateKey) (entry domain.PluginState, found bool, err error)
	// States lists the entries of a scope by key. It stops, and complete is false,
	// before they have more than maxBytes together.
	States(ctx context.Context, installationID, scope, scopeID string, maxBytes int) (entries []domain.PluginState, complete bool, err error)
	// PutState writes an entry together with its receipt, or what allow returns and
	// nothing. ErrUninstalled when the installation was uninstalled.
	PutState(ctx context.Context, entry domain.PluginState, receipt journal.Receipt, allow func(StateWrite) error) error
	// DeleteState removes an entry and writes the receipt of that in one transaction,
	// or does what allow returns and nothing; one that isn't there is removed already.
	// ErrUninstalled when the installation was uninstalled.
	DeleteState(ctx context.Context, key StateKey, receipt journal.Receipt, allow func() error) error
}

// stateKey makes the name of an entry of the caller's.
func stateKey(caller Caller, scope, scopeID, key string) (StateKey, *Failure) {
	for _, part := range []struct {
		field, value string
		most         int
	}{{"scope", scope, MaxStateScopeBytes}, {"scope_id", scopeID, MaxStateNameBytes}, {"key", key, MaxStateNameBytes}} {
		switch {
		case len(part.value) > part.most:
			return StateKey{}, fail(InvalidArgument, "%s is longer than %d bytes", part.field, part.most)
		case strings.IndexByte(part.value, 0) >= 0:
			return StateKey{}, fail(InvalidArgument, "%s holds a NUL byte", part.field)
		}
	}
	return StateKey{InstallationID: caller.InstallationID, Scope: scope, ScopeID: scopeID, Key: key}, nil
}

// GetState returns one entry of the caller's state; one that isn't there is no
// failure. As shipped, a scope may be any text.
func (h *Host) GetState(ctx context.Context, caller Caller, scope, scopeID, key string) (domain.PluginState, bool, error) {
	name, failure := stateKey(caller, scope, scopeID, key)
	if failure != nil {
		return domain.PluginState{}, false, failure
	}
	return h.State.State(ctx, name)
}

// ListState lists the caller's entries of one scope, by key.
func (h *Host) ListState(ctx context.Context, caller Caller, scope, scopeID string) ([]domain.PluginState, error) {
	name, failure := stateKey(caller, scope, scopeID, "")
	if failure != nil {
		return nil, failure
	}
	entries, complete, err := h.State.States(ctx, name.InstallationID, scope, scopeID, MaxStateListBytes)
	if err != nil {
		return nil, err
	}
	if !complete {
		return nil, fail(ResourceExhausted, "the state of this scope is longer than the %d bytes of one answer; read its entries one by one", MaxStateListBytes)
	}
	return entries, nil
}

// SetState writes one entry of the caller's state, over the one that is there.
func (h *Host) SetState(ctx context.Context, caller Caller, scope, scopeID, key string, value domain.Object) error {
	name, failure := stateKey(caller, scope, scopeID, key)
	if failure != nil {
		return failure
	}
	err := h.State.PutState(ctx, domain.PluginState{
		InstallationID: name.InstallationID, Scope: scope, ScopeID: scopeID, Key: key, Value: value, UpdatedAt: h.Now(),
	}, h.receipt(caller, "SetState", contract.LegacyState), func(w StateWrite) error {
		if err := caller.still(); err != nil {
			return err
		}
		return allowState(w)
	})
	return uninstalled(err)
}

func allowState(w StateWrite) error {
	switch {
	case w.ValueBytes > MaxStateValueBytes:
		return fail(InvalidArgument, "value is longer than %d bytes as JSON", MaxStateValueBytes)
	case w.Entries > MaxStateEntries:
		return fail(ResourceExhausted, "this installation keeps %d entries of state, which is all that it may", MaxStateEntries)
	case w.Bytes > MaxStateBytes:
		return fail(ResourceExhausted, "the state of this installation would be longer than %d bytes", MaxStateBytes)
	}
	return nil
}

// DeleteState removes one entry of the caller's state. As shipped, it succeeds
// where there is none.
func (h *Host) DeleteState(ctx context.Context, caller Caller, scope, scopeID, key string) error {
	name, failure := stateKey(caller, scope, scopeID, key)
	if failure != nil {
		return failure
	}
	return uninstalled(h.State.DeleteState(ctx, name, h.receipt(caller, "DeleteState", contract.LegacyState), caller.still))
}

// uninstalled answers what was uninstalled under the call like a call after it.
func uninstalled(err error) error {
	if errors.Is(err, ErrUninstalled) {
		return admission.LegacyUninstalled()
	}
	return err
}
