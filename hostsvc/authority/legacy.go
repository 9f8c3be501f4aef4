package authority

import (
	"slices"
	"time"

	"github.com/kandev/plugin-host/contract"
)

// LegacyTerms are what an installation declares and was granted for v1 calls. They
// are of the installation, not of a workspace, and have no row and no revision
// (I12).
type LegacyTerms struct {
	Declared contract.LegacySet
	// Events are the patterns of the events that it is sent. They must not be
	// changed.
	Events []string
	// Writers are those of the declared writers that were granted to this
	// installation's ID.
	Writers contract.LegacySet
	// ImplicitExpectNone: it may leave out of exact writes what the first plugins
	// didn't send.
	ImplicitExpectNone bool
}

// Equal tells whether both say the same.
func (t LegacyTerms) Equal(other LegacyTerms) bool {
	return t.Declared == other.Declared && t.Writers == other.Writers &&
		t.ImplicitExpectNone == other.ImplicitExpectNone && slices.Equal(t.Events, other.Events)
}

// Legacy is what a process sees of an installation for its v1 calls. Without a row
// in the store its freshness is all that bounds how long what was taken away still
// works: until FreshUntil.
type Legacy struct {
	// FreshUntil is when what is seen stops counting, by the process's own clock:
	// the life of a lease after the beginning of the last live read of every
	// installation that the watch is known to have caught up with. The zero time is
	// never.
	FreshUntil time.Time
	// Installed: an installation of that ID is there.
	Installed bool
	// Gates are those that block every workspace at once. While any is closed, or
	// nothing is installed, the terms are empty.
	Gates Gates
	LegacyTerms
}

// Fresh tells whether what is seen still counts.
func (l *Legacy) Fresh(now time.Time) bool { return now.Before(l.FreshUntil) }
