package authority

import (
	"time"

	"github.com/kandev/plugin-host/contract"
)

// InactiveReason says why one capability does not work.
type InactiveReason string

// The reasons of an inactive capability.
const (
	InactiveUnknown        InactiveReason = "Unknown"
	InactiveNotDeclared    InactiveReason = "NotDeclared"
	InactiveHumanReserved  InactiveReason = "HumanReserved"
	InactiveActAlreadyUsed InactiveReason = "ActAlreadyUsed"
	InactiveNotReviewed    InactiveReason = "NotReviewed"
)

// Inactive is one capability that was asked for, or is declared, and does not
// work.
type Inactive struct {
	ID     string
	Reason InactiveReason
}

// Report is what people are told about a row: the content of an approval's
// status. It is a pure function of the row and of the objects it was computed
// from.
type Report struct {
	// Generation is the version of the approval that was processed.
	Generation int64
	Row        Row
	Effective  contract.CapabilitySet
	// Declared counts what the manifest declares.
	Declared contract.CapabilitySet
	Inactive []Inactive
	Review   *Review
	// Missing says what the key lacks to have a row at all: no installation,
	// no workspace.
	InstallationMissing bool
	WorkspaceMissing    bool
	// Waiting is nil when the row is what the objects ask for.
	Waiting *Waiting
}

// Waiting says why a row is not what its objects ask for. What they take away
// is held meanwhile and what they add waits, so nothing is granted by it.
type Waiting struct {
	Reason  WaitingReason
	Message string
}

// WaitingReason classifies what a row waits for.
type WaitingReason string

// The reasons of waiting.
const (
	// WaitingFence: the next revision can't be recorded or fenced yet.
	WaitingFence WaitingReason = "Fencing"
	// WaitingHistory: a revision was published that the store doesn't have.
	WaitingHistory WaitingReason = "HistoryLost"
)

// NewReport makes the report for a row that is up to date with in.
func NewReport(row Row, in Intent, review *Review, now time.Time) Report {
	r := Report{
		Row: row, Effective: row.Effective(now), Review: review,
		InstallationMissing: in.Installation == nil, WorkspaceMissing: in.Workspace == nil,
	}
	if in.Approval != nil {
		r.Generation = in.Approval.Generation
		for _, id := range in.Approval.Unknown {
			r.Inactive = append(r.Inactive, Inactive{ID: id, Reason: InactiveUnknown})
		}
	}
	if in.Installation == nil {
		return r
	}
	r.Declared = in.Installation.Declared
	var asked contract.CapabilitySet
	if in.Approval != nil {
		asked = in.Approval.Capabilities
	}
	for c := range (asked | r.Declared).All() {
		switch {
		case !r.Declared.Has(c):
			r.Inactive = append(r.Inactive, Inactive{c.String(), InactiveNotDeclared})
		case !in.Policy.Allowed.Has(c):
			r.Inactive = append(r.Inactive, Inactive{c.String(), InactiveHumanReserved})
		case row.State == StateActive && row.Granted.Has(c):
		case asked.Has(c) && review != nil && review.Reason == ReviewActAlreadyUsed:
			r.Inactive = append(r.Inactive, Inactive{c.String(), InactiveActAlreadyUsed})
		default:
			r.Inactive = append(r.Inactive, Inactive{c.String(), InactiveNotReviewed})
		}
	}
	return r
}
