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

// LegacyGrant is an entry of an installation's compatibility that names the
// installation's own ID.
type LegacyGrant struct {
	// ID is of the object, by its UID, and of all that the entry says: one that
	// differs in anything is another entry.
	ID string
	// Object is the UID, Field where the entry stands in it, for people.
	Object, Field string
	// Writers are the declared writers that it grants; none for another kind of grant.
	Writers contract.LegacySet
	// ImplicitExpectNone: it grants that.
	ImplicitExpectNone bool
}

// Granting returns the terms with what the grants that count give, and nothing else.
func (t LegacyTerms) Granting(grants []LegacyGrant, counts func(LegacyGrant) bool) LegacyTerms {
	t.Writers, t.ImplicitExpectNone = 0, false
	for _, g := range grants {
		if counts(g) {
			t.Writers |= g.Writers & t.Declared
			t.ImplicitExpectNone = t.ImplicitExpectNone || g.ImplicitExpectNone
		}
	}
	return t
}

// GrantStanding is what is known of a LegacyGrant.
type GrantStanding uint8

// The standings of a grant. Only a checked one counts.
const (
	// GrantUnknown: nobody has looked yet when it came, or whether it was away since.
	GrantUnknown GrantStanding = iota
	// GrantChecked: it came while the admission policies were proven in force, which
	// have checked who wrote it, and stands there since.
	GrantChecked
	// GrantNotVerified: it came while they were not. It never counts; another entry
	// in its place can.
	GrantNotVerified
)

// LegacyHistory decides which grants of compatibility count, by the rule of acts
// (Approval.Checked): what nobody has checked grants nothing, also later, until it
// is written anew, and what was checked stands whatever becomes of the policies.
// Grants have no row, so this is all that is known of them. The zero value knows
// nothing. It is not safe for concurrent use.
type LegacyHistory struct {
	// checked is the newest generation of its object at which a grant was found to
	// be, by ID.
	checked map[string]int64
	// objects are by UID.
	objects map[string]*observedGrants
}

// observedGrants are those of an object in the newest version that was observed,
// each with the generation since which no version lacks it.
type observedGrants struct {
	generation int64
	since      map[string]int64
}

// Learn takes over which grants were found checked, by ID with the generation.
func (h *LegacyHistory) Learn(checked map[string]int64) { h.checked = checked }

// CheckedAt is the newest generation at which a grant was found checked, 0 for none.
func (h *LegacyHistory) CheckedAt(id string) int64 { return h.checked[id] }

// Observe records a version of an object, with all its grants. Versions come in
// order; where one was missed, it may have lacked any grant.
func (h *LegacyHistory) Observe(object string, generation int64, grants []LegacyGrant) {
	before := h.objects[object]
	if before == nil {
		before = &observedGrants{}
	}
	if generation <= before.generation {
		return
	}
	after := &observedGrants{generation: generation, since: make(map[string]int64, len(grants))}
	for _, g := range grants {
		after.since[g.ID] = generation
		if since, there := before.since[g.ID]; there && generation == before.generation+1 {
			after.since[g.ID] = since
		}
	}
	if h.objects == nil {
		h.objects = map[string]*observedGrants{}
	}
	h.objects[object] = after
}

// Forget drops an object that is gone; its UID never comes back.
func (h *LegacyHistory) Forget(object string) { delete(h.objects, object) }

// Observed is the newest generation of an object that was observed, 0 for none.
func (h *LegacyHistory) Observed(object string) int64 {
	if o := h.objects[object]; o != nil {
		return o.generation
	}
	return 0
}

// Standing tells how a grant stands that is in a version of its object.
// distrusted: it was found in one while the policies were not proven in force.
func (h *LegacyHistory) Standing(g LegacyGrant, generation int64, distrusted bool) GrantStanding {
	at, checked := h.checked[g.ID]
	switch {
	case distrusted:
		return GrantNotVerified
	case !checked:
		return GrantUnknown
	case generation <= at+1:
		// One write doesn't take it away and put it back.
		return GrantChecked
	}
	if o := h.objects[g.Object]; o != nil {
		if since, there := o.since[g.ID]; there && since <= at+1 && generation <= o.generation+1 {
			return GrantChecked
		}
	}
	return GrantUnknown
}
