package domain

// Fault is the class of a rule's refusal in v1, whose callers tell the classes
// apart by the code of the answer.
type Fault int

// The classes of refusal.
const (
	// FaultInvalid: the request can't be right whatever the state.
	FaultInvalid Fault = iota + 1
	// FaultNotFound: what the request names isn't there.
	FaultNotFound
	// FaultPrecondition: the state of what it names forbids it.
	FaultPrecondition
	// FaultDenied: the caller may not do it.
	FaultDenied
)

// RuleError is a refusal by a rule of v1. Text is the shipped text, to be sent
// as it is.
type RuleError struct {
	Fault Fault
	Text  string
}

func (e *RuleError) Error() string { return e.Text }
