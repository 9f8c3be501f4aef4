package auditlog

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kandev/plugin-host/hostsvc/authority"
)

// Fault classifies what is wrong with a history.
type Fault string

// The faults.
const (
	// FaultChanged: an event's content is not what its digest was made of.
	FaultChanged Fault = "Changed"
	// FaultForked: two different events of one revision were given.
	FaultForked Fault = "Forked"
	// FaultBroken: an event doesn't link to the one before it, so one of the
	// two was replaced, or written again with its digest.
	FaultBroken Fault = "Broken"
	// FaultGap: revisions between two that are here are missing.
	FaultGap Fault = "Gap"
	// FaultCut: revisions behind the newest one that is here are missing.
	FaultCut Fault = "Cut"
	// FaultBeginning: the first revisions are missing. Retention takes them out
	// of the API, so this alone is no sign of a change: an archive has them.
	FaultBeginning Fault = "Beginning"
	// FaultUnwitnessed: the newest revisions stand in an archive alone. The newest
	// event of a history is never pruned, so the cluster should have them; what it
	// has proves nothing of them, and somebody may have made them up.
	FaultUnwitnessed Fault = "Unwitnessed"
)

// Finding is one fault of a history.
type Finding struct {
	Fault Fault
	// From and To are the first and the last revision that it concerns.
	From, To uint64
	// Detail is for people.
	Detail string
}

// Chain is the history of one key, and what is wrong with it.
type Chain struct {
	Key              authority.Key
	InstallationName string
	// Events are those of the chain by revision, each once.
	Events []authority.Event
	// Findings is empty for a history that is whole and unchanged.
	Findings []Finding
}

// Intact tells whether nothing of what is here was changed, and nothing between
// is missing. A chain without its beginning can be intact.
func (c *Chain) Intact() bool {
	return !slices.ContainsFunc(c.Findings, func(f Finding) bool { return f.Fault != FaultBeginning })
}

// Complete tells whether the chain is intact from its first revision on.
func (c *Chain) Complete() bool { return len(c.Findings) == 0 }

// Verify puts events of any number of keys, in any order, into their chains and
// checks each. An event that is given twice, by an archive and by the API, counts
// once. The hashes bind what is archived to what is live: behind the newest live
// event, and where there is none, an archive is its own only witness. published
// holds the revisions that are known from elsewhere, such as a status: a chain that
// ends before is cut. A key that only published names has a chain without events.
func Verify(live, archived []authority.Event, published map[authority.Key]uint64) []Chain {
	byKey, newest := map[authority.Key][]authority.Event{}, map[authority.Key]uint64{}
	for _, e := range live {
		byKey[e.Row.Key] = append(byKey[e.Row.Key], e)
		newest[e.Row.Key] = max(newest[e.Row.Key], e.Row.Revision)
	}
	for _, e := range archived {
		byKey[e.Row.Key] = append(byKey[e.Row.Key], e)
	}
	for key, revision := range published {
		if _, ok := byKey[key]; !ok && revision > 0 {
			byKey[key] = nil
		}
	}
	chains := make([]Chain, 0, len(byKey))
	for key, history := range byKey {
		chains = append(chains, verify(key, history, newest[key], published[key]))
	}
	slices.SortFunc(chains, func(a, b Chain) int {
		return cmp.Or(cmp.Compare(a.InstallationName, b.InstallationName), cmp.Compare(a.Key.WorkspaceID, b.Key.WorkspaceID),
			cmp.Compare(a.Key.InstallationID, b.Key.InstallationID))
	})
	return chains
}

func verify(key authority.Key, history []authority.Event, newest, published uint64) Chain {
	slices.SortStableFunc(history, func(a, b authority.Event) int { return cmp.Compare(a.Row.Revision, b.Row.Revision) })
	c := Chain{Key: key}
	for _, e := range history {
		c.add(e)
	}
	last := uint64(0)
	if n := len(c.Events); n > 0 {
		last = c.Events[n-1].Row.Revision
		c.InstallationName = c.Events[n-1].InstallationName
	}
	if last > newest {
		c.found(FaultUnwitnessed, newest+1, last, "revisions %d to %d are not in the cluster, which keeps the newest: nothing but the archive says that they are true", newest+1, last)
	}
	if published > last {
		c.found(FaultCut, last+1, published, "revision %d was published, and the history ends at %d", published, last)
	}
	return c
}

// add takes the event of the next revision, or of the same once more.
func (c *Chain) add(e authority.Event) {
	revision := e.Row.Revision
	if err := e.Verify(); err != nil {
		c.found(FaultChanged, revision, revision, "the content of revision %d is not what its digest was made of", revision)
	} else if e.Row.AuditID != authority.AuditID(e.Row.Key, revision) {
		c.found(FaultChanged, revision, revision, "the audit ID of revision %d is another one's", revision)
	} else if e.BeforeRevision+1 != revision {
		c.found(FaultChanged, revision, revision, "revision %d says that it follows revision %d", revision, e.BeforeRevision)
	}
	if len(c.Events) == 0 {
		switch {
		case e.BeforeRevision > 0:
			c.found(FaultBeginning, 1, e.BeforeRevision, "revisions 1 to %d are not here", e.BeforeRevision)
		case e.PreviousHash != "":
			c.found(FaultBroken, revision, revision, "revision %d is the first and names one before it", revision)
		}
		c.Events = append(c.Events, e)
		return
	}
	before := c.Events[len(c.Events)-1]
	switch previous := before.Row.Revision; {
	case revision == previous:
		if e.DecisionDigest != before.DecisionDigest || e.PreviousHash != before.PreviousHash {
			c.found(FaultForked, revision, revision, "there are two different events of revision %d", revision)
		}
		return
	case e.BeforeRevision > previous:
		c.found(FaultGap, previous+1, e.BeforeRevision, "revisions %d to %d are missing", previous+1, e.BeforeRevision)
	case e.BeforeRevision != previous || e.PreviousHash != before.Hash():
		c.found(FaultBroken, previous, revision, "revision %d doesn't link to revision %d: one of them was replaced", revision, previous)
	}
	c.Events = append(c.Events, e)
}

func (c *Chain) found(fault Fault, from, to uint64, format string, args ...any) {
	f := Finding{Fault: fault, From: from, To: to, Detail: fmt.Sprintf(format, args...)}
	if !slices.Contains(c.Findings, f) {
		c.Findings = append(c.Findings, f)
	}
}
