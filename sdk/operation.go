package sdk

import (
	"github.com/kandev/plugin-host/contract"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

// Operation is what makes a write exact: its idempotency key and what the
// caller believes about pending moves. Make one with NewOperation.
type Operation struct {
	key          string
	keyWhenStale string
	guard        Guard
	provenance   *pluginv1.ManagedExecutionProvenance
}

// NewOperation names one intended effect. The key is the caller's and durable:
// written down before the call, it makes a repetition after a crash or a lost
// answer find the first result (ALREADY_APPLIED) instead of a second effect.
// One key stands for one command for as long as the installation lives. It is
// an identifier of at most 1024 bytes; without key or guard the write fails as
// INVALID before anything is sent.
func NewOperation(key string, guard Guard) Operation { return Operation{key: key, guard: guard} }

// WithKeyWhenStale says that once authority has changed the write is a new
// operation, under this other key. Without it, a write that was refused as
// STALE_CAPABILITY_REVISION is asked for again under the same key, so that an
// earlier commit whose answer was lost is found.
func (o Operation) WithKeyWhenStale(key string) Operation {
	o.keyWhenStale = key
	return o
}

// WithProvenance marks the write as asked for by a managed agent execution. It
// must be given when an agent did and adds no authority.
func (o Operation) WithProvenance(conversationID, sessionID, executionGenerationToken string) Operation {
	o.provenance = &pluginv1.ManagedExecutionProvenance{
		ConversationId: conversationID, SessionId: sessionID, ExecutionGenerationToken: executionGenerationToken,
	}
	return o
}

// check finds what the SDK asks for itself. The rest of a request is the
// Host's to judge.
func (o Operation) check() *contract.FieldError {
	if err := contract.CheckIdentifier("idempotency_key", o.key); err != nil {
		return err
	}
	if o.keyWhenStale != "" {
		if err := contract.CheckIdentifier("idempotency_key", o.keyWhenStale); err != nil {
			return err
		}
		if o.keyWhenStale == o.key {
			return &contract.FieldError{
				Field: "idempotency_key", Reason: contract.ReasonMalformedPrecondition,
				Detail: "the key of a new operation is the key of the old one",
			}
		}
	}
	if o.guard.message == nil {
		return &contract.FieldError{
			Field: "guard", Reason: contract.ReasonMissingExactField,
			Detail: "is required: state ExpectNone or ExpectTransition",
		}
	}
	return nil
}

// Guard states what the caller believes about queued moves of the target. The
// Host checks it in the transaction of the effect. The zero Guard states
// nothing and is refused: it is a choice to make, not a default.
type Guard struct {
	message *pluginv1.PendingTransitionGuard
}

// ExpectNone states that no move of the target is pending.
func ExpectNone() Guard {
	return Guard{&pluginv1.PendingTransitionGuard{
		Expectation: &pluginv1.PendingTransitionGuard_ExpectNone{
			ExpectNone: &pluginv1.PendingTransitionGuard_NoTransition{},
		},
	}}
}

// ExpectTransition states that exactly this move is pending, at this version.
func ExpectTransition(pendingTransitionID, resourceVersion string) Guard {
	return Guard{&pluginv1.PendingTransitionGuard{
		Expectation: &pluginv1.PendingTransitionGuard_PendingTransition{
			PendingTransition: &pluginv1.PendingTransitionGuard_NamedTransition{
				PendingTransitionId: pendingTransitionID, ResourceVersion: resourceVersion,
			},
		},
	}}
}
