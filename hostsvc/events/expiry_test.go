package events_test

import (
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority"
	"github.com/kandev/plugin-host/hostsvc/events"
)

// An approval that ends by the clock alone, with no revision and no pass, ends what a
// stream that is open is sent under it, at that instant.
func TestUserAsk47_AnExpiryEndsWhatAnOpenStreamIsSent(t *testing.T) {
	onBoth(t, func(d database) {
		w := d.world(limits)
		w.seen.declare(alpha, "task_relation.*")
		key := authority.Key{InstallationID: alpha, WorkspaceID: "w"}
		end := w.clock.Now().Add(time.Hour)
		from, err := w.store.Row(w.Context(), key)
		w.must(err)
		w.must(w.store.Fence(w.Context(), w.term, from, authority.Row{
			Key: key, Revision: 1, Act: authority.ActName(1, "abcdef"), State: authority.StateActive, ExpiresAt: end,
			Granted: contract.AllCapabilities, Declared: contract.AllCapabilities, Allowed: contract.AllCapabilities,
			Sum: authority.Vector{}.Sum(), Cause: authority.CauseHuman, AuditID: authority.AuditID(key, 1),
		}))
		s := w.watch(alpha, events.Watch{Patterns: []string{"task_relation.*"}})
		// Nothing but the approval runs out.
		w.seen.set(alpha, func(l *authority.Legacy) { l.FreshUntil = end.Add(24 * time.Hour) })
		_, err = w.next(s)
		w.must(err)
		for _, step := range []struct {
			after time.Duration
			sent  bool
		}{{0, true}, {time.Hour - time.Minute, true}, {time.Minute, false}, {time.Hour, false}} {
			w.clock.advance(step.after)
			w.commit("w", "task_relation.created", "r", nil)
			if !step.sent {
				w.silent(s)
				continue
			}
			if e := w.event(s); e.Event.Type != "task_relation.created" || e.Revision != 1 {
				t.Errorf("%v before its end, sent is %+v", end.Sub(w.clock.Now()), e)
			}
		}
	})
}
