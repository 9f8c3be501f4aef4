package simulation

import (
	"math/rand/v2"
	"time"

	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/fence"
)

// mutant is one mistake that the design names; "" is the product as it is. Each
// is a switch of the ports or of the database around the product's own code.
type mutant string

const (
	mutantFenceSkipped       mutant = "fence skipped"
	mutantStatusFirst        mutant = "status before fence"
	mutantRevisionFromStatus mutant = "revision from the CR alone"
	mutantCachedAllow        mutant = "cached allow after revoke"
	mutantForShare           mutant = "FOR SHARE instead of the lock"
	mutantSerializable       mutant = "no lock with SERIALIZABLE"
	mutantRepeatableRead     mutant = "lock under REPEATABLE READ"
	mutantNoLeaderEpoch      mutant = "compare-and-set without leader epoch"
	mutantActOutside         mutant = "act admitted outside the fence"
	mutantEventCompared      mutant = "event content compared instead of obeyed"
	mutantHoldIsFlag         mutant = "hold as a flag"
	mutantLaggingHold        mutant = "hold from a lagging view"
	mutantOvertakes          mutant = "live read that overtakes the watch"
	mutantStartIsAct         mutant = "start mark applied as an act"
	mutantObjectsFirst       mutant = "objects read before the row"
	mutantHoldNotCompared    mutant = "fence that doesn't compare the hold"
	mutantRowNarrower        mutant = "row narrower than its event"
	mutantArmed              mutant = "a spent-by-nothing act left armed"
	mutantUnclipped          mutant = "granted not clipped at the act"
	mutantPredictable        mutant = "act names predictable"
	mutantCallerContext      mutant = "caller's context in a shared commit"
	mutantEvicted            mutant = "token evicted by event instead of checked"
	mutantLeaseUnchecked     mutant = "lease not checked before COMMIT"
	mutantRoundReadsFirst    mutant = "round that reads before t0"
	mutantNoStoreEpoch       mutant = "store epoch not compared"
	mutantNoBeat             mutant = "beat not compared"
	mutantTermBeatless       mutant = "beat not compared by a term"
	mutantOlderRenewed       mutant = "round that ends in an older copy"
	mutantEventUnchecked     mutant = "event of a row that has moved"
	mutantDiffersUnheld      mutant = "row that differs not held"
	mutantUncompared         mutant = "a row that no round has compared"
)

var mutants = []mutant{
	mutantFenceSkipped, mutantStatusFirst, mutantRevisionFromStatus, mutantCachedAllow, mutantForShare, mutantSerializable,
	mutantRepeatableRead, mutantNoLeaderEpoch, mutantActOutside, mutantEventCompared, mutantHoldIsFlag, mutantLaggingHold,
	mutantOvertakes, mutantStartIsAct, mutantObjectsFirst, mutantHoldNotCompared, mutantRowNarrower, mutantArmed,
	mutantUnclipped, mutantPredictable, mutantCallerContext, mutantEvicted, mutantLeaseUnchecked, mutantRoundReadsFirst,
	mutantNoStoreEpoch, mutantNoBeat, mutantTermBeatless, mutantOlderRenewed, mutantEventUnchecked, mutantDiffersUnheld, mutantUncompared,
}

// adjust draws the kind of schedule that a mistake needs to matter at all; what
// happens in it stays chance.
func (m mutant) adjust(p profile, rng *rand.Rand) profile {
	switch m {
	case mutantEvicted:
		p.tokens, p.calls, p.people = true, 6, 20
	case mutantNoStoreEpoch, mutantNoBeat, mutantOlderRenewed, mutantEventUnchecked, mutantRowNarrower:
		p.restores, p.often, p.settled, p.faults = true, true, true, 6+rng.IntN(8)
	case mutantTermBeatless:
		p = p.copying()
	case mutantForShare:
		p.writers, p.calls, p.grants = true, 40, true
	case mutantRoundReadsFirst:
		p.deaf, p.grants, p.restores, p.pace, p.turns, p.calls, p.people, p.faults = true, true, false, time.Second, 250, 12, 3, 1
	case mutantDiffersUnheld:
		p.stuck, p.grants, p.settled, p.restores, p.deaf, p.writers, p.tokens = true, true, true, false, false, false, false
		p.pace, p.turns, p.calls, p.people, p.faults, p.watches = time.Second, 250, 12, 2, 0, 1
	case mutantUncompared:
		p.stalls, p.grants, p.restores, p.deaf, p.settled = true, true, false, false, false
		p.turns, p.calls, p.people, p.faults, p.leap = 400, 30, 1, 0, 2*time.Second
	case mutantLeaseUnchecked:
		p.deaf, p.grants, p.restores, p.pace, p.turns, p.calls, p.people, p.faults = true, true, false, 700*time.Millisecond, 120, 15, 2, 0
		p.clients, p.watches, p.writers, p.settled, p.tokens, p.harsh = 4, 5, true, true, false, true
	default:
	}
	return p
}

// misread is what a mutant makes of a live read.
func (m mutant) misread(c *ports, r *fence.Reading) {
	a := r.Intent.Approval
	w := c.p.w
	switch m {
	case mutantActOutside:
		// It fitted when the process saw it first, so it is let through now.
		name := versionName{a.UID, a.Generation}
		row := w.db.row(keyFor(a))
		if _, known := c.p.admitted[name]; !known {
			c.p.admitted[name] = a.SupersedesAct == row.Act
		}
		if c.p.admitted[name] && !c.p.processed[name] {
			a.SupersedesAct = row.Act
		}
		if row.Seen.UID == a.UID && row.Seen.Generation >= a.Generation {
			c.p.processed[name] = true
		}
	case mutantArmed:
		// It widens nothing, so it is no act.
		row := w.db.row(keyFor(a))
		if row.State == authority.StateActive && row.Hold == nil && row.Granted.Covers(a.Capabilities&row.Declared&row.Allowed) &&
			a.ExpiresAt.Equal(row.ExpiresAt) {
			a.SupersedesAct += "!"
		}
	default:
	}
}

// misreadRow is what a mutant makes of a row.
func (m mutant) misreadRow(c *ports, row authority.Row) authority.Row {
	if m == mutantRevisionFromStatus {
		s := c.p.w.api.status
		if s.installationID != row.Key.InstallationID {
			s.revision = 0
		}
		row.Revision = s.revision
		if e, ok := c.p.w.api.event(row.Key, row.Revision); ok {
			row.EventHash = e.Row.EventHash
		} else if row.Revision == 0 {
			row.EventHash = ""
		}
	}
	return row
}

// rewrite is the event that a mutant makes instead of one.
func (m mutant) rewrite(c *ports, e authority.Event) (authority.Event, bool) {
	if m != mutantUnclipped || c.read == nil || e.Row.State != authority.StateActive {
		return e, false
	}
	a := c.read.Intent.Approval
	wanted := c.p.w.unclipped[e.Row.Key]
	if a != nil && e.Row.IssuedAt.Equal(e.Row.UpdatedAt) {
		wanted = a.Capabilities
	}
	c.p.w.unclipped[e.Row.Key] = wanted
	next := e.Row
	next.Granted |= wanted & next.Declared & next.Allowed
	if next.Granted == e.Row.Granted {
		return e, false
	}
	changed, err := authority.NewEvent(c.row, authority.Outcome{Changed: true, Next: next, Type: e.Type}, e.InstallationName)
	return changed, err == nil
}
