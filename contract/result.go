package contract

// State is the stable outcome of an exact call (ADR, result vocabulary). Its
// text is what is stored and shown; the wire's enum is mapped from it once.
type State string

// The states of the contract. StatePartial is part of the vocabulary but never
// sent: no method defines durable progress.
const (
	StateApplied        State = "APPLIED"
	StateAlreadyApplied State = "ALREADY_APPLIED"
	StateNoChange       State = "NO_CHANGE"
	StateConflict       State = "CONFLICT"
	StateDenied         State = "DENIED"
	StateNotFound       State = "NOT_FOUND"
	StateInvalid        State = "INVALID"
	StateUnsupported    State = "UNSUPPORTED"
	StateRateLimited    State = "RATE_LIMITED"
	StateUnavailable    State = "UNAVAILABLE"
	StatePartial        State = "PARTIAL"
)

// Reason is the stable cause of a state that is not a success. Each reason has
// exactly one parent state.
type Reason string

// The reasons of the contract.
const (
	ReasonStaleCapabilityRevision   Reason = "STALE_CAPABILITY_REVISION"
	ReasonCapabilityRevoked         Reason = "CAPABILITY_REVOKED"
	ReasonHumanReserved             Reason = "HUMAN_RESERVED"
	ReasonMissingCapabilityApproval Reason = "MISSING_CAPABILITY_APPROVAL"
	ReasonProvenanceRejected        Reason = "PROVENANCE_REJECTED"
	ReasonHostConfigurationRequired Reason = "HOST_CONFIGURATION_REQUIRED"

	ReasonStaleResourceVersion      Reason = "STALE_RESOURCE_VERSION"
	ReasonPendingTransitionConflict Reason = "PENDING_TRANSITION_CONFLICT"
	ReasonExecutionGenerationFenced Reason = "EXECUTION_GENERATION_FENCED"
	ReasonDirectiveRevoked          Reason = "DIRECTIVE_REVOKED"
	ReasonDirectiveExpired          Reason = "DIRECTIVE_EXPIRED"
	ReasonDirectiveAlreadyResolved  Reason = "DIRECTIVE_ALREADY_RESOLVED"
	ReasonIdempotencyMismatch       Reason = "IDEMPOTENCY_MISMATCH"
	ReasonConversationBusy          Reason = "CONVERSATION_BUSY"

	ReasonWorkspaceTargetNotFound Reason = "WORKSPACE_TARGET_NOT_FOUND"

	ReasonMissingExactField      Reason = "MISSING_EXACT_FIELD"
	ReasonMalformedPrecondition  Reason = "MALFORMED_PRECONDITION"
	ReasonUnsupportedLegacyShape Reason = "UNSUPPORTED_LEGACY_SHAPE"

	ReasonHostVersionUnsupported      Reason = "HOST_VERSION_UNSUPPORTED"
	ReasonProviderContractUnsupported Reason = "PROVIDER_CONTRACT_UNSUPPORTED"
	ReasonUnknownResultValue          Reason = "UNKNOWN_RESULT_VALUE"

	ReasonProviderRateLimited Reason = "PROVIDER_RATE_LIMITED"

	ReasonDependencyUnavailable Reason = "DEPENDENCY_UNAVAILABLE"
)

// Retry is what a client may do after a result.
type Retry string

// The retry models of the ADR's reason table.
const (
	// RetryNone: the call succeeded.
	RetryNone Retry = "none"
	// RetryPark: fail closed and wait for a human or a new approval.
	RetryPark Retry = "park"
	// RetryNewRequest: never repeat this request; build a new one on the
	// current revision.
	RetryNewRequest Retry = "new-request"
	// RetryReadBack: read the authoritative state, then decide anew.
	RetryReadBack Retry = "read-back"
	// RetryStop: stop against this identity and refresh the projection.
	RetryStop Retry = "stop"
	// RetryCorrect: correct the request.
	RetryCorrect Retry = "correct"
	// RetryUpgrade: park until the Host or the provider is upgraded.
	RetryUpgrade Retry = "upgrade"
	// RetryAfter: retry only after the instant that the result names.
	RetryAfter Retry = "after"
	// RetrySame: retry the same idempotency key with bounded backoff.
	RetrySame Retry = "same"
)

// ReasonInfo is the row of one reason in the ADR's table.
type ReasonInfo struct {
	Reason Reason
	Parent State
	Retry  Retry
}

var reasonTable = [...]ReasonInfo{
	{ReasonStaleCapabilityRevision, StateDenied, RetryNewRequest},
	{ReasonCapabilityRevoked, StateDenied, RetryPark},
	{ReasonHumanReserved, StateDenied, RetryPark},
	{ReasonMissingCapabilityApproval, StateDenied, RetryPark},
	{ReasonProvenanceRejected, StateDenied, RetryPark},
	{ReasonHostConfigurationRequired, StateDenied, RetryPark},
	{ReasonStaleResourceVersion, StateConflict, RetryReadBack},
	{ReasonPendingTransitionConflict, StateConflict, RetryReadBack},
	{ReasonExecutionGenerationFenced, StateConflict, RetryReadBack},
	{ReasonDirectiveRevoked, StateConflict, RetryReadBack},
	{ReasonDirectiveExpired, StateConflict, RetryReadBack},
	{ReasonDirectiveAlreadyResolved, StateConflict, RetryReadBack},
	{ReasonIdempotencyMismatch, StateConflict, RetryReadBack},
	{ReasonConversationBusy, StateConflict, RetryReadBack},
	{ReasonWorkspaceTargetNotFound, StateNotFound, RetryStop},
	{ReasonMissingExactField, StateInvalid, RetryCorrect},
	{ReasonMalformedPrecondition, StateInvalid, RetryCorrect},
	{ReasonUnsupportedLegacyShape, StateInvalid, RetryCorrect},
	{ReasonHostVersionUnsupported, StateUnsupported, RetryUpgrade},
	{ReasonProviderContractUnsupported, StateUnsupported, RetryUpgrade},
	{ReasonUnknownResultValue, StateUnsupported, RetryUpgrade},
	{ReasonProviderRateLimited, StateRateLimited, RetryAfter},
	{ReasonDependencyUnavailable, StateUnavailable, RetrySame},
}

// Reasons lists the table of reasons in its order.
func Reasons() []ReasonInfo { return append([]ReasonInfo(nil), reasonTable[:]...) }

// LookupReason returns the table row of a reason; ok is false for a text that
// is no reason of this contract.
func LookupReason(r Reason) (info ReasonInfo, ok bool) {
	for _, row := range reasonTable[:] { // ranging over the array would copy it, on the stack of every call
		if row.Reason == r {
			return row, true
		}
	}
	return ReasonInfo{}, false
}

// Parent returns the one state that a reason belongs to; StateUnsupported for
// a text that is no reason of this contract, as unknown values never count as
// anything better (ADR).
func (r Reason) Parent() State {
	if info, ok := LookupReason(r); ok {
		return info.Parent
	}
	return StateUnsupported
}

// States lists every state of the contract.
func States() []State {
	return []State{
		StateApplied, StateAlreadyApplied, StateNoChange, StateConflict, StateDenied, StateNotFound,
		StateInvalid, StateUnsupported, StateRateLimited, StateUnavailable, StatePartial,
	}
}

// Succeeded tells whether the state means that the asked outcome holds.
func (s State) Succeeded() bool {
	return s == StateApplied || s == StateAlreadyApplied || s == StateNoChange
}
